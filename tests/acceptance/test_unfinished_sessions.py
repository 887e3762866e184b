"""`mqbridge mapping show` and `give-up`: a former session of a mapping at a broker, with messages in flight."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import mosquitto
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.fake_broker import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    FakeBroker,
    Peer,
    answer,
    properties_of,
)
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import until
from tests.helpers.remote_bridge import RemoteBridgeProcess

pytestmark = pytest.mark.queue_managers("embedded", "ibmmq", slow="pymqi")

CONFIG = """\
control_socket: {directory}/control
links:
  plant: {{host: 127.0.0.1, port: {port}, version: "{version}"}}
mappings:
  out: {{from: {{queue: OUT}}, to: {{mqtt: out, link: plant}}, guarantee: exactly-once}}
"""


def put(bridge: BridgeProcess, broker: FakeBroker) -> Peer:
    """Put a message for the broker. Return the connection of the mapping."""
    peer = broker.connected()
    assert bridge.run_mq("put", "OUT", "--persistent", "reading").returncode == 0
    return peer


def accepted(broker: FakeBroker, peer: Peer) -> int:
    """Simulate a broker that accepts a message and disappears before it completes the exchange. Return the packet
    identifier.
    """
    ((_, packet_id),) = peer.published(1, 0x04)
    peer.send(answer(PUBREC, packet_id))
    assert peer.packet_ids(PUBREL, 1) == [packet_id]
    broker.close()
    return packet_id


def completed(broker: FakeBroker, packet_id: int) -> Peer:
    """Simulate the broker, which has returned with the session and completes the exchange."""
    peer = broker.connected(present=True)
    assert peer.packet_ids(PUBREL, 1) == [packet_id]
    peer.send(answer(PUBCOMP, packet_id))
    return peer


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_an_unfinished_session_is_shown_and_given_up(
    new_bridge: Callable[..., BridgeProcess], version: str, tmp_path: Path
) -> None:
    broker = FakeBroker(version)
    bridge = new_bridge(config=CONFIG.format(directory=tmp_path, port=broker.port, version=version)).start()
    administrator = Administrator(bridge)
    bridge.mqsc("DEFINE QLOCAL(OUT)")
    peer = put(bridge, broker)
    # The broker has the message, and never acknowledges it.
    assert [topic for topic, _ in peer.published(1, 0x04)] == ["out"]
    address = f"127.0.0.1:{broker.port}"
    broker.close()
    assert administrator.refused("mapping", "give-up", "out", "--yes") == "mapping out has no unfinished session\n"
    assert bridge.config is not None
    bridge.config.write_text(CONFIG.format(directory=tmp_path, port=1, version=version))
    administrator.does("reload")

    line = f" at {address}: 1 message that the broker may have, kept until it is reachable"
    until(lambda: line in administrator.does("mapping", "show", "out"), lambda: bridge.log)
    assert line in administrator.does("mapping", "list")
    (mapping,) = administrator.json("mapping", "show", "out")
    assert [(session["address"], session["messages"], session["received"]) for session in mapping["unfinished"]] == [
        (address, 1, 0)
    ]
    assert bridge.messages("OUT") == bridge.messages("SYSTEM.DEAD.LETTER.QUEUE") == []

    given_up = administrator.does("mapping", "give-up", "out", "--yes")
    assert given_up == "gave up 1 session of mapping out; 1 message moved to the dead-letter queue\n"
    (letter,) = bridge.messages("SYSTEM.DEAD.LETTER.QUEUE")
    assert "reading" in str(letter)
    assert administrator.json("mapping", "show", "out")[0]["unfinished"] == []
    assert administrator.refused("mapping", "give-up", "out", "--yes") == "mapping out has no unfinished session\n"


@pytest.mark.parametrize(("version", "announced"), [("3.1.1", None), ("5", None), ("5", 1)])
def test_a_broker_without_qos_2_gets_an_unfinished_batch_at_least_once(
    new_bridge: Callable[..., BridgeProcess], version: str, announced: int | None, tmp_path: Path
) -> None:
    """Exactly-once is impossible there. With a lower guarantee, messages neither wait forever nor are dead-lettered."""
    broker = FakeBroker(version)
    config = CONFIG.format(directory=tmp_path, port=broker.port, version=version)
    bridge = new_bridge(config=config).start()
    administrator = Administrator(bridge)
    bridge.mqsc("DEFINE QLOCAL(OUT)")
    peer = put(bridge, broker)
    ((topic, packet_id),) = peer.published(1, 0x04)
    properties = b"\0" if announced is None else properties_of(CONNACK >> 4, MaximumQoS=announced)
    if announced is None:
        peer.send(answer(PUBACK, packet_id))
    else:
        peer.close()
        broker.connected(present=True, properties=properties)
    until(lambda: "out: stuck" in administrator.does("mapping", "show", "out"), lambda: bridge.log)
    assert bridge.config is not None
    bridge.config.write_text(config.replace("exactly-once", "at-least-once"))
    assert bridge.process is not None
    bridge.process.send_signal(signal.SIGHUP)
    if announced is None:
        peer = broker.connected(present=True)
        assert peer.published(1, 0x0C) == [(topic, packet_id)]
        peer.send(answer(PUBACK, packet_id))
    peer = broker.connected(present=True, properties=properties)
    ((topic, packet_id),) = peer.published(1, 0x02)
    peer.send(answer(PUBACK, packet_id))
    # The session is ended, and the mapping continues without one.
    broker.connected()
    peer = broker.connected()
    until(lambda: administrator.json("mapping", "show", "out")[0]["unfinished"] == [], lambda: bridge.log)
    assert bridge.messages("OUT") == bridge.messages("SYSTEM.DEAD.LETTER.QUEUE") == []
    assert "MQB5312W" in bridge.log


@pytest.mark.parametrize("interruption", ["kill", "reload, state queue blocked"])
def test_a_mapping_changes_from_a_topic_to_a_queue(
    new_bridge: Callable[..., BridgeProcess], interruption: str, tmp_path: Path
) -> None:
    """The subscription is deleted with its queue, after the message there that the broker has accepted was moved."""
    broker = FakeBroker("5")
    port = broker.port
    config = CONFIG.format(directory=tmp_path, port=port, version="5")
    bridge = new_bridge(config=config.replace("queue: OUT", "topic: readings")).start()
    bridge.mqsc("DEFINE QLOCAL(OUT)")
    peer = broker.connected()
    subscription = "SUB('mqbridge mapping out*')"
    until(lambda: bridge.run_mq("display", subscription).returncode == 0, lambda: bridge.log)
    mosquitto.publish(bridge.port, "readings", "reading", qos=1)
    packet_id = accepted(broker, peer)
    assert bridge.config is not None
    if interruption == "kill":
        bridge.kill()
    else:
        bridge.mqsc("ALTER QLOCAL(SYSTEM.MQTT.MAPPING.STATE) PUT(DISABLED)")
    bridge.config.write_text(bridge.config.read_text().replace("topic: readings", "queue: OUT"))
    if interruption == "kill":
        bridge.start()
    else:
        Administrator(bridge).does("reload")
        bridge.mqsc("ALTER QLOCAL(SYSTEM.MQTT.MAPPING.STATE) PUT(ENABLED)")
    broker = FakeBroker("5", port)
    peer = completed(broker, packet_id)
    until(lambda: bridge.run_mq("display", subscription).returncode == 3, lambda: bridge.log)
    assert bridge.run_mq("put", "OUT", "--persistent", "newer").returncode == 0
    first, body = peer.packet()
    if first == DISCONNECT:
        # A separate connection has finished the session before the mapping entered it.
        peer = broker.connected(present=True)
        first, body = peer.packet()
    assert (first, body[:5]) == (PUBLISH | 0x04, b"\0\3out")
    packet_id = int.from_bytes(body[5:7], "big")
    peer.send(answer(PUBREC, packet_id))
    assert peer.packet_ids(PUBREL, 1) == [packet_id]
    peer.send(answer(PUBCOMP, packet_id))
    until(lambda: bridge.messages("OUT") == [], lambda: bridge.log)
    assert bridge.messages("SYSTEM.DEAD.LETTER.QUEUE") == []
    broker.close()


@pytest.mark.slow
def test_a_standby_completes_the_session(remote: Callable[..., RemoteBridgeProcess], tmp_path: Path) -> None:
    """The active bridge left it with a message that the broker has accepted, and is killed."""
    broker = FakeBroker("5")
    port = broker.port
    config = CONFIG.format(directory=tmp_path, port=port, version="5")
    moved = config.replace(f"port: {port}", "port: 1")
    first = remote("first", config=config).start()
    first.mqsc("DEFINE QLOCAL(OUT)")
    packet_id = accepted(broker, put(first, broker))
    assert first.config is not None
    first.config.write_text(first.config.read_text().replace(f"port: {port}", "port: 1"))
    Administrator(first).does("reload")
    second = remote("second", queue_manager=first.queue_manager, config=moved.replace("/control", "/second"))
    assert second.config is not None
    with LineProcess([MQBRIDGE, "run", second.config, "--port", "0"], env=second.env) as standby:
        standby.line_where(lambda line: "standing by" in line)
        until(lambda: Administrator(first).json("mapping", "show", "out")[0]["unfinished"] != [], lambda: first.log)
        first.kill()
        standby.line_where(lambda line: "listens for MQTT clients" in line)
        broker = FakeBroker("5", port)
        completed(broker, packet_id)
        until(lambda: Administrator(second).json("mapping", "show", "out")[0]["unfinished"] == [], lambda: standby.seen)
        assert first.messages("OUT") == first.messages("SYSTEM.DEAD.LETTER.QUEUE") == []
        assert standby.terminate() == 0
    broker.close()
