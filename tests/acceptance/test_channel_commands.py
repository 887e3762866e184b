"""An administrator of MQ defines, starts, stops and purges telemetry channels with MQSC, with connected clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.mqtt.packets import Disconnect, Will
from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.certificate_authority import Authority
from tests.helpers.mosquitto import Subscriber, publish
from tests.helpers.patience import eventually, until
from tests.helpers.raw_client import RawClient

TRANSMISSION_QUEUE = "SYSTEM.MQTT.TRANSMIT.QUEUE"
FILE = "channels: [{name: FILE, port: 0}]\n"


def channels(bridge: BridgeProcess) -> dict[str, dict[str, Any]]:
    """Return the channels of `mqbridge channel list`, by name."""
    return {channel["name"]: channel for channel in Administrator(bridge).json("channel", "list")}


def display(bridge: BridgeProcess, *words: str) -> list[Any]:
    """Return the output of DISPLAY, empty if nothing matches."""
    result = bridge.run_mq("display", *words, "--json")
    return [json.loads(line) for line in result.stdout.decode().splitlines()]


def states(bridge: BridgeProcess) -> dict[str, str]:
    return {channel["CHANNEL"]: channel["STATUS"] for channel in display(bridge, "CHSTATUS(*)", "CHLTYPE(MQTT)")}


def started(bridge: BridgeProcess, name: str) -> int:
    """Run START CHANNEL and return the port when the channel listens."""
    bridge.mqsc(f"START CHANNEL('{name}') CHLTYPE(MQTT)")
    return port_of(bridge, name)


def port_of(bridge: BridgeProcess, name: str) -> int:
    until(lambda: states(bridge)[name] == "RUNNING", lambda: bridge.log)
    return int(channels(bridge)[name]["endpoint"].rpartition(":")[2])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    with at_work(BridgeProcess(tmp_path_factory.mktemp("channels") / "data", config=FILE)) as process:
        yield process


@pytest.fixture
def bridge(shared: BridgeProcess) -> Iterator[BridgeProcess]:
    """A bridge whose only channel is FILE."""
    yield shared
    names = channels(shared).keys() - {"FILE"}
    for name in names:
        shared.run_mq("run", "-", stdin=f"STOP CHANNEL({name}) CHLTYPE(MQTT)\n".encode())  # fails if it is stopped
    until(lambda: all(state == "STOPPED" for name, state in states(shared).items() if name != "FILE"))
    for name in names:
        shared.mqsc(f"DELETE CHANNEL({name}) CHLTYPE(MQTT)\n")
    eventually(lambda: list(channels(shared)), ["FILE"])


def test_commands_of_one_script_are_executed_in_order(bridge: BridgeProcess) -> None:
    """Even if the service does not know the new channel yet when the next command arrives."""
    channel = "CHANNEL(NEW) CHLTYPE(MQTT)"
    output = bridge.mqsc(
        f"DEFINE {channel} PORT(0)\nSTART {channel}\nDISPLAY CHSTATUS(NEW) CHLTYPE(MQTT)\nSTOP {channel}\n"
    )
    assert "STATUS(" in output
    assert "stopped already" not in output
    bridge.mqsc("DEFINE CHANNEL(LAST) CHLTYPE(MQTT) PORT(0)\nSTART CHANNEL(LAST) CHLTYPE(MQTT)\n")
    port_of(bridge, "LAST")
    assert states(bridge)["NEW"] == "STOPPED"


def test_a_channel_is_defined_and_started_and_survives_a_restart(bridge: BridgeProcess) -> None:
    """A new channel is stopped. After START, mosquitto's clients can use it, and it starts with the bridge."""
    bridge.mqsc("DEFINE CHANNEL(PLANT) CHLTYPE(MQTT) PORT(0) MCAUSER('plant')")
    eventually(lambda: states(bridge), {"FILE": "RUNNING", "PLANT": "STOPPED"})
    port = started(bridge, "PLANT")
    listed = channels(bridge)
    assert [(name, channel["defined_by"]) for name, channel in listed.items()] == [
        ("FILE", "file"),
        ("PLANT", "command"),
    ]
    subscriber = Subscriber(port, "pumps/#", qos=1, options=("-i", "watch", "-u", "carol", "-P", "x", "-k", "77"))
    publish(port, "pumps/1", "on", "-i", "pump-1", qos=2)
    assert subscriber.message()["payload"] == "on"
    assert display(bridge, "CHSTATUS(PLANT)", "CHLTYPE(MQTT)")[0]["CONNECTIONS"] == 1
    eventually(
        lambda: [
            {
                key: connection[key]
                for key in ("CLIENTID", "STATUS", "CLNTUSER", "MCAUSER", "KAINT", "PROTOCOL", "MSGSNT", "MSGRCVD")
            }
            for connection in display(bridge, "CHSTATUS(PLANT)", "CHLTYPE(MQTT)", "CLIENTID('watch')", "ALL")
        ],
        [
            {
                "CLIENTID": "watch",
                "STATUS": "RUNNING",
                "CLNTUSER": "carol",
                "MCAUSER": "plant",
                "KAINT": 77,
                "PROTOCOL": "MQTTV311",
                "MSGSNT": 1,
                "MSGRCVD": 0,
            }
        ],
    )
    subscriber.stop()
    # A channel that cannot listen is reported, also after the restart, and does not prevent it.
    bridge.mqsc(f"DEFINE CHANNEL(TAKEN) CHLTYPE(MQTT) PORT({bridge.port})\nSTART CHANNEL(TAKEN) CHLTYPE(MQTT)\n")
    eventually(lambda: states(bridge)["TAKEN"], "STOPPED")
    until(
        lambda: "channel TAKEN cannot listen on 127.0.0.1" in channels(bridge)["TAKEN"]["problem"], lambda: bridge.log
    )
    bridge.restart()
    assert bridge.ports.keys() == {"FILE", "PLANT"}
    assert bridge.log.count("channel TAKEN cannot listen on") >= 2
    with RawClient.connected(port_of(bridge, "PLANT"), "after") as client:
        client.ping()


def test_one_client_is_stopped(bridge: BridgeProcess) -> None:
    """STOP CHANNEL with CLIENTID disconnects that client. Other clients and the channel continue."""
    bridge.mqsc("DEFINE CHANNEL(PLANT) CHLTYPE(MQTT) PORT(0)")
    port = started(bridge, "PLANT")
    other = RawClient.connected(port, "other")
    client = RawClient.connected(port, "pump-1", level=5)
    bridge.mqsc("STOP CHANNEL(PLANT) CHLTYPE(MQTT) CLIENTID('pump-1')")
    assert client.expect(Disconnect).reason_code == ReasonCode.ADMINISTRATIVE_ACTION
    client.expect_closed()
    other.ping()
    with RawClient.connected(port, "pump-1"):
        pass


def test_one_client_is_purged(bridge: BridgeProcess) -> None:
    """PURGE CHANNEL with CLIENTID removes the session and waiting messages of a disconnected client."""
    bridge.mqsc("DEFINE CHANNEL(PLANT) CHLTYPE(MQTT) PORT(0)")
    port = started(bridge, "PLANT")
    for name in ("pump-1", "pump-2"):
        with RawClient.connected(port, name, clean=False) as client:
            client.subscribe((f"to/{name}", 1))
            client.disconnect()
        bridge.mq("pub", f"to/{name}", "wait for me", "--persistent")
    bridge.wait_for_depth(TRANSMISSION_QUEUE, 2)
    away = display(bridge, "CHSTATUS(PLANT)", "CHLTYPE(MQTT)", "CLIENTID('pump-*')", "PENDING")
    assert [(session["CLIENTID"], session["STATUS"], session["PENDING"]) for session in away] == [
        ("pump-1", "DISCONNECTED", 1),
        ("pump-2", "DISCONNECTED", 1),
    ]
    bridge.mqsc("PURGE CHANNEL(PLANT) CHLTYPE(MQTT) CLIENTID('pump-1')")
    bridge.wait_for_depth(TRANSMISSION_QUEUE, 1)
    client = RawClient(port, "pump-1", clean=False)
    assert not client.connect().session_present
    with RawClient.connected(port, "pump-2", clean=False) as client:
        assert client.take().payload == b"wait for me"


def test_a_channel_is_purged(bridge: BridgeProcess) -> None:
    """PURGE CHANNEL: sessions of the channel's clients end without their wills, and it stops. Other channels continue."""
    bridge.mqsc("DEFINE CHANNEL(PLANT) CHLTYPE(MQTT) PORT(0)")
    port = started(bridge, "PLANT")
    other = RawClient.connected(port_of(bridge, "FILE"), "other")
    other.subscribe(("wills/#", 1))
    client = RawClient.connected(port, "pump-1", clean=False, level=5, will=Will("wills/pump-1", b"gone", 1, False))
    client.subscribe(("to/pump-1", 1))
    bridge.mqsc("PURGE CHANNEL(PLANT) CHLTYPE(MQTT)")
    assert client.expect(Disconnect).reason_code == ReasonCode.ADMINISTRATIVE_ACTION
    client.expect_closed()
    eventually(lambda: states(bridge), {"FILE": "RUNNING", "PLANT": "STOPPED"})
    other.ping()
    assert not other.inbox
    assert display(bridge, "SUB('pump-1:*')") == []
    port = started(bridge, "PLANT")
    again = RawClient(port, "pump-1", clean=False)
    assert not again.connect().session_present


def test_stopped_and_started_in_one_script(bridge: BridgeProcess) -> None:
    """Clients of the channel are disconnected. It listens again afterwards, with the changes made meanwhile."""
    bridge.mqsc("DEFINE CHANNEL(PLANT) CHLTYPE(MQTT) PORT(0)")
    client = RawClient.connected(started(bridge, "PLANT"), "pump-1")
    bridge.mqsc(
        "STOP CHANNEL(PLANT) CHLTYPE(MQTT)\nALTER CHANNEL(PLANT) CHLTYPE(MQTT) PROTOCOL(MQTTV3)\n"
        "START CHANNEL(PLANT) CHLTYPE(MQTT)\n"
    )
    client.expect_closed()
    port = port_of(bridge, "PLANT")
    assert RawClient(port, "pump-1", level=4).connect().return_code == 1
    with RawClient.connected(port, "pump-1", level=3):
        pass


def test_a_channel_of_the_file_is_started_and_stopped_and_can_be_altered_there_only(bridge: BridgeProcess) -> None:
    bridge.mqsc("STOP CHANNEL(FILE) CHLTYPE(MQTT)")
    eventually(lambda: states(bridge), {"FILE": "STOPPED"})
    process = bridge.run_mq(
        "run", "-", stdin=b"ALTER CHANNEL(FILE) CHLTYPE(MQTT) PORT(1)\nDELETE CHANNEL(FILE) CHLTYPE(MQTT)\n"
    )
    assert process.returncode == 1
    assert process.stderr.count(b"the bridge's configuration file defines channel FILE; hint: change it there") == 2
    with RawClient.connected(started(bridge, "FILE"), "pump-1"):
        pass


def test_a_reload_leaves_channels_of_commands_alone(bridge: BridgeProcess) -> None:
    """A reload neither removes nor starts them. A channel of the same name in the file takes precedence."""
    assert bridge.config is not None
    bridge.mqsc("DEFINE CHANNEL(PLANT) CHLTYPE(MQTT) PORT(0)\nDEFINE CHANNEL(REST) CHLTYPE(MQTT) PORT(0)\n")
    port = started(bridge, "PLANT")
    client = RawClient.connected(port, "pump-1")
    bridge.config.write_text("channels: [{name: FILE, port: 0}, {name: MORE, port: 0}]\n")
    Administrator(bridge).does("reload")
    assert states(bridge) == {"FILE": "RUNNING", "MORE": "RUNNING", "PLANT": "RUNNING", "REST": "STOPPED"}
    client.ping()
    bridge.config.write_text("channels: [{name: FILE, port: 0}, {name: PLANT, port: 0, protocols: [MQTTV3]}]\n")
    Administrator(bridge).does("reload")
    client.ping()
    assert (
        "channel PLANT is defined in the configuration file and by a command; using the definition in the" in bridge.log
    )
    assert channels(bridge)["PLANT"]["defined_by"] == "file"
    assert RawClient(port, "pump-2", level=4).connect().return_code == 1
    bridge.config.write_text(FILE)
    Administrator(bridge).does("reload")
    client.ping()
    with RawClient.connected(port, "pump-2", level=4):
        pass


def test_tls_and_certificates(bridge: BridgeProcess, tmp_path: Path) -> None:
    """SSLKEYR is one PEM file with certificate and key. A second file next to it contains the CAs of clients."""
    authority = Authority(tmp_path)
    authority.issue("server")
    authority.client("pump-7")
    repository = tmp_path / "channel.pem"
    repository.write_bytes((tmp_path / "server.pem").read_bytes() + (tmp_path / "server.key").read_bytes())
    (tmp_path / "channel.ca.pem").write_bytes((tmp_path / "ca.pem").read_bytes())
    bridge.mqsc(
        f"DEFINE CHANNEL(TLS) CHLTYPE(MQTT) PORT(0) SSLKEYR('{repository}') SSLCAUTH(REQUIRED) SSLCIPH(ANY_TLS12_OR_HIGHER)"
    )
    port = started(bridge, "TLS")
    own = ("--cert", f"{tmp_path}/pump-7.pem", "--key", f"{tmp_path}/pump-7.key")
    bridge.mqsc("DEFINE QLOCAL(SAID)\nDEFINE SUB(SAID) TOPICSTR('said') DEST(SAID)\n")
    publish(port, "said", "hello", "-h", "localhost", "--cafile", f"{tmp_path}/ca.pem", *own, "-i", "x", qos=1)
    bridge.wait_for_depth("SAID", 1)
    with pytest.raises(AssertionError):
        publish(port, "said", "hello", "-h", "localhost", "--cafile", f"{tmp_path}/ca.pem", "-i", "x", qos=1)
