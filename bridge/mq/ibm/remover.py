"""The threads that remove acknowledged and dead-lettered messages from SYSTEM.MQTT.TRANSMIT.QUEUE.

Each removal is an MQGET, which costs a round trip, so several removers share the work (`RemovalDispatch`). The first remover
also makes this bridge the active one: it has the lock queue open for exclusive input. A second bridge stands by until the
lock queue is free.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from bridge.config.queue_manager import STATE_QUEUE
from bridge.mq.dead_letter import OriginContext, dead_letter
from bridge.mq.ibm.persistent_state import Owner, PersistentState, StateWriter, UnitInProgress, owner_of
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got, MQError, get_or_none, inquire
from bridge.mq.worker import LOST, Stopped, raise_if_lost
from bridge.telemetry.record import StateKey, StateRecord
from bridge.telemetry.removal_limit import LONG_LAG, SHORT_LAG
from bridge.telemetry.shard import UNDIVIDED, Shard
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

log = logging.getLogger(__name__)

#: Limits of one unit of work: removals, and seconds, because the removals take effect with the commit.
REMOVALS, MAX_TIME = 500, 0.25
#: Removals that one remover gets at a time while several are active.
CHUNK = 16
#: One more remover is active for each period of this length, in seconds, in the round-trip time. A shorter round trip takes
#: less time than the CPU time that another thread costs.
ROUND_TRIP_PER_REMOVER = 0.00015
#: Maximum number of additional removers while removals lag. On a busy queue manager, a single connection may not get enough
#: time to keep up with deliveries. Many connections would only share the same time.
MAX_EXTRA = 3
#: Number of recent units of work from which the shortest round trip is taken.
ROUND_TRIPS = 16
#: Added to the load of a remover without a connection.
_LOST = 1_000_000
#: Interval between the attempts of a standby to become active, in seconds, and so the maximum delay of a takeover.
STANDBY_PAUSE = 1.0


class Undeliverable(NamedTuple):
    """A message on the transmission queue that goes to the dead-letter queue."""

    #: the message on the transmission queue
    got: Got
    #: its MQMD and data without the MQXQH
    md: MQMD
    data: bytes
    #: its destination
    queue: str
    queue_manager: str
    reason: int


class Removal(msgspec.Struct, eq=False):
    """Messages to remove, their records, and messages to dead-letter."""

    msg_ids: Sequence[bytes]
    states: dict[StateKey, StateRecord | None]
    #: called when the job has ended (`BackendEvents.ended`), with the reason code
    done: Callable[[int], None]
    dead_letters: list[Undeliverable] = []
    #: set by `RemovalDispatch`
    remover: Any = None
    #: time.monotonic(), set by `RemovalDispatch`
    submitted: float = 0.0


class Remover(StateWriter[Removal]):
    """Removes messages by MsgId, many in one unit of work."""

    def __init__(self, name: str, connect: Callable[[], Connection], **keywords: Any) -> None:
        super().__init__(name, connect, **keywords)
        #: removals and other jobs that were submitted and have not ended. Used by `RemovalDispatch` only
        self.load = 0
        #: the shortest MQGET of recent units of work in seconds, or an MQOPEN. 0.0 before the first one
        self.round_trip = 0.0
        self._round_trips: deque[float] = deque(maxlen=ROUND_TRIPS)

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        if self._old_receipt:
            self.state.check_owner()
        before = time.monotonic()
        self._handle = connection.open(
            MQOD(ObjectName=self._queues.transmission), cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_FAIL_IF_QUIESCING
        )
        # Otherwise, the first removals, of a client that returns to a backlog, would all go to one remover.
        self._note_round_trip(time.monotonic() - before)

    def _note_round_trip(self, seconds: float) -> None:
        self._round_trips.append(seconds)
        self.round_trip = min(self._round_trips)

    def backed_out(self, error: MQError) -> None:
        log.error("MQB4207E %s: a unit of work was backed out: %s", self.name, error)

    def serve(self, connection: Connection) -> None:
        if not self.wait_for_jobs(1.0):
            return
        batch = self.begin()
        states: dict[StateKey, StateRecord | None] = {}
        count, shortest = 0, float("inf")
        until = time.monotonic() + MAX_TIME
        # One message that cannot be removed must not prevent the removal of the others. See `take_job`.
        while count < REMOVALS and self.busy_since < until and (removal := self.take_job(batch)) is not None:
            if not batch.receipt:
                self.spend_receipt(batch)
                self.answered()
            for msg_id in removal.msg_ids:
                before = self.busy_since
                self._remove(connection, msg_id)
                self.answered()
                shortest = min(shortest, self.busy_since - before)
            for letter in removal.dead_letters:
                self._dead_letter(connection, letter)
                self.answered()
            states.update(removal.states)
            count += len(removal.msg_ids) + 1
        # MQSTAT is one round trip for all of these puts. For a receipt alone, a synchronous put costs the same.
        asynchronous = self._asynchronous and states and not batch.answered
        self.finish(connection, batch, states, cmqc.MQPMO_ASYNC_RESPONSE if asynchronous else 0)
        if shortest < float("inf"):
            self._note_round_trip(shortest)

    def committed(self, batch: UnitInProgress) -> None:
        msg_ids = [msg_id for removal in batch.jobs for msg_id in removal.msg_ids]
        self._events.removed(msg_ids + [letter.got.md.MsgId for job in batch.jobs for letter in job.dead_letters])
        super().committed(batch)

    def _remove(self, connection: Connection, msg_id: bytes) -> bool:
        """Remove a message. Return False if it has expired or was already removed."""
        options = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG | cmqc.MQGMO_FAIL_IF_QUIESCING
        options_of_get = GetOptions(Options=options, MsgId=msg_id, MaxLength=0, NeedsMd=False)
        return get_or_none(connection, self._handle, options_of_get) is not None

    def _dead_letter(self, connection: Connection, letter: Undeliverable) -> None:
        if not self._remove(connection, letter.got.md.MsgId):
            return
        md, queue, manager, reason = letter.md, letter.queue, letter.queue_manager, letter.reason
        outer = msgspec.structs.replace(md, Version=cmqc.MQMD_VERSION_1)
        connection.put1(
            MQOD(ObjectName=self._dead_letter_queue),
            dead_letter(outer, letter.data, reason, queue, manager, OriginContext.of(md)),
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


class RemovalDispatch:
    """Distributes removals over the removers. Used on the event loop.

    Any remover may remove messages of any client. The number of active removers depends on the round trip and the lag of
    removals, because each active thread costs CPU time. Jobs that depend on the order of their client's jobs, or on its
    record, go to the same remover while jobs of that client are in progress.
    """

    def __init__(self, removers: Sequence[Remover]) -> None:
        self._removers = removers
        for remover in removers[1:]:
            # Only one remover at a time writes the records of a client.
            remover.current, remover.sequences = removers[0].current, removers[0].sequences
        #: number of active removers in addition to those for the round trip
        self._extra = 0
        #: client identifier -> its remover, and the number of its jobs in progress
        self._bound: dict[str, tuple[Remover, int]] = {}

    @property
    def active(self) -> int:
        """The number of removers that get work. The first remover is always active, and so measures the round trip."""
        by_round_trip = max(1, int(self._removers[0].round_trip / ROUND_TRIP_PER_REMOVER))
        return min(len(self._removers), by_round_trip + self._extra)

    def remove(self, msg_ids: Sequence[bytes], on_end: Callable[[int], None]) -> int:
        """Remove messages. Return the number of calls of `on_end`."""
        if self.active == 1:
            self._submit(self._removers[0], Removal(msg_ids, {}, on_end))
            return 1
        for start in range(0, len(msg_ids), CHUNK):
            self._submit(self._least_loaded(), Removal(msg_ids[start : start + CHUNK], {}, on_end))
        return -(-len(msg_ids) // CHUNK)

    def submit(self, client_id: str, removal: Removal) -> None:
        """Submit a job that must keep its order with other such jobs of the client."""
        remover, number = self._bound.get(client_id) or (self._least_loaded(), 0)
        self._bound[client_id] = remover, number + 1
        on_end = removal.done

        def ended(reason: int) -> None:
            remover, number = self._bound.pop(client_id)
            if number > 1:
                self._bound[client_id] = remover, number - 1
            on_end(reason)

        removal.done = ended
        self._submit(remover, removal)

    def _least_loaded(self) -> Remover:
        return min(self._removers[: self.active], key=_load)

    def _submit(self, remover: Remover, removal: Removal) -> None:
        removal.remover, removal.submitted = remover, time.monotonic()
        remover.load += len(removal.msg_ids) + 1
        remover.submit(removal)

    def ended(self, jobs: Iterable[Any]) -> float | None:
        """Note that jobs have ended. Return the lag of removals in seconds, or None if no job is a removal."""
        first: Removal | None = None
        for job in jobs:
            if isinstance(job, Removal) and job.remover is not None:
                job.remover.load -= len(job.msg_ids) + 1
                first = first or job
        if first is None:
            return None
        lag = time.monotonic() - first.submitted
        if lag > LONG_LAG:
            self._extra = min(self._extra + 1, MAX_EXTRA)
        elif lag < SHORT_LAG and self._extra:
            self._extra -= 1
        return lag


def _load(remover: Remover) -> int:
    return remover.load + (_LOST if remover.lost_since else 0)


class FirstRemover(Remover):
    """The remover that makes this bridge the active one. Without its lock, it waits as a standby."""

    #: number of workers that write to the state queue, including this one
    workers = 1

    def __init__(
        self,
        *arguments: Any,
        shard: Shard = UNDIVIDED,
        standby_delay: float = 0.0,
        first_delay: float = 0.0,
        **keywords: Any,
    ) -> None:
        """`standby_delay` is the number of seconds for which a free lock is left to other bridges.

        `first_delay` is a longer delay, which applies until another bridge has taken the lock.
        """
        super().__init__(*arguments, **keywords)
        self._shard = shard
        self._standby_delay = standby_delay
        self._delay = max(standby_delay, first_delay)
        #: time.monotonic() when the lock was found free, or None if it was in use
        self._free_since: float | None = None
        #: the statement that other bridges may open the lock first, or blank
        self._others = ""
        self.max_pause = STANDBY_PAUSE
        #: the receipts for the first units of work of the other workers
        self.receipts: list[bytes] = []
        self._active = False
        self._standing_by = False
        #: the last active bridge, for a log line
        self._holder = ""

    def is_temporary(self, error: BaseException) -> bool:
        """Return whether to retry. Report a standby while another bridge is active.

        Before the first success, permanent errors end the start.
        """
        if not isinstance(error, MQError):
            return False
        if error.reason == cmqc.MQRC_OBJECT_IN_USE and not self._standing_by:
            self._standing_by = True
            if self._active:
                log.warning("MQB4101W the queue manager still has %s open for the lost connection", self._queues.lock)
            else:
                why = f"standing by: {self._others or self._in_use}"
                log.info("MQB4102I %s", why)
                self._events.standing_by(why)
        if self._active or error.reason == cmqc.MQRC_OBJECT_IN_USE or error.reason in LOST:
            return True
        self._events.refused(error)
        return False

    def is_logged(self, error: MQError) -> bool:
        return error.reason == cmqc.MQRC_OBJECT_IN_USE  # that it stands by

    def opened(self, connection: Connection) -> None:
        self.answered()
        try:
            self._lock(connection)
        finally:
            self.busy_since = 0.0
        super().opened(connection)
        if self._standing_by and not self._active:
            log.info("MQB4103I taking over: %s is free", self._queues.lock)
        self._standing_by = False
        if not self._active:
            records = self._become_owner(connection)
            self._active = True
            self._events.took_over(records)

    @property
    def _in_use(self) -> str:
        """The reason why this bridge stands by."""
        queues = self._queues
        return f"another bridge{self._holder} has {queues.lock} or {queues.transmission} open for exclusive input"

    def _lock(self, connection: Connection) -> None:
        state = PersistentState(connection, self._identifiers, self._queues.state)
        if self._active:
            # Another bridge may have been active since this bridge lost its connection.
            state.check_owner()
        else:
            owner = state.owner()
            self._check_shards(owner, self._queues.state)
            self._holder = "" if owner is None else f", probably that on host {owner.host}, process {owner.process},"
            if self._delay:
                self._wait_for_others(connection)
        options = cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_FAIL_IF_QUIESCING
        connection.open(MQOD(ObjectName=self._queues.lock), options)
        if not self._active:
            # A bridge of an earlier version, or IBM's telemetry service, reads the queue without the lock.
            connection.close(connection.open(MQOD(ObjectName=self._queues.transmission), options))

    def _wait_for_others(self, connection: Connection) -> None:
        """Raise MQError with MQRC_OBJECT_IN_USE until the lock has been free for `standby_delay`."""
        options = cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
        od = MQOD(ObjectName=self._queues.lock)
        (inputs,), _ = inquire(connection, od, (cmqc.MQIA_OPEN_INPUT_COUNT,), options)
        now = time.monotonic()
        if inputs:
            self._free_since, self._delay, self._others = None, self._standby_delay, ""
            raise MQError(cmqc.MQRC_OBJECT_IN_USE)
        if self._free_since is None:
            self._free_since = now
        if now - self._free_since < self._delay:
            self._others = f"{self._queues.lock} is free, and other bridges may open it for {self._delay:g} s"
            raise MQError(cmqc.MQRC_OBJECT_IN_USE)

    def _become_owner(self, connection: Connection) -> dict[StateKey, tuple[bytes, StateRecord]]:
        """Become the owner, prevent the previous bridge from committing, read the records, and remove obsolete messages.

        In this order, a unit of work of the previous bridge is either included in the records, or never committed.
        """
        former = self.state.owner()
        self._check_shards(former, self._queues.state)
        if self._shard.of > 1:
            self._check_other_shard(connection)
        self._old_receipt, *self.receipts = self.state.own(self.workers, self._shard.of)
        if former is None and self._shard.of > 1:
            # Bridges of two new shards that start at the same moment see each other only afterwards.
            try:
                self._check_other_shard(connection)
            except Stopped:
                self.state.disown()
                raise
        self.state.claim(lambda: self.ending)
        records, needless = self.state.read()
        for msg_id in needless:
            self.state.remove(msg_id)
        if needless:
            connection.commit()
        return records

    def _check_other_shard(self, connection: Connection) -> None:
        """Compare the number of shards with that of shard 0, or for shard 0 with that of shard 1. Raises Stopped.

        The state queue of a new shard is empty, so it does not show that the other shards have another number.
        """
        state = f"{STATE_QUEUE}.{0 if self._shard.number else 1}"
        try:
            owner = owner_of(connection, state)
        except MQError as error:
            raise_if_lost(error)
            # The other shard may be new. Its problems must not prevent this shard from serving its clients.
            log.info("MQB4108I the number of shards is not compared with that on %s: %s", state, error)
            return
        self._check_shards(owner, state)

    def _check_shards(self, owner: Owner | None, state: str) -> None:
        """Refuse to start or stand by if the sessions belong to another number of shards. Raises Stopped.

        `state` is the state queue of `owner`.
        """
        if owner is None or owner.shards == self._shard.of:
            return
        problem = (
            f"queue_manager.shard.of is {self._shard.of}, and the sessions on {state} belong to {owner.shards} shards;"
            " hint: with the former number, end all sessions (`mqbridge client purge`), stop the bridge and run CLEAR"
            f" QLOCAL('{state}')"
        )
        self._events.refused(MQError(cmqc.MQRC_ENVIRONMENT_ERROR, problem))
        raise Stopped
