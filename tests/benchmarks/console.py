"""`python -m tests.benchmarks.console`: server time of the console's pages, with 10,000 sessions and 1,000 queues.

Half of the clients are connected. Each page is requested repeatedly over one connection, like a browser does, while two
other clients are idle. The time is from the request to the last byte of the response.
"""

from __future__ import annotations

import http.client
import resource
import statistics
import tempfile
import time
from pathlib import Path

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.console import Console
from tests.helpers.raw_client import RawClient

SESSIONS, QUEUES, RETAINED = 10_000, 1_000, 10_000
ROUNDS = 40
PAGES = (
    "/", "/clients", "/clients?search=77", "/clients?connected=no", "/clients?search=nosuch", "/clients/show?id=client-00042",
    "/topics", "/topics?below=retained", "/topics/show?filter=retained/17", "/topics/show?filter=%23", "/queues",
    "/queues?system=1", "/queues?search=QUEUE.0999", "/queues/show?name=QUEUE.0001", "/mappings", "/dead-letters", "/log",
    "/subscriptions", "/clients?sort=waiting&descending=1",
)  # fmt: skip


def fill(bridge: BridgeProcess) -> list[RawClient]:
    """Create the sessions and retained publications. Return the clients that stay connected."""
    clients = []
    for number in range(SESSIONS):
        client = RawClient.connected(bridge.port, f"client-{number:05}", clean=False)
        client.subscribe((f"plant/{number}/#", 1))
        if number % 2:
            clients.append(client)
        else:
            client.disconnect()
    with RawClient.connected(bridge.port, "publisher") as client:
        for number in range(RETAINED):
            client.publish(f"retained/{number}", b"value", 0, retain=True)
        client.ping()
    return clients


def measure(console: Console) -> None:
    """Print the median, 95th percentile and maximum time of each page, in milliseconds, and its size."""
    cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in console.cookies.items())}
    connection = http.client.HTTPConnection(console.place)
    print(f"{'page':<36} {'median':>8} {'p95':>8} {'longest':>8} {'bytes':>9}")
    for path in PAGES:
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            connection.request("GET", path, headers=cookie)
            answer = connection.getresponse()
            body = answer.read()
            times.append((time.perf_counter() - start) * 1000)
            assert answer.status == 200, (path, body)
        times.sort()
        p95 = times[int(len(times) * 0.95) - 1]
        print(f"{path:<36} {statistics.median(times):8.1f} {p95:8.1f} {times[-1]:8.1f} {len(body):9}", flush=True)
    connection.close()


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "queues.mqsc"
        script.write_text("".join(f"DEFINE QLOCAL(QUEUE.{number:04})\n" for number in range(QUEUES)))
        config = f"queue_manager: {{type: embedded, scripts: [{script}]}}\nadmin: {{port: 0}}\n"
        bridge = BridgeProcess(Path(directory) / "data", config=config).start()
        try:
            clients = fill(bridge)
            print(
                f"{SESSIONS} sessions, {len(clients)} of them connected, {QUEUES} queues, {RETAINED} retained publications"
            )
            measure(Console(bridge).log_in())
            for client in clients:
                client.vanish()
        finally:
            bridge.discard()


if __name__ == "__main__":
    main()
