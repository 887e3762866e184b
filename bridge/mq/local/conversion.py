"""MQGMO_CONVERT: message data that is text, in the coded character set that the application asks for.

Only MQFMT_STRING is converted; all other data, and text in a character set that is not here, comes as it is with the
reason of an MQCC_WARNING. Source: IBM MQ documentation, "Data conversion", MQGMO_CONVERT.
"""

from __future__ import annotations

import codecs

import msgspec

from bridge.wire import cmqc
from bridge.wire.mq import MQMD

_CODECS = {
    1208: "utf-8",
    819: "latin-1",
    367: "ascii",
    5348: "cp1252",
    923: "iso8859-15",
    943: "cp932",
    954: "euc_jp",
    970: "euc_kr",
    1386: "gbk",
    5488: "gb18030",
}
#: Formats whose headers say themselves in which form they are; none is converted here, and nobody need be told.
_OWN_FORM = (
    cmqc.MQFMT_RF_HEADER_2,
    cmqc.MQFMT_XMIT_Q_HEADER,
    cmqc.MQFMT_DEAD_LETTER_HEADER,
    cmqc.MQFMT_ADMIN,
    cmqc.MQFMT_PCF,
    cmqc.MQFMT_EVENT,
)
#: UTF-16, in the byte order of the Encoding.
_UTF_16 = (1200, 13488, 17584)


def _codec(ccsid: int, encoding: int) -> str | None:
    if ccsid in _UTF_16:
        little = encoding & cmqc.MQENC_INTEGER_MASK == cmqc.MQENC_INTEGER_REVERSED
        return "utf-16-le" if little else "utf-16-be"
    try:
        return codecs.lookup(_CODECS.get(ccsid, f"cp{ccsid:03d}")).name
    except LookupError:
        return None


def convert(md: MQMD, data: bytes, ccsid: int, encoding: int) -> tuple[MQMD, bytes, int]:
    """MQMD and data converted to a CCSID and Encoding, and MQRC_NONE or the reason for which they are as they were."""
    same_order = md.CodedCharSetId not in _UTF_16 or md.Encoding == encoding
    if md.Format != cmqc.MQFMT_STRING:
        same = md.Encoding == encoding and md.CodedCharSetId == ccsid
        wrong = cmqc.MQRC_NONE if same or not data or md.Format in _OWN_FORM else cmqc.MQRC_FORMAT_ERROR
        return md, data, wrong
    if md.CodedCharSetId == ccsid and same_order:
        return md, data, cmqc.MQRC_NONE
    source, target = _codec(md.CodedCharSetId, md.Encoding), _codec(ccsid, encoding)
    if source is None:
        return md, data, cmqc.MQRC_SOURCE_CCSID_ERROR
    if target is None:
        return md, data, cmqc.MQRC_TARGET_CCSID_ERROR
    try:
        converted = data.decode(source).encode(target, "replace")
    except UnicodeDecodeError:
        return md, data, cmqc.MQRC_NOT_CONVERTED
    return msgspec.structs.replace(md, CodedCharSetId=ccsid, Encoding=encoding), converted, cmqc.MQRC_NONE
