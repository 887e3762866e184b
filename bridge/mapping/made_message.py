"""Messages built from a body and properties, for commands and the console."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bridge.telemetry.headers import property_name
from bridge.telemetry.message import CCSID_UTF8, Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Folder, encode_chain


def descriptor(
    body: bytes, *, persistent: bool, priority: int | None, expiry: int | None, ccsid: int | None = None
) -> MQMD:
    """Return the MQMD for a body: text (MQFMT_STRING) in the given CCSID or in UTF-8, otherwise MQFMT_NONE.

    Unless specified, persistence and priority are those of the queue or topic. `expiry` is in tenths of a second.
    """
    format_ = cmqc.MQFMT_STRING
    if ccsid is None:
        try:
            body.decode()
            ccsid = CCSID_UTF8
        except UnicodeDecodeError:
            format_, ccsid = cmqc.MQFMT_NONE, cmqc.MQCCSI_Q_MGR
    return MQMD(
        Format=format_,
        CodedCharSetId=ccsid,
        Persistence=cmqc.MQPER_PERSISTENT if persistent else cmqc.MQPER_PERSISTENCE_AS_Q_DEF,
        Priority=cmqc.MQPRI_PRIORITY_AS_Q_DEF if priority is None else priority,
        Expiry=cmqc.MQEI_UNLIMITED if expiry is None else expiry,
    )


def message_of(data: bytes, format_: str | None, ccsid: int | None) -> Message:
    """Return a message with the given data, Format and CCSID. None selects the values of `mqbridge mq put`."""
    md = descriptor(data, persistent=False, priority=None, expiry=None)
    if format_ is not None:
        md = msgspec.structs.replace(md, Format=format_.encode(), CodedCharSetId=CCSID_UTF8)
    if ccsid is not None:
        md = msgspec.structs.replace(md, CodedCharSetId=ccsid)
    return Message(md, data)


def with_properties(message: Message, properties: Mapping[str, str]) -> Message:
    """Return the message with these message properties, in an RFH2 before its data."""
    md = message.md
    header = RFH2(
        Format=md.Format,
        Encoding=md.Encoding,
        CodedCharSetId=md.CodedCharSetId,
        folders=(Folder.build("usr", {property_name(name): value for name, value in properties.items()}),),
    )
    format_, encoding, ccsid, data = encode_chain([header], message.data)
    return Message(msgspec.structs.replace(md, Format=format_, Encoding=encoding, CodedCharSetId=ccsid), data)
