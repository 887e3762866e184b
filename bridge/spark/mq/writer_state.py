"""What a writer has put, kept in the unit of work that puts it: so a batch that is run again puts nothing twice.

On SYSTEM.MQTT.MAPPING.STATE there are, for each partition of each query, an *anchor* that stays, and behind it a *state*:
the batch that was put last, and whether all of it was. A unit of work takes the state, puts the messages and the next
state. Who finds the anchor but no state knows that another attempt at the same partition (of a worker that was given up,
but is alive) has it in a unit of work under way, and waits for its end: what it finds then says what there is left to do.

A partition that is too long for one unit of work takes several. Each but the last leaves a *tally* of digests of its rows,
because the rows of a batch that is run again are the same, but need not come in the same order.

Anchor and state of a query's partition stay, because nobody says that a checkpoint will not be used again. Those of a batch
write go when it has ended, if it has no name, and else expire (EXPIRY), as they do when a driver is killed.
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
PATIENCE: Final = 60_000
#: Tenths of a second that what a batch write keeps is kept, where nobody takes it away: 30 days.
EXPIRY: Final = 30 * 24 * 3600 * 10
#: Milliseconds that such a write, when it has failed, waits for the end of each task that still works for it.
FAREWELL: Final = 5_000
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
    """Another attempt at the same partition goes on with it: this one has to end."""


def digest(message: Message, *beside: object) -> bytes:
    """Return what tells one row of a batch from another: the digest of a message, and what more there is to say of it."""
    return hashlib.blake2b(_ENCODER.encode((beside, message.md)) + message.data, digest_size=_DIGEST).digest()


def digests(rows: Iterable[tuple[Message, Any, Any, Any]]) -> Iterator[bytes]:
    """Yield what `digest` returns of each row. Consecutive rows usually differ in their data only."""
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
        state = self._queue.take(self._state_mark, wait=PATIENCE)
        if state is None:
            raise MQError(
                cmqc.MQRC_UOW_IN_PROGRESS,
                f"another attempt at partition {self._identity.partition} of {self._identity.query} has not ended in"
                f" {PATIENCE // 1000} s",
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
            self._queue.remove(state, wait=FAREWELL)
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
            raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"what was put on {MAPPING_STATE_QUEUE} is gone: somebody gets it")
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
