"""The one error of the MQTT codec: a packet that breaks a rule of the protocol."""

from __future__ import annotations

from .reason_codes import ReasonCode


class MalformedPacket(ValueError):
    """A packet which the protocol does not allow, met while decoding or about to be encoded.

    Before MQTT 5 there is no way to answer such a packet: the receiver closes the connection (MQTT 3.1.1 section 4.8), so
    the error is made for the log and says what was wrong, where, and who says so. MQTT 5 has a reason code as well, which a
    DISCONNECT or CONNACK may carry (section 4.13).

    Attributes:
        packet: name of the packet as in the tables of MQTT 3.1 section 2.1, for example ``"PUBLISH"``; ``"fixed header"``
            where no type is known.
        offset: offset of the offending field in bytes, counted from the first byte of the packet's fixed header; 0
            while encoding, where the packet has no bytes yet.
        rule: the broken rule, its source first: a conformance statement of MQTT 3.1.1 or 5 (``"MQTT-3.3.1-4: ..."``), or
            a section of a version (``"MQTT 3.1.1 section 2.2.3: ..."``).
        reason_code: what to tell a peer of MQTT 5: MALFORMED_PACKET for what cannot be read, PROTOCOL_ERROR for what can, but
            is not allowed (MQTT 5 section 1.2), or a code of its own that MQTT 5 has for the case.
    """

    def __init__(
        self, packet: str, offset: int, rule: str, reason_code: ReasonCode = ReasonCode.MALFORMED_PACKET
    ) -> None:
        super().__init__(packet, offset, rule)
        self.packet = packet
        self.offset = offset
        self.rule = rule
        self.reason_code = reason_code

    def __str__(self) -> str:
        return f"{self.packet} at byte {self.offset}: {self.rule}"
