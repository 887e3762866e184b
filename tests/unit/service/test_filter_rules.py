"""The rules for the topic filters of a SUBSCRIBE, without a queue manager."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.config.models import LimitsConfig
from bridge.mqtt.reason_codes import ReasonCode
from bridge.service.subscriptions import FilterRules
from bridge.service.telemetry import LEVELS_PER_SUBSCRIPTION, Quotas
from bridge.telemetry.identity import ClientIdentity, TopicAccess
from bridge.telemetry.session import Session

INVALID, FULL, DENIED = ReasonCode.TOPIC_FILTER_INVALID, ReasonCode.QUOTA_EXCEEDED, ReasonCode.NOT_AUTHORIZED
DEEP = "/".join(["a"] * (2 * LEVELS_PER_SUBSCRIPTION + 1))


@pytest.mark.parametrize(
    ("filters", "rejections", "limits"),
    [
        pytest.param(["a", "+/b", "#"], [None, None, None], {}, id="ordinary filters"),
        pytest.param(["a/#/b", "b"], [(INVALID, ""), None], {}, id="one is invalid"),
        pytest.param(["$share//a"], [(INVALID, "")], {}, id="a share without a name"),
        pytest.param(["$queue/a"], [(INVALID, "")], {}, id="the syntax of another broker"),
        pytest.param(["a", "no/c"], [None, (DENIED, "")], {}, id="the channel does not allow it"),
        pytest.param(["$share/s/no/c"], [(DENIED, "")], {}, id="nor as a share"),
        pytest.param(["a", "b", "c"], [None, None, (FULL, "subscriptions")], {"subscriptions": 2}, id="too many"),
        pytest.param(["a/#/b", "b", "c"], [(INVALID, ""), None, None], {"subscriptions": 2}, id="rejected do not count"),
        pytest.param(["kept", "b", "c"], [None, None, (FULL, "subscriptions")], {"subscriptions": 2}, id="existing"),
        pytest.param(["a", "b"], [None, (FULL, "subscribe_filters")], {"subscribe_filters": 1}, id="in one SUBSCRIBE"),
        pytest.param([DEEP, "a"], [(FULL, "subscriptions"), None], {"subscriptions": 2}, id="too many levels"),
    ],
)  # fmt: skip
def test_invalid_and_forbidden_filters_are_rejected(
    filters: list[str], rejections: list[tuple[ReasonCode, str] | None], limits: Any
) -> None:
    session = Session(ClientIdentity("c", b"user"), durable=True, window=10)
    session.topics = TopicAccess(None, ["a/#", "+", "+/b", "$queue/#"], "c", "user")
    if "#" in filters:
        session.topics = None
    if "kept" in filters:
        session.filters["kept"] = "1"
    config = LimitsConfig(**limits)
    quotas = Quotas(config)
    quotas.update(session)
    rules = FilterRules(session, config, quotas)
    results = [rules.rejection(topic_filter) for topic_filter in filters]
    assert [
        None if rejection is None else (rejection.code, "" if rejection.excess is None else rejection.excess.option)
        for rejection in results
    ] == rejections


def test_a_client_has_few_shared_subscriptions_if_other_bridges_serve_members() -> None:
    session = Session(ClientIdentity("c", b"user"), durable=True, window=10)
    session.shares = {f"SHARE.{number}": (f"$share/{number}/t", "1") for number in range(98)}
    quotas = Quotas(LimitsConfig())
    for divided, codes in ((True, [None, None, FULL, None, None]), (False, [None] * 5)):
        rules = FilterRules(session, LimitsConfig(), quotas, divided=divided)
        filters = ["$share/a/t", "$share/b/t", "$share/c/t", "$share/1/t", "t"]
        rejections = [rules.rejection(topic_filter) for topic_filter in filters]
        assert [None if rejection is None else rejection.code for rejection in rejections] == codes


def test_an_ending_session_gets_no_subscriptions() -> None:
    session = Session(ClientIdentity("c", b"user"), durable=True, window=10)
    session.ending = True
    rejection = FilterRules(session, LimitsConfig(), Quotas(LimitsConfig())).rejection("a")
    assert rejection is not None and rejection.code is FULL and rejection.excess is None
