"""Missing and truncated files of an archive, at a start of the bridge."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bridge.archive.schema import archive_files
from tests.acceptance.test_backup import mqbridge
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.scrape import Scrape

# The archive does not depend on the queue manager.
pytestmark = pytest.mark.queue_managers("embedded")


def test_files_in_the_middle_are_reported_at_the_start(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    config = f"archive: {{directory: {archive}, roll: {{time: 100 ms}}}}\nadmin: {{port: 0}}\n"
    with at_work(BridgeProcess(tmp_path / "data", config=config)) as bridge:
        for number in range(4):
            with RawClient.connected(bridge.port, "sender") as sender:
                sender.publish("t", b"x", 1)
            until(lambda number=number: len(archive_files(archive)) > number)  # type: ignore[misc]
        assert bridge.stop() == 0
        _, deleted, truncated, *_ = archive_files(archive)
        deleted.unlink()
        os.truncate(truncated, truncated.stat().st_size // 2)
        bridge.start()
        administrator = Administrator(bridge)

        def listed() -> dict[str, str]:
            status = json.loads(administrator.run("status", "--json").stdout)
            return {problem["kind"]: problem["what"] for problem in status["problems"]}

        until(lambda: "archive_files" in listed(), lambda: bridge.log)
        description = listed()["archive_files"]
        assert (
            f"archive {archive}: file 2 is missing, between" in description
            and f"{truncated} is truncated" in description
        )
        assert "MQB7012E" in bridge.log and Scrape(bridge).get("mqbridge_archive_files_missing") == 1
        process = mqbridge("data", "verify", archive)
        assert (
            process.returncode == 1
            and "file 2 is missing" in process.stdout
            and f"{truncated} is damaged" in process.stdout
        )
        # Later files are written, and numbered after the last one.
        before = len(archive_files(archive))
        with RawClient.connected(bridge.port, "sender") as sender:
            sender.publish("t", b"x", 1)
        until(lambda: len(archive_files(archive)) > before)
