"""Rules to MQ, publications, and the resulting messages."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from bridge.config.mapping import ToMqMapping
from bridge.mapping.rule import ToMqRule, rule_of
from bridge.telemetry.message import MappedMessage, Publication
from bridge.wire.mq import RFH2, decode_chain
from tests.helpers.publications import publication_of_fields

TOPIC = "plant/line1/x/temp/max"


def rule(attributes: dict[str, Any] | None = None, **more: Any) -> ToMqRule:
    data = {"from": {"mqtt": "plant/{line}/+/{metric...}"}, "to": {"queue": "Q"}, "attributes": attributes or {}} | more
    mapping_rule = rule_of("m1", ToMqMapping.model_validate(data), "QM1")
    assert isinstance(mapping_rule, ToMqRule)
    return mapping_rule


def publication(**fields: Any) -> Publication:
    standard: dict[str, Any] = {
        "topic": TOPIC,
        "payload": b"21.5",
        "qos": 1,
        "packet_id": 10,
        "client_id": "dev-1",
        "user": b"operator",
    }
    return publication_of_fields(**(standard | fields))


def mapped(mapping_rule: ToMqRule, **fields: Any) -> MappedMessage:
    message = mapping_rule.map(publication(**fields))
    assert message is not None
    return message


def header(message: MappedMessage) -> RFH2:
    (folder_header,) = decode_chain(b"MQHRF2", 546, 1208, message.message.data).headers
    assert isinstance(folder_header, RFH2)
    return folder_header


def folders(message: MappedMessage) -> dict[str, dict[str, Any]]:
    return {folder.name: dict(folder.content) for folder in header(message).folders}


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
CLIENT_ID = TEXT.filter(bool)
