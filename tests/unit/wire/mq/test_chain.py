"""Chains of headers: any order, either byte order, inherited character sets, broken links."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.mq import (
    MQDLH,
    MQMD,
    MQMDE,
    MQXQH,
    RFH2,
    Chain,
    Folder,
    Header,
    MalformedHeader,
    decode_chain,
    encode_chain,
    encode_mqdlh,
    encode_mqmde,
    encode_mqxqh,
    encode_rfh2,
)
from bridge.wire.mq.headers import OTHER_KINDS

BIG, LITTLE = 273, 546
FORMATS: dict[type, bytes] = {RFH2: b"MQHRF2", MQXQH: b"MQXMIT", MQDLH: b"MQDEAD", MQMDE: b"MQHMDE"}


def make(kind: type, encoding: int, ccsid: int, format_: bytes = b"") -> Header:
    if kind is RFH2:
        mqps = Folder.build("mqps", {"Top": "a/b"})
        return RFH2(Encoding=encoding, CodedCharSetId=ccsid, Format=format_, folders=(mqps, Folder(b"??")))
    if kind is MQXQH:
        md = MQMD(Encoding=encoding, CodedCharSetId=ccsid, Format=format_)
        return MQXQH(RemoteQName=b"a/b", RemoteQMgrName=b"client-1", MsgDesc=md)
    if kind is MQDLH:
        return MQDLH(Reason=2053, DestQName=b"Q", Encoding=encoding, CodedCharSetId=ccsid, Format=format_)
    return MQMDE(Encoding=encoding, CodedCharSetId=ccsid, Format=format_, MsgFlags=8)


def test_a_message_of_the_transmission_queue_by_hand() -> None:
    """As in the integration tables: MQXQH names the client, the embedded MQMD an RFH2, the RFH2 the payload."""
    rfh2 = RFH2(Encoding=LITTLE, CodedCharSetId=1208, Format=b"MQSTR", folders=(Folder.build("mqps", {"Top": "t"}),))
    xqh = MQXQH(
        RemoteQName=b"SYSTEM.MQTT.PUBLICATION.QUEUE",
        RemoteQMgrName=b"client-1",
        MsgDesc=MQMD(Format=b"MQHRF2", Encoding=BIG, CodedCharSetId=1200),
    )
    data = encode_mqxqh(xqh, byte_order="little") + encode_rfh2(rfh2, byte_order="big") + b"payload"
    chain = decode_chain(b"MQXMIT", LITTLE, 819, data)
    assert chain == Chain(
        headers=(xqh, rfh2),
        Format=b"MQSTR",
        Encoding=LITTLE,
        CodedCharSetId=1208,
        body=b"payload",
        outer_encoding=LITTLE,
        outer_ccsid=819,
    )
    assert encode_chain(chain) == (b"MQXMIT", LITTLE, 819, data)


def test_a_message_without_headers() -> None:
    chain = decode_chain(b"MQSTR", BIG, 819, b"text")
    assert (chain.headers, chain.Format, chain.Encoding, chain.CodedCharSetId) == ((), b"MQSTR", BIG, 819)
    assert encode_chain(chain) == (b"MQSTR", BIG, 819, b"text")
    assert encode_chain([], b"raw") == (b"", LITTLE, 0, b"raw")


ALL = [order for length in range(1, 5) for order in permutations(FORMATS, length)]


@pytest.mark.parametrize("kinds", ALL, ids=lambda kinds: "-".join(kind.__name__ for kind in kinds))
def test_headers_in_any_order(kinds: tuple[type, ...]) -> None:
    for first in (BIG, LITTLE):
        encodings = [first if index % 2 else BIG + LITTLE - first for index in range(len(kinds))]
        followers = [*(FORMATS[kind] for kind in kinds[1:]), b"MQSTR"]
        headers = tuple(make(k, e, 1208, f) for k, e, f in zip(kinds, encodings, followers, strict=True))
        encoded = encode_chain(headers, b"the body", encoding=first, ccsid=850)
        assert encoded[:3] == (FORMATS[kinds[0]], first, 850)
        chain = decode_chain(*encoded)
        assert chain.headers == headers
        assert (chain.Format, chain.Encoding, chain.CodedCharSetId) == (b"MQSTR", encodings[-1], 1208)
        assert chain.body == b"the body"
        assert encode_chain(chain) == encoded


def test_formats_between_headers_are_set_from_the_next_header() -> None:
    encoded = encode_chain([make(MQDLH, LITTLE, 0), make(MQXQH, LITTLE, 0), make(RFH2, LITTLE, 1208, b"MQSTR")], b"x")
    chain = decode_chain(*encoded)
    assert [type(header) for header in chain.headers] == [MQDLH, MQXQH, RFH2]
    assert chain.Format == b"MQSTR"


def test_a_chain_describes_its_body_through_the_last_header() -> None:
    chain = Chain(headers=(make(MQXQH, LITTLE, 0),), Format=b"MQSTR", Encoding=BIG, CodedCharSetId=819, body=b"x")
    decoded = decode_chain(*encode_chain(chain))
    (header,) = decoded.headers
    assert isinstance(header, MQXQH)
    assert (header.MsgDesc.Format, header.MsgDesc.Encoding, header.MsgDesc.CodedCharSetId) == (b"MQSTR", BIG, 819)


def test_an_inherited_ccsid_is_that_of_the_previous_header() -> None:
    headers = (make(MQXQH, LITTLE, 819), make(RFH2, LITTLE, -2, b"MQSTR"))
    encoded = encode_chain(headers, b"x", ccsid=500)
    chain = decode_chain(*encoded)
    assert chain.CodedCharSetId == 819
    assert chain.headers[1].CodedCharSetId == -2
    assert encode_chain(chain) == encoded
    alone = encode_chain([RFH2(Format=b"MQSTR")], b"x", ccsid=500)
    assert decode_chain(*alone).CodedCharSetId == 500
    assert decode_chain(*alone).headers == (RFH2(Format=b"MQSTR"),), "bare headers are written as they stand"


GOOD = encode_mqxqh(MQXQH(RemoteQMgrName=b"c", MsgDesc=MQMD(Format=b"MQHRF2", CodedCharSetId=1208)))


@pytest.mark.parametrize("rest", [b"", b"short", b"RFH " + bytes(40), encode_rfh2(RFH2())[:-1]])
def test_a_broken_header_is_malformed_or_body(rest: bytes) -> None:
    with pytest.raises(MalformedHeader) as error:
        decode_chain(b"MQXMIT", LITTLE, 0, GOOD + rest)
    assert error.value.structure == "MQRFH2"
    assert error.value.offset >= 428
    chain = decode_chain(b"MQXMIT", LITTLE, 0, GOOD + rest, strict=False)
    assert len(chain.headers) == 1
    assert (chain.Format, chain.CodedCharSetId, chain.body) == (b"MQHRF2", 1208, rest)
    assert encode_chain(chain) == (b"MQXMIT", LITTLE, 0, GOOD + rest)


def test_an_encoding_without_integers_cannot_describe_a_header() -> None:
    raw = encode_rfh2(RFH2())
    with pytest.raises(MalformedHeader, match=r"MQRFH2 at offset 0: .*Encoding 0"):
        decode_chain(b"MQHRF2", 0, 0, raw)
    assert decode_chain(b"MQHRF2", 0, 0, raw, strict=False).body == raw
    assert decode_chain(b"MQSTR", 0, 0, raw).body == raw, "the Encoding does not matter if no header follows"
    with pytest.raises(MalformedHeader, match=r"MQXQH at offset 172: .*Encoding 0"):
        encode_chain([MQDLH(), MQXQH()])


def test_error_offsets_are_relative_to_the_start_of_the_data() -> None:
    with pytest.raises(MalformedHeader, match="MQMDE at offset 180: StrucLength"):
        encode_chain([MQDLH(Encoding=LITTLE), MQMDE(StrucLength=0)])


encodings = st.sampled_from([BIG, LITTLE, 785, 1 << 8 | 2])
ccsids = st.sampled_from([-2, -1, 0, 819, 1208])
headers = st.builds(make, st.sampled_from(list(FORMATS)), encodings, ccsids)
bodies = st.sampled_from([b"", b"MQSTR", b"APP\0X", b"MQADMIN"])


@given(
    headers=st.lists(headers, max_size=6),
    body=st.binary(max_size=30),
    format_=bodies,
    outer=st.tuples(encodings, ccsids.filter(lambda ccsid: ccsid != -2)),
)
def test_any_chain_round_trips(headers: Any, body: bytes, format_: bytes, outer: tuple[int, int]) -> None:
    encoded = encode_chain(headers, body, encoding=outer[0], ccsid=outer[1])
    plain = decode_chain(*encoded)
    described = Chain(
        headers=plain.headers,
        Format=format_,
        Encoding=plain.Encoding,
        CodedCharSetId=plain.CodedCharSetId,
        body=body,
        outer_encoding=outer[0],
        outer_ccsid=outer[1],
    )
    encoded = encode_chain(described)
    chain = decode_chain(*encoded)
    assert chain.body == body
    assert (chain.Format, chain.Encoding, chain.CodedCharSetId) == (format_, plain.Encoding, plain.CodedCharSetId)
    assert [type(header) for header in chain.headers] == [type(header) for header in headers]
    assert encode_chain(chain) == encoded


whole = [
    encode_rfh2(RFH2(Format=b"MQDEAD")),
    encode_mqdlh(MQDLH(Format=b"MQHMDE", Encoding=LITTLE)),
    encode_mqmde(MQMDE(Format=b"MQXMIT")),
    GOOD,
]
pieces = st.lists(st.sampled_from(whole) | st.binary(max_size=40), max_size=5).map(b"".join)


@given(data=pieces, format_=st.sampled_from(list(FORMATS.values())), encoding=st.integers(-5, 800))
def test_arbitrary_data_is_malformed_at_worst_and_never_lost(data: bytes, format_: bytes, encoding: int) -> None:
    chain = decode_chain(format_, encoding, 0, data, strict=False)
    assert encode_chain(chain) == (format_, encoding, 0, data)
    try:
        assert decode_chain(format_, encoding, 0, data) == chain
    except MalformedHeader as error:
        assert 0 <= error.offset <= len(data)


# Headers of which the length is known only ----------------------------------------------------------------------------


def other(format_: bytes, follower: bytes, encoding: int, ccsid: int, rest: bytes, *, byte_order: str) -> bytes:
    """Return a header of OTHER_KINDS, with `rest` after its shortest version."""
    kind = OTHER_KINDS[format_]
    length = kind.min_length + len(rest)
    start = kind.start.pack((1, length, encoding, ccsid, follower), byte_order)
    return start.ljust(kind.min_length, b"\0") + rest


others = st.lists(
    st.tuples(st.sampled_from(sorted(OTHER_KINDS)), st.sampled_from([BIG, LITTLE]), st.binary(max_size=9)), max_size=4
)


@given(others, st.booleans(), st.binary(max_size=20))
def test_other_headers_are_discarded_in_any_order_and_encoding(
    kinds: list[tuple[bytes, int, bytes]], with_rfh2: bool, body: bytes
) -> None:
    formats = [*(kind[0] for kind in kinds), b"MQHRF2" if with_rfh2 else b"MQSTR"]
    data, encoding = b"", LITTLE
    for (format_, follower_encoding, rest), follower in zip(kinds, formats[1:], strict=True):
        byte_order = "little" if encoding == LITTLE else "big"
        data += other(format_, follower, follower_encoding, 850, rest, byte_order=byte_order)
        if not OTHER_KINDS[format_].inherits:
            encoding = follower_encoding
    if with_rfh2:
        rfh2 = RFH2(Format=b"MQSTR", Encoding=LITTLE, CodedCharSetId=1208)
        data += encode_rfh2(rfh2, byte_order="little" if encoding == LITTLE else "big")
        encoding = LITTLE
    chain = decode_chain(formats[0], LITTLE, 1208, data + body, discard_others=True)
    assert (chain.body, chain.Format, chain.Encoding) == (body, b"MQSTR", encoding)
    assert len(chain.headers) == with_rfh2
    own = [kind for kind in kinds if not OTHER_KINDS[kind[0]].inherits]
    assert chain.CodedCharSetId == (850 if own and not with_rfh2 else 1208)


@pytest.mark.parametrize("format_", [b"MQCICS", b"MQIMS"])
def test_data_after_a_bridge_header_has_the_encoding_and_ccsid_in_the_header(format_: bytes) -> None:
    data = other(format_, b"MQHRF2", 0, 0, b"", byte_order="big") + encode_rfh2(RFH2(), byte_order="big")
    chain = decode_chain(format_, BIG, 500, data, discard_others=True)
    assert (len(chain.headers), chain.CodedCharSetId) == (1, 500)


def test_another_header_with_an_invalid_length_is_malformed(subtests: pytest.Subtests) -> None:
    for format_ in sorted(OTHER_KINDS):
        for length in [-1, 0, 1, 2**31 - 1]:
            with subtests.test(format_=format_, length=length):
                data = bytearray(other(format_, b"MQSTR", LITTLE, 0, b"", byte_order="little") + b"body")
                wrong = OTHER_KINDS[format_].min_length - 1 if length == 1 else length
                data[8:12] = wrong.to_bytes(4, "little", signed=True)
                with pytest.raises(MalformedHeader, match="at offset 8: StrucLength"):
                    decode_chain(format_, LITTLE, 0, data, discard_others=True)
                with pytest.raises(MalformedHeader, match="at offset 0"):
                    decode_chain(format_, LITTLE, 0, b"XXXX" + data[4:], discard_others=True)
                with pytest.raises(MalformedHeader, match="at offset 0"):
                    decode_chain(format_, LITTLE, 0, data[:20], discard_others=True)
                assert decode_chain(format_, LITTLE, 0, data).body == data, "without discard_others it is the body"
