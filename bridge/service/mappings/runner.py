"""The thread of a mapping: takes messages, maps them and puts them, many per unit of work."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Never, TypeVar

from bridge.administration.histogram import Histogram
from bridge.administration.mapping_status import State, Status
from bridge.archive.events import now_us
from bridge.archive.mapping_observer import CAME_ROUND, FILTERED
from bridge.archive.schema import Outcome
from bridge.config.mapping import MappingConfig, ToMqttMapping
from bridge.mq.dead_letter import DeadLetters
from bridge.mq.message_consumer import OPENED_ELSEWHERE
from bridge.mq.message_producer import MessageProducer
from bridge.mq.mqi import Connection, Got, MQError
from bridge.mq.worker import LOST, Worker, WorkerEvents
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.status import Tally
from bridge.telemetry.message import Destination, MappedMessage, Message, Publication, Received, Unmappable
from bridge.wire import cmqc

# The broker client is imported only if there is a link.
if TYPE_CHECKING:
    from bridge.link.connection import LinkConnection

log = logging.getLogger(__name__)

#: Seconds before a rejected message is tried again: first and longest pause.
FIRST_RETRY, LONGEST_RETRY = 0.1, 5.0

#: Permanent reasons for rejecting a message: it is dead-lettered at once and delays no other message.
PERMANENT = frozenset(
    (
        cmqc.MQRC_MSG_TOO_BIG_FOR_Q,
        cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR,
        cmqc.MQRC_OBJECT_NAME_ERROR,
        cmqc.MQRC_OBJECT_STRING_ERROR,
        cmqc.MQRC_PROPERTY_NAME_ERROR,
        cmqc.MQRC_TOPIC_STRING_ERROR,
        cmqc.MQRC_UNKNOWN_OBJECT_NAME,
        cmqc.MQRC_UNKNOWN_OBJECT_Q_MGR,
        cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR,
    )
)
#: Temporary reasons that concern the destination, not the message. The message is retried in order for as long as they last.
PASSING = frozenset(
    (
        cmqc.MQRC_PUT_INHIBITED,
        cmqc.MQRC_PUBSUB_INHIBITED,
        cmqc.MQRC_Q_FULL,
        cmqc.MQRC_Q_SPACE_NOT_AVAILABLE,
        cmqc.MQRC_RESOURCE_PROBLEM,
        cmqc.MQRC_STORAGE_NOT_AVAILABLE,
    )
)

#: Temporary reasons that concern only one queue.
BLOCKING = frozenset((cmqc.MQRC_PUT_INHIBITED, cmqc.MQRC_Q_FULL, cmqc.MQRC_Q_SPACE_NOT_AVAILABLE))

#: Reason for dead-lettering a message from a queue that the filter does not match.
NOT_TAKEN = "the mapping's filter does not take it (others: discard would drop it)"

Item = TypeVar("Item", bound=Got | Received)


class MessageRefused(Exception):
    """A destination rejected a message, so the unit of work must be backed out.

    `before` is the number of messages that destinations accepted in this unit of work.
    """

    def __init__(self, key: bytes, before: int, error: MQError, destination: Destination) -> None:
        super().__init__(str(error))
        self.key = key
        self.before = before
        self.reason = error.reason
        self.destination = destination


class Runner(Worker[Never], WorkerEvents):
    """The common part of all mapping threads: connection, status and waiting."""

    @property
    def link(self) -> LinkConnection | None:
        """The connection to the broker of the mapping's link, or None without a link."""
        return None

    def __init__(self, name: str, config: MappingConfig, environment: MappingEnvironment, status: Status) -> None:
        super().__init__(f"mapping {name}", lambda: environment.connect(f"mapping {name}"), events=self)
        self.mapping = name
        self._config = config
        self._environment = environment
        self.status = status
        #: durations of units of work, from taking the first message to the commit
        self.seconds = Histogram()
        #: dead-letter messages that the filter does not match
        self._only_taker = (
            isinstance(config, ToMqttMapping) and config.source.queue is not None and config.filter.others == "dead-letter"
        )
        #: name of the queue manager's side in MQDLH
        self._source = ""
        #: the source queue, or blank if the source is a topic or a link
        self._queue = ""
        #: loops cut
        self._cuts = 0
        self._observer = environment.observer(name)
        self._traces = None if environment.traces is None else environment.traces(name)

    def leave_source(self) -> int:
        """Remove the mapping's subscription at the queue manager, if any, and return how many messages were deleted with it.

        Must not be called while the thread runs.
        """
        return 0

    def leave_session(self) -> None:
        """End the mapping's session at a broker, if any. Must not be called while the thread runs."""

    def opened(self, connection: Connection) -> None:
        if self._traces is not None:
            self._traces.forget()
        self._dead_letters = DeadLetters(
            connection, self._environment.dead_letter_queue, self.mapping, self._source, taken_from=self._queue
        )

    def lost(self) -> None:
        self.status.wrong("the connection to the queue manager is lost", State.WAITING_FOR_QUEUE_MANAGER)

    def failed(self, error: MQError) -> None:
        """Back out and try again later after an error of the dead-letter queue or the source.

        Errors of destinations are handled elsewhere.
        """
        self.back_out()
        self.status.wrong(str(error), State.STUCK)
        log.error("MQB5001E mapping %s is stuck, retrying in %g s: %s", self.mapping, LONGEST_RETRY, error)
        self.pause(LONGEST_RETRY)

    def back_out(self) -> None:
        """Back out the unit of work. Raises MQError if the connection is lost."""
        assert self.connection is not None
        self.connection.backout()
        if self._traces is not None:
            self._traces.forget()
        self.status.backouts += 1

    def is_temporary(self, error: BaseException) -> bool:
        """Return whether to try again: after every error of the queue manager, because an administrator may fix its cause."""
        if not isinstance(error, MQError):
            return False
        away = error.reason in LOST or error.reason in OPENED_ELSEWHERE or error.reason == cmqc.MQRC_UOW_IN_PROGRESS
        self.status.wrong(str(error), State.WAITING_FOR_QUEUE_MANAGER if away else State.STUCK)
        return True

    def note(
        self, tally: Tally, item: Got | Received, outcome: Outcome, reason: str | None = None, to: str | None = None
    ) -> None:
        """Record the outcome of a message for the mapping's observer, effective after the commit."""
        tally.fates.append((item, outcome, reason, to))

    def tell(self, tally: Tally) -> None:
        """Report the recorded outcomes to the mapping's observer after the commit."""
        self.seconds.observe((now_us() - tally.began) / 1e6)
        fates, tally.fates = tally.fates, []
        try:
            self._observer.settled(fates, tally.began, self._queue)
        except Exception:
            log.exception("MQB5002E mapping %s: observer failed; messages are not affected", self.mapping)
        if self._traces is not None:
            self._traces.settled(fates, tally.began)

    def traced(self, item: Got | Received, publication: Publication) -> Publication:
        """Return a message's publication, with a trace context if it is traced."""
        return publication if self._traces is None else self._traces.traced(item, publication)

    def leave(self, item: Got | Received) -> None:
        """Leave a mapped message at the source for later."""
        if self._traces is not None:
            self._traces.forget_item(item)

    def cut(
        self, item: Got | Received, destination: str, through: str, hops: Sequence[str], tally: Tally
    ) -> None:
        """Discard a message that has returned in a loop."""
        self.note(tally, item, Outcome.DISCARDED, CAME_ROUND, destination)
        tally.cut += 1
        self._cuts += 1
        if self._cuts == 1 or self._cuts % 1_000 == 0:
            log.warning(
                "MQB5003W mapping %s: discarded a message for %s that came through mapping %s, which would get it again "
                "(loop, %d so far); its marks: %s",
                self.mapping,
                destination,
                through,
                self._cuts,
                ", ".join(hops),
            )

    def pause(self, seconds: float) -> None:
        """Wait for a number of seconds, or until the mapping is stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._ending, seconds)

    def crashed(self, why: str) -> None:
        self.status.wrong(why, State.STUCK)
        log.critical("MQB5004S mapping %s ended because of an internal error; other mappings continue: %s", self.mapping, why)


class PuttingRunner(Runner, Generic[Item]):
    """A mapping that puts to MQ. It commits each unit of work before acknowledging anything."""

    def __init__(self, name: str, config: MappingConfig, environment: MappingEnvironment, status: Status) -> None:
        super().__init__(name, config, environment, status)
        #: message -> number of rejections by its destination
        self._refusals: dict[bytes, int] = {}
        #: while a message is being rejected: number of messages before it
        self._before = 0
        #: the retry of a message has been logged
        self._retry_logged = False

    @abstractmethod
    def key(self, item: Item) -> bytes:
        """Return a key that identifies a message when it is taken again."""

    @abstractmethod
    def map(self, item: Item) -> MappedMessage | None:
        """Return the message to put, or None if the mapping does not match it. Raises Unmappable."""

    @abstractmethod
    def original(self, item: Item) -> Message:
        """Return the complete message for the dead-letter queue."""

    @abstractmethod
    def unit(self, connection: Connection, messages: int) -> None:
        """Run one unit of work of at most `messages` messages, up to its commit. Raises MessageRefused."""

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        self._producer = MessageProducer(connection)

    def serve(self, connection: Connection) -> None:
        # Process the messages before a rejected one first. Then it gets its own unit of work, so that the others are not
        # backed out with it.
        messages = max(self._before, 1) if self._refusals else self._config.batch.messages
        try:
            self.unit(connection, messages)
        except MessageRefused as refusal:
            self.back_out()
            if self.goes_on_past(refusal):
                return
            self._before = refusal.before
            count = self._refusals[refusal.key] = self._refusals.get(refusal.key, 0) + 1
            self.status.wrong(str(refusal), State.RETRYING)
            if messages > 1:
                return  # it may succeed in its own unit of work
            if count == 2:
                self._retry_logged = True
                log.warning("MQB5005W mapping %s: backed out a message, retrying: %s", self.mapping, refusal)
            self.pause(min(FIRST_RETRY * 4 ** min(count - 1, 10), LONGEST_RETRY))

    def goes_on_past(self, refusal: MessageRefused) -> bool:
        """Return whether messages for other destinations continue while those for this one wait."""
        return False

    def back_out(self) -> None:
        super().back_out()
        self._producer.backed_out()

    def move(self, item: Item, tally: Tally) -> None:
        """Map and put a message within the unit of work. Raises MessageRefused if the message must be retried."""
        mapped = self.mapped(item, tally)
        if mapped is not None:
            self.put(item, mapped, tally)
        tally.taken += 1

    def mapped(self, item: Item, tally: Tally) -> MappedMessage | None:
        """Return the message to put, or None if it was filtered, cut or dead-lettered within the unit of work."""
        try:
            mapped = self.map(item)
        except Unmappable as error:
            self._dead_letter(item, tally, error.reason, str(error), None)
            return None
        if mapped is None:
            self.pass_by(item, tally)
            return None
        return None if self._comes_round(item, mapped, tally) else mapped

    def put(self, item: Item, mapped: MappedMessage, tally: Tally, refusals: int | None = None) -> None:
        """Put or dead-letter a message within the unit of work. Raises MessageRefused if it must be retried.

        `refusals` is the number of previous rejections by its destination. None uses this object's count.
        """
        try:
            self._producer.put(mapped)
        except MQError as error:
            if error.reason in LOST or error.reason == cmqc.MQRC_BACKED_OUT:
                raise
            why = str(error)
            if refusals is None:
                refusals = self._refusals.get(self.key(item), 0)
            # The information kept about a request was put before it, so the unit of work must be backed out to remove it.
            if error.reason not in PERMANENT or mapped.kept is not None:
                # A unit of work with several messages is backed out once before the rejection of a message counts.
                if error.reason in PASSING or refusals <= self._config.backouts:
                    raise MessageRefused(self.key(item), tally.taken, error, mapped.destination) from error
                why = f"{error}, after {self._config.backouts} backouts"
            self._dead_letter(item, tally, error.reason, why, mapped.destination)
            return
        tally.moved += 1
        self.note(tally, item, Outcome.PUT, None, mapped.destination.name)

    def pass_by(self, item: Item, tally: Tally) -> None:
        """Skip a message that the mapping does not match. Messages from a queue have no other consumer."""
        if self._only_taker:
            self._dead_letter(item, tally, cmqc.MQRC_NO_SUBS_MATCHED, NOT_TAKEN, None)
        else:
            tally.filtered += 1
            self.note(tally, item, Outcome.DISCARDED, FILTERED)

    def _comes_round(self, item: Item, mapped: MappedMessage, tally: Tally) -> bool:
        destination = mapped.destination
        if destination.queue_manager not in ("", self._environment.queue_manager):
            return False  # a queue of the same name on another queue manager
        place = "local" if destination.is_topic else "queue"
        through = self._environment.guard.closes(mapped.hops, place, destination.name)
        if through is None:
            return False
        self.cut(item, destination.name, through, mapped.hops, tally)
        return True

    def _dead_letter(self, item: Item, tally: Tally, reason: int, why: str, destination: Destination | None) -> None:
        message = self.original(item)
        self._dead_letters.put(message.md, message.data, reason, why, destination)
        tally.dead_lettered += 1
        self.note(
            tally, item, Outcome.DEAD_LETTERED, f"{cmqc.reason_name(reason)} ({reason})",
            destination.name if destination is not None else None,
        )  # fmt: skip
        self.status.wrong(why)

    def settled(self, tally: Tally) -> None:
        """Update the state after the commit of a unit of work."""
        if self._before:
            self._before = 0
        else:
            self._refusals.clear()
            if self._retry_logged and tally.moved:
                self._retry_logged = False
                log.info("MQB5010I mapping %s: its destination accepts messages again", self.mapping)
        self.status.state = State.RUNNING
        tally.settle(self.status)
        self.tell(tally)
        self._producer.committed()
