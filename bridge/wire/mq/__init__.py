"""Codecs of the structures before an IBM MQ message. They convert between bytes and frozen objects.

Encoding a decoded structure returns the same bytes. Invalid bytes or values raise :class:`MalformedHeader`.
"""

from bridge.wire.mq.folder import Folder, Scalar, Typed, Value, Writable
from bridge.wire.mq.headers import (
    MQDLH,
    MQXQH,
    RFH2,
    Chain,
    EncodedChain,
    Header,
    decode_chain,
    decode_mqdlh,
    decode_mqxqh,
    decode_rfh2,
    encode_chain,
    encode_mqdlh,
    encode_mqxqh,
    encode_rfh2,
)
from bridge.wire.mq.mqmd import (
    MQLONG,
    MQMD,
    MQMDE,
    check_mqmd,
    decode_mqmd,
    decode_mqmde,
    encode_mqmd,
    encode_mqmde,
    fitted_mqmd,
)
from bridge.wire.mq.structure import Buffer, ByteOrder, MalformedHeader, byte_order_of

__all__ = [
    "MQDLH",
    "MQLONG",
    "MQMD",
    "MQMDE",
    "MQXQH",
    "RFH2",
    "Buffer",
    "ByteOrder",
    "Chain",
    "EncodedChain",
    "Folder",
    "Header",
    "MalformedHeader",
    "Scalar",
    "Typed",
    "Value",
    "Writable",
    "byte_order_of",
    "check_mqmd",
    "decode_chain",
    "decode_mqdlh",
    "decode_mqmd",
    "decode_mqmde",
    "decode_mqxqh",
    "decode_rfh2",
    "encode_chain",
    "encode_mqdlh",
    "encode_mqmd",
    "encode_mqmde",
    "encode_mqxqh",
    "encode_rfh2",
    "fitted_mqmd",
]
