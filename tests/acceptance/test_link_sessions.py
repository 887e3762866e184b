"""Exactly once over brokers that restart again and again, and a link that moves between two of them, under load."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_mapping_guarantees import DEAD_LETTERS, PacedPublisher, on_queue, put
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.crash_checks import Restless
from tests.helpers.exactly_once import DurableSubscriber
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.patience import until_at_last

#: Seconds of faults.
SECONDS = float(os.environ.get("MQBRIDGE_TEST_SECONDS", "60"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.queue_managers("embedded"),
    pytest.mark.timeout(1200 + 10 * SECONDS),
]

SEED = int(os.environ.get("MQBRIDGE_TEST_SEED", "0")) or random.randrange(1, 10**6)
QUEUES = "\n".join(f"DEFINE QLOCAL('{queue}') MAXDEPTH(999999)" for queue in ("in", "out"))


def config_of(port: int, *, in_flight: int, version: str) -> str:
    return f"""\
links:
  broker: {{host: 127.0.0.1, port: {port}, in_flight: {in_flight}, version: "{version}"}}
mappings:
  in: {{from: {{mqtt: "in/#", link: broker}}, to: {{queue: in}}, guarantee: exactly-once}}
  out: {{from: {{queue: out}}, to: {{mqtt: "out", link: broker}}, guarantee: exactly-once, batch: {{messages: 50}}}}
"""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Mosquitto]]:
    made = []
    for name in "ab":
        directory = tmp_path / f"mosquitto-{name}"
        directory.mkdir()
        made.append(Mosquitto(directory, "allow_anonymous true", "max_inflight_messages 3000").start())
    yield made
    for process in made:
        process.stop()


def connections(bridge: BridgeProcess) -> int:
    return bridge.log.count("MQB6001I")


def repeated(numbers: Counter[object]) -> list[object]:
    return [number for number, times in numbers.items() if times > 1]


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_broker_that_restarts_every_few_seconds(
    new_bridge: Callable[..., BridgeProcess], brokers: list[Mosquitto], version: str
) -> None:
    """Mosquitto repeats publications that were released: the bridge knows them."""
    chance = random.Random(SEED)
    print(f"MQBRIDGE_TEST_SEED={SEED}")
    broker = brokers[0]
    bridge = new_bridge(config=config_of(broker.port, in_flight=3000, version=version)).start()
    bridge.mqsc(QUEUES)
    until_at_last(lambda: connections(bridge) >= 2, lambda: bridge.log)
    total = int(SECONDS * 40)
    publisher = PacedPublisher("publisher", [f"in/{number}" for number in range(4)], total, window=900)
    end = threading.Event()
    thread = Restless(publisher, broker, SEED, end)
    thread.start()
    began = time.monotonic()
    restarts = 0
    try:
        while (passed := time.monotonic() - began) < SECONDS:
            # Bursts, so that many are in flight at each restart.
            publisher.allowed = min(total, int(total * (passed + 5) / SECONDS))
            end.wait(chance.uniform(2, 3))
            broker.stop()
            broker.start()
            restarts += 1
        publisher.allowed = total
        until_at_last(lambda: publisher.finished, lambda: (len(publisher.acknowledged), thread.failure))
    finally:
        end.set()
        thread.join()

    def depth() -> int:
        return int(bridge.mq_json("display", "QLOCAL('in')", "CURDEPTH")[0]["CURDEPTH"])

    until_at_last(lambda: depth() >= total, depth)
    bridge.restart()
    numbers: Counter[object] = Counter(number for _, number in on_queue(bridge, "in"))
    doubled, lost = repeated(numbers), total - len(numbers)
    print(f"{restarts} restarts: {total} sent, {lost} lost, {len(doubled)} doubled")
    assert (lost, doubled) == (0, [])
    assert bridge.messages(DEAD_LETTERS) == []


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_link_that_moves_between_two_brokers(
    new_bridge: Callable[..., BridgeProcess], brokers: list[Mosquitto], version: str
) -> None:
    """Brokers restart, the bridge is killed, and the link moves by reload or while the bridge is down."""
    chance = random.Random(SEED)
    print(f"MQBRIDGE_TEST_SEED={SEED}")
    bridge = new_bridge(config=config_of(brokers[0].port, in_flight=100, version=version)).start()
    bridge.mqsc(QUEUES)
    assert bridge.config is not None

    def move(broker: Mosquitto, *, killed: bool = False) -> None:
        assert bridge.config is not None
        if killed:
            bridge.kill()
        bridge.config.write_text(config_of(broker.port, in_flight=100, version=version))
        if killed:
            bridge.start()
        else:
            assert bridge.process is not None
            bridge.process.send_signal(signal.SIGHUP)

    # A session at each broker.
    until_at_last(lambda: connections(bridge) >= 2, lambda: bridge.log)
    for broker in reversed(brokers):
        before = connections(bridge)
        move(broker)
        until_at_last(lambda before=before: connections(bridge) >= before + 2, lambda: bridge.log)  # type: ignore[misc]
    total = int(SECONDS * 20)
    publishers = [PacedPublisher(f"publisher-{name}", [f"in/{name}"], total, window=200) for name in "ab"]
    subscribers = [DurableSubscriber(f"subscriber-{name}", "out", 2) for name in "ab"]
    for subscriber, broker in zip(subscribers, brokers, strict=True):
        subscriber.connect(broker.port)
        subscriber.close()
    end = threading.Event()
    pairs = [*zip(publishers, brokers, strict=True), *zip(subscribers, brokers, strict=True)]
    threads = [Restless(one, broker, SEED + index, end) for index, (one, broker) in enumerate(pairs)]
    for thread in threads:
        thread.start()

    def restart_broker() -> None:
        broker = chance.choice(brokers)
        broker.stop()
        end.wait(chance.uniform(0, 2))
        broker.start()

    def kill_bridge() -> None:
        bridge.kill()
        bridge.start()

    def received() -> int:
        return sum(len(subscriber.received) for subscriber in subscribers)

    counts: Counter[str] = Counter()
    began = time.monotonic()
    sent = 0
    try:
        while (passed := time.monotonic() - began) < SECONDS:
            share = min(total, int(total * passed / SECONDS) + 50)
            for publisher in publishers:
                publisher.allowed = share
            put(bridge, ["out"], range(sent, share))
            sent = share
            end.wait(chance.uniform(0.2, 1.5))
            what = chance.choice(["restart", "kill", "move", "move", "move killed"])
            counts[what] += 1
            if what == "restart":
                restart_broker()
            elif what == "kill":
                kill_bridge()
            else:
                move(chance.choice(brokers), killed=what == "move killed")
        for publisher in publishers:
            publisher.allowed = total
        put(bridge, ["out"], range(sent, total))

        def depth(queue: str) -> int:
            return int(bridge.mq_json("display", f"QLOCAL('{queue}')", "CURDEPTH")[0]["CURDEPTH"])

        # Each broker has its turn until nothing is left at it.
        for broker in itertools.islice(itertools.cycle(brokers), 4):
            before = connections(bridge)
            move(broker, killed=True)
            until_at_last(lambda before=before: connections(bridge) >= before + 2, lambda: bridge.log)  # type: ignore[misc]
            last = -1
            while (now := depth("in") + received()) != last:
                last = now
                time.sleep(3)
        until_at_last(
            lambda: all(one.finished for one in publishers), lambda: [len(one.acknowledged) for one in publishers]
        )
        until_at_last(lambda: depth("in") >= 2 * total and received() >= total, lambda: (depth("in"), received()))
    finally:
        end.set()
        for thread in threads:
            thread.join()
    for thread in threads:
        assert thread.failure is None, thread.failure
    into: Counter[object] = Counter(on_queue(bridge, "in"))
    out: Counter[object] = Counter(number for one in subscribers for _, number in one.received)
    lost_in, lost_out = 2 * total - len(into), total - len(out)
    print(f"{dict(counts)}; to MQ: {2 * total} sent, {lost_in} lost, {len(repeated(into))} doubled")
    print(f"from MQ: {total} sent, {lost_out} lost, {len(repeated(out))} doubled")
    assert (lost_in, repeated(into), lost_out, repeated(out)) == (0, [], 0, [])
    assert bridge.messages(DEAD_LETTERS) == []
