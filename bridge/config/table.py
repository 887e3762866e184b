"""Lookup tables: CSV or JSON files whose rows templates and expressions of mappings look up by a key."""

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, PrivateAttr

from bridge.config import values
from bridge.config.values import FilePath, Section

#: Names in expressions that are not available for tables.
_TAKEN: Final = (
    "payload",
    "part",
    "topic",
    "clientId",
    "user",
    "usr",
    "md",
    "dlh",
    "time",
    "in",
    "true",
    "false",
    "null",
)
LookupTableName = Annotated[
    str,
    values.text(
        rf"(?!(?:{'|'.join(_TAKEN)})\Z)[A-Za-z][A-Za-z0-9_]{{0,63}}",
        "the name of a table: 1 to 64 of the characters A-Z a-z 0-9 _, beginning with a letter, and no name that expressions"
        " have, such as payload or topic",
    ),
]
SUFFIXES: Final = (".csv", ".json")
"""Suffixes of the files of tables."""


def _file(path: Path) -> Path:
    if path.suffix.lower() not in SUFFIXES:
        raise values.refusal("the path of a file .csv or .json")
    return path


class TableContent:
    """The rows of a table in use. Reading an attribute of a section takes long."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        #: a `bridge.mapping.table.Table`, or None before it is read
        self.rows: Any = None


class TableConfig(Section):
    """A table. It is equal to another one with the same file and key, whatever their content."""

    file: Annotated[FilePath, AfterValidator(_file)]
    """File with the rows: `.csv` in UTF-8 with column names in the first line (RFC 4180), or `.json` with an array of
    objects, or an object of objects by key."""
    key: Annotated[str, values.text(r"[^\x00]{1,255}", "the name of a column")]
    """Name of the column that identifies a row."""
    _content: TableContent = PrivateAttr(default_factory=TableContent)

    @property
    def content(self) -> TableContent:
        """The rows in use, even after a change of the file."""
        return self._content

    def use(self, rows: Any) -> None:
        """Use these rows from now on."""
        self._content.rows = rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableConfig) and (self.file, self.key) == (other.file, other.key)

    def __hash__(self) -> int:
        return hash((self.file, self.key))
