"""Rows about messages that arrived as bytes, from MQ applications and from IBM MQ."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from bridge.archive.events import (
    DeliveredMessage,
    EncodedMessage,
    Incoming,
    PublishedEvent,
    SettledEvent,
    encode,
    events_of,
    together,
)
from bridge.archive.rows import Provenance, Rows, provenance_of, put_time
from bridge.archive.schema import COLUMNS, NAMES, arrow_schema, json_of, payload_hash, properties_of, row
from bridge.mqtt.packets import Publish, PublishProperties
from bridge.service.recorder import outgoing_message
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import CCSID_UTF8, NO_PROPERTIES, Message
from bridge.telemetry.outcome import Outcome
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MQXQH, RFH2, Folder, Typed, encode_mqxqh, encode_rfh2


class Queued:
    """A transmission."""

    def __init__(self, message: Any, **values: Any) -> None:
        self.message = message
        self.client_id, self.remote_queue, self.topic = "c", "command", "t"
        self.user_data, self.retained, self.persistent, self.msg_number = "2", False, True, 1
        self.expired, self.put_time, self.raw = False, 0.0, None
        self.__dict__.update(values)


def with_rfh2(*folders: Folder, body: bytes = b"body") -> Message:
    header = RFH2(
        Encoding=cmqc.MQENC_NATIVE,
        CodedCharSetId=CCSID_UTF8,
        Format=cmqc.MQFMT_NONE,
        NameValueCCSID=CCSID_UTF8,
        folders=folders,
    )
    return Message(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), encode_rfh2(header) + body)


MQTT = Folder.build("mqtt", {"clientId": "p", "qos": Typed(1, "i4"), "msgid": Typed(7, "i4")})


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message(MQMD(), b"plain"), Provenance(b"plain", 5, properties=NO_PROPERTIES)),
        (with_rfh2(MQTT), Provenance(b"body", 5, "p", 7, 1, properties=NO_PROPERTIES)),
        (
            with_rfh2(MQTT, Folder.build("usr", {"replayed": "run"})),
            Provenance(
                b"body", 5, "p", 7, 1, "run", properties=PublishProperties(user_property=(("replayed", "run"),))
            ),
        ),
        (
            Message(MQMD(Format=b"MQSTR"), b"text"),
            Provenance(b"text", 5, properties=PublishProperties(payload_format_indicator=1)),
        ),
        (with_rfh2(Folder.build("mqtt", {"msgid": "many"})), Provenance(b"body", 5, properties=NO_PROPERTIES)),
        (Message(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), b"none"), Provenance(b"none", 5)),
    ],
)
def test_a_message_has_its_origin(message: Any, expected: Provenance) -> None:
    assert provenance_of(message, 5) == expected


@pytest.mark.parametrize(
    ("md", "expected"),
    [(MQMD(PutDate=b"19700102", PutTime=b"00000125"), 86_401_250_000), (MQMD(PutDate=b"19700102"), 0), (MQMD(), 0)],
)
def test_the_put_time_is_that_of_the_descriptor(md: MQMD, expected: int) -> None:
    assert put_time(md) == expected


def rows_of(user: str, message: Any) -> list[dict[str, Any]]:
    """Return the rows of a message for client `c` that was settled at 50, submitted as by the service."""
    (event,) = events_of(together([b""]) + encode(SettledEvent(50, "c", user, 0.0, [message])))
    return [dict(zip(NAMES, row, strict=True)) for row in Rows(itertools.count(1), payloads=True).settled(event)]


def test_a_publication_of_a_client_is_a_row() -> None:
    message = PublicationMessage(MQMD(), "p", "t/u", b"body", 2, 9)
    outgoing = outgoing_message(Queued(message, put_time=12.5, retained=True), None)
    (event_row,) = rows_of("anna", outgoing)
    assert (event_row["outcome"], event_row["topic"], event_row["payload"], event_row["size"]) == (
        "delivered",
        "t/u",
        b"body",
        4,
    )
    assert (event_row["publisher"], event_row["publisher_message_id"], event_row["received"]) == ("p", 9, 12_500_000)
    assert (event_row["retain"], event_row["user"], event_row["sent"]) == (True, "anna", 50)


PROPERTIES = PublishProperties(
    payload_format_indicator=0,
    content_type="",
    response_topic="r",
    correlation_data=b"\0c",
    user_property=(("a", "1"), ("a", "2")),
)
WRITTEN = (
    '{"payload_format_indicator":0,"content_type":"","response_topic":"r","correlation_data":"AGM=",'
    '"user_property":[["a","1"],["a","2"]]}'
)


def test_properties_of_mqtt_5_are_in_each_row_of_a_publication() -> None:
    assert json_of(None) is json_of(PublishProperties()) is None
    assert json_of(PROPERTIES) == WRITTEN
    assert properties_of(WRITTEN) == PROPERTIES
    identity = ClientIdentity("p", b"")
    message = to_mq(Publish("t/u", b"body", 2, False, False, 9, PROPERTIES), identity)
    md = message.md
    source = EncodedMessage(md.Format, md.Encoding, md.CodedCharSetId, message.data, md.CorrelId)
    delivered = DeliveredMessage("t/u", b"", False, 12.5, "", 0, None, source)
    assert rows_of("anna", delivered)[0]["properties"] == WRITTEN
    header = MQXQH(RemoteQName=b"t", RemoteQMgrName=b"c", MsgDesc=msgspec.structs.replace(md, Version=1))
    raw = outgoing_message(Queued(message, raw=encode_mqxqh(header) + message.data), None)
    assert rows_of("anna", raw)[0]["properties"] == WRITTEN
    parts = DeliveredMessage("t/u", b"body", False, 12.5, "p", 9, PROPERTIES, None)
    assert rows_of("anna", parts)[0]["properties"] == WRITTEN
    (event,) = events_of(
        together([b""])
        + encode(PublishedEvent(50, "p", "anna", 49, {}, [Incoming("t/u", b"", 0, 0, False, PROPERTIES)]))
    )
    assert isinstance(event, PublishedEvent)
    (published,) = Rows(itertools.count(1), payloads=True).published(event)
    assert published[NAMES.index("properties")] == WRITTEN


def test_a_delivery_of_a_message_from_an_application_is_a_row() -> None:
    outgoing = outgoing_message(Queued(with_rfh2(), topic=None, user_data="0"), None)
    (event_row,) = rows_of("anna", outgoing)
    assert (event_row["outcome"], event_row["topic"], event_row["payload"], event_row["size"]) == (
        "delivered",
        "command",
        b"body",
        4,
    )
    assert (event_row["publisher"], event_row["payload_hash"], event_row["sequence"]) == ("", payload_hash(b"body"), 1)
    assert event_row["received"] == 50


def test_a_message_that_is_marked_as_retained_has_a_retained_row() -> None:
    outgoing = outgoing_message(Queued(with_rfh2(Folder.build("mqps", {"Ret": True}))), None)
    assert rows_of("", outgoing)[0]["retain"] is True


def test_a_message_of_a_remote_queue_manager_is_read_unchanged() -> None:
    content = with_rfh2(MQTT)
    md = msgspec.structs.replace(content.md, Version=1, PutDate=b"19700102", PutTime=b"00000125")
    header = MQXQH(RemoteQName=b"t", RemoteQMgrName=b"c", MsgDesc=md)
    message = Message(MQMD(Format=cmqc.MQFMT_XMIT_Q_HEADER), encode_mqxqh(header) + content.data)
    stripped = Queued(PublicationMessage(MQMD(), "", "t", b"body", 1), user_data="0", raw=message.data)
    (event_row,) = rows_of("", outgoing_message(stripped, None))
    assert (event_row["publisher"], event_row["publisher_message_id"], event_row["payload"]) == ("p", 7, b"body")
    assert event_row["received"] == 86_401_250_000


def test_an_unreadable_message_is_stored_completely() -> None:
    broken = Queued(Message(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), b"no header"), user_data=None)
    outgoing = outgoing_message(broken, "MQRC_RFH_ERROR (2334)", Outcome.DEAD_LETTERED)
    (event_row,) = rows_of("", outgoing)
    assert (event_row["payload"], event_row["qos"], event_row["reason"]) == (b"no header", 2, "MQRC_RFH_ERROR (2334)")


def test_each_column_is_documented() -> None:
    schema = arrow_schema()
    assert schema.names == list(NAMES)
    assert all(field.metadata[b"comment"] for field in schema)
    assert [field.nullable for field in schema] == [column.optional for column in COLUMNS]


def test_a_row_contains_its_columns() -> None:
    assert dict(zip(NAMES, row(topic="t"), strict=True))["topic"] == "t"
    with pytest.raises(KeyError):
        row(colour="red")


def test_the_hash_is_part_of_blake2b() -> None:
    assert payload_hash(b"") == int.from_bytes(bytes.fromhex("e4a6a0577479b2b4"), "big", signed=True)
