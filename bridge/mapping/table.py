"""Lookup tables: rows of CSV and JSON files by key, as templates and expressions use them."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from bridge.config.table import TableConfig
from bridge.files import regular_content
from bridge.mapping.json_document import MISSING, ExactFloat, document_of, encoded, line_of
from bridge.mapping.json_positions import RepeatedName, elements, line_of_index
from bridge.telemetry.message import Unmappable

#: Maximum size of a file in bytes, and of a table in rows and columns.
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_ROWS: Final = 1_000_000
MAX_COLUMNS: Final = 1_000
#: Maximum number of different values of CSV files that rows share.
_MAX_SHARED: Final = 65_536
#: Integers that a floating-point number represents exactly.
_MAX_EXACT: Final = 2**53

#: Identifies the content of a file: modification time in nanoseconds, size and inode.
Stamp = tuple[int, int, int]
#: The values of a row in the order of the columns. MISSING: the object of a JSON file has no such member.
Row = tuple[Any, ...]


class TableError(ValueError):
    """A file that is not a table. The message begins with the file and line."""


class Table:
    """The rows of a file. They do not change: another content of the file is another table."""

    __slots__ = ("__weakref__", "_indexes", "_rows", "columns", "is_json", "read_at", "stamp")

    def __init__(
        self, columns: tuple[str, ...], rows: Mapping[str, Row], stamp: Stamp, *, is_json: bool = False
    ) -> None:
        self.columns = columns
        #: the objects in a JSON file may have different members. The columns of a CSV file are fixed
        self.is_json = is_json
        self.stamp = stamp
        #: when the file was read, in seconds since the epoch
        self.read_at = time.time()
        self._rows = rows
        self._indexes = {column: index for index, column in enumerate(columns)}

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, key: str) -> Row | None:
        """Return the row with a key, or None."""
        return self._rows.get(key)

    def may_have(self, column: str) -> bool:
        """Return whether rows can have a column. Those of a JSON file can have any column."""
        return self.is_json or column in self._indexes

    def value(self, row: Row, column: str) -> Any:
        """Return the value of a row in a column, or MISSING."""
        index = self._indexes.get(column)
        return MISSING if index is None else row[index]

    def members(self, row: Row, columns: Collection[str] | None = None) -> dict[str, Any]:
        """Return the values of a row by column, for these columns only or, if None, for all."""
        return {
            column: row[index]
            for column, index in self._indexes.items()
            if (columns is None or column in columns) and row[index] is not MISSING
        }


#: Tables by name.
Tables = Mapping[str, Table]
NO_TABLES: Final[Tables] = MappingProxyType({})

#: The tables in use, so that an unchanged file is not read again.
_IN_USE: WeakValueDictionary[tuple[Path, str, Stamp], Table] = WeakValueDictionary()


def table_of(config: TableConfig) -> Table:
    """Return the table in use. Read it on first use. Raises TableError."""
    if config.content.rows is None:
        config.use(read_table(config.file, config.key))
    table = config.content.rows
    assert isinstance(table, Table)
    return table


def tables_of(configs: Mapping[str, TableConfig]) -> Tables:
    """Return the tables in use, by name. Raises TableError if a table that is read for the first time is invalid."""
    return {name: table_of(config) for name, config in configs.items()} if configs else NO_TABLES


class CurrentTables:
    """The tables of a mapping. Raises TableError if a table that is read for the first time is invalid."""

    __slots__ = ("_contents",)

    def __init__(self, configs: Mapping[str, TableConfig]) -> None:
        tables_of(configs)
        self._contents = {name: config.content for name, config in configs.items()}

    def __bool__(self) -> bool:
        return bool(self._contents)

    def get(self) -> Tables:
        """Return the tables in use now."""
        return {name: content.rows for name, content in self._contents.items()}


def stamp_of(path: Path) -> Stamp:
    """Return the identification of a file's content. Raises OSError."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_table(path: Path, key: str) -> Table:
    """Return the table in a file, with the rows by the column `key`. Raises TableError."""
    try:
        table = _IN_USE.get((path, key, stamp_of(path)))
        if table is not None:
            return table
        content, status = regular_content(path, MAX_BYTES + 1)
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise TableError(f"{path} has more than {MAX_BYTES // 1024**2} MiB")
    stamp = status.st_mtime_ns, status.st_size, status.st_ino
    reader = _read_json if path.suffix.lower() == ".json" else _read_csv
    columns, rows = reader(content, path, key)
    table = _IN_USE[path, key, stamp] = Table(columns, rows, stamp, is_json=reader is _read_json)
    return table


def key_text(value: Any) -> str | None:
    """Return the key that a value of a document stands for, or None for null, an object, an array, or MISSING.

    A number stands for its digits. JSON does not distinguish 7 and 7.0, so both are the key 7.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        if value.is_integer() and abs(value) < _MAX_EXACT:
            return str(int(value))
        return value.digits if isinstance(value, ExactFloat) else repr(value)
    return encoded(value).decode() if isinstance(value, bool | int) else None


class LookupScope(Protocol):
    """The parts of a message's values that lookups use."""

    @property
    def tables(self) -> Tables:
        """The tables of the mapping."""

    @property
    def steps(self) -> list[tuple[str, str]] | None:
        """The steps so far, or None if they are not recorded."""


def row_of(scope: LookupScope, table: str, key: str) -> Row | None:
    """Return the row of a table with a key, or None. The lookup becomes a step of the mapping."""
    row = scope.tables[table].row(key)
    if scope.steps is not None:
        row_text = "no row" if row is None else encoded(scope.tables[table].members(row)).decode()
        scope.steps.append((f"{table}[{key!r}]", row_text))
    return row


# CSV ------------------------------------------------------------------------------------------------------------------


def _read_csv(content: bytes, path: Path, key: str) -> tuple[tuple[str, ...], dict[str, Row]]:
    """Return the columns and the rows of a CSV file. Raises TableError."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TableError(f"{path}:{line}: the byte 0x{content[error.start]:02X} is not UTF-8") from error
    if (index := text.find("\0")) >= 0:
        raise TableError(f"{path}:{line_of_index(text, index)}: U+0000 in a text")
    records = _records(text, path)
    line, header = next(records, (1, ()))
    columns = tuple(header)
    position = _position_of(key, columns, f"{path}:{line}")
    rows: dict[str, Row] = {}
    shared: dict[str, str] = {}
    for line, record in records:
        if len(record) != len(columns):
            expected = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
            raise TableError(f"{path}:{line}: expected {expected}, as in the first line, found {len(record)}")
        name = record[position]
        if not name:
            raise TableError(f"{path}:{line}: the key, column {key}, is empty")
        if name in rows:
            first = next(line for line, record in _records(text, path) if record[position] == name)
            raise TableError(f"{path}:{line}: the key {name[:100]!r} again, after line {first}")
        # Columns often have few different values: one object for each saves memory.
        rows[name] = tuple(map(shared.setdefault if len(shared) < _MAX_SHARED else shared.get, record, record))
        if len(rows) > MAX_ROWS:
            raise TableError(f"{path}:{line}: more than {MAX_ROWS:,} rows")
    return columns, rows


def _records(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the fields of each record of a CSV text. Raises TableError."""
    consumed: list[str] = []

    def noted(lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            consumed.append(line)
            yield line

    lines, has_quotes = io.StringIO(text, newline=""), '"' in text
    reader = csv.reader(noted(lines) if has_quotes else lines, strict=True)
    first = 1
    try:
        for record in reader:
            if record:  # else an empty line
                if has_quotes:
                    _check_quotes(record, consumed, f"{path}:{first}")
                yield first, record
            consumed.clear()
            first = reader.line_num + 1
    except csv.Error as error:
        raise TableError(f"{path}:{first}: {error}") from error


def _check_quotes(record: list[str], lines: list[str], place: str) -> None:
    """Raise TableError for a quote in a field without quotes, which the reader accepts and RFC 4180 does not."""
    quotes = sum(line.count('"') for line in lines)
    if not quotes:
        return
    inside = [number for field in record if (number := field.count('"'))]
    # A field with quotes has two around it, and each inside is doubled.
    around = quotes - 2 * sum(inside)
    if around % 2 or around < 2 * len(inside):
        raise TableError(f'{place}: a quote in a field that does not begin with one (hint: "6"" pipe")')


def _position_of(key: str, columns: tuple[str, ...], place: str) -> int:
    """Return the position of the key in the columns. Raises TableError for invalid columns."""
    if not columns:
        raise TableError(f"{place}: expected the names of the columns, found nothing")
    if len(columns) > MAX_COLUMNS:
        raise TableError(f"{place}: more than {MAX_COLUMNS:,} columns")
    for column in columns:
        if not column or columns.count(column) > 1:
            raise TableError(
                f"{place}: expected different names of columns, found {column!r}" + " again" * bool(column)
            )
    if key not in columns:
        hint = " (hint: separate columns by commas)" if len(columns) == 1 and ";" in columns[0] else ""
        names = ", ".join(columns)
        raise TableError(f"{place}: there is no column {key!r}, only {names[:200]}{hint}")
    return columns.index(key)


# JSON -----------------------------------------------------------------------------------------------------------------


def _read_json(content: bytes, path: Path, key: str) -> tuple[tuple[str, ...], dict[str, Row]]:
    """Return the columns and the rows of a JSON file: an array of objects, or an object of objects. Raises TableError."""
    try:
        document = document_of(content.removeprefix(b"\xef\xbb\xbf"))
    except Unmappable as error:
        line = line_of(error.__cause__ or error, content) or 1
        sentence = str(error).removeprefix("the payload ")
        raise TableError(f"{path}:{line}: the file {sentence}") from error
    by_key: Iterable[tuple[str, Any]]
    if isinstance(document, list):
        by_key = ((f"element {index}", element) for index, element in enumerate(document))
    elif isinstance(document, dict):
        by_key = [(f"member {name[:100]!r}", _with_key(element, key, name)) for name, element in document.items()]
    else:
        raise TableError(f"{path}:1: expected an array of objects, or an object of objects by key")
    columns: dict[str, None] = {}
    objects: dict[str, dict[str, Any]] = {}
    lines = _lines_of(content.decode("utf-8-sig"), path)
    for line, (place, members) in zip(lines, by_key, strict=True):
        if not isinstance(members, dict):
            raise TableError(f"{path}:{line}: {place} is not an object")
        name = key_text(members.get(key, MISSING))
        if not name:
            raise TableError(f"{path}:{line}: {place} has no text or number {key!r}, the key")
        if name in objects:
            raise TableError(f"{path}:{line}: {place} has the key {name[:100]!r} again")
        objects[name] = members
        columns.update(dict.fromkeys(members))
        if len(objects) > MAX_ROWS:
            raise TableError(f"{path}:{line}: more than {MAX_ROWS:,} rows")
        if len(columns) > MAX_COLUMNS:
            raise TableError(f"{path}:{line}: more than {MAX_COLUMNS:,} columns")
    names = tuple(columns) or (key,)
    rows = {name: tuple([members.get(column, MISSING) for column in names]) for name, members in objects.items()}
    return names, rows


def _with_key(element: Any, key: str, name: str) -> Any:
    """Return an object with its own name as its key, unless it has a key."""
    return {key: name, **element} if isinstance(element, dict) else element


def _lines_of(text: str, path: Path) -> Iterator[int]:
    """Yield the first line of each element of a JSON array, or of each member of an object. Raises TableError."""
    line, position = 1, 0
    try:
        for element in elements(text):
            line, position = line + text.count("\n", position, element.position), element.position
            yield line
    except RepeatedName as error:
        raise TableError(f"{path}:{line_of_index(text, error.position)}: {error}") from error
    except RecursionError as error:
        raise TableError(f"{path}:{line}: nested too deeply") from error
