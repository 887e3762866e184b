"""Conversion of stored messages to the MQMD and data that applications get."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import msgspec

from bridge.mq.embedded.property import described, leading
from bridge.mq.embedded.queue import MAX_PRIORITY, StoredMessage
from bridge.telemetry.headers import mqps_folder
from bridge.telemetry.message import CCSID_UTF8
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MQMDE, MQXQH, RFH2, byte_order_of, encode_mqmde, encode_mqxqh, encode_rfh2

#: Distinguishes the MsgId in the MQMD of an MQXQH from that in the MQMD before the MQXQH.
_EMBEDDED = 1 << 63


class Appearance:
    """Creates the MQMD and data that applications get, for one queue manager name."""

    def __init__(self, queue_manager_name: str) -> None:
        self._prefix = b"AMQ " + queue_manager_name.encode("ascii")[:12].ljust(12)

    def msg_id(self, stored: StoredMessage) -> bytes:
        """Return MQMD.MsgId: the putter's, or a generated MsgId.

        A generated MsgId is `AMQ `, twelve characters of the queue manager's name and eight unique bytes. On a transmission
        queue, the result is the MsgId in the MQXQH, which differs from that in the MQMD before it.
        """
        if stored.msg_id is not None:
            return stored.msg_id
        embedded = stored.client_id and stored.queue.is_transmission
        return self.generated(stored.msg_number | _EMBEDDED if embedded else stored.msg_number)

    def generated(self, number: int) -> bytes:
        """Return the identifier generated from a message number."""
        return self._prefix + number.to_bytes(8, "big")

    def number_of(self, msg_id: bytes) -> int:
        """Return the message number in a generated MsgId, or -1 for any other MsgId."""
        return int.from_bytes(msg_id[16:], "big") if msg_id[:16] == self._prefix else -1

    def is_matched(self, stored: StoredMessage, msg_id: bytes, correl_id: bytes) -> bool:
        """Return whether a message has this MsgId and CorrelId. Zeros match any."""
        if stored.client_id and stored.queue.is_transmission:
            own_id, own_correlation = self.generated(stored.msg_number), self.msg_id(stored)
        else:
            own_id = self.msg_id(stored)
            own_correlation = stored.correl_id if stored.correl_id is not None else stored.message.md.CorrelId
        return msg_id in (cmqc.MQMI_NONE, own_id) and correl_id in (cmqc.MQCI_NONE, own_correlation)

    def has_msg_id(self, msg_id: bytes) -> Callable[[StoredMessage], bool]:
        """Return a predicate that is equivalent to `is_matched` for a MsgId only, but faster."""
        number = self.number_of(msg_id)

        def has_it(stored: StoredMessage) -> bool:
            if stored.msg_id is None or (stored.client_id and stored.queue.is_transmission):
                return stored.msg_number == number  # also if `number` is -1
            return stored.msg_id == msg_id

        return has_it

    def descriptor(self, stored: StoredMessage) -> MQMD:
        """Return the MQMD of the message. On a transmission queue, return the MQMD in the MQXQH."""
        expiry = cmqc.MQEI_UNLIMITED
        if stored.expires_at:
            expiry = max(1, int((stored.expires_at - time.time()) * 10))
        md = stored.message.md
        if stored.put_application is not None:
            md = _with_origin(md, stored.put_time, stored.put_application)
        return msgspec.structs.replace(
            md,
            # Publications of MQTT clients have MQCCSI_Q_MGR, which is UTF-8 on this queue manager.
            CodedCharSetId=md.CodedCharSetId or CCSID_UTF8,
            MsgId=self.msg_id(stored),
            CorrelId=stored.correl_id if stored.correl_id is not None else md.CorrelId,
            Persistence=cmqc.MQPER_PERSISTENT if stored.persistent else cmqc.MQPER_NOT_PERSISTENT,
            # The queue uses the highest priority, but "the Priority field retains the value" (MQRC_PRIORITY_EXCEEDS_MAXIMUM).
            Priority=stored.priority if md.Priority <= MAX_PRIORITY else md.Priority,
            Expiry=expiry,
            BackoutCount=stored.backout_count,
        )

    def published(self, md: MQMD, msg_id: bytes, put_time: float, application: str | None) -> MQMD:
        """Return the MQMD that MQPUT of a publication returns."""
        if application is not None:
            md = _with_origin(md, put_time, application)
        return msgspec.structs.replace(md, MsgId=msg_id)

    def whole(self, stored: StoredMessage) -> tuple[MQMD, bytes]:
        """Return MQMD and data, with all properties in an RFH2 and without MQXQH."""
        return with_properties(stored, self.descriptor(stored), True)

    def seen(self, stored: StoredMessage, *, properties: bool = False) -> tuple[MQMD, bytes]:
        """Return MQMD and data as returned by MQGET.

        With `properties`, the properties of a publication are returned in an RFH2 even if its putter did not write one
        (MQGMO_PROPERTIES_FORCE_MQRFH2).
        """
        md = self.descriptor(stored)
        md, data = with_properties(stored, md, properties or stored.queue.is_transmission)
        if not stored.queue.is_transmission or not stored.client_id:
            return md, data
        embedded, data = _of_version_1(md, data)
        header = MQXQH(
            RemoteQName=stored.remote_queue.encode(), RemoteQMgrName=stored.client_id.encode(), MsgDesc=embedded
        )
        outer = MQMD(
            Format=cmqc.MQFMT_XMIT_Q_HEADER,
            CodedCharSetId=CCSID_UTF8,
            MsgId=self.generated(stored.msg_number),
            CorrelId=md.MsgId,
            Persistence=md.Persistence,
            Priority=md.Priority,
            Expiry=md.Expiry,
            UserIdentifier=md.UserIdentifier,
            BackoutCount=stored.backout_count,
            PutApplType=cmqc.MQAT_QMGR,
            PutApplName=self._prefix[4:].rstrip(),
            PutDate=md.PutDate,
            PutTime=md.PutTime,
        )
        return outer, encode_mqxqh(header) + data


def _of_version_1(md: MQMD, data: bytes) -> tuple[MQMD, bytes]:
    """Convert a message for an MQXQH, whose MQMD has version 1. An MQMDE before the data contains the fields of version 2."""
    if md.Version == cmqc.MQMD_VERSION_1:
        return md, data
    own = {name: getattr(md, name) for name in ("GroupId", "MsgSeqNumber", "Offset", "MsgFlags", "OriginalLength")}
    embedded = msgspec.structs.replace(md, Version=cmqc.MQMD_VERSION_1)
    extension = MQMDE(**own)
    if extension == MQMDE():
        return embedded, data
    extension = MQMDE(Encoding=md.Encoding, CodedCharSetId=md.CodedCharSetId, Format=md.Format, **own)
    described = {"Encoding": cmqc.MQENC_NATIVE, "CodedCharSetId": CCSID_UTF8, "Format": cmqc.MQFMT_MD_EXTENSION}
    return msgspec.structs.replace(embedded, **described), encode_mqmde(extension) + data


def _with_origin(md: MQMD, put_time: float, application: str) -> MQMD:
    """Return an MQMD with origin context: the putting application and the put time."""
    date, clock = _clock(int(put_time))
    return msgspec.structs.replace(
        md,
        PutDate=date,
        PutTime=clock + b"%02d" % (int(put_time * 100) % 100),
        PutApplType=md.PutApplType or cmqc.MQAT_UNIX,
        PutApplName=md.PutApplName or application.encode()[:28],
    )


@lru_cache(maxsize=16)
def _clock(seconds: int) -> tuple[bytes, bytes]:
    """Convert seconds since the epoch to `YYYYMMDD` and `HHMMSS` in GMT."""
    at = time.gmtime(seconds)
    return time.strftime("%Y%m%d", at).encode(), time.strftime("%H%M%S", at).encode()


def with_properties(stored: StoredMessage, md: MQMD, forced: bool) -> tuple[MQMD, bytes]:
    """Return MQMD and data of a message, with an RFH2 for the properties of a publication.

    `forced` adds the RFH2 even if the putter did not write one.
    """
    message = stored.message
    if isinstance(message, PublicationMessage):
        return md, message.data_as(retained=stored.retained, user_data=stored.user_data, correl_id=md.CorrelId)
    if stored.topic is None:
        return md, message.data
    mqps = mqps_folder(stored.topic, stored.retained, stored.user_data)
    if md.Format == cmqc.MQFMT_RF_HEADER_2:
        own = leading(md, message.data)
        if own is not None:
            header, rest = own
            folders = tuple(folder for folder in header.folders if folder.name != "mqps")
            merged = msgspec.structs.replace(header, folders=(*folders, mqps))
            return md, encode_rfh2(merged, byte_order=byte_order_of(md.Encoding, "MQRFH2")) + rest
        return md, message.data
    if not forced:
        return md, message.data
    header = RFH2(
        Encoding=md.Encoding,
        CodedCharSetId=md.CodedCharSetId,
        Format=md.Format,
        NameValueCCSID=CCSID_UTF8,
        folders=(mqps,),
    )
    return described(md), encode_rfh2(header) + message.data
