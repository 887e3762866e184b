"""Mappings from MQ to a link, exactly once: QoS 2, with one half of the flow before and one after the commit.

A batch is processed in these steps:

1. Get the messages from the queue, and commit a record of them with their packet identifiers, on a separate connection.
2. Publish the messages. A PUBREC means that the broker has the message, and rejects duplicates with the same packet
   identifier.
3. Commit a record that they are to be released, on the separate connection.
4. Send PUBREL and wait for PUBCOMP.
5. Commit the unit of work of step 1, including the removal of the record.

After an interruption, the messages are on the queue again, and the record determines how to continue. Before step 3, they are
sent again with the same packet identifiers. After it, they are released and removed.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from bridge.administration.mapping_status import MappingStatus
from bridge.config.link import LinkConfig
from bridge.config.mapping import ToMqttMapping
from bridge.link.state import LinkLost, PublicationRefusal
from bridge.mq.link_sessions import ExchangeRecord, Exchanges, LinkSession
from bridge.mq.mqi import Connection, Got, MQError
from bridge.service.mappings import former_sessions
from bridge.service.mappings.environment import MappingEnvironment, Tally
from bridge.service.mappings.link_runner import ToLinkRunner
from bridge.telemetry.message import Publication

log = logging.getLogger(__name__)


class ExactlyOnceRunner(ToLinkRunner):
    """Runs a mapping to the topics of a broker, exactly once."""

    recorded = True

    def __init__(
        self, name: str, config: ToMqttMapping, link: LinkConfig, environment: MappingEnvironment, status: MappingStatus
    ) -> None:
        super().__init__(name, config, link, environment, status)
        self._recording: Connection | None = None
        #: the record may contain a batch in progress
        self._uncertain = True
        self._packet_id = 0
        #: by broker address, the number of new sessions that the records of exchanges take into account
        self._recorded_sessions: Counter[str] = Counter()

    @property
    def sends_exactly_once(self) -> bool:
        return True

    def continues(self, before: LinkSession) -> bool:
        # After a change, the batch must be finished with the mapping of the former configuration.
        return super().continues(before) and before.mapping_config in ("", self._config_text)

    @property
    def _config_text(self) -> str:
        return self._config.model_dump_json(exclude_defaults=True, by_alias=True)

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        if self._begun:
            self._open_records(connection)

    def ready(self, connection: Connection) -> bool:
        had_begun = self._begun
        if super().ready(connection) and not had_begun:
            self._open_records(connection)
        return self._begun

    def _open_records(self, connection: Connection) -> None:
        """Open the record of the session's exchanges on both connections. Raises MQError."""
        self._close_recording()
        self._recording = self._environment.connect(f"record of mapping {self.mapping}")
        epoch = self._environment.epoch
        self._record = ExchangeRecord(self._recording, self._session, epoch)
        self._state = ExchangeRecord(connection, self._session, epoch)
        # Before getting messages: while the record is not readable, a previous unit of work is still in progress.
        self._state.load()
        self._uncertain = True

    def lost(self) -> None:
        super().lost()
        self._close_recording()

    def join(self, timeout: float) -> bool:
        ended = super().join(timeout)
        if ended:
            self._close_recording()
        return ended

    def _close_recording(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            with contextlib.suppress(MQError):
                recording.disconnect()

    def back_out(self) -> None:
        super().back_out()
        self._uncertain = True

    def unit(self, connection: Connection) -> None:
        self._follow_session(connection)
        if self._uncertain:
            self._finish_batch(connection)
        messages = self.to_publish(min(self._most(self._config.batch.messages), self._link.in_flight_limit))
        if not messages:
            return
        tally = Tally()
        numbered = {self._next_packet_id(): publication for publication in self.mapped(messages, tally)}
        self._send(connection, numbered, tally)

    def _follow_session(self, connection: Connection) -> None:
        """Switch to the session at the address to which the link is connected. Raises MQError and LinkLost.

        Calls of the link fail if it later connects to another address.
        """
        address = self._link.connected_address
        session = self._sessions[address]
        if not session.is_of(self._session):
            former_sessions.leave(connection, self._environment, self._session, ending=False, consumer=self._consumer)
            self._session = session
            self.entered(connection, None)
            self._open_records(connection)
        self._link.bind(address)
        self._address = address
        if self._uncertain:
            self._recorded_sessions[address] = former_sessions.finish(
                connection,
                self._environment,
                session,
                self._link,
                lambda: self._new_sessions[address],
                self._recorded_sessions[address],
            )
            if not self._state.found:
                if self._link.session_present:
                    log.info(
                        "MQB5313I mapping %s: releasing unknown exchanges in session %s", self.mapping, session.key
                    )
                    former_sessions.release_all(self._link)
                # From now on, the record contains all unfinished exchanges.
                self._state.save(Exchanges())
                connection.commit()
                self._state.found = True

    def _write_record(self, sending: Sequence[tuple[int, bytes]], releasing: Sequence[tuple[int, bytes]]) -> None:
        assert self._recording is not None
        self._record.save(Exchanges(sending=[*sending], releasing=[*releasing]))
        self._recording.commit()

    def _next_packet_id(self) -> int:
        self._packet_id = self._packet_id % former_sessions.LAST_PACKET_ID + 1
        return self._packet_id

    def _finish_batch(self, connection: Connection) -> None:
        """Finish the recorded batch, in parts if the broker's limit has decreased."""
        exchanges = self._state.load()
        accepted = {packet_id for packet_id, _ in exchanges.releasing}
        batch = [*exchanges.releasing, *exchanges.sending]
        if batch:
            self._packet_id = batch[-1][0]
            log.info(
                "MQB5301I mapping %s: finishing %d messages that the broker may already have", self.mapping, len(batch)
            )
        while batch:
            most = self._most(self._link.in_flight_limit)
            part, batch = batch[:most], batch[most:]
            tally = Tally()
            numbered = {}
            for packet_id, msg_id in part:
                for publication in self.mapped(self._consumer.take_exactly((msg_id,)), tally):
                    numbered[packet_id] = publication
            # The broker may also have messages that are no longer on the queue, or must no longer be sent.
            unknown_ids = [packet_id for packet_id, _ in part if packet_id not in numbered]
            self._send(
                connection,
                numbered,
                tally,
                dup=True,
                accepted=accepted.intersection(numbered),
                unknown_ids=unknown_ids,
                still=(
                    [entry for entry in batch if entry[0] not in accepted],
                    [entry for entry in batch if entry[0] in accepted],
                ),
            )
        self._uncertain = False

    def _send(
        self,
        connection: Connection,
        numbered: Mapping[int, tuple[Got, Publication]],
        tally: Tally,
        *,
        dup: bool = False,
        accepted: Collection[int] = (),
        unknown_ids: Sequence[int] = (),
        still: tuple[Sequence[tuple[int, bytes]], Sequence[tuple[int, bytes]]] = ((), ()),
    ) -> None:
        """Perform the steps for a batch of publications by packet identifier. Raises LinkLost.

        The broker has `accepted` messages already. `unknown_ids` are further packet identifiers to release. `still`
        contains the exchanges that remain in the record, first those to send, then those to release.

        If the broker loses the session, it also loses the messages that it accepted, so they are sent again. A message that
        the broker had already published is then published twice, because the bridge cannot distinguish it from the others.
        """
        address = self._address
        msg_id_of = {packet_id: message.md.MsgId for packet_id, (message, _) in numbered.items()}
        mid_of = {id(publication): packet_id for packet_id, (_, publication) in numbered.items()}
        accepted_ids = set(accepted)
        is_written = dup

        def send(publications: Sequence[Publication]) -> dict[int, PublicationRefusal]:
            # `deliver` passes rejected publications again, as the same objects.
            packet_ids = [mid_of[id(publication)] for publication in publications]
            refusals = self._link.publish_exactly(publications, packet_ids, dup)
            accepted_ids.update(packet_id for index, packet_id in enumerate(packet_ids) if index not in refusals)
            return refusals

        remaining = dict(numbered)
        while True:
            new_sessions = self._new_sessions[address]
            if new_sessions != self._recorded_sessions[address]:
                if accepted_ids:
                    former_sessions.report_lost_session(self.mapping, self._link_name, len(accepted_ids))
                    tally.moved -= len(accepted_ids - set(accepted))
                    accepted = ()
                    accepted_ids.clear()
                    is_written = False
                self._recorded_sessions[address] = new_sessions
            if not is_written and remaining:
                sending = [(packet_id, msg_id_of[packet_id]) for packet_id in remaining]
                self._write_record([*sending, *still[0]], still[1])
            is_written = False
            unsent = [publication for packet_id, publication in remaining.items() if packet_id not in accepted_ids]
            if unsent:
                try:
                    self.deliver(unsent, tally, send)
                except LinkLost as error:
                    if error.unsent and not dup and not accepted_ids:
                        # The messages do not belong to this session yet: the next one may be at another address.
                        self._write_record((), ())
                    raise
                remaining = {
                    packet_id: publication for packet_id, publication in remaining.items() if packet_id in accepted_ids
                }
                self._write_record(
                    still[0], [*((packet_id, msg_id_of[packet_id]) for packet_id in remaining), *still[1]]
                )
            self._sending = []
            if accepted_ids or unknown_ids:
                self._link.release([*unknown_ids, *(packet_id for packet_id in numbered if packet_id in accepted_ids)])
            if self._new_sessions[address] == new_sessions:
                break
        tally.moved += len(accepted)
        if numbered or dup:
            self._state.save(Exchanges(sending=[*still[0]], releasing=[*still[1]]))
        self.commit(connection, tally)
