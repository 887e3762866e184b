"""SYSTEM.MQTT.PERSISTENT.STATE: persistent state in messages, put in the units of work to which it belongs.

There are three kinds of messages, distinguished by CorrelId. A *record* is the state of a session
(`bridge.telemetry.record`), and is replaced by the next record. A *receipt* is put in each unit of work. If the connection
breaks during a commit, the receipt shows after the reconnect whether the commit succeeded, so that nothing is put twice.
Each unit of work of a worker gets the previous receipt. So a bridge that gets all receipts of another bridge prevents it from
committing again. The *owner* message identifies the active bridge by the prefix of its MsgIds, and the previous one until its
receipts have been claimed.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import msgspec

from bridge.config.queue_manager import STATE_QUEUE, BridgeQueues
from bridge.mq.backend import unreadable
from bridge.mq.ibm.coordination import BackendEvents
from bridge.mq.mqi import Connection, MQError, put_statistics
from bridge.mq.state import StateQueue
from bridge.mq.worker import Fenced, Job, Stopped, Worker
from bridge.telemetry.record import (
    OWNER_MARK,
    RECEIPT_MARK,
    RECORD_MARK,
    StateKey,
    StateRecord,
    UnknownRecord,
    decode,
    encode,
)
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: The maximum time in seconds until a queue manager has detected a lost connection and backed out its unit of work. The
#: default heartbeat interval (HBINT) of a server-connection channel is 300 s.
DOUBT_TIMEOUT = 600.0

#: Interval between attempts to get the receipts of the previous bridge, in seconds.
CLAIM_INTERVAL = 0.1


class Owner(msgspec.Struct, array_like=True):
    """The body of the owner message: the active bridge, and its host and process."""

    #: the prefix of its MsgIds
    prefix: bytes
    #: number of workers that write to the queue, each with a receipt
    workers: int
    host: str
    process: int
    #: number of shards, or 1 if the clients are not divided
    shards: int = 1
    #: the previous bridge, which may still commit, while this one does not have its receipts and so has no units of work
    predecessor: Owner | None = None


class Identifiers:
    """Generates MsgIds that are unique across processes."""

    def __init__(self) -> None:
        self.prefix = b"MQBR" + os.urandom(12)
        self._numbers = itertools.count(1)

    def next(self) -> bytes:
        """Return a new MsgId, 24 bytes."""
        return self.prefix + next(self._numbers).to_bytes(8, "big")


class PersistentState:
    """The state queue on one connection. Puts and gets are under syncpoint unless stated otherwise."""

    def __init__(self, connection: Connection, identifiers: Identifiers, queue: str = STATE_QUEUE) -> None:
        self._connection = connection
        self._identifiers = identifiers
        self._name = queue
        self._queue = StateQueue(connection, queue)

    def save(self, record: StateRecord, sequence: int, options: int = cmqc.MQPMO_NONE) -> bytes:
        """Put a record and return its MsgId."""
        msg_id = self._identifiers.next()
        self._queue.put(RECORD_MARK, encode(record, sequence), msg_id=msg_id, options=options)
        return msg_id

    def put_receipt(self, msg_id: bytes, options: int = cmqc.MQPMO_NONE) -> None:
        """Put a receipt."""
        self._queue.put(RECEIPT_MARK, b"", msg_id=msg_id, options=options)

    def remove(self, msg_id: bytes) -> bool:
        """Get a message by MsgId. Return whether it existed."""
        return self._queue.remove(msg_id=msg_id) is not None

    def spend(self, receipt: bytes) -> None:
        """Get the receipt of the previous unit of work. Raises Fenced if another bridge has got it.

        A receipt that an administrator has removed is ignored.
        """
        if not self.remove(receipt):
            self.check_owner()

    def check_owner(self) -> None:
        """Raise Fenced if another bridge is the owner."""
        _check(self.owner(), self._identifiers)

    def owner(self) -> Owner | None:
        """Return the active bridge, or None without an owner message."""
        return _owner_on(self._queue)

    def own(self, workers: int, shards: int) -> list[bytes]:
        """Become the owner, put a receipt for each worker's first unit of work, and commit. Return the receipts.

        The owner message keeps the previous owner until `claim`.
        """
        former, prefix = self.owner(), self._identifiers.prefix
        if former is not None and (former.prefix == prefix or former.predecessor is not None):
            # An attempt, of this or another bridge, that ended during its takeover.
            for receipt in self._receipts_of(former):
                self.remove(receipt)
            former = former.predecessor
        receipts = [self._identifiers.next() for _ in range(workers)]
        for receipt in receipts:
            self.put_receipt(receipt)
        self._commit_owner(Owner(prefix, workers, socket.gethostname(), os.getpid(), shards, former))
        return receipts

    def _commit_owner(self, owner: Owner) -> None:
        """Put an owner message, commit the unit of work, and then remove older owner messages.

        There is an owner message at any time, even if the connection is lost.
        """
        older = [message.md.MsgId for message in self._queue.browse(OWNER_MARK, with_body=False)]
        self._queue.put(OWNER_MARK, msgspec.msgpack.encode(owner), msg_id=self._identifiers.next())
        self._connection.commit()
        for msg_id in older:
            self.remove(msg_id)
        self._connection.commit()

    def _receipts_of(self, owner: Owner) -> list[bytes]:
        """Return the MsgIds of a bridge's receipts that are not in a unit of work in progress."""
        msg_ids = [message.md.MsgId for message in self._queue.browse(RECEIPT_MARK, with_body=False)]
        return [msg_id for msg_id in msg_ids if msg_id.startswith(owner.prefix)]

    def disown(self) -> None:
        """Remove the owner and all receipts of a state queue that was empty before `own`, and commit."""
        for mark in (OWNER_MARK, RECEIPT_MARK):
            while self._queue.remove(mark) is not None:
                pass
        self._connection.commit()

    def claim(self, is_given_up: Callable[[], bool]) -> None:
        """Get the receipts of the previous bridge and commit, so that it can no longer commit. Call it after `own`.

        Wait for missing receipts, which are in units of work in progress. Raises Stopped if `is_given_up` returns True.
        """
        owner = self.owner()
        if owner is None or (former := owner.predecessor) is None:
            return
        until = time.monotonic() + DOUBT_TIMEOUT
        is_reported = False
        while (count := sum([self.remove(msg_id) for msg_id in self._receipts_of(former)])) < former.workers:
            if time.monotonic() >= until:
                log.warning("MQB4105W %s: receipts of the previous bridge are missing", self._name)
                break
            self._connection.backout()
            if not is_reported:
                is_reported = True
                log.warning(
                    "MQB4106W waiting for units of work of the previous bridge (host %s, process %d): found %d of %d "
                    "receipts",
                    former.host,
                    former.process,
                    count,
                    former.workers,
                )
            if is_given_up():
                raise Stopped
            time.sleep(CLAIM_INTERVAL)
        self._commit_owner(msgspec.structs.replace(owner, predecessor=None))

    def was_committed(self, receipt: bytes, before: bytes, lost_at: float) -> bool:
        """Return whether the unit of work that puts `receipt` and gets `before` was committed.

        Its connection was lost at `lost_at` (time.monotonic()). While the unit of work is in progress, neither message is
        visible. Then this method raises MQError, and the caller retries later. After `DOUBT_TIMEOUT`, the unit must have
        ended. If neither message exists then, it was backed out, and another program removed `before`.
        """
        if self._queue.holds(receipt):
            return True
        if self._queue.holds(before):
            return False
        if self._queue.holds(receipt):
            return True  # committed between the two calls
        self.check_owner()
        if time.monotonic() - lost_at >= DOUBT_TIMEOUT:
            log.warning(
                "MQB4107W messages of the bridge are missing on %s: repeating a unit of work in doubt", self._name
            )
            return False
        raise MQError(cmqc.MQRC_UOW_IN_PROGRESS, "the unit of work of the lost connection has not ended yet")

    def read(self) -> tuple[dict[StateKey, tuple[bytes, StateRecord]], list[bytes]]:
        """Return all records with their MsgIds, by session and side, and the MsgIds of obsolete messages.

        Raises MQError for a message that is not from a bridge, or from a newer version.
        """
        records: dict[StateKey, tuple[bytes, StateRecord]] = {}
        needless: list[bytes] = []
        for message in self._queue.browse():
            if message.md.CorrelId == RECEIPT_MARK:
                if not message.md.MsgId.startswith(self._identifiers.prefix):
                    needless.append(message.md.MsgId)
            elif message.md.CorrelId == RECORD_MARK:
                self._read(message.md.MsgId, message.data, records, needless)
            elif message.md.CorrelId != OWNER_MARK:
                raise unreadable(message.md.MsgId, "its CorrelId is not from a bridge", self._name)
        return records, needless

    def _read(
        self, msg_id: bytes, body: bytes, records: dict[StateKey, tuple[bytes, StateRecord]], needless: list[bytes]
    ) -> None:
        try:
            record = decode(body)
        except UnknownRecord as error:
            raise unreadable(msg_id, str(error), self._name) from error
        other = records.get(record.key)
        if other is not None and other[1].sequence > record.sequence:
            needless.append(msg_id)
            return
        if other is not None:
            needless.append(other[0])
        records[record.key] = (msg_id, record)


def owner_of(connection: Connection, state_queue: str) -> Owner | None:
    """Return the last active bridge of a shard, or None without an owner message. Raises MQError."""
    queue = StateQueue(connection, state_queue, cmqc.MQOO_BROWSE | cmqc.MQOO_FAIL_IF_QUIESCING)
    try:
        return _owner_on(queue)
    finally:
        queue.close()


def check_owner(connection: Connection, identifiers: Identifiers, queue: str) -> None:
    """Raise Fenced if another bridge is the owner. Raises MQError if the state queue cannot be browsed."""
    _check(owner_of(connection, queue), identifiers)


def _check(owner: Owner | None, identifiers: Identifiers) -> None:
    if owner is not None and owner.prefix != identifiers.prefix:
        raise Fenced(f"the bridge on host {owner.host}, process {owner.process}, has taken over")


def _owner_on(queue: StateQueue) -> Owner | None:
    messages = list(queue.browse(OWNER_MARK))
    if not messages:
        return None
    try:
        # A bridge may have ended before it removed the older ones.
        return msgspec.msgpack.decode(messages[-1].data, type=Owner)
    except msgspec.DecodeError:
        log.warning("MQB4104W %s: the owner message cannot be read", queue.name)
    return None


class UnitInProgress(msgspec.Struct, eq=False):
    """An MQ unit of work in progress: its jobs and its changes on the state queue."""

    jobs: list[Any] = []
    #: whether the unit contains only one job, because a unit of work with several jobs failed
    alone: bool = False
    #: whether puts wait for their reply, because an asynchronous put failed
    answered: bool = False
    #: the MsgIds of the new records, or None for removed records
    changes: dict[StateKey, bytes | None] = {}
    receipt: bytes = b""
    #: number of publications
    size: int = 0
    #: topics whose retained publications are cleared after the commit
    cleared: list[str] = []


class RefusedPuts(MQError):
    """Some asynchronous puts have failed. MQSTAT does not report which ones."""


class StateWriter(Worker[Job]):
    """A worker whose units of work write records and a receipt, which shows their outcome after a lost connection."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        *,
        identifiers: Identifiers,
        events: BackendEvents,
        dead_letter_queue: str,
        queues: BridgeQueues,
        asynchronous: bool = False,
    ) -> None:
        """With `asynchronous`, put with MQPMO_ASYNC_RESPONSE, so all puts of a unit of work need one round trip."""
        super().__init__(name, connect, events=events)
        self._events = events
        self._identifiers = identifiers
        self._dead_letter_queue = dead_letter_queue
        self._queues = queues
        self._asynchronous = asynchronous
        #: the MsgIds of this worker's current records, and how often each record was written, including earlier runs
        self.current: dict[StateKey, bytes] = {}
        self.sequences: dict[StateKey, int] = {}
        self._batch: UnitInProgress | None = None
        self._doubtful: UnitInProgress | None = None
        #: time.monotonic() when the connection was lost
        self._lost = 0.0
        #: number of jobs at the front of the queue that get separate units of work
        self._separate = 0
        #: number of jobs at the front of the queue whose puts wait for their reply
        self._answered_jobs = 0
        #: receipt of the last committed unit of work, which the next unit gets
        self._old_receipt = b""

    @abstractmethod
    def backed_out(self, error: MQError) -> None:
        """Log that a unit of work was backed out."""

    def take_receipt(self, receipt: bytes) -> None:
        """Set the receipt for the first unit of work to get. Call it before `start`."""
        self._old_receipt = receipt

    def opened(self, connection: Connection) -> None:
        """Open the state queue. Determine whether a unit of work in doubt was committed. Raises MQError or Fenced."""
        self.state = PersistentState(connection, self._identifiers, self._queues.state)
        doubtful = self._doubtful
        if doubtful is None:
            return
        committed = self.state.was_committed(doubtful.receipt, self._old_receipt, self._lost)
        log.info(
            "MQB4201I %s: the unit of work in doubt was %s", self.name, "committed" if committed else "not committed"
        )
        if committed:
            self.committed(doubtful)
        else:
            self.give_back(doubtful.jobs)
        self._doubtful = None

    def lost(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None and batch.receipt:
            self._doubtful, self._lost = batch, time.monotonic()
        elif batch is not None:
            self.give_back(batch.jobs)

    def failed(self, error: MQError) -> None:
        """Retry a failed batch with synchronous puts, then job by job, or report the failure."""
        batch = self._batch
        if batch is None:
            log.error("MQB4202E %s: %s", self.name, error)
            return
        assert self.connection is not None
        # If backing out fails, the connection is lost, and this batch is in doubt like any other.
        self.connection.backout()
        self._batch = None
        if isinstance(error, RefusedPuts):
            self._answered_jobs = len(batch.jobs)
            self.give_back(batch.jobs)
            return
        if not batch.alone:
            self._separate = len(batch.jobs)
            self.give_back(batch.jobs)
            return
        self.backed_out(error)
        self._events.ended(batch.jobs, error.reason)

    def begin(self) -> UnitInProgress:
        """Begin a batch."""
        self._batch = UnitInProgress(alone=self._separate > 0, answered=self._separate + self._answered_jobs > 0)
        self._separate = max(self._separate - 1, 0)
        return self._batch

    def take_job(self, batch: UnitInProgress) -> Job | None:
        """Add the next job to a batch. Return None if the batch is complete."""
        if batch.jobs and (batch.alone or (batch.answered and not self._answered_jobs)):
            return None
        job = self.next_job()
        if job is not None:
            batch.jobs.append(job)
            self._answered_jobs = max(self._answered_jobs - 1, 0)
        return job

    def spend_receipt(self, batch: UnitInProgress) -> None:
        """Get the previous receipt. Afterwards, the batch is in doubt if the connection breaks.

        A batch that gets messages must call this first. Until the queue manager detects a lost connection, messages in its
        unit of work are invisible. A repeated MQGET would not find them, and they would seem to have been removed.
        """
        batch.receipt = self._identifiers.next()
        self.state.spend(self._old_receipt)

    def finish(
        self, connection: Connection, batch: UnitInProgress, states: dict[StateKey, StateRecord | None], options: int
    ) -> None:
        """Replace records, and commit a batch. `options` are additional MQPMO options."""
        for key, record in states.items():
            if (old := self.current.get(key)) is not None:
                self.state.remove(old)
            if record is None:
                batch.changes[key] = None
                continue
            sequence = self.sequences[key] = self.sequences.get(key, 0) + 1
            batch.changes[key] = self.state.save(record, sequence, options)
        if not batch.receipt:
            self.spend_receipt(batch)
        self.state.put_receipt(batch.receipt, options)
        if options:
            # If a put failed, the batch is repeated with synchronous puts, to find the rejected messages. MQSTAT returns
            # after all puts of the connection, and before the commit, so none of them takes effect.
            status = put_statistics(connection)
            if status.PutFailureCount:
                raise RefusedPuts(status.Reason, f"{status.PutFailureCount} messages of a unit of work")
        self.commit_units(connection, len(batch.jobs))
        self.committed(batch)
        self._batch = None

    def committed(self, batch: UnitInProgress) -> None:
        """Report a committed batch. If the connection breaks before that, the receipt shows the outcome."""
        for key, msg_id in batch.changes.items():
            if msg_id is None:
                self.current.pop(key, None)
            else:
                self.current[key] = msg_id
        self._old_receipt = batch.receipt
        self._events.ended(batch.jobs, cmqc.MQRC_NONE)
