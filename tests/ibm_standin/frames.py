"""The protocol between the library for C programs and the embedded queue manager.

A connection begins with `GREETING`. All numbers are little-endian. A request is a length (u32, without the length itself),
a verb (i32) and its fields. A reply is a length, CompCode and Reason (i32 each) and, if the call had an effect, its fields.
Bytes are an i32 length and the bytes. A length of -1 means that they are missing. A text is bytes in UTF-8.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from bridge.mq.embedded.server import Malformed
from bridge.mq.mqi import MQError

#: Its first byte is larger than the first byte of any MessagePack frame, so both protocols can share a port.
GREETING = b"MQI\x01"
#: The socket for C programs, in the queue manager's data directory.
SOCKET_NAME = "mqi.sock"
LENGTH = struct.Struct("<I")
_LONG = struct.Struct("<i")


class Verb(IntEnum):
    """The verb of a request."""

    MQCONN = 1
    MQDISC = 2
    MQOPEN = 3
    MQCLOSE = 4
    MQPUT = 5
    MQPUT1 = 6
    MQGET = 7
    MQBEGIN = 8
    MQCMIT = 9
    MQBACK = 10
    MQINQ = 11
    MQSET = 12
    MQSUB = 13
    MQSUBRQ = 14
    MQSTAT = 15
    MQBUFMH = 16
    MQMHBUF = 17
    #: MQPUT with MQPMO_ASYNC_RESPONSE: without a reply
    MQPUT_ASYNC = 18
    #: MQGET that browses with read ahead. The reply may contain several messages
    MQGET_AHEAD = 19
    #: MQPUT1 with MQPMO_ASYNC_RESPONSE: without a reply
    MQPUT1_ASYNC = 20


class Reader:
    """Reads the fields of a request in order. Raises Malformed if the request ends too early."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._position = 0

    def long(self) -> int:
        return int.from_bytes(self._take(4), "little", signed=True)

    def longs(self) -> list[int]:
        """Read an array of MQLONG."""
        raw = self.raw()
        return list(struct.unpack(f"<{len(raw) // 4}i", raw[: len(raw) // 4 * 4]))

    def raw(self) -> bytes:
        length = self.long()
        return self._take(length) if length > 0 else b""

    def text(self, reason: int) -> str:
        """Read a string. Raises MQError with `reason` if it is not UTF-8, which the queue manager could not store."""
        try:
            return self.raw().decode()
        except UnicodeDecodeError as error:
            raise MQError(reason, f"a string that is not UTF-8: {error}") from error

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._frame):
            raise Malformed(f"a request of {len(self._frame)} bytes wants {end}")
        field = self._frame[self._position : end]
        self._position = end
        return field


class Writer:
    """Collects the fields of a reply."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        #: reason code of a warning in the reply
        self.reason = 0

    def long(self, value: int) -> Writer:
        self._parts.append(_LONG.pack(value))
        return self

    def longs(self, values: list[int]) -> Writer:
        return self.raw(struct.pack(f"<{len(values)}i", *values))

    def raw(self, value: bytes | None) -> Writer:
        self._parts.append(_LONG.pack(-1 if value is None else len(value)))
        if value:
            self._parts.append(value)
        return self

    def text(self, value: str | None) -> Writer:
        return self.raw(None if value is None else value.encode())

    def frame(self, comp_code: int, reason: int) -> bytes:
        """Return the complete reply."""
        body = b"".join(self._parts)
        return struct.pack("<Iii", 8 + len(body), comp_code, reason) + body
