"""Data conversion of MQGET with MQGMO_CONVERT: headers, texts and PCF, from one CCSID and Encoding to another.

Source: IBM MQ documentation, "Data conversion", "Conversion of report messages", "Data-conversion: MQGMO_CONVERT".
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Header, MalformedHeader, byte_order_of
from bridge.wire.mq.ccsid import CharacterSet, character_set, same_characters
from bridge.wire.mq.folder import UTF_16, Folder
from bridge.wire.mq.headers import KIND_OF_FORMAT, HeaderKind, described, descriptor_of
from bridge.wire.mq.pcf import MQCFGR, MQCFSF, MQCFSL, MQCFST, PCFParameter, decode_pcf, encode_pcf

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
        descriptor = descriptor_of(header)
        inherits = descriptor.CodedCharSetId == cmqc.MQCCSI_INHERIT
        format, own = (
            descriptor.Format,
            _Form(own.ccsid if inherits else descriptor.CodedCharSetId, descriptor.Encoding),
        )
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
        text = self.converted(data)
        blank = self._sets()[1].encode(" ")
        while len(text) > len(data) and text.endswith(blank):
            text = text[: -len(blank)]
        if len(text) > len(data):
            raise _Unconverted(cmqc.MQRC_CONVERTED_STRING_TOO_BIG)
        return self.padded(text, len(data))


def _body(format: bytes, own: _Form, data: bytes, wanted: _Form) -> bytes:
    if format == cmqc.MQFMT_STRING:
        return _Text(own, wanted).converted(data)
    if format in _COMMANDS:
        header, parameters = decode_pcf(data, byte_order=byte_order_of(own.encoding, "MQCFH"))
        converted = [_parameter(parameter, own, wanted) for parameter in parameters]
        return encode_pcf(header, converted, byte_order=byte_order_of(wanted.encoding, "MQCFH"))
    raise _Unconverted(cmqc.MQRC_FORMAT_ERROR)


def _parameter(parameter: PCFParameter, own: _Form, wanted: _Form) -> PCFParameter:
    """Convert the strings of a parameter. `decode_pcf` limits the depth of groups."""
    if isinstance(parameter, MQCFGR):
        return MQCFGR(parameter.Parameter, tuple(_parameter(each, own, wanted) for each in parameter.Parameters))
    if not isinstance(parameter, MQCFST | MQCFSL | MQCFSF):
        return parameter
    text = _Text(_Form(parameter.CodedCharSetId or own.ccsid, own.encoding), wanted)
    # MQCCSI_DEFAULT is the CCSID of the message, so it does not change.
    ccsid = wanted.ccsid if parameter.CodedCharSetId else cmqc.MQCCSI_DEFAULT
    if isinstance(parameter, MQCFST):
        return msgspec.structs.replace(parameter, String=text.converted(parameter.String), CodedCharSetId=ccsid)
    if isinstance(parameter, MQCFSF):
        return msgspec.structs.replace(
            parameter, FilterValue=text.converted(parameter.FilterValue), CodedCharSetId=ccsid
        )
    strings = [text.converted(each) for each in parameter.Strings]
    width = max(map(len, strings), default=0)
    return MQCFSL(parameter.Parameter, tuple(text.padded(each, width) for each in strings), ccsid, width)
