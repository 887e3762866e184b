"""Shares: the members of shared subscriptions, and the messages waiting for them (MQTT 5 section 4.8.2).

A message goes to the next member that reads and has room in its window. If a member leaves, its unacknowledged messages go to
others. No message is lost because all stay on the transmission queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from bridge.telemetry.outbox import Backlog
from bridge.telemetry.session import Session
from bridge.telemetry.subscription import SharedSubscription, shared_subscription, subscription_data
from bridge.telemetry.transmission import Transmission

#: Messages to send in one batch, by session.
Grouped = dict[Session, list[Transmission]]


class Member(msgspec.Struct, eq=False):
    """A session that is a member of a share."""

    session: Session
    #: user data of the subscription that its client requested
    user_data: str
    #: numbers of waiting messages that may have been sent to this member before: sent again with DUP
    sent: set[int]

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
        #: the members; the first one is next
        self._turns: deque[Member] = deque()
        #: former members that may have unacknowledged messages of this share
        self._left: list[Session] = []

    def add(self, session: Session, user_data: str) -> None:
        """Add a member, or update the user data of an existing one."""
        member = self.members.get(session.client_id)
        if member is None:
            member = self.members[session.client_id] = Member(session, user_data, set())
            self._turns.append(member)
        member.user_data = user_data

    def remove(self, session: Session) -> None:
        """Remove a member."""
        member = self.members.pop(session.client_id, None)
        if member is not None:
            self._turns.remove(member)
            self._left.append(session)

    def take_back(self, session: Session, taken: Sequence[Transmission], sent: set[int]) -> None:
        """Return a session's messages to the backlog in their original order. `sent` are the numbers of those sent before."""
        waiting = self.waiting
        front = sorted(taken, key=_number)
        last = front[-1].msg_number
        while waiting and waiting.messages[0].msg_number < last:
            front.append(waiting.popleft())
        front.sort(key=_number)
        waiting.extendleft(reversed(front))
        member = self.members.get(session.client_id)
        if member is not None:
            member.sent = sent | (member.sent and member.sent & self._unacknowledged())

    def _unacknowledged(self) -> set[int]:
        """Return the message numbers of all its messages, waiting or held by sessions."""
        name = self.subscription.remote_queue_manager
        self._left = [one for one in self._left if any(held.client_id == name for held in one.outbox.pending())]
        sessions = [*(member.session for member in self.members.values()), *self._left]
        held = [one for session in sessions for one in session.outbox.pending()]
        return {one.msg_number for one in [*self.waiting, *held]}

    def uncertain(self) -> None:
        """After a crash, note that waiting messages may have been sent to members that were connected before."""
        for member in self.members.values():
            if member.session.outbox.uncertain:
                member.sent = {one.msg_number for one in self.waiting}

    def give_out(self, grouped: Grouped) -> bool:
        """Assign the first waiting message to a member by adding it to `grouped`. Return False if no member can take it."""
        waiting = self.waiting
        member = self._next(waiting.messages[0], grouped) if waiting else None
        if member is None:
            return False
        transmission = waiting.popleft()
        transmission.user_data = member.user_data
        if transmission.msg_number in member.sent:
            member.sent.discard(transmission.msg_number)
            member.session.outbox.mark_sent([transmission.msg_number])
        grouped.setdefault(member.session, []).append(transmission)
        return True

    def _next(self, transmission: Transmission, grouped: Mapping[Session, Sequence[Transmission]]) -> Member | None:
        """Return the member that gets a message, or None if the message must wait.

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
        found = self.get(name)
        if found is None:
            found = self[name] = Share(subscription, self._new_backlog(name))
        return found

    def of(self, session: Session) -> list[Share]:
        """Return the shares that a session is a member of."""
        return [share for name in session.shares if (share := self.get(name)) is not None]

    def waiting_for(self, session: Session) -> list[Share]:
        """Return a session's shares that have waiting messages, beginning with a different share each time."""
        found = [share for share in self.of(session) if share.waiting]
        if len(found) > 1:
            first = found[0].subscription.remote_queue_manager
            session.shares[first] = session.shares.pop(first)
        return found

    def take_back(self, session: Session, *, sent: bool) -> list[Share]:
        """Return unsent (with `sent`, also unacknowledged) messages of a session to its shares' backlogs.

        Returns the shares concerned.
        """
        outbox = session.outbox

        def shared(transmission: Transmission) -> bool:
            return transmission.client_id in self

        in_flight = outbox.withdraw_sent(shared) if sent else []
        taken: dict[str, list[Transmission]] = {}
        for transmission in in_flight + outbox.withdraw_waiting(shared):
            taken.setdefault(transmission.client_id, []).append(transmission)
        numbers = {one.msg_number for one in in_flight}
        for name, transmissions in taken.items():
            self[name].take_back(session, transmissions, numbers & {one.msg_number for one in transmissions})
        return [self[name] for name in taken]

    def drop(self, share: Share) -> bool:
        """Remove a share without members and return whether it was removed."""
        if share.members or share.joining:
            return False
        return self.pop(share.subscription.remote_queue_manager, None) is not None


def _number(transmission: Transmission) -> int:
    return transmission.msg_number
