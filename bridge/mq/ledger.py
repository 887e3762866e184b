"""SYSTEM.MQTT.PERSISTENT.STATE: what must survive, kept in messages, put in the unit of work that it belongs to.

Two kinds of messages, told apart by CorrelId. A *record* is a session's (JSON, see `bridge.mqtt.session`); a newer one
replaces it. A *receipt* is put with each unit of work of many publications: when the connection breaks while a commit is
under way, its presence after the reconnect says that the unit of work was committed, so that nothing is put twice.
"""

from __future__ import annotations

import itertools
import logging
import os
import time

import msgspec

from bridge.mapping.message import Message
from bridge.mq.agent import Side, StateKey
from bridge.mq.errors import MQError
from bridge.mq.interface import MQOD, Connection, GetOptions
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

log = logging.getLogger(__name__)

STATE_QUEUE = "SYSTEM.MQTT.PERSISTENT.STATE"
RECORD_MARK = b"MQTT session record".ljust(24, b"\0")
RECEIPT_MARK = b"MQTT unit of work".ljust(24, b"\0")

#: Seconds after which a queue manager has noticed that a connection is lost, and has backed out its unit of work: by
#: heartbeats, which a server-connection channel sends each 300 s by default (HBINT).
LONGEST_DOUBT = 600.0

_OPTIONS = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING
_PUT = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING


class Entry(msgspec.Struct, array_like=True):
    """The body of a record: whose it is, how recent, and what it says."""

    side: str
    client_id: str
    #: grows with every record written; of two for one session the higher counts
    version: int
    record: bytes


class Identifiers:
    """MsgIds of this process: no two alike, also across processes."""

    def __init__(self) -> None:
        self._prefix = b"MQBR" + os.urandom(12)
        self._numbers = itertools.count(1)

    def next(self) -> bytes:
        """A MsgId, 24 bytes."""
        return self._prefix + next(self._numbers).to_bytes(8, "big")


class Ledger:
    """The state queue as one connection uses it. Verbs are in syncpoint unless said otherwise."""

    def __init__(self, connection: Connection, identifiers: Identifiers) -> None:
        self._connection = connection
        self._identifiers = identifiers
        self._handle = connection.open(MQOD(ObjectName=STATE_QUEUE), _OPTIONS)

    def _put(self, mark: bytes, body: bytes, options: int = 0) -> bytes:
        msg_id = self._identifiers.next()
        md = MQMD(MsgId=msg_id, CorrelId=mark, Persistence=cmqc.MQPER_PERSISTENT)
        self._connection.put(self._handle, Message(md, body), _PUT | options)
        return msg_id

    def save(self, key: StateKey, version: int, record: bytes, options: int = 0) -> bytes:
        """Put a record; returns its MsgId."""
        entry = Entry(str(key.side), key.client_id, version, record)
        return self._put(RECORD_MARK, msgspec.msgpack.encode(entry), options)

    def receipt(self, options: int = 0) -> bytes:
        """Put a receipt; returns its MsgId."""
        return self._put(RECEIPT_MARK, b"", options)

    def remove(self, msg_id: bytes) -> None:
        """Get a message of the queue for good; one that is not there any more is no error."""
        try:
            self._connection.get(
                self._handle,
                GetOptions(Options=cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG, MsgId=msg_id, MaxLength=0),
            )
        except MQError as error:
            if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                raise

    def holds(self, msg_id: bytes) -> bool:
        """Whether a message with this MsgId is on the queue, committed."""
        try:
            self._connection.get(
                self._handle,
                GetOptions(
                    Options=cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG, MsgId=msg_id, MaxLength=0
                ),
            )
        except MQError as error:
            if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                return False
            raise
        return True

    def first_receipt(self) -> bytes:
        """Put a receipt for the first unit of work to take away, and commit; returns its MsgId."""
        receipt = self.receipt()
        self._connection.commit()
        return receipt

    def was_committed(self, receipt: bytes, before: bytes, lost: float) -> bool:
        """Whether the unit of work that puts `receipt` and takes `before` away was committed.

        Its connection is lost, since `lost` (time.monotonic()), but the queue manager may be at it still. Then neither is
        to be seen: MQError, look later. After `LONGEST_DOUBT` the queue manager is through with it, and somebody else has
        taken `before` away: it was backed out, or its receipt would be there.
        """
        if self.holds(receipt):
            return True
        if self.holds(before):
            return False
        if self.holds(receipt):
            return True  # between the two looks
        if time.monotonic() - lost >= LONGEST_DOUBT:
            log.warning("messages of the bridge are missing on %s: a unit of work in doubt is put again", STATE_QUEUE)
            return False
        raise MQError(cmqc.MQRC_UOW_IN_PROGRESS, "the unit of work of the connection that was lost has not ended yet")

    def read(self) -> tuple[dict[StateKey, tuple[bytes, Entry]], list[bytes]]:
        """All records, by session and side, with their MsgIds; and the MsgIds of messages that are not needed."""
        records: dict[StateKey, tuple[bytes, Entry]] = {}
        needless: list[bytes] = []
        how = cmqc.MQGMO_BROWSE_FIRST
        while True:
            try:
                got = self._connection.get(self._handle, GetOptions(Options=how))
            except MQError as error:
                if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                    return records, needless
                raise
            how = cmqc.MQGMO_BROWSE_NEXT
            if got.md.CorrelId == RECEIPT_MARK:
                needless.append(got.md.MsgId)
            elif got.md.CorrelId == RECORD_MARK:
                self._read(got.md.MsgId, got.data, records, needless)

    @staticmethod
    def _read(msg_id: bytes, body: bytes, records: dict[StateKey, tuple[bytes, Entry]], needless: list[bytes]) -> None:
        try:
            entry = msgspec.msgpack.decode(body, type=Entry)
            key = StateKey(Side(entry.side), entry.client_id)
        except (msgspec.DecodeError, ValueError):
            return  # not the bridge's: leave it where it is
        other = records.get(key)
        if other is not None and other[1].version > entry.version:
            needless.append(msg_id)
            return
        if other is not None:
            needless.append(other[0])
        records[key] = (msg_id, entry)
