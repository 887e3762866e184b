"""The standard profile: the page lists it, and it converts messages like the conversion for the bridge's own clients."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.config.document import StandardProfile
from bridge.config.mapping import MessageAttributes, PublicationAttributes, ToMqMapping, ToMqttMapping
from bridge.mapping.rule import ToMqRule, ToMqttRule, rule_of
from bridge.mqtt.packets import Publish
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message, Publication
from bridge.telemetry.subscription import publication_qos
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, decode_chain

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "standard-profile.md"
PROFILE = StandardProfile()
#: Values of MQMD.Persistence in IBM's integration tables 1 and 4.
PERSISTENCE = {"not-persistent": 0, "persistent": 1}


def listed_profile() -> dict[str, dict[str, Any]]:
    """Return the defaults in the tables of the page."""
    to_mq, to_mqtt = PAGE.read_text(encoding="utf-8").split("\n## ")[1:3]
    tables = {"to_mq": to_mq, "to_mqtt": to_mqtt}
    return {
        key: {name: yaml.safe_load(default) for name, default in re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text, re.M)}
        for key, text in tables.items()
    }


def test_the_page_lists_each_attribute_with_its_default() -> None:
    listed = listed_profile()
    assert {key: set(attributes) for key, attributes in listed.items()} == {
        "to_mq": set(MessageAttributes.model_fields),
        "to_mqtt": set(PublicationAttributes.model_fields),
    }
    listed["to_mq"]["persistence"] = {str(qos): word for qos, word in listed["to_mq"]["persistence"].items()}
    assert StandardProfile.model_validate(listed) == PROFILE
    assert listed == PROFILE.model_dump()


@pytest.mark.parametrize(("qos", "persistence"), [(0, "not-persistent"), (1, "persistent"), (2, "persistent")])
def test_persistence_from_qos(qos: int, persistence: str) -> None:
    assert isinstance(PROFILE.to_mq.persistence, dict)
    assert PROFILE.to_mq.persistence[str(qos)] == persistence  # type: ignore[index]
    message = to_mq(Publish("t", b"", qos, False, False, 1), ClientIdentity("c", b""))
    assert message.md.Persistence == PERSISTENCE[persistence]


@pytest.mark.parametrize(("persistence", "qos"), [("not-persistent", 0), ("persistent", 2)])
def test_qos_from_persistence(persistence: str, qos: int) -> None:
    assert isinstance(PROFILE.to_mqtt.qos, dict)
    assert PROFILE.to_mqtt.qos[persistence] == qos  # type: ignore[index]
    assert publication_qos(PERSISTENCE[persistence], None) == qos


def stated_mapping() -> ToMqRule:
    """Return a mapping that specifies all attributes of the standard profile."""
    config = ToMqMapping.model_validate(
        {"from": {"mqtt": "t/#"}, "to": {"topic": "{topic}x"}, "attributes": PROFILE.to_mq.model_dump()}
    )
    rule = rule_of("m", config, "QM1")
    assert isinstance(rule, ToMqRule)
    return rule


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_a_mapping_makes_the_message_that_the_bridge_makes_for_its_clients(qos: int, retain: bool) -> None:
    published = Publish("t/u", b"21.5", qos, retain, False, 7 if qos else 0)
    usual = to_mq(published, ClientIdentity("dev-1", b"operator"))
    mapped = stated_mapping().map(
        Publication(
            topic="t/u",
            payload=b"21.5",
            qos=qos,
            retain=retain,
            packet_id=published.packet_id,
            client_id="dev-1",
            user=b"operator",
        )
    )
    assert mapped is not None and mapped.retain is retain
    fields = (
        "Format",
        "UserIdentifier",
        "Priority",
        "Persistence",
        "Expiry",
        "MsgType",
        "ReplyToQ",
        "MsgId",
        "CorrelId",
    )
    assert [getattr(mapped.message.md, field) for field in fields] == [getattr(usual.md, field) for field in fields]
    assert parts(mapped.message)[:2] == parts(usual)[:2]


def parts(message: Message | PublicationMessage) -> tuple[object, bytes, bytes]:
    """The mqtt folder of a message, its body, and the Format in its RFH2."""
    chain = decode_chain(message.md.Format, message.md.Encoding, message.md.CodedCharSetId, message.put_data)
    (header,) = chain.headers
    assert isinstance(header, RFH2)
    folder = header.folder("mqtt")
    assert folder is not None
    content = {name: value for name, value in folder.content.items() if name in ("clientId", "qos", "msgid")}
    return content, chain.body, header.Format


@pytest.mark.parametrize(("persistence", "qos"), [(cmqc.MQPER_NOT_PERSISTENT, 0), (cmqc.MQPER_PERSISTENT, 2)])
def test_a_mapping_makes_the_publication_that_a_client_receives(persistence: int, qos: int) -> None:
    config = ToMqttMapping.model_validate(
        {"from": {"queue": "Q"}, "to": {"mqtt": "t"}, "attributes": PROFILE.to_mqtt.model_dump()}
    )
    rule = rule_of("m", config, "QM1")
    assert isinstance(rule, ToMqttRule)
    publication = rule.map(Message(MQMD(Persistence=persistence), b"\x00\xff"))
    assert publication is not None
    assert (publication.qos, publication.retain, publication.expiry) == (qos, False, None)
    assert publication.payload == b"\x00\xff"
