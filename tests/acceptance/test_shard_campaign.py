"""Shards, each an active bridge and a standby, behind HAProxy, while processes and hosts fail.

Nothing acknowledged is lost, QoS 2 arrives once, and each publisher's messages are in order. Clients of other shards
keep their connections and get their messages. The members of a shared subscription, which are clients of several
shards, get all messages together. A QoS 2 message reaches a second member only after the first one has lost its
connection.

MQBRIDGE_TEST_SECONDS is the duration, and MQBRIDGE_TEST_SEED repeats the faults. The campaign prints for how long the
clients of affected shards were not served. `pytest -rP` shows the output.
"""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bridge.mqtt.packets import (
    Connack,
    Disconnect,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from tests.helpers.crash_checks import verify
from tests.helpers.exactly_once import DurableSubscriber, Publisher, number_of
from tests.helpers.installed import program
from tests.helpers.line_process import LineProcess
from tests.helpers.network import Network, block, plug_in, require_namespaces, unblock, unplug
from tests.helpers.patience import PATIENCE, until, until_at_last
from tests.helpers.raw_client import ConnectionClosed, RawClient
from tests.helpers.remote_bridge import ROOT, QueueManagerProcess, RemoteBridgeProcess
from tests.helpers.shards import (
    CHECKS,
    LOCAL,
    OF,
    Host,
    ShardProcess,
    Site,
    balanced,
    client_of,
    free_port,
    reachable,
    start_all,
)

SECONDS = float(os.environ.get("MQBRIDGE_TEST_SECONDS", "60"))
#: Seconds between faults, at most.
PAUSE = 3.0
#: Seconds between publications of one client, on average, and of a publisher to a shared subscription.
PACE, PACE_OF_GROUPS = 15.0, 1.0
#: Seconds before a client connects again, at most, and for which it waits for CONNACK.
RETRY, CONNACK_TIMEOUT = 1.0, 5.0

#: Number of shards, and of publishers. Each publisher has a subscriber.
SHARDS_OF_CAMPAIGN, PAIRS = 8, 150
#: Number of shared subscriptions, and of the members of each one.
GROUPS, MEMBERS = 8, 4
#: Seconds after which a client has noticed the loss of its connection, however busy the machine is.
NOTICED = 5.0
#: Heartbeat interval of the channel, in seconds.
HBINT = 5
#: Shards that run the mappings from topics to a queue, and back to topics.
MAPPING_SHARDS = (3, 6)
MAPPINGS = """
mappings:
  collect:
    from: {mqtt: "in/{number}"}
    to: {queue: BETWEEN}
    attributes: {persistence: persistent, properties: {number: "{number}"}}
    shard: 3
  distribute:
    from: {queue: BETWEEN}
    to: {mqtt: "out/{usr.number}"}
    shard: 6
"""
SCRIPT = f"""
DEFINE CHANNEL(DEV.APP.SVRCONN) CHLTYPE(SVRCONN) HBINT({HBINT})
DEFINE QLOCAL(BETWEEN)
"""


class DeviceThread(threading.Thread):
    """A client that works in its own thread until it is stopped, and reconnects after each loss."""

    def __init__(
        self,
        client: Publisher | DurableSubscriber,
        shard: int,
        passes: frozenset[int],
        port: int,
        ending: threading.Event,
    ) -> None:
        """`shard` serves the client. `passes` are the shards on which its progress depends."""
        super().__init__(daemon=True)
        self.client, self.shard, self.passes, self._port, self._ending = client, shard, passes, port, ending
        self._chance = random.Random(client.client_id)
        #: time.monotonic() since when there is no connection, or None
        self.away_since: float | None = None
        #: seconds from the last loss of the connection to CONNACK
        self.seconds_away = 0.0
        #: time.monotonic() at which the client was served again: a subscriber is connected, a publication is acknowledged
        self.served_at = 0.0
        self._is_new = True
        #: time.monotonic() of the last turn in which something was acknowledged or delivered
        self.progress = 0.0
        #: whether a publisher starts new messages
        self.publishes = True
        #: seconds between publications, on average
        self.pace = PACE
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    self.client.connect(self._port)
                    self.connected()
                    while not self._ending.is_set():
                        self.step()
                except (ConnectionClosed, ConnectionError, TimeoutError):
                    self.away_since = self.away_since or time.monotonic()
                    self._ending.wait(RETRY * self._chance.random())
                self.client.close()
        except BaseException as failure:
            self.failure = failure

    def connected(self) -> None:
        """Note that the client is connected."""
        if self.away_since is not None:
            self.seconds_away = time.monotonic() - self.away_since
        self.away_since, self._is_new = None, True

    def step(self) -> None:
        """Take one turn. Raises ConnectionClosed."""
        raise NotImplementedError


class PublisherThread(DeviceThread):
    """A publisher, which publishes a few messages at a time, and at once after it has connected."""

    client: Publisher

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: number of a message -> time.monotonic() when it was sent
        self.sent: dict[int, float] = {}
        #: set to make it publish now
        self.due = threading.Event()

    def step(self) -> None:
        client = self.client
        if client.finished:
            if not self._is_new:
                self.due.wait(self.pace * (0.5 + self._chance.random()))
            self.due.clear()
            if not self.publishes:
                self._is_new = False
                return
            first = client.count
            client.count += self._chance.randint(1, 3)
            self.sent.update(dict.fromkeys(range(first, client.count), time.monotonic()))
        before = len(client.acknowledged)
        with suppress(TimeoutError):
            client.step(1.0)
        if len(client.acknowledged) > before:
            self.progress = time.monotonic()
            if self._is_new:
                self.served_at, self._is_new = self.progress, False


class SubscriberThread(DeviceThread):
    """A subscriber to the messages of a publisher."""

    client: DurableSubscriber

    def __init__(self, source: PublisherThread, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._source = source
        #: time.monotonic() of deliveries, and seconds since they were published
        self.latencies: list[tuple[float, float]] = []

    def connected(self) -> None:
        super().connected()
        self.served_at = time.monotonic()

    def step(self) -> None:
        client, sent = self.client, self._source.sent
        before = len(client.received)
        with suppress(TimeoutError):
            client.step(1.0)
        if len(client.received) > before:
            self.progress = now = time.monotonic()
            self.latencies += [(now, now - sent[number]) for _, number in client.received[before:]]


@dataclass(frozen=True)
class Receipt:
    """A message that a member of a shared subscription received."""

    number: int
    client_id: str
    #: number of the connection
    connection: int
    #: time.monotonic()
    time: float
    #: of the client: number of a connection -> time.monotonic() at which it noticed the end
    ends: dict[int, float]

    @property
    def ended_at(self) -> float:
        """time.monotonic() at which the member noticed the end of the connection. Infinite if it has the connection."""
        return self.ends.get(self.connection, math.inf)


class Group:
    """A shared subscription: its publisher, its members, and all messages that they have received."""

    def __init__(self, source: PublisherThread) -> None:
        self.source = source
        self.members: list[MemberThread] = []
        self.visitor: VisitorThread | None = None
        self.receipts: list[Receipt] = []
        #: time.monotonic() of the last delivery to a member
        self.progress = 0.0

    @property
    def numbers(self) -> set[int]:
        """The numbers of the messages that a member has received."""
        return {receipt.number for receipt in self.receipts.copy()}

    def verify(self) -> list[int]:
        """Check the received messages. Return the numbers of QoS 2 messages that reached several members."""
        missing = self.source.client.acknowledged - self.numbers
        assert not missing, f"{len(missing)} acknowledged messages are lost: {sorted(missing)[:20]}"
        if self.source.client.qos < 2:
            return []
        last: dict[int, Receipt] = {}
        again = []
        for receipt in self.receipts:
            before = last.get(receipt.number)
            if before is not None:
                again.append(receipt.number)
                assert before.ended_at < receipt.time + NOTICED, f"{receipt} after {before}, which had its connection"
            last[receipt.number] = receipt
        return again


class MemberThread(DeviceThread):
    """A member of a shared subscription, with a durable session."""

    client: DurableSubscriber

    def __init__(self, group: Group, *arguments: Any) -> None:
        self.group = group
        #: number of a connection -> time.monotonic() at which its end was noticed
        self.ends: dict[int, float] = {}
        super().__init__(*arguments)

    @property
    def progress(self) -> float:
        """time.monotonic() of the last delivery to any member: members compete."""
        return self.group.progress

    @progress.setter
    def progress(self, _: float) -> None:
        """Ignore the initial value."""

    def connected(self) -> None:
        if self.away_since is not None:
            self.ends[self.client.connections - 1] = self.away_since
        super().connected()
        self.served_at = time.monotonic()

    def step(self) -> None:
        client, group = self.client, self.group
        before = len(client.received)
        try:
            with suppress(TimeoutError):
                client.step(1.0)
        finally:
            now = time.monotonic()
            for _, number in client.received[before:]:
                group.receipts.append(Receipt(number, client.client_id, client.connections, now, self.ends))
                group.progress = now


class VisitorThread(threading.Thread):
    """A client that joins a shared subscription briefly, again and again, with clean sessions."""

    def __init__(self, group: Group, client_id: str, topic_filter: str, port: int, ending: threading.Event) -> None:
        super().__init__(daemon=True)
        self.group, self._client_id, self._filter, self._port, self._ending = (
            group,
            client_id,
            topic_filter,
            port,
            ending,
        )
        self._chance = random.Random(client_id)
        #: number of completed visits
        self.visits = 0
        self._connections = 0
        self._ends: dict[int, float] = {}
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ending.wait(self._chance.random()):
                self._connections += 1
                with suppress(ConnectionClosed, ConnectionError, TimeoutError):
                    self._visit(RawClient(self._port, self._client_id, level=5))
                self._ends[self._connections] = time.monotonic()
        except BaseException as failure:
            self.failure = failure

    def _visit(self, client: RawClient) -> None:
        """Connect, subscribe, unsubscribe and disconnect. Raises ConnectionClosed, ConnectionError or TimeoutError."""
        try:
            client.send(client.packet)
            if client.expect(Connack, CONNACK_TIMEOUT).return_code:
                return
            client.send(Subscribe(1, ((self._filter, 1),)))
            self._receive(client, Suback)
            self._receive(client)
            client.send(Unsubscribe(2, (self._filter,)))
            self._receive(client, Unsuback)
            # Messages that were sent before UNSUBACK are acknowledged. No message follows it.
            self._receive(client)
            self.visits += 1
        finally:
            client.vanish()

    def _receive(self, client: RawClient, until_packet: type[Packet] | None = None) -> None:
        """Receive messages until a packet arrives, or for some time. Raises ConnectionClosed or TimeoutError."""
        deadline = time.monotonic() + (self._chance.random() if until_packet is None else PATIENCE)
        while time.monotonic() < deadline:
            with suppress(TimeoutError):
                client.fill(0.2)
            is_complete = False
            while client.inbox:
                packet = client.inbox.popleft()
                is_complete = is_complete or type(packet) is until_packet
                if type(packet) is Disconnect:
                    raise ConnectionClosed
                if type(packet) is Suback:
                    assert packet.return_codes == (1,), packet
                if type(packet) is Publish:
                    now, group = time.monotonic(), self.group
                    number = number_of(packet.payload)
                    group.receipts.append(Receipt(number, self._client_id, self._connections, now, self._ends))
                    client.send(Puback(packet.packet_id))
            if is_complete:
                return
        if until_packet is not None:
            raise TimeoutError(f"no {until_packet.__name__}")


def subscribed(subscriber: DurableSubscriber, port: int) -> bool:
    """Begin the session of a subscriber, and return whether that succeeded."""
    try:
        subscriber.connect(port)
    except (ConnectionClosed, ConnectionError, TimeoutError):
        return False
    subscriber.close()
    return True


def _is_complete(pair: Sequence[ShardProcess]) -> bool:
    """Return whether one process of a shard is active, and the other one stands by."""
    return {bridge.ready for bridge in pair} == {bridge.stands_by for bridge in pair} == {True, False}


class Campaign:
    """Shards behind HAProxy, and clients that publish and subscribe meanwhile."""

    def __init__(
        self,
        directory: Path,
        site: Site,
        *,
        hosts: Sequence[Host] = (LOCAL, LOCAL),
        of: int = OF,
        pairs: int = 6,
        groups: int = 2,
        config: str = "",
        checks: str = "inter 100ms fall 2",
    ) -> None:
        """`config` is added to the configuration of all bridges. `checks` are the times of HAProxy's health checks."""
        self._ending = threading.Event()
        self.hosts = hosts
        #: of each shard, the process on its preferred host, and its standby
        self.pairs = [
            [
                ShardProcess(site, number, name, of=of, host=hosts[(number + index) % 2], config=config)
                for index, name in enumerate("ab")
            ]
            for number in range(of)
        ]
        self.processes = [process for pair in self.pairs for process in pair]
        self._listen, self._config = free_port(), directory / "haproxy.cfg"
        shipped = (ROOT / "deploy" / "haproxy-shards.cfg").read_text()
        servers = [[(bridge.host.address, bridge.port, bridge.admin) for bridge in pair] for pair in self.pairs]
        self._config.write_text(balanced(shipped, self._listen, free_port(), servers, checks=checks))
        self.devices: list[DeviceThread] = []
        self.publishers: list[Publisher] = []
        self.subscribers: list[DurableSubscriber] = []
        for index in range(pairs):
            self._add_pair(index, of)
        self.groups = [self._add_group(index, of) for index in range(groups)]

    def _add_pair(self, index: int, of: int) -> None:
        """Add a publisher, and a subscriber of the next shard."""
        own, other, turn = index % of, (index + 1) % of, index // of
        passes = {own, other}
        topic = received = f"out/{index}"
        if turn % 4 == 3 and of > max(MAPPING_SHARDS):
            topic = f"in/{index}"
            passes.update(MAPPING_SHARDS)
        publisher = Publisher(client_of(own, f"p{index}-", of), [topic], 0, 1 + turn % 2, window=3)
        subscriber = DurableSubscriber(client_of(other, f"s{index}-", of), received, publisher.qos)
        publisher.level = subscriber.level = 4 + turn // 2 % 2
        publisher.timeout = subscriber.timeout = CONNACK_TIMEOUT
        source = PublisherThread(publisher, own, frozenset({own}), self._listen, self._ending)
        self.devices.append(SubscriberThread(source, subscriber, other, frozenset(passes), self._listen, self._ending))
        self.devices.append(source)
        self.publishers.append(publisher)
        self.subscribers.append(subscriber)

    def _add_group(self, index: int, of: int) -> Group:
        """Add a shared subscription with a publisher, and members of several shards. One of them requests QoS 2."""
        shards = [(index + turn * max(1, of // MEMBERS)) % of for turn in range(MEMBERS)]
        own, topic = (index + 1) % of, f"share/{index}"
        publisher = Publisher(client_of(own, f"g{index}-", of), [topic], 0, 1 + index % 2, window=3)
        publisher.level, publisher.timeout = 4 + index // 2 % 2, CONNACK_TIMEOUT
        source = PublisherThread(publisher, own, frozenset({own}), self._listen, self._ending)
        source.pace = PACE_OF_GROUPS
        self.devices.append(source)
        group = Group(source)
        for turn, shard in enumerate(shards):
            member = DurableSubscriber(client_of(shard, f"m{index}.{turn}-", of), f"$share/group{index}/{topic}", 1)
            member.level, member.timeout = 4 + turn % 2, CONNACK_TIMEOUT
            member.requested_qos = 2 if turn == 0 else 1
            passes = frozenset({own, *shards})
            group.members.append(MemberThread(group, member, shard, passes, self._listen, self._ending))
            self.subscribers.append(member)
        self.devices += group.members
        visitor, topic_filter = client_of(own, f"v{index}-", of), f"$share/group{index}/{topic}"
        group.visitor = VisitorThread(group, visitor, topic_filter, self._listen, self._ending)
        return group

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run all processes and clients. At the end of the block, all acknowledged messages must have arrived."""
        try:
            for order in (0, 1):
                start_all([pair[order] for pair in self.pairs])
            until(lambda: all(pair[0].ready for pair in self.pairs), lambda: "no shard is ready")
            with LineProcess([program("haproxy", installer="tests/system-packages.sh"), "-db", "-f", self._config]):
                until(lambda: reachable(self._listen), lambda: "HAProxy does not listen")
                for subscriber in self.subscribers:
                    # Before anything is published, and as soon as HAProxy has found the active bridges.
                    until(partial(subscribed, subscriber, self._listen), lambda: "no subscription")
                for thread in (*self.devices, *self._visitors):
                    thread.start()
                self.settle()
                yield
                self._finish()
        finally:
            self._ending.set()
            for process in self.processes:
                process.discard()

    def _finish(self) -> None:
        """Stop publishing, wait for all acknowledged messages, and verify the received ones."""
        for device in self.devices:
            device.publishes = False
            if isinstance(device, PublisherThread):
                device.due.set()
        until_at_last(
            lambda: not any(self._missing()) or any(device.failure for device in self.devices),
            lambda: [sorted(missing)[:5] for missing in self._missing()],
        )
        self._ending.set()
        threads: list[DeviceThread | VisitorThread] = [*self.devices, *self._visitors]
        for thread in threads:
            thread.join()
            assert thread.failure is None, thread.failure
        for publisher, subscriber in zip(self.publishers, self.subscribers, strict=False):
            verify(subscriber.received, publisher, publisher.qos)
        again = [number for group in self.groups for number in group.verify()]
        count = sum(len(group.numbers) for group in self.groups)
        visits = [visitor.visits for visitor in self._visitors]
        assert all(visits), visits
        print(
            f"{count:,} messages of {len(self.groups)} shared subscriptions, {len(again)} with QoS 2 reached two members."
            f" Visitors joined and left {sum(visits):,} times"
        )

    @property
    def _visitors(self) -> list[VisitorThread]:
        return [group.visitor for group in self.groups if group.visitor is not None]

    def _missing(self) -> list[set[int]]:
        """Return the numbers of the messages that are still on their way, by publisher. {-1} stands for unacknowledged
        ones.
        """
        expected = [
            *zip(self.publishers, (subscriber.numbers for subscriber in self.subscribers), strict=False),
            *((group.source.client, group.numbers) for group in self.groups),
        ]
        return [publisher.acknowledged - numbers if publisher.finished else {-1} for publisher, numbers in expected]

    def settle(self) -> None:
        """Wait until each shard has an active bridge and a standby, all clients stay connected, and messages arrive."""
        until_at_last(
            lambda: all(map(_is_complete, self.pairs)),
            lambda: [[bridge.readiness for bridge in pair] for pair in self.pairs],
        )
        self.wait_for_progress(self.devices)
        until_at_last(
            lambda: self._settled() or any(device.failure for device in self.devices),
            lambda: [(device.client.client_id, device.away_since, device.failure) for device in self.devices],
        )
        assert not any(device.failure for device in self.devices), [
            device.failure for device in self.devices if device.failure
        ]

    def _settled(self) -> bool:
        before = [device.client.connections for device in self.devices]
        time.sleep(1.0)
        after = [device.client.connections for device in self.devices]
        return all(device.away_since is None for device in self.devices) and after == before

    def wait_for_progress(self, devices: Sequence[DeviceThread]) -> None:
        """Wait until each of these clients has sent or received a message that was not yet in progress."""
        # Messages that were in progress may still arrive.
        time.sleep(0.5)
        since = time.monotonic()
        for device in self.devices:
            if isinstance(device, PublisherThread):
                device.due.set()
        until_at_last(
            lambda: (
                all(device.progress > since for device in devices) or any(device.failure for device in self.devices)
            ),
            lambda: [(device.client.client_id, device.away_since) for device in devices if device.progress <= since],
        )

    def active_on(self, host: Host) -> dict[int, ShardProcess]:
        """Return the active bridges on a host, by shard."""
        return {
            number: process
            for number, pair in enumerate(self.pairs)
            for process in pair
            if process.host is host and process.ready
        }


def test_a_rolling_upgrade_disconnects_each_client_once(
    tmp_path: Path, remote: Callable[..., RemoteBridgeProcess]
) -> None:
    campaign = Campaign(tmp_path, Site(tmp_path, remote))
    times: list[float] = []
    with campaign.running():
        before = [device.client.connections for device in campaign.devices]
        for number, pair in enumerate(campaign.pairs):
            standby, active = sorted(pair, key=lambda bridge: bridge.ready)
            standby.restart(signal.SIGTERM)  # with the new version
            active.hand_over()
            campaign.settle()
            # A publisher notices the loss only when it publishes.
            clients = [
                device
                for device in campaign.devices
                if device.shard == number and not isinstance(device, PublisherThread)
            ]
            times += [client.seconds_away for client in clients]
            active.restart(signal.SIGTERM)
            campaign.settle()
        assert [device.client.connections for device in campaign.devices] == [number + 1 for number in before]
    assert min(times) > 0
    print(
        f"the standby accepted {len(times)} clients {statistics.median(times):.1f} s (median), {max(times):.1f} s (longest)"
        " after they were disconnected"
    )


class Faults:
    """Faults of one process or of a host, and how long clients are not served meanwhile.

    A fault is a generator. It yields when the fault has begun, and ends the fault when the clients are served again.
    """

    #: names, and the time in seconds after which clients of affected shards are served again
    OF_A_PROCESS: ClassVar[dict[str, float]] = {
        "kill -9": 6,
        "stop": 6,
        "yield": 6,
        "SIGSTOP": 2 * HBINT + 6,
        "pause": 6,
    }
    OF_A_HOST: ClassVar[dict[str, float]] = {
        "loss of a host": 2 * HBINT + 6,
        "partition of a host": 2 * HBINT + 6,
        "partition from the queue manager": 2 * HBINT + 6,
    }

    def __init__(self, campaign: Campaign, queue_manager: str, chance: random.Random) -> None:
        """`queue_manager` is its address."""
        self._campaign, self._queue_manager, self._chance = campaign, queue_manager, chance
        #: by fault, seconds until a client of an affected shard was served again
        self.affected: dict[str, list[float]] = defaultdict(list)
        #: by fault, seconds from a publication to its delivery that pass no affected shard
        self.latencies: dict[str, list[float]] = defaultdict(list)
        self.counts: dict[str, int] = defaultdict(int)
        #: faults to come. Each occurs once before one of them occurs again.
        self._names: list[str] = []

    def next(self) -> None:
        """Cause a fault, and wait until its effects are over."""
        if not self._names:
            self._names = [*self.OF_A_PROCESS, *self.OF_A_HOST]
            self._chance.shuffle(self._names)
        name = self._names.pop()
        if name in self.OF_A_HOST:
            host = self._chance.choice(self._campaign.hosts)
            active = self._campaign.active_on(host)
            with self._measured(name, frozenset(active)), self._fault_of_host(name, host):
                self._wait_for(frozenset(active))
            self._return()
            return
        number = self._chance.randrange(len(self._campaign.pairs))
        pair = sorted(self._campaign.pairs[number], key=lambda bridge: bridge.ready)
        process = pair[self._chance.random() < 0.8 or name == "yield"]
        affected = frozenset({number} if process is pair[1] else ())
        with self._measured(name, affected), self._fault_of_process(name, process):
            self._wait_for(affected)

    @contextmanager
    def _fault_of_process(self, name: str, process: ShardProcess) -> Iterator[None]:
        if name == "yield":
            process.hand_over()
            yield
        elif name == "pause":
            process.signal(signal.SIGSTOP)
            time.sleep(self._chance.random() * 2)
            process.signal(signal.SIGCONT)
            yield
        elif name == "SIGSTOP":
            process.signal(signal.SIGSTOP)
            try:
                yield
            finally:
                process.signal(signal.SIGCONT)
        else:
            process.end(signal.SIGKILL if name == "kill -9" else signal.SIGTERM)
            yield
            process.start()

    @contextmanager
    def _fault_of_host(self, name: str, host: Host) -> Iterator[None]:
        processes = [process for process in self._campaign.processes if process.host is host]
        if name == "partition from the queue manager":
            block(host.namespace, self._queue_manager)
            try:
                yield
            finally:
                unblock(host.namespace, self._queue_manager)
            return
        unplug(host.namespace)
        if name == "loss of a host":
            for process in processes:
                process.signal(signal.SIGKILL)
        try:
            yield
        finally:
            plug_in(host.namespace)
        if name == "loss of a host":
            for process in processes:
                process.end(signal.SIGKILL)
            start_all(processes)

    def _wait_for(self, shards: frozenset[int]) -> None:
        """Wait until the clients of these shards are served."""
        self._campaign.wait_for_progress([device for device in self._campaign.devices if device.passes & shards])

    @contextmanager
    def _measured(self, name: str, shards: frozenset[int]) -> Iterator[None]:
        """Measure the effects of a fault on the clients of the shards that it affects, and on all others."""
        devices = self._campaign.devices
        affected = [device for device in devices if device.shard in shards]
        others = [device for device in devices if device.shard not in shards]
        before = [device.client.connections for device in others]
        begin = time.monotonic()
        yield
        self._campaign.settle()
        after = [device.client.connections for device in others]
        assert after == before, f"{name} of shards {sorted(shards)} disconnected other clients"
        self.counts[name] += 1
        times = [max(0.0, device.served_at - begin) for device in affected]
        print(f"{name}, shards {sorted(shards)}: at most {max(times, default=0.0):.1f} s", flush=True)
        self.affected[name] += times
        for device in others:
            if isinstance(device, SubscriberThread) and not device.passes & shards:
                self.latencies[name] += [seconds for when, seconds in device.latencies if when > begin]

    def _return(self) -> None:
        """Return the clients to the preferred host of their shard, as an administrator does after the loss of a host."""
        for number, (preferred, other) in enumerate(self._campaign.pairs):
            if not preferred.ready:
                with self._measured("yield", frozenset({number})):
                    other.hand_over()

    def report(self) -> list[str]:
        """Return a line for each kind of fault."""
        lines = []
        expected = self.OF_A_PROCESS | self.OF_A_HOST
        for name, count in self.counts.items():
            times, latencies = self.affected[name] or [0.0], self.latencies[name] or [0.0]
            late = sum(seconds > expected[name] for seconds in times)
            lines.append(
                f"{name}: {count} times. {len(self.affected[name])} clients were served again after"
                f" {statistics.median(times):.1f} s (median), {max(times):.1f} s (longest), {late} of them after more than"
                f" {expected[name]:g} s. Deliveries of other shards took {max(latencies):.1f} s at most"
            )
        return lines


def _prefer(pid: int) -> None:
    """Give all threads of the queue manager a higher priority. Otherwise, they starve among the bridges of 8 shards."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(task.name), -10)


@pytest.mark.slow
@pytest.mark.timeout(3 * SECONDS + 1_200)  # the start takes minutes on a busy machine
def test_faults_of_shards_and_hosts_lose_nothing_and_do_not_affect_others(
    tmp_path: Path, remote: Callable[..., RemoteBridgeProcess]
) -> None:
    require_namespaces()
    seed = int(os.environ.get("MQBRIDGE_TEST_SEED") or random.randrange(1_000_000))
    print(f"MQBRIDGE_TEST_SEED={seed}")
    chance = random.Random(seed)
    with ExitStack() as stack:
        network = Network(stack)
        address = network.second_address()
        hosts = [Host(address_, name, network.address) for name, address_ in (network.namespace() for _ in range(2))]
        manager = QueueManagerProcess(tmp_path / "manager", SCRIPT)
        manager.listen("allow_anonymous_remote: true", "max_connections: 10000", address=address)
        stack.callback(manager.discard)
        settings = f"  probe_interval: {HBINT} s\n  outage_timeout: {HBINT} s\n  publishers: 2\n  removers: 8\n"
        site = Site(tmp_path, remote, queue_manager=manager, settings=settings)
        campaign = Campaign(
            tmp_path,
            site,
            hosts=hosts,
            of=SHARDS_OF_CAMPAIGN,
            pairs=PAIRS,
            groups=GROUPS,
            config=MAPPINGS,
            checks=CHECKS,
        )
        faults = Faults(campaign, address, chance)
        assert manager.process is not None
        _prefer(manager.process.process.pid)
        with campaign.running():
            until_time = time.monotonic() + SECONDS
            while time.monotonic() < until_time:
                faults.next()
                time.sleep(chance.random() * PAUSE)
    publishers = [*campaign.publishers, *(group.source.client for group in campaign.groups)]
    messages = sum(len(publisher.acknowledged) for publisher in publishers)
    print(f"{messages:,} messages of {len(campaign.devices)} clients", *faults.report(), sep="\n")
    for name, times in faults.affected.items():
        assert max(times, default=0.0) < PATIENCE, name
