"""Conversion between the bytes of records and JSON documents, by a layout that is compiled once.

The items of a group become steps. Adjacent fields are one step, with one call of `struct`. Numbers are exact: whole numbers
are int, and a function of the caller converts the digits of all others.
"""

from __future__ import annotations

import codecs
import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from bridge.record.field import (
    EXACT,
    SHOWN,
    CodecError,
    CodecOptions,
    FieldCodecs,
    FieldReader,
    FieldWriter,
    described,
    shown,
)
from bridge.record.layout import AlternativeSelector, RecordItem, RecordLayout, Redefinition, members_of, path_of


class RecordError(ValueError):
    """A record that does not fit its layout, or a document that does not fit."""

    def __init__(self, sentence: str, field: str = "", offset: int | None = None, raw: bytes | None = None) -> None:
        super().__init__(sentence)
        self.sentence, self.field, self.offset, self.raw = sentence, field, offset, raw

    def __str__(self) -> str:
        if not self.field:
            return self.sentence
        place = f"field {self.field} at offset {self.offset}" if self.offset is not None else f"field {self.field}"
        return f"{place}{'' if self.raw is None else f' ({shown(self.raw)})'}: {self.sentence}"

    def inside(self, name: str) -> RecordError:
        """Return the error with the name of the group that contains the field, or the index of an element, before it."""
        separator = "" if not self.field or self.field.startswith("[") else "."
        self.field = f"{name}{separator}{self.field}"
        return self


#: Maximum number of names in an error message.
_MAX_NAMES: Final = 20
#: Maximum number of fields of one step.
_MAX_RUN: Final = 200
#: Adds members to an object, from a record, an offset, and the number of elements of the table with DEPENDING ON.
ReadStep = Callable[[bytes, int, dict[str, Any], int], None]
#: Adds bytes for the members of an object. The last argument contains the objects from the record to this one.
WriteStep = Callable[[dict[str, Any], list[bytes], tuple[dict[str, Any], ...]], None]


class RecordCodec:
    """Converts records of a layout, in a CCSID and an Encoding (MQMD). Raises CodecError.

    `fraction` converts the digits of a number with decimals to a value, and `floating` those of a floating-point number.
    """

    def __init__(
        self,
        layout: RecordLayout,
        ccsid: int,
        encoding: int,
        options: CodecOptions = EXACT,
        fraction: Callable[[str], Any] = Decimal,
        floating: Callable[[str], Any] | None = None,
    ) -> None:
        self._layout = layout
        self._fields = FieldCodecs(ccsid, encoding, options, fraction, floating)
        compiler = _Compiler(self._fields, options)
        self._read_steps, self._write_steps = compiler.steps(layout.record, layout.record.offset)
        self._known = _names_of(layout.record)
        self._ignores_unknown = options.ignore_unknown
        compiler.check_default()
        self._minimum = layout.minimum
        self._count: FieldReader | None = None
        if layout.count is not None:
            self._count = self._fields.of(layout.count)[0]

    def decode(self, record: bytes) -> dict[str, Any]:
        """Return the document of a record. Raises RecordError."""
        length, count = self._minimum, 0
        if self._count is not None:
            length, count = self.length_of(record, 0)
        if len(record) != length:
            raise self._wrong_length(record, length)
        document: dict[str, Any] = {}
        for step in self._read_steps:
            step(record, 0, document, count)
        return document

    def length_of(self, records: bytes, start: int) -> tuple[int, int]:
        """Return the length of the record that begins at an offset, and the elements of its table with DEPENDING ON.

        Raises RecordError.
        """
        field, table = self._layout.count, self._layout.table
        if field is None or table is None or table.occurs is None or self._count is None:
            return self._minimum, 0
        raw = records[start + field.offset : start + field.end]
        if len(raw) < field.length:
            raise self._wrong_length(records[start:], self._minimum)
        try:
            count = int(self._count(raw))
        except ValueError as error:
            raise RecordError(str(error), path_of(field), field.offset, raw) from error
        low, high = table.occurs.minimum, table.occurs.maximum
        if not low <= count <= high:
            why = f"{table.title} has {low} to {high} elements, not {count}"
            raise RecordError(why, path_of(field), field.offset, raw)
        return self._minimum + (count - low) * table.stride, count

    def encode(self, document: Any) -> bytes:
        """Return the record of a document. Raises RecordError."""
        if not isinstance(document, dict):
            raise RecordError(f"a record is made of an object, not of {described(document)}")
        if self._count is not None:
            document = self._with_count(document)
        parts: list[bytes] = []
        scopes = (document,)
        for step in self._write_steps:
            step(document, parts, scopes)
        if not self._ignores_unknown and not document.keys() <= self._known:
            raise _unknown(document, self._known)
        return b"".join(parts)

    def _wrong_length(self, record: bytes, expected: int) -> RecordError:
        length = len(record)
        if length > expected:
            return RecordError(
                f"the record is too long: {length:,} bytes, of {expected:,}; {shown(record[expected:])} at offset"
                f" {expected}"
            )
        fields = [item for _, item in self._layout.items() if not item.is_group and item.offset <= length]
        last = max(fields, key=lambda item: item.offset)
        place = f"field {path_of(last)} at offset {last.offset}"
        end = f"before {place}" if last.offset == length else f"in {place} ({shown(record[last.offset :])})"
        return RecordError(f"the record is too short: {length:,} bytes, of {expected:,}; it ends {end}")

    def _with_count(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a document with the number of elements of the table with DEPENDING ON."""
        field, table = self._layout.count, self._layout.table
        assert field is not None and table is not None
        elements: Any = document
        for name in path_of(table).split("."):
            elements = elements.get(name) if isinstance(elements, dict) else None
        if not isinstance(elements, list):
            return document  # the table reports an error, or uses its default
        *groups, name = path_of(field).split(".")
        completed = group = dict(document)
        for above in groups:
            inner = group.get(above)
            group[above] = group = dict(inner) if isinstance(inner, dict) else {}
        count = group.get(name)
        if count is not None and str(count) != str(len(elements)):
            raise RecordError(
                f"{count} is not {len(elements)}, the number of elements of {path_of(table)}", path_of(field)
            )
        group[name] = len(elements)
        return completed


def _names_of(group: RecordItem) -> frozenset[str]:
    return frozenset(name for name, _ in members_of(group, alternatives=True))


def _unknown(document: dict[str, Any], names: frozenset[str]) -> RecordError:
    name = next(name for name in document if name not in names)
    return RecordError(
        f"the record has no such field (it has {', '.join(sorted(names)[:_MAX_NAMES]) or 'none'})", name[:SHOWN]
    )


# Steps ---------------------------------------------------------------------------------------------------------------


class _Part(msgspec.Struct):
    """A part of a group: an item, or the bytes of FILLER and slack bytes."""

    offset: int
    item: RecordItem | Redefinition | None = None
    fill: bytes = b""


def _no_writer(_: Any) -> bytes:
    raise AssertionError("FILLER has no value")


class _Entry(msgspec.Struct):
    """A field to write, or FILLER, which has no name."""

    name: str | None
    #: in bytes
    length: int
    writer: FieldWriter = _no_writer
    #: the bytes if the document has no value, or None
    default: bytes | None = None
    #: `FieldCodecs.padding`
    padding: str = ""


class _Compiler:
    """Creates the steps that read and write groups."""

    def __init__(self, fields: FieldCodecs, options: CodecOptions) -> None:
        self._fields = fields
        self._options = options
        self._unused = set(options.default)

    def check_default(self) -> None:
        """Raise CodecError for a default of a field that the record does not have."""
        if self._unused:
            path = min(self._unused)
            raise CodecError(("default", path), f"the record has no field {path}")

    def steps(self, group: RecordItem, base: int) -> tuple[list[ReadStep], list[WriteStep]]:
        """Return the steps of the members of a group. `base` is the offset of the object to which they belong."""
        readers: list[ReadStep] = []
        writers: list[WriteStep] = []
        run: list[_Part] = []

        def end_run() -> None:
            if run:
                reader, writer = self._run(run[0].offset - base, list(run), base)
                if reader is not None:
                    readers.append(reader)
                writers.append(writer)
                run.clear()

        for part in self._parts(group):
            item = part.item
            if item is None or (isinstance(item, RecordItem) and not item.is_group and item.occurs is None):
                run.append(part)
                if len(run) == _MAX_RUN:
                    end_run()
                continue
            end_run()
            if isinstance(item, Redefinition):
                reader, writer = self._redefinition(item, base)
            elif item.occurs is not None:
                reader, writer = self._table(item, base)
            else:
                reader, writer = self._group(item, base)
            assert reader is not None
            readers.append(reader)
            writers.append(writer)
        end_run()
        return readers, writers

    def _parts(self, group: RecordItem) -> Iterator[_Part]:
        """Yield the parts of a group. Those of FILLER groups belong to the group that contains them."""
        position = group.offset
        for child in group.children:
            if child.offset > position:
                yield _Part(position, fill=bytes(child.offset - position))
            if isinstance(child, Redefinition):
                position = child.offset + child.length
                yield _Part(child.offset, child)
                continue
            position = child.end
            if child.name is not None:
                yield _Part(child.offset, child)
            elif child.is_group:
                yield from self._parts(child)
            else:
                yield _Part(child.offset, fill=self._fields.filler(child, child.end - child.offset))

    def _run(self, offset: int, parts: Sequence[_Part], base: int) -> tuple[ReadStep | None, WriteStep]:
        """Return the steps of adjacent fields."""
        names: list[str] = []
        readers: list[FieldReader] = []
        offsets: list[int] = []
        form = []
        entries: list[_Entry] = []
        for part in parts:
            item = part.item
            if item is None:
                form.append(f"{len(part.fill)}x")
                entries.append(_Entry(None, len(part.fill), default=part.fill))
                continue
            assert isinstance(item, RecordItem) and item.name is not None
            reader, writer = self._fields.of(item)
            names.append(item.name)
            readers.append(reader)
            offsets.append(part.offset - base)
            form.append(f"{item.length}s")
            entries.append(
                _Entry(item.name, item.length, writer, self._default(item, writer), self._fields.padding(item))
            )
        unpack = struct.Struct("=" + "".join(form)).unpack_from
        read_fields = _compiled_reader(names, readers, self._fields)
        fields = list(zip(names, readers, offsets, strict=True))

        def read(record: bytes, start: int, document: dict[str, Any], _: int) -> None:
            raws = unpack(record, start + offset)
            try:
                read_fields(document, *raws)
            except ValueError:
                for (name, reader, place), raw in zip(fields, raws, strict=True):
                    try:
                        reader(raw)
                    except ValueError as error:
                        raise RecordError(_reason(error), name, start + place, raw) from error
                raise

        write_fields = _compiled_writer(entries, self._fields)

        def write(document: dict[str, Any], output: list[bytes], _: tuple[dict[str, Any], ...]) -> None:
            try:
                output.append(write_fields(document))
                return
            except (KeyError, ValueError, AttributeError, TypeError):
                pass
            name = None
            try:
                # A value is missing or wrong.
                for entry in entries:
                    name = entry.name
                    value = None if name is None else document.get(name)
                    if value is not None:
                        output.append(entry.writer(value))
                    elif entry.default is None:
                        raise ValueError("missing, and it has no default")
                    else:
                        output.append(entry.default)
            except ValueError as error:
                assert name is not None
                raise RecordError(_reason(error), name, _length(output)) from error

        return (read if names else None), write

    def _default(self, item: RecordItem, writer: FieldWriter) -> bytes | None:
        """Return the bytes of the default of a field. Raises CodecError."""
        path = path_of(item)
        self._unused.discard(path)
        if path not in self._options.default:
            return None
        try:
            return writer(self._options.default[path])
        except ValueError as error:
            raise CodecError(("default", path), str(error)) from error

    def _group(self, item: RecordItem, base: int) -> tuple[ReadStep, WriteStep]:
        name, offset = item.name, item.offset - base
        assert name is not None
        readers, writers = self.steps(item, item.offset)
        names, ignores_unknown = _names_of(item), self._options.ignore_unknown

        def read(record: bytes, start: int, document: dict[str, Any], count: int) -> None:
            members: dict[str, Any] = {}
            document[name] = members
            try:
                for step in readers:
                    step(record, start + offset, members, count)
            except RecordError as error:
                raise error.inside(name) from error.__cause__

        def write(document: dict[str, Any], output: list[bytes], scopes: tuple[dict[str, Any], ...]) -> None:
            members = document.get(name)
            try:
                _write_object({} if members is None else members, output, scopes, writers, names, ignores_unknown)
            except RecordError as error:
                raise error.inside(name) from error.__cause__

        return read, write

    def _table(self, item: RecordItem, base: int) -> tuple[ReadStep, WriteStep]:
        read_element, write_element = self._element(item)
        name, offset, stride, occurs = item.name, item.offset - base, item.stride, item.occurs
        assert occurs is not None
        slack = bytes(item.stride - item.length)
        if name is None:
            # FILLER with OCCURS and no names in it.
            fill = self._fields.filler(item, stride * occurs.maximum)
            return (lambda *_: None), (lambda _document, output, _scopes: output.append(fill))
        maximum, varies = occurs.maximum, occurs.depending is not None

        def read(record: bytes, start: int, document: dict[str, Any], count: int) -> None:
            elements: list[Any] = []
            document[name] = elements
            position = start + offset
            try:
                for _ in range(count if varies else maximum):
                    elements.append(read_element(record, position, count))
                    position += stride
            except RecordError as error:
                raise error.inside(f"{name}[{len(elements)}]") from error.__cause__

        def write(document: dict[str, Any], output: list[bytes], scopes: tuple[dict[str, Any], ...]) -> None:
            elements = document.get(name)
            if elements is None:
                elements = []
            if not isinstance(elements, list):
                raise RecordError(f"expected an array, found {described(elements)}", name, _length(output))
            number = len(elements)
            if number > maximum or (varies and number < occurs.minimum):
                low = occurs.minimum if varies else 0
                raise RecordError(f"{number} elements, of {low} to {maximum}", name, _length(output))
            index = 0
            try:
                for index in range(number if varies else maximum):
                    # Missing elements consist of defaults.
                    write_element(elements[index] if index < number else None, output, scopes)
                    if slack:
                        output.append(slack)
            except RecordError as error:
                raise error.inside(f"{name}[{index}]") from error.__cause__

        return read, write

    def _element(
        self, item: RecordItem
    ) -> tuple[Callable[[bytes, int, int], Any], Callable[[Any, list[bytes], tuple[dict[str, Any], ...]], None]]:
        """Return functions that read and write an element of a table."""
        if item.is_group:
            readers, writers = self.steps(item, item.offset)
            names, ignores_unknown = _names_of(item), self._options.ignore_unknown

            def read_group(record: bytes, start: int, count: int) -> Any:
                members: dict[str, Any] = {}
                for step in readers:
                    step(record, start, members, count)
                return members

            def write_group(members: Any, output: list[bytes], scopes: tuple[dict[str, Any], ...]) -> None:
                _write_object({} if members is None else members, output, scopes, writers, names, ignores_unknown)

            return read_group, write_group
        reader, writer = self._fields.of(item)
        default = self._default(item, writer)
        length = item.length

        def read(record: bytes, start: int, _: int) -> Any:
            raw = record[start : start + length]
            try:
                return reader(raw)
            except ValueError as error:
                raise RecordError(_reason(error), "", start, raw) from error

        def write(value: Any, output: list[bytes], _: tuple[dict[str, Any], ...]) -> None:
            if value is None and default is not None:
                output.append(default)
                return
            try:
                if value is None:
                    raise ValueError("missing, and it has no default")
                output.append(writer(value))
            except ValueError as error:
                raise RecordError(_reason(error), "", _length(output)) from error

        return read, write

    def _redefinition(self, redefinition: Redefinition, base: int) -> tuple[ReadStep, WriteStep]:
        choice = redefinition.choice
        if isinstance(choice, RecordItem):
            return self._alternative(redefinition, choice, base)
        alternatives = {
            id(item): self._alternative(redefinition, item, base)
            for item in (*choice.items.values(), choice.other)
            if item is not None
        }
        key = _Key(choice, self._fields.of(choice.field)[0], base, redefinition.first)
        name = next(iter(redefinition.items))

        def read(record: bytes, start: int, document: dict[str, Any], count: int) -> None:
            alternatives[id(key.of_record(record, start, name))][0](record, start, document, count)

        def write(document: dict[str, Any], output: list[bytes], scopes: tuple[dict[str, Any], ...]) -> None:
            alternatives[id(key.of_scopes(scopes, name))][1](document, output, scopes)

        return read, write

    def _alternative(self, redefinition: Redefinition, item: RecordItem, base: int) -> tuple[ReadStep, WriteStep]:
        """Return the steps of one of the items that share bytes."""
        # The item as the only one of a FILLER group, whose members belong to the group that contains it.
        alone = RecordItem("FILLER", None, item.position, redefinition.offset, redefinition.length, parent=item.parent)
        alone.children = [item]
        readers, writers = self.steps(alone, base)
        rest = self._fields.blank * (redefinition.length - (item.end - item.offset))
        others = frozenset(redefinition.items) - {item.name}

        def read(record: bytes, start: int, document: dict[str, Any], count: int) -> None:
            for step in readers:
                step(record, start, document, count)

        def write(document: dict[str, Any], output: list[bytes], scopes: tuple[dict[str, Any], ...]) -> None:
            for step in writers:
                step(document, output, scopes)
            output.append(rest)
            for name in others:
                if document.get(name) is not None:
                    chosen = item.name or item.title
                    raise RecordError(f"the record has {chosen} in its place", name, redefinition.offset)

        return read, write


def _compiled_reader(names: Sequence[str], readers: Sequence[FieldReader], fields: FieldCodecs) -> Callable[..., None]:
    """Return a function that adds the values of fields to an object, from their bytes.

    Its source has an assignment for each field, because a loop over the fields takes 50 % longer.
    """
    namespace: dict[str, Any] = {"decode": codecs.charmap_decode, "page": fields.page}
    lines = [f"def read_fields(document, {', '.join(f'raw{index}' for index in range(len(names)))}):", "    pass"]
    for index, (name, reader) in enumerate(zip(names, readers, strict=True)):
        if reader is fields.read_page:
            text = f'decode(raw{index}, "strict", page)[0].rstrip(" ")'
        else:
            namespace[f"read{index}"] = reader
            text = f"read{index}(raw{index})"
        lines.append(f"    document[{name!r}] = {text}")
    exec("\n".join(lines), namespace)
    read_fields: Callable[..., None] = namespace["read_fields"]
    return read_fields


def _compiled_writer(entries: Sequence[_Entry], fields: FieldCodecs) -> Callable[[dict[str, Any]], bytes]:
    """Return a function that encodes an object that has all fields. It raises an error for any other object.

    Adjacent texts are encoded together. A text that is too long changes the length of the output.
    """
    namespace: dict[str, Any] = {"encode": codecs.charmap_encode, "encoding_map": fields.encoding_map, "join": b"".join}
    parts = []
    for is_text, group in itertools.groupby(enumerate(entries), lambda indexed: bool(indexed[1].padding)):
        if is_text:
            text = " + ".join(f"document[{entry.name!r}]{entry.padding}" for _, entry in group)
            parts.append(f'encode({text}, "strict", encoding_map)[0]')
            continue
        for index, entry in group:
            namespace[f"write{index}"] = entry.default if entry.name is None else entry.writer
            parts.append(f"write{index}" if entry.name is None else f"write{index}(document[{entry.name!r}])")
    length = sum(entry.length for entry in entries)
    source = f"""
def write_fields(document):
    encoded = join(({", ".join(parts)},))
    if len(encoded) != {length}:
        raise ValueError
    return encoded
"""
    exec(source, namespace)
    write_fields: Callable[[dict[str, Any]], bytes] = namespace["write_fields"]
    return write_fields


def _length(parts: Sequence[bytes]) -> int:
    return sum(map(len, parts))


def _reason(error: ValueError) -> str:
    """Return the sentence of an error of a field."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not text: {error.reason}"
    return str(error)


def _write_object(
    members: Any,
    output: list[bytes],
    scopes: tuple[dict[str, Any], ...],
    writers: Sequence[WriteStep],
    names: frozenset[str],
    ignores_unknown: bool,
) -> None:
    if not isinstance(members, dict):
        raise RecordError(f"expected an object, found {described(members)}")
    inner = (*scopes, members)
    for step in writers:
        step(members, output, inner)
    if not ignores_unknown and not members.keys() <= names:
        raise _unknown(members, names)


class _Key:
    """Selects one of the items that share bytes, by the value of a field."""

    def __init__(self, selector: AlternativeSelector, reader: FieldReader, base: int, first: RecordItem) -> None:
        self._selector, self._reader = selector, reader
        field = selector.field
        self._length = field.length
        #: offset from the object that contains the items, or in the record for a field that no table contains
        self._is_absolute = field.table is None
        self._offset = field.offset if self._is_absolute else field.offset - base
        self._path = path_of(field)
        self._depth, self._names = _way_to(field, first)

    def of_record(self, record: bytes, start: int, name: str) -> RecordItem:
        """Return the item for a record. Raises RecordError."""
        offset = self._offset if self._is_absolute else start + self._offset
        raw = record[offset : offset + self._length]
        try:
            return self._item(self._reader(raw), name, offset)
        except RecordError:
            raise
        except ValueError as error:
            raise RecordError(_reason(error), self._path, offset, raw) from error

    def of_scopes(self, scopes: tuple[dict[str, Any], ...], name: str) -> RecordItem:
        """Return the item for a document. Raises RecordError."""
        value: Any = scopes[self._depth]
        for member in self._names:
            value = value.get(member) if isinstance(value, dict) else None
        return self._item(value, name, None)

    def _item(self, value: Any, name: str, offset: int | None) -> RecordItem:
        item = self._selector.items.get(str(value), self._selector.other)
        if item is None:
            values = ", ".join(self._selector.items)
            raise RecordError(
                f"{self._path} is {described(value)}, which selects no item (known: {values})", name, offset
            )
        return item


def _way_to(field: RecordItem, first: RecordItem) -> tuple[int, list[str]]:
    """Return the index of the object with a field, among those from the record to that of `first`, and the names in it."""
    objects: list[RecordItem] = []
    group = first.parent
    while group is not None:
        if group.parent is None or group.name is not None:
            objects.append(group)
        group = group.parent
    objects.reverse()
    names: list[str] = []
    item: RecordItem | None = field
    while item is not None:
        if item is not field and any(item is ancestor for ancestor in objects):
            return next(index for index, ancestor in enumerate(objects) if ancestor is item), list(reversed(names))
        if item.name is not None:
            names.append(item.name)
        item = item.parent
    raise AssertionError("a record contains all its fields")
