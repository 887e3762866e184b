"""The streaming reader with the calls of Spark, and the subscriber that fills its spools, without Spark."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from bridge.config.link import LinkConfig
from bridge.link.state import LinkPhase, LinkState
from bridge.spark.mqtt import subscriber as subscribers
from bridge.spark.mqtt.broker import Broker
from bridge.spark.mqtt.source import stream_reader
from bridge.spark.mqtt.subscriber import MqttSourceOptions, NotConnected, SpoolSubscriber
from bridge.spark.options import OptionError
from bridge.spark.segment import SpoolDamaged
from bridge.spark.spool import StreamOptions
from bridge.spark.spool_reader import SpoolReader
from bridge.telemetry.message import Publication, Received
from tests.helpers.mosquitto import Mosquitto, free_port
from tests.helpers.patience import until
from tests.spark.mqtt.conftest import Clients
from tests.spark.mqtt.spooler import payloads as spooled

Readers = Callable[..., SpoolReader]
ALL = ReadAllAvailable()


@pytest.fixture
def readers(mosquitto: Mosquitto, tmp_path: Path) -> Iterator[Readers]:
    """`readers("filter", ...)` returns a reader. An earlier one must have been stopped."""
    started = []

    def make(
        *topic_filters: str,
        port: int = mosquitto.port,
        version: Any = "5",
        spool: str = "spool",
        quiet_period: float = 1.0,
        **options: Any,
    ) -> SpoolReader:
        broker = Broker(link=LinkConfig(host="127.0.0.1", port=port, version=version))
        stream = StreamOptions(spool=str(tmp_path / spool), **options)
        source = MqttSourceOptions(broker=broker, topic_filters=topic_filters, quiet_period=quiet_period, stream=stream)
        started.append(stream_reader(source))
        return started[-1]

    yield make
    for reader in started:
        reader.stop()


def next_batch(reader: SpoolReader, start: Any, rows: int, limit: ReadLimit = ALL) -> Any:
    """Return the offset of the next batch, once it has this number of rows. Spark commits the previous batch."""
    if start["spools"]:
        reader.commit(start)
    end = start
    while len(payloads(reader, start, end)) < rows:
        end = reader.latestOffset(start, limit)
    return end


def empty(reader: SpoolReader) -> Any:
    """Return the offset before the first batch, when the reader is connected."""
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    return start


def payloads(reader: SpoolReader, start: Any, end: Any) -> list[bytes]:
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return [bytes(payload) for batch in batches for payload in batch.column("payload").to_pylist()]


def publications(topic: str, *bodies: bytes) -> list[Publication]:
    return [Publication(topic=topic, payload=body, qos=2) for body in bodies]


def test_a_repeated_batch_has_the_same_rows(readers: Readers, clients: Clients) -> None:
    reader = readers("again", max_messages=2)
    start = empty(reader)
    assert reader.partitions(start, start) == []
    sender = clients("again")
    sender.publish_all(*publications("again", b"0", b"1", b"2"))
    end = next_batch(reader, start, 1, ReadMaxRows(2))
    first = payloads(reader, start, end)
    assert first in ([b"0"], [b"0", b"1"])
    reader.stop()
    # Spark first asks a new process for the partitions of the batch.
    reader = readers("again")
    assert payloads(reader, start, end) == first
    last = next_batch(reader, end, 3 - len(first))
    assert first + payloads(reader, end, last) == [b"0", b"1", b"2"]
    reader.commit(last)
    reader.stop()
    # A new checkpoint starts after the committed rows.
    reader = readers("again")
    sender.publish_all(*publications("again", b"3"))
    assert payloads(reader, start, next_batch(reader, start, 1)) == [b"3"]


def test_limits_are_shared_by_filters(readers: Readers, clients: Clients) -> None:
    reader = readers("share/a", "share/b", max_messages=2, partitions=2)
    start = empty(reader)
    sender = clients("share")
    sender.publish_all(*publications("share/a", *[b"a"] * 9), *publications("share/b", b"b", b"b"))
    whole = next_batch(reader, start, 11)
    part = reader.latestOffset(start, ReadMaxRows(6))
    rows = payloads(reader, start, part)
    assert len(rows) <= 6 and set(rows) == {b"a", b"b"}
    # The progress of the query reports the contents of the batch, and the age of the backlog.
    backlog = reader.reportLatestOffset()
    assert backlog is not None
    assert (
        sum(source_backlog["messages"] for source_backlog in backlog.values())
        == sum(source_backlog["bytes"] for source_backlog in backlog.values())
        == len(rows)
    )
    assert sum(source_backlog["waiting"] for source_backlog in backlog.values()) == 11 - len(rows)
    assert datetime.fromisoformat(backlog["share/a"]["oldest"]) < datetime.now(UTC)
    assert sorted(rows + payloads(reader, part, whole)) == [b"a"] * 9 + [b"b"] * 2


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_shared_subscription_is_spread_over_queries(version: str, readers: Readers, clients: Clients) -> None:
    """Each query gets a part, and no message twice."""
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


def test_a_filter_that_is_new_in_the_checkpoint(readers: Readers, clients: Clients) -> None:
    reader = readers("new/a")
    start = empty(reader)
    reader.stop()
    reader = readers("new/a", "new/b")
    empty(reader)
    clients("new").publish_all(*publications("new/b", b"b"))
    end = next_batch(reader, start, 1)
    assert payloads(reader, start, end) == [b"b"]


def test_an_available_now_run_ends_after_the_quiet_period(readers: Readers, clients: Clients) -> None:
    reader = readers("quiet")
    start = empty(reader)
    sender = clients("quiet")
    sender.publish_all(*publications("quiet", b"0", b"1"))
    reader.stop()
    # Long enough for the broker to send its messages, also on a busy machine.
    reader = readers("quiet", quiet_period=5.0, max_messages=1)
    reader.prepareForTriggerAvailableNow()
    received, end = [], start
    while (following := reader.latestOffset(end, ReadMaxRows(1))) != end:
        if end["spools"]:
            reader.commit(end)
        received += payloads(reader, end, following)
        end = following
    assert received == [b"0", b"1"]
    spool = reader._fillers["quiet"].spool
    last = spool.last
    sender.publish_all(*publications("quiet", b"2"))
    until(lambda: spool.last > last)
    assert reader.latestOffset(end, ALL) == end


def test_an_available_now_run_ends_although_messages_still_arrive(
    readers: Readers, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribers, "MAX_RUN", -1.0)
    reader = readers("busy", quiet_period=1000)
    reader.prepareForTriggerAvailableNow()
    start = empty(reader)
    sender = clients("busy")
    spool = reader._fillers["busy"].spool
    sender.publish_all(*publications("busy", b"0"))
    until(lambda: spool.last > 0)
    assert reader.latestOffset(start, ALL) == start


def test_a_full_spool_leaves_messages_with_the_broker(readers: Readers, clients: Clients) -> None:
    reader = readers("full", spool_limit=1)
    start = empty(reader)
    spool = reader._fillers["full"].spool
    sender = clients("full")
    sender.publish_all(*publications("full", b"0"))
    end = next_batch(reader, start, 1)
    last = spool.last
    sender.publish_all(*publications("full", b"1"))
    time.sleep(0.7)
    assert spool.last == last
    final = next_batch(reader, end, 1)  # the first row is in a committed batch
    assert payloads(reader, end, final) == [b"1"]


def test_an_unreachable_broker_is_reported(readers: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribers, "CONNECT_WAIT", 0.2)
    reader = readers("nobody", port=free_port())
    with pytest.raises(NotConnected, match=r"no session at 127.0.0.1:\d+ for topic filter nobody .*: cannot connect: "):
        reader.latestOffset(reader.initialOffset(), ALL)


def test_a_missing_password_is_reported(tmp_path: Path) -> None:
    broker = Broker(link=LinkConfig(host="h", user="u", password_variable="NO_SUCH_VARIABLE"))
    reader = stream_reader(
        MqttSourceOptions(broker=broker, topic_filters=("t",), stream=StreamOptions(spool=str(tmp_path)))
    )
    with pytest.raises(OptionError, match=r"no password for broker h: .* NO_SUCH_VARIABLE is not set"):
        reader.latestOffset(reader.initialOffset(), ALL)
    reader.stop()


@pytest.mark.parametrize("offset", [["0123456789ab", 0], [None, 1]], ids=["another spool", "rows that never were"])
def test_a_spool_that_does_not_belong_to_the_checkpoint(offset: list[Any], readers: Readers) -> None:
    reader = readers("mismatch")
    empty(reader)
    identity = reader._fillers["mismatch"].spool.id
    with pytest.raises(SpoolDamaged, match="hint: restore the spool of this query, or start with a new checkpoint"):
        reader.latestOffset({"version": 3, "spools": {"mismatch": [offset[0] or identity, offset[1]]}}, ALL)
    with pytest.raises(ValueError, match="an offset of another version of mqbridge; hint: let that version finish"):
        reader.latestOffset({"mismatch": [identity, 0]}, ALL)


# The subscriber and a scripted link ----------------------------------------------------------------------------------


class ScriptedLink:
    """A link that delivers the packets of a test, round by round."""

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
        self.acknowledged += [delivery.packet_id for delivery in received]

    def complete(self, packet_ids: list[int]) -> None:
        self.completed += packet_ids


class ScriptedBroker(Broker, frozen=True, kw_only=True):
    scripted: ScriptedLink

    def connection(self, session: str, **options: Any) -> Any:
        self.scripted.on_session = options["on_session"]
        return self.scripted


@pytest.fixture
def link() -> ScriptedLink:
    return ScriptedLink()


def scripted(link: ScriptedLink, directory: Path) -> SpoolSubscriber:
    options = MqttSourceOptions(
        broker=ScriptedBroker(link=LinkConfig(host="h"), scripted=link),
        topic_filters=("t",),
        stream=StreamOptions(spool=str(directory)),
    )
    return SpoolSubscriber(options, "t")


@pytest.fixture
def subscriber(link: ScriptedLink, tmp_path: Path) -> Iterator[SpoolSubscriber]:
    scripted_subscriber = scripted(link, tmp_path)
    yield scripted_subscriber
    scripted_subscriber.spool.close()


def exactly(body: bytes, packet_id: int, generation: int, owed: int = 2) -> Received:
    publication = Publication(topic="t", payload=body, qos=2, packet_id=packet_id)
    return Received(publication, owed, packet_id if owed else 0, False, generation)


def test_repeated_and_new_publications(link: ScriptedLink, subscriber: SpoolSubscriber) -> None:
    """Rounds: Session Present of a preceding connection or None, publications, PUBRELs, and the spool after the round."""
    rounds: list[tuple[bool | None, list[Received], list[int], list[bytes], set[int]]] = [
        (False, [exactly(b"a", 1, 1), exactly(b"b", 2, 1)], [], [b"a", b"b"], {1, 2}),
        # The broker has the session: both publications are repeated, and the PUBREL of one.
        (True, [exactly(b"a", 1, 2), exactly(b"b", 2, 2)], [1], [b"a", b"b"], {2}),
        (None, [exactly(b"c", 1, 2)], [], [b"a", b"b", b"c"], {1, 2}),
        # The broker has lost the session, so message ids start again. A publication repeated before, and still in the spool,
        # is recognized.
        (False, [exactly(b"b", 2, 2, owed=0), exactly(b"d", 1, 3)], [], [b"a", b"b", b"c", b"d"], {1}),
        (None, [exactly(b"c", 1, 2, owed=0), exactly(b"e", 2, 3)], [], [b"a", b"b", b"c", b"d", b"e"], {1, 2}),
        (None, [exactly(b"f", 3, 2, owed=0)], [1, 2], [b"a", b"b", b"c", b"d", b"e", b"f"], set()),
        (None, [], [9], [b"a", b"b", b"c", b"d", b"e", b"f"], set()),
    ]
    acknowledged, completed = [], []
    for present, items, releases, expected, received in rounds:
        if present is not None:
            link.connect(present)
        link.items, link.releases = items, releases
        subscriber._round()
        assert spooled(subscriber) == expected
        state = subscriber.spool.state()
        assert state is not None and set(msgspec.msgpack.decode(state)) == received
        acknowledged += [delivery.packet_id for delivery in items]
        completed += releases
    assert (link.acknowledged, link.completed) == (acknowledged, completed)


def test_a_session_older_than_the_spool_is_reported(
    link: ScriptedLink, subscriber: SpoolSubscriber, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The spool was lost, or another query had the session: publications of that query are missing here."""
    link.connect(True)
    (warning,) = caplog.messages
    reported = f"broker h:1883 has a session of client {subscriber._client_id} that is older than spool {tmp_path}"
    assert warning.startswith(f"MQB8001W {reported}")
    link.connect(True)
    link.connect(False)
    shutil.copytree(Path(subscriber.spool.place.path), tmp_path / "copied" / Path(subscriber.spool.place.path).name)
    again = scripted(link, tmp_path / "copied")
    link.connect(True)
    again.spool.close()
    assert caplog.messages == [warning]


def test_publications_are_acknowledged_after_they_are_on_disk(
    link: ScriptedLink, subscriber: SpoolSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(subscriber.spool, "append", full)
    link.items = [exactly(b"a", 1, 1)]
    subscriber._run()
    assert link.acknowledged == []
    with pytest.raises(RuntimeError, match=r"the reader of topic filter t has ended: .*No space left on device"):
        subscriber.check()
