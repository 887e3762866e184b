"""Conversion from an MQTT client to the IBM MQ broker: integration tables 1 to 3, row by row."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mqtt.packets import Publish
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.headers import Headers
from bridge.telemetry.identity import ClientIdentity, user_identifier
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire.mq import RFH2, decode_chain

# MQMD_DEFAULT of IBM MQ in numbers (cmqc.h), so that the test does not depend on the code's constants.
MQMD_DEFAULTS = {
    "Version": 1,
    "Report": 0,
    "MsgType": 8,  # MQMT_DATAGRAM
    "Expiry": -1,  # MQEI_UNLIMITED
    "Feedback": 0,
    "Encoding": 546,  # MQENC_NATIVE of a little-endian machine
    "CodedCharSetId": 0,  # MQCCSI_Q_MGR
    "Format": b"",
    "Priority": -1,  # MQPRI_PRIORITY_AS_Q_DEF
    "Persistence": 2,  # MQPER_PERSISTENCE_AS_Q_DEF
    "MsgId": bytes(24),
    "CorrelId": bytes(24),
    "BackoutCount": 0,
    "ReplyToQ": b"",
    "ReplyToQMgr": b"",
    "UserIdentifier": b"",
    "AccountingToken": bytes(32),
    "ApplIdentityData": b"",
    "PutApplType": 0,  # MQAT_NO_CONTEXT
    "PutApplName": b"",
    "PutDate": b"",
    "PutTime": b"",
    "ApplOriginData": b"",
    "GroupId": bytes(24),
    "MsgSeqNumber": 1,
    "Offset": 0,
    "MsgFlags": 0,
    "OriginalLength": -1,
}


def publish(qos: int = 0, *, topic: str = "plant/line 1", payload: bytes = b"21.5", retain: bool = False) -> Publish:
    return Publish(topic, payload, qos, retain, False, 10 if qos else 0)


def mapped(qos: int = 0, **fields: object) -> PublicationMessage:
    return to_mq(publish(qos, **fields), ClientIdentity("sensor-1", b"operator"))


def folders(data: bytes) -> dict[str, dict[str, object]]:
    chain = decode_chain(b"MQHRF2", 546, 1208, data)
    (header,) = chain.headers
    assert isinstance(header, RFH2)
    return {folder.name: dict(folder.content) for folder in header.folders}


# Table 1: MQMD --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2], ids="table 1: all else is default, QoS={}".format)
def test_all_other_fields_of_the_descriptor_have_their_defaults(qos: int) -> None:
    expected = MQMD_DEFAULTS | {
        "Format": b"MQHRF2",
        "UserIdentifier": b"operator",
        "Persistence": 1 if qos else 0,
    }
    assert msgspec.structs.asdict(mapped(qos).md) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({"use_client_id": True, "mcauser": "mca", "user_name": "user"}, b"client",
                     id="table 1: UserIdentifier, USECLTID(YES) before all"),
        pytest.param({"use_client_id": True}, b"client", id="table 1: UserIdentifier, ClientIdentifier"),
        pytest.param({"mcauser": "mca", "user_name": "user"}, b"mca", id="table 1: UserIdentifier, MCAUSER before UserName"),
        pytest.param({"mcauser": "mca"}, b"mca", id="table 1: UserIdentifier, MCAUSER of the channel"),
        pytest.param({"user_name": "user"}, b"user", id="table 1: UserIdentifier, UserName"),
        pytest.param({"user_name": ""}, b"", id="table 1: UserIdentifier, empty UserName"),
        pytest.param({}, b"", id="table 1: UserIdentifier, nothing known"),
    ],
)  # fmt: skip
def test_user_identifier_is_the_first_configured_name(settings: dict[str, object], expected: bytes) -> None:
    assert user_identifier("client", **settings) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("twelve_bytes", b"twelve_bytes", id="table 1: UserIdentifier MQCHAR12, 12 bytes stay"),
        pytest.param("thirteen_byte", b"thirteen_byt", id="table 1: UserIdentifier MQCHAR12, the 13th is cut"),
        pytest.param("elevenbytes\u00e9", b"elevenbytes", id="table 1: UserIdentifier MQCHAR12, no half character"),
        pytest.param(
            "tenbytes10\u00e9", "tenbytes10\u00e9".encode(), id="table 1: UserIdentifier MQCHAR12, a whole one"
        ),
        pytest.param("a          b c", b"a          b", id="table 1: UserIdentifier MQCHAR12, blanks inside"),
        pytest.param("trailing   ", b"trailing", id="table 1: UserIdentifier MQCHAR12, trailing blanks are padding"),
    ],
)
def test_user_identifier_has_at_most_twelve_bytes(name: str, expected: bytes) -> None:
    assert user_identifier(name, use_client_id=True) == expected
    assert user_identifier("x", name) == expected
    assert user_identifier("x", mcauser=name) == expected


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_user_name_gives_valid_utf_8_of_at_most_twelve_bytes(name: str) -> None:
    user = user_identifier("c", name)
    assert len(user) <= 12
    assert name.startswith(user.decode("utf-8"))


# Table 2: RFH2 --------------------------------------------------------------------------------------------------------


def long(number: int) -> bytes:
    return number.to_bytes(4, "little", signed=True)


def test_a_complete_message_with_qos_1_byte_for_byte() -> None:
    mqtt = b"<mqtt><clientId>sensor-1</clientId><qos dt='i4'>1</qos><msgid dt='i4'>10</msgid></mqtt> "
    mqps = b"<mqps><Top>plant/line 1</Top></mqps>"
    assert (len(mqtt), len(mqps)) == (88, 36)
    assert mapped(1).data == b"".join(
        (
            b"RFH ",
            long(2),  # Version
            long(36 + 4 + 88 + 4 + 36),  # StrucLength
            long(546),  # Encoding
            long(1208),  # CodedCharSetId
            b"        ",  # Format: MQFMT_NONE
            long(0),  # Flags
            long(1208),  # NameValueCCSID
            long(88),
            mqtt,
            long(36),
            mqps,
            b"21.5",
        )
    )


def test_a_complete_retained_delivery_of_a_message_with_qos_0_byte_for_byte() -> None:
    message = to_mq(Publish("caf\u00e9/<a&b>", b"", 0, True), ClientIdentity("c'1", b""))
    mqtt = b"<mqtt><clientId>c&apos;1</clientId><qos dt='i4'>0</qos></mqtt>  "
    mqps = b"<mqps><Top>caf\xc3\xa9/&lt;a&amp;b&gt;</Top><Sud>2</Sud><Ret dt='boolean'>1</Ret></mqps>  "
    assert (len(mqtt) % 4, len(mqps) % 4) == (0, 0)
    assert message.data_as(retained=True, user_data="2") == b"".join(
        (
            b"RFH ",
            long(2),
            long(36 + 4 + len(mqtt) + 4 + len(mqps)),
            long(546),
            long(1208),
            b" " * 8,
            long(0),
            long(1208),
            long(len(mqtt)),
            mqtt,
            long(len(mqps)),
            mqps,
        )
    )


def test_a_message_id_is_never_written_for_qos_0() -> None:
    message = PublicationMessage(mapped(0).md, "c", "t", b"", 0, 7)
    assert "msgid" not in folders(message.data)["mqtt"]


def test_a_will_has_a_qos_and_no_message_id() -> None:
    message = to_mq(Publish("t", b"", 1), ClientIdentity("c", b""))
    assert folders(message.data)["mqtt"] == {"clientId": "c", "qos": 1}


# Table 3: message contents --------------------------------------------------------------------------------------------


characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")


@given(
    client_id=st.text(characters, max_size=30),
    topic=st.text(characters, min_size=1, max_size=60),
    payload=st.binary(max_size=300),
    qos=st.integers(0, 2),
    packet_id=st.integers(1, 65_535),
    retained=st.booleans(),
    user_data=st.sampled_from([None, "0", "1", "2"]) | st.text(characters, max_size=10),
)
def test_a_written_message_can_be_read_back(
    client_id: str, topic: str, payload: bytes, qos: int, packet_id: int, retained: bool, user_data: str | None
) -> None:
    published = Publish(topic, payload, qos, False, False, packet_id if qos else 0)
    message = to_mq(published, ClientIdentity(client_id, b""))
    data = message.data_as(retained=retained, user_data=user_data)
    properties = Headers(Message(message.md, data))
    assert properties.topic == topic
    assert properties.body == payload
    assert properties.qos == qos
    assert properties.retained is retained
    assert properties.user_data == user_data
    assert folders(data)["mqtt"].get("msgid") == (packet_id if qos else None)
    assert folders(data)["mqtt"]["clientId"] == client_id
