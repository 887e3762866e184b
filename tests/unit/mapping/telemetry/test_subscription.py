"""The user data of a client's subscription: its options, in readable form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.telemetry.subscription import FOREIGN, SubscriptionData, subscription_data, subscription_qos


def test_options_are_written_as_user_data(subtests: pytest.Subtests) -> None:
    for subscription, text in [
        (SubscriptionData(0), "0"),
        (SubscriptionData(1), "1"),
        (SubscriptionData(2), "2"),
        (SubscriptionData(2, no_local=True), "2 NL"),
        (SubscriptionData(0, retain_as_published=True), "0 RAP"),
        (SubscriptionData(1, True, True, (5,)), "1 NL RAP ID=5"),
        (SubscriptionData(1, subscription_identifiers=(268_435_455,)), "1 ID=268435455"),
        (SubscriptionData(2, subscription_identifiers=(7, 5)), "2 ID=7 ID=5"),
    ]:
        with subtests.test(data=subscription, text=text):
            assert subscription.user_data == text
            assert subscription_data(text) == subscription
            assert subscription_qos(text) == subscription.qos


def test_user_data_of_others_have_no_effect(subtests: pytest.Subtests) -> None:
    for text in [
        *("", "3", "1 ", "1 RAP NL", "1  NL", "1 nl", "1 ID=0", "1 ID=268435456", "1 ID=05", "1 ID=٣"),
        *("1 ID=5 ID=268435456", "1 ID=5,7", "1\n", "x" * 2000),
    ]:
        with subtests.test(text=text):
            assert subscription_data(text) == FOREIGN == SubscriptionData(2)
            assert subscription_qos(text) == 2


identifiers = st.lists(st.integers(1, 268_435_455), max_size=3).map(tuple)


@given(st.builds(SubscriptionData, st.integers(0, 2), st.booleans(), st.booleans(), identifiers))
def test_user_data_can_be_read_back(subscription: SubscriptionData) -> None:
    assert subscription_data(subscription.user_data) == subscription
