"""Normative statements of MQTT 5, chapters 2 and 3, whose violation a decoder detects, and the reason code of each."""

from __future__ import annotations

import pytest

from bridge.mqtt.packets import Publish, PublishProperties
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import ReasonCode

MALFORMED, PROTOCOL_ERROR = ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR
CONNECT = "00044d515454 05"

# The statement, or the section if it has no number, the violation, the reason code, and the rule that the decoder names if it
# differs: MQTT 3.1.1 has the same rule with another number, or one rule covers several statements.
TO_SERVER = [
    ("MQTT-1.5.4-1", f"10 0e {CONNECT} 02 0000 00 0001ff", MALFORMED, "MQTT-1.5.3-1"),
    ("MQTT-1.5.4-1", "30 06 0003eda080 00", MALFORMED, "MQTT-1.5.3-1"),
    ("MQTT-1.5.4-1", "30 08 000161 04 03 0001ff", MALFORMED, ""),
    ("MQTT-1.5.4-2", f"10 0e {CONNECT} 02 0000 00 000100", MALFORMED, "MQTT-1.5.3-2"),
    ("MQTT-1.5.4-2", "30 0a 000161 06 26 000100 0000", MALFORMED, ""),
    ("MQTT-1.5.5-1", "c0 80 00", MALFORMED, ""),
    ("MQTT-1.5.5-1", "30 84 80 00 000161 00", MALFORMED, ""),
    ("MQTT-1.5.5-1", "30 06 000161 80 00 00", MALFORMED, ""),
    ("section 2.1.4", "30 ff ff ff ff 01", MALFORMED, "MQTT 3.1 section 2.1"),
    ("section 2.1.2", "00 00", MALFORMED, "MQTT 3.1 section 2.1"),
    ("section 2.1.2", "20 03 00 00 00", PROTOCOL_ERROR, "MQTT 3.1.1 table 2.1"),
    ("section 2.1.2", "90 04 000a 00 00", PROTOCOL_ERROR, "MQTT 3.1.1 table 2.1"),
    ("section 2.1.2", "d0 00", PROTOCOL_ERROR, "MQTT 3.1.1 table 2.1"),
    ("MQTT-2.1.3-1", f"11 0e {CONNECT} 02 0000 00 000163", MALFORMED, ""),
    ("MQTT-2.1.3-1", "41 02 000a", MALFORMED, ""),
    ("MQTT-2.1.3-1", "52 02 000a", MALFORMED, ""),
    ("MQTT-2.1.3-1", "78 02 000a", MALFORMED, ""),
    ("MQTT-2.1.3-1", "c1 00", MALFORMED, ""),
    ("MQTT-2.2.1-3", "32 07 000161 0000 00 78", PROTOCOL_ERROR, "MQTT-2.3.1-1"),
    ("MQTT-2.2.1-3", "82 07 0000 00 000161 00", PROTOCOL_ERROR, "MQTT-2.3.1-1"),
    ("MQTT-2.2.1-3", "a2 06 0000 00 000161", PROTOCOL_ERROR, "MQTT-2.3.1-1"),
    ("section 2.2.2.1", "30 05 000161 02 01", MALFORMED, ""),
    ("section 2.2.2.2", "30 09 000161 05 1100000000", MALFORMED, "MQTT 5 table 2-4"),
    ("section 2.2.2.2", "30 06 000161 02 0400", MALFORMED, "MQTT 5 table 2-4"),
    ("MQTT-3.1.2-3", f"10 0e {CONNECT} 03 0000 00 000163", MALFORMED, ""),
    ("MQTT-3.1.2-9", f"10 0e {CONNECT} 06 0000 00 000163", MALFORMED, "MQTT 5 section 1.5.5"),
    ("MQTT-3.1.2-11", f"10 0e {CONNECT} 0a 0000 00 000163", MALFORMED, ""),
    ("MQTT-3.1.2-12", f"10 14 {CONNECT} 1e 0000 00 000163 00 000177 0000", MALFORMED, ""),
    ("MQTT-3.1.2-13", f"10 0e {CONNECT} 22 0000 00 000163", MALFORMED, "MQTT-3.1.2-11"),
    ("MQTT-3.1.2-16", f"10 11 {CONNECT} 02 0000 00 000163 000175", MALFORMED, "MQTT 3.1.1 section 2.2.3"),
    ("MQTT-3.1.2-17", f"10 0e {CONNECT} 82 0000 00 000163", MALFORMED, "MQTT 3.1.1 section 2.2.3"),
    ("MQTT-3.1.2-19", f"10 0e {CONNECT} 42 0000 00 000163", MALFORMED, "MQTT 3.1.1 section 2.2.3"),
    ("MQTT-3.1.3-3", f"10 0b {CONNECT} 02 0000 00", MALFORMED, "MQTT 3.1.1 section 2.2.3"),
    ("section 3.1.2", f"10 18 {CONNECT} 02 0000 0a 11000000011100000001 000163", PROTOCOL_ERROR, ""),
    ("section 3.1.2.11.3", f"10 11 {CONNECT} 02 0000 03 210000 000163", PROTOCOL_ERROR, "MQTT 5 section 2.2.2.2"),
    ("section 3.1.2.11.4", f"10 13 {CONNECT} 02 0000 05 2700000000 000163", PROTOCOL_ERROR, "MQTT 5 section 2.2.2.2"),
    ("section 3.1.2.11.6", f"10 10 {CONNECT} 02 0000 02 1902 000163", PROTOCOL_ERROR, "MQTT 5 section 2.2.2.2"),
    ("section 3.1.2.11.7", f"10 10 {CONNECT} 02 0000 02 1702 000163", PROTOCOL_ERROR, "MQTT 5 section 2.2.2.2"),
    ("section 3.1.2.11.10", f"10 12 {CONNECT} 02 0000 04 160001ff 000163", PROTOCOL_ERROR, ""),
    ("section 3.1.3.2", f"10 18 {CONNECT} 06 0000 00 000163 04 01010101 000177 0000", PROTOCOL_ERROR, ""),
    ("MQTT-3.1.3-11", f"10 14 {CONNECT} 06 0000 00 000163 00 0001ff 0000", MALFORMED, "MQTT-1.5.3-1"),
    ("MQTT-3.1.3-12", f"10 11 {CONNECT} 82 0000 00 000163 0001ff", MALFORMED, "MQTT-1.5.3-1"),
    ("MQTT-3.3.1-2", "38 04 000161 00", MALFORMED, ""),
    ("MQTT-3.3.1-4", "36 06 000161 000a 00", MALFORMED, ""),
    ("MQTT-3.3.2-1", "30 00", MALFORMED, "MQTT 3.1.1 section 2.2.3"),
    ("MQTT-3.3.2-2", "30 06 0003612f23 00", MALFORMED, ""),
    ("section 3.3.2.1", "30 03 0000 00", PROTOCOL_ERROR, ""),
    ("MQTT-3.3.2-8", "30 07 000161 03 230000", ReasonCode.TOPIC_ALIAS_INVALID, ""),
    ("section 3.3.2", "30 0a 000161 06 230001230001", PROTOCOL_ERROR, ""),
    ("section 3.3.2.3.2", "30 06 000161 02 0102", PROTOCOL_ERROR, "MQTT 5 section 2.2.2.2"),
    ("MQTT-3.3.2-14", "30 08 000161 04 0800012b", PROTOCOL_ERROR, ""),
    ("MQTT-3.3.4-6", "30 06 000161 02 0b01", PROTOCOL_ERROR, ""),
    ("section 3.3.2.3.8", "30 06 000161 02 0b00", PROTOCOL_ERROR, "MQTT 5 section 2.2.2.2"),
    ("MQTT-4.7.3-1", "30 07 000161 03 080000", PROTOCOL_ERROR, ""),
    ("MQTT-3.4.2-1", "40 03 000a ff", PROTOCOL_ERROR, ""),
    ("MQTT-3.4.2-1", "40 04 000a 92 00", PROTOCOL_ERROR, ""),
    ("MQTT-3.5.2-1", "50 04 000a ff 00", PROTOCOL_ERROR, ""),
    ("MQTT-3.6.1-1", "60 02 000a", MALFORMED, ""),
    ("MQTT-3.6.2-1", "62 08 000a ff 04 1f000161", PROTOCOL_ERROR, ""),
    ("MQTT-3.7.2-1", "70 03 000a 80", PROTOCOL_ERROR, ""),
    ("MQTT-3.7.2-1", "70 03 000a 20", PROTOCOL_ERROR, ""),
    ("MQTT-3.8.1-1", "80 07 000a 00 000161 00", MALFORMED, ""),
    ("section 3.8.2.1.2", "82 09 000a 02 0b00 000161 00", PROTOCOL_ERROR, "MQTT 5 section 2.2.2.2"),
    ("section 3.8.2", "82 0b 000a 04 0b010b02 000161 00", PROTOCOL_ERROR, ""),
    ("MQTT-3.8.3-1", "82 07 000a 00 0001ff 00", MALFORMED, "MQTT-1.5.3-1"),
    ("MQTT-3.8.3-2", "82 03 000a 00", PROTOCOL_ERROR, ""),
    ("MQTT-3.8.3-4", "82 10 000a 00 000a2473686172652f672f61 04", PROTOCOL_ERROR, ""),
    ("section 3.8.3.1", "82 07 000a 00 000161 03", PROTOCOL_ERROR, ""),
    ("section 3.8.3.1", "82 07 000a 00 000161 30", PROTOCOL_ERROR, ""),
    ("MQTT-3.8.3-5", "82 07 000a 00 000161 40", MALFORMED, ""),
    ("MQTT-3.8.3-5", "82 07 000a 00 000161 80", MALFORMED, ""),
    ("MQTT-3.10.1-1", "a0 06 000a 00 000161", MALFORMED, ""),
    ("MQTT-3.10.3-1", "a2 06 000a 00 0001ff", MALFORMED, "MQTT-1.5.3-1"),
    ("MQTT-3.10.3-2", "a2 03 000a 00", PROTOCOL_ERROR, ""),
    ("MQTT-4.7.3-1", "82 06 000a 00 0000 00", MALFORMED, ""),
    ("MQTT-4.7.3-1", "a2 05 000a 00 0000", MALFORMED, ""),
    ("MQTT-4.7.1-1", "82 0a 000a 00 0004612f2362 00", MALFORMED, "MQTT section 4.7.1.2"),
    ("MQTT-4.7.1-1", "82 0b 000a 00 0005612f232f62 00", MALFORMED, "MQTT section 4.7.1.2"),
    ("MQTT-4.7.1-1", "a2 0a 000a 00 0005612f232f62", MALFORMED, "MQTT section 4.7.1.2"),
    ("MQTT-4.7.1-2", "82 0a 000a 00 0004612f2b62 00", MALFORMED, "MQTT section 4.7.1.3"),
    ("MQTT-4.7.1-2", "a2 09 000a 00 0004612f2b62", MALFORMED, "MQTT section 4.7.1.3"),
    ("MQTT-4.8.2-1", "82 0d 000a 00 0007 2473686172652f 00", MALFORMED, ""),
    ("MQTT-4.8.2-1", "82 0f 000a 00 0009 2473686172652f2f61 00", MALFORMED, ""),
    ("MQTT-4.8.2-2", "82 0e 000a 00 0008 2473686172652f67 00", MALFORMED, ""),
    ("MQTT-4.8.2-2", "82 0f 000a 00 0009 2473686172652f672f 00", MALFORMED, ""),
    ("MQTT-4.8.2-2", "82 10 000a 00 000a 2473686172652f2b2f61 00", MALFORMED, ""),
    ("MQTT-4.8.2-2", "82 11 000a 00 000b 2473686172652f67232f61 00", MALFORMED, ""),
    ("MQTT-4.8.2-2", "a2 0d 000a 00 0008 2473686172652f67", MALFORMED, ""),
    ("MQTT-4.7.1-1", "82 11 000a 00 000b 2473686172652f672f6123 00", MALFORMED, "MQTT section 4.7.1.2"),
    ("MQTT-3.14.1-1", "e1 00", MALFORMED, "MQTT-2.1.3-1"),
    ("MQTT-3.14.2-1", "e0 01 8b", PROTOCOL_ERROR, ""),
    ("section 3.14.2", "e0 04 00 02 1900", MALFORMED, "MQTT 5 table 2-4"),
    ("MQTT-3.15.1-1", "f1 06 18 04 1500016d", MALFORMED, ""),
    ("MQTT-3.15.2-1", "f0 06 00 04 1500016d", PROTOCOL_ERROR, ""),
    ("MQTT-3.15.2-1", "f0 00", PROTOCOL_ERROR, ""),
    ("section 3.15.2.2.2", "f0 02 18 00", PROTOCOL_ERROR, ""),
    ("section 3.15.2.2.2", "f0 06 18 04 160001ff", PROTOCOL_ERROR, ""),
    ("section 3.15.2", "f0 0a 18 08 1500016d 1500016d", PROTOCOL_ERROR, ""),
]
TO_CLIENT = [
    ("section 2.1.2", "c0 00", PROTOCOL_ERROR, "MQTT 3.1.1 table 2.1"),
    ("section 2.1.2", "82 07 000a 00 000161 00", PROTOCOL_ERROR, "MQTT 3.1.1 table 2.1"),
    ("MQTT-2.1.3-1", "21 03 00 00 00", MALFORMED, ""),
    ("MQTT-2.1.3-1", "91 04 000a 00 00", MALFORMED, ""),
    ("MQTT-2.1.3-1", "b1 04 000a 00 00", MALFORMED, ""),
    ("MQTT-2.1.3-1", "d1 00", MALFORMED, ""),
    ("MQTT-3.2.2-1", "20 03 02 00 00", MALFORMED, ""),
    ("MQTT-3.2.2-6", "20 03 01 87 00", PROTOCOL_ERROR, ""),
    ("MQTT-3.2.2-8", "20 03 00 05 00", PROTOCOL_ERROR, ""),
    ("section 3.2.2.3.3", "20 06 00 00 03 210000", PROTOCOL_ERROR, "MQTT 5 section 2.2.2.2"),
    ("section 3.2.2.3.4", "20 05 00 00 02 2402", PROTOCOL_ERROR, "MQTT 5 section 2.2.2.2"),
    ("section 3.2.2.3.5", "20 05 00 00 02 2502", PROTOCOL_ERROR, "MQTT 5 section 2.2.2.2"),
    ("section 3.2.2.3.6", "20 08 00 00 05 2700000000", PROTOCOL_ERROR, "MQTT 5 section 2.2.2.2"),
    ("section 3.2.2.3.18", "20 07 00 00 04 160001ff", PROTOCOL_ERROR, ""),
    ("section 3.2.2", "20 07 00 00 04 24012401", PROTOCOL_ERROR, ""),
    ("MQTT-3.9.3-2", "90 04 000a 00 03", PROTOCOL_ERROR, ""),
    ("section 3.9.3", "90 03 000a 00", PROTOCOL_ERROR, ""),
    ("MQTT-3.11.3-2", "b0 04 000a 00 01", PROTOCOL_ERROR, ""),
    ("section 3.11.3", "b0 03 000a 00", PROTOCOL_ERROR, ""),
    ("MQTT-3.14.1-1", "e8 00", MALFORMED, "MQTT-2.1.3-1"),
    ("MQTT-3.14.2-1", "e0 01 04", PROTOCOL_ERROR, ""),
    ("MQTT-3.14.2-2", "e0 07 8b 05 1100000000", PROTOCOL_ERROR, ""),
    ("MQTT-3.15.2-1", "f0 06 19 04 1500016d", PROTOCOL_ERROR, ""),
]
CASES = [(True, *case) for case in TO_SERVER] + [(False, *case) for case in TO_CLIENT]


def test_a_violated_statement(subtests: pytest.Subtests) -> None:
    for server, statement, wire, code, rule in CASES:
        with subtests.test(server=server, statement=statement, wire=wire, code=code, rule=rule):
            data = bytes.fromhex(wire)
            whole = Decoder(server=server, protocol_level=5)
            # A known topic uses the fast path first.
            assert len(whole.feed(bytes.fromhex("30 04 000161 00"))) == 1
            assert whole.feed(data) == []
            assert whole.error is not None
            assert whole.error.rule.startswith(
                rule or (statement if statement.startswith("MQTT") else f"MQTT 5 {statement}")
            )
            assert whole.error.reason_code is code
            bytewise = Decoder(server=server, protocol_level=5)
            assert [packet for byte in data for packet in bytewise.feed(bytes((byte,)))] == []
            assert str(bytewise.error) == str(whole.error)


def test_a_link_tolerates_an_empty_response_topic() -> None:
    decoder = Decoder(server=False, protocol_level=5)
    [publish] = decoder.feed(bytes.fromhex("30 07 000161 03 080000"))
    assert decoder.error is None
    assert isinstance(publish, Publish) and publish.properties == PublishProperties(response_topic="")


@pytest.mark.parametrize("level", [None, 5])
def test_a_server_knows_the_rules_for_rejecting_connect(level: int | None) -> None:
    """Errors after the protocol level are answered by its rules: a CONNACK of MQTT 5 has the reason code."""
    decoder = Decoder(protocol_level=level)
    assert decoder.feed(bytes.fromhex(f"10 11 {CONNECT} 02 0000 03 210000 000163")) == []
    assert decoder.error is not None
    assert decoder.protocol_level == 5


@pytest.mark.parametrize("level", [4, 5])
def test_a_packet_above_the_maximum(level: int) -> None:
    decoder = Decoder(protocol_level=level, max_packet_size=10)
    assert decoder.feed(bytes.fromhex("30 0b")) == []
    assert decoder.error is not None
    assert decoder.error.reason_code is ReasonCode.PACKET_TOO_LARGE
