"""The archive of a fixed sequence of events: all events of the service, all outcomes, all columns.

An earlier version has written `archive_golden.parquet`. Stored archives and their readers depend on its schema and contents,
so it changes only with them. `MQBRIDGE_TEST_GOLDEN=write` writes it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest

from bridge.archive import event_queue, events, writer
from bridge.archive.schema import archive_files
from bridge.config.operations import ArchiveConfig
from bridge.mq.backend import ClientSubscription, Completion
from bridge.mq.mqi import Got
from bridge.mqtt.packets import PublishProperties
from bridge.service import recorder as recorder_module
from bridge.service.events import (
    CAME_ROUND,
    FILTERED,
    Acknowledged,
    ClientConnected,
    ClientDisconnected,
    DeadLettered,
    Event,
    EventBus,
    Finished,
    MessagesAbandoned,
    Published,
    Recovered,
    SessionEnded,
    Subscribed,
    Unclaimed,
    Unsubscribed,
)
from bridge.service.recorder import Recorder
from bridge.telemetry.message import CCSID_UTF8, NO_PROPERTIES, Message, Publication, Received
from bridge.telemetry.outcome import Outcome
from bridge.telemetry.transmission import PublicationMessage
from bridge.telemetry.undelivered import EXPIRED, SLOW
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MQXQH, RFH2, Folder, Typed, encode_mqxqh, encode_rfh2
from tests.helpers.archive import NOON

GOLDEN = Path(__file__).parent / "archive_golden.parquet"
SECOND = 1_000_000
START = int(NOON.timestamp()) * SECOND
#: The difference between the time of day and the clock of the service, in seconds.
OFFSET = START // SECOND - 1_000

PROPERTIES = PublishProperties(
    payload_format_indicator=1,
    content_type="text/plain",
    correlation_data=b"\0c",
    user_property=(("a", "1"), ("a", "2")),
)
MQTT = Folder.build("mqtt", {"clientId": "publisher", "qos": Typed(2, "i4"), "msgid": Typed(77, "i4")})


def with_rfh2(*folders: Folder, body: bytes = b"body", **md: Any) -> Message:
    header = RFH2(
        Encoding=cmqc.MQENC_NATIVE,
        CodedCharSetId=CCSID_UTF8,
        Format=cmqc.MQFMT_NONE,
        NameValueCCSID=CCSID_UTF8,
        folders=folders,
    )
    return Message(MQMD(Format=cmqc.MQFMT_RF_HEADER_2, **md), encode_rfh2(header) + body)


def publication(topic: str, payload: bytes, qos: int, packet_id: int = 0, **values: Any) -> PublicationMessage:
    return PublicationMessage(MQMD(), "p", topic, payload, qos, packet_id, **values)


def transmission(number: int, message: Any, **values: Any) -> Any:
    """A message on the transmission queue."""
    topic = message.topic if isinstance(message, PublicationMessage) else None
    fields = {"client_id": "c", "remote_queue": "command", "message": message, "topic": topic, "user_data": "1"}
    fields |= {
        "retained": False,
        "persistent": True,
        "msg_number": number,
        "put_time": NOON.timestamp() - number,
        "raw": None,
    }
    return SimpleNamespace(**fields | values)


def on_ibm_mq(number: int, message: Message, **values: Any) -> Any:
    """Return the same message as IBM MQ delivers it: with its transmission queue header."""
    header = MQXQH(RemoteQName=b"t", RemoteQMgrName=b"c", MsgDesc=msgspec.structs.replace(message.md, Version=1))
    return transmission(number, message, put_time=0.0, raw=encode_mqxqh(header) + message.data, **values)


def in_flight(topic: str, qos: int, payload: bytes = b"", times_sent: int = 1, retain: bool = False) -> Any:
    field = len(topic).to_bytes(2, "big") + topic.encode()
    return SimpleNamespace(field=field, payload=payload, retain=retain, qos=qos, sent_at=995.5, times_sent=times_sent)


def session(client_id: str, user: bytes, *, durable: bool = True, in_flight: dict[int, Any] | None = None) -> Any:
    deliveries = SimpleNamespace(deliveries=in_flight or {})
    return SimpleNamespace(
        client_id=client_id,
        identity=SimpleNamespace(user=user),
        durable=durable,
        outbox=SimpleNamespace(in_flight=deliveries),
    )


RETAINED = Folder.build("mqps", {"Top": "r/s", "Ret": True})
REPLAYED = Folder.build("usr", {"replayed": "run-1"})
PUT_AT = {"PutDate": b"20260302", "PutTime": b"11595925", "MsgId": b"M" * 24, "Persistence": cmqc.MQPER_PERSISTENT}


def publish(bus: EventBus) -> None:
    """Publish all events of the service."""
    subscriber = session("c", b"anna", in_flight={
        7: in_flight("t/u", 1, b"one", times_sent=2, retain=True),
        9: in_flight("app", 1),
        11: in_flight("r/s", 2),
    })  # fmt: skip
    publisher = session("p", b"b\xc3\xb6b \xff", durable=False)
    bus.publish(Recovered([
        ClientSubscription(client_id="c", topic_filter="t/#", user_data="2", durable=True),
        ClientSubscription(client_id="gone", topic_filter="x", user_data="0", durable=False),
    ]))  # fmt: skip
    for known in (subscriber, publisher):
        bus.publish(ClientConnected(known))
    bus.publish(Subscribed(subscriber, [("t/+", 1), ("app", 0)], START - 30))
    # Publications
    publications = [
        (publication("t/u", b"zero", 0), False),
        (publication("t/u", b"one", 1, 5, properties=NO_PROPERTIES), True),
        (publication("t/v", b"", 2, 6, properties=PROPERTIES), False),
    ]
    bus.publish(Published(publisher, publications, Completion(1), START - 20))
    bus.publish(Published(publisher, publications, Completion(1, refusals={1: 2053}, diverted={2: 2035}), START - 19))
    bus.publish(Published(publisher, publications[:1], Completion(1, failure=cmqc.MQRC_CONNECTION_BROKEN), START - 18))
    # Acknowledged
    acknowledged = SimpleNamespace(
        acknowledged=[
            (7, transmission(1, publication("t/u", b"one", 1, 5, properties=PROPERTIES))),
            (9, transmission(2, with_rfh2(MQTT, REPLAYED), retained=True)),
        ],
        released=[(11, in_flight("r/s", 2, b"two"), transmission(3, publication("r/s", b"two", 2, 8)))],
    )
    bus.publish(Acknowledged(subscriber, acknowledged))
    elsewhere = [(9, on_ibm_mq(4, with_rfh2(MQTT, REPLAYED, **PUT_AT)))]
    bus.publish(Acknowledged(subscriber, SimpleNamespace(acknowledged=elsewhere, released=[])))
    # Finished
    sent = [
        transmission(5, publication("t/u", b"zero", 0, properties=PROPERTIES), retained=True),
        transmission(6, with_rfh2(RETAINED)),
        transmission(7, Message(MQMD(Format=b"MQSTR"), b"text"), put_time=0.0),
    ]
    bus.publish(Finished(subscriber, sent, {}))
    bus.publish(Finished(subscriber, [on_ibm_mq(8, with_rfh2(MQTT, RETAINED, **PUT_AT))], {}))
    mixed = [
        transmission(9, publication("t/u", b"late", 2, 12), user_data="0"),
        transmission(10, publication("t/u", b"sent", 0), persistent=False),
        transmission(11, Message(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), b"broken"), user_data=None),
    ]
    bus.publish(Finished(subscriber, mixed, {9: EXPIRED, 11: SLOW}))
    # Without a client
    bus.publish(MessagesAbandoned(subscriber, [on_ibm_mq(12, with_rfh2(MQTT)), transmission(13, with_rfh2(MQTT))]))
    bus.publish(Unclaimed(transmission(14, publication("t/u", b"nobody", 1, 13), client_id="nobody")))
    bus.publish(Unclaimed(transmission(15, publication("t/u", b"expired", 1, 14)), EXPIRED))
    bus.publish(DeadLettered(transmission(16, publication("t/u", b"dead", 2, 15, properties=PROPERTIES)), 2087))
    bus.publish(DeadLettered(on_ibm_mq(17, with_rfh2(MQTT), user_data=None, persistent=False), 2334))
    # Ends
    bus.publish(Unsubscribed(subscriber, ["app", "t/none"], START - 10))
    bus.publish(ClientDisconnected(publisher, "disconnected_by_client"))
    bus.publish(SessionEnded(publisher))


def settle(recorder: Recorder) -> None:
    """Record messages of two mappings."""
    queue = recorder.mapping("to-mqtt")
    plain = MQMD(Format=b"MQSTR", MsgId=b"N" * 24, CorrelId=b"C" * 24)
    rfh2 = with_rfh2(MQTT, RETAINED, REPLAYED, **PUT_AT)
    queue.settled(
        [
            (Got(md=plain, data=b"text"), Outcome.DELIVERED, None, "t/u"),
            (Got(md=rfh2.md, data=rfh2.data), Outcome.DEAD_LETTERED, "MQRC_FORMAT_ERROR (2110)", None),
        ],
        START - 40,
        "SOURCE",
    )
    queue.settled([(Got(md=rfh2.md, data=rfh2.data), Outcome.DISCARDED, FILTERED, None)], START - 41, "")
    queue.settled([], START, "SOURCE")
    link = recorder.mapping("to-mq")
    arrived = Publication("l/m", b"link", 1, True, 21, "far", properties=PROPERTIES)
    plain_one = Publication("l/n", b"plain", 0)
    link.settled(
        [
            (Received(arrived, 1, 21, True, 1), Outcome.PUT, None, "TARGET"),
            (Received(plain_one, 0, 0, False, 1), Outcome.DISCARDED, CAME_ROUND, None),
        ],
        START - 42,
        "",
    )


class Clock:
    """Return the time of day, which advances by a second before each event."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


class TickingBus(EventBus):
    """A bus that advances the clock with each event."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def publish(self, event: Event) -> None:
        self._clock.now += SECOND
        super().publish(event)


class Process:
    """The archive process in this process. The first one dies with the events sent to it, the second one writes."""

    def __init__(self, archive: writer.ArchiveWriter | None) -> None:
        self._writer = archive

    def send(self, encoded: list[bytes]) -> None:
        batch = events.together(encoded) + b"".join(encoded)
        if self._writer is not None:
            self._writer.take(events.events_of(batch), len(batch))

    def reap(self) -> str:
        return "died"


@pytest.fixture
def archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Callable[[bool], pa.Table]]:
    clock = Clock()
    for module in (recorder_module, event_queue, writer):
        monkeypatch.setattr(module, "now_us", clock)
    monkeypatch.setattr("time.time", lambda: float(OFFSET))
    monkeypatch.setattr(event_queue.EventQueue, "start", lambda self: None)

    def run(payloads: bool) -> pa.Table:
        config = ArchiveConfig(directory=tmp_path / f"{payloads}", payloads=payloads)
        clock.now = START
        recorder, bus = Recorder(config, lambda: 0.0), TickingBus(clock)
        bus.attach(recorder)
        queue: Any = recorder._archive
        archive = writer.ArchiveWriter(config)
        assert archive.claim_directory()
        publish(bus)
        queue._send_on(Process(archive))
        # The process dies: the next one gets the open sessions, a gap, and the changes of sessions again.
        settle(recorder)
        bus.publish(Subscribed(session("d", b"", durable=False), [("lost/#", 2)], START))
        queue._send_on(Process(None))
        queue._batches.popleft()
        queue._died(Process(None))
        settle(recorder)
        # The memory is full: another gap.
        queue.config = config.model_copy(update={"memory": 0})
        bus.publish(SessionEnded(session("lost", b"")))
        queue._send_on(Process(archive))
        # The next day starts with the open sessions.
        clock.now += 12 * 3600 * SECOND
        queue._ending.set()
        queue._send_on(Process(archive))
        archive.close()
        assert "MQB0007E" not in caplog.text and "MQB7007E" not in caplog.text
        tables = [pa.parquet.read_table(file, partitioning=None) for file in archive_files(config.directory)]
        assert len(tables) == 2
        return pa.concat_tables(tables)

    yield run


def test_the_archive_is_unchanged(archive: Callable[[bool], pa.Table]) -> None:
    table = archive(True)
    if os.environ.get("MQBRIDGE_TEST_GOLDEN") == "write":
        pa.parquet.write_table(table, GOLDEN, compression="zstd")
    golden = pa.parquet.read_table(GOLDEN)
    assert table.to_pylist() == golden.to_pylist()
    assert table.schema.equals(golden.schema, check_metadata=True)
    assert table.equals(golden)


def test_all_columns_and_outcomes_occur() -> None:
    golden = pa.parquet.read_table(GOLDEN)
    assert set(golden.column("outcome").to_pylist()) == set(Outcome)
    assert set(golden.column("direction").to_pylist()) == {"in", "out", "mapped", "subscription", "archive"}
    for column in golden.itercolumns():
        assert len(set(column.to_pylist())) > 1


def test_only_payloads_are_missing_without_payloads(archive: Callable[[bool], pa.Table]) -> None:
    table, golden = archive(False), pa.parquet.read_table(GOLDEN)
    assert set(table.column("payload").to_pylist()) == {None}
    assert table.drop_columns(["payload"]).equals(golden.drop_columns(["payload"]))
