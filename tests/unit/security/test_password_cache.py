"""The password cache: entries that survive a restart, and reasons to ignore them."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from bridge.security import password_file as password_cache
from bridge.security.authenticator import Presented
from bridge.security.password_file import EXPIRY_DAYS, PasswordCache, PasswordHashes

#: Verifiers that are not computed in these tests.
VERIFIER, OTHER = (f"$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$aGFza{letter}" for letter in "AB")


class Hashes(PasswordHashes):
    """Accept the password `right`, and count how often the hash of a password file would have been computed."""

    def __init__(self, cache_file: Path | None) -> None:
        super().__init__(cache_file)
        self.computed = 0

    def matches(self, password_hash: str, password: bytes) -> bool:  # type: ignore[override]
        self.computed += 1
        return password == b"right"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "verified-passwords"


def verify(hashes: Hashes, user: str = "carol", verifier: str = VERIFIER, password: bytes = b"right") -> bool:
    return asyncio.run(hashes.check(verifier, Presented("c", user, password)))


def fill(file: Path) -> None:
    """Write a cache file with carol's password, as a killed bridge leaves it."""
    assert verify(Hashes(file))


def test_a_verified_password_needs_no_expensive_hash_after_a_restart(file: Path) -> None:
    fill(file)
    hashes = Hashes(file)
    assert verify(hashes) and verify(hashes)
    assert hashes.computed == 0


@pytest.mark.parametrize(
    ("user", "verifier", "password", "accepted"),
    [
        ("carol", VERIFIER, b"wrong", False),
        ("carol", OTHER, b"right", True),
        ("dave", VERIFIER, b"right", True),
    ],
    ids=["another password", "a changed verifier", "another user"],
)
def test_changed_credentials_are_verified_again(
    file: Path, user: str, verifier: str, password: bytes, accepted: bool
) -> None:
    fill(file)
    hashes = Hashes(file)
    assert verify(hashes, user, verifier, password) is accepted
    assert hashes.computed == 1


def test_a_wrong_password_is_never_cached(file: Path) -> None:
    hashes = Hashes(file)
    for _ in range(2):
        assert not verify(hashes, password=b"wrong")
    assert hashes.computed == 2


def test_an_expired_password_is_verified_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    today = password_cache._today()
    fill(file)
    monkeypatch.setattr(password_cache, "_today", lambda: today + EXPIRY_DAYS)
    hashes = Hashes(file)
    assert verify(hashes) and hashes.computed == 0  # and this login renews it
    monkeypatch.setattr(password_cache, "_today", lambda: today + 2 * EXPIRY_DAYS)
    hashes = Hashes(file)
    assert verify(hashes) and hashes.computed == 0
    monkeypatch.setattr(password_cache, "_today", lambda: today + 3 * EXPIRY_DAYS + 1)
    hashes = Hashes(file)
    assert verify(hashes) and hashes.computed == 1


def test_only_the_owner_can_access_the_file_and_it_has_neither_users_nor_passwords(file: Path) -> None:
    fill(file)
    assert file.stat().st_mode & 0o777 == 0o600
    content = file.read_bytes()
    assert b"carol" not in content and b"right" not in content and b"aGFza" not in content
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_can_access_is_ignored(file: Path, mode: int, caplog: pytest.LogCaptureFixture) -> None:
    fill(file)
    file.chmod(mode)
    hashes = Hashes(file)
    assert verify(hashes)
    assert hashes.computed == 1 and "MQB1209W" in caplog.text
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_ignored(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(file)
    os.chown(file, 12_345, -1)
    hashes = Hashes(file)
    assert verify(hashes) and hashes.computed == 1 and "MQB1209W" in caplog.text


def test_a_symbolic_link_is_not_followed(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = file.with_name("elsewhere")
    fill(elsewhere)
    before = elsewhere.read_bytes()
    file.symlink_to(elsewhere)
    hashes = Hashes(file)
    assert verify(hashes) and hashes.computed == 1 and "MQB1209W" in caplog.text
    assert elsewhere.read_bytes() == before and not file.is_symlink()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content + b"=",
        lambda content: content.replace(b":", b""),
        lambda content: content[:-20] + b"\xff" * 20,
    ],
)
def test_a_damaged_line_is_ignored(file: Path, damage: object, caplog: pytest.LogCaptureFixture) -> None:
    fill(file)
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    hashes = Hashes(file)
    assert verify(hashes)
    assert hashes.computed == 1 and "MQB1211W ignored 1 damaged lines" in caplog.text


def test_an_incomplete_line_does_not_affect_other_lines(file: Path) -> None:
    """As after a crash of the machine, or on a full disk."""
    fill(file)
    whole = Hashes(file)
    assert verify(whole)
    file.write_bytes(file.read_bytes() + b"\n20000:abc")
    assert verify(whole, "dave")
    hashes = Hashes(file)
    assert verify(hashes) and verify(hashes, "dave") and hashes.computed == 0


def test_a_file_that_cannot_be_written_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hashes = Hashes(tmp_path / "missing" / "verified-passwords")
    for user in ("carol", "dave", "erin"):
        assert verify(hashes, user) and verify(hashes, user)
    assert hashes.computed == 3
    assert [record.levelno for record in caplog.records if "MQB1210W" in record.getMessage()] == [logging.WARNING]


def test_without_a_file_passwords_are_cached_in_memory_only() -> None:
    hashes = Hashes(None)
    assert verify(hashes) and verify(hashes) and hashes.computed == 1
    hashes = Hashes(None)
    assert verify(hashes) and hashes.computed == 1


def test_memory_and_file_keep_the_recently_used_passwords(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_cache, "MAX_PASSWORDS", 10)
    cache = PasswordCache(file)
    for number in range(100):
        cache.add(f"user-{number}", VERIFIER, b"x", bytes(32))
        cache.add("often", VERIFIER, b"x", bytes(32))
        assert cache.is_known("often", VERIFIER, b"x")
        assert len(file.read_text().splitlines()) <= 22
    assert cache.is_known("user-99", VERIFIER, b"x") and not cache.is_known("user-0", VERIFIER, b"x")
    again = PasswordCache(file)
    assert again.contains("user-99", VERIFIER, bytes(32)) and not again.contains("user-0", VERIFIER, bytes(32))
    assert again.contains("often", VERIFIER, bytes(32))


async def test_a_password_is_cached_even_if_its_client_has_disconnected(file: Path) -> None:
    class Slow(Hashes):
        def matches(self, password_hash: str, password: bytes) -> bool:  # type: ignore[override]
            loop.call_soon_threadsafe(verifying.set)
            return super().matches(password_hash, password)

    loop, verifying = asyncio.get_running_loop(), asyncio.Event()
    hashes = Slow(None)
    task = asyncio.create_task(hashes.check(VERIFIER, Presented("c", "carol", b"right")))
    await verifying.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    hashes.executor.shutdown()
    assert await hashes.check(VERIFIER, Presented("c", "carol", b"right")) and hashes.computed == 1
