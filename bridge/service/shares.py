"""Shared subscriptions (MQTT 5 section 4.8.2): their members, and the distribution of messages among them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from bridge.mq.backend import DividedShares
from bridge.telemetry.backlog import Backlog
from bridge.telemetry.session import Session
from bridge.telemetry.subscription import SharedSubscription, shared_subscription, subscription_data
from bridge.telemetry.transmission import Transmission

#: Maximum number of requested messages.
_MAX_REQUEST: Final = 500
#: Messages requested for a member with QoS 0, whose messages need no acknowledgement.
_QOS_0_ROOM: Final = 50
#: Seconds between attempts to return messages.
_RETRY: Final = 2.0

#: Messages to send in one batch, by session.
Grouped = dict[Session, list[Transmission]]


class Member(msgspec.Struct, eq=False):
    """A session that is a member of a share."""

    session: Session
    #: user data of the subscription that its client requested
    user_data: str
    #: numbers of waiting messages that may have been sent to this member before, with their packet identifiers, 0 if unknown:
    #: sent again with DUP
    sent: dict[int, int]

    @property
    def qos(self) -> int:
        """The requested QoS."""
        return subscription_data(self.user_data).qos


class Share:
    """The members of a shared subscription, and their waiting messages in order."""

    def __init__(self, subscription: SharedSubscription, waiting: Backlog) -> None:
        self.subscription = subscription
        #: by client identifier
        self.members: dict[str, Member] = {}
        #: number of unanswered SUBSCRIBEs
        self.joining = 0
        self.waiting = waiting
        #: The first member is next.
        self._turns: deque[Member] = deque()
        #: former members that may have unacknowledged messages of this share
        self._left: list[Session] = []

    def add(self, session: Session, user_data: str) -> None:
        """Add a member, or update the user data of an existing one."""
        member = self.members.get(session.client_id)
        if member is None:
            member = self.members[session.client_id] = Member(session, user_data, {})
            self._turns.append(member)
        member.user_data = user_data

    def remove(self, session: Session) -> None:
        """Remove a member."""
        member = self.members.pop(session.client_id, None)
        if member is not None:
            self._turns.remove(member)
            self._left.append(session)

    def take_back(self, session: Session, transmissions: Sequence[Transmission], packet_ids: dict[int, int]) -> None:
        """Return a session's messages to the backlog in their original order.

        `packet_ids` contains the packet identifiers of messages that were sent before, by message number.
        """
        self.restore(transmissions)
        member = self.members.get(session.client_id)
        if member is not None:
            if member.sent:
                unacknowledged = self._unacknowledged()
                packet_ids = {number: at for number, at in member.sent.items() if number in unacknowledged} | packet_ids
            member.sent = packet_ids

    def restore(self, transmissions: Sequence[Transmission]) -> None:
        """Return messages to the backlog in their original order."""
        waiting = self.waiting
        front = sorted(transmissions, key=_number)
        last = front[-1].msg_number
        while waiting and waiting.messages[0].msg_number < last:
            front.append(waiting.popleft())
        front.sort(key=_number)
        waiting.extendleft(reversed(front))

    @property
    def takes_messages(self) -> bool:
        """Whether a member is connected and reads."""
        return any(member.session.outbox.open for member in self.members.values())

    @property
    def room(self) -> int:
        """The number of messages that the members can take now."""
        room = 0
        for member in self.members.values():
            outbox = member.session.outbox
            if member.qos > 0:
                room += outbox.room
            elif outbox.open and not outbox.backlog:
                room += _QOS_0_ROOM
        return room

    def _unacknowledged(self) -> set[int]:
        """Return the numbers of all messages of the share, waiting or held by sessions."""
        name = self.subscription.remote_queue_manager
        self._left = [
            session
            for session in self._left
            if any(transmission.client_id == name for transmission in session.outbox.pending())
        ]
        sessions = [*(member.session for member in self.members.values()), *self._left]
        in_flight = [transmission for session in sessions for transmission in session.outbox.pending()]
        return {transmission.msg_number for transmission in [*self.waiting, *in_flight]}

    def uncertain(self) -> None:
        """After a crash, note that waiting messages may have been sent to members that were connected before."""
        for member in self.members.values():
            if member.session.outbox.uncertain:
                member.sent = {transmission.msg_number: 0 for transmission in self.waiting}

    def give_out(self, grouped: Grouped) -> bool:
        """Assign the first waiting message to a member by adding it to `grouped`. Return False if no member can take it."""
        waiting = self.waiting
        member = self._next(waiting.messages[0], grouped) if waiting else None
        if member is None:
            return False
        transmission = waiting.popleft()
        transmission.user_data = member.user_data
        packet_id = member.sent.pop(transmission.msg_number, None)
        if packet_id is not None:
            member.session.outbox.keep_identifier(packet_id, transmission)
        grouped.setdefault(member.session, []).append(transmission)
        return True

    def _next(self, transmission: Transmission, grouped: Mapping[Session, Sequence[Transmission]]) -> Member | None:
        """Return the member that receives a message, or None if the message must wait.

        QoS 0 messages need no room in a window. If all connected members are too slow, one of them is chosen and the message
        is dropped.
        """
        turns = self._turns
        reliable = getattr(transmission.message, "qos", None) != 0
        slow: Member | None = None
        for _ in range(len(turns)):
            member = turns[0]
            turns.rotate(-1)
            session = member.session
            outbox = session.outbox
            unacknowledged = reliable and member.qos > 0
            if not outbox.open:
                if session.connected and not unacknowledged:
                    slow = member
            elif unacknowledged:
                if outbox.room > len(grouped.get(session, ())):
                    return member
            elif not outbox.backlog:
                return member
        return slow


class Shares(dict[str, Share]):
    """All shares, by remote queue manager."""

    def __init__(self, new_backlog: Callable[[str], Backlog] = Backlog) -> None:
        super().__init__()
        self._new_backlog = new_backlog

    def share(self, topic_filter: str) -> Share:
        """Return the share for `$share/NAME/FILTER`. Create it if necessary."""
        subscription = shared_subscription(topic_filter)
        name = subscription.remote_queue_manager
        share = self.get(name)
        if share is None:
            share = self[name] = Share(subscription, self._new_backlog(name))
        return share

    def of(self, session: Session) -> list[Share]:
        """Return the shares that a session is a member of."""
        return [share for name in session.shares if (share := self.get(name)) is not None]

    def waiting_for(self, session: Session) -> list[Share]:
        """Return a session's shares that have waiting messages, beginning with a different share each time."""
        shares = [share for share in self.of(session) if share.waiting]
        if len(shares) > 1:
            first = shares[0].subscription.remote_queue_manager
            session.shares[first] = session.shares.pop(first)
        return shares

    def take_back(self, session: Session, *, include_sent: bool) -> list[Share]:
        """Return unsent (with `sent`, also unacknowledged) messages of a session to its shares' backlogs.

        Return the affected shares.
        """
        outbox = session.outbox

        def shared(transmission: Transmission) -> bool:
            return transmission.client_id in self

        in_flight = outbox.withdraw_sent(shared) if include_sent else []
        by_share: dict[str, list[Transmission]] = {}
        for _, transmission in in_flight + outbox.withdraw_waiting(shared):
            by_share.setdefault(transmission.client_id, []).append(transmission)
        sent_before = {transmission.msg_number: packet_id for packet_id, transmission in in_flight}
        for name, transmissions in by_share.items():
            numbers = [
                transmission.msg_number for transmission in transmissions if transmission.msg_number in sent_before
            ]
            self[name].take_back(session, transmissions, {number: sent_before[number] for number in numbers})
        return [self[name] for name in by_share]

    def drop(self, share: Share) -> bool:
        """Remove a share without members and return whether it was removed."""
        if share.members or share.joining:
            return False
        return self.pop(share.subscription.remote_queue_manager, None) is not None


def _number(transmission: Transmission) -> int:
    return transmission.msg_number


class ShareRequests:
    """Requests messages of shared subscriptions for the members here, and returns those that none of them can take.

    Other bridges serve members of the same shared subscriptions. Only messages that members here can take now are requested.
    """

    def __init__(self, divided: DividedShares, shares: Mapping[str, Share]) -> None:
        self._divided, self._shares = divided, shares
        #: the number of messages in the last request, by remote queue manager
        self._requested: dict[str, int] = {}
        divided.on_share_received = self._received

    def review(self, share: Share) -> None:
        """Request as many messages as the members can take now. Return all if none of them takes messages."""
        subscription = share.subscription
        name = subscription.remote_queue_manager
        if self._shares.get(name) is not share:
            self._requested.pop(name, None)
            return
        if share.waiting and not share.takes_messages:
            self._return(share)
        number = min(_MAX_REQUEST, max(0, share.room - len(share.waiting)))
        if self._requested.get(name) != number:
            self._requested[name] = number
            self._divided.request_share(subscription, number)

    def _received(self, name: str) -> None:
        self._requested.pop(name, None)
        share = self._shares.get(name)
        if share is not None:
            self.review(share)

    def _return(self, share: Share) -> None:
        waiting = list(share.waiting)
        share.waiting.clear()

        def returned(answer: asyncio.Future[Sequence[Transmission]]) -> None:
            rest = answer.result()
            if not rest:
                return
            if self._shares.get(share.subscription.remote_queue_manager) is not share:
                # The last member has left in the meantime.
                self._divided.return_at_last(share.subscription, rest)
                return
            share.restore(rest)
            asyncio.get_running_loop().call_later(_RETRY, self.review, share)

        self._divided.return_to_share(share.subscription, waiting).add_done_callback(returned)
