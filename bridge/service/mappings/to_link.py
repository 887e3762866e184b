"""Mappings from MQ to a link: a message leaves the queue after the broker has accepted it."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from bridge.administration.mapping_status import State, Status
from bridge.archive.mapping_observer import FILTERED, LINK_LOST
from bridge.archive.schema import Outcome
from bridge.config import LinkConfig
from bridge.config.mapping import ToMqttMapping
from bridge.link.state import LinkLost, Refusal
from bridge.mapping.rules.rule import GUARANTEED_QOS, ToMqttRule, published_qos
from bridge.mq.message_consumer import MessageConsumer
from bridge.mq.mqi import Connection, Got
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.link_runner import LinkRunner
from bridge.service.mappings.link_session import link_connection
from bridge.service.mappings.runner import FIRST_RETRY, LONGEST_RETRY, NOT_TAKEN
from bridge.service.mappings.status import Tally
from bridge.service.mappings.transfer import WAIT, consumer_source
from bridge.telemetry.message import Message, Publication, Unmappable
from bridge.wire import cmqc

log = logging.getLogger(__name__)


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

    #: whether the mapping does not need a session at the broker
    sessionless = True

    def __init__(
        self, name: str, config: ToMqttMapping, link: LinkConfig, environment: MappingEnvironment, status: Status
    ) -> None:
        super().__init__(name, config, environment, status)
        self._rule = ToMqttRule(name, config, environment.origin)
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
        #: number of connections without an existing session, including the first
        self._new_sessions = 0
        self._link = link_connection(
            name,
            self._link_name,
            link,
            clean=True if self.sessionless else None,
            on_state=self._link_state,
            on_session=self._count_session,
        )

    def _count_session(self, present: bool) -> None:
        self._new_sessions += not present

    def leave_source(self) -> int:
        return self._environment.remove_subscription(self.mapping)

    def leave_session(self) -> None:
        if not self.sessionless:
            super().leave_session()

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        self._consumer = MessageConsumer(connection, self._consumer_source, lambda: self._ending)
        if not self._begun:
            self.begin(connection)

    def begin(self, connection: Connection) -> None:
        """Start the link. Raises MQError."""
        self._link.identify(self.client_id_at_broker(connection))
        self._link.start()
        self._begun = True

    def back_out(self) -> None:
        super().back_out()
        self._consumer.ended()

    def serve(self, connection: Connection) -> None:
        if not self._link.wait_connected(WAIT):
            # The consumer is opened nevertheless. Its messages stay on the queue.
            self.wait_for_link()
            return
        if self._link.limits.maximum_qos < self._qos:
            # Messages stay on the queue: the broker may be replaced.
            self.status.wrong(
                f"the broker of link {self._link_name} takes QoS {self._link.limits.maximum_qos} at most; guarantee "
                f"{self._config.guarantee} needs {self._qos}",
                State.STUCK,
            )
            self.pause(LONGEST_RETRY)
            return
        try:
            self.unit(connection)
        except LinkLost as error:
            self._note_loss()
            self.back_out()
            self.status.wrong(f"link {self._link_name}: {error}", State.WAITING_FOR_LINK)

    def _note_loss(self) -> None:
        """Note that the connection was lost while messages were being sent.

        A message for which the broker closes the connection must not block all others forever.
        """
        sending, self._sending = self._sending, []
        if len(sending) == 1:
            self._losses[sending[0]] = self._losses.get(sending[0], 0) + 1
        elif sending:
            self._singly = len(sending)

    def _most(self, messages: int) -> int:
        return 1 if self._singly else messages

    def unit(self, connection: Connection) -> None:
        """Run one unit of work, up to its commit. Raises LinkLost."""
        batch = self._config.batch
        items = self._consumer.take(self._most(batch.messages), batch.size, batch.time, WAIT)
        if not items:
            self.status.state = State.RUNNING
            return
        tally = Tally()
        taken = self.mapped(items, tally)
        if self._qos:
            # Subscribers see QoS 2 at PUBREL and QoS 1 at PUBLISH. To preserve order, different kinds must not be in flight
            # together.
            for _, run in itertools.groupby(taken, key=lambda one: one[1].qos == 2):
                self.deliver(list(run), tally, self._link.publish)
            self.commit(connection, tally)
            return
        self.commit(connection, tally)
        try:
            refusals = self._link.publish([publication for _, publication in taken])
        except LinkLost:
            for item, publication in taken:
                self.note(tally, item, Outcome.DISCARDED, LINK_LOST, publication.topic)
            self.tell(tally)
            raise
        self.status.moved += len(taken) - len(refusals)
        for refusal in refusals.values():
            log.warning("MQB5103W mapping %s: lost a message: %s", self.mapping, refusal.text)
        for index, (item, publication) in enumerate(taken):
            outcome, why = (Outcome.REFUSED, refusals[index].text) if index in refusals else (Outcome.DELIVERED, None)
            self.note(tally, item, outcome, why, publication.topic)
        self.tell(tally)

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
        self.status.state = State.RUNNING
        tally.settle(self.status)
        self.tell(tally)

    def deliver(
        self,
        taken: Sequence[tuple[Got, Publication]],
        tally: Tally,
        send: Callable[[Sequence[Publication]], Mapping[int, Refusal]],
    ) -> None:
        """Publish until the broker has accepted all messages, or rejections have been dead-lettered. Raises LinkLost.

        Rejected messages are sent again within the unit of work. Backing out would send the others twice.
        """
        for attempt in itertools.count():
            taken, refusals = self._publish(taken, tally, send) if taken else (taken, {})
            tally.moved += len(taken) - len(refusals)
            for index, (item, publication) in enumerate(taken):
                if index not in refusals:
                    self.note(tally, item, Outcome.ACKNOWLEDGED, None, publication.topic)
            if not refusals:
                return
            refused = [(taken[index], refusals[index]) for index in sorted(refusals)]
            left = []
            for (item, publication), refusal in refused:
                given_up = attempt >= self._config.backouts and refusal.reason not in PASSING_REASONS
                if refusal.reason in PERMANENT_REASONS or given_up:
                    self.bury_refused(item, publication, refusal, tally)
                else:
                    left.append((item, publication))
            taken = left
            if not taken:
                return
            why = f"publication to {taken[0][1].topic!r} is refused: {refused[0][1].text}"
            self.status.wrong(why, State.RETRYING)
            self.pause(min(FIRST_RETRY * 4 ** min(attempt, 10), LONGEST_RETRY))
            if self._ending:
                raise LinkLost("the mapping stops before the broker has taken all")

    def _publish(
        self,
        taken: Sequence[tuple[Got, Publication]],
        tally: Tally,
        send: Callable[[Sequence[Publication]], Mapping[int, Refusal]],
    ) -> tuple[Sequence[tuple[Got, Publication]], Mapping[int, Refusal]]:
        """Publish. If the connection is lost, publish unacknowledged messages once more on the next connection.

        Backing out the unit of work would send all messages again. Returns the messages sent last, and their refusals. Raises
        LinkLost.
        """
        self._sending = [item.md.MsgId for item, _ in taken]
        try:
            return taken, send([publication for _, publication in taken])
        except LinkLost as error:
            unanswered = error.unanswered
            # If nothing was acknowledged, the first message may have caused the broker to close the connection.
            if unanswered is None or len(unanswered) == len(taken):
                raise
            self.status.wrong(f"link {self._link_name}: {error}", State.WAITING_FOR_LINK)
            if not self._reconnected():
                raise
        for index in sorted({*range(len(taken))}.difference(unanswered)):
            item, publication = taken[index]
            self.note(tally, item, Outcome.ACKNOWLEDGED, None, publication.topic)
        tally.moved += len(taken) - len(unanswered)
        left = [taken[index] for index in unanswered]
        return left, send([publication for _, publication in left])

    def _reconnected(self) -> bool:
        """Wait briefly for the link, because the unit of work stays open, and return whether it is usable."""
        before = time.monotonic() + RECONNECT_TIME
        while not self._ending and time.monotonic() < before:
            if self._link.wait_connected(WAIT):
                return self._link.limits.maximum_qos >= self._qos
        return False

    def bury_refused(self, item: Got, publication: Publication, refusal: Refusal, tally: Tally) -> None:
        """Dead-letter a message that the broker rejects, within the unit of work."""
        self._bury(
            item,
            tally,
            cmqc.MQRC_PUBLICATION_FAILURE,
            f"the broker of link {self._link_name} refuses the publication to {publication.topic!r}: {refusal.text}",
            publication.topic,
        )

    def mapped(self, items: Sequence[Got], tally: Tally) -> list[tuple[Got, Publication]]:
        """Return the publications for messages.

        Other messages are filtered, cut or dead-lettered within the unit of work.
        """
        taken = []
        closes = self._environment.guard.closes
        for item in items:
            tally.taken += 1
            try:
                request = self._consumer.request_of(item.md)
                publication = self._rule.map(Message(item.md, item.data), request=request)
            except Unmappable as error:
                self._bury(item, tally, error.reason, str(error))
                continue
            if publication is None:
                if self._only_taker:
                    self._bury(item, tally, cmqc.MQRC_NO_SUBS_MATCHED, NOT_TAKEN)
                else:
                    tally.filtered += 1
                    self.note(tally, item, Outcome.DISCARDED, FILTERED)
            elif (through := closes(publication.hops, self._link_name, publication.topic)) is not None:
                self.cut(item, publication.topic, through, publication.hops, tally)
            elif self._losses.get(item.md.MsgId, 0) > self._config.backouts:
                why = (
                    f"the broker of link {self._link_name} closes the connection each time at the publication to "
                    f"{publication.topic!r}"
                )
                self._bury(item, tally, cmqc.MQRC_PUBLICATION_FAILURE, why, publication.topic)
            else:
                self._fit(publication)
                taken.append((item, self.traced(item, publication)))
        return taken

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

    def _bury(self, item: Got, tally: Tally, reason: int, why: str, to: str | None = None) -> None:
        self._dead_letters.put(item.md, item.data, reason, why)
        tally.dead_lettered += 1
        self.note(tally, item, Outcome.DEAD_LETTERED, f"{cmqc.reason_name(reason)} ({reason})", to)
        self.status.wrong(why)
