"""The writer state: records which rows were put, in the same unit of work, so that a repeated batch puts no row twice.

SYSTEM.MQTT.MAPPING.STATE contains two messages for each partition of each query: a permanent *anchor*, and a *state* with
the number of the last batch and whether it is complete. Each unit of work gets the state, and puts the messages and the
next state. If a writer finds the anchor but no state, another attempt at the same partition (in a worker that Spark has
abandoned, but that still runs) has the state in its unit of work. The writer then waits until that unit of work has ended.

A large partition needs several units of work. Each of them except the last puts a *tally* with the digests of its rows,
because a repeated batch has the same rows, but possibly in another order.

Anchor and state of a streaming query are permanent, because its checkpoint may be used again. A batch write without a
`writeId` removes them when it ends. Otherwise, and if the driver is killed, they expire (EXPIRY).
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.mqi import Connection, MQError
from bridge.mq.state import StateQueue
from bridge.spark.task import Identity
from bridge.telemetry.message import Message
from bridge.wire import cmqc

#: Milliseconds to wait for the end of another attempt's unit of work.
STATE_TIMEOUT: Final = 60_000
#: Expiry of the state of a batch write in tenths of a second: 30 days.
EXPIRY: Final = 30 * 24 * 3600 * 10
#: Milliseconds that such a write, when it has failed, waits for the end of each task that still works for it.
REMOVAL_TIMEOUT: Final = 5_000
_DIGEST: Final = 12
#: The beginnings of the MsgId of an anchor, and of the CorrelIds of a state and a tally; what follows is the same in all.
_ANCHOR, _STATE, _TALLY = b"SPKA", b"SPKS", b"SPKT"
_ENCODER: Final = msgspec.msgpack.Encoder()


class PartitionState(msgspec.Struct, array_like=True, frozen=True):
    """What a partition has put: all batches before `batch`, and of that one `parts` units of work, or all of it."""

    batch: int
    complete: bool
    parts: int
    #: whose it is, for who browses the queue
    query: str
    partition: int


class Superseded(Exception):
    """Another attempt has taken over the partition, so this one must end."""


def digests(rows: Iterable[tuple[Message, Any, Any, Any]]) -> Iterator[bytes]:
    """Yield digests that identify rows of a batch: of the message, its destination and options.

    Consecutive rows usually differ in their data only.
    """
    last: tuple[Any, ...] = ()
    start = b""
    for message, *beside in rows:
        if not last or last[0] is not message.md or last[1] != beside:
            last, start = (message.md, beside), _ENCODER.encode((beside, message.md))
        yield hashlib.blake2b(start + message.data, digest_size=_DIGEST).digest()


class WriterState:
    """The state of one partition, held by one connection. Every method raises MQError."""

    def __init__(self, connection: Connection, identity: Identity) -> None:
        self._connection = connection
        self._identity = identity
        key = f"{identity.query}\0{identity.partition}".encode()
        self._anchor_mark = _ANCHOR + hashlib.sha256(key).digest()[:20]
        self._queue = StateQueue(connection, MAPPING_STATE_QUEUE)
        self._state_mark, self._tally_mark = self._marks(self._anchor() or self._founded())
        self._taken: PartitionState | None = None

    def take(self) -> Counter[bytes] | None:
        """Take the state in a unit of work; return the rows of this batch that were put already.

        Return None when all of them were.
        """
        state = self._queue.take(self._state_mark, wait=STATE_TIMEOUT)
        if state is None:
            raise MQError(
                cmqc.MQRC_UOW_IN_PROGRESS,
                f"another attempt at partition {self._identity.partition} of {self._identity.query} did not end within"
                f" {STATE_TIMEOUT // 1000} s",
            )
        found = msgspec.msgpack.decode(state, type=PartitionState)
        if self._taken is not None and found != self._taken:
            raise Superseded(f"partition {self._identity.partition} of {self._identity.query} is worked on elsewhere")
        self._taken = found
        if found.batch > self._identity.batch or (found.batch == self._identity.batch and found.complete):
            return None
        return self._tally() if found.batch == self._identity.batch and found.parts else Counter()

    def leave(self, rows: Iterable[bytes] | None) -> None:
        """Put the next state into the unit of work: `rows` were put, by their digests, or (None) all of the batch was."""
        taken, identity = self._taken, self._identity
        assert taken is not None
        parts = taken.parts if taken.batch == identity.batch else 0
        if rows is None:
            for _ in range(taken.parts):
                self._queue.remove(self._tally_mark)
            parts = 0
        else:
            self._put(self._tally_mark, b"".join(rows))
            parts += 1
        self._taken = PartitionState(identity.batch, rows is None, parts, identity.query, identity.partition)
        self._put(self._state_mark, msgspec.msgpack.encode(self._taken))

    def discard(self) -> None:
        """Take the anchor, the state and the tallies away, in the unit of work: for a write that nobody runs again."""
        while (anchor := self._queue.remove(self._anchor_mark)) is not None:
            state, tally = self._marks(anchor.md.MsgId)
            # A task that nobody waits for may have the state in a unit of work, which ends when the task is killed.
            self._queue.remove(state, wait=REMOVAL_TIMEOUT)
            while self._queue.remove(tally) is not None:
                pass

    # The queue -------------------------------------------------------------------------------------------------------

    @staticmethod
    def _marks(anchor: bytes) -> tuple[bytes, bytes]:
        return _STATE + anchor[4:], _TALLY + anchor[4:]

    def _anchor(self) -> bytes | None:
        """Return the MsgId of the anchor. Of two that were put at the same time the first counts, for everybody."""
        anchor = next(self._queue.browse(self._anchor_mark, with_body=False), None)
        return None if anchor is None else anchor.md.MsgId

    def _founded(self) -> bytes:
        """Put an anchor, and before it a state that says that nothing was put yet; return the anchor."""
        anchor = _ANCHOR + os.urandom(20)
        first = PartitionState(-1, True, 0, self._identity.query, self._identity.partition)
        # Both or none: there is no unit of work yet.
        self._put(self._marks(anchor)[0], msgspec.msgpack.encode(first))
        self._put(self._anchor_mark, b"", anchor)
        self._connection.commit()
        found = self._anchor()
        if found is None:
            raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"another program got the anchor on {MAPPING_STATE_QUEUE}")
        return found

    def _tally(self) -> Counter[bytes]:
        rows: Counter[bytes] = Counter()
        for got in self._queue.browse(self._tally_mark):
            data = got.data
            rows.update(data[at : at + _DIGEST] for at in range(0, len(data), _DIGEST))
        return rows

    def _put(self, mark: bytes, data: bytes, msg_id: bytes = cmqc.MQMI_NONE) -> None:
        expiry = EXPIRY if self._identity.passing else cmqc.MQEI_UNLIMITED
        self._queue.put(mark, data, msg_id=msg_id, expiry=expiry)
