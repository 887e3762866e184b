"""Backlogs beyond the limits with a real bridge, on each kind of queue manager: they affect their owner only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.mqtt.packets import Disconnect, Puback, Publish
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import eventually
from tests.helpers.raw_client import RawClient

pytestmark = [
    pytest.mark.usefixtures("environments"),
    pytest.mark.queue_managers("embedded", "ibmmq", slow="pymqi"),
]
NewBridge = Callable[..., BridgeProcess]
#: Messages of 1,000 bytes: the limits allow 13 waiting messages, and 3 dead letters of a client.
LIMITS = "control_socket: {}/control\nlimits: {{waiting_bytes: 21000, dead_letter_bytes: 8000, waiting_full: {}}}\n"
ROOM, DEAD = 13, 3
DEAD_LETTERS = "SYSTEM.DEAD.LETTER.QUEUE"
TRANSMISSION_QUEUE = "SYSTEM.MQTT.TRANSMIT.QUEUE"


def durable(bridge: BridgeProcess, client_id: str = "away", level: int = 4) -> RawClient:
    return RawClient(bridge.port, client_id, clean=False, level=level)


def subscribed_and_away(bridge: BridgeProcess, topic_filter: str = "w/#", level: int = 4) -> None:
    client = durable(bridge, level=level)
    assert client.connect().return_code == 0
    client.subscribe((topic_filter, 1))
    client.disconnect()


def publish(bridge: BridgeProcess, first: int, number: int, qos: int = 1) -> None:
    with RawClient.connected(bridge.port, "publisher") as client:
        for index in range(first, first + number):
            client.publish("w/t", b"%04d" % index + bytes(996), qos)
        client.disconnect()


def depth(bridge: BridgeProcess, queue: str) -> int:
    return int(bridge.mq_json("display", f"QLOCAL('{queue}')", "CURDEPTH")[0]["CURDEPTH"])


def problems(bridge: BridgeProcess) -> dict[str, Any]:
    status = json.loads(Administrator(bridge).run("status", "--json").stdout)
    return {problem["subject"]: problem for problem in status["problems"]}


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("shared", [False, True], ids=["session", "shared subscription"])
def test_dead_letters_and_then_the_end(tmp_path: Path, new_bridge: NewBridge, level: int, shared: bool) -> None:
    """Waiting messages stay, later ones are dead-lettered, and then the session ends after it has received everything."""
    bridge = new_bridge(config=LIMITS.format(tmp_path, "dead-letter")).start()
    subscribed_and_away(bridge, "$share/g/w/#" if shared else "w/#", level)
    publish(bridge, 0, ROOM + DEAD)
    eventually(lambda: depth(bridge, DEAD_LETTERS), DEAD)
    publish(bridge, 100, 3, qos=0)
    publish(bridge, ROOM + DEAD, 1)
    eventually(lambda: ("MQB2411W" if shared else "MQB2410W") in bridge.log, True)
    if not shared:  # the problem of the session names the limits
        assert not {"waiting_bytes", "dead_letter_bytes"} & problems(bridge).keys()
        limits = (
            "'away' ends, because its backlog exceeded limits.waiting_bytes (21,000 bytes) and limits.dead_letter_bytes"
        )
        assert limits in problems(bridge)["waiting_full"]["what"]
    assert "'away'" in problems(bridge)["waiting_full"]["what"]
    # Much lower limits do not affect waiting messages, neither by a reload nor after a restart.
    assert bridge.config is not None
    bridge.config.write_text(bridge.config.read_text().replace("waiting_bytes: 21000", "waiting_bytes: 2000"))
    Administrator(bridge).does("reload")
    bridge.restart()
    with RawClient.connected(bridge.port, "keeping up") as other:
        other.subscribe(("w/#", 1))
        publish(bridge, 200, 20)
        assert [int(other.take().payload[:4]) for _ in range(20)] == [*range(200, 220)]
        other.disconnect()
    client = durable(bridge, level=level)
    connack = client.connect()
    assert (connack.return_code, connack.session_present) == (0, True)
    numbers = []
    for _ in range(ROOM + 1):
        publication = client.expect(Publish)
        numbers.append(int(bytes(publication.payload[:4])))
        client.send(Puback(publication.packet_id))
    assert numbers == [*range(ROOM), ROOM + DEAD]
    if level == 5:
        assert client.expect(Disconnect).reason_code == 0x97
    client.expect_closed()
    eventually(lambda: depth(bridge, TRANSMISSION_QUEUE), 0)
    again = durable(bridge, level=level)
    assert again.connect().session_present is False
    again.disconnect()
    assert depth(bridge, DEAD_LETTERS) == DEAD
    eventually(lambda: problems(bridge).keys() & {"waiting_full"}, set())


def test_the_remedies_work(tmp_path: Path, new_bridge: NewBridge) -> None:
    """A purge ends the problem of an ending session, and deleting dead letters allows others."""
    bridge = new_bridge(config=LIMITS.format(tmp_path, "dead-letter")).start()
    administrator = Administrator(bridge)
    subscribed_and_away(bridge)
    publish(bridge, 0, ROOM + DEAD + 1)
    eventually(lambda: "waiting_full" in problems(bridge), True)
    administrator.does("client", "purge", "away", "--yes")
    eventually(lambda: "waiting_full" in problems(bridge), False)
    bridge.mqsc(f"CLEAR QLOCAL({DEAD_LETTERS})")
    subscribed_and_away(bridge)

    def counted_again() -> bool:
        publish(bridge, 0, 1)
        return depth(bridge, DEAD_LETTERS) > 0 or bridge.log.count("MQB2410W") > 1

    publish(bridge, 0, ROOM)
    eventually(counted_again, True)


def test_a_session_that_ends_without_dead_letters(tmp_path: Path, new_bridge: NewBridge) -> None:
    bridge = new_bridge(config=LIMITS.format(tmp_path, "end-session")).start()
    subscribed_and_away(bridge)
    publish(bridge, 0, ROOM + 1)
    eventually(lambda: "MQB2410W" in bridge.log, True)
    assert depth(bridge, DEAD_LETTERS) == 0
    with durable(bridge) as client:
        assert client.connect().session_present is True
        assert [int(client.take().payload[:4]) for _ in range(ROOM + 1)] == [*range(ROOM + 1)]
        client.expect_closed()


def test_a_transmission_queue_at_80_percent_of_maxdepth(tmp_path: Path, new_bridge: NewBridge) -> None:
    """It never becomes full because of one owner, so publications for others are accepted."""
    bridge = new_bridge(config=f"control_socket: {tmp_path}/control\n").start()
    bridge.mqsc(f"ALTER QLOCAL({TRANSMISSION_QUEUE}) MAXDEPTH(50)")
    bridge.restart()
    subscribed_and_away(bridge)
    with RawClient.connected(bridge.port, "keeping up") as other, RawClient.connected(bridge.port, "sender") as sender:
        other.subscribe(("w/#", 1))
        eventually(lambda: "MAXDEPTH(50)" in bridge.mqsc(f"DISPLAY QLOCAL({TRANSMISSION_QUEUE}) MAXDEPTH"), True)
        for number in range(100):
            sender.publish("w/t", b"%04d" % number, 1)
            assert int(other.take().payload) == number
        other.disconnect()
        sender.disconnect()
    eventually(lambda: depth(bridge, DEAD_LETTERS) + depth(bridge, TRANSMISSION_QUEUE), 100)
    assert 35 <= depth(bridge, TRANSMISSION_QUEUE) <= 45
    assert "80 % of MAXDEPTH" in problems(bridge)["MAXDEPTH"]["what"]
