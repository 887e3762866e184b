"""The lease of a queue: one streaming read at a time takes its messages away, and leaves word how far it has come.

The lease is the queue opened for exclusive input, so that it ends with the connection, whatever becomes of the process. A
record on SYSTEM.MQTT.MAPPING.STATE says whose it is, and how many messages of a batch are off the queue: it is put in each
unit of work that removes some, so that a restart goes on there and searches for nothing.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.batch import OtherMessage, fingerprint_by, glance, take_each
from bridge.mq.mqi import MQOD, Connection, GetOptions, MQError
from bridge.mq.state import StateQueue
from bridge.spark.mq.browsing import look
from bridge.spark.mq.offset import Entry
from bridge.wire import cmqc

#: Seconds that a reader waits for another one to end: Spark does not wait for the processes of a query that it has ended.
LEASE_WAIT: Final = 15.0
_PAUSE: Final = 0.1
#: Messages that one unit of work removes at first: MAXUMSGS is 10000 by default; where it is less, the queue manager says so.
REMOVED_AT_ONCE: Final = 1_000

_OPEN: Final = cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_BROWSE | cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
_TAKE: Final = GetOptions(
    Options=cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_FAIL_IF_QUIESCING, MatchOptions=cmqc.MQMO_MATCH_MSG_ID
)


class LeaseRecord(msgspec.Struct, array_like=True, frozen=True):
    """Who reads a queue, and how far the removal of a batch is."""

    queue: str
    #: for a person: the process, and since when
    owner: str
    #: as offsets have it: of a checkpoint
    reader: str = ""
    #: number of the batch, and how many of its messages are off the queue
    batch: int = -1
    removed: int = 0


class Lease:
    """A queue that this connection alone may take messages from."""

    def __init__(self, connection: Connection, queue: str, selector: str = "", *, on_behalf: str = "") -> None:
        """Take the lease. Raises MQError: MQRC_OBJECT_IN_USE, with the words who has it, after LEASE_WAIT seconds.

        `on_behalf` says for a person who it is, beside the process, which is one that Spark has started.
        """
        self.queue = queue
        self._connection = connection
        self._state = StateQueue(connection, MAPPING_STATE_QUEUE)
        self._mark = b"SPKL" + hashlib.sha256(queue.encode()).digest()[:20]
        self.handle = self._opened(MQOD(ObjectName=queue, SelectionString=selector))
        now = datetime.now(UTC).isoformat(" ", "seconds")
        process = f"process {os.getpid()} on {socket.gethostname()}, since {now}"
        owner = f"{on_behalf}, {process}" if on_behalf else process
        self._record = replace(self._left() or LeaseRecord(queue, owner), owner=owner)
        self._leave(self._record)
        connection.commit()
        self._at_once = REMOVED_AT_ONCE

    def remove(self, reader: str, batch: int, entries: Sequence[Entry], *, planned_here: bool) -> None:
        """Take the messages of a committed batch off the queue, in units of work. Those that are gone are no error.

        What a process before this one has removed is known by the record. Without one, whoever has not planned the batch
        itself looks first which of its messages are there: those that are not would be searched for. Raises MQError.
        """
        record = self._record
        done = 0
        there: set[tuple[bytes, bytes]] | None = None
        if record.reader == reader and record.batch >= batch:
            done = record.removed if record.batch == batch else len(entries)
        elif record.reader != reader and not planned_here:
            there = {(one.msg_id, one.fingerprint) for one in look(self._connection, self.handle)}
            there |= {(msg_id, b"") for msg_id, _ in there}
        while done < len(entries):
            part = entries[done : done + self._at_once]
            left = [
                (one.msg_id, one.fingerprint)
                for one in part
                if there is None or (one.msg_id, one.fingerprint) in there
            ]
            next_record = replace(self._record, reader=reader, batch=batch, removed=done + len(part))
            try:
                self._take(left)
                self._leave(next_record)
            except MQError as error:
                if error.reason != cmqc.MQRC_SYNCPOINT_LIMIT_REACHED or self._at_once == 1:
                    raise
                self._connection.backout()
                self._at_once = -(-self._at_once // 2)
                continue
            self._connection.commit()
            self._record = next_record
            done += len(part)

    def _take(self, messages: list[tuple[bytes, bytes]]) -> None:
        """Take messages in a unit of work, each where it stands, also behind others of its MsgId."""
        waiting = messages
        try:
            while waiting:
                waiting = waiting[len(take_each(self._connection, self.handle, _TAKE, waiting)) :]
        except OtherMessage:
            self._connection.backout()
            for msg_id, fingerprint in messages:
                self._take_at_its_place(msg_id, fingerprint)

    def _take_at_its_place(self, msg_id: bytes, fingerprint: bytes) -> None:
        """Browse the messages of a MsgId until the one is found, and take that."""
        fingerprint_of = fingerprint_by(self._connection)
        how = cmqc.MQGMO_BROWSE_FIRST
        try:
            while True:
                options = how | cmqc.MQGMO_FAIL_IF_QUIESCING
                got = self._connection.get(self.handle, glance(replace(_TAKE, Options=options, MsgId=msg_id)))
                if not fingerprint or fingerprint_of(got) == fingerprint:
                    break
                how = cmqc.MQGMO_BROWSE_NEXT
            taking = _TAKE.Options | cmqc.MQGMO_MSG_UNDER_CURSOR
            self._connection.get(self.handle, glance(GetOptions(Options=taking, MatchOptions=cmqc.MQMO_NONE)))
        except MQError as error:
            if error.reason not in (cmqc.MQRC_NO_MSG_AVAILABLE, cmqc.MQRC_NO_MSG_UNDER_CURSOR):
                raise

    def _opened(self, od: MQOD) -> int:
        before = time.monotonic() + LEASE_WAIT
        while True:
            try:
                return self._connection.open(od, _OPEN)
            except MQError as error:
                if error.reason != cmqc.MQRC_OBJECT_IN_USE:
                    raise
                if time.monotonic() > before:
                    raise MQError(error.reason, self._in_use()) from error
            time.sleep(_PAUSE)

    def _in_use(self) -> str:
        record = self._left()
        last = "" if record is None else f"; the last streaming read of it: {record.owner}"
        return (
            f"queue {self.queue} is open for input elsewhere{last}. One streaming query alone reads a queue, and no other"
            " application takes messages from it meanwhile: end the other one, or give this one a queue of its own"
        )

    def _left(self) -> LeaseRecord | None:
        """Return the record that is on the state queue."""
        found = next(self._state.browse(self._mark), None)
        return None if found is None else msgspec.msgpack.decode(found.data, type=LeaseRecord)

    def _leave(self, record: LeaseRecord) -> None:
        """Replace the record, in the unit of work."""
        while self._state.remove(self._mark) is not None:
            pass
        self._state.put(self._mark, msgspec.msgpack.encode(record))
