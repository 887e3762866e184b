"""Remaining Length: the examples and the table of limits in MQTT 3.1 section 2.1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mqtt.properties import decode_remaining_length, encode_remaining_length
from bridge.mqtt.reason_codes import MalformedPacket

EXAMPLES = [
    pytest.param(64, "40", id="example: 64"),
    # MQTT 3.1 prints the two bytes of this example as 130, 65. That is most significant first, contrary to its text ("least
    # significant first"), its algorithms and its table. MQTT 3.1.1 corrected it to 193, 2.
    pytest.param(321, "c102", id="algorithm: 321"),
    pytest.param(0, "00", id="MQTT 3.1 section 2.1 table: 1 digit, from"),
    pytest.param(127, "7f", id="MQTT 3.1 section 2.1 table: 1 digit, to"),
    pytest.param(128, "8001", id="MQTT 3.1 section 2.1 table: 2 digits, from"),
    pytest.param(16_383, "ff7f", id="MQTT 3.1 section 2.1 table: 2 digits, to"),
    pytest.param(16_384, "808001", id="MQTT 3.1 section 2.1 table: 3 digits, from"),
    pytest.param(2_097_151, "ffff7f", id="MQTT 3.1 section 2.1 table: 3 digits, to"),
    pytest.param(2_097_152, "80808001", id="MQTT 3.1 section 2.1 table: 4 digits, from"),
    pytest.param(268_435_455, "ffffff7f", id="MQTT 3.1 section 2.1 table: 4 digits, to"),
]


@pytest.mark.parametrize(("value", "wire"), EXAMPLES)
def test_the_printed_examples(value: int, wire: str) -> None:
    encoded = bytes.fromhex(wire)
    assert encode_remaining_length(value) == encoded
    assert decode_remaining_length(encoded, 0) == (value, len(encoded))
    for size in range(len(encoded)):
        assert decode_remaining_length(encoded[:size], 0) is None


def test_the_printed_bytes_for_321_mean_another_number() -> None:
    assert decode_remaining_length(bytes((130, 65)), 0) == (2 + 128 * 65, 2)


def test_more_bytes_than_needed_are_accepted() -> None:
    # MQTT 3.1 section 2.1: the decoding algorithm adds all digits.
    assert decode_remaining_length(b"\x81\x80\x80\x00", 0) == (1, 4)


def test_a_fifth_byte_is_an_error_before_it_arrives() -> None:
    with pytest.raises(MalformedPacket) as error:
        decode_remaining_length(b"\x30\xff\xff\xff\xff", 1, "PUBLISH")
    assert (error.value.packet, error.value.offset) == ("PUBLISH", 4)
    assert error.value.rule.startswith("MQTT 3.1 section 2.1")


@pytest.mark.parametrize("value", [-1, 268_435_456])
def test_a_value_outside_the_limits_is_rejected(value: int) -> None:
    with pytest.raises(MalformedPacket, match=str(value)):
        encode_remaining_length(value)


@given(st.integers(0, 268_435_455), st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_anywhere_in_a_buffer(value: int, before: bytes, behind: bytes) -> None:
    encoded = encode_remaining_length(value)
    buffer = before + encoded + behind
    assert decode_remaining_length(buffer, len(before)) == (value, len(before) + len(encoded))
    assert decode_remaining_length(memoryview(buffer), len(before)) == (value, len(before) + len(encoded))
