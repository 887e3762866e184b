"""Dead-lettered messages: reading and writing them, their reasons and headers (MQDLH), and exporting them."""

from __future__ import annotations

import base64
import logging
import threading
import time
from calendar import timegm
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import msgspec

from bridge.config.queue_manager import SET_ASIDE_QUEUE
from bridge.mapping.message_view import MessageView
from bridge.mq.mqi import MQOD, Connection, MQError, inquire
from bridge.mq.worker import raise_if_lost
from bridge.mqtt.topics import matches
from bridge.telemetry.headers import Headers, is_set
from bridge.telemetry.message import CCSID_UTF8, Destination, Message, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import (
    MQDLH,
    MQMD,
    MQXQH,
    RFH2,
    MalformedHeader,
    byte_order_of,
    decode_chain,
    decode_mqdlh,
    encode_mqdlh,
    fitted_mqmd,
)
from bridge.wire.mq.headers import MQDLH_LAYOUT


class ReasonInWords(NamedTuple):
    """An explanation and advice, one sentence each."""

    what: str
    advice: str


_MAPPING: Final = (
    "Fix the message or the mapping, then retry. `mqbridge dlq export` writes the message to a file, and `mqbridge try"
    " MAPPING --message FILE` prints the exact reason."
)
_ROOM: Final = "Find out why no application reads the queue, and retry when it has room."
_SHORTER: Final = "Raise MAXMSGL (or the limit in the log) and retry, or send shorter messages."

_WORDS: Final[dict[int, tuple[str, str]]] = {
    cmqc.MQRC_NONE: ("The MQDLH contains no reason.", "Check the message and its destination."),
    cmqc.MQRC_Q_FULL: ("Its destination queue was full (MAXDEPTH).", _ROOM),
    cmqc.MQRC_Q_SPACE_NOT_AVAILABLE: (
        "No space was left: on the disk, in the backlog of the client (waiting_bytes), or for retained messages.",
        "Free some space, raise the limit, or find out why the client does not receive. Then retry.",
    ),
    cmqc.MQRC_STORAGE_MEDIUM_FULL: ("The disk of the queue manager was full.", "Free some disk space, then retry."),
    cmqc.MQRC_STORAGE_NOT_AVAILABLE: (
        "The queue manager had no memory for it.",
        "Retry. If it returns, check the queue manager's memory (limits.memory_watermark of an embedded one).",
    ),
    cmqc.MQRC_RESOURCE_PROBLEM: (
        "The queue manager lacked a resource.",
        "Check the queue manager's log, then retry.",
    ),
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q: ("It is longer than the queue allows (MAXMSGL).", _SHORTER),
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR: ("It is longer than the queue manager allows (MAXMSGL).", _SHORTER),
    cmqc.MQRC_MSG_TOO_BIG_FOR_CHANNEL: ("It is longer than the channel or the client allows.", _SHORTER),
    cmqc.MQRC_PUT_INHIBITED: (
        "Puts to its queue, or publications to its topic, were inhibited.",
        "ALTER the queue PUT(ENABLED) or the topic PUB(ENABLED), then retry.",
    ),
    cmqc.MQRC_NOT_AUTHORIZED: (
        "Its user may not put to the queue or publish to the topic, or its mapping does not allow the name in the message.",
        "Grant the authority with SET AUTHREC, or add the name to `allow` of the mapping (log line MQB5101W), and retry.",
    ),
    cmqc.MQRC_UNKNOWN_OBJECT_NAME: (
        "The queue or topic does not exist, or the request that the message answers is unknown.",
        "DEFINE the queue and retry, or retry with --to another queue.",
    ),
    cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR: (
        "No client with that identifier has a session, and no queue manager has that name.",
        "Retry after the client has connected with a durable session, or delete the message.",
    ),
    cmqc.MQRC_UNKNOWN_OBJECT_Q_MGR: (
        "The destination queue manager is unknown.",
        "DEFINE a transmission queue or a queue manager alias of that name, then retry.",
    ),
    cmqc.MQRC_UNKNOWN_ALIAS_BASE_Q: ("The target of the alias queue does not exist.", "Fix its TARGET, then retry."),
    cmqc.MQRC_Q_DELETED: ("Its queue was deleted.", "DEFINE the queue and retry, or retry with --to another."),
    cmqc.MQRC_OBJECT_NAME_ERROR: ("Its destination is not a valid queue name.", _MAPPING),
    cmqc.MQRC_OBJECT_Q_MGR_NAME_ERROR: ("Its destination is not a valid queue manager name.", _MAPPING),
    cmqc.MQRC_OBJECT_STRING_ERROR: ("Its destination is not a valid topic string.", _MAPPING),
    cmqc.MQRC_TOPIC_STRING_ERROR: (
        "Its destination is not a topic string that is valid in both MQTT and MQ.",
        _MAPPING,
    ),
    cmqc.MQRC_NO_SUBS_MATCHED: (
        "Its queue is read by one mapping only, and the filter of that mapping does not accept it.",
        _MAPPING,
    ),
    cmqc.MQRC_PUBLICATION_FAILURE: (
        "A subscription could not receive it, and PMSGDLV or NPMSGDLV of the topic requires that all subscriptions do.",
        "Find the queue that is full or inhibited, then retry. The other subscriptions receive the message again.",
    ),
    cmqc.MQRC_RFH_ERROR: ("Its MQRFH2 cannot be read.", _MAPPING),
    cmqc.MQRC_RFH_FORMAT_ERROR: ("A folder of its MQRFH2 cannot be read.", _MAPPING),
    cmqc.MQRC_RFH_DUPLICATE_PARM: ("Its MQRFH2 contains a property twice.", _MAPPING),
    cmqc.MQRC_HEADER_ERROR: ("One of its headers cannot be read.", _MAPPING),
    cmqc.MQRC_FORMAT_ERROR: (
        "Its payload does not match its Format, or a schema, a record or another step of its mapping or channel.",
        _MAPPING,
    ),
    cmqc.MQRC_DATA_LENGTH_ERROR: (
        "Its mapping needs too much time or space for its payload (split, filter).",
        _MAPPING,
    ),
    cmqc.MQRC_MD_ERROR: ("Its MQMD cannot be read.", _MAPPING),
    cmqc.MQRC_NOT_CONVERTED: ("Its text cannot be converted to the requested character set.", _MAPPING),
    cmqc.MQRC_SOURCE_CCSID_ERROR: ("Its CodedCharSetId is unknown.", _MAPPING),
    cmqc.MQRC_TARGET_CCSID_ERROR: ("The character set of the mapping is unknown.", _MAPPING),
    cmqc.MQRC_PROPERTY_NAME_ERROR: ("One of its properties has a name that is not valid in MQ.", _MAPPING),
    cmqc.MQRC_PROPERTY_NOT_AVAILABLE: (
        "It lacks a property, or its payload a field, that its mapping needs.",
        _MAPPING,
    ),
    cmqc.MQRC_PROPERTIES_TOO_BIG: ("Its properties are longer than MAXPROPL.", _SHORTER),
    cmqc.MQRC_MSG_ID_ERROR: ("Its mapping produced an invalid MsgId.", _MAPPING),
    cmqc.MQRC_CORREL_ID_ERROR: ("Its mapping produced an invalid CorrelId.", _MAPPING),
    cmqc.MQRC_MISSING_REPLY_TO_Q: ("It is a request without a reply-to queue.", _MAPPING),
    cmqc.MQRC_PERSISTENT_NOT_ALLOWED: (
        "It is persistent, and a temporary dynamic queue does not accept persistent messages.",
        "Retry with --to another queue.",
    ),
    cmqc.MQRC_UNEXPECTED_ERROR: (
        "An error in the bridge.",
        "Look for the traceback in the log of the bridge, report it, and retry.",
    ),
    cmqc.MQRC_PERSISTENCE_ERROR: ("Its Persistence is not a valid value.", _MAPPING),
    cmqc.MQRC_PRIORITY_ERROR: ("Its Priority is not a valid value.", _MAPPING),
    cmqc.MQFB_EXPIRATION: ("It expired.", "Delete it, or retry if it is still useful."),
    cmqc.MQFB_APPL_CANNOT_BE_STARTED: (
        "The trigger monitor could not start the application of its process.",
        "Fix the process definition, then retry.",
    ),
}
_OTHER: Final = (
    "Its destination rejected it with this reason.",
    "Look up the reason in the IBM MQ documentation, and retry when the cause is fixed.",
)


def reason_in_words(reason: int) -> ReasonInWords:
    """Return an explanation of a reason in an MQDLH, and advice."""
    return ReasonInWords(*_WORDS.get(reason, _OTHER))


def reason_number(text: str) -> int:
    """Return the number of a reason: `2053`, `MQRC_Q_FULL` or `Q_FULL`. Raises ValueError if it is not a reason."""
    if text.isascii() and text.isdecimal():
        return int(text)
    name = text.upper()
    for prefix in ("", "MQRC_", "MQFB_"):
        if not name.startswith("MQRCCF_") and (number := cmqc.code_numbers().get(prefix + name)) is not None:
            return number
    raise ValueError(f"{text!r} is not a reason: expected a number or a name such as MQRC_Q_FULL")


_PUT_APPL_NAME_LENGTH = 28
#: Length of an MQDLH in bytes.
HEADER_LENGTH = MQDLH_LAYOUT.length


class DeadLetterMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A dead-lettered message, as commands, the console and JSON show it.

    `id` is the MsgId in hexadecimal digits. `stamp` is the PutDate and PutTime of the MQMD, which distinguishes messages with
    equal MsgIds (the copies of one publication).
    """

    id: str
    stamp: str
    #: whether the message has a readable MQDLH. Otherwise, the fields from the header are empty
    has_header: bool
    #: when the message was dead-lettered, and when it was first put, in seconds since the epoch. 0.0 if unknown
    dead_lettered: float
    put_time: float
    reason: int = cmqc.MQRC_NONE
    reason_name: str = ""
    #: an explanation of the reason, and advice
    what: str = "It has no MQDLH."
    advice: str = "Retry with --to QUEUE, or delete."
    #: DestQName (a queue or the beginning of a topic string) and DestQMgrName (a queue manager or a client)
    destination: str = ""
    destination_queue_manager: str = ""
    #: PutApplName of the MQDLH: the mapping, or the application that put the message
    put_by: str = ""
    #: Format of the message itself
    format: str = ""
    #: length in bytes of the message without its MQDLH
    size: int = 0
    persistence: int = 0
    priority: int = 0
    user: str = ""
    backout_count: int = 0
    #: from the RFH2: the client that published it, the topic, the QoS, and whether it is a retained publication
    client_id: str = ""
    topic: str = ""
    qos: int | None = None
    retained: bool = False

    @property
    def name(self) -> str:
        """The identifier of this message in commands."""
        return f"{self.id}@{self.stamp}"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Criteria for dead-lettered messages, which must all match. None and empty criteria match every message."""

    #: `DeadLetterMessage.id`, or `DeadLetterMessage.name` if MsgIds are not unique
    ids: Collection[str] = ()
    #: numbers of reasons
    reasons: Collection[int] = ()
    #: DestQName. `*` matches any characters
    queue: str | None = None
    #: the publisher or the recipient of the message
    client: str | None = None
    #: topic filter of MQTT
    topic_filter: str | None = None
    #: minimum or maximum time on the dead-letter queue, in seconds
    older_than: float | None = None
    newer_than: float | None = None

    @property
    def is_everything(self) -> bool:
        """Whether every message matches."""
        others = (self.queue, self.client, self.topic_filter, self.older_than, self.newer_than)
        return not self.ids and not self.reasons and all(criterion is None for criterion in others)

    def chooses(self, letter: DeadLetterMessage, now: float) -> bool:
        """Return whether a message matches. `now` is in seconds since the epoch."""
        if self.ids and letter.id not in self.ids and letter.name not in self.ids:
            return False
        if self.reasons and (not letter.has_header or letter.reason not in self.reasons):
            return False
        if self.queue is not None and not fnmatchcase(letter.destination, _literal(self.queue)):
            return False
        if self.client is not None and self.client not in (letter.client_id, letter.destination_queue_manager):
            return False
        if self.topic_filter is not None and not (letter.topic and matches(self.topic_filter, letter.topic)):
            return False
        age = now - letter.dead_lettered
        if self.older_than is not None and not (letter.dead_lettered and age > self.older_than):
            return False
        return self.newer_than is None or bool(letter.dead_lettered and age < self.newer_than)


def header_of(md: MQMD, data: bytes) -> MQDLH | None:
    """Return the MQDLH of a message, or None if it has no readable one."""
    if md.Format.rstrip(b" \0") != cmqc.MQFMT_DEAD_LETTER_HEADER.rstrip():
        return None
    try:
        return decode_mqdlh(data, 0, byte_order=byte_order_of(md.Encoding, "MQDLH"))
    except MalformedHeader:
        return None


def read_letter(md: MQMD, data: bytes, length: int) -> DeadLetterMessage:
    """Return the description of a message. `data` may be truncated after the headers. `length` is the full length."""
    header = header_of(md, data)
    put_time = seconds_of(md.PutDate, md.PutTime)
    described, rest = md, data
    facts: dict[str, Any] = {}
    if header is not None:
        described = original_descriptor(md, header)
        rest = data[HEADER_LENGTH:]
        words = reason_in_words(header.Reason)
        facts = {
            "reason": header.Reason,
            "reason_name": cmqc.reason_name(header.Reason),
            "what": words.what,
            "advice": words.advice,
            "destination": characters(header.DestQName),
            "destination_queue_manager": characters(header.DestQMgrName),
            "put_by": characters(header.PutApplName),
        }
    # The later time is that of the dead-lettering. The program that did it determines which header contains the time.
    other = seconds_of(header.PutDate, header.PutTime) if header is not None else put_time
    return DeadLetterMessage(
        id=md.MsgId.hex().upper(),
        stamp=characters(md.PutDate) + characters(md.PutTime),
        has_header=header is not None,
        dead_lettered=max(put_time, other),
        put_time=min(put_time, other) or max(put_time, other),
        format=characters(described.Format),
        size=length - (HEADER_LENGTH if header is not None else 0),
        persistence=md.Persistence,
        priority=md.Priority,
        user=characters(md.UserIdentifier),
        backout_count=md.BackoutCount,
        **facts,
        **_publication(described, rest),
    )


def _publication(md: MQMD, data: bytes) -> dict[str, Any]:
    """Return the publication fields of the RFH2. Unreadable headers are ignored."""
    chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, data, strict=False)
    facts: dict[str, Any] = {}
    for header in chain.headers:
        if not isinstance(header, RFH2):
            continue
        mqtt, mqps = content_of(header, "mqtt"), content_of(header, "mqps")
        if isinstance(client_id := mqtt.get("clientId"), str):
            facts["client_id"] = client_id
        if (qos := str(mqtt.get("qos", "")).strip()) in ("0", "1", "2"):
            facts["qos"] = int(qos)
        if isinstance(topic := mqps.get("Top"), str):
            facts["topic"] = topic
        if "Ret" in mqps:
            facts["retained"] = is_set(mqps["Ret"])
    return facts


def content_of(header: RFH2, name: str) -> dict[str, object]:
    """Return the properties of a folder of an RFH2 by name, or an empty dictionary if it is missing or unreadable."""
    folder = header.folder(name)
    if folder is None:
        return {}
    try:
        return dict(folder.content)
    except MalformedHeader:
        return {}


def original_descriptor(md: MQMD, header: MQDLH) -> MQMD:
    """Return the MQMD of a message before it was dead-lettered, restored from the MQDLH.

    The MQMD and the MQDLH each contain an origin context. The older one is that of the original message.
    """
    origin = {}
    if 0 < seconds_of(header.PutDate, header.PutTime) < seconds_of(md.PutDate, md.PutTime):
        origin = _origin(header)
    return msgspec.structs.replace(
        md,
        Format=header.Format,
        Encoding=header.Encoding,
        CodedCharSetId=header.CodedCharSetId,
        BackoutCount=0,
        **origin,
    )


def original_of(md: MQMD, data: bytes) -> Message:
    """Return the original message: without its MQDLH, if it has one, and with the MQMD restored."""
    header = header_of(md, data)
    if header is None:
        return Message(msgspec.structs.replace(md, BackoutCount=0), data)
    return Message(original_descriptor(md, header), data[HEADER_LENGTH:])


def with_dead_letter_time(md: MQMD, data: bytes, former: MQMD, header: MQDLH) -> Message:
    """Return a dead-lettered message with the origin contexts of its former MQMD and MQDLH.

    The program that dead-lettered the message determines which of the two contains the time.
    """
    own = header_of(md, data)
    assert own is not None
    order = byte_order_of(md.Encoding, "MQDLH")
    again = encode_mqdlh(msgspec.structs.replace(own, **_origin(header)), byte_order=order)
    return Message(msgspec.structs.replace(md, **_origin(former)), again + data[HEADER_LENGTH:])


def _origin(header: MQMD | MQDLH) -> dict[str, Any]:
    """Return the fields of the origin context."""
    return {name: getattr(header, name) for name in ("PutApplType", "PutApplName", "PutDate", "PutTime")}


def transmitted(message: Message) -> tuple[MQXQH, Message] | None:
    """Return the MQXQH and the message of a transmission queue message, or None for any other message."""
    if message.md.Format.rstrip(b" \0") != cmqc.MQFMT_XMIT_Q_HEADER.rstrip():
        return None
    chain = decode_chain(message.md.Format, message.md.Encoding, message.md.CodedCharSetId, message.data, strict=False)
    if not chain.headers or not isinstance(header := chain.headers[0], MQXQH):
        return None
    return header, Message(header.MsgDesc, message.data[cmqc.MQXQH_LENGTH_1 :])


def characters(field: bytes) -> str:
    """Return an MQCHAR field without padding, up to the first NUL."""
    return field.partition(b"\0")[0].decode(errors="replace").rstrip()


def put_application(name: str) -> str:
    """Truncate the name of an application or mapping to the length of PutApplName."""
    return characters(name.encode()[:_PUT_APPL_NAME_LENGTH])


def seconds_of(date: bytes, clock: bytes) -> float:
    """Convert PutDate and PutTime, which are in GMT, to seconds since the epoch. Return 0.0 if they are not valid."""
    text = characters(date) + characters(clock)
    try:
        return timegm(time.strptime(text[:14], "%Y%m%d%H%M%S")) + int(text[14:16] or 0) / 100
    except ValueError:
        return 0.0


def _literal(pattern: str) -> str:
    """Return a pattern for fnmatch in which only `*` is special."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


def exported(letter: DeadLetterMessage, md: MQMD, data: bytes) -> bytes:
    """Return a message as a line of JSON: `letter` contains its description, `data` its bytes in base64."""
    view = {"letter": letter, **MessageView(md, data).json(), "data": base64.b64encode(data).decode()}
    return msgspec.json.encode(view) + b"\n"


log = logging.getLogger(__name__)

_NAME_LENGTH = 48
_OUTPUT = cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING
_PUT = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING


class OriginContext(msgspec.Struct, frozen=True):
    """Origin context of a message: the application that put it, and the time in GMT."""

    type: int
    name: bytes
    date: bytes
    time: bytes

    @classmethod
    def of(cls, md: MQMD) -> OriginContext:
        """Return the origin context of an MQMD."""
        return cls(md.PutApplType, md.PutApplName, md.PutDate, md.PutTime)

    @classmethod
    def now(cls, application: str) -> OriginContext:
        """Return the origin context of a message that an application puts now."""
        now = time.time()
        seconds = time.gmtime(now)
        clock = time.strftime("%H%M%S", seconds) + f"{int(now * 100) % 100:02d}"
        return cls(cmqc.MQAT_UNIX, application.encode()[:28], time.strftime("%Y%m%d", seconds).encode(), clock.encode())


class _Count:
    """A thread-safe counter."""

    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.value += 1


_count = _Count()


def dead_letters_made() -> int:
    """Return the number of messages that this process has dead-lettered, including units of work that were backed out."""
    return _count.value


def dead_letter(md: MQMD, data: bytes, reason: int, queue: str, queue_manager: str, origin: OriginContext) -> Message:
    """Return a message with an MQDLH. `queue` and `queue_manager` are its original destination.

    MQMD fields that are too long are truncated: older releases stored such messages, and they must not block the queue.
    """
    _count.add()
    md = fitted_mqmd(md)
    header = MQDLH(
        Reason=reason,
        DestQName=as_name(queue),
        DestQMgrName=as_name(queue_manager),
        Encoding=md.Encoding,
        CodedCharSetId=md.CodedCharSetId,
        Format=md.Format,
        PutApplType=origin.type,
        PutApplName=origin.name[:28],
        PutDate=origin.date[:8],
        PutTime=origin.time[:8],
    )
    outer = msgspec.structs.replace(
        md, Format=cmqc.MQFMT_DEAD_LETTER_HEADER, Encoding=cmqc.MQENC_NATIVE, CodedCharSetId=CCSID_UTF8
    )
    return Message(outer, encode_mqdlh(header) + data)


def as_name(name: str) -> bytes:
    """Truncate a name to a field of 48 bytes, at a character boundary. A topic string may be longer."""
    return name.encode()[:_NAME_LENGTH].decode(errors="ignore").encode()


def dead_letter_queue_of(connection: Connection) -> tuple[str, str]:
    """Return the names of the dead-letter queue (DEADQ, which may be blank) and of the queue manager. Raises MQError."""
    selectors = (cmqc.MQCA_DEAD_LETTER_Q_NAME, cmqc.MQCA_Q_MGR_NAME)
    queue, queue_manager = inquire(connection, MQOD(ObjectType=cmqc.MQOT_Q_MGR), selectors)[1]
    return queue.rstrip(" \0"), queue_manager.rstrip(" \0")


def _publisher_of(message: Message) -> dict[str, str]:
    """Return the client identifier and the topic of a message that was published, as far as its headers contain them."""
    try:
        headers = Headers(message, discard_others=True)
    except Unmappable:
        return {}
    return {name: value for name, value in (("client", headers.client_id), ("topic", headers.topic)) if value}


class DeadLetterRefused(MQError):
    """The dead-letter queue rejected a message or does not exist."""


class DeadLetters:
    """The dead-letter queue of a queue manager, as one mapping uses it.

    A mapping that takes from the dead-letter queue sets messages aside on another queue instead.
    """

    def __init__(
        self, connection: Connection, queue: str, mapping: str, source: str = "", *, taken_from: str = ""
    ) -> None:
        """Initialize without MQI calls. The queue is opened when it is first needed.

        `queue` is the name of the dead-letter queue, or "" for the one in the DEADQ attribute. The MQDLH contains `source` if
        a message has no destination. `taken_from` is the source queue of the mapping, or "" if it reads from a topic.
        """
        self._taken_from = taken_from
        self._connection = connection
        self._mapping = mapping
        self._source = source
        self._queue = queue
        self._queue_manager = ""
        self._handle: int | None = None
        self._context = 0

    def put(
        self,
        md: MQMD,
        data: bytes,
        reason: int,
        why: str,
        destination: Destination | None = None,
        *,
        source: str = "",
    ) -> None:
        """Put a message in the current unit of work.

        The MQDLH contains `reason`, the log `why` and the `source` of this message. MsgId, CorrelId and data are kept. The
        message context is kept if the bridge has SETALL authority for the queue. Messages are never truncated. Raises
        DeadLetterRefused, after which the caller must back out the unit of work, or another MQError if the connection is
        lost.
        """
        try:
            handle = self._open()
            name = self._source if destination is None else destination.name
            manager = (destination.queue_manager if destination is not None else "") or self._queue_manager
            letter = dead_letter(md, data, reason, name, manager, OriginContext.now(self._mapping))
            self._connection.put(handle, letter, _PUT | self._context)
        except MQError as error:
            raise_if_lost(error)
            self._handle = None if error.reason in _REOPEN else self._handle
            detail = error.detail
            if self._queue == SET_ASIDE_QUEUE and error.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME:
                detail += " (hint: `mqbridge mqsc-script` defines it)"
            if error.reason in _TOO_BIG:
                detail = (
                    f"{len(data)} bytes and an MQDLH of {cmqc.MQDLH_LENGTH_1} bytes exceed MAXMSGL (hint: raise"
                    " MAXMSGL of the dead-letter queue and of the queue manager, or set filter.max_size of the mapping)"
                )
            raise DeadLetterRefused(
                error.reason, f"dead-letter queue {self._queue or '(DEADQ is blank)'} rejected a message: {detail}"
            ) from error
        publisher = _publisher_of(Message(md, data))
        log.warning(
            "MQB5101W mapping %s: dead-lettered a message of %s to queue %s: %s: %s (%d)",
            self._mapping,
            ", ".join(f"{name} {value!r}" for name, value in publisher.items())
            or source
            or self._source
            or "an application",
            self._queue,
            why,
            cmqc.reason_name(reason),
            reason,
            extra={"fields": {"mapping": self._mapping, **publisher}},
        )

    @property
    def sets_aside(self) -> bool:
        """Whether the mapping's source is the dead-letter queue, so that messages go to another queue. Raises MQError."""
        if not self._queue_manager:
            try:
                self._inquire()
            except MQError as error:
                raise_if_lost(error)
                raise DeadLetterRefused(
                    error.reason, f"dead-letter queue (DEADQ is blank) rejected a message: {error.detail}"
                ) from error
        return self._queue == SET_ASIDE_QUEUE

    def _open(self) -> int:
        if self._handle is not None:
            return self._handle
        if not self._queue_manager:
            self._inquire()
        od = MQOD(ObjectName=self._queue)
        try:
            self._handle = self._connection.open(od, _OUTPUT | cmqc.MQOO_SET_ALL_CONTEXT)
            self._context = cmqc.MQPMO_SET_ALL_CONTEXT
        except MQError as error:
            if error.reason != cmqc.MQRC_NOT_AUTHORIZED:
                raise
            self._handle = self._connection.open(od, _OUTPUT)
            self._context = cmqc.MQPMO_NONE
        return self._handle

    def _inquire(self) -> None:
        """Inquire the names of the queue manager and its dead-letter queue."""
        queue, queue_manager = dead_letter_queue_of(self._connection)
        self._queue = self._queue or queue
        if not self._queue:
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, "hint: ALTER QMGR DEADQ('SYSTEM.DEAD.LETTER.QUEUE')")
        self._queue_manager = queue_manager
        if self._queue == self._taken_from:
            self._queue = SET_ASIDE_QUEUE


_TOO_BIG = frozenset((cmqc.MQRC_MSG_TOO_BIG_FOR_Q, cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR))
#: Reasons after which the queue must be opened again.
_REOPEN = frozenset((cmqc.MQRC_OBJECT_CHANGED, cmqc.MQRC_Q_DELETED, cmqc.MQRC_HOBJ_ERROR))
