"""MQRFH2: the fixed part, the lengths of folders, and errors of both."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.mq import RFH2, ByteOrder, Folder, MalformedHeader, decode_rfh2, encode_rfh2

ORDERS: tuple[ByteOrder, ...] = ("little", "big")
FOLDERS = (
    Folder.build("mqtt", {"clientId": "c1", "qos": "2"}),
    Folder.build("mqps", {"Top": "a/b"}),
    Folder(b"not a folder at all!"),
    Folder(b""),
)
HEADER = RFH2(Encoding=273, CodedCharSetId=1208, Format=b"MQSTR", Flags=5, folders=FOLDERS)


def header_bytes(order: ByteOrder) -> bytes:
    def numbers(*values: int) -> bytes:
        return b"".join(value.to_bytes(4, order, signed=True) for value in values)

    mqtt = b"<mqtt><clientId>c1</clientId><qos>2</qos></mqtt>"
    mqps = b"<mqps><Top>a/b</Top></mqps> "
    assert (len(mqtt), len(mqps)) == (48, 28)
    folders = numbers(48) + mqtt + numbers(28) + mqps + numbers(20) + b"not a folder at all!" + numbers(0)
    return b"RFH " + numbers(2, 36 + 112, 273, 1208) + b"MQSTR   " + numbers(5, 1208) + folders


@pytest.mark.parametrize("order", ORDERS)
def test_bytes(order: ByteOrder) -> None:
    expected = header_bytes(order)
    assert len(expected) == HEADER.StrucLength == 148
    assert encode_rfh2(HEADER, byte_order=order) == expected
    assert decode_rfh2(expected, byte_order=order) == HEADER
    assert decode_rfh2(b"xyz" + expected + b"payload", 3) == HEADER
    assert decode_rfh2(memoryview(expected)) == HEADER


def test_defaults_without_folders() -> None:
    expected = b"RFH " + struct.pack("<iiii", 2, 36, 546, -2) + b" " * 8 + struct.pack("<ii", 0, 1208)
    assert encode_rfh2(RFH2()) == expected
    assert decode_rfh2(expected) == RFH2()


def test_folders_are_found_by_name() -> None:
    mqps = HEADER.folder("mqps")
    assert mqps is not None and mqps.content == {"Top": "a/b"}
    assert HEADER.folder("usr") is None


def test_a_length_that_is_not_a_multiple_of_four_is_preserved() -> None:
    odd = RFH2(folders=(Folder(b"<a/>x"), Folder(b"<b/>")))
    raw = encode_rfh2(odd)
    assert len(raw) == 36 + 4 + 5 + 4 + 4
    assert decode_rfh2(raw) == odd


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ccsid", [1200, 13488, 17584])
def test_utf_16_is_in_the_byte_order_of_the_header(ccsid: int, order: ByteOrder) -> None:
    data = "<usr><a>é</a></usr> ".encode("utf-16-le" if order == "little" else "utf-16-be")
    header = RFH2(NameValueCCSID=ccsid, folders=(Folder(data, ccsid, order),))
    raw = encode_rfh2(header, byte_order=order)
    decoded = decode_rfh2(raw)
    assert decoded == header
    assert decoded.folders[0].content == {"a": "é"}
    other: ByteOrder = "big" if order == "little" else "little"
    with pytest.raises(MalformedHeader, match=f"not in {other}-endian UTF-16"):
        encode_rfh2(header, byte_order=other)


def test_folders_share_the_ccsid_of_the_header() -> None:
    with pytest.raises(MalformedHeader, match="offset 48: folder b has CCSID 1208, NameValueCCSID is 1200"):
        encode_rfh2(RFH2(NameValueCCSID=1200, folders=(Folder(b"\0<\0a\0/\0>", 1200, "little"), Folder(b"<b/>"))))


FIXED = header_bytes("little")[:36]


def with_length(length: int, rest: bytes = b"") -> bytes:
    return FIXED[:8] + struct.pack("<i", length) + FIXED[12:] + rest


def test_contradictory_lengths_are_malformed(subtests: pytest.Subtests) -> None:
    for raw, offset, words in [
        (b"", 0, "ends before the Version"),
        (b"RFH " + struct.pack("<i", 1) + bytes(28), 4, "Version is 2 in neither byte order"),
        (FIXED[:35], 0, "36 bytes long, 35 are left"),
        (b"rfh " + FIXED[4:], 0, "StrucId is b'rfh '"),
        (with_length(35), 8, "StrucLength is 35"),
        (with_length(-1), 8, "StrucLength is -1"),
        (with_length(40), 8, "the buffer 36"),
        (with_length(38, b"ab"), 36, "2 bytes are left"),
        (with_length(44, struct.pack("<i", 5) + b"<a/>"), 36, "NameValueLength is 5, 4 bytes are left"),
        (with_length(44, struct.pack("<i", -4) + b"<a/>"), 36, "NameValueLength is -4"),
        (with_length(45, struct.pack("<i", 4) + b"<a/>!"), 44, "1 bytes are left"),
    ]:
        with subtests.test(raw=raw, offset=offset, words=words):
            for before in (b"", b"before"):
                with pytest.raises(MalformedHeader) as error:
                    decode_rfh2(before + raw, len(before))
                assert (error.value.structure, error.value.offset) == ("MQRFH2", len(before) + offset)
                assert words in error.value.rule


def test_another_version_than_2_is_malformed_in_a_given_byte_order() -> None:
    with pytest.raises(MalformedHeader, match="Version is 33554432"):
        decode_rfh2(FIXED, byte_order="big")


longs = st.integers(-(1 << 31), (1 << 31) - 1)
folders = st.builds(Folder, st.binary(max_size=40))
headers = st.builds(
    RFH2,
    Encoding=longs,
    CodedCharSetId=longs,
    Format=st.binary(max_size=8).map(lambda name: name.rstrip(b" ")),
    Flags=longs,
    folders=st.lists(folders, max_size=4).map(tuple),
)


@given(header=headers, order=st.sampled_from(ORDERS), before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_any_header_round_trips(header: RFH2, order: ByteOrder, before: bytes, after: bytes) -> None:
    raw = encode_rfh2(header, byte_order=order)
    assert len(raw) == header.StrucLength
    assert decode_rfh2(before + raw + after, len(before), byte_order=order) == header
    assert decode_rfh2(raw) == header


@given(
    body=st.binary(max_size=80),
    length=st.integers(30, 120),
    order=st.sampled_from(ORDERS),
    ccsid=st.sampled_from([1208, 1200, 0, -1]),
)
def test_decoded_bytes_can_be_encoded_again(body: bytes, length: int, order: ByteOrder, ccsid: int) -> None:
    def number(value: int) -> bytes:
        return value.to_bytes(4, order, signed=True)

    raw = b"RFH " + number(2) + number(length) + bytes(8) + b"MQSTR \0 " + number(0) + number(ccsid) + number(4) + body
    try:
        header = decode_rfh2(raw)
    except MalformedHeader:
        return
    assert encode_rfh2(header, byte_order=order) == raw[:length]


@given(
    raw=st.binary(max_size=100) | st.binary(max_size=80).map(lambda rest: FIXED[:8] + rest), offset=st.integers(0, 9)
)
def test_arbitrary_bytes_are_malformed_at_worst(raw: bytes, offset: int) -> None:
    try:
        decode_rfh2(raw, offset)
    except MalformedHeader as error:
        assert error.offset >= offset
