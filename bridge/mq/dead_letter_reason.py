"""Why a message is on the dead-letter queue, in words: what happened, and what to do about it.

Reasons are MQRC_ and MQFB_ numbers of the MQDLH. Source: IBM MQ documentation, "API completion and reason codes", "MQDLH -
Dead-letter header"; what the bridge itself puts there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bridge.wire import cmqc


class ReasonInWords(NamedTuple):
    """A reason for a person: one sentence each."""

    what: str
    advice: str


_MAPPING: Final = "Mend the message or the mapping (`mqbridge try` shows what the mapping makes of it), then retry."
_ROOM: Final = "See who should take its messages; retry when there is room."
_SHORTER: Final = "Raise MAXMSGL (or the limit that the log names), then retry; or have the sender send less."

_WORDS: Final[dict[int, ReasonInWords]] = {
    cmqc.MQRC_NONE: ReasonInWords("The MQDLH gives no reason.", "Look at the message and its destination."),
    cmqc.MQRC_Q_FULL: ReasonInWords("The queue that it was to go to had MAXDEPTH messages.", _ROOM),
    cmqc.MQRC_Q_SPACE_NOT_AVAILABLE: ReasonInWords(
        "There was no room for it: on the disk, or among what may wait for the client (waiting_bytes) or be retained.",
        "Make room, or raise the limit, or see why the client does not take its messages; then retry.",
    ),
    cmqc.MQRC_STORAGE_MEDIUM_FULL: ReasonInWords(
        "The disk of the queue manager was full.", "Make room on the disk, then retry."
    ),
    cmqc.MQRC_STORAGE_NOT_AVAILABLE: ReasonInWords(
        "The queue manager had no memory for it.",
        "Retry. If it returns, look at the queue manager's memory (limits.memory_watermark of an embedded one).",
    ),
    cmqc.MQRC_RESOURCE_PROBLEM: ReasonInWords(
        "The queue manager lacked a resource.", "Look into the queue manager's log, then retry."
    ),
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q: ReasonInWords("It is longer than the queue takes (MAXMSGL).", _SHORTER),
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR: ReasonInWords("It is longer than the queue manager takes (MAXMSGL).", _SHORTER),
    cmqc.MQRC_MSG_TOO_BIG_FOR_CHANNEL: ReasonInWords("It is longer than the channel or the client takes.", _SHORTER),
    cmqc.MQRC_PUT_INHIBITED: ReasonInWords(
        "Puts to its queue, or publications to its topic, were inhibited.",
        "ALTER the queue PUT(ENABLED) or the topic PUB(ENABLED), then retry.",
    ),
    cmqc.MQRC_NOT_AUTHORIZED: ReasonInWords(
        "Its user may not put to the queue, or publish to the topic.",
        "SET AUTHREC for that user, or leave it refused; then retry or delete.",
    ),
    cmqc.MQRC_UNKNOWN_OBJECT_NAME: ReasonInWords(
        "There is no such queue or topic, or the request that it answers is unknown.",
        "DEFINE the queue and retry, or retry with --to another queue.",
    ),
    cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR: ReasonInWords(
        "No client of that identifier has a session, and no queue manager has that name.",
        "Have the client connect with a durable session, then retry; or delete.",
    ),
    cmqc.MQRC_UNKNOWN_OBJECT_Q_MGR: ReasonInWords(
        "The queue manager does not know the queue manager that it was to go to.",
        "DEFINE a transmission queue or a queue manager alias of that name, then retry.",
    ),
    cmqc.MQRC_UNKNOWN_ALIAS_BASE_Q: ReasonInWords(
        "The alias queue leads to a queue that is not there.", "Mend its TARGET, then retry."
    ),
    cmqc.MQRC_Q_DELETED: ReasonInWords("Its queue was deleted.", "DEFINE the queue and retry, or retry with --to another."),
    cmqc.MQRC_OBJECT_NAME_ERROR: ReasonInWords("Its destination is no name of a queue.", _MAPPING),
    cmqc.MQRC_OBJECT_Q_MGR_NAME_ERROR: ReasonInWords("Its destination is no name of a queue manager.", _MAPPING),
    cmqc.MQRC_OBJECT_STRING_ERROR: ReasonInWords("Its destination is no topic string.", _MAPPING),
    cmqc.MQRC_TOPIC_STRING_ERROR: ReasonInWords("Its destination is no topic string that MQTT and MQ both take.", _MAPPING),
    cmqc.MQRC_NO_SUBS_MATCHED: ReasonInWords(
        "The filter of the mapping that alone takes from its queue does not match it.", _MAPPING
    ),
    cmqc.MQRC_PUBLICATION_FAILURE: ReasonInWords(
        "A subscription that must get each publication of its topic could not take it (PMSGDLV, NPMSGDLV).",
        "See which queue is full or inhibited, then retry: subscriptions that took it get it again.",
    ),
    cmqc.MQRC_RFH_ERROR: ReasonInWords("Its MQRFH2 cannot be read.", _MAPPING),
    cmqc.MQRC_RFH_FORMAT_ERROR: ReasonInWords("A folder of its MQRFH2 cannot be read.", _MAPPING),
    cmqc.MQRC_RFH_DUPLICATE_PARM: ReasonInWords("Its MQRFH2 says a property twice.", _MAPPING),
    cmqc.MQRC_HEADER_ERROR: ReasonInWords("One of its headers cannot be read.", _MAPPING),
    cmqc.MQRC_FORMAT_ERROR: ReasonInWords("Its Format is not what its data are, or is not taken here.", _MAPPING),
    cmqc.MQRC_MD_ERROR: ReasonInWords("Its MQMD cannot be read.", _MAPPING),
    cmqc.MQRC_NOT_CONVERTED: ReasonInWords("Its text cannot be converted to the character set wanted.", _MAPPING),
    cmqc.MQRC_SOURCE_CCSID_ERROR: ReasonInWords("Its CodedCharSetId is none that is known here.", _MAPPING),
    cmqc.MQRC_TARGET_CCSID_ERROR: ReasonInWords("The character set that the mapping asks for is not known.", _MAPPING),
    cmqc.MQRC_PROPERTY_NAME_ERROR: ReasonInWords("One of its properties has a name that MQ does not take.", _MAPPING),
    cmqc.MQRC_PROPERTY_NOT_AVAILABLE: ReasonInWords("It lacks a property that its mapping fills in.", _MAPPING),
    cmqc.MQRC_PROPERTIES_TOO_BIG: ReasonInWords("Its properties are longer than MAXPROPL.", _SHORTER),
    cmqc.MQRC_MSG_ID_ERROR: ReasonInWords("Its mapping makes no MsgId of it.", _MAPPING),
    cmqc.MQRC_CORREL_ID_ERROR: ReasonInWords("Its mapping makes no CorrelId of it.", _MAPPING),
    cmqc.MQRC_MISSING_REPLY_TO_Q: ReasonInWords("It is a request without a queue for the answer.", _MAPPING),
    cmqc.MQRC_PERSISTENT_NOT_ALLOWED: ReasonInWords(
        "It is persistent, and its queue (a temporary dynamic one) takes none such.", "Retry with --to another queue."
    ),
    cmqc.MQRC_UNEXPECTED_ERROR: ReasonInWords(
        "The bridge failed over it.", "Look into the bridge's log at that time, report it, and retry."
    ),
    cmqc.MQRC_PERSISTENCE_ERROR: ReasonInWords("Its Persistence is none that MQ knows.", _MAPPING),
    cmqc.MQRC_PRIORITY_ERROR: ReasonInWords("Its Priority is none that MQ knows.", _MAPPING),
    cmqc.MQFB_EXPIRATION: ReasonInWords("It expired on its way.", "Delete it, or retry where it is still of use."),
    cmqc.MQFB_APPL_CANNOT_BE_STARTED: ReasonInWords(
        "The trigger monitor could not start the application of its process.", "Mend the process definition, then retry."
    ),
}
_OTHER: Final = ReasonInWords(
    "Its destination refused it with this reason.", "IBM MQ documents the reason; retry when its cause is mended."
)


def reason_in_words(reason: int) -> ReasonInWords:
    """Return what a reason of an MQDLH means, and what to do."""
    return _WORDS.get(reason, _OTHER)


def reason_number(text: str) -> int:
    """Return the number of a reason: `2053`, `MQRC_Q_FULL` or `Q_FULL`. Raises ValueError for none."""
    if text.isascii() and text.isdecimal():
        return int(text)
    name = text.upper()
    for prefix in ("", "MQRC_", "MQFB_"):
        found = getattr(cmqc, prefix + name, None)
        if isinstance(found, int) and (prefix + name).startswith(("MQRC_", "MQFB_")):
            return found
    raise ValueError(f"{text!r} is no reason: expected a number or a name such as MQRC_Q_FULL")
