"""MQGMO_CONVERT: message data that is text, in the coded character set that the application asks for.

Only MQFMT_STRING is converted; all other data, and text in a character set that is not here, comes as it is with the
reason of an MQCC_WARNING. Source: IBM MQ documentation, "Data conversion", MQGMO_CONVERT.
"""

from __future__ import annotations

import msgspec

from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from bridge.wire.mq.ccsid import character_set, same_characters

#: Formats whose headers say themselves in which form they are; none is converted here, and nobody need be told.
_OWN_FORM = (
    cmqc.MQFMT_RF_HEADER_2,
    cmqc.MQFMT_XMIT_Q_HEADER,
    cmqc.MQFMT_DEAD_LETTER_HEADER,
    cmqc.MQFMT_ADMIN,
    cmqc.MQFMT_PCF,
    cmqc.MQFMT_EVENT,
)


def convert(md: MQMD, data: bytes, ccsid: int, encoding: int) -> tuple[MQMD, bytes, int]:
    """MQMD and data converted to a CCSID and Encoding, and MQRC_NONE or the reason for which they are as they were."""
    if md.Format != cmqc.MQFMT_STRING:
        same = md.Encoding == encoding and md.CodedCharSetId == ccsid
        wrong = cmqc.MQRC_NONE if same or not data or md.Format in _OWN_FORM else cmqc.MQRC_FORMAT_ERROR
        return md, data, wrong
    as_it_is = md.CodedCharSetId == ccsid and md.Encoding == encoding
    if as_it_is or same_characters(md.CodedCharSetId, ccsid):
        return md, data, cmqc.MQRC_NONE
    source, target = character_set(md.CodedCharSetId, md.Encoding), character_set(ccsid, encoding)
    if source is None:
        return md, data, cmqc.MQRC_SOURCE_CCSID_ERROR
    if target is None:
        return md, data, cmqc.MQRC_TARGET_CCSID_ERROR
    try:
        text = source.decode(data, nl_to_lf=not target.is_ebcdic)
    except UnicodeDecodeError:
        return md, data, cmqc.MQRC_NOT_CONVERTED
    converted = target.encode(text, "replace")
    return msgspec.structs.replace(md, CodedCharSetId=ccsid, Encoding=encoding), converted, cmqc.MQRC_NONE
