"""A PostgreSQL of the test's own, by Debian's packages; what it holds goes with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.helpers.mosquitto import free_port

#: Debian's, beside Java.
DRIVER = Path("/usr/share/java/postgresql.jar")
_PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


def is_installed() -> bool:
    """Whether the server and its driver for Java are there."""
    return _PROGRAMS is not None and DRIVER.exists()


class PostgreSQL:
    """The server as a process; `me` may do everything, with a password."""

    def __init__(self, password: str) -> None:
        assert _PROGRAMS is not None
        self._programs, self._password = _PROGRAMS, password
        self.port = free_port()
        # Not one of pytest's: its programs do not run as root, and nobody else may look into those.
        self._directory = Path(tempfile.mkdtemp(prefix="postgresql-"))
        secret = self._directory / "first-password"
        secret.write_text(password, encoding="utf-8")
        self._as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as_user:
            for one in (self._directory, secret):
                shutil.chown(one, "postgres")
        self._data = self._directory / "data"
        self._run("initdb", "--username=me", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync")

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def ask(self, query: str) -> list[str]:
        """The rows of a query, columns with `|` between."""
        where = f"host=127.0.0.1 port={self.port} dbname=postgres user=me password={self._password}"
        command = [self._programs / "psql", "--no-psqlrc", "--tuples-only", "--no-align", "--command", query, where]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self._programs / program), "--pgdata", str(self._data), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd="/")

    def __enter__(self) -> Self:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        self._run("pg_ctl", "--wait", "--log", str(self._data / "log"), "--options", options, "start")
        return self

    def __exit__(self, *_: object) -> None:
        self._run("pg_ctl", "--mode=immediate", "stop")
        shutil.rmtree(self._directory)
