"""Mappings from MQ to a link, exactly once: QoS 2, with one half of the flow before and one after the commit.

A batch is processed in these steps:

1. Commit a record of messages and their packet identifiers, on a separate connection.
2. Publish the messages. With PUBREC the broker has them, and accepts no duplicates with the same packet identifiers.
3. In one unit of work, get the messages from the queue and replace the record with the packet identifiers to release.
4. Send PUBREL and wait for PUBCOMP.

After an interruption, the record determines how to continue. Before step 3, the same messages are sent again with the same
packet identifiers. After it, they are released.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence

import msgspec

from bridge.administration.mapping_status import State, Status
from bridge.config.link import LinkConfig
from bridge.config.mapping import ToMqttMapping
from bridge.link.state import Refusal
from bridge.mq.mqi import Connection, Got, MQError
from bridge.mq.state import LinkSession, LinkSessions, MappingState
from bridge.service.mappings.environment import MappingEnvironment, Tally
from bridge.service.mappings.link_runner import ToLinkRunner
from bridge.service.mappings.runner import WAIT
from bridge.telemetry.message import Publication

log = logging.getLogger(__name__)

#: Packet identifiers are used cyclically, up to this one. The link uses the highest ones itself.
LAST_MID = 60_000


class Record(msgspec.Struct, array_like=True):
    """The record of a batch: packet identifiers with their MsgIds while sending, packet identifiers to release afterwards.

    It contains both only while messages are sent again in parts, because the broker's limit has decreased.
    """

    sending: list[tuple[int, bytes]] = []
    releasing: list[int] = []


class ExactlyOnceRunner(ToLinkRunner):
    """Runs a mapping to the topics of a broker, exactly once."""

    sessionless = False

    def __init__(
        self, name: str, config: ToMqttMapping, link: LinkConfig, environment: MappingEnvironment, status: Status
    ) -> None:
        super().__init__(name, config, link, environment, status)
        self._recording: Connection | None = None
        #: according to the record, a batch may be in progress
        self._uncertain = True
        self._mid = 0
        #: packet identifier -> publication, for messages got from the queue, until PUBCOMP; and the session that they belong
        #: to
        self._pending: dict[int, Publication] = {}
        self._pending_session = 0

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        self._state = MappingState(connection, self.mapping)
        self._close_recording()
        self._recording = self._environment.connect(f"record of mapping {self.mapping}")
        self._record = MappingState(self._recording, self.mapping)
        # Before getting messages: while the record is not readable, a previous unit of work is still in progress.
        self._state.load()
        self._uncertain = True

    def begin(self, connection: Connection) -> None:
        data = MappingState(connection, self.mapping).load()
        unfinished = data is not None and msgspec.msgpack.decode(data, type=Record) != Record()
        config = self._link_config
        client_id = self.client_id_at_broker(connection, unfinished=unfinished)
        # Record the session before the broker has it: QoS 2 messages need the same session after a restart.
        LinkSessions(connection).save(
            LinkSession(
                self.mapping, self._environment.owner, self._link_name, config.host, config.broker_port, client_id, []
            )
        )
        self._link.identify(client_id)
        self._link.start()
        self._begun = True

    def lost(self) -> None:
        super().lost()
        self._close_recording()

    def join(self, timeout: float) -> bool:
        ended = super().join(timeout)
        if ended:
            self._close_recording()
        return ended

    def leave_session(self) -> None:
        super().leave_session()
        self._environment.remove_record(self.mapping)

    def _close_recording(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            with contextlib.suppress(MQError):
                recording.disconnect()

    def back_out(self) -> None:
        super().back_out()
        self._uncertain = True

    def unit(self, connection: Connection) -> None:
        if self._uncertain:
            self._go_on(connection)
        batch = self._config.batch
        most = min(self._most(batch.messages), self._link.in_flight_limit)
        items = self._consumer.take(most, batch.size, batch.time, WAIT)
        if not items:
            self.status.state = State.RUNNING
            return
        tally = Tally()
        numbered = {self._next_mid(): one for one in self.mapped(items, tally)}
        if numbered:
            self._write_down(Record(sending=[(mid, item.md.MsgId) for mid, (item, _) in numbered.items()]))
        self._send(connection, numbered, tally, dup=False)

    def _write_down(self, record: Record) -> None:
        assert self._recording is not None
        self._record.save(msgspec.msgpack.encode(record))
        self._recording.commit()

    def _next_mid(self) -> int:
        self._mid = self._mid % LAST_MID + 1
        return self._mid

    def _go_on(self, connection: Connection) -> None:
        """Finish the recorded batch, in parts if the broker's limit has decreased."""
        data = self._state.load()
        record = msgspec.msgpack.decode(data, type=Record) if data else Record()
        if record.releasing:
            self._release(record.releasing)
            self._mid = record.releasing[-1]
        sending = record.sending
        if sending:
            self._mid = sending[-1][0]
            log.info(
                "MQB5301I mapping %s: sending %d messages again that the broker may already have",
                self.mapping,
                len(sending),
            )
        while sending:
            most = self._most(self._link.in_flight_limit)
            part, sending = sending[:most], sending[most:]
            tally = Tally()
            numbered = {}
            for mid, msg_id in part:
                for one in self.mapped(self._consumer.take_exactly((msg_id,)), tally):
                    numbered[mid] = one
            # The broker may also have messages that are no longer on the queue, or must no longer be sent.
            gone = [mid for mid, _ in part if mid not in numbered]
            self._send(connection, numbered, tally, dup=True, releasing=gone, still=sending)
        self._uncertain = False

    def _send(
        self,
        connection: Connection,
        numbered: Mapping[int, tuple[Got, Publication]],
        tally: Tally,
        *,
        dup: bool,
        releasing: Sequence[int] = (),
        still: Sequence[tuple[int, bytes]] = (),
    ) -> None:
        """Perform steps 2 to 4 for a batch, given by packet identifier. Raises LinkLost.

        `releasing` are further packet identifiers to release. `still` is the part of the record that remains to be sent
        again.
        """
        accepted = list(releasing)
        session = self._new_sessions

        def send(publications: Sequence[Publication]) -> dict[int, Refusal]:
            # `deliver` passes rejected publications again, as the same objects.
            mids = [mid_of[id(publication)] for publication in publications]
            refusals = self._link.publish_exactly(publications, mids, dup)
            accepted.extend(mid for index, mid in enumerate(mids) if index not in refusals)
            return refusals

        mid_of = {id(publication): mid for mid, (_, publication) in numbered.items()}
        self.deliver(list(numbered.values()), tally, send)
        if numbered or dup:
            self._state.save(msgspec.msgpack.encode(Record(sending=list(still), releasing=accepted)))
        self.commit(connection, tally)
        # From here on, failures must not cause a retransmission, unless the broker has lost the session.
        self._uncertain = True
        self._pending = {mid: publication for mid, (_, publication) in numbered.items() if mid in accepted}
        self._pending_session = session
        if accepted:
            self._release(accepted)
        self._uncertain = False

    def _release(self, mids: Sequence[int]) -> None:
        """Perform step 4, and send messages again that the broker has lost with its session. Raises LinkLost.

        A broker that loses its session also loses messages acknowledged with PUBREC. A message is delivered twice if its
        PUBCOMP was on its way when the session was lost, because it cannot be told from the others. It is lost if the bridge
        crashes at the same moment, because it is no longer on the queue.
        """
        session = self._new_sessions
        lost = [mid for mid in mids if mid in self._pending] if session != self._pending_session else []
        if lost:
            log.warning(
                "MQB5302W mapping %s: the broker of link %s lost the session with %d accepted messages; sending them again",
                self.mapping,
                self._link_name,
                len(lost),
            )
        most = self._link.in_flight_limit
        for first in range(0, len(lost), most):
            part = lost[first : first + most]
            for index, refusal in self._link.publish_exactly([self._pending[mid] for mid in part], part, False).items():
                log.error("MQB5303E mapping %s: lost a message with the session: %s", self.mapping, refusal.text)
                del self._pending[part[index]]
            self._link.release([mid for mid in part if mid in self._pending])
        self._pending_session = session
        if left := [mid for mid in mids if mid not in lost]:
            self._link.release(left)
        self._pending = {}
