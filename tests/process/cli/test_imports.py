"""Modules that a process does not import, because they would delay its start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from tests.helpers.archive import Story
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


def test_a_bridge_without_an_admin_port() -> None:
    program = (
        "import sys, bridge.service.foreground\n"
        "kinds = ('prometheus', 'uvicorn', 'starlette', 'bridge.service.metrics')\n"
        "print([one for one in sys.modules if one.startswith(kinds)])"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout == "[]\n"


def test_the_pages_of_the_console() -> None:
    modules = "operation clients topics queues objects dead_letters users mappings archive"
    program = (
        f"import sys\nfor one in {modules!r}.split(): __import__('bridge.console.' + one)\n"
        "print([one for one in sys.modules if one.startswith('bridge.service')])"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout == "[]\n"


def test_opentelemetry_without_an_endpoint_for_traces() -> None:
    program = (
        "import sys, bridge.service.lifecycle as _, bridge.service.mappings.runner as _, bridge.cli.program as _\n"
        "from bridge.config.operations import TracesConfig\n"
        "from bridge.service.tracing import tracing_of\n"
        "assert tracing_of(TracesConfig(), lambda: 0.0) is None\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'google'))])"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["audit", "report"])
def test_audit_and_report_require_only_duckdb(tmp_path: Path, name: str) -> None:
    story = Story().subscribed("c", 0, "t", 1).put(1, "t", b"a").put(2, "t", b"b").out(600, "c", "t", b"b", since=2)
    archive = story.write(tmp_path)
    missing = "sys.modules.update(dict.fromkeys(['pyspark', 'pandas', 'numpy', 'pyarrow', 'pytz']))"
    command = f"import sys; {missing}; from bridge.cli import main; sys.exit(main())"
    arguments = [sys.executable, "-c", command, name, "--archive", str(archive), "--json"]
    process = subprocess.run(arguments, capture_output=True, text=True)
    assert process.returncode == (1 if name == "audit" else 0), process.stderr
    assert json.loads(process.stdout)["rows"] == 3


#: Hides packages from a new interpreter, as if the extra `spark` were not installed.
_HIDING = """
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec

def others(name, *rest):
    hidden = ("pyspark", "py4j", "pyarrow", "pandas", "numpy")
    return None if name.partition(".")[0] in hidden else find_spec(name, *rest)

PathFinder.find_spec = others
"""


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("list",), 0, "one:\n"),
        (("show",), 0, "never run"),
        (("check",), 2, "pyspark is not installed: `"),
        (("run",), 2, "pyspark is not installed: `"),
        (("stop", "one"), 4, "not running: one"),
        (("drain", "one"), 4, "not running: one"),
        (("reset", "one", "--yes"), 0, "has no checkpoint"),
    ],
)
def test_commands_of_pipelines_without_the_extra_name_it(
    words: tuple[str, ...], status: int, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "bridge.yaml"
    pipeline = "from: {mq: {queue: Q}}, select: SELECT body FROM input, to: {mq: {queue: R}}"
    file.write_text(f"pipelines: {{one: {{{pipeline}}}, two: {{{pipeline}, enabled: no}}}}")
    data = [] if words == ("list",) else ["--data-dir", str(tmp_path)]
    (tmp_path / "sitecustomize.py").write_text(_HIDING)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "bridge", "pipeline", *words, "--config", str(file), *data]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == status and message in process.stdout + process.stderr, process
    assert "Traceback" not in process.stderr
