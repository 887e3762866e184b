"""The queue of events for the archive: limited, without waits, and consistent after a kill of either process."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.archive.event_queue import PIPE, EventProducer, EventQueue
from bridge.archive.events import ArchiveEvent, Incoming, PublishedEvent, SessionEvent, encode
from bridge.archive.writer import LOCK, ROW_BYTES
from bridge.clock import now_us
from bridge.config.operations import ArchiveConfig, RollConfig
from bridge.telemetry.outcome import Outcome
from tests.helpers.archive import read
from tests.helpers.line_process import suspend
from tests.helpers.patience import PATIENCE, until


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def make(directory: Path) -> Iterator[Callable[..., EventQueue]]:
    queues: list[EventQueue] = []

    def call(*, roll: float = 3600, **values: Any) -> EventQueue:
        queues.append(EventQueue(ArchiveConfig(directory=directory, roll=RollConfig(time=roll), **values)))
        queues[-1].producer().keep(ArchiveEvent(now_us(), Outcome.STARTED))
        return queues[-1]

    yield call
    for queue in queues:
        queue.close(PATIENCE)


def producer(queue: EventQueue) -> EventProducer:
    """Return the first event, which reports the start of the service."""
    return queue._producers[0]


def hand(queue: EventQueue, *topics: str, size: int = 0, by: EventProducer | None = None) -> None:
    """Return an event that results in a row for each of these topics, with payloads of this size."""
    now = now_us()
    publications = [Incoming(topic, bytes(size), 0, 0, False) for topic in topics]
    (by or producer(queue)).add(now, encode(PublishedEvent(now, "p", "", now, {}, publications)), len(topics))


def topics(directory: Path) -> list[str]:
    return [row["topic"] for row in read(directory) if row["direction"] == "in"]


def own(directory: Path) -> list[tuple[str, int]]:
    return [(row["outcome"], row["size"]) for row in read(directory) if row["direction"] == "archive"]


def sent(queue: EventQueue) -> int:
    """Return the rows of batches that the process has and that are not in a finished file."""
    return sum(batch.rows for batch in tuple(queue._batches))


def is_held_up(queue: EventQueue) -> bool:
    """Fill the pipe, so that later events wait for another batch."""
    return queue.child is not None and queue.child.sending and sum(tuple(queue._sizes)) > PIPE + 50 * ROW_BYTES


def kill(queue: EventQueue) -> int:
    """Kill the process of the archive. Return its process identifier."""
    assert queue.child is not None
    number = queue.child.pid
    os.kill(number, signal.SIGKILL)
    return number


def test_submitted_events_are_written_at_the_end(make: Any, directory: Path) -> None:
    queue = make()
    hand(queue, "before")
    queue.start()
    hand(queue, "a", "b", size=10)
    hand(queue, "large", size=500_000)
    hand(queue, "c", size=5)
    assert queue.close(PATIENCE)
    assert topics(directory) == ["before", "a", "b", "large", "c"]
    assert own(directory) == [("started", 0), ("stopped", 0)]
    assert queue.waiting() == 0


def test_memory_is_released_after_writing(make: Any, directory: Path) -> None:
    queue = make(roll=0.01, memory=1024 * 1024)
    queue.start()
    for number in range(3):
        hand(queue, f"{number}", size=900_000)
        until(lambda: queue.waiting() == 0)
    queue.close(PATIENCE)
    assert topics(directory) == ["0", "1", "2"]


def test_events_that_do_not_fit_are_a_gap(make: Any, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    queue = make(memory=1024 * 1024)
    hand(queue, "a", size=900_000)
    start = now_us()
    hand(queue, "b", "c", "d", size=200_000)
    hand(queue, "e", "f", size=900_000)
    queue.start()
    queue.close(PATIENCE)
    assert topics(directory) == ["a"]
    assert own(directory) == [("started", 0), ("gap", 5), ("stopped", 0)]
    (gap,) = (row for row in read(directory) if row["outcome"] == "gap")
    assert start <= int(gap["received"].timestamp() * 1_000_000 + 0.5) <= now_us()
    assert "5 rows are missing" in caplog.text and "archive.memory" in caplog.text


def test_a_process_that_does_not_read_does_not_block(make: Any, directory: Path) -> None:
    queue = make(memory=4 * 1024 * 1024)
    queue.start()
    until(lambda: queue.child is not None)
    suspend(queue.child.pid)
    for number in range(100):
        if number == 30:  # before the memory is full: the gap is reported at once, when the process reads again
            until(lambda: is_held_up(queue))
        hand(queue, f"{number}", size=100_000)
    assert producer(queue).missed > 50 and queue.waiting() <= 4 * 1024 * 1024
    assert is_held_up(queue)
    os.kill(queue.child.pid, signal.SIGCONT)
    queue.close(PATIENCE)
    accepted_count = 100 - producer(queue).missed
    assert topics(directory) == [f"{number}" for number in range(accepted_count)]
    assert own(directory) == [("started", 0), ("gap", producer(queue).missed), ("stopped", 0)]


def test_a_killed_process_is_replaced(make: Any, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    queue = make(roll=0.05)
    producer(queue).keep(SessionEvent(now_us(), Outcome.SUBSCRIBED, "c", "anna", True, [("a/#", 1)], now_us()))
    queue.start()
    hand(queue, "on disk")
    until(lambda: topics(directory) == ["on disk"] and not queue._batches)
    suspend(queue.child.pid)
    producer(queue).keep(SessionEvent(now_us(), Outcome.CONNECTED, "d", "", False))
    producer(queue).keep(SessionEvent(now_us(), Outcome.ENDED, "d"))
    hand(queue, "lost", "lost too")
    until(lambda: sent(queue) == 2)
    killed = kill(queue)
    until(lambda: queue.child.pid != killed)
    hand(queue, "of the next one")
    queue.close(PATIENCE)
    assert topics(directory) == ["on disk", "of the next one"]
    assert own(directory) == [("started", 0), ("gap", 2), ("stopped", 0)]
    sessions = [(row["outcome"], row["client_id"]) for row in read(directory) if row["direction"] == "subscription"]
    again, happened = ("subscribed", "c"), [("connected", "d"), ("ended", "d")]
    assert sessions == [again, again, *happened]  # a process starts with the open sessions
    assert f"(pid {killed}) was ended by SIGKILL and is restarted, and 2 rows were lost" in caplog.text
    assert queue.waiting() == 0


def test_the_start_is_not_lost_if_the_process_is_killed_before_its_first_file(make: Any, directory: Path) -> None:
    queue = make()
    queue.start()
    hand(queue, "a")
    until(lambda: sent(queue) == 1)  # the start may have been sent in a separate batch
    killed = kill(queue)
    until(lambda: queue.child.pid != killed)
    queue.close(PATIENCE)
    assert own(directory) == [("gap", 1), ("started", 0), ("stopped", 0)]


def test_a_process_killed_while_the_service_stops_is_replaced(make: Any, directory: Path) -> None:
    queue = make()
    queue.start()
    hand(queue, "a")
    until(lambda: sent(queue) == 1)
    suspend(queue.child.pid)
    before = len(queue._batches)

    def kill_it() -> None:
        until(lambda: len(queue._batches) > before)  # the end of the service has been sent
        kill(queue)

    killer = threading.Thread(target=kill_it)
    killer.start()
    assert queue.close(PATIENCE)
    killer.join()
    assert own(directory) == [("gap", 1), ("started", 0), ("stopped", 0)]


#: A service that submits rows, reports it, and waits to be killed.
SERVICE = """
import sys, time
from pathlib import Path
from bridge.archive.events import ArchiveEvent, Incoming, PublishedEvent, encode
from bridge.clock import now_us
from bridge.archive.event_queue import EventQueue
from bridge.config.operations import ArchiveConfig
from bridge.telemetry.outcome import Outcome
queue = EventQueue(ArchiveConfig(directory=Path(sys.argv[1])))
producer = queue.producer()
producer.keep(ArchiveEvent(now_us(), Outcome.STARTED))
queue.start()
for number in range(2000):
    now = now_us()
    publications = [Incoming(str(number), bytes(1000), 0, 0, False)]
    producer.add(now, encode(PublishedEvent(now, "p", "", now, {}, publications)), 1)
while queue._queue or not queue._idle:
    time.sleep(0.001)
print("in the pipe", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_events_in_the_pipe_survive_the_service(directory: Path, number: int) -> None:
    command = [sys.executable, "-c", SERVICE, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == b"in the pipe\n"
        (os.kill if number == signal.SIGKILL else os.killpg)(service.pid, number)
    with (directory / LOCK).open("ab") as lock:
        until(lambda: topics(directory) != [])
        fcntl.flock(lock, fcntl.LOCK_EX)  # the lock is released when everything is written
    assert topics(directory) == [str(number) for number in range(2000)]
    assert own(directory) == [("started", 0)]  # and not that it was stopped
    assert not list(directory.glob("date=*/hour=*/.*"))


def test_several_threads_submit_events(make: Any, directory: Path) -> None:
    queue = make(memory=1024 * 1024)
    producers = [queue.producer() for _ in range(3)]

    def work(number: int) -> None:
        for count in range(200):
            hand(queue, f"{number}/{count}", by=producers[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own_producer in producers[:2]:
        hand(queue, "x", "y", size=500_000, by=own_producer)
    queue.start()
    queue.close(PATIENCE)
    own_topics = topics(directory)
    for number in range(3):
        assert [topic for topic in own_topics if topic.startswith(f"{number}/")] == [
            f"{number}/{count}" for count in range(200)
        ]
    assert own(directory) == [("started", 0), ("gap", 2), ("gap", 2), ("stopped", 0)]
    assert queue.waiting() == 0


def test_no_process_runs_before_the_start(make: Any) -> None:
    queue = make()
    assert queue.child is None and queue.close(0)
