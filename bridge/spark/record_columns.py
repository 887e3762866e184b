"""COBOL records as Arrow columns with types: structs, lists, decimals. This module needs no Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from bridge.config.record import RecordConfig
from bridge.mapping.record_payload import RecordPayload
from bridge.record.layout import AlternativeSelector, RecordItem, Redefinition
from bridge.spark.options import OptionError
from bridge.telemetry.message import CCSID_UTF8, Unmappable

_MAX_PRECISION: Final = 38
#: The columns of records in files.
RECORD: Final = "record"
RECORD_ERROR: Final = "record_error"


class RecordColumns:
    """Converts columns of records. Only its options are pickled. Raises RecordLayoutError, OptionError.

    CCSID and Encoding of a record are those of the options, otherwise its own, otherwise 1208 and those of the CCSID.
    """

    def __init__(self, options: RecordConfig) -> None:
        self._options = options
        self._record = RecordPayload(options, Decimal, float)
        #: Arrow's type of the records
        self.type = struct_of(self._record.layout.record, full=options.binary == "full")
        ccsid = options.ccsid or CCSID_UTF8
        #: CCSID and Encoding of the records that are written
        self.written = ccsid, options.encoding_for(ccsid)

    def __reduce__(self) -> tuple[type[RecordColumns], tuple[RecordConfig]]:
        return RecordColumns, (self._options,)

    def check(self) -> None:
        """Raise RecordLayoutError for options with which records cannot be written."""
        self._record.check(*self.written)

    def read(self, bodies: Any, ccsids: Any, encodings: Any) -> tuple[Any, list[str | None]]:
        """Return the records of bodies (null if a body is not a record), and the reasons why bodies are not records."""
        documents: list[Any] = []
        errors: list[str | None] = []
        for body, ccsid, encoding in zip(*map(_values, (bodies, ccsids, encodings)), strict=True):
            document = error = None
            if body is not None:
                ccsid = self._options.ccsid or ccsid or CCSID_UTF8
                machine = ccsid, self._options.encoding_number or encoding or self._options.encoding_for(ccsid)
                try:
                    document = self._record.document_of(bytes(body), *machine)
                except Unmappable as unmappable:
                    error = str(unmappable)
            documents.append(document)
            errors.append(error)
        return pa.array(documents, self.type), errors

    def write(self, rows: Any) -> tuple[Any, list[str | None]]:
        """Return the records of rows (null if a row does not fit), and the reasons why rows do not fit."""
        records: list[bytes | None] = []
        errors: list[str | None] = []
        for row in _values(rows):
            record = error = None
            if row is not None:
                try:
                    record = self._record.encoded(row, *self.written)
                except Unmappable as unmappable:
                    error = str(unmappable)
            records.append(record)
            errors.append(error)
        return pa.array(records, pa.binary()), errors


class RecordRows:
    """Adds the columns `record` and `record_error` to the batches of an envelope.

    The record is null if the body is not a record. `without` contains columns of the envelope that are read, but not
    returned.
    """

    def __init__(self, columns: RecordColumns, body: str, without: Collection[str] = ()) -> None:
        self._columns, self._body, self._without = columns, body, without

    def schema(self, envelope: Any) -> Any:
        """Return the schema of the batches."""
        fields = [field for field in envelope if field.name not in self._without]
        new_fields = [pa.field(RECORD, self._columns.type), pa.field(RECORD_ERROR, pa.string())]
        return pa.schema([*fields, *new_fields])

    def batch(self, batch: Any) -> Any:
        """Return a batch with these columns."""
        nulls = pa.nulls(batch.num_rows, pa.int32())
        names = batch.schema.names
        described = (batch.column(name) if name in names else nulls for name in ("ccsid", "encoding"))
        records, errors = self._columns.read(batch.column(self._body), *described)
        columns = [batch.column(name) for name in names if name not in self._without]
        return pa.record_batch([*columns, records, pa.array(errors, pa.string())], self.schema(batch.schema))


def _values(column: Any) -> Iterable[Any]:
    values: list[Any] = column.to_pylist()
    return values


def struct_of(group: RecordItem, *, full: bool) -> Any:
    """Return Arrow's type of a group. Raises OptionError for a number that Arrow and Spark do not support.

    `full`: binary numbers use the full range of their bytes.
    """
    return pa.struct([pa.field(name, _type_of(item, full)) for name, item in _members(group)])


def _members(group: RecordItem) -> Iterator[tuple[str, RecordItem]]:
    for child in group.children:
        items = [child] if isinstance(child, RecordItem) else _chosen(child)
        for item in items:
            if item.name is not None:
                yield item.name, item
            elif item.is_group:
                yield from _members(item)


def _chosen(redefinition: Redefinition) -> list[RecordItem]:
    """Return the items that share bytes and can be chosen, in the order of the copybook."""
    choice = redefinition.choice
    chosen = [choice] if not isinstance(choice, AlternativeSelector) else [*choice.items.values(), choice.other]
    return [item for item in redefinition.items.values() if any(item is chosen_item for chosen_item in chosen)]


def _type_of(item: RecordItem, full: bool) -> Any:
    type_ = struct_of(item, full=full) if item.is_group else _elementary_type(item, full)
    return type_ if item.occurs is None else pa.list_(type_)


def _elementary_type(item: RecordItem, full: bool) -> Any:
    picture = item.picture
    if picture is None:
        return pa.float32() if item.usage == "COMP-1" else pa.float64()
    if not picture.is_numeric:
        return pa.string()
    digits, scale = picture.digits, picture.scale
    if item.usage == "COMP-5" or (full and item.usage == "COMP"):
        # -32,768 to 65,535, -2,147,483,648 to 4,294,967,295, -9,223,372,036,854,775,808 to 18,446,744,073,709,551,615
        digits = {2: 5, 4: 9 if picture.is_signed and not scale else 10}.get(item.length, 20)
        if item.length == 8 and picture.is_signed and not scale:
            digits = 18
    if scale <= 0:
        digits -= scale
        if digits <= 9:
            return pa.int32()
        if digits <= 18:
            return pa.int64()
    precision = max(digits, scale)
    if precision > _MAX_PRECISION:
        raise OptionError(f"{item.title} ({item.description}) has {precision} digits, of {_MAX_PRECISION} at most")
    return pa.decimal128(precision, max(scale, 0))
