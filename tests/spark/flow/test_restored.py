"""A pipeline whose queue manager is restored from a backup that is older than its spool."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from bridge.spark.session import QUICK_JAVA
from tests.acceptance.test_backup import mqbridge
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.patience import PATIENCE, until
from tests.spark.flow.test_kills import Run

CONFIGURATION = f"""
queue_manager: {{data_directory: $data}}
channels: [{{name: C, port: 0}}]
spark: {{conf: {{spark.driver.extraJavaOptions: "{QUICK_JAVA}"}}}}
pipelines:
  p: {{from: {{mq: {{queue: Q}}}}, select: SELECT text FROM input, to: {{mq: {{queue: OUT}}}}, batch: 100, trigger: 0}}
"""


def numbers(bridge: BridgeProcess, queue: str) -> list[int]:
    return [int(str(message["body"]).strip('{}"tex :')) for message in bridge.messages(queue)]


# Spark is started three times.
@pytest.mark.slow
@pytest.mark.needs_java
@pytest.mark.timeout(1800)
def test_messages_in_the_spool_survive_a_restore(tmp_path: Path) -> None:
    """Messages were put after the backup, and the pipeline took them off their queue. They exist only in the spool."""
    runs = iter(range(10))

    def run(*words: str) -> Run:
        assert bridge.config is not None
        started = Run(bridge.config, tmp_path / f"run{next(runs)}", *words)
        stack.callback(started.end)
        return started

    def finish() -> None:
        process = run("--once")
        assert process.process.wait(PATIENCE) == 0, process.lines.read_text()

    def put(*values: int) -> None:
        for value in values:
            bridge.mq("put", "Q", str(value), "--persistent")

    def depth(queue: str) -> int:
        return int(bridge.mq_json("display", f"QLOCAL({queue})", "CURDEPTH")[0]["CURDEPTH"])

    with (
        ExitStack() as stack,
        at_work(
            BridgeProcess(tmp_path / "data", config=CONFIGURATION.replace("$data", str(tmp_path / "data")))
        ) as bridge,
    ):
        bridge.mqsc("DEFINE QLOCAL(Q)\nDEFINE QLOCAL(OUT)")
        put(1, 2)
        finish()
        put(3, 4)
        backup = mqbridge("data", "backup", tmp_path / "b.db", "--data-dir", bridge.data_directory)
        assert backup.returncode == 0, backup.stderr
        finish()
        assert numbers(bridge, "OUT") == [1, 2, 3, 4]
        # The pipeline gets messages that it cannot deliver.
        bridge.mqsc("ALTER QLOCAL(OUT) PUT(DISABLED)")
        put(5, 6)
        process = run()
        until(lambda: depth("Q") == 0 or process.process.poll() is not None)
        process.end()
        bridge.kill()
        elsewhere = mqbridge("data", "restore", tmp_path / "b.db", "--data-dir", tmp_path / "new")
        assert elsewhere.returncode == 1 and "queue Q (" in elsewhere.stderr, elsewhere.stderr
        restore = mqbridge(
            "data", "restore", "--force", "--yes", tmp_path / "b.db", "--data-dir", bridge.data_directory
        )
        assert restore.returncode == 0, restore.stderr
        bridge.start()
        assert (numbers(bridge, "OUT"), depth("Q")) == ([1, 2], 2)
        process = run("--once")
        assert process.process.wait(PATIENCE) == 0 and "MQB8010W" in process.lines.read_text(), (
            process.lines.read_text()
        )
        assert sorted(numbers(bridge, "OUT")) == [1, 2, 3, 4, 5, 6]
        # The state is now up to date.
        put(7)
        finish()
        assert sorted(numbers(bridge, "OUT")) == [1, 2, 3, 4, 5, 6, 7]
