"""Loops between mappings: detected in the configuration, and cut at run time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.config.link import LinkConfig
from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.loops import LoopGuard, loops, topic_levels
from bridge.mapping.template import Template
from bridge.mapping.topic_pattern import overlaps
from bridge.mqtt.topics import matches

LINKS = {
    "five": LinkConfig(host="broker"),
    "same": LinkConfig(host="BROKER"),
    "old": LinkConfig(host="other", version="3.1.1"),
    "open": LinkConfig(host="open", trusted=False),
}


def to_mq(source: str, *, queue: str | None = None, topic: str | None = None, link: str = "local", **more: Any) -> Any:
    to = {"queue": queue} if queue is not None else {"topic": topic}
    to |= more.pop("to", {})
    return ToMqMapping.model_validate({"from": {"mqtt": source, "link": link}, "to": to, **more})


def to_mqtt(mqtt: str, *, queue: str | None = None, topic: str | None = None, link: str = "local", **more: Any) -> Any:
    source = {"queue": queue} if queue is not None else {"topic": topic}
    return ToMqttMapping.model_validate({"from": source, "to": {"mqtt": mqtt, "link": link}, **more})


MIRROR = {"out": to_mqtt("{t}", topic="{t...}", link="five"), "in": to_mq("{t...}", topic="{t}", link="five")}


@pytest.mark.parametrize(
    ("mappings", "expected"),
    [
        pytest.param({"m": to_mq("a/#", topic="a/copy")}, [(("m",), True, False)], id="feeds itself"),
        pytest.param({"m": to_mq("a/+", topic="a/b/copy")}, [], id="a level deeper than its own source"),
        pytest.param({"m": to_mq("a/{x}", topic="{x}/b")}, [(("m",), False, False)], id="a capture may be anything"),
        pytest.param({"m": to_mq("a/{x}", topic="b/{x}")}, [], id="literal levels differ"),
        pytest.param({"m": to_mq("a/#", topic="a/copy", filter={"qos": [1]})}, [(("m",), False, False)], id="a filter"),
        pytest.param({"m": to_mq("a/#", topic="a/copy", enabled=False)}, [], id="disabled"),
        pytest.param({"m": to_mq("#", topic="$x/copy")}, [], id="a wildcard does not match $"),
        pytest.param({"m": to_mq("a/#", queue="Q")}, [], id="a queue is not a topic"),
        pytest.param(
            {"a": to_mq("a/#", queue="Q"), "b": to_mqtt("a/x", queue="Q")}, [(("a", "b"), True, False)], id="by a queue"
        ),
        pytest.param(
            {"a": to_mq("a/{x}", queue="Q.{x|upper}"), "b": to_mqtt("a/x", queue="Q.X")},
            [(("a", "b"), False, False)],
            id="by a queue that may be named",
        ),
        pytest.param({"a": to_mq("a/{x}", queue="R.{x}"), "b": to_mqtt("a/x", queue="Q.X")}, [], id="another queue"),
        pytest.param(
            {"a": to_mq("a/#", queue="Q", to={"queue_manager": "QM2"}), "b": to_mqtt("a/x", queue="Q")},
            [],
            id="a queue of another queue manager",
        ),
        pytest.param(MIRROR, [(("out", "in"), False, False)], id="through a link"),
        pytest.param(
            {"a": to_mqtt("x", topic="x", link="five"), "b": to_mq("x", topic="x", link="same")},
            [(("a", "b"), True, False)],
            id="two links, one broker",
        ),
        pytest.param(
            {"a": to_mqtt("x", topic="x", link="five"), "b": to_mq("x", topic="x", link="old")}, [], id="two brokers"
        ),
        pytest.param(
            {"a": to_mqtt("x", topic="x", link="old"), "b": to_mq("x", topic="x", link="old")},
            [(("a", "b"), True, False)],
            id="3.1.1 one way: the mark is lost there, and added again on the way back",
        ),
        pytest.param(
            {
                "a": to_mqtt("y", topic="x", link="old"),
                "b": to_mq("y", queue="Q", link="old"),
                "c": to_mqtt("z", queue="Q", link="old"),
                "d": to_mq("z", topic="x", link="old"),
            },
            [(("a", "b", "c", "d"), True, True)],
            id="3.1.1 twice on the way: nothing cuts it",
        ),
        pytest.param(
            {
                "a": to_mqtt("y", topic="x", link="open"),
                "b": to_mq("y", queue="Q", link="open"),
                "c": to_mqtt("z", queue="Q", link="open"),
                "d": to_mq("z", topic="x", link="open"),
            },
            [(("a", "b", "c", "d"), True, True)],
            id="marks that are not believed: nothing cuts it",
        ),
        pytest.param(
            {"a": to_mqtt("plant/{usr.where}", topic="plant/+/x")},
            [(("a",), False, False)],
            id="a property may have a /",
        ),
        pytest.param({"a": to_mqtt("plant/{usr.where|mqname}", topic="plant/+/x")}, [], id="mqname leaves no / in it"),
    ],
)
def test_loops_are_detected(mappings: dict[str, Any], expected: list[tuple[tuple[str, ...], bool, bool]]) -> None:
    assert [(loop.names, loop.certain, loop.uncut) for loop in loops(mappings, LINKS, "QM1")] == expected


def test_a_loop_is_described() -> None:
    (loop,) = loops(MIRROR, LINKS)
    assert str(loop) == "messages through out → in → out may go in a loop; the bridge then discards them"


def test_a_loop_that_loses_its_mark_once_is_described_as_such() -> None:
    (loop,) = loops({"a": to_mqtt("x", topic="x", link="old"), "b": to_mq("x", topic="x", link="old")}, LINKS)
    assert str(loop).endswith(
        "; the bridge discards them after the first round, because a link with MQTT 3.1.1, or without `trusted`, "
        "transfers no hop mark"
    )


@pytest.mark.parametrize(
    ("hops", "place", "name", "expected"),
    [
        pytest.param(("QM1/out",), "five", "a/b", None, id="the first mapping"),
        pytest.param(("QM1/out", "QM1/in"), "local", "a/b", "out", id="no echo through a mirror"),
        pytest.param(("QM1/in", "QM1/out"), "five", "a/b", "in", id="no echo in the other direction"),
        pytest.param(("QM1/in", "QM1/out"), "same", "a/b", "in", id="no echo via another link to the same broker"),
        pytest.param(("QM1/in", "QM1/out"), "old", "a/b", None, id="another broker"),
        pytest.param(("QM1/queue", "QM1/in"), "queue", "Q", "queue", id="a queue"),
        pytest.param(("QM1/queue", "QM1/in"), "queue", "R", None, id="another queue"),
        pytest.param(("QM2/out", "QM1/in"), "local", "a/b", None, id="a mapping of another queue manager"),
        pytest.param(("QM1/gone", "QM1/in"), "local", "a/b", None, id="a removed mapping"),
        pytest.param(("QM1/queue", "QM2/x", "QM1/queue"), "five", "a", "queue", id="its own mark"),
        pytest.param(tuple(f"QM2/m{n}" for n in range(17)), "five", "a", None, id="16 mappings before"),
        pytest.param(tuple(f"QM2/m{n}" for n in range(18)), "five", "a", "m16", id="17 mappings before"),
        pytest.param((), "five", "a", None, id="no mapping at all"),
    ],
)
def test_marks_cut_loops_at_run_time(hops: tuple[str, ...], place: str, name: str, expected: str | None) -> None:
    guard = LoopGuard({**MIRROR, "queue": to_mqtt("a", queue="Q")}, "QM1", LINKS)
    assert guard.closes(hops, place, name) == expected


def test_a_mapping_that_reads_its_own_messages_delivers_once() -> None:
    guard = LoopGuard({"m": to_mq("a/#", topic="a/copy")}, "QM1")
    assert guard.closes(("QM1/m",), "local", "a/copy") is None
    assert guard.closes(("QM1/m", "QM1/m"), "local", "a/copy") == "m"


def test_the_name_of_a_queue_manager_may_contain_a_slash() -> None:
    guard = LoopGuard(MIRROR, "QM/1")
    assert guard.closes(("QM/1/out", "QM/1/in"), "local", "a") == "out"


LEVELS = ("a", "b", "$x")
TOPICS = [topic for length in range(1, 5) for topic in itertools.product(LEVELS, repeat=length)]
PATTERN = st.lists(st.sampled_from(["a", "b", "$x", "+", "#"]), min_size=1, max_size=4)


def generalised(pattern: list[str], topic: tuple[str, ...]) -> bool:
    """Return whether a destination pattern, which may create topics that start with $, can create a topic."""
    if not pattern:
        return not topic
    if pattern[0] == "#":
        return any(generalised(pattern[1:], topic[count:]) for count in range(len(topic) + 1))
    return bool(topic) and pattern[0] in ("+", topic[0]) and generalised(pattern[1:], topic[1:])


@given(PATTERN.filter(lambda levels: levels[0] != "#"), PATTERN)
def test_patterns_overlap_if_a_topic_matches_both(destination: list[str], source: list[str]) -> None:
    common = [
        topic for topic in TOPICS if generalised(destination, topic) and matches("/".join(source), "/".join(topic))
    ]
    if overlaps(destination, source):
        # Two patterns of four levels meet in seven levels at most, so longer topics may be the only ones.
        assert common or len(destination) + len(source) > 4
    else:
        assert not common


def test_topics_that_a_template_creates(subtests: pytest.Subtests) -> None:
    for template, levels in [
        ("a/b", ("a", "b")),
        ("a/{one}", ("a", "+")),
        ("a/x{one}y/b", ("a", "+", "b")),
        ("{many}/b", ("+", "#", "b")),
        ("a/{many|mqname}", ("a", "+")),
        ("a/{one|default:'x/y'}", ("a", "+", "#")),
        ("a/{one}{many}", ("a", "+", "#")),
        ("q{qos}", ("+",)),
        ("a/{md.CorrelId|text|mqname}", ("a", "+")),
    ]:
        with subtests.test(template=template, levels=levels):
            assert topic_levels(Template(template), {"one"}) == levels


@given(st.lists(st.sampled_from(["a", "{one}", "{many}", "x{one}"]), min_size=1, max_size=3), st.data())
def test_a_topic_from_a_template_matches_its_pattern(pieces: list[str], data: st.DataObject) -> None:
    template = Template("/".join(pieces))
    level = st.sampled_from(["a", "b"])
    scope = {"one": data.draw(level), "many": "/".join(data.draw(st.lists(level, min_size=1, max_size=2)))}
    assert overlaps(topic_levels(template, {"one"}), template.render(scope.get).split("/"))


def test_patterns_of_up_to_three_levels_overlap_if_they_have_a_common_topic() -> None:
    """All patterns. `$` matters only at the beginning of the topic, wherever it is in the patterns."""
    levels = ("a", "$x", "+", "#")
    patterns = [list(pattern) for length in (1, 2, 3) for pattern in itertools.product(levels, repeat=length)]
    topics = [list(topic) for length in (1, 2, 3, 4) for topic in itertools.product(("a", "$x"), repeat=length)]

    def is_of(topic: list[str], pattern: list[str]) -> bool:
        if not pattern:
            return not topic
        if pattern[0] == "#":
            return any(is_of(topic[at:], pattern[1:]) for at in range(len(topic) + 1))
        return bool(topic) and pattern[0] in ("+", topic[0]) and is_of(topic[1:], pattern[1:])

    topics_of = {tuple(pattern): [tuple(topic) for topic in topics if is_of(topic, pattern)] for pattern in patterns}
    for destination in patterns:
        for source in patterns:
            shy = source[0] in ("+", "#")
            source_topics = {topic for topic in topics_of[tuple(source)] if not (shy and topic[0].startswith("$"))}
            expected = not source_topics.isdisjoint(topics_of[tuple(destination)])
            assert overlaps(destination, source) is expected, (destination, source)


def test_equal_names_of_two_bridges_are_not_a_loop() -> None:
    """Both have a queue manager MQB1 and a mapping with that name. Their marks start differently."""
    mappings = {"orders": to_mq("a/#", topic="a/copy")}
    here = LoopGuard(mappings, "MQB1", mark="MQB1.00000001")
    assert here.closes(("MQB1.00000002/orders", "MQB1.00000001/orders"), "local", "b") is None
    assert here.closes(("MQB1.00000001/orders", "MQB1.00000001/orders"), "local", "b") == "orders"
