"""`mqbridge try`: apply a mapping to one message, without a queue manager; and reading messages from files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import msgspec
import typer

from bridge.cli import options
from bridge.cli.failures import FAILED, NOT_FOUND, WRONG_USAGE, Failure
from bridge.cli.options import CONFIG, OUTPUT, takes
from bridge.cli.output import note, print_record, write
from bridge.mapping.message_view import BYTE_FIELDS, message_of
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD, RFH2, Folder, MalformedHeader, encode_chain

if TYPE_CHECKING:
    from bridge.mapping.trial import Trial
    from bridge.telemetry.message import MappedMessage, Publication

Made = TypeVar("Made")


@takes(CONFIG | OUTPUT)
def try_mapping(
    mapping: Annotated[str, typer.Argument(metavar="MAPPING", help="Name of the mapping.", show_default=False)],
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Topic of the publication.", show_default=False)
    ] = None,
    payload: Annotated[str | None, typer.Option(metavar="TEXT", help="The payload or body.", show_default=False)] = None,
    payload_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the payload.", show_default=False)
    ] = None,
    message: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For a mapping to MQTT: file with the message, as `mqbridge mq get --json` prints it, or its bytes with"
            " headers.",
            show_default=False,
        ),
    ] = None,
    request: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="For a mapping to MQTT: file with the request that it replies to.", show_default=False
        ),
    ] = None,
    qos: Annotated[int, typer.Option(min=0, max=2, metavar="N", help="QoS of the publication.")] = 0,
    retain: Annotated[bool, typer.Option("--retain", help="Set RETAIN.")] = False,
    client_id: Annotated[
        str | None,
        typer.Option(
            metavar="CLIENT",
            help="Client identifier of the publisher. Default: mqbridge-try, or the name of the link.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[str, typer.Option(metavar="NAME", help="User name of the publisher.", show_default=False)] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="A User Property or message property. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    response_topic: Annotated[str, typer.Option(metavar="TOPIC", help="Response Topic.", show_default=False)] = "",
    correlation_data: Annotated[str, typer.Option(metavar="TEXT", help="Correlation Data.", show_default=False)] = "",
    content_type: Annotated[str, typer.Option(metavar="TEXT", help="Content Type.", show_default=False)] = "",
    expiry: Annotated[
        float | None,
        typer.Option(parser=options.duration, metavar="TIME", help="Time until the message expires.", show_default=False),
    ] = None,
    format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Format of bytes in --message, such as MQHRF2.", show_default=False)
    ] = None,
    ccsid: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="CCSID of bytes in --message.", show_default=False)
    ] = None,
) -> None:
    """Apply a mapping to a message, without a queue manager, and print the result.

    For a mapping to MQ, describe the publication (--topic, --payload and so on). The command prints the message. For a
    mapping to MQTT, give the message (--message). The command prints the publication.

    Exit status 1 if the mapping rejects the message, which would then be dead-lettered. 3 if the mapping does not take it.
    """
    trial = _trial(mapping)
    body = _payload(payload, payload_file)
    from bridge.mapping.rule import ToMqRule

    if isinstance(trial.rule, ToMqRule):
        if topic is None or message is not None or request is not None or format is not None or ccsid is not None:
            raise Failure(f"mapping {mapping} is a mapping to MQ: it requires --topic instead of --message", WRONG_USAGE)
        from bridge.cli.mq import properties_in
        from bridge.mqtt.packets import PublishProperties
        from bridge.telemetry.identity import USER_IDENTIFIER_LENGTH, fits_user_identifier
        from bridge.telemetry.message import Publication

        if not fits_user_identifier(user):
            why = f"--user is longer than {USER_IDENTIFIER_LENGTH} bytes, the length of an MQ user"
            raise Failure(f"{why}; the bridge rejects such a client unless it maps it to another user", WRONG_USAGE)
        publication = Publication(
            topic=topic,
            payload=body or b"",
            qos=qos,
            retain=retain,
            message_id=1 if qos else 0,
            client_id=trial.publisher if client_id is None else client_id,
            user=user.encode(),
            expiry=expiry,
            properties=PublishProperties(
                response_topic=response_topic or None,
                correlation_data=correlation_data.encode() or None,
                content_type=content_type or None,
                user_property=(*properties_in(properties or []).items(),),
            ),
        )
        _print_message(_made(mapping, lambda: trial.message(publication)))
        return
    if (message is None) == (body is None):
        raise Failure(
            f"mapping {mapping} is a mapping to MQTT: it requires --message FILE or --payload TEXT", WRONG_USAGE
        )
    if message is not None and properties:
        raise Failure("--property cannot be combined with --message", WRONG_USAGE)
    if qos or retain or client_id is not None or user or response_topic or correlation_data or content_type:
        options_ = "--qos, --retain, --client-id, --user, --response-topic, --correlation-data and --content-type"
        raise Failure(f"mapping {mapping} is a mapping to MQTT: {options_} are for mappings to MQ", WRONG_USAGE)
    from bridge.cli.mq import properties_in
    from bridge.mapping.message_view import with_properties

    tried = message_in(message, format, ccsid) if message is not None else message_of(body or b"", format, ccsid)
    tried = tried if not properties else with_properties(tried, properties_in(properties))
    asked = message_in(request, None, None) if request is not None else None
    made = _made(mapping, lambda: trial.publication(tried, topic, asked))
    _print_publication(trial.rule.config.destination.link, made)


def _trial(name: str) -> Trial:
    """Return the mapping with a name. Raises Failure."""
    from bridge.cli.queue_manager import configuration_in, configuration_path
    from bridge.config.problems import suggestion
    from bridge.mapping.trial import trial_of

    configuration = configuration_in(configuration_path())
    config = configuration.mappings.get(name)
    if config is None:
        known = suggestion(name, configuration.mappings) or ", ".join(configuration.mappings) or "there are none"
        raise Failure(f"no mapping {name} in the configuration ({known})", WRONG_USAGE)
    if not config.enabled:
        note(f"mapping {name} is not enabled")
    return trial_of(name, configuration)


def _payload(text: str | None, file: Path | None) -> bytes | None:
    if text is not None and file is not None:
        raise Failure("--payload and --payload-file exclude each other", WRONG_USAGE)
    if file is not None:
        return file.read_bytes()
    return text.encode("utf-8", "surrogateescape") if text is not None else None


def _made(name: str, make: Callable[[], Made]) -> Made:
    """Return the result of a mapping. Raises Failure if it rejects the message or does not take it."""
    from bridge.mapping.trial import NotTaken
    from bridge.telemetry.message import Unmappable
    from bridge.wire import cmqc

    try:
        return make()
    except Unmappable as error:
        reason = f"{cmqc.reason_name(error.reason)} ({error.reason})"
        text = f"mapping {name} rejects the message: {error}\nit would be dead-lettered with {reason}"
        raise Failure(text, FAILED) from error
    except NotTaken as error:
        raise Failure(f"mapping {name} does not take the message: {error}", NOT_FOUND) from error


def _print_message(mapped: MappedMessage) -> None:
    from bridge.mapping.trial import message_json

    print_record(message_json(mapped), mapped.destination.name, lambda _: write("\n".join(_message_lines(mapped))))


def _message_lines(mapped: MappedMessage) -> Iterator[str]:
    from bridge.mapping.message_view import MessageView

    to = mapped.destination
    manager = f" at queue manager {to.queue_manager}" if to.queue_manager else ""
    yield f"published to topic {to.name}" if to.is_topic else f"put to queue {to.name}{manager}"
    if mapped.kept is not None:
        yield f"its Response Topic and Correlation Data are kept on queue {mapped.kept.queue} for the reply"
    if mapped.clear:
        yield "it clears the retained publication of that topic"
    elif mapped.retain:
        yield "it becomes the retained publication of that topic (MQPMO_RETAIN)"
    if mapped.properties:
        yield "message properties"
        yield from (f"  {name:<20} {value}" for name, value in mapped.properties.items())
    yield MessageView(mapped.message.md, mapped.message.data).text(verbose=True, defaults=False)


def _print_publication(link: str, publication: Publication) -> None:
    from bridge.mapping.trial import publication_json

    view = publication_json(link, publication)
    print_record(view, publication.topic, lambda _: write(_publication_text(link, publication, view)))


def _publication_text(link: str, publication: Publication, view: dict[str, Any]) -> str:
    from bridge.config.link import LOCAL
    from bridge.mapping.message_view import body_text

    where = "" if link == LOCAL else f" of link {link}"
    said = {name: value for name, value in view.items() if name not in _APART and value not in (None, "")}
    said |= {"retain": "true" if publication.retain else "false"}
    pairs = [*said.items()]
    pairs += [(f"properties.{name}", value) for name, value in publication.properties.user_property]
    shown = [f"  {name:<20} {value}" for name, value in pairs]
    head = f"published to MQTT topic {publication.topic}{where}"
    return "\n".join([head, *shown, f"body ({len(publication.payload)} bytes)", body_text(publication.payload)])


#: Fields that the text form has elsewhere.
_APART = ("topic", "link", "properties", "userProperties", "body", "bodyEncoding")


# Messages in files ------------------------------------------------------------------------------------------------------

_HEADERS = {"xqh": "MQXQH", "dlh": "MQDLH", "mde": "MQMDE"}


def message_in(file: Path, format_: str | None, ccsid: int | None) -> Message:
    """Read the message in a file. Raises Failure or OSError.

    Without a format and CCSID, a JSON object with `md` is a message from `mqbridge mq get --json`, or from `mqbridge dlq
    export`, whose MQDLH is removed. Otherwise, the file contains the bytes of a message with headers.
    """
    data = file.read_bytes()
    if format_ is None and ccsid is None:
        try:
            view = msgspec.json.decode(data)
        except msgspec.DecodeError:
            view = None
        if isinstance(view, dict) and isinstance(view.get("md"), dict):
            return _message_of(view, file)
    return message_of(data, format_, ccsid)


def _message_of(view: dict[str, Any], file: Path) -> Message:
    if "data" in view:
        return _exported(view, file)
    for key, header in _HEADERS.items():
        if key in view:
            _reject(file, f"a message without an {header}, which JSON does not show in full (give its bytes, and --format)")
    md = _descriptor(view, file)
    try:
        headers = [_rfh2(one, file) for one in view.get("rfh2", [])]
        format_, encoding, ccsid, data = encode_chain(headers, _body(view, file))
    except (MalformedHeader, TypeError) as error:
        _reject(file, f"an RFH2 that can be written ({error})")
    if headers:
        md = msgspec.structs.replace(md, Format=format_, Encoding=encoding, CodedCharSetId=ccsid)
    return Message(md, data)


def _exported(view: dict[str, Any], file: Path) -> Message:
    """Return a message from `mqbridge dlq export`, as it was before it was dead-lettered."""
    from bridge.mq.dead_letter import original_of

    return original_of(_descriptor(view, file), _base64(view["data"], "data", file))


def _descriptor(view: dict[str, Any], file: Path) -> MQMD:
    return MQMD(**{name: _field(name, value, file) for name, value in view["md"].items()})


def _body(view: dict[str, Any], file: Path) -> bytes:
    body = view.get("body", "")
    if not isinstance(body, str):
        _reject(file, "text as body")
    if view.get("bodyEncoding", "utf-8") != "base64":
        return body.encode()
    return _base64(body, "body, as bodyEncoding says", file)


def _base64(text: Any, name: str, file: Path) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        _reject(file, f"base64 as {name} ({error})")


def _rfh2(view: Any, file: Path) -> RFH2:
    folders = view.get("folders") if isinstance(view, dict) else None
    if not isinstance(folders, dict) or not all(isinstance(content, dict | list) for content in folders.values()):
        _reject(file, "folders in each of rfh2, each with its properties")
    built = []
    for name, contents in folders.items():
        built += [Folder.build(name, one) for one in (contents if isinstance(contents, list) else [contents])]
    said = {key: view[key] for key in ("Encoding", "CodedCharSetId", "Flags", "NameValueCCSID") if key in view}
    return RFH2(Format=str(view.get("Format", "")).encode(), folders=tuple(built), **said)


def _field(name: str, value: Any, file: Path) -> Any:
    """Convert a field of the MQMD from JSON."""
    if name not in MQMD.__struct_fields__:
        _reject(file, f"fields of the MQMD only in md, not {name}")
    if not isinstance(getattr(MQMD(), name), bytes):
        return value if type(value) is int else _reject(file, f"a number as md.{name}")
    if not isinstance(value, str):
        _reject(file, f"text as md.{name}")
    try:
        return bytes.fromhex(value) if name in BYTE_FIELDS else value.encode()
    except ValueError as error:
        _reject(file, f"hexadecimal digits as md.{name} ({error})")


def _reject(file: Path, expected: str) -> NoReturn:
    raise Failure(f"{file}: expected {expected}", WRONG_USAGE)
