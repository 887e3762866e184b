"""The server's packets on one connection: commands in, bytes out; no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from bridge.mqtt.connection_state import State
from bridge.mqtt.topic_aliases import OutgoingTopicAliases
from bridge.wire.mqtt import (
    LEVEL_MQTT_5,
    AcknowledgementProperties,
    Auth,
    AuthProperties,
    ByteOrder,
    Connack,
    ConnackCode,
    ConnackProperties,
    Disconnect,
    DisconnectProperties,
    PacketType,
    Pingresp,
    Puback,
    Pubcomp,
    PublishProperties,
    Pubrec,
    Pubrel,
    ReasonCode,
    Suback,
    Unsuback,
    encode,
    encode_acknowledgement,
    encode_properties,
    encode_publish,
    encode_publish_5,
)
from bridge.wire.mqtt.reason_codes import FROM_SERVER

_PINGRESP: Final = encode(Pingresp())
#: Properties of MQTT 5 where there are none.
_NO_PROPERTIES: Final = b"\0"
_CONNECTED: Final = State.CONNECTED
_DISCONNECTING: Final = State.DISCONNECTING
#: Why a connection ends that its client may be told in words: the fault is its own. Other reasons may speak of others.
_FAULTS: Final = frozenset(
    (
        ReasonCode.MALFORMED_PACKET,
        ReasonCode.PROTOCOL_ERROR,
        ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
        ReasonCode.TOPIC_ALIAS_INVALID,
        ReasonCode.PACKET_TOO_LARGE,
        ReasonCode.QUOTA_EXCEEDED,
    )
)
_ACKNOWLEDGEMENTS: Final[dict[PacketType, type[Puback | Pubrec | Pubrel | Pubcomp]]] = {
    PacketType.PUBACK: Puback,
    PacketType.PUBREC: Pubrec,
    PacketType.PUBREL: Pubrel,
    PacketType.PUBCOMP: Pubcomp,
}
_REFUSALS: Final = FROM_SERVER[PacketType.CONNACK] - {ReasonCode.SUCCESS}
#: An answer to a packet about messages: its type, and its message id (0 for PINGRESP).
Answer = tuple[PacketType, int]
#: A reason code of MQTT 5, and in words why; "" for no words.
Reason = tuple[ReasonCode, str]
#: Return codes of CONNACK before MQTT 5, as reason codes.
REASON_CODES: Final = {
    ConnackCode.UNACCEPTABLE_PROTOCOL_VERSION: ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ConnackCode.IDENTIFIER_REJECTED: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ConnackCode.SERVER_UNAVAILABLE: ReasonCode.SERVER_UNAVAILABLE,
    ConnackCode.BAD_USER_NAME_OR_PASSWORD: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ConnackCode.NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
}


class Output:
    """What the server says on one connection; `bridge.mqtt.protocol.ServerProtocol` is the whole of it."""

    __slots__ = (
        "_challenged",
        "_last_words",
        "_out",
        "_outgoing_aliases",
        "authentication_method",
        "byte_order",
        "ended",
        "keep_alive",
        "level",
        "max_packet_size",
        "problem_information",
        "state",
    )

    def __init__(self, byte_order: ByteOrder) -> None:
        self.state = State.WAITING_FOR_CONNECT
        self.byte_order: ByteOrder = byte_order
        #: seconds as CONNECT gives them, or CONNACK; 0 for none
        self.keep_alive = 0
        #: protocol level of CONNECT; 0 before it
        self.level = 0
        #: nothing more is taken of what the client sends
        self.ended = False
        #: longest packet in bytes that the client takes; 0 for any (MQTT 5 section 3.1.2.11.4)
        self.max_packet_size = 0
        #: the client wants to be told why (MQTT 5 section 3.1.2.11.7)
        self.problem_information = True
        #: Authentication Method of CONNECT; None: there is no enhanced authentication (MQTT 5 section 4.12)
        self.authentication_method: str | None = None
        #: an AUTH of the client is awaited
        self._challenged = False
        self._outgoing_aliases: OutgoingTopicAliases | None = None
        self._out: list[bytes] = []
        #: what was written before `disconnect`, while it is not taken yet
        self._last_words = b""

    def accepted(self, session_present: bool, properties: ConnackProperties | None) -> None:
        """Write CONNACK 0.

        A Server Keep Alive among the properties takes the place of the client's (MQTT-3.2.2-21).
        """
        self.state = _CONNECTED
        if properties is not None and properties.server_keep_alive is not None:
            self.keep_alive = properties.server_keep_alive
        connack = Connack(ConnackCode.ACCEPTED, session_present and self.level >= 4, properties)
        self._out.append(encode(connack, self.byte_order, self.level))

    def admits(self, properties: ConnackProperties | None) -> bool:
        """Return whether a CONNACK 0 is no longer than the client's Maximum Packet Size (MQTT-3.1.2-24)."""
        if not self.max_packet_size:
            return True
        connack = Connack(ConnackCode.ACCEPTED, properties=properties)
        return len(encode(connack, "big", self.level)) <= self.max_packet_size

    def refuse(self, code: ConnackCode, why: str = "", reason_code: ReasonCode | None = None) -> None:
        """Answer CONNECT by a CONNACK that refuses the client, and end the connection (MQTT-3.2.2-5).

        `reason_code` is what MQTT 5 has in place of the return code where it says more; `why` is told there, too.
        """
        if self.level == LEVEL_MQTT_5:
            told = ConnackProperties(reason_string=why) if why else None
            self._write(Connack(reason_code or REASON_CODES[code], properties=told))
        else:
            self._out.append(encode(Connack(code), self.byte_order))
        self.disconnect()

    def challenge(self, data: bytes | None) -> None:
        """Have the client go on with its authentication (MQTT-4.12.0-2)."""
        self._challenged = True
        if self.state is State.AUTHENTICATING:
            self.state = State.CHALLENGED
        self._auth(ReasonCode.CONTINUE_AUTHENTICATION, data)

    def _auth(self, reason_code: ReasonCode, data: bytes | None) -> None:
        packet = Auth(reason_code, AuthProperties(self.authentication_method, data))
        self._out.append(encode(packet, "big", LEVEL_MQTT_5))

    def _write(self, packet: Connack | Puback | Pubrec | Pubrel | Pubcomp | Suback | Unsuback | Disconnect) -> bool:
        """Write a packet of MQTT 5; without its properties where the client would not take it with them (MQTT-3.1.2-24).

        Return False for one that it would not take even so, and that is not written.
        """
        data = encode(packet, "big", LEVEL_MQTT_5)
        if self.max_packet_size and len(data) > self.max_packet_size and packet.properties is not None:
            data = encode(msgspec.structs.replace(packet, properties=None), "big", LEVEL_MQTT_5)
        if self.max_packet_size and len(data) > self.max_packet_size:
            return False
        self._out.append(data)
        return True

    def publish(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        dup: bool,
        message_id: int,
        properties: PublishProperties | None = None,
    ) -> None:
        """Send PUBLISH; `topic` is as `bridge.wire.mqtt.encode_topic` returns it, the properties are for MQTT 5 only."""
        if self.level != LEVEL_MQTT_5:
            self._out.append(encode_publish(topic, payload, qos, retain, dup, message_id, self.byte_order))
            return
        if self._outgoing_aliases is not None:
            topic, alias = self._outgoing_aliases.of(topic)
            properties = msgspec.structs.replace(properties or PublishProperties(), topic_alias=alias)
        encoded = _NO_PROPERTIES if properties is None else encode_properties(PacketType.PUBLISH, properties)
        self._out.append(encode_publish_5(topic, encoded, payload, qos, retain, dup, message_id))

    def takes(self, topic: bytes, payload: bytes, properties: PublishProperties | None) -> bool:
        """Return whether a PUBLISH is no longer than the client's Maximum Packet Size (MQTT-3.1.2-24)."""
        if not self.max_packet_size:
            return True
        encoded = encode_properties(PacketType.PUBLISH, properties)
        # With a message id and a Topic Alias, which it may get.
        alias = 0 if self._outgoing_aliases is None else 3
        return len(encode_publish_5(topic, encoded, payload, 1, False, False, 1)) + alias <= self.max_packet_size

    def release(self, message_id: int) -> None:
        """Send PUBREL."""
        self._out.append(encode_acknowledgement(PacketType.PUBREL, message_id, self.byte_order))

    def answer(self, answers: Iterable[Answer], reasons: Mapping[Answer, Reason] | None = None) -> None:
        """Send PUBACK, PUBREC, PUBREL, PUBCOMP and PINGRESP, in the order given.

        `reasons` are for those of MQTT 5 that say more than Success.
        """
        if reasons:
            for answer in answers:
                if answer in reasons:
                    self._answer(answer, *reasons[answer])
                else:
                    self.answer((answer,))
            return
        byte_order, out = self.byte_order, self._out
        for kind, message_id in answers:
            out.append(encode_acknowledgement(kind, message_id, byte_order) if message_id else _PINGRESP)

    def _answer(self, answer: Answer, reason_code: ReasonCode, why: str) -> None:
        """Write an acknowledgement of MQTT 5 with a reason code, and why."""
        kind, message_id = answer
        told = self._told(why)
        self._write(_ACKNOWLEDGEMENTS[kind](message_id, reason_code=reason_code, properties=told))

    def _told(self, why: str) -> AcknowledgementProperties | None:
        """Return the Reason String of an acknowledgement, where there is one and the client wants it (MQTT-3.1.2-29)."""
        return AcknowledgementProperties(reason_string=why) if why and self.problem_information else None

    def suback(self, message_id: int, codes: Sequence[int], why: str = "") -> bool:
        """Answer SUBSCRIBE: the QoS granted for each filter, or 0x80; in MQTT 5 another reason code, and why.

        Return False where the client would not take so long an answer.
        """
        if self.level == LEVEL_MQTT_5:
            return self._write(Suback(message_id, tuple(codes), self._told(why)))
        self._out.append(encode(Suback(message_id, tuple(codes)), self.byte_order))
        return True

    def unsuback(self, message_id: int, reason_codes: Sequence[int] = ()) -> bool:
        """Answer UNSUBSCRIBE; in MQTT 5 with the reason codes, one for each filter. What is returned is as with `suback`."""
        if self.level == LEVEL_MQTT_5:
            return self._write(Unsuback(message_id, tuple(reason_codes)))
        self._out.append(encode(Unsuback(message_id), self.byte_order))
        return True

    def disconnect(self, reason_code: int | None = None, why: str = "") -> None:
        """End the connection: nothing more is written.

        A client of MQTT 5 is told why, where there is a reason code: by DISCONNECT, or before CONNACK by that
        (MQTT-3.14.0-1, section 4.13.1).
        """
        if self.state < _DISCONNECTING:
            if reason_code is not None and self.level == LEVEL_MQTT_5:
                fault = why if reason_code in _FAULTS else ""
                if self.state is _CONNECTED:
                    self._write(Disconnect(reason_code, DisconnectProperties(reason_string=fault) if fault else None))
                elif reason_code in _REFUSALS:
                    self._write(Connack(reason_code, properties=ConnackProperties(reason_string=fault) if fault else None))
            self._last_words = b"".join(self._out)
            self.state = _DISCONNECTING
        self.ended = True

    def data_to_send(self) -> bytes:
        """Return what the commands since the last call have written, as one piece; b"" for nothing."""
        if self.state >= _DISCONNECTING:
            data, self._last_words = self._last_words, b""
            self._out.clear()
            return data
        out = self._out
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data
