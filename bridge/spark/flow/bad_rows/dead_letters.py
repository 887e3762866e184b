"""Bad payloads, and rows that the SELECT cannot be made of, taken out of a stream and left where a person finds them.

That is done exactly once, as for the rows that go on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice, repeat
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bridge.mapping.payload import document_of, text_of, utf_8
from bridge.mq.dead_letter import OriginContext, dead_letter
from bridge.spark import task
from bridge.spark.flow import table
from bridge.spark.flow.bad_rows.diverted_rows import DivertedRows, keys_of
from bridge.spark.flow.bad_rows.payload import REASON, has_text
from bridge.spark.mapping.standard import StandardToMq
from bridge.spark.mq.envelope import record_batch
from bridge.spark.mq.rows import rows_of as messages_of
from bridge.spark.mq.sink_options import SinkOptions
from bridge.spark.mq.writer import put_all
from bridge.spark.mqtt.rows import Defaults
from bridge.spark.mqtt.rows import rows_of as publications_of
from bridge.spark.task import Identity
from bridge.telemetry.message import CCSID_UTF8, Destination, Message, Unmappable
from bridge.wire import cmqc

#: What tells the rows of dead letters from those that a query writes.
ROLE: Final = "dead-letters"
_BATCH: Final = 1_000
_TIMES: Final = ("put_time", "received")
#: CCSID and Encoding of a payload that does not say them.
_UTF_8: Final = (CCSID_UTF8, cmqc.MQENC_NATIVE)


class BadPayloads:
    """For mapInArrow: passes rows on whose payload is good, without their column `reason`, and leaves the others.

    `column` has the payload, which is `kind`: json, text or bytes. `options`, of a queue, or `directory`, of Parquet files,
    is where the others go, and with them those of `diverted`; with neither, they are there already.
    """

    def __init__(
        self,
        pipeline: str,
        column: str,
        kind: str,
        options: SinkOptions | None,
        directory: str | None,
        diverted: DivertedRows,
    ) -> None:
        self._pipeline = pipeline
        self._column = column
        self._kind = kind
        self._options = options
        self._directory = directory
        self._diverted = diverted

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        # What a search has found has an identity of its own: of the others all may be put already, and noted.
        bad: dict[str, list[Any]] = {}
        diverted = self._diverted.rows if self._diverted.batch == task.identity().batch else {}
        for batch in batches:
            reasons = self.reasons(batch)
            roles = [None if reason is None else ROLE for reason in reasons]
            if diverted:
                for index, key in enumerate(keys_of(batch)):
                    if (one := diverted.get(key)) is not None:
                        reasons[index], roles[index] = one.why, f"{ROLE}-{one.search}"
            kept = batch.drop_columns([REASON])
            found = set(roles)
            if found <= {None}:
                yield kept
                continue
            which, why = pa.array(roles, pa.string()), pa.array(reasons, pa.string())
            yield kept.filter(pc.is_null(which))
            for role in sorted(role for role in found if role is not None):
                rows = kept.append_column(REASON, why).filter(pc.equal(which, role))
                bad.setdefault(role, []).append(rows)
        for role in sorted(bad):
            self._leave(role, bad[role])

    def again(self) -> BadPayloads:
        """Return what passes the same rows on of a batch that is read again, and leaves none."""
        return BadPayloads(self._pipeline, self._column, self._kind, None, None, self._diverted)

    def reasons(self, batch: Any) -> list[str | None]:
        """Return why each payload is bad. Spark is lenient about what stands behind a document, and about UTF-8."""
        known: list[str | None] = batch.column(REASON).to_pylist()
        if self._kind == "bytes":
            return known
        payloads = batch.column(self._column).to_pylist()
        sets: Iterable[tuple[int, int]] = repeat(_UTF_8)
        if has_text(batch.schema.names, self._column):
            described = (batch.column(name).to_pylist() for name in ("format", "ccsid", "encoding"))
            sets = [(one[1], one[2]) if one[0] == "MQSTR" else _UTF_8 for one in zip(*described, strict=True)]
        rows = zip(payloads, sets, known, strict=False)
        return [self._reason(payload, *characters) or reason for payload, characters, reason in rows]

    def _reason(self, payload: bytes | str | None, ccsid: int, encoding: int) -> str | None:
        data = payload.encode() if isinstance(payload, str) else payload or b""
        try:
            if self._kind == "json":
                document_of(utf_8(data, ccsid, encoding))
            else:
                text_of(data, ccsid, encoding)
        except Unmappable as error:
            return str(error)
        return None

    def _leave(self, role: str, bad: list[Any]) -> None:
        identity = task.identity(role)
        if self._options is not None:
            assert self._options.queue is not None
            originals = (one for batch in bad for one in _originals(batch, self._options.queue))
            put_dead_letters(self._options, identity, self._pipeline, originals)
            return
        if self._directory is None:
            return
        name = f"{identity.query}-{identity.batch:08d}-{identity.partition:04d}.parquet"
        table.write(Path(self._directory, name), pa.Table.from_batches(bad))


#: A message, where it came from or was to go, when it came, and MQRC_
DeadLetter = tuple[Message, str, datetime | None, int]


def put_dead_letters(options: SinkOptions, identity: Identity, pipeline: str, dead_letters: Iterable[DeadLetter]) -> None:
    """Put messages on the queue of the options behind their MQDLH, once for an identity. Raises MQError."""
    assert options.queue is not None
    put_all(options, identity, _batches(options.queue, pipeline, dead_letters))


def _batches(queue: str, pipeline: str, dead_letters: Iterable[DeadLetter]) -> Iterator[Any]:
    waiting = iter(dead_letters)
    while part := list(islice(waiting, _BATCH)):
        made = []
        for message, place, when, reason in part:
            # When it came, not now: what a batch that is run again puts is the very same.
            clock = time.gmtime(0 if when is None else when.timestamp())
            date, moment = time.strftime("%Y%m%d", clock).encode(), time.strftime("%H%M%S00", clock).encode()
            origin = OriginContext(cmqc.MQAT_UNIX, pipeline.encode()[:28], date, moment)
            letter = dead_letter(message.md, message.data, reason, place, "", origin)
            made.append((letter.md, letter.data))
        yield record_batch(queue, made)


def _originals(batch: Any, queue: str) -> Iterator[DeadLetter]:
    """Yield the message of each row, where it came from, and when. A publication is as the standard profile maps it."""
    times = next((batch.column(name).to_pylist() for name in _TIMES if name in batch.schema.names), [None] * batch.num_rows)
    if "headers" in batch.schema.names:
        sources = batch.column("queue").to_pylist()
        for row, source, when in zip(messages_of(batch), sources, times, strict=True):
            yield row.message, source or "", when, cmqc.MQRC_FORMAT_ERROR
        return
    rule = StandardToMq(Destination(queue))
    for one, when in zip(publications_of(batch, Defaults(), None, 0), times, strict=True):
        yield rule.map(one.publication).message, one.publication.topic, when, cmqc.MQRC_FORMAT_ERROR
