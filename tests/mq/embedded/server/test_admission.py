"""Who is let in over TCP: passwords in plain text, and as hashes of argon2id."""

from __future__ import annotations

from pathlib import Path

import pytest
from argon2 import PasswordHasher

from bridge.mq.embedded.server.admission import Admission
from bridge.mq.embedded.server.client import RemoteConnection
from bridge.mq.errors import MQError
from bridge.wire import cmqc
from tests.support.served_queue_manager import ServedQueueManager

#: Quick to compute.
HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "passwords"
    path.write_text(f"# who\nplain:one\nhashed:{HASHER.hash('two')}\nempty:\nbroken:$argon2id$v=19$nonsense\n")
    return path


@pytest.mark.parametrize(
    ("user", "password", "admitted"),
    [
        ("plain", "one", True),
        ("hashed", "two", True),
        ("hashed", "one", False),
        ("plain", "two", False),
        ("empty", "", False),
        ("empty", "two", False),
        ("other", "two", False),
        ("", "", False),
        ("broken", "two", False),
        ("broken", "$argon2id$v=19$nonsense", False),
    ],
)
def test_passwords(user: str, password: str, admitted: bool, file: Path) -> None:
    admission = Admission(password_file=file)
    for _ in range(2):  # the second time it is known
        try:
            assert admission.admit(None, user, password.encode()) == user and admitted
        except MQError as error:
            assert (error.reason, admitted) == (cmqc.MQRC_NOT_AUTHORIZED, False)


def test_a_hash_is_no_password(file: Path) -> None:
    hashed = next(line.partition(":")[2] for line in file.read_text().splitlines() if line.startswith("hashed:"))
    with pytest.raises(MQError):
        Admission(password_file=file).admit(None, "hashed", hashed.encode())


def test_a_password_that_is_no_longer_there_counts_no_more(file: Path) -> None:
    admission = Admission(password_file=file)
    assert admission.admit(None, "hashed", b"two") == "hashed"
    file.write_text(f"hashed:{HASHER.hash('three')}\n")
    with pytest.raises(MQError):
        admission.admit(None, "hashed", b"two")


def test_over_tcp(file: Path, tmp_path: Path) -> None:
    directory = tmp_path / "queue-manager"
    directory.mkdir()
    with ServedQueueManager(directory, admission=Admission(password_file=file), tcp=True) as served:
        for user, password in (("plain", "one"), ("hashed", "two")):
            connection = RemoteConnection(("127.0.0.1", served.port), user=user, password=password)
            assert connection.command("DISPLAY QMGR")[0].ok
            connection.disconnect()
        with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
            RemoteConnection(("127.0.0.1", served.port), user="hashed", password="one")
