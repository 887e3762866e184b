"""Messages as JSON and as text."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bridge.mapping.message_view import MessageView, md_json
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, MQMD, MQMDE, MQXQH, RFH2, Folder, encode_chain

MSG_ID = bytes(range(24))
DEFAULT_MD = {
    "Version": 1,
    "Report": 0,
    "MsgType": 8,
    "Expiry": -1,
    "Feedback": 0,
    "Encoding": 546,
    "CodedCharSetId": 0,
    "Format": "",
    "Priority": -1,
    "Persistence": 2,
    "MsgId": "00" * 24,
    "CorrelId": "00" * 24,
    "BackoutCount": 0,
    "ReplyToQ": "",
    "ReplyToQMgr": "",
    "UserIdentifier": "",
    "AccountingToken": "00" * 32,
    "ApplIdentityData": "",
    "PutApplType": 0,
    "PutApplName": "",
    "PutDate": "",
    "PutTime": "",
    "ApplOriginData": "",
}
GROUP_FIELDS = {"GroupId": "00" * 24, "MsgSeqNumber": 1, "Offset": 0, "MsgFlags": 0, "OriginalLength": -1}


def view(*headers: Any, body: bytes = b"", md: MQMD | None = None) -> MessageView:
    """Return a message with these headers, and the MQMD for the first."""
    format_, encoding, ccsid, data = encode_chain(headers, body)
    fitting = {"Format": format_, "Encoding": encoding, "CodedCharSetId": ccsid} if headers else {}
    return MessageView(msgspec.structs.replace(md or MQMD(), **fitting), data)


def as_json(message: MessageView) -> Any:
    return json.loads(msgspec.json.encode(message.json()))


def test_mqmd_by_ibm_field_names(subtests: pytest.Subtests) -> None:
    for md, changed in [
        (MQMD(), {}),
        (MQMD(Version=2), {"Version": 2, **GROUP_FIELDS}),
        (MQMD(MsgId=MSG_ID), {"MsgId": "000102030405060708090A0B0C0D0E0F1011121314151617"}),
        (
            MQMD(CorrelId=b"\xff" * 24, Priority=9, Persistence=1),
            {"CorrelId": "FF" * 24, "Priority": 9, "Persistence": 1},
        ),
        (MQMD(Format=b"MQSTR", CodedCharSetId=1208), {"Format": "MQSTR", "CodedCharSetId": 1208}),
        (MQMD(ReplyToQ=b" A B  "), {"ReplyToQ": " A B"}),
        (MQMD(PutApplName=b"prog\0rest"), {"PutApplName": "prog"}),
        (MQMD(UserIdentifier="jürgen".encode()), {"UserIdentifier": "jürgen"}),
        (MQMD(UserIdentifier=b"j\xfcrgen"), {"UserIdentifier": "j�rgen"}),
        (MQMD(AccountingToken=b"\xab" * 32), {"AccountingToken": "AB" * 32}),
    ]:
        with subtests.test(md=md, changed=changed):
            assert md_json(md) == {**DEFAULT_MD, **changed}
            assert list(md_json(md))[:4] == ["Version", "Report", "MsgType", "Expiry"]


@pytest.mark.parametrize(
    ("body", "text", "encoding"),
    [
        (b"", "", "utf-8"),
        ("grün".encode(), "grün", "utf-8"),
        (b'"\n\0', '"\n\0', "utf-8"),
        (b"\xff\x00", "/wA=", "base64"),
        (b"\xed\xa0\x80", "7aCA", "base64"),
    ],
)
def test_bodies_are_shown_in_json(body: bytes, text: str, encoding: str) -> None:
    assert as_json(view(body=body)) == {"md": DEFAULT_MD, "rfh2": [], "body": text, "bodyEncoding": encoding}


def test_rfh2_with_typed_values() -> None:
    header = RFH2(
        CodedCharSetId=1208,
        folders=(
            Folder.build("mqtt", {"clientId": "dev", "qos": 1, "msgid": 7}),
            Folder.build("mqps", {"Top": "a/b", "Ret": True}),
            Folder.build("usr", {"x": {"y": b"\xca\xfe", "z": None}, "f": 1.5, "n": float("nan"), "l": [1, 2]}),
        ),
    )
    assert as_json(view(header, body=b"21"))["rfh2"] == [
        {
            "Encoding": 546,
            "CodedCharSetId": 1208,
            "Format": "",
            "Flags": 0,
            "NameValueCCSID": 1208,
            "folders": {
                "mqtt": {"clientId": "dev", "qos": 1, "msgid": 7},
                "mqps": {"Top": "a/b", "Ret": True},
                "usr": {"x": {"y": "CAFE", "z": None}, "f": 1.5, "n": "NaN", "l": [1, 2]},
            },
        }
    ]


def test_folders_of_one_name_are_a_list() -> None:
    folders = tuple(Folder.build("usr", {"n": number}) for number in (1, 2, 3))
    assert as_json(view(RFH2(folders=folders)))["rfh2"][0]["folders"] == {"usr": [{"n": 1}, {"n": 2}, {"n": 3}]}


def test_an_unparsable_folder_is_shown_unchanged() -> None:
    header = RFH2(folders=(Folder(b"<usr><a></usr>  "), Folder.build("mqps", {"Top": "t"})))
    assert as_json(view(header))["rfh2"][0]["folders"] == {"usr": "<usr><a></usr>", "mqps": {"Top": "t"}}


def test_all_headers_of_a_dead_lettered_transmission_queue_message_are_shown() -> None:
    dlh = MQDLH(
        Reason=cmqc.MQRC_Q_FULL, DestQName=b"Q", DestQMgrName=b"QM", Encoding=546, PutApplType=6, PutApplName=b"p"
    )
    xqh = MQXQH(RemoteQName=b"a/b", RemoteQMgrName=b"dev", MsgDesc=MQMD(MsgId=MSG_ID))
    document = as_json(view(dlh, xqh, RFH2(CodedCharSetId=1208), RFH2(CodedCharSetId=1208), body=b"x"))
    assert document["md"]["Format"] == "MQDEAD"
    assert document["dlh"] == {
        "Reason": 2053,
        "ReasonName": "MQRC_Q_FULL",
        "DestQName": "Q",
        "DestQMgrName": "QM",
        "Encoding": 546,
        "CodedCharSetId": 0,
        "Format": "MQXMIT",
        "PutApplType": 6,
        "PutApplName": "p",
        "PutDate": "",
        "PutTime": "",
    }
    embedded = document["xqh"].pop("md")
    assert document["xqh"] == {"RemoteQName": "a/b", "RemoteQMgrName": "dev"}
    assert (embedded["MsgId"], embedded["Format"]) == (MSG_ID.hex().upper(), "MQHRF2")
    assert [header["Format"] for header in document["rfh2"]] == ["MQHRF2", ""]
    assert document["body"] == "x"
    assert set(document) == {"md", "rfh2", "dlh", "xqh", "body", "bodyEncoding"}


def test_an_mqmde_is_shown() -> None:
    document = as_json(view(MQMDE(MsgSeqNumber=3), body=b"x"))
    assert (document["md"]["Format"], document["mde"]["MsgSeqNumber"], document["mde"]["GroupId"]) == (
        "MQHMDE",
        3,
        "00" * 24,
    )


def test_an_invalid_header_counts_as_body() -> None:
    document = as_json(MessageView(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), b"not an RFH2"))
    assert (document["rfh2"], document["body"]) == ([], "not an RFH2")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", ""),
        ("grün\n\tweiß".encode(), "grün\n\tweiß"),
        (b"\xff\x00abc", "00000000  ff 00 61 62 63                                   |..abc|"),
        # An escape sequence could change the state of a terminal.
        (b"\x1b[2J", "00000000  1b 5b 32 4a                                      |.[2J|"),
        (bytes(17), "00000000  " + " ".join(["00"] * 16) + "  |" + "." * 16 + "|\n00000010  00" + " " * 47 + "|.|"),
    ],
)
def test_bodies_are_shown_as_text(body: bytes, text: str) -> None:
    assert view(body=body).text() == text


def test_text_output_contains_the_headers() -> None:
    header = RFH2(CodedCharSetId=1208, folders=(Folder.build("mqps", {"Top": "a\x1bb"}),))
    lines = view(header, body=b"x", md=MQMD(MsgId=MSG_ID)).text(verbose=True).splitlines()
    assert lines[0] == "MQMD"
    assert "  MsgId                000102030405060708090A0B0C0D0E0F1011121314151617" in lines
    assert lines[24] == "MQRFH2"
    assert lines[-3:] == ["  folders.mqps.Top     'a\\x1bb'", "body (1 bytes)", "x"]
