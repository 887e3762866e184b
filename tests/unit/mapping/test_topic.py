"""Topic filters: validity (MQTT 3.1.1 section 4.7), and the topic strings that they match."""

from __future__ import annotations

import time
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.mqtt.topics import is_wildcard, matches, topic_filter_error

# Matching -------------------------------------------------------------------------------------------------------------


def test_filters_match_topics(subtests: pytest.Subtests) -> None:
    for topic_filter, topic, expected in [
        # MQTT 3.1.1 section 4.7.1.2
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/tennis/player1/#", "sport/tennis/player10", False),
        ("sport/#", "sport", True),
        ("#", "sport/tennis", True),
        ("#", "/", True),
        # 4.7.1.3
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("+/tennis/#", "sport/tennis/player1", True),
        # 4.7.2: topics that begin with $
        ("#", "$SYS/uptime", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("+", "$SYS", False),
        ("$SYS/#", "$SYS", True),
        ("$SYS/#", "$SYS/uptime", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("a/#", "a/$b", True),
        ("a/+", "a/$b", True),
        # 4.7.3: case, blanks, empty levels
        ("ACCOUNTS", "Accounts", False),
        ("Accounts payable", "Accounts payable", True),
        ("/finance", "finance", False),
        ("a//b", "a/b", False),
        ("a//b", "a//b", True),
        ("a/+/b", "a//b", True),
        ("/", "/", True),
        ("a/", "a", False),
        # + and # that are not alone in a level are not wildcards for matching
        ("a+", "ab", False),
        ("a#", "ab", False),
        # IBM MQ: # inside a filter
        ("a/#/z", "a/z", True),
        ("a/#/z", "a/b/z", True),
        ("a/#/z", "a/b/c/z", True),
        ("a/#/z", "a/z/b", False),
        ("a/#/z", "a/z/z", True),
        ("#/z", "z", True),
        ("#/z", "a/b/z", True),
        ("#/z", "$a/z", False),
        ("#/b/#", "a/b/c", True),
        ("#/b/#", "b", True),
        ("#/b/#", "a/c", False),
        ("#/#", "a", True),
        ("a/#/+/z", "a/z", False),
        ("a/#/+/z", "a/y/z", True),
        ("a/+/#", "a", False),
        ("a/+/#", "a/b", True),
    ]:
        with subtests.test(topic_filter=topic_filter, topic=topic, expected=expected):
            assert matches(topic_filter, topic) is expected


def reference(topic_filter: str, topic: str) -> bool:
    """The rules written out, slow: a # matches nothing, or one level and the same # again."""
    if topic[:1] == "$" and topic_filter[:1] in ("+", "#"):
        return False

    @cache
    def rest(pattern: tuple[str, ...], levels: tuple[str, ...]) -> bool:
        if not pattern:
            return not levels
        if pattern[0] == "#":
            return rest(pattern[1:], levels) or (bool(levels) and rest(pattern, levels[1:]))
        return bool(levels) and pattern[0] in ("+", levels[0]) and rest(pattern[1:], levels[1:])

    return rest(tuple(topic_filter.split("/")), tuple(topic.split("/")))


pattern_levels = st.sampled_from(["a", "b", "", "$", "+", "#", "#", "a+"])
topic_levels = st.sampled_from(["a", "b", "", "$", "$a"])


@given(
    st.lists(pattern_levels, min_size=1, max_size=7).map("/".join),
    st.lists(topic_levels, min_size=1, max_size=7).map("/".join),
)
@example("#/a/#/b", "a/b/a")
def test_matching_agrees_with_the_written_rules(topic_filter: str, topic: str) -> None:
    assert matches(topic_filter, topic) is reference(topic_filter, topic)


def test_a_hostile_filter_costs_no_more_than_the_product_of_the_lengths() -> None:
    topic_filter = "/".join(["#", "a"] * 500 + ["b"])
    topic = "/".join(["a"] * 2000)
    begin = time.process_time()
    assert not matches(topic_filter, topic)
    assert time.process_time() - begin < 2


# Validity -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic_filter",
    [
        "#",
        "+",
        "/",
        "a",
        "a/#",
        "+/a/#",
        "a/+/b",
        "/#",
        "//",
        "a/+",
        "+/+",
        "$SYS/#",
        " ",
        "\u00e9/\U0001f600",
        "a" * 10_240,
    ],
    ids=lambda topic_filter: topic_filter[:20],
)
def test_valid_filters_are_accepted(topic_filter: str) -> None:
    assert topic_filter_error(topic_filter) is None


@pytest.mark.parametrize(
    ("topic_filter", "word"),
    [
        pytest.param("", "is empty", id="MQTT-4.7.3-1: empty"),
        pytest.param("a\0b", "U+0000", id="MQTT-4.7.3-2: null character"),
        pytest.param("sport/tennis#", "alone", id="MQTT-4.7.1-2: # with text before it"),
        pytest.param("#a", "alone", id="MQTT-4.7.1-2: # with text behind it"),
        pytest.param("##", "alone", id="MQTT-4.7.1-2: ##"),
        pytest.param("+#", "alone", id="MQTT-4.7.1-2: +#"),
        pytest.param("sport/tennis/#/ranking", "end", id="MQTT-4.7.1-2: # not at the end"),
        pytest.param("#/a", "end", id="MQTT-4.7.1-2: # at the beginning"),
        pytest.param("#/#", "end", id="MQTT-4.7.1-2: # twice"),
        pytest.param("sport+", "alone", id="MQTT-4.7.1-3: + with text before it"),
        pytest.param("a/+b/c", "alone", id="MQTT-4.7.1-3: + with text behind it"),
        pytest.param("a" * 10_241, "10240", id="MQ_TOPIC_STR_LENGTH"),
    ],
)
def test_invalid_filters_are_rejected(topic_filter: str, word: str) -> None:
    error = topic_filter_error(topic_filter)
    assert error is not None
    assert word in error


@given(st.lists(st.sampled_from(["a", "", "+", "#", "a+", "#a"]), min_size=1, max_size=5).map("/".join))
def test_validity_agrees_with_the_statements_of_the_specification(topic_filter: str) -> None:
    levels = topic_filter.split("/")
    alone = all(level in ("+", "#") or not set(level) & set("+#") for level in levels)
    last = "#" not in levels[:-1]
    assert (topic_filter_error(topic_filter) is None) == (topic_filter != "" and alone and last)


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [("a/b", False), ("a+", False), ("+", True), ("a/#", True), ("a/#/b", True), ("", False), ("a#/b", False)],
)
def test_wildcards_are_recognized(topic_filter: str, expected: bool) -> None:
    assert is_wildcard(topic_filter) is expected
