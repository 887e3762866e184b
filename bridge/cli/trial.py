"""`mqbridge try`: what a mapping makes of one message, without a queue manager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from bridge.cli import options
from bridge.cli.failures import FAILED, WRONG_USAGE, Failure

if TYPE_CHECKING:
    from bridge.mapping.rules.trial import Trial
    from bridge.telemetry.message import MappedMessage, Publication

Made = TypeVar("Made")

#: The mapping does not take the message: it would pass it by.
NOT_TAKEN = 3


def try_mapping(
    mapping: Annotated[str, typer.Argument(metavar="MAPPING", help="Name of the mapping.", show_default=False)],
    config: options.ConfigurationFile = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Topic that it is published to.", show_default=False)
    ] = None,
    payload: Annotated[str | None, typer.Option(metavar="TEXT", help="The payload, or body.", show_default=False)] = None,
    payload_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the payload.", show_default=False)
    ] = None,
    message: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="To MQTT: the message, as `mqbridge mq get --json` prints it, or its bytes, headers included.",
            show_default=False,
        ),
    ] = None,
    request: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="To MQTT: the request that it answers, as kept; as --message.", show_default=False),
    ] = None,
    qos: Annotated[int, typer.Option(min=0, max=2, metavar="N", help="QoS of the publication.")] = 0,
    retain: Annotated[bool, typer.Option("--retain", help="Publish it with RETAIN.")] = False,
    client_id: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Client identifier of who publishes it. Without it: mqbridge-try, or the name of the link.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[str, typer.Option(metavar="NAME", help="Its user name.", show_default=False)] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="A user property; to MQTT, a message property. Any number of times.",
            show_default=False,
        ),
    ] = None,
    response_topic: Annotated[str, typer.Option(metavar="TOPIC", help="Response Topic.", show_default=False)] = "",
    correlation_data: Annotated[str, typer.Option(metavar="TEXT", help="Correlation Data.", show_default=False)] = "",
    content_type: Annotated[str, typer.Option(metavar="TEXT", help="Content Type.", show_default=False)] = "",
    expiry: Annotated[
        float | None, typer.Option(min=0, metavar="S", help="Seconds until it expires.", show_default=False)
    ] = None,
    format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Format of bytes in --message, such as MQHRF2.", show_default=False)
    ] = None,
    ccsid: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="CCSID of bytes in --message.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """Print what a mapping makes of a message, without a queue manager.

    For a mapping to MQ, give the publication (--topic, --payload and so on): it prints the message that would
    be put. For a mapping to MQTT, give the message (--message): it prints the publication.

    Exit status 1 when the mapping refuses the message, which would then go to the dead-letter queue; 3 when it
    does not take it, so that it would pass it by.
    """
    trial = _trial(mapping, config)
    body = _payload(payload, payload_file)
    from bridge.mapping.rules.rule import ToMqRule

    if isinstance(trial.rule, ToMqRule):
        if topic is None or message is not None or request is not None or format is not None or ccsid is not None:
            raise Failure(f"mapping {mapping} is one to MQ: it needs --topic, and takes no --message", WRONG_USAGE)
        from bridge.cli.body import properties_in
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
        _print_message(_made(mapping, lambda: trial.message(publication)), json)
        return
    if (message is None) == (body is None):
        raise Failure(
            f"mapping {mapping} is one to MQTT: it needs --message FILE, or its body as --payload", WRONG_USAGE
        )
    if message is not None and properties:
        raise Failure("--property is of a message whose body is --payload; --message has its own", WRONG_USAGE)
    if qos or retain or client_id is not None or user or response_topic or correlation_data or content_type:
        options_ = "--qos, --retain, --client-id, --user, --response-topic, --correlation-data and --content-type"
        raise Failure(f"mapping {mapping} is one to MQTT: {options_} are of publications to MQ", WRONG_USAGE)
    from bridge.cli.body import properties_in
    from bridge.cli.message_file import message_in
    from bridge.mapping.made_message import message_of, with_properties

    tried = message_in(message, format, ccsid) if message is not None else message_of(body or b"", format, ccsid)
    tried = tried if not properties else with_properties(tried, properties_in(properties))
    asked = message_in(request, None, None) if request is not None else None
    made = _made(mapping, lambda: trial.publication(tried, topic, asked))
    _print_publication(trial.rule.config.destination.link, made, json)


def _trial(name: str, file: Path | None) -> Trial:
    """Return the mapping of that name, to be tried. Raises Failure."""
    from bridge.cli.output import note
    from bridge.cli.queue_manager import CONFIGURATION_VARIABLE, configuration_of
    from bridge.config.problems import suggestion
    from bridge.mapping.rules.trial import trial_of

    configuration = configuration_of(file, None)
    if configuration is None:
        raise Failure(f"no configuration file: give --config, or name it in {CONFIGURATION_VARIABLE}", WRONG_USAGE)
    config = configuration.mappings.get(name)
    if config is None:
        known = suggestion(name, configuration.mappings) or ", ".join(configuration.mappings) or "there is none"
        raise Failure(f"no mapping {name} in the configuration ({known})", WRONG_USAGE)
    if not config.enabled:
        note(f"mapping {name} is not enabled: what comes for it waits")
    return trial_of(name, configuration)


def _payload(text: str | None, file: Path | None) -> bytes | None:
    if text is not None and file is not None:
        raise Failure("--payload and --payload-file: one of them", WRONG_USAGE)
    if file is not None:
        return file.read_bytes()
    return text.encode("utf-8", "surrogateescape") if text is not None else None


def _made(name: str, make: Callable[[], Made]) -> Made:
    """Return what a mapping makes of a message. Raises Failure where it refuses the message, or does not take it."""
    from bridge.mapping.rules.trial import NotTaken
    from bridge.telemetry.message import Unmappable
    from bridge.wire import cmqc

    try:
        return make()
    except Unmappable as error:
        reason = f"{cmqc.reason_name(error.reason)} ({error.reason})"
        text = f"mapping {name} refuses it: {error}\nit would go to the dead-letter queue with {reason}"
        raise Failure(text, FAILED) from error
    except NotTaken as error:
        raise Failure(f"mapping {name} does not take it: {error}", NOT_TAKEN) from error


def _print_message(mapped: MappedMessage, json: bool) -> None:
    from bridge.cli.output import write, write_json

    if json:
        from bridge.mapping.rules.trial import message_json

        write_json(message_json(mapped))
        return
    write("\n".join(_message_lines(mapped)))


def _message_lines(mapped: MappedMessage) -> Iterator[str]:
    from bridge.mapping.message_view import MessageView

    to = mapped.destination
    manager = f" at queue manager {to.queue_manager}" if to.queue_manager else ""
    yield f"published to topic {to.name}" if to.is_topic else f"put to queue {to.name}{manager}"
    if mapped.kept is not None:
        yield f"its Response Topic and Correlation Data are kept on queue {mapped.kept.queue} for the answer"
    if mapped.clear:
        yield "it clears the retained publication of that topic"
    elif mapped.retain:
        yield "it becomes the retained publication of that topic (MQPMO_RETAIN)"
    if mapped.properties:
        yield "message properties"
        yield from (f"  {name:<20} {value}" for name, value in mapped.properties.items())
    yield MessageView(mapped.message.md, mapped.message.data).text(verbose=True, defaults=False)


def _print_publication(link: str, publication: Publication, json: bool) -> None:
    from bridge.cli.output import write, write_json
    from bridge.mapping.rules.trial import publication_json

    view = publication_json(link, publication)
    if json:
        write_json(view)
        return
    from bridge.config import LOCAL
    from bridge.mapping.message_view import body_text

    where = "" if link == LOCAL else f" of link {link}"
    said = {name: value for name, value in view.items() if name not in _APART and value not in (None, "")}
    said |= {"retain": "true" if publication.retain else "false"}
    pairs = [*said.items()]
    pairs += [(f"properties.{name}", value) for name, value in publication.properties.user_property]
    shown = [f"  {name:<20} {value}" for name, value in pairs]
    head = f"published to MQTT topic {publication.topic}{where}"
    write("\n".join([head, *shown, f"body ({len(publication.payload)} bytes)", body_text(publication.payload)]))


#: What the text form of a publication says elsewhere.
_APART = ("topic", "link", "properties", "userProperties", "body", "bodyEncoding")
