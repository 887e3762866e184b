"""Mappings between IBM MQ and another MQTT broker: the connection, and its state in the mapping's status."""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar

import msgspec

from bridge.administration.mapping_status import MappingStatus, RunnerState
from bridge.config.link import DEFAULT_CLIENT_ID, LinkConfig, client_id_of
from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.config.values import endpoint
from bridge.link import connection as links
from bridge.link.connection import LinkConnection
from bridge.link.state import LinkLost, LinkPhase, LinkState, PublicationRefusal
from bridge.mapping.rates import LeftOut
from bridge.mapping.rule import GUARANTEED_QOS, ToMqRule, ToMqttRule, published_qos
from bridge.mq.link_sessions import ExchangeRecord, Exchanges, FormerSession, LinkSession, LinkSessions
from bridge.mq.message_consumer import MessageConsumer
from bridge.mq.mqi import Connection, Got, MQError, announcing
from bridge.mq.worker import PROBE_INTERVAL
from bridge.service.events import LINK_LOST
from bridge.service.mappings import former_sessions
from bridge.service.mappings.environment import MappingEnvironment, Tally
from bridge.service.mappings.repetitions import Repetitions
from bridge.service.mappings.runner import (
    FIRST_RETRY,
    LONGEST_RETRY,
    WAIT,
    PuttingRunner,
    Runner,
    consumer_source,
)
from bridge.telemetry.message import MappedMessage, Message, Publication, Received, Unmappable
from bridge.telemetry.outcome import Outcome
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Seconds to wait for a link to disconnect.
STOP_TIMEOUT = 5.0


def chosen_client_id(connection: Connection, mapping: str, config: LinkConfig, bridge: str, *, unfinished: bool) -> str:
    """Return the client identifier of a mapping at the broker of its link. Raises MQError.

    A session created by an older bridge keeps its client identifier, without `{bridge}`, so that its messages are not lost.
    So does a session with `unfinished` messages of QoS 2.
    """
    chosen = client_id_of(config.client_id, mapping, bridge)
    if config.client_id != DEFAULT_CLIENT_ID:
        return chosen
    former = client_id_of(DEFAULT_CLIENT_ID, mapping, "")
    recorded = LinkSessions(connection).load(mapping)
    used = unfinished if recorded is None else recorded.client_id == former
    if used:
        log.info(
            "MQB5210I mapping %s: keeps its session %r at %s:%d, whose client identifier may be the same on another bridge",
            mapping,
            former,
            config.host,
            config.broker_port,
        )
    return former if used else chosen


class LinkRunner(Runner):
    """Runs a mapping that has a link on one side, and owns the link's connection."""

    #: Whether the mapping records its session. Others need no session, or end it with each connection.
    recorded: ClassVar[bool] = True

    _link: LinkConnection
    _link_name: str
    _link_config: LinkConfig
    #: the link has been started
    _begun = False
    #: the sessions that the mapping may use, by broker address, and the one that it uses
    _sessions: Mapping[str, LinkSession]
    _session: LinkSession

    @property
    def link(self) -> LinkConnection:
        """The connection to the broker."""
        return self._link

    def client_id_at_broker(self, connection: Connection, *, unfinished: bool = False) -> str:
        """Return the client identifier of the mapping at the broker. Raises MQError."""
        bridge = self._environment.bridge_id(connection)
        return chosen_client_id(connection, self.mapping, self._link_config, bridge, unfinished=unfinished)

    def subscribed(self) -> tuple[list[str], int]:
        """Return the topic filters of the mapping's subscription at the broker, and its QoS."""
        return [], 0

    @property
    def may_park(self) -> bool:
        """Whether the thread may end while the mapping is idle."""
        return announcing(self.connection) is not None

    @property
    def sends_exactly_once(self) -> bool:
        """Whether the mapping finishes batches of QoS 2 itself, even after a change of its configuration."""
        return False

    def continues(self, before: LinkSession) -> bool:
        """Return whether the mapping continues the recorded exchanges of a session."""
        return self.recorded and bool(before.filters) == bool(self.subscribed()[0])

    def begin(self, connection: Connection) -> None:
        """Leave the former session, enter the configured one and start the link, unless the former must be finished first.

        A session that this mapping uses in another way, or that could not be ended, is finished and ended at the broker
        before the mapping enters it. If the broker is unreachable, the next call tries again. A session elsewhere does not
        delay the mapping: it is finished later. Raises MQError.
        """
        environment, sessions = self._environment, LinkSessions(connection)
        before = sessions.load(self.mapping)
        client_id = self.client_id_at_broker(connection, unfinished=sessions.unnamed(self.mapping) is not None)
        self._sessions = self._configured_sessions(client_id)
        keys = {session.key for session in self._sessions.values()}
        if self.recorded:
            known_session = before or next(iter(self._sessions.values()))
            sends = not known_session.filters
            certain = before is not None and not environment.epoch
            former_sessions.convert_former_record(connection, known_session, certain=certain, sends=sends)
        if before is not None and not (before.key in keys and self.continues(before)):
            # A batch to the broker is finished in the session as it is.
            goes_on = self.sends_exactly_once and not before.filters
            former_sessions.leave(connection, environment, before, ending=before.key in keys and not goes_on)
            if before.key not in keys and (former_session := sessions.former(before)) is not None:
                former_sessions.settle(connection, environment, former_session, former_sessions.link_of(before, {}))
            before = None
        for session in {session.key: session for session in self._sessions.values()}.values():
            former = sessions.former(session)
            if former is not None and not self._may_enter(connection, former):
                return
        self._link.identify(client_id)
        if self.recorded:
            used = next(
                (session for session in self._sessions.values() if before is not None and session.is_of(before)), None
            )
            self._session = used or next(iter(self._sessions.values()))
            self.entered(connection, before)
        self._link.start()
        self._begun = True

    def _configured_sessions(self, client_id: str) -> dict[str, LinkSession]:
        """Return the session at each address of the link. Addresses that share sessions have that of the first one."""
        config, (filters, qos) = self._link_config, self.subscribed()
        sessions: dict[str, LinkSession] = {}
        for host, port in config.addresses:
            if sessions and config.failover_sessions == "shared":
                sessions[endpoint(host, port)] = next(iter(sessions.values()))
                continue
            sessions[endpoint(host, port)] = LinkSession(
                self.mapping,
                self._environment.owner,
                self._link_name,
                host,
                port,
                client_id,
                filters,
                qos,
                sure=True,
                link_config=config.model_dump_json(exclude_defaults=True, by_alias=True),
                mapping_config=self._config.model_dump_json(exclude_defaults=True, by_alias=True),
                keeps_retain=config.version == "5" or config.bridge_bit,
                epoch=self._environment.epoch,
            )
        return sessions

    def _may_enter(self, connection: Connection, former: FormerSession) -> bool:
        """Return whether the mapping may use a session with unfinished exchanges, after trying to finish them."""
        if not former.ending and self.sends_exactly_once:
            return True  # finished over the mapping's own connection
        config = former_sessions.link_of(former.session, {self._link_name: self._link_config})
        if former_sessions.settle(connection, self._environment, former, config):
            return True
        if former.ending or former_sessions.parked_number(connection, former.session):
            self.status.wrong(
                f"link {self._link_name}: session {former.session.key} is not finished: the broker is unreachable",
                RunnerState.WAITING_FOR_LINK,
            )
            return False
        return True

    def entered(self, connection: Connection, before: LinkSession | None) -> None:
        """Record the session that the mapping uses. `before` is the record of the same session, if there is one.

        Raises MQError.
        """
        if self._session != before:
            LinkSessions(connection).save(self._session)

    def ready(self, connection: Connection) -> bool:
        """Return whether the link is started, after trying to start it. Raises MQError."""
        if not self._begun:
            self.begin(connection)
            if not self._begun:
                self.pause(LONGEST_RETRY)
        return self._begun

    @property
    def session_key(self) -> str:
        return self._sessions[self._link.address].key if self._begun else ""

    def join(self, timeout: float) -> bool:
        ended = super().join(timeout)
        return self._link.stop(STOP_TIMEOUT) and ended

    def _link_state(self, state: LinkState) -> None:
        if state.error:
            self.status.wrong(f"link {self._link_name}: {state.error}")
        if state.phase is not LinkPhase.CONNECTED:
            self.wait_for_link()
        self._link.interrupt()
        self.wake()

    def wait_for_link(self) -> None:
        """Report that the mapping waits for the link, unless it reports another problem.

        The mapping's thread calls this, too: it may have set `running` just after the connection was lost.
        """
        if self.status.state in (RunnerState.RUNNING, RunnerState.STARTING):
            self.status.state = RunnerState.WAITING_FOR_LINK


#: The state queue is missing or not accessible. Only exactly-once mappings need it.
NO_STATE_QUEUE = frozenset((cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQRC_NOT_AUTHORIZED, cmqc.MQRC_OBJECT_IN_USE))

#: Seconds to wait for a publication if the thread must not end while idle. It probes the connection between waits.
LINK_WAIT = PROBE_INTERVAL


class _Connection(msgspec.Struct, frozen=True):
    """An accepted connection of a link."""

    generation: int
    address: str
    #: the broker had the session
    present: bool


class FromLinkRunner(LinkRunner, PuttingRunner[Received]):
    """Runs a mapping from the topics of a broker.

    At most once: QoS 0. At least once: QoS 1 with PUBACK after the commit. Exactly once: QoS 2. The unit of work that puts a
    message also records its packet identifier. The record is kept until PUBREL to recognize retransmissions (method B of MQTT
    3.1.1, figure 4.3). A publication with QoS 2 is moved exactly once whatever the guarantee, because the broker may have
    sent it before the guarantee was changed.
    """

    def __init__(
        self, name: str, config: ToMqMapping, link: LinkConfig, environment: MappingEnvironment, status: MappingStatus
    ) -> None:
        super().__init__(name, config, environment, status)
        self._rule: ToMqRule = ToMqRule(name, config, environment.origin)
        self._exactly = config.guarantee == "exactly-once"
        self._link_name = config.source.link
        self._source = f"{self._link_name}: {self._rule.source_filter}"
        self._link_config = link
        #: publications taken from the link and not committed
        self._waiting: list[Received] = []
        #: the recorded publications with QoS 2 that were put
        self._repetitions = Repetitions()
        #: packet identifiers of the last lost session, of which repeated publications may still wait
        self._earlier: Collection[int] = ()
        self._released: list[int] = []
        #: accepted connections that are not recorded yet
        self._connections: deque[_Connection] = deque()
        #: number of the connection since which the broker has had the recorded session
        self._recorded_since = 0
        #: the completed subscription has not been recorded yet
        self._unsure = False
        #: the subscription was made with another `keeps_retain`
        self._retain_changed = False
        self._link = links.link_connection(
            name,
            self._link_name,
            link,
            topic_filter=self._rule.source_filter,
            qos=GUARANTEED_QOS[config.guarantee],
            on_state=self._link_state,
            on_session=self._note_session,
            on_arrival=self.wake,
        )

    def subscribed(self) -> tuple[list[str], int]:
        return [self._rule.source_filter], GUARANTEED_QOS[self._config.guarantee]

    def stop(self) -> None:
        super().stop()
        self._link.interrupt()

    def entered(self, connection: Connection, before: LinkSession | None) -> None:
        session = self._session
        complete = msgspec.structs.replace(session, sure=True)
        is_sure = before is not None and all(
            getattr(before, name) == getattr(complete, name) for name in ("filters", "qos", "sure", "epoch")
        )
        keeps_retain = session.keeps_retain if before is None or before.keeps_retain is None else before.keeps_retain
        self._retain_changed = keeps_retain != session.keeps_retain
        if self._retain_changed:
            log.warning(
                "MQB5314W mapping %s: the RETAIN flag is still %s in session %s, as when its subscription was made",
                self.mapping,
                "kept" if keeps_retain else "cleared",
                session.key,
            )
        former = [
            topic_filter
            for topic_filter in (before.filters if before is not None else ())
            if topic_filter not in session.filters
        ]
        filters = list(dict.fromkeys([*former, *session.filters]))
        recorded = msgspec.structs.replace(session, filters=filters, sure=is_sure, keeps_retain=keeps_retain)
        if recorded != before:
            LinkSessions(connection).save(recorded)
        self._unsure = not is_sure
        self._link.resume(former, subscribed=is_sure)
        self._load(connection)

    def _load(self, connection: Connection) -> None:
        """Load the record of the session, which is no longer a former one. Raises MQError."""
        self._record: ExchangeRecord | None = None
        arrived = {incoming.packet_id: incoming.generation for incoming in self._waiting if incoming.qos == 2}
        try:
            self._record = ExchangeRecord(connection, self._session, self._environment.epoch)
            on_record = self._record.load()
            self._repetitions = self._repetitions.reloaded(
                on_record.received, on_record.digests, arrived, reuses=on_record.reuses
            )
            if LinkSessions(connection).former(self._session) is not None:
                LinkSessions(connection).remove_former(self._session)
                connection.commit()
        except MQError as error:
            # Without the state queue, no publication of QoS 2 was or is recorded.
            if self._exactly or error.reason not in NO_STATE_QUEUE:
                raise

    def _note_session(self, present: bool) -> None:
        self._connections.append(_Connection(self._link.generation, self._link.connected_address, present))

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
        if self._begun:
            self._load(connection)
        else:
            self.begin(connection)

    def key(self, incoming: Received) -> bytes:
        return b"%d/%d/%d" % (incoming.generation, incoming.packet_id, id(incoming))

    def map(self, incoming: Received) -> Sequence[MappedMessage] | LeftOut | None:
        return self._rule.messages(self.traced(incoming, incoming.publication))

    def unit(self, connection: Connection, messages: int) -> None:
        if not self.ready(connection):
            return
        if self._unsure and self._link.subscribed:
            LinkSessions(connection).save(self._session)
            self._unsure = False
        if not self._waiting:
            self._take()
        self._follow_session(connection)
        batch = self._waiting[:messages]
        if not batch and not self._released:
            if self._link.state.phase is LinkPhase.CONNECTED:
                self.status.state = RunnerState.RUNNING
            else:
                self.wait_for_link()
            self.idle = self.may_park
            return
        tally = Tally()
        repetitions = self._repetitions.copy()
        for packet_id in self._released:
            repetitions.release(packet_id)
        for incoming in batch:
            if not self._is_repeated(incoming, repetitions):
                self.move(incoming, tally)
        if self._record is not None and repetitions.identifiers != self._repetitions.identifiers:
            self._record.save(
                Exchanges(received=repetitions.identifiers, digests=repetitions.digests, reuses=repetitions.reuses)
            )
        connection.commit()
        self._repetitions = repetitions
        del self._waiting[: len(batch)]
        self._link.acknowledge(batch)
        self._link.complete(self._released)
        self._released = []
        self.settled(tally)

    def _take(self) -> None:
        batch = self._config.batch
        wait = WAIT if self.may_park else LINK_WAIT
        self._waiting = self._link.take(min(batch.messages, self._link_config.in_flight), batch.size, wait)
        # Packet identifiers from previous calls may not have been processed yet.
        self._released += self._link.released()

    def _follow_session(self, connection: Connection) -> None:
        """Switch to the session of the link's connection, once no messages of an earlier session wait."""
        while self._connections:
            new = self._connections[0]
            session = self._sessions[new.address]
            moved = not session.is_of(self._session)
            if new.present and not moved:
                self._repetitions.connected()
                self._connections.popleft()
                continue
            if any(incoming.qos and incoming.generation < new.generation for incoming in self._waiting):
                return
            if moved:
                self._session = session
                self._repetitions = Repetitions()
                LinkSessions(connection).save(session)
                self._load(connection)
            earlier = self._repetitions.identifiers
            if not new.present:
                if self._retain_changed:
                    LinkSessions(connection).save(self._session)
                    self._retain_changed = False
                if earlier:
                    log.warning(
                        "MQB5304W mapping %s: the broker of link %s lost the session and may send unreleased messages again",
                        self.mapping,
                        self._link_name,
                    )
                if self._record is not None and (earlier or self._repetitions.digests):
                    # Before recording anything of the new session, which reuses the packet identifiers.
                    self._record.save(Exchanges())
                    connection.commit()
                self._earlier, self._repetitions = earlier, Repetitions()
            self._recorded_since = new.generation
            self._connections.popleft()

    def _is_repeated(self, incoming: Received, repetitions: Repetitions) -> bool:
        """Return whether a publication has already been put. Record the packet identifier of a new one."""
        if incoming.generation >= self._recorded_since:
            return incoming.qos == 2 and repetitions.is_repeated(incoming)
        # It no longer needs an acknowledgement. Its original packet identifier is in the publication.
        publication = incoming.publication
        return publication.qos == 2 and publication.packet_id in self._earlier


#: MQTT 5 reason codes (section 2.4) of permanent rejections: topic name invalid, packet too large, payload format invalid,
#: retain not supported, QoS not supported.
PERMANENT_REASONS = frozenset((0x90, 0x95, 0x99, 0x9A, 0x9B))
#: Seconds that an open unit of work waits for a broker to restart.
RECONNECT_TIME = 10.0
#: MQTT 5 reason codes of temporary rejections: implementation specific error, quota exceeded.
PASSING_REASONS = frozenset((0x83, 0x97))


class ToLinkRunner(LinkRunner):
    """Runs a mapping to the topics of a broker, at most or at least once.

    At least once: messages are published with QoS 1 or 2 and leave the queue after the broker's acknowledgements. At most
    once: messages leave the queue first and are published with QoS 0.
    """

    #: the mapping needs no session at the broker
    recorded = False

    def __init__(
        self, name: str, config: ToMqttMapping, link: LinkConfig, environment: MappingEnvironment, status: MappingStatus
    ) -> None:
        super().__init__(name, config, environment, status)
        self._rule: ToMqttRule = ToMqttRule(name, config, environment.origin)
        self._consumer_source = consumer_source(name, self._rule, environment.owner)
        self._queue = self._consumer_source.queue
        self._source = self._queue or self._consumer_source.topic_filter
        self._link_name = config.destination.link
        self._link_config = link
        self._qos = GUARANTEED_QOS[config.guarantee]
        #: MsgIds being sent; and MsgId -> number of connection losses while this message was sent alone
        self._sending: list[bytes] = []
        self._losses: dict[bytes, int] = {}
        #: number of messages to send one by one, because the broker may have closed the connection due to one of them
        self._singly = 0
        #: missing support for retained messages has been logged
        self._unretained = False
        #: connections without an existing session, by broker address
        self._new_sessions: Counter[str] = Counter()
        self._link = links.link_connection(
            name,
            self._link_name,
            link,
            clean=None if self.recorded else True,
            on_state=self._link_state,
            on_session=self._count_session,
        )

    def _count_session(self, present: bool) -> None:
        if not present:
            self._new_sessions[self._link.connected_address] += 1

    def leave_source(self) -> int:
        return self._environment.remove_subscription(self.mapping)

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        if not self._begun:
            # Before the source is opened, because `begin` may take messages from it.
            self.begin(connection)
        self._consumer = MessageConsumer(connection, self._consumer_source)

    def back_out(self) -> None:
        super().back_out()
        self._consumer.ended()

    def serve(self, connection: Connection) -> None:
        if not self.ready(connection):
            return
        if unsuitable := self._link.unsuitable:
            self.status.wrong(
                f"the broker of link {self._link_name} does not support exactly-once: {unsuitable}", RunnerState.STUCK
            )
            self.pause(LONGEST_RETRY)
            return
        if not self._link.wait_connected(WAIT):
            # The consumer is opened nevertheless, but its messages stay on the queue.
            self.wait_for_link()
            self.idle = self.may_park
            return
        if self._link.limits.maximum_qos < self._qos:
            # Messages stay on the queue: the broker may be replaced.
            self.status.wrong(
                f"the broker of link {self._link_name} supports QoS {self._link.limits.maximum_qos} at most; guarantee "
                f"{self._config.guarantee} needs {self._qos}",
                RunnerState.STUCK,
            )
            self.pause(LONGEST_RETRY)
            return
        try:
            self.unit(connection)
        except LinkLost as error:
            self._note_loss(error)
            self.back_out()
            self.status.wrong(f"link {self._link_name}: {error}", RunnerState.WAITING_FOR_LINK)

    def _note_loss(self, error: LinkLost) -> None:
        """Note that the connection was lost while messages were being sent.

        A message for which the broker closes the connection must not block all others forever. No message is at fault if the
        broker broke the protocol.
        """
        sending, self._sending = self._sending, []
        if error.violation is not None:
            return
        if len(sending) == 1:
            self._losses[sending[0]] = self._losses.get(sending[0], 0) + 1
        elif sending:
            self._singly = len(sending)

    def _most(self, messages: int) -> int:
        return 1 if self._singly else messages

    def to_publish(self, messages: int) -> list[Got]:
        """Take messages to publish. Raises LinkLost if the link was lost while the mapping waited for them."""
        batch = self.taken(self._consumer, messages)
        if batch and not self._link.up:
            raise LinkLost("the connection was lost")
        return batch

    def unit(self, connection: Connection) -> None:
        """Run one unit of work, up to its commit. Raises LinkLost."""
        batch = self.to_publish(self._most(self._config.batch.messages))
        if not batch:
            return
        tally = Tally()
        publications = self.mapped(batch, tally)
        if self._qos:
            # Subscribers see QoS 2 at PUBREL and QoS 1 at PUBLISH. To preserve order, different kinds must not be in flight
            # together.
            for _, run in itertools.groupby(publications, key=lambda entry: entry[1].qos == 2):
                self.deliver(list(run), tally, self._link.publish)
            self.commit(connection, tally)
            return
        self.commit(connection, tally)
        try:
            refusals = self._link.publish([publication for _, publication in publications])
        except LinkLost:
            for incoming, publication in publications:
                self.note(tally, incoming, Outcome.DISCARDED, LINK_LOST, publication.topic)
            self.report_fates(tally)
            raise
        self.status.moved += len(publications) - len(refusals)
        for refusal in refusals.values():
            log.warning("MQB5103W mapping %s: lost a message: %s", self.mapping, refusal.text)
        for index, (incoming, publication) in enumerate(publications):
            outcome, why = (Outcome.REFUSED, refusals[index].text) if index in refusals else (Outcome.DELIVERED, None)
            self.note(tally, incoming, outcome, why, publication.topic)
        self.report_fates(tally)

    def commit(self, connection: Connection, tally: Tally) -> None:
        """Commit the unit of work and record its success."""
        connection.commit()
        # Otherwise a few rejected publications would delay all messages by the longest pause.
        self._link.reset_back_off()
        self._sending = []
        if self._singly:
            self._singly -= 1
        else:
            self._losses.clear()
        self._consumer.ended()
        self.status.state = RunnerState.RUNNING
        tally.settle(self.status)
        self.report_fates(tally)

    def deliver(
        self,
        publications: Sequence[tuple[Got, Publication]],
        tally: Tally,
        send: Callable[[Sequence[Publication]], Mapping[int, PublicationRefusal]],
    ) -> None:
        """Publish until the broker has accepted all messages, or rejections have been dead-lettered. Raises LinkLost.

        Rejected messages are sent again within the unit of work. Backing out would send the others twice.
        """
        for attempt in itertools.count():
            publications, refusals = self._publish(publications, tally, send) if publications else (publications, {})
            tally.moved += len(publications) - len(refusals)
            for index, (incoming, publication) in enumerate(publications):
                if index not in refusals:
                    self.note(tally, incoming, Outcome.ACKNOWLEDGED, None, publication.topic)
            if not refusals:
                return
            refused = [(publications[index], refusals[index]) for index in sorted(refusals)]
            remaining = []
            for (incoming, publication), refusal in refused:
                given_up = attempt >= self._config.backouts and refusal.reason not in PASSING_REASONS
                if refusal.reason in PERMANENT_REASONS or given_up:
                    description = f"the publication to {publication.topic!r}: {refusal.text}"
                    why = f"the broker of link {self._link_name} rejects {description}"
                    self.dead_letter(incoming, tally, cmqc.MQRC_PUBLICATION_FAILURE, why, to=publication.topic)
                else:
                    remaining.append((incoming, publication))
            publications = remaining
            if not publications:
                return
            why = f"publication to {publications[0][1].topic!r} was rejected: {refused[0][1].text}"
            self.status.wrong(why, RunnerState.RETRYING)
            self.pause(min(FIRST_RETRY * 4 ** min(attempt, 10), LONGEST_RETRY))
            if self._ending:
                raise LinkLost("the mapping stops before the broker has accepted all messages")

    def _publish(
        self,
        publications: Sequence[tuple[Got, Publication]],
        tally: Tally,
        send: Callable[[Sequence[Publication]], Mapping[int, PublicationRefusal]],
    ) -> tuple[Sequence[tuple[Got, Publication]], Mapping[int, PublicationRefusal]]:
        """Publish. If the connection is lost, publish unacknowledged messages once more on the next connection.

        Backing out the unit of work would send all messages again. Returns the messages sent last, and their refusals. Raises
        LinkLost.
        """
        self._sending = [incoming.md.MsgId for incoming, _ in publications]
        try:
            return publications, send([publication for _, publication in publications])
        except LinkLost as error:
            unanswered = error.unanswered
            # If nothing was acknowledged, the first message may have caused the broker to close the connection.
            if unanswered is None or len(unanswered) == len(publications):
                raise
            self.status.wrong(f"link {self._link_name}: {error}", RunnerState.WAITING_FOR_LINK)
            if not self._reconnected():
                raise
        for index in sorted({*range(len(publications))}.difference(unanswered)):
            incoming, publication = publications[index]
            self.note(tally, incoming, Outcome.ACKNOWLEDGED, None, publication.topic)
        tally.moved += len(publications) - len(unanswered)
        repeated = [publications[index] for index in unanswered]
        return repeated, send([publication for _, publication in repeated])

    def _reconnected(self) -> bool:
        """Wait briefly for the link, because the unit of work stays open, and return whether it is usable."""
        before = time.monotonic() + RECONNECT_TIME
        while not self._ending and time.monotonic() < before:
            if self._link.wait_connected(WAIT):
                return self._link.limits.maximum_qos >= self._qos
        return False

    def mapped(self, batch: Sequence[Got], tally: Tally) -> list[tuple[Got, Publication]]:
        """Return the publications for messages.

        Other messages are filtered, cut or dead-lettered within the unit of work.
        """
        mapped_publications = []
        closes = self._environment.guard.closes
        for incoming in batch:
            tally.taken += 1
            try:
                request = self._consumer.request_of(incoming.md)
                publications = self._rule.publications(Message(incoming.md, incoming.data), request=request)
            except Unmappable as error:
                self.dead_letter(incoming, tally, error.reason, str(error))
                continue
            if publications is None:
                self.pass_by(incoming, tally)
                continue
            if isinstance(publications, LeftOut):
                self.leave_out(incoming, tally, publications)
                continue
            (publication,) = publications
            if (through := closes(publication.hops, self._link_name, publication.topic)) is not None:
                self.cut(incoming, publication.topic, through, publication.hops, tally)
            elif self._losses.get(incoming.md.MsgId, 0) > self._config.backouts:
                why = (
                    f"the broker of link {self._link_name} closes the connection each time at the publication to "
                    f"{publication.topic!r}"
                )
                self.dead_letter(incoming, tally, cmqc.MQRC_PUBLICATION_FAILURE, why, to=publication.topic)
            else:
                self._fit(publication)
                mapped_publications.append((incoming, self.traced(incoming, publication)))
        return mapped_publications

    def _fit(self, publication: Publication) -> None:
        """Limit QoS to the guarantee and the broker's maximum, and clear RETAIN if the broker does not support it."""
        limits = self._link.limits
        publication.qos = published_qos(self._config.guarantee, publication.qos, limits.maximum_qos)
        if publication.retain and not limits.retain_available:
            publication.retain = False
            if not self._unretained:
                self._unretained = True
                log.warning(
                    "MQB5305W mapping %s: the broker of link %s does not support retained publications",
                    self.mapping,
                    self._link_name,
                )
