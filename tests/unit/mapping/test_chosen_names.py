"""Names chosen by a message: rejected unless the configuration contains them, or `allow` lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.config.document import load
from bridge.config.models import Configuration
from bridge.mapping.check import warnings_of
from bridge.mapping.rule import ToMqRule, ToMqttRule, rule_of
from bridge.security.privileged import user_of_this_process
from bridge.telemetry.message import Message, Publication, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Folder, encode_chain

CONFIGURATION = """
queue_manager: {name: QM1}
transmission_queue: TELEMETRY.OUT
mappings:
  asking:
    from: {mqtt: "ask/#"}
    to: {queue: SERVICE, queue_manager: QM2, requests_queue: ASKED}
    attributes: {reply_to_queue: ANSWERS, reply_to_queue_manager: QM3}
  chosen:
"""
#: part of the message in a template -> a mapping to MQ with that template
TO_MQ = {
    "queue": "from: {mqtt: '{name...}'}, to: {queue: '{name}'}",
    "queue, in upper case": "from: {mqtt: '{name...}'}, to: {queue: '{name|mqname|upper}'}",
    "queue, in part": "from: {mqtt: '{name...}'}, to: {queue: 'SYSTEM.{name}'}",
    "queue manager": "from: {mqtt: '{name...}'}, to: {queue: Q, queue_manager: '{name}'}",
    "topic": "from: {mqtt: 'in/{name...}'}, to: {topic: '{name}'}",
    "reply queue": "from: {mqtt: '{name...}'}, to: {queue: Q}, attributes: {reply_to_queue: '{name}'}",
    "reply queue manager": "from: {mqtt: '{name...}'}, to: {queue: Q}, attributes:"
    " {reply_to_queue: R, reply_to_queue_manager: '{name}'}",
    "user": "from: {mqtt: '{name...}'}, to: {queue: Q}, attributes: {user_identifier: '{name}'}",
}
REJECTED = [
    ("queue", "SYSTEM.ADMIN.COMMAND.QUEUE", "a SYSTEM object"),
    ("queue, in upper case", "system/admin/command/queue", "a SYSTEM object"),
    ("queue, in part", "DEFAULT.LOCAL.QUEUE", "a SYSTEM object"),
    ("queue", "TELEMETRY.OUT", "a queue that the bridge uses itself"),
    ("queue", "ASKED", "a queue that the bridge uses itself"),
    ("queue manager", "QM4", "a queue manager or client that the configuration does not name"),
    ("queue manager", "dev-1", "a queue manager or client that the configuration does not name"),
    ("topic", "$SYS/MQ/INFO", "a topic of the queue manager"),
    ("topic", "SYSTEM.BASE", "a topic of the queue manager"),
    ("reply queue", "SYSTEM.ADMIN.COMMAND.QUEUE", "a SYSTEM object"),
    ("reply queue manager", "QM4", "a queue manager or client that the configuration does not name"),
    ("user", "mqm", "a privileged user"),
    ("user", user_of_this_process(), "a privileged user"),
]
ACCEPTED = [
    ("queue", "PLANT.A"),
    ("queue", "SYSTEMS.A"),
    ("queue manager", "QM1"),
    ("queue manager", "QM2"),
    ("queue manager", "QM3"),
    ("topic", "$SYSTEM/a"),
    ("reply queue", "ANSWERS"),
    ("reply queue manager", "QM2"),
    ("user", "operator"),
]
ALLOWED = [
    ("queue", "SYSTEM.ADMIN.COMMAND.QUEUE", "SYSTEM.ADMIN.COMMAND.QUEUE"),
    ("queue", "SYSTEM.ADMIN.COMMAND.QUEUE", "SYSTEM.*.QUEUE"),
    ("queue", "ASKED", "ASKED"),
    ("queue manager", "QM4", "QM*"),
    ("queue manager", "dev-1", "client:*"),
    ("queue manager", "dev-1", "client:dev-*"),
    ("topic", "$SYS/MQ/INFO", "$SYS/MQ/*"),
    ("reply queue manager", "QM4", "QM4"),
    ("user", "mqm", "user:mqm"),
]
NOT_ALLOWED = [
    ("queue", "SYSTEM.ADMIN.COMMAND.QUEUE", "ADMIN.*"),
    ("queue", "SYSTEM.ADMIN.COMMAND.QUEUE", "client:*"),
    ("queue manager", "dev-1", "client:sensor-*"),
    ("user", "mqm", "*"),
]


def configuration(tmp_path: Path, mapping: str, allow: str | None = None) -> Configuration:
    """Load the configuration with a mapping `chosen`."""
    file = tmp_path / "mqbridge.yaml"
    listed = "" if allow is None else f", allow: ['{allow}']"
    file.write_text(CONFIGURATION.rstrip() + f" {{{mapping}{listed}}}\n")
    return load(file)


def to_mq(tmp_path: Path, kind: str, name: str, allow: str | None = None) -> Any:
    """Map a publication whose topic is, or ends with, the name."""
    rule = rule_of("chosen", configuration(tmp_path, TO_MQ[kind], allow).mappings["chosen"], "QM1")
    assert isinstance(rule, ToMqRule)
    return rule.map(Publication(topic=f"in/{name}" if kind == "topic" else name, payload=b"", qos=0))


@pytest.mark.parametrize(("kind", "name", "description"), REJECTED)
def test_the_message_is_rejected(tmp_path: Path, kind: str, name: str, description: str) -> None:
    with pytest.raises(Unmappable, match=f"is {description}, and the message chose it .hint: allow:") as rejected:
        to_mq(tmp_path, kind, name)
    assert rejected.value.reason == cmqc.MQRC_NOT_AUTHORIZED


@pytest.mark.parametrize(("kind", "name"), ACCEPTED)
def test_other_names_are_accepted(tmp_path: Path, kind: str, name: str) -> None:
    assert to_mq(tmp_path, kind, name) is not None


@pytest.mark.parametrize(("kind", "name", "allow"), ALLOWED)
def test_a_name_in_allow_is_accepted(tmp_path: Path, kind: str, name: str, allow: str) -> None:
    assert to_mq(tmp_path, kind, name, allow) is not None


@pytest.mark.parametrize(("kind", "name", "allow"), NOT_ALLOWED)
def test_other_names_in_allow_change_nothing(tmp_path: Path, kind: str, name: str, allow: str) -> None:
    with pytest.raises(Unmappable):
        to_mq(tmp_path, kind, name, allow)


def test_a_literal_name_is_not_restricted(tmp_path: Path) -> None:
    mapping = "from: {mqtt: a}, to: {queue: SYSTEM.ADMIN.COMMAND.QUEUE, queue_manager: QM9}"
    rule = rule_of("chosen", configuration(tmp_path, mapping).mappings["chosen"], "QM1")
    assert isinstance(rule, ToMqRule)
    assert rule.map(Publication(topic="a", payload=b"", qos=0)) is not None


TOPICS = {
    "topic": "from: {queue: Q}, to: {mqtt: '{usr.name}'}",
    "Response Topic": "from: {queue: Q}, to: {mqtt: t}, attributes: {response_topic: '{usr.name}'}",
}


@pytest.mark.parametrize("kind", TOPICS)
def test_topics_of_publications(tmp_path: Path, kind: str) -> None:
    rule = rule_of("chosen", configuration(tmp_path, TOPICS[kind]).mappings["chosen"], "QM1")
    assert isinstance(rule, ToMqttRule)
    header = encode_chain(
        (RFH2(Format=b"", CodedCharSetId=1208, folders=(Folder.build("usr", {"name": "$SYS/broker"}),)),), b""
    )
    message = Message(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), header.data)
    with pytest.raises(Unmappable, match="a topic of the queue manager"):
        rule.map(message)


def test_a_broker_decides_about_its_own_topics(tmp_path: Path) -> None:
    text = "from: {queue: Q}, to: {mqtt: 'SYSTEM.{md.Format|trim|default:''x''}', link: l}"
    file = tmp_path / "mqbridge.yaml"
    file.write_text(f"links: {{l: {{host: h}}}}\nmappings: {{chosen: {{{text}}}}}")
    rule = rule_of("chosen", load(file).mappings["chosen"], "QM1")
    assert isinstance(rule, ToMqttRule)
    publication = rule.map(Message(MQMD(), b""))
    assert publication is not None
    assert publication.topic == "SYSTEM.x"


@pytest.mark.parametrize(
    ("kind", "warning"),
    [
        ("queue, in part", 'to.queue results in SYSTEM names only, which are rejected (hint: allow: ["SYSTEM.*"])'),
        (
            "queue manager",
            "to.queue_manager comes from the message, and names that the configuration does not contain are",
        ),
        ("reply queue manager", "attributes.reply_to_queue_manager comes from the message, and names that"),
    ],
)
def test_check_warns_about_mappings_whose_names_are_rejected(tmp_path: Path, kind: str, warning: str) -> None:
    assert [line for line in warnings_of(configuration(tmp_path, TO_MQ[kind])) if warning in line]
    assert not [line for line in warnings_of(configuration(tmp_path, TO_MQ[kind], "*")) if warning in line]


def test_allow_is_a_list_of_names(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="a name, in which") as refused:
        configuration(tmp_path, TO_MQ["queue"], "")
    assert "mqbridge.yaml" in str(refused.value)
