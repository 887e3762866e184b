"""Messages beyond the limits for backlogs of disconnected clients, with a real bridge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.mq.remote import RemoteConnection
from bridge.mqtt.packets import Pingreq, Pingresp, Puback, Publish
from bridge.wire import cmqc
from bridge.wire.mq import decode_mqdlh
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import eventually
from tests.helpers.raw_client import RawClient

#: Enough for 13 messages of 1,000 bytes.
CONFIG = (
    "limits: {{waiting_bytes: {}, waiting_total: {}, waiting_full: {}, sessions: 3, dead_letter_bytes: {}}}\n"
    "queue_manager: {{scripts: [{}]}}\nadmin: {{port: 0}}\n"
)
ROOM, SENT = 13, 20
Started = Callable[..., BridgeProcess]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Start a bridge with a disconnected client that has a subscription."""
    processes: list[BridgeProcess] = []

    def start(
        when_full: str, *, waiting: int = 21_000, total: int = 1_000_000, dead_letters: int = 1_000_000
    ) -> BridgeProcess:
        script = tmp_path / "objects.mqsc"
        script.write_text("DEFINE QLOCAL(DLQ) REPLACE\nALTER QMGR DEADQ(DLQ)\n")
        config = CONFIG.format(waiting, total, when_full, dead_letters, script)
        process = BridgeProcess(tmp_path / "data", config=config).start()
        processes.append(process)
        with away(process) as client:
            client.subscribe(("w/#", 1))
            client.disconnect()
        return process

    yield start
    for process in processes:
        assert process.stop() == 0, process.log
        process.discard()
        assert "Traceback" not in process.log, process.log


def away(bridge: BridgeProcess) -> RawClient:
    client = RawClient(bridge.port, "away", clean=False)
    assert client.connect().return_code == 0
    return client


def published(bridge: BridgeProcess) -> list[int]:
    """Publish one message after the other. Return the reason codes."""
    codes = []
    with RawClient(bridge.port, "publisher", level=5) as client:
        assert client.connect().return_code == 0
        for number in range(SENT):
            client.send(Publish("w/t", b"%04d" % number + bytes(996), 1, False, False, number + 1))
            codes.append(client.expect(Puback).reason_code)
        client.disconnect()
    return codes


def received(bridge: BridgeProcess, last: int) -> list[int]:
    """Return the numbers of the messages that the client gets after reconnecting, up to the last one."""
    numbers: list[int] = []
    with away(bridge) as client:
        while last not in numbers:
            publication = client.expect(Publish)
            numbers.append(int(bytes(publication.payload[:4])))
            client.send(Puback(publication.packet_id))
        client.send(Pingreq())
        assert isinstance(client.receive(), Pingresp)
        client.disconnect()
    return numbers


def dead_letters(bridge: BridgeProcess) -> list[tuple[int, int]]:
    """Get the messages on the dead-letter queue. Return their reasons and numbers."""
    connection = RemoteConnection(bridge.data_directory)
    handle = connection.open(MQOD(ObjectName="DLQ"), cmqc.MQOO_INPUT_SHARED)
    letters = []
    try:
        while True:
            message = connection.get(handle, GetOptions(Options=cmqc.MQGMO_NO_SYNCPOINT))
            letters.append((decode_mqdlh(message.data).Reason, int(bytes(message.data[-1000:-996]))))
    except MQError as error:
        assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE
    connection.disconnect()
    return letters


def test_dead_letter(started: Started) -> None:
    """Messages beyond the limit are dead-lettered. A lowered limit does not apply to messages accepted before."""
    bridge = started("dead-letter")
    assert published(bridge) == [0] * SENT
    assert dead_letters(bridge) == [(cmqc.MQRC_Q_SPACE_NOT_AVAILABLE, number) for number in range(ROOM, SENT)]
    assert bridge.stop() == 0
    assert bridge.config is not None
    bridge.config.write_text(bridge.config.read_text().replace("21000", "10000"))
    bridge.start()
    assert published(bridge) == [0] * SENT
    assert [number for _, number in dead_letters(bridge)] == list(range(SENT))
    assert received(bridge, ROOM - 1) == list(range(ROOM))
    sessions_are_limited(bridge)


def test_drop_oldest(started: Started) -> None:
    bridge = started("drop-oldest")
    assert published(bridge) == [0] * SENT
    assert "for client 'away' (7 that had waited longest)" in bridge.log or "(1 that had waited longest)" in bridge.log
    assert received(bridge, SENT - 1) == list(range(SENT - ROOM, SENT))
    assert published(bridge) == [0] * SENT


def test_refuse(started: Started) -> None:
    """One message beyond the limit is accepted. After the client has received its messages, publications are accepted again.

    An ended session does not reject anything.
    """
    bridge = started("refuse")
    assert published(bridge) == [0] * (ROOM + 1) + [0x97] * (SENT - ROOM - 1)
    with RawClient(bridge.port, "other", level=5) as client:
        assert client.connect().return_code == 0
        client.send(Publish("elsewhere", bytes(1000), 1, False, False, 1))
        assert client.expect(Puback).reason_code in (0, 0x10)
    assert received(bridge, ROOM) == list(range(ROOM + 1))
    eventually(lambda: "publications for client 'away' are accepted again" in bridge.log, True)
    assert published(bridge)[:ROOM] == [0] * ROOM
    assert published(bridge)[-1] == 0x97
    with RawClient(bridge.port, "away") as client:  # a clean session ends the previous one
        assert client.connect().return_code == 0
    assert set(published(bridge)) <= {0, 0x10}


def sessions_are_limited(bridge: BridgeProcess) -> None:
    """Clients with a session can reconnect. Clients that would start another one are rejected with a reason code."""
    with RawClient.connected(bridge.port, "one"), RawClient.connected(bridge.port, "two") as two:
        with RawClient(bridge.port, "three", level=5) as third:
            assert third.connect().return_code == 0x97
        with RawClient(bridge.port, "three") as third:
            assert third.connect().return_code == 3
        away(bridge).disconnect()
        two.disconnect()
        eventually(lambda: RawClient(bridge.port, "three").connect().return_code, 0)
    assert "there are 3 sessions already (limits.sessions)" in bridge.log


@pytest.mark.parametrize("when_full", ["refuse", "dead-letter"])
def test_only_clients_with_more_than_their_share_of_the_total_are_affected(started: Started, when_full: str) -> None:
    """A client that keeps up receives its messages all the time. Only `refuse` rejects publications."""
    bridge = started(when_full, waiting=1_000_000, total=21_000)
    refuses = when_full == "refuse"
    assert published(bridge) == ([0] * (ROOM + 1) + [0x97] * (SENT - ROOM - 1) if refuses else [0] * SENT)
    waiting_count = ROOM + refuses
    assert dead_letters(bridge) == ([] if refuses else [(2056, number) for number in range(waiting_count, SENT)])
    with RawClient.connected(bridge.port, "reader") as reader, RawClient.connected(bridge.port, "writer") as writer:
        reader.subscribe(("live/#", 1))
        for _ in range(50):
            writer.publish("live/t", bytes(1000), 1)
            reader.take()
        reader.disconnect()
        writer.disconnect()
    assert received(bridge, waiting_count - 1) == list(range(waiting_count))
    if refuses:
        eventually(lambda: "publications for client 'away' are accepted again" in bridge.log, True)
    assert published(bridge)[0] == 0


def test_the_session_ends_if_the_dead_letter_queue_is_full(started: Started) -> None:
    """No publication is rejected and nothing is lost. The count of dead letters survives a restart."""
    bridge = started("dead-letter", dead_letters=8_000)
    codes = published(bridge)
    assert set(codes) <= {0, 0x10}, "0x10: the subscription has ended"
    waiting_numbers = [number for number, code in enumerate(codes) if not code and number not in range(ROOM, ROOM + 3)]
    assert waiting_numbers[ROOM:]
    eventually(lambda: "MQB2410W" in bridge.log, True)
    status = json.loads(Administrator(bridge).run("status", "--json").stdout)
    problems = {problem["subject"]: problem for problem in status["problems"]}
    assert not {"waiting_bytes", "dead_letter_bytes"} & problems.keys()
    assert all(word in problems["waiting_full"]["what"] for word in ("'away'", "waiting_bytes", "dead_letter_bytes"))
    assert bridge.stop() == 0
    bridge.start()
    with away(bridge) as client:
        numbers: list[int] = []
        for _ in waiting_numbers:
            publication = client.expect(Publish)
            numbers.append(int(bytes(publication.payload[:4])))
            client.send(Puback(publication.packet_id))
        client.expect_closed()
    assert numbers == waiting_numbers
    client = RawClient(bridge.port, "away", clean=False)
    connack = client.connect()
    assert (connack.return_code, connack.session_present) == (0, False)
    client.subscribe(("w/#", 1))
    client.disconnect()
    assert published(bridge)[: ROOM + 1] == [0] * (ROOM + 1)
    eventually(lambda: bridge.log.count("MQB2410W"), 2)
    assert len(dead_letters(bridge)) == 3
