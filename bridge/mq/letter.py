"""A dead letter as a value: the message on the dead-letter queue, why it is there, and where it was to go.

Source: IBM MQ documentation, "MQDLH - Dead-letter header". What the bridge writes: `bridge.mq.dead_letters`.
"""

from __future__ import annotations

import time
from calendar import timegm
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from bridge.mq.dead_letter_reason import reason_in_words
from bridge.mqtt.topics import matches
from bridge.telemetry.headers import is_set
from bridge.telemetry.message import Message
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
)
from bridge.wire.mq.mqdlh import MQDLH_LAYOUT

_PUT_APPL_NAME_LENGTH = 28
#: Length of an MQDLH in bytes.
HEADER_LENGTH = MQDLH_LAYOUT.length


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """What a dead letter is, in facts that a terminal, a page or JSON shows.

    `id` is the MsgId in hexadecimal digits, `stamp` the PutDate and PutTime of the MQMD: both together tell letters apart
    whose MsgIds repeat (the copies of one publication), wherever they stand on the queue.
    """

    id: str
    stamp: str
    #: False: the message has no MQDLH that can be read; what the header says is empty then
    has_header: bool
    #: seconds since the epoch: when it came to the dead-letter queue, and when it was put at first; 0.0 for not known
    dead_lettered: float
    put_time: float
    reason: int = cmqc.MQRC_NONE
    reason_name: str = ""
    #: the reason in a sentence, and what to do
    what: str = "It has no MQDLH: it was put here as it is."
    advice: str = "Retry with --to QUEUE, or delete."
    #: DestQName: a queue or the beginning of a topic string; and DestQMgrName: a queue manager or a client
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
    #: of the RFH2: the client that published it, the topic, the QoS, and whether it is a retained publication
    client_id: str = ""
    topic: str = ""
    qos: int | None = None
    retained: bool = False

    @property
    def name(self) -> str:
        """Return how commands name this letter and no other."""
        return f"{self.id}@{self.stamp}"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters: those that all of these choose; what is None or empty chooses all."""

    #: `Letter.id`, or `Letter.name` where MsgIds repeat
    ids: Collection[str] = ()
    #: numbers of reasons
    reasons: Collection[int] = ()
    #: DestQName; `*` stands for any characters
    queue: str | None = None
    #: the client that published the message, or that it is bound for
    client: str | None = None
    #: topic filter of MQTT
    topic_filter: str | None = None
    #: seconds on the dead-letter queue: more, and less, than that
    older_than: float | None = None
    newer_than: float | None = None

    @property
    def is_everything(self) -> bool:
        """Return whether no letter is left out."""
        others = (self.queue, self.client, self.topic_filter, self.older_than, self.newer_than)
        return not self.ids and not self.reasons and all(one is None for one in others)

    def chooses(self, letter: Letter, now: float) -> bool:
        """Return whether a letter is among them; `now` in seconds since the epoch."""
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
    """Return the MQDLH at the front of a message; None where there is none that can be read."""
    if md.Format.rstrip(b" \0") != cmqc.MQFMT_DEAD_LETTER_HEADER.rstrip():
        return None
    try:
        return decode_mqdlh(data, 0, byte_order=byte_order_of(md.Encoding, "MQDLH"))
    except MalformedHeader:
        return None


def read_letter(md: MQMD, data: bytes, length: int) -> Letter:
    """Return the letter that a message is; `data` may be cut behind the headers, `length` is that of the whole."""
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
    # The one is when the message was put at first, the other when it came here: which is which depends on who put it here.
    other = seconds_of(header.PutDate, header.PutTime) if header is not None else put_time
    return Letter(
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
    """Return what the first RFH2 says of a publication; nothing of what cannot be read."""
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
    """Return the properties of a folder of an RFH2, by name; none where it is not there or cannot be read."""
    folder = header.folder(name)
    if folder is None:
        return {}
    try:
        return dict(folder.content)
    except MalformedHeader:
        return {}


def original_descriptor(md: MQMD, header: MQDLH) -> MQMD:
    """Return the MQMD of a message as it was before the MQDLH: what the header keeps of it is restored.

    Who put it, and when, stands in the MQMD or in the MQDLH, the other one being of whoever put it to the dead-letter
    queue: it is what is older.
    """
    origin = {}
    if 0 < seconds_of(header.PutDate, header.PutTime) < seconds_of(md.PutDate, md.PutTime):
        origin = {name: getattr(header, name) for name in ("PutApplType", "PutApplName", "PutDate", "PutTime")}
    return msgspec.structs.replace(
        md,
        Format=header.Format,
        Encoding=header.Encoding,
        CodedCharSetId=header.CodedCharSetId,
        BackoutCount=0,
        **origin,
    )


def original_of(md: MQMD, data: bytes) -> Message:
    """Return the message that a letter holds: without its MQDLH, the MQMD restored from it; else as it is."""
    header = header_of(md, data)
    if header is None:
        return Message(msgspec.structs.replace(md, BackoutCount=0), data)
    return Message(original_descriptor(md, header), data[HEADER_LENGTH:])


def with_dead_letter_time(md: MQMD, data: bytes, header: MQDLH) -> Message:
    """Return a letter whose MQDLH has the origin context (who, when) of another MQDLH of the same message."""
    own = header_of(md, data)
    assert own is not None
    origin = {name: getattr(header, name) for name in ("PutApplType", "PutApplName", "PutDate", "PutTime")}
    order = byte_order_of(md.Encoding, "MQDLH")
    return Message(md, encode_mqdlh(msgspec.structs.replace(own, **origin), byte_order=order) + data[HEADER_LENGTH:])


def transmitted(message: Message) -> tuple[MQXQH, Message] | None:
    """Return the MQXQH of a message that lay on a transmission queue, and the message in it; None for any other."""
    if message.md.Format.rstrip(b" \0") != cmqc.MQFMT_XMIT_Q_HEADER.rstrip():
        return None
    chain = decode_chain(
        message.md.Format, message.md.Encoding, message.md.CodedCharSetId, message.data, strict=False
    )
    if not chain.headers or not isinstance(header := chain.headers[0], MQXQH):
        return None
    return header, Message(header.MsgDesc, message.data[cmqc.MQXQH_LENGTH_1 :])


def characters(field: bytes) -> str:
    """Return an MQCHAR field without its padding; a NUL ends it."""
    return field.partition(b"\0")[0].decode(errors="replace").rstrip()


def put_application(name: str) -> str:
    """Return the name of an application or mapping as `Letter.put_by` has it: as much as PutApplName holds."""
    return characters(name.encode()[:_PUT_APPL_NAME_LENGTH])


def seconds_of(date: bytes, clock: bytes) -> float:
    """Return a PutDate and a PutTime, which are GMT, in seconds since the epoch; 0.0 where they are no time."""
    text = characters(date) + characters(clock)
    try:
        return timegm(time.strptime(text[:14], "%Y%m%d%H%M%S")) + int(text[14:16] or 0) / 100
    except ValueError:
        return 0.0


def _literal(pattern: str) -> str:
    """Return a pattern of fnmatch in which nothing but `*` is special."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
