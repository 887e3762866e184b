"""kill -9 of the bridge during publications, and again during their delivery.

Afterwards, no acknowledged message is missing, QoS 2 arrives once, and each topic is in order. The kills happen at random
times. A failing test prints its seed, and `MQBRIDGE_TEST_SEED=n` repeats the times. `make test-slow` sends 10,000 messages.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.archive.audit import audit
from bridge.archive.schema import Row
from bridge.cli.program import program
from bridge.mqtt.packets import Publish
from tests.helpers.archive import Story, read, write
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.crash_checks import Restless, verify
from tests.helpers.exactly_once import DurableSubscriber, Publisher, number_of, repeated
from tests.helpers.patience import PATIENCE, until, until_at_last
from tests.helpers.raw_client import ConnectionClosed

Sizes = dict[str, tuple[int, int]]
#: Messages, and kills in each phase. A remote queue manager uses the same code, with less to lose in a kill.
SMALL: Sizes = {"embedded": (1_500, 2), "ibmmq": (300, 1), "pymqi": (300, 1)}
LARGE: Sizes = {"embedded": (10_000, 4), "ibmmq": (1_000, 2), "pymqi": (1_000, 2)}
# The packages differ in their calls, not in the units of work that a kill interrupts.
pytestmark = pytest.mark.queue_managers("embedded", "ibmmq", slow="pymqi")
CAMPAIGNS = pytest.mark.parametrize(
    ("qos", "sizes"),
    [
        pytest.param(2, SMALL, id="small"),
        pytest.param(1, LARGE, id="QoS 1", marks=pytest.mark.slow),
        pytest.param(2, LARGE, id="QoS 2", marks=pytest.mark.slow),
    ],
)
TOPICS = [f"crash/{number}" for number in range(4)]
#: Maximum delay of the kill, in seconds, after the progress at which it was due: at any step of the bridge's work.
SPREAD = 0.02


@pytest.fixture
def chance() -> Iterator[random.Random]:
    seed = int(os.environ.get("MQBRIDGE_TEST_SEED") or random.randrange(1_000_000))
    print(f"MQBRIDGE_TEST_SEED={seed}")
    yield random.Random(seed)


class Killer:
    """Kill the bridge when progress has reached each of some random marks, while its clients continue."""

    def __init__(self, bridge: BridgeProcess, chance: random.Random, kills: int, length: int) -> None:
        self._bridge = bridge
        self._chance = chance
        self._marks = sorted(chance.sample(range(length // 20, length - length // 20), kills))
        self._timer: threading.Timer | None = None

    def look(self, progress: int) -> None:
        """Schedule a kill of the bridge, if it is due."""
        if self._timer is None and self._marks and progress >= self._marks[0]:
            self._marks.pop(0)
            self._timer = threading.Timer(self._chance.random() * SPREAD, self._bridge.kill)
            self._timer.start()

    def restart(self) -> None:
        """Start the bridge again, after a client has lost its connection."""
        assert self._timer is not None, f"the connection was closed, but the bridge was not killed:\n{self._bridge.log}"
        self._timer.join(PATIENCE)
        self._timer = None
        self._bridge.start()

    @property
    def is_done(self) -> bool:
        return not self._marks and self._timer is None


def drive(
    client: Publisher | DurableSubscriber,
    bridge: BridgeProcess,
    killer: Killer,
    until: Callable[[], bool],
    progress: Callable[[], int],
) -> None:
    """Run one client, over all kills, until it is finished."""
    client.connect(bridge.port)
    while not (until() and killer.is_done):
        killer.look(progress())
        try:
            client.step()
        except ConnectionClosed:
            client.close()
            killer.restart()
            client.connect(bridge.port)
    client.close()


def enlist(bridge: BridgeProcess, qos: int, level: int = 4) -> DurableSubscriber:
    """A durable subscriber that has subscribed and disconnected."""
    subscriber = DurableSubscriber("keeper", "crash/#", qos)
    subscriber.level = level
    subscriber.connect(bridge.port)
    subscriber.close()
    return subscriber


def report(phase: str, bridge: BridgeProcess, publisher: Publisher, received: list[tuple[str, int]]) -> None:
    print(
        f"{phase}: {bridge.kills} kills, {len(publisher.acknowledged)} acknowledged ({publisher.resent} sent again), "
        f"{len(received)} received ({len(repeated(received))} of them again)"
    )


@CAMPAIGNS
def test_kill_while_publishing_and_again_while_delivering(
    own_bridge: BridgeProcess, queue_manager: str, chance: random.Random, qos: int, sizes: Sizes
) -> None:
    """MQTT-3.3.1-1: DUP must be 1 when the bridge attempts to deliver a PUBLISH again."""
    bridge, (count, kills) = own_bridge, sizes[queue_manager]
    # The subscription of an MQ application shows which messages reached the queue manager, independently of delivery.
    bridge.mqsc(
        "DEFINE QLOCAL(AUDIT) DEFPSIST(YES) MAXDEPTH(999999)\nDEFINE SUB(AUDIT) TOPICSTR('crash/#') DEST(AUDIT)\n"
    )
    level = chance.choice((4, 5))
    print(f"protocol level {level}")
    subscriber = enlist(bridge, qos, level)
    publisher = Publisher("sender", TOPICS, count, qos)
    publisher.level = level

    killer = Killer(bridge, chance, kills, count)
    drive(publisher, bridge, killer, lambda: publisher.finished, lambda: len(publisher.acknowledged))
    assert len(publisher.acknowledged) == count
    audit = [
        (str(message["rfh2"][0]["folders"]["mqps"]["Top"]), number_of(message["body"]))
        for message in bridge.messages("AUDIT")
    ]
    report(f"QoS {qos}, publishing", bridge, publisher, audit)
    assert bridge.kills == kills
    verify(audit, publisher, qos)

    killer = Killer(bridge, chance, kills, count)
    drive(subscriber, bridge, killer, lambda: len(subscriber.numbers) >= count, lambda: len(subscriber.received))
    report(f"QoS {qos}, delivered", bridge, publisher, subscriber.received)
    assert bridge.kills == 2 * kills
    verify(subscriber.received, publisher, qos)
    assert subscriber.undeclared == []
    if qos == 2:
        assert len(audit) == len(subscriber.received) == count
    assert bridge.messages("SYSTEM.DEAD.LETTER.QUEUE") == []


class PlainPublisher(Publisher):
    """A publisher whose messages do not change when they are repeated: the audit identifies them by payload."""

    def _packet(self, packet_id: int, number: int, attempt: int) -> Publish:
        packet = super()._packet(packet_id, number, attempt)
        return Publish(packet.topic, b"%d" % number, packet.qos, False, packet.dup, packet_id)


class ClientRecords:
    """The observations of the clients as rows of an archive, one minute per step."""

    def __init__(self) -> None:
        self._story = Story()
        self._minutes = itertools.count()

    def subscribed(self, subscriber: DurableSubscriber) -> None:
        """SUBACK arrived, and the client disconnected."""
        self._story.subscribed(subscriber.client_id, next(self._minutes) * 60, subscriber.topic_filter, subscriber.qos)

    def acknowledged(self, publisher: Publisher) -> None:
        """All acknowledged publications, in the order in which they were published."""
        minute = next(self._minutes) * 60
        for number in sorted(publisher.acknowledged):
            topic = publisher.topics[number % len(publisher.topics)]
            self._story.put(minute, topic, b"%d" % number, publisher.qos, publisher=publisher.client_id)

    def received(self, subscriber: DurableSubscriber, publisher: Publisher) -> None:
        """All messages that the subscriber's application received, in order."""
        minute = next(self._minutes) * 60
        for topic, number in subscriber.received:
            self._story.out(
                minute, subscriber.client_id, topic, b"%d" % number, subscriber.qos, publisher=publisher.client_id
            )

    @property
    def rows(self) -> list[Row]:
        """Return the rows so far."""
        return self._story.rows

    def write(self, directory: Path) -> Path:
        """Write them as an archive."""
        return write(directory, self.rows)


# The audit reads records of clients and of the archive, which do not depend on the queue manager.
@pytest.mark.queue_managers("embedded")
@pytest.mark.slow
def test_the_audit_finds_no_loss(
    new_bridge: Callable[..., BridgeProcess],
    chance: random.Random,
    tmp_path: Path,
) -> None:
    """The audit checks the records of the clients, and the archive of the killed bridge."""
    archive = tmp_path / "archive"
    bridge = new_bridge(config=f"archive: {{directory: {archive}, roll: {{time: 100 ms}}}}").start()
    count, kills = 3_000, 3
    records = ClientRecords()
    subscriber = enlist(bridge, 2)
    records.subscribed(subscriber)
    publisher = PlainPublisher("sender", TOPICS, count, 2)
    killer = Killer(bridge, chance, kills, count)
    drive(publisher, bridge, killer, lambda: publisher.finished, lambda: len(publisher.acknowledged))
    records.acknowledged(publisher)
    killer = Killer(bridge, chance, kills, count)
    drive(subscriber, bridge, killer, lambda: len(subscriber.numbers) >= count, lambda: len(subscriber.received))
    records.received(subscriber, publisher)
    # Each run so far may have been too short for an archive file. This one is not.
    last = PlainPublisher("last", ["crash/last"], 100, 2)
    last.connect(bridge.port)
    subscriber.connect(bridge.port)
    while not last.finished or len(subscriber.received) < count + 100:
        client = subscriber if last.finished else last
        client.step()
    bridge.wait_for_depth("SYSTEM.MQTT.TRANSMIT.QUEUE", 0)
    until(
        lambda: [row["topic"] for row in read(archive) if row["outcome"] == "acknowledged"].count("crash/last") >= 100
    )
    bridge.kill()
    assert bridge.start().stop() == 0, bridge.log

    records_archive = records.write(tmp_path / "seen")
    doctored = write(tmp_path / "doctored", [row for place, row in enumerate(records.rows) if place != count + 7])
    judged = CliRunner().invoke(program, ["audit", "--archive", str(records_archive), "--json"])
    report_of_archive = json.loads(judged.stdout)
    assert (judged.exit_code, report_of_archive["held"]) == (0, True), judged.output
    assert {key: number for key, number in report_of_archive["totals"].items() if number} == {
        "expected": count,
        "delivered": count,
    }
    # Events in the archive's memory at a kill are unknown, so the audit does not report them.
    verdict = audit([archive])
    assert verdict.held, verdict.examples
    assert verdict.gaps and verdict.totals.delivered >= 100
    assert verdict.totals.pending == 0
    # The audit must detect a loss: if one delivery is missing, one message is lost.
    verdict = audit([doctored])
    assert not verdict.held and verdict.totals.lost == 1


@CAMPAIGNS
def test_kill_during_publication_and_delivery(
    own_bridge: BridgeProcess, queue_manager: str, chance: random.Random, qos: int, sizes: Sizes
) -> None:
    """Publication and delivery at the same time, and the clients break their own connections as well."""
    bridge, (total, kills) = own_bridge, sizes[queue_manager]
    count = total // 2
    subscriber = enlist(bridge, qos)
    publisher = Publisher("sender", TOPICS, count, qos, window=30)
    end = threading.Event()
    threads = [Restless(client, bridge, chance.randrange(1_000_000), end) for client in (subscriber, publisher)]
    for thread in threads:
        thread.start()
    marks = sorted(chance.sample(range(count - 100), kills))

    def reached(progress: int) -> bool:
        return len(subscriber.received) >= progress or any(thread.failure for thread in threads)

    try:
        for mark in marks:
            until_at_last(lambda mark=mark: reached(mark), lambda: len(subscriber.received))  # type: ignore[misc]
            bridge.kill()
            bridge.start()
        until_at_last(
            lambda: (publisher.finished and len(subscriber.numbers) == count) or reached(count * 9),
            lambda: len(subscriber.received),
        )
    finally:
        end.set()
        for thread in threads:
            thread.join(PATIENCE)
    for thread in threads:
        if thread.failure is not None:
            raise thread.failure
    cuts = " and ".join(str(thread.cuts) for thread in threads)
    print(f"connections cut by subscriber and publisher: {cuts}")
    report(f"QoS {qos}, both", bridge, publisher, subscriber.received)
    verify(subscriber.received, publisher, qos)
    assert bridge.messages("SYSTEM.DEAD.LETTER.QUEUE") == []
