"""Exactly-once with brokers that restart or are killed, and with a link that moves between two brokers, under load."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from tests.acceptance.test_mapping_guarantees import DEAD_LETTERS, PacedPublisher, on_queue, put
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.crash_checks import Restless
from tests.helpers.exactly_once import DurableSubscriber
from tests.helpers.mosquitto import Mosquitto, publish
from tests.helpers.patience import until_at_last
from tests.helpers.tap import Tap

T = TypeVar("T")

#: Duration of the faults in seconds.
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


def connections(bridge: BridgeProcess) -> int:
    return bridge.log.count("MQB6001I")


def repeated(numbers: Counter[T]) -> list[T]:
    return [number for number, times in numbers.items() if times > 1]


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_broker_that_restarts_every_few_seconds(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path, version: str
) -> None:
    """Mosquitto repeats released publications: the bridge recognizes them."""
    chance = random.Random(SEED)
    print(f"MQBRIDGE_TEST_SEED={SEED}")
    broker = Mosquitto(tmp_path, "allow_anonymous true", "max_inflight_messages 3000").start()
    bridge = new_bridge(config=config_of(broker.port, in_flight=3000, version=version)).start()
    bridge.mqsc(QUEUES)
    until_at_last(lambda: connections(bridge) >= 2, lambda: bridge.log)

    def depth() -> int:
        return int(bridge.mq_json("display", "QLOCAL('in')", "CURDEPTH")[0]["CURDEPTH"])

    total = int(SECONDS * 40)
    publisher = PacedPublisher("publisher", [f"in/{number}" for number in range(4)], total, window=900)
    end = threading.Event()
    thread = Restless(publisher, broker, SEED, end)
    thread.start()
    start = time.monotonic()
    restarts = 0
    try:
        while (passed := time.monotonic() - start) < SECONDS:
            # Bursts, so that many messages are in flight at each restart.
            publisher.allowed = min(total, int(total * (passed + 5) / SECONDS))
            end.wait(chance.uniform(2, 3))
            broker.stop()
            broker.start()
            restarts += 1
        publisher.allowed = total
        until_at_last(lambda: publisher.finished, lambda: (len(publisher.acknowledged), thread.failure))
        until_at_last(lambda: depth() >= total, depth)
    finally:
        end.set()
        thread.join()
        broker.stop()
    bridge.restart()
    numbers = Counter(number for _, number in on_queue(bridge, "in"))
    doubled, lost = repeated(numbers), total - len(numbers)
    print(f"{restarts} restarts: {total} sent, {lost} lost, {len(doubled)} doubled")
    assert (lost, doubled) == (0, [])
    assert bridge.messages(DEAD_LETTERS) == []


def faults_of(taps: list[Tap], queue: list[tuple[str, int]], total: int) -> list[str]:
    """Return the messages that the bridge has lost or duplicated, by the recorded traffic. Also prints the traffic of the
    brokers.
    """
    faults = []
    for index, tap in enumerate(taps):
        moved = Counter(number for topic, number in queue if topic == f"in/{index}")
        twice = {number for number, times in moved.items() if times > 1}
        repeated_by_broker = {
            number for number in twice if moved[number] <= tap.begun[number] or number in tap.repeated
        }
        print(
            f"broker {index}: {total} sent, {total - len(moved)} lost by it, {len(tap.repeated)} repeated after PUBCOMP;"
        )
        print(f"  {len(repeated_by_broker)} moved twice that it had begun again or repeated after PUBCOMP")
        faults += [f"{number} lost, to MQ" for number in tap.received if number < total and number not in moved]
        faults += [f"{number} doubled, to MQ" for number in twice - repeated_by_broker]
    for number in range(total):
        exchanges = sum(len(tap.accepted[number]) for tap in taps)
        if exchanges != 1:
            faults.append(f"{number} accepted by brokers {exchanges} times, from MQ")
    print(f"the bridge: {len(taps) * total} to MQ, {total} from MQ, faults: {len(faults)}")
    return faults


class TwoBrokers:
    """Two brokers behind taps, publishers at both, and a bridge whose link moves between them."""

    def __init__(
        self, new_bridge: Callable[..., BridgeProcess], directory: Path, version: str, *broker_options: str
    ) -> None:
        print(f"MQBRIDGE_TEST_SEED={SEED}")
        self.chance = random.Random(SEED)
        self.brokers: list[Mosquitto] = []
        self.taps: list[Tap] = []
        for name in "ab":
            broker_directory = directory / f"mosquitto-{name}"
            broker_directory.mkdir()
            self.brokers.append(Mosquitto(broker_directory, "allow_anonymous true", *broker_options).start())
            self.taps.append(Tap(self.brokers[-1].port, version))
        config = config_of(self.taps[0].port, in_flight=100, version=version)
        self.bridge = new_bridge(config=f"control_socket: {directory}/control\n{config}").start()
        self.bridge.mqsc(QUEUES)
        self.administrator = Administrator(self.bridge)
        self.end = threading.Event()
        self.total = int(SECONDS * 20)
        self.clients: list[tuple[PacedPublisher | DurableSubscriber, Mosquitto]] = [
            (PacedPublisher(f"publisher-{number}", [f"in/{number}"], self.total, window=200), broker)
            for number, broker in enumerate(self.brokers)
        ]

    def move(self, tap: Tap | None = None, *, killed: bool = False) -> None:
        """Point the link to a broker, by reload or while the bridge is stopped."""
        bridge = self.bridge
        assert bridge.config is not None
        assert bridge.process is not None
        if killed:
            bridge.kill()
        target = tap or self.chance.choice(self.taps)
        bridge.config.write_text(
            re.sub(r"port: \d+, in_flight", f"port: {target.port}, in_flight", bridge.config.read_text())
        )
        if killed:
            bridge.start()
        else:
            bridge.process.send_signal(signal.SIGHUP)

    def visit(self, tap: Tap) -> None:
        """Move, and wait for the connections."""
        before = connections(self.bridge)
        self.move(tap, killed=True)
        until_at_last(lambda: connections(self.bridge) >= before + 2, lambda: self.bridge.log)

    def kill_bridge(self) -> None:
        self.bridge.kill()
        self.bridge.start()

    def break_broker(self, how: str, *, moving: bool) -> None:
        """Kill, stop or hang a broker for up to 2 seconds. The link may move meanwhile."""
        broker = self.chance.choice(self.brokers)
        if how == "hang":
            assert broker.process is not None
            broker.process.send_signal(signal.SIGSTOP)
        else:
            getattr(broker, how)()
        if moving:
            self.move()
        self.end.wait(self.chance.uniform(0, 2))
        if how == "hang":
            assert broker.process is not None
            broker.process.send_signal(signal.SIGCONT)
        else:
            broker.start()

    def depth(self, queue: str) -> int:
        return int(self.bridge.mq_json("display", f"QLOCAL('{queue}')", "CURDEPTH")[0]["CURDEPTH"])

    def unfinished(self) -> list[int]:
        """Return the numbers of messages from MQ that are unfinished in former sessions."""
        mappings = self.administrator.json("mapping", "list")
        return [session["messages"] for mapping in mappings for session in mapping["unfinished"]]

    def cause(self, fault: str) -> None:
        """Cause a fault by name."""
        {
            "restart broker": lambda: self.break_broker("stop", moving=False),
            "restart broker, move": lambda: self.break_broker("stop", moving=True),
            "kill broker": lambda: self.break_broker("kill", moving=False),
            "kill broker, move": lambda: self.break_broker("kill", moving=True),
            "hang broker, move": lambda: self.break_broker("hang", moving=True),
            "kill bridge": self.kill_bridge,
            "move": self.move,
            "move killed": lambda: self.move(killed=True),
        }[fault]()

    def run(self, faults: Mapping[str, int]) -> None:
        """Cause faults under load, each with the frequency of its weight, then move everything that is left."""
        publishers = [client for client, _ in self.clients if isinstance(client, PacedPublisher)]
        threads = [
            Restless(client, broker, SEED + index, self.end) for index, (client, broker) in enumerate(self.clients)
        ]
        counts: Counter[str] = Counter()
        try:
            # A session at each broker.
            for tap in reversed(self.taps):
                self.visit(tap)
            for thread in threads:
                thread.start()
            start, sent = time.monotonic(), 0
            while (passed := time.monotonic() - start) < SECONDS:
                share = min(self.total, int(self.total * passed / SECONDS) + 50)
                for publisher in publishers:
                    publisher.allowed = share
                put(self.bridge, ["out"], range(sent, share))
                sent = share
                self.end.wait(self.chance.uniform(0.2, 1.5))
                (fault,) = self.chance.choices([*faults], [*faults.values()])
                counts[fault] += 1
                self.cause(fault)
            for publisher in publishers:
                publisher.allowed = self.total
            put(self.bridge, ["out"], range(sent, self.total))
            until_at_last(
                lambda: all(publisher.finished for publisher in publishers),
                lambda: [len(publisher.acknowledged) for publisher in publishers],
            )
            for tap, broker in zip(self.taps, self.brokers, strict=True):
                self.visit(tap)
                until_at_last(lambda: self.depth("out") == 0, lambda: self.depth("out"))
                # It is sent after all waiting messages of the session.
                last = ("in/end", self.total + broker.port)
                publish(broker.port, last[0], str(last[1]), qos=2)
                until_at_last(lambda last=last: last in on_queue(self.bridge, "in"), lambda: self.depth("in"))  # type: ignore[misc]
            until_at_last(lambda: not any(self.unfinished()), self.unfinished)
            subscribers = [client for client, _ in self.clients if isinstance(client, DurableSubscriber)]
            until_at_last(
                lambda: (
                    not subscribers
                    or len(set().union(*(subscriber.numbers for subscriber in subscribers))) == self.total
                ),
                lambda: [len(subscriber.numbers) for subscriber in subscribers],
            )
        finally:
            self.end.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            for broker in self.brokers:
                broker.stop()
        for thread in threads:
            assert thread.failure is None, thread.failure
        print(dict(counts))


@pytest.mark.queue_managers("embedded", "ibmmq")
@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_link_that_moves_between_two_brokers(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path, version: str
) -> None:
    """Brokers restart, the bridge is killed, and the link moves by reload or while the bridge is stopped.

    The taps show duplicates of the bridge: a message in two exchanges. The subscribers recognize repetitions of mosquitto.
    """
    two = TwoBrokers(new_bridge, tmp_path, version, "max_inflight_messages 3000")
    subscribers = [DurableSubscriber(f"subscriber-{number}", "out", 2, of_mosquitto=True) for number in range(2)]
    for subscriber, broker in zip(subscribers, two.brokers, strict=True):
        subscriber.connect(broker.port)
        subscriber.close()
        two.clients.append((subscriber, broker))
    two.run({"restart broker": 1, "kill bridge": 1, "move": 2, "move killed": 1})
    moved = [publication for publication in on_queue(two.bridge, "in") if publication[0] != "in/end"]
    out = Counter(number for subscriber in subscribers for _, number in subscriber.received)
    for number in repeated(out):
        print(f"{number} came twice: {[subscriber.history[number] for subscriber in subscribers]}")
        print(f"  accepted from the bridge in {[sorted(tap.accepted[number]) for tap in two.taps]}")
    assert repeated(out) == []
    assert faults_of(two.taps, moved, two.total) == []
    assert (len({*moved}), len(moved)) == (2 * two.total, 2 * two.total)
    assert two.bridge.messages(DEAD_LETTERS) == []


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_brokers_that_are_killed(new_bridge: Callable[..., BridgeProcess], tmp_path: Path, version: str) -> None:
    """A killed mosquitto loses everything that it acknowledged after its last save. It saves at the end of each
    iteration of its loop.

    So the bridge is checked against the recorded traffic. A publication that it answered with PUBREC is on the queue
    once, unless the broker started another exchange for it, or repeated it after PUBCOMP. A broker has answered each
    message that left the queue with PUBREC, in one exchange.
    """
    two = TwoBrokers(new_bridge, tmp_path, version, "autosave_on_changes true", "autosave_interval 1")
    weights = dict.fromkeys(
        ("kill broker, move", "restart broker, move", "hang broker, move", "kill bridge", "move", "move killed"), 1
    )
    two.run({"kill broker": 2, **weights})
    assert faults_of(two.taps, on_queue(two.bridge, "in"), two.total) == []
    assert two.bridge.messages(DEAD_LETTERS) == []
