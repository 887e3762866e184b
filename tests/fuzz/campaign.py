"""A campaign: numbered cases, many at a time, for a bridge that must handle them."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from tests.fuzz.listeners import PLACES, Listener, applications_port, configuration, listeners_of
from tests.fuzz.pair import Pair
from tests.fuzz.sequences import mutated
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import PATIENCE, eventually

#: Cases at a time.
AT_A_TIME: Final = 16
#: Seconds that a case waits for answers, after it has sent everything.
_LISTENS: Final = 0.05
#: Parts of log lines that no external input may cause.
FAULTS: Final = ("Traceback", "a bug of the bridge", "never retrieved", "Exception in")


class Fault(AssertionError):
    """The bridge did not handle a case."""


class Campaign:
    """Run cases. The same seed and number result in the same case."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._seed = seed
        self.bridge = BridgeProcess(directory / "data", config=configuration(directory)).start()
        self.listeners: Sequence[Listener] = listeners_of(self.bridge)
        self.bridge.mqsc(
            "DEFINE QLOCAL(FUZZ) MAXDEPTH(5000)\n"
            # Messages for clients, by name.
            "ALTER QMGR DEFXMITQ('SYSTEM.MQTT.TRANSMIT.QUEUE')\n"
        )
        self.pair = Pair(self.bridge.ports["PAIR"])
        self.pair.start()
        #: cases by listener
        self.done: Counter[str] = Counter()
        self.memory = self._status("VmRSS")
        self._files = self._open_files()

    def case(self, number: int) -> tuple[Listener, list[bytes]]:
        """Return the destination of a case, and its data."""
        chosen = random.Random(f"{self._seed}-{number}")
        listener = self.listeners[number % len(self.listeners)]
        parts = listener.conversation(chosen)
        return listener, mutated(chosen, parts)

    async def run(self, numbers: Sequence[int]) -> None:
        """Run some cases. Raises Fault."""
        waiting = iter(numbers)
        under_way: set[int] = set()

        async def work() -> None:
            for number in waiting:
                under_way.add(number)
                await self._run(number)
                under_way.discard(number)

        workers = [asyncio.create_task(work()) for _ in range(AT_A_TIME)]
        try:
            await asyncio.gather(*workers)
        except Exception as error:
            raise Fault(f"seed {self._seed}, one of the cases {sorted(under_way)}: {error!r}") from error
        self.check(f"seed {self._seed}, one of the cases {numbers[0]} to {numbers[-1]}")

    async def _run(self, number: int) -> None:
        listener, parts = self.case(number)
        self.done[listener.name] += 1
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await listener.connect()
        except (ConnectionResetError, BrokenPipeError, ssl.SSLError):
            return
        resets = number % 5 == 4 and not isinstance(listener.place, Path)
        if resets:
            # At any time, even before the other side has asked for its address: RST is sent, and no FIN.
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            parts = parts[: number // 5 % (len(parts) + 1)]
        try:
            with suppress(OSError, RuntimeError):  # uvloop raises RuntimeError for a closed transport
                for part in parts:
                    writer.write(part)
                    await asyncio.sleep(0)
                async with asyncio.timeout(PATIENCE):
                    await writer.drain()
                if resets:
                    return
                if listener.tls is None and number % 3 == 0:
                    writer.write_eof()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LISTENS):
                        while await reader.read(65536):
                            pass
        finally:
            writer.transport.abort()

    def check(self, label: str) -> None:
        """Raise Fault if the bridge has shown one."""
        if not self.bridge.running:
            raise Fault(f"{label}: the bridge has ended\n{self.bridge.log[-5000:]}")
        log = self.bridge.log
        for fault in FAULTS:
            if fault in log:
                at = log.index(fault)
                raise Fault(f"{label}: the log has\n{log[max(0, at - 500) : at + 3000]}")
        if self.pair.error is not None:
            raise Fault(f"{label}: the pair beside it noticed: {self.pair.error!r}")

    def end(self) -> int:
        """Stop the bridge in order. Return by how many bytes it has grown. Raises Fault."""
        self.pair.end()
        self.check(f"seed {self._seed}, at the end")
        eventually(lambda: self._open_files() <= self._files, True)
        eventually(lambda: b"DURABLE(NO)" in self._subscriptions(), False)
        eventually(self._connections, {})
        eventually(self._free_places, PLACES)
        grown = self._status("VmRSS") - self.memory
        status = self.bridge.stop()
        if status:
            raise Fault(f"seed {self._seed}: the bridge ended with {status}\n{self.bridge.log[-5000:]}")
        return grown

    def _subscriptions(self) -> bytes:
        return self.bridge.run_mq("run", "-", stdin=b"DISPLAY SUB(*) DURABLE").stdout

    def _connections(self) -> dict[str, int]:
        """Return the number of connections of each channel with connections."""
        channels = Administrator(self.bridge).json("channel", "list")
        return {channel["name"]: channel["connections"] for channel in channels if channel["connections"]}

    def _free_places(self) -> int:
        """Return how many more connections the listener for MQ applications accepts."""
        address = "127.0.0.1", applications_port(self.bridge)
        with ExitStack() as stack:
            connections = [stack.enter_context(socket.create_connection(address, PATIENCE)) for _ in range(PLACES + 1)]
            # The client starts TLS, so only a rejected client notices the end. They are accepted in order.
            assert not connections[-1].recv(1)
            return sum(1 for connection in connections if not _has_ended(connection))

    def _status(self, field: str) -> int:
        text = Path(f"/proc/{self._pid}/status").read_text(encoding="ascii")
        (line,) = (line for line in text.splitlines() if line.startswith(f"{field}:"))
        return int(line.split()[1]) * 1024

    def _open_files(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self._pid}/fd").iterdir())

    @property
    def _pid(self) -> int:
        assert self.bridge.process is not None
        return self.bridge.process.pid


def _has_ended(connection: socket.socket) -> bool:
    """Return whether the other side has closed a connection over which it sends nothing."""
    connection.setblocking(False)
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
