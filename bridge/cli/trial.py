"""`mqbridge try`, which applies a mapping to messages without a queue manager, and the reading of messages from files."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
import typer

from bridge.cli import options
from bridge.cli.failures import FAILED, NOT_FOUND, WRONG_USAGE, Failure
from bridge.cli.options import CONFIG, OUTPUT, argument, flag, option, takes
from bridge.cli.output import note, print_record, print_records, write
from bridge.mapping.message_view import BYTE_FIELDS, message_of
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD, RFH2, Folder, encode_chain

if TYPE_CHECKING:
    from bridge.mapping.attributes import Steps
    from bridge.mapping.trial import SampleResults, Trial
    from bridge.telemetry.message import MappedMessage, Publication

Mapped = TypeVar("Mapped")


@takes(CONFIG | OUTPUT)
def try_mapping(
    mapping: Annotated[str, argument("MAPPING", "Name of the mapping.")],
    topic: Annotated[str | None, option("TOPIC", "Topic of the publication.")] = None,
    payload: Annotated[
        str | None,
        option(
            "TEXT", "The payload or body. For a mapping of COBOL records to MQTT: a JSON object becomes the record."
        ),
    ] = None,
    payload_file: Annotated[Path | None, option("FILE", "File with the payload.")] = None,
    message: Annotated[
        Path | None,
        option(
            "FILE",
            "File with the message, as `mqbridge mq get --json` (or -o json, jsonl or yaml) or `mqbridge dlq export`"
            " prints it, or its bytes with headers. For a mapping to MQ: a publication.",
        ),
    ] = None,
    request: Annotated[
        Path | None, option("FILE", "For a mapping to MQTT: file with the request that it replies to.")
    ] = None,
    qos: Annotated[int, option("N", "QoS of the publication.", show_default=True, min=0, max=2)] = 0,
    retain: Annotated[bool, flag("Set RETAIN.", "--retain")] = False,
    client_id: Annotated[
        str | None,
        option("CLIENT", "Client identifier of the publisher. Default: mqbridge-try, or the name of the link."),
    ] = None,
    user: Annotated[str, option("NAME", "User name of the publisher.")] = "",
    properties: Annotated[
        list[str] | None, option("NAME=VALUE", "A User Property or message property. Can be repeated.", "--property")
    ] = None,
    response_topic: Annotated[str, option("TOPIC", "Response Topic.")] = "",
    correlation_data: Annotated[str, option("TEXT", "Correlation Data.")] = "",
    content_type: Annotated[str, option("TEXT", "Content Type.")] = "",
    expiry: Annotated[float | None, option("TIME", "Time until the message expires.", parser=options.duration)] = None,
    format: Annotated[str | None, option("FORMAT", "Format of bytes in --message, such as MQHRF2.")] = None,
    ccsid: Annotated[int | None, option("N", "CCSID of bytes in --message.", min=1)] = None,
    encoding: Annotated[
        int | None,
        option("N", "Encoding of the numbers of bytes in --message, such as 785 (z/OS).", min=1, max=4095),
    ] = None,
    samples: Annotated[
        Path | None,
        option(
            "FILE",
            "File with many messages, as of --message, or with many payloads, each of them a line (--each-line).",
        ),
    ] = None,
    steps: Annotated[
        bool, flag("Print the value after each step of the mapping, also if a step fails.", "--steps")
    ] = False,
    each_line: Annotated[bool, flag("Each line of --samples is a payload.", "--each-line")] = False,
) -> None:
    """Apply a mapping to a message, without a queue manager, and print the result.

    For a mapping to MQ, describe the publication (--topic, --payload and so on). The command prints the message. For a
    mapping to MQTT, give the message (--message). The command prints the publication. A dead-lettered publication can be
    given as --message, too.

    With --samples, the command applies the mapping to each payload or message in a file, and prints a summary and the
    failures: a test of a mapping with recorded messages.

    Exit status 1 if the mapping rejects a message, which would then be dead-lettered. 3 if the mapping does not take the
    message.
    """
    from bridge.cli.mq import properties_in

    trial = _trial(mapping)
    body = _payload(payload, payload_file)
    if samples is not None and (body is not None or message is not None):
        raise Failure("--samples cannot be combined with --payload, --payload-file and --message", WRONG_USAGE)
    if samples is not None and steps:
        raise Failure("--steps is for a single message, without --samples", WRONG_USAGE)
    if each_line and samples is None:
        raise Failure("--each-line requires --samples FILE", WRONG_USAGE)
    from bridge.mapping.rule import ToMqRule

    if isinstance(trial.rule, ToMqRule):
        reads_messages = message is not None or (samples is not None and not each_line)
        if request is not None or (topic is None and not reads_messages):
            raise Failure(
                f"mapping {mapping} is a mapping to MQ: it requires --topic TOPIC, or --message FILE with a publication",
                WRONG_USAGE,
            )
        if topic is not None and samples is not None and not each_line:
            raise Failure("--topic with --samples requires --each-line", WRONG_USAGE)
        # Options that are None if they are not specified, and options with other defaults.
        of_publication = (body, client_id, properties, expiry)
        defaults = (qos, retain, user, response_topic, correlation_data, content_type)
        of_message = (format, ccsid, encoding)
        specified = any(option is not None for option in (of_publication if reads_messages else of_message))
        if specified or (reads_messages and any(defaults)):
            wrong = (
                "--format, --ccsid and --encoding are" if not reads_messages else "other options than --topic are not"
            )
            raise Failure(f"mapping {mapping} is a mapping to MQ: {wrong} for messages in a file", WRONG_USAGE)
        if reads_messages:
            if samples is not None:
                sample_messages = messages_in(samples, format, ccsid, encoding)
                _print_results(partial(_put_to, trial, partial(trial.received, sample)) for sample in sample_messages)
                return
            assert message is not None
            source_message = message_in(message, format, ccsid, encoding)
            mapped_messages = _mapped(
                mapping, steps, lambda outcomes: trial.messages(trial.received(source_message, topic), outcomes)
            )
            _print_messages(mapped_messages, splits=trial.splits)
            return
        assert topic is not None
        described = topic  # for the type checker, in the function below

        def publication_of(payload: bytes) -> Publication:
            try:
                return trial.published(
                    described,
                    payload,
                    qos=qos,
                    retain=retain,
                    client_id=client_id or "",
                    user=user,
                    expiry=expiry,
                    response_topic=response_topic,
                    correlation_data=correlation_data,
                    content_type=content_type,
                    properties=properties_in(properties or []),
                )
            except ValueError as error:
                hint = "the bridge rejects such a client unless it maps it to another user"
                raise Failure(f"--user: {error}", WRONG_USAGE, hint=hint) from error

        if samples is not None:
            lines = samples.read_bytes().splitlines()
            _print_results(partial(_put_to, trial, partial(publication_of, line)) for line in lines)
            return
        publication = publication_of(body or b"")
        _print_messages(
            _mapped(mapping, steps, lambda outcomes: trial.messages(publication, outcomes)), splits=trial.splits
        )
        return
    if samples is None and (message is None) == (body is None):
        raise Failure(
            f"mapping {mapping} is a mapping to MQTT: it requires --message FILE or --payload TEXT", WRONG_USAGE
        )
    if message is not None and properties:
        raise Failure("--property cannot be combined with --message", WRONG_USAGE)
    specified = any(option is not None for option in (client_id, expiry))
    if specified or any((qos, retain, user, response_topic, correlation_data, content_type)):
        options_ = (
            "--qos, --retain, --client-id, --user, --response-topic, --correlation-data, --content-type and --expiry"
        )
        raise Failure(f"mapping {mapping} is a mapping to MQTT: {options_} are for mappings to MQ", WRONG_USAGE)
    from bridge.mapping.message_view import with_properties

    request_message = message_in(request, None, None) if request is not None else None

    def message_of_body(body: bytes) -> Message:
        message = trial.message(body, format, ccsid, encoding)
        return message if not properties else with_properties(message, properties_in(properties))

    if samples is not None:
        messages: Iterable[Callable[[], Message]] = (
            [partial(message_of_body, line) for line in samples.read_bytes().splitlines()]
            if each_line
            else [partial(_itself, sample) for sample in messages_in(samples, format, ccsid, encoding)]
        )
        _print_results(partial(_published_to, trial, sample, topic, request_message) for sample in messages)
        return

    def tried() -> Message:
        return message_in(message, format, ccsid, encoding) if message is not None else message_of_body(body or b"")

    publications = _mapped(
        mapping, steps, lambda outcomes: trial.publications(tried(), topic, request_message, outcomes)
    )
    _print_publications(trial.rule.config.destination.link, publications, splits=trial.splits)


def _put_to(trial: Trial, publication: Callable[[], Publication]) -> list[str]:
    """Return the destinations of the messages of a publication. Raises NotTaken or Unmappable."""
    destinations = [mapped.destination for mapped in trial.messages(publication())]
    return [f"topic {to.name}" if to.is_topic else f"queue {to.name}" for to in destinations]


def _itself(message: Message) -> Message:
    return message


def _published_to(
    trial: Trial, message: Callable[[], Message], topic: str | None, request: Message | None
) -> list[str]:
    """Return the topics of the publications of a message. Raises NotTaken or Unmappable."""
    return [f"topic {publication.topic}" for publication in trial.publications(message(), topic, request)]


def _print_results(samples: Iterable[Callable[[], Iterable[str]]]) -> None:
    """Print the results of a mapping for samples. Raises Failure if it rejects one."""
    from bridge.mapping.trial import SampleResults

    results = SampleResults()
    for destinations_of in samples:
        results.add(destinations_of)
    if not results.samples:
        raise Failure("the file of --samples contains no message", WRONG_USAGE)
    print_record(
        msgspec.to_builtins(results), str(results.rejected), lambda _: write("\n".join(_result_lines(results)))
    )
    if results.rejected or not results.mapped:
        raise typer.Exit(FAILED if results.rejected else NOT_FOUND)


def _result_lines(results: SampleResults) -> Iterator[str]:
    yield (
        f"{results.samples} samples: {results.mapped} mapped, {results.not_taken} not taken, {results.rejected} rejected"
    )
    for destination, number in sorted(results.destinations.items(), key=lambda count: (-count[1], count[0])):
        yield f"  {number:>6} to {destination}"
    for failure in results.failures:
        outcome = f"rejected ({failure.reason})" if failure.reason else "not taken"
        yield f"sample {failure.number} {outcome}: {failure.why}"
    more = results.not_taken + results.rejected - len(results.failures)
    if more:
        yield f"and {more} more"


def _trial(name: str) -> Trial:
    """Return the mapping with a name. Raises Failure."""
    from bridge.cli.queue_manager import configuration_in, configuration_path
    from bridge.config.problems import suggestion
    from bridge.mapping.trial import trial_of

    configuration = configuration_in(configuration_path())
    config = configuration.mappings.get(name)
    if config is None:
        names = suggestion(name, configuration.mappings) or ", ".join(configuration.mappings) or "none exist"
        raise Failure(f"no mapping {name} in the configuration ({names})", NOT_FOUND)
    if not config.enabled:
        note(f"mapping {name} is not enabled")
    return trial_of(name, configuration)


def _payload(text: str | None, file: Path | None) -> bytes | None:
    if text is not None and file is not None:
        raise Failure("--payload and --payload-file exclude each other", WRONG_USAGE)
    if file is not None:
        return file.read_bytes()
    return text.encode("utf-8", "surrogateescape") if text is not None else None


def _mapped(name: str, show_steps: bool, apply: Callable[[Steps | None], Mapped]) -> Mapped:
    """Return the result of a mapping. Raises Failure if it rejects the message or does not take it.

    With `show_steps`, print the steps on standard error, so that the result is alone on standard output.
    """
    from bridge.mapping.trial import NotTaken
    from bridge.telemetry.message import Unmappable
    from bridge.wire import cmqc

    steps: Steps | None = [] if show_steps else None
    try:
        return apply(steps)
    except Unmappable as error:
        reason = f"{cmqc.reason_name(error.reason)} ({error.reason})"
        text = f"mapping {name} rejects the message: {error}\nit would be dead-lettered with {reason}"
        raise Failure(text, FAILED) from error
    except NotTaken as error:
        raise Failure(f"mapping {name} does not take the message: {error}", NOT_FOUND) from error
    finally:
        for step, outcome in steps or ():
            print(f"{step}: {outcome}", file=sys.stderr)


def _print_messages(messages: Sequence[MappedMessage], *, splits: bool) -> None:
    from bridge.mapping.trial import message_json

    records = [
        (message_json(mapped), mapped.destination.name, "\n".join(_message_lines(mapped))) for mapped in messages
    ]
    _print_all(records, splits=splits)


def _print_all(records: Sequence[tuple[dict[str, Any], str, str]], *, splits: bool) -> None:
    """Print messages as JSON, by the names of their destinations or as text: a list of parts, or a single message."""
    if splits:
        names = iter([name for _, name, _ in records])
        print_records(
            [view for view, _, _ in records],
            lambda _: next(names),
            table=lambda _: write("\n\n".join(text for _, _, text in records)),
        )
    else:
        ((view, name, text),) = records
        print_record(view, name, lambda _: write(text))


def _message_lines(mapped: MappedMessage) -> Iterator[str]:
    from bridge.mapping.message_view import MessageView

    to = mapped.destination
    manager = f" at queue manager {to.queue_manager}" if to.queue_manager else ""
    yield f"published to topic {to.name}" if to.is_topic else f"put to queue {to.name}{manager}"
    if mapped.authority:
        yield f"with the authority of user {mapped.authority} (as: publisher)"
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


def _print_publications(link: str, publications: Sequence[Publication], *, splits: bool) -> None:
    from bridge.mapping.trial import publication_json

    views = [publication_json(link, publication) for publication in publications]
    texts = [_publication_text(link, publication, view) for publication, view in zip(publications, views, strict=True)]
    names = [publication.topic for publication in publications]
    _print_all([*zip(views, names, texts, strict=True)], splits=splits)


def _publication_text(link: str, publication: Publication, view: dict[str, Any]) -> str:
    from bridge.config.link import LOCAL
    from bridge.mapping.message_view import body_text

    broker = "" if link == LOCAL else f" of link {link}"
    fields = {name: value for name, value in view.items() if name not in _APART and value not in (None, "")}
    fields |= {"retain": "true" if publication.retain else "false"}
    pairs = [*fields.items()]
    pairs += [(f"properties.{name}", value) for name, value in publication.properties.user_property]
    lines = [f"  {name:<20} {value}" for name, value in pairs]
    head = f"published to MQTT topic {publication.topic}{broker}"
    return "\n".join([head, *lines, f"body ({len(publication.payload)} bytes)", body_text(publication.payload)])


#: Fields that the text form prints separately.
_APART = ("topic", "link", "properties", "userProperties", "body", "bodyEncoding")


# Messages in files ------------------------------------------------------------------------------------------------------

#: The MQMD in a file: byte fields in hexadecimal, characters as text. Fields that are not given have their defaults.
_Descriptor = msgspec.defstruct(
    "_Descriptor",
    [(name, int if isinstance(getattr(MQMD(), name), int) else str, msgspec.UNSET) for name in MQMD.__struct_fields__],
    forbid_unknown_fields=True,
)


class _Header(msgspec.Struct):
    """An MQRFH2 in a file."""

    folders: dict[str, dict[str, Any] | list[dict[str, Any]]]
    Format: str = ""
    Encoding: int = RFH2().Encoding
    CodedCharSetId: int = RFH2().CodedCharSetId
    Flags: int = RFH2().Flags
    NameValueCCSID: int = RFH2().NameValueCCSID

    def rfh2(self) -> RFH2:
        """Return the header."""
        folders = [
            Folder.build(name, folder)
            for name, contents in self.folders.items()
            for folder in (contents if isinstance(contents, list) else [contents])
        ]
        numbers = {name: getattr(self, name) for name in ("Encoding", "CodedCharSetId", "Flags", "NameValueCCSID")}
        return RFH2(Format=self.Format.encode(), folders=tuple(folders), **numbers)


class _MessageFile(msgspec.Struct):
    """A message as `mqbridge mq get --json` prints it, or as `mqbridge dlq export` writes it, with `data`."""

    md: _Descriptor  # type: ignore[valid-type]
    rfh2: list[_Header] = []
    body: str = ""
    bodyEncoding: Literal["utf-8", "base64"] = "utf-8"
    data: bytes | None = None
    xqh: Any = None
    dlh: Any = None
    mde: Any = None

    def message(self) -> Message:
        """Return the message. Raises ValueError or TypeError."""
        fields: dict[str, Any] = {
            name: value if isinstance(value, int) else bytes.fromhex(value) if name in BYTE_FIELDS else value.encode()
            for name, value in msgspec.structs.asdict(self.md).items()
            if value is not msgspec.UNSET
        }
        md = MQMD(**fields)
        if self.data is not None:
            from bridge.mq.dead_letter import original_of

            return original_of(md, self.data)
        if headers := [name for name in ("xqh", "dlh", "mde") if getattr(self, name) is not None]:
            raise ValueError(f"JSON does not show an MQ{headers[0].upper()} in full; specify the bytes, with --format")
        body = self.body.encode() if self.bodyEncoding == "utf-8" else base64.b64decode(self.body, validate=True)
        if not self.rfh2:
            return Message(md, body)
        format_, encoding, ccsid, with_headers = encode_chain([folder.rfh2() for folder in self.rfh2], body)
        md = msgspec.structs.replace(md, Format=format_, Encoding=encoding, CodedCharSetId=ccsid)
        return Message(md, with_headers)


def message_in(file: Path, format_: str | None, ccsid: int | None, encoding: int | None = None) -> Message:
    """Read the message in a file, or on standard input (-). Raises Failure or OSError.

    Without a format, CCSID and Encoding, JSON with `md` is a message from `mqbridge mq get` with --json or -o json, or from
    `mqbridge dlq export`, whose MQDLH is removed. Otherwise, the file contains the bytes of a message with headers.
    """
    messages = messages_in(file, format_, ccsid, encoding)
    if len(messages) != 1:
        hint = "get it with --limit 1" if messages else "the queue was empty"
        raise Failure(f"{file}: expected one message, found {len(messages)}", WRONG_USAGE, hint=hint)
    return messages[0]


def messages_in(file: Path, format_: str | None, ccsid: int | None, encoding: int | None = None) -> list[Message]:
    """Read the messages in a file, as `message_in`. Raises Failure or OSError."""
    content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    views = _printed_messages(content) if format_ is None and ccsid is None and encoding is None else None
    if views is None:
        return [message_of(content, format_, ccsid, encoding)]
    try:
        return [msgspec.convert(view, _MessageFile).message() for view in views]
    except (ValueError, TypeError) as error:
        raise Failure(f"{file} is not a message: {error}", WRONG_USAGE) from error


def _printed_messages(content: bytes) -> list[Any] | None:
    """Return the messages in the output of `mqbridge mq get`: JSON, JSON lines or YAML. None if it is something else."""
    try:
        views = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            views = [msgspec.json.decode(line) for line in content.splitlines()] or [None]  # an empty body
        except (msgspec.DecodeError, UnicodeDecodeError):
            if not content.startswith(b"- md:"):
                return None
            import yaml

            views = yaml.safe_load(content)
    if not isinstance(views, list):
        views = [views]
    return views if all(isinstance(view, dict) and isinstance(view.get("md"), dict) for view in views) else None
