"""Subscriptions that exist before the bridge, as docs/how-to/moving-from-mqxr.md describes, with IBM's package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.mqtt.packets import Publish
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import RemoteBridgeProcess

TRANSMISSION_QUEUE = "SYSTEM.MQTT.TRANSMIT.QUEUE"
DEAD_LETTER_QUEUE = "SYSTEM.DEAD.LETTER.QUEUE"


@pytest.fixture
def bridge(environments: None, tmp_path: Path) -> Iterator[RemoteBridgeProcess]:
    """A bridge that is not started, with a running queue manager."""
    bridge = RemoteBridgeProcess(tmp_path / "data")
    bridge.queue_manager.start()
    yield bridge
    bridge.discard()


def subscription(client_id: str, user_data: str | None) -> str:
    """Run DEFINE SUB as for a durable session of a client, with a waiting publication."""
    user_data_parameter = "" if user_data is None else f" USERDATA('{user_data}')"
    where = f"DEST(SYSTEM.MQTT.PUBLICATION.QUEUE) DESTQMGR('{client_id}')"
    return f"DEFINE SUB('{client_id}:news/#') TOPICSTR('news/#') {where}{user_data_parameter}\n"


def test_durable_subscriptions_are_adopted_by_user_data(bridge: RemoteBridgeProcess) -> None:
    """The user data contains the QoS: the client has its session. Other or no user data: messages are dead-lettered, and
    nothing is lost.
    """
    bridge.mqsc(subscription("known", "1") + subscription("other", "whatever") + subscription("blank", None))
    bridge.mq("pub", "news/a", "hello", "--persistent")
    bridge.mq("put", "ORDERS", "straight", "--to", "nobody")
    bridge.wait_for_depth(TRANSMISSION_QUEUE, 4)
    bridge.start()
    client = RawClient(bridge.port, "known", clean=False)
    assert client.connect().session_present
    publication = client.expect(Publish)
    assert (publication.topic, publication.payload, publication.qos) == ("news/a", b"hello", 1)
    client.acknowledge(publication)
    bridge.wait_for_depth(TRANSMISSION_QUEUE, 0)
    letters = bridge.messages(DEAD_LETTER_QUEUE)
    assert sorted((letter["dlh"]["DestQName"], letter["dlh"]["DestQMgrName"]) for letter in letters) == [
        ("ORDERS", "nobody"),
        ("SYSTEM.MQTT.PUBLICATION.QUEUE", "blank"),
        ("SYSTEM.MQTT.PUBLICATION.QUEUE", "other"),
    ]
    client.disconnect()
    for name in ("other", "blank"):  # subscribing again alters the subscription in place
        with RawClient(bridge.port, name, clean=False) as client:
            assert not client.connect().session_present
            assert client.subscribe(("news/#", 1)) == (1,)
            (details,) = bridge.mq_json("display", f"SUB('{name}:*')", "USERDATA", "DURABLE")
            assert (details["USERDATA"], details["DURABLE"]) == ("1", "YES")
            bridge.mq("pub", "news/a", f"for {name}", "--persistent")
            while client.take().payload != f"for {name}".encode():
                pass
