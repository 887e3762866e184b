"""From MQTT to a queue and back: nothing is lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.telemetry.conversion import message_of, publication_of, received_message
from bridge.telemetry.message import Destination
from bridge.wire.mq import RFH2, decode_chain
from tests.helpers.rules_to_mq import CLIENT_ID, TEXT, TOPIC, folders, mapped, publication, rule

NAME = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)
#: A publication has no others (MQTT-3.3.2-14). The reader ignores others.
RESPONSE_TOPIC = TEXT.map(lambda text: text.replace("+", "").replace("#", "")).filter(bool)


@given(
    st.dictionaries(NAME, TEXT, max_size=4), st.none() | st.binary(max_size=30), st.none() | RESPONSE_TOPIC,
    st.none() | TEXT, st.integers(0, 2), CLIENT_ID,
    st.none() | st.integers(0, 1),
)  # fmt: skip
def test_a_publication_is_preserved_on_a_queue(
    properties: dict[str, str],
    correlation_data: bytes | None,
    response_topic: str | None,
    content_type: str | None,
    qos: int,
    client_id: str,
    payload_format: int | None,
) -> None:
    sent = publication(
        users=properties,
        correlation_data=correlation_data,
        response_topic=response_topic,
        content_type=content_type,
        qos=qos,
        packet_id=7 if qos else 0,
        client_id=client_id,
        expiry=12.5,
        retain=True,
        payload_format_indicator=payload_format,
    )
    mapped_message = rule().map(sent)
    assert mapped_message is not None
    assert publication_of(mapped_message.message) == msgspec.structs.replace(sent, hops=("QM1/m1",))


@given(st.lists(st.tuples(st.sampled_from(["a", "b-c", ""]), TEXT), max_size=6).map(tuple), st.booleans())
def test_user_properties_in_order_and_with_repeated_names(pairs: tuple[tuple[str, str], ...], rfh2: bool) -> None:
    """Through a mapping to a queue, and through another one from the queue."""
    last = dict(pairs)
    sent = publication(user_property=pairs)
    mapped_message = rule({} if rfh2 else {"rfh2": False}).map(sent)
    assert mapped_message is not None
    if not rfh2:
        repeated = pairs if len(last) < len(pairs) else ()
        assert mapped_message.properties.get("mqtt.userProperties", "[]") == msgspec.json.encode(repeated).decode()
        return
    again = publication_of(mapped_message.message)
    assert again.user_properties == last
    assert again.properties.user_property == pairs


def test_a_publication_for_local_clients_equals_that_of_a_client() -> None:
    sent = publication(
        users={"a": "b"},
        hops=("QM1/m1",),
        retain=True,
        payload=b"",
        expiry=1.0,
        correlation_data=b"c",
        payload_format_indicator=1,
    )
    mapped_message = message_of(sent)
    assert (mapped_message.destination, mapped_message.retain, mapped_message.clear, mapped_message.hops) == (
        Destination(TOPIC, True),
        True,
        True,
        sent.hops,
    )
    assert publication_of(mapped_message.message, topic=TOPIC, retained=True) == sent
    assert publication_of(received_message(sent)) == sent


REQUESTS: dict[str, Any] = {
    "to": {"queue": "Q", "requests_queue": "KEPT"},
    "attributes": {"reply_to_queue": "ANSWERS", "expiry": 60, "properties": {"site": "north"}},
}


@pytest.mark.parametrize("correlation_data", [None, b"", b"7", b"x" * 25])
def test_the_response_topic_of_a_request_is_stored(correlation_data: bytes | None) -> None:
    """The MsgId of the request identifies the answer, which has it as CorrelId with either convention."""
    mapped_message = mapped(rule(**REQUESTS), response_topic="clients/1", correlation_data=correlation_data)
    md = mapped_message.message.md
    assert (md.MsgType, md.Report, md.ReplyToQ, md.MsgId, md.CorrelId) == (1, 0, b"ANSWERS", bytes(24), bytes(24))
    assert mapped_message.kept is not None and mapped_message.kept.queue == "KEPT"
    assert (mapped_message.kept.message.md.Expiry, mapped_message.kept.message.md.Persistence) == (600, 1)
    (rfh2_header,) = decode_chain(b"MQHRF2", 546, 1208, mapped_message.kept.message.data).headers
    assert isinstance(rfh2_header, RFH2)
    assert (
        folders(mapped_message)["mqtt"] == {folder.name: dict(folder.content) for folder in rfh2_header.folders}["mqtt"]
    )
    assert publication_of(mapped_message.kept.message).properties.response_topic == "clients/1"
    assert publication_of(mapped_message.kept.message).properties.correlation_data == correlation_data
    assert decode_chain(b"MQHRF2", 546, 1208, mapped_message.kept.message.data).body == b""


def test_nothing_is_stored_for_a_message_that_is_not_a_request() -> None:
    mapped_message = mapped(rule(**REQUESTS), correlation_data=b"7")
    assert mapped_message.kept is None
    assert (mapped_message.message.md.MsgType, mapped_message.message.md.ReplyToQ) == (8, b"")
    assert mapped(rule({"reply_to_queue": "ANSWERS"}), response_topic="clients/1").kept is None
