"""Two shards, each an active bridge and a standby, behind HAProxy, while processes are killed, stopped, suspended and yield.

Nothing acknowledged is lost, QoS 2 arrives once, each publisher's messages are in order, and clients of the other shard keep
their connections. MQBRIDGE_TEST_SECONDS is the duration, and MQBRIDGE_TEST_SEED repeats the faults. The test prints how long
clients were without a connection.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


class Campaign:
    """Shards behind HAProxy, and clients that publish and subscribe meanwhile."""

    def __init__(self, directory: Path, remote: Callable[..., RemoteBridgeProcess]) -> None:
        site = Site(directory, remote)
        self._ending = threading.Event()
        self.pairs = [[ShardProcess(site, number, name) for name in "ab"] for number in range(OF)]
        self._listen, self._config = free_port(), directory / "haproxy.cfg"
        shipped = (ROOT / "deploy" / "haproxy-shards.cfg").read_text()
        servers = [[(one.port, one.admin) for one in pair] for pair in self.pairs]
        self._config.write_text(balanced(shipped, self._listen, free_port(), servers))
        self.publishers = [
            Publisher(client_of(number, f"p{index}"), [f"{number}/{index}"], 1_000_000_000, 1 + index % 2, window=3)
            for number in range(OF)
            for index in range(CLIENTS)
        ]
        #: each publisher has a subscriber in the other shard
        self.subscribers = [
            DurableSubscriber(client_of((int(topic[0]) + 1) % OF, f"s{topic[2]}"), topic, publisher.qos)
            for publisher in self.publishers
            for topic in publisher.topics
        ]
        for index, (publisher, subscriber) in enumerate(zip(self.publishers, self.subscribers, strict=True)):
            publisher.level = subscriber.level = 4 + index % 2
        self.fleet = [Fleet(client, self._listen, self._ending) for client in (*self.subscribers, *self.publishers)]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run all processes and clients. At the end of the block, everything that was acknowledged arrives."""
        try:
            for process in itertools.chain.from_iterable(self.pairs):
                process.start()
            until(lambda: all(any(one.ready for one in pair) for pair in self.pairs), lambda: "no shard is ready")
            with LineProcess([program("haproxy", installer="tests/system-packages.sh"), "-db", "-f", self._config]):
                until(lambda: reachable(self._listen), lambda: "HAProxy does not listen")
                for subscriber in self.subscribers:
                    # Before anything is published, and as soon as HAProxy has found the active bridges.
                    until(partial(subscribed, subscriber, self._listen), lambda: "no subscription")
                for thread in self.fleet:
                    thread.start()
                until_at_last(lambda: all(one.client.connections for one in self.fleet), lambda: "no connections")
                yield
                self._finish()
        finally:
            self._ending.set()
            for process in itertools.chain.from_iterable(self.pairs):
                process.discard()

    def _finish(self) -> None:
        """End publishing, wait for all that was acknowledged, and verify what has arrived."""
        for publisher in self.publishers:
            publisher.count = publisher._next
        until_at_last(
            lambda: not any(self._missing()) or any(one.failure for one in self.fleet),
            lambda: [sorted(missing)[:5] for missing in self._missing()],
        )
        self._ending.set()
        for thread in self.fleet:
            thread.join()
            assert thread.failure is None, thread.failure
        for publisher, subscriber in zip(self.publishers, self.subscribers, strict=True):
            verify(subscriber.received, publisher, publisher.qos)

    def _missing(self) -> list[set[int]]:
        """Return the numbers of messages on their way, by publisher. {-1} stands for those that are not acknowledged."""
        return [
            publisher.acknowledged - subscriber.numbers if publisher.finished else {-1}
            for publisher, subscriber in zip(self.publishers, self.subscribers, strict=True)
        ]

    def settle(self) -> None:
        """Wait until all clients are connected, and stay so for a second."""
        until_at_last(
            lambda: self._settled() or any(one.failure for one in self.fleet),
            lambda: [(one.client.client_id, one.away_since, one.failure) for one in self.fleet],
        )
        assert not any(one.failure for one in self.fleet), [one.failure for one in self.fleet if one.failure]

    def _settled(self) -> bool:
        before = [one.client.connections for one in self.fleet]
        time.sleep(1.0)
        after = [one.client.connections for one in self.fleet]
        return all(one.away_since is None for one in self.fleet) and after == before


def test_a_rolling_upgrade_disconnects_each_client_once(
    tmp_path: Path, remote: Callable[..., RemoteBridgeProcess]
) -> None:
    campaign = Campaign(tmp_path, remote)
    with campaign.running():
        campaign.settle()
        before = [one.client.connections for one in campaign.fleet]
        for pair in campaign.pairs:
            standby, active = sorted(pair, key=lambda one: one.ready)
            standby.restart(signal.SIGTERM)  # with the new version
            active.hand_over()
            campaign.settle()
            active.restart(signal.SIGTERM)
            campaign.settle()
        assert [one.client.connections for one in campaign.fleet] == [number + 1 for number in before]


@pytest.mark.slow
def test_faults_of_one_shard_lose_nothing_and_do_not_concern_the_other(
    tmp_path: Path, remote: Callable[..., RemoteBridgeProcess]
) -> None:
    seed = int(os.environ.get("MQBRIDGE_TEST_SEED") or random.randrange(1_000_000))
    chance = random.Random(seed)
    print(f"MQBRIDGE_TEST_SEED={seed}")
    campaign, faults = Campaign(tmp_path, remote), dict.fromkeys(FAULTS, 0)
    with campaign.running():
        until_time = time.monotonic() + SECONDS
        while time.monotonic() < until_time:
            number = chance.randrange(OF)
            others = [one for one in campaign.fleet if not SHARDS[number].owns(one.client.client_id)]
            before = [one.client.connections for one in others]
            fault = chance.choice(list(FAULTS))
            FAULTS[fault](chance.choice(campaign.pairs[number]), chance)
            faults[fault] += 1
            campaign.settle()
            after = [one.client.connections for one in others]
            assert after == before, f"{fault} of shard {number} disconnected others"
            time.sleep(chance.random() * PAUSE)
    longest = max(one.longest_away for one in campaign.fleet)
    messages = sum(len(publisher.acknowledged) for publisher in campaign.publishers)
    print(f"faults {faults}, {messages:,} messages, at most {longest:.1f} s without a connection")
