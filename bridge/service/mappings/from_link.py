"""Mappings from a link to MQ: the bridge acknowledges a message after the queue manager has committed it."""

from __future__ import annotations

import logging
from collections.abc import Collection

import msgspec

from bridge.administration.mapping_status import State, Status
from bridge.config import LinkConfig
from bridge.config.mapping import ToMqMapping
from bridge.link.state import LinkPhase
from bridge.mapping.rules.rule import GUARANTEED_QOS, ToMqRule
from bridge.mq.mqi import Connection
from bridge.mq.state import LinkSession, LinkSessions, MappingState, forget_record
from bridge.mqtt.flow import Arrival, Receiver
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.link_runner import LinkRunner
from bridge.service.mappings.link_session import link_connection
from bridge.service.mappings.runner import PuttingRunner
from bridge.service.mappings.status import Tally
from bridge.telemetry.conversion import received_message
from bridge.telemetry.message import MappedMessage, Message, Received

log = logging.getLogger(__name__)

#: Seconds to wait for a publication.
WAIT = 1.0


class FromLinkRunner(LinkRunner, PuttingRunner[Received]):
    """Runs a mapping from the topics of a broker.

    At most once: QoS 0. At least once: QoS 1 with PUBACK after the commit. Exactly once: QoS 2. The unit of work that puts a
    message also records its packet identifier. The record is kept until PUBREL to recognize retransmissions (method B of
    MQTT 3.1.1, figure 4.3).
    """

    def __init__(
        self, name: str, config: ToMqMapping, link: LinkConfig, environment: MappingEnvironment, status: Status
    ) -> None:
        super().__init__(name, config, environment, status)
        self._rule = ToMqRule(name, config, environment.origin)
        self._exactly = config.guarantee == "exactly-once"
        self._link_name = config.source.link
        self._source = f"{self._link_name}: {self._rule.source_filter}"
        self._link_config = link
        #: publications taken from the link and not committed
        self._waiting: list[Received] = []
        #: packet identifiers of QoS 2 that are put and not released, as on record
        self._received = Receiver()
        #: packet identifiers of the last lost session; messages sent again in that session may still wait here
        self._earlier: Collection[int] = ()
        self._released: list[int] = []
        #: number of the connection since which the broker has had the session: current and recorded
        self._session = self._recorded_session = 0
        #: the completed subscription has not been recorded yet
        self._unsure = False
        self._link = link_connection(
            name,
            self._link_name,
            link,
            topic_filter=self._rule.source_filter,
            qos=GUARANTEED_QOS[config.guarantee],
            on_state=self._link_state,
            on_session=self._note_session,
        )

    def stop(self) -> None:
        super().stop()
        self._link.interrupt()

    def _begin(self, connection: Connection) -> None:
        """Record the session and start the link."""
        config = self._link_config
        client_id = self.client_id_at_broker(connection)
        self._link.identify(client_id)
        self._wanted = LinkSession(
            self.mapping,
            self._environment.owner,
            self._link_name,
            config.host,
            config.broker_port,
            client_id,
            [self._rule.source_filter],
            GUARANTEED_QOS[self._config.guarantee],
            sure=True,
        )
        before = LinkSessions(connection).load(self.mapping)
        if before is None or not before.is_of(self._wanted):
            before = None
        if before != self._wanted:
            filters = list(dict.fromkeys([*(before.filters if before is not None else ()), *self._wanted.filters]))
            LinkSessions(connection).save(msgspec.structs.replace(self._wanted, filters=filters, sure=False))
            self._unsure = True
        former = [one for one in (before.filters if before is not None else ()) if one not in self._wanted.filters]
        self._link.resume(former, subscribed=before == self._wanted)
        self._link.start()
        self._begun = True

    def leave_session(self) -> None:
        super().leave_session()
        if self._exactly:
            self._environment.remove_record(self.mapping)

    def _note_session(self, present: bool) -> None:
        if not present:
            self._session = self._link.generation

    def lost(self) -> None:
        super().lost()
        if self._config.guarantee != "at-most-once" or not self._waiting:
            return
        # The outcome of the commit is unknown: putting the messages again could duplicate them.
        log.warning(
            "MQB5104W mapping %s: the outcome of a commit of %d messages is unknown; not repeating them",
            self.mapping,
            len(self._waiting),
        )
        self._waiting = []

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        if self._exactly:
            self._state = MappingState(connection, self.mapping)
            record = self._state.load()
            self._received = Receiver(msgspec.msgpack.decode(record, type=list[int]) if record else ())
        else:
            # Remove the record of an earlier exactly-once configuration: its packet identifiers would match new publications.
            forget_record(connection, self.mapping)
        if not self._begun:
            self._begin(connection)

    def key(self, item: Received) -> bytes:
        return b"%d/%d/%d" % (item.generation, item.mid, id(item))

    def map(self, item: Received) -> MappedMessage | None:
        return self._rule.map(self.traced(item, item.publication))

    def original(self, item: Received) -> Message:
        return received_message(item.publication)

    def unit(self, connection: Connection, messages: int) -> None:
        if self._unsure and self._link.subscribed:
            LinkSessions(connection).save(self._wanted)
            self._unsure = False
        if not self._waiting:
            self._take()
        if self._exactly:
            self._follow_session(connection)
        items = self._waiting[:messages]
        if not items and not self._released:
            if self._link.state.phase is LinkPhase.CONNECTED:
                self.status.state = State.RUNNING
            else:
                self.wait_for_link()
            return
        tally = Tally()
        received = Receiver(self._received.identifiers)
        for mid in self._released:
            received.release(mid)
        for item in items:
            if not self._is_repeated(item, received):
                self.move(item, tally)
        if self._exactly and received.identifiers != self._received.identifiers:
            self._state.save(msgspec.msgpack.encode(sorted(received.identifiers)))
        connection.commit()
        self._received = received
        del self._waiting[: len(items)]
        self._link.acknowledge(items)
        self._link.complete(self._released)
        self._released = []
        self.settled(tally)

    def _take(self) -> None:
        batch = self._config.batch
        self._waiting = self._link.take(min(batch.messages, self._link_config.in_flight), batch.size, WAIT)
        # Packet identifiers from previous calls may not have been processed yet.
        self._released += self._link.released()

    def _follow_session(self, connection: Connection) -> None:
        """Update the record for the broker's current session when no messages of an earlier session wait."""
        session = self._session
        if session == self._recorded_session or any(item.qos and item.generation < session for item in self._waiting):
            return
        if self._received.identifiers:
            log.warning(
                "MQB5304W mapping %s: the broker of link %s lost the session and may send unreleased messages again",
                self.mapping,
                self._link_name,
            )
            # Before recording anything of the new session, which reuses the packet identifiers.
            self._state.save(None)
            connection.commit()
            self._earlier, self._received = self._received.identifiers, Receiver()
        self._recorded_session = session

    def _is_repeated(self, item: Received, received: Receiver) -> bool:
        """Return whether a publication has been put already; record the packet identifier of a new one in `received`."""
        if item.generation >= self._recorded_session:
            return item.qos == 2 and received.arrival(item.mid) is not Arrival.NEW
        # It no longer needs an acknowledgement. Its original packet identifier is in the publication.
        publication = item.publication
        return publication.qos == 2 and publication.message_id in self._earlier
