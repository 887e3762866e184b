"""Throughput from some publishers to one subscriber, with bounded windows."""

from __future__ import annotations

import contextlib
import selectors
import time

import psutil

from tests.benchmarks import frames
from tests.benchmarks.channel import BrokerGone, Channel
from tests.benchmarks.tally import Tally

SUBSCRIBER = "bench-subscriber"
STALL = 3.0
"""Seconds without any message received after which the rest counts as lost."""


class Publisher:
    """A publishing client: its packets and its progress."""

    def __init__(self, channel: Channel, stream: bytearray, size: int, qos: int) -> None:
        self.channel, self.stream, self.size, self.qos = channel, stream, size, qos
        self.total = len(stream) // size
        self.sent = 0
        self.acked = 0

    def publish(self, count: int) -> int:
        """Put up to `count` further messages in the send buffer. Return their number."""
        count = min(count, self.total - self.sent)
        self.channel.out += memoryview(self.stream)[self.sent * self.size : (self.sent + count) * self.size]
        self.sent += count
        return count

    def take(self, data: bytes) -> None:
        """Read acknowledgements, and answer PUBREC with PUBREL."""
        at, step = 0, frames.HANDSHAKE_SIZE
        while len(data) - at >= step:
            kind = data[at]
            count = frames.run_of(data, at, bytes((kind, 2)), step)
            if kind == frames.PUBREC and self.qos == 2:
                self.channel.out += frames.answers(frames.PUBREL, data, at + 2, step, count)
            elif kind == (frames.PUBACK if self.qos == 1 else frames.PUBCOMP) and count:
                self.acked += count
            else:
                raise BrokerGone(f"sent a publisher {data[at : at + 4].hex()}")
            at += count * step
        self.channel.rest = data[at:]


class Subscriber:
    """The receiving client, which counts messages and acknowledges those of a read in one send."""

    def __init__(self, channel: Channel, shape: frames.Shape, tally: Tally) -> None:
        self.channel, self.shape, self.tally = channel, shape, tally
        self.released = 0
        self._prefix, self._size, self._stamps = shape.prefix, shape.size, shape.stamps

    def take(self, data: bytes) -> None:
        """Read PUBLISH and PUBREL packets."""
        at, end = 0, len(data)
        while at < end:
            if data[at] == frames.PUBREL:
                if not (count := frames.run_of(data, at, b"\x62\x02", frames.HANDSHAKE_SIZE)):
                    break
                self._answer(frames.PUBCOMP, data, at + 2, frames.HANDSHAKE_SIZE, count)
                self.released += count
                at += count * frames.HANDSHAKE_SIZE
                continue
            # A repeated message has its DUP flag set. Such runs are counted and acknowledged in the same way.
            prefix = bytes((data[at],)) + self._prefix[1:]
            if data[at] & ~frames.DUP_FLAG != self._prefix[0]:
                raise BrokerGone(f"sent the subscriber {data[at : at + 8].hex()}")
            if not (count := frames.run_of(data, at, prefix, self._size)):
                if end - at >= self._size:
                    raise BrokerGone(f"changed the length of a message: {data[at : at + 8].hex()}")
                break
            size = count * self._size
            self.tally.add(self._stamps.iter_unpack(data[at : at + size]))
            if self.shape.qos:
                kind = frames.PUBACK if self.shape.qos == 1 else frames.PUBREC
                self._answer(kind, data, at + self.shape.packet_id_at, self._size, count)
            at += size
        self.channel.rest = data[at:]

    @property
    def delivered(self) -> int:
        """The number of messages whose delivery is complete. At QoS 2 PUBREL completes it."""
        return min(self.released, self.tally.distinct) if self.shape.qos == 2 else self.tally.distinct

    def _answer(self, kind: int, data: bytes, start: int, step: int, count: int) -> None:
        self.channel.out += frames.answers(kind, data, start, step, count)


class CpuClock:
    """CPU seconds of the server (with its children), of this process, and of all other processes."""

    def __init__(self, pid: int) -> None:
        server = psutil.Process(pid)
        self._family = [server, *server.children(recursive=True)]

    def read(self) -> tuple[float, float, float]:
        """Return the seconds so far of server, generator and others."""
        server = 0.0
        for process in self._family:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                server += times.user + times.system
        own = time.process_time()
        system = psutil.cpu_times()
        busy = (
            sum(system) - system.idle - system.iowait - system.guest - system.guest_nice
        )  # user time includes that of guests
        return server, own, busy - server - own


class Load:
    """One measured run."""

    def __init__(
        self,
        *,
        port: int,
        pid: int,
        qos: int,
        durable: bool,
        messages: int,
        publishers: int,
        payload: int,
        window: int,
        backlog: int,
        seconds: float,
    ) -> None:
        self.port, self.qos, self.durable = port, qos, durable
        self.window, self.backlog, self.seconds = window, backlog, seconds
        self.shape = frames.Shape(qos, payload)
        self.count = publishers
        self.each = max(1, messages // publishers)
        self.tally = Tally(publishers)
        self.cpu = CpuClock(pid)
        self.selector = selectors.DefaultSelector()
        self.publishers: list[Publisher] = []
        self.stopping = False

    def run(self) -> dict[str, object]:
        """Connect, load the broker, disconnect, and return the figures."""
        channels: list[Channel] = []
        try:
            channels.append(Channel(self.port, SUBSCRIBER, clean=not self.durable))
            channels[0].subscribe("bench/#", self.qos)
            self.subscriber = Subscriber(channels[0], self.shape, self.tally)
            for number in range(self.count):
                channels.append(Channel(self.port, f"bench-publisher-{number}"))
                stream = self.shape.stream(number, self.each)
                self.publishers.append(Publisher(channels[-1], stream, self.shape.size, self.qos))
            clients: list[Publisher | Subscriber] = [self.subscriber, *self.publishers]
            for client in clients:
                client.channel.socket.setblocking(False)
                self.selector.register(client.channel.socket, selectors.EVENT_READ, client)
            return self._measure()
        finally:
            for channel in channels:
                channel.close()
            if self.durable:  # leave no stored session for the next run
                with contextlib.suppress(OSError, BrokerGone):
                    Channel(self.port, SUBSCRIBER, clean=True).close()

    def _measure(self) -> dict[str, object]:
        before = self.cpu.read()
        started = last = time.perf_counter()
        failure = ""
        try:
            last = self._exchange(started)
        except (BrokerGone, OSError) as error:
            failure = f"the broker {error}" if isinstance(error, BrokerGone) else str(error)
            last = time.perf_counter()
        took = max(last - started, 1e-9)
        # Until now, not for `took`: a wait for messages that never arrived is included.
        until = max(time.perf_counter() - started, 1e-9)
        server, own, others = (100 * (b - a) / until for a, b in zip(before, self.cpu.read(), strict=True))
        sent = sum(p.sent for p in self.publishers)
        return {
            "rate": self.tally.distinct / took,
            "seconds": took,
            "sent": sent,
            "received": self.tally.received,
            "lost": self.tally.lost(sent),
            "duplicates": self.tally.duplicates,
            "disordered": self.tally.disordered,
            "unacknowledged": sum(p.sent - p.acked for p in self.publishers) if self.qos else 0,
            "server_cpu": server,
            "generator_cpu": own,
            "other_cpu": max(0.0, others),
            "failure": failure,
        }

    def _exchange(self, started: float) -> float:
        """Send and receive until everything has arrived or time is up. Return the time of the last receipt."""
        last = started
        deadline = started + self.seconds
        self._pump()
        while True:
            events = self.selector.select(0.1)
            now = time.perf_counter()
            before = self.tally.received
            for key, mask in events:
                client = key.data
                if mask & selectors.EVENT_READ and (data := client.channel.receive()):
                    client.take(data)
            if self.tally.received != before:
                last = time.perf_counter()
            self.stopping = self.stopping or now > deadline
            self._pump()
            if self._through() or now - last > STALL:
                return last

    def _pump(self) -> None:
        """Fill the windows, then send the pending bytes of every connection."""
        # Messages count until delivery is complete. mosquitto reads one packet of each client in turn, so several
        # publishers outrun the QoS 2 handshakes of one subscriber, and its list of open handshakes would grow during
        # the run.
        room = self.backlog - sum(p.sent for p in self.publishers) + self.subscriber.delivered
        # At QoS 0 nothing else paces the publishers. Without this wait, each read would send only a few messages.
        if not self.stopping and (self.qos or room >= self.backlog // 4):
            share = room // len(self.publishers)
            for publisher in self.publishers:
                free = share if not self.qos else min(share, self.window - publisher.sent + publisher.acked)
                if free > 0 and len(publisher.channel.out) < 1 << 16:
                    publisher.publish(free)
        clients: list[Publisher | Subscriber] = [self.subscriber, *self.publishers]
        for client in clients:
            channel = client.channel
            if channel.out:
                flushed = channel.flush()
                wanted = selectors.EVENT_READ | (0 if flushed else selectors.EVENT_WRITE)
                if self.selector.get_key(channel.socket).events != wanted:
                    self.selector.modify(channel.socket, wanted, client)

    def _through(self) -> bool:
        """Return whether everything was sent, received and acknowledged."""
        sent = acked = 0
        for publisher in self.publishers:
            if publisher.sent < publisher.total and not self.stopping:
                return False
            sent += publisher.sent
            acked += publisher.acked
        return self.subscriber.delivered >= sent and (not self.qos or acked >= sent)
