"""Conversion of messages to rows and back: nothing is lost, and each column matches the message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from bridge.spark.columns import MQ_ARROW_SCHEMA, subset
from bridge.spark.mq.envelope import put_time, record_batch
from bridge.spark.mq.rows import check_columns, rows_of
from bridge.spark.options import OptionError
from bridge.spark.schema import MQ_SCHEMA
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, MQMD, MQXQH, RFH2, Folder, decode_chain, encode_chain

names = st.text(st.characters(codec="ascii", categories=["Lu", "Nd"]), max_size=8).map(str.encode)
longs = st.integers(-(2**31), 2**31 - 1)
folders = st.builds(
    lambda name, content: Folder.build(name, content),
    st.sampled_from(["usr", "mqps", "mqtt", "jms"]),
    st.dictionaries(st.sampled_from(["Top", "qos", "a", "b"]), st.text("xyzé<&", min_size=1), max_size=3),
)
headers = st.lists(
    st.one_of(
        st.builds(lambda drawn_folders: RFH2(folders=tuple(drawn_folders)), st.lists(folders, max_size=3)),
        st.builds(MQXQH, RemoteQName=names, RemoteQMgrName=names),
        st.builds(MQDLH, Reason=longs, DestQName=names, Encoding=st.just(cmqc.MQENC_NATIVE)),
    ),
    max_size=3,
)


@st.composite
def messages(draw: st.DrawFn) -> tuple[MQMD, bytes]:
    """Generate a message with any headers, or with data that only looks like a header."""
    chain = encode_chain(draw(headers), draw(st.binary(max_size=40)))
    data = chain.data if draw(st.integers(0, 9)) else draw(st.binary(max_size=40))
    md = MQMD(
        Version=draw(st.sampled_from([1, 2])),
        Format=chain.Format,
        Encoding=chain.Encoding,
        CodedCharSetId=chain.CodedCharSetId,
        MsgId=draw(st.binary(min_size=24, max_size=24)),
        CorrelId=draw(st.binary(min_size=24, max_size=24)),
        Expiry=draw(longs),
        ReplyToQ=draw(names),
        UserIdentifier=draw(names),
    )
    return md, data


@settings(max_examples=60, deadline=None)
@given(st.lists(messages(), max_size=4))
def test_rows_contain_the_messages(drawn_messages: list[tuple[MQMD, bytes]]) -> None:
    batch = record_batch("Q", drawn_messages)
    batch.validate(full=True)
    assert batch.schema.equals(MQ_ARROW_SCHEMA)
    rows = list(rows_of(batch))
    assert [(row.message.md, row.message.data) for row in rows] == drawn_messages
    for line, (md, data) in zip(batch.to_pylist(), drawn_messages, strict=True):
        assert line["headers"] + line["body"] == data
        chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, data, strict=False)
        assert (line["body"], line["format"], line["ccsid"], line["encoding"]) == (
            chain.body,
            chain.Format.decode(),
            chain.CodedCharSetId,
            chain.Encoding,
        )


def row(md: MQMD, data: bytes) -> dict[str, Any]:
    columns: dict[str, Any] = record_batch("Q", [(md, data)]).to_pylist()[0]
    return columns


def test_publications_of_an_mqtt_client() -> None:
    message = PublicationMessage(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), "dev-1", "plant/a", b"21.5", 1, 7)
    line = row(message.md, message.data)
    assert line["topic"] == "plant/a"
    assert dict(line["rfh2"]) == {
        "mqtt": [("clientId", "dev-1"), ("qos", "1"), ("msgid", "7")],
        "mqps": [("Top", "plant/a")],
    }
    assert line["body"] == b"21.5"


def test_groups_repetitions_nil_and_folders_that_cannot_be_read() -> None:
    content = {"g": {"x": [1, 2.5], "y": None}, "flag": True, "raw": b"\1\2"}
    header = RFH2(folders=(Folder.build("usr", content), Folder.build("usr", {"n": ""}), Folder(b"<bad><a></bad>  ")))
    chain = encode_chain([header], b"")
    line = row(MQMD(Format=chain.Format), chain.data)
    assert {name: content and dict(content) for name, content in line["rfh2"]} == {
        "usr": {"g.x": "1", "g.x[2]": "2.5", "g.y": None, "flag": "1", "raw": "0102"},
        "usr[2]": {"n": ""},
        "bad": None,
    }


def test_a_dead_lettered_transmission_message() -> None:
    inner = MQMD(ReplyToQ=b"ANSWERS", MsgId=b"m" * 24)
    chain = encode_chain(
        [
            MQDLH(Reason=cmqc.MQRC_Q_FULL, DestQName=b"X", Encoding=cmqc.MQENC_NATIVE),
            MQXQH(RemoteQName=b"R", RemoteQMgrName=b"dev-1", MsgDesc=inner),
        ],
        b"body",
    )
    line = row(MQMD(Format=chain.Format), chain.data)
    assert (line["mqdlh"]["Reason"], line["mqdlh"]["DestQName"]) == (cmqc.MQRC_Q_FULL, "X")
    assert (line["mqxqh"]["RemoteQName"], line["mqxqh"]["RemoteQMgrName"]) == ("R", "dev-1")
    assert (line["mqxqh"]["MsgDesc"]["ReplyToQ"], line["mqxqh"]["MsgDesc"]["MsgId"]) == ("ANSWERS", b"m" * 24)


@pytest.mark.parametrize(
    "date, time, expected",
    [
        (b"20261121", b"11593099", datetime(2026, 11, 21, 11, 59, 30, 990_000, UTC)),
        (b"20240229", b"00000000", datetime(2024, 2, 29, tzinfo=UTC)),
        (b"20230229", b"00000000", None),
        (b"", b"", None),
        (b"2026112x", b"11593099", None),
        (b"20261121", b"115930 9", None),
    ],
)
def test_put_time(date: bytes, time: bytes, expected: datetime | None) -> None:
    timestamp = put_time(date, time)
    assert (None if timestamp is None else datetime.fromtimestamp(timestamp / 1e6, UTC)) == expected


# Rows that a program makes -------------------------------------------------------------------------------------------


def message_of(**columns: Any) -> Message:
    (message_row,) = rows_of(pa.RecordBatch.from_pylist([columns]))
    return message_row.message


def test_a_body_without_other_columns() -> None:
    assert message_of(body="é") == Message(MQMD(), "é".encode())
    assert message_of(body=None) == Message(MQMD(), b"")


def test_some_fields_of_the_mqmd() -> None:
    md = {"CorrelId": b"c", "ReplyToQ": "Q", "Priority": 3, "Expiry": None}
    assert message_of(body=b"", md=md).md == MQMD(CorrelId=b"c".ljust(24, b"\0"), ReplyToQ=b"Q", Priority=3)
    assert message_of(body=b"", md={"GroupId": b"g"}).md.Version == cmqc.MQMD_VERSION_2


def test_folders_become_an_rfh2() -> None:
    schema = pa.schema(
        {
            "body": pa.binary(),
            "rfh2": pa.map_(pa.string(), pa.map_(pa.string(), pa.string())),
            "format": pa.string(),
            "ccsid": pa.int32(),
        }
    )
    line = {
        "body": b"x",
        "rfh2": {"usr": {"g.x": "1", "g.x[2]": "2", "n": None}, "usr[2]": {"m": "3"}},
        "format": "MQSTR",
        "ccsid": 819,
    }
    (message_row,) = rows_of(pa.RecordBatch.from_pylist([line], schema=schema))
    md = message_row.message.md
    chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, message_row.message.data)
    (header,) = chain.headers
    assert isinstance(header, RFH2)
    assert [folder.content for folder in header.folders] == [{"g": {"x": ["1", "2"]}, "n": None}, {"m": "3"}]
    assert (chain.body, chain.Format, chain.CodedCharSetId) == (b"x", cmqc.MQFMT_STRING, 819)


def test_a_format_of_headers_that_the_row_does_not_have_is_ignored() -> None:
    assert message_of(body=b"x", md={"Format": "MQHRF2"}).md.Format == cmqc.MQFMT_NONE
    assert message_of(body=b"x", md={"Format": "MQSTR"}).md.Format == cmqc.MQFMT_STRING


def test_headers_determine_their_format_if_the_mqmd_does_not() -> None:
    chain = encode_chain([RFH2(Format=cmqc.MQFMT_STRING)], b"")
    message = message_of(headers=chain.data, body=b"x")
    assert message == Message(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), chain.data + b"x")


@pytest.mark.parametrize(
    "md, named",
    [
        ({"ReplyToQ": "x" * 49}, "md.ReplyToQ: expected at most 48 bytes"),
        ({"MsgId": b"x" * 25}, "md.MsgId: expected at most 24 bytes"),
        ({"Priority": 2**31}, "md.Priority: expected a signed 32-bit integer"),
    ],
)
def test_values_that_fit_no_field(md: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        message_of(body=b"", md=md)


@pytest.mark.parametrize(
    "folders, reason",
    [
        ({"usr": None}, "rfh2.usr is null because the folder could not be parsed; .* the column headers"),
        ({"usr": {"a": "1", "a.b": "2"}}, r"rfh2.usr: a is an element with a text, and has a\.b in it as well"),
        ({"usr": {"a.b": "2", "a": "1"}}, r"rfh2.usr: a is a group, and has a text as well"),
    ],
)
def test_folders_that_cannot_be_written(folders: dict[str, dict[str, str] | None], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        message_of(body=b"", rfh2=folders)


@pytest.mark.parametrize(
    "ddl, reason",
    [
        ("payload binary", r"unknown column payload .expected queue, topic, md, .*; column body is missing"),
        ("body int", r"column body: expected binary or string, found int"),
        ("body binary, md string", r"column md: expected struct, found string"),
        ("body binary, md struct<Msgid: binary>", r"unknown column md.Msgid .expected Version, "),
        ("body binary, md struct<MsgId: string>", r"column md.MsgId: expected binary, found string"),
        ("body binary, rfh2 map<string, string>", r"column rfh2: expected map<string,map<string,string>>"),
    ],
)
def test_invalid_columns_are_named(spark: SparkSession, ddl: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        check_columns("mq", StructType.fromDDL(ddl))


def test_rows_that_are_read_can_be_put() -> None:
    check_columns("mq", MQ_SCHEMA)


#: (Format, CCSID, Encoding, body, text, text_error)
TEXTS: list[tuple[bytes, int, int, bytes, str | None, str | None]] = [
    (b"MQSTR", 1208, cmqc.MQENC_NATIVE, "é€".encode(), "é€", None),
    (b"MQSTR", 1208, cmqc.MQENC_NATIVE, b"\xe9", None, "the payload is not text in CCSID 1208: '\\xe9' at byte 0"),
    (b"MQSTR", 819, cmqc.MQENC_NATIVE, b"\xe9", "é", None),
    (b"MQSTR", 500, cmqc.MQENC_NATIVE, "é[1]".encode("cp500"), "é[1]", None),
    (b"MQSTR", 1200, 546, "é".encode("utf-16-le"), "é", None),
    (b"MQSTR", 1200, 273, "é".encode("utf-16-be"), "é", None),
    (b"MQSTR", 930, cmqc.MQENC_NATIVE, b"a", None, "CCSID 930 of the message is unknown"),
    (b"MQSTR", 1208, cmqc.MQENC_NATIVE, b"", "", None),
    (b"", 1208, cmqc.MQENC_NATIVE, b"a", None, None),
]


@pytest.mark.parametrize("behind", [(), (RFH2(),)])
def test_text(behind: tuple[RFH2, ...]) -> None:
    """Alone, in a record batch with others, and after a header."""
    encoded = []
    for format_, ccsid, encoding, body, *_ in TEXTS:
        described = {"Format": format_.ljust(8), "CodedCharSetId": ccsid, "Encoding": encoding}
        chain = encode_chain([RFH2(**described)] if behind else [], body)
        encoded.append((MQMD(**({"Format": chain.Format} if behind else described)), chain.data if behind else body))
    expected = [{"text": text, "text_error": error} for *_, text, error in TEXTS]
    assert record_batch("Q", encoded, subset(MQ_ARROW_SCHEMA, ["text", "text_error"])).to_pylist() == expected
    for message, row in zip(encoded, expected, strict=True):
        batch = record_batch("Q", [message])
        assert {name: batch.column(name).to_pylist()[0] for name in row} == row


def test_a_string_body_is_encoded_in_the_ccsid_of_its_row() -> None:
    md = {"Format": "MQSTR", "CodedCharSetId": 500}
    for columns, expected in (
        ({"md": md}, "é".encode("cp500")),
        ({"md": md, "ccsid": 819}, b"\xe9"),
        ({"ccsid": 1200, "encoding": 546}, "é".encode("utf-16-le")),
        ({"md": {"CodedCharSetId": 0}}, "é".encode()),
        ({}, "é".encode()),
    ):
        (message_row,) = rows_of(pa.RecordBatch.from_pylist([{"body": "é", **columns}]))
        assert message_row.message.data == expected
    for ccsid, reason in (
        (99999, "CCSID 99999 of the text is unknown"),
        (367, "CCSID 367 has no 'é', which is character 3 of the text"),
    ):
        (message_row,) = rows_of(pa.RecordBatch.from_pylist([{"body": "caé", "ccsid": ccsid}]))
        assert (str(message_row.unencodable), message_row.message.data) == (reason, "caé".encode())
        assert message_row.message.md.CodedCharSetId == 1208
