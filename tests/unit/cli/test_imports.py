"""Modules that a process does not import, because they would delay its start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from tests.helpers.patience import PATIENCE

#: Required only by some mappings, an archive, Spark or a queue manager of IBM MQ.
FOR_FEW = (
    "bridge.archive.event_queue",
    "bridge.archive.parquet",
    "bridge.mq.ibm.connection",
    "bridge.record.codec",
    "bridge.spark",
    "bridge.service.mappings.runner",
    "cel_expr_python",
    "ibmmq",
    "jsonpath_rfc9535",
    "jsonschema_rs",
    "paho",
    "pandas",
    "pyarrow",
    "pymqi",
    "pyspark",
    "rich",
    "starlette",
    "uvicorn",
)
#: Not required by an MQ application, either.
FOR_BRIDGES = (
    "asyncio",
    "bridge.config",
    "bridge.mq.embedded.queuemanager",
    "bridge.service",
    "pydantic",
    "uvloop",
    "yaml",
)
#: Required by other commands.
OF_OTHERS = ("bridge.cli.check", "bridge.cli.service", "bridge.cli.trial")

COMMAND = """
import sys
from bridge.cli import main
sys.argv[1:] = {arguments!r}
try:
    main()
except SystemExit as end:
    status = end.code or 0
"""
BRIDGE = """
import asyncio, pathlib
from bridge.cli.queue_manager import configured
from bridge.service.lifecycle import Bridge
async def start():
    one = Bridge(configured(None, pathlib.Path("data"), 0, None), lambda line: None)
    await one.start()
    assert len(one.parts.channels)
    await one.stop()
asyncio.run(start())
status = 0
"""


def imported(program: str, names: tuple[str, ...], directory: Path, status: int = 0) -> list[str]:
    """Return these modules if a process has imported them at the end of its work."""
    program += f"\nimport sys\nprint(status, *[name for name in {names!r} if name in sys.modules], file=sys.stderr)"
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=PATIENCE, cwd=directory, check=True
    )
    ended, *modules = process.stderr.decode().splitlines()[-1].split()
    assert ended == str(status), process.stderr.decode()
    return modules


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["mq", "put", "--help"], ["pipeline", "run", "--help"]])
def test_the_help_of_the_command_line(arguments: list[str], tmp_path: Path) -> None:
    assert imported(COMMAND.format(arguments=arguments), FOR_FEW + FOR_BRIDGES, tmp_path) == []


@pytest.mark.parametrize(
    "words", ["put {queue} x --priority 3", "pub t x", "get {queue} --wait 1 --json", "display QMGR", "get NONE"]
)
def test_an_mq_application(words: str, queue_manager: Any, tmp_path: Path) -> None:
    queue = queue_manager.queue()
    if words.startswith("get {"):
        queue_manager.put(queue, Message(MQMD(), b"x"))
    group = "mqsc" if words.startswith("display") else "mq"
    arguments = [group, *words.format(queue=queue).split(), "--data-dir", str(queue_manager.directory)]
    names = FOR_FEW + FOR_BRIDGES + OF_OTHERS
    modules = imported(COMMAND.format(arguments=arguments), names, tmp_path, 3 * ("NONE" in words))
    assert modules == []


def test_the_check_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "bridge.yaml").write_text("mappings: {m: {from: {mqtt: a/b}, to: {queue: Q}}}")
    beside = ("asyncio", "bridge.mq.embedded.queuemanager", "bridge.service", "uvloop")
    assert imported(COMMAND.format(arguments=["check", "bridge.yaml"]), FOR_FEW + beside, tmp_path) == []


def test_a_bridge_without_mappings(tmp_path: Path) -> None:
    beside = ("bridge.config.document", "tenacity", "typer.rich_utils", "yaml")
    assert imported(BRIDGE, FOR_FEW + beside, tmp_path) == []


def test_the_process_of_the_archive(tmp_path: Path) -> None:
    names = ("asyncio", "bridge.config.models", "bridge.mq", "bridge.service", "pandas", "typer", "uvloop", "yaml")
    program = """
import os, sys
import bridge.archive.process as process
def stop(config, *_):
    import bridge.archive.parquet
    assert bridge.archive.parquet.record_batch([]).num_columns
    return 0
process.write = stop
sys.argv[1:] = ['{}']
os.dup2(2, 1)
status = process.main()
"""
    assert imported(program, names, tmp_path) == []
