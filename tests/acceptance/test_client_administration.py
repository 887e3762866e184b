"""`mqbridge client`: clients are listed, shown and disconnected, and their sessions purged (MQSC: PURGE CHANNEL)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.mqtt.packets import ConnectProperties, Disconnect, Will, WillProperties
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import MQBRIDGE, BridgeProcess
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import until
from tests.helpers.raw_client import ConnectionClosed, RawClient

TRANSMISSION_QUEUE = "SYSTEM.MQTT.TRANSMIT.QUEUE"
CONFIG = "control_socket: {}/control\n"


@pytest.fixture
def bridge(administered_bridge: BridgeProcess) -> BridgeProcess:
    return administered_bridge


@pytest.fixture
def administrator(bridge: BridgeProcess) -> Administrator:
    return Administrator(bridge)


def leave_behind(bridge: BridgeProcess, client_id: str, topic_filter: str, *, level: int = 4) -> None:
    """Let a client subscribe with a durable session, and disconnect."""
    client = RawClient.connected(bridge.port, client_id, clean=False, level=level)
    client.subscribe((topic_filter, 1))
    client.disconnect()


def away(administrator: Administrator, client_id: str, messages: int) -> Callable[[], bool]:
    """Return whether a client is disconnected and this number of messages wait for it."""

    def is_so() -> bool:
        status = administrator.clients(client_id)[client_id]
        return not status["connected"] and status["waiting"] == messages

    return is_so


@pytest.mark.parametrize("level", [4, 5], ids=["mqtt311", "mqtt5"])
def test_a_purged_session_leaves_nothing_behind(
    bridge: BridgeProcess, administrator: Administrator, level: int
) -> None:
    """Waiting messages leave the transmission queue, subscriptions end, and the client returns as a new one."""
    leave_behind(bridge, "gone", "t/#", level=level)
    leave_behind(bridge, "other", "t/#")
    publisher = RawClient.connected(bridge.port, "publisher")
    for number in range(3):
        publisher.publish(f"t/{number}", b"x", 1)
    until(away(administrator, "gone", 3))
    bridge.wait_for_depth(TRANSMISSION_QUEUE, 6)

    dry_run = administrator.does("client", "purge", "gone", "--dry-run")
    assert dry_run == "session of client 'gone' would end, and its backlog of 3 messages would be deleted\n"
    assert set(administrator.clients("gone")) == {"gone"}
    purged = administrator.does("client", "purge", "gone")
    assert purged == "session of client 'gone' ended; deleted its backlog of 3 messages\n"

    bridge.wait_for_depth(TRANSMISSION_QUEUE, 3)
    assert administrator.clients("gone") == {}
    publisher.publish("t/later", b"x", 1)
    bridge.wait_for_depth(TRANSMISSION_QUEUE, 4)  # only of the other client
    client = RawClient(bridge.port, "gone", clean=False, level=level)
    assert not client.connect().session_present
    client.ping()
    assert not client.inbox
    # The other one has lost nothing.
    with RawClient.connected(bridge.port, "other", clean=False) as other:
        assert [other.take().topic for _ in range(4)] == ["t/0", "t/1", "t/2", "t/later"]
    assert administrator.refused("client", "purge", "nobody", status=3) == "there is no session of client 'nobody'\n"


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "durable"])
def test_the_will_of_a_purged_client_is_not_published(
    bridge: BridgeProcess, administrator: Administrator, clean: bool
) -> None:
    """PURGE CHANNEL deletes the will. Disconnecting a client publishes it."""
    watcher = RawClient.connected(bridge.port, "watcher")
    watcher.subscribe(("will/#", 1))
    for client_id in ("purged", "disconnected"):
        client = RawClient.connected(
            bridge.port, client_id, clean=clean, will=Will(f"will/{client_id}", b"gone", 1, False)
        )
        administrator.does("client", "purge" if client_id == "purged" else "disconnect", client_id)
        with pytest.raises(ConnectionClosed):
            client.receive()
    # Both were published in this order, or the first one was not.
    assert watcher.take().topic == "will/disconnected"


def test_a_delayed_will_ends_with_the_session(bridge: BridgeProcess, administrator: Administrator) -> None:
    """The purge withdraws a delayed will, which the end of a session would publish otherwise."""
    watcher = RawClient.connected(bridge.port, "watcher")
    watcher.subscribe(("will/#", 1))
    client = RawClient.connected(
        bridge.port,
        "delayed",
        level=5,
        will=Will("will/delayed", b"gone", 1, False, properties=WillProperties(will_delay_interval=10_000)),
        properties=ConnectProperties(session_expiry_interval=20_000),
    )
    client.vanish()
    until(away(administrator, "delayed", 0))
    administrator.does("client", "purge", "delayed")
    watcher.publish("will/marker", b"", 1)
    assert watcher.take().topic == "will/marker"


# test_restart.py restarts a bridge on IBM MQ.
@pytest.mark.queue_managers("embedded", slow="ibmmq")
def test_the_time_of_the_disconnect_survives_a_restart(bridge: BridgeProcess, administrator: Administrator) -> None:
    """`--away` starts at the disconnect, not at the start of the bridge. Connected clients do not match."""
    leave_behind(bridge, "old", "t/#")
    since = administrator.clients("old")["old"]["since"]
    assert since > 0
    bridge.restart()
    status = administrator.clients("old")["old"]
    assert not status["connected"]
    assert abs(status["since"] - since) < 1.0
    connected = RawClient.connected(bridge.port, "here", clean=False)
    # Options also apply to a given client identifier.
    for words, why in (
        (("old", "--away", "1h"), "client 'old' has been away for "),
        (("here", "--away", "0s"), "client 'here' is connected; its session was not ended\n"),
        (("old", "--channel", "NONE"), "client 'old' belongs to channel "),
    ):
        assert administrator.refused("client", "purge", *words).startswith(why)
    assert set(administrator.clients("--away", "1h")) == set()
    assert set(administrator.clients("--away", "0s")) == {"old"}
    assert administrator.does("client", "purge", "--away", "1h") == "0 sessions ended, with a backlog of 0 messages\n"
    summary = administrator.does("client", "purge", "--away", "0s", "--dry-run")
    assert summary == "1 session would end, with a backlog of 0 messages\nclients: 'old'\n"
    assert set(administrator.clients()) == {"old", "here"}
    assert administrator.does("client", "purge", "--away", "0s") == "1 session ended, with a backlog of 0 messages\n"
    assert set(administrator.clients()) == {"here"}
    connected.ping()
    bridge.restart()
    assert set(administrator.clients()) == {"here"}  # nothing of the other one is on record


def test_a_member_of_a_share_is_purged(bridge: BridgeProcess, administrator: Administrator) -> None:
    """Its unacknowledged messages go to another member. The purge of the last member ends the share."""
    share = "$share/s/work/#"
    first = RawClient.connected(bridge.port, "first", clean=False)
    first.subscribe((share, 1))
    publisher = RawClient.connected(bridge.port, "publisher")
    publisher.publish("work/1", b"", 1)
    assert first.receive().topic == "work/1"
    second = RawClient.connected(bridge.port, "second", clean=False)
    second.subscribe((share, 1))
    administrator.does("client", "purge", "first")
    assert second.take().topic == "work/1"
    publisher.publish("work/2", b"", 1)
    assert second.take().topic == "work/2"
    second.disconnect()
    publisher.publish("work/3", b"", 1)
    bridge.wait_for_depth(TRANSMISSION_QUEUE, 1)
    administrator.does("client", "purge", "second")
    bridge.wait_for_depth(TRANSMISSION_QUEUE, 0)
    publisher.publish("work/4", b"", 1)
    publisher.ping()
    bridge.wait_for_depth(TRANSMISSION_QUEUE, 0)


def test_clients_are_listed_and_shown(bridge: BridgeProcess, administrator: Administrator) -> None:
    """Lists are sorted by client identifier and paged. `client show` prints subscriptions, backlog and messages in flight."""
    leave_behind(bridge, "pump-1", "a/#")
    two = RawClient.connected(bridge.port, "pump-2", clean=False, keep_alive=30, will=Will("w", b"", 0, False))
    two.subscribe(("a/#", 1), ("b/+", 2))
    two.publish("a/1", b"x", 1)
    three = RawClient.connected(bridge.port, "pump-[3]")
    assert list(administrator.clients("pump-*")) == ["pump-1", "pump-2", "pump-[3]"]
    clients = administrator.clients()
    assert (clients["pump-1"]["connected"], clients["pump-2"]["connected"]) == (False, True)
    assert (clients["pump-2"]["protocol_level"], clients["pump-2"]["subscriptions"]) == (4, 2)
    assert list(administrator.clients("*[3]")) == ["pump-[3]"]  # only * matches others
    assert list(administrator.clients("pump-?")) == []
    assert list(administrator.clients("--limit", "1", "--after", "pump-1")) == ["pump-2"]
    three.ping()
    assert set(administrator.clients("--disconnected")) == {"pump-1"}
    until(away(administrator, "pump-1", 1))
    (details,) = administrator.json("client", "show", "pump-2")
    assert [subscription["topic_filter"] for subscription in details["subscriptions"]] == ["a/#", "b/+"]
    assert (details["keep_alive"], details["will_topic"]) == (30, "w")
    assert [(message["topic"], message["qos"]) for message in details["in_flight"]] == [("a/1", 1)]
    (details,) = administrator.json("client", "show", "pump-1")
    assert details["waiting"] == ["a/1"]
    text = administrator.does("client", "show", "pump-2")
    assert "in flight                     a/1  QoS 1" in text
    table = administrator.does("client", "list").splitlines()
    assert table[0].split()[:3] == ["client", "state", "channel"]
    assert administrator.refused("client", "show", "nobody", status=3) == "there is no session of client 'nobody'\n"
    assert administrator.refused("client", "disconnect", "pump-1") == "client 'pump-1' is not connected\n"
    assert "expected a client identifier" in administrator.refused("client", "purge", status=2)
    assert "or 30d, found '3x'" in administrator.refused("client", "list", "--away", "3x", status=2)


def test_a_disconnected_mqtt_5_client_gets_the_reason(bridge: BridgeProcess, administrator: Administrator) -> None:
    """DISCONNECT has the reason code 0x98, administrative action. The session stays."""
    client = RawClient.connected(bridge.port, "five", level=5, clean=False)
    administrator.does("client", "disconnect", "five")
    assert client.expect(Disconnect).reason_code == 0x98
    client.expect_closed()
    assert not administrator.clients("five")["five"]["connected"]


def test_several_clients_are_selected(bridge: BridgeProcess, administrator: Administrator) -> None:
    clients = {name: RawClient.connected(bridge.port, name) for name in ("sensor-1", "sensor-2", "pump-1", "pump-2")}
    words = ("client", "disconnect", "pump-1", "sensor-*")
    assert administrator.does(*words, "--dry-run").startswith(
        "3 clients would be disconnected\nclients: 'pump-1', 'sensor-1'"
    )
    for client in clients.values():
        client.ping()
    assert administrator.does(*words) == "3 clients disconnected\n"
    for name in ("sensor-1", "sensor-2", "pump-1"):
        clients[name].expect_closed()
    clients["pump-2"].ping()
    assert administrator.refused("client", "disconnect", "pump-2", "nobody") == (
        "1 client disconnected\nthere is no session of client 'nobody'\n"
    )
    assert "expected a client identifier, a pattern" in administrator.refused("client", "disconnect", status=2)
    for name in ("old-1", "old-2"):
        leave_behind(bridge, name, "t/#")
    assert administrator.does("client", "purge", "old-*", "--yes") == "2 sessions ended, with a backlog of 0 messages\n"
    assert set(administrator.clients("old-*")) == set()


def test_the_history_and_the_trace_of_a_client(
    bridge: BridgeProcess, administrator: Administrator, tmp_path: Path
) -> None:
    leave_behind(bridge, "departed", "t/#")
    administrator.does("client", "purge", "departed")
    events = administrator.json("client", "history", "departed")
    assert [event["kind"] for event in events] == ["session_ended", "disconnected", "subscribed", "connected"]
    assert "subscribed to 't/#' with QoS 1" in administrator.does("client", "history", "departed")
    assert administrator.does("client", "history", "nobody") == "the bridge has no events of this client\n"
    file = tmp_path / "trace.jsonl"
    words = ("client", "trace", "traced", "--payloads", "--file", str(file), "--limit", "3")
    with LineProcess([MQBRIDGE, *words, *administrator.options], env=bridge.env) as tracing:
        until(file.exists)

        def is_traced() -> bool:
            # The first request starts the trace.
            RawClient.connected(bridge.port, "traced").vanish()
            return file.stat().st_size > 0

        until(is_traced)
        assert tracing.wait() == 0
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(entries) == 3 and any("connected via channel" in entry["text"] for entry in entries)
    assert file.stat().st_mode & 0o777 == 0o600
    assert "File exists" in administrator.refused("client", "trace", "traced", "--file", str(file))
    elsewhere = tmp_path / "no bridge"
    without_bridge = ["client", "trace", "traced", "--file", str(elsewhere), "--data-dir", str(tmp_path / "none")]
    assert "no bridge answers" in CliRunner().invoke(program, without_bridge).stderr
    assert not elsewhere.exists()
    ended = administrator.run("client", "trace", "traced", "--for", "0s")
    assert (ended.stdout, ended.stderr) == ("", "tracing client traced (Ctrl-C ends the trace)\n")
