"""Values that do not fit into a field of an MQ structure are rejected in all calls."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from bridge.mq import remote as protocol
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.mqi import MQOD, MQSD, Connection, GetOptions, MQError
from bridge.mq.remote import RemoteConnection
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.patience import PATIENCE
from tests.helpers.served_queue_manager import ServedQueueManager

SUBSCRIBE = cmqc.MQSO_CREATE | cmqc.MQSO_MANAGED | cmqc.MQSO_NON_DURABLE | cmqc.MQSO_SET_CORREL_ID
MD, OD, SD = cmqc.MQRC_MD_ERROR, cmqc.MQRC_OD_ERROR, cmqc.MQRC_SD_ERROR
UNKNOWN = cmqc.MQRC_UNKNOWN_OBJECT_NAME


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedQueueManager]:
    with ServedQueueManager(tmp_path_factory.mktemp("fields")) as served:
        administrator = RemoteConnection(served.directory)
        administrator.command("DEFINE QLOCAL(Q)\nALTER QMGR DEFXMITQ(SYSTEM.MQTT.TRANSMIT.QUEUE)")
        administrator.disconnect()
        yield served


@pytest.fixture(params=["in this process", "over MessagePack"])
def connection(request: pytest.FixtureRequest, served: ServedQueueManager) -> Iterator[Connection]:
    inside = request.param == "in this process"
    connection: Connection = EmbeddedConnection(served.itself) if inside else RemoteConnection(served.directory)
    yield connection
    connection.disconnect()


def put1(od: MQOD | None = None, **fields: Any) -> Callable[[Connection], object]:
    message = Message(MQMD(**fields), b"x")
    return lambda connection: connection.put1(od or MQOD(ObjectName="Q"), message, cmqc.MQPMO_SET_ALL_CONTEXT)


def put(**fields: Any) -> Callable[[Connection], object]:
    def call(connection: Connection) -> object:
        handle = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_OUTPUT | cmqc.MQOO_SET_ALL_CONTEXT)
        return connection.put(handle, Message(MQMD(**fields), b"x"), cmqc.MQPMO_SET_ALL_CONTEXT)

    return call


def open_(**fields: str) -> Callable[[Connection], object]:
    return lambda connection: connection.open(MQOD(**fields), cmqc.MQOO_OUTPUT)


def subscribe(**fields: Any) -> Callable[[Connection], object]:
    return lambda connection: connection.subscribe(MQSD(Options=SUBSCRIBE, ObjectString="a", **fields))


#: Calls with a value that is longer than its field, the reason code, and the detail.
TOO_LONG = [
    (put1(Format=b"F" * 5000), MD, "Format takes 8 bytes, not 5000"),
    (put(Format=b"F" * 9), MD, "Format takes 8 bytes, not 9"),
    (put1(MsgId=bytes(25)), MD, "MsgId takes 24 bytes, not 25"),
    (put1(CorrelId=bytes(25)), MD, "CorrelId takes 24 bytes, not 25"),
    (put1(ReplyToQ=b"q" * 49), MD, "ReplyToQ takes 48 bytes, not 49"),
    (put1(ReplyToQMgr=b"m" * 49), MD, "ReplyToQMgr takes 48 bytes, not 49"),
    (put1(UserIdentifier=b"u" * 13), MD, "UserIdentifier takes 12 bytes, not 13"),
    (put1(AccountingToken=bytes(33)), MD, "AccountingToken takes 32 bytes, not 33"),
    (put1(ApplIdentityData=b"a" * 33), MD, "ApplIdentityData takes 32 bytes, not 33"),
    (put1(PutApplName=b"a" * 29), MD, "PutApplName takes 28 bytes, not 29"),
    (put1(PutDate=b"2024-02-29"), MD, "PutDate takes 8 bytes, not 10"),
    (put1(PutTime=b"123456789"), MD, "PutTime takes 8 bytes, not 9"),
    (put1(ApplOriginData=b"a" * 5), MD, "ApplOriginData takes 4 bytes, not 5"),
    (put1(Version=2, GroupId=bytes(25)), MD, "GroupId takes 24 bytes, not 25"),
    (put1(Version=1, GroupId=bytes(25)), MD, "GroupId takes 24 bytes, not 25"),
    (put1(MQOD(ObjectName="t" * 49, ObjectQMgrName="client")), UNKNOWN, "ObjectName takes 48 bytes, not 49"),
    (put1(MQOD(ObjectName="t", ObjectQMgrName="é" * 25)), UNKNOWN, "ObjectQMgrName takes 48 bytes, not 50"),
    (open_(ObjectName="q" * 5000), UNKNOWN, "ObjectName takes 48 bytes, not 5000"),
    (open_(ObjectName="Q", AlternateUserId="u" * 13), OD, "AlternateUserId takes 12 bytes, not 13"),
    (subscribe(ObjectName="t" * 49), UNKNOWN, "ObjectName takes 48 bytes, not 49"),
    (subscribe(SubCorrelId=bytes(5000)), SD, "SubCorrelId takes 24 bytes, not 5000"),
    (subscribe(AlternateUserId="u" * 13), SD, "AlternateUserId takes 12 bytes, not 13"),
]


def test_a_value_longer_than_its_field_is_rejected_and_changes_nothing(
    served: ServedQueueManager, connection: Connection
) -> None:
    for call, reason, detail in TOO_LONG:
        with pytest.raises(MQError) as error:
            call(connection)
        assert error.value.reason == reason and detail in error.value.detail, (detail, error.value)
        assert not [queue.name for queue in served.itself.objects.queues.values() if queue.depth], detail
        assert not served.itself.objects.topics.subscriptions, detail
        # The connection can still be used.
        handle = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INQUIRE)
        assert connection.inquire(handle, [cmqc.MQIA_CURRENT_Q_DEPTH])[0] == [0], detail
        connection.close(handle)


@pytest.mark.parametrize(
    "call",
    [
        put1(Format="MQSTR"),
        put1(Priority=1 << 31),
        put1(Encoding=-(1 << 31) - 1),
        put1(OriginalLength=1 << 40),
        put1(MsgType="8"),
    ],
)
def test_a_value_of_another_type_or_range_is_rejected_and_changes_nothing(
    served: ServedQueueManager, connection: Connection, call: Callable[[Connection], object]
) -> None:
    """The server cannot decode the request. It answers this request, and the connection stays open."""
    with pytest.raises(MQError) as error:
        call(connection)
    remote = isinstance(connection, RemoteConnection)
    assert error.value.reason == (cmqc.MQRC_UNEXPECTED_ERROR if remote else cmqc.MQRC_MD_ERROR)
    assert "invalid field" in error.value.detail or not remote
    assert connection.inquire(connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INQUIRE), [cmqc.MQIA_CURRENT_Q_DEPTH])[
        0
    ] == [0]


def test_a_name_that_utf_8_cannot_encode_is_rejected(served: ServedQueueManager) -> None:
    connection = EmbeddedConnection(served.itself)
    with pytest.raises(MQError, match="ObjectName contains a surrogate") as error:
        put1(MQOD(ObjectName="\udcff", ObjectQMgrName="client"))(connection)
    assert error.value.reason == UNKNOWN


def test_short_byte_fields_are_padded(connection: Connection) -> None:
    fields = {"MsgId": b"m", "CorrelId": b"c", "AccountingToken": b"a", "GroupId": b"g"}
    md = MQMD(Version=2, MsgFlags=cmqc.MQMF_MSG_IN_GROUP, **fields)
    handle = connection.open(
        MQOD(ObjectName="Q"), cmqc.MQOO_OUTPUT | cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_SET_ALL_CONTEXT
    )
    connection.put(handle, Message(md, b"x"), cmqc.MQPMO_SET_ALL_CONTEXT)
    message_md = connection.get(handle, GetOptions()).md
    assert [getattr(message_md, name) for name in fields] == [
        value.ljust(32 if name == "AccountingToken" else 24, b"\0") for name, value in fields.items()
    ]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (["MQCMIT", 1 << 40], ""),
        (["MQCLOSE", 1 << 40, 0], "Expected `int` <= 2147483647"),
        (["MQGET", 1, {"WaitInterval": 1 << 40}], "Expected `int` <= 2147483647"),
        (["MQINQ", 1, [1 << 40]], "Expected `int` <= 2147483647"),
        (["MQOPEN", {"ObjectName": 1}, 1], "Expected `str`, got `int`"),
        (["MQSC", b"\xff\xfe"], "Expected `str`, got `bytes`"),
        (["no such verb"], "Invalid value"),
    ],
)
def test_a_request_with_an_invalid_value_is_answered(
    served: ServedQueueManager, request_: list[Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client, caplog.at_level(logging.WARNING):
        client.settimeout(PATIENCE)
        client.connect(str(served.directory / protocol.SOCKET_NAME))
        client.sendall(protocol.frame(protocol.ConnectCall(protocol.PROTOCOL_VERSION, "test")))
        assert reply(client).comp_code == cmqc.MQCC_OK
        client.sendall(protocol.frame(request_))
        answer = reply(client)
        assert words in answer.detail
        assert answer.reason == (cmqc.MQRC_UNEXPECTED_ERROR if words else cmqc.MQRC_NONE)
        client.sendall(protocol.frame(protocol.CommitCall()))
        assert reply(client).comp_code == cmqc.MQCC_OK
    assert "Traceback" not in caplog.text


def test_text_that_is_not_utf_8_is_answered(served: ServedQueueManager) -> None:
    request = protocol.frame(protocol.OpenCall(MQOD(ObjectName="AB"), 1)).replace(b"AB", b"\xff\xfe")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(PATIENCE)
        client.connect(str(served.directory / protocol.SOCKET_NAME))
        client.sendall(protocol.frame(protocol.ConnectCall(protocol.PROTOCOL_VERSION, "test")) + request)
        assert reply(client).comp_code == cmqc.MQCC_OK
        assert "utf-8" in reply(client).detail.lower()


def reply(client: socket.socket) -> protocol.Reply:
    (length,) = protocol.LENGTH.unpack(client.recv(protocol.LENGTH.size, socket.MSG_WAITALL))
    return msgspec.msgpack.decode(client.recv(length, socket.MSG_WAITALL), type=protocol.Reply)


def test_a_buffer_of_negative_length_is_rejected(connection: Connection) -> None:
    handle = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
    with pytest.raises(MQError) as error:
        connection.get(handle, GetOptions(MaxLength=-1))
    assert error.value.reason == cmqc.MQRC_BUFFER_LENGTH_ERROR
