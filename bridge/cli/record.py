"""`mqbridge record`: layouts of COBOL records, and files of records as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from bridge.cli.failures import FAILED, WRONG_USAGE, Failure
from bridge.cli.options import OUTPUT, Format, argument, option, settings, takes
from bridge.cli.output import print_records, print_table, say, write, write_bytes

if TYPE_CHECKING:
    from bridge.config.record import RecordConfig
    from bridge.mapping.record_payload import RecordPayload

_COPYBOOK = argument("COPYBOOK", "File with the copybook.")
_CCSID = option("N", "CCSID of the text. Default: 1208 (UTF-8).", min=1, max=65535)
_OPTION = option(
    "NAME=VALUE",
    "An option of `payload` in mappings, such as names=camel, encoding=s390, record=NAME or"
    " 'redefines={detail: {field: kind, items: {N: number}}}'. Can be repeated.",
    "--option",
)


class RecordField(msgspec.Struct, rename="camel"):
    """An item of a copybook, as `record show` prints it."""

    #: from the beginning of the record. The offset of a table is that of its first element
    offset: int
    length: int
    #: 0: the record
    depth: int
    cobol_name: str
    #: path in JSON, without indexes. "": FILLER
    json_name: str
    description: str
    #: number of elements of a table. 1: not a table
    occurs: int


@takes(OUTPUT)
def show(
    copybook: Annotated[Path, _COPYBOOK],
    options: Annotated[list[str] | None, _OPTION] = None,
) -> None:
    """Print the offsets, lengths and JSON names of a COBOL record."""
    from bridge.record.layout import path_of

    layout = _record(record_options(copybook, options)).layout
    fields = []
    for depth, item in layout.items():
        name = path_of(item) if item.name is not None and item.parent is not None else ""
        occurs = 1 if item.occurs is None else item.occurs.maximum
        fields.append(
            RecordField(item.offset, item.length, depth, item.title, name, item.description, occurs),
        )

    def table(records: list[RecordField]) -> None:
        heads = ("OFFSET", "LENGTH", "ITEM", "PICTURE", "JSON NAME")
        rows = [
            (field.offset, field.length, "  " * field.depth + field.cobol_name, field.description, field.json_name)
            for field in records
        ]
        print_table(heads, rows)
        shortest = f"{layout.minimum:,} to " if layout.minimum < layout.maximum else ""
        say(f"{shortest}{layout.maximum:,} bytes")

    print_records(fields, lambda field: field.json_name, table=table)


@takes(OUTPUT)
def decode(
    copybook: Annotated[Path, _COPYBOOK],
    file: Annotated[Path, argument("FILE", "File with records, one after another. -: standard input.")],
    ccsid: Annotated[int | None, _CCSID] = None,
    options: Annotated[list[str] | None, _OPTION] = None,
) -> None:
    """Print the records of a file as JSON, one document per line."""
    from bridge.mapping.json_document import encoded
    from bridge.record.codec import RecordError
    from bridge.telemetry.message import Unmappable

    payload = record_options(copybook, options, ccsid)
    record = _record(payload)
    codec = record.codec(*_machine(payload, record))
    content = _read(file)

    def documents() -> Iterator[msgspec.Raw]:
        start = number = 0
        while start < len(content):
            number += 1
            try:
                end = start + codec.length_of(content, start)[0]
                document = codec.decode(content[start:end])
            except (RecordError, Unmappable) as error:
                raise Failure(f"{file}: record {number} at offset {start:,}: {error}", FAILED) from error
            yield msgspec.Raw(encoded(document))
            start = end

    if settings.output is Format.table:
        for document in documents():
            write(bytes(document))
        return
    print_records(documents(), bytes)


@takes(OUTPUT)
def encode(
    copybook: Annotated[Path, _COPYBOOK],
    file: Annotated[Path, argument("FILE", "File with JSON documents, one per line, or an array. -: standard input.")],
    ccsid: Annotated[int | None, _CCSID] = None,
    options: Annotated[list[str] | None, _OPTION] = None,
    to: Annotated[Path | None, option("FILE", "File for the records. Default: standard output.", "--to")] = None,
) -> None:
    """Write JSON documents as records, one after another."""
    from bridge.telemetry.message import Unmappable

    payload = record_options(copybook, options, ccsid)
    record = _record(payload)
    machine = _machine(payload, record)
    records = []
    for number, document in enumerate(_documents(_read(file)), 1):
        try:
            records.append(record.record_of(document, *machine))
        except Unmappable as error:
            raise Failure(f"{file}: document {number}: {error}", FAILED) from error
    if to is None:
        write_bytes(b"".join(records))
        return
    to.write_bytes(b"".join(records))
    say(f"{len(records)} records written to {to}")


def record_options(
    copybook: Path, options: list[str] | None, ccsid: int | None = None, *, name: str = "--option"
) -> RecordConfig:
    """Return the options of a record. `name` is the option of the command that has them. Raises Failure."""
    from pydantic import ValidationError

    from bridge.config.problems import place_of
    from bridge.config.record import RecordConfig

    fields: dict[str, Any] = {"copybook": str(copybook), "ccsid": ccsid}
    for text in options or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise Failure(f"{name} {text}: expected NAME=VALUE", WRONG_USAGE)
        fields[key] = _yaml(f"{name} {key}", value)
    try:
        return RecordConfig.model_validate(fields)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        location, is_key = place_of(detail, RecordConfig)
        message = "no such option" if is_key else detail["msg"]
        raise Failure(f"{name} {'.'.join(map(str, location))}: {message}", WRONG_USAGE) from error


def _yaml(option: str, text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Failure(f"{option}: expected a value in YAML, found {text!r}", WRONG_USAGE) from error


def _record(payload: RecordConfig) -> RecordPayload:
    """Return the record of a copybook. Raises Failure."""
    from bridge.mapping.record_payload import RecordPayload
    from bridge.mapping.template import RecordLayoutError

    try:
        return RecordPayload(payload)
    except RecordLayoutError as error:
        text = error.sentence if error.location == ("copybook",) else f"--option {error}"
        raise Failure(text, WRONG_USAGE) from error


def _machine(payload: RecordConfig, record: RecordPayload) -> tuple[int, int]:
    """Return the CCSID and the Encoding of records. Raises Failure."""
    from bridge.mapping.template import RecordLayoutError
    from bridge.telemetry.message import CCSID_UTF8

    ccsid = payload.ccsid or CCSID_UTF8
    encoding = payload.encoding_for(ccsid)
    try:
        record.check(ccsid, encoding)
    except RecordLayoutError as error:
        raise Failure(str(error), WRONG_USAGE) from error
    return ccsid, encoding


def _read(file: Path) -> bytes:
    return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()


def _documents(content: bytes) -> list[bytes]:
    """Return the JSON documents of a file. Raises Failure."""
    if content.lstrip()[:1] != b"[":
        return [line for line in content.splitlines() if line.strip()] if _is_lines(content) else [content]
    try:
        return [bytes(document) for document in msgspec.json.decode(content, type=list[msgspec.Raw])]
    except msgspec.DecodeError as error:
        raise Failure(f"expected an array of JSON documents: {error}", FAILED) from error


def _is_lines(content: bytes) -> bool:
    """Return whether the first line is a JSON document."""
    try:
        msgspec.json.decode(content.lstrip().partition(b"\n")[0], type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True
