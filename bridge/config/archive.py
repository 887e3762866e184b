"""The archive of what passes the bridge, as Parquet files."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from bridge.config import values
from bridge.config.section import FilePath, Section, Truth, without_empty


class RollConfig(Section):
    """When a file of the archive is finished and the next one begun: at the first of the three, and at each full hour.

    Rows that are in no finished file are lost when the archive's process is killed, and the archive says so. When the bridge
    itself is killed, its archive's process finishes the file.
    """

    rows: Annotated[int, values.integer(1, 100_000_000)] = 1_000_000
    """Rows."""
    size: Annotated[int, values.size(64 * values.KIB, 16 * values.GIB)] = 128 * values.MIB
    """Bytes of the file."""
    time: Annotated[float, values.duration(0.01)] = 10.0
    """Seconds since its first row."""


class ArchiveConfig(Section):
    """The archive: a row for each message that came from a client, went to one, or was taken by a mapping.

    The row says what became of the message. A process of its own writes it.
    """

    directory: FilePath | None = None
    """Where its files are: `date=YYYY-MM-DD/hour=HH/NAME.parquet`, in UTC; None: no archive is written."""
    payloads: Truth = True
    """Whether the payloads are in it. Without them it can be audited, and no message can be replayed from it."""
    roll: RollConfig = Field(default_factory=RollConfig)
    """When a file is finished."""
    memory: Annotated[int, values.size(values.MIB, 64 * values.GIB)] = 64 * values.MIB
    """Bytes of messages that may wait to be written. What does not fit is missing in the archive, which says so; the
    messages themselves are never held up."""
    retention_days: Annotated[int, values.integer(1, 36_500)] | None = None
    """After how many days files are removed; None: never."""

    @model_validator(mode="before")
    @classmethod
    def _empty_section(cls, data: Any) -> Any:
        return without_empty(data, "roll")
