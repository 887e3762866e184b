"""Bad payloads, taken out of a stream and left where a person finds them; exactly once, as the rows that go on are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bridge.mapping.message import CCSID_UTF8, Message
from bridge.mapping.payload import document_of, text_of
from bridge.mapping.publication import Destination, Unmappable
from bridge.mq.dead_letters import Origin, dead_letter
from bridge.pipeline.flow import table, task
from bridge.pipeline.flow.payload import REASON
from bridge.pipeline.mapping.standard import StandardToMq
from bridge.pipeline.mq.envelope import record_batch
from bridge.pipeline.mq.rows import rows_of as messages_of
from bridge.pipeline.mq.target import Target
from bridge.pipeline.mq.writer import put_all
from bridge.pipeline.mqtt.rows import Defaults
from bridge.pipeline.mqtt.rows import rows_of as publications_of
from bridge.wire import cmqc

#: What tells the rows of dead letters from those that a query writes.
ROLE: Final = "dead-letters"
_TIMES: Final = ("put_time", "received")


class BadPayloads:
    """For mapInArrow: passes rows on whose payload is good, without their column `reason`, and leaves the others.

    `column` has the payload. Exactly one of `target`, a queue, and `directory`, of Parquet files, is where the others go.
    """

    def __init__(self, pipeline: str, column: str, json: bool, target: Target | None, directory: str | None) -> None:
        self._pipeline = pipeline
        self._column = column
        self._json = json
        self._target = target
        self._directory = directory

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        bad: list[Any] = []
        for batch in batches:
            reasons = pa.array(self._reasons(batch), pa.string())
            kept = batch.drop_columns([REASON])
            if reasons.null_count == len(reasons):
                yield kept
                continue
            good = pc.is_null(reasons)
            yield kept.filter(good)
            bad.append(kept.append_column(REASON, reasons).filter(pc.invert(good)))
        if bad:
            self._leave(bad)

    def _reasons(self, batch: Any) -> list[str | None]:
        """Why each payload is bad. Spark is lenient about what stands behind a document, and about UTF-8."""
        known = batch.column(REASON).to_pylist()
        payloads = batch.column(self._column).to_pylist()
        return [self._reason(payload) or reason for payload, reason in zip(payloads, known, strict=True)]

    def _reason(self, payload: bytes | str | None) -> str | None:
        data = payload.encode() if isinstance(payload, str) else payload or b""
        try:
            if self._json:
                document_of(data)
            else:
                text_of(data, CCSID_UTF8)
        except Unmappable as error:
            return str(error)
        return None

    def _leave(self, bad: list[Any]) -> None:
        identity = task.identity(ROLE)
        if self._target is not None:
            put_all(self._target, identity, (self._letters(batch) for batch in bad))
            return
        assert self._directory is not None
        name = f"{identity.query}-{identity.batch:08d}-{identity.partition:04d}.parquet"
        table.write(Path(self._directory, name), pa.Table.from_batches(bad))

    def _letters(self, batch: Any) -> Any:
        """The messages behind their MQDLH, as rows of the source `mq`."""
        assert self._target is not None and self._target.queue is not None
        letters = []
        for message, source, when in _originals(batch, self._target.queue):
            # When it came, not now: what a batch that is run again puts is the very same.
            clock = time.gmtime(0 if when is None else when.timestamp())
            date, moment = time.strftime("%Y%m%d", clock).encode(), time.strftime("%H%M%S00", clock).encode()
            origin = Origin(cmqc.MQAT_UNIX, self._pipeline.encode()[:28], date, moment)
            letter = dead_letter(message.md, message.data, cmqc.MQRC_FORMAT_ERROR, source, "", origin)
            letters.append((letter.md, letter.data))
        return record_batch(self._target.queue, letters)


def _originals(batch: Any, queue: str) -> Iterator[tuple[Message, str, datetime | None]]:
    """The message of each row, where it came from, and when. A publication is as the standard profile maps it."""
    times = next((batch.column(name).to_pylist() for name in _TIMES if name in batch.schema.names), [None] * batch.num_rows)
    if "headers" in batch.schema.names:
        sources = batch.column("queue").to_pylist()
        for row, source, when in zip(messages_of(batch), sources, times, strict=True):
            yield row.message, source or "", when
        return
    rule = StandardToMq(Destination(queue))
    for one, when in zip(publications_of(batch, Defaults(), None, 0), times, strict=True):
        yield rule.map(one.publication).message, one.publication.topic, when
