"""An administrator at a running bridge: the commands of `mqbridge` that ask it by its control socket."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from bridge.cli.program import program
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.known_secrets import assert_no_secret


class Administrator:
    """Runs commands in this process, at one bridge."""

    def __init__(self, bridge: BridgeProcess) -> None:
        #: the options that reach the bridge
        self.options = ["--config", str(bridge.config)] if bridge.config is not None else []
        self.options += [str(word) for word in bridge.data_options()]
        self._env = bridge.env

    def run(self, *words: str) -> Result:
        """Run a command to its end, whatever its exit status."""
        result = CliRunner().invoke(program, [*words, *self.options], env=self._env, catch_exceptions=False)
        assert_no_secret(result.output, f"what mqbridge {words[0]} printed")
        return result

    def does(self, *words: str) -> str:
        """Run a command that has to succeed; what it printed."""
        result = self.run(*words)
        assert result.exit_code == 0, f"{words}: {result.stdout}{result.stderr}"
        return result.stdout

    def refused(self, *words: str, status: int = 1) -> str:
        """Run a command that has to fail. Returns the error message."""
        result = self.run(*words)
        assert (result.exit_code, result.stdout) == (status, ""), f"{words}: {result.stdout}{result.stderr}"
        return result.stderr.removeprefix("mqbridge: error: ")

    def json(self, *words: str) -> list[Any]:
        """Run a command with --json; the objects that it printed."""
        return [json.loads(line) for line in self.does(*words, "--json").splitlines()]

    def clients(self, *words: str) -> dict[str, Any]:
        """The clients that `client list` shows, by client identifier."""
        return {client["client_id"]: client for client in self.json("client", "list", *words)}
