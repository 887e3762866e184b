"""The record of an exactly-once mapping: one record per mapping, replaced in a unit of work."""

from __future__ import annotations

import pytest

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.link_sessions import FormerSession, LinkSession, LinkSessions
from bridge.mq.state import MappingState
from tests.helpers.mq_applications import Application, Workplace


@pytest.fixture
def record(mq: Workplace, app: Application) -> MappingState:
    """The record of a mapping, and a queue for all records."""
    app.connection.command(f"DEFINE QLOCAL('{MAPPING_STATE_QUEUE}') SHARE DEFSOPT(SHARED)")
    return MappingState(app.connection, mq.name("map"))


@pytest.mark.smoke
def test_a_record_is_replaced_in_a_unit_of_work(app: Application, record: MappingState) -> None:
    assert record.load() is None
    for saved, ended, loaded in (
        (b"1", app.commit, b"1"),
        (b"2" * 100_000, app.commit, b"2" * 100_000),
        (b"3", app.backout, b"2" * 100_000),
        (None, app.backout, b"2" * 100_000),
        (None, app.commit, None),
        (b"", app.commit, b""),
        (None, app.commit, None),
    ):
        record.save(saved)
        ended()
        assert record.load() == loaded


@pytest.mark.smoke
def test_each_mapping_has_its_own_record(
    mq: Workplace, app: Application, other: Application, record: MappingState
) -> None:
    another = MappingState(other.connection, mq.name("map"))
    record.save(b"1")
    another.save(b"2")
    app.commit()
    other.commit()
    assert (record.load(), another.load()) == (b"1", b"2")
    for state, connection in ((record, app), (another, other)):
        state.save(None)
        connection.commit()


def test_a_record_survives_a_backout_of_another_connection(
    queue: str, app: Application, other: Application, record: MappingState
) -> None:
    app.put(queue, b"message")
    handle = other.open_queue(queue)
    other.drain(handle, 0x2)
    record.save(b"sent")
    app.commit()
    other.backout()
    assert (record.load(), other.all(queue)) == (b"sent", [b"message"])
    record.save(None)
    app.commit()


def test_sessions_are_found_among_other_messages(app: Application, other: Application, record: MappingState) -> None:
    """Records of other kinds, and messages of applications."""
    session = LinkSession("m", "owner", "link", "host", 1883, "client", ["a/#"])
    LinkSessions(app.connection).save(session)
    record.save(b"1")
    app.commit()
    for body in (b"", b"x", b"R\x81\xa1x" + b"\x91" * 100_000):
        other.put(MAPPING_STATE_QUEUE, body)
    former = FormerSession(LinkSession("m2", "owner", "link", "host", 1883, "other", []), 1.0)
    LinkSessions(app.connection).save_former(former)
    app.commit()
    assert LinkSessions(app.connection).all("owner") == ([session], [former])
    other.drain(other.open_queue(MAPPING_STATE_QUEUE), 0x2)


def test_records_of_sessions_release_their_handles(app: Application, record: MappingState) -> None:
    """A mapping that waits for its former session searches for it repeatedly. MAXHANDS is 256."""
    session = LinkSession("map", "owner", "L", "broker", 1883, "client", [])
    sessions = LinkSessions(app.connection)
    for _ in range(300):
        assert sessions.load("nothing") is None
        assert sessions.former(session) is None
    sessions.save(session)
    assert sessions.load("map") == session
    sessions.remove("map")
    app.commit()
