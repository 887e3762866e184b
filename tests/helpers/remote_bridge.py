"""The bridge with a remote queue manager: `queue_manager: {type: ibm}`, as a separate process.

It uses the real ibmmq or pymqi on the stand-in for IBM's client library (tests/ibm_standin). The stand-in uses an embedded
queue manager without channels in another process, which continues when the bridge is stopped or killed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.client_packages import BUILD
from tests.helpers.installed import CLIENT_PACKAGES
from tests.helpers.line_process import LineProcess, suspend

ROOT = Path(__file__).resolve().parents[2]
NAME = "MQB1"
#: `mqbridge`, whose embedded queue manager the stand-in uses.
STAND_IN = (sys.executable, "-m", "tests.ibm_standin")

#: The embedded queue manager reads its own transmission queue, which must not be that of the bridge under test.
_HOST = """
queue_manager:
  {{name: {name}, data_directory: {data}, scripts: [{script}], authorities: {authorities}, listener: {listener}}}
transmission_queue: HOST.XMITQ
channels: []
"""
_SCRIPT = "DEFINE QLOCAL(HOST.XMITQ) USAGE(XMITQ)\n"
_BRIDGE = """
queue_manager:
  type: ibm
  name: {name}
  library: {library}
{reached}"""
_REACHED = """\
  channel: DEV.APP.SVRCONN
  connections: localhost(1414)
"""


def library_environment(library: str) -> dict[str, str]:
    """Return the variables by which the bridge of this directory, whichever is installed, finds a package for IBM MQ."""
    return {"LD_LIBRARY_PATH": str(BUILD / "lib64"), "PYTHONPATH": f"{ROOT}:{CLIENT_PACKAGES / library}"}


class QueueManagerProcess:
    """An embedded queue manager without channels on one data directory."""

    def __init__(
        self, data_directory: Path, script: str = "", *, name: str = NAME, authorities: str = "ignored"
    ) -> None:
        self.data_directory = data_directory
        self.name = name
        self.script = data_directory.with_suffix(".mqsc")
        self.script.write_text(_SCRIPT + script)
        self.config = data_directory.with_suffix(".host.yaml")
        self._authorities = authorities
        self._listener = "null"
        #: of its TCP listener
        self.address, self.port = "127.0.0.1", 0
        self._write()
        #: its address for the stand-in
        self.place = f"unix:{data_directory / 'mqi.sock'}"
        self.process: LineProcess | None = None

    def _write(self) -> None:
        values = {"script": self.script, "authorities": self._authorities, "listener": self._listener}
        self.config.write_text(_HOST.format(name=self.name, data=self.data_directory, **values))

    def listen(self, *options: str, port: int = 0, address: str = "127.0.0.1") -> Self:
        """Use a TCP listener, with these options of its section, after the next start."""
        self._listener = f"{{{', '.join((*options, f'address: {address}', f'port: {port}'))}}}"
        self.address = address
        self._write()
        return self

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.process.poll() is None

    def start(self) -> Self:
        """Start it, and return when MQ applications can connect."""
        assert not self.running
        self.process = LineProcess([*STAND_IN, "run", self.config], cwd=ROOT)
        line = self.process.line_where(lambda line: "mqi.sock" in line)
        if self._listener != "null":
            tcp = self.process.line_where(lambda line: f"connect at {self.address}:" in line)
            self.port = int(tcp.rpartition(":")[2].partition(" ")[0])
        self.place = f"unix:{next(word for word in line.split() if word.endswith('mqi.sock'))}"
        return self

    def stop(self) -> int:
        """Send SIGTERM. Return the exit status after the end."""
        assert self.process is not None
        return self.process.terminate()

    def kill(self) -> None:
        """Send SIGKILL at any point of its work."""
        assert self.running
        assert self.process is not None
        self.process.kill()

    def pause(self) -> None:
        """Stop answering, without closing connections, until `resume`."""
        assert self.process is not None
        suspend(self.process.process.pid)

    def resume(self) -> None:
        assert self.process is not None
        self.process.process.send_signal(signal.SIGCONT)

    def discard(self) -> list[str]:
        """End it permanently. Return the output and log of its current run."""
        if self.process is None:
            return []
        self.process.kill()
        with self.process:
            return self.process.seen + self.process.rest()


class RemoteBridgeProcess(BridgeProcess):
    """`mqbridge run` with `type: ibm`. `start` starts its queue manager if none runs. `stop` and `kill` do not affect it.

    MQ applications (`mqbridge mq`) use the queue manager. Two bridges may share a `queue_manager`. `reached` is the part of
    its section with the address of the queue manager.
    """

    def __init__(
        self,
        data_directory: Path,
        *,
        library: str = "ibmmq",
        config: str | None = None,
        env: Mapping[str, str] | None = None,
        settings: str = "",
        reached: str = _REACHED,
        queue_manager: QueueManagerProcess | None = None,
        **options: Any,
    ) -> None:
        if "outage_timeout" not in settings:
            # A busy machine may take long to restart the queue manager.
            settings = "  outage_timeout: 0 s\n" + settings
        text = _BRIDGE.format(name=NAME, library=library, reached=reached) + settings + (config or "")
        super().__init__(data_directory, config=text, **options)
        self.queue_manager = queue_manager or QueueManagerProcess(data_directory)
        self.data_directory = self.queue_manager.data_directory
        packages = library_environment(library)
        self.own_env = dict(env or {})
        self.env |= packages | {"MQI_STANDIN": self.queue_manager.place} | self.own_env

    def data_options(self) -> list[str | Path]:
        return []

    def user_of_copy(self, publisher: str, subscriber: str) -> str:
        return subscriber  # IBM MQ documentation, "Subscription security"

    def start(self) -> Self:
        if not self.queue_manager.running:
            self.queue_manager.start()
            self.env["MQI_STANDIN"] = self.queue_manager.place
        return super().start()

    def discard(self) -> None:
        super().discard()
        lines = self.queue_manager.discard()
        assert not any("Traceback" in line for line in lines), "\n".join(lines)
