"""Reason codes of MQTT 5 by packet, from the tables of paho and of the specification."""

from __future__ import annotations

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode as PahoReasonCode

from bridge.mqtt.packets import (
    Auth,
    AuthProperties,
    Connack,
    Disconnect,
    Packet,
    PacketType,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
)
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import FROM_CLIENT, FROM_SERVER, OF_PACKET, MalformedPacket, ReasonCode, reason_name
from bridge.mqtt.writer import encode, encode_acknowledgement

METHOD = AuthProperties("m")
# Tables 3-10 and 3-11.
BY_CLIENT_ALONE = {(PacketType.DISCONNECT, 0x04), (PacketType.AUTH, 0x19)}
BY_SERVER_ALONE = {
    (PacketType.AUTH, 0x00),
    *((PacketType.DISCONNECT, code) for code in (0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, *range(0x9A, 0xA3))),
}


def with_code(packet_type: PacketType, code: int) -> Packet:
    packets: dict[PacketType, Packet] = {
        PacketType.CONNACK: Connack(code),
        PacketType.PUBACK: Puback(10, code),
        PacketType.PUBREC: Pubrec(10, code),
        PacketType.PUBREL: Pubrel(10, reason_code=code),
        PacketType.PUBCOMP: Pubcomp(10, code),
        PacketType.SUBACK: Suback(10, (0, code)),
        PacketType.UNSUBACK: Unsuback(10, (0, code)),
        PacketType.DISCONNECT: Disconnect(code),
        PacketType.AUTH: Auth(code, METHOD),
    }
    return packets[packet_type]


def test_the_table_agrees_with_paho() -> None:
    names = PahoReasonCode(PacketTypes.CONNACK).names
    paho = {(PacketType(place), code) for code, words in names.items() for places in words.values() for place in places}
    # Table 3-1 contains it, for a will that does not match its Payload Format Indicator.
    paho.add((PacketType.CONNACK, 0x99))
    assert {(packet_type, int(code)) for packet_type, codes in OF_PACKET.items() for code in codes} == paho
    assert set(names) == set(ReasonCode)


def test_each_reason_code_in_each_packet(subtests: pytest.Subtests) -> None:
    for packet_type in OF_PACKET:
        with subtests.test(packet_type=packet_type):
            statement = rf"MQTT-3\.{packet_type:d}\.[23]-\d: reason code is 0x"
            good = next(iter(OF_PACKET[packet_type] - {ReasonCode.SUCCESS}))
            data = encode(with_code(packet_type, good), protocol_level=5)
            place = data.rindex(good) if packet_type is not PacketType.AUTH else 2
            for code in range(256):
                packet = with_code(packet_type, code)
                wire = data[:place] + bytes((code,)) + data[place + 1 :]
                if code in OF_PACKET[packet_type]:
                    assert encode(packet, protocol_level=5) == wire or code == 0
                else:
                    with pytest.raises(MalformedPacket, match=statement) as refused:
                        encode(packet, protocol_level=5)
                    assert refused.value.reason_code is ReasonCode.PROTOCOL_ERROR
                for server in (True, False):
                    if server and packet_type in (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK):
                        continue
                    decoder = Decoder(server=server, protocol_level=5)
                    read = decoder.feed(wire)
                    alone = BY_SERVER_ALONE if server else BY_CLIENT_ALONE
                    # A link accepts any reason code in a broker's acknowledgement of a message.
                    if (not server and PacketType.PUBACK <= packet_type <= PacketType.PUBCOMP) or (
                        code in OF_PACKET[packet_type] and (packet_type, code) not in alone
                    ):
                        assert (read, decoder.error) == ([packet], None)
                    else:
                        assert decoder.error is not None
                        assert decoder.error.rule.startswith(f"MQTT-3.{packet_type:d}.")
                        assert decoder.error.reason_code is ReasonCode.PROTOCOL_ERROR
                        assert read == []


def test_senders_of_reason_codes() -> None:
    every = {(packet_type, int(code)) for packet_type, codes in OF_PACKET.items() for code in codes}
    for table, alone in ((FROM_CLIENT, BY_SERVER_ALONE), (FROM_SERVER, BY_CLIENT_ALONE)):
        assert {(packet_type, int(code)) for packet_type, codes in table.items() for code in codes} == every - alone


@pytest.mark.parametrize("code", [-1, 256])
def test_reason_codes_are_single_bytes(code: int) -> None:
    with pytest.raises(MalformedPacket, match=r"MQTT-3\.14\.2-1"):
        encode(Disconnect(code), protocol_level=5)


@pytest.mark.parametrize(
    "packet", [Puback(10, 0x10), Pubrec(10, 0x97), Pubrel(10, reason_code=0x92), Pubcomp(10, 0x92), Puback(10)]
)
def test_acknowledgements_by_fields(packet: Puback | Pubrec | Pubrel | Pubcomp) -> None:
    packet_type = PacketType[type(packet).__name__.upper()]
    data = encode_acknowledgement(packet_type, packet.packet_id, reason_code=packet.reason_code)
    assert data == encode(packet, protocol_level=5)
    with pytest.raises(MalformedPacket, match=rf"MQTT-3\.{packet_type:d}\.2-1"):
        encode_acknowledgement(packet_type, 10, reason_code=0xA2)


def test_names_of_reason_codes() -> None:
    assert len(ReasonCode) == 43
    assert [reason_name(code) for code in (0x00, 0x10, 0x87, 0x90, 0x9B, 0xA2, 0xFF)] == [
        "Success",
        "No matching subscribers",
        "Not authorized",
        "Topic Name invalid",
        "QoS not supported",
        "Wildcard Subscriptions not supported",
        "reason code 0xff",
    ]
