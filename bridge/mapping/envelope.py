"""What a message says beside its body, in whichever headers it stands: read once, each folder when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from bridge.telemetry.headers import (
    ELEMENT,
    FOLDER,
    HEADER_FORMATS,
    FolderProperties,
    folder_properties,
    hops_of,
    is_set,
    payload_format_of,
    qos_in,
    user_property_in,
)
from bridge.telemetry.message import CCSID_UTF8, Message, Publication, Unmappable
from bridge.telemetry.subscription import publication_qos
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MQXQH, RFH2, Folder, MalformedHeader, decode_chain

_NONE: Mapping[str, str] = MappingProxyType({})


class Envelope:
    """A message, walked to its body. Raises Unmappable where its headers cannot be read.

    `md` is the MQMD of the message itself: behind an MQXQH the one in it, with the Expiry of the one before. `format`,
    `encoding` and `ccsid` describe the body; a CCSID left to the queue manager is UTF-8, which the bridge writes.
    """

    __slots__ = ("_folders", "_properties", "_request", "body", "ccsid", "encoding", "format", "md")

    def __init__(self, message: Message, request: Message | None = None) -> None:
        """Walk the headers of `message` to its body.

        `request` is what is kept of the request that the message answers: where to answer is then for the request to say.
        """
        md = message.md
        self._request = Envelope(request) if request is not None else None
        self._folders: tuple[Folder, ...] = ()
        self._properties: dict[str, FolderProperties] | None = None
        if md.Format not in HEADER_FORMATS:
            self._set(md, message.data, md.Format, md.Encoding, md.CodedCharSetId)
            return
        try:
            chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, message.data)
        except MalformedHeader as error:
            raise Unmappable(cmqc.MQRC_HEADER_ERROR, f"a header of the message cannot be read: {error}") from error
        for header in chain.headers:
            if isinstance(header, RFH2):
                self._folders += header.folders
            elif isinstance(header, MQXQH):
                md = msgspec.structs.replace(header.MsgDesc, Expiry=md.Expiry)
        self._set(md, chain.body, chain.Format, chain.Encoding, chain.CodedCharSetId)

    def _set(self, md: MQMD, body: bytes, format: bytes, encoding: int, ccsid: int) -> None:
        self.md, self.body = md, body
        self.format, self.encoding, self.ccsid = format, encoding, ccsid or CCSID_UTF8

    def properties(self, folder: str) -> Mapping[str, str]:
        """Return name -> value as text of the properties in the folders of that name; empty without such a folder.

        A property in a group is `group.name`; of one that is there twice the last value counts; one that is nil is
        none. Names in the usr folder are as the bridge reads them (:mod:`bridge.telemetry.headers`).
        """
        if self._properties is None:
            self._properties = folder_properties(self._folders)
        found = self._properties.get(folder, _NONE)
        if isinstance(found, str):
            raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, found)
        return found

    @property
    def qos(self) -> int | None:
        """Return mqtt.qos, which a message has that an MQTT client published; None where it is missing."""
        try:
            return qos_in(self.properties("mqtt").get("qos"))
        except MalformedHeader as error:
            raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, error.rule) from error

    @property
    def topic(self) -> str:
        """Return mqps.Top, the topic string that the message was published to; "" for none."""
        return self.properties("mqps").get("Top", "")

    @property
    def retained(self) -> bool:
        """Return whether mqps.Ret is set."""
        return is_set(self.properties("mqps").get("Ret"))

    @property
    def expiry(self) -> float | None:
        """Return the seconds until the message expires; None: never."""
        return self.md.Expiry / 10 if self.md.Expiry >= 0 else None

    @property
    def user(self) -> bytes:
        """Return MQMD.UserIdentifier without the blanks and NULs at its end."""
        return self.md.UserIdentifier.rstrip(b" \0")

    @property
    def hops(self) -> tuple[str, ...]:
        """Return the mappings that the message came through, oldest first."""
        return hops_of(self.properties(FOLDER).get(ELEMENT, ""))

    @property
    def is_answer(self) -> bool:
        """Return whether the request is known that the message answers."""
        return self._request is not None

    @property
    def response_topic(self) -> str:
        """Return mqtt.responseTopic of the message, or for an answer that of its request; "" for none."""
        return (self._request or self).properties("mqtt").get("responseTopic", "")

    @property
    def payload_format(self) -> int | None:
        """Return the Payload Format Indicator of the body as it is."""
        said = self.properties("mqtt").get("payloadFormatIndicator")
        return int(said) if said in ("0", "1") else payload_format_of(self.format, self.ccsid)

    @property
    def correlation_data(self) -> bytes:
        """Return mqtt.correlationData where the CorrelId could not hold it, or CorrelId without the NULs at its end.

        For an answer they are those of its request.
        """
        if self._request is not None:
            return self._request.correlation_data
        text = self.properties("mqtt").get("correlationData")
        if text is None:
            return self.md.CorrelId.rstrip(b"\0")
        try:
            return bytes.fromhex(text)
        except ValueError as error:
            why = f"mqtt.correlationData is hexadecimal, not {text[:20]!r}"
            raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, why) from error


def publication_of(
    message: Message, *, topic: str | None = None, retained: bool | None = None
) -> Publication:
    """Return the publication that a message was made of, or would be: the reverse of integration table 2.

    `topic` and `retained` say what is known of them from elsewhere than the RFH2. Raises Unmappable where headers
    cannot be read.
    """
    envelope = Envelope(message)
    mqtt = envelope.properties("mqtt")
    message_id = mqtt.get("msgid", "")
    return Publication(
        topic=topic if topic is not None else envelope.topic,
        payload=envelope.body,
        qos=publication_qos(envelope.md.Persistence, envelope.qos),
        retain=retained if retained is not None else envelope.retained,
        message_id=int(message_id) if message_id.isdecimal() else 0,
        client_id=mqtt.get("clientId", ""),
        user=envelope.user,
        expiry=envelope.expiry,
        response_topic=envelope.response_topic,
        correlation_data=envelope.correlation_data,
        content_type=mqtt.get("contentType", ""),
        payload_format=envelope.payload_format,
        properties=dict(envelope.properties("usr")),
        user_property=user_property_in(mqtt.get("userProperties"), envelope.properties("usr")),
        hops=envelope.hops,
    )
