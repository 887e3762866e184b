"""Token files, logins of the console, and the rights of operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.console.access import (
    IDLE,
    MAX_DURATION,
    MAX_LOGINS,
    MAX_LOGINS_PER_NAME,
    Logins,
)
from bridge.security.tokens import Right, TokenFile, make_token_file


@pytest.mark.parametrize(
    "line",
    [
        "", "# admin:change:" + "x" * 32, "admin", "admin:change", "admin:change:short", "admin:all:" + "x" * 32,
        ":read:" + "x" * 32,
    ],
)  # fmt: skip
def test_invalid_lines_of_a_token_file_are_ignored(tmp_path: Path, line: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{line}\n")
    assert TokenFile(file).holder("x" * 32) is None


def test_a_changed_token_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    tokens = TokenFile(file)
    assert tokens.holder("x" * 32) is None
    file.write_text(f"anna:read:{'x' * 32}\n")
    token = tokens.holder("x" * 32)
    assert token is not None
    assert (token.name, token.right) == ("anna", Right.READ)
    file.write_text(f"anna:change:{'x' * 31}:\n")
    assert tokens.holder("x" * 32) is None
    assert tokens.holder("x" * 31 + ":") is not None
    file.unlink()
    assert tokens.holder("x" * 31 + ":") is None


def test_an_existing_token_file_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "new" / "tokens"
    make_token_file(file)
    before = file.read_text()
    make_token_file(file)
    assert file.read_text() == before


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_an_idle_login_ends() -> None:
    clock = Clock()
    logins = Logins(clock)
    identifier = logins.begin("anna", Right.READ)
    clock.now += IDLE - 1
    assert logins.find(identifier) is not None
    clock.now += IDLE - 1
    assert logins.find(identifier, by_hand=False) is not None
    clock.now += 2
    assert logins.find(identifier) is None


def test_a_login_has_a_maximum_duration() -> None:
    clock = Clock()
    logins = Logins(clock)
    busy, short = logins.begin("anna", Right.READ), logins.begin("bert", Right.READ, seconds=60.0)
    clock.now += 61
    assert logins.find(short) is None
    while clock.now < 1_000.0 + MAX_DURATION:
        assert logins.find(busy) is not None
        clock.now += IDLE / 2
    clock.now += 1
    assert logins.find(busy) is None


def test_the_number_of_logins_is_limited() -> None:
    clock = Clock()
    logins = Logins(clock)
    first, second = logins.begin("anna", Right.READ), logins.begin("anna", Right.READ)
    clock.now += 1
    assert logins.find(first) is not None
    for number in range(MAX_LOGINS - 1):
        logins.begin(f"reader {number}", Right.READ)
    assert logins.find(second) is None
    assert logins.find(first) is not None


def test_logins_of_one_user_do_not_end_those_of_others() -> None:
    logins = Logins(Clock())
    anna = logins.begin("anna", Right.CHANGE)
    bert = [logins.begin("bert", Right.READ) for _ in range(MAX_LOGINS)]
    assert logins.find(anna) is not None
    assert sum(logins.find(login) is not None for login in bert) == MAX_LOGINS_PER_NAME
