"""Failures of a query, as an operator needs to know them: does it heal, and what is there to do."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from bridge.mq.worker import LOST
from bridge.spark.flow.faulty_rows import data_error
from bridge.spark.flow.mistake import sentence_of
from bridge.wire import cmqc

#: As an MQError, in whichever process it was raised, says its reason.
_REASON: Final = re.compile(r"\bMQRC_[A-Z0-9_]+ \((\d+)\)")
#: As a traceback of a worker, or of the process of a source, ends.
_RAISED: Final = re.compile(r"^(?:\w+\.)*(\w+)(?:: |$)", re.MULTILINE)
_WAIT: Final = "nothing is to be done if the queue manager comes back"
#: What an MQ administrator does.
_DONE_ABOUT: Final = {
    cmqc.MQRC_Q_FULL: "have its messages got, or raise its MAXDEPTH",
    cmqc.MQRC_Q_SPACE_NOT_AVAILABLE: "make room on the disk of the queue manager",
    cmqc.MQRC_RESOURCE_PROBLEM: "make room on the disk of the queue manager",
    cmqc.MQRC_STORAGE_NOT_AVAILABLE: "have waiting messages fetched, or give the queue manager more memory",
    cmqc.MQRC_PUT_INHIBITED: "ALTER the queue or topic to PUT(ENABLED)",
    cmqc.MQRC_GET_INHIBITED: "ALTER the queue to GET(ENABLED)",
    cmqc.MQRC_PUBSUB_INHIBITED: "ALTER the topic to PUB(ENABLED)",
    cmqc.MQRC_UNKNOWN_OBJECT_NAME: "define it",
    cmqc.MQRC_UNKNOWN_ALIAS_BASE_Q: "define the queue that the alias names",
    cmqc.MQRC_NOT_AUTHORIZED: "give the user of the pipeline the authority (SET AUTHREC)",
    cmqc.MQRC_OBJECT_IN_USE: "end the other application that has it open",
    cmqc.MQRC_SUBSCRIPTION_IN_USE: "end the other application that has the subscription open",
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q: "raise MAXMSGL of the queue",
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR: "raise MAXMSGL of the queue manager",
}
#: The same of what is no MQError, by the name of the exception.
_OTHERS: Final = {
    "BrokerAway": "nothing is to be done if the broker comes back",
    "NotConnected": "see that the broker runs and takes the session",
    "LinkLost": "nothing is to be done if the broker comes back",
    "SpoolBusy": "end the other process that runs this pipeline",
    "Superseded": "nothing is to be done: another attempt goes on with it",
    "PermissionError": "give the user of the pipeline access",
    "OSError": "see to the disk or the network that it names",
}
#: What Java says of a server that is away, and of one that it cannot speak to, in a stack.
_OF_JAVA: Final = {
    re.compile(r"\bjava\.net\.\w+Exception\b|\bjava\.sql\.SQL(?:Transient|Recoverable)\w*Exception\b"): (
        "nothing is to be done if the server that it names comes back"
    ),
    re.compile(r"\bNo suitable driver\b"): "name the class of its driver (options: {driver: ...}) and the jar (--jars)",
}


class QueryFailure(msgspec.Struct, frozen=True):
    """Why a query ended."""

    #: what happened, in a sentence
    what: str
    #: what there is to do about it; "": nobody knows, so that it may never heal
    remedy: str = ""
    #: it is the data of some row, as Spark says it
    data: str | None = None


def query_failure_of(error: BaseException) -> QueryFailure:
    """Return the failure that an error of Spark, of a source or of a destination tells of."""
    text, what = str(error), sentence_of(error)
    if (data := data_error(error)) is not None:
        remedy = "the SELECT cannot be made of some row: use the function with try_ that Spark names, or a WHERE"
        return QueryFailure(data, remedy, data)
    if (found := _REASON.search(text)) is not None:
        reason = int(found[1])
        waits = _WAIT if reason in LOST else "the reason code says what there is to do"
        return QueryFailure(what, _DONE_ABOUT.get(reason, waits))
    if isinstance(error, OSError):
        return QueryFailure(what, _OTHERS["OSError"])
    raised = _RAISED.findall(text.rpartition("Traceback (most recent call last):")[2])
    remedies = [_OTHERS[name] for name in raised if name in _OTHERS]
    remedies += [remedy for said, remedy in _OF_JAVA.items() if said.search(text)]
    return QueryFailure(what, next(iter(remedies), ""))
