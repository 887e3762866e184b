"""Mappings between a bridge and a mosquitto under load, while both are killed, stopped and restarted.

Numbered messages are sent in both directions with each guarantee, in one run. Exactly-once means that each message arrives
once, and in order, at-least-once that none is missing, at-most-once that none is duplicated. Publishers and subscribers
complete their exchanges of QoS 2 over lost connections, so the bridge is responsible for missing and duplicated messages.
"""

from __future__ import annotations

import itertools
import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.mq.remote import RemoteConnection
from bridge.mqtt.packets import Publish, Pubrec, Pubrel
from bridge.telemetry.conversion import publication_of
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.crash_checks import Restless
from tests.helpers.exactly_once import DurableSubscriber, Publisher, first_deliveries, number_of, repeated
from tests.helpers.line_process import suspend
from tests.helpers.mosquitto import Mosquitto, Subscriber, publish
from tests.helpers.patience import PATIENCE, until_at_last
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import RemoteBridgeProcess

GUARANTEES = ("at-most-once", "at-least-once", "exactly-once")
#: Mappings are named after their direction and the QoS of their guarantee.
QUEUES = ["local", *(f"{direction}{qos}" for direction in ("in", "out") for qos in range(3))]
DEAD_LETTERS = "SYSTEM.DEAD.LETTER.QUEUE"


def config_of(port: int) -> str:
    """Return a mapping for each direction and guarantee. Units of work are small, so that many can be interrupted."""
    lines = [f"links: {{broker: {{host: 127.0.0.1, port: {port}, in_flight: 100}}}}", "mappings:"]
    for qos, guarantee in enumerate(GUARANTEES):
        rest = f"guarantee: {guarantee}, batch: {{messages: 20}}"
        # Persistent also with QoS 0, so that the death of a queue manager does not explain missing messages.
        attributes = "attributes: {persistence: persistent}"
        lines.append(
            f'  in{qos}: {{from: {{mqtt: "in/#", link: broker}}, to: {{queue: in{qos}}}, {attributes}, {rest}}}'
        )
        lines.append(f'  out{qos}: {{from: {{queue: out{qos}}}, to: {{mqtt: "out/{qos}", link: broker}}, {rest}}}')
    lines.append(f'  local: {{from: {{mqtt: "local/#"}}, to: {{queue: local}}, {rest}}}')
    return "\n".join(lines) + "\n"


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    directory = tmp_path / "mosquitto"
    directory.mkdir()
    process = Mosquitto(directory).start()
    yield process
    process.stop()


def test_mosquitto_repeats_released_publications(mosquitto: Mosquitto) -> None:
    """This happens if a connection ends after CONNECT, before PUBREL is written again. No bridge is involved."""
    with RawClient.connected(mosquitto.port, "subscriber", clean=False) as client:
        client.subscribe(("t", 2))
        publish(mosquitto.port, "t", "21.5", qos=2)
        first = client.expect(Publish)
        client.send(Pubrec(first.packet_id))
        # The PUBCOMP is lost with the connection.
        client.expect(Pubrel)
    assert mosquitto.process is not None
    suspend(mosquitto.process.pid)
    with RawClient(mosquitto.port, "subscriber", clean=False) as hasty:
        hasty.send(hasty.packet)
    mosquitto.process.send_signal(signal.SIGCONT)
    with RawClient.connected(mosquitto.port, "subscriber", clean=False) as client:
        again = client.receive()
        if type(again) is Pubrel:
            pytest.skip("this version of mosquitto does not repeat it")
        assert again == msgspec.structs.replace(first, dup=True)


class PacedPublisher(Publisher):
    """Publish as many messages as allowed, so that some are in flight at each fault."""

    def __init__(self, client_id: str, topics: list[str], total: int, **options: int) -> None:
        self.allowed, self.total = 0, total
        super().__init__(client_id, topics, total, 2, **options)

    @property
    def count(self) -> int:
        return min(self.allowed, self.total)

    @count.setter
    def count(self, total: int) -> None:
        self.total = total

    @property
    def finished(self) -> bool:
        return len(self.acknowledged) == self.total and not self._released


def connected(bridge: BridgeProcess) -> RemoteConnection:
    return RemoteConnection(bridge.data_directory, application="test")


def put(bridge: BridgeProcess, queues: Sequence[str], numbers: range) -> None:
    """Numbered persistent messages, the same for each queue."""
    application = connected(bridge)
    for queue in queues:
        handle = application.open(MQOD(ObjectName=queue), cmqc.MQOO_OUTPUT)
        for number in numbers:
            message = Message(MQMD(Persistence=cmqc.MQPER_PERSISTENT), b"%d.0" % number)
            application.put(handle, message, cmqc.MQPMO_SYNCPOINT)
        application.commit()
    application.disconnect()


def on_queue(bridge: BridgeProcess, queue: str) -> list[tuple[str, int]]:
    """Return topic and number of each message that a mapping has put, in order."""
    application = connected(bridge)
    handle = application.open(MQOD(ObjectName=queue), cmqc.MQOO_BROWSE)
    publications = []
    try:
        while True:
            message = application.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT))
            publication = publication_of(Message(message.md, message.data))
            publications.append((publication.topic, number_of(publication.payload)))
    except MQError as error:
        assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE, error
    application.disconnect()
    return publications


def verify(label: str, qos: int, received: list[tuple[str, int]], count: int) -> None:
    """Check the guarantee that belongs to this QoS."""
    numbers = {number for _, number in received}
    print(f"{label}: {len(numbers)} of {count}, {len(repeated(received))} of them again")
    if qos:
        assert numbers == set(range(count)), f"{label}: missing {sorted(set(range(count)) - numbers)[:20]}"
    if qos != 1:
        assert not repeated(received), f"{label}: more than once {repeated(received)[:20]}"
    for topic, in_order in first_deliveries(received).items():
        wrong = [pair for pair in itertools.pairwise(in_order) if pair[0] > pair[1]]
        assert not wrong, f"{label}: {topic} is out of order at {wrong[:10]}"


def faults_of(bridge: BridgeProcess, mosquitto: Mosquitto) -> list[Callable[[], object]]:
    """Cause the faults of a run, in this order."""

    def kill() -> None:
        bridge.kill()
        bridge.start()

    def restart_mosquitto() -> None:
        mosquitto.stop()
        mosquitto.start()

    if not isinstance(bridge, RemoteBridgeProcess):
        return [kill, restart_mosquitto, bridge.restart, restart_mosquitto, kill]
    manager = bridge.queue_manager

    def kill_queue_manager() -> None:
        manager.kill()
        manager.start()

    def pause_queue_manager() -> None:
        manager.pause()
        # Verbs are in progress when the bridge ends.
        threading.Timer(0.5, manager.resume).start()
        kill()

    return [kill_queue_manager, restart_mosquitto, pause_queue_manager, kill_queue_manager]


# It is slow because it waits for five faults of real processes in turn, and for links and clients to reconnect after each.
# It stays in `make test`, because no other test there lets the bridge and a broker fail under load with each guarantee.
@pytest.mark.queue_managers("embedded", slow="ibmmq")
@pytest.mark.parametrize("count", [400, pytest.param(2_000, marks=pytest.mark.slow)])
def test_guarantees_under_load(
    new_bridge: Callable[..., BridgeProcess], queue_manager: str, mosquitto: Mosquitto, count: int
) -> None:
    bridge = new_bridge(config=config_of(mosquitto.port)).start()
    bridge.mqsc("\n".join(f"DEFINE QLOCAL('{queue}') MAXDEPTH(999999)" for queue in QUEUES))
    # The mappings have subscribed at mosquitto before the first publication.
    until_at_last(lambda: bridge.log.count("connected to") >= 6, lambda: bridge.log)

    topics = [f"in/{number}" for number in range(4)]
    publisher = PacedPublisher("publisher", topics, count)
    local = PacedPublisher("local", [f"local/{number}" for number in range(4)], count, window=30)
    subscribers = [DurableSubscriber(f"subscriber{qos}", f"out/{qos}", qos, of_mosquitto=True) for qos in (1, 2)]
    for subscriber in subscribers:
        subscriber.connect(mosquitto.port)
        subscriber.close()
    watcher = Subscriber(mosquitto.port, "out/0")
    end = threading.Event()
    threads = [
        Restless(client, place, seed, end)
        for seed, (client, place) in enumerate(
            [(publisher, mosquitto), (local, bridge), *((subscriber, mosquitto) for subscriber in subscribers)]
        )
    ]

    def progress() -> int:
        for thread in threads:
            if thread.failure is not None:
                raise thread.failure
        return (
            len(publisher.acknowledged)
            + len(local.acknowledged)
            + sum(len(subscriber.numbers) for subscriber in subscribers)
        )

    whole = 4 * count
    for thread in threads:
        thread.start()
    faults = faults_of(bridge, mosquitto)
    try:
        for number, fault in enumerate([*faults, lambda: None]):
            share = range(count * number // (len(faults) + 1), count * (number + 1) // (len(faults) + 1))
            put(bridge, [queue for queue in QUEUES if queue.startswith("out")], share)
            publisher.allowed = local.allowed = share.stop
            # Some messages of each direction have arrived.
            mark = 4 * share.start + len(share)
            until_at_last(lambda mark=mark: progress() >= mark, progress)  # type: ignore[misc]
            fault()
            print(f"{getattr(fault, '__name__', fault)} at {progress()} of {whole}")
        until_at_last(lambda: publisher.finished and local.finished and progress() >= whole, progress)
    finally:
        end.set()
        for thread in threads:
            thread.join(PATIENCE)
    queues = {queue: 0 for queue in QUEUES if not queue.startswith("out")}

    def depths() -> dict[str, int]:
        for queue in queues:
            queues[queue] = int(bridge.mq_json("display", f"QLOCAL('{queue}')", "CURDEPTH")[0]["CURDEPTH"])
        return dict(queues)

    until_at_last(lambda: all(depth >= count for queue, depth in depths().items() if queue != "in0"), depths)
    # All duplicates have arrived when the mappings have completed their exchanges and end in order.
    assert bridge.restart().running
    for queue in queues:
        publications = on_queue(bridge, queue)
        verify(f"to queue {queue}", int(queue[-1]) if queue != "local" else 2, publications, count)
        assert publications
    for subscriber in subscribers:
        verify(f"to the broker, QoS {subscriber.qos}", subscriber.qos, subscriber.received, count)
        assert subscriber.published_twice == []
    with watcher.stop():
        lines = [*watcher.seen, *watcher.rest()]
    numbered = [("out/0", number_of(json.loads(line)["payload"])) for line in lines if line.startswith("{")]
    verify("to the broker, QoS 0", 0, numbered, count)
    assert numbered
    assert bridge.messages(DEAD_LETTERS) == []
