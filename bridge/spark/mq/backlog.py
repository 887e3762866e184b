"""What a streaming read tells of a queue beside its batches: how much is in one, what waits behind it, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.mq.batch import Seen, fingerprint_by, glance
from bridge.mq.mqi import Connection, GetOptions, MQError
from bridge.spark.mq.envelope import put_time
from bridge.wire import cmqc


def backlog(
    connection: Connection, handle: int, batch: Sequence[Seen], waiting: int, behind: Seen | None
) -> dict[str, Any]:
    """Return messages and bytes of a batch of a queue, how many wait behind it, and when the first of those was put.

    `behind` is the first of them in the order of gets, which for messages of different priorities need not be the oldest.
    """
    return {
        "messages": len(batch),
        "bytes": sum(one.length for one in batch),
        "waiting": waiting,
        "oldest": None if behind is None else _put_time(connection, handle, behind),
    }


def _put_time(connection: Connection, handle: int, wanted: Seen) -> str | None:
    """Return when a message was put, as ISO 8601; None where another one has its MsgId, or it is gone."""
    options = cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_FAIL_IF_QUIESCING
    try:
        got = connection.get(
            handle, glance(GetOptions(Options=options, MatchOptions=cmqc.MQMO_MATCH_MSG_ID, MsgId=wanted.msg_id))
        )
    except MQError as error:
        if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
            return None
        raise
    if fingerprint_by(connection)(got) != wanted.fingerprint:
        return None
    time = put_time(got.md.PutDate, got.md.PutTime)
    return None if time is None else time.isoformat(timespec="milliseconds")
