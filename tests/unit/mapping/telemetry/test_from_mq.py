"""Conversion from IBM MQ to an MQTT client: integration tables 4 and 5, row by row.

DUP (table 4) belongs to a transmission, not to a publication: tests/unit/mqtt/test_outbox.py.
"""

from __future__ import annotations

import contextlib
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mqtt.packets import Publish
from bridge.telemetry.conversion import from_mq, to_mq
from bridge.telemetry.headers import Headers
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message, Unmappable
from bridge.wire.mq import (
    MQDLH,
    MQMD,
    MQMDE,
    MQXQH,
    RFH2,
    Folder,
    Header,
    Typed,
    Writable,
    encode_chain,
)

NOT_PERSISTENT, PERSISTENT = 0, 1


def read(message: Message) -> Headers:
    """Return the headers as the bridge reads them for its clients."""
    return Headers(message, discard_others=True)


def mqtt_message(qos: int, *, topic: str = "a/b", payload: bytes = b"p", as_bytes: bool = False, **how: Any) -> Any:
    """Return a publication of an MQTT client on the transmission queue: structured, or as bytes."""
    message = to_mq(Publish(topic, payload, qos, False, False, 5 if qos else 0), ClientIdentity("c", b""))
    return Message(message.md, message.data_as(**how)) if as_bytes else message


def mq_message(persistence: int = NOT_PERSISTENT, body: bytes = b"p") -> Message:
    return Message(MQMD(Persistence=persistence, Format=b"MQSTR"), body)


def with_headers(*headers: Header, body: bytes = b"payload", persistence: int = NOT_PERSISTENT) -> Message:
    chain = encode_chain(headers, body)
    md = MQMD(
        Format=chain.Format, Encoding=chain.Encoding, CodedCharSetId=chain.CodedCharSetId, Persistence=persistence
    )
    return Message(md, chain.data)


def rfh2(folder: str, **content: Writable) -> RFH2:
    return RFH2(folders=(Folder.build(folder, content),))


# Table 4: QoS ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("published", "requested"),
    [
        pytest.param(published, requested, id=f"table 4: QoS, MQTT {published}, requested {requested}")
        for published in (0, 1, 2)
        for requested in (0, 1, 2)
    ],
)
@pytest.mark.parametrize("as_bytes", [False, True], ids=["structured", "bytes"])
def test_the_folder_determines_the_qos_of_a_publication_from_an_mqtt_client(
    published: int, requested: int, as_bytes: bool
) -> None:
    lower = {(0, 0): 0, (0, 1): 0, (0, 2): 0, (1, 0): 0, (1, 1): 1, (1, 2): 1, (2, 0): 0, (2, 1): 1, (2, 2): 2}
    message = mqtt_message(published, as_bytes=as_bytes)
    assert from_mq(message, topic="a/b", requested_qos=requested).qos == lower[published, requested]


def test_the_qos_of_an_mqtt_client_overrides_persistence() -> None:
    message = with_headers(rfh2("mqtt", qos=Typed(1, "i4")), persistence=NOT_PERSISTENT)
    assert from_mq(message, requested_qos=2).qos == 1
    assert from_mq(message, requested_qos=2, persistent=False).qos == 1


@pytest.mark.parametrize(
    ("persistence", "requested", "expected"),
    [
        pytest.param(NOT_PERSISTENT, 0, 0, id="table 4: QoS, MQPER_NOT_PERSISTENT, requested 0"),
        pytest.param(NOT_PERSISTENT, 1, 0, id="table 4: QoS, MQPER_NOT_PERSISTENT, requested 1"),
        pytest.param(NOT_PERSISTENT, 2, 0, id="table 4: QoS, MQPER_NOT_PERSISTENT, requested 2"),
        pytest.param(PERSISTENT, 0, 0, id="table 4: QoS, MQPER_PERSISTENT, requested 0"),
        pytest.param(PERSISTENT, 1, 1, id="table 4: QoS, MQPER_PERSISTENT, requested 1"),
        pytest.param(PERSISTENT, 2, 2, id="table 4: QoS, MQPER_PERSISTENT, requested 2"),
    ],
)
def test_persistence_determines_the_qos_of_a_publication_from_an_mq_application(
    persistence: int, requested: int, expected: int
) -> None:
    assert from_mq(mq_message(persistence), topic="t", requested_qos=requested).qos == expected
    # The queue manager may have resolved MQPER_PERSISTENCE_AS_Q_DEF, or DEFPSIST of the topic object.
    unresolved = mq_message(2)
    assert from_mq(unresolved, topic="t", persistent=bool(persistence), requested_qos=requested).qos == expected
    contradicted = mq_message(1 - persistence)
    assert from_mq(contradicted, topic="t", persistent=bool(persistence), requested_qos=requested).qos == expected


@pytest.mark.parametrize("default_qos", [0, 1, 2], ids="table 4: QoS, subscribed to DEFAULT.QoS with {}".format)
@pytest.mark.parametrize("persistence", [NOT_PERSISTENT, PERSISTENT])
def test_qos_of_direct_messages_can_be_altered(default_qos: int, persistence: int) -> None:
    assert from_mq(mq_message(persistence), topic="t", direct_qos=default_qos).qos == default_qos


def test_default_qos_does_not_affect_publications_of_subscriptions() -> None:
    assert from_mq(mq_message(PERSISTENT), topic="t", requested_qos=2, direct_qos=0).qos == 2


def test_the_user_data_of_an_earlier_delivery_do_not_lower_the_qos_of_a_direct_message() -> None:
    forwarded = mqtt_message(2, as_bytes=True, user_data="0")
    assert from_mq(forwarded, topic="commands").qos == 2


# Table 4: RETAIN ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retained", [False, True], ids="table 4: RETAIN, retained property {}".format)
@pytest.mark.parametrize("as_bytes", [False, True], ids=["known to the queue manager", "mqps.Ret"])
def test_mqps_ret_determines_retain(retained: bool, as_bytes: bool) -> None:
    if as_bytes:
        outgoing = from_mq(mqtt_message(1, as_bytes=True, retained=retained), requested_qos=1)
    else:
        outgoing = from_mq(mqtt_message(1), retained=retained, requested_qos=1)
    assert outgoing.retain is retained


def test_mqps_ret_may_have_any_notation(subtests: pytest.Subtests) -> None:
    for written, expected in [
        (True, True),
        (False, False),
        ("1", True),
        ("0", False),
        ("true", True),
        ("TRUE", True),
        ("false", False),
        (Typed(1, "i4"), True),
        (Typed(0, "i4"), False),
        ("", False),
        ("2", False),
    ]:
        with subtests.test(written=written, expected=expected):
            assert from_mq(with_headers(rfh2("mqps", Ret=written))).retain is expected


# Table 5: topic name --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_bytes", [False, True], ids=["structured", "bytes"])
def test_table_5_topic_name_is_the_published_topic_string(as_bytes: bool) -> None:
    assert from_mq(mqtt_message(1, topic="plant/\u00e9", as_bytes=as_bytes), requested_qos=1).topic == "plant/\u00e9"


def test_table_5_topic_name_of_an_mq_application_comes_from_the_queue_manager() -> None:
    assert from_mq(mq_message(), topic="plant/1", requested_qos=1).topic == "plant/1"
    assert from_mq(with_headers(rfh2("mqps", Top="other")), topic="plant/1").topic == "plant/1"


# Table 5: payload -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", [b"", b"MQSTR", b"MQADMIN", b"MQIMSVS", b"MYOWN", b"MQSAPH"])
def test_an_unknown_format_means_that_the_payload_follows(format_: bytes) -> None:
    assert read(Message(MQMD(Format=format_), b"RFH abc")).body == b"RFH abc"


HEADERS: dict[str, Header] = {
    "RFH2 mqps": rfh2("mqps", Top="plant/3", Ret=True, Sud="1"),
    "RFH2 mqtt": rfh2("mqtt", clientId="c", qos=Typed(2, "i4")),
    "RFH2 usr": rfh2("usr", colour="red", Top="not this one"),
    "MQXQH": MQXQH(RemoteQName=b"Q", RemoteQMgrName=b"client", MsgDesc=MQMD(Persistence=1)),
    "MQDLH": MQDLH(Reason=2053, DestQName=b"Q", Encoding=546, CodedCharSetId=1208),
    "MQMDE": MQMDE(MsgSeqNumber=4, CodedCharSetId=1208),
}


def test_payload_and_properties_follow_headers_in_any_order(subtests: pytest.Subtests) -> None:
    """Other data in headers is discarded. The data after all headers is the payload."""
    for names in list(permutations(HEADERS, 3)):
        with subtests.test(names=names):
            properties = read(with_headers(*(HEADERS[name] for name in names)))
            assert properties.body == b"payload"
            assert properties.topic == ("plant/3" if "RFH2 mqps" in names else "")
            assert properties.retained is ("RFH2 mqps" in names)
            assert properties.user_data == ("1" if "RFH2 mqps" in names else None)
            assert properties.qos == (2 if "RFH2 mqtt" in names else None)


@given(st.lists(st.sampled_from(list(HEADERS.values())), max_size=6), st.binary(max_size=50))
def test_the_payload_follows_any_chain_of_headers(headers: list[Header], body: bytes) -> None:
    assert read(with_headers(*headers, body=body)).body == body


def test_headers_may_have_the_reversed_encoding() -> None:
    chain = encode_chain([HEADERS["RFH2 mqps"], HEADERS["RFH2 mqtt"]], b"payload", encoding=0x111)
    assert chain.Encoding == 0x111  # MQENC_NORMAL: big-endian integers
    properties = read(Message(MQMD(Format=chain.Format, Encoding=chain.Encoding), chain.data))
    assert (properties.topic, properties.qos, properties.body) == ("plant/3", 2, b"payload")


# Headers that cannot be read ------------------------------------------------------------------------------------------


def message_of_format(format_: bytes, data: bytes) -> Message:
    return Message(MQMD(Format=format_), data)


WHOLE = with_headers(HEADERS["RFH2 mqps"])


@pytest.mark.parametrize("qos", ["0", "1", "2", " 2 "])
def test_mqtt_qos_may_be_text(qos: str) -> None:
    """An application may write the folder without dt."""
    assert read(with_headers(rfh2("mqtt", qos=qos))).qos == int(qos)


@pytest.mark.parametrize("folder", [b"<mqps><Top><x>1</x></Top></mqps>", b"<mqps></mqps>"])
def test_mqps_top_that_is_not_text_is_ignored(folder: bytes) -> None:
    assert read(with_headers(RFH2(folders=(Folder(folder),)))).topic == ""


def test_the_last_of_two_elements_applies() -> None:
    assert read(with_headers(rfh2("mqtt", qos=["1", "2"]))).qos == 2
    assert read(with_headers(rfh2("mqps", Top=["a", "b"]))).topic == "b"


@given(
    st.sampled_from([b"MQHRF2", b"MQXMIT", b"MQDEAD", b"MQHMDE"]),
    st.binary(max_size=120) | st.binary(max_size=80).map(lambda rest: WHOLE.data[:44] + rest),
)
def test_arbitrary_data_raises_no_other_error(format_: bytes, data: bytes) -> None:
    with contextlib.suppress(Unmappable):
        from_mq(message_of_format(format_, data), topic="t")
