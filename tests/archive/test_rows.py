"""What rows say of messages that came as bytes, from MQ applications and from IBM MQ."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from bridge.archive.rows import Origin, Rows, origin_of, put_time
from bridge.archive.schema import COLUMNS, NAMES, arrow_schema, payload_hash, row
from bridge.mapping.message import CCSID_UTF8, Message, PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Folder, Typed, encode_rfh2


class Queued:
    """A transmission."""

    def __init__(self, message: Any, **values: Any) -> None:
        self.message = message
        self.client_id, self.remote_queue, self.topic = "c", "command", "t"
        self.user_data, self.retained, self.persistent, self.msg_number = "2", False, True, 1
        self.expired = False
        self.__dict__.update(values)


def with_rfh2(*folders: Folder, body: bytes = b"body") -> Message:
    header = RFH2(
        Encoding=cmqc.MQENC_NATIVE, CodedCharSetId=CCSID_UTF8, Format=cmqc.MQFMT_NONE, NameValueCCSID=CCSID_UTF8,
        folders=folders,
    )  # fmt: skip
    return Message(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), encode_rfh2(header) + body)


MQTT = Folder.build("mqtt", {"clientId": "p", "qos": Typed(1, "i4"), "msgid": Typed(7, "i4")})


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (PublicationMessage(MQMD(), "p", "t", b"x", 2, 9), Origin("p", 9, 2, None, b"x")),
        (Message(MQMD(), b"plain"), Origin(body=b"plain")),
        (with_rfh2(MQTT), Origin("p", 7, 1, None, b"body")),
        (with_rfh2(MQTT, Folder.build("usr", {"replayed": "run"})), Origin("p", 7, 1, "run", b"body")),
        (with_rfh2(Folder.build("mqtt", {"msgid": "many"})), Origin(body=b"body")),
        (Message(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), b"none"), Origin()),
    ],
)
def test_where_a_message_comes_from(message: Any, expected: Origin) -> None:
    assert origin_of(message) == expected


@pytest.mark.parametrize(
    ("transmission", "expected"),
    [
        (Queued(Message(MQMD(), b""), put_time=12.5), 12_500_000),
        (Queued(Message(MQMD(PutDate=b"19700102", PutTime=b"00000125"), b"")), 86_401_250_000),
        (Queued(Message(MQMD(), b"")), 99),
    ],
)
def test_when_a_message_was_put(transmission: Any, expected: int) -> None:
    assert put_time(transmission, 99) == expected


def test_a_delivery_of_an_applications_message() -> None:
    rows = Rows(itertools.count(1), payloads=True)
    (made,) = rows.finished(50, "c", "anna", [Queued(with_rfh2(), topic=None, user_data="0")], {})  # type: ignore[list-item]
    found = dict(zip(NAMES, made, strict=True))
    assert (found["outcome"], found["topic"], found["payload"], found["size"]) == ("delivered", "command", b"body", 4)
    assert (found["publisher"], found["payload_hash"], found["sequence"]) == ("", payload_hash(b"body"), 1)


def test_a_message_of_a_queue_manager_elsewhere_is_read_as_it_came() -> None:
    """The poller takes the headers off, and with them who published it."""
    came = with_rfh2(MQTT)
    stripped = Queued(PublicationMessage(MQMD(), "", "t", b"body", 1), user_data="0", undelivered=(came.md, came.data))
    (made,) = Rows(itertools.count(1), payloads=True).finished(50, "c", "", [stripped], {})  # type: ignore[list-item]
    found = dict(zip(NAMES, made, strict=True))
    assert (found["publisher"], found["publisher_message_id"], found["payload"]) == ("p", 7, b"body")


def test_what_cannot_be_read_is_kept_whole() -> None:
    rows = Rows(itertools.count(1), payloads=True)
    broken = Queued(Message(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), b"no header"), user_data=None)
    (made,) = rows.dead_lettered(50, broken, cmqc.MQRC_RFH_ERROR)  # type: ignore[arg-type]
    found = dict(zip(NAMES, made, strict=True))
    assert (found["payload"], found["qos"], found["reason"]) == (b"no header", 2, "MQRC_RFH_ERROR (2334)")


def test_each_column_is_documented() -> None:
    schema = arrow_schema()
    assert schema.names == list(NAMES)
    assert all(field.metadata[b"comment"] for field in schema)
    assert [field.nullable for field in schema] == [column.optional for column in COLUMNS]


def test_a_row_knows_its_columns() -> None:
    assert dict(zip(NAMES, row(topic="t"), strict=True))["topic"] == "t"
    with pytest.raises(KeyError):
        row(colour="red")


def test_the_hash_is_part_of_blake2b() -> None:
    assert payload_hash(b"") == int.from_bytes(bytes.fromhex("e4a6a0577479b2b4"), "big", signed=True)
