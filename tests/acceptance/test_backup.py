"""A backup under load, a kill, and a bridge on the restored data: real processes and clients."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.mqtt.packets import Pubcomp, Publish, Pubrec, Pubrel
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.crash_checks import verify
from tests.helpers.exactly_once import DurableSubscriber, Publisher
from tests.helpers.faulty_disk import compiled
from tests.helpers.forked_process import MQBRIDGE, run
from tests.helpers.patience import PATIENCE, until
from tests.helpers.raw_client import ConnectionClosed, RawClient

TOPICS = [f"crash/{number}" for number in range(4)]
TRANSMISSION_QUEUE = "SYSTEM.MQTT.TRANSMIT.QUEUE"


def mqbridge(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
    if "LD_PRELOAD" in env:
        command = [str(word) for word in (MQBRIDGE, *words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=os.environ | env)
    return run(*map(str, words))


class Load(threading.Thread):
    """Publish until the bridge is killed."""

    def __init__(self, publisher: Publisher, port: int) -> None:
        super().__init__(daemon=True)
        self.publisher = publisher
        publisher.connect(port)

    def run(self) -> None:
        try:
            while not self.publisher.finished:
                self.publisher.step()
        except ConnectionClosed:
            pass
        finally:
            self.publisher.close()


@pytest.mark.parametrize("qos", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_restore_contains_all_messages_acknowledged_before_the_backup(tmp_path: Path, qos: int) -> None:
    """The bridge is killed and its data directory lost: sessions return, with each message once and in order."""
    restored = BridgeProcess(tmp_path / "restored")
    with at_work(BridgeProcess(tmp_path / "data")) as bridge:
        subscriber = DurableSubscriber("keeper", "crash/#", qos)
        subscriber.connect(bridge.port)
        subscriber.close()
        with RawClient.connected(bridge.port, "retainer") as retainer:
            retainer.publish("state/1", b"on", 1, retain=True)
        publisher = Publisher("sender", TOPICS, 1_000_000, qos)
        load = Load(publisher, bridge.port)
        load.start()
        until(lambda: len(publisher.acknowledged) >= 200)

        acknowledged = set(publisher.acknowledged)
        process = mqbridge("data", "backup", tmp_path / "backup.db", "--json", "--data-dir", bridge.data_directory)
        assert process.returncode == 0, process.stderr
        reached = len(publisher.acknowledged)
        until(lambda: len(publisher.acknowledged) > reached)  # the load continued
        bridge.kill()
        load.join(PATIENCE)
        contents: dict[str, Any] = json.loads(process.stdout)
        assert contents["messages"] >= len(acknowledged) and contents["subscriptions"] == 1

        process = mqbridge("data", "restore", tmp_path / "backup.db", "--data-dir", restored.data_directory)
        assert process.returncode == 0, process.stderr
    with at_work(restored):
        (queue,) = restored.mq_json("display", f"QLOCAL('{TRANSMISSION_QUEUE}')", "CURDEPTH")
        subscriber.connect(restored.port)  # asserts that its session is present
        while len(subscriber.numbers) < queue["CURDEPTH"]:
            subscriber.step()
        subscriber.close()
        publisher.acknowledged = acknowledged
        verify(subscriber.received, publisher, qos)
        assert subscriber.numbers == set(range(len(subscriber.numbers)))  # consistent: none between them is missing
        with RawClient.connected(restored.port, "looker") as looker:
            looker.subscribe(("state/#", 1))
            assert looker.take().payload == b"on"


def test_a_running_bridge(tmp_path: Path) -> None:
    """It is not overwritten by a restore. A full disk leaves no backup, and the bridge continues."""
    with at_work(BridgeProcess(tmp_path / "data")) as bridge:
        bridge.mqsc("DEFINE QLOCAL(KEPT)")
        bridge.mq("put", "KEPT", "a message", "--persistent")
        assert mqbridge("data", "backup", tmp_path / "b.db", "--data-dir", bridge.data_directory).returncode == 0
        process = mqbridge("data", "restore", tmp_path / "b.db", "--force", "--data-dir", bridge.data_directory)
        assert process.returncode == 1 and process.stderr.startswith("mqbridge: error: ") and "in use" in process.stderr
        process = mqbridge("data", "salvage", bridge.data_directory, tmp_path / "salvaged")
        assert process.returncode == 1 and process.stderr.startswith("mqbridge: error: ") and "in use" in process.stderr
        assert bridge.mq("get", "KEPT") == "a message\n"

        (tmp_path / "fault").write_text("full")
        (tmp_path / "backups").mkdir()
        env = {"LD_PRELOAD": str(compiled(tmp_path)), "FAULTY_DISK": str(tmp_path / "fault")}
        file = tmp_path / "backups" / "queuemanager-backup.db"  # the intended name
        process = mqbridge("data", "backup", file, "--data-dir", bridge.data_directory, **env)
        assert process.returncode == 1 and "the disk is full" in process.stderr, process.stderr
        assert list(file.parent.iterdir()) == []
        assert bridge.mq("put", "KEPT", "a message", "--persistent")


@pytest.mark.parametrize("accepting", ["restore", "salvage"])
@pytest.mark.parametrize("level", [4, 5])
def test_a_restore_forgets_identifiers_that_clients_had_not_released(
    tmp_path: Path, level: int, accepting: str
) -> None:
    """The client released them after the backup. Its session resumes, and its next publications are not repetitions."""
    restored = BridgeProcess(tmp_path / "restored")
    identifiers = range(1, 6)
    with at_work(BridgeProcess(tmp_path / "data")) as bridge:
        with (
            RawClient.connected(bridge.port, "keeper", clean=False, level=level) as keeper,
            RawClient.connected(bridge.port, "sender", clean=False, level=level) as sender,
        ):
            keeper.subscribe(("t", 1))
            for number in identifiers:
                sender.send(Publish("t", b"before %d" % number, 2, packet_id=number))
                assert sender.wait_for(Pubrec).packet_id == number
                keeper.take()
            # The time of the backup, and of the older copy from which a salvage starts.
            process = mqbridge("data", "backup", tmp_path / "b.db", "--data-dir", bridge.data_directory)
            assert process.returncode == 0, process.stderr
            for file in bridge.data_directory.glob("queuemanager.db*"):
                (tmp_path / "older").mkdir(exist_ok=True)
                shutil.copy(file, tmp_path / "older")
            for number in identifiers:
                sender.send(Pubrel(number))
                assert sender.wait_for(Pubcomp).packet_id == number
        bridge.kill()
        if accepting == "restore":
            process = mqbridge("data", "restore", tmp_path / "b.db", "--data-dir", restored.data_directory)
        else:
            shutil.copy(bridge.data_directory / "queuemanager.witness", tmp_path / "older")
            refused = mqbridge("run", "--data-dir", tmp_path / "older", "--port", "0")
            assert refused.returncode == 1 and "missing: commit" in refused.stderr, refused.stderr
            process = mqbridge("data", "salvage", "--accept-loss", tmp_path / "older", restored.data_directory)
        assert process.returncode == 0, process.stderr
    with (
        at_work(restored),
        RawClient(restored.port, "sender", clean=False, level=level) as sender,
        RawClient(restored.port, "keeper", clean=False, level=level) as keeper,
    ):
        assert sender.connect().session_present and keeper.connect().session_present
        for number in identifiers:
            sender.send(Publish("t", b"after %d" % number, 2, packet_id=number))
            assert sender.wait_for(Pubrec).packet_id == number
            sender.send(Pubrel(number))
            assert sender.wait_for(Pubcomp).packet_id == number
        expected = [b"after %d" % number for number in identifiers]
        received: list[bytes] = []
        while not set(expected) <= set(received):
            received.append(keeper.take().payload)
        assert [payload for payload in received if payload in expected] == expected


def test_files_without_important_content_may_be_lost(tmp_path: Path) -> None:
    """After a kill: shared memory of SQLite, sockets, locks and the reserve are deleted, truncated or overwritten."""
    config = f"archive: {{directory: {tmp_path / 'archive'}, roll: {{time: 100 ms}}}}\n"
    damage: list[Callable[[Path], object]] = [
        Path.unlink,
        lambda file: file.is_socket() or os.truncate(file, 0),
        lambda file: file.is_socket() or file.write_bytes(os.urandom(100)),
    ]
    archive = tmp_path / "archive"
    with at_work(BridgeProcess(tmp_path / "data", config=config)) as bridge:
        bridge.mqsc("DEFINE QLOCAL(KEPT)")
        for number, change in enumerate(damage):
            bridge.mq("put", "KEPT", f"message {number}", "--persistent")
            with RawClient.connected(bridge.port, "sender") as sender:
                sender.publish("t", b"x", 1)
            until(lambda number=number: len(list(archive.glob("date=*/hour=*/[0-9]*.parquet"))) > number)  # type: ignore[misc]
            bridge.kill()
            content = {"queuemanager.db", "queuemanager.db-wal", "queuemanager.witness", "admin.tokens"}
            others = [
                file for file in bridge.data_directory.iterdir() if file.name not in content and not file.is_dir()
            ]
            assert {"queuemanager.db-shm", "queuemanager.reserve", "mqbridge.sock"} <= {file.name for file in others}
            for file in [*others, archive / ".lock"]:
                change(file)
            bridge.start()
            assert [message["body"] for message in bridge.messages("KEPT")] == [
                f"message {index}" for index in range(number + 1)
            ]
        process = mqbridge("data", "verify", "--config", bridge.config, "--data-dir", bridge.data_directory)
        assert process.returncode == 0 and f"archive {archive} is undamaged" in process.stdout, process


def test_a_damaged_witness_on_a_full_disk(tmp_path: Path) -> None:
    """The start fails with the reason. When the disk has space again, the loss can be accepted."""
    library = compiled(tmp_path)
    with at_work(BridgeProcess(tmp_path / "data")) as bridge:
        bridge.mqsc("DEFINE QLOCAL(KEPT)")
        bridge.mq("put", "KEPT", "a message", "--persistent")
        bridge.kill()
        witness = bridge.data_directory / "queuemanager.witness"
        witness.write_bytes(witness.read_bytes()[:20])
        used = sum(file.stat().st_size for file in bridge.data_directory.glob("queuemanager.*"))
        env = {"LD_PRELOAD": str(library), "FAULTY_DISK_SIZE": str(used)}
        process = mqbridge("run", "--data-dir", bridge.data_directory, "--port", "0", **env)
        assert process.returncode == 1 and "witness is not as it was written" in process.stderr, process.stderr
        assert "--accept-loss" in process.stderr and "Traceback" not in process.stderr
        new = tmp_path / "queuemanager-new"
        salvage = ("data", "salvage", "--accept-loss", bridge.data_directory, new)
        process = mqbridge(*salvage, **env | {"FAULTY_DISK_SIZE": "20000"})
        assert process.returncode == 1 and "full" in process.stderr and "Traceback" not in process.stderr, (
            process.stderr
        )
        assert list(new.iterdir()) == []
        process = mqbridge(*salvage)
        assert process.returncode == 0, process.stderr
    with at_work(BridgeProcess(new)) as salvaged:
        assert salvaged.mq("get", "KEPT") == "a message\n"
