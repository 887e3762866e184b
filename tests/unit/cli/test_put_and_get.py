"""`mqbridge mq put` and `get`."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bridge.mq.mqi import MQOD, GetOptions
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

NO_MESSAGE = "MQRC_NO_MSG_AVAILABLE (2033)"


def objects(result: Any) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ((), {"Persistence": 0, "Priority": 3, "Expiry": -1, "Format": "MQSTR", "CodedCharSetId": 1208}),
        (("--persistent",), {"Persistence": 1}),
        (("--priority", 0), {"Priority": 0}),
        (("--priority", 9), {"Priority": 9}),
    ],
)
def test_put_sets_the_mqmd(mq: Any, queue_manager: Any, arguments: tuple[Any, ...], fields: dict[str, Any]) -> None:
    queue = queue_manager.queue("DEFPRTY(3)")
    (put,) = objects(mq("put", queue, "text", "--json", *arguments))
    (message,) = objects(mq("get", queue, "--json"))
    assert put == message["md"]
    assert {name: message["md"][name] for name in fields} == fields
    assert (message["body"], message["bodyEncoding"], message["rfh2"]) == ("text", "utf-8", [])


def test_put_sends_a_request_and_its_answer(mq: Any, queue_manager: Any) -> None:
    queue = queue_manager.queue()
    mq("put", queue, "question", "--reply-to", "ANSWERS", "--property", "site=north", "--property", "line=1=2")
    mq("put", queue, "answer", "--correl-id", "AB" * 24)
    mq("put", queue, "answer", "--correl-id", "dev-1")
    request, by_number, by_text = objects(mq("get", queue, "--limit", 3, "--json"))
    assert (request["md"]["MsgType"], request["md"]["ReplyToQ"]) == (cmqc.MQMT_REQUEST, "ANSWERS")
    assert [header["folders"] for header in request["rfh2"]] == [{"usr": {"site": "north", "line": "1=2"}}]
    assert (by_number["md"]["MsgType"], by_number["md"]["CorrelId"]) == (cmqc.MQMT_DATAGRAM, "AB" * 24)
    assert by_text["md"]["CorrelId"] == b"dev-1".hex().upper().ljust(48, "0")


def test_put_encodes_text_in_a_ccsid(mq: Any, queue_manager: Any) -> None:
    queue = queue_manager.queue()
    mq("put", queue, "--ccsid", 500, input="grün".encode("cp500"))
    (message,) = objects(mq("get", queue, "--json"))
    assert (message["md"]["Format"], message["md"]["CodedCharSetId"]) == ("MQSTR", 500)
    assert base64.b64decode(message["body"]) == "grün".encode("cp500")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--property", "site", "--property: expected NAME=VALUE, found 'site'"),
        ("--property", "=north", "--property: expected NAME=VALUE, found '=north'"),
        ("--reply-to", "A B", "--reply-to: 'A B' is not a valid name for a queue"),
        ("--correl-id", "x" * 25, "--correl-id: "),
    ],
)
def test_errors_of_put_are_reported(mq: Any, queue_manager: Any, option: str, value: str, message: str) -> None:
    result = mq("put", queue_manager.queue(), "text", option, value)
    assert result.exit_code == 2
    assert result.stderr.startswith("mqbridge: error: " + message)


def test_expiry_is_a_duration(mq: Any, queue_manager: Any) -> None:
    queue = queue_manager.queue()
    mq("put", queue, "text", "--expiry", "10min")
    (message,) = objects(mq("get", queue, "--json"))
    assert 5000 < message["md"]["Expiry"] <= 6000


def test_the_queue_determines_the_default_persistence(mq: Any, queue_manager: Any) -> None:
    queue = queue_manager.queue("DEFPSIST(YES)")
    (put,) = objects(mq("put", queue, "text", "--json"))
    assert put["Persistence"] == 1


@pytest.mark.parametrize(
    ("arguments", "input_bytes", "body", "format_", "ccsid"),
    [
        (("grün",), None, "grün".encode(), b"MQSTR", 1208),
        (("",), None, b"", b"MQSTR", 1208),
        (("-",), "grün\n".encode(), "grün\n".encode(), b"MQSTR", 1208),
        ((), b"piped", b"piped", b"MQSTR", 1208),
        ((), b"", b"", b"MQSTR", 1208),
        (("-",), b"\xff\x00\xfe", b"\xff\x00\xfe", b"", 1208),
        (("\udcff",), None, b"\xff", b"", 1208),
    ],
)
def test_each_kind_of_body_has_its_format_and_ccsid(
    mq: Any,
    queue_manager: Any,
    arguments: tuple[str, ...],
    input_bytes: bytes | None,
    body: bytes,
    format_: bytes,
    ccsid: int,
) -> None:
    queue = queue_manager.queue()
    result = mq("put", queue, *arguments, input=input_bytes)
    assert result.exit_code == 0
    handle = queue_manager.connection.open(MQOD(ObjectName=queue), cmqc.MQOO_INPUT_SHARED)
    message = queue_manager.connection.get(handle, GetOptions())
    queue_manager.connection.close(handle)
    assert (message.data, message.md.Format, message.md.CodedCharSetId) == (body, format_, ccsid)
    assert result.stdout == message.md.MsgId.hex().upper() + "\n"


def test_a_body_may_begin_with_a_hyphen(mq: Any, queue_manager: Any) -> None:
    queue = queue_manager.queue()
    assert mq("put", queue, "--", "-1").exit_code == 0
    assert mq("get", queue).stdout == "-1\n"


def test_a_message_for_a_client_goes_to_its_transmission_queue(mq: Any) -> None:
    # No bridge is running that would get it.
    (put,) = objects(mq("put", "commands/reset", "now", "--to", "dev-1", "--persistent", "--json"))
    (message,) = objects(mq("get", "SYSTEM.MQTT.TRANSMIT.QUEUE", "--json"))
    assert message["md"]["Format"] == "MQXMIT"
    assert message["md"]["CorrelId"] == put["MsgId"] == message["xqh"]["md"]["MsgId"]
    assert (message["xqh"]["RemoteQName"], message["xqh"]["RemoteQMgrName"]) == ("commands/reset", "dev-1")
    assert (message["xqh"]["md"]["Persistence"], message["xqh"]["md"]["Format"]) == (1, "MQSTR")
    assert message["body"] == "now"


@pytest.mark.parametrize(
    ("arguments", "bodies", "depth"),
    [
        ((), ["a"], 2),
        (("--limit", 2), ["a", "b"], 1),
        (("--limit", 9), ["a", "b", "c"], 0),
        (("--limit", 0), ["a", "b", "c"], 0),
        (("--limit", 0, "--wait", 0.01), ["a", "b", "c"], 0),
        (("--browse",), ["a"], 3),
        (("--browse", "--limit", 0), ["a", "b", "c"], 3),
    ],
)
def test_get_prints_messages(
    mq: Any, queue_manager: Any, arguments: tuple[Any, ...], bodies: list[str], depth: int
) -> None:
    queue = queue_manager.queue()
    queue_manager.put(queue, *(Message(MQMD(), body) for body in (b"a", b"b", b"c")))
    result = mq("get", queue, *arguments)
    assert (result.exit_code, result.stdout.splitlines(), result.stderr) == (0, bodies, "")
    assert queue_manager.depth(queue) == depth


@pytest.mark.parametrize("arguments", [(), ("--wait", 0.05), ("--browse",), ("--limit", 0), ("--json",)])
def test_no_available_message_is_exit_status_3(mq: Any, queue_manager: Any, arguments: tuple[Any, ...]) -> None:
    queue = queue_manager.queue()
    result = mq("get", queue, *arguments)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == f"mqbridge: error: {NO_MESSAGE}: queue '{queue}'\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("put", "NO.SUCH.QUEUE", "x"), "MQRC_UNKNOWN_OBJECT_NAME (2085): no queue 'NO.SUCH.QUEUE'"),
        (("get", "NO.SUCH.QUEUE"), "MQRC_UNKNOWN_OBJECT_NAME (2085): no queue 'NO.SUCH.QUEUE'"),
        (("put", "FULL", "x"), "MQRC_Q_FULL (2053)"),
        (("put", "SHUT", "x"), "MQRC_PUT_INHIBITED (2051)"),
        (("get", "SHUT"), "MQRC_GET_INHIBITED (2016)"),
        (("put", "t" * 49, "x", "--to", "dev"), "MQRC_UNKNOWN_OBJECT_NAME (2085): ObjectName takes 48 bytes, not 49"),
        (
            ("put", "topic", "x", "--to", "d" * 49),
            "MQRC_UNKNOWN_OBJECT_NAME (2085): ObjectQMgrName takes 48 bytes, not 49",
        ),
    ],
)
def test_errors_have_name_and_number(mq: Any, queue_manager: Any, arguments: tuple[str, ...], complaint: str) -> None:
    queue_manager.command("DEFINE QLOCAL(FULL) REPLACE MAXDEPTH(0)")
    queue_manager.command("DEFINE QLOCAL(SHUT) REPLACE PUT(DISABLED) GET(DISABLED)")
    result = mq(*arguments)
    assert (result.exit_code, result.stdout) == (3 if "UNKNOWN_OBJECT" in complaint else 1, "")
    assert result.stderr.startswith("mqbridge: error: " + complaint)
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("put",),
        ("put", "Q", "x", "--priority", "10"),
        ("put", "Q", "x", "--priority", "high"),
        ("put", "Q", "x", "--expiry", "0"),
        ("put", "Q", "x", "y"),
        ("get", "Q", "--wait", "-1"),
        ("get", "Q", "--limit", "-1"),
        ("get", "Q", "--no-such-option"),
        ("no-such-command",),
    ],
)
def test_wrong_usage(mq: Any, arguments: tuple[str, ...]) -> None:
    result = mq(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("mqbridge: error: ")


def test_remove_deletes_one_message_by_its_identifier(mq: Any, queue_manager: Any) -> None:
    queue = queue_manager.queue()
    first, second = (mq("put", queue, body, "--json") for body in ("first", "x" * 10_000))
    msg_id = objects(second)[0]["MsgId"]
    removed = mq("remove", queue, msg_id)
    assert (removed.exit_code, removed.stdout) == (0, f"removed message {msg_id} (10000 bytes) from {queue}\n")
    again = mq("remove", queue, msg_id)
    assert again.exit_code == 3 and NO_MESSAGE in again.stderr
    assert [row["md"]["MsgId"] for row in objects(mq("get", queue, "--json"))] == [objects(first)[0]["MsgId"]]


@pytest.mark.parametrize("msg_id", ["", "AB", "XY" * 24, "AB" * 25])
def test_remove_requires_the_complete_identifier(mq: Any, queue_manager: Any, msg_id: str) -> None:
    result = mq("remove", queue_manager.queue(), msg_id)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "MSGID: expected 48 hexadecimal digits" in result.stderr
