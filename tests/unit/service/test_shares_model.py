"""A share as a state machine: each message is at one member or waits, none is lost, and each member gets new messages in
order.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.mqtt.packets import Publish
from bridge.mqtt.reader import Decoder
from bridge.service.shares import Share, Shares
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.session import NEVER, Session
from bridge.telemetry.transmission import Transmission
from tests.helpers.connected import connected
from tests.helpers.fake_backend import Queued

FILTER = "$share/g/t"
WINDOW = 3


class Connection:
    """A connection of a member, and the data received over it."""

    def __init__(self) -> None:
        self.protocol = connected()
        self._decoder = Decoder(server=False, protocol_level=4)
        #: (payload, DUP, message id) that the client has not acknowledged
        self.came: list[tuple[bytes, bool, int]] = []
        self.payloads: list[bytes] = []

    def look(self) -> None:
        """Receive the sent data."""
        for packet in self._decoder.feed(self.protocol.data_to_send()):
            assert isinstance(packet, Publish) and packet.qos == 1 and not packet.retain
            self.came.append((packet.payload, packet.dup, packet.packet_id))
            self.payloads.append(packet.payload)


class SharedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shares = Shares()
        self.share: Share = self.shares.share(FILTER)
        self.share.joining = 1  # the share exists even without members
        self.name = self.share.subscription.remote_queue_manager
        self.sessions: dict[str, Session] = {}
        self.connections: dict[Session, Connection] = {}
        self.number = 0
        self.there: dict[int, Queued] = {}
        #: numbers that another member received before, and by member, those that it received
        self.moved: set[int] = set()
        self.had: dict[str, set[int]] = {}
        self.acknowledged: set[int] = set()
        for name in "abc":
            self.join(name)

    # What the service does ----------------------------------------------------------------------------------------

    def give_out(self) -> None:
        grouped: dict[Session, list[Transmission]] = {}
        while self.share.give_out(grouped):
            pass
        for session, batch in grouped.items():
            assert session.outbox.open, "only members that read get messages"
            self.deliver(session, batch)

    def deliver(self, session: Session, batch: Sequence[Transmission]) -> None:
        connection = self.connections[session]
        before = len(connection.came)
        effects = session.outbox.deliver(batch, 0.0, connection.protocol)
        connection.look()
        assert not effects.refusals and not effects.finished
        for payload, dup, _ in connection.came[before:]:
            number = int(payload)
            assert dup == (number in self.had[session.client_id]), (
                "DUP is set if and only if the client may have the message"
            )
            self.had[session.client_id].add(number)

    def take_back(self, session: Session, *, include_sent: bool) -> None:
        before = len(self.share.waiting)
        self.shares.take_back(session, include_sent=include_sent)
        assert len(self.share.waiting) >= before
        self.moved |= {message.msg_number for message in self.share.waiting}
        self.give_out()

    # What happens ---------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from("abcd"))
    def join(self, name: str) -> None:
        if name in self.share.members:
            return
        session = self.sessions.get(name)
        if session is None:
            session = Session(ClientIdentity(name, b""), durable=True, window=WINDOW)
            session.connect("A", 4, NEVER, 0.0)
            session.attach(session.identity)
            self.sessions[name] = session
            self.connections[session] = Connection()
            self.had[name] = set()
        session.shares[self.name] = FILTER, "1"
        self.share.add(session, "1")
        self.give_out()

    @rule(count=st.integers(1, 8))
    def publications(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            message = to_mq(Publish("t", b"%d" % self.number, 1, False, False, 1), ClientIdentity("p", b""))
            queued = Queued(self.name, self.number, message, topic="t", user_data="1 RAP")
            self.there[self.number] = queued
            self.share.waiting.append(queued)
        self.give_out()

    @rule(name=st.sampled_from("abcd"), count=st.integers(1, 3), data=st.data())
    def acknowledge(self, name: str, count: int, data: st.DataObject) -> None:
        session = self.sessions.get(name)
        connection = None if session is None else self.connections[session]
        for _ in range(count):
            if session is None or connection is None or not connection.came:
                return
            payload, _, packet_id = connection.came.pop(data.draw(st.integers(0, len(connection.came) - 1)))
            transmission = session.outbox.acknowledge(packet_id)
            assert transmission is not None and transmission is self.there.pop(int(payload)), "it is this member's"
            session.outbox.in_flight.free((packet_id,))
            self.acknowledged.add(int(payload))
        assert session is not None and connection is not None
        if session.outbox.backlog and session.outbox.open:
            session.outbox.pump(0.0, connection.protocol)
            connection.look()
        self.give_out()

    @rule(name=st.sampled_from("abcd"))
    def connection_breaks(self, name: str) -> None:
        session = self.sessions.get(name)
        if session is not None and session.connected:
            session.detach(0.0)
            self.connections[session] = Connection()
            if name not in self.share.members:
                self.had[name] = set()
            self.take_back(session, include_sent=True)

    def forget(self, session: Session) -> None:
        """Only unacknowledged messages of a former member matter."""
        self.had[session.client_id] = {int(payload) for payload, _, _ in self.connections[session].came}

    @rule(name=st.sampled_from("abcd"))
    def reconnect(self, name: str) -> None:
        session = self.sessions.get(name)
        if session is not None and not session.connected:
            session.connect("A", 4, NEVER, 0.0)
            session.attach(session.identity)
            self.give_out()

    @rule(name=st.sampled_from("abcd"), reads=st.booleans())
    def read_or_not(self, name: str, reads: bool) -> None:
        session = self.sessions.get(name)
        if session is None or not session.connected:
            return
        session.outbox.open = reads
        if reads:
            self.give_out()
        else:
            self.take_back(session, include_sent=False)

    @precondition(lambda self: len(self.share.members) > 1)
    @rule(name=st.sampled_from("abcd"))
    def leave(self, name: str) -> None:
        session = self.sessions.get(name)
        if session is not None and name in self.share.members:
            self.share.remove(session)
            del session.shares[self.name]
            self.take_back(session, include_sent=False)
            self.forget(session)

    # What holds -----------------------------------------------------------------------------------------------------

    @invariant()
    def each_message_is_in_one_place(self) -> None:
        places = [message.msg_number for message in self.share.waiting]
        for session in self.sessions.values():
            places += [message.msg_number for message in session.outbox.pending()]
            assert session.outbox.in_flight.unacknowledged == len(session.outbox.in_flight.deliveries) <= WINDOW
        assert sorted(places) == sorted(self.there)
        assert self.acknowledged | set(self.there) == set(range(1, self.number + 1))

    @invariant()
    def what_waits_is_in_order(self) -> None:
        waiting = [message.msg_number for message in self.share.waiting]
        assert waiting == sorted(waiting)

    @invariant()
    def new_messages_are_in_order_for_a_member(self) -> None:
        for connection in self.connections.values():
            new = [int(payload) for payload in connection.payloads if int(payload) not in self.moved]
            assert new == sorted(new)

    @invariant()
    def nobody_waits_beside_a_member_with_room(self) -> None:
        if self.share.waiting:
            assert not any(member.session.outbox.room for member in self.share.members.values())


TestSharedModel = SharedMachine.TestCase
