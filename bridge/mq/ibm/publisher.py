"""The thread that puts publications. Each unit of work contains all queued publications."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bridge.config.queue_manager import BatchConfig
from bridge.mq.backend import UnitOfWork
from bridge.mq.dead_letter import OriginContext, dead_letter
from bridge.mq.ibm.coordination import BrowsePasses, SubscriptionBarrier
from bridge.mq.ibm.persistent_state import StateWriter, UnitInProgress
from bridge.mq.ibm.topics import Suspects, TopicHandles, topic_descriptor
from bridge.mq.mqi import MQOD, Connection, MQError
from bridge.mq.worker import LOST, Stopped, raise_if_lost
from bridge.mqtt.topics import topic_string_error
from bridge.security.privileged import NOBODY
from bridge.telemetry.message import Message
from bridge.telemetry.record import StateKey, StateRecord
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc

log = logging.getLogger(__name__)


class Part(msgspec.Struct, eq=False):
    """The publications and records of one unit of work of the service."""

    unit: UnitOfWork
    #: the unit's records of received publications
    states: dict[StateKey, StateRecord | None]
    #: called when the job has ended (`BackendEvents.ended`), with MQRC_NONE or the reason code if nothing took effect
    done: Callable[[int], None]
    #: the reason code if none of the publications is put, otherwise MQRC_NONE
    refusal: int = 0
    refusals: dict[int, int] = {}
    diverted: dict[int, int] = {}
    #: whether publications may be dead-lettered, by index. They count once even if the unit of work is repeated
    reserved: dict[int, bool] = {}


class Publisher(StateWriter[Part]):
    """Puts the publications of its share of the clients, in order."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        *,
        limits: BatchConfig,
        barrier: SubscriptionBarrier,
        passes: BrowsePasses,
        **keywords: Any,
    ) -> None:
        super().__init__(name, connect, **keywords)
        self._assurance = barrier
        self._passes = passes
        #: number of the loss of a connection after which the publisher must wait for the subscriptions
        self._loss = 0
        self._limits = limits
        self._topics = TopicHandles()
        self._suspects = Suspects()
        #: whether to write the users of clients into their publications, for mappings with `as: publisher`
        self.names_users = False
        #: histogram of committed batches: number of publications -> number of batches
        self.batch_sizes: dict[int, int] = {}

    def summary(self) -> str:
        """Return a description of the sizes of units of work."""
        sizes = sorted(size for size, times in self.batch_sizes.items() for _ in range(times) if size)
        if not sizes:
            return "no publications"
        median = sizes[len(sizes) // 2]
        return f"{sum(sizes)} publications in {len(sizes)} units of work, median {median}, largest {sizes[-1]}"

    def opened(self, connection: Connection) -> None:
        self._topics = TopicHandles()
        self._present = connection
        super().opened(connection)
        if not self._assurance.wait(self._loss, lambda: self._ending):
            raise Stopped

    def lost(self) -> None:
        self._loss = self._assurance.lost()
        super().lost()

    def backed_out(self, error: MQError) -> None:
        log.error("MQB4203E %s: a unit of work was backed out: %s", self.name, error)

    def serve(self, connection: Connection) -> None:
        if not self.wait_for_jobs(1.0):
            return
        limits, batch = self._limits, self.begin()
        options = cmqc.MQPMO_ASYNC_RESPONSE if self._asynchronous and not batch.answered else 0
        until = time.monotonic() + limits.time
        length = 0
        states: dict[StateKey, StateRecord | None] = {}
        while (part := self.take_job(batch)) is not None:
            part.refusals.clear()
            part.diverted.clear()
            for index, (message, retain) in enumerate(part.unit.publications):
                clear = retain and not message.payload
                reason = part.unit.forbidden.get(index, part.refusal)
                if not reason:
                    reason = self._put(connection, message, options, retain=retain and not clear)
                if reason and part.unit.dead_letters_publication(index, reason) and self._may_dead_letter(part, index):
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
            if batch.cleared or batch.alone or batch.size >= limits.messages or length >= limits.size:
                break
            if time.monotonic() >= until:
                break
        self.finish(connection, batch, states, options)

    def _may_dead_letter(self, part: Part, index: int) -> bool:
        if index not in part.reserved:
            message, _ = part.unit.publications[index]
            part.reserved[index] = self._events.may_dead_letter(message.client_id, message.size)
        return part.reserved[index]

    def commit_units(self, connection: Connection, units: int) -> None:
        with self._passes.commit(lambda: self._ending):
            super().commit_units(connection, units)

    def committed(self, batch: UnitInProgress) -> None:
        while batch.cleared:
            self._clear(batch.cleared[0])
            batch.cleared.pop(0)
        self.batch_sizes[batch.size] = self.batch_sizes.get(batch.size, 0) + 1
        super().committed(batch)

    def _clear(self, topic: str) -> None:
        """Clear the retained publication of a topic.

        An empty retained message removes the previous one (MQTT-3.3.1-10, -11). MQ needs a command for that.
        """
        try:
            self._present.clear_retained(topic)
        except MQError as error:
            raise_if_lost(error)
            log.error("MQB4204E clearing the retained publication of topic %r failed: %s", topic, error)

    def _put(self, connection: Connection, message: PublicationMessage, options: int, *, retain: bool) -> int:
        """Put a publication. Return the reason code if the queue manager rejects it, or MQRC_NONE."""
        if message.reply_to is None and topic_string_error(message.topic) is not None:
            return cmqc.MQRC_TOPIC_STRING_ERROR
        # MQMD.UserIdentifier must contain the client's user (integration table 1). An alternate user alone does not set it.
        options |= cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NEW_MSG_ID | cmqc.MQPMO_FAIL_IF_QUIESCING
        options |= cmqc.MQPMO_SET_IDENTITY_CONTEXT
        if retain:
            options |= cmqc.MQPMO_RETAIN
        client_id, topic = message.client_id, message.topic
        user = message.md.UserIdentifier.decode("utf-8", "replace")
        put_message = Message(message.md, message.put_data_of(user or NOBODY)) if self.names_users else message
        if self._suspects.includes(client_id, topic, user):
            options &= ~cmqc.MQPMO_ASYNC_RESPONSE
        try:
            if message.reply_to is not None:
                self._answer(connection, message, message.reply_to, user, options)
            elif (handle := self._topics.handle(connection, topic, user)) is not None:
                connection.put(handle, put_message, options)
            else:
                if user:
                    options |= cmqc.MQPMO_ALTERNATE_USER_AUTHORITY
                connection.put1(topic_descriptor(topic, user), put_message, options)
            if not options & cmqc.MQPMO_ASYNC_RESPONSE:
                self._suspects.accepted(client_id, topic, user)
        except MQError as error:
            if error.reason in LOST or error.reason == cmqc.MQRC_BACKED_OUT:
                raise
            self._suspects.refused(client_id, topic, user)
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
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, "it is not the Response Topic of a request to this client")
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


class DividedUnit(msgspec.Struct, eq=False):
    """A unit of work that is divided between publishers and removers."""

    unit: UnitOfWork
    #: number of parts in progress
    awaited: int = 0
    failure: int = 0
    #: the part with the publications
    part: Part | None = None
    #: the clients whose session records the unit contains, then the client that gets PUBREL. The unit ends after earlier
    #: units of work with these clients
    client_ids: tuple[str, ...] = ()
    #: MsgIds that the record of the session contains until they are removed, if the unit has only one session
    removing: Sequence[bytes] = ()


class UnitsInProgress:
    """The units of work in progress. It is false if there are none."""

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
        """Call a function when the current units with publications have ended, or immediately if there are none."""
        self._when_ended({unit for unit in self._open if unit.unit.publications}, call)

    def _when_ended(self, units: set[DividedUnit], call: Callable[[], None]) -> None:
        if units:
            self._waiting.append((units, call))
        else:
            call()
