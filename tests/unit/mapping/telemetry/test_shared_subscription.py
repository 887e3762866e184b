"""Names of shared subscriptions, of clients and in the queue manager."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.telemetry.subscription import (
    is_remote_queue_manager,
    is_shared,
    share_of_subscription,
    shared_subscription,
    shared_subscription_error,
    subscriber_of,
    subscription_name,
    topic_string,
)


def test_invalid_shared_subscriptions_are_rejected(subtests: pytest.Subtests) -> None:
    for written, rule in [
        ("$share/", "4.8.2-1"),
        ("$share//t", "4.8.2-1"),
        ("$share/a+/t", "4.8.2-2"),
        ("$share/#/t", "4.8.2-2"),
        ("$share/g", "4.8.2-2"),
        ("$share/g/", "4.8.2-2"),
        ("$share/g/a#", "alone"),
        ("$share/g/#/a", "at the end"),
    ]:
        with subtests.test(written=written, rule=rule):
            error = shared_subscription_error(written)
            assert error is not None and rule in error


def test_names_are_converted_and_restored() -> None:
    share = shared_subscription("$share/g/plant/+/t")
    assert (share.share_name, share.topic_filter) == ("g", "plant/+/t")
    assert share.subscription_name == "$share/g:plant/+/t"
    name = share.remote_queue_manager
    assert is_remote_queue_manager(name) and len(name) == 38
    assert name != shared_subscription("$share/g/plant").remote_queue_manager
    assert subscription_name(name, share.written) == share.subscription_name
    assert topic_string(name, share.written) == share.topic_filter
    assert subscription_name("c", "a/b") == "c:a/b" and topic_string("c", "$share/g/t") == "$share/g/t"
    assert is_shared("$share/g/t")
    assert not is_shared("$shared/g/t") and not is_remote_queue_manager("SHARE." + 31 * "0")


@given(st.text("ab:$", min_size=1, max_size=5), st.text("ab:/+", min_size=1, max_size=6))
def test_a_subscription_contains_its_share(name: str, topic_filter: str) -> None:
    written = f"$share/{name}/{topic_filter}"
    if shared_subscription_error(written) is None:
        share = shared_subscription(written)
        assert share.written == written
        assert share_of_subscription(share.subscription_name, topic_filter) == share


@pytest.mark.parametrize(
    ("name", "topic_filter", "user_data", "expected"),
    [
        ("c:t", "t", "2", ("c", "t")),
        ("c:a:b", "a:b", "1 NL RAP ID=5", ("c", "a:b")),
        ("$share/g:t", "t", "1 RAP", (shared_subscription("$share/g/t").remote_queue_manager, "$share/g/t")),
        ("c:t", "t", "an administrator's", None),
        ("c:t", "u", "1", None),
        (":t", "t", "1", None),
        ("t", "t", "1", None),
    ],
)
def test_the_name_shows_the_owner_of_a_subscription(
    name: str, topic_filter: str, user_data: str, expected: tuple[str, str] | None
) -> None:
    """Options of MQTT 5 in the user data belong to the bridge, too."""
    assert subscriber_of(name, topic_filter, user_data) == expected


@pytest.mark.parametrize("name", ["c:t", "$share/g", "$share/g:u", "$share/:t", "$share/a/b:t", "$SHARE/g:t"])
def test_subscriptions_of_others_are_not_shared_subscriptions(name: str) -> None:
    assert share_of_subscription(name, "t") is None
