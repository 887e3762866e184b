"""PCF: each structure byte by byte in both byte orders, round trips, and invalid bytes."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.mq import ByteOrder, MalformedHeader
from bridge.wire.mq.pcf import (
    MAX_DEPTH,
    MQCFBF,
    MQCFBS,
    MQCFGR,
    MQCFH,
    MQCFIF,
    MQCFIL,
    MQCFIL64,
    MQCFIN,
    MQCFIN64,
    MQCFSF,
    MQCFSL,
    MQCFST,
    PCFParameter,
    decode_pcf,
    encode_pcf,
    string_list,
)

ORDERS: dict[ByteOrder, str] = {"little": "<", "big": ">"}

# IBM's structures as in the C headers: (parameter, format of its numbers, the numbers, the string after them).
STRUCTURES: list[tuple[PCFParameter, str, tuple[int, ...], bytes]] = [
    (MQCFIN(20, 1), "4i", (3, 16, 20, 1), b""),
    (MQCFIN(20, -1), "4i", (3, 16, 20, -1), b""),
    (MQCFIN64(745, 2**40), "4iq", (23, 24, 745, 0, 2**40), b""),
    (MQCFIL(1002, (2016, 3)), "6i", (5, 24, 1002, 2, 2016, 3), b""),
    (MQCFIL(1002, ()), "4i", (5, 16, 1002, 0), b""),
    (MQCFIL64(900, (1, -(2**50))), "4i2q", (25, 32, 900, 2, 1, -(2**50)), b""),
    (MQCFST(2016, b"ABCDEF"), "5i", (4, 28, 2016, 0, 6), b"ABCDEF\0\0"),
    (MQCFST(2016, b"ABCD", 1208), "5i", (4, 24, 2016, 1208, 4), b"ABCD"),
    (MQCFST(2016, b""), "5i", (4, 20, 2016, 0, 0), b""),
    (MQCFSL(3011, (b"ABC", b"D  "), 0, 3), "6i", (6, 32, 3011, 0, 2, 3), b"ABCD  \0\0"),
    (MQCFSL(3011, ()), "6i", (6, 24, 3011, 0, 0, 0), b""),
    (MQCFBS(7001, b"\1\2\3\4\5"), "4i", (9, 24, 7001, 5), b"\1\2\3\4\5\0\0\0"),
    (MQCFIF(3, 4, 10), "5i", (13, 20, 3, 4, 10), b""),
    (MQCFSF(2013, 18, b"APP*", 1208), "6i", (14, 28, 2013, 18, 1208, 4), b"APP*"),
    (MQCFBF(7001, 2, b"\xff"), "5i", (15, 24, 7001, 2, 1), b"\xff\0\0\0"),
    (MQCFGR(8001, ()), "4i", (20, 16, 8001, 0), b""),
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("row", STRUCTURES, ids=lambda row: type(row[0]).__name__)
def test_a_structure_has_the_bytes_of_ibms_declaration(
    row: tuple[PCFParameter, str, tuple[int, ...], bytes], order: ByteOrder
) -> None:
    parameter, code, numbers, tail = row
    encoded = encode_pcf(MQCFH(Command=13), [parameter], byte_order=order)
    assert encoded[:36] == struct.pack(f"{ORDERS[order]}9i", 1, 36, 1, 13, 1, 1, 0, 0, 1)
    assert encoded[36:] == struct.pack(ORDERS[order] + code, *numbers) + tail
    assert struct.unpack_from(ORDERS[order] + "i", encoded, 40)[0] == len(encoded) - 36 or isinstance(parameter, MQCFGR)
    assert decode_pcf(encoded, byte_order=order) == (MQCFH(Command=13, ParameterCount=1), (parameter,))


def test_the_header_keeps_every_field() -> None:
    header = MQCFH(Type=2, Version=3, Command=13, MsgSeqNumber=4, Control=0, CompCode=2, Reason=2085, ParameterCount=0)
    encoded = encode_pcf(header, [])
    assert encoded == struct.pack("<9i", 2, 36, 3, 13, 4, 0, 2, 2085, 0)
    assert decode_pcf(encoded) == (header, ())


def test_a_group_counts_as_one_and_its_parameters_follow_it() -> None:
    group = MQCFGR(8001, (MQCFIN(1, 2), MQCFGR(8002, (MQCFST(3, b"x"),))))
    encoded = encode_pcf(MQCFH(), [group, MQCFIN(5, 6)])
    assert struct.unpack_from("<i", encoded, 32) == (2,)
    assert [struct.unpack_from("<i", encoded, at)[0] for at in (36, 52, 68, 84, 108)] == [20, 3, 20, 4, 3]
    assert decode_pcf(encoded)[1] == (group, MQCFIN(5, 6))


def test_padding_may_be_anything_and_is_not_preserved() -> None:
    encoded = bytearray(encode_pcf(MQCFH(), [MQCFST(2016, b"ABC")]))
    assert encoded[-1:] == b"\0"
    encoded[-1:] = b" "
    assert decode_pcf(encoded)[1] == (MQCFST(2016, b"ABC"),)


def test_a_string_list_is_padded_to_its_longest_string() -> None:
    assert string_list(3011, [b"AB", b"C"]) == MQCFSL(3011, (b"AB", b"C "), StringLength=2)
    assert string_list(3011, [b"AB"], 4) == MQCFSL(3011, (b"AB  ",), StringLength=4)
    assert string_list(3011, [b""]) == MQCFSL(3011, (b" ",), StringLength=1)
    assert string_list(3011, []) == MQCFSL(3011, ())


NUMBER = st.integers(-(2**31), 2**31 - 1)
WIDE = st.integers(-(2**63), 2**63 - 1)
TEXT = st.binary(max_size=40)
SIMPLE = st.one_of(
    st.builds(MQCFIN, NUMBER, NUMBER),
    st.builds(MQCFIN64, NUMBER, WIDE),
    st.builds(MQCFIL, NUMBER, st.lists(NUMBER, max_size=5).map(tuple)),
    st.builds(MQCFIL64, NUMBER, st.lists(WIDE, max_size=5).map(tuple)),
    st.builds(MQCFST, NUMBER, TEXT, NUMBER),
    st.builds(
        lambda parameter, strings, ccsid: MQCFSL(parameter, tuple(strings), ccsid, 7),
        NUMBER,
        st.lists(st.binary(min_size=7, max_size=7), max_size=4),
        NUMBER,
    ),
    st.builds(MQCFBS, NUMBER, TEXT),
    st.builds(MQCFIF, NUMBER, NUMBER, NUMBER),
    st.builds(MQCFSF, NUMBER, NUMBER, TEXT, NUMBER),
    st.builds(MQCFBF, NUMBER, NUMBER, TEXT),
)
PARAMETERS = st.recursive(
    SIMPLE, lambda inner: st.builds(MQCFGR, NUMBER, st.lists(inner, max_size=3).map(tuple)), max_leaves=5
)


@given(st.lists(PARAMETERS, max_size=6), NUMBER, st.sampled_from(list(ORDERS)))
def test_an_encoded_message_can_be_decoded(parameters: list[PCFParameter], command: int, order: ByteOrder) -> None:
    encoded = encode_pcf(MQCFH(Command=command), parameters, byte_order=order)
    header, decoded = decode_pcf(encoded, byte_order=order)
    assert decoded == tuple(parameters)
    assert header == MQCFH(Command=command, ParameterCount=len(parameters))
    assert encode_pcf(header, decoded, byte_order=order) == encoded


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_rejected(data: bytes) -> None:
    with contextlib.suppress(MalformedHeader):
        decode_pcf(data)


@given(st.lists(PARAMETERS, min_size=1, max_size=3), st.data())
def test_a_message_with_a_changed_byte_is_read_or_rejected(parameters: list[PCFParameter], data: st.DataObject) -> None:
    encoded = bytearray(encode_pcf(MQCFH(), parameters))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedHeader):
        decode_pcf(encoded)


@given(st.lists(PARAMETERS, min_size=1, max_size=3), st.data())
def test_a_truncated_message_is_rejected(parameters: list[PCFParameter], data: st.DataObject) -> None:
    encoded = encode_pcf(MQCFH(), parameters)
    with pytest.raises(MalformedHeader):
        decode_pcf(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


HEADER = struct.pack("<9i", 1, 36, 1, 13, 1, 1, 0, 0, 1)


def test_errors_name_the_problem(subtests: pytest.Subtests) -> None:
    for structure, data in [
        ("MQCFH", b""),
        ("MQCFH", struct.pack("<9i", 1, 32, 1, 13, 1, 1, 0, 0, 0)),
        ("MQCFH", struct.pack("<9i", 1, 36, 1, 13, 1, 1, 0, 0, -1)),
        ("MQCFH", struct.pack("<9i", 1, 36, 1, 13, 1, 1, 0, 0, 2**31 - 1)),
        ("MQCFH", struct.pack("<9i", 1, 36, 1, 13, 1, 1, 0, 0, 0) + bytes(4)),
        ("MQCFH", HEADER + struct.pack("<4i", 99, 16, 1, 1)),
        ("MQCFIN", HEADER + struct.pack("<5i", 3, 20, 1, 1, 0)),
        ("MQCFIN", HEADER + struct.pack("<4i", 3, 12, 1, 1)),
        ("MQCFIN64", HEADER + struct.pack("<4i", 23, 16, 1, 1)),
        ("MQCFST", HEADER + struct.pack("<5i4s", 4, 24, 1, 0, 5, b"ABCD")),
        ("MQCFST", HEADER + struct.pack("<5i4s", 4, 24, 1, 0, -1, b"ABCD")),
        ("MQCFST", HEADER + struct.pack("<5i4s", 4, 28, 1, 0, 4, b"ABCD")),
        ("MQCFIL", HEADER + struct.pack("<5i", 5, 20, 1, 2, 7)),
        ("MQCFIL", HEADER + struct.pack("<5i", 5, 20, 1, -1, 7)),
        ("MQCFSL", HEADER + struct.pack("<6i", 6, 24, 1, 0, 2**30, 0)),
        ("MQCFSL", HEADER + struct.pack("<6i4s", 6, 28, 1, 0, 2, 4, b"ABCD")),
        ("MQCFBS", HEADER + struct.pack("<4i", 9, 16, 1, 1)),
        ("MQCFIF", HEADER + struct.pack("<4i", 13, 16, 1, 1)),
        ("MQCFSF", HEADER + struct.pack("<6i", 14, 24, 1, 1, 0, 1)),
        ("MQCFBF", HEADER + struct.pack("<5i", 15, 20, 1, 1, 1)),
        ("MQCFGR", HEADER + struct.pack("<5i", 20, 20, 1, 0, 0)),
    ]:
        with subtests.test(structure=structure, data=data):
            with pytest.raises(MalformedHeader) as raised:
                decode_pcf(data)
            assert raised.value.structure == structure


def test_the_nesting_of_groups_is_limited() -> None:
    group = MQCFGR(1, ())
    for _ in range(MAX_DEPTH - 1):
        group = MQCFGR(1, (group,))
    assert decode_pcf(encode_pcf(MQCFH(), [group]))[1] == (group,)
    with pytest.raises(MalformedHeader):
        encode_pcf(MQCFH(), [MQCFGR(1, (group,))])
    deep = struct.pack("<9i", 1, 36, 1, 1, 1, 1, 0, 0, 1) + struct.pack("<4i", 20, 16, 1, 1) * 3000
    with pytest.raises(MalformedHeader):
        decode_pcf(deep)


@pytest.mark.parametrize(
    "parameter",
    [
        MQCFIN(2**31, 0),
        MQCFIN(1, -(2**31) - 1),
        MQCFIN64(1, 2**63),
        MQCFIL(1, (2**31,)),
        MQCFSL(1, (b"AB",), 0, 3),
        MQCFSL(1, (b"",)),
    ],
)
def test_a_value_that_does_not_fit_is_rejected(parameter: PCFParameter) -> None:
    with pytest.raises(MalformedHeader):
        encode_pcf(MQCFH(), [parameter])
