"""`python -m tests.benchmarks.passwords`: how long a fleet with argon2id passwords takes to reconnect after `kill -9`.

The clients of a real bridge process behave like paho: they give up 10 s after CONNECT, and retry after about 1 s, 2 s,
4 s and so on. The reconnection uses the password cache of the killed bridge. `--cold` measures the first connections,
when each password has to be verified by its argon2id hash.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bridge.mqtt.packets import Connect
from bridge.mqtt.writer import encode
from bridge.security.password_file import PasswordCache, hash_of, read_password_file
from tests.helpers.bridge_process import BridgeProcess

CONFIG = """
channels:
  - {{name: FLEET, port: 0, authentication: [{{method: password, file: {0}}}]}}
"""
CONNACK_TIMEOUT = 10.0
FIRST_RETRY = 1.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Fleet:
    """Clients that connect, and reconnect when they lose their connection."""

    def __init__(self, users: int, port: int, longest_retry: float) -> None:
        self.users = users
        self._longest_retry = longest_retry
        self.port = port
        #: seconds since the epoch of `time.monotonic` of each connected client's CONNACK
        self.connected: dict[int, float] = {}
        self.rejections = self.timeouts = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._live(number)) for number in range(self.users)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _live(self, number: int) -> None:
        retry = FIRST_RETRY
        packet = encode(
            Connect(f"c{number}", user_name=f"user-{number}", password=f"secret-{number}".encode(), keep_alive=0)
        )
        while True:
            writer = None
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(packet)
                answer = await asyncio.wait_for(reader.readexactly(4), CONNACK_TIMEOUT)
                if answer[3] == 0:
                    self.connected[number] = time.monotonic()
                    retry = FIRST_RETRY
                    await reader.read()  # until the bridge ends
                else:
                    self.rejections += 1
            except TimeoutError:
                self.timeouts += 1
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                self.connected.pop(number, None)
                if writer is not None:
                    writer.close()
            await asyncio.sleep(retry * random.uniform(0.8, 1.2))
            retry = min(2 * retry, self._longest_retry)


def cpu_seconds(bridge: BridgeProcess) -> float:
    """Return the CPU time of a bridge so far, in seconds."""
    assert bridge.process is not None
    fields = Path(f"/proc/{bridge.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


async def connect_all(label: str, fleet: Fleet, bridge: BridgeProcess, limit: float) -> None:
    """Wait until each client is connected, at most `limit` seconds, and print the figures."""
    start = time.monotonic()
    fleet.rejections = fleet.timeouts = 0
    marks: dict[int, float] = {}
    while time.monotonic() - start < limit and len(fleet.connected) < fleet.users:
        await asyncio.sleep(0.1)
        for share in (50, 90, 99):
            if len(fleet.connected) * 100 >= share * fleet.users:
                marks.setdefault(share, time.monotonic() - start)
    seconds = time.monotonic() - start
    quantiles = ", ".join(f"{share} % after {mark:.1f} s" for share, mark in marks.items())
    print(
        f"{label}: {len(fleet.connected)} of {fleet.users} connected after {seconds:.1f} s ({quantiles or 'less than half'});"
        f" {fleet.rejections} rejections, {fleet.timeouts} time-outs; {cpu_seconds(bridge):.1f} CPU s of the bridge;"
        f" load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


async def measure(options: argparse.Namespace, passwords: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-passwords-") as folder:
        bridge = BridgeProcess(Path(folder) / "data", config=CONFIG.format(passwords)).start()
        if not options.cold:
            bridge.kill()
            fill_cache(bridge.data_directory / "verified-passwords", passwords)
            bridge.start()
        fleet = Fleet(options.users, bridge.port, options.longest_retry)
        try:
            fleet.start()
            label = "first connections" if options.cold else "connections with a cache"
            await connect_all(label, fleet, bridge, options.limit)
            if not options.cold:
                bridge.kill()
                start = time.monotonic()
                await asyncio.to_thread(bridge.start)
                print(f"the bridge listens {time.monotonic() - start:.1f} s after it was killed")
                await connect_all("after kill -9", fleet, bridge, options.limit)
        finally:
            await fleet.stop()
            bridge.discard()


def fill_cache(file: Path, passwords: Path) -> None:
    """Write the cache file of a bridge that has verified all passwords."""
    cache = PasswordCache(file)
    for user, entry in read_password_file(passwords).items():
        password = f"secret-{user.removeprefix('user-')}".encode()
        cache.add(user, entry.hash, password, cache.hash(user, entry.hash, password))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.passwords", description=__doc__)
    parser.add_argument("--users", type=int, default=1000, help="clients, each with a user of its own (1000)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a measurement ends (300)")
    parser.add_argument(
        "--longest-retry", type=float, default=120.0, help="longest pause between attempts in seconds (120)"
    )
    parser.add_argument("--passwords", type=Path, help="a password file from before, which is made if it is missing")
    parser.add_argument("--cold", action="store_true", help="measure the first connections")
    options = parser.parse_args()
    path = options.passwords or Path(tempfile.mkdtemp(prefix="bench-passwords-")) / "fleet"
    if not path.exists():
        with ThreadPoolExecutor(2) as executor:
            hashes = list(executor.map(lambda number: hash_of(f"secret-{number}"), range(options.users)))
        path.write_text("".join(f"user-{number}:{hashed}\n" for number, hashed in enumerate(hashes)))
    asyncio.run(measure(options, path))


if __name__ == "__main__":
    main()
