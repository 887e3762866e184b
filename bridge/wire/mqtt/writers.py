"""One writer for each packet that is no publication nor the acknowledgement of one, which are ``encoder``'s.

A writer takes the packet, the byte order and the protocol level, and raises MalformedPacket for what must not be sent.
"""

from __future__ import annotations

from typing import Final

from .connection_readers import auth_fault, authentication_fault, knows_protocol
from .errors import MalformedPacket
from .fields import (
    assemble,
    binary_field,
    message_id_field,
    reason_code_field,
    string_field,
    topic_filter_field,
    word_field,
)
from .packets import (
    LEVEL_MQTT_5,
    SUBACK_FAILURE,
    Auth,
    ByteOrder,
    Connack,
    ConnackCode,
    Connect,
    Disconnect,
    PacketType,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
)
from .properties import encode_properties
from .reason_codes import ReasonCode
from .topics import SHARE, topic_name_fault

_CONNACK_CODES: Final = frozenset(ConnackCode)
_NO_OPTIONS: Final = SubscriptionOptions()
_NO_PROPERTIES: Final = b"\0"


def write_connect(packet: Connect, byte_order: ByteOrder, level: int) -> bytes:
    """Write CONNECT, by the rules of the protocol level that it asks for."""
    name = "CONNECT"
    if not 0 <= packet.protocol_level <= 0xFF:
        raise MalformedPacket(name, 0, f"MQTT 3.1.1 section 3.1.2.2: protocol level is {packet.protocol_level}")
    mqtt_5 = packet.protocol_level == LEVEL_MQTT_5 and knows_protocol(packet.protocol_name, packet.protocol_level)
    flags = 0x02 if packet.clean_session else 0
    fields: list[bytes] = []
    if mqtt_5:
        if packet.properties is not None and (fault := authentication_fault(packet.properties)):
            raise MalformedPacket(name, 0, f"MQTT 5 section 3.1.2.11.10: {fault}", ReasonCode.PROTOCOL_ERROR)
        fields.append(encode_properties(PacketType.CONNECT, packet.properties))
    fields.append(string_field(packet.client_id, name, "client identifier"))
    will = packet.will
    if will is not None:
        if not 0 <= will.qos <= 2:
            statement = "MQTT-3.1.2-12" if mqtt_5 else "MQTT-3.1.2-14"
            raise MalformedPacket(name, 0, f"{statement}: quality of service of the will is {will.qos}")
        if fault := topic_name_fault(will.topic):
            raise MalformedPacket(name, 0, fault)
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        if mqtt_5:
            fields.append(encode_properties("WILL", will.properties))
        fields += (string_field(will.topic, name, "will topic"), binary_field(will.payload, name, "will message"))
    if packet.user_name is not None:
        flags |= 0x80
        fields.append(string_field(packet.user_name, name, "user name"))
    if packet.password is not None:
        if packet.user_name is None and not mqtt_5:
            raise MalformedPacket(name, 0, "MQTT-3.1.2-22: password without user name")
        flags |= 0x40
        fields.append(binary_field(packet.password, name, "password"))
    return assemble(
        PacketType.CONNECT,
        0,
        string_field(packet.protocol_name, name, "protocol name"),
        bytes((packet.protocol_level, flags)),
        word_field(packet.keep_alive, name, "keep alive", byte_order),
        *fields,
    )


def write_connack(packet: Connack, byte_order: ByteOrder, level: int) -> bytes:
    """Write CONNACK."""
    mqtt_5 = level == LEVEL_MQTT_5
    if packet.session_present and packet.return_code:
        statement = "MQTT-3.2.2-6" if mqtt_5 else "MQTT-3.2.2-4"
        raise MalformedPacket("CONNACK", 0, f"{statement}: a refused connection has no session present")
    if mqtt_5:
        if packet.properties is not None and (fault := authentication_fault(packet.properties)):
            raise MalformedPacket("CONNACK", 0, f"MQTT 5 section 3.2.2.3.18: {fault}", ReasonCode.PROTOCOL_ERROR)
        return assemble(
            PacketType.CONNACK,
            0,
            bytes((packet.session_present,)),
            reason_code_field(PacketType.CONNACK, packet.return_code),
            encode_properties(PacketType.CONNACK, packet.properties),
        )
    if packet.return_code not in _CONNACK_CODES:
        raise MalformedPacket("CONNACK", 0, f"MQTT 3.1.1 table 3.1: return code {packet.return_code} is reserved")
    return bytes((0x20, 2, packet.session_present, packet.return_code))


def write_subscribe(packet: Subscribe, byte_order: ByteOrder, level: int) -> bytes:
    """Write SUBSCRIBE; filters without options have those of a SubscriptionOptions()."""
    mqtt_5 = level == LEVEL_MQTT_5
    if not packet.topics:
        raise MalformedPacket("SUBSCRIBE", 0, f"MQTT-3.8.3-{2 if mqtt_5 else 3}: no topic filter")
    fields = [message_id_field(packet.message_id, "SUBSCRIBE", byte_order)]
    options = packet.options or (_NO_OPTIONS,) * len(packet.topics)
    if mqtt_5:
        if len(options) != len(packet.topics):
            rule = f"MQTT 5 section 3.8.3.1: {len(options)} options for {len(packet.topics)} topic filters"
            raise MalformedPacket("SUBSCRIBE", 0, rule)
        fields.append(encode_properties(PacketType.SUBSCRIBE, packet.properties))
    for index, (topic_filter, qos) in enumerate(packet.topics):
        if not 0 <= qos <= 2:
            source = "MQTT 5 section 3.8.3.1" if mqtt_5 else "MQTT-3.8.3-4"
            raise MalformedPacket("SUBSCRIBE", 0, f"{source}: requested quality of service is {qos}")
        byte = qos | _options(options[index], topic_filter) if mqtt_5 else qos
        fields += (topic_filter_field(topic_filter, "SUBSCRIBE"), bytes((byte,)))
    return assemble(PacketType.SUBSCRIBE, 0b1010 if packet.dup else 0b0010, *fields)


def _options(options: SubscriptionOptions, topic_filter: str) -> int:
    if not 0 <= options.retain_handling <= 2:
        rule = f"MQTT 5 section 3.8.3.1: Retain Handling is {options.retain_handling}"
        raise MalformedPacket("SUBSCRIBE", 0, rule, ReasonCode.PROTOCOL_ERROR)
    if options.no_local and topic_filter.startswith(SHARE):
        rule = "MQTT-3.8.3-4: No Local with a shared subscription"
        raise MalformedPacket("SUBSCRIBE", 0, rule, ReasonCode.PROTOCOL_ERROR)
    return (4 if options.no_local else 0) | (8 if options.retain_as_published else 0) | options.retain_handling << 4


def write_suback(packet: Suback, byte_order: ByteOrder, level: int) -> bytes:
    """Write SUBACK."""
    mqtt_5 = level == LEVEL_MQTT_5
    if not packet.return_codes:
        raise MalformedPacket("SUBACK", 0, f"MQTT {'5' if mqtt_5 else '3.1.1'} section 3.9.3: no return code")
    message_id = message_id_field(packet.message_id, "SUBACK", byte_order)
    if mqtt_5:
        properties = encode_properties(PacketType.SUBACK, packet.properties)
        codes = [reason_code_field(PacketType.SUBACK, code) for code in packet.return_codes]
        return assemble(PacketType.SUBACK, 0, message_id, properties, *codes)
    for code in packet.return_codes:
        if code not in (0, 1, 2, SUBACK_FAILURE):
            raise MalformedPacket("SUBACK", 0, f"MQTT-3.9.3-2: return code is {code}")
    return assemble(PacketType.SUBACK, 0, message_id, bytes(packet.return_codes))


def write_unsubscribe(packet: Unsubscribe, byte_order: ByteOrder, level: int) -> bytes:
    """Write UNSUBSCRIBE."""
    if not packet.topics:
        raise MalformedPacket("UNSUBSCRIBE", 0, "MQTT-3.10.3-2: no topic filter")
    fields = [message_id_field(packet.message_id, "UNSUBSCRIBE", byte_order)]
    if level == LEVEL_MQTT_5:
        fields.append(encode_properties(PacketType.UNSUBSCRIBE, packet.properties))
    fields += [topic_filter_field(topic_filter, "UNSUBSCRIBE") for topic_filter in packet.topics]
    return assemble(PacketType.UNSUBSCRIBE, 0b1010 if packet.dup else 0b0010, *fields)


def write_unsuback(packet: Unsuback, byte_order: ByteOrder, level: int) -> bytes:
    """Write UNSUBACK."""
    message_id = message_id_field(packet.message_id, "UNSUBACK", byte_order)
    if level != LEVEL_MQTT_5:
        return assemble(PacketType.UNSUBACK, 0, message_id)
    if not packet.reason_codes:
        raise MalformedPacket("UNSUBACK", 0, "MQTT 5 section 3.11.3: no reason code")
    properties = encode_properties(PacketType.UNSUBACK, packet.properties)
    codes = [reason_code_field(PacketType.UNSUBACK, code) for code in packet.reason_codes]
    return assemble(PacketType.UNSUBACK, 0, message_id, properties, *codes)


def write_pingreq(packet: Pingreq, byte_order: ByteOrder, level: int) -> bytes:
    """Write PINGREQ."""
    return b"\xc0\x00"


def write_pingresp(packet: Pingresp, byte_order: ByteOrder, level: int) -> bytes:
    """Write PINGRESP."""
    return b"\xd0\x00"


def write_disconnect(packet: Disconnect, byte_order: ByteOrder, level: int) -> bytes:
    """Write DISCONNECT, and as little as there is to say (MQTT 5 section 3.14.2.1)."""
    if level != LEVEL_MQTT_5:
        return b"\xe0\x00"
    code = reason_code_field(PacketType.DISCONNECT, packet.reason_code)
    properties = encode_properties(PacketType.DISCONNECT, packet.properties)
    if properties != _NO_PROPERTIES:
        return assemble(PacketType.DISCONNECT, 0, code, properties)
    return assemble(PacketType.DISCONNECT, 0, code) if packet.reason_code else b"\xe0\x00"


def write_auth(packet: Auth, byte_order: ByteOrder, level: int) -> bytes:
    """Write AUTH."""
    if level != LEVEL_MQTT_5:
        raise MalformedPacket("AUTH", 0, "MQTT 3.1 section 2.1: message type 15 is reserved")
    code = reason_code_field(PacketType.AUTH, packet.reason_code)
    if fault := auth_fault(packet):
        raise MalformedPacket("AUTH", 0, fault, ReasonCode.PROTOCOL_ERROR)
    if packet.properties is None:
        return b"\xf0\x00"
    return assemble(PacketType.AUTH, 0, code, encode_properties(PacketType.AUTH, packet.properties))
