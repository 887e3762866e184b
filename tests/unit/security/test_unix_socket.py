"""Unix sockets that listen: who may open them does not depend on the umask, and the umask does not change for them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.security.unix_socket import bound_socket


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """Set the umask after pytest has created tmp_path, which an ordinary user could not enter with umask 0o777."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_its_user_and_group_may_connect(umask: int, tmp_path: Path) -> None:
    with bound_socket(tmp_path / "socket"):
        assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o660


def test_at_no_moment_may_others(umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is bound it has no more than its mode: what comes after it can only be late."""
    monkeypatch.setattr(Path, "chmod", lambda path, mode: None)
    with bound_socket(tmp_path / "socket"):
        assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o660 & ~umask


def test_the_umask_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the whole process's: a program that a thread starts meanwhile would have it for ever."""
    changed: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "umask", changed.append)
        bound_socket(tmp_path / "socket").close()
    assert changed == []
