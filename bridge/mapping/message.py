"""IBM MQ messages as the bridge holds them: structured, with their bytes made only at a border.

A message leaves the process for IBM MQ, another process or the disk; only then are its headers written. Two kinds exist:
`Message`, whose data came as bytes from an MQ application, and `PublicationMessage`, made from an MQTT publication, which
keeps its parts and writes its RFH2 when somebody asks for `data`.
"""

from __future__ import annotations

import msgspec

from bridge.mapping.remembered import remembered
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Folder, Typed, Writable, encode_rfh2

#: CCSID of everything the bridge writes as characters: UTF-8.
CCSID_UTF8 = 1208


class Message(msgspec.Struct, tag="m", array_like=True, gc=False):
    """A message as an MQ application put it.

    `md` is its MQMD; `data` are the bytes that follow the MQMD: headers named by `md.Format`, then the body.
    """

    md: MQMD
    data: bytes
    #: the RFH2 at the front was made of message properties by the queue manager; an application wrote no header there
    made_rfh2: bool = False

    @property
    def put_data(self) -> bytes:
        """Return the data that are handed to MQPUT."""
        return self.data

    @property
    def length(self) -> int:
        """Return the length in bytes of the message data, as MAXMSGL counts it."""
        return len(self.data)


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

    @property
    def data(self) -> bytes:
        """Return RFH2 and payload, as an MQ application receives them."""
        return self.data_as()

    def data_as(self, *, retained: bool = False, user_data: str | None = None) -> bytes:
        """Return RFH2 and payload of one delivery.

        `retained` says that the message is received as a retained publication (mqps.Ret); `user_data` is that of the
        subscription it is delivered for (mqps.Sud).
        """
        return self._with(self._mqtt(), mqps_folder(self.topic, retained, user_data))

    @property
    def put_data(self) -> bytes:
        """Return the data that are handed to MQPUT.

        The mqps folder is the queue manager's to write, for each subscription.
        """
        return self._with(self._mqtt())

    def _mqtt(self) -> Folder:
        return _mqtt_folder(self.client_id, self.qos, self.message_id)

    def _with(self, *folders: Folder) -> bytes:
        rfh2 = RFH2(
            Encoding=cmqc.MQENC_NATIVE,
            CodedCharSetId=CCSID_UTF8,
            Format=cmqc.MQFMT_NONE,
            NameValueCCSID=CCSID_UTF8,
            folders=folders,
        )
        return encode_rfh2(rfh2) + self.payload

    @property
    def length(self) -> int:
        """Return the length in bytes of the message data without its RFH2.

        Message properties do not count against MAXMSGL.
        """
        return len(self.payload)


AnyMessage = Message | PublicationMessage


def _mqtt_folder(client_id: str, qos: int, message_id: int) -> Folder:
    content: dict[str, Writable] = {"clientId": client_id, "qos": Typed(qos, "i4")}
    if qos and message_id:  # a will has a QoS, but no message id
        content["msgid"] = Typed(message_id, "i4")
    return Folder.build("mqtt", content)


@remembered(4096)
def mqps_folder(topic: str, retained: bool, user_data: str | None) -> Folder:
    """Return the `mqps` folder of a publication: MQTopicString, MQSubUserData and MQIsRetained (integration table 2)."""
    content: dict[str, Writable] = {"Top": topic}
    if user_data is not None:
        content["Sud"] = user_data
    if retained:
        content["Ret"] = True
    return Folder.build("mqps", content)
