"""What the header of a shipped mapping file says: the MQSC that it needs, and commands with what they print.

In a header, `DEFINE …` is MQSC, `$ command` a line for the shell, and what follows until the next one (or an empty line) is
what it prints; `…` stands for anything, alone in a line for any lines.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.helpers.bridge_process import MQBRIDGE
from tests.helpers.patience import PATIENCE

HOST = "broker.example.com"
_MARK = "--- ended with "


class Step(NamedTuple):
    """A command and what it prints."""

    command: str
    printed: tuple[str, ...]


class Transcript:
    """The header of one file."""

    def __init__(self, file: Path) -> None:
        self.mqsc: list[str] = []
        self.steps: list[Step] = []
        before = ""
        for line in file.read_text(encoding="utf-8").splitlines():
            if not line.startswith("##"):
                break
            said = line.removeprefix("##   ") if line.startswith("##   ") else ""
            if said.startswith("DEFINE "):
                self.mqsc.append(said)
            elif said.startswith("$ "):
                self.steps.append(Step(said[2:], ()))
            elif said and before:
                self.steps[-1] = Step(self.steps[-1].command, (*self.steps[-1].printed, said))
            before = said if said.startswith("$ ") or before else ""
            before = before if said else ""

    def run(self, directory: Path, *, broker: int, bridge: int, env: Mapping[str, str]) -> list[tuple[Step, str, int]]:
        """Run all commands in one shell: each with what it printed, and its exit status.

        `broker` and `bridge` are ports on this machine, of the broker that the file calls broker.example.com, and of the
        bridge, which is at MQTT's own port else.
        """
        lines = [f"export PATH={MQBRIDGE.parent}:$PATH", "exec 2>&1"]
        for step in self.steps:
            lines += [_reaching(step.command, broker, bridge), f"echo '{_MARK}'$?"]
        done = subprocess.run(
            ["bash"], input="\n".join(lines), capture_output=True, text=True, cwd=directory, timeout=PATIENCE * 4,
            env={**os.environ, **env},
        )  # fmt: skip
        said = re.split(rf"^{_MARK}(\d+)\n", done.stdout, flags=re.MULTILINE)
        assert len(said) == 2 * len(self.steps) + 1, f"the shell ended early: {done.stdout}{done.stderr}"
        return [(step, said[2 * number], int(said[2 * number + 1])) for number, step in enumerate(self.steps)]


def matches(printed: tuple[str, ...], output: str) -> bool:
    """Whether output is what a transcript says."""
    expression = ""
    for line in printed:
        expression += "(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n"
    return re.fullmatch(expression, output) is not None


def _reaching(command: str, broker: int, bridge: int) -> str:
    """A command that finds both on this machine."""
    at_broker = command.replace(f"-h {HOST}", f"-h 127.0.0.1 -p {broker}")
    return at_broker if at_broker != command else re.sub(r"\b(mosquitto_(?:pub|sub|rr)) ", rf"\1 -p {bridge} ", command)
