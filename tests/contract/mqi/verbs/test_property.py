"""Message properties: conversion to and from an RFH2, and the effect of PROPCTL and MQGMO on them."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mq.embedded.property import check_property, merge, split
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import MQOD, MQError, Property
from bridge.mqtt.packets import Publish, PublishProperties
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire.mq import MQMD, RFH2, Folder, decode_rfh2, encode_rfh2
from tests.helpers.stand_in_manager import StandInManager
from tests.ibm_standin import cmqc
from tests.ibm_standin.mqi.structures import MqiGetOptions, MqiGot

INTEGERS = {cmqc.MQTYPE_INT8: 8, cmqc.MQTYPE_INT16: 16, cmqc.MQTYPE_INT32: 32, cmqc.MQTYPE_INT64: 64}


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
VALUES = st.one_of(
    st.tuples(st.just(cmqc.MQTYPE_BOOLEAN), st.booleans()),
    st.tuples(st.just(cmqc.MQTYPE_BYTE_STRING), st.binary(max_size=20)),
    *(st.tuples(st.just(type_), _integers(bits)) for type_, bits in INTEGERS.items()),
    st.tuples(st.just(cmqc.MQTYPE_FLOAT32), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just(cmqc.MQTYPE_FLOAT64), st.floats(allow_nan=False)),
    st.tuples(st.just(cmqc.MQTYPE_STRING), TEXTS),
    st.tuples(st.just(cmqc.MQTYPE_NULL), st.none()),
)
#: Of the same depth within a folder, so that no property is a group of another one.
NAMES = st.sampled_from(
    ["colour", "größe", "x1", "jms.Dst", "mcd.Msd", "mqext.Arm", "own.part", "own.a$b", "a.b.c", "a.b.d"]
)
PROPERTIES = st.dictionaries(NAMES, VALUES, max_size=8).map(
    lambda values: [Property(name=name, type=type_, value=value) for name, (type_, value) in values.items()]
)


@given(PROPERTIES, st.binary(max_size=20), st.sampled_from([b"", b"MQSTR"]))
def test_round_trip(properties: Any, body: Any, format_: Any) -> None:
    md = MQMD(Format=format_, CodedCharSetId=819, Encoding=273)
    assert split(*merge(md, body, properties)) == (md, body, _by_folder(properties))


def _by_folder(properties: list[Property]) -> list[Property]:
    folders = list(
        dict.fromkeys(property_.name.partition(".")[0] if "." in property_.name else "usr" for property_ in properties)
    )
    return sorted(
        properties,
        key=lambda property_: folders.index(property_.name.partition(".")[0] if "." in property_.name else "usr"),
    )


@given(PROPERTIES, PROPERTIES)
def test_a_property_replaces_others_of_the_same_name(first: Any, second: Any) -> None:
    both = split(*merge(*merge(MQMD(), b"body", first), second))[2]
    assert {property_.name: property_ for property_ in both} == {
        property_.name: property_ for property_ in (*first, *second)
    }


def test_nan_and_infinity() -> None:
    properties = [
        Property(name="nan", type=cmqc.MQTYPE_FLOAT64, value=math.nan),
        Property(name="inf", type=cmqc.MQTYPE_FLOAT32, value=-math.inf),
    ]
    nan, infinity = split(*merge(MQMD(), b"", properties))[2]
    assert math.isnan(nan.value)
    assert infinity.value == -math.inf


def test_a_32_bit_float_is_rounded_to_32_bits() -> None:
    (property_,) = split(*merge(MQMD(), b"", [Property(name="f", type=cmqc.MQTYPE_FLOAT32, value=0.1)]))[2]
    assert property_.value == struct.unpack("<f", struct.pack("<f", 0.1))[0] != 0.1


def test_the_descriptor_of_a_property_is_kept() -> None:
    property_ = Property(
        name="a",
        value="x",
        Support=cmqc.MQPD_SUPPORT_REQUIRED,
        Context=cmqc.MQPD_USER_CONTEXT,
        CopyOptions=cmqc.MQCOPY_FORWARD | cmqc.MQCOPY_REPLY,
    )
    assert split(*merge(MQMD(), b"", [property_]))[2] == [property_]


def test_usr_is_the_folder_of_names_without_folder() -> None:
    md, data = merge(MQMD(), b"", [Property(name="usr.colour", value="red"), Property(name="size", value="L")])
    (folder,) = decode_rfh2(data).folders
    assert folder.NameValueData.rstrip() == b"<usr><colour>red</colour><size>L</size></usr>"
    assert [property_.name for property_ in split(md, data)[2]] == ["colour", "size"]


def test_folders_without_properties_stay_in_their_rfh2() -> None:
    own = RFH2(Format=b"MQSTR", folders=(Folder.build("psc", {"Command": "RegSub"}), Folder.build("usr", {"a": "1"})))
    md, data = merge(MQMD(Format=b"MQHRF2"), encode_rfh2(own) + b"body", [Property(name="b", value="2")])
    md, data, properties = split(md, data)
    header = decode_rfh2(data)
    assert [folder.name for folder in header.folders] == ["psc"]
    assert (md.Format, header.Format, data[header.StrucLength :]) == (b"MQHRF2", b"MQSTR", b"body")
    assert [(property_.name, property_.value) for property_ in properties] == [("a", "1"), ("b", "2")]


def test_invalid_properties(subtests: pytest.Subtests) -> None:
    for property_, reason in [
        (Property(name="", value=""), cmqc.MQRC_PROPERTY_NAME_ERROR),
        (Property(name="a b", value=""), cmqc.MQRC_PROPERTY_NAME_ERROR),
        (Property(name="1a", value=""), cmqc.MQRC_PROPERTY_NAME_ERROR),
        (Property(name="a..b", value=""), cmqc.MQRC_PROPERTY_NAME_ERROR),
        (Property(name="a.", value=""), cmqc.MQRC_PROPERTY_NAME_ERROR),
        (Property(name="<a>", value=""), cmqc.MQRC_PROPERTY_NAME_ERROR),
        (Property(name="Between", value=""), cmqc.MQRC_PROPERTY_NAME_ERROR),
        (Property(name="a" * 4096, value=""), cmqc.MQRC_PROPERTY_NAME_LENGTH_ERR),
        (Property(name="a", type=cmqc.MQTYPE_INT8, value=128), cmqc.MQRC_PROP_NUMBER_FORMAT_ERROR),
        (Property(name="a", type=cmqc.MQTYPE_INT64, value=-(1 << 63) - 1), cmqc.MQRC_PROP_NUMBER_FORMAT_ERROR),
        (Property(name="a", type=cmqc.MQTYPE_FLOAT32, value=1e39), cmqc.MQRC_PROP_NUMBER_FORMAT_ERROR),
        (Property(name="a", type=cmqc.MQTYPE_INT8, value="1"), cmqc.MQRC_PROPERTY_TYPE_ERROR),
        (Property(name="a", type=cmqc.MQTYPE_STRING, value=b"1"), cmqc.MQRC_PROPERTY_TYPE_ERROR),
        (Property(name="a", type=cmqc.MQTYPE_NULL, value=""), cmqc.MQRC_PROPERTY_TYPE_ERROR),
        (Property(name="a", type=99, value=""), cmqc.MQRC_PROPERTY_TYPE_ERROR),
        (Property(name="a", value="\0"), cmqc.MQRC_PROP_VALUE_NOT_CONVERTED),
    ]:
        with subtests.test(property=property_, reason=reason):
            with pytest.raises(MQError) as error:
                check_property(property_)
            assert error.value.reason == reason


@pytest.mark.parametrize("names", [("a.b", "a.b.c"), ("a.b.c", "a.b")])
def test_a_property_is_not_a_group(names: Any) -> None:
    with pytest.raises(MQError) as error:
        merge(MQMD(), b"", [Property(name=name, value="x") for name in names])
    assert error.value.reason == cmqc.MQRC_PROPERTY_NAME_ERROR


# As an application gets them -----------------------------------------------------------------------------------------

COLOUR = Property(name="colour", value="red")
PLAIN = Property(name="own.size", type=cmqc.MQTYPE_INT32, value=5)
FORCE, NONE = cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2, cmqc.MQGMO_NO_PROPERTIES
HANDLE, COMPAT = cmqc.MQGMO_PROPERTIES_IN_HANDLE, cmqc.MQGMO_PROPERTIES_COMPATIBILITY


def summary(message: MqiGot) -> str:
    """Return the location of the message properties: `rfh2`, `handle`, or an empty string."""
    assert message.data.endswith(b"body")
    if message.md.Format == b"MQHRF2":
        assert message.properties == []
        return "rfh2"
    assert (message.md.Format, message.data) == (b"MQSTR", b"body")
    return "handle" if message.properties else ""


@pytest.mark.parametrize(
    ("control", "options", "handle", "with_usr", "without_usr"),
    [
        ("COMPAT", 0, 0, "rfh2", ""),
        ("COMPAT", 0, 1, "handle", "handle"),
        ("ALL", 0, 0, "rfh2", "rfh2"),
        ("ALL", 0, 1, "handle", "handle"),
        ("FORCE", 0, 0, "rfh2", "rfh2"),
        ("FORCE", 0, 1, "rfh2", "rfh2"),
        ("V6COMPAT", 0, 1, "rfh2", "rfh2"),
        ("NONE", 0, 0, "", ""),
        ("NONE", 0, 1, "", ""),
        ("NONE", FORCE, 0, "rfh2", "rfh2"),
        ("NONE", HANDLE, 1, "handle", "handle"),
        ("FORCE", HANDLE, 0, "handle", "handle"),
        ("FORCE", NONE, 1, "", ""),
        ("FORCE", COMPAT, 1, "rfh2", ""),
    ],
)
def test_propctl_and_get_options(
    manager: StandInManager, control: str, options: Any, handle: int, with_usr: str, without_usr: str
) -> None:
    manager.ok(f"DEFINE QLOCAL(Q) PROPCTL({control})")
    connection = manager.connection
    queue = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
    for properties, expected in (([COLOUR, PLAIN], with_usr), ([PLAIN], without_usr)):
        connection.put1(MQOD(ObjectName="Q"), Message(MQMD(Format=b"MQSTR"), b"body"), properties=properties)
        message = connection.get(queue, MqiGetOptions(Options=options, MsgHandle=handle))
        assert summary(message) == expected
        if expected == "handle":
            assert message.properties == properties
        if expected == "rfh2":
            assert split(message.md, message.data)[2] == properties


def test_an_alias_has_its_own_propctl(manager: StandInManager) -> None:
    manager.ok("DEFINE QLOCAL(Q) PROPCTL(NONE)")
    manager.ok("DEFINE QALIAS(A) TARGET(Q) PROPCTL(ALL)")
    connection = manager.connection
    connection.put1(MQOD(ObjectName="Q"), Message(MQMD(Format=b"MQSTR"), b"body"), properties=[COLOUR])
    for name, expected in (("A", "rfh2"), ("Q", "")):
        queue = connection.open(MQOD(ObjectName=name), cmqc.MQOO_BROWSE)
        assert summary(connection.get(queue, MqiGetOptions(Options=cmqc.MQGMO_BROWSE_FIRST))) == expected


def test_an_rfh2_of_the_putter_is_data_with_compat_and_properties_with_a_handle(manager: StandInManager) -> None:
    manager.ok("DEFINE QLOCAL(Q)")
    own = RFH2(Format=b"MQSTR", CodedCharSetId=1208, folders=(Folder.build("mqps", {"Top": "t"}),))
    data = encode_rfh2(own) + b"body"
    connection = manager.connection
    connection.put1(MQOD(ObjectName="Q"), Message(MQMD(Format=b"MQHRF2"), data))
    queue = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE)
    assert connection.get(queue, MqiGetOptions(Options=cmqc.MQGMO_BROWSE_FIRST)).data == data
    message = connection.get(queue, MqiGetOptions(Options=HANDLE))
    assert (message.data, message.md.Format, message.properties) == (
        b"body",
        b"MQSTR",
        [Property(name="mqps.Top", value="t")],
    )


def test_properties_survive_a_restart(manager: StandInManager) -> None:
    manager.ok("DEFINE QLOCAL(Q)")
    message = Message(MQMD(Format=b"MQSTR", Persistence=1), b"body")
    manager.connection.put1(MQOD(ObjectName="Q"), message, properties=[PLAIN])
    manager.restart()
    queue = manager.connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE)
    assert summary(manager.connection.get(queue, MqiGetOptions(Options=cmqc.MQGMO_BROWSE_FIRST))) == ""
    assert manager.connection.get(queue, MqiGetOptions(Options=HANDLE)).properties == [PLAIN]


def test_the_properties_of_a_publication(manager: StandInManager) -> None:
    manager.ok("DEFINE QLOCAL(Q)")
    manager.ok("DEFINE SUB(S) TOPICSTR('a/#') DEST(Q) USERDATA('note')")
    connection = manager.connection
    connection.put1(
        MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="a/b"),
        Message(MQMD(Format=b"MQSTR"), b"body"),
        properties=[COLOUR],
    )
    queue = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
    publication = connection.get(queue, MqiGetOptions(Options=HANDLE))
    assert {property_.name: property_.value for property_ in publication.properties} == {
        "colour": "red",
        "mqps.Top": "a/b",
        "mqps.Sud": "note",
    }


def test_the_properties_of_an_mqtt_publication(manager: StandInManager) -> None:
    manager.ok("DEFINE QLOCAL(Q)")
    manager.ok("DEFINE SUB(S) TOPICSTR('a/b') DEST(Q)")
    itself = manager.itself
    with itself.lock:
        unit = Unit()
        message = PublicationMessage(MQMD(Format=b"MQHRF2"), "device", "a/b", b"body", 1, 7)
        itself.publish(unit, itself.objects.topics.route("a/b"), message, 1.0)
        itself.recovery_log.submit(unit)
    queue = manager.connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
    got_message = manager.connection.get(queue, MqiGetOptions(Options=HANDLE))
    assert (got_message.md.Format, got_message.data) == (b"", b"body")
    assert [(property_.name, property_.type, property_.value) for property_ in got_message.properties] == [
        ("mqtt.clientId", cmqc.MQTYPE_STRING, "device"),
        ("mqtt.qos", cmqc.MQTYPE_INT32, 1),
        ("mqtt.msgid", cmqc.MQTYPE_INT32, 7),
        ("mqps.Top", cmqc.MQTYPE_STRING, "a/b"),
    ]


def test_properties_of_mqtt_5_in_a_message_handle(manager: StandInManager) -> None:
    """The body is UTF-8 text for the application, without a header before it."""
    manager.ok("DEFINE QLOCAL(Q)")
    manager.ok("DEFINE SUB(S) TOPICSTR('a/b') DEST(Q)")
    properties = PublishProperties(
        payload_format_indicator=1, content_type="t", user_property=(("site-id", "HH"), ("a", "<&>"))
    )
    message = to_mq(Publish("a/b", b"body", 0, properties=properties), ClientIdentity("dev", b""))
    with manager.itself.lock:
        unit = Unit()
        manager.itself.publish(unit, manager.itself.objects.topics.route("a/b"), message, 1.0)
        manager.itself.recovery_log.submit(unit)
    queue = manager.connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
    got_message = manager.connection.get(queue, MqiGetOptions(Options=HANDLE))
    assert (got_message.md.Format, got_message.md.CodedCharSetId, got_message.data) == (b"MQSTR", 1208, b"body")
    values = {property_.name: property_.value for property_ in got_message.properties}
    assert (values["mqtt.contentType"], values["site_x002D_id"], values["a"]) == ("t", "HH", "<&>")
