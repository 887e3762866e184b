"""The shutdown of the sources of a pipeline, by files.

A process that ends takes what it has begun to its end: once the file that the option `stop` names is there, a reader plans
no further batch. It is asked for one when the batch before is committed, removes what was in that as always, and says that
it is through by a file of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: The option that names a directory, and the files in it: one that asks for the end, and one that answers.
STOP: Final = "stop"
ASKED: Final = "stopping"
ANSWERED: Final = "stopped"


class SourceShutdown:
    """The request to shut down and its confirmation: two files in the directory of a pipeline."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def requested(self) -> bool:
        """Return whether the pipeline is to end."""
        return (self.directory / ASKED).exists()

    @property
    def complete(self) -> bool:
        """Return whether all that was begun has come to its end."""
        return (self.directory / ANSWERED).exists()

    def reset(self) -> None:
        """Make the directory, and remove the two files, before a run. Raises OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in (ASKED, ANSWERED):
            (self.directory / name).unlink(missing_ok=True)

    def request(self) -> None:
        """Ask for the end. Raises OSError."""
        (self.directory / ASKED).touch()

    def confirm(self) -> None:
        """Say that nothing is under way. Raises OSError."""
        (self.directory / ANSWERED).touch()
