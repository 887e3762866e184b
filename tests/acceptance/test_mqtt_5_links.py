"""MQTT 5: rules for clients that the bridge keeps as a client of brokers, against a scripted broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.fake_broker import (
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    FakeBroker,
    answer,
)

# The link does not depend on the queue manager.
pytestmark = pytest.mark.queue_managers("embedded", slow="ibmmq")

CONFIG = """\
links:
  plant: {{host: 127.0.0.1, port: {port}, version: "5"}}
mappings:
  m: {{from: {source}, to: {target}, guarantee: exactly-once, batch: {{messages: {batch}}}}}
"""


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A broker that has not answered CONNECT yet."""
    fake = FakeBroker("5")
    yield fake
    fake.close()


def test_acknowledgements_are_sent_in_the_order_of_the_publications(
    new_bridge: Callable[..., BridgeProcess], broker: FakeBroker
) -> None:
    """MQTT-4.6.0-2, MQTT-4.6.0-3: within a unit of work, and in several units of work."""
    source, target = '{mqtt: "in/#", link: plant}', "{queue: IN}"
    bridge = new_bridge(config=CONFIG.format(port=broker.port, source=source, target=target, batch=3)).start()
    bridge.mqsc("DEFINE QLOCAL(IN)")
    peer = broker.connected(subscribes=2)
    packet_ids = [9, 2, 11, 7, 1, 12, 3, 10, 65_535, 6, 4]
    peer.send(*(peer.publish("in/a", packet_id, qos=1 + packet_id % 2) for packet_id in packet_ids))
    received = [peer.packet_after_pings() for _ in packet_ids]
    for acknowledgement, odd in ((PUBACK, 0), (PUBREC, 1)):
        acknowledged = [int.from_bytes(body, "big") for first, body in received if first == acknowledgement]
        assert acknowledged == [packet_id for packet_id in packet_ids if packet_id % 2 == odd]
    bridge.wait_for_depth("IN", len(packet_ids))


def test_pubrel_is_sent_in_the_order_of_pubrec(new_bridge: Callable[..., BridgeProcess], broker: FakeBroker) -> None:
    """MQTT-4.6.0-4: the broker answers the publications of a batch in another order."""
    source, target = "{queue: OUT}", "{mqtt: out, link: plant}"
    bridge = new_bridge(config=CONFIG.format(port=broker.port, source=source, target=target, batch=4)).start()
    bridge.mqsc("DEFINE QLOCAL(OUT)")
    for number in range(4):
        bridge.mq("put", "OUT", "--persistent", str(number))
    peer = broker.connected()
    packet_ids = []
    for _ in range(4):
        first, body = peer.packet_after_pings()
        assert first == PUBLISH | 4
        packet_ids.append(int.from_bytes(body[5:7], "big"))
    in_order = [packet_ids[index] for index in (2, 0, 3, 1)]
    peer.send(*(answer(PUBREC, packet_id) for packet_id in in_order))
    assert [peer.packet_after_pings() for _ in in_order] == [
        (PUBREL, packet_id.to_bytes(2, "big")) for packet_id in in_order
    ]
    peer.send(*(answer(PUBCOMP, packet_id) for packet_id in in_order))
    bridge.wait_for_depth("OUT", 0)
