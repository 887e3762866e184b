"""Mappings from MQ to a link, exactly once: QoS 2 with its two halves on either side of the commit.

A batch goes through these steps. (1) A record of which message goes with which message id is committed, on a connection of
its own. (2) The messages are published, and the broker answers with PUBREC: it has them, and takes no second one with that
message id. (3) One unit of work takes the messages off the queue and turns the record into one of message ids to release.
(4) PUBREL, PUBCOMP. Whatever breaks in between, the record says where to go on: before (3) the same messages are sent again
under the same message ids, after it they are released.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence

import msgspec

from bridge.config import LinkConfig
from bridge.config.mapping import ToMqttMapping
from bridge.link.state import Refusal
from bridge.mq.mqi import Connection, Got, MQError
from bridge.mq.state import LinkSession, LinkSessions, MappingState
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.status import State, Status, Tally
from bridge.service.mappings.to_link import ToLinkRunner
from bridge.service.mappings.transfer import WAIT
from bridge.telemetry.message import Publication

log = logging.getLogger(__name__)

#: Message ids are used in turns, up to this one; the link has the highest for itself.
LAST_MID = 60_000


class Record(msgspec.Struct, array_like=True):
    """What is on record of a batch: message ids with the MsgId of each while it is sent; message ids alone to release.

    There are both only where what was sent is sent again in parts: the broker takes fewer at once than it did.
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
        #: a batch may be under way, as the record says
        self._uncertain = True
        self._mid = 0
        #: what is off the queue, by message id, until the broker has given it on (PUBCOMP); and the session that it is in
        self._pending: dict[int, Publication] = {}
        self._pending_session = 0

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        self._state = MappingState(connection, self.mapping)
        self._close_recording()
        self._recording = self._environment.connect(f"record of mapping {self.mapping}")
        self._record = MappingState(self._recording, self.mapping)
        # Before anything is taken: while the record is not to be read, a unit of work of before is under way.
        self._state.load()
        self._uncertain = True

    def begin(self, connection: Connection) -> None:
        data = MappingState(connection, self.mapping).load()
        unfinished = data is not None and msgspec.msgpack.decode(data, type=Record) != Record()
        config = self._link_config
        client_id = self.client_id_at_broker(connection, unfinished=unfinished)
        # On record before the broker has it: messages of QoS 2 need the same session after a restart.
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
        """Finish the batch that is on record, in parts where the broker takes fewer at once than it did."""
        data = self._state.load()
        record = msgspec.msgpack.decode(data, type=Record) if data else Record()
        if record.releasing:
            self._release(record.releasing)
            self._mid = record.releasing[-1]
        sending = record.sending
        if sending:
            self._mid = sending[-1][0]
            log.info(
                "MQB5301I mapping %s: %d messages that may be with the broker are sent again",
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
            # What is no more on the queue, or not to be sent any more, the broker may have all the same.
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
        """Do steps (2) to (4) of a batch, by message id. Raises LinkLost.

        `releasing` are further message ids to release, `still` is what remains to be sent again.
        """
        accepted = list(releasing)
        session = self._new_sessions

        def send(publications: Sequence[Publication]) -> dict[int, Refusal]:
            # `deliver` gives again those that were refused, the same objects.
            mids = [mid_of[id(publication)] for publication in publications]
            refusals = self._link.publish_exactly(publications, mids, dup)
            accepted.extend(mid for index, mid in enumerate(mids) if index not in refusals)
            return refusals

        mid_of = {id(publication): mid for mid, (_, publication) in numbered.items()}
        self.deliver(list(numbered.values()), tally, send)
        if numbered or dup:
            self._state.save(msgspec.msgpack.encode(Record(sending=list(still), releasing=accepted)))
        self.commit(connection, tally)
        # From here on a failure is no reason to send again, unless the broker has lost the session.
        self._uncertain = True
        self._pending = {mid: publication for mid, (_, publication) in numbered.items() if mid in accepted}
        self._pending_session = session
        if accepted:
            self._release(accepted)
        self._uncertain = False

    def _release(self, mids: Sequence[int]) -> None:
        """Do step (4) for these message ids, and send once more what the broker has lost with its session. Raises LinkLost.

        What a broker has answered with PUBREC is lost with its session. One whose PUBCOMP was on its way when the session was
        lost comes twice: nothing tells it from the others. After a crash of the bridge in the same moment it is lost, for it
        is off the queue.
        """
        session = self._new_sessions
        lost = [mid for mid in mids if mid in self._pending] if session != self._pending_session else []
        if lost:
            log.warning(
                "MQB5302W mapping %s: the broker of link %s has lost its session and %d messages taken with it: they "
                "are sent again",
                self.mapping, self._link_name, len(lost),
            )  # fmt: skip
        most = self._link.in_flight_limit
        for first in range(0, len(lost), most):
            part = lost[first : first + most]
            for index, refusal in self._link.publish_exactly([self._pending[mid] for mid in part], part, False).items():
                log.error("MQB5303E mapping %s: a message is lost with the session: %s", self.mapping, refusal.text)
                del self._pending[part[index]]
            self._link.release([mid for mid in part if mid in self._pending])
        self._pending_session = session
        if left := [mid for mid in mids if mid not in lost]:
            self._link.release(left)
        self._pending = {}
