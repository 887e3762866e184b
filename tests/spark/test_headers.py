"""MQMD and MQRFH2 as columns: what the codecs of `bridge.wire.mq` read and write."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from bridge.spark import headers
from bridge.spark.mq.envelope import md_array, record_batch
from bridge.wire.mq import MQMD, RFH2, Folder, MalformedHeader, Typed, encode_chain, encode_mqmd, encode_rfh2

NAME = st.text("ABCXYZ.0189", max_size=8).map(str.encode)
MD = st.builds(MQMD, Version=st.integers(1, 2), Expiry=st.integers(-1, 2**31 - 1), ReplyToQ=NAME,
               MsgId=st.binary(min_size=24, max_size=24), Format=NAME, Persistence=st.integers(0, 2))  # fmt: skip


@settings(deadline=None)  # (the first one reads the modules)
@given(st.lists(MD, max_size=4), st.sampled_from(["little", "big"]))
def test_mqmd_there_and_back(mds: list[MQMD], byte_order: Any) -> None:
    data = pa.array([*(encode_mqmd(md, byte_order=byte_order) for md in mds), b"MD  ", None], pa.binary())
    decoded = headers.decode_mqmd_array(data)
    assert decoded.slice(0, len(mds)).to_pylist() == md_array(mds).to_pylist()
    assert decoded.slice(len(mds)).to_pylist() == [None, None]
    assert headers.encode_mqmd_array(decoded).to_pylist() == [*map(encode_mqmd, mds), None, None]


def test_an_mqmd_of_a_few_fields() -> None:
    given = pa.array([{"Format": "MQSTR", "MsgSeqNumber": None}, {"Format": None, "MsgSeqNumber": 2}])
    expected = [MQMD(Format=b"MQSTR"), MQMD(Version=2, MsgSeqNumber=2)]
    assert headers.encode_mqmd_array(given).to_pylist() == [encode_mqmd(md) for md in expected]
    with pytest.raises(ValueError, match="Format: expected at most 8 bytes"):
        headers.encode_mqmd_array(pa.array([{"Format": "MQSTRING9"}]))


def test_rfh2() -> None:
    folders = (Folder.build("mqtt", {"clientId": "c", "qos": Typed(1, "i4")}), Folder.build("usr", {"a": {"b": "ü <"}}))
    header = RFH2(Format=b"MQSTR", CodedCharSetId=500, folders=folders)
    data = [encode_rfh2(header) + b"body", encode_rfh2(header, byte_order="big"), encode_rfh2(RFH2()), b"RFH \2", None]
    whole, big, bare, malformed, null = headers.decode_rfh2_array(pa.array(data)).to_pylist()
    assert whole == {
        "StrucLength": header.StrucLength,
        "Encoding": 546,
        "CodedCharSetId": 500,
        "Format": "MQSTR",
        "Flags": 0,
        "NameValueCCSID": 1208,
        "folders": [("mqtt", [("clientId", "c"), ("qos", "1")]), ("usr", [("a.b", "ü <")])],
    }
    assert (big, bare["folders"], malformed, null) == (whole, [], None, None)


def test_rfh2_written() -> None:
    rows = [
        {"folders": [("usr", [("a.b", "ü <"), ("c", "1")])], "Format": "MQSTR", "CodedCharSetId": None},
        {"folders": [], "Format": "MQSTR", "CodedCharSetId": 500},
        None,
    ]
    type_ = pa.struct([("folders", headers.RFH2_TYPE.field("folders").type), ("Format", pa.string()),
                       ("CodedCharSetId", pa.int32())])  # fmt: skip
    usr = Folder.build("usr", {"a": {"b": "ü <"}, "c": "1"})
    assert headers.encode_rfh2_array(pa.array(rows, type_)).to_pylist() == [
        encode_rfh2(RFH2(Format=b"MQSTR", CodedCharSetId=1208, folders=(usr,))),
        encode_rfh2(RFH2(Format=b"MQSTR", CodedCharSetId=500)),
        None,
    ]
    with pytest.raises(MalformedHeader):
        headers.encode_rfh2_array(pa.array([{"folders": [("no name", [("x", "1")])]}], type_))


def test_headers_and_body_are_split_as_a_read_does() -> None:
    rfh2 = RFH2(Format=b"MQSTR", CodedCharSetId=500, folders=(Folder.build("mqps", {"Top": "a/b"}),))
    encoded = encode_chain([rfh2], b"body")
    messages = [
        (MQMD(Format=encoded.Format, Encoding=546), encoded.data),
        (MQMD(Format=encoded.Format, Encoding=546), encoded.data[:20]),
        (MQMD(Format=b"MQSTR"), b"text"),
    ]
    envelope = record_batch("Q", messages)
    md = envelope.column("md")
    parts = headers.split_headers_array(
        pa.array([data for _, data in messages]), md.field("Format"), md.field("CodedCharSetId"), md.field("Encoding")
    )
    assert parts.to_pylist() == envelope.select(headers.PARTS_TYPE.names).to_pylist()


def test_in_spark(spark: SparkSession) -> None:
    rfh2 = encode_rfh2(RFH2(folders=(Folder.build("usr", {"a": "1"}),)))
    data = [(encode_mqmd(MQMD(Format=b"MQHRF2")), rfh2 + b"body")]
    frame = spark.createDataFrame(data, "md binary, data binary").withColumn("md", headers.decode_mqmd("md"))
    parts = headers.split_headers("data", "md.Format", "md.CodedCharSetId", "md.Encoding")
    frame = frame.withColumns({"parts": parts, "rfh2": headers.decode_rfh2("data")})
    frame = frame.withColumns({"again": headers.encode_rfh2("rfh2"), "md_again": headers.encode_mqmd("md")})
    (row,) = frame.collect()
    assert (row.parts.body, row.parts.headers, row.parts.rfh2) == (b"body", rfh2, {"usr": {"a": "1"}})
    assert row.rfh2.folders == {"usr": {"a": "1"}}
    assert row.md_again == encode_mqmd(MQMD(Format=b"MQHRF2"))
    assert len(row.again) == len(rfh2)
