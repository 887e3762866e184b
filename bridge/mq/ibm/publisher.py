"""The thread that puts publications. Each unit of work contains all queued publications."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from bridge.mq.administration import Administration
from bridge.mq.backend import UnitOfWork
from bridge.mq.dead_letter import OriginContext, dead_letter
from bridge.mq.ibm.coordination import BackendEvents, BrowsePasses, SubscriptionBarrier
from bridge.mq.ibm.persistent_state import Identifiers, PersistentState
from bridge.mq.mqi import MQOD, Connection, MQError
from bridge.mq.worker import LOST, Stopped, Worker
from bridge.mqtt.topics import topic_string_error
from bridge.telemetry.record import StateKey, StateRecord
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: The maximum number of open topic handles. MAXHANDS, 256 by default, must suffice for other handles too.
TOPIC_HANDLES = 200


class BatchLimits(msgspec.Struct, kw_only=True, frozen=True):
    """Limits of one unit of work: publications, bytes of payload, and seconds of putting."""

    messages: int = 500
    bytes: int = 1_048_576
    seconds: float = 0.05


class Part(msgspec.Struct, eq=False):
    """The publications and records of one unit of work of the service."""

    unit: UnitOfWork
    #: those of the unit that are of what was received
    states: dict[StateKey, StateRecord | None]
    #: called on the publisher's thread with MQRC_NONE, or the reason for which nothing took effect
    done: Callable[[int], None]
    #: the reason for which none of the publications is put, or MQRC_NONE
    refusal: int = 0
    refusals: dict[int, int] = {}
    diverted: dict[int, int] = {}


class Records:
    """The MsgIds of the current session records that one thread writes."""

    def __init__(self) -> None:
        self.current: dict[StateKey, bytes] = {}
        #: number of writes of each record, across restarts
        self.sequences: dict[StateKey, int] = {}

    def write(
        self, state: PersistentState, states: dict[StateKey, StateRecord | None], options: int
    ) -> dict[StateKey, bytes | None]:
        """Replace records under syncpoint. Return the argument for `accept` after the commit."""
        changes: dict[StateKey, bytes | None] = {}
        for key, record in states.items():
            old = self.current.get(key)
            if old is not None:
                state.remove(old)
            if record is None:
                changes[key] = None
                continue
            sequence = self.sequences[key] = self.sequences.get(key, 0) + 1
            changes[key] = state.save(record, sequence, options)
        return changes

    def accept(self, changes: dict[StateKey, bytes | None]) -> None:
        """Record that these changes were committed."""
        for key, msg_id in changes.items():
            if msg_id is None:
                self.current.pop(key, None)
            else:
                self.current[key] = msg_id


def check_unanswered(connection: Connection) -> None:
    """Check the asynchronous puts of a unit of work with MQSTAT, and raise MQError if one failed.

    The caller then repeats the unit of work with synchronous puts, to find the rejected messages.
    """
    status = connection.statistics(cmqc.MQSTAT_TYPE_ASYNC_ERROR)
    if status.PutFailureCount:
        raise MQError(status.Reason, f"{status.PutFailureCount} messages of a unit of work")


class Batch(msgspec.Struct, eq=False):
    """A unit of work in progress."""

    parts: list[Part] = []
    changes: dict[StateKey, bytes | None] = {}
    receipt: bytes = b""
    #: number of publications
    size: int = 0
    #: topics whose retained publications are cleared after the commit
    cleared: list[str] = []


class Publisher(Worker[Part]):
    """Puts the publications of its share of the clients, in order."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        identifiers: Identifiers,
        *,
        events: BackendEvents,
        limits: BatchLimits,
        asynchronous: bool,
        barrier: SubscriptionBarrier,
        passes: BrowsePasses,
        dead_letter_queue: str,
    ) -> None:
        super().__init__(name, connect, events=events)
        self._assurance = barrier
        self._passes = passes
        self._dead_letter_queue = dead_letter_queue
        #: number of the loss of a connection after which it must wait for the subscriptions
        self._loss = 0
        self._identifiers = identifiers
        self._limits = limits
        #: use MQPMO_ASYNC_RESPONSE, so that a unit of work needs only one round trip
        self._asynchronous = asynchronous
        self._careful = False
        self.records = Records()
        self._topics: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._batch: Batch | None = None
        self._doubtful: Batch | None = None
        #: time.monotonic() when the connection was lost
        self._lost = 0.0
        #: receipt of the last committed unit of work, which the next one gets
        self._old_receipt = b""
        #: histogram of committed batches: number of publications -> number of batches
        self.batch_sizes: dict[int, int] = {}

    def summary(self) -> str:
        """Return a description of the sizes of units of work."""
        sizes = sorted(size for size, times in self.batch_sizes.items() for _ in range(times) if size)
        if not sizes:
            return "no publications"
        return (
            f"{sum(sizes)} publications in {len(sizes)} units of work, "
            f"median {sizes[len(sizes) // 2]}, largest {sizes[-1]}"
        )

    def opened(self, connection: Connection) -> None:
        self._topics.clear()
        self._state = PersistentState(connection, self._identifiers)
        self._present = connection
        self._administration: Administration | None = None
        doubtful, self._doubtful = self._doubtful, None
        if doubtful is not None:
            self._settle(doubtful)
        if not self._assurance.wait(self._loss, lambda: self._ending):
            raise Stopped

    def _settle(self, doubtful: Batch) -> None:
        """Determine whether the unit of work in doubt was committed. Raises MQError or Fenced."""
        try:
            committed = self._state.was_committed(doubtful.receipt, self._old_receipt, self._lost)
            log.info(
                "MQB4201I %s: the unit of work in doubt was %s",
                self.name,
                "committed" if committed else "not committed",
            )
            if committed:
                self._committed(doubtful)
        except MQError:
            self._doubtful = doubtful
            raise
        if not committed:
            self.give_back(doubtful.parts)

    def take_receipt(self, receipt: bytes) -> None:
        """Set the receipt for the first unit of work to get. Call it before `start`."""
        self._old_receipt = receipt

    def lost(self) -> None:
        self._loss = self._assurance.lost()
        batch, self._batch = self._batch, None
        if batch is None:
            return
        if batch.receipt:
            self._doubtful, self._lost = batch, time.monotonic()
        else:
            self.give_back(batch.parts)

    def failed(self, error: MQError) -> None:
        """Retry a failed batch part by part, or report the failure to the clients."""
        batch = self._batch
        if batch is None:
            log.error("MQB4202E %s: %s", self.name, error)
            return
        # If backing out fails, the connection is lost, and this batch is in doubt like any other.
        self._present.backout()
        self._batch = None
        if not self._careful:
            self._careful = True
            self.give_back(batch.parts)
            return
        log.error("MQB4203E %s: a unit of work was backed out: %s", self.name, error)
        for part in batch.parts:
            part.done(error.reason)

    def serve(self, connection: Connection) -> None:
        if not self.wait_for_jobs(1.0):
            return
        limits, careful = self._limits, self._careful
        batch = self._batch = Batch(parts=[], changes={}, cleared=[])
        options = 0 if careful or not self._asynchronous else cmqc.MQPMO_ASYNC_RESPONSE
        until = time.monotonic() + limits.seconds
        length = 0
        states: dict[StateKey, StateRecord | None] = {}
        while (part := self.next_job()) is not None:
            batch.parts.append(part)
            part.refusals.clear()
            part.diverted.clear()
            for index, (message, retain) in enumerate(part.unit.publications):
                clear = retain and not message.payload
                reason = cmqc.MQRC_NOT_AUTHORIZED if index in part.unit.forbidden else part.refusal
                if not reason:
                    reason = self._put(connection, message, options, retain=retain and not clear)
                if reason in part.unit.dead_letters:
                    self._dead_letter(connection, message, reason, options, retain=retain)
                    part.diverted[index] = reason
                elif reason:
                    part.refusals[index] = reason
                elif clear:
                    batch.cleared.append(message.topic)
                length += len(message.payload)
                self.answered()
            batch.size += len(part.unit.publications)
            records = part.unit.records_without(part.refusals)
            states.update({key: records[key] for key in part.states})
            if batch.cleared or careful or batch.size >= limits.messages or length >= limits.bytes:
                break
            if time.monotonic() >= until:
                break
        batch.changes = self.records.write(self._state, states, options)
        self._state.spend(self._old_receipt)
        batch.receipt = self._state.receipt(options)
        if options:
            check_unanswered(connection)
        with self._passes.commit(lambda: self._ending):
            self.commit_units(connection, len(batch.parts))
        self._committed(batch)
        self._batch = None

    def _committed(self, batch: Batch) -> None:
        """Report a committed batch. If the connection breaks first, the batch is in doubt, and its receipt will be found."""
        while batch.cleared:
            self._clear(batch.cleared[0])
            batch.cleared.pop(0)
        self._careful = False
        self.records.accept(batch.changes)
        self._old_receipt = batch.receipt
        self.batch_sizes[batch.size] = self.batch_sizes.get(batch.size, 0) + 1
        for part in batch.parts:
            part.done(cmqc.MQRC_NONE)

    def _clear(self, topic: str) -> None:
        """Clear the retained publication of a topic.

        An empty retained message removes the previous one (MQTT-3.3.1-10, -11). MQ needs a command for that.
        """
        if self._administration is None:
            self._administration = Administration(self._present)
        try:
            self._administration.clear_retained(topic)
        except MQError as error:
            if error.reason in LOST:
                raise
            log.error("MQB4204E clearing the retained publication of topic %r failed: %s", topic, error)

    def _put(self, connection: Connection, message: PublicationMessage, options: int, *, retain: bool) -> int:
        """Put a publication. Return the reason code if the queue manager rejects it, or MQRC_NONE."""
        if message.reply_to is None and topic_string_error(message.topic) is not None:
            return cmqc.MQRC_TOPIC_STRING_ERROR
        # The client's identity goes into MQMD.UserIdentifier (integration table 1); an alternate user alone does not.
        options |= cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NEW_MSG_ID | cmqc.MQPMO_FAIL_IF_QUIESCING
        options |= cmqc.MQPMO_SET_IDENTITY_CONTEXT
        if retain:
            options |= cmqc.MQPMO_RETAIN
        user = message.md.UserIdentifier.decode("utf-8", "replace")
        try:
            if message.reply_to is not None:
                self._answer(connection, message, message.reply_to, user, options)
            else:
                connection.put(self._topic(connection, message.topic, user), message, options)
        except MQError as error:
            if error.reason in LOST or error.reason == cmqc.MQRC_BACKED_OUT:
                raise
            log.warning("MQB4205W rejected publication to topic %r as user %r: %s", message.topic, user, error)
            return error.reason
        return cmqc.MQRC_NONE

    @staticmethod
    def _answer(
        connection: Connection, message: PublicationMessage, reply_to: tuple[str, str], user: str, options: int
    ) -> None:
        """Put a client's reply to a request. Raises MQError."""
        queue, queue_manager = reply_to
        if not queue:
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, "it is the Response Topic of no request to this client")
        od = MQOD(ObjectName=queue, ObjectQMgrName=queue_manager)
        if user:
            options |= cmqc.MQPMO_ALTERNATE_USER_AUTHORITY
            od.AlternateUserId = user
        connection.put1(od, message, options & ~cmqc.MQPMO_RETAIN)

    def _dead_letter(
        self, connection: Connection, message: PublicationMessage, reason: int, options: int, *, retain: bool
    ) -> None:
        """Dead-letter a rejected publication, in its unit of work.

        Its mqps folder contains the complete topic string and the RETAIN flag, unless it is a reply for a queue.
        """
        name, manager = message.reply_to or ("", "")
        data = message.put_data if name else message.data_as(retained=retain)
        origin = OriginContext.now(message.client_id or "mqbridge")
        letter = dead_letter(message.md, data, reason, name or message.topic, manager, origin)
        connection.put1(
            MQOD(ObjectName=self._dead_letter_queue),
            letter,
            cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING | options & cmqc.MQPMO_ASYNC_RESPONSE,
        )
        log.warning(
            "MQB4206W publication of client %r to %r was dead-lettered to queue %s: %s (%d)",
            message.client_id,
            message.topic,
            self._dead_letter_queue,
            cmqc.reason_name(reason),
            reason,
        )

    def _topic(self, connection: Connection, topic: str, user: str) -> int:
        key = (topic, user)
        handle = self._topics.get(key)
        if handle is not None:
            self._topics.move_to_end(key)
            return handle
        while len(self._topics) >= TOPIC_HANDLES:
            _, oldest = self._topics.popitem(last=False)
            connection.close(oldest)
        options = cmqc.MQOO_OUTPUT | cmqc.MQOO_SET_IDENTITY_CONTEXT | cmqc.MQOO_FAIL_IF_QUIESCING
        od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
        if user:
            options |= cmqc.MQOO_ALTERNATE_USER_AUTHORITY
            od.AlternateUserId = user
        handle = self._topics[key] = connection.open(od, options)
        return handle


class DividedUnit(msgspec.Struct, eq=False):
    """A unit of work that is divided between publishers and removers."""

    unit: UnitOfWork
    #: number of parts in progress
    awaited: int = 0
    failure: int = 0
    #: the part with the publications
    part: Part | None = None


class UnitsUnderWay:
    """The units of work in progress; false if there are none."""

    def __init__(self) -> None:
        self._open: set[DividedUnit] = set()
        #: functions to call when a set of units has ended
        self._waiting: list[tuple[set[DividedUnit], Callable[[], None]]] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def begin(self, unit: DividedUnit) -> None:
        """Add a submitted unit."""
        self._open.add(unit)

    def end(self, unit: DividedUnit) -> None:
        """Remove a unit that has ended, and call the functions that wait for it."""
        self._open.remove(unit)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for units, call in waiting:
                units.discard(unit)
                self._when_ended(units, call)

    def when_published(self, call: Callable[[], None]) -> None:
        """Call a function when the current units with publications have ended, immediately if there are none."""
        self._when_ended({unit for unit in self._open if unit.unit.publications}, call)

    def _when_ended(self, units: set[DividedUnit], call: Callable[[], None]) -> None:
        if units:
            self._waiting.append((units, call))
        else:
            call()
