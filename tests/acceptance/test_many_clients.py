"""1,000 idle clients at once. Clients that never read, or are hostile, do not slow others."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bridge.mqtt.packets import Connack, Pingreq, Pingresp, Puback, Publish, Subscribe
from bridge.mqtt.writer import encode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.raw_client import ConnectionClosed, RawClient

# The bridge limits slow clients independently of the queue manager.
pytestmark = pytest.mark.queue_managers("embedded", slow="ibmmq")

IDLE_CLIENTS = 1_000
CONFIG = """
channels:
  - {{name: PLAIN, port: 0}}
  - {{name: BRIEF, port: 0, connect_timeout: 1 s, max_packet_size: 1 KiB}}
  - {{name: TWO, port: 0, max_clients: 2}}
"""


@pytest.fixture
def bridge(bridge_of_the_file: BridgeProcess) -> BridgeProcess:
    return bridge_of_the_file


@pytest.fixture
def open_files() -> Iterator[None]:
    """Raise the limit of open files for 1,000 clients in this process and in the bridge, which inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.queue_managers("embedded", slow="ibmmq")
def test_thousand_idle_clients(open_files: None, new_bridge: Callable[..., BridgeProcess]) -> None:
    """They are connected at the same time, answered when they ping, receive a publication, and disconnect without a trace."""
    bridge = new_bridge().start()
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(RawClient(bridge.port, f"idle-{n}", keep_alive=600)) for n in range(IDLE_CLIENTS)
        ]
        for number, client in enumerate(clients):
            client.send(client.packet, Subscribe(1, ((f"to/{number}", 1), ("to/all", 0))))
        for client in clients:
            assert client.expect(Connack).return_code == 0
        for client in clients:
            assert client.receive().return_codes == (1, 0)
        for client in clients:
            client.send(Pingreq())
        for client in clients:
            client.expect(Pingresp)
        with RawClient.connected(bridge.port, "sender") as sender:
            for number in (0, IDLE_CLIENTS // 2, IDLE_CLIENTS - 1):
                sender.publish(f"to/{number}", b"%d" % number, 1)
                assert clients[number].take().payload == b"%d" % number
            sender.publish("to/all", b"everybody", 1)
        for client in clients:
            assert client.take().payload == b"everybody"
        bridge.mq("put", "cmd", "direct", "--to", "idle-7")
        assert clients[7].take().payload == b"direct"
        assert len(bridge.mq_json("display", "SUB('idle-*')")) == 2 * IDLE_CLIENTS
        assert bridge.stop() == 0
        for client in clients:
            client.expect_closed()


COUNT = 1_000
PAYLOAD = b"x" * 16_384


@pytest.mark.parametrize("slow_qos", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_client_that_never_reads_does_not_slow_another(bridge: BridgeProcess, slow_qos: int) -> None:
    """16 MB are sent to others while a client does not read: far more than sockets and `pending_bytes` contain.

    The other client gets everything. The slow one gets all messages of QoS 1 and 2 when it reads, and those of QoS 0 that
    were not dropped.
    """
    with (
        RawClient(bridge.port, "slow", receive_buffer=4_096) as slow,
        RawClient.connected(bridge.port, "fast") as fast,
        RawClient.connected(bridge.port, "sender") as sender,
    ):
        slow.connect()
        assert slow.subscribe(("flood", slow_qos)) == (slow_qos,)
        fast.subscribe(("flood", 1))
        flood = threading.Thread(target=publish_all, args=(sender,), daemon=True)
        flood.start()
        received: list[Any] = []
        while len(received) < COUNT:
            publish = fast.expect(Publish)
            fast.send(Puback(publish.packet_id))
            received.append(publish.payload)
        assert received == [number(n) for n in range(COUNT)]
        flood.join(30)
        assert not flood.is_alive()
        fast.ping()

        # Now it starts to read.
        sender.publish("flood", b"last", 1)
        late: list[Any] = []
        if slow_qos:
            while not late or late[-1] != b"last":
                late.append(slow.take().payload)
            assert late == [*received, b"last"]
        else:
            # QoS 0 messages published while it was blocked are dropped, so new ones are sent until one arrives.
            while not late or late[-1] != b"awake":
                sender.publish("flood", b"awake", 0)
                late += drained(slow)
            assert 0 < len(late) < COUNT
            assert [payload for payload in late if payload != b"awake"] == [
                payload for payload in [*received, b"last"] if payload in set(late)
            ]
        slow.ping()
    bridge.wait_for_depth("SYSTEM.MQTT.TRANSMIT.QUEUE", 0)


def number(n: int) -> bytes:
    return b"%08d" % n + PAYLOAD


def drained(client: RawClient) -> list[bytes]:
    """Return the payloads of the messages received up to the answer to a ping, read in small steps."""
    client.send(Pingreq())
    payloads = []
    while type(packet := client.receive()) is Publish:
        payloads.append(packet.payload)
    assert packet == Pingresp()
    return payloads


def publish_all(sender: RawClient, window: int = 50) -> None:
    """Publish all with QoS 1, several at a time."""
    waiting = 0
    for n in range(COUNT):
        sender.send(Publish("flood", number(n), 1, False, False, n % 60_000 + 1))
        waiting += 1
        while waiting >= window:
            sender.expect(Puback)
            waiting -= 1
    for _ in range(waiting):
        sender.expect(Puback)


# The channel stops reading on any queue manager, and 100,000 publications take long.
@pytest.mark.slow
@pytest.mark.queue_managers("embedded")
def test_a_client_that_publishes_without_reading_its_acknowledgements(bridge: BridgeProcess) -> None:
    """The bridge stops reading from it when too many acknowledgements are unread. Another client is not affected."""
    with RawClient(bridge.port, "rude", receive_buffer=4_096) as rude, RawClient.connected(bridge.port, "good") as good:
        rude.connect()
        good.subscribe(("good", 2))
        rude.socket.settimeout(0.5)
        blocked = False
        batch = b"".join(encode(Publish("rude", b"x", 1, False, False, n + 1)) for n in range(1_000))
        for _ in range(3_000):
            try:
                rude.socket.sendall(batch)
            except TimeoutError:
                blocked = True
                break
        assert blocked, "it could send three million messages without reading"
        for n in range(100):
            good.publish("good", b"%d" % n, 2)
            assert good.take().payload == b"%d" % n


def test_incomplete_packets_and_silence_have_no_effect(bridge: BridgeProcess) -> None:
    """Connections without CONNECT are closed after `connect_timeout`. Others continue meanwhile."""
    port = bridge.ports["BRIEF"]
    with contextlib.ExitStack() as stack:
        good = stack.enter_context(RawClient.connected(port, "good"))
        silent = [stack.enter_context(RawClient(port, "silent")) for _ in range(50)]
        for client in silent[1:]:
            client.send_bytes(b"\x10\x20\x00\x04MQ")
        silent[2].send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        good.ping()
        for client in silent:
            client.expect_closed()
        good.ping()
        # max_packet_size: rejected as soon as its length is read
        bad = stack.enter_context(RawClient.connected(port, "bad"))
        bad.send_bytes(b"\x30\x81\x08")
        bad.expect_closed()
        good.publish("t", b"x" * 1_000, 1)


def test_max_clients(bridge: BridgeProcess) -> None:
    port = bridge.ports["TWO"]
    with RawClient.connected(port, "one") as first, RawClient.connected(port, "two"):
        with RawClient(port, "three") as three:
            # CONNACK 3 may arrive before CONNECT is read, or the connection may be reset before.
            with contextlib.suppress(ConnectionClosed, socket.error):
                assert three.connect() == Connack(3)
            with contextlib.suppress(ConnectionClosed, socket.error):
                three.receive()
                raise AssertionError("the third client was accepted")
        first.disconnect()
        RawClient.connected(port, "three").vanish()


def retain_all(sender: RawClient, prefix: str, count: int, size: int) -> None:
    """Publish retained messages with QoS 1, several at a time."""
    waiting = 0
    for n in range(count):
        sender.send(Publish(f"{prefix}/{n}", b"%08d" % n + bytes(size), 1, True, False, n % 60_000 + 1))
        waiting += 1
        if waiting >= 50:
            sender.expect(Puback)
            waiting -= 1
    for _ in range(waiting):
        sender.expect(Puback)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("count", "size", "pause", "rate"),
    [
        pytest.param(1_500, 4_000, 0, 0, id="waits for another client"),
        pytest.param(20_000, 300, 15, 0, id="pauses 15 s", marks=pytest.mark.slow),
        pytest.param(20_000, 1_000, 0, 1_000_000, id="reads 1 MB/s", marks=pytest.mark.slow),
    ],
)
def test_all_retained_messages_reach_a_client_that_reads_slowly(
    bridge: BridgeProcess, unique: str, count: int, size: int, pause: float, rate: int
) -> None:
    """With QoS 0. The last state of a topic arrives, even if it changed while the client did not read."""
    with (
        RawClient.connected(bridge.port, f"s-{unique}"[:23], receive_buffer=4_096) as slow,
        RawClient.connected(bridge.port, f"f-{unique}"[:23]) as fast,
        RawClient.connected(bridge.port, f"p-{unique}"[:23]) as sender,
    ):
        retain_all(sender, unique, count, size)
        slow.subscribe((f"{unique}/#", 0))
        fast.subscribe((f"{unique}/#", 0))
        states: dict[str, bytes] = {}
        while len(states) < count:
            publish = fast.wait_for(Publish)
            states[publish.topic] = publish.payload
        last = f"{unique}/{count - 1}"
        sender.publish(last, b"changed", 0, retain=True)
        while states[last] != b"changed":
            publish = fast.wait_for(Publish)
            states[publish.topic] = publish.payload
        time.sleep(pause)  # the measured case, not a wait for an event
        received: dict[str, bytes] = {}
        start = time.monotonic()
        read = 0
        while received != states:
            publish = slow.wait_for(Publish)
            received[publish.topic] = publish.payload
            read += len(publish.payload)
            if rate:
                time.sleep(max(0.0, start + read / rate - time.monotonic()))
        print(f"{len(received)} of {count} retained messages, {read} bytes in {time.monotonic() - start:.1f} s")
        for n in range(0 if count > 2_000 else count):
            sender.send(Publish(f"{unique}/{n}", b"", 0, True))
        sender.ping()
