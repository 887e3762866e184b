"""Messages per second through a mapping, compared with mosquitto's own bridge (mosquitto to mosquitto).

    python -m tests.benchmarks.mapping [--messages 30000] [--rounds 3]

All ways take turns in each round. Publisher and subscriber are the same for each: the packets are encoded beforehand,
and the subscriber uses QoS 0 and only counts bytes. So the figures are those of the way between them.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bridge.mq.mqi import MQOD
from bridge.mq.remote import RemoteConnection
from bridge.mqtt.writer import encode_publish, encode_topic
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.benchmarks import frames
from tests.benchmarks.servers import Bridge, Mosquitto, Server

TARGET = 0.5
"""Target for a mapping, as a multiple of mosquitto's own bridge at the same QoS."""
MOSQUITTO = "mosquitto → mosquitto"
LINK_TO_QUEUE, QUEUE_TO_LINK, THROUGH = "link → queue", "queue → link", "link → local topic → link"
LINK_TO_TOPIC, TOPIC_TO_LINK = "link → local client", "local client → link"
WAYS = (MOSQUITTO, LINK_TO_QUEUE, QUEUE_TO_LINK, LINK_TO_TOPIC, TOPIC_TO_LINK, THROUGH)
TOPIC = "b/x"
LOOK = 0.02
"""Seconds between checks of the progress. A check of a queue costs the bridge time."""
STALL = 20.0
"""Seconds without any progress after which a measurement is given up."""


@dataclass(frozen=True)
class Figure:
    """The figures of one way at one QoS: the median of its rounds."""

    way: str
    qos: int
    rate: float
    rates: tuple[float, ...]
    #: ratio to mosquitto's own bridge at this QoS: the median of the ratios within each round
    ratio: float


class Source(Mosquitto):
    """A mosquitto that receives the publications, and optionally forwards them to another mosquitto."""

    def __init__(self, target: Server | None = None) -> None:
        super().__init__()
        self._target = target

    def command(self) -> list[str]:
        words = super().command()
        if self._target is not None:
            with Path(words[-1]).open("a") as config:
                for qos in (0, 1):
                    config.write(
                        f'connection way{qos}\naddress 127.0.0.1:{self._target.port}\ntopic b/# out {qos} {qos}/ ""\n'
                        "notifications false\ntry_private true\n"
                    )
        return words


class MappingBridge(Bridge):
    """The bridge with a mapping for each way and QoS."""

    def __init__(self, source: Server, target: Server) -> None:
        super().__init__()
        self._source, self._target = source, target

    def command(self) -> list[str]:
        # The queue of a way is filled in one unit of work.
        (self.folder / "queues.mqsc").write_text(
            "ALTER QMGR MAXUMSGS(999999)\n"
            + "".join(f"DEFINE QLOCAL({queue}{qos}) MAXDEPTH(9999999)\n" for queue in ("IN", "OUT") for qos in (0, 1))
        )
        lines = [
            "queue_manager: {scripts: [queues.mqsc], data_directory: data}",
            "channels: [{name: PLAIN, port: 0}]",
            "links:",
            f"  source: {{host: 127.0.0.1, port: {self._source.port}}}",
            f"  target: {{host: 127.0.0.1, port: {self._target.port}}}",
            "mappings:",
        ]
        for qos, guarantee in ((0, "at-most-once"), (1, "at-least-once")):
            ways = {
                "in": (f"{{mqtt: {qos}/q/#, link: source}}", f"{{queue: IN{qos}}}"),
                "out": (f"{{queue: OUT{qos}}}", f"{{mqtt: {TOPIC}, link: target}}"),
                "arrival": (f"{{mqtt: {qos}/a/#, link: source}}", f"{{topic: {TOPIC}}}"),
                "departure": (f"{{topic: d{qos}}}", f"{{mqtt: {TOPIC}, link: target}}"),
                "there": (f"{{mqtt: {qos}/t/#, link: source}}", f"{{topic: t{qos}}}"),
                "back": (f"{{topic: t{qos}}}", f"{{mqtt: {TOPIC}, link: target}}"),
            }
            for name, (where, to) in ways.items():
                lines.append(f"  {name}{qos}: {{from: {where}, to: {to}, guarantee: {guarantee}}}")
        (self.folder / "bridge.yaml").write_text("\n".join(lines) + "\n")
        return [super().command()[0], "run", str(self.folder / "bridge.yaml")]

    @property
    def data(self) -> Path:
        return self.folder / "data"


def connected(port: int, name: str) -> socket.socket:
    """Return an MQTT 3.1.1 connection after its CONNACK."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(frames.connect(name, clean=True))
    if sock.recv(4) != b"\x20\x02\x00\x00":
        raise RuntimeError(f"the broker at port {port} refused {name}")
    return sock


def publish(port: int, topic: str, payload: bytes, qos: int, count: int) -> None:
    """Send this many publications as fast as the broker reads them."""
    sock = connected(port, "bench-publisher")

    def drain() -> None:
        while sock.recv(1 << 16):
            pass

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    encoded = encode_topic(topic)
    packets = b"".join(
        encode_publish(encoded, payload, qos, False, False, number % 65_535 + 1 if qos else 0)
        for number in range(count)
    )
    sock.sendall(packets)
    sock.shutdown(socket.SHUT_WR)
    reader.join(STALL)
    sock.close()


class Counter(threading.Thread):
    """A subscriber with QoS 0 that counts messages. All packets have the same length."""

    def __init__(self, port: int, size: int) -> None:
        super().__init__(daemon=True)
        self._sock = connected(port, "bench-subscriber")
        self._sock.sendall(frames.subscribe(1, TOPIC, 0))
        self._sock.recv(5)
        self._size, self._bytes = size, 0

    def run(self) -> None:
        try:
            while data := self._sock.recv(1 << 18):
                self._bytes += len(data)
        except OSError:
            pass  # closed by `close`

    @property
    def count(self) -> int:
        return self._bytes // self._size

    def close(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self.join(STALL)
        self._sock.close()


class Site:
    """Two running mosquitto brokers, and the bridge between them."""

    def __init__(self, messages: int, payload: int) -> None:
        self.messages, self.payload = messages, b"x" * payload
        self.target = Mosquitto()
        self.target.start()
        self.source = Source(self.target)
        self.source.start()
        self.bridge = MappingBridge(self.source, self.target)
        self.bridge.start()
        self._application = RemoteConnection(self.bridge.data, application="bench")
        self._size = len(encode_publish(encode_topic(TOPIC), self.payload, 0, False, False, 0))

    def close(self) -> None:
        for server in (self.bridge, self.source, self.target):
            server.stop()

    def measure(self, way: str, qos: int) -> float:
        """Return messages per second. Raises RuntimeError."""
        if way == LINK_TO_QUEUE:
            queue = f"IN{qos}"
            handle = self._application.open(MQOD(ObjectName=queue), cmqc.MQOO_INQUIRE)
            before = self._depth(handle)
            rate = self._timed(
                lambda: publish(self.source.port, f"{qos}/q/x", self.payload, qos, self.messages),
                lambda: self._depth(handle) - before,
            )
            self._application.close(handle)
            self._application.command(f"CLEAR QLOCAL({queue})")
            return rate
        counter = Counter((self.bridge if way == LINK_TO_TOPIC else self.target).port, self._size)
        counter.start()
        try:
            if way == QUEUE_TO_LINK:
                self._fill(f"OUT{qos}", qos)
                return self._timed(self._application.commit, lambda: counter.count)
            source, topic = {
                MOSQUITTO: (self.source, f"{qos}/{TOPIC}"),
                LINK_TO_TOPIC: (self.source, f"{qos}/a/x"),
                TOPIC_TO_LINK: (self.bridge, f"d{qos}"),
                THROUGH: (self.source, f"{qos}/t/x"),
            }[way]
            return self._timed(
                lambda: publish(source.port, topic, self.payload, qos, self.messages), lambda: counter.count
            )
        finally:
            counter.close()

    def _depth(self, handle: int) -> int:
        (depth,), _ = self._application.inquire(handle, (cmqc.MQIA_CURRENT_Q_DEPTH,))
        return depth

    def _fill(self, queue: str, qos: int) -> None:
        """Put the messages in an open unit of work."""
        handle = self._application.open(MQOD(ObjectName=queue), cmqc.MQOO_OUTPUT)
        persistence = cmqc.MQPER_PERSISTENT if qos else cmqc.MQPER_NOT_PERSISTENT
        for _ in range(self.messages):
            message = Message(MQMD(Persistence=persistence), self.payload)
            self._application.put(handle, message, cmqc.MQPMO_SYNCPOINT)
        self._application.close(handle)

    def _timed(self, begin: Callable[[], object], count: Callable[[], int]) -> float:
        start = time.perf_counter()
        sender = threading.Thread(target=begin, daemon=True)
        sender.start()
        if begin == self._application.commit:
            sender.join()
        mapped_count, since = 0, time.perf_counter()
        while mapped_count < self.messages:
            time.sleep(LOOK)
            now = count()
            if now != mapped_count:
                mapped_count, since = now, time.perf_counter()
            elif time.perf_counter() - since > STALL:
                raise RuntimeError(f"{mapped_count} of {self.messages} messages have come")
        took = since - start
        sender.join(STALL)
        return self.messages / took


def run(messages: int, rounds: int, payload: int, say: Callable[[str], None]) -> list[Figure]:
    """Measure all ways in turn, for this many rounds. Raises ServerUnavailable and RuntimeError."""
    rates: dict[tuple[str, int], list[float]] = {}
    site = Site(messages, payload)
    try:
        for number in range(1, rounds + 1):
            for qos in (0, 1):
                for way in WAYS:
                    rate = site.measure(way, qos)
                    rates.setdefault((way, qos), []).append(rate)
                    say(f"round {number}  QoS {qos}  {way:<26}  {rate:>9,.0f}/s")
    finally:
        site.close()
    return [
        Figure(
            way, qos, statistics.median(way_rates), tuple(way_rates),
            statistics.median(rate / other for rate, other in zip(way_rates, rates[MOSQUITTO, qos], strict=True)),
        )
        for (way, qos), way_rates in rates.items()
    ]  # fmt: skip


def table(figures: list[Figure]) -> Table:
    """Return the table to print."""
    title = "Messages per second through a mapping, compared with mosquitto's own bridge (persistence false)"
    out = Table(title=title, title_justify="left")
    out.add_column("QoS")
    out.add_column("way")
    for name in ("messages/s", "lowest–highest", "× mosquitto", f"target {TARGET:g} ×"):
        out.add_column(name, justify="right")
    for figure in figures:
        met = "" if figure.way == MOSQUITTO else "met" if figure.ratio >= TARGET else "not met"
        spread = f"{min(figure.rates):,.0f}–{max(figure.rates):,.0f}"
        out.add_row(str(figure.qos), figure.way, f"{figure.rate:,.0f}", spread, f"{figure.ratio:.2f}", met)
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--payload", type=int, default=100)
    parser.add_argument("--json", type=Path, default=Path("bench-mapping-results.json"))
    options = parser.parse_args()
    console = Console(width=120)
    figures = run(options.messages, options.rounds, options.payload, lambda line: console.print(line, highlight=False))
    console.print(table(figures))
    options.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n")


if __name__ == "__main__":
    main()
