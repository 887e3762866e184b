"""The bridge as a separate process, as a user runs it, and MQ applications (`mqbridge mq`)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
from typer.testing import CliRunner

from bridge.administration.answers import ChannelStatus
from bridge.administration.control_socket import NoBridge, ask
from bridge.administration.requests import ListChannels
from bridge.cli.program import program
from bridge.config.models import CONTROL_SOCKET
from tests.helpers.forked_process import MQBRIDGE, ForkedProcess, launch
from tests.helpers.known_secrets import assert_no_secret, assert_no_secret_in_processes, register_tokens
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import PATIENCE, eventually

#: The identifiers of life-cycle events: ready, and any of them.
_READY = "MQB0012I"
_LIFE_CYCLE = re.compile("MQB001[1-7][IS]")
_LISTENS = re.compile(r"channel (\S+) listens for MQTT clients on (\S+):(\d+)(?: over .*)?$")


class BridgeFailed(AssertionError):
    """The bridge did not start, or ended unexpectedly. The message is its output."""


class BridgeProcess:
    """`mqbridge run` on one data directory. `start` after `stop` or `kill` uses the same directory and port."""

    def __init__(
        self,
        data_directory: Path,
        *,
        config: str | None = None,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.data_directory = data_directory
        self.config: Path | None = None
        if config is not None:
            self.config = data_directory.with_suffix(".yaml")
            self.config.write_text(config, encoding="utf-8")
        self.arguments = list(arguments)
        #: words before the command, of a program that runs it
        self.wrapper: list[str] = []
        #: variables set by the test, which may contain a password
        self.own_env = dict(env or {})
        self.env = {**os.environ, **self.own_env}
        #: standard error of all runs
        self.log_file = data_directory.with_suffix(".log")
        #: offset of the current run in the log file
        self._log_begin = 0
        #: ports by channel name. That of the first channel stays the same over restarts
        self.ports: dict[str, int] = {}
        #: port of the first channel
        self.port = 0
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        #: number of kills
        self.kills = 0

    @property
    def events(self) -> list[tuple[str, str]]:
        """Return the identifiers and messages of the log lines of the current run."""
        events = []
        with self.log_file.open(encoding="utf-8") as log:
            log.seek(self._log_begin)
            for line in log:
                if line.startswith("{"):
                    entry = json.loads(line)
                    events.append((entry.get("id", ""), entry["message"]))
                elif match := re.search(r"(MQB\d{4}[IWES]) (.*)", line):
                    events.append((match[1], match[2]))
        return events

    @property
    def announced(self) -> list[str]:
        """Return the log lines of the current run about its start and end."""
        return [message for identifier, message in self.events if _LIFE_CYCLE.fullmatch(identifier)]

    @property
    def log(self) -> str:
        """Return the log of all runs."""
        return self.log_file.read_text(encoding="utf-8") if self.log_file.exists() else ""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> Self:
        """Start it, and return when it is ready. Raises BridgeFailed."""
        before = time.monotonic() + PATIENCE
        while True:
            try:
                return self._start()
            except BridgeFailed:
                # While the bridge was stopped, another connection may have got its port. Such a connection ends soon.
                port_in_use = self.port and "another broker running there" in self.log[-1_000:]
                if not port_in_use or time.monotonic() > before:
                    raise
                self.ended()
                time.sleep(0.2)

    def _start(self) -> Self:
        assert not self.running
        command: list[str | Path] = [*self.wrapper, MQBRIDGE, "run"]
        if self.config is not None:
            command.append(self.config)
        command += [*self.data_options(), "--port", str(self.port), *self.arguments]
        self.ports = {}
        # `ps` would not show the secrets of a forked process.
        forks = all(name.startswith("MQI_STANDIN") for name in self.own_env)
        with self.log_file.open("ab") as log:
            self._log_begin = log.tell()
            self.process = launch(command, stderr=log.fileno(), env=self.env, forks=forks)
        before = time.monotonic() + PATIENCE
        while not (ready := self._is_ready()) and self.running and time.monotonic() < before:
            time.sleep(0.02)
        if not ready:
            self.process.kill()
            raise BridgeFailed(f"the bridge does not listen; it logged:\n{self.log}")
        self.port = next(iter(self.ports.values()))
        self._look_at_processes()
        return self

    def data_options(self) -> list[str | Path]:
        """Return the options for the data directory of its queue manager."""
        return ["--data-dir", self.data_directory]

    def _is_ready(self) -> bool:
        """Return whether the channels listen, and set their ports. A bridge that logs only warnings is asked."""
        if "warning" in self.arguments:
            return self._answers()
        events = self.events
        if all(identifier != _READY for identifier, _ in events):
            return False
        self.ports = {match[1]: int(match[3]) for _, message in events if (match := _LISTENS.match(message))}
        return True

    def _answers(self) -> bool:
        try:
            answer = ask(self.data_directory / CONTROL_SOCKET, ListChannels())
        except NoBridge:
            return False
        if not answer.ok:
            return False
        channels = msgspec.json.decode(answer.result, type=list[ChannelStatus])
        self.ports = {channel.name: int(channel.endpoint.rpartition(":")[2]) for channel in channels}
        return all(self.ports.values())

    def stop(self) -> int:
        """Send SIGTERM. Return the exit status after the end."""
        assert self.process is not None
        self._look_at_processes()
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end. Return the exit status."""
        assert self.process is not None
        status = self.process.wait(PATIENCE)
        self.assert_says_no_secret()
        return status

    def _look_at_processes(self) -> None:
        """Like `assert_shows_no_secret`, and stop a bridge that fails."""
        assert self.process is not None
        try:
            self.assert_shows_no_secret()
        except AssertionError:
            self.process.kill()
            self.process.wait(PATIENCE)
            raise

    def assert_shows_no_secret(self) -> None:
        """Fail if `ps` shows a secret of its processes while it runs."""
        assert self.process is not None
        self._register_tokens()
        assert_no_secret_in_processes(self.process.pid, self.own_env)

    def assert_says_no_secret(self) -> None:
        """Fail if its log or audit log contains a secret."""
        self._register_tokens()
        for file in (self.log_file, *self.data_directory.parent.glob("audit*.json*")):
            if file.exists():
                assert_no_secret(file.read_text(encoding="utf-8", errors="replace"), str(file))

    def _register_tokens(self) -> None:
        for directory in (self.data_directory, self.data_directory.parent):
            register_tokens(directory)

    def kill(self) -> None:
        """Send SIGKILL at any point of its work."""
        assert self.process is not None
        assert self.process.poll() is None, f"the bridge ended by itself:\n{self.log}"
        self._look_at_processes()
        self.process.kill()
        self.kills += 1
        self.ended()

    def restart(self) -> Self:
        """Stop in order and start again."""
        assert self.stop() == 0, self.log
        return self.start()

    def discard(self) -> None:
        """End it permanently, after a test that may have failed."""
        if self.running:
            assert self.process is not None
            self.process.kill()
            self.ended()

    # MQ applications -------------------------------------------------------------------------------------------------

    def mq_command(self, *words: str) -> list[str | Path]:
        group = "mqsc" if words[0] in ("run", "display", "dump") else "mq"
        return [MQBRIDGE, group, *words, "--data-dir", self.data_directory]

    def run_mq(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run an MQ application to its end, whatever its exit status.

        It runs in this process, which is ten times as fast. tests/process/cli/test_process.py runs processes.
        """
        command = [str(word) for word in self.mq_command(*words)]
        result = CliRunner().invoke(program, command[1:], input=stdin, catch_exceptions=False)
        assert_no_secret(result.output, f"what mqbridge {command[1:3]} printed")
        return subprocess.CompletedProcess(command, result.exit_code, result.stdout_bytes, result.stderr_bytes)

    def mq(self, *words: str, stdin: bytes = b"") -> str:
        """Run an MQ application that must succeed. Return its output."""
        process = self.run_mq(*words, stdin=stdin)
        assert process.returncode == 0, (
            f"mqbridge mq {words}: exit status {process.returncode}, {process.stderr.decode()}"
        )
        return process.stdout.decode()

    def mq_json(self, *words: str, stdin: bytes = b"") -> list[Any]:
        """Run an MQ application with --json. Return the printed objects."""
        return [json.loads(line) for line in self.mq(*words, "--json", stdin=stdin).splitlines()]

    def messages(self, queue: str) -> list[Any]:
        """Browse all messages of a queue."""
        process = self.run_mq("get", queue, "--browse", "--limit", "0", "--json")
        if process.returncode and b"MQRC_NO_MSG_AVAILABLE" in process.stderr:
            return []
        assert process.returncode == 0, process.stderr.decode()
        return [json.loads(line) for line in process.stdout.decode().splitlines()]

    def wait_for_depth(self, queue: str, depth: int) -> None:
        """Wait until a queue has this number of messages, all committed. Acknowledged messages are removed a moment later."""

        def status() -> tuple[int, str]:
            (row,) = self.mq_json("display", f"QSTATUS('{queue}')", "CURDEPTH", "UNCOM")
            return row["CURDEPTH"], row["UNCOM"]

        eventually(status, (depth, "NO"))

    def user_of_copy(self, publisher: str, subscriber: str) -> str:
        """Return the UserIdentifier of a publication at an application that subscribes as `subscriber`."""
        return publisher

    def mq_subscriber(self, *words: str) -> LineProcess:
        """Start `mqbridge mq sub`, and return it after it has subscribed."""
        process = LineProcess(self.mq_command("sub", *words))
        process.line_where(lambda line: line.startswith("subscribed to"))
        return process

    def mqsc(self, script: str) -> str:
        """Run MQSC commands that must succeed."""
        return self.mq("run", "-", stdin=script.encode())
