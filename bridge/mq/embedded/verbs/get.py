"""MQGET: options, browsing, matching, data conversion and the result.

Source: IBM MQ documentation, "MQGET - Get message". `mqget` does not wait. Its callers do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import msgspec

from bridge.mq.embedded.appearance import Appearance
from bridge.mq.embedded.handles import INPUT, GroupPosition, QueueHandle, available, behind, joined, segments
from bridge.mq.embedded.property import COMPATIBLE_FOLDERS, leading, split
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.queuemanager import report
from bridge.mq.embedded.selector import Selection
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.mqi import GetOptions, Got, MQError, Property, TruncatedMessage
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Header, MalformedHeader, byte_order_of
from bridge.wire.mq.ccsid import CharacterSet, character_set, same_characters
from bridge.wire.mq.folder import UTF_16, Folder
from bridge.wire.mq.headers import KIND_OF_FORMAT, HeaderKind, described, descriptor_of
from bridge.wire.mq.pcf import MQCFGR, MQCFSF, MQCFSL, MQCFST, PCFParameter, decode_pcf, encode_pcf

#: Return properties in an RFH2.
ALL = "ALL"
#: Return properties in an RFH2 if one of them is in a folder used by JMS, otherwise omit them.
COMPATIBLE = "COMPAT"
NONE = "NONE"
HANDLE = "HANDLE"

#: The MQGMO_PROPERTIES_ options except AS_Q_DEF.
OPTIONS = {
    cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2: ALL,
    cmqc.MQGMO_NO_PROPERTIES: NONE,
    cmqc.MQGMO_PROPERTIES_IN_HANDLE: HANDLE,
    cmqc.MQGMO_PROPERTIES_COMPATIBILITY: COMPATIBLE,
}
_MASK = sum(OPTIONS)
#: PROPCTL -> (manner without a message handle, manner with one)
_CONTROL = {
    "ALL": (ALL, HANDLE),
    "COMPAT": (COMPATIBLE, HANDLE),
    "FORCE": (ALL, ALL),
    "NONE": (NONE, NONE),
    "V6COMPAT": (ALL, ALL),
}


def manner(options: int, control: str, handle: bool) -> str:
    """Return the manner in which to return properties.

    It depends on the MQGMO options, the queue's PROPCTL, and whether there is a message handle. Raises MQError if the options
    are contradictory.
    """
    chosen = options & _MASK
    if not chosen:
        return _CONTROL[control][handle]
    if chosen not in OPTIONS:
        raise MQError(
            cmqc.MQRC_OPTIONS_ERROR, f"MQGMO_PROPERTIES_ options 0x{chosen & 0xFFFFFFFF:x} are mutually exclusive"
        )
    return OPTIONS[chosen]


def render(appearance: Appearance, stored: StoredMessage, how: str) -> tuple[MQMD, bytes, list[Property]]:
    """Return MQMD, data and properties in a manner returned by `manner`."""
    if how == COMPATIBLE:
        how = _compatible(stored)
        if how == COMPATIBLE:
            return *appearance.seen(stored), []
    md, data = appearance.seen(stored, properties=True)
    if how == ALL:
        return md, data, []
    md, data, properties = split(md, data)
    return md, data, properties if how == HANDLE else []


def _compatible(stored: StoredMessage) -> str:
    """Return the manner for a message with PROPCTL(COMPAT). An RFH2 written by the putter is data and stays unchanged."""
    message = stored.message
    if not isinstance(message, Message) or not message.made_rfh2 or stored.queue.is_transmission:
        return COMPATIBLE
    own = leading(message.md, message.data)
    names = {folder.name for folder in own[0].folders} if own is not None else set()
    return ALL if names & COMPATIBLE_FOLDERS else NONE


#: The maximum number of marks of a handle. The oldest marks are dropped, so their messages are browsed again.
_MARK_LIMIT = 100_000


def browsed(hconn: Hconn, handle: QueueHandle, stored: StoredMessage, flags: int) -> None:
    """Update the cursor, lock and marks after browsing a message."""
    queue = handle.queue
    handle.cursor = stored
    release_lock(handle)
    if flags & cmqc.MQGMO_LOCK:
        queue.locks[stored.msg_number] = handle
        handle.locked = stored
    if flags & cmqc.MQGMO_MARK_BROWSE_HANDLE:
        if len(handle.marked) >= _MARK_LIMIT:
            handle.marked.clear()
        handle.marked.add(stored.msg_number)
    if flags & cmqc.MQGMO_MARK_BROWSE_CO_OP:
        interval = hconn.queue_manager.objects.attributes.get("MARKINT", 5_000)
        until = time.monotonic() + interval / 1000 if isinstance(interval, int) else float("inf")
        if len(queue.marks) >= _MARK_LIMIT:
            queue.marks.clear()
        queue.marks[stored.msg_number] = until


def release_lock(handle: QueueHandle) -> None:
    """Release the lock of the previous get, as every get does."""
    if handle.locked is not None:
        handle.queue.locks.pop(handle.locked.msg_number, None)
        handle.locked = None


def unlock(handle: QueueHandle) -> Got:
    """Unlock the locked message (MQGMO_UNLOCK). Raises MQError."""
    if handle.locked is None:
        raise MQError(cmqc.MQRC_NO_MSG_LOCKED, f"queue {handle.queue.name}")
    release_lock(handle)
    return Got(md=MQMD(), data=b"", ResolvedQName=handle.queue.name)


def unmark(handle: QueueHandle, options: GetOptions) -> Got:
    """Unmark the message with a token, or under the cursor (MQGMO_UNMARK_BROWSE_…). Raises MQError."""
    queue = handle.queue
    if options.MatchOptions & cmqc.MQMO_MATCH_MSG_TOKEN:
        number = int.from_bytes(options.MsgToken, "big")
    elif handle.cursor is not None:
        number = handle.cursor.msg_number
    else:
        raise MQError(cmqc.MQRC_NO_MSG_UNDER_CURSOR, f"browse queue {queue.name} first")
    handle.marked.discard(number)
    if options.Options & cmqc.MQGMO_UNMARK_BROWSE_CO_OP:
        queue.marks.pop(number, None)
    return Got(md=MQMD(), data=b"", ResolvedQName=queue.name)


def unmarked(handle: QueueHandle) -> Selection:
    """Return a predicate for messages that are not marked by this handle or, for cooperating browsers, by another."""
    marks = handle.queue.marks
    now = time.monotonic()
    co_operative = bool(handle.options & cmqc.MQOO_CO_OP)

    def is_unmarked(stored: StoredMessage) -> bool:
        if stored.msg_number in handle.marked:
            return False
        return not co_operative or marks.get(stored.msg_number, 0.0) <= now

    return is_unmarked


#: Browse options.
BROWSES = cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT | cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR
#: Options for the message under the browse cursor.
UNDER_CURSOR = cmqc.MQGMO_MSG_UNDER_CURSOR | cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR
MARKS = cmqc.MQGMO_MARK_BROWSE_HANDLE | cmqc.MQGMO_MARK_BROWSE_CO_OP
UNMARKS = cmqc.MQGMO_UNMARK_BROWSE_HANDLE | cmqc.MQGMO_UNMARK_BROWSE_CO_OP
_SYNCPOINTS = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT
#: Mutually exclusive options.
_EXCLUSIVE = (
    BROWSES | cmqc.MQGMO_MSG_UNDER_CURSOR | cmqc.MQGMO_UNLOCK,
    _SYNCPOINTS | cmqc.MQGMO_NO_SYNCPOINT,
    sum(OPTIONS),
    UNMARKS,
    cmqc.MQGMO_LOCK | cmqc.MQGMO_UNLOCK,
)
_KNOWN = (
    BROWSES
    | UNDER_CURSOR
    | MARKS
    | UNMARKS
    | _SYNCPOINTS
    | sum(OPTIONS)
    | cmqc.MQGMO_NO_SYNCPOINT
    | cmqc.MQGMO_WAIT
    | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
    | cmqc.MQGMO_LOCK
    | cmqc.MQGMO_UNLOCK
    | cmqc.MQGMO_FAIL_IF_QUIESCING
    | cmqc.MQGMO_CONVERT
    | cmqc.MQGMO_LOGICAL_ORDER
    | cmqc.MQGMO_COMPLETE_MSG
    | cmqc.MQGMO_ALL_MSGS_AVAILABLE
    | cmqc.MQGMO_ALL_SEGMENTS_AVAILABLE
    | cmqc.MQGMO_UNMARKED_BROWSE_MSG
)
_MATCHES = (
    cmqc.MQMO_MATCH_MSG_ID
    | cmqc.MQMO_MATCH_CORREL_ID
    | cmqc.MQMO_MATCH_GROUP_ID
    | cmqc.MQMO_MATCH_MSG_SEQ_NUMBER
    | cmqc.MQMO_MATCH_OFFSET
    | cmqc.MQMO_MATCH_MSG_TOKEN
)


def check_get(handle: QueueHandle, options: GetOptions) -> None:
    """Check that these options are valid for a handle. Raises MQError."""
    flags, match = options.Options, options.MatchOptions
    _check_together(flags, handle.options)
    if flags & cmqc.MQGMO_WAIT and options.WaitInterval < cmqc.MQWI_UNLIMITED:
        raise MQError(cmqc.MQRC_WAIT_INTERVAL_ERROR, f"WaitInterval {options.WaitInterval}")
    if options.MaxLength is not None and options.MaxLength < 0:
        raise MQError(cmqc.MQRC_BUFFER_LENGTH_ERROR, f"buffer length {options.MaxLength}")
    if match & ~_MATCHES:
        raise MQError(cmqc.MQRC_MATCH_OPTIONS_ERROR, f"MatchOptions 0x{match & 0xFFFFFFFF:x}")
    if match & cmqc.MQMO_MATCH_MSG_TOKEN and (flags & cmqc.MQGMO_WAIT or not any(options.MsgToken)):
        raise MQError(cmqc.MQRC_MSG_TOKEN_ERROR, "MQMO_MATCH_MSG_TOKEN requires a MsgToken and excludes MQGMO_WAIT")
    _check_opened(flags, match, handle.options)


@lru_cache(maxsize=256)
def _check_together(flags: int, opened: int) -> None:
    """Check that options are compatible. Raises MQError."""
    browse = flags & BROWSES
    unlock = flags & cmqc.MQGMO_UNLOCK
    if (
        flags & ~_KNOWN
        or any((flags & mask).bit_count() > 1 for mask in _EXCLUSIVE)
        or (flags & _SYNCPOINTS and (browse or flags & (cmqc.MQGMO_LOCK | cmqc.MQGMO_UNLOCK)))
        or (flags & (cmqc.MQGMO_LOCK | MARKS | cmqc.MQGMO_UNMARKED_BROWSE_MSG) and not browse)
        or (unlock and flags & ~(cmqc.MQGMO_UNLOCK | cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_FAIL_IF_QUIESCING))
        or (flags & (MARKS | UNMARKS) & _CO_OPS and not opened & cmqc.MQOO_CO_OP)
    ):
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQGMO options 0x{flags & 0xFFFFFFFF:x} are incompatible")


@lru_cache(maxsize=256)
def _check_opened(flags: int, match: int, opened: int) -> None:
    """Check that the open options allow a get. Raises MQError."""
    browse = flags & BROWSES
    unlock = flags & cmqc.MQGMO_UNLOCK
    if flags & cmqc.MQGMO_COMPLETE_MSG and flags & cmqc.MQGMO_LOGICAL_ORDER == 0 and match & _OFFSET:
        raise MQError(cmqc.MQRC_MATCH_OPTIONS_ERROR, "a complete message begins at offset 0")
    if (browse or unlock or flags & (cmqc.MQGMO_MSG_UNDER_CURSOR | UNMARKS)) and not opened & cmqc.MQOO_BROWSE:
        raise MQError(cmqc.MQRC_NOT_OPEN_FOR_BROWSE, "open it with MQOO_BROWSE")
    if not (browse or unlock or flags & UNMARKS) and not opened & INPUT:
        raise MQError(cmqc.MQRC_NOT_OPEN_FOR_INPUT, "open it with MQOO_INPUT_SHARED")


_CO_OPS = cmqc.MQGMO_MARK_BROWSE_CO_OP | cmqc.MQGMO_UNMARK_BROWSE_CO_OP
_OFFSET = cmqc.MQMO_MATCH_OFFSET


def matching(appearance: Appearance, options: GetOptions) -> Selection | None:
    """Return a predicate for MatchOptions, or None if any message matches."""
    match = options.MatchOptions
    msg_id = options.MsgId if match & cmqc.MQMO_MATCH_MSG_ID else cmqc.MQMI_NONE
    correl_id = options.CorrelId if match & cmqc.MQMO_MATCH_CORREL_ID else cmqc.MQCI_NONE
    group_id = options.GroupId if match & cmqc.MQMO_MATCH_GROUP_ID else cmqc.MQGI_NONE
    rest = match & (cmqc.MQMO_MATCH_MSG_SEQ_NUMBER | cmqc.MQMO_MATCH_OFFSET | cmqc.MQMO_MATCH_MSG_TOKEN)
    if not rest and group_id == cmqc.MQGI_NONE and msg_id == cmqc.MQMI_NONE and correl_id == cmqc.MQCI_NONE:
        return None
    if correl_id == cmqc.MQCI_NONE and msg_id != cmqc.MQMI_NONE:
        others = match & ~cmqc.MQMO_MATCH_CORREL_ID & ~cmqc.MQMO_MATCH_MSG_ID
        if not others:
            return appearance.has_msg_id(msg_id)
        if others == cmqc.MQMO_MATCH_MSG_TOKEN:
            has_msg_id, number = appearance.has_msg_id(msg_id), int.from_bytes(options.MsgToken, "big")
            return lambda stored: stored.msg_number == number and has_msg_id(stored)

    def is_matched(stored: StoredMessage) -> bool:
        md = stored.message.md
        return (
            appearance.is_matched(stored, msg_id, correl_id)
            and group_id in (cmqc.MQGI_NONE, md.GroupId)
            and (not match & cmqc.MQMO_MATCH_MSG_SEQ_NUMBER or md.MsgSeqNumber == options.MsgSeqNumber)
            and (not match & cmqc.MQMO_MATCH_OFFSET or md.Offset == options.Offset)
            and (not match & cmqc.MQMO_MATCH_MSG_TOKEN or token_of(stored) == options.MsgToken)
        )

    return is_matched


def token_of(stored: StoredMessage) -> bytes:
    """Return the MsgToken of a message, which is unique for this queue manager."""
    return stored.msg_number.to_bytes(16, "big")


#: Options that skip incomplete groups or logical messages.
_AVAILABLE = cmqc.MQGMO_ALL_MSGS_AVAILABLE | cmqc.MQGMO_ALL_SEGMENTS_AVAILABLE | cmqc.MQGMO_COMPLETE_MSG


def first_candidate(hconn: Hconn, handle: QueueHandle, options: GetOptions) -> StoredMessage:
    """Return the message to get. Raises MQError with MQRC_NO_MSG_AVAILABLE."""
    if options.Options & UNDER_CURSOR:
        if handle.cursor is None or not handle.cursor.linked:
            raise MQError(cmqc.MQRC_NO_MSG_UNDER_CURSOR, f"browse queue {handle.queue.name} first")
        return handle.cursor
    for stored in candidates(hconn, handle, options):
        return stored
    raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"queue {handle.queue.name}")


def candidates(hconn: Hconn, handle: QueueHandle, options: GetOptions) -> Iterator[StoredMessage]:
    """Yield the available messages that match the options of a get, in the order of gets."""
    queue_manager = hconn.queue_manager
    flags = options.Options
    queue = handle.queue
    wanted = [predicate for predicate in (matching(queue_manager.appearance, options), handle.selection) if predicate]
    if flags & cmqc.MQGMO_LOGICAL_ORDER:
        place = GroupPosition() if flags & cmqc.MQGMO_BROWSE_FIRST else handle.got_place
        wanted.append(lambda stored: place.is_next(stored.message.md))
    if flags & cmqc.MQGMO_UNMARKED_BROWSE_MSG:
        wanted.append(unmarked(handle))
    if queue.locks:
        wanted.append(lambda stored: queue.locks.get(stored.msg_number, handle) is handle)
    if flags & cmqc.MQGMO_COMPLETE_MSG:
        wanted.append(lambda stored: not stored.message.md.Offset)
    if flags & _AVAILABLE:
        wanted.append(available(queue, groups=bool(flags & cmqc.MQGMO_ALL_MSGS_AVAILABLE)))
    messages = queue.messages()
    if flags & cmqc.MQGMO_BROWSE_NEXT:
        messages = queue.after(handle.cursor, handle.before)
    elif options.MatchOptions & cmqc.MQMO_MATCH_MSG_ID and queue.is_transmission:
        # Optimize the search for one message in a long queue.
        number = queue_manager.appearance.number_of(options.MsgId)
        messages = queue.numbered(number) if number >= 0 else messages
    elif options.MatchOptions & cmqc.MQMO_MATCH_MSG_TOKEN:
        number = int.from_bytes(options.MsgToken, "big")
        messages = (stored for stored in messages if stored.msg_number == number)
    for stored in messages:
        if stored.expires_at and stored.expired:
            queue_manager.discard(stored)
            continue
        for predicate in wanted:
            if not predicate(stored):
                break
        else:
            yield stored


#: The maximum number of headers to convert.
_MAX_HEADERS = 64
_COMMANDS = (cmqc.MQFMT_ADMIN, cmqc.MQFMT_PCF, cmqc.MQFMT_EVENT)
#: The CCSID (ASCII) to which the fixed parts of headers are converted for parsing.
_ASCII = 819


class _Unconverted(Exception):
    """Data cannot be converted, with the reason code."""

    def __init__(self, reason: int) -> None:
        super().__init__(reason)
        self.reason = reason


class _Form(NamedTuple):
    ccsid: int
    encoding: int


class _Step(NamedTuple):
    """A header, and its encoding and CCSID."""

    kind: HeaderKind
    header: Header
    own: _Form


def convert(md: MQMD, data: bytes, ccsid: int, encoding: int) -> tuple[MQMD, bytes, int]:
    """Convert MQMD and data to a CCSID and Encoding. Also return MQRC_NONE, or why the conversion is incomplete."""
    wanted = _Form(ccsid, encoding)
    own = _Form(md.CodedCharSetId, md.Encoding)
    if not data or own == wanted:
        return md, data, cmqc.MQRC_NONE
    try:
        steps, format, form, offset = _headers(md.Format, own, data, wanted)
    except (MalformedHeader, _Unconverted) as error:
        return md, data, _reason(error)
    rest, reason = data[offset:], cmqc.MQRC_NONE
    if form != wanted and rest:
        try:
            rest, form = _body(format, form, rest, wanted), wanted
        except (MalformedHeader, _Unconverted) as error:
            # Binary data after headers is not converted.
            reason = cmqc.MQRC_NONE if steps and format == cmqc.MQFMT_NONE else _reason(error)
    for step in reversed(steps):
        try:
            rest, form = _header(step, form, wanted) + rest, wanted
        except (MalformedHeader, _Unconverted) as error:
            return md, data, _reason(error)
    return msgspec.structs.replace(md, CodedCharSetId=form.ccsid, Encoding=form.encoding), rest, reason


def _reason(error: Exception) -> int:
    return error.reason if isinstance(error, _Unconverted) else cmqc.MQRC_FORMAT_ERROR


def _headers(format: bytes, own: _Form, data: bytes, wanted: _Form) -> tuple[list[_Step], bytes, _Form, int]:
    """Return the headers to convert, and the Format, form and offset of the data after them."""
    steps: list[_Step] = []
    offset = 0
    while own != wanted and len(steps) < _MAX_HEADERS and (kind := KIND_OF_FORMAT.get(format)) is not None:
        raw = bytearray(data[offset:])
        _recode(kind, raw, _Text(own, _Form(_ASCII, own.encoding)))
        header: Header = kind.decode(raw, 0, byte_order=byte_order_of(own.encoding, kind.structure))
        steps.append(_Step(kind, header, own))
        offset += header.StrucLength if isinstance(header, RFH2) else kind.length or 0
        told = descriptor_of(header)
        inherits = told.CodedCharSetId == cmqc.MQCCSI_INHERIT
        format, own = told.Format, _Form(own.ccsid if inherits else told.CodedCharSetId, told.Encoding)
    return steps, format, own, offset


def _header(step: _Step, form: _Form, wanted: _Form) -> bytes:
    """Return a header in the wanted form. `form` is the form of the data after it."""
    byte_order = byte_order_of(wanted.encoding, step.kind.structure)
    header = step.header
    if isinstance(header, RFH2):
        # Folders keep their own CCSID. The byte order of UTF-16 is that of the header.
        folders = tuple(
            Folder(_swapped(folder.NameValueData), folder.NameValueCCSID, byte_order)
            if header.NameValueCCSID in UTF_16 and folder.byte_order != byte_order
            else folder
            for folder in header.folders
        )
        header = msgspec.structs.replace(header, folders=folders)
    header = described(header, descriptor_of(header).Format, form.encoding, form.ccsid)
    raw = bytearray(step.kind.encode(header, byte_order=byte_order))
    _recode(step.kind, raw, _Text(_Form(_ASCII, wanted.encoding), wanted))
    return bytes(raw)


def _recode(kind: HeaderKind, raw: bytearray, text: _Text) -> None:
    """Convert the characters in the fixed part of a header, in place."""
    for layout, begin in kind.layouts:
        for offset, width in layout.characters:
            place = slice(begin + offset, begin + offset + width)
            if place.stop > len(raw):
                raise _Unconverted(cmqc.MQRC_FORMAT_ERROR)
            raw[place] = text.field(bytes(raw[place]))


def _swapped(data: bytes) -> bytes:
    swapped = bytearray(data)
    swapped[0::2], swapped[1::2] = data[1::2], data[0::2]
    return bytes(swapped)


class _Text:
    """Converts characters from one form to another."""

    def __init__(self, own: _Form, wanted: _Form) -> None:
        self._same = same_characters(own.ccsid, wanted.ccsid)
        self._own, self._wanted = own, wanted

    def _sets(self) -> tuple[CharacterSet, CharacterSet]:
        source, target = character_set(*self._own), character_set(*self._wanted)
        if source is None:
            raise _Unconverted(cmqc.MQRC_SOURCE_CCSID_ERROR)
        if target is None:
            raise _Unconverted(cmqc.MQRC_TARGET_CCSID_ERROR)
        return source, target

    def converted(self, data: bytes) -> bytes:
        """Convert characters. Raises _Unconverted."""
        if self._same:
            return data
        source, target = self._sets()
        try:
            text = source.decode(data, nl_to_lf=not target.is_ebcdic)
        except UnicodeDecodeError:
            raise _Unconverted(cmqc.MQRC_NOT_CONVERTED) from None
        return target.encode(text, "replace")

    def padded(self, data: bytes, width: int) -> bytes:
        """Pad converted characters with blanks to a length in bytes."""
        blank = b" " if self._same else self._sets()[1].encode(" ")
        return data + blank * ((width - len(data)) // len(blank))

    def field(self, data: bytes) -> bytes:
        """Convert a field of fixed length. Raises _Unconverted if the result is too long."""
        if self._same:
            return data
        found = self.converted(data)
        blank = self._sets()[1].encode(" ")
        while len(found) > len(data) and found.endswith(blank):
            found = found[: -len(blank)]
        if len(found) > len(data):
            raise _Unconverted(cmqc.MQRC_CONVERTED_STRING_TOO_BIG)
        return self.padded(found, len(data))


def _body(format: bytes, own: _Form, data: bytes, wanted: _Form) -> bytes:
    if format == cmqc.MQFMT_STRING:
        return _Text(own, wanted).converted(data)
    if format in _COMMANDS:
        header, parameters = decode_pcf(data, byte_order=byte_order_of(own.encoding, "MQCFH"))
        converted = [_parameter(parameter, own, wanted) for parameter in parameters]
        return encode_pcf(header, converted, byte_order=byte_order_of(wanted.encoding, "MQCFH"))
    raise _Unconverted(cmqc.MQRC_FORMAT_ERROR)


def _parameter(one: PCFParameter, own: _Form, wanted: _Form) -> PCFParameter:
    """Convert the strings of a parameter. `decode_pcf` limits the depth of groups."""
    if isinstance(one, MQCFGR):
        return MQCFGR(one.Parameter, tuple(_parameter(each, own, wanted) for each in one.Parameters))
    if not isinstance(one, MQCFST | MQCFSL | MQCFSF):
        return one
    text = _Text(_Form(one.CodedCharSetId or own.ccsid, own.encoding), wanted)
    # MQCCSI_DEFAULT is the CCSID of the message, so it does not change.
    ccsid = wanted.ccsid if one.CodedCharSetId else cmqc.MQCCSI_DEFAULT
    if isinstance(one, MQCFST):
        return msgspec.structs.replace(one, String=text.converted(one.String), CodedCharSetId=ccsid)
    if isinstance(one, MQCFSF):
        return msgspec.structs.replace(one, FilterValue=text.converted(one.FilterValue), CodedCharSetId=ccsid)
    strings = [text.converted(each) for each in one.Strings]
    width = max(map(len, strings), default=0)
    return MQCFSL(one.Parameter, tuple(text.padded(each, width) for each in strings), ccsid, width)


def manner_of(handle: QueueHandle, options: GetOptions) -> str:
    """Return the manner in which a get returns properties. Raises MQError."""
    attributes = handle.attributes if handle.kind == "QALIAS" else handle.queue.attributes
    return manner(options.Options, str(attributes["PROPCTL"]), bool(options.MsgHandle))


def get_result(hconn: Hconn, handle: QueueHandle, parts: Sequence[StoredMessage], options: GetOptions, how: str) -> Got:
    """Return the result for a message or its segments. Raises TruncatedMessage."""
    flags = options.Options
    stored, *rest = parts
    queue_manager = hconn.queue_manager
    appearance = queue_manager.appearance
    md, data, properties = render(appearance, stored, how)
    if rest:
        md, data = joined(md, data, (appearance.seen(one)[1] for one in rest))
    reason = cmqc.MQRC_NONE
    room = options.MaxLength
    if flags & cmqc.MQGMO_CONVERT and (room is None or len(data) <= room):
        wanted = options.CodedCharSetId
        own = int(queue_manager.objects.attributes["CCSID"])
        converted = convert(md, data, wanted if wanted > 0 else own, options.Encoding)
        if room is not None and len(converted[1]) > room and not flags & cmqc.MQGMO_ACCEPT_TRUNCATED_MSG:
            reason = cmqc.MQRC_CONVERTED_MSG_TOO_BIG  # return it unconverted, because that fits
        else:
            md, data, reason = converted
    length = len(data)
    got = Got(
        md=md,
        data=data,
        ResolvedQName=handle.queue.name,
        DataLength=length,
        Reason=reason,
        MsgToken=token_of(stored),
        ReturnedLength=length,
        GroupStatus=_group_status(md),
        SegmentStatus=_segment_status(md),
        Segmentation=b"A" if md.MsgFlags & cmqc.MQMF_SEGMENTATION_ALLOWED else b" ",
        properties=properties,
    )
    if room is None or length <= room:
        return got
    got.data = data[:room]
    got.ReturnedLength = room
    got.Reason = cmqc.MQRC_TRUNCATED_MSG_ACCEPTED
    if not flags & cmqc.MQGMO_ACCEPT_TRUNCATED_MSG:
        if flags & cmqc.MQGMO_BROWSE_FIRST:
            handle.cursor = None  # "positioned logically before the highest-priority message" (MQRC 2080)
        got.Reason = cmqc.MQRC_TRUNCATED_MSG_FAILED
        raise TruncatedMessage(got, f"{length} bytes, the buffer has {room}")
    return got


def _group_status(md: MQMD) -> bytes:
    if md.MsgFlags & cmqc.MQMF_LAST_MSG_IN_GROUP:
        return cmqc.MQGS_LAST_MSG_IN_GROUP
    return cmqc.MQGS_MSG_IN_GROUP if md.MsgFlags & cmqc.MQMF_MSG_IN_GROUP else cmqc.MQGS_NOT_IN_GROUP


def _segment_status(md: MQMD) -> bytes:
    if md.MsgFlags & cmqc.MQMF_LAST_SEGMENT:
        return cmqc.MQSS_LAST_SEGMENT
    return cmqc.MQSS_SEGMENT if md.MsgFlags & cmqc.MQMF_SEGMENT else cmqc.MQSS_NOT_A_SEGMENT


def mqget(hconn: Hconn, hobj: int, options: GetOptions) -> tuple[Got, Unit | None]:
    """Get a message, without waiting. Return it, and the unit of work to submit.

    Raises MQError, with MQRC_NO_MSG_AVAILABLE if there is no message.
    """
    handle = ready_handle(hconn, hobj, options)
    flags = options.Options
    if flags & cmqc.MQGMO_UNLOCK:
        return unlock(handle), None
    how = manner_of(handle, options)
    if flags & UNMARKS and not flags & BROWSES:
        return unmark(handle, options), None
    stored = first_candidate(hconn, handle, options)
    browse = bool(flags & BROWSES)
    syncpoint = bool(flags & cmqc.MQGMO_SYNCPOINT) or (
        stored.persistent and bool(flags & cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT)
    )
    place, in_order = handle.got_place, bool(flags & cmqc.MQGMO_LOGICAL_ORDER)
    if in_order and not browse:
        place.check(syncpoint)
    unit = hconn.unit_of_work() if syncpoint else Unit()
    parts = segments(handle.queue, stored) if flags & cmqc.MQGMO_COMPLETE_MSG else [stored]
    got = get_result(hconn, handle, parts, options, how)
    if in_order:
        handle.got_place = behind(stored, whole=bool(flags & cmqc.MQGMO_COMPLETE_MSG))
        handle.got_place.syncpoint = None if browse else syncpoint
    elif place.unfinished:
        handle.got_place = GroupPosition()
        got.Reason = got.Reason or place.unfinished
    if browse:
        browsed(hconn, handle, stored, flags)
        return got, None
    if handle.options & cmqc.MQOO_SAVE_ALL_CONTEXT:
        handle.context = got.md
    take(hconn, handle, parts, unit)
    return got, None if syncpoint else unit


Result = TypeVar("Result")


class WaitingGet(Generic[Result]):
    """A get that is repeated when messages arrive. Call the methods with the queue manager's lock held."""

    def __init__(
        self, hconn: Hconn, hobj: int, options: GetOptions, get: Callable[[], Result], arrived: Callable[[], None]
    ) -> None:
        """`get` calls `mqget`. `arrived` is called on any thread to request another attempt."""
        self._hconn = hconn
        self._hobj = hobj
        self._waits = bool(options.Options & cmqc.MQGMO_WAIT)
        self._get = get
        self._arrived = arrived
        self._waiters: list[Callable[[], None]] = []

    def attempt(self, *, last: bool = False) -> Result | None:
        """Return a message, or None if there is none yet. Raises MQError; MQRC_NO_MSG_AVAILABLE if it does not wait."""
        self.cancel()
        try:
            return self._get()
        except MQError as error:
            if last or not self._waits or error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                raise
        self._waiters = self._hconn.find_queue(self._hobj).queue.waiters
        self._waiters.append(self._arrived)
        return None

    def cancel(self) -> bool:
        """Stop waiting. Return False if a message has arrived, or if the get did not wait."""
        if self._arrived not in self._waiters:
            return False
        self._waiters.remove(self._arrived)
        return True


def ready_handle(hconn: Hconn, hobj: int, options: GetOptions) -> QueueHandle:
    """Return the handle, after checking that it and its queue allow a get with these options. Raises MQError."""
    handle = hconn.find_queue(hobj)
    check_get(handle, options)
    hconn.check_quiescing(options.Options)
    queue = handle.queue
    if queue.deleted:
        raise MQError(cmqc.MQRC_Q_DELETED, f"queue {queue.name}")
    if queue.attributes["GET"] != "ENABLED" or not handle.destination.get_enabled:
        raise MQError(cmqc.MQRC_GET_INHIBITED, f"queue {queue.name} has GET(DISABLED)")
    return handle


def take(hconn: Hconn, handle: QueueHandle, parts: Sequence[StoredMessage], unit: Unit) -> None:
    """Remove a message, or its segments, from the queue in a unit of work."""
    release_lock(handle)
    for part in parts:
        if part is handle.cursor:
            handle.before = part.previous
        handle.queue.take(part)
        handle.marked.discard(part.msg_number)
        unit.gets.append(part)
    # "This prevents a COA or COD report message being generated when a message is placed on or removed from a transmission
    # queue" (IBM MQ documentation, "Overview for MQXQH").
    if parts[0].message.md.Report and not parts[0].client_id:
        report(hconn.queue_manager, unit, parts[0], cmqc.MQFB_COD)
