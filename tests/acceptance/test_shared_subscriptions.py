"""`$share/NAME/FILTER` (MQTT 5 section 4.8.2), for clients of each protocol level: one member gets a message."""

from __future__ import annotations

import itertools
import json

import pytest

from bridge.mqtt.packets import (
    SUBACK_FAILURE,
    ConnectProperties,
    Publish,
    Suback,
    Subscribe,
)
from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mosquitto import Subscriber, publish
from tests.helpers.patience import eventually
from tests.helpers.raw_client import RawClient

#: Messages that members share (a remote queue manager uses the same code), and the limit of those in flight.
COUNT, WINDOW = {"embedded": 1_000, "ibmmq": 200}, 20


class Member:
    """A member of a share that records received numbers, and acknowledges them if requested."""

    def __init__(
        self, port: int, client_id: str, share: str, *, level: int = 4, clean: bool = True, qos: int = 1
    ) -> None:
        self.client = RawClient.connected(port, client_id, level=level, clean=clean)
        if share:
            assert self.client.subscribe((share, qos)) == (min(qos, 1),)
        self.numbers: list[int] = []
        self.publishes: list[Publish] = []

    def take(self, *, acknowledge: bool = True, timeout: float = 0.05) -> int:
        """Receive messages that have arrived or arrive soon. Return their number."""
        try:
            if not self.client.inbox:
                self.client.fill(timeout)
        except TimeoutError:
            return 0
        count = 0
        while self.client.inbox:
            publish = self.client.expect(Publish)
            if acknowledge:
                self.client.acknowledge(publish)
            if publish.dup and self.client.level == 3:
                continue  # MQTT 3.1 repeats messages after a time, on a slow machine before the first is read
            self.publishes.append(publish)
            self.numbers.append(int(publish.payload))
            count += 1
        return count


def take_all(count: int, *members: Member) -> None:
    """Let members receive messages until they have this number together."""

    def has_all() -> bool:
        for member in members:
            member.take()
        return len({number for member in members for number in member.numbers}) >= count

    eventually(has_all, True)


def numbers_of(*members: Member) -> list[int]:
    return sorted(number for member in members for number in member.numbers)


def publish_numbers(port: int, topic: str, numbers: range, *, qos: int = 1) -> None:
    with RawClient.connected(port, f"p-{topic}"[:23]) as publisher:
        for number in numbers:
            publisher.publish(topic, b"%d" % number, qos)


def subscriptions(bridge: BridgeProcess, name: str) -> list[str]:
    """Return the names of the queue manager's subscriptions with this beginning."""
    process = bridge.run_mq("display", f"SUB('{name}*')", "--json")
    return [] if process.returncode else [json.loads(line)["SUB"] for line in process.stdout.splitlines()]


@pytest.mark.parametrize("levels", [(4, 4), (5, 5), (3, 4, 5)], ids=str)
def test_each_message_goes_to_one_member(
    bridge: BridgeProcess, queue_manager: str, unique: str, levels: tuple[int, ...]
) -> None:
    share, count = f"$share/g-{unique}/{unique}/#", COUNT[queue_manager]
    members = [Member(bridge.port, f"m{n}-{unique}"[:23], share, level=level, qos=2) for n, level in enumerate(levels)]
    publish_numbers(bridge.port, f"{unique}/t", range(count))
    take_all(count, *members)
    assert numbers_of(*members) == list(range(count)), "each message once"
    for member in members:
        assert member.numbers == sorted(member.numbers), "in order for each member"
        assert len(member.numbers) > count // len(members) // 4, "all take part"
        assert all(publication.qos == 1 and not publication.dup for publication in member.publishes)
    assert subscriptions(bridge, f"$share/g-{unique}") == [f"$share/g-{unique}:{unique}/#"]
    for member in members:
        member.client.unsubscribe(share)
    assert subscriptions(bridge, f"$share/g-{unique}") == [], "it ends with the last member"
    for member in members:
        member.client.disconnect()


def test_a_member_that_does_not_acknowledge_does_not_block_others(bridge: BridgeProcess, unique: str) -> None:
    share = f"$share/g/{unique}"
    still, busy = (Member(bridge.port, f"{name}-{unique}"[:23], share) for name in ("s", "b"))
    publish_numbers(bridge.port, unique, range(200))

    def received_count() -> int:
        still.take(acknowledge=False)
        busy.take()
        return len(still.numbers) + len(busy.numbers)

    eventually(received_count, 200)
    assert len(still.numbers) == WINDOW
    assert numbers_of(still, busy) == list(range(200))
    still.client.vanish()
    take_all(200, busy)
    assert sorted(busy.numbers) == list(range(200)), "the other member gets its unacknowledged messages, once"
    assert not any(publication.dup for publication in busy.publishes)


def test_a_member_that_does_not_read_does_not_block_others(bridge: BridgeProcess, unique: str) -> None:
    """Also with QoS 0: messages that cannot be sent to it go to the other member instead of being dropped."""
    share, count = f"$share/g/{unique}", 300
    busy = Member(bridge.port, f"b-{unique}"[:23], share)
    with (
        RawClient.connected(bridge.port, f"d-{unique}"[:23], receive_buffer=4_096) as deaf,
        RawClient.connected(bridge.port, f"p-{unique}"[:23]) as publisher,
    ):
        deaf.subscribe((share, 0))
        for number in range(count):
            publisher.publish(unique, b"%d".ljust(100_000) % number, 1)
            busy.take(timeout=0.001)

        def has_the_last() -> bool:
            busy.take()
            return set(range(count // 2, count)) <= set(busy.numbers)

        eventually(has_the_last, True)
        assert busy.numbers == sorted(busy.numbers)
    busy.client.disconnect()


def test_unacknowledged_messages_are_sent_again_after_a_reconnect(bridge: BridgeProcess, unique: str) -> None:
    """A single durable member gets its own messages again, with DUP and the same message ids."""
    share = f"$share/g/{unique}"
    member = Member(bridge.port, f"m-{unique}"[:23], share, clean=False)
    publish_numbers(bridge.port, unique, range(5))
    while len(member.numbers) < 5:
        member.take(acknowledge=False)
    member.client.vanish()
    back = Member(bridge.port, f"m-{unique}"[:23], "", clean=False)
    take_all(5, back)
    assert back.numbers == member.numbers and all(publication.dup for publication in back.publishes)
    assert [publication.packet_id for publication in back.publishes] == [
        publication.packet_id for publication in member.publishes
    ]
    back.client.unsubscribe(share)
    Member(bridge.port, f"m-{unique}"[:23], "").client.disconnect()


def test_a_share_gets_no_retained_publications(bridge: BridgeProcess, unique: str) -> None:
    """Section 3.8.3.1: RETAIN of live publications is as each member requested."""
    with RawClient.connected(bridge.port, unique, level=5) as client:
        client.publish(unique, b"kept", 1, retain=True)
        client.subscribe((f"$share/g/{unique}", 1))
        client.publish(unique, b"live", 1, retain=True)
        publish = client.take()
        assert (publish.payload, publish.retain) == (b"live", False)
        client.publish(unique, b"", 1, retain=True)
        assert client.take().payload == b""


@pytest.mark.parametrize("level", [4, 5])
def test_queue_is_rejected(bridge: BridgeProcess, unique: str, level: int) -> None:
    """`$queue/` of EMQX and VerneMQ is not part of MQTT: as a normal topic filter, every subscriber would get every
    message.
    """
    with RawClient.connected(bridge.port, unique, level=level) as client:
        client.send(Subscribe(1, ((f"$queue/{unique}", 1), (unique, 1), ("$queue", 1))))
        answer = client.wait_for(Suback)
        assert answer.return_codes == (SUBACK_FAILURE if level < 5 else ReasonCode.TOPIC_FILTER_INVALID, 1, 1)
        if level == 5:
            assert answer.properties is not None and "$share/NAME/FILTER" in (answer.properties.reason_string or "")


def test_a_receive_maximum_of_one(bridge: BridgeProcess, unique: str) -> None:
    """Each acknowledgement allows one more message, of a share and of an ordinary subscription."""
    properties = ConnectProperties(receive_maximum=1)
    with RawClient.connected(bridge.port, unique, level=5, properties=properties) as client:
        client.subscribe((unique, 1), (f"$share/g/{unique}", 1))
        publish_numbers(bridge.port, unique, range(20))
        numbers = [int(client.take().payload) for _ in range(40)]
        assert sorted(numbers) == sorted([*range(20), *range(20)])


def test_mosquitto_sub(bridge: BridgeProcess, unique: str) -> None:
    share = f"$share/g/{unique}/t"
    with (
        Subscriber(bridge.port, share, qos=1, version="mqttv5") as first,
        Subscriber(bridge.port, share, qos=1, version="mqttv5") as second,
    ):
        for number in range(4):
            publish(bridge.port, f"{unique}/t", f"{number}", qos=1, version="mqttv5")
        numbers_of_members = [[int(member.message()["payload"]) for _ in range(2)] for member in (first, second)]
        assert sorted(itertools.chain(*numbers_of_members)) == [0, 1, 2, 3] and all(
            numbers == sorted(numbers) for numbers in numbers_of_members
        )
