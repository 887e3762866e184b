"""A PostgreSQL of the test's own, by Debian's packages; what it holds goes with its directory."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Self

from tests.support.mosquitto import free_port

#: Debian's, beside Java.
DRIVER = Path("/usr/share/java/postgresql.jar")
_PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


def is_installed() -> bool:
    """Whether the server and its driver for Java are there."""
    return _PROGRAMS is not None and DRIVER.exists()


class PostgreSQL:
    """The server as a process; `me` may do everything, with a password."""

    def __init__(self, directory: Path, password: str) -> None:
        assert _PROGRAMS is not None
        self._programs, self._data = _PROGRAMS, directory / "data"
        self._password = password
        self.port = free_port()
        secret = directory / "first-password"
        secret.write_text(password, encoding="utf-8")
        directory.chmod(0o755)
        # Its programs do not run as root.
        self._as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        self._data.mkdir()
        if self._as_user:
            shutil.chown(self._data, "postgres")
            for one in directory.parents:
                if one.stat().st_uid == 0 and not one.stat().st_mode & 0o001:
                    one.chmod(one.stat().st_mode | 0o001)
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
