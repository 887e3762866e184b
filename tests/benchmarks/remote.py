"""The bridge on a queue manager behind a network: messages a second when every MQI call costs a round trip.

The real ibmmq (or pymqi) package runs on the stand-in for IBM's client library (tests/ibm_standin), which adds a delay to
each round trip; behind it is an embedded queue manager in a process of its own. One run compares units of work that hold many
publications with one unit of work for each publication. With `--deliver`, an MQ application without the delay publishes,
and the clients receive with QoS 0, 1 and 2, without and with the delay.

    python -m tests.benchmarks.remote [--deliver] [--delay-us 1000] [--clients 50] [--seconds 5] [--library ibmmq]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

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
from tests.helpers.client_packages import BUILD, PACKAGE_DIRECTORY
from tests.helpers.remote_bridge import STAND_IN

ROOT = Path(__file__).resolve().parents[2]
MQBRIDGE = str(Path(sys.executable).parent / "mqbridge")
#: Publications a second that the project asks for, from 50 clients with 1 ms added to a round trip.
TARGET = 10_000
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
  batch: {messages: MESSAGES}
  asynchronous_puts: ASYNCHRONOUS
channels: [{name: PLAIN, port: 0}]
"""
#: Every publication is kept by a durable subscription: what is acknowledged is on the other queue manager's disk.
SCRIPT = """
DEFINE QLOCAL(HOST.XMITQ) USAGE(XMITQ)
DEFINE QLOCAL(KEPT) MAXDEPTH(999999999)
DEFINE SUB('kept') TOPICSTR('bench/#') DEST(KEPT)
"""
#: words of the configuration, and the publications that a client sends before it waits for an acknowledgement
MODES = {
    "batched": ({"MESSAGES": "500", "ASYNCHRONOUS": "true"}, 100),
    "one by one": ({"MESSAGES": "1", "ASYNCHRONOUS": "false"}, 1),
}


@contextmanager
def started(command: Sequence[str], config: Path, pattern: str, log: Path, **environment: str) -> Iterator[str]:
    """Run `COMMAND run CONFIG`, wait until it logs a line that `pattern` matches, and yield its first group."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*command, "run", str(config)], stdout=sink, stderr=sink, env=os.environ | environment, text=True
        )
    try:
        while (found := re.search(pattern, log.read_text())) is None:
            if process.poll() is not None:
                raise RuntimeError(f"the bridge did not start: {log.read_text()}")
            time.sleep(0.02)
        yield found.group(1)
    finally:
        process.terminate()
        process.wait(30)


def load(port: int, clients: int, seconds: float, payload: int, window: int) -> tuple[int, float]:
    """QoS 1 publications of many clients, each with a window; returns (acknowledged, seconds)."""
    channels = [Channel(port, f"bench-{number}") for number in range(clients)]
    for channel in channels:
        channel.socket.setblocking(False)
    body = b"x" * payload
    waiting = dict.fromkeys(channels, 0)
    next_id = dict.fromkeys(channels, 1)
    topics = {channel: f"bench/{number}".encode() for number, channel in enumerate(channels)}
    by_socket = {channel.socket: channel for channel in channels}
    rest = dict.fromkeys(channels, 0)
    acknowledged = 0
    begun = time.perf_counter()
    until = begun + seconds
    while time.perf_counter() < until or any(waiting.values()):
        sending = time.perf_counter() < until
        if time.perf_counter() > until + 30:
            raise RuntimeError("publications stay unacknowledged")
        for channel, count in waiting.items():
            if sending and count <= window // 2:
                packets = bytearray()
                for _ in range(window - count):
                    topic, number = topics[channel], next_id[channel]
                    length = 2 + len(topic) + 2 + payload
                    assert length < 16_384
                    packets += bytes((0x32, length & 0x7F | 0x80, length >> 7, 0, len(topic))) + topic
                    packets += number.to_bytes(2, "big") + body
                    next_id[channel] = number % 65_535 + 1
                channel.socket.sendall(packets)
                waiting[channel] = window
        readable, _, _ = select.select(list(by_socket), [], [], 0.05)
        for one in readable:
            channel = by_socket[one]
            data = one.recv(65_536)
            if not data:
                raise RuntimeError("the bridge closed a connection")
            count, rest[channel] = divmod(rest[channel] + len(data), 4)
            waiting[channel] -= count
            acknowledged += count
    for channel in channels:
        channel.socket.close()
    return acknowledged, time.perf_counter() - begun


@contextmanager
def bridge(directory: Path, options: argparse.Namespace, mode: str, delay_us: int) -> Iterator[int]:
    """A queue manager and a bridge with an empty directory; yields the bridge's port."""
    (directory / "host.mqsc").write_text(SCRIPT)
    (directory / "host.yaml").write_text(HOST)
    text = BRIDGE.replace("LIBRARY", options.library)
    for word, value in MODES[mode][0].items():
        text = text.replace(word, value)
    (directory / "bridge.yaml").write_text(text)
    environment = {
        "LD_LIBRARY_PATH": str(BUILD / "lib64"),
        "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{PACKAGE_DIRECTORY / options.library}",
        "MQI_STANDIN_DELAY_US": str(delay_us),
    }
    log = directory / "bridge.log"
    with started(STAND_IN, directory / "host.yaml", r"connect at (\S+mqi\.sock)", directory / "host.log") as place:
        environment["MQI_STANDIN"] = f"unix:{place}"
        with started([MQBRIDGE], directory / "bridge.yaml", r"127\.0\.0\.1:(\d+)", log, **environment) as port:
            try:
                yield int(port)
            except RuntimeError as error:
                raise RuntimeError(f"{error}; the end of its log: {log.read_text()[-2000:]}") from error


class Publishing(threading.Thread):
    """An MQ application that publishes to a topic of all clients, as long as they keep up."""

    def __init__(self, directory: Path, clients: int, payload: int, qos: int) -> None:
        super().__init__(name="MQ application", daemon=True)
        self._connection = RemoteConnection(directory / "data")
        self._clients, self._body = clients, b"x" * payload
        self._md = MQMD(Persistence=cmqc.MQPER_PERSISTENT if qos else cmqc.MQPER_NOT_PERSISTENT)
        #: Messages published, and received by the clients; and whether the application is to end.
        self.published, self.received, self.ending = 0, 0, False

    def run(self) -> None:
        """Publish at most 2,000 messages ahead of the clients."""
        topic = self._connection.open(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="deliver"), cmqc.MQOO_OUTPUT)
        options = cmqc.MQPMO_NO_SYNCPOINT | cmqc.MQPMO_NEW_MSG_ID
        while not self.ending:
            if self.published - self.received > 2_000:
                time.sleep(0.001)
                continue
            self._connection.put(topic, Message(self._md, self._body), options)
            self.published += self._clients

    def wait_until_removed(self) -> None:
        """Return when the transmission queue is empty; then disconnect."""
        queue = self._connection.open(MQOD(ObjectName="SYSTEM.MQTT.TRANSMIT.QUEUE"), cmqc.MQOO_INQUIRE)
        while self._connection.inquire(queue, (cmqc.MQIA_CURRENT_Q_DEPTH,))[0][0]:
            time.sleep(0.01)
        self._connection.disconnect()


def receive(port: int, directory: Path, options: argparse.Namespace, qos: int) -> float:
    """Subscribe with many clients; return the messages a second that they receive, until all are removed from MQ."""
    channels = [Channel(port, f"bench-{number}") for number in range(options.clients)]
    decoders = {}
    for channel in channels:
        channel.subscribe("deliver", qos)
        channel.socket.setblocking(False)
        decoders[channel.socket] = Decoder(server=False)
    application = Publishing(directory, options.clients, options.payload, qos)
    application.start()
    begun = time.perf_counter()
    until = begun + options.seconds
    while time.perf_counter() < until or application.received != application.published:
        application.ending = time.perf_counter() >= until
        if time.perf_counter() > until + 60:
            raise RuntimeError(f"{application.published - application.received} messages were not delivered")
        for one in select.select(list(decoders), [], [], 0.05)[0]:
            data = one.recv(262_144)
            if not data:
                raise RuntimeError("the bridge closed a connection")
            answers = bytearray()
            for packet in decoders[one].feed(data):
                if isinstance(packet, Publish):
                    application.received += 1
                    if packet.qos:
                        assert packet.message_id is not None
                        answers += encode(Puback(packet.message_id) if packet.qos == 1 else Pubrec(packet.message_id))
                elif isinstance(packet, Pubrel):
                    answers += encode(Pubcomp(packet.message_id))
            if answers:
                one.sendall(answers)
    application.join()
    application.wait_until_removed()
    seconds = time.perf_counter() - begun
    for channel in channels:
        channel.socket.close()
    return application.received / seconds


def deliver(options: argparse.Namespace) -> None:
    """Measure deliveries without and with the delay, print a table, write JSON."""
    delays = (0, options.delay_us)
    rates: dict[int, list[float]] = {}
    for qos in (0, 1, 2):
        for delay_us in delays:
            with (
                tempfile.TemporaryDirectory(prefix="bench-remote-") as folder,
                bridge(Path(folder), options, "batched", delay_us) as port,
            ):
                rates.setdefault(qos, []).append(receive(port, Path(folder), options, qos))
    table = Table(title=f"Deliveries to {options.clients} clients, {options.library} on the stand-in")
    for heading in ("QoS", *(f"{delay} µs: messages/s" for delay in delays), "ratio"):
        table.add_column(heading, justify="right")
    for qos, (near, far) in rates.items():
        table.add_row(str(qos), f"{near:,.0f}", f"{far:,.0f}", f"{far / near:.2f}")
    Console(width=120).print(table)
    options.json.write_text(
        json.dumps({"parameters": vars(options) | {"json": str(options.json)}, "deliveries": rates})
    )


def measure(options: argparse.Namespace, mode: str) -> dict[str, object]:
    """One bridge, one load."""
    window = MODES[mode][1]
    with tempfile.TemporaryDirectory(prefix="bench-remote-") as folder:
        directory = Path(folder)
        log = directory / "bridge.log"
        with bridge(directory, options, mode, options.delay_us) as port:
            count, seconds = load(port, options.clients, options.seconds, options.payload, window)
            shown = subprocess.run(
                [
                    MQBRIDGE,
                    "mqsc",
                    "display",
                    "QLOCAL(KEPT)",
                    "CURDEPTH",
                    "--json",
                    "--config",
                    directory / "host.yaml",
                ],
                capture_output=True,
                text=True,
                check=True,
            )
            kept = json.loads(shown.stdout)["CURDEPTH"]
            if kept != count:
                raise RuntimeError(f"{count} publications are acknowledged, {kept} are there")
        units = [
            tuple(map(int, numbers))
            for numbers in re.findall(
                r"(\d+) publications in (\d+) units of work, median (\d+), largest (\d+)", log.read_text()
            )
        ]
    return {
        "mode": mode,
        "acknowledged": count,
        "rate": count / seconds,
        "units_of_work": sum(unit[1] for unit in units),
        "median": [unit[2] for unit in units],
        "largest": max((unit[3] for unit in units), default=0),
    }


def main() -> None:
    """Measure both ways, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay-us", type=int, default=1000, help="added to every round trip, in microseconds")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--payload", type=int, default=100)
    parser.add_argument("--library", choices=("ibmmq", "pymqi"), default="ibmmq")
    parser.add_argument("--json", type=Path, default=Path("bench-remote-results.json"))
    parser.add_argument("--deliver", action="store_true", help="measure deliveries instead of publications")
    options = parser.parse_args()
    if options.deliver:
        deliver(options)
        return
    results = [measure(options, mode) for mode in MODES]
    table = Table(
        title=f"QoS 1 publications, {options.clients} clients, {options.delay_us} µs added to a round trip, "
        f"{options.library} on the stand-in"
    )
    for heading in (
        "units of work",
        "acknowledged/s",
        "× one by one",
        "units",
        "publications in one: median",
        "largest",
    ):
        table.add_column(heading, justify="right")
    slowest = float(str(results[-1]["rate"]))
    for result in results:
        rate = float(str(result["rate"]))
        table.add_row(
            str(result["mode"]),
            f"{rate:,.0f}",
            f"{rate / slowest:.1f}",
            str(result["units_of_work"]),
            ", ".join(map(str, result["median"])),  # type: ignore[call-overload]
            str(result["largest"]),
        )
    console = Console(width=120)
    console.print(table)
    reached = float(str(results[0]["rate"]))
    console.print(f"target {TARGET:,}/s: {'met' if reached >= TARGET else 'not met'}")
    options.json.write_text(json.dumps({"parameters": vars(options) | {"json": str(options.json)}, "results": results}))


if __name__ == "__main__":
    main()
