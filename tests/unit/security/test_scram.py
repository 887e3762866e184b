"""SCRAM-SHA-256: users of a password file are not revealed, and its verifiers check passwords."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scramp import ScramClient

from bridge.security.authenticator import Authenticated, AuthenticationFailed, Challenge, Presented
from bridge.security.authenticators import ChannelAuthentication
from bridge.security.password_file import (
    PasswordAuthenticator,
    PasswordEntry,
    PasswordFile,
    PasswordHashes,
    read_password_file,
    write_password_file,
)
from bridge.security.scram import ITERATIONS, NAME, Scram, verifier_of

#: Placeholders for hashes, which SCRAM does not use.
HASH = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$aGFzaA"
FEW = 4096


def password_file(path: Path, *iterations: int) -> Path:
    """Write a file of users `user0` and so on, each with the password `right` and a verifier with this number of
    iterations.
    """
    write_password_file(
        path, {f"user{number}": PasswordEntry(HASH, verifier_of("right", n)) for number, n in enumerate(iterations)}
    )
    return path


async def challenge(scram: Scram, user: str) -> tuple[bytes, int]:
    """Return the salt and the iterations that a client with that name receives."""
    answer = await scram.begin(Presented("c")).respond(f"n,,n={user},r=abcdefgh".encode())
    assert isinstance(answer, Challenge) and answer.data is not None
    match = re.fullmatch(rb"r=[^,]+,s=([^,]+),i=([0-9]+)", answer.data)
    assert match
    return match[1], int(match[2])


async def exchange(scram: Scram, user: str, password: str) -> Authenticated:
    client = ScramClient([NAME], user, password)
    exchange = scram.begin(Presented("c"))
    answer = await exchange.respond(client.get_client_first().encode())
    assert answer.data is not None
    client.set_server_first(answer.data.decode())
    authenticated = await exchange.respond(client.get_client_final().encode())
    assert isinstance(authenticated, Authenticated) and authenticated.data is not None
    client.set_server_final(authenticated.data.decode())
    return authenticated


async def test_exchange(tmp_path: Path) -> None:
    scram = Scram(PasswordFile(password_file(tmp_path / "file", FEW)))
    assert (await exchange(scram, "user0", "right")).user_name == "user0"
    for user, password in (("user0", "wrong"), ("nobody", "right")):
        with pytest.raises(AuthenticationFailed):
            await exchange(scram, user, password)


def test_the_cost_of_guessing_passwords_of_a_stolen_file() -> None:
    """OWASP's figure for PBKDF2 with SHA-256."""
    assert ITERATIONS >= 600_000 and verifier_of("x").startswith(f"{NAME}${ITERATIONS}:")


@pytest.mark.parametrize("iterations", [(FEW,), (FEW, FEW, FEW), (FEW, 5000)], ids=["one", "several", "of two kinds"])
async def test_unknown_users_look_like_known_users(tmp_path: Path, iterations: tuple[int, ...]) -> None:
    """Salts have the same length, iterations the same number, and both are constant over channels and restarts."""
    path = password_file(tmp_path / "file", *iterations)
    first, second = Scram(PasswordFile(path)), Scram(PasswordFile(path))
    there = [await challenge(first, f"user{number}") for number in range(len(iterations))]
    away = [await challenge(first, f"other{number}") for number in range(50)]
    assert {len(salt) for salt, _ in away} == {len(salt) for salt, _ in there}
    assert {count for _, count in away} == {count for _, count in there}
    assert len({salt for salt, _ in away}) == len(away)
    assert [await challenge(second, f"other{number}") for number in range(50)] == away
    assert [await challenge(first, f"other{number}") for number in range(50)] == away


async def test_a_change_of_the_file_reveals_nothing(tmp_path: Path) -> None:
    """An unknown user keeps its salt when another user gets a password."""
    path = password_file(tmp_path / "file", FEW)
    scram = Scram(PasswordFile(path))
    before = await challenge(scram, "other")
    write_password_file(path, read_password_file(path) | {"new": PasswordEntry(HASH, verifier_of("x", FEW))})
    assert await challenge(scram, "other") == before
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.startswith("#")) + "\n")
    assert await challenge(scram, "other") != before  # the key is replaced by another secret


@pytest.mark.parametrize("scram", ["", "SCRAM-SHA-256$x:a$b:c", "SCRAM-SHA-256$4096:$YQ==:YQ==", "$$", "SCRAM-SHA-256"])
async def test_users_without_a_verifier(tmp_path: Path, scram: str) -> None:
    """A user without a valid verifier gets the same answer as an unknown user."""
    path = tmp_path / "file"
    write_password_file(
        path, {"user": PasswordEntry(HASH, scram), "other": PasswordEntry(HASH, verifier_of("right", FEW))}
    )
    answer = await challenge(Scram(PasswordFile(path)), "user")
    assert answer[1] == FEW and len(answer[0]) == 44
    with pytest.raises(AuthenticationFailed):
        await exchange(Scram(PasswordFile(path)), "user", "right")


async def test_a_user_name_with_scram_does_not_need_a_password(tmp_path: Path) -> None:
    """If the channel accepts passwords, too, a user of SCRAM is checked by password only if it sends one."""
    file = PasswordFile(password_file(tmp_path / "file", FEW))
    authentication = ChannelAuthentication(True, [PasswordAuthenticator(file, PasswordHashes())])
    login = Authenticated("user0", b"proof")
    assert (await authentication.authenticate(Presented("c", "user0"), login)).user_name == "user0"
    assert (await authentication.authenticate(Presented("c", "somebody"), login)).user_name == "user0"
    for presented in (Presented("c", "user0", b"wrong"), Presented("c", None, b"wrong")):
        with pytest.raises(AuthenticationFailed):
            await authentication.authenticate(presented, login)
    with pytest.raises(AuthenticationFailed):
        await authentication.authenticate(Presented("c", "user0"))
