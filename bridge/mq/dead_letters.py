"""Messages that could not go where they should: on the dead-letter queue, behind an MQDLH that says why.

Source: IBM MQ documentation, "MQDLH - Dead-letter header", "Dead-letter queues".
"""

from __future__ import annotations

import logging
import threading
import time

import msgspec

from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD, Connection
from bridge.mq.worker import LOST
from bridge.telemetry.message import CCSID_UTF8, Destination, Message
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, MQMD, encode_mqdlh, fitted_mqmd

log = logging.getLogger(__name__)

_NAME_LENGTH = 48
_OUTPUT = cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING
_PUT = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING


class OriginContext(msgspec.Struct, frozen=True):
    """Origin context: who put a message, and when (GMT): PutApplType, PutApplName, PutDate and PutTime."""

    type: int
    name: bytes
    date: bytes
    time: bytes

    @classmethod
    def of(cls, md: MQMD) -> OriginContext:
        """Return the origin context of an MQMD."""
        return cls(md.PutApplType, md.PutApplName, md.PutDate, md.PutTime)

    @classmethod
    def now(cls, application: str) -> OriginContext:
        """Return the origin context of what an application puts at this moment."""
        now = time.time()
        seconds = time.gmtime(now)
        clock = time.strftime("%H%M%S", seconds) + f"{int(now * 100) % 100:02d}"
        return cls(cmqc.MQAT_UNIX, application.encode()[:28], time.strftime("%Y%m%d", seconds).encode(), clock.encode())


class _Count:
    """Counts on all threads."""

    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.value += 1


_count = _Count()


def dead_letters_made() -> int:
    """Return how many dead letters this process has made. Units of work that hold them may be under way or backed out."""
    return _count.value


def dead_letter(md: MQMD, data: bytes, reason: int, queue: str, queue_manager: str, origin: OriginContext) -> Message:
    """Return a message behind an MQDLH; `queue` and `queue_manager` say where it was to go.

    Fields of the MQMD that are too long are cut. Older releases stored such messages, and they must not stay for ever.
    """
    _count.add()
    md = fitted_mqmd(md)
    header = MQDLH(
        Reason=reason,
        DestQName=as_name(queue),
        DestQMgrName=as_name(queue_manager),
        Encoding=md.Encoding,
        CodedCharSetId=md.CodedCharSetId,
        Format=md.Format,
        PutApplType=origin.type,
        PutApplName=origin.name[:28],
        PutDate=origin.date[:8],
        PutTime=origin.time[:8],
    )
    outer = msgspec.structs.replace(
        md,
        Format=cmqc.MQFMT_DEAD_LETTER_HEADER,
        Encoding=cmqc.MQENC_NATIVE,
        CodedCharSetId=CCSID_UTF8,
    )
    return Message(outer, encode_mqdlh(header) + data)


def as_name(name: str) -> bytes:
    """Return as much of a name as a field of 48 bytes holds; a topic string may be longer. No character is cut in two."""
    return name.encode()[:_NAME_LENGTH].decode(errors="ignore").encode()


class DeadLetterRefused(MQError):
    """The dead-letter queue does not take a message, or there is none."""


class DeadLetters:
    """The dead-letter queue of a queue manager, as one mapping uses it."""

    def __init__(
        self, connection: Connection, queue: str, mapping: str, source: str = "", *, taken_from: str = ""
    ) -> None:
        """Note the name of the dead-letter queue; nothing is opened yet.

        `queue` is that name; "" is the one that the queue manager names (DEADQ). `source` is where the mapping takes
        messages from: the MQDLH names it where a message has no destination. `taken_from` is the source where that is a
        queue.
        """
        self._taken_from = taken_from
        self._connection = connection
        self._mapping = mapping
        self._source = source
        self._queue = queue
        self._queue_manager = ""
        self._handle: int | None = None
        self._context = 0

    def put(self, md: MQMD, data: bytes, reason: int, why: str, destination: Destination | None = None) -> None:
        """Put a message in syncpoint: in the unit of work that takes it from where it was.

        `reason` is for the MQDLH, `why` is for people. MsgId, CorrelId and the data stay as they are; so does the context
        (who put it, and when), where the bridge has the authority SETALL for the queue. A message is never shortened. Raises
        DeadLetterRefused, after which the unit of work is to be backed out, or another MQError where the connection is lost.
        """
        try:
            handle = self._open()
            if self._queue == self._taken_from:
                raise MQError(reason, f"{why}; the mapping takes from the dead-letter queue itself")
            name = self._source if destination is None else destination.name
            manager = (destination.queue_manager if destination is not None else "") or self._queue_manager
            letter = dead_letter(md, data, reason, name, manager, OriginContext.now(self._mapping))
            self._connection.put(handle, letter, _PUT | self._context)
        except MQError as error:
            if error.reason in LOST:
                raise
            self._handle = None if error.reason in _REOPEN else self._handle
            detail = error.detail
            if error.reason in _TOO_BIG:
                detail = (
                    f"{len(data)} bytes and an MQDLH of {cmqc.MQDLH_LENGTH_1} bytes are longer than MAXMSGL (hint: raise"
                    " MAXMSGL of the dead-letter queue and of the queue manager, or set filter.max_size of the mapping)"
                )
            raise DeadLetterRefused(
                error.reason, f"dead-letter queue {self._queue or '(DEADQ is blank)'} takes no message: {detail}"
            ) from error
        log.warning(
            "MQB5101W mapping %s: a message goes to dead-letter queue %s: %s: %s (%d)",
            self._mapping,
            self._queue,
            why,
            cmqc.reason_name(reason),
            reason,
        )

    def _open(self) -> int:
        if self._handle is not None:
            return self._handle
        if not self._queue_manager:
            self._inquire()
        od = MQOD(ObjectName=self._queue)
        try:
            self._handle = self._connection.open(od, _OUTPUT | cmqc.MQOO_SET_ALL_CONTEXT)
            self._context = cmqc.MQPMO_SET_ALL_CONTEXT
        except MQError as error:
            if error.reason != cmqc.MQRC_NOT_AUTHORIZED:
                raise
            self._handle = self._connection.open(od, _OUTPUT)
            self._context = cmqc.MQPMO_NONE
        return self._handle

    def _inquire(self) -> None:
        """Learn the names of the queue manager and its dead-letter queue."""
        handle = self._connection.open(MQOD(ObjectType=cmqc.MQOT_Q_MGR), cmqc.MQOO_INQUIRE)
        try:
            _, found = self._connection.inquire(handle, (cmqc.MQCA_DEAD_LETTER_Q_NAME, cmqc.MQCA_Q_MGR_NAME))
        finally:
            self._connection.close(handle)
        queue, queue_manager = (name.rstrip(" \0") for name in found)
        self._queue = self._queue or queue
        if not self._queue:
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, "ALTER QMGR DEADQ('SYSTEM.DEAD.LETTER.QUEUE') names one")
        self._queue_manager = queue_manager


_TOO_BIG = frozenset((cmqc.MQRC_MSG_TOO_BIG_FOR_Q, cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR))
#: The handle is of no use any more.
_REOPEN = frozenset((cmqc.MQRC_OBJECT_CHANGED, cmqc.MQRC_Q_DELETED, cmqc.MQRC_HOBJ_ERROR))
