"""The MQ message of a publication: kept in its parts, its RFH2 written when somebody asks for the data."""

from __future__ import annotations

import msgspec

from bridge.mapping.message import CCSID_UTF8, Message
from bridge.mapping.telemetry.folders import mqps_folder, mqtt_content
from bridge.mapping.telemetry.publish_properties import body_format, folders_of
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Folder, encode_rfh2
from bridge.wire.mqtt import PublishProperties


class PublicationMessage(msgspec.Struct, tag="p", array_like=True, gc=False):
    """The MQ message that an MQTT publication becomes (integration tables 1 to 3).

    `md` is shared by all publications of one client and persistence; what differs from message to message stands beside
    it: the topic string published to, the QoS (0 to 2) and the message id (0 where QoS is 0) of the incoming PUBLISH, and
    its payload.
    """

    md: MQMD
    client_id: str
    topic: str
    payload: bytes
    qos: int = 0
    message_id: int = 0
    #: what the publisher said beside its expiry (`publish_properties.kept`); rows of older bridges' logs end before it
    properties: PublishProperties | None = None
    #: queue and queue manager that an answer to a request from MQ goes to, instead of the topic
    reply_to: tuple[str, str] | None = None

    @property
    def data(self) -> bytes:
        """Return RFH2 and payload, as an MQ application receives them."""
        return self.data_as()

    def data_as(
        self, *, retained: bool = False, user_data: str | None = None, correl_id: bytes | None = None
    ) -> bytes:
        """Return RFH2 and payload of one delivery.

        `retained` says that the message is received as a retained publication (mqps.Ret); `user_data` is that of the
        subscription it is delivered for (mqps.Sud); `correl_id` is the CorrelId it is delivered with, None for its own.
        """
        return self._with(mqps_folder(self.topic, retained, user_data), self.md.CorrelId if correl_id is None else correl_id)

    @property
    def put_data(self) -> bytes:
        """Return the data that are handed to MQPUT.

        The mqps folder is the queue manager's to write, for each subscription. So is the CorrelId, mostly: what it was is
        in the mqtt folder.
        """
        return self._with(None, cmqc.MQCI_NONE)

    def _with(self, mqps: Folder | None, correl_id: bytes) -> bytes:
        content = mqtt_content(self.client_id, self.qos, self.message_id)
        format_ = cmqc.MQFMT_NONE
        if self.properties is None:
            folders = [Folder.build("mqtt", content)]
        else:
            folders = folders_of(self.properties, content, correl_id)
            format_ = body_format(self.properties.payload_format_indicator)
        if mqps is not None:
            folders.insert(1, mqps)
        rfh2 = RFH2(
            Encoding=cmqc.MQENC_NATIVE,
            CodedCharSetId=CCSID_UTF8,
            Format=format_,
            NameValueCCSID=CCSID_UTF8,
            folders=tuple(folders),
        )
        return encode_rfh2(rfh2) + self.payload

    @property
    def length(self) -> int:
        """Return the length in bytes of the message data without its RFH2.

        Message properties do not count against MAXMSGL.
        """
        return len(self.payload)


AnyMessage = Message | PublicationMessage
