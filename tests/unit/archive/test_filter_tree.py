"""The tree finds the same filters as `bridge.mqtt.topics.matches` one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.mqtt.topics import FilterTree, matches, topic_filter_error

LEVELS = st.sampled_from(["a", "b", "", "$SYS", "+", "#", "ab"])
FILTERS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(lambda text: topic_filter_error(text) is None)
TOPICS = st.lists(st.sampled_from(["a", "b", "", "$SYS", "ab"]), min_size=1, max_size=4).map("/".join)


@given(st.lists(FILTERS, max_size=8, unique=True), TOPICS)
def test_it_finds_matching_filters(filters: list[str], topic: str) -> None:
    tree: FilterTree[str] = FilterTree()
    for topic_filter in filters:
        tree.add(topic_filter, topic_filter)
    assert sorted(tree.find(topic)) == sorted(topic_filter for topic_filter in filters if matches(topic_filter, topic))


def test_a_filter_has_as_many_values_as_were_added() -> None:
    tree: FilterTree[int] = FilterTree()
    tree.add("a/#", 1)
    tree.add("a/#", 2)
    assert tree.find("a") == tree.find("a/b/c") == [1, 2]
