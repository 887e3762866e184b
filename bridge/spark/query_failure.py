"""Failures of a query: what happened, whether another attempt may succeed, and the remedy."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from bridge.mq.worker import LOST
from bridge.spark.mistake import sentence_of
from bridge.wire import cmqc

#: The reason of an MQError in any process.
_REASON: Final = re.compile(r"\bMQRC_[A-Z0-9_]+ \((\d+)\)")
#: The exception that a Python traceback ends with.
_RAISED: Final = re.compile(r"^(?:\w+\.)*(\w+)(?:: |$)", re.MULTILINE)
#: Spark's sentence and SQLSTATE of an error in the data: class 22 is "data exception", P0001 that of raise_error.
_DATA: Final = re.compile(
    r"\[([A-Z][A-Z0-9_.]*)\] ((?:(?!SQLSTATE: ).)*)SQLSTATE: (?:22\w{3}|P0001)"
    r"(?:\s+== SQL \(line (\d+), position (\d+)\) ==)?",
    re.DOTALL,
)
_MQ_REMEDIES: Final = {
    cmqc.MQRC_Q_FULL: "get messages from the queue, or raise its MAXDEPTH",
    cmqc.MQRC_Q_SPACE_NOT_AVAILABLE: "free disk space on the queue manager",
    cmqc.MQRC_RESOURCE_PROBLEM: "free disk space on the queue manager",
    cmqc.MQRC_STORAGE_NOT_AVAILABLE: "get waiting messages, or give the queue manager more memory",
    cmqc.MQRC_PUT_INHIBITED: "ALTER the queue or topic to PUT(ENABLED)",
    cmqc.MQRC_GET_INHIBITED: "ALTER the queue to GET(ENABLED)",
    cmqc.MQRC_PUBSUB_INHIBITED: "ALTER the topic to PUB(ENABLED)",
    cmqc.MQRC_UNKNOWN_OBJECT_NAME: "define the queue",
    cmqc.MQRC_UNKNOWN_ALIAS_BASE_Q: "define the queue that the alias names",
    cmqc.MQRC_NOT_AUTHORIZED: "give the user of the pipeline the authority (SET AUTHREC)",
    cmqc.MQRC_OBJECT_IN_USE: "end the other application that has the queue open",
    cmqc.MQRC_SUBSCRIPTION_IN_USE: "end the other application that has the subscription open",
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q: "raise MAXMSGL of the queue, or leave out long messages (WHERE length(...) < ...)",
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR: "raise MAXMSGL of the queue manager, or leave out long messages",
}
#: Remedies by the name of an exception.
_OTHERS: Final = {
    "BrokerAway": "none, if the broker comes back",
    "NotConnected": "check that the broker runs and accepts the session",
    "LinkLost": "none, if the broker comes back",
    "SpoolBusy": "end the other process that runs this pipeline",
    "Superseded": "none: another attempt continues",
    "PermissionError": "give the user of the pipeline access",
    "OSError": "check the disk or the network that the error names",
}
_JAVA: Final = {
    re.compile(r"\bjava\.net\.\w+Exception\b|\bjava\.sql\.SQL(?:Transient|Recoverable)\w*Exception\b"): (
        "none, if the server comes back"
    ),
    re.compile(r"\bNo suitable driver\b"): "name the class of its driver (options: {driver: ...}) and the jar (--jars)",
}


class QueryFailure(msgspec.Struct, frozen=True):
    """Why a query ended."""

    what: str
    #: "": unknown, so another attempt may never succeed
    remedy: str = ""
    #: the SELECT cannot be computed of some row: another attempt fails, too
    data: bool = False


def query_failure_of(error: BaseException) -> QueryFailure:
    """Return the failure for an error of Spark, of a source or of a destination."""
    text, what = str(error), sentence_of(error)
    if (found := _DATA.search(text)) is not None:
        sentence, line, column = " ".join(found[2].split()).rstrip("."), found[3], found[4]
        place = f" (line {line}, column {column} of select)" if line else ""
        remedy = (
            "declare the field in schema, so that such messages go to the dead letters, or use a function that returns NULL"
            " (try_cast, try_divide, try_variant_get, try_to_timestamp)"
        )
        return QueryFailure(f"{found[1]}: {sentence}{place}", remedy, data=True)
    if (found := _REASON.search(text)) is not None:
        reason = int(found[1])
        default = "none, if the queue manager comes back" if reason in LOST else "see the reason code"
        return QueryFailure(what, _MQ_REMEDIES.get(reason, default))
    if isinstance(error, OSError):
        return QueryFailure(what, _OTHERS["OSError"])
    raised = _RAISED.findall(text.rpartition("Traceback (most recent call last):")[2])
    remedies = [_OTHERS[name] for name in raised if name in _OTHERS]
    remedies += [remedy for pattern, remedy in _JAVA.items() if pattern.search(text)]
    return QueryFailure(what, next(iter(remedies), ""))
