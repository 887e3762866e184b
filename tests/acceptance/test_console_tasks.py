"""The tasks of docs/how-to/console.md on the command line. tests/unit/console/test_console_tasks.py compares both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.mqtt.packets import Publish
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient

# Each request has its own tests on IBM MQ.
pytestmark = pytest.mark.queue_managers("embedded")

CONFIG = """
queue_manager: {{data_directory: {0}/data, scripts: [{0}/objects.mqsc]}}
channels:
  - {{name: PLAIN.MQTT, port: 0}}
  - {{name: DEVICES, port: 0, authentication: [{{method: password, file: {0}/devices}}]}}
admin: {{port: 0}}
links: {{plant: {{host: 127.0.0.1, port: 1}}}}
mappings:
  orders: {{from: {{mqtt: "orders/#"}}, to: {{queue: ORDERS}}}}
"""
SCRIPT = "DEFINE QLOCAL(ORDERS)\nDEFINE QLOCAL(SMALL) MAXDEPTH(1)\nDEFINE SUB(SMALL) TOPICSTR('full/#') DEST(SMALL)\n"


@pytest.fixture(scope="module")
def bridge(queue_manager: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("tasks")
    (directory / "objects.mqsc").write_text(SCRIPT)
    (directory / "devices").touch(mode=0o600)
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory))) as process:
        yield process


@pytest.fixture
def cli(bridge: BridgeProcess) -> Administrator:
    return Administrator(bridge)


def offline(*words: str) -> str:
    """Run a command that does not need the bridge. Return its output."""
    result = CliRunner().invoke(program, words)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_search(bridge: BridgeProcess, cli: Administrator) -> None:
    with RawClient.connected(bridge.port, "found-7"):
        assert "mqbridge client show found-7" in cli.does("search", "ound-")


def test_limits_and_certificates(cli: Administrator) -> None:
    assert "sessions" in cli.does("health")


def test_the_rates_of_a_queue(cli: Administrator) -> None:
    cli.does("health", "--name", "ORDERS", "--period", "6h")
    # The bridge takes a sample every 15 seconds.
    until(lambda: "ORDERS" in cli.does("health", "--name", "ORDERS", "--period", "10min"))


def test_stopped_parts_are_resumed(cli: Administrator) -> None:
    cli.does("mapping", "pause", "orders")
    assert "orders" in cli.does("mapping", "resume", "orders")
    assert "Connection refused" in cli.run("link", "test", "plant").stdout
    cli.does("channel", "stop", "DEVICES", "--yes")
    assert "listens" in cli.does("channel", "start", "DEVICES")


def test_the_reason_why_a_device_disconnected(bridge: BridgeProcess, cli: Administrator) -> None:
    RawClient.connected(bridge.port, "left").disconnect()
    assert "disconnected" in cli.does("client", "history", "left")


def test_one_device_is_traced(bridge: BridgeProcess, cli: Administrator, tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    with RawClient.connected(bridge.port, "watched") as client:
        client.publish("watched/1", b"x", 1)
        cli.does("client", "trace", "watched", "--for", "1s", "--file", str(file))
    assert file.exists()


def test_devices_are_disconnected_and_purged(bridge: BridgeProcess, cli: Administrator) -> None:
    for name in ("several-1", "several-2"):
        RawClient.connected(bridge.port, name, clean=False)
    cli.does("client", "disconnect", "several-*", "--yes")
    cli.does("client", "purge", "several-*", "--yes")
    assert cli.json("client", "list", "several-*") == []


def test_publishers_and_subscribers(bridge: BridgeProcess, cli: Administrator) -> None:
    with RawClient.connected(bridge.port, "pump") as client:
        client.subscribe(("plant/#", 1))
        client.publish("plant/1", b"x", 1)
        client.wait_for(Publish)
        assert "pump" in cli.does("topic", "publishers", "plant/#", "--for", "1s")
        assert "pump" in cli.does("topic", "show", "plant/#")


def test_the_route_of_a_message(cli: Administrator) -> None:
    assert "ORDERS" in cli.does("topic", "route", "orders/1")


def test_a_message_is_published_and_cleared(bridge: BridgeProcess, cli: Administrator) -> None:
    cli.does("topic", "publish", "kept/1", "value", "--retain")
    cli.does("topic", "clear", "kept/1", "--yes")
    with RawClient.connected(bridge.port, "late") as client:
        client.subscribe(("kept/1", 1))
        client.ping()
        assert not client.inbox


def test_a_queue_is_created(cli: Administrator) -> None:
    assert "Queue MADE created" in cli.does("mqsc", "DEFINE QLOCAL(MADE)", "--yes")


def test_definitions_are_copied(cli: Administrator, tmp_path: Path) -> None:
    file = tmp_path / "objects.mqsc"
    file.write_text(cli.does("mqsc", "dump"))
    assert "ORDERS" in file.read_text()
    cli.does("mqsc", "run", str(file), "--dry-run")


def test_a_user_gets_a_password(cli: Administrator) -> None:
    words = ["user", "set-password", "anna", "--stdin", *cli.options]
    command = CliRunner().invoke(program, words, input="a password of a device\n")
    assert command.exit_code == 0, command.output
    assert "anna" in cli.does("user", "list")


def test_whether_a_user_may_publish(cli: Administrator) -> None:
    assert "permits" in cli.does("user", "may-publish", "anna", "PLAIN.MQTT", "plant/1")


def test_dead_letters_are_delivered(bridge: BridgeProcess, cli: Administrator) -> None:
    with RawClient.connected(bridge.port, "filler") as client:
        for _ in range(2):
            client.publish("full/1", b"x", 1)
    assert cli.json("dlq", "list")
    cli.does("mqsc", "ALTER QLOCAL(SMALL) MAXDEPTH(10)", "--yes")
    assert "retried 1 message: 1 delivered" in cli.does("dlq", "retry", "--all")


def test_changed_settings(bridge: BridgeProcess, cli: Administrator) -> None:
    assert "mappings.orders" in cli.does("config", "list")
    assert "mappings.orders" in offline("check", str(bridge.config), "--changed")


def test_an_edited_copy_is_checked(bridge: BridgeProcess, cli: Administrator, tmp_path: Path) -> None:
    assert bridge.config is not None
    edited = tmp_path / "edited.yaml"
    edited.write_text(bridge.config.read_text() + "limits: {waiting_bytes: 1 MiB}\n")
    assert "waiting_bytes" in cli.does("config", "check", str(edited))
    assert offline("check", str(edited))
    edited.write_text("limits: {waiting_bites: 1 MiB}\n")
    assert "waiting_bites" in cli.refused("config", "check", str(edited), status=2)
