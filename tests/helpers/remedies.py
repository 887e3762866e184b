"""Commands in the remedies of problems, executed as they are printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import PATIENCE


def execute(bridge: BridgeProcess, problem: Any, which: str = "", **names: str) -> None:
    """Run the command of a remedy that contains a word, in a shell. `names` stand for words in the command."""
    command = next(command for command in re.findall("`([^`]+)`", problem["remedy"]) if which in command)
    for name, value in names.items():
        command = command.replace(name, value)
    program = shlex.join([str(Path(sys.executable).with_name("mqbridge"))])
    options = ["--config", str(bridge.config), *map(str, bridge.data_options())]
    script = f'mqbridge() {{ {program} "$@" {shlex.join(options)}; }}; {command}'
    process = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, **bridge.env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert process.returncode == 0, f"{command}: {process.stdout}{process.stderr}"
