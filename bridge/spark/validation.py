"""The rules for valid payloads, recorded before a batch is written.

A batch may fail after its rows were written but before its dead letters, and `schema` or `payload` may change before the
batch is repeated. Then the record decides which messages are dead letters. Otherwise, a message would be written as a row and
as a dead letter, or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from bridge.files import durable_file

#: The file in the directory of a pipeline. It is written when the settings have changed, before the next batch.
_FILE: Final = "validation.json"


class Validation(msgspec.Struct, frozen=True):
    """The settings that decide which payloads are valid."""

    #: SQL of the reason why a payload is invalid, NULL for a valid one. None: every payload is valid
    fault: str | None
    payload: str
    fields: dict[str, str]

    def __str__(self) -> str:
        fields = ", ".join(f"{name}: {kind}" for name, kind in self.fields.items())
        return f"payload: {self.payload}, schema: {{{fields}}}"


def recorded_validation(directory: Path) -> Validation | None:
    """Return the validation of the latest batch of a pipeline, if any. Raises OSError."""
    path = directory / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Validation)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OSError(
            f"{path} is damaged ({error}); hint: delete it, after the batch that failed is finished"
        ) from error


def record_validation(directory: Path, validation: Validation) -> None:
    """Record the validation of the next batch. Raises OSError."""
    with durable_file(directory / _FILE) as file:
        file.write(msgspec.json.encode(validation))
