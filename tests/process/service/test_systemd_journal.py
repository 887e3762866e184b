"""Under systemd, log records are entries of the journal with their fields. None is lost if the journal is unreachable."""

from __future__ import annotations

import array
import fcntl
import io
import logging
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.service import log as log_module
from bridge.service.log import JournalHandler, TextFormatter
from bridge.transport.layers import Peer
from tests.helpers.patience import PATIENCE


class Journal:
    """The socket of systemd's journal, and the contents of a datagram."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(PATIENCE)
        self.sealed = False

    def entry(self) -> dict[str, str]:
        """The next entry."""
        data, rights, _, _ = self.socket.recvmsg(1 << 20, socket.CMSG_SPACE(4))
        self.sealed = bool(rights)
        if rights:
            descriptor = array.array("i", rights[0][2])[0]
            # journald does not accept a file that can still be changed.
            assert fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) == log_module._SEALS
            with open(descriptor, "rb") as file:
                file.seek(0)
                data = file.read()
        return parsed(data)


def parsed(data: bytes) -> dict[str, str]:
    """Return the fields of an entry, in the Native Journal Protocol."""
    fields = {}
    while data:
        head, data = data.split(b"\n", 1)
        name, equals, value = head.partition(b"=")
        if not equals:
            (length,) = struct.unpack("<Q", data[:8])
            value, data = data[8 : 8 + length], data[8 + length :]
            assert data[:1] == b"\n"
            data = data[1:]
        fields[name.decode()] = value.decode()
    return fields


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    socket_of_journal = Journal(tmp_path / "socket")
    yield socket_of_journal
    socket_of_journal.socket.close()


@pytest.fixture
def otherwise() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(journal: Journal, otherwise: io.StringIO) -> Iterator[logging.Logger]:
    handler = JournalHandler(logging.StreamHandler(otherwise), journal.path)
    logger = logging.Logger("bridge.service.test")
    logger.addHandler(handler)
    yield logger
    handler.close()


def test_an_entry_has_the_fields_of_the_record(log: logging.Logger, journal: Journal) -> None:
    log.warning("MQB2301W client %s: %s", Peer("10.0.0.7:5", "dev-1"), "MQRC_Q_FULL (2053)")
    entry = journal.entry()
    line = int(entry.pop("CODE_LINE"))
    assert line > 0
    assert entry == {
        "MESSAGE": "MQB2301W client 'dev-1' at 10.0.0.7:5: MQRC_Q_FULL (2053)",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "mqbridge",
        "CODE_FILE": __file__,
        "CODE_FUNC": "test_an_entry_has_the_fields_of_the_record",
        "LOGGER": "bridge.service.test",
        "MQBRIDGE_ID": "MQB2301W",
        "MQBRIDGE_CLIENT": "dev-1",
        "MQBRIDGE_ADDRESS": "10.0.0.7:5",
        "MQBRIDGE_REASON": "MQRC_Q_FULL",
    }


@pytest.mark.parametrize(
    ("level", "priority"),
    [(logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3), (logging.CRITICAL, 2)],
)
def test_the_priority_is_the_level(log: logging.Logger, journal: Journal, level: int, priority: int) -> None:
    log.log(level, "said")
    assert journal.entry()["PRIORITY"] == str(priority)


def test_a_traceback_is_part_of_the_message(log: logging.Logger, journal: Journal) -> None:
    """A value with several lines has its length before it."""
    try:
        raise ValueError("no = sign\nfield")
    except ValueError:
        log.exception("MQB2303E failed")
    first, *lines = journal.entry()["MESSAGE"].split("\n")
    assert first == "MQB2303E failed"
    assert lines[0].startswith("Traceback") and lines[-2:] == ["ValueError: no = sign", "field"]


def test_client_names_create_no_fields(log: logging.Logger, journal: Journal) -> None:
    log.warning("MQB2001I client %s", Peer("at\nPRIORITY=0\n", "x\nPRIORITY=0"))
    entry = journal.entry()
    assert entry["PRIORITY"] == "4"
    assert entry["MQBRIDGE_CLIENT"] == "x\\x0aPRIORITY=0"


def test_invalid_unicode_is_escaped(log: logging.Logger, journal: Journal) -> None:
    log.warning("file %s", os.fsdecode(b"\xff"))
    assert journal.entry()["MESSAGE"] == "file \\udcff"


def test_a_long_entry_is_sent_as_a_sealed_file(log: logging.Logger, journal: Journal, otherwise: io.StringIO) -> None:
    try:
        raise ValueError("x" * 2_000_000)
    except ValueError:
        log.exception("MQB2303E failed")
    assert journal.entry()["MESSAGE"].endswith("x" * 2_000_000)
    assert journal.sealed
    assert otherwise.getvalue() == ""
    log.warning("and a short one")
    assert journal.entry()["MESSAGE"] == "and a short one"
    assert not journal.sealed


def test_lines_go_to_standard_error_while_the_journal_is_unreachable(
    log: logging.Logger, journal: Journal, otherwise: io.StringIO
) -> None:
    os.rename(journal.path, journal.path + ".away")
    log.warning("MQB2301W one")
    assert otherwise.getvalue() == "MQB2301W one\n"
    os.rename(journal.path + ".away", journal.path)
    log.warning("MQB2301W two")
    assert journal.entry()["MESSAGE"] == "MQB2301W two"


def test_a_long_line_is_not_lost_without_files_in_memory(
    log: logging.Logger, otherwise: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(log_module.os, "memfd_create", refused)  # type: ignore[attr-defined]
    try:
        raise ValueError("x" * 2_000_000)
    except ValueError:
        log.exception("MQB2303E failed")
    assert otherwise.getvalue().rstrip().endswith("x" * 2_000_000)


PROGRAM = """
import logging, os, sys
from bridge.config.operations import LogConfig
from bridge.service import log
found = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{found.st_dev}:{found.st_ino}"
log.JournalHandler.__init__.__defaults__ = (sys.argv[1],)
log.configure(LogConfig(format=sys.argv[2]))
for _ in range(5):
    logging.getLogger("bridge").error("MQB2103E said")
logging.shutdown()
"""


def run(journal: Journal, form: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, journal.path, form], capture_output=True, timeout=PATIENCE, check=True
    )
    return process.stderr.decode()


def test_a_process_under_systemd_writes_to_the_journal(journal: Journal) -> None:
    assert run(journal, "text") == ""
    assert [journal.entry()["MESSAGE"] for _ in range(3)] == ["MQB2103E said"] * 3
    again = journal.entry()
    assert again["MESSAGE"] == "MQB2103E said (repeated 2 more times in 10 s)"
    assert (again["PRIORITY"], again["MQBRIDGE_ID"]) == ("3", "MQB2103E")


def test_json_lines_go_to_standard_error_there_too(journal: Journal) -> None:
    assert '"id":"MQB2103E"' in run(journal, "json")


def test_without_the_journal_lines_start_with_their_priority(journal: Journal) -> None:
    os.unlink(journal.path)
    first, *_, last = run(journal, "text").splitlines()
    assert first.startswith("<3>") and first.endswith("MQB2103E said")
    assert last.startswith("<3>") and last.endswith("(repeated 2 more times in 10 s)")


def test_the_formatter_without_systemd_has_no_priority() -> None:
    line = TextFormatter().format(logging.LogRecord("test", logging.INFO, "here.py", 7, "said", (), None))
    assert not line.startswith("<")
