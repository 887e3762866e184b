"""MQGMO_CONVERT: message data in the coded character set and encoding that the application asks for.

IBM MQ's built-in formats are converted: headers (MQRFH2, MQDLH, MQXQH, MQMDE) one after the other, text (MQSTR), and command
messages (MQADMIN, MQPCF, MQEVENT). Each Encoding and CodedCharSetId tells the truth about what it describes, also where a
part is left as it is. A message whose MQMD says that it is in the form asked for is not looked into. Source: IBM MQ
documentation, "Data conversion", "Processing conventions", "Conversion processing", MQGMO_CONVERT.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Header, MalformedHeader, byte_order_of
from bridge.wire.mq.ccsid import CharacterSet, character_set, same_characters
from bridge.wire.mq.chain import KIND_OF_FORMAT, Kind, described, descriptor_of
from bridge.wire.mq.folder import UTF_16, Folder
from bridge.wire.mq.pcf import MQCFGR, MQCFSF, MQCFSL, MQCFST, PCFParameter, decode_pcf, encode_pcf

#: Headers that are converted; behind so many, a message is left as it is.
_MOST_HEADERS = 64
_COMMANDS = (cmqc.MQFMT_ADMIN, cmqc.MQFMT_PCF, cmqc.MQFMT_EVENT)
#: Fixed parts of headers are read as if they were in this CCSID: ASCII.
_ASCII = 819


class _Unconverted(Exception):
    """Data stays as it is, for a reason."""

    def __init__(self, reason: int) -> None:
        super().__init__(reason)
        self.reason = reason


class _Form(NamedTuple):
    ccsid: int
    encoding: int


class _Step(NamedTuple):
    """A header, and the form that it and its characters are in."""

    kind: Kind
    header: Header
    own: _Form


def convert(md: MQMD, data: bytes, ccsid: int, encoding: int) -> tuple[MQMD, bytes, int]:
    """Return MQMD and data in a CCSID and Encoding, and MQRC_NONE or the reason for which not all of it is so."""
    wanted = _Form(ccsid, encoding)
    own = _Form(md.CodedCharSetId, md.Encoding)
    if not data or own == wanted:
        return md, data, cmqc.MQRC_NONE
    try:
        steps, format, form, offset = _headers(md.Format, own, data, wanted)
    except MalformedHeader:
        return md, data, cmqc.MQRC_FORMAT_ERROR
    except _Unconverted as error:
        return md, data, error.reason
    rest, reason = data[offset:], cmqc.MQRC_NONE
    if form != wanted and rest:
        try:
            rest, form = _body(format, form, rest, wanted), wanted
        except MalformedHeader:
            reason = cmqc.MQRC_FORMAT_ERROR
        except _Unconverted as error:
            reason = error.reason
        if steps and format == cmqc.MQFMT_NONE:
            reason = cmqc.MQRC_NONE  # bytes behind headers are meant to stay as they are
    for step in reversed(steps):
        try:
            rest, form = _header(step, form, wanted) + rest, wanted
        except (MalformedHeader, _Unconverted) as error:
            return md, data, error.reason if isinstance(error, _Unconverted) else cmqc.MQRC_FORMAT_ERROR
    return msgspec.structs.replace(md, CodedCharSetId=form.ccsid, Encoding=form.encoding), rest, reason


def _headers(format: bytes, own: _Form, data: bytes, wanted: _Form) -> tuple[list[_Step], bytes, _Form, int]:
    """Read the headers that are not in the wanted form; then Format, form and offset of what follows them."""
    steps: list[_Step] = []
    offset = 0
    while own != wanted and len(steps) < _MOST_HEADERS and (kind := KIND_OF_FORMAT.get(format)) is not None:
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
    """Return a header in the wanted form; `form` is what follows it in."""
    byte_order = byte_order_of(wanted.encoding, step.kind.structure)
    header = step.header
    if isinstance(header, RFH2):
        # Characters of folders stay in their own CCSID; of UTF-16, the byte order is the header's.
        folders = tuple(
            Folder(_swapped(one.NameValueData), one.NameValueCCSID, byte_order)
            if header.NameValueCCSID in UTF_16 and one.byte_order != byte_order
            else one
            for one in header.folders
        )
        header = msgspec.structs.replace(header, folders=folders)
    header = described(header, descriptor_of(header).Format, form.encoding, form.ccsid)
    raw = bytearray(step.kind.encode(header, byte_order=byte_order))
    _recode(step.kind, raw, _Text(_Form(_ASCII, wanted.encoding), wanted))
    return bytes(raw)


def _recode(kind: Kind, raw: bytearray, text: _Text) -> None:
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
        """Return characters in the wanted form. Raises _Unconverted."""
        if self._same:
            return data
        source, target = self._sets()
        try:
            text = source.decode(data, nl_to_lf=not target.is_ebcdic)
        except UnicodeDecodeError:
            raise _Unconverted(cmqc.MQRC_NOT_CONVERTED) from None
        return target.encode(text, "replace")

    def padded(self, data: bytes, width: int) -> bytes:
        """Return converted characters, filled up with blanks of the wanted form."""
        blank = b" " if self._same else self._sets()[1].encode(" ")
        return data + blank * ((width - len(data)) // len(blank))

    def field(self, data: bytes) -> bytes:
        """Return a field of as many bytes. Raises _Unconverted where its characters take more."""
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
        converted = [_parameter(one, own, wanted) for one in parameters]
        return encode_pcf(header, converted, byte_order=byte_order_of(wanted.encoding, "MQCFH"))
    raise _Unconverted(cmqc.MQRC_FORMAT_ERROR)


def _parameter(one: PCFParameter, own: _Form, wanted: _Form) -> PCFParameter:
    """Convert the strings of a parameter; groups are as deep as `decode_pcf` takes them."""
    if isinstance(one, MQCFGR):
        return MQCFGR(one.Parameter, tuple(_parameter(each, own, wanted) for each in one.Parameters))
    if not isinstance(one, MQCFST | MQCFSL | MQCFSF):
        return one
    text = _Text(_Form(one.CodedCharSetId or own.ccsid, own.encoding), wanted)
    # MQCCSI_DEFAULT is the CCSID of the message, and stays so.
    ccsid = wanted.ccsid if one.CodedCharSetId else cmqc.MQCCSI_DEFAULT
    if isinstance(one, MQCFST):
        return msgspec.structs.replace(one, String=text.converted(one.String), CodedCharSetId=ccsid)
    if isinstance(one, MQCFSF):
        return msgspec.structs.replace(one, FilterValue=text.converted(one.FilterValue), CodedCharSetId=ccsid)
    strings = [text.converted(each) for each in one.Strings]
    width = max(map(len, strings), default=0)
    return MQCFSL(one.Parameter, tuple(text.padded(each, width) for each in strings), ccsid, width)
