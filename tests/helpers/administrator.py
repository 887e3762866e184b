"""An administrator of a running bridge: commands of `mqbridge` that use its control socket."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from bridge.cli.program import program
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.known_secrets import assert_no_secret


class Administrator:
    """Run commands in this process, for one bridge."""

    def __init__(self, bridge: BridgeProcess) -> None:
        #: options that select the bridge
        self.options = ["--config", str(bridge.config)] if bridge.config is not None else []
        self.options += [str(word) for word in bridge.data_options()]
        self._env = bridge.env

    def run(self, *words: str) -> Result:
        """Run a command to its end, whatever its exit status."""
        result = CliRunner().invoke(program, [*words, *self.options], env=self._env, catch_exceptions=False)
        assert_no_secret(result.output, f"what mqbridge {words[0]} printed")
        return result

    def does(self, *words: str) -> str:
        """Run a command that must succeed. Return its output."""
        result = self.run(*words)
        assert result.exit_code == 0, f"{words}: {result.stdout}{result.stderr}"
        return result.stdout

    def refused(self, *words: str, status: int = 1) -> str:
        """Run a command that must fail. Return the error message."""
        result = self.run(*words)
        assert (result.exit_code, result.stdout) == (status, ""), f"{words}: {result.stdout}{result.stderr}"
        return result.stderr.removeprefix("mqbridge: error: ")

    def json(self, *words: str) -> list[Any]:
        """Run a command with --json. Return the printed objects."""
        return [json.loads(line) for line in self.does(*words, "--json").splitlines()]

    def clients(self, *words: str) -> dict[str, Any]:
        """Return the clients of `client list`, by client identifier."""
        return {client["client_id"]: client for client in self.json("client", "list", *words)}
