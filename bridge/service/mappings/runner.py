"""The work of a mapping: takes messages, maps them and puts them, many per unit of work."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Never, TypeVar

import msgspec

from bridge.administration.mapping_status import BlockedQueue, MappingStatus, RunnerState
from bridge.clock import now_us
from bridge.config.mapping import MAX_PARTS, MappingConfig, ToMqMapping, ToMqttMapping
from bridge.histogram import Histogram
from bridge.mapping.rates import LeftOut, MessageRates
from bridge.mapping.rule import ToMqRule, ToMqttRule, rule_of
from bridge.mq.dead_letter import DeadLetterRefused, DeadLetters
from bridge.mq.dead_letter_room import owner_of_mapping, payload_length
from bridge.mq.message_consumer import OPENED_ELSEWHERE, ConsumerSource, MessageConsumer
from bridge.mq.message_producer import MessageProducer, descriptor_of, name_of
from bridge.mq.mqi import Connection, Got, MQError, inquire
from bridge.mq.worker import LOST, Worker, WorkerEvents, raise_if_lost
from bridge.security import audit_log
from bridge.service.events import CAME_ROUND, FILTERED, NO_DEAD_LETTER_ROOM
from bridge.service.mappings.environment import LOOK_AHEAD, MappingEnvironment, Tally
from bridge.telemetry.conversion import publication_of, received_message, with_publisher
from bridge.telemetry.message import Destination, MappedMessage, Message, Publication, Received, Unmappable
from bridge.telemetry.outcome import Outcome
from bridge.wire import cmqc

if TYPE_CHECKING:
    from bridge.link.connection import LinkConnection

# The broker client is imported only if there is a link.

log = logging.getLogger(__name__)

#: Seconds that a mapping waits for a message. On the embedded queue manager, its thread then ends until a message arrives.
#: On IBM MQ, each empty wait is twice as long as the one before. The longest one is the maximum delay of a stop.
WAIT, LONGEST_WAIT = 0.25, 5.0
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
#: Temporary reasons that concern the destination, not the message. The message is retried in order as long as they last.
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

Incoming = TypeVar("Incoming", bound=Got | Received)


class MessageRefused(Exception):
    """A destination rejected a message, so the unit of work must be backed out.

    `before` is the number of messages that destinations accepted in this unit of work. `final`: the message is not tried
    again, but dead-lettered.
    """

    def __init__(
        self, key: bytes, before: int, error: MQError, destination: Destination, why: str = "", *, final: bool = False
    ) -> None:
        super().__init__(why or str(error))
        self.key = key
        self.before = before
        self.reason = error.reason
        self.destination = destination
        self.final = final


#: Seconds between log lines about discarded messages of a mapping.
DISCARDS_LOGGED_EVERY = 60.0


class Discards:
    """Reports the messages that a mapping cannot process and discards: one log line and one audit record a minute."""

    def __init__(self, mapping: str) -> None:
        self._mapping = mapping
        self._numbers: dict[str, int] = {}
        self._logged_at = -DISCARDS_LOGGED_EVERY

    def note(self, reason: str, why: str) -> None:
        """Count a discarded message, by MQRC."""
        self._numbers[reason] = self._numbers.get(reason, 0) + 1
        now = time.monotonic()
        if now - self._logged_at < DISCARDS_LOGGED_EVERY:
            return
        self._logged_at = now
        numbers, self._numbers = self._numbers, {}
        summary = ", ".join(f"{number} with {reason}" for reason, number in numbers.items())
        log.error(
            "MQB5011E mapping %s: discarded messages that it cannot process, because too many of its messages are on the "
            "dead-letter queue: %s; the last one: %s",
            self._mapping,
            summary,
            why,
        )
        audit_log.note("messages discarded", mapping=self._mapping, numbers=numbers, why=why)


class Runner(Worker[Never], WorkerEvents):
    """The common part of all mapping threads: connection, status and waiting."""

    _rule: ToMqRule | ToMqttRule

    @property
    def link(self) -> LinkConnection | None:
        """The connection to the broker of the mapping's link, or None without a link."""
        return None

    def __init__(
        self, name: str, config: MappingConfig, environment: MappingEnvironment, status: MappingStatus
    ) -> None:
        super().__init__(f"mapping {name}", lambda: environment.connect(f"mapping {name}"), events=self)
        self.mapping = name
        self._config = config
        self._environment = environment
        self.status = status
        #: durations of units of work, from taking the first message to the commit
        self.seconds = Histogram()
        #: dead-letter messages that the filter does not match
        self._only_taker = (
            isinstance(config, ToMqttMapping)
            and config.source.queue is not None
            and config.filter.others == "dead-letter"
        )
        #: name of the queue manager's side in MQDLH
        self._source = ""
        #: the source queue, or blank if the source is a topic or a link
        self._queue = ""
        #: loops cut
        self._cuts = 0
        self._room = environment.dead_letter_room
        self._owner = owner_of_mapping(name)
        #: the lengths of the messages that are dead-lettered in this unit of work
        self._dead_letter_lengths: list[int] = []
        self._discards = Discards(name)
        #: seconds of the next wait for a message
        self._wait = WAIT
        #: the current or next pause ends at once
        self._pause_ended = False
        self._recorder = None if environment.recorder is None else environment.recorder(name)
        self._traces = None if environment.traces is None else environment.traces(name)

    def leave_source(self) -> int:
        """Remove the mapping's subscription at the queue manager, if any, and return how many messages were deleted with it.

        Must not be called while the thread runs.
        """
        return 0

    @property
    def session_key(self) -> str:
        """The key of the session at a broker that the mapping uses or tries to use, or ""."""
        return ""

    @property
    def rates(self) -> MessageRates | None:
        """Decides which messages to leave out, or None."""
        return self._rule.rates

    def keep_rates(self, former: Runner) -> None:
        """Take over the remembered keys of a former runner with the same options. Neither thread may be running."""
        if former.rates is not None:
            former.rates.back_out()
            self._rule.rates = former.rates

    def opened(self, connection: Connection) -> None:
        if self._traces is not None:
            self._traces.forget()
        self._dead_letters = DeadLetters(
            connection, self._environment.dead_letter_queue, self.mapping, self._source, taken_from=self._queue
        )

    def taken(self, consumer: MessageConsumer, messages: int) -> list[Got]:
        """Take messages for a unit of work. Without messages, the mapping is running and idle. Raises MQError."""
        batch = self._config.batch
        batch_messages = consumer.take(messages, batch.size, batch.time, self._wait)
        if not batch_messages and consumer.announce(self.wake):
            # A message may have arrived before the call.
            batch_messages = consumer.take(messages, batch.size, batch.time, 0.0)
            self.idle = not batch_messages
        elif not batch_messages:
            self._wait = min(2 * self._wait, LONGEST_WAIT)
            self._probed = time.monotonic()  # MQGET is a probe
        if batch_messages:
            self._wait = WAIT
        else:
            self.status.state = RunnerState.RUNNING
        return batch_messages

    def lost(self) -> None:
        self._return_room()
        self._room.stale = True  # the unit of work may have been committed
        if self.rates is not None:
            self.rates.back_out()
        self.status.wrong("the connection to the queue manager is lost", RunnerState.WAITING_FOR_QUEUE_MANAGER)

    def failed(self, error: MQError) -> None:
        """Back out and try again later after an error of the dead-letter queue or the source.

        Errors of destinations are handled elsewhere.
        """
        self.back_out()
        self.status.wrong(str(error), RunnerState.STUCK)
        log.error("MQB5001E mapping %s is stuck, retrying in %g s: %s", self.mapping, LONGEST_RETRY, error)
        self.pause(LONGEST_RETRY)

    def back_out(self) -> None:
        """Back out the unit of work. Raises MQError if the connection is lost."""
        assert self.connection is not None
        self._return_room()
        self.connection.backout()
        if self.rates is not None:
            self.rates.back_out()
        if self._traces is not None:
            self._traces.forget()
        self.status.backouts += 1

    def is_temporary(self, error: BaseException) -> bool:
        """Return whether to try again: after every error of the queue manager, because an administrator may fix its cause."""
        if not isinstance(error, MQError):
            return False
        away = error.reason in LOST or error.reason in OPENED_ELSEWHERE or error.reason == cmqc.MQRC_UOW_IN_PROGRESS
        self.status.wrong(str(error), RunnerState.WAITING_FOR_QUEUE_MANAGER if away else RunnerState.STUCK)
        return True

    def note(
        self, tally: Tally, incoming: Got | Received, outcome: Outcome, reason: str | None = None, to: str | None = None
    ) -> None:
        """Record the outcome of a message for the archive and traces, effective after the commit."""
        tally.fates.append((incoming, outcome, reason, to))

    def _return_room(self) -> None:
        """Release the space reserved for dead letters of a unit of work that ends without a commit."""
        lengths, self._dead_letter_lengths = self._dead_letter_lengths, []
        for length in lengths:
            self._room.give_back(self._owner, length)

    def report_fates(self, tally: Tally) -> None:
        """Report the noted outcomes to the archive and traces after the commit."""
        self._dead_letter_lengths.clear()
        if self.rates is not None and (evicted_count := self.rates.commit()):
            self._environment.on_limit("max_keys", self.mapping, evicted_count)
        self.seconds.observe((now_us() - tally.began) / 1e6)
        fates, tally.fates = tally.fates, []
        if self._recorder is not None:
            try:
                self._recorder.settled(fates, tally.began, self._queue)
            except Exception:
                log.exception("MQB5002E mapping %s: observer failed; messages are not affected", self.mapping)
        if self._traces is not None:
            self._traces.settled(fates, tally.began)

    def traced(self, incoming: Got | Received, publication: Publication) -> Publication:
        """Return a message's publication, with a trace context if it is traced."""
        return publication if self._traces is None else self._traces.traced(incoming, publication)

    def leave(self, incoming: Got | Received) -> None:
        """Leave the message that was mapped last at the source for later."""
        if self.rates is not None:
            self.rates.undo()
        if self._traces is not None:
            self._traces.forget_message(incoming)

    def cut(self, incoming: Got | Received, destination: str, through: str, hops: Sequence[str], tally: Tally) -> None:
        """Discard a message that has returned in a loop."""
        self.note(tally, incoming, Outcome.DISCARDED, CAME_ROUND, destination)
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

    def dead_letter(
        self,
        incoming: Got | Received,
        tally: Tally,
        reason: int,
        why: str,
        destination: Destination | None = None,
        to: str | None = None,
    ) -> None:
        """Dead-letter a message within the unit of work. `to` is its destination at a broker.

        Without room for it (`limits.dead_letter_bytes`), discard it, or raise DeadLetterRefused (`dead_letters_full`).
        """
        message = received_message(incoming.publication) if isinstance(incoming, Received) else incoming
        to = to if destination is None else destination.name
        length = payload_length(message.md.Format, message.md.Encoding, message.data, len(message.data))
        # A message that is set aside leaves the dead-letter queue.
        counts = not (self._queue and self._dead_letters.sets_aside)
        if counts and not self._room.take(self._owner, length):
            full = self._config.dead_letters_full or ("pause" if self._queue else "discard")
            if full == "pause":
                raise DeadLetterRefused(
                    cmqc.MQRC_Q_SPACE_NOT_AVAILABLE,
                    f"{why}; too many of its messages are on the dead-letter queue (limits.dead_letter_bytes,"
                    " dead_letter_total); hint: `mqbridge dlq list`, then retry or delete them",
                )
            name = cmqc.reason_name(reason)
            tally.discarded[name] = tally.discarded.get(name, 0) + 1
            self._discards.note(name, why)
            self.note(tally, incoming, Outcome.DISCARDED, NO_DEAD_LETTER_ROOM, to)
            self.status.wrong(f"discarded a message: {why}")
            return
        if counts:
            self._dead_letter_lengths.append(length)
        self._dead_letters.put(message.md, message.data, reason, why, destination)
        tally.dead_lettered += 1
        self.note(tally, incoming, Outcome.DEAD_LETTERED, _in_words(reason), to)
        self.status.wrong(why)

    def pass_by(self, incoming: Got | Received, tally: Tally) -> None:
        """Skip a message that the mapping does not match. Messages from a queue have no other consumer."""
        if self._only_taker:
            self.dead_letter(incoming, tally, cmqc.MQRC_NO_SUBS_MATCHED, NOT_TAKEN)
        else:
            tally.filtered += 1
            self.note(tally, incoming, Outcome.DISCARDED, FILTERED)

    def leave_out(self, incoming: Got | Received, tally: Tally, why: LeftOut) -> None:
        """Discard a message that the mapping matches, but maps to no message."""
        tally.left_out[why] = tally.left_out.get(why, 0) + 1
        self.note(tally, incoming, Outcome.DISCARDED, why.value)

    def pause(self, seconds: float) -> None:
        """Wait for a number of seconds, or until `end_pause` is called or the mapping is stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._ending or self._pause_ended, seconds)
            self._pause_ended = False

    def end_pause(self) -> None:
        """End the current pause or the next one. Callable on any thread."""
        with self._changed:
            self._pause_ended = True
            self._changed.notify_all()

    def crashed(self, why: str) -> None:
        self.status.wrong(why, RunnerState.STUCK)
        log.critical(
            "MQB5004S mapping %s ended because of an internal error; other mappings continue: %s", self.mapping, why
        )


class PuttingRunner(Runner, Generic[Incoming]):
    """A mapping that puts to MQ. It commits each unit of work before acknowledging anything."""

    def __init__(
        self, name: str, config: MappingConfig, environment: MappingEnvironment, status: MappingStatus
    ) -> None:
        super().__init__(name, config, environment, status)
        #: message -> number of rejections by its destination
        self._refusals: dict[bytes, int] = {}
        #: message -> the final rejection of a part of it, after other parts had been put
        self._given_up: dict[bytes, MessageRefused] = {}
        #: maximum number of messages created from one
        self._parts = 1 if config.split is None else config.split.max_parts
        #: while a message is being rejected: number of messages before it
        self._before = 0
        #: the retry of a message has been logged
        self._retry_logged = False

    @abstractmethod
    def key(self, incoming: Incoming) -> bytes:
        """Return a key that identifies a message when it is taken again."""

    @abstractmethod
    def map(self, incoming: Incoming) -> Sequence[MappedMessage] | LeftOut | None:
        """Return the messages to put, or None if the mapping does not match the message. Raises Unmappable."""

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
        messages = max(min(messages, MAX_PARTS // self._parts), 1)
        try:
            self.unit(connection, messages)
        except MessageRefused as refusal:
            self.back_out()
            if self.goes_on_past(refusal):
                return
            self._before = refusal.before
            count = self._refusals[refusal.key] = self._refusals.get(refusal.key, 0) + 1
            self.status.wrong(str(refusal), RunnerState.RETRYING)
            if refusal.final:
                self._given_up[refusal.key] = refusal
                return
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

    def move(self, incoming: Incoming, tally: Tally) -> None:
        """Map and put a message within the unit of work. Raises MessageRefused if the message must be retried."""
        # The messages before the rejected one may have the same identifier.
        if self._given_up and not self._before and (refusal := self._given_up.get(self.key(incoming))) is not None:
            self.dead_letter(incoming, tally, refusal.reason, str(refusal), refusal.destination)
        else:
            self.put(incoming, self.mapped(incoming, tally), tally)
        tally.taken += 1

    def mapped(self, incoming: Incoming, tally: Tally) -> Sequence[MappedMessage]:
        """Return the messages to put: none if the message was filtered, cut or dead-lettered within the unit of work."""
        try:
            messages = self.map(incoming)
        except Unmappable as error:
            self.dead_letter(incoming, tally, error.reason, str(error))
            return ()
        if messages is None:
            self.pass_by(incoming, tally)
            return ()
        if isinstance(messages, LeftOut):
            self.leave_out(incoming, tally, messages)
            return ()
        return [mapped for mapped in messages if not self._comes_round(incoming, mapped, tally)]

    def put(
        self, incoming: Incoming, messages: Sequence[MappedMessage], tally: Tally, refusals: int | None = None
    ) -> None:
        """Put all parts of a message, or dead-letter the message, within the unit of work.

        Raises MessageRefused if the unit of work must be backed out. `refusals` is the number of previous rejections by its
        destination. None uses this object's count.
        """
        for index, mapped in enumerate(messages):
            try:
                self._producer.put(mapped)
            except MQError as error:
                if error.reason in LOST or error.reason == cmqc.MQRC_BACKED_OUT:
                    raise
                why = str(error)
                key = self.key(incoming)
                if refusals is None:
                    refusals = self._refusals.get(key, 0)
                # Missing authority concerns only this publisher, so its messages must not delay those of others.
                permanent = error.reason in PERMANENT or (mapped.authority and error.reason == cmqc.MQRC_NOT_AUTHORIZED)
                if error.reason == cmqc.MQRC_Q_FULL and index and self._never_fits(mapped.destination, messages):
                    permanent, why = (
                        True,
                        f"{why}; the message has more parts for the queue than its MAXDEPTH",
                    )
                if not permanent:
                    # A unit of work with several messages is backed out once before the rejection of a message counts.
                    if error.reason in PASSING or refusals <= self._config.backouts:
                        raise MessageRefused(key, tally.taken, error, mapped.destination) from error
                    why = f"{error}, after {self._config.backouts} backouts"
                if index or mapped.kept is not None:
                    # Other parts of the message, or the stored information about the request, have been put in this unit of
                    # work.
                    raise MessageRefused(key, tally.taken, error, mapped.destination, why, final=True) from error
                if self.rates is not None:
                    self.rates.undo()
                self.dead_letter(incoming, tally, error.reason, why, mapped.destination)
                return
        if messages:
            tally.moved += 1
            if self._config.split is not None:
                tally.parts += len(messages)
                tally.most_parts = max(tally.most_parts, len(messages))
            for destination in dict.fromkeys(mapped.destination.name for mapped in messages):
                self.note(tally, incoming, Outcome.PUT, None, destination)

    def _never_fits(self, destination: Destination, messages: Sequence[MappedMessage]) -> bool:
        """Return whether a message has more parts for a queue than its MAXDEPTH.

        Return False without the authority to inquire MAXDEPTH.
        """
        assert self.connection is not None
        options = cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
        try:
            (maximum,), _ = inquire(self.connection, descriptor_of(destination), (cmqc.MQIA_MAX_Q_DEPTH,), options)
        except MQError as error:
            raise_if_lost(error)
            return False
        return sum(mapped.destination == destination for mapped in messages) > maximum

    def _comes_round(self, incoming: Incoming, mapped: MappedMessage, tally: Tally) -> bool:
        destination = mapped.destination
        if destination.queue_manager not in ("", self._environment.queue_manager):
            return False  # a queue of the same name on another queue manager
        place = "local" if destination.is_topic else "queue"
        through = self._environment.guard.closes(mapped.hops, place, destination.name)
        if through is None:
            return False
        self.cut(incoming, destination.name, through, mapped.hops, tally)
        return True

    def settled(self, tally: Tally) -> None:
        """Update the state after the commit of a unit of work."""
        if self._before:
            self._before = max(self._before - tally.taken, 0)
        else:
            self._refusals.clear()
            self._given_up.clear()
            if self._retry_logged and tally.moved:
                self._retry_logged = False
                log.info("MQB5010I mapping %s: its destination accepts messages again", self.mapping)
        self._parts = max(tally.most_parts, 1)
        self.status.state = RunnerState.RUNNING
        tally.settle(self.status)
        self.report_fates(tally)
        self._producer.committed()


class _Blocked(msgspec.Struct):
    """A blocked queue."""

    destination: Destination
    reason: int
    #: seconds since the epoch
    since: float
    #: MsgTokens of the messages waiting for it, in order
    tokens: deque[bytes]
    #: number of rejections of the first of them
    refusals: int = 0
    #: time.monotonic() of the next attempt
    retry_at: float = 0.0


class BlockedQueues:
    """The blocked queues of one mapping. Only MsgTokens are kept here. The messages stay on their source."""

    def __init__(self, mapping: str, first_retry: float, longest_retry: float) -> None:
        """Set the first and longest pause between attempts, in seconds."""
        self._mapping = mapping
        self._first_retry, self._longest_retry = first_retry, longest_retry
        self._queues: dict[Destination, _Blocked] = {}
        #: number of waiting messages
        self.waiting = 0
        self._full_logged = False

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def full(self) -> bool:
        """Whether the look-ahead limit (LOOK_AHEAD waiting messages) is reached. Logged once."""
        if self.waiting < LOOK_AHEAD:
            return False
        if not self._full_logged:
            self._full_logged = True
            log.warning(
                "MQB5009W mapping %s: %d messages wait for blocked queues, the maximum; all later messages wait, too",
                self._mapping,
                self.waiting,
            )
        return True

    def block(self, destination: Destination, reason: int) -> None:
        """Record that a queue rejected a message, and schedule its next attempt with back-off."""
        queue = self._queues.get(destination)
        if queue is None:
            queue = self._queues[destination] = _Blocked(destination, reason, time.time(), deque())
            log.warning(
                "MQB5007W mapping %s: %s accepts no messages: %s; messages for other destinations continue",
                self._mapping,
                name_of(destination),
                _in_words(reason),
            )
        queue.reason = reason
        pause = min(self._first_retry * 4 ** min(queue.refusals, 10), self._longest_retry)
        queue.refusals += 1
        queue.retry_at = time.monotonic() + pause

    def wait_for(self, destination: Destination, token: bytes) -> bool:
        """Add a message to the waiting ones if its queue is blocked and return whether it is."""
        queue = self._queues.get(destination)
        if queue is None:
            return False
        queue.tokens.append(token)
        self.waiting += 1
        return True

    def due(self) -> Iterator[Destination]:
        """Yield the queues due for another attempt to put their first waiting message."""
        now = time.monotonic()
        for queue in [queue for queue in self._queues.values() if queue.tokens and queue.retry_at <= now]:
            yield queue.destination

    def unblock_unused(self) -> None:
        """Remove the due queues without waiting messages, because the whole source was browsed.

        Before that, it is not known whether messages wait: the source was opened again after the rejection.
        """
        now = time.monotonic()
        for queue in [queue for queue in self._queues.values() if not queue.tokens and queue.retry_at <= now]:
            self.unblock(queue.destination, accepts=False)

    @property
    def next_retry(self) -> float:
        """Seconds until the next attempt."""
        queues = [queue for queue in self._queues.values() if queue.tokens] or self._queues.values()
        return max(0.0, min(queue.retry_at for queue in queues) - time.monotonic())

    def first(self, destination: Destination) -> tuple[bytes, int] | None:
        """Return the MsgToken of a queue's first waiting message and the number of its rejections."""
        queue = self._queues[destination]
        return (queue.tokens[0], queue.refusals) if queue.tokens else None

    def moved(self, destination: Destination) -> None:
        """Remove the first waiting message of a queue."""
        queue = self._queues[destination]
        queue.tokens.popleft()
        queue.refusals = 0
        self.waiting -= 1

    def unblock(self, destination: Destination, *, accepts: bool) -> None:
        """Remove a queue for which no messages wait. `accepts`: it has accepted one."""
        del self._queues[destination]
        self._full_logged = self._full_logged and bool(self._queues)
        if accepts:
            log.info("MQB5008I mapping %s: %s accepts messages again", self._mapping, name_of(destination))

    def forget_messages(self) -> None:
        """Forget the waiting messages: the source is browsed again from the front."""
        for queue in self._queues.values():
            queue.tokens.clear()
        self.waiting = 0

    def listed(self) -> list[BlockedQueue]:
        """Return the blocked queues for display."""
        return [
            BlockedQueue(
                queue=queue.destination.name,
                queue_manager=queue.destination.queue_manager,
                reason=_in_words(queue.reason),
                waiting=len(queue.tokens),
                since=queue.since,
            )
            for queue in self._queues.values()
        ]


def _in_words(reason: int) -> str:
    return f"{cmqc.reason_name(reason)} ({reason})"


#: Seconds between updates of the blocked queues in the status.
SHOWN_EVERY = 0.5


class TransferRunner(PuttingRunner[Got]):
    """Runs a mapping whose MQTT side consists of the bridge's own clients."""

    def __init__(
        self, name: str, config: ToMqMapping | ToMqttMapping, environment: MappingEnvironment, status: MappingStatus
    ) -> None:
        super().__init__(name, config, environment, status)
        self._rule = rule_of(name, config, environment.origin)
        self._consumer_source = consumer_source(name, self._rule, environment.owner)
        self._queue = self._consumer_source.queue
        self._source = self._queue or self._consumer_source.topic_filter
        #: its messages are copies of publications that do not have the user of the publisher in the MQMD
        self._names_publisher = (
            environment.names_publishers and config.destination.authority == "publisher" and not self._queue
        )
        self._blocked = BlockedQueues(name, FIRST_RETRY, LONGEST_RETRY)
        #: time of the last status update, from time.monotonic()
        self._shown_at = -SHOWN_EVERY

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        self._open_source(connection)

    def _open_source(self, connection: Connection) -> None:
        self._consumer = MessageConsumer(connection, self._consumer_source)
        # MsgTokens and marks belong to the previous handle.
        self._blocked.forget_messages()

    def key(self, incoming: Got) -> bytes:
        return incoming.md.MsgId

    def map(self, incoming: Got) -> Sequence[MappedMessage] | LeftOut | None:
        message = Message(incoming.md, incoming.data)
        if self._names_publisher:
            message = with_publisher(message)
        rule = self._rule
        if isinstance(rule, ToMqRule):
            return rule.messages(self.traced(incoming, publication_of(message)))
        publications = rule.publications(message, request=self._consumer.request_of(incoming.md))
        if publications is None or isinstance(publications, LeftOut):
            return publications
        return [rule.message(self.traced(incoming, publication)) for publication in publications]

    def unit(self, connection: Connection, messages: int) -> None:
        if self._blocked:
            self._unit_past_blocked(connection, messages)
            return
        batch = self.taken(self._consumer, messages)
        if not batch:
            return
        tally = Tally()
        for incoming in batch:
            self.move(incoming, tally)
        connection.commit()
        self._consumer.ended()
        self.settled(tally)

    def back_out(self) -> None:
        super().back_out()
        self._consumer.ended()
        if self._consumer.has_browsed:
            # Messages of the unit of work may be marked as browsed although they do not wait for a queue.
            assert self.connection is not None
            self._consumer.close()
            self._open_source(self.connection)

    # Past blocked queues ----------------------------------------------------------------------------------------------

    def goes_on_past(self, refusal: MessageRefused) -> bool:
        passes = isinstance(self._config, ToMqMapping) and self._config.passes_blocked_queues
        if not passes or refusal.reason not in BLOCKING or not self._consumer.may_browse:
            return False
        self._block(refusal)
        return True

    def _block(self, refusal: MessageRefused) -> None:
        self._blocked.block(refusal.destination, refusal.reason)
        self.status.wrong(str(refusal), RunnerState.RETRYING)

    def _unit_past_blocked(self, connection: Connection, messages: int) -> None:
        """Run a unit of work while queues are blocked: move the messages for other destinations.

        Each message is browsed, put, and then got, so a rejected put needs no backout. Every rejection here blocks its queue,
        which preserves the order of its messages. Raises MessageRefused for errors that concern all queues.
        """
        tally = Tally()
        for destination in self._blocked.due():
            self._retry(destination, tally, max(messages // 2, 1))
        if not self._blocked:
            self._commit(connection, tally)
            return
        blocked, batch, length = self._blocked, self._config.batch, 0
        until = time.monotonic() + batch.time
        for browsed in range(messages):
            if blocked.full:
                if not tally.taken:
                    self.pause(min(blocked.next_retry, WAIT))
                break
            message = self._consumer.browse(0.0 if browsed or tally.taken else min(blocked.next_retry, WAIT))
            if message is None:
                blocked.unblock_unused()
                if self._consumer.depth > blocked.waiting:
                    self._consumer.browse_from_front()
                break
            if not browsed:
                until = time.monotonic() + batch.time
            length += len(message.data)
            self._pass_on(message, tally)
            if length >= batch.size or time.monotonic() >= until:
                break
        self._commit(connection, tally)

    def _pass_on(self, message: Got, tally: Tally) -> None:
        """Put the last browsed message and get it, or leave it waiting for its queue."""
        messages = self.mapped(message, tally)
        if messages:
            (mapped,) = messages
            waits = self._blocked.wait_for(mapped.destination, message.MsgToken)
            if not waits and not self._put_browsed(message, messages, tally, 0):
                waits = self._blocked.wait_for(mapped.destination, message.MsgToken)
            if waits:
                self.leave(message)
                return
        self._take_browsed(tally)

    def _retry(self, destination: Destination, tally: Tally, messages: int) -> None:
        """Move messages waiting for a blocked queue, in order, until the queue rejects one again."""
        accepts = False
        while (first := self._blocked.first(destination)) is not None:
            if tally.taken >= messages:
                return
            token, refusals = first
            message = self._consumer.browse_again(token)
            if message is not None:
                parts = self.mapped(message, tally)
                if not self._put_browsed(message, parts, tally, refusals):
                    self.leave(message)
                    return
                accepts = accepts or bool(parts)
                self._take_browsed(tally)
            self._blocked.moved(destination)
        self._blocked.unblock(destination, accepts=accepts)

    def _put_browsed(self, message: Got, messages: Sequence[MappedMessage], tally: Tally, refusals: int) -> bool:
        """Put a message and return False if its queue rejected it and is now blocked."""
        try:
            self.put(message, messages, tally, refusals)
        except MessageRefused as refusal:
            if refusal.reason in PASSING - BLOCKING:
                raise
            self._block(refusal)
            return False
        return True

    def _take_browsed(self, tally: Tally) -> None:
        self._consumer.take_browsed()
        tally.taken += 1

    def _commit(self, connection: Connection, tally: Tally) -> None:
        if tally.taken:
            connection.commit()
            self.settled(tally)
        if not self._blocked:
            self.status.blocked, self.status.backlog = [], 0
            self.status.state = RunnerState.RUNNING
            return
        self.status.state = RunnerState.RETRYING
        now = time.monotonic()
        if now >= self._shown_at + SHOWN_EVERY:
            self._shown_at = now
            self.status.blocked = self._blocked.listed()
            self.status.backlog = self._consumer.depth

    def leave_source(self) -> int:
        return self._environment.remove_subscription(self.mapping)


def consumer_source(name: str, rule: ToMqRule | ToMqttRule, owner: str) -> ConsumerSource:
    """Return the source on the queue manager from which a mapping takes messages."""
    if isinstance(rule, ToMqttRule) and rule.queue is not None:
        return ConsumerSource(mapping=name, queue=rule.queue, requests_queue=rule.requests_queue or "")
    return ConsumerSource(mapping=name, owner=owner, topic_filter=rule.source_filter or "")
