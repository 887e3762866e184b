"""Two shards, each an active bridge and a standby, behind HAProxy, while processes are killed, stopped, suspended and yield.

Nothing acknowledged is lost, QoS 2 arrives once, each publisher's messages are in order, and clients of the other shard keep
their connections. MQBRIDGE_TEST_SECONDS is the duration, and MQBRIDGE_TEST_SEED repeats the faults. The test prints how long
clients were without a connection.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.helpers.crash_checks import verify
from tests.helpers.exactly_once import DurableSubscriber, Publisher
from tests.helpers.installed import program
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import until, until_at_last
from tests.helpers.raw_client import ConnectionClosed
from tests.helpers.remote_bridge import ROOT, RemoteBridgeProcess
from tests.helpers.shards import OF, SHARDS, ShardProcess, Site, balanced, client_of, free_port, reachable

SECONDS = float(os.environ.get("MQBRIDGE_TEST_SECONDS", "60"))
#: Seconds between faults, at most.
PAUSE = 3.0
#: Clients of each kind and shard.
CLIENTS = 3


class Fleet(threading.Thread):
    """One client that works in a thread of its own until told, and connects again after each loss."""

    def __init__(self, client: Publisher | DurableSubscriber, port: int, ending: threading.Event) -> None:
        super().__init__(daemon=True)
        self.client, self._port, self._ending = client, port, ending
        #: time.monotonic() since when there is no connection, or None
        self.away_since: float | None = None
        #: the longest time without a connection, in seconds
        self.longest_away = 0.0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    self.client.connect(self._port)
                    self._connected()
                    while not self._ending.is_set():
                        try:
                            self.client.step(0.2)
                        except TimeoutError:
                            if isinstance(self.client, Publisher) and self.client.finished:
                                self._ending.wait(0.2)
                except (ConnectionClosed, ConnectionError, TimeoutError):
                    self.away_since = self.away_since or time.monotonic()
                    self._ending.wait(0.1)
                self.client.close()
        except BaseException as failure:
            self.failure = failure

    def _connected(self) -> None:
        if self.away_since is not None:
            self.longest_away = max(self.longest_away, time.monotonic() - self.away_since)
            self.away_since = None


def subscribed(subscriber: DurableSubscriber, port: int) -> bool:
    """Begin the session of a subscriber, and return whether that succeeded."""
    try:
        subscriber.connect(port)
    except (ConnectionClosed, ConnectionError):
        return False
    subscriber.close()
    return True


def suspended(process: ShardProcess, seconds: float) -> None:
    process.signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.signal(signal.SIGCONT)


#: What happens to a process, which runs again afterwards.
FAULTS: dict[str, Callable[[ShardProcess, random.Random], None]] = {
    "kill -9": lambda process, _: process.restart(signal.SIGKILL),
    "stop": lambda process, _: process.restart(signal.SIGTERM),
    "SIGSTOP": lambda process, chance: suspended(process, chance.random() * 2),
    "yield": lambda process, _: process.hand_over(),
}


@pytest.mark.slow
def test_faults_of_one_shard_lose_nothing_and_do_not_concern_the_other(
    tmp_path: Path, remote: Callable[..., RemoteBridgeProcess]
) -> None:
    seed = int(os.environ.get("MQBRIDGE_TEST_SEED") or random.randrange(1_000_000))
    chance = random.Random(seed)
    print(f"MQBRIDGE_TEST_SEED={seed}")
    site, ending = Site(tmp_path, remote), threading.Event()
    pairs = [[ShardProcess(site, number, name) for name in "ab"] for number in range(OF)]
    listen, config = free_port(), tmp_path / "haproxy.cfg"
    shipped = (ROOT / "deploy" / "haproxy-shards.cfg").read_text()
    config.write_text(
        balanced(shipped, listen, free_port(), [[(one.port, one.admin) for one in pair] for pair in pairs])
    )
    publishers = [
        Publisher(client_of(number, f"p{index}"), [f"{number}/{index}"], 1_000_000_000, 1 + index % 2, window=10)
        for number in range(OF)
        for index in range(CLIENTS)
    ]
    # Each publisher has a subscriber in the other shard.
    subscribers = [
        DurableSubscriber(client_of((int(one.topics[0][0]) + 1) % OF, f"s{one.topics[0][2]}"), one.topics[0], one.qos)
        for one in publishers
    ]
    for index, (publisher, subscriber) in enumerate(zip(publishers, subscribers, strict=True)):
        publisher.level = subscriber.level = 4 + index % 2
    try:
        for pair in pairs:
            for process in pair:
                process.start()
        until(lambda: all(any(one.ready for one in pair) for pair in pairs), lambda: "no shard is ready")
        with LineProcess([program("haproxy", installer="tests/system-packages.sh"), "-db", "-f", config]):
            until(lambda: reachable(listen), lambda: "HAProxy does not listen")
            for subscriber in subscribers:
                # Before anything is published, and as soon as HAProxy has found the active bridges.
                until(partial(subscribed, subscriber, listen), lambda: "no subscription")
            fleet = [Fleet(client, listen, ending) for client in [*subscribers, *publishers]]
            for thread in fleet:
                thread.start()
            until_at_last(lambda: all(one.client.connections for one in fleet), lambda: "clients do not connect")
            faults = _run_faults(fleet, pairs, chance)
            for publisher in publishers:
                publisher.count = publisher._next
            until_at_last(
                lambda: (
                    all(
                        publisher.finished and publisher.acknowledged <= subscriber.numbers
                        for publisher, subscriber in zip(publishers, subscribers, strict=True)
                    )
                    or any(one.failure for one in fleet)
                ),
                lambda: [
                    (
                        publisher.topics,
                        publisher.qos,
                        publisher.finished,
                        sorted(publisher.acknowledged - subscriber.numbers)[:5],
                    )
                    for publisher, subscriber in zip(publishers, subscribers, strict=True)
                ],
            )
            ending.set()
            for thread in fleet:
                thread.join()
                assert thread.failure is None, thread.failure
            for publisher, subscriber in zip(publishers, subscribers, strict=True):
                verify(subscriber.received, publisher, publisher.qos)
            longest = max(one.longest_away for one in fleet)
            messages = sum(len(publisher.acknowledged) for publisher in publishers)
            print(f"faults {faults}, {messages:,} messages, at most {longest:.1f} s without a connection")
    finally:
        ending.set()
        for pair in pairs:
            for process in pair:
                process.discard()


def settled(fleet: list[Fleet]) -> bool:
    """Return whether all clients are connected, and stay so for a second."""
    before = [one.client.connections for one in fleet]
    time.sleep(1.0)
    return all(one.away_since is None for one in fleet) and [one.client.connections for one in fleet] == before


def _run_faults(fleet: list[Fleet], pairs: list[list[ShardProcess]], chance: random.Random) -> dict[str, int]:
    """Run faults for the duration of the campaign, and return their numbers."""
    faults = dict.fromkeys(FAULTS, 0)
    until_time = time.monotonic() + SECONDS
    while time.monotonic() < until_time:
        number = chance.randrange(OF)
        others = [one for one in fleet if not SHARDS[number].owns(one.client.client_id)]
        before = [one.client.connections for one in others]
        fault = chance.choice(list(FAULTS))
        FAULTS[fault](chance.choice(pairs[number]), chance)
        faults[fault] += 1
        until_at_last(
            lambda: settled(fleet) or any(one.failure for one in fleet),
            lambda: [(one.client.client_id, one.away_since, one.failure) for one in fleet],
        )
        assert [one.client.connections for one in others] == before, f"{fault} of shard {number} disconnected others"
        assert not any(one.failure for one in fleet), [one.failure for one in fleet if one.failure]
        time.sleep(chance.random() * PAUSE)
    return faults
