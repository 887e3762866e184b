"""The history of clients: its limits, its file, and events of a running bridge."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from bridge.administration.answers import ClientEvent
from bridge.administration.protocol import result_of
from bridge.administration.requests import DisconnectClients, ShowClientHistory, TraceClient
from bridge.config.operations import ClientHistoryConfig
from bridge.mqtt.packets import Publish
from bridge.service import client_history
from bridge.service.client_history import MAX_REJECTIONS, MAX_WAITING, ClientEventHistory, HistoryUnavailable
from bridge.service.lifecycle import Bridge
from tests.helpers.patience import happens
from tests.helpers.raw_client import RawClient
from tests.helpers.running_bridge import current_problems, running
from tests.unit.service.test_client_journal import port_of
from tests.unit.service.test_problems import configuration


async def event_texts(history: ClientEventHistory, client_id: str) -> list[str]:
    return [event.text for event in await history.events_of(client_id, 10_000)]


@pytest.mark.parametrize("on_disk", [True, False])
async def test_the_newest_events_of_a_client_are_kept(tmp_path: Path, on_disk: bool) -> None:
    history = ClientEventHistory(ClientHistoryConfig(events_per_client=3), tmp_path / "h.db" if on_disk else None)
    for number in range(5):
        history.add("pump", "subscribed", f"event {number}")
        history.add("other", "connected", f"other {number}")
        assert (await event_texts(history, "pump"))[0] == f"event {number}"
    assert await event_texts(history, "pump") == ["event 4", "event 3", "event 2"]
    assert [event.kind for event in await history.events_of("other", 1)] == ["connected"]
    assert await event_texts(history, "nobody") == []
    await history.stop()
    history.add("pump", "connected", "too late")
    with pytest.raises(HistoryUnavailable, match="the bridge is stopping"):
        await history.events_of("pump", 1)


async def test_all_clients_together_have_a_limit_and_a_flapping_client_affects_only_itself(tmp_path: Path) -> None:
    history = ClientEventHistory(ClientHistoryConfig(events_per_client=10, events=1_000), tmp_path / "h.db")
    history.add("quiet", "connected", "first")
    for _ in range(3):
        for number in range(900):
            history.add("flaps", "connected", str(number))
        await event_texts(history, "flaps")
    assert (await event_texts(history, "quiet"), len(await event_texts(history, "flaps"))) == (["first"], 10)
    for number in range(1_200):
        history.add(f"c{number}", "connected", "x")
    assert await event_texts(history, "quiet") == await event_texts(history, "c100") == []
    assert await event_texts(history, "c1199") == ["x"]
    await history.stop()
    with sqlite3.connect(tmp_path / "h.db") as database:
        assert database.execute("SELECT count(*) FROM event").fetchone() == (1_000,)


async def test_rejections_displace_no_other_events(tmp_path: Path) -> None:
    """Anyone can cause rejections, with any client identifier."""
    history = ClientEventHistory(ClientHistoryConfig(events=1_000), tmp_path / "h.db")
    history.add("pump", "connected", "x")
    for number in range(3 * MAX_REJECTIONS):
        history.add(f"stranger-{number}" * 1_000, "rejected", "y" * 10_000)
    history.add("pump", "rejected", "not kept: too many at a time")
    assert await event_texts(history, "pump") == ["x"]
    assert history.loss.events == 2 * MAX_REJECTIONS + 1
    for _ in range(3):
        await asyncio.gather(
            *(event_texts(history, str(history.add(f"s{number}", "rejected", ""))) for number in range(100))
        )
    assert await event_texts(history, "pump") == ["x"]
    assert history.loss.why == "", "a flood is not a failure of the disk"
    await history.stop()


async def test_long_identifiers_of_rejected_clients_do_not_fill_the_disk(tmp_path: Path) -> None:
    """Two events differ in the first 100 characters of the identifier, which are kept."""
    history = ClientEventHistory(ClientHistoryConfig(), tmp_path / "h.db")
    identifiers = [f"{number}-{chr(0x1F600) * 16_000}" for number in range(MAX_REJECTIONS)]
    for identifier in identifiers:
        history.add(identifier, "rejected", f"rejected {identifier}")
    assert len(await event_texts(history, identifiers[0])) == 1
    await history.stop()
    assert (tmp_path / "h.db").stat().st_size < MAX_REJECTIONS * 3_000


async def test_repeated_events_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(client_history, "time", type("Clock", (), {"time": lambda: now}))
    history = ClientEventHistory(ClientHistoryConfig(), tmp_path / "h.db")
    history.add("pump", "dropped", "message dropped: full", 5)
    assert await event_texts(history, "pump") == ["message dropped: full (and 4 more within 60 s)"]
    for _ in range(7):
        history.add("pump", "dropped", "message dropped: full")
    assert len(await event_texts(history, "pump")) == 1
    now += 61
    assert (await event_texts(history, "pump"))[0] == "message dropped: full (and 6 more within 60 s)"
    history.add("pump", "dropped", "the last one")
    await history.stop()
    again = ClientEventHistory(ClientHistoryConfig(), tmp_path / "h.db")
    assert (await event_texts(again, "pump"))[0] == "the last one", "a stop writes the counts"
    await again.stop()


async def test_old_events_are_deleted(tmp_path: Path) -> None:
    history = ClientEventHistory(ClientHistoryConfig(retention=3_600), tmp_path / "h.db")
    history.add("old", "connected", "x")
    assert len(await event_texts(history, "old")) == 1
    await history.stop()
    with sqlite3.connect(tmp_path / "h.db") as database:
        database.execute("UPDATE event SET time = ?", (time.time() - 3_700,))
    history = ClientEventHistory(ClientHistoryConfig(retention=3_600), tmp_path / "h.db")
    history.add("new", "connected", "x")
    assert (len(await event_texts(history, "new")), await event_texts(history, "old")) == (1, [])
    await history.stop()


async def test_more_events_than_can_be_written_are_lost_and_counted() -> None:
    history = ClientEventHistory(ClientHistoryConfig(), None)
    for number in range(MAX_WAITING + 5):
        history.add(f"c{number}", "connected", "x")
    assert history.loss.events == 5
    await history.stop()


@pytest.mark.parametrize("damage", ["no database", "a damaged page"])
async def test_a_damaged_file_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str) -> None:
    file = tmp_path / "h.db"
    history = ClientEventHistory(ClientHistoryConfig(), file)
    for number in range(500):
        history.add("pump", "connected", f"{number} " + 200 * "x")
    await history.stop()
    content = bytearray(file.read_bytes())
    content[0 if damage == "no database" else 4096 : 8192] = b"?" * (8192 - (0 if damage == "no database" else 4096))
    file.write_bytes(content)
    history = ClientEventHistory(ClientHistoryConfig(), file)
    assert await event_texts(history, "pump") == []
    history.add("pump", "connected", "again")
    assert await event_texts(history, "pump") == ["again"]
    assert "MQB2019W" in caplog.text and (tmp_path / "h.db.damaged").read_bytes() == content
    await history.stop()


@pytest.mark.parametrize("change", ["removed", "replaced", "directory removed for a while"])
async def test_a_running_history_continues_in_the_file_with_its_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    """SQLite would write to the removed file, and a restart would lose all events without a message."""
    caplog.set_level("INFO")
    file = tmp_path / "directory" / "h.db"
    file.parent.mkdir()
    if change == "replaced":
        backup = ClientEventHistory(ClientHistoryConfig(), tmp_path / "backup.db")
        backup.add("pump", "connected", "backup")
        await backup.stop()
    history = ClientEventHistory(ClientHistoryConfig(), file)
    history.add("pump", "connected", "before")
    assert await event_texts(history, "pump") == ["before"]
    for path in [*file.parent.iterdir()] if change != "replaced" else []:
        path.unlink()
    if change == "replaced":
        (tmp_path / "backup.db").replace(file)
    elif change.startswith("directory"):
        file.parent.rmdir()
        history.add("pump", "connected", "lost")
        assert await event_texts(history, "pump") == ["before"]
        assert history.loss.events == 1 and f"{file} cannot be opened" in history.loss.why
        file.parent.mkdir()
    history.add("pump", "connected", "after")
    texts = await event_texts(history, "pump")
    assert texts == (["after", "backup"] if change == "replaced" else ["after"])
    assert f"MQB2020W the history of clients {file} was removed, replaced or damaged; opened it again" in caplog.text
    assert ("MQB2018I" in caplog.text) == change.startswith("directory")
    await history.stop()
    again = ClientEventHistory(ClientHistoryConfig(), file)
    assert await event_texts(again, "pump") == texts
    await again.stop()
    assert "MQB2019W" not in caplog.text


async def test_a_full_disk_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bridge serves clients without their history until the disk has space."""
    caplog.set_level("INFO")
    file = tmp_path / "h.db"
    is_full, opened = True, os.open

    def opening(path: Any, *arguments: Any, **options: Any) -> int:
        if is_full and path == file:
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", opening)
    history = ClientEventHistory(ClientHistoryConfig(), file)
    assert (history.loss.events, history.loss.why) == (0, f"{file} cannot be opened: No space left on device")
    assert history.loss.last, "it is a problem at once"
    history.add("pump", "connected", "lost")
    assert await event_texts(history, "pump") == []
    assert history.loss.events == 1 and caplog.text.count("MQB2017W") == 1
    is_full = False
    history.add("pump", "connected", "kept")
    assert await event_texts(history, "pump") == ["kept"]
    assert "MQB2018I" in caplog.text
    await history.stop()
    again = ClientEventHistory(ClientHistoryConfig(), file)
    assert await event_texts(again, "pump") == ["kept"]
    await again.stop()


async def test_a_file_damaged_while_the_bridge_runs_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "h.db"
    history = ClientEventHistory(ClientHistoryConfig(), file)
    history.add("pump", "connected", "before")
    assert await event_texts(history, "pump") == ["before"]
    with sqlite3.connect(file) as other:
        other.execute("PRAGMA writable_schema = ON")
        other.execute("UPDATE sqlite_schema SET rootpage = 9999 WHERE name = 'event'")
        other.execute("PRAGMA schema_version = 9999")
    other.close()
    history.add("pump", "connected", "lost")
    with pytest.raises(HistoryUnavailable, match="malformed"):
        await event_texts(history, "pump")
    assert history.loss.events == 1 and "malformed" in history.loss.why
    history.add("pump", "connected", "after")
    assert await event_texts(history, "pump") == ["after"]
    assert "MQB2019W" in caplog.text and "MQB2020W" in caplog.text
    await history.stop()


def test_a_damaged_file_that_cannot_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "h.db").write_bytes(b"no database" * 1_000)
    (tmp_path / "h.db.damaged").mkdir()
    with pytest.raises(
        HistoryUnavailable, match=r"h\.db is damaged and cannot be renamed to .*h\.db\.damaged: Is a dir"
    ):
        ClientEventHistory(ClientHistoryConfig(), tmp_path / "h.db")


def test_a_file_that_cannot_be_created(tmp_path: Path) -> None:
    with pytest.raises(HistoryUnavailable, match="nosuch"):
        ClientEventHistory(ClientHistoryConfig(), tmp_path / "nosuch" / "h.db")


async def test_a_failing_disk_is_a_continuing_problem(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running(configuration(tmp_path)) as bridge:
        history = bridge.parts.service.journal.history
        assert history is not None
        with sqlite3.connect(tmp_path / "data" / "client-history.db") as other:
            other.execute("BEGIN EXCLUSIVE")
            history.add("pump", "connected", "lost")
            assert await event_texts(history, "pump") == []
            other.rollback()
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.severity) == ("client_history", "warning")
        assert problem.what == "the history of clients cannot be written: database is locked; 1 event of clients lost"
        history.add("pump", "connected", "kept")
        assert await event_texts(history, "pump") == ["kept"]
    assert [record.getMessage()[:8] for record in caplog.records if record.getMessage().startswith("MQB201")] == [
        "MQB2017W",
        "MQB2018I",
    ]


# Events of a running bridge ------------------------------------------------------------------------------------------


async def events_of(bridge: Bridge, client_id: str) -> list[ClientEvent]:
    request = ShowClientHistory(client_id=client_id)
    return result_of(request, await bridge.answer(request, "maria"))


@pytest.mark.parametrize("level", [4, 5])
async def test_the_history_of_a_disconnected_client(tmp_path: Path, level: int) -> None:
    async with running(configuration(tmp_path)) as bridge:
        port = port_of(bridge)

        def life() -> None:
            first = RawClient.connected(port, "pump", level=level)
            first.subscribe(*((f"t/{number}", 1) for number in range(7)))
            second = RawClient.connected(port, "pump", level=level)
            second.unsubscribe("t/1")
            second.disconnect()
            RawClient.connected(port, "pump", level=level).vanish()
            first.vanish()

        await asyncio.to_thread(life)
        await happens(lambda: not bridge.parts.service.sessions)
        events = await events_of(bridge, "pump")
    async with running(configuration(tmp_path)) as bridge:
        assert await events_of(bridge, "pump") == events, "a restart keeps them"
    kinds = [event.kind for event in reversed(events)]
    assert kinds == [
        "connected", *["subscribed"] * 6, "taken_over", "session_ended", "connected", "unsubscribed", "disconnected",
        "session_ended", "connected", "disconnected", "session_ended",
    ]  # fmt: skip
    texts = [event.text for event in reversed(events)]
    assert texts[0].startswith("connected via channel A from 127.0.0.1:")
    assert texts[0].endswith(" as user '': clean session")
    assert texts[6] == "subscribed to 2 more topic filters in the same request"
    # Both addresses.
    assert texts[7].startswith("connection from 127.0.0.1:")
    assert "ended by the bridge: taken over by a new connection" in texts[7] and texts[7].count("127.0.0.1:") == 2
    assert texts[11].endswith("disconnected by the client")
    assert texts[14].endswith("lost, without DISCONNECT")


async def test_rejections_and_administrators_are_recorded(tmp_path: Path) -> None:
    sections: dict[str, Any] = {"limits": {"sessions": 1}}
    async with running(configuration(tmp_path, **sections)) as bridge:
        port = port_of(bridge)
        with await asyncio.to_thread(RawClient.connected, port, "pump"):
            other = RawClient(port, "other")
            assert (await asyncio.to_thread(other.connect)).return_code != 0
            other.vanish()
            await bridge.answer(DisconnectClients(patterns=["p*"]), "maria")
            await happens(lambda: not bridge.parts.service.clients)
        (rejection,) = await events_of(bridge, "other")
        assert rejection.kind == "rejected"
        assert rejection.text.startswith("connection from 127.0.0.1:") and "limits.sessions" in rejection.text
        texts = [event.text for event in await events_of(bridge, "pump")]
        assert texts[1].endswith("ended by the bridge: disconnected by an administrator")


async def test_dropped_messages_are_counted(tmp_path: Path) -> None:
    limits = {"waiting_bytes": 2_000, "waiting_full": "drop-oldest"}
    async with running(configuration(tmp_path, limits=limits)) as bridge:
        port = port_of(bridge)

        def fill() -> None:
            client = RawClient.connected(port, "away", clean=False)
            client.subscribe(("t", 1))
            client.disconnect()
            with RawClient.connected(port, "publisher") as publisher:
                for _ in range(10):
                    publisher.publish("t", b"x", 1)

        await asyncio.to_thread(fill)
        event = (await events_of(bridge, "away"))[0]
        assert event.kind == "dropped"
        assert event.text.startswith("message dropped: the backlog of the client was full (waiting_bytes)")


async def test_a_trace_has_events_and_messages_without_payloads_unless_requested(tmp_path: Path) -> None:
    async with running(configuration(tmp_path)) as bridge:
        port = port_of(bridge)
        request = TraceClient(client_id="pump", payloads=True)
        assert result_of(request, await bridge.answer(request, "maria")).entries == []

        def life() -> None:
            with RawClient.connected(port, "pump") as client:
                client.subscribe(("t", 1))
                client.publish("t", b"secret", 1)
                client.acknowledge(client.expect(Publish))
                client.ping()
            with RawClient.connected(port, "other") as other:
                other.publish("t", b"", 1)

        await asyncio.to_thread(life)
        trace = result_of(request, await bridge.answer(request, "maria"))
        kinds = [(entry.kind, entry.topic, entry.qos, entry.size, entry.payload) for entry in trace.entries]
        assert kinds[2:4] == [("published", "t", 1, 6, "secret"), ("delivered", "t", 1, 6, "secret")]
        assert [entry.text for entry in trace.entries[1:3]] == ["subscribed to 't' with QoS 1", "put"]
        request = TraceClient(client_id="pump", after=trace.entries[1].number)
        entries = result_of(request, await bridge.answer(request, "maria")).entries
        assert [(entry.kind, entry.payload) for entry in entries[:2]] == [("published", None), ("delivered", None)]


async def test_a_reload_moves_the_history(tmp_path: Path) -> None:
    history = ClientEventHistory(ClientHistoryConfig(), tmp_path / "first.db")
    history.add("pump", "connected", "x")
    with pytest.raises(HistoryUnavailable):
        await history.reload(ClientHistoryConfig(), tmp_path / "nosuch" / "h.db")
    assert await event_texts(history, "pump") == ["x"]
    await history.reload(ClientHistoryConfig(events_per_client=1), tmp_path / "second.db")
    assert await event_texts(history, "pump") == []
    history.add("pump", "connected", "y")
    history.add("pump", "connected", "z")
    assert await event_texts(history, "pump") == ["z"]
    await history.stop()
    first = ClientEventHistory(ClientHistoryConfig(), tmp_path / "first.db")
    assert await event_texts(first, "pump") == ["x"]
    await first.stop()
