"""Archive rows of the service: one per message, when its result is known, and one per change of a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.config.operations import ArchiveConfig
from bridge.mq.backend import ClientSubscription, RecoveredState
from bridge.mqtt.packets import Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe, Will
from bridge.service.recorder import Recorder
from bridge.wire import cmqc
from tests.helpers.archive import read
from tests.helpers.fake_backend import FakeBackend
from tests.helpers.service_bridge import Bridge

Archived = Callable[..., Any]


class Rows(list[dict[str, Any]]):
    """Rows of the archive after the end of the service."""

    def of(self, direction: str, *columns: str) -> list[Any]:
        """Return columns of the rows of a direction, in order."""
        rows = [tuple(row[name] for name in columns) for row in self if row["direction"] == direction]
        return [row[0] for row in rows] if len(columns) == 1 else rows


@pytest.fixture
def archived(tmp_path: Path) -> Archived:
    """`async with archived() as (running, rows)`: a service with an archive. `rows` has its rows after the block."""

    @asynccontextmanager
    async def run(
        limits: dict[str, Any] | None = None, backend: Any = None, **config: Any
    ) -> AsyncIterator[tuple[Any, Rows]]:
        rows = Rows()
        clock = asyncio.get_running_loop().time
        recorder = Recorder(ArchiveConfig(directory=tmp_path / "archive", **config), clock)
        async with Bridge(limits, backend, [lambda bus: bus.attach(recorder)]) as running:
            yield running, rows
        recorder.close(10)
        rows += read(tmp_path / "archive")

    return run


async def test_accepted_and_rejected_publications(archived: Archived) -> None:
    async with archived() as (running, rows):
        client = await running.connect("p", user_name="anna")
        running.backend.refused["bad"] = cmqc.MQRC_Q_FULL
        client.send(
            Publish("a", b"0", 0), Publish("b", b"11", 1, True, False, 7), Publish("c", b"222", 2, False, False, 9)
        )
        assert await client.receive() == Puback(7)
        assert await client.receive() == Pubrec(9)
        client.send(Publish("bad", b"", 0), Pubrel(9))
        assert await client.receive() == Pubcomp(9)
    assert rows.of("in", "outcome", "topic", "qos", "message_id", "payload", "size", "retain", "reason") == [
        ("put", "a", 0, 0, b"0", 1, False, None),
        ("put", "b", 1, 7, b"11", 2, True, None),
        ("put", "c", 2, 9, b"222", 3, False, None),
        ("refused", "bad", 0, 0, b"", 0, False, f"MQRC_Q_FULL ({cmqc.MQRC_Q_FULL})"),
    ]
    assert set(rows.of("in", "client_id", "user", "publisher")) == {("p", "anna", "p")}
    assert all(received <= settled for received, settled in rows.of("in", "received", "settled"))


async def test_publications_that_could_not_be_committed_are_rejected(archived: Archived) -> None:
    async with archived() as (running, rows):
        client = await running.connect("p")
        running.backend.failure = cmqc.MQRC_CONNECTION_BROKEN
        client.send(Publish("a", b"1", 1, False, False, 1))
        await client.rest()
    assert rows.of("in", "outcome", "reason") == [("refused", "MQRC_CONNECTION_BROKEN (2009)")]


async def test_payloads_can_be_omitted(archived: Archived) -> None:
    async with archived(payloads=False) as (running, rows):
        client = await running.connect("p")
        client.send(Publish("a", b"secret", 1, False, False, 1))
        await client.receive()
    assert rows.of("in", "payload", "size") == [(None, 6)]


async def test_deliveries_are_archived_when_they_are_settled(archived: Archived) -> None:
    async with archived() as (running, rows):
        client = await running.connect()
        running.backend.deliver(*(running.backend.publication(number, number % 3) for number in (3, 1, 2)))
        assert [(await client.receive()).qos for _ in range(3)] == [0, 1, 2]
        await client.silent()
        client.send(Pubrec(2))
        await client.receive()
        client.send(Puback(1), Pubcomp(2))
        await running.backend.until(lambda: len(running.backend.removed) == 3)
        await client.silent()
    assert rows.of("out", "outcome", "topic", "qos", "message_id", "payload", "times_sent") == [
        ("delivered", "t", 0, 0, b"3", 1),
        ("acknowledged", "t", 2, 2, b"2", 1),
        ("acknowledged", "t", 1, 1, b"1", 1),
    ]
    assert set(rows.of("out", "client_id", "publisher")) == {("c", "p")}
    assert rows.of("out", "publisher_message_id") == [0, 1, 1]
    assert all(sent <= settled for sent, settled in rows.of("out", "sent", "settled"))


async def test_the_number_of_transmissions_is_counted(archived: Archived) -> None:
    async with archived() as (running, rows):
        first = await running.connect(clean_session=False)
        running.backend.deliver(running.backend.publication(1, 1))
        await first.receive()
        first.vanish()
        await running.until(lambda: "c" not in running.service.clients)
        again = await running.connect(clean_session=False)
        assert (await again.receive()).dup
        again.send(Puback(1))
        await running.backend.until(lambda: bool(running.backend.removed))
    assert rows.of("out", "outcome", "times_sent") == [("acknowledged", 2)]


async def test_undeliverable_messages(archived: Archived) -> None:
    async with archived() as (running, rows):
        client = await running.connect()
        running.backend.deliver(
            running.backend.publication(1, 1, expired=True),
            running.backend.publication(2, 1, client_id="nobody"),
            running.backend.direct(3, client_id="nobody", body=b"body"),
            running.backend.direct(4, format_=cmqc.MQFMT_RF_HEADER_2, body=b"no header"),
            running.backend.publication(5, 1),
        )
        await client.receive()
        client.vanish()
        await running.until(lambda: not running.service.sessions)
    reason = "MQRC_UNKNOWN_REMOTE_Q_MGR (2087)"
    assert sorted(rows.of("out", "client_id", "outcome", "reason", "topic", "payload")) == sorted(
        [
            ("c", "discarded", "expired", "t", b"1"),
            ("nobody", "discarded", "the session has ended", "t", b"2"),
            ("nobody", "dead-lettered", reason, "command", b"body"),
            ("c", "dead-lettered", "MQRC_RFH_ERROR (2334)", "command", b"no header"),
            ("c", "discarded", "the session has ended", "t", b"5"),
        ]
    )


async def test_qos_0_for_a_slow_client_is_discarded(archived: Archived) -> None:
    async with archived() as (running, rows):
        client = await running.connect()
        running.connection.pause_writing()
        running.backend.deliver(running.backend.publication(3, 0))
        running.connection.resume_writing()
        await client.silent()
    assert rows.of("out", "outcome", "reason") == [("discarded", "the client was too slow")]


async def test_sessions_and_subscriptions(archived: Archived) -> None:
    async with archived() as (running, rows):
        client = await running.connect(clean_session=False)
        running.backend.refused["no"] = cmqc.MQRC_SUB_INHIBITED
        client.send(Subscribe(1, (("a/#", 1), ("no", 2), ("b", 0))))
        await client.receive()
        client.send(Unsubscribe(2, ("b",)))
        await client.receive()
        client.send(Disconnect())
        await client.rest()
        other = await running.connect(clean_session=True)
        other.vanish()
        await running.until(lambda: not running.service.sessions)
    assert rows.of("subscription", "outcome", "topic", "qos", "durable") == [
        ("connected", "", 0, True),
        ("subscribed", "a/#", 1, True),
        ("subscribed", "b", 0, True),
        ("unsubscribed", "b", 0, None),
        ("disconnected", "", 0, None),
        ("ended", "", 0, None),
        ("connected", "", 0, False),
        ("disconnected", "", 0, None),
        ("ended", "", 0, None),
    ]
    assert rows.of("archive", "outcome") == ["started", "stopped"]


async def test_a_will_is_a_publication(archived: Archived) -> None:
    async with archived() as (running, rows):
        client = await running.connect("p", will=Will("gone", b"bye", 1, True))
        client.vanish()
        await running.backend.until(lambda: bool(running.backend.entered))
        await running.until(lambda: not running.backend.waiting)
    assert rows.of("in", "outcome", "client_id", "topic", "payload", "qos", "retain") == [
        ("put", "p", "gone", b"bye", 1, True)
    ]


async def test_durable_subscriptions_are_archived_at_the_start(archived: Archived) -> None:
    backend = FakeBackend()
    backend.recovered = RecoveredState([], [ClientSubscription("c", "a/#", "2", True)])
    async with archived(backend=backend) as (_, rows):
        pass
    assert rows.of("subscription", "outcome", "client_id", "topic", "qos", "durable") == [
        ("subscribed", "c", "a/#", 2, True)
    ]
