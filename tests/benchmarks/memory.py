"""Memory of the bridge per idle client and per durable session, the rate of new sessions, and the time of a restart.

    python -m tests.benchmarks.memory

    python -m tests.benchmarks.memory --clients 2000 --sessions 20000

Memory figures are resident bytes, which hardly depend on the load of the machine. Rates do, so the CPU seconds of the
bridge are printed too.
"""

from __future__ import annotations

import argparse
import selectors
import tempfile
import time
from collections.abc import Iterator

import psutil

from tests.benchmarks import frames
from tests.benchmarks.channel import BrokerGone, Channel
from tests.benchmarks.idle import SETTLE, Crowd, resident
from tests.benchmarks.servers import Bridge

#: Subscriptions of each durable session.
FILTERS = 5
#: Sessions that are created at the same time.
CONCURRENT = 50
#: Durable sessions that exist before the first measurement of memory, so that bounded caches are full.
WARM_UP = 2_000


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def session_packets(number: int) -> bytes:
    """Return the packets of a client that creates a durable session with its subscriptions and disconnects."""
    client = f"device-{number:06d}"
    filters = ("command", "config/+", "firmware", "group/#", "status")
    body = b"\0\1" + b"".join(
        frames.text(f"site/{client}/{topic_filter}") + b"\1" for topic_filter in filters[:FILTERS]
    )
    return frames.connect(client, clean=False) + b"\x82" + frames.varint(len(body)) + body


def create_sessions(port: int, numbers: range) -> None:
    """Create durable sessions, `CONCURRENT` at a time. Each connection ends after its SUBACK."""
    pending: Iterator[int] = iter(numbers)
    with selectors.DefaultSelector() as selector:

        def begin() -> None:
            number = next(pending, None)
            if number is not None:
                channel = Channel.opened(port, session_packets(number))
                channel.socket.setblocking(False)
                selector.register(channel.socket, selectors.EVENT_READ, channel)

        for _ in range(CONCURRENT):
            begin()
        while selector.get_map():
            for key, _ in selector.select(30):
                channel: Channel = key.data
                channel.rest = data = channel.receive()
                connack = frames.packet_end(data, 0)
                suback = None if connack is None else frames.packet_end(data, connack)
                if connack is None or suback is None:
                    continue
                if data[3] or data[connack] != frames.SUBACK or any(code > 2 for code in data[connack + 4 : suback]):
                    raise BrokerGone(f"answered {data[:suback].hex()}")
                selector.unregister(channel.socket)
                channel.close()
                begin()


def idle_clients(clients: int) -> None:
    """Print the memory per idle client."""
    server = Bridge()
    server.start()
    try:
        figures = Crowd(port=server.port, pid=server.pid, clients=clients).run()
    finally:
        server.stop()
    print(f"{clients} idle clients: {figures['kb_per_client']:.2f} kB each")


def durable_sessions(sessions: int) -> None:
    """Print the memory per durable session, the rate of new ones, and the time of a restart with them."""
    with tempfile.TemporaryDirectory(prefix="bench-memory-") as data:
        server = Bridge(arguments=("--data-dir", data))
        server.start()
        try:
            create_sessions(server.port, range(WARM_UP))
            time.sleep(SETTLE)
            before, cpu, start = resident(server.pid), cpu_seconds(server.pid), time.monotonic()
            create_sessions(server.port, range(WARM_UP, WARM_UP + sessions))
            seconds, cpu = time.monotonic() - start, cpu_seconds(server.pid) - cpu
            time.sleep(SETTLE)
            size = (resident(server.pid) - before) / 1024 / sessions
            print(f"{sessions} durable sessions with {FILTERS} subscriptions: {size:.2f} kB each")
            print(f"created at {sessions / seconds:.0f}/s ({1000 * cpu / sessions:.2f} ms CPU each)")
            server.stop()
            start = time.monotonic()
            server.start()
            print(f"restart in {time.monotonic() - start:.2f} s ({cpu_seconds(server.pid):.2f} s CPU)")
            time.sleep(SETTLE)
            print(f"after the restart: {resident(server.pid) / 1024 / 1024:.1f} MB in all")
        finally:
            server.stop()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.memory", description=__doc__)
    parser.add_argument("--clients", type=int, default=2_000, help="idle clients, 0 to skip (2000)")
    parser.add_argument("--sessions", type=int, default=10_000, help="durable sessions, 0 to skip (10000)")
    options = parser.parse_args()
    if options.clients:
        idle_clients(options.clients)
    if options.sessions:
        durable_sessions(options.sessions)


if __name__ == "__main__":
    main()
