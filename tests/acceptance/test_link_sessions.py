"""Exactly once over brokers that restart or are killed, and a link that moves between two of them, under load."""

from __future__ import annotations

import contextlib
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
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.crash_checks import Restless
from tests.helpers.exactly_once import DurableSubscriber
from tests.helpers.mosquitto import Mosquitto, publish
from tests.helpers.patience import until_at_last
from tests.helpers.tap import Tap

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
    """Brokers restart, the bridge is killed, and the link moves by reload or while the bridge is down.

    What a mosquitto repeats to its subscriber after PUBCOMP does not count as duplicated by the bridge.
    """
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
    again = [number for one in subscribers for number in one.repeated]
    out.subtract(again)
    lost_in, lost_out = 2 * total - len(into), total - len(out)
    print(f"{dict(counts)}; to MQ: {2 * total} sent, {lost_in} lost, {len(repeated(into))} doubled")
    print(f"from MQ: {total} sent, {lost_out} lost, {len(repeated(out))} doubled; {len(again)} repeated by brokers")
    assert (lost_in, repeated(into), lost_out, repeated(out)) == (0, [], 0, [])
    assert bridge.messages(DEAD_LETTERS) == []


def faults_of(taps: list[Tap], queue: list[tuple[str, int]], total: int) -> list[str]:
    """What the bridge has lost or doubled, by what it was told. Also prints what the brokers did."""
    faults = []
    for index, tap in enumerate(taps):
        moved = Counter(number for topic, number in queue if topic == f"in/{index}")
        twice = {number for number, times in moved.items() if times > 1}
        told = {number for number in twice if moved[number] <= tap.begun[number] or number in tap.repeated}
        print(
            f"broker {index}: {total} sent, {total - len(moved)} lost by it, {len(tap.repeated)} repeated after PUBCOMP;"
        )
        print(f"  {len(told)} moved twice that it had begun again or repeated after PUBCOMP")
        faults += [f"{number} lost, to MQ" for number in tap.received if number < total and number not in moved]
        faults += [f"{number} doubled, to MQ" for number in twice - told]
    for number in range(total):
        exchanges = sum(len(tap.accepted[number]) for tap in taps)
        if exchanges != 1:
            faults.append(f"{number} accepted by brokers {exchanges} times, from MQ")
    print(f"the bridge: {len(taps) * total} to MQ, {total} from MQ, faults: {len(faults)}")
    return faults


@contextlib.contextmanager
def interrupted(broker: Mosquitto, how: str) -> Iterator[None]:
    """Kill, stop or hang a broker meanwhile."""
    if how == "hang":
        assert broker.process is not None
        broker.process.send_signal(signal.SIGSTOP)
        yield
        broker.process.send_signal(signal.SIGCONT)
    else:
        getattr(broker, how)()
        yield
        broker.start()


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_brokers_that_are_killed(new_bridge: Callable[..., BridgeProcess], tmp_path: Path, version: str) -> None:
    """A killed mosquitto has lost what it acknowledged since it last saved. It saves at the end of each turn of its loop.

    So the bridge is judged by what it was told: what it has answered with PUBREC is on the queue once, unless the broker
    began another exchange for it, or repeated it after PUBCOMP. What left its queue was answered with PUBREC by a broker, in
    one exchange.
    """
    chance = random.Random(SEED)
    print(f"MQBRIDGE_TEST_SEED={SEED}")
    brokers, taps = [], []
    saving = ("allow_anonymous true", "autosave_on_changes true", "autosave_interval 1")
    for name in "ab":
        directory = tmp_path / f"mosquitto-{name}"
        directory.mkdir()
        brokers.append(Mosquitto(directory, *saving).start())
        taps.append(Tap(brokers[-1].port, version))
    control = f"control_socket: {tmp_path}/control\n"
    bridge = new_bridge(config=control + config_of(taps[0].port, in_flight=100, version=version)).start()
    bridge.mqsc(QUEUES)
    administrator = Administrator(bridge)
    counts: Counter[str] = Counter()

    def move(tap: Tap, *, killed: bool = False) -> None:
        assert bridge.config is not None
        if killed:
            bridge.kill()
        bridge.config.write_text(control + config_of(tap.port, in_flight=100, version=version))
        if killed:
            bridge.start()
        else:
            assert bridge.process is not None
            bridge.process.send_signal(signal.SIGHUP)

    def visit(tap: Tap) -> None:
        before = connections(bridge)
        move(tap, killed=True)
        until_at_last(lambda: connections(bridge) >= before + 2, lambda: bridge.log)

    def break_broker(how: str, *, moving: bool = True) -> None:
        with interrupted(chance.choice(brokers), how):
            if moving:
                move(chance.choice(taps))
            end.wait(chance.uniform(0, 2))

    def kill_bridge() -> None:
        bridge.kill()
        bridge.start()

    faults: dict[str, Callable[[], None]] = {
        "kill broker": lambda: break_broker("kill", moving=False),
        "kill broker, move": lambda: break_broker("kill"),
        "restart broker, move": lambda: break_broker("stop"),
        "hang broker, move": lambda: break_broker("hang"),
        "kill bridge": kill_bridge,
        "move": lambda: move(chance.choice(taps)),
        "move killed": lambda: move(chance.choice(taps), killed=True),
    }

    def depth(queue: str) -> int:
        return int(bridge.mq_json("display", f"QLOCAL('{queue}')", "CURDEPTH")[0]["CURDEPTH"])

    total = int(SECONDS * 20)
    publishers = [PacedPublisher(f"publisher-{number}", [f"in/{number}"], total, window=200) for number in range(2)]
    end = threading.Event()
    threads = [Restless(one, broker, SEED, end) for one, broker in zip(publishers, brokers, strict=True)]
    try:
        for tap in reversed(taps):
            visit(tap)
        for thread in threads:
            thread.start()
        began, sent = time.monotonic(), 0
        while (passed := time.monotonic() - began) < SECONDS:
            share = min(total, int(total * passed / SECONDS) + 50)
            for publisher in publishers:
                publisher.allowed = share
            put(bridge, ["out"], range(sent, share))
            sent = share
            end.wait(chance.uniform(0.2, 1.5))
            what = chance.choice(["kill broker", *faults])
            counts[what] += 1
            faults[what]()
        for publisher in publishers:
            publisher.allowed = total
        put(bridge, ["out"], range(sent, total))
        until_at_last(
            lambda: all(one.finished for one in publishers), lambda: [len(one.acknowledged) for one in publishers]
        )
        for tap, broker in zip(taps, brokers, strict=True):
            visit(tap)
            until_at_last(lambda: depth("out") == 0, lambda: depth("out"))
            # It comes after everything that waits in the session.
            last = ("in/end", total + broker.port)
            publish(broker.port, last[0], str(last[1]), qos=2)
            until_at_last(lambda last=last: last in on_queue(bridge, "in"), lambda: depth("in"))  # type: ignore[misc]
        until_at_last(
            lambda: not any(one["unfinished"] for one in administrator.json("mapping", "list")), lambda: bridge.log
        )
    finally:
        end.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        for broker in brokers:
            broker.stop()
    for thread in threads:
        assert thread.failure is None, thread.failure
    print(dict(counts))
    assert faults_of(taps, on_queue(bridge, "in"), total) == []
    assert bridge.messages(DEAD_LETTERS) == []
