"""A data directory of release 0.2.0 whose links have unfinished exchanges: they are completed in the recorded session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.data_of_0_2_0 import HOST, LINKS, MAPPINGS, OldBroker, unpacked
from tests.helpers.fake_broker import PUBCOMP, PUBREC, PUBREL, SUBSCRIBE, answer
from tests.helpers.patience import until

# The data directory is that of an embedded queue manager.
pytestmark = pytest.mark.queue_managers("embedded")

DEAD_LETTERS = "SYSTEM.DEAD.LETTER.QUEUE"


def depths(bridge: BridgeProcess, link: str) -> list[int]:
    """Return the number of messages on the queues of a link's mappings."""
    return [len(bridge.messages(f"{kind}.{link.upper()}")) for kind in ("IN", "SENT", "ACCEPTED")]


@pytest.mark.parametrize("link", ["three", "five"])
def test_exchanges_continue_in_the_recorded_session(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path, link: str
) -> None:
    with OldBroker() as broker:
        unpacked(tmp_path, broker.port)
        broker.listen()
        bridge = new_bridge(config=LINKS.format(host=HOST, port=broker.port) + MAPPINGS).start()
        peers = broker.connections(6, present=True)
        # From the broker: one is repeated because PUBREC was lost, the other one is released.
        peer = peers[f"in-{link}"]
        if peer.version_5:
            # With MQTT 5, it sends no retained messages again.
            (subscribe,) = peer.expect(SUBSCRIBE)
            peer.send(peer.suback(subscribe, 2))
        peer.send(peer.publish("in/a", 1, qos=2, flags=8, payload=b"1"), answer(PUBREL, 2))
        assert {first for first, _ in (peer.packet(), peer.packet())} == {PUBREC, PUBCOMP}
        peer.send(answer(PUBREL, 1))
        assert peer.packet_ids(PUBCOMP, 1) == [1]
        # A released identifier belongs to another publication.
        peer.send(peer.publish("in/a", 2, qos=2, payload=b"3"))
        assert peer.packet_ids(PUBREC, 1) == [2]
        # To the broker: the sent one is repeated unchanged, the accepted one is only released.
        peer = peers[f"sent-{link}"]
        assert peer.published(1, 0x0C) == [("sent", 1)]
        peer.send(answer(PUBREC, 1))
        assert peer.packet_ids(PUBREL, 1) == [1]
        peer.send(answer(PUBCOMP, 1))
        peer = peers[f"accepted-{link}"]
        assert peer.packet_after_pings() == (PUBREL, b"\0\1")
        peer.send(answer(PUBCOMP, 1))
        until(lambda: depths(bridge, link) == [3, 0, 0], lambda: bridge.log)
        assert bridge.messages(DEAD_LETTERS) == []
        # The records of 0.2.0 are complete: nothing is forgotten, and no further identifiers are released.
        assert "MQB5306W" not in bridge.log
        assert "MQB5313I" not in bridge.log


def test_exchanges_of_a_link_that_moved_stay_in_the_recorded_session(
    new_bridge: Callable[..., BridgeProcess], tmp_path: Path
) -> None:
    """The bridge was upgraded and reconfigured in one step, while the broker is unreachable."""
    with OldBroker() as broker:
        unpacked(tmp_path, broker.port)
        bridge = new_bridge(config=LINKS.format(host="127.0.0.1", port=1) + MAPPINGS).start()
        administrator = Administrator(bridge)

        def unfinished() -> dict[str, tuple[str, int, int]]:
            return {
                mapping["name"]: (session["address"], session["messages"], session["received"])
                for mapping in administrator.json("mapping", "list")
                for session in mapping["unfinished"]
            }

        address = f"{HOST}:{broker.port}"
        expected = {
            f"{kind}-{link}": (address, *numbers)
            for link in ("three", "five")
            for kind, numbers in {"in": (0, 2), "accepted": (1, 0)}.items()
        }
        until(lambda: unfinished() == expected, unfinished)
        # The result of the mapping in 0.2.0 is not on record. The message is also sent to the new broker: a duplicate is
        # better than a loss.
        assert [depths(bridge, link) for link in ("three", "five")] == [[2, 1, 0], [2, 1, 0]]
        assert bridge.log.count("MQB5308W") == 2
        assert administrator.does("mapping", "give-up", "accepted-five", "--yes").startswith("gave up 1 session")
        assert bridge.messages(DEAD_LETTERS) == []
