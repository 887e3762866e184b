"""The MQTT packet codec: bytes to packets and back, without any input or output of its own.

MQTT 3.1 and 3.1.1 whole; of MQTT 5 publications, their acknowledgements, and the table of all properties.
"""

from .decoder import Decoder
from .encoder import encode, encode_acknowledgement, encode_publish, encode_publish_5, encode_topic
from .errors import MalformedPacket
from .packets import (
    LEVEL_MQTT_3_1,
    LEVEL_MQTT_3_1_1,
    LEVEL_MQTT_5,
    SUBACK_FAILURE,
    AcknowledgementProperties,
    ByteOrder,
    Connack,
    ConnackCode,
    Connect,
    Disconnect,
    OtherPacket,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    PublishProperties,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from .properties import decode_properties, encode_properties
from .reason_codes import FAILURE, ReasonCode, reason_name
from .remaining_length import MAX_REMAINING_LENGTH, decode_remaining_length, encode_remaining_length

__all__ = [
    "FAILURE",
    "LEVEL_MQTT_3_1",
    "LEVEL_MQTT_3_1_1",
    "LEVEL_MQTT_5",
    "MAX_REMAINING_LENGTH",
    "SUBACK_FAILURE",
    "AcknowledgementProperties",
    "ByteOrder",
    "Connack",
    "ConnackCode",
    "Connect",
    "Decoder",
    "Disconnect",
    "MalformedPacket",
    "OtherPacket",
    "Packet",
    "PacketType",
    "Pingreq",
    "Pingresp",
    "Puback",
    "Pubcomp",
    "Publish",
    "PublishProperties",
    "Pubrec",
    "Pubrel",
    "ReasonCode",
    "Suback",
    "Subscribe",
    "Unsuback",
    "Unsubscribe",
    "Will",
    "decode_properties",
    "decode_remaining_length",
    "encode",
    "encode_acknowledgement",
    "encode_properties",
    "encode_publish",
    "encode_publish_5",
    "encode_remaining_length",
    "encode_topic",
    "reason_name",
]
