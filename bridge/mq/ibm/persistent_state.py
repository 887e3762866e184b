"""SYSTEM.MQTT.PERSISTENT.STATE: what must survive, kept in messages, put in the unit of work that it belongs to.

Three kinds of messages, told apart by CorrelId. A *record* is a session's (`bridge.telemetry.record`); a
newer one replaces it. A *receipt* is put with each unit of work of many publications: when the connection breaks while a
commit is under way, its presence after the reconnect says that the unit of work was committed, so that nothing is put
twice. Each worker's next unit of work takes its last receipt away: who has taken the receipts of a bridge has ended its
writing. The *owner* says which bridge that is: the one whose MsgIds begin so.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import time
from collections.abc import Callable

import msgspec

from bridge.config.queue_manager import STATE_QUEUE
from bridge.mq.backend import unreadable
from bridge.mq.mqi import Connection, MQError
from bridge.mq.state import StateQueue
from bridge.mq.worker import Fenced, Stopped
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

#: Seconds after which a queue manager has noticed that a connection is lost, and has backed out its unit of work: by
#: heartbeats, which a server-connection channel sends each 300 s by default (HBINT).
LONGEST_DOUBT = 600.0

#: Seconds between looks for the receipts of the bridge before.
CLAIM_INTERVAL = 0.1


class Owner(msgspec.Struct, array_like=True):
    """The body of the owner: the bridge that has the transmission queue, and where somebody may look for it."""

    #: what the MsgIds of its messages begin with
    prefix: bytes
    #: workers that write to the queue, each with a receipt there
    workers: int
    host: str
    process: int


class Identifiers:
    """MsgIds of this process: no two alike, also across processes."""

    def __init__(self) -> None:
        self.prefix = b"MQBR" + os.urandom(12)
        self._numbers = itertools.count(1)

    def next(self) -> bytes:
        """Return a new MsgId, 24 bytes."""
        return self.prefix + next(self._numbers).to_bytes(8, "big")


class PersistentState:
    """The state queue as one connection uses it. Verbs are in syncpoint unless said otherwise."""

    def __init__(self, connection: Connection, identifiers: Identifiers) -> None:
        self._connection = connection
        self._identifiers = identifiers
        self._queue = StateQueue(connection, STATE_QUEUE)

    def _put(self, mark: bytes, body: bytes, options: int = cmqc.MQPMO_NONE) -> bytes:
        msg_id = self._identifiers.next()
        self._queue.put(mark, body, msg_id=msg_id, options=options)
        return msg_id

    def save(self, record: StateRecord, sequence: int, options: int = cmqc.MQPMO_NONE) -> bytes:
        """Put a record; returns its MsgId."""
        return self._put(RECORD_MARK, encode(record, sequence), options)

    def receipt(self, options: int = cmqc.MQPMO_NONE) -> bytes:
        """Put a receipt; returns its MsgId."""
        return self._put(RECEIPT_MARK, b"", options)

    def remove(self, msg_id: bytes) -> bool:
        """Get a message of the queue for good; False for one that is not there any more."""
        return self._queue.remove(msg_id=msg_id) is not None

    def spend(self, receipt: bytes) -> None:
        """Take the receipt of the unit of work before away. Raises Fenced where another bridge has done so.

        One that an administrator took away is missed by nobody.
        """
        if not self.remove(receipt):
            self.check_owner()

    def check_owner(self) -> None:
        """Raise Fenced where another bridge has the transmission queue."""
        owner = self.owner()
        if owner is not None and owner.prefix != self._identifiers.prefix:
            raise Fenced(f"the bridge on host {owner.host}, process {owner.process}, has taken over")

    def owner(self) -> Owner | None:
        """Return the bridge that has the transmission queue; None where no message says so."""
        owner = next(self._queue.browse(OWNER_MARK), None)
        if owner is None:
            return None
        try:
            return msgspec.msgpack.decode(owner.data, type=Owner)
        except msgspec.DecodeError:
            log.warning("MQB4104W %s: the message that names the owner cannot be read", STATE_QUEUE)
        return None

    def own(self, workers: int) -> list[bytes]:
        """Become the owner, with a receipt for each worker's first unit of work, and commit; returns the receipts."""
        while self._queue.remove(OWNER_MARK) is not None:
            pass
        owner = Owner(self._identifiers.prefix, workers, socket.gethostname(), os.getpid())
        self._put(OWNER_MARK, msgspec.msgpack.encode(owner))
        receipts = [self.receipt() for _ in range(workers)]
        self._connection.commit()
        return receipts

    def claim(self, former: Owner, is_given_up: Callable[[], bool]) -> None:
        """Take the receipts of the owner before away, and commit: no unit of work of its can be committed any more.

        One that is missing says that a unit of work is under way: it is waited for. Raises Stopped where that is given up.
        """
        until = time.monotonic() + LONGEST_DOUBT
        told = False
        while True:
            receipts = [
                got.md.MsgId
                for got in self._queue.browse(RECEIPT_MARK, with_body=False)
                if got.md.MsgId.startswith(former.prefix)
            ]
            taken = sum([self.remove(msg_id) for msg_id in receipts])
            if taken >= former.workers or time.monotonic() >= until:
                if taken < former.workers:
                    log.warning("MQB4105W %s: receipts of the bridge before are missing", STATE_QUEUE)
                self._connection.commit()
                return
            self._connection.backout()
            if not told:
                told = True
                log.warning(
                    "MQB4106W waiting for units of work of the bridge before (host %s, process %d): %d of %d receipts "
                    "are there",
                    former.host, former.process, taken, former.workers,
                )  # fmt: skip
            if is_given_up():
                raise Stopped
            time.sleep(CLAIM_INTERVAL)

    def was_committed(self, receipt: bytes, before: bytes, lost: float) -> bool:
        """Return whether the unit of work that puts `receipt` and takes `before` away was committed.

        Its connection is lost, since `lost` (time.monotonic()), but the queue manager may still be at work on it. Then
        neither message is to be seen: MQError, look later. After `LONGEST_DOUBT` the queue manager is through with it, and
        somebody else has taken `before` away: the unit of work was backed out, or its receipt would be there.
        """
        if self._queue.holds(receipt):
            return True
        if self._queue.holds(before):
            return False
        if self._queue.holds(receipt):
            return True  # between the two looks
        self.check_owner()
        if time.monotonic() - lost >= LONGEST_DOUBT:
            log.warning(
                "MQB4107W messages of the bridge are missing on %s: a unit of work in doubt is put again", STATE_QUEUE
            )
            return False
        raise MQError(cmqc.MQRC_UOW_IN_PROGRESS, "the unit of work of the connection that was lost has not ended yet")

    def read(self) -> tuple[dict[StateKey, tuple[bytes, StateRecord]], list[bytes]]:
        """Return all records, by session and side, with their MsgIds, and the MsgIds of messages that are not needed.

        Raises MQError for a message that is none of the bridge's, or that a newer one has written.
        """
        records: dict[StateKey, tuple[bytes, StateRecord]] = {}
        needless: list[bytes] = []
        for got in self._queue.browse():
            if got.md.CorrelId == RECEIPT_MARK:
                if not got.md.MsgId.startswith(self._identifiers.prefix):
                    needless.append(got.md.MsgId)
            elif got.md.CorrelId == RECORD_MARK:
                self._read(got.md.MsgId, got.data, records, needless)
            elif got.md.CorrelId != OWNER_MARK:
                raise unreadable(got.md.MsgId, "its CorrelId is none of the bridge's")
        return records, needless

    @staticmethod
    def _read(
        msg_id: bytes, body: bytes, records: dict[StateKey, tuple[bytes, StateRecord]], needless: list[bytes]
    ) -> None:
        try:
            record = decode(body)
        except UnknownRecord as error:
            raise unreadable(msg_id, str(error)) from error
        other = records.get(record.key)
        if other is not None and other[1].sequence > record.sequence:
            needless.append(msg_id)
            return
        if other is not None:
            needless.append(other[0])
        records[record.key] = (msg_id, record)
