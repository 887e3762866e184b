"""`mqbridge status`, `channel`, `mapping`, `topic`, `log` and `top` with a running bridge, on both kinds of queue manager."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.patience import PATIENCE, until
from tests.helpers.raw_client import ConnectionClosed, RawClient

CONFIG = """
control_socket: {}/control
channels: [{{name: FIRST, port: 0}}, {{name: SECOND, port: 0}}]
mappings:
  out: {{from: {{mqtt: "out/#"}}, to: {{topic: "taken/out"}}}}
"""


@pytest.fixture
def bridge(administered_bridge: BridgeProcess) -> BridgeProcess:
    return administered_bridge


@pytest.fixture
def administrator(bridge: BridgeProcess) -> Administrator:
    return Administrator(bridge)


# The other tests of this file use a bridge on IBM MQ.
@pytest.mark.queue_managers("embedded", slow="ibmmq")
def test_the_status_of_a_bridge(new_bridge: Callable[..., BridgeProcess], tmp_path: Path) -> None:
    """The exit status is 0 if there are no problems, and 4 without a bridge."""
    bridge = new_bridge(config=CONFIG.format(tmp_path)).start()
    administrator = Administrator(bridge)
    client = RawClient.connected(bridge.port, "c")
    (status,) = administrator.json("status")
    assert (status["state"], status["channels"], status["channels_running"], status["mappings"]) == ("running", 2, 2, 1)
    assert (status["clients"], status["problems"], status["queue_manager_available"]) == (1, [], True)
    assert "clients connected: 1, sessions: 1" in administrator.does("status")
    client.ping()
    bridge.stop()
    assert "Is it running?" in administrator.refused("status", status=4)


def test_a_channel_is_stopped_and_started(bridge: BridgeProcess, administrator: Administrator) -> None:
    """Clients of a stopped channel are disconnected and rejected. The other channel continues."""
    port = bridge.ports["SECOND"]
    stays, goes = RawClient.connected(bridge.ports["FIRST"], "stays"), RawClient.connected(port, "goes", clean=False)
    assert administrator.does("channel", "stop", "SECOND") == "channel SECOND stopped; 1 client disconnected\n"
    with pytest.raises(ConnectionClosed):
        goes.receive()
    stays.ping()
    with pytest.raises(ConnectionRefusedError):
        RawClient(port, "late")
    channels = {channel["name"]: channel for channel in administrator.json("channel", "list")}
    assert (channels["FIRST"]["state"], channels["SECOND"]["state"]) == ("running", "stopped")
    assert (channels["FIRST"]["clients"], channels["FIRST"]["connections"]) == (1, 1)
    assert administrator.refused("channel", "stop", "SECOND") == "channel SECOND is already stopped\n"
    assert "SECOND" in administrator.does("channel", "start", "SECOND")
    assert administrator.refused("channel", "start", "SECOND") == "channel SECOND is already running\n"
    assert "no channel" in administrator.refused("channel", "start", "THIRD", status=3)
    assert administrator.clients("goes")["goes"]["durable"]  # the session still exists


@pytest.mark.parametrize(
    "command",
    [
        ("channel", "stop", "NONE", "--yes"),
        ("client", "show", "NONE"),
        ("client", "disconnect", "NONE", "--yes"),
        ("client", "purge", "NONE", "--yes"),
        ("mapping", "pause", "NONE"),
        ("mapping", "resume", "NONE"),
        ("link", "show", "NONE"),
        ("link", "test", "NONE"),
    ],
)
@pytest.mark.queue_managers("embedded", slow="ibmmq")  # the requests do not reach the queue manager
def test_a_command_for_an_object_that_does_not_exist_exits_with_3(
    administrator: Administrator, command: tuple[str, ...]
) -> None:
    assert "NONE" in administrator.refused(*command, status=3)


def test_a_mapping_is_paused(bridge: BridgeProcess, administrator: Administrator) -> None:
    """Publications during the pause wait, and are processed after resume."""
    watcher = RawClient.connected(bridge.port, "watcher")
    watcher.subscribe(("taken/#", 1))
    until(lambda: administrator.json("mapping", "list")[0]["state"] == "running")
    assert administrator.does("mapping", "pause", "out") == "mapping out paused; its messages wait\n"
    watcher.publish("out/1", b"waits", 1)
    (paused,) = administrator.json("mapping", "list")
    assert (paused["state"], paused["taken"]) == ("paused", 0)
    outcome = administrator.run("status")
    assert outcome.exit_code == 1
    status = json.loads(administrator.run("status", "--json").stdout)
    (problem,) = status["problems"]
    assert (problem["kind"], problem["what"]) == ("mapping", "mapping out is paused")
    assert problem["command"] == "mqbridge mapping resume out"
    assert administrator.does("mapping", "resume", "out") == "mapping out resumed\n"
    assert watcher.take().payload == b"waits"


def test_topics_are_shown(bridge: BridgeProcess, administrator: Administrator) -> None:
    """The retained publication, and the subscribed client."""
    client = RawClient.connected(bridge.port, "c")
    client.publish("plant/1/temp", b"21.5", 1, retain=True)
    client.subscribe(("plant/#", 1))
    levels = {level["name"]: level for level in administrator.json("topic", "list", "plant")}
    assert "1" in levels
    (temp,) = administrator.json("topic", "list", "plant/1")
    assert (temp["topic"], temp["retained"]) == ("plant/1/temp", True)
    (details,) = administrator.json("topic", "show", "plant/1/temp")
    assert [publication["topic"] for publication in details["retained"]] == ["plant/1/temp"]
    subscriptions = {subscription["name"]: subscription for subscription in details["subscriptions"]}
    assert subscriptions["c:plant/#"]["client_id"] == "c"
    assert "plant/1/temp" in administrator.does("topic", "show", "plant/#")
    assert "# must be alone" in administrator.refused("topic", "show", "plant#", status=2)


def test_the_level_of_the_log(bridge: BridgeProcess, administrator: Administrator) -> None:
    """It applies from then on."""
    RawClient.connected(bridge.port, "told").disconnect()
    until(lambda: "'told'" in bridge.log)
    administrator.does("log", "level", "error")
    assert administrator.json("status")[0]["log_level"] == "error"
    RawClient.connected(bridge.port, "quiet").disconnect()
    administrator.does("log", "level", "info")
    RawClient.connected(bridge.port, "again").disconnect()
    until(lambda: "'again'" in bridge.log)
    assert "'quiet'" not in bridge.log
    assert "is not one of" in administrator.refused("log", "level", "loud", status=2)


@pytest.fixture
def busy(bridge: BridgeProcess) -> Iterator[None]:
    """Let one client publish all the time, and another one subscribe."""
    ended = threading.Event()
    publisher, subscriber = (
        RawClient.connected(bridge.port, "publisher"),
        RawClient.connected(bridge.port, "subscriber"),
    )
    subscriber.subscribe(("load", 1))

    def work() -> None:
        while not ended.wait(0.02):
            publisher.publish("load", b"x", 1)
            subscriber.take()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    ended.set()
    thread.join(PATIENCE)


@pytest.mark.usefixtures("busy")
def test_top_prints_rates(bridge: BridgeProcess, administrator: Administrator) -> None:
    """Each reading is an object with publications, clients, backlog and mappings."""
    samples = administrator.json("top", "--limit", "2", "--interval", "1.2")
    assert len(samples) == 2
    last = samples[-1]
    assert last["received"] > 0 and last["sent"] > 0
    assert (last["clients"], last["sessions"]) == (2, 2)
    assert isinstance(last["transmission_queue_depth"], int)
    channels = {channel["name"]: channel for channel in last["channels"]}
    assert channels["FIRST"]["received"] > 0 and channels["FIRST"]["unit_seconds"] > 0
    assert channels["SECOND"]["received"] == 0
    assert {client["client_id"] for client in last["busiest_clients"]} == {"publisher", "subscriber"}
    assert [mapping["name"] for mapping in last["mappings"]] == ["out"]
    assert "client, busiest first" in administrator.does("top", "--limit", "2", "--interval", "1.2")


def test_top_in_a_terminal_ends_with_q(bridge: BridgeProcess) -> None:
    """It draws a screen, reads a key without Enter, and restores the terminal."""
    ours, theirs = pty.openpty()
    options = [str(option) for option in bridge.data_options()]
    command = [MQBRIDGE, "top", "--interval", "0.1", "--config", str(bridge.config), *options]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**bridge.env, "TERM": "xterm", "COLUMNS": "100"}
    )
    os.close(theirs)
    screen = b""
    try:
        while b"publications in" not in screen:
            assert select.select([ours], [], [], PATIENCE)[0], screen
            screen += os.read(ours, 65_536)
        os.write(ours, b"q")
        until(lambda: drained(ours) is None or process.poll() is not None)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def drained(descriptor: int) -> bytes | None:
    """Return output to a terminal, and None at its end. The terminal must be read, or the writer blocks."""
    if not select.select([descriptor], [], [], 0)[0]:
        return b""
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return None


def test_all_lists_have_json(administrator: Administrator) -> None:
    """Each line is an object, or there are no lines."""
    for words in ("status", "channel list", "client list", "topic list", "link list", "mapping list"):
        for line in administrator.does(*words.split(), "--json").splitlines():
            assert isinstance(json.loads(line), dict), words
