"""Messages per second of the bridge on a remote queue manager, when every MQI call costs a round trip.

The real ibmmq (or pymqi) package runs on the stand-in for IBM's client library (tests/ibm_standin), which adds a delay
to each round trip. It connects to an embedded queue manager in its own process. Each run has its own bridge and queue
manager.

Publications: clients publish with QoS 1 to few topics and to many (like devices with a topic each), with many
publications per unit of work. `--one-by-one` adds runs with one publication per unit. With `--deliver`, an MQ
application without the delay publishes, and the clients receive.

`--against COMMIT` runs the bridge of a commit and the present one in turn, on the same stand-in. Compare the CPU times
of the processes then: a busy machine changes them least.

    python -m tests.benchmarks.remote [--deliver] [--against COMMIT] [--delays-us 0,5000] [--clients 50] [--topics 20,10000]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from bridge.mq.mqi import MQOD
from bridge.mq.remote import RemoteConnection
from bridge.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from bridge.mqtt.reader import Decoder
from bridge.mqtt.writer import encode
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.benchmarks.channel import Channel
from tests.helpers.client_packages import BUILD
from tests.helpers.installed import CLIENT_PACKAGES
from tests.helpers.remote_bridge import STAND_IN

ROOT = Path(__file__).resolve().parents[2]
MQBRIDGE = str(Path(sys.executable).parent / "mqbridge")
HOST = """
queue_manager: {name: QM1, data_directory: data, scripts: [host.mqsc]}
transmission_queue: HOST.XMITQ
channels: []
"""
BRIDGE = """
queue_manager:
  type: ibm
  name: QM1
  library: LIBRARY
  channel: DEV.APP.SVRCONN
  connections: localhost(1414)
  publishers: 4
  removers: REMOVERS
  batch: {messages: MESSAGES}
  asynchronous_puts: ASYNCHRONOUS
channels: [{name: PLAIN, port: 0}]
"""
#: A durable subscription keeps every publication, so acknowledged publications are on the other queue manager's disk.
SCRIPT = """
DEFINE QLOCAL(HOST.XMITQ) USAGE(XMITQ)
DEFINE QLOCAL(KEPT) MAXDEPTH(999999999)
DEFINE SUB('kept') TOPICSTR('bench/#') DEST(KEPT)
"""
#: the configuration, and the number of publications that a client sends before it waits for an acknowledgement
MODES = {
    "batched": ({"MESSAGES": "500", "ASYNCHRONOUS": "true"}, 100),
    "one by one": ({"MESSAGES": "1", "ASYNCHRONOUS": "false"}, 1),
}


@dataclass
class Running:
    """A bridge under load."""

    port: int
    process: psutil.Process
    queue_manager: psutil.Process
    directory: Path

    def cpu(self) -> float:
        """The CPU time of the bridge process, in seconds."""
        return _cpu(self.process)

    def queue_manager_cpu(self) -> float:
        """The CPU time of the queue manager process, in seconds."""
        return _cpu(self.queue_manager)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@dataclass
class Result:
    """One row of the table."""

    code: str
    load: str
    delay_us: int
    #: messages per second
    rate: float
    #: CPU time of the bridge per message, in microseconds
    cpu_us: float
    note: str


@contextmanager
def started(
    command: Sequence[str], config: Path, pattern: str, log: Path, **environment: str
) -> Iterator[tuple[str, int]]:
    """Run `COMMAND run CONFIG` until it logs a line that matches `pattern`. Yield its first group and the process."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*command, "run", str(config)], stdout=sink, stderr=sink, env=os.environ | environment, text=True
        )
    try:
        while (match := re.search(pattern, log.read_text())) is None:
            if process.poll() is not None:
                raise RuntimeError(f"the bridge did not start: {log.read_text()}")
            time.sleep(0.02)
        yield match.group(1), process.pid
    finally:
        process.terminate()
        process.wait(60)


def load(channels: Sequence[Channel], seconds: float, payload: int, window: int, topics: int) -> tuple[int, float]:
    """Publish with QoS 1 from many clients, each with a window. Return (acknowledged, seconds)."""
    clients = len(channels)
    for channel in channels:
        channel.socket.setblocking(False)
    body = b"x" * payload
    waiting = dict.fromkeys(channels, 0)
    next_id = dict.fromkeys(channels, 1)
    numbers = {channel: number for number, channel in enumerate(channels)}
    by_socket = {channel.socket: channel for channel in channels}
    rest = dict.fromkeys(channels, 0)
    acknowledged = 0
    start = time.perf_counter()
    until = start + seconds
    while time.perf_counter() < until or any(waiting.values()):
        sending = time.perf_counter() < until
        if time.perf_counter() > until + 60:
            raise RuntimeError("publications stay unacknowledged")
        for channel, count in waiting.items():
            if sending and count <= window // 2:
                packets = bytearray()
                for _ in range(window - count):
                    number = next_id[channel]
                    topic = b"bench/%d" % ((numbers[channel] + number * clients) % topics)
                    length = 2 + len(topic) + 2 + payload
                    assert length < 16_384
                    packets += bytes((0x32, length & 0x7F | 0x80, length >> 7, 0, len(topic))) + topic
                    packets += number.to_bytes(2, "big") + body
                    next_id[channel] = number % 65_535 + 1
                channel.socket.sendall(packets)
                waiting[channel] = window
        readable, _, _ = select.select(list(by_socket), [], [], 0.05)
        for stream in readable:
            channel = by_socket[stream]
            data = stream.recv(65_536)
            if not data:
                raise RuntimeError("the bridge closed a connection")
            count, rest[channel] = divmod(rest[channel] + len(data), 4)
            waiting[channel] -= count
            acknowledged += count
    for channel in channels:
        channel.socket.close()
    return acknowledged, time.perf_counter() - start


@contextmanager
def bridge(options: argparse.Namespace, code: Path, mode: str, delay_us: int, removers: int) -> Iterator[Running]:
    """Run a queue manager and the bridge of a checkout, with an empty directory."""
    with tempfile.TemporaryDirectory(prefix="bench-remote-") as folder:
        directory = Path(folder)
        (directory / "host.mqsc").write_text(SCRIPT)
        (directory / "host.yaml").write_text(HOST)
        text = BRIDGE.replace("LIBRARY", options.library).replace("REMOVERS", str(removers))
        for word, value in MODES[mode][0].items():
            text = text.replace(word, value)
        (directory / "bridge.yaml").write_text(text)
        environment = {
            "LD_LIBRARY_PATH": str(BUILD / "lib64"),
            "PYTHONPATH": f"{code}:{CLIENT_PACKAGES / options.library}",
            "MQI_STANDIN_DELAY_US": str(delay_us),
            "MQBRIDGE_PURE": "1",
        }
        log = directory / "bridge.log"
        host = started(STAND_IN, directory / "host.yaml", r"connect at (\S+mqi\.sock)", directory / "host.log")
        command = [sys.executable, "-P", "-m", "bridge"]
        with host as (place, host_pid):
            environment["MQI_STANDIN"] = f"unix:{place}"
            with started(command, directory / "bridge.yaml", r"127\.0\.0\.1:(\d+)", log, **environment) as (port, pid):
                try:
                    yield Running(int(port), psutil.Process(pid), psutil.Process(host_pid), directory)
                except RuntimeError as error:
                    raise RuntimeError(f"{error}; the end of its log: {log.read_text()[-2000:]}") from error


class Publishing(threading.Thread):
    """An MQ application that publishes to a topic of all clients, and waits for slow clients."""

    def __init__(self, directory: Path, clients: int, payload: int, qos: int) -> None:
        super().__init__(name="MQ application", daemon=True)
        self._connection = RemoteConnection(directory / "data")
        self._clients, self._body = clients, b"x" * payload
        self._md = MQMD(Persistence=cmqc.MQPER_PERSISTENT if qos else cmqc.MQPER_NOT_PERSISTENT)
        #: Number of messages published, number received by the clients, and whether the application should end.
        self.published, self.received, self.ending = 0, 0, False

    def run(self) -> None:
        """Publish, at most 2,000 messages ahead of the clients."""
        topic = self._connection.open(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="deliver"), cmqc.MQOO_OUTPUT)
        options = cmqc.MQPMO_NO_SYNCPOINT | cmqc.MQPMO_NEW_MSG_ID
        while not self.ending:
            if self.published - self.received > 2_000:
                time.sleep(0.001)
                continue
            self._connection.put(topic, Message(self._md, self._body), options)
            self.published += self._clients

    def wait_until_removed(self, queues: Sequence[str]) -> None:
        """Wait until the transmission queues are empty, then disconnect."""
        for name in queues:
            queue = self._connection.open(MQOD(ObjectName=name), cmqc.MQOO_INQUIRE)
            while self._connection.inquire(queue, (cmqc.MQIA_CURRENT_Q_DEPTH,))[0][0]:
                time.sleep(0.01)
        self._connection.disconnect()


def receive(
    channels: Sequence[Channel],
    directory: Path,
    options: argparse.Namespace,
    qos: int,
    cpu: Callable[[], float],
    queues: Sequence[str] = ("SYSTEM.MQTT.TRANSMIT.QUEUE",),
) -> tuple[int, float, float, float]:
    """Subscribe with many clients. Return received messages, seconds until the last one, seconds until MQ had removed
    all, and the CPU time.

    `directory` is that of the queue manager.
    """
    decoders = {}
    for channel in channels:
        channel.subscribe("deliver", qos)
        channel.socket.setblocking(False)
        decoders[channel.socket] = Decoder(server=False)
    application = Publishing(directory, len(channels), options.payload, qos)
    before = cpu()
    application.start()
    start = time.perf_counter()
    until = start + options.seconds
    while application.is_alive() or application.received != application.published:
        application.ending = time.perf_counter() >= until
        if time.perf_counter() > until + 60:
            raise RuntimeError(f"{application.published - application.received} messages were not delivered")
        for stream in select.select(list(decoders), [], [], 0.05)[0]:
            data = stream.recv(262_144)
            if not data:
                raise RuntimeError("the bridge closed a connection")
            answers = bytearray()
            for packet in decoders[stream].feed(data):
                if isinstance(packet, Publish):
                    application.received += 1
                    if packet.qos:
                        assert packet.packet_id is not None
                        answers += encode(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
                elif isinstance(packet, Pubrel):
                    answers += encode(Pubcomp(packet.packet_id))
            if answers:
                stream.sendall(answers)
    application.join()
    delivered = time.perf_counter() - start
    application.wait_until_removed(queues)
    removed = time.perf_counter() - start
    used = cpu() - before
    for channel in channels:
        channel.socket.close()
    return application.received, delivered, removed, used


def deliver(
    options: argparse.Namespace, delay_us: int, clients: int, removers: int, qos: int, name: str, code: Path
) -> Result:
    """Measure deliveries. A delivery counts when the client has the message and MQ has removed it."""
    with bridge(options, code, "batched", delay_us, removers) as running:
        channels = [Channel(running.port, f"bench-{number}") for number in range(clients)]
        count, delivered, removed, cpu = receive(channels, running.directory, options, qos, running.cpu)
    label = f"QoS {qos}, {clients} clients, {removers} removers"
    return Result(name, label, delay_us, count / removed, cpu / count * 1e6, f"{removed - delivered:.2f} s")


def publish(options: argparse.Namespace, delay_us: int, topics: int, mode: str, name: str, code: Path) -> Result:
    """Measure publications. All acknowledged ones must be on the other queue manager."""
    with bridge(options, code, mode, delay_us, 1) as running:
        before, queue_manager = running.cpu(), running.queue_manager_cpu()
        channels = [Channel(running.port, f"bench-{number}") for number in range(options.clients)]
        count, seconds = load(channels, options.seconds, options.payload, MODES[mode][1], topics)
        cpu, queue_manager = running.cpu() - before, running.queue_manager_cpu() - queue_manager
        command = [MQBRIDGE, "mqsc", "display", "QLOCAL(KEPT)", "CURDEPTH", "--json"]
        command += ["--config", str(running.directory / "host.yaml")]
        display = subprocess.run(command, capture_output=True, text=True, check=True)
        depth = json.loads(display.stdout)["CURDEPTH"]
        if depth != count:
            raise RuntimeError(f"{count} publications are acknowledged, {depth} are stored")
        log = running.directory / "bridge.log"
        running.process.terminate()
        psutil.wait_procs([running.process], 30)
        units = sum(map(int, re.findall(r"publications in (\d+) units of work", log.read_text())))
    label = f"{topics} topics" + (", one by one" if mode != "batched" else "")
    note = f"{units:,} units, queue manager {queue_manager / count * 1e6:.1f} µs"
    return Result(name, label, delay_us, count / seconds, cpu / count * 1e6, note)


@contextmanager
def checkouts(commit: str | None) -> Iterator[dict[str, Path]]:
    """Return the bridges to measure: that of a commit, if any, and the present one."""
    if commit is None:
        yield {"present": ROOT}
        return
    with tempfile.TemporaryDirectory(prefix="bench-remote-base-") as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield {commit: Path(folder), "present": ROOT}


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="also run the bridge of this commit, in turn")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--delays-us", type=numbers, default=[0, 2000, 5000], help="added to every round trip")
    parser.add_argument("--clients", type=numbers, default=[50], help="one number for publications")
    parser.add_argument("--topics", type=numbers, default=[10_000, 20])
    parser.add_argument("--removers", type=numbers, default=[32], help="of deliveries")
    parser.add_argument("--qos", type=numbers, default=[0, 1, 2], help="of deliveries")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--payload", type=int, default=100)
    parser.add_argument("--library", choices=("ibmmq", "pymqi"), default="ibmmq")
    parser.add_argument("--json", type=Path, default=Path("bench-remote-results.json"))
    parser.add_argument("--one-by-one", action="store_true", help="also one publication in each unit of work")
    parser.add_argument("--deliver", action="store_true", help="measure deliveries instead of publications")
    options = parser.parse_args()
    runs: list[Callable[[str, Path], Result]] = []
    for delay_us in options.delays_us:
        if options.deliver:
            shapes = itertools.product(options.clients, options.removers, options.qos)
            runs += [partial(deliver, options, delay_us, *shape) for shape in shapes]
        else:
            runs += [partial(publish, options, delay_us, topics, "batched") for topics in options.topics]
            if options.one_by_one:
                runs.append(partial(publish, options, delay_us, options.topics[-1], "one by one"))
    if not options.deliver:
        (options.clients,) = options.clients
    subject = "deliveries" if options.deliver else f"QoS 1 publications of {options.clients} clients"
    title = f"{subject}, {options.library} on the stand-in"
    table = Table(title=title)
    for heading in ("code", "load", "delay", "messages/s", "CPU µs", "removed later" if options.deliver else "units"):
        table.add_column(heading, justify="right")
    results = []
    with checkouts(options.against) as codes:
        for run in runs:
            for _ in range(options.rounds):
                for name, code in codes.items():
                    result = run(name, code)
                    results.append(result)
                    row = (name, result.load, f"{result.delay_us} µs", f"{result.rate:,.0f}", f"{result.cpu_us:.1f}")
                    print(*row, result.note, flush=True)
                    table.add_row(*row, result.note)
    Console(width=120).print(table)
    options.json.write_text(json.dumps([asdict(result) for result in results]))


if __name__ == "__main__":
    main()
