"""The streaming reader as Spark calls it, and the subscriber that fills its spools, without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from bridge.config.link import LinkConfig
from bridge.link.state import LinkPhase, LinkState
from bridge.spark.errors import OptionError
from bridge.spark.mqtt import stream as streams
from bridge.spark.mqtt.broker import Broker
from bridge.spark.mqtt.frame import SpoolDamaged, read
from bridge.spark.mqtt.source_options import SourceOptions
from bridge.spark.mqtt.spool import Spool
from bridge.spark.mqtt.stream import MqttStreamReader, NotConnected
from bridge.spark.mqtt.subscriber import Subscriber
from bridge.telemetry.message import Publication, Received
from tests.helpers.mosquitto import Mosquitto, free_port
from tests.helpers.patience import PATIENCE
from tests.spark.mqtt.conftest import Clients

Readers = Callable[..., MqttStreamReader]
ALL = ReadAllAvailable()


@pytest.fixture
def readers(mosquitto: Mosquitto, tmp_path: Path) -> Iterator[Readers]:
    """readers("filter", ...): a reader; one that is made before must have been stopped."""
    made = []

    def make(
        *topic_filters: str, port: int = mosquitto.port, version: Any = "5", spool: str = "spool", **options: Any
    ) -> MqttStreamReader:
        broker = Broker(link=LinkConfig(host="127.0.0.1", port=port, version=version))
        source = SourceOptions(broker=broker, topic_filters=topic_filters, spool=str(tmp_path / spool), **options)
        made.append(MqttStreamReader(source))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def next_batch(reader: MqttStreamReader, start: Any, rows: int, limit: ReadLimit = ALL) -> Any:
    """The offset behind so many rows, once they have come."""
    end = start
    while sum(position for _, position in end.values()) - sum(position for _, position in start.values()) < rows:
        end = reader.latestOffset(start, limit)
    return end


def payloads(reader: MqttStreamReader, start: Any, end: Any) -> list[bytes]:
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return [bytes(payload) for batch in batches for payload in batch.column("payload").to_pylist()]


def publications(topic: str, *bodies: bytes) -> list[Publication]:
    return [Publication(topic=topic, payload=body, qos=2) for body in bodies]


def test_a_batch_that_is_run_again_has_the_same_rows(readers: Readers, clients: Clients) -> None:
    reader = readers("again", partitions=2)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    assert reader.partitions(start, start) == []
    sender = clients("again")
    sender.publish_all(*publications("again", b"0", b"1", b"2"))
    end = next_batch(reader, start, 2, ReadMaxRows(2))
    assert payloads(reader, start, end) == [b"0", b"1"]
    reader.stop()
    # Spark asks a new process for the partitions of the batch before anything else.
    reader = readers("again", partitions=2)
    assert payloads(reader, start, end) == [b"0", b"1"]
    last = next_batch(reader, end, 1)
    assert payloads(reader, end, last) == [b"2"]
    reader.commit(last)
    reader.stop()
    assert readers("again").initialOffset() == last


def test_limits_are_shared_by_filters(readers: Readers, clients: Clients) -> None:
    reader = readers("share/a", "share/b")
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    sender = clients("share")
    sender.publish_all(*publications("share/a", *[b"a"] * 9), *publications("share/b", b"b", b"b"))
    whole = next_batch(reader, start, 11)
    reader.stop()
    reader = readers("share/a", "share/b")
    part = reader.latestOffset(start, ReadMaxRows(6))
    assert sorted(payloads(reader, start, part)) == [b"a"] * 4 + [b"b"] * 2
    # The progress of the query tells what is in the batch, and what waits behind it since when.
    backlog = reader.reportLatestOffset()
    assert backlog is not None and datetime.fromisoformat(backlog["share/a"].pop("oldest")) < datetime.now(UTC)
    assert backlog["share/a"] == {"messages": 4, "bytes": 4, "waiting": 5}
    assert backlog["share/b"] == {"messages": 2, "bytes": 2, "waiting": 0, "oldest": None}
    assert sorted(payloads(reader, part, whole)) == [b"a"] * 5


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_shared_subscription_is_spread_over_queries(version: str, readers: Readers, clients: Clients) -> None:
    """Each has a part, and none has what the other has."""
    shared = f"$share/g{version}/spread{version}/+"
    both = [readers(shared, version=version, spool=name) for name in ("one", "other")]
    starts = [reader.initialOffset() for reader in both]
    for reader, start in zip(both, starts, strict=True):
        reader.latestOffset(start, ALL)
    bodies = [b"%02d" % number for number in range(20)]
    clients("spread").publish_all(*publications(f"spread{version}/x", *bodies))
    parts: list[list[bytes]] = []
    while sum(map(len, parts)) < len(bodies):
        ends = [reader.latestOffset(start, ALL) for reader, start in zip(both, starts, strict=True)]
        parts = [payloads(reader, start, end) for reader, start, end in zip(both, starts, ends, strict=True)]
    assert all(parts) and sorted(parts[0] + parts[1]) == bodies


def test_a_filter_that_is_new_to_the_checkpoint(readers: Readers, clients: Clients) -> None:
    reader = readers("new/a")
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    reader.stop()
    reader = readers("new/a", "new/b")
    reader.latestOffset(start, ALL)
    clients("new").publish_all(*publications("new/b", b"b"))
    end = start
    while "new/b" not in end:
        end = reader.latestOffset(start, ALL)
    reader.stop()
    # And one that is not asked for any more, in a batch that is run again.
    assert payloads(readers("new/a"), start, end) == [b"b"]


def test_an_available_now_run_ends_when_nothing_came_for_the_quiet_period(readers: Readers, clients: Clients) -> None:
    reader = readers("quiet", quiet_period=0.3)
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    sender = clients("quiet")
    sender.publish_all(*publications("quiet", b"0", b"1"))
    reader.prepareForTriggerAvailableNow()
    first = next_batch(reader, start, 1, ReadMaxRows(1))
    second = next_batch(reader, first, 1, ReadMaxRows(1))
    assert reader.latestOffset(second, ReadMaxRows(1)) == second
    sender.publish_all(*publications("quiet", b"2"))
    spool = reader._spools["quiet"]
    assert spool.wait_beyond(2, PATIENCE)
    assert reader.latestOffset(second, ALL) == second


def test_an_available_now_run_ends_though_messages_still_come(
    readers: Readers, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = readers("busy")
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    sender = clients("busy")
    monkeypatch.setattr(streams, "LONGEST_RUN", -1.0)
    sender.publish_all(*publications("busy", b"0"))
    assert reader._spools["busy"].wait_beyond(0, PATIENCE)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, ALL)
    sender.publish_all(*publications("busy", b"1"))
    assert reader._spools["busy"].wait_beyond(1, PATIENCE)
    assert payloads(reader, start, end) == [b"0"]
    assert reader.latestOffset(end, ALL) == end


def test_a_full_spool_leaves_messages_with_the_broker(readers: Readers, clients: Clients) -> None:
    reader = readers("full", spool_limit=1)
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    sender = clients("full")
    sender.publish_all(*publications("full", b"0"))
    end = next_batch(reader, start, 1)
    sender.publish_all(*publications("full", b"1"))
    assert not reader._spools["full"].wait_beyond(1, 0.2)
    last = next_batch(reader, end, 1)  # the first row is in a committed batch
    assert payloads(reader, end, last) == [b"1"]


def test_no_broker(readers: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CONNECT_WAIT", 0.2)
    reader = readers("nobody", port=free_port())
    with pytest.raises(NotConnected, match=r"no session at 127.0.0.1:\d+ for nobody within 0.2 s: cannot connect: "):
        reader.latestOffset(reader.initialOffset(), ALL)


def test_no_password(tmp_path: Path) -> None:
    broker = Broker(link=LinkConfig(host="h", user="u", password_variable="NO_SUCH_VARIABLE"))
    reader = MqttStreamReader(SourceOptions(broker=broker, topic_filters=("t",), spool=str(tmp_path)))
    with pytest.raises(OptionError, match=r"no password for broker h: .* NO_SUCH_VARIABLE is not set"):
        reader.latestOffset(reader.initialOffset(), ALL)
    reader.stop()


@pytest.mark.parametrize("offset", [["0123456789ab", 0], [None, 1]], ids=["another spool", "rows that never were"])
def test_a_spool_that_is_not_the_one_of_the_checkpoint(offset: list[Any], readers: Readers) -> None:
    reader = readers("mismatch")
    identity, _ = reader.initialOffset()["mismatch"]
    with pytest.raises(SpoolDamaged, match="Give the query its spool back, or begin with a new checkpoint"):
        reader.latestOffset({"mismatch": [offset[0] or identity, offset[1]]}, ALL)


# The subscriber and a scripted link ----------------------------------------------------------------------------------


class ScriptedLink:
    """A link that gives what a test says, round by round."""

    name = "link"
    state = LinkState(LinkPhase.CONNECTED)

    def __init__(self) -> None:
        self.items: list[Received] = []
        self.releases: list[int] = []
        self.generation = 0
        self.acknowledged: list[int] = []
        self.completed: list[int] = []
        self.on_session: Callable[[bool], None] = lambda present: None

    def connect(self, present: bool) -> None:
        self.generation += 1
        self.on_session(present)

    def take(self, messages: int, size: int, wait: float) -> list[Received]:
        return self.items

    def released(self) -> list[int]:
        return self.releases

    def acknowledge(self, received: list[Received]) -> None:
        self.acknowledged += [one.mid for one in received]

    def complete(self, mids: list[int]) -> None:
        self.completed += mids


class ScriptedBroker(Broker, frozen=True, kw_only=True):
    scripted: ScriptedLink

    def connection(self, session: str, **options: Any) -> Any:
        self.scripted.on_session = options["on_session"]
        return self.scripted


@pytest.fixture
def link() -> ScriptedLink:
    return ScriptedLink()


@pytest.fixture
def subscriber(link: ScriptedLink, tmp_path: Path) -> Iterator[Subscriber]:
    spool = Spool(tmp_path, "t")
    yield Subscriber(ScriptedBroker(link=LinkConfig(host="h"), scripted=link), spool, "t", 2, 1 << 30)
    spool.close()


def exactly(body: bytes, mid: int, generation: int, owed: int = 2) -> Received:
    publication = Publication(topic="t", payload=body, qos=2, message_id=mid)
    return Received(publication, owed, mid if owed else 0, False, generation)


def test_what_is_repeated_and_what_is_new(link: ScriptedLink, subscriber: Subscriber) -> None:
    """Rounds: Session Present of a connection before it, or None; what comes; PUBRELs; what is in the spool after it."""
    rounds: list[tuple[bool | None, list[Received], list[int], list[bytes], set[int]]] = [
        (False, [exactly(b"a", 1, 1), exactly(b"b", 2, 1)], [], [b"a", b"b"], {1, 2}),
        # The broker has the session: both come again, as does the PUBREL of one.
        (True, [exactly(b"a", 1, 2), exactly(b"b", 2, 2)], [1], [b"a", b"b"], {2}),
        (None, [exactly(b"c", 1, 2)], [], [b"a", b"b", b"c"], {1, 2}),
        # It has lost it: message ids begin anew. What had come again before, and waits here still, is known.
        (False, [exactly(b"b", 2, 2, owed=0), exactly(b"d", 1, 3)], [], [b"a", b"b", b"c", b"d"], {1}),
        (None, [exactly(b"c", 1, 2, owed=0), exactly(b"e", 2, 3)], [], [b"a", b"b", b"c", b"d", b"e"], {1, 2}),
        (None, [exactly(b"f", 3, 2, owed=0)], [1, 2], [b"a", b"b", b"c", b"d", b"e", b"f"], set()),
        (None, [], [9], [b"a", b"b", b"c", b"d", b"e", b"f"], set()),
    ]
    spool = subscriber._spool
    acknowledged, completed = [], []
    for present, items, releases, expected, received in rounds:
        if present is not None:
            link.connect(present)
        link.items, link.releases = items, releases
        subscriber._round()
        batches = read(spool.slices(0, spool.end))
        assert [bytes(one) for batch in batches for one in batch.column("payload").to_pylist()] == expected
        assert spool.received == received
        acknowledged += [one.mid for one in items]
        completed += releases
    assert (link.acknowledged, link.completed) == (acknowledged, completed)


def at_least(mid: int, generation: int, dup: bool = False, body: bytes = b"") -> Received:
    publication = Publication(topic="t", payload=body or b"%d" % (mid % 2), qos=1, message_id=mid)
    return Received(publication, 1, mid, dup, generation)


def test_what_is_repeated_with_qos_1(link: ScriptedLink, subscriber: Subscriber) -> None:
    """Rounds: Session Present of a connection before it, or None; what comes; how many rows there are after it."""
    before = LinkConfig(host="h").in_flight
    last = before + 1
    rounds: list[tuple[bool | None, list[Received], int]] = [
        (False, [at_least(mid, 1) for mid in range(1, last)], before),
        # As many as may be unacknowledged: the broker could use these ids again.
        (True, [at_least(1, 2, dup=True)], before + 1),
        (False, [at_least(mid, 3) for mid in range(1, last + 1)], 2 * before + 2),
        # One more, of the same session: now they are known, if DUP says that they come again, and they are the same.
        (True, [at_least(mid, 4, dup=True) for mid in (2, last, last + 1)], 2 * before + 3),
        (True, [at_least(last, 5, dup=True), exactly(b"x", last + 2, 5)], 2 * before + 4),
        (None, [at_least(last + 1, 5, dup=True), at_least(last + 3, 5)], 2 * before + 5),
        # An id that comes with another content: all is unknown from there on.
        (None, [at_least(last + 3, 5, dup=True, body=b"new")], 2 * before + 6),
        (True, [at_least(last + 2, 6, dup=True), at_least(last + 3, 6, dup=True)], 2 * before + 8),
    ]
    acknowledged = []
    for present, items, rows in rounds:
        if present is not None:
            link.connect(present)
        link.items = items
        subscriber._round()
        assert subscriber._spool.end == rows
        acknowledged += [one.mid for one in items]
    assert link.acknowledged == acknowledged


@pytest.mark.parametrize("version, known", [("5", True), ("3.1.1", False)])
def test_how_many_may_be_unacknowledged(version: Any, known: bool, link: ScriptedLink, tmp_path: Path) -> None:
    """MQTT 3.1.1 has no Receive Maximum: a broker may have all ids in use."""
    config = LinkConfig(host="h", version=version, in_flight=30)
    spool = Spool(tmp_path, "t")
    made = Subscriber(ScriptedBroker(link=config, scripted=link), spool, "t", 2, 1 << 30)
    link.connect(True)
    link.items = [at_least(mid, 1) for mid in range(1, 32)]
    made._round()
    link.connect(True)
    link.items = [at_least(31, 2, dup=True)]
    made._round()
    assert spool.end == (31 if known else 32)
    spool.close()


def test_that_the_session_is_lost_is_on_disk_before_anything_comes(
    link: ScriptedLink, subscriber: Subscriber, tmp_path: Path
) -> None:
    link.connect(True)
    link.items = [at_least(mid, 1) for mid in range(1, 1002)]
    subscriber._round()
    assert subscriber._spool.repeated_publications.find(1001) == 0
    link.connect(False)
    link.items = []
    subscriber._round()
    # What a process that is killed here leaves.
    shutil.copytree(subscriber._spool.directory, tmp_path / "copied" / subscriber._spool.directory.name)
    again = Spool(tmp_path / "copied", "t")
    again.repeated_publications.allow(1000)
    assert again.repeated_publications.find(1001) is None
    again.close()


def test_a_session_from_before_the_spool_is_told(
    link: ScriptedLink, subscriber: Subscriber, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The spool has been lost, or another query had the session: what that one had is not here."""
    link.connect(True)
    (said,) = caplog.messages
    told = f"the broker h:1883 has a session of client {subscriber._client_id} from before spool {tmp_path}"
    assert said.startswith(f"MQB8001W {told}")
    link.connect(True)
    link.connect(False)
    shutil.copytree(subscriber._spool.directory, tmp_path / "copied" / subscriber._spool.directory.name)
    again = Spool(tmp_path / "copied", "t")
    Subscriber(ScriptedBroker(link=LinkConfig(host="h"), scripted=link), again, "t", 2, 1 << 30)
    link.connect(True)
    again.close()
    assert caplog.messages == [said]


def test_nothing_is_acknowledged_that_is_not_on_disk(
    link: ScriptedLink, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(subscriber._spool, "append", full)
    link.items = [exactly(b"a", 1, 1)]
    subscriber._run()
    assert link.acknowledged == []
    with pytest.raises(RuntimeError, match=r"spool .* of topic filter t takes no more: .*No space left on device"):
        subscriber.check()
