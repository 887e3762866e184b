"""The classes of Spark as Java keeps them in memory (AppCDS): a Java that finds them in a file loads and checks none.

The file is made when a run that found none ends in order. Whatever is wrong with it, Java starts as it would without.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import shlex
import subprocess
from pathlib import Path
from typing import IO, Final

from bridge.files import Locked, lock
from bridge.spark.cache import cache_directory
from bridge.spark.java import Java
from bridge.spark.session import forget

#: Of a Java and a Spark, and of so many bytes: Java dies of an archive that is cut off.
_NAME: Final = "classes-{}-{}.jsa"
_LOCK: Final = ".classes.lock"
#: Java says nothing of an archive that it cannot read or write.
_SILENT: Final = "-XX:+VerifySharedSpaces -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
#: Seconds that Java may take to write it: 170 MB.
_PATIENCE: Final = 60.0


class ClassArchive:
    """The archive for a Java and the installed Spark; `write`: it is made where it is not there."""

    def __init__(self, java: Java, *, write: bool) -> None:
        self._held: IO[str] | None = None
        #: arguments of Java
        self.options = ""
        # No home, or one that cannot be written or read: Java starts without.
        with contextlib.suppress(OSError, RuntimeError, Locked):
            self._directory, self._key = cache_directory(), _key(java)
            self._unfinished = self._directory / ".classes.jsa"
            for file in self._directory.glob(_NAME.format(self._key, "*")):
                if file.name == _NAME.format(self._key, file.stat().st_size):
                    self.options = f"{shlex.quote(f'-XX:SharedArchiveFile={file}')} {_SILENT}"
                    return
            if write:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._held = lock(self._directory / _LOCK)  # one process at a time writes it
                self._unfinished.unlink(missing_ok=True)
                self.options = f"{shlex.quote(f'-XX:ArchiveClassesAtExit={self._unfinished}')} {_SILENT}"

    def finish(self, process: subprocess.Popen[bytes] | None) -> None:
        """Have a Java that is done, and that was to make the archive, end and write it."""
        if self._held is None:
            return
        with self._held, contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if process is not None and process.stdin is not None:
                process.stdin.close()
                forget()
                if process.wait(_PATIENCE) == 0:
                    for other in self._directory.glob(_NAME.format("*", "*")):
                        other.unlink()
                    size = self._unfinished.stat().st_size
                    self._unfinished.rename(self._directory / _NAME.format(self._key, size))
            self._unfinished.unlink(missing_ok=True)


def _key(java: Java) -> str:
    """Return what tells the Java and the jars of Spark from others. Raises OSError."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    jars = Path(found.origin).with_name("jars")
    text = f"{java.home} {(java.home / 'release').read_text(encoding='utf-8')} {jars} {jars.stat().st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
