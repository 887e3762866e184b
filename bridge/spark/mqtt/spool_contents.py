"""What lies in spools that no query has open: for whoever has to know what would be left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bridge.spark.mqtt.frame import scan
from bridge.spark.mqtt.spool import COMMITTED, IDENTITY, SUFFIX, Session, SessionAtBroker, sessions_in


class SpoolContents(msgspec.Struct, frozen=True):
    """A spool on disk."""

    directory: Path
    id: str
    topic_filter: str
    #: publications that are acknowledged to the broker and in no committed batch, at most
    waiting: int
    #: those that have filled it, the last one last
    sessions: list[SessionAtBroker]


def spools_below(directory: Path) -> Iterator[SpoolContents]:
    """Yield the spools in the directory that the option `spool` names. Raises OSError, SpoolDamaged."""
    for path in sorted(directory.glob(f"*/{IDENTITY}")):
        spool = path.parent
        session = msgspec.json.decode(path.read_bytes(), type=Session)
        committed = int.from_bytes((spool / COMMITTED).read_bytes()[:8]) if (spool / COMMITTED).exists() else 0
        waiting = max(_end(spool) - committed, 0)
        yield SpoolContents(spool, session.id, session.topic_filter, waiting, sessions_in(spool))


def _end(spool: Path) -> int:
    """Return the number of the row behind the last."""
    for file in sorted(spool.glob(f"*{SUFFIX}"), reverse=True):
        if os.stat(file).st_size and (frames := scan(file, whole=False)[0]):
            return frames[-1].end
    return 0
