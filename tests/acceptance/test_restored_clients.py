"""A restore of the queue manager, and clients that wait for PUBREL since before it.

Such a client treats a PUBLISH with the same packet identifier as a repetition. Messages in the backup may be duplicated. No
message sent after the restore is lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from bridge.mqtt.packets import ConnectProperties, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from bridge.mqtt.reason_codes import ReasonCode
from tests.acceptance.test_backup import mqbridge
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.frozen_relay import FrozenRelay
from tests.helpers.mosquitto import Subscriber
from tests.helpers.paho_clients import PahoClient
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient

# IBM MQ has its own backup.
pytestmark = pytest.mark.queue_managers("embedded")

#: All packet identifiers. No client uses so many, but each of them may be in use.
ALL = range(1, 65_536)


class Keeper:
    """A client with a durable session, over several connections. It delivers messages when they arrive (method B)."""

    def __init__(self, level: int, *, receive_maximum: int | None = None) -> None:
        self.level = level
        self.properties = ConnectProperties(session_expiry_interval=0xFFFFFFFF, receive_maximum=receive_maximum)
        #: packet identifiers received and not released
        self.held: set[int] = set()
        self.received: list[bytes] = []
        #: identifiers of the PUBRELs
        self.released: list[int] = []
        self.connection: RawClient | None = None

    def connect(self, bridge: BridgeProcess, *, present: bool = True) -> None:
        properties = self.properties if self.level == 5 else None
        self.connection = RawClient(bridge.port, "keeper", clean=False, level=self.level, properties=properties)
        # MQTT 3.1 does not have it.
        assert self.connection.connect().session_present is (present and self.level > 3)

    def close(self) -> None:
        assert self.connection is not None
        self.connection.vanish()

    def follow(self, end: Callable[[], bool], *, deaf: Collection[type[Packet]] = ()) -> None:
        """Answer packets until `end`, or until the bridge closes. Packets of the types `deaf` are lost."""
        assert self.connection is not None
        while not end():
            if not self.connection.inbox:
                self.connection.fill()
            answers: list[Packet] = []
            while self.connection.inbox and not end():
                packet = self.connection.inbox.popleft()
                if type(packet) not in deaf:
                    answers += self._answer(packet)
            self.connection.send(*answers)

    def _answer(self, packet: Packet) -> list[Packet]:
        if isinstance(packet, Pubrel):
            self.released.append(packet.packet_id)
            known = packet.packet_id in self.held
            self.held.discard(packet.packet_id)
            unknown = self.level == 5 and not known
            return [Pubcomp(packet.packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if unknown else 0)]
        assert isinstance(packet, Publish), packet
        if packet.qos == 2:
            if packet.packet_id not in self.held:
                self.received.append(packet.payload)
            self.held.add(packet.packet_id)
            return [Pubrec(packet.packet_id)]
        self.received.append(packet.payload)
        return [Puback(packet.packet_id)] if packet.qos else []

    def begin(self, bridge: BridgeProcess, qos: int = 2) -> None:
        """Connect without a session, and subscribe."""
        self.connect(bridge, present=False)
        assert self.connection is not None
        assert self.connection.subscribe(("t", qos)) == (qos,)

    def follow_until_received(self, *payloads: bytes) -> None:
        self.follow(lambda: set(payloads) <= set(self.received))


def backup(tmp_path: Path, bridge: BridgeProcess) -> None:
    """Make a backup, and a copy of the files of this moment."""
    process = mqbridge("data", "backup", tmp_path / "b.db", "--data-dir", bridge.data_directory, "--force")
    assert process.returncode == 0, process.stderr
    (tmp_path / "older").mkdir(exist_ok=True)
    for file in bridge.data_directory.glob("queuemanager.db*"):
        shutil.copy(file, tmp_path / "older")


def salvage(tmp_path: Path) -> BridgeProcess:
    """Accept the loss of all commits after the backup."""
    bridge = BridgeProcess(tmp_path / "salvaged")
    older = tmp_path / "older"
    shutil.copy(tmp_path / "data" / "queuemanager.witness", older)
    process = mqbridge("data", "salvage", "--accept-loss", older, bridge.data_directory)
    assert process.returncode == 0, process.stderr
    return bridge


def restore(tmp_path: Path, name: str = "restored") -> BridgeProcess:
    bridge = BridgeProcess(tmp_path / name)
    process = mqbridge("data", "restore", tmp_path / "b.db", "--data-dir", bridge.data_directory)
    assert process.returncode == 0, process.stderr
    return bridge


def send(bridge: BridgeProcess, *payloads: bytes, topic: str = "t", qos: int = 2) -> None:
    with RawClient.connected(bridge.port, "sender") as sender:
        for payload in payloads:
            sender.publish(topic, payload, qos)


def numbered(word: str, count: int) -> list[bytes]:
    return [f"{word} {number}".encode() for number in range(count)]


def backed_up(tmp_path: Path, keeper: Keeper) -> None:
    """Make a backup while the keeper has received messages and not released them. Then let it receive more."""
    with at_work(BridgeProcess(tmp_path / "data")) as bridge:
        keeper.begin(bridge)
        at_most = 1 if keeper.properties.receive_maximum == 1 else 3
        send(bridge, *numbered("open at the backup", 3))
        keeper.follow(lambda: len(keeper.received) == at_most, deaf=[Pubrel])
        backup(tmp_path, bridge)
        keeper.close()
        keeper.connect(bridge)
        keeper.follow(lambda: len(keeper.received) == 3 and not keeper.held)
        send(bridge, *numbered("open at the crash", 3))
        keeper.follow(lambda: len(keeper.received) == 3 + at_most, deaf=[Pubrel])
        bridge.kill()
    assert keeper.held
    keeper.close()
    keeper.held.update(ALL)
    keeper.received.clear()
    keeper.released.clear()


@pytest.mark.parametrize("level, again", [pytest.param(3, restore, marks=pytest.mark.slow), (4, restore), (5, salvage)])
def test_no_message_after_a_restore_is_treated_as_a_repetition(
    tmp_path: Path, level: int, again: Callable[[Path], BridgeProcess]
) -> None:
    keeper = Keeper(level)
    backed_up(tmp_path, keeper)
    with at_work(again(tmp_path)) as bridge:
        after = numbered("after", 5)
        send(bridge, *after[:2])
        send(bridge, after[2], qos=1)
        keeper.connect(bridge)
        send(bridge, *after[3:])
        keeper.follow_until_received(*after)
        assert [publication for publication in keeper.received if publication in after] == after
        # The client may have completed it since the backup. A duplicate is allowed.
        assert set(keeper.received) <= {*after, *numbered("open at the backup", 3)}
        assert bridge.log.count("MQB2408I") == 1
        # The next start knows that all identifiers are released: a sent message is not sent as a new one.
        send(bridge, b"not released")
        keeper.follow(lambda: b"not released" in keeper.received, deaf=[Pubrel])
        bridge.kill()
        keeper.close()
        bridge.start()
        keeper.connect(bridge)
        send(bridge, b"last")
        keeper.released.clear()
        keeper.follow_until_received(b"last")
        assert keeper.received.count(b"not released") == 1
        assert len(keeper.released) < 10 and bridge.log.count("MQB2408I") == 1
        keeper.close()


@pytest.mark.parametrize("level, receive_maximum", [(4, None), (5, 1)])
def test_an_interrupted_release(tmp_path: Path, level: int, receive_maximum: int | None) -> None:
    """The client disconnects during the release, the bridge is killed, and the same backup is restored again."""
    keeper = Keeper(level, receive_maximum=receive_maximum)
    backed_up(tmp_path, keeper)
    after = numbered("after", 5)
    for name in ("first", "second"):
        with at_work(restore(tmp_path, name)) as bridge:
            keeper.held.update(ALL)
            keeper.received.clear()
            send(bridge, *after)
            for _ in range(2):
                keeper.connect(bridge)
                keeper.released.clear()
                keeper.follow(lambda: len(keeper.released) == 6_000)
                keeper.close()
            bridge.kill()
            bridge.start()
            keeper.connect(bridge)
            keeper.follow_until_received(*after)
            assert [publication for publication in keeper.received if publication in after] == after
            keeper.close()


def test_a_backup_of_a_restored_queue_manager(tmp_path: Path) -> None:
    """Its sessions were released after the first restore, and are again after the second one."""
    keeper = Keeper(4)
    backed_up(tmp_path, keeper)
    with at_work(restore(tmp_path, "first")) as bridge:
        send(bridge, b"between")
        keeper.connect(bridge)
        keeper.follow_until_received(b"between")
        keeper.close()
        backup(tmp_path, bridge)
        bridge.kill()
    keeper.held.update(ALL)
    with at_work(restore(tmp_path, "second")) as bridge:
        send(bridge, b"after")
        keeper.connect(bridge)
        keeper.follow_until_received(b"after")
        keeper.close()


def test_a_session_that_is_not_in_the_backup(tmp_path: Path) -> None:
    """A client of MQTT 3.1.1 may continue its session, although CONNACK reports that the bridge does not have it."""
    keeper = Keeper(4)
    with at_work(BridgeProcess(tmp_path / "data")) as bridge:
        backup(tmp_path, bridge)
    with at_work(restore(tmp_path)) as bridge:
        keeper.held.update(ALL)
        keeper.begin(bridge)
        send(bridge, b"after")
        keeper.follow_until_received(b"after")
        keeper.close()


def test_a_session_releases_nothing_before_it_gets_qos_2(tmp_path: Path) -> None:
    """The release then waits until the messages of QoS 1 are acknowledged, because they have packet identifiers, too."""
    keeper = Keeper(5)
    with at_work(BridgeProcess(tmp_path / "data")) as bridge:
        keeper.begin(bridge, qos=1)
        keeper.close()
        backup(tmp_path, bridge)
    with at_work(restore(tmp_path)) as bridge:
        keeper.held.update(ALL)
        keeper.connect(bridge)
        send(bridge, b"of QoS 1")
        message = keeper.connection.expect(Publish)
        assert message.qos == 1
        assert keeper.connection.subscribe(("u", 2)) == (2,)
        send(bridge, b"of QoS 2", topic="u")
        keeper.connection.ping()
        assert not keeper.connection.inbox and "MQB2408I" not in bridge.log
        keeper.connection.send(Puback(message.packet_id))
        keeper.follow_until_received(b"of QoS 2")
        assert set(keeper.released) == set(ALL)
        keeper.close()


def test_a_client_that_does_not_answer_pubrel_can_still_connect(tmp_path: Path) -> None:
    """Some client libraries close the connection instead, against MQTT."""
    keeper = Keeper(4)
    with at_work(BridgeProcess(tmp_path / "data")) as bridge:
        keeper.begin(bridge)
        keeper.close()
        backup(tmp_path, bridge)
    with at_work(restore(tmp_path)) as bridge:
        send(bridge, b"after")
        for _ in range(10):
            keeper.connect(bridge)
            keeper.connection.expect(Pubrel)
            keeper.close()
        keeper.connect(bridge)
        keeper.follow_until_received(b"after")
        assert bridge.log.count("MQB2409W") == 1 and not keeper.released
        keeper.close()


Take = Callable[[], str]


@contextmanager
def mosquitto_sub(port: int, version: str, *options: str) -> Iterator[Take]:
    """Start mosquitto_sub with a durable session, which reconnects automatically. Yield a function that returns its next
    payload.
    """
    session = ("-x", "4294967295") if version == "mqttv5" else ()
    client = Subscriber(port, "t", qos=2, version=version, options=("-c", "-i", "keeper", *session, *options))
    yield lambda: str(client.message()["payload"])
    client.stop()


@contextmanager
def paho_client(port: int, version: int) -> Iterator[Take]:
    """Do the same with paho."""
    with PahoClient(port, "keeper", version, clean=False) as client:
        client.subscribe(("t", 2))
        yield lambda: client.take()[1].decode()


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(lambda port: mosquitto_sub(port, "mqttv311"), id="mosquitto-3.1.1"),
        # paho answers 65,535 PUBRELs in 8 seconds of CPU time.
        pytest.param(lambda port: mosquitto_sub(port, "mqttv5"), id="mosquitto-5", marks=pytest.mark.slow),
        pytest.param(lambda port: paho_client(port, paho.MQTTv311), id="paho-3.1.1", marks=pytest.mark.slow),
        pytest.param(lambda port: paho_client(port, paho.MQTTv5), id="paho-5", marks=pytest.mark.slow),
    ],
)
def test_real_clients(tmp_path: Path, start: Callable[[int], AbstractContextManager[Take]]) -> None:
    with (
        at_work(BridgeProcess(tmp_path / "data")) as bridge,
        FrozenRelay(bridge.port) as relay,
        start(relay.port) as take,
    ):
        relay.freezing = True
        send(bridge, *numbered("open at the backup", 5))
        until(lambda: relay.frozen == 1)
        backup(tmp_path, bridge)
        relay.thaw()
        assert {take() for _ in range(5)} == {f"open at the backup {number}" for number in range(5)}
        crash_and_restore(tmp_path, bridge, relay, take)


def test_a_client_whose_receive_maximum_is_used_up(tmp_path: Path) -> None:
    """mosquitto_sub counts the messages that it has not released before the restore."""
    with (
        at_work(BridgeProcess(tmp_path / "data")) as bridge,
        FrozenRelay(bridge.port) as relay,
        mosquitto_sub(relay.port, "mqttv5", "-D", "connect", "receive-maximum", "5") as take,
    ):
        backup(tmp_path, bridge)
        crash_and_restore(tmp_path, bridge, relay, take)


def crash_and_restore(tmp_path: Path, bridge: BridgeProcess, relay: FrozenRelay, take: Take) -> None:
    """Kill the bridge while its client waits for PUBREL, restore the backup, and check that no later message is lost."""
    frozen = relay.frozen
    relay.freezing = True
    send(bridge, *numbered("open at the crash", 5))
    until(lambda: relay.frozen == frozen + 1)
    bridge.kill()
    with at_work(restore(tmp_path)) as restored:
        sent = numbered("after", 40)
        send(restored, *sent)
        relay.redirect(restored.port)
        relay.thaw()
        expected = [payload.decode() for payload in sent]
        received: list[str] = []
        while not set(expected) <= set(received):
            received.append(take())
        assert [publication for publication in received if publication in expected] == expected
