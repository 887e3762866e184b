"""Mappings whose destination devices choose: opened with the authority of the publisher (`as: publisher`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.mqtt.packets import Publish
from bridge.wire import cmqc
from tests.acceptance.test_authority import BRIDGE_USER, XMITQ, bridge_authorities
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import QueueManagerProcess, RemoteBridgeProcess

DEAD_LETTERS = "SYSTEM.DEAD.LETTER.QUEUE"
#: alice may put to A and publish below `plant`, bob may put to nothing. The bridge itself may put to both queues on the
#: embedded queue manager, and to neither on IBM MQ.
SCRIPT = f"""
DEFINE QLOCAL(A) NOREPLACE
DEFINE QLOCAL(B) NOREPLACE
DEFINE TOPIC(DEVICES) TOPICSTR('devices') NOREPLACE
DEFINE TOPIC(PLANT) TOPICSTR('plant') NOREPLACE
SET AUTHREC PROFILE(DEVICES) OBJTYPE(TOPIC) PRINCIPAL('alice','bob') AUTHADD(PUB)
SET AUTHREC PROFILE(PLANT) OBJTYPE(TOPIC) PRINCIPAL('alice') AUTHADD(PUB,SUB,RESUME)
SET AUTHREC PROFILE(A) OBJTYPE(QUEUE) PRINCIPAL('alice') AUTHADD(PUT)
SET AUTHREC PROFILE('{XMITQ}') OBJTYPE(QUEUE) PRINCIPAL('alice','bob') AUTHADD(PUT)
"""
OF_THE_BRIDGE = f"SET AUTHREC PROFILE('*') OBJTYPE(QUEUE) PRINCIPAL('{BRIDGE_USER}') AUTHADD(SETID)\n"
CONFIG = """
channels:
- {name: INSIDE, port: 0, publish_topics: ["devices/#", "plant/#"]}
- {name: DEVICES, port: 0, publish_topics: ["devices/#", "plant/%u/#"]}
mappings:
  to-queues: {from: {mqtt: "devices/queue/{queue}"}, to: {queue: "{queue}", as: publisher}}
  to-topics: {from: {mqtt: "devices/topic/{rest...}"}, to: {topic: "{rest}", as: publisher}}
"""


@pytest.fixture(scope="module")
def bridge(queue_manager: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("publisher")
    data_directory, config = directory / "data", f"control_socket: {directory}/control\n{CONFIG}"
    process: BridgeProcess
    if queue_manager == "embedded":
        script = directory / "authorities.mqsc"
        script.write_text(SCRIPT)
        process = BridgeProcess(
            data_directory, config=f"queue_manager: {{authorities: enforced, scripts: [{script}]}}\n{config}"
        )
    else:
        host = QueueManagerProcess(
            data_directory, SCRIPT + bridge_authorities() + OF_THE_BRIDGE, authorities="enforced"
        )
        process = RemoteBridgeProcess(
            data_directory,
            library=queue_manager,
            queue_manager=host,
            settings=f"  user: {BRIDGE_USER}\n",
            config=config,
            env={"MQBRIDGE_PASSWORD": "none is asked for"},
        )
    with at_work(process):
        until(lambda: {mapping["state"] for mapping in Administrator(process).json("mapping", "list")} == {"running"})
        yield process


def rejected(bridge: BridgeProcess) -> tuple[str, str]:
    """Wait for one dead letter and remove it. Return its destination and the mapping that put it."""
    # CURDEPTH also counts uncommitted messages, which cannot be browsed.
    until(lambda: bridge.messages(DEAD_LETTERS), lambda: bridge.log)
    (letter,) = bridge.messages(DEAD_LETTERS)
    bridge.mq("get", DEAD_LETTERS)
    header = letter["dlh"]
    assert header["Reason"] == cmqc.MQRC_NOT_AUTHORIZED
    return header["DestQName"], header["PutApplName"]


@pytest.mark.queue_managers("embedded", "ibmmq", slow="pymqi")
def test_queues(bridge: BridgeProcess) -> None:
    """A message for another queue is dead-lettered at once. Other publishers do not wait for it."""
    with (
        RawClient.connected(bridge.port, "a", user_name="alice") as alice,
        RawClient.connected(bridge.port, "b", user_name="bob") as bob,
    ):
        alice.publish("devices/queue/A", b"1", 1)
        bridge.wait_for_depth("A", 1)
        bob.publish("devices/queue/A", b"2", 1)
        assert rejected(bridge) == ("A", "to-queues")
        alice.publish("devices/queue/B", b"3", 1)
        assert rejected(bridge) == ("B", "to-queues")
        alice.publish("devices/queue/A", b"4", 1)
        until(lambda: len(bridge.messages("A")) == 2)
    assert [message["body"] for message in bridge.messages("A")] == ["1", "4"]
    (status,) = [mapping for mapping in Administrator(bridge).json("mapping", "list") if mapping["name"] == "to-queues"]
    assert status["backouts"] == 0, "nothing is tried again"


@pytest.mark.queue_managers("embedded", "ibmmq", slow="pymqi")
def test_topics(bridge: BridgeProcess) -> None:
    """The authority of the user applies, and `publish_topics` of both channels, from which alice may publish."""
    with (
        RawClient.connected(bridge.ports["INSIDE"], "a", user_name="alice") as alice,
        RawClient.connected(bridge.ports["INSIDE"], "b", user_name="bob") as bob,
    ):
        alice.subscribe(("plant/#", 1))
        bob.publish("devices/topic/plant/bob/a", b"no authority", 1)
        assert rejected(bridge) == ("plant/bob/a", "to-topics")
        alice.publish("devices/topic/plant/bob/a", b"not in publish_topics of DEVICES", 1)
        assert rejected(bridge)[1] == "to-topics"
        alice.publish("devices/topic/plant/alice/a", b"right", 1)
        publication = alice.expect(Publish)
        assert (publication.topic, publication.payload) == ("plant/alice/a", b"right")
    assert "may not publish to 'plant/bob/a' (publish_topics of a channel that it may use)" in bridge.log
    # The authorities in deploy/mq/bridge.mqsc suffice to inspect the queues and to count the dead letters.
    assert "MQB9101W" not in bridge.log and "MQB9104W" not in bridge.log
