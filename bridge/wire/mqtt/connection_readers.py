"""Readers of the packets that open and end a connection: CONNECT, CONNACK, AUTH and DISCONNECT; see ``readers``."""

from __future__ import annotations

from typing import Final

from .body import Body
from .errors import MalformedPacket
from .packet_properties import ConnackProperties, ConnectProperties, DisconnectProperties, WillProperties
from .packets import (
    LEVEL_MQTT_3_1,
    LEVEL_MQTT_3_1_1,
    LEVEL_MQTT_5,
    Auth,
    Connack,
    Connect,
    Disconnect,
    PacketType,
    Will,
)
from .reason_codes import FROM_CLIENT, FROM_SERVER, ReasonCode, reason_code_fault
from .topics import topic_name_fault

_DISCONNECT: Final = Disconnect()


def knows_protocol(name: str, level: int) -> bool:
    """Tell whether a CONNECT is of MQTT 5, or name and level each exist in MQTT 3.1 or 3.1.1, in whatever combination."""
    if level == LEVEL_MQTT_5:
        return name == "MQTT"
    return name in ("MQIsdp", "MQTT") and level in (LEVEL_MQTT_3_1, LEVEL_MQTT_3_1_1)


def read_protocol_level(body: Body) -> int | None:
    """Read the protocol level of a CONNECT; None for a protocol that is unknown here."""
    name = body.string("protocol name")
    level = body.byte("protocol level")
    return level if knows_protocol(name, level) else None


def read_connect(body: Body, flags: int, level: int) -> Connect:
    """Read CONNECT, whose own protocol level decides about the rules.

    A protocol unknown here may have another layout: then the other fields are read as those of MQTT 3.1.1, and if
    that fails, only name and level are kept, all the server needs for its answer.
    """
    name = body.string("protocol name")
    level = body.byte("protocol level")
    known = Connect("", name, level)
    if knows_protocol(name, level):
        return _read_connect_fields(body, flags, level, known)
    try:
        return _read_connect_fields(body, flags, LEVEL_MQTT_3_1_1, known)
    except MalformedPacket:
        return known


def _read_connect_fields(body: Body, flags: int, level: int, known: Connect) -> Connect:
    """Read what follows the name and the level that are known, by the rules of a level that may be another one."""
    strict = level > LEVEL_MQTT_3_1
    mqtt_5 = level == LEVEL_MQTT_5
    body.require_no_flags(flags, level)
    connect_flags = body.byte("connect flags")
    has_user_name = connect_flags & 0x80 != 0
    has_password = connect_flags & 0x40 != 0
    has_will = connect_flags & 0x04 != 0
    will_qos = connect_flags >> 3 & 3
    if strict and connect_flags & 0x01:
        body.fail("MQTT-3.1.2-3: reserved connect flag is set", back=1)
    if has_will and will_qos == 3:
        body.fail(f"MQTT-3.1.2-{12 if mqtt_5 else 14}: quality of service of the will is 3", back=1)
    if strict and not has_will and connect_flags & 0x38:
        body.fail("MQTT-3.1.2-11: flags of a will are set, the will flag is not", back=1)
    # MQTT 3.1 declares this invalid as well (its section 3.1, user name and password flags), MQTT 5 does no more.
    if has_password and not has_user_name and not mqtt_5:
        body.fail("MQTT-3.1.2-22: password flag is set, user name flag is not", back=1)
    keep_alive = body.word("keep alive")
    properties: ConnectProperties | None = None
    if mqtt_5:
        properties = body.properties(PacketType.CONNECT)
        if properties is not None and authentication_fault(properties):
            body.fail_protocol(f"MQTT 5 section 3.1.2.11.10: {authentication_fault(properties)}")
    client_id = body.string("client identifier")
    will = None
    if has_will:
        will_properties: WillProperties | None = body.properties("WILL") if mqtt_5 else None
        will_topic = body.string("will topic")
        if fault := topic_name_fault(will_topic):
            body.fail(fault, back=len(will_topic.encode()) + 2)
        message = body.binary("will message")
        will = Will(will_topic, message, will_qos, connect_flags & 0x20 != 0, will_properties)
    # MQTT 3.1 section 3.1: the Remaining Length takes precedence over the flags of user name and password, since
    # clients older than those fields set the bits at random.
    user_name = body.string("user name") if has_user_name and (strict or body.remaining) else None
    password = body.binary("password") if has_password and (strict or body.remaining) else None
    body.finish()
    clean_session = connect_flags & 0x02 != 0
    return Connect(
        client_id,
        known.protocol_name,
        known.protocol_level,
        clean_session,
        keep_alive,
        will,
        user_name,
        password,
        properties,
    )


def authentication_fault(properties: ConnectProperties | ConnackProperties) -> str | None:
    """Tell what is wrong with the properties of enhanced authentication; None if nothing."""
    if properties.authentication_data is not None and properties.authentication_method is None:
        return "Authentication Data without Authentication Method"
    return None


def read_connack(body: Body, flags: int, level: int) -> Connack:
    """Read CONNACK; its first byte means something since MQTT 3.1.1 only."""
    strict = level > LEVEL_MQTT_3_1
    mqtt_5 = level == LEVEL_MQTT_5
    body.require_no_flags(flags, level)
    acknowledge_flags = body.byte("connect acknowledge flags")
    if strict and acknowledge_flags & 0xFE:
        body.fail(
            f"{'MQTT-3.2.2-1' if mqtt_5 else 'MQTT 3.1.1 section 3.2.2.1'}: "
            "bits 7-1 of the connect acknowledge flags are 0",
            back=1,
        )
    return_code = body.byte("return code")
    if mqtt_5 and (fault := reason_code_fault(PacketType.CONNACK, return_code)):
        body.fail_protocol(fault, back=1)
    if strict and acknowledge_flags and return_code:
        body.fail_protocol(f"MQTT-3.2.2-{6 if mqtt_5 else 4}: a refused connection has no session present", back=2)
    properties: ConnackProperties | None = None
    if mqtt_5:
        properties = body.properties(PacketType.CONNACK)
        if properties is not None and authentication_fault(properties):
            body.fail_protocol(f"MQTT 5 section 3.2.2.3.18: {authentication_fault(properties)}")
    body.finish()
    return Connack(return_code, strict and acknowledge_flags != 0, properties)


def read_client_disconnect(body: Body, flags: int, level: int) -> Disconnect:
    """Read DISCONNECT from a client."""
    return _read_disconnect(body, flags, level, FROM_CLIENT)


def read_server_disconnect(body: Body, flags: int, level: int) -> Disconnect:
    """Read DISCONNECT from a server, which MQTT 5 alone has."""
    packet = _read_disconnect(body, flags, level, FROM_SERVER)
    if packet.properties is not None and packet.properties.session_expiry_interval is not None:
        body.fail_protocol("MQTT-3.14.2-2: Session Expiry Interval in DISCONNECT from the server")
    return packet


def _read_disconnect(
    body: Body, flags: int, level: int, allowed: dict[PacketType, frozenset[ReasonCode]]
) -> Disconnect:
    body.require_no_flags(flags, level)
    if level != LEVEL_MQTT_5 or not body.remaining:
        body.finish()
        return _DISCONNECT
    reason_code = body.byte("reason code")
    if fault := reason_code_fault(PacketType.DISCONNECT, reason_code, allowed):
        body.fail_protocol(fault, back=1)
    properties: DisconnectProperties | None = body.properties(PacketType.DISCONNECT) if body.remaining else None
    body.finish()
    return Disconnect(reason_code, properties)


def read_client_auth(body: Body, flags: int, level: int) -> Auth:
    """Read AUTH from a client."""
    return _read_auth(body, flags, level, FROM_CLIENT)


def read_server_auth(body: Body, flags: int, level: int) -> Auth:
    """Read AUTH from a server."""
    return _read_auth(body, flags, level, FROM_SERVER)


def _read_auth(body: Body, flags: int, level: int, allowed: dict[PacketType, frozenset[ReasonCode]]) -> Auth:
    if flags:
        body.fail_header(f"MQTT-3.15.1-1: flags are reserved and 0, not {flags:#06b}")
    # Success may come without even its code (section 3.15.2.1), and without a method therefore.
    length = body.remaining
    reason_code = body.byte("reason code") if length else 0
    if fault := reason_code_fault(PacketType.AUTH, reason_code, allowed):
        body.fail_protocol(fault, back=1 if length else 0)
    packet = Auth(reason_code, body.properties(PacketType.AUTH) if length else None)
    body.finish()
    if fault := auth_fault(packet):
        body.fail_protocol(fault)
    return packet


def auth_fault(packet: Auth) -> str | None:
    """Tell whether an AUTH lacks its method; None if not."""
    if packet.properties is None:
        lacks = packet.reason_code != ReasonCode.SUCCESS
    else:
        lacks = packet.properties.authentication_method is None
    return "MQTT 5 section 3.15.2.2.2: no Authentication Method" if lacks else None
