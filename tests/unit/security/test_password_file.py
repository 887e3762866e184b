"""The file of users and passwords: its lines, confidentiality, and `mqbridge passwd`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.security.authenticator import AuthenticationFailed, AuthenticatorUnavailable, Presented
from bridge.security.password_file import (
    PasswordAuthenticator,
    PasswordEntry,
    PasswordFile,
    PasswordFileError,
    PasswordHashes,
    hash_of,
    read_password_file,
    write_password_file,
)

SECRET = "correct horse 7"
NAMES = st.text(st.characters(blacklist_categories=("Cc", "Cs", "Zl", "Zp"), blacklist_characters=":"), min_size=1)
#: Placeholders for hashes: computing one takes a tenth of a second.
HASH = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$aGFzaA"


@given(
    st.dictionaries(NAMES.filter(lambda name: not name.startswith("#")), st.sampled_from(["", "SCRAM-SHA-256$1:a$b:c"]))
)
def test_a_written_file_can_be_read(tmp_path_factory: pytest.TempPathFactory, users: dict[str, str]) -> None:
    path = tmp_path_factory.mktemp("passwords") / "file"
    entries = {user: PasswordEntry(HASH, scram) for user, scram in users.items()}
    write_password_file(path, entries)
    assert read_password_file(path) == entries


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"a:{SECRET}\n", ":1: expected a line"),
        (f"# a comment\n\na:{HASH}\nb\n", ":4: expected a line"),
        (f"a:{HASH}\na:{HASH}\n", ":2: user 'a' occurs twice"),
        (f":{HASH}\n", ":1: expected a line"),
    ],
)
async def test_an_invalid_file_rejects_all_users(tmp_path: Path, text: str, message: str) -> None:
    """Its contents are not shown."""
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(PasswordFileError, match=message) as error:
        read_password_file(path)
    assert SECRET not in str(error.value)
    with pytest.raises(AuthenticatorUnavailable):
        await PasswordAuthenticator(PasswordFile(path), PasswordHashes()).authenticate(Presented("c", "a", b"x"))


async def test_a_file_that_is_changed_removed_and_restored(tmp_path: Path) -> None:
    path = tmp_path / "file"
    authenticator = PasswordAuthenticator(PasswordFile(path), PasswordHashes())
    presented = Presented("c", "carol", SECRET.encode())
    with pytest.raises(AuthenticatorUnavailable, match="cannot be read"):
        await authenticator.authenticate(presented)
    write_password_file(path, {"carol": PasswordEntry(hash_of(SECRET))})
    assert (await authenticator.authenticate(presented)).user_name == "carol"
    write_password_file(path, {"carol": PasswordEntry(hash_of("another"))})
    with pytest.raises(AuthenticationFailed, match="is wrong"):
        await authenticator.authenticate(presented)
    write_password_file(path, {})
    with pytest.raises(AuthenticationFailed):
        await authenticator.authenticate(presented)


def test_passwords_are_not_shown() -> None:
    presented = Presented("c", "carol", SECRET.encode())
    assert SECRET not in repr(presented) + str(presented)


def passwd(*arguments: str, password: str = SECRET) -> tuple[int, str]:
    result = CliRunner().invoke(program, ["passwd", *arguments], input=f"{password}\n")
    assert SECRET not in result.output
    return result.exit_code, result.output


def test_the_command(tmp_path: Path) -> None:
    """It creates the file for its owner only, keeps comments, mode and other users, and prints the change."""
    file = str(tmp_path / "clients")
    assert passwd(file, "carol", "--stdin") == (0, f"{file}: set the password of user carol\n")
    path = Path(file)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    path.write_text("# of the plant\n" + path.read_text())
    assert passwd(file, "dave", "--stdin")[0] == 0
    assert re.match(r"# of the plant\n# scram-key [0-9a-f]{64}\ncarol:\$argon2id\$", path.read_text())
    assert path.stat().st_mode & 0o777 == 0o640
    assert passwd(file, "--list") == (0, "carol\ndave\n")
    before = path.read_text()
    for user in ("a:b", "", " a", "#a", "a\nb"):
        assert passwd(file, user, "--stdin")[0] != 0
    assert passwd(file, "erin", "--stdin", password="")[0] != 0
    assert passwd(file, "erin", "--delete")[0] != 0
    assert path.read_text() == before
    assert passwd(file, "carol", "--delete")[0] == 0
    assert passwd(file, "--list") == (0, "dave\n")
    assert [path.name for path in tmp_path.iterdir()] == ["clients"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to a group that is not its own")
def test_a_file_created_by_root_is_readable_by_the_service(tmp_path: Path) -> None:
    """/etc/mqbridge belongs to root and the group of the service, which must read the file."""
    os.chown(tmp_path, 0, 12_345)
    path = tmp_path / "clients"
    write_password_file(path, {})
    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (0, 12_345, 0o640)
    path.chmod(0o600)
    write_password_file(path, {})
    assert path.stat().st_mode & 0o777 == 0o600
