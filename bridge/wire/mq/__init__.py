"""The structures in front of an IBM MQ message, as pure codecs: bytes in, frozen objects out, and back.

Decoding and encoding again gives the same bytes. Whatever is wrong with bytes or values is a :class:`MalformedHeader`.
"""

from bridge.wire.mq.chain import Chain, EncodedChain, Header, decode_chain, encode_chain
from bridge.wire.mq.errors import MalformedHeader
from bridge.wire.mq.folder import Folder
from bridge.wire.mq.mqdlh import MQDLH, decode_mqdlh, encode_mqdlh
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
from bridge.wire.mq.mqxqh import MQXQH, decode_mqxqh, encode_mqxqh
from bridge.wire.mq.namevalue import Scalar, Typed, Value, Writable
from bridge.wire.mq.rfh2 import RFH2, decode_rfh2, encode_rfh2
from bridge.wire.mq.structure import Buffer, ByteOrder, byte_order_of

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
