"""The number of messages of a shared subscription that a bridge requests if other bridges serve members, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from bridge.mq.backend import ShareLimit
from bridge.mqtt.packets import Publish
from bridge.service.shares import Share, ShareRequests, Shares
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.session import NEVER, Session
from bridge.telemetry.subscription import SharedSubscription
from bridge.telemetry.transmission import Transmission
from tests.helpers.fake_backend import Queued

WINDOW = 5


class QueueManager:
    """Record requests and returned messages of a bridge."""

    def __init__(self) -> None:
        self.share_limit = ShareLimit(0, False)
        self.on_share_received: Callable[[str], None] = lambda _share: None
        self.requests: list[int] = []
        self.returned: list[int] = []
        self.returned_at_last: list[int] = []
        #: number of messages that the queue of the subscription accepts
        self.room = 1_000

    def request_share(self, _share: SharedSubscription, messages: int) -> None:
        self.requests.append(messages)

    def return_to_share(
        self, _share: SharedSubscription, waiting: Sequence[Transmission]
    ) -> asyncio.Future[Sequence[Transmission]]:
        self.returned += [transmission.msg_number for transmission in waiting[: self.room]]
        answer: asyncio.Future[Sequence[Transmission]] = asyncio.get_running_loop().create_future()
        answer.set_result(waiting[self.room :])
        return answer

    def return_at_last(self, _share: SharedSubscription, waiting: Sequence[Transmission]) -> None:
        self.returned_at_last += [transmission.msg_number for transmission in waiting]

    def leave_share(self, _share: SharedSubscription, _waiting: Sequence[Transmission]) -> asyncio.Future[list[int]]:
        raise AssertionError


class Bridge:
    def __init__(self) -> None:
        self.manager, self.shares = QueueManager(), Shares()
        self.share: Share = self.shares.share("$share/g/t")
        self.requests = ShareRequests(self.manager, self.shares)

    def join(self, name: str, qos: int = 1) -> Session:
        session = Session(ClientIdentity(name, b""), durable=True, window=WINDOW)
        session.connect("A", 4, NEVER, 0.0)
        session.attach(session.identity)
        self.share.add(session, str(qos))
        return session

    def arrive(self, *numbers: int) -> None:
        for number in numbers:
            message = to_mq(Publish("t", b"", 1, False, False, 1), ClientIdentity("p", b""))
            name = self.share.subscription.remote_queue_manager
            self.share.waiting.append(Queued(name, number, message, topic="t", user_data="1 RAP"))


def test_as_many_messages_are_requested_as_members_can_receive() -> None:
    bridge = Bridge()
    bridge.requests.review(bridge.share)
    first = bridge.join("a")
    bridge.join("b")
    bridge.requests.review(bridge.share)
    bridge.requests.review(bridge.share)
    bridge.arrive(1, 2, 3)
    bridge.requests.review(bridge.share)
    first.detach(0.0)
    bridge.requests.review(bridge.share)
    assert bridge.manager.requests == [0, 2 * WINDOW, 2 * WINDOW - 3, WINDOW - 3]


def test_members_with_qos_0_receive_messages() -> None:
    bridge = Bridge()
    bridge.join("a", 0)
    bridge.requests.review(bridge.share)
    assert bridge.manager.requests == [50]


def test_the_next_messages_are_requested_after_the_arrival_of_the_previous_ones() -> None:
    bridge = Bridge()
    bridge.join("a")
    bridge.requests.review(bridge.share)
    bridge.manager.on_share_received(bridge.share.subscription.remote_queue_manager)
    bridge.manager.on_share_received("SHARE.OF.OTHERS")
    assert bridge.manager.requests == [WINDOW, WINDOW]


@pytest.mark.parametrize("room", [0, 1, 2])
async def test_messages_that_no_member_receives_return(room: int) -> None:
    """Those that the queue of the subscription rejects stay."""
    bridge = Bridge()
    bridge.manager.room = room
    session = bridge.join("a")
    bridge.arrive(1, 2)
    bridge.requests.review(bridge.share)
    assert not bridge.manager.returned
    session.detach(0.0)
    bridge.requests.review(bridge.share)
    bridge.arrive(3)
    await asyncio.sleep(0)
    assert bridge.manager.returned == [1, 2][:room]
    backlog_numbers = [transmission.msg_number for transmission in bridge.share.waiting]
    assert backlog_numbers == [1, 2, 3][room:]


async def test_messages_return_at_last_if_the_last_member_has_left_meanwhile() -> None:
    bridge = Bridge()
    bridge.manager.room = 1
    session = bridge.join("a")
    bridge.arrive(1, 2)
    session.detach(0.0)
    bridge.requests.review(bridge.share)
    bridge.share.remove(session)
    assert bridge.shares.drop(bridge.share)
    await asyncio.sleep(0)
    assert bridge.manager.returned == [1] and bridge.manager.returned_at_last == [2]
    assert not bridge.share.waiting
