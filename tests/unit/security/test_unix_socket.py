"""Listening Unix sockets: permissions do not depend on the umask, and the umask does not change for them."""

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


def test_its_user_and_group_can_connect(umask: int, tmp_path: Path) -> None:
    with bound_socket(tmp_path / "socket"):
        assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o660


def test_others_can_never_connect(umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket has its final mode when it is bound. Changing the mode later would be too late."""
    monkeypatch.setattr(Path, "chmod", lambda path, mode: None)
    with bound_socket(tmp_path / "socket"):
        assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o660 & ~umask


def test_the_umask_does_not_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to the whole process: a program started meanwhile by a thread would inherit it."""
    changed: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "umask", changed.append)
        bound_socket(tmp_path / "socket").close()
    assert changed == []
