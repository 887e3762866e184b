"""Programs that the tests need and that `make test` installs. A test without its program is skipped.

With MQBRIDGE_TEST_REQUIRE=all it fails instead: `.ci/run` and tests/fresh.sh set that.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from typing import NoReturn

import pytest

#: The beginning of the reason of such a skip. The summary of the tests ends with these reasons (tests/helpers/summary.py).
NOT_INSTALLED = "not installed: "
#: Programs that tests/programs.sh installs and tests start by their names.
PROGRAMS = frozenset(
    ("bash", "fish", "gcc", "groff", "man", "mosquitto", "mosquitto_pub", "mosquitto_sub", "openssl", "strace")
) | {"systemd-analyze", "systemd-sysusers", "systemd-tmpfiles", "zsh"}
BUILD = Path(__file__).resolve().parents[2] / "build"
#: The Python packages on the stand-in for IBM's client library, for this Python.
CLIENT_PACKAGES = BUILD / "mqi" / str(sys.implementation.cache_tag)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Skip a test that starts a program that is not installed."""
    try:
        yield
    except FileNotFoundError as error:
        if error.filename in PROGRAMS:
            missing(error.filename, "tests/programs.sh")
        raise


def missing(program: str, installer: str) -> NoReturn:
    """Skip the test, or fail it with MQBRIDGE_TEST_REQUIRE=all. `installer` is the script that installs the program."""
    reason = f"{NOT_INSTALLED}{program} ({installer} installs it)"
    if os.environ.get("MQBRIDGE_TEST_REQUIRE") == "all":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def program(*names: str, installer: str = "tests/programs.sh") -> str:
    """Return the path of the first program, after a check that all are installed."""
    paths = [shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin") for name in names]
    absent = [name for name, path in zip(names, paths, strict=True) if path is None]
    if absent:
        missing(" and ".join(absent), installer)
    assert paths[0] is not None
    return paths[0]


def built(name: str, path: Path) -> Path:
    """Return a path below build, after checking that tests/programs.sh has created it."""
    if not path.exists():
        missing(name, "tests/programs.sh")
    return path
