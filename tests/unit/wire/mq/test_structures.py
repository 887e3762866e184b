"""MQMD, MQMDE, MQXQH and MQDLH byte by byte, in both byte orders, and the errors of each."""

import pickle
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.mq import (
    MQDLH,
    MQMD,
    MQMDE,
    MQXQH,
    ByteOrder,
    MalformedHeader,
    decode_mqdlh,
    decode_mqmd,
    decode_mqmde,
    decode_mqxqh,
    encode_mqdlh,
    encode_mqmd,
    encode_mqmde,
    encode_mqxqh,
)
from bridge.wire.mq.headers import MQDLH_LAYOUT, MQXQH_LAYOUT
from bridge.wire.mq.mqmd import MQMD_LAYOUTS, MQMDE_LAYOUT
from bridge.wire.mq.structure import Layout

ORDERS: tuple[ByteOrder, ...] = ("little", "big")


def number(value: int, order: ByteOrder) -> bytes:
    return value.to_bytes(4, order, signed=True)


def numbers(order: ByteOrder, *values: int) -> bytes:
    return b"".join(number(value, order) for value in values)


GROUP_ID = bytes(range(24))
MD = MQMD(
    Version=2,
    Report=0x3800,
    MsgType=1,
    Expiry=600,
    Feedback=259,
    Encoding=273,
    CodedCharSetId=1208,
    Format=b"MQHRF2",
    Priority=7,
    Persistence=1,
    MsgId=b"M" * 24,
    CorrelId=b"C" * 24,
    BackoutCount=3,
    ReplyToQ=b"REPLY.QUEUE",
    ReplyToQMgr=b"client-1",
    UserIdentifier=b"alice",
    AccountingToken=b"\x16" + bytes(31),
    ApplIdentityData=b"identity",
    PutApplType=28,
    PutApplName=b"mqbridge",
    PutDate=b"20240229",
    PutTime=b"23595999",
    ApplOriginData=b"o",
    GroupId=GROUP_ID,
    MsgSeqNumber=2,
    Offset=10,
    MsgFlags=8,
    OriginalLength=100,
)


def md_bytes(order: ByteOrder, version: int) -> bytes:
    return (
        b"MD  "
        + numbers(order, version, 0x3800, 1, 600, 259, 273, 1208)
        + b"MQHRF2  "
        + numbers(order, 7, 1)
        + b"M" * 24
        + b"C" * 24
        + number(3, order)
        + b"REPLY.QUEUE".ljust(48)
        + b"client-1".ljust(48)
        + b"alice       "
        + b"\x16"
        + bytes(31)
        + b"identity".ljust(32)
        + number(28, order)
        + b"mqbridge".ljust(28)
        + b"20240229"
        + b"23595999"
        + b"o   "
        + ((GROUP_ID + numbers(order, 2, 10, 8, 100)) if version == 2 else b"")
    )


DEFAULT_MD = (
    b"MD  "
    + struct.pack("<7i", 1, 0, 8, -1, 0, 546, 0)
    + b" " * 8
    + struct.pack("<2i", -1, 2)
    + bytes(48)
    + bytes(4)
    + b" " * (48 + 48 + 12)
    + bytes(32)
    + b" " * 32
    + bytes(4)
    + b" " * (28 + 8 + 8 + 4)
)


@pytest.mark.parametrize("order", ORDERS)
def test_mqmd_bytes(order: ByteOrder) -> None:
    expected = md_bytes(order, 2)
    assert len(expected) == 364
    assert encode_mqmd(MD, byte_order=order) == expected
    assert decode_mqmd(expected, byte_order=order) == MD
    assert decode_mqmd(expected) == MD, "the byte order is seen from Version"
    assert decode_mqmd(memoryview(b"abc" + expected + b"data"), 3) == MD


@pytest.mark.parametrize("order", ORDERS)
def test_mqmd_version_1_omits_the_group_fields(order: ByteOrder) -> None:
    version_1 = MQMD(**{**{f: getattr(MD, f) for f in MQMD_LAYOUTS[1].fields}, "Version": 1})
    assert encode_mqmd(version_1, byte_order=order) == md_bytes(order, 1)
    assert decode_mqmd(md_bytes(order, 1) + b"data") == version_1
    beyond = MQMD(Version=1, GroupId=GROUP_ID, MsgSeqNumber=9)
    assert encode_mqmd(beyond) == encode_mqmd(MQMD())


def test_mqmd_defaults_are_those_of_mqmd_default() -> None:
    assert encode_mqmd(MQMD()) == DEFAULT_MD
    assert len(DEFAULT_MD) == 324


MDE = MQMDE(Encoding=273, CodedCharSetId=819, Format=b"MQSTR", GroupId=GROUP_ID, MsgSeqNumber=2, Offset=10, MsgFlags=8)


@pytest.mark.parametrize("order", ORDERS)
def test_mqmde_bytes(order: ByteOrder) -> None:
    expected = b"MDE " + numbers(order, 2, 72, 273, 819) + b"MQSTR   " + number(0, order) + GROUP_ID
    expected += numbers(order, 2, 10, 8, -1)
    assert len(expected) == 72
    assert encode_mqmde(MDE, byte_order=order) == expected
    assert decode_mqmde(expected) == decode_mqmde(b"x" + expected, 1, byte_order=order) == MDE


@pytest.mark.parametrize("order", ORDERS)
def test_mqxqh_bytes(order: ByteOrder) -> None:
    header = MQXQH(RemoteQName=b"sensors/1", RemoteQMgrName=b"client-1", MsgDesc=MQMD(Persistence=1))
    expected = b"XQH " + number(1, order) + b"sensors/1".ljust(48) + b"client-1".ljust(48)
    expected += encode_mqmd(MQMD(Persistence=1), byte_order=order)
    assert len(expected) == 428
    assert encode_mqxqh(header, byte_order=order) == expected
    assert decode_mqxqh(expected) == decode_mqxqh(b"x" + expected, 1, byte_order=order) == header


@pytest.mark.parametrize("order", ORDERS)
def test_mqdlh_bytes(order: ByteOrder) -> None:
    header = MQDLH(
        Reason=2053,
        DestQName=b"Q1",
        DestQMgrName=b"QM1",
        Encoding=546,
        CodedCharSetId=1208,
        Format=b"MQXMIT",
        PutApplType=28,
        PutApplName=b"mqbridge",
        PutDate=b"20240229",
        PutTime=b"23595999",
    )
    expected = (
        b"DLH "
        + numbers(order, 1, 2053)
        + b"Q1".ljust(48)
        + b"QM1".ljust(48)
        + numbers(order, 546, 1208)
        + b"MQXMIT  "
        + number(28, order)
        + b"mqbridge".ljust(28)
        + b"2024022923595999"
    )
    assert len(expected) == 172
    assert encode_mqdlh(header, byte_order=order) == expected
    assert decode_mqdlh(expected) == decode_mqdlh(b"x" + expected, 1, byte_order=order) == header


def test_only_trailing_blanks_are_stripped() -> None:
    raw = bytearray(encode_mqmd(MQMD()))
    raw[100:148] = b"  Q\0garbage \0".ljust(48)
    decoded = decode_mqmd(raw)
    assert decoded.ReplyToQ == b"  Q\0garbage \0"
    assert encode_mqmd(decoded) == raw


@pytest.mark.parametrize(
    ("make", "offset", "words"),
    [
        (lambda: encode_mqmd(MQMD(UserIdentifier=b"thirteenbytes")), 196, "UserIdentifier takes 12 bytes"),
        (lambda: encode_mqmd(MQMD(MsgId=b"short")), 48, "MsgId takes exactly 24 bytes, not 5"),
        (lambda: encode_mqmd(MQMD(Version=2, GroupId=bytes(25))), 324, "GroupId takes exactly 24"),
        (lambda: encode_mqmd(MQMD(Expiry=1 << 31)), 16, "Expiry takes a signed 32-bit number"),
        (lambda: encode_mqmd(MQMD(Version=3)), 4, "Version is 3"),
        (lambda: encode_mqmde(MQMDE(StrucLength=76)), 8, "StrucLength is 76"),
        (lambda: encode_mqmde(MQMDE(Version=1)), 4, "Version is 1"),
        (lambda: encode_mqxqh(MQXQH(RemoteQMgrName=b"x" * 49)), 56, "RemoteQMgrName takes 48"),
        (lambda: encode_mqxqh(MQXQH(MsgDesc=MQMD(Version=2))), 108, "expected version 1"),
        (lambda: encode_mqxqh(MQXQH(MsgDesc=MQMD(ReplyToQ=b"x" * 49))), 204, "ReplyToQ takes 48"),
        (lambda: encode_mqdlh(MQDLH(PutDate=b"2024-02-29")), 156, "PutDate takes 8"),
        (lambda: decode_mqmd(b""), 0, "ends before the Version"),
        (lambda: decode_mqmd(DEFAULT_MD[:-1]), 0, "324 bytes long, 323 are left"),
        (lambda: decode_mqmd(b"zz" + encode_mqmd(MQMD(Version=2))[:340], 2), 2, "364 bytes long, 340 are left"),
        (lambda: decode_mqmd(b"ME" + DEFAULT_MD[2:]), 0, "StrucId is b'ME  '"),
        (lambda: decode_mqmd(DEFAULT_MD[:4] + b"\0\0\0\3" + DEFAULT_MD[8:]), 4, "neither byte order"),
        (lambda: decode_mqmd(DEFAULT_MD, byte_order="big"), 4, "Version is 16777216"),
        (lambda: decode_mqmd(DEFAULT_MD, 1000), 1000, "ends before"),
        (lambda: decode_mqmde(b"MDE " + struct.pack("<ii", 2, 80) + bytes(60)), 8, "StrucLength is 80"),
        (lambda: decode_mqdlh(b"DLH " + struct.pack("<i", 2) + bytes(164)), 4, "neither byte order"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_position(
    make: Callable[[], object], offset: int, words: str
) -> None:
    with pytest.raises(MalformedHeader) as error:
        make()
    assert error.value.offset == offset
    assert words in error.value.rule
    assert str(error.value) == f"{error.value.structure} at offset {offset}: {error.value.rule}"


def test_an_embedded_mqmd_of_version_2_is_rejected() -> None:
    raw = encode_mqxqh(MQXQH())[:104] + encode_mqmd(MQMD(Version=2))
    with pytest.raises(MalformedHeader, match=r"MQXQH at offset 108: .*version 2"):
        decode_mqxqh(raw)


def test_the_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(MalformedHeader("MQRFH2", 4, "Version is 3, not 2")))
    assert (error.structure, error.offset, error.rule) == ("MQRFH2", 4, "Version is 3, not 2")
    assert isinstance(error, ValueError)


# Any value for the width of a field: numbers, names without trailing blanks, identifiers.
def values_of(layout: Layout, **fixed: object) -> st.SearchStrategy[dict[str, Any]]:
    ends = {**layout.offsets, "": layout.length}
    following = dict(zip(layout.offsets, list(ends.values())[1:], strict=True))
    exact = {"MsgId", "CorrelId", "AccountingToken", "GroupId"}
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in layout.fields:
        width = following[field] - layout.offsets[field]
        if field in fixed:
            fields[field] = st.just(fixed[field])
        elif field in exact:
            fields[field] = st.binary(min_size=width, max_size=width)
        elif width > 4 or field == "ApplOriginData":
            fields[field] = st.binary(max_size=width).map(lambda name: name.rstrip(b" "))
        else:
            fields[field] = st.integers(-(1 << 31), (1 << 31) - 1)
    return st.fixed_dictionaries(fields)


orders = st.sampled_from(ORDERS)
mqmds = st.sampled_from([1, 2]).flatmap(lambda v: values_of(MQMD_LAYOUTS[v], Version=v)).map(lambda f: MQMD(**f))
mqmds_1 = values_of(MQMD_LAYOUTS[1], Version=1).map(lambda f: MQMD(**f))
mqmdes = values_of(MQMDE_LAYOUT, Version=2, StrucLength=72).map(lambda f: MQMDE(**f))
mqxqhs = st.builds(
    lambda names, md: MQXQH(RemoteQName=names["RemoteQName"], RemoteQMgrName=names["RemoteQMgrName"], MsgDesc=md),
    values_of(MQXQH_LAYOUT),
    mqmds_1,
)
mqdlhs = values_of(MQDLH_LAYOUT, Version=1).map(lambda f: MQDLH(**{k: v for k, v in f.items() if k != "Version"}))
CODECS: dict[str, tuple[st.SearchStrategy[Any], Callable[..., bytes], Callable[..., Any]]] = {
    "MQMD": (mqmds, encode_mqmd, decode_mqmd),
    "MQMDE": (mqmdes, encode_mqmde, decode_mqmde),
    "MQXQH": (mqxqhs, encode_mqxqh, decode_mqxqh),
    "MQDLH": (mqdlhs, encode_mqdlh, decode_mqdlh),
}


@pytest.mark.parametrize("name", CODECS)
@given(data=st.data(), order=orders, before=st.binary(max_size=9))
def test_any_structure_round_trips(name: str, data: st.DataObject, order: ByteOrder, before: bytes) -> None:
    strategy, encode, decode = CODECS[name]
    structure = data.draw(strategy)
    raw = before + encode(structure, byte_order=order)
    assert decode(raw, len(before), byte_order=order) == decode(raw, len(before)) == structure


@pytest.mark.parametrize("name", CODECS)
@given(data=st.data(), order=orders)
def test_decoded_bytes_can_be_encoded_again(name: str, data: st.DataObject, order: ByteOrder) -> None:
    _, encode, decode = CODECS[name]
    good = encode(data.draw(CODECS[name][0]), byte_order=order)
    at = data.draw(st.integers(0, len(good)))
    raw = (good[:at] + data.draw(st.binary(max_size=8)) + good[at:])[: len(good)]
    try:
        structure = decode(raw, byte_order=order)
    except MalformedHeader:
        return
    again = encode(structure, byte_order=order)
    assert again == raw[: len(again)]


@pytest.mark.parametrize("name", CODECS)
@given(raw=st.binary(max_size=500), order=st.sampled_from([None, *ORDERS]), offset=st.integers(0, 600))
def test_arbitrary_bytes_are_malformed_at_worst(name: str, raw: bytes, order: ByteOrder | None, offset: int) -> None:
    try:
        CODECS[name][2](raw, offset, byte_order=order)
    except MalformedHeader as error:
        assert error.offset >= offset
