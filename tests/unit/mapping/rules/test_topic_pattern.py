"""Topic filters with captures: matches, captured values, and errors of invalid filters."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mapping.template import PatternError
from bridge.mapping.topic_pattern import TopicPattern
from bridge.mqtt.topics import matches


@pytest.mark.parametrize(
    ("pattern", "topic_filter", "topic", "captures"),
    [
        ("plant/{line}/+/{metric...}", "plant/+/+/#", "plant/1/x/a/b", {"line": "1", "metric": "a/b"}),
        ("plant/{line}/+/{metric...}", "plant/+/+/#", "plant/1/x/a", {"line": "1", "metric": "a"}),
        ("plant/{line}/+/{metric...}", "plant/+/+/#", "plant/1/x", None),
        ("plant/#", "plant/#", "plant", {}),
        ("plant/#", "plant/#", "plant/a/b", {}),
        ("plant/#", "plant/#", "plants", None),
        ("plant/{rest...}", "plant/#", "plant", None),
        ("plant/{rest...}", "plant/#", "plant/", {"rest": ""}),
        ("a/{x}", "a/+", "a/", {"x": ""}),
        ("a/{x}", "a/+", "a/b/c", None),
        ("{all...}", "#", "a/b", {"all": "a/b"}),
        ("{all...}", "#", "$SYS/x", None),
        ("#", "#", "$SYS/x", None),
        ("+/x", "+/x", "$SYS/x", None),
        ("$SYS/{x}", "$SYS/+", "$SYS/x", {"x": "x"}),
        ("a/{{b}}/{c}", "a/{b}/+", "a/{b}/d", {"c": "d"}),
        ("a.b/+", "a.b/+", "aXb/c", None),
        ("a/\n{x", None, None, None),
        ("line\n/{x}", "line\n/+", "line\n/a\nb", {"x": "a\nb"}),
        ("a/b", "a/b", "a/b", {}),
        ("a/b", "a/b", "a/c", None),
    ],
)
def test_a_pattern_captures_levels(
    pattern: str, topic_filter: str | None, topic: str, captures: dict[str, str] | None
) -> None:
    if topic_filter is None:
        with pytest.raises(PatternError):
            TopicPattern(pattern)
        return
    compiled = TopicPattern(pattern)
    assert compiled.filter == topic_filter
    assert compiled.captures(topic) == captures
    assert pickle.loads(pickle.dumps(compiled)).captures(topic) == captures


def test_errors_have_position_and_reason(subtests: pytest.Subtests) -> None:
    for pattern, column, part in [
        ("", None, "at least one character"),
        ("a/\0", 3, "contains no"),
        ("{a}/x/{a}", 7, "twice"),
        ("a{b}", 2, "whole level"),
        ("a/{{{x}}}", 5, "whole level"),
        ("a/{b", 3, "has no partner"),
        ("a/b}", 4, "has no partner"),
        ("a/{}/b", 4, "not a valid capture name"),
        ("a/{9}", 4, "not a valid capture name"),
        ("a/{b-c}", 4, "not a valid capture name"),
        ("a/#/b", 3, "only at the end"),
        ("{x...}/b", 1, "only at the end"),
        ("a/b+", 4, "must be alone"),
        ("a/b#c", 4, "must be alone"),
    ]:
        with subtests.test(pattern=pattern, column=column, part=part):
            with pytest.raises(PatternError, match=part) as raised:
                TopicPattern(pattern)
            assert raised.value.column == column


LEVEL = st.sampled_from(["", "a", "b", "$x", "ü", "a b", "{", "}"])
TOPIC = st.lists(LEVEL, min_size=1, max_size=5).map("/".join)


@st.composite
def patterns(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Return (kind, text) for each level."""
    levels = draw(st.lists(st.sampled_from(["literal", "+", "capture"]), min_size=1, max_size=4))
    end = draw(st.sampled_from([None, "#", "several"]))
    drawn = [
        (kind, draw(LEVEL) if kind == "literal" else f"c{index}" if kind == "capture" else "+")
        for index, kind in enumerate(levels)
    ]
    return drawn + ([(end, "rest")] if end else [])


def written(levels: list[tuple[str, str]]) -> str:
    forms = {
        "literal": lambda text: text.replace("{", "{{").replace("}", "}}"),
        "+": lambda text: "+",
        "#": lambda text: "#",
        "capture": lambda text: f"{{{text}}}",
        "several": lambda text: f"{{{text}...}}",
    }
    return "/".join(forms[kind](text) for kind, text in levels)


@given(patterns(), TOPIC)
def test_a_pattern_matches_like_its_filter(levels: list[tuple[str, str]], topic: str) -> None:
    if written(levels) == "":
        return
    pattern = TopicPattern(written(levels))
    expected = matches(pattern.filter, topic)
    if levels[-1][0] == "several":
        # at least one level, while # also matches the parent
        expected = expected and len(topic.split("/")) >= len(levels)
    assert pattern.matches(topic) == expected


@given(patterns(), st.data())
def test_captures_restore_the_topic(levels: list[tuple[str, str]], data: st.DataObject) -> None:
    if written(levels) == "" or levels[-1][0] == "#":
        return
    values = {
        text: "/".join(data.draw(st.lists(LEVEL, min_size=1, max_size=3))) if kind == "several" else data.draw(LEVEL)
        for kind, text in levels
        if kind in ("capture", "several")
    }
    topic = "/".join("x" if kind == "+" else values.get(text, text) for kind, text in levels)
    if topic.startswith("$") and levels[0][0] != "literal":
        return
    assert TopicPattern(written(levels)).captures(topic) == values


@pytest.mark.parametrize(
    ("pattern", "topic_filter", "topic", "captures"),
    [
        ("$share/g/plant/{line}/t", "$share/g/plant/+/t", "plant/l1/t", {"line": "l1"}),
        ("$share/g/#", "$share/g/#", "a/b", {}),
        ("$queue/a/{x}", "$queue/a/+", "a/1", {"x": "1"}),
        ("$share/g/plant/t", "$share/g/plant/t", "plant/t", {}),
    ],
)
def test_a_shared_subscription_matches_the_topics_of_its_filter(
    pattern: str, topic_filter: str, topic: str, captures: dict[str, str]
) -> None:
    """MQTT 5 section 4.8.2: publications contain only the topic."""
    read = TopicPattern(pattern)
    assert read.filter == topic_filter
    assert read.captures(topic) == captures
    assert "$share" not in read.levels


@pytest.mark.parametrize("pattern", ["$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/{x}/a", "$queue/"])
def test_a_share_without_a_name_or_a_filter_is_rejected(pattern: str) -> None:
    with pytest.raises(PatternError):
        TopicPattern(pattern)
