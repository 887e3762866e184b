"""`mqbridge completion`: a shell completes commands, options, and names of the running bridge."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.installed import program
from tests.helpers.patience import PATIENCE
from tests.helpers.raw_client import RawClient

CONFIG = """
channels: [{{name: PLAIN.MQTT, port: 0}}]
links: {{cloud: {{host: 127.0.0.1, port: 1}}}}
mappings:
  orders: {{from: {{mqtt: "orders/#"}}, to: {{topic: x}}}}
  off: {{from: {{mqtt: "off/#"}}, to: {{topic: x}}, enabled: false}}
"""
COMPLETED = [
    ("client ", {"list", "show", "history", "trace", "disconnect", "purge"}),
    ("client li", {"list"}),
    ("mapping pause o", {"orders", "off"}),
    ("link test ", {"cloud"}),
    ("channel stop P", {"PLAIN.MQTT"}),
    ("client show pump", {"pump-7"}),
    ("client list --channel ", {"PLAIN.MQTT"}),
    ("client purge --dr", {"--dry-run"}),
    ("completion f", {"fish"}),
]


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    process = BridgeProcess(tmp_path_factory.mktemp("bridge") / "data", config=CONFIG.format())
    process.start()
    pump = RawClient.connected(process.port, "pump-7", clean=False)
    other = RawClient.connected(process.port, "pump 8; reboot", clean=False)  # not a word of a shell
    pump.ping()
    other.ping()
    yield process
    process.discard()


def completed(words: str, bridge: BridgeProcess | None, tmp_path: Path) -> set[str]:
    """Return the completions of bash after these words, with the script sourced as in the documentation."""
    script = f"""
source <("{MQBRIDGE}" completion bash)
COMP_WORDS=(mqbridge {words}{"''" if words.endswith(" ") else ""})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_mqbridge_completion "{MQBRIDGE}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    if bridge is not None:
        env |= {"MQBRIDGE_CONFIG": str(bridge.config), "MQBRIDGE_DATA_DIR": str(bridge.data_directory)}
    process = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE, env=env, cwd=tmp_path
    )
    assert (process.returncode, process.stderr) == (0, "")
    return set(process.stdout.split("\n")) - {""}


@pytest.mark.parametrize(("words", "offered"), COMPLETED)
def test_bash_completes(bridge: BridgeProcess, tmp_path: Path, words: str, offered: set[str]) -> None:
    assert completed(words, bridge, tmp_path) == offered


@pytest.mark.parametrize("words", ["mapping pause o", "client show "])
def test_without_a_bridge_there_are_no_names(tmp_path: Path, words: str) -> None:
    assert completed(words, None, tmp_path) == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_accepts_the_script(shell: str) -> None:
    script = subprocess.run([MQBRIDGE, "completion", shell], capture_output=True, check=True).stdout
    assert b"_MQBRIDGE_COMPLETE=complete_" + shell.encode() in script
    parsed = subprocess.run([program(shell), "-n"], input=script, capture_output=True, timeout=PATIENCE)
    assert (parsed.returncode, parsed.stderr) == (0, b"")


def test_unsupported_shells_are_rejected() -> None:
    process = subprocess.run([sys.executable, "-m", "bridge", "completion", "csh"], capture_output=True, text=True)
    assert process.returncode == 2
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in process.stderr
