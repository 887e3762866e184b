"""`as: publisher`: the user whose authority applies to a destination, and the topics that this user may publish to."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.document import load
from bridge.config.effective import described
from bridge.config.models import Configuration
from bridge.config.problems import ConfigurationError
from bridge.mapping.check import warnings_of
from bridge.mapping.rule import ToMqRule, rule_of
from bridge.mapping.trial import message_json, trial_of
from bridge.telemetry.headers import rfh2_of
from bridge.telemetry.message import Message, Publication, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

TO_QUEUE = "from: {mqtt: '{q...}'}, to: {queue: '{q}', as: publisher}"
TO_TOPIC = "from: {mqtt: 'in/{t...}'}, to: {topic: '{t}', as: publisher}"
TO_MQTT = "from: {queue: Q}, to: {mqtt: '{usr.t}', as: publisher}"
OPEN = "{name: OPEN, port: 1}"
BY_USER = "{name: BY.USER, port: 2, publish_topics: ['public/#', 'own/%u/#', 'client/%c/#']}"
BY_MCAUSER = "{name: BY.MCAUSER, port: 3, mcauser: sensors, publish_topics: ['sensors/#', 'own/%u/#']}"
BY_CLIENT = "{name: BY.CLIENT, port: 4, use_client_id: true, publish_topics: ['client/%c/#', 'own/%u/#']}"
MAPPED = "{type: USERMAP, client_user: long-name, mcauser: mapped}"


def configuration(
    tmp_path: Path, mapping: str, channels: tuple[str, ...] = (OPEN,), records: str = "", more: str = ""
) -> Configuration:
    file = tmp_path / "mqbridge.yaml"
    lines = [f"channels: [{', '.join(channels)}]", f"channel_authentication: [{records}]", more, "mappings:"]
    file.write_text("\n".join([*lines, f"  chosen: {{{mapping}}}", ""]))
    return load(file)


def authority(config: Configuration, topic: str, user: str, client_id: str = "dev-1") -> str:
    """Map a publication and return the user whose authority applies."""
    rule = rule_of("chosen", config.mappings["chosen"], "QM1")
    if isinstance(rule, ToMqRule):
        mapped = rule.map(Publication(topic=topic, payload=b"", client_id=client_id, user=user.encode()))
        assert mapped is not None
        return mapped.authority
    header = rfh2_of(client_id or None, 1, 1, Publication("t", b"", user=b"").properties)
    md = MQMD(Format=cmqc.MQFMT_RF_HEADER_2, UserIdentifier=user.encode())
    publication = rule.map(Message(md, header))
    assert publication is not None
    return rule.message(publication).authority


@pytest.mark.parametrize("mapping", [TO_QUEUE, "from: {queue: Q}, to: {mqtt: t, as: publisher}"])
@pytest.mark.parametrize(("user", "expected"), [("alice", "alice"), ("", "nobody")])
def test_the_user_of_the_message_is_the_publisher(tmp_path: Path, mapping: str, user: str, expected: str) -> None:
    config = configuration(tmp_path, mapping)
    assert authority(config, "Q", user) == expected
    bridge = configuration(tmp_path, mapping.replace(", as: publisher", ""))
    assert authority(bridge, "Q", user) == ""


def test_results_in_the_cache_keep_their_users(tmp_path: Path) -> None:
    rule = rule_of("chosen", configuration(tmp_path, TO_QUEUE).mappings["chosen"], "QM1")
    assert isinstance(rule, ToMqRule)
    authorities = []
    for user in (b"alice", b"bob", b"alice"):
        mapped = rule.map(Publication(topic="Q", payload=b"", client_id="c", user=user))
        assert mapped is not None
        authorities.append(mapped.authority)
    assert authorities == ["alice", "bob", "alice"]


#: channels, channel authentication records, user, topic, whether the publisher may publish to it
TOPICS: dict[str, tuple[tuple[str, ...], str, str, str, bool]] = {
    "no restriction": ((OPEN,), "", "alice", "any", True),
    "within the filters": ((BY_USER,), "", "alice", "public/a", True),
    "outside of the filters": ((BY_USER,), "", "alice", "any", False),
    "the user's own topic": ((BY_USER,), "", "alice", "own/alice/a", True),
    "another user's topic": ((BY_USER,), "", "alice", "own/bob/a", False),
    "the client's own topic": ((BY_USER,), "", "alice", "client/dev-1/a", True),
    "another client's topic": ((BY_USER,), "", "alice", "client/dev-2/a", False),
    "without a user": ((BY_USER,), "", "", "own//a", False),
    "every channel counts": ((OPEN, BY_USER, BY_MCAUSER), "", "alice", "any", False),
    "but not one for other users": ((BY_USER, BY_MCAUSER), "", "alice", "public/a", True),
    "both channels": ((BY_USER, BY_MCAUSER), "", "sensors", "public/a", False),
    "mcauser": ((BY_MCAUSER,), "", "sensors", "sensors/a", True),
    "mcauser hides the user name": ((BY_MCAUSER,), "", "sensors", "own/sensors/a", False),
    "client identifier as user": ((BY_CLIENT,), "", "dev-1", "client/dev-1/a", True),
    "client identifier hides the user name": ((BY_CLIENT,), "", "dev-1", "own/dev-1/a", False),
    "a record can lead to any channel": ((BY_MCAUSER,), MAPPED, "mapped", "any", False),
    "a record hides the user name": ((BY_USER,), MAPPED, "mapped", "own/mapped/a", False),
}


@pytest.mark.parametrize("case", TOPICS)
def test_a_publisher_may_publish_to_publish_topics_only(tmp_path: Path, case: str) -> None:
    channels, records, user, topic, may = TOPICS[case]
    config = configuration(tmp_path, TO_TOPIC, channels, records)
    if may:
        assert authority(config, f"in/{topic}", user) == user
        return
    with pytest.raises(Unmappable, match="client 'dev-1' may not publish to") as rejected:
        authority(config, f"in/{topic}", user)
    assert rejected.value.reason == cmqc.MQRC_NOT_AUTHORIZED


def test_publish_topics_do_not_apply_to_applications_of_mq(tmp_path: Path) -> None:
    config = configuration(tmp_path, TO_TOPIC, (BY_USER,))
    assert authority(config, "in/any", "appl", client_id="") == "appl"


def test_publish_topics_apply_to_mappings_to_mqtt(tmp_path: Path) -> None:
    allowed = TO_MQTT.replace("{usr.t}", "public/{clientId}")
    assert authority(configuration(tmp_path, allowed, (BY_USER,)), "", "alice") == "alice"
    with pytest.raises(Unmappable, match="may not publish to 'any/dev-1'"):
        authority(configuration(tmp_path, allowed.replace("public", "any"), (BY_USER,)), "", "alice")


def test_try_shows_the_publisher(tmp_path: Path) -> None:
    trial = trial_of("chosen", configuration(tmp_path, TO_TOPIC, (BY_USER,)))
    (mapped,) = trial.messages(trial.published("in/public/a", b"", user="alice", properties={}))
    assert message_json(mapped)["as"] == "alice"
    with pytest.raises(Unmappable):
        trial.messages(trial.published("in/any", b"", user="alice", properties={}))
    to_mqtt = TO_MQTT.replace("{usr.t}", "any/{clientId}")
    trial = trial_of("chosen", configuration(tmp_path, to_mqtt, (BY_USER,)))
    header = rfh2_of("dev-1", 1, 1, Publication("t", b"").properties)
    with pytest.raises(Unmappable):
        trial.publications(Message(MQMD(Format=cmqc.MQFMT_RF_HEADER_2), header))


LINK = "links: {l: {host: h, client_id: 'b-{mapping}'}}"
PIPELINE = "pipelines: {p: {from: {mqtt: 'a/#'}, mapping: chosen}}"
#: mapping, further lines of the file, key of the mistake, expected value
WRONG: dict[str, tuple[str, str, str, str]] = {
    "another word": ("from: {mqtt: a}, to: {queue: Q, as: user}", "", "mappings.chosen.to.as", "bridge or publisher"),
    "from a link": (
        "from: {mqtt: a, link: l}, to: {queue: Q, as: publisher}", LINK, "mappings.chosen.to.as",
        "bridge, because the publications of a link have no MQ user",
    ),
    "to a link": (
        "from: {queue: Q}, to: {mqtt: a, link: l, as: publisher}", LINK, "mappings.chosen.to.as",
        "bridge, because the broker of a link checks the user of the link",
    ),
    "in a pipeline": (
        "from: {mqtt: a}, to: {queue: Q, as: publisher}, enabled: false", PIPELINE, "pipelines.p.mapping",
        "a mapping without to.as: publisher, because a pipeline puts all its rows with one user",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_reported_with_file_and_line(tmp_path: Path, case: str) -> None:
    mapping, more, key, expected = WRONG[case]
    with pytest.raises(ConfigurationError) as refused:
        configuration(tmp_path, mapping, more=more)
    file = tmp_path / "mqbridge.yaml"
    line = next(
        number
        for number, text in enumerate(file.read_text().splitlines(), 1)
        if text.strip().startswith(("chosen:", "pipelines:")[key.startswith("pipelines")])
    )
    assert f"{file}:{line}:" in str(refused.value)
    assert key in str(refused.value) and expected in str(refused.value), str(refused.value)


def test_check_describes_it(tmp_path: Path) -> None:
    assert "      as: publisher" in described(configuration(tmp_path, TO_QUEUE))


def test_check_warns_if_the_queue_manager_ignores_users(tmp_path: Path) -> None:
    ignored = [note for note in warnings_of(configuration(tmp_path, TO_QUEUE)) if "as: publisher" in note]
    assert ignored == [
        "mapping chosen: as: publisher checks publish_topics only, because the embedded queue manager ignores the authorities"
        " of users (hint: queue_manager.authorities: enforced)"
    ]
    for more in ("queue_manager: {authorities: enforced}", "queue_manager: {type: ibm, name: QM1, mode: bindings}"):
        notes = warnings_of(configuration(tmp_path, TO_QUEUE, more=more))
        assert not [note for note in notes if "as: publisher" in note]
    bridge = TO_QUEUE.replace(", as: publisher", "")
    assert not [note for note in warnings_of(configuration(tmp_path, bridge)) if "as: publisher" in note]


def test_a_changed_channel_changes_only_mappings_that_depend_on_it(tmp_path: Path) -> None:
    """`reload` starts mappings again that are not equal to those before."""
    for mapping, same in ((TO_TOPIC, False), (TO_QUEUE, True), (TO_TOPIC.replace(", as: publisher", ""), True)):
        before = configuration(tmp_path, mapping, (BY_USER,)).mappings["chosen"]
        after = configuration(tmp_path, mapping, (BY_USER.replace("public", "open"),)).mappings["chosen"]
        assert (before == after) is same, mapping
