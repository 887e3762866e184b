"""The writer state: the rows that a query has put, recorded in the same units of work, so that no row is put twice.

SYSTEM.MQTT.MAPPING.STATE has two messages for each query, the last two states. Each unit of work gets the older one and puts
the next state. So only one process at a time can put for a query, and others learn from the newer one that the state exists.
A second attempt waits until the unit of work of the first one has ended.

Until it is complete, a batch of several units of work has a third message: its manifest (`bridge.spark.staging`).

The state of a streaming query is permanent, because its checkpoint may be used again. The state of a batch write with a
`writeId` expires (EXPIRY). Any other batch write needs no state, because it cannot be repeated.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
import uuid
from typing import Final

import msgspec

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.mqi import Connection, MQError
from bridge.mq.state import StateQueue
from bridge.spark.staging import Manifest
from bridge.spark.task import BatchIdentity
from bridge.wire import cmqc

#: Seconds to wait for the end of another attempt's unit of work, and between checks.
STATE_TIMEOUT: Final = 60.0
_PAUSE: Final = 0.05
#: Expiry of the state of a batch write in tenths of a second: 30 days.
EXPIRY: Final = 30 * 24 * 3600 * 10
#: Prefixes of the CorrelIds of a state and a manifest. The rest is the same in both.
_STATE, _MANIFEST = b"SPKB", b"SPKM"
#: Prefixes in 0.2.0, for each partition: a state and a tally (CorrelIds), and an anchor (MsgId).
_FORMER_STATE, _FORMER_TALLY, _FORMER_ANCHOR = b"SPKS", b"SPKT", b"SPKA"


class QueryState(msgspec.Struct, array_like=True, frozen=True):
    """The progress of a query: all batches before `batch` are put, and `rows` rows (if `complete`, all rows) of `batch`."""

    query: str
    batch: int
    complete: bool
    rows: int
    #: counts the states of the query
    number: int
    #: identifies the process that put the first state
    founder: str


class AttemptSuperseded(Exception):
    """Another attempt has taken over the batch, so this one must end."""


class BatchUnfinished(Exception):
    """Version 0.2.0 has put only a part of the batch."""


class WriterState:
    """The state of one query, on one connection. Every method raises MQError."""

    def __init__(self, connection: Connection, query: str, *, expires: bool = False) -> None:
        self._connection = connection
        self._query = query
        self._expiry = EXPIRY if expires else cmqc.MQEI_UNLIMITED
        key = hashlib.sha256(query.encode()).digest()[:20]
        self._mark, self._manifest_mark = _STATE + key, _MANIFEST + key
        self._queue = StateQueue(connection, MAPPING_STATE_QUEUE)
        self._state: QueryState | None = None

    def take(self, identity: BatchIdentity, partitions: set[int]) -> QueryState:
        """Take the state in a new unit of work, which no other attempt can do until it ends.

        `partitions` of the batch have rows. Raises BatchUnfinished, and AttemptSuperseded if another attempt has put
        something since the last call.
        """
        before = time.monotonic() + STATE_TIMEOUT
        founder = ""
        while True:
            states = [
                (msgspec.msgpack.decode(message.data, type=QueryState), message.md.MsgId)
                for message in self._queue.browse(self._mark)
            ]
            states.sort(key=lambda state_and_id: state_and_id[0].number)
            if not states and not founder:
                founder = self._founded(identity, partitions)
                continue
            founders = {state.founder for state, _ in states}
            if len(founders) == 1 and len(states) > 1 and self._queue.remove(self._mark, msg_id=states[0][1]):
                state = states[-1][0]
                if self._state is not None and state != self._state:
                    raise AttemptSuperseded(f"another attempt continues {identity}")
                self._state = state
                return state
            if len(founders) > 1 and founder in founders:
                # Two attempts have begun at the same time. Each removes its states, and begins again after a while.
                for state, msg_id in states:
                    if state.founder == founder:
                        self._queue.remove(self._mark, msg_id=msg_id)
                self._connection.commit()
                founder = ""
                time.sleep(random.uniform(0, 20 * _PAUSE))
            if time.monotonic() > before:
                raise MQError(
                    cmqc.MQRC_UOW_IN_PROGRESS,
                    f"another attempt at {identity} did not end within {STATE_TIMEOUT:g} s",
                )
            time.sleep(_PAUSE)

    def leave(self, batch: int, rows: int, *, complete: bool = False) -> None:
        """Put the next state into the unit of work."""
        assert self._state is not None
        self._put(QueryState(self._query, batch, complete, rows, self._state.number + 1, self._state.founder))

    def has_begun(self, batch: int) -> bool:
        """Return whether a batch was put, or a part of it."""
        return any(
            msgspec.msgpack.decode(message.data, type=QueryState).batch >= batch
            for message in self._queue.browse(self._mark)
        )

    def manifest(self) -> Manifest:
        """Return the manifest of the batch that is not complete."""
        message = next(self._queue.browse(self._manifest_mark), None)
        if message is None:
            raise MQError(
                cmqc.MQRC_NO_MSG_AVAILABLE,
                f"another program got the manifest of {self._query} on {MAPPING_STATE_QUEUE}",
            )
        return msgspec.msgpack.decode(message.data, type=Manifest)

    def put_manifest(self, manifest: Manifest) -> None:
        """Put the manifest of a batch into the unit of work."""
        self._queue.put(self._manifest_mark, msgspec.msgpack.encode(manifest), expiry=self._expiry)

    def remove_manifest(self) -> None:
        """Remove the manifest in the unit of work."""
        self._queue.remove(self._manifest_mark)

    def _put(self, state: QueryState) -> None:
        self._queue.put(self._mark, msgspec.msgpack.encode(state), expiry=self._expiry)
        self._state = state

    def _founded(self, identity: BatchIdentity, partitions: set[int]) -> str:
        """Put the first two states, in a separate unit of work. Return the founder."""
        batch = self._take_former(identity, partitions)
        founder = uuid.uuid4().hex
        for number in range(2):
            state = QueryState(self._query, batch, True, 0, number, founder)
            self._queue.put(self._mark, msgspec.msgpack.encode(state), expiry=self._expiry)
        self._connection.commit()
        return founder

    # State of version 0.2.0 ------------------------------------------------------------------------------------------

    def _take_former(self, identity: BatchIdentity, partitions: set[int]) -> int:
        """Remove the states of 0.2.0. Return the last batch that it has put completely, or -1. Raises BatchUnfinished."""
        former: list[_PartitionState] = []
        keys: set[bytes] = set()
        for message in self._queue.browse():
            if message.md.CorrelId[:4] == _FORMER_STATE:
                with contextlib.suppress(
                    msgspec.DecodeError, UnicodeDecodeError
                ):  # applications may put anything to this queue
                    state = msgspec.msgpack.decode(message.data, type=_PartitionState)
                    if state.query == self._query:
                        former.append(state)
                        keys.add(message.md.CorrelId[4:])
        if not former:
            return -1
        begun_states = [state for state in former if state.batch >= identity.batch]
        # Before the first batch there was no state, so a partition without a state may have had rows.
        finished = (
            all(state.complete for state in begun_states) and len(begun_states) == len(former) and identity.batch > 0
        )
        if begun_states and not (finished and partitions <= {state.partition for state in begun_states}):
            parts = ", ".join(
                f"partition {state.partition}: {'all' if state.complete else f'{state.parts} units of work'}"
                for state in begun_states
            )
            remedy = (
                "let 0.2.0 finish the batch, with the settings and the SELECT that it had (pipeline run --once, or the"
                " trigger availableNow). Or start with a new checkpoint and the same spool (pipeline reset), which puts all"
                " rows of the batch again"
            )
            if self._expiry == EXPIRY:
                remedy = "let 0.2.0 repeat the write with this writeId. Or choose another writeId, which puts all rows"
            raise BatchUnfinished(
                f"mqbridge 0.2.0 has put a part of {identity}, or all of it ({parts}), and this version cannot continue it;"
                f" hint: {remedy}"
            )
        for message in list(self._queue.browse(with_body=False)):
            key, is_anchor = message.md.CorrelId, message.md.MsgId[:4] == _FORMER_ANCHOR
            is_state = key[:4] in (_FORMER_STATE, _FORMER_TALLY) and key[4:] in keys
            if is_state or (is_anchor and message.md.MsgId[4:] in keys):
                self._queue.remove(msg_id=message.md.MsgId)
        return max(state.batch for state in former)


class _PartitionState(msgspec.Struct, array_like=True, frozen=True):
    """The progress of a partition in 0.2.0: all batches before `batch`, and `parts` units of work (or all) of `batch`."""

    batch: int
    complete: bool
    parts: int
    query: str
    partition: int
