"""MQGMO_CONVERT of IBM MQ's built-in formats: headers, text and command messages."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bridge.mq.mqi import MQOD, MQError
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, MQMD, MQXQH, RFH2, Chain, Folder, decode_chain, encode_chain, encode_rfh2
from bridge.wire.mq.headers import KIND_OF_FORMAT, described, descriptor_of
from bridge.wire.mq.pcf import MQCFGR, MQCFH, MQCFIN, MQCFST, decode_pcf, encode_pcf
from tests.helpers.stand_in_manager import StandInManager
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.mqi.structures import MqiGetOptions


@pytest.fixture
def connection(manager: StandInManager) -> StandInConnection:
    manager.ok("DEFINE QLOCAL(Q)")
    return manager.connection


def opened(connection: StandInConnection) -> int:
    return connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)


CONVERTED = MqiGetOptions(Options=cmqc.MQGMO_CONVERT, CodedCharSetId=1208, Encoding=cmqc.MQENC_NATIVE)
BIG_ENDIAN = 273


def converted(connection: StandInConnection, md: Any, data: Any) -> Any:
    put_whole(connection, md, data)
    return connection.get(opened(connection), CONVERTED)


def put_whole(connection: StandInConnection, md: Any, data: Any) -> None:
    connection.put(connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_OUTPUT), Message(md, data))


HEADERS = {
    "RFH2": (RFH2(folders=(Folder.build("usr", {"a": "b"}),)),),
    "MQDLH": (MQDLH(Reason=2053, DestQName=b"OUT", DestQMgrName=b"QM1"),),
    "MQXQH": (MQXQH(RemoteQName=b"OUT", RemoteQMgrName=b"QM2", MsgDesc=MQMD()),),
    "MQDLH, MQXQH, RFH2": (
        MQDLH(Reason=2053, DestQName=b"OUT"),
        MQXQH(RemoteQName=b"OUT", MsgDesc=MQMD()),
        RFH2(folders=(Folder.build("usr", {"a": "b"}),)),
    ),
}


@pytest.mark.parametrize("ccsid", [819, 500])
@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
def test_headers_are_converted_with_the_data_after_them(
    connection: StandInConnection, headers: Any, ccsid: int
) -> None:
    """Encoding and CodedCharSetId describe the following data. Names and text keep their meaning in the requested form."""
    text = "grün".encode("latin-1" if ccsid == 819 else "cp500")
    chain = Chain(
        headers=headers,
        Format=cmqc.MQFMT_STRING,
        Encoding=BIG_ENDIAN,
        CodedCharSetId=ccsid,
        body=text,
        outer_encoding=BIG_ENDIAN,
        outer_ccsid=ccsid,
    )
    chain = msgspec.structs.replace(
        chain, headers=tuple(described(header, descriptor_of(header).Format, BIG_ENDIAN, ccsid) for header in headers)
    )
    encoded = encode_chain(chain)
    data = bytearray(encoded.data)
    if ccsid == 500:  # the characters of fixed parts are then EBCDIC, too
        at = 0
        for header in headers:
            name = {RFH2: "MQRFH2", MQDLH: "MQDLH", MQXQH: "MQXQH"}[type(header)]  # type: ignore[index]
            kind = next(kind for kind in KIND_OF_FORMAT.values() if kind.structure == name)
            for layout, begin in kind.layouts:
                for offset, width in layout.characters:
                    place = slice(at + begin + offset, at + begin + offset + width)
                    data[place] = bytes(data[place]).decode("latin-1").encode("cp500")
            at += kind.length or int.from_bytes(data[at + 8 : at + 12], "big")
    md = MQMD(Format=encoded.Format, Encoding=BIG_ENDIAN, CodedCharSetId=ccsid)
    message = converted(connection, md, bytes(data))
    assert message.Reason == 0
    read = decode_chain(message.md.Format, message.md.Encoding, message.md.CodedCharSetId, message.data)
    assert read.body == "grün".encode()
    assert (read.Format, read.Encoding, read.CodedCharSetId) == (cmqc.MQFMT_STRING, cmqc.MQENC_NATIVE, 1208)
    assert [type(header) for header in read.headers] == [type(header) for header in headers]
    for converted_header in read.headers:
        assert (descriptor_of(converted_header).Encoding, descriptor_of(converted_header).CodedCharSetId) == (
            cmqc.MQENC_NATIVE,
            1208,
        )
    if isinstance(read.headers[0], MQDLH):
        assert read.headers[0].DestQName == b"OUT"


@pytest.mark.parametrize(
    ("format_", "reason", "ccsid"), [(cmqc.MQFMT_NONE, 0, 819), (b"OWN", cmqc.MQRC_FORMAT_ERROR, 819)]
)
def test_a_header_describes_the_data_that_cannot_be_converted(
    connection: StandInConnection, format_: bytes, reason: int, ccsid: int
) -> None:
    header = RFH2(Encoding=BIG_ENDIAN, CodedCharSetId=ccsid, Format=format_)
    md = MQMD(Format=cmqc.MQFMT_RF_HEADER_2, Encoding=BIG_ENDIAN, CodedCharSetId=819)
    message = converted(connection, md, encode_rfh2(header, byte_order="big") + b"\xfc")
    assert message.Reason == reason
    read = decode_chain(message.md.Format, message.md.Encoding, message.md.CodedCharSetId, message.data)
    assert (read.body, read.Format, read.Encoding, read.CodedCharSetId) == (b"\xfc", format_, BIG_ENDIAN, ccsid)


@pytest.mark.parametrize("format_", [cmqc.MQFMT_ADMIN, cmqc.MQFMT_PCF, cmqc.MQFMT_EVENT])
def test_command_messages_are_converted(connection: StandInConnection, format_: bytes) -> None:
    parameters = (MQCFIN(1, 7), MQCFST(2, "grün".encode("cp500")), MQCFGR(4, (MQCFST(5, "tief".encode("cp500")),)))
    data = encode_pcf(MQCFH(Command=1, ParameterCount=3), parameters, byte_order="big")
    message = converted(connection, MQMD(Format=format_, Encoding=BIG_ENDIAN, CodedCharSetId=500), data)
    assert message.Reason == 0
    _, converted_parameters = decode_pcf(message.data)
    assert converted_parameters[0] == MQCFIN(1, 7)
    assert converted_parameters[1].String == "grün".encode()
    assert converted_parameters[2].Parameters[0].String == b"tief"


def test_an_endless_chain_of_headers_is_not_converted(connection: StandInConnection) -> None:
    header = encode_rfh2(RFH2(Encoding=BIG_ENDIAN, CodedCharSetId=819, Format=cmqc.MQFMT_RF_HEADER_2), byte_order="big")
    md = MQMD(Format=cmqc.MQFMT_RF_HEADER_2, Encoding=BIG_ENDIAN, CodedCharSetId=819)
    message = converted(connection, md, header * 20_000)
    assert message.Reason == cmqc.MQRC_FORMAT_ERROR
    assert len(message.data) == len(header) * 20_000


def test_data_that_would_be_too_long_is_not_converted(connection: StandInConnection) -> None:
    """MQRC_CONVERTED_MSG_TOO_BIG (2120), and the message is removed."""
    put_whole(connection, MQMD(Format=cmqc.MQFMT_STRING, CodedCharSetId=819), "üüüü".encode("latin-1"))
    options = MqiGetOptions(Options=cmqc.MQGMO_CONVERT, CodedCharSetId=1208, MaxLength=4)
    message = connection.get(opened(connection), options)
    assert (message.data, message.Reason) == ("üüüü".encode("latin-1"), cmqc.MQRC_CONVERTED_MSG_TOO_BIG)
    assert message.md.CodedCharSetId == 819
    with pytest.raises(MQError):
        connection.get(opened(connection), MqiGetOptions())
