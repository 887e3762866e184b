"""The headers of a message, including malformed ones, and the publication from which it was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.archive.rows import Provenance, provenance_of
from bridge.config.mapping import ToMqttMapping
from bridge.mapping.rule import ToMqttRule
from bridge.mqtt.packets import Publish, PublishProperties
from bridge.telemetry.conversion import from_mq, publication_of, publisher_of, to_mq
from bridge.telemetry.headers import Headers
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message, Publication, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Folder, encode_chain


def message(*folders: Folder, **fields: Any) -> Message:
    chain = encode_chain((RFH2(CodedCharSetId=1208, folders=folders),), b"body")
    md = MQMD(**({"Persistence": 0} | fields | {"Format": chain.Format, "CodedCharSetId": 1208}))
    return Message(md, chain.data)


def test_headers_of_a_client_publication_are_read() -> None:
    stored = to_mq(Publish("a/b", b"x", 1, True, False, 9), ClientIdentity("dev-1", b"op"))
    assert publication_of(Message(stored.md, stored.data_as(retained=True))) == Publication(
        topic="a/b", payload=b"x", qos=1, retain=True, packet_id=9, client_id="dev-1", user=b"op"
    )


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, ("t", True)),
        ({"topic": "other"}, ("other", True)),
        ({"retained": False}, ("t", False)),
    ],
)
def test_values_from_other_sources_take_precedence(known: dict[str, Any], expected: tuple[str, bool]) -> None:
    output = publication_of(message(Folder.build("mqps", {"Top": "t", "Ret": True})), **known)
    assert (output.topic, output.retain) == expected


@pytest.mark.parametrize(("persistence", "qos"), [(0, 0), (1, 2)])
def test_headers_of_a_message_of_an_mq_application_are_read(persistence: int, qos: int) -> None:
    output = publication_of(Message(MQMD(Persistence=persistence, Expiry=300, UserIdentifier=b"app"), b"x"), topic="t")
    assert output == Publication(topic="t", payload=b"x", qos=qos, user=b"app", expiry=30.0)


@pytest.mark.parametrize(
    ("folders", "name", "expected"),
    [
        ([Folder.build("usr", {"a": "1"}), Folder.build("usr", {"a": "2", "b": "3"})], "usr", {"a": "2", "b": "3"}),
        ([Folder.build("usr", {"a": ["1", "2"]})], "usr", {"a": "2"}),
        ([Folder.build("usr", {"a": "x & y", "ü": "ö"})], "usr", {"a": "x & y", "ü": "ö"}),
        ([Folder.build("jms", {"Dlv": 2})], "jms", {"Dlv": "2"}),
        ([Folder(b"<mqtt><msgid dt='i4'>007</msgid></mqtt>")], "mqtt", {"msgid": "7"}),
        ([Folder(b"<usr><a dt='i4'>x</a></usr>"), Folder(b"<mqps></mqps>")], "mqps", {}),
        ([], "usr", {}),
    ],
)
def test_folders_are_read_as_properties(folders: list[Folder], name: str, expected: dict[str, str]) -> None:
    assert Headers(message(*folders)).folder(name) == expected


def test_an_unreadable_folder_does_not_affect_a_readable_one() -> None:
    broken, whole = Folder(b"<jms><a dt='i4'>x</a></jms>"), Folder.build("jms", {"b": "1"})
    for folders in ((broken, whole), (whole, broken)):
        with pytest.raises(Unmappable, match="folder jms"):
            Headers(message(*folders)).folder("jms")


def of_format(format_: bytes, data: bytes) -> Message:
    return Message(MQMD(Format=format_), data)


WHOLE = message(Folder.build("mqps", {"Top": "t"})).data
LEFT_OUT = Publication(topic="", payload=b"body", qos=0)
CORREL_ID = {"CorrelId": b"c".ljust(24, b"\0")}


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        pytest.param(message(Folder.build("mqtt", {"correlationData": "no hex"})), LEFT_OUT, id="Correlation Data"),
        pytest.param(message(Folder.build("mqtt", {"correlationData": "no hex"}), **CORREL_ID),
                     Publication("", b"body", properties=PublishProperties(correlation_data=b"c")),
                     id="Correlation Data, with a CorrelId"),
        pytest.param(message(Folder.build("mqtt", {"responseTopic": "a/#"})), LEFT_OUT, id="Response Topic"),
        pytest.param(message(Folder.build("mqtt", {"contentType": "x" * 65_536})), LEFT_OUT, id="Content Type"),
        pytest.param(message(Folder.build("mqtt", {"payloadFormatIndicator": 7})), LEFT_OUT, id="Payload Format Indicator"),
        pytest.param(message(Folder.build("mqtt", {"userProperties": "[["})), LEFT_OUT, id="User Properties"),
        pytest.param(message(Folder.build("mqtt", {"msgid": "many"})), LEFT_OUT, id="mqtt.msgid"),
        pytest.param(message(Folder.build("usr", {"a": "x" * 65_536})), LEFT_OUT, id="User Property, too long"),
        pytest.param(message(Folder(b"<usr><a>1</usr>")), LEFT_OUT, id="usr folder"),
        pytest.param(message(Folder(b"<jms><Dst>x</jms>")), LEFT_OUT, id="folder that is not used"),
        pytest.param(message(Folder(b"<mqtt><qos>1</qos>")), cmqc.MQRC_RFH_FORMAT_ERROR, id="mqtt folder"),
        pytest.param(message(Folder(b"<mqps><Top>a</mqps>")), cmqc.MQRC_RFH_FORMAT_ERROR, id="mqps folder"),
        pytest.param(message(Folder.build("mqtt", {"qos": 3})), cmqc.MQRC_RFH_FORMAT_ERROR, id="mqtt.qos: 3"),
        pytest.param(message(Folder.build("mqtt", {"qos": ""})), cmqc.MQRC_RFH_FORMAT_ERROR, id="mqtt.qos: empty"),
        pytest.param(of_format(b"MQHRF2", b"RFH "), cmqc.MQRC_RFH_ERROR, id="RFH2: cut short"),
        pytest.param(of_format(b"MQHRF2", WHOLE[:40]), cmqc.MQRC_RFH_ERROR, id="RFH2: cut in its folders"),
        pytest.param(of_format(b"MQXMIT", b"?" * 428), cmqc.MQRC_HEADER_ERROR, id="MQXQH"),
        pytest.param(of_format(b"MQDEAD", b"DLH "), cmqc.MQRC_HEADER_ERROR, id="MQDLH"),
        pytest.param(of_format(b"MQHMDE", b"?" * 72), cmqc.MQRC_HEADER_ERROR, id="MQMDE"),
    ],
)  # fmt: skip
def test_malformed_headers_have_the_same_effect_everywhere(source: Message, answer: Publication | int) -> None:
    """The table in `bridge.telemetry.headers` applies to clients, mappings, the archive and tracing."""
    config = {"from": {"queue": "Q"}, "to": {"mqtt": "out", "link": "plant"}}
    rule = ToMqttRule("m", ToMqttMapping.model_validate(config), "QM1")
    provenance = provenance_of(source, 0)
    if isinstance(answer, int):
        readers: list[Callable[[], object]] = [
            lambda: from_mq(source, topic="t", with_properties=True),
            lambda: publication_of(source),
            lambda: rule.map(source),
        ]
        for reader in readers:
            with pytest.raises(Unmappable) as raised:
                reader()
            assert raised.value.reason == answer
        assert publisher_of(source) == ""
        assert provenance == Provenance(source.data, 0)
        return
    assert publication_of(source) == answer
    mapped = rule.map(source)
    assert mapped is not None
    for properties in (
        from_mq(source, topic="t", with_properties=True).properties, mapped.properties, provenance.properties
    ):  # fmt: skip
        assert properties == answer.properties


def test_unreadable_marks_are_rejected_where_loops_are_detected() -> None:
    source = message(Folder(b"<mqbridge><hops>x</mqbridge>"))
    assert from_mq(source, topic="t").payload == b"body"
    with pytest.raises(Unmappable, match="folder mqbridge") as raised:
        publication_of(source)
    assert raised.value.reason == cmqc.MQRC_RFH_FORMAT_ERROR


VALUE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8) | st.integers(0, 2**40)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,5}", fullmatch=True), VALUE, max_size=5))
def test_simple_folders_are_parsed_like_by_the_xml_parser(content: dict[str, Any]) -> None:
    folder = Folder.build("jms", content)
    assert Headers(message(folder)).folder("jms") == {name: str(value) for name, value in folder.content.items()}
