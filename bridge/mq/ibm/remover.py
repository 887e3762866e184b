"""The threads that remove messages from SYSTEM.MQTT.TRANSMIT.QUEUE: those that clients have acknowledged, and dead letters.

Each removal is an MQGET, and costs a round trip, so several removers share the clients. The first of them also makes this
bridge the active one: it has the lock queue open for exclusive input, and a second bridge stands by until that is free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from bridge.config.queue_manager import LOCK_QUEUE
from bridge.mq.dead_letter import OriginContext, dead_letter
from bridge.mq.ibm.persistent_state import Batch, PersistentState, StateWriter
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got, MQError, get_or_none
from bridge.mq.worker import LOST
from bridge.telemetry.record import StateKey, StateRecord
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

log = logging.getLogger(__name__)

#: Removals in one unit of work.
REMOVALS = 500
#: Interval between the attempts of a standby to become active, in seconds, and so the maximum delay of a takeover.
STANDBY_PAUSE = 1.0


class Removal(msgspec.Struct, eq=False):
    """Messages to remove, their records, and messages to dead-letter."""

    msg_ids: list[bytes]
    states: dict[StateKey, StateRecord | None]
    #: called on the remover's thread
    done: Callable[[int], None]
    #: (message on the queue, its original MQMD and data, destination queue and queue manager, reason code)
    dead_letters: list[tuple[Got, MQMD, bytes, str, str, int]] = []


class Remover(StateWriter[Removal]):
    """Removes messages of some of the clients by MsgId, many in one unit of work."""

    def __init__(self, name: str, connect: Callable[[], Connection], *, queue: str, **keywords: Any) -> None:
        super().__init__(name, connect, **keywords)
        self._queue = queue

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        if self._old_receipt:
            self.state.check_owner()
        self._handle = connection.open(
            MQOD(ObjectName=self._queue), cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_FAIL_IF_QUIESCING
        )

    def backed_out(self, error: MQError) -> None:
        log.error("MQB4207E %s: a unit of work was backed out: %s", self.name, error)

    def serve(self, connection: Connection) -> None:
        if not self.wait_for_jobs(1.0):
            return
        batch = self.begin()
        states: dict[StateKey, StateRecord | None] = {}
        count = 0
        # One message that cannot be removed must not keep the others from being removed.
        limit = 1 if batch.alone else REMOVALS
        while count < limit and (removal := self.next_job()) is not None:
            batch.jobs.append(removal)
            if not batch.receipt:
                self.spend_receipt(batch)
            for msg_id in removal.msg_ids:
                self._remove(connection, msg_id)
                self.answered()
            for letter in removal.dead_letters:
                self._dead_letter(connection, *letter)
                self.answered()
            states.update(removal.states)
            count += len(removal.msg_ids) + 1
        # MQSTAT is one round trip for all of these puts. A receipt alone costs no more with an answer.
        asynchronous = self._asynchronous and states and not batch.alone
        self.finish(connection, batch, states, cmqc.MQPMO_ASYNC_RESPONSE if asynchronous else 0)

    def committed(self, batch: Batch) -> None:
        for removal in batch.jobs:
            self._events.removed(removal.msg_ids)
        super().committed(batch)

    def _remove(self, connection: Connection, msg_id: bytes) -> bool:
        """Remove a message. Return False if it has expired, or was removed by someone else."""
        options = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG | cmqc.MQGMO_FAIL_IF_QUIESCING
        wanted = GetOptions(Options=options, MsgId=msg_id, MaxLength=0)
        return get_or_none(connection, self._handle, wanted) is not None

    def _dead_letter(
        self, connection: Connection, got: Got, md: MQMD, data: bytes, queue: str, manager: str, reason: int
    ) -> None:
        if not self._remove(connection, got.md.MsgId):
            return
        outer = msgspec.structs.replace(md, Version=cmqc.MQMD_VERSION_1)
        connection.put1(
            MQOD(ObjectName=self._dead_letter_queue),
            dead_letter(outer, data, reason, queue, manager, OriginContext.of(md)),
            cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING,
        )
        log.warning(
            "MQB4208W message for queue %s at %s was dead-lettered to queue %s: %s (%d)",
            queue,
            manager,
            self._dead_letter_queue,
            cmqc.reason_name(reason),
            reason,
        )


class FirstRemover(Remover):
    """The remover that makes this bridge the active one. Without its lock, it waits as a standby."""

    #: number of workers that write to the state queue, including this one
    workers = 1

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.max_pause = STANDBY_PAUSE
        #: The receipts for the first units of work of the other workers.
        self.receipts: list[bytes] = []
        self._active = False
        self._standing_by = False

    def is_temporary(self, error: BaseException) -> bool:
        """Return whether to retry. Report a standby while another bridge is active.

        Before the first success, permanent errors end the start.
        """
        if not isinstance(error, MQError):
            return False
        if error.reason == cmqc.MQRC_OBJECT_IN_USE and not self._standing_by:
            self._standing_by = True
            if self._active:
                log.warning("MQB4101W the queue manager still has %s open for the lost connection", LOCK_QUEUE)
            else:
                why = f"standing by: another bridge has {LOCK_QUEUE} or {self._queue} open for exclusive input"
                log.info("MQB4102I %s", why)
                self._events.standing_by(why)
        if self._active or error.reason == cmqc.MQRC_OBJECT_IN_USE or error.reason in LOST:
            return True
        self._events.refused(error)
        return False

    def is_told(self, error: MQError) -> bool:
        return error.reason == cmqc.MQRC_OBJECT_IN_USE  # that it stands by

    def opened(self, connection: Connection) -> None:
        state = PersistentState(connection, self._identifiers)
        if self._active:
            # Another bridge may have been active since this one lost its connection.
            state.check_owner()
        options = cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_FAIL_IF_QUIESCING
        connection.open(MQOD(ObjectName=LOCK_QUEUE), options)
        if not self._active:
            # A bridge of an earlier version, or IBM's telemetry service, reads the queue without the lock.
            connection.close(connection.open(MQOD(ObjectName=self._queue), options))
        super().opened(connection)
        if self._standing_by and not self._active:
            log.info("MQB4103I taking over: %s is free", LOCK_QUEUE)
        self._standing_by = False
        if not self._active:
            records = self._take_over(connection)
            self._active = True
            self._events.took_over(records)

    def _take_over(self, connection: Connection) -> dict[StateKey, tuple[bytes, StateRecord]]:
        """Become the owner, prevent the previous bridge from committing, read the records, and remove obsolete messages.

        In this order, a unit of work of the previous bridge is either included in the records, or never committed.
        """
        former = self.state.owner()
        self._old_receipt, *self.receipts = self.state.own(self.workers)
        if former is not None and former.prefix != self._identifiers.prefix:
            self.state.claim(former, lambda: self.ending)
        records, needless = self.state.read()
        for msg_id in needless:
            self.state.remove(msg_id)
        if needless:
            connection.commit()
        return records
