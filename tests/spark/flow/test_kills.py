"""Exactly-once delivery of each route when its processes are killed at random moments.

MQBRIDGE_TEST_KILLS is the number of kills, MQBRIDGE_TEST_ROWS the number of messages per route, and MQBRIDGE_TEST_ROADS names
some of the routes. With MQBRIDGE_TEST_CLUSTER=1 (only root) tasks run on a standalone cluster, and executors are killed, too.
Its two workers have separate network and mount namespaces and see neither loopback addresses nor the data directory of the
bridge. pytest -s prints the numbers at the end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset
import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.mq.remote import Put, RemoteConnection, get_many, put_many
from bridge.spark.mqtt.writer import ROW_PROPERTY
from bridge.spark.session import QUICK_JAVA
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mosquitto import Mosquitto, free_port
from tests.helpers.network import Network
from tests.helpers.patience import until, until_at_last
from tests.spark.cluster import executors, start_master, start_worker

KILLS = int(os.environ.get("MQBRIDGE_TEST_KILLS", "4"))
ROWS = int(os.environ.get("MQBRIDGE_TEST_ROWS", "2000"))
CLUSTER = bool(os.environ.get("MQBRIDGE_TEST_CLUSTER"))
#: Interval of messages with a payload that is not JSON, or with a time that is LATENESS seconds late.
BAD, LATE, LATENESS = 50, 70, max(ROWS // 5, 500)
ROADS = ("files", "queue", "topic", "broker", "outward", "windows")
CHOSEN = os.environ.get("MQBRIDGE_TEST_ROADS", ",".join(ROADS)).split(",")
QUEUES = ("FILES", "QUEUE", "QUEUE.OUT", "QUEUE.DEAD", "TOPIC", "TOPIC.OUT", "OUTWARD", "WINDOWS", "SUMS")
SESSION = "kills"
CONFIGURATION = """
queue_manager: {data_directory: $data}
channels: [{name: C, port: 0}]
links: {broker: {host: 127.0.0.1, port: $broker}}
spark:
  conf: {spark.sql.shuffle.partitions: 1, spark.driver.memory: 1g, spark.driver.extraJavaOptions: $java, $conf}
  shared: [$shared]
pipelines:
  files:
    from: {mq: {queue: FILES}}
    select: SELECT text FROM input
    to: {format: parquet, path: $shared/files}
    trigger: 0
    batch: $batch
    checkpoint: $state/files
  queue:
    from: {mq: {queue: QUEUE}}
    schema: {n: int}
    select: SELECT payload:n::int AS n FROM input
    to: {mq: {queue: QUEUE.OUT}}
    dead_letters: {queue: QUEUE.DEAD}
    trigger: 0
    batch: $batch
    checkpoint: $shared/queue
  topic:
    from: {mq: {queue: TOPIC}}
    select: SELECT body FROM input
    to: {mq: {topic: kills/out}}
    trigger: 0
    batch: $small
    checkpoint: $state/topic
  broker:
    from: {mqtt: kills/in, link: broker, options: {clientId: kills, qos: 2}}
    select: SELECT CAST(payload AS STRING) AS text FROM input
    payload: bytes
    to: {archive: $shared/archive}
    trigger: 0
    batch: $batch
    checkpoint: $state/broker
  outward:
    from: {mq: {queue: OUTWARD}}
    select: SELECT body AS payload FROM input
    to: {mqtt: kills/out, link: broker}
    trigger: 0
    batch: $batch
    checkpoint: $shared/outward
  windows:
    from: {mq: {queue: WINDOWS}}
    schema: {ts: timestamp, n: int}
    watermark: {column: ts, delay: 1 s}
    select: |
      SELECT window(ts, '10 seconds').start AS start, count(*) AS rows, sum(payload:n::int) AS total
      FROM input GROUP BY window(ts, '10 seconds')
    to: {mq: {queue: SUMS}}
    late: {archive: $shared/late, window: 10 s}
    trigger: 0
    batch: $batch
    checkpoint: $shared/windows
"""


def listens(address: str, port: int) -> bool:
    """Return whether a process accepts connections at a port."""
    with socket.socket() as connection:
        return not connection.connect_ex((address, port))


def event(number: int, seconds: int = 0) -> bytes:
    """Return events in order, one per second, some of them late."""
    at = 1_767_225_600 + number + seconds - LATENESS * (number % LATE == LATE - 1)
    return json.dumps({"n": number, "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))}).encode()


class Run:
    """`mqbridge pipeline run` as a process, with its lines in a file."""

    def __init__(self, file: Path, lines: Path, *words: str, **variables: str) -> None:
        self.lines = lines
        command = [sys.executable, "-m", "bridge", "pipeline", "run", "--config", str(file), *words]
        with lines.open("wb") as sink:
            self.process = subprocess.Popen(
                command, stderr=sink, start_new_session=True, env={**os.environ, **variables}
            )

    def batches(self) -> int:
        """Return the number of batches that were completed."""
        return self.lines.read_text().count(": batch ")

    def processes(self) -> list[psutil.Process]:
        """Return the driver, its JVM and their children, the driver first."""
        try:
            driver = psutil.Process(self.process.pid)
            return [driver, *driver.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_time(self) -> float:
        """Return the seconds of processor time of all processes."""
        total = 0.0
        for process in self.processes():
            try:
                total += sum(process.cpu_times()[:2])
            except psutil.NoSuchProcess:
                continue
        return total

    def end(self) -> None:
        """Kill the remaining processes."""
        for process in self.processes():
            kill(process)
        self.process.wait()


class Site:
    """A bridge, a broker, an optional cluster, and the messages of all routes."""

    def __init__(self, directory: Path, stack: ExitStack, text: str = CONFIGURATION) -> None:
        self.directory = directory
        self.shared = directory / "shared"
        self.killed: Counter[str] = Counter()
        (directory / "state").mkdir()
        self.mosquitto = Mosquitto(directory)
        self.mosquitto.start()
        stack.callback(self.mosquitto.stop)
        data_directory = directory / "data"
        network = Network(stack) if CLUSTER else None
        self.address = address = network.address if network else "127.0.0.1"
        # With one partition, a cluster of two workers would leave one without work.
        names = {
            "data": data_directory, "broker": self.mosquitto.port,
            "java": f'"{QUICK_JAVA}"', "shared": self.shared,
            "state": directory / "state", "batch": max(ROWS // 20, 100), "small": max(min(ROWS // 20, 5000), 100),
            "conf": f"spark.driver.host: {address}, spark.executor.memory: 512m, spark.cores.max: 2, spark.executor.cores: 1"
            if CLUSTER else "",
        }  # fmt: skip
        for name, value in names.items():
            text = text.replace(f"${name}", str(value))
        self.bridge = BridgeProcess(data_directory, config=text)
        self.bridge.start()
        stack.callback(self.bridge.discard)
        assert self.bridge.config is not None
        self.file = self.bridge.config
        self.master = self._cluster(stack, network) if network else ""

    def _cluster(self, stack: ExitStack, network: Network) -> str:
        port = free_port()
        work = self.directory / "work"
        for directory in (work, self.shared):
            directory.mkdir()
        started = [start_master(network.address, port, work)]
        stack.callback(lambda: [process.kill() for process in started])
        until(lambda: listens(network.address, port))
        master = f"spark://{network.address}:{port}"
        hidden = [self.directory / "data", self.directory / "state"]
        started += [start_worker(master, work, hidden, network) for _ in range(2)]
        return master

    def connect(self) -> RemoteConnection:
        """Return a connection to the queue manager."""
        return RemoteConnection(self.directory / "data", application="kills")

    def fill(self) -> None:
        """Put the messages of all routes."""
        connection = self.connect()
        for name in QUEUES:
            assert connection.command(f"DEFINE QLOCAL('{name}') MAXDEPTH(1000000) DEFPSIST(YES)")[0].ok
        assert connection.command("DEFINE SUB('KILLS') TOPICSTR('kills/out') DEST('TOPIC.OUT')")[0].ok
        events = [event(number) for number in range(ROWS)]
        if "broker" in CHOSEN:
            client = ["-p", str(self.mosquitto.port), "-i", SESSION, "-V", "5", "-c", "-q", "2", "-t", "kills/in"]
            # The session of the pipeline keeps publications that arrive before the pipeline starts.
            subprocess.run(["mosquitto_sub", *client, "-E"], check=True)
            publish(self.mosquitto.port, events)
        if "queue" in CHOSEN:
            put(connection, "QUEUE", [b"no JSON %d" % n if n % BAD == BAD - 1 else event(n) for n in range(ROWS)])
        if "windows" in CHOSEN:
            put(connection, "WINDOWS", [*events, event(ROWS, 86_400)])
        for name in {"files", "topic", "outward"}.intersection(CHOSEN):
            put(connection, name.upper(), events)
        connection.disconnect()

    def kill_one(self, run: Run) -> bool:
        """Kill a process of a random kind. Return whether this ended the run."""
        processes = run.processes()
        java = [process for process in processes if is_java(process)]
        workers = [process for process in processes[1:] if process not in java]
        kinds = {
            "driver": processes[:1],
            "jvm": java,
            "python worker": workers,
            "executor": executors(self.address) if CLUSTER else [],
        }
        kind = random.choice(["bridge", *(name for name, victims in kinds.items() if victims)])
        self.killed[kind] += 1
        if kind == "bridge":
            self.bridge.kill()
            self.bridge.start()
            return False
        kill(random.choice(kinds[kind]))
        if kind in ("driver", "jvm"):
            run.end()
        return kind in ("driver", "jvm")


def kill(process: psutil.Process) -> None:
    """SIGKILL."""
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return


def is_java(process: psutil.Process) -> bool:
    try:
        return process.name() == "java"
    except psutil.NoSuchProcess:
        return False


def publish(port: int, payloads: Sequence[bytes]) -> None:
    """Publish with QoS 2. `mosquitto_pub -l` and paho have no packet identifiers for more than 65,535 at once."""
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for first in range(0, len(payloads), 10_000):
        for published in [client.publish("kills/in", payload, 2) for payload in payloads[first : first + 10_000]]:
            published.wait_for_publish()
    client.disconnect()
    client.loop_stop()


class Received:
    """A subscriber of the broker: payloads with the identifiers of their rows."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self.rows: set[tuple[bytes, str]] = set()
        self.count = 0
        client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        client.on_message = self._arrived
        subscribed = threading.Event()
        client.on_subscribe = lambda *_: subscribed.set()
        client.connect("127.0.0.1", port)
        client.subscribe("kills/out", 1)
        client.loop_start()
        stack.callback(client.loop_stop)
        stack.callback(client.disconnect)
        until(subscribed.is_set)

    def _arrived(self, client: object, userdata: object, message: MQTTMessage) -> None:
        properties: Any = message.properties
        self.rows.add((message.payload, dict(properties.UserProperty)[ROW_PROPERTY]))
        self.count += 1


def put(connection: RemoteConnection, queue: str, bodies: Sequence[bytes]) -> None:
    handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_OUTPUT)
    md = MQMD(Format=b"MQSTR   ", Persistence=cmqc.MQPER_PERSISTENT)
    puts: list[Put] = [(handle, Message(md, body), cmqc.MQPMO_SYNCPOINT) for body in bodies]
    while puts:
        puts = puts[len(put_many(connection, puts)) :]
        connection.commit()
    connection.close(handle)


def take(connection: RemoteConnection, queue: str) -> Iterator[bytes]:
    handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_INPUT_SHARED)
    options = GetOptions(Options=cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
    while True:
        try:
            yield from (message.data for message in get_many(connection, handle, options))
        except MQError as error:
            assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE, error
            return


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


@pytest.mark.slow
@pytest.mark.timeout(300 + 300 * KILLS + ROWS)
def test_nothing_is_lost_or_duplicated_when_processes_are_killed(site: Site) -> None:
    with ExitStack() as stack:
        received = Received(site.mosquitto.port, stack)
        site.fill()
        run_and_kill(site)
        summary = check(site, received)
    kills = f"{sum(site.killed.values())} kills {dict(site.killed)}"
    print(f"\n{kills}; {ROWS} messages on each road ({', '.join(CHOSEN)}); {summary}; cluster: {CLUSTER}")


def run_and_kill(site: Site) -> None:
    """Run the pipelines, kill processes, and let the last run end."""
    words = [*CHOSEN, *(["--master", site.master] if site.master else [])]
    runs, remaining_kills = 0, KILLS
    while remaining_kills:
        run = Run(site.file, site.directory / f"lines-{(runs := runs + 1)}", *words)
        try:
            ended = False
            while remaining_kills and not ended:
                batch_count = run.batches()
                until_at_last(lambda: run.process.poll() is not None or run.batches() > batch_count, run.cpu_time)  # noqa: B023
                time.sleep(random.uniform(0.0, 2.0))
                if run.process.poll() is not None:
                    break
                ended = site.kill_one(run)
                remaining_kills -= 1
        finally:
            run.end()
    while True:
        last = Run(site.file, site.directory / f"lines-{(runs := runs + 1)}", *words, "--once")
        try:
            until_at_last(lambda: last.process.poll() is not None, last.cpu_time)  # noqa: B023
            assert last.process.returncode == 0, last.lines.read_text()
        finally:
            last.end()
        # A run receives from a broker for a minute at most. The rest stays in the session.
        if "broker" not in CHOSEN or not last.batches():
            break


def check(site: Site, received: Received) -> dict[str, int]:
    """Check that each message is at its destination once. Return the numbers of rows."""
    connection = site.connect()
    events = Counter(event(number) for number in range(ROWS))
    numbers: dict[str, int] = {}
    for road, name in (("files", "files"), ("broker", "archive")):
        if road in CHOSEN:
            same(road, Counter(text.encode() for text in table(site.shared / name, "text")), events)
    if "queue" in CHOSEN:
        good = Counter(number for number in range(ROWS) if number % BAD != BAD - 1)
        same("queue", Counter(json.loads(body)["n"] for body in take(connection, "QUEUE.OUT")), good)
        bad = Counter(b"no JSON %d" % number for number in range(BAD - 1, ROWS, BAD))
        same("dead letters", Counter(body[172:] for body in take(connection, "QUEUE.DEAD")), bad)
        numbers["dead letters"] = bad.total()
    if "topic" in CHOSEN:
        published = Counter(body[body.index(b'{"n"') :] for body in take(connection, "TOPIC.OUT"))
        same("topic", published, events)
    if "outward" in CHOSEN:
        # At least once. Receivers recognize the publications of a repeated batch by the identifiers of their rows.
        until_at_last(lambda: len(received.rows) >= ROWS, lambda: received.count)
        same("outward", Counter(payload for payload, _ in received.rows), events)
        numbers["published again"] = received.count - ROWS
    if "windows" in CHOSEN:
        # Each event is in a window or late. The last one, a day later, has closed all windows except its own.
        windows = [json.loads(body) for body in take(connection, "SUMS")]
        assert len({window["start"] for window in windows}) == len(windows)
        late = [json.loads(body)["n"] for body in table(site.shared / "late", "body")]
        assert len(late) == len(set(late))
        counted = sum(window["rows"] for window in windows)
        assert counted + len(late) == ROWS, (counted, len(late))
        assert sum(window["total"] for window in windows) + sum(late) == sum(range(ROWS))
        numbers |= {"windows": len(windows), "late": len(late)}
    until(lambda: all(depth(connection, name) == 0 for name in ("FILES", "QUEUE", "TOPIC", "OUTWARD", "WINDOWS")))
    return numbers


def same(road: str, rows: Counter[Any], expected: Counter[Any]) -> None:
    """Check the rows of a route. The error has the numbers of lost and duplicated rows."""
    assert rows == expected, (road, (expected - rows).total(), (rows - expected).total())


def table(directory: Path, column: str) -> list[str]:
    """Return a column of all Parquet files of a directory."""
    if not directory.exists():
        return []
    values: list[str] = (
        pyarrow.dataset.dataset(directory, format="parquet").to_table(columns=[column])[column].to_pylist()
    )
    return values


def depth(connection: RemoteConnection, queue: str) -> int:
    return int(connection.command(f"DISPLAY QLOCAL('{queue}') CURDEPTH")[0].objects[0]["CURDEPTH"])
