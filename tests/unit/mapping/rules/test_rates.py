"""`limit` and `changes`: the messages that a mapping omits."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping import rates
from bridge.mapping.rates import LeftOut
from bridge.mapping.rule import ToMqRule, ToMqttRule, rule_of
from bridge.mapping.template import RuleError
from bridge.telemetry.message import Message, Unmappable
from bridge.wire.mq import MQMD
from tests.helpers.rules_to_mq import publication

LIMIT = {"limit": {"per": "{$.id}", "every": "10 s"}}
CHANGES = {"changes": {"per": "{$.id}", "of": "{$.v}"}}


class Clock:
    """The clock of the module, which tests set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(rates, "time", clock)
    return clock


def to_mq(**keys: Any) -> ToMqRule:
    config = {"from": {"mqtt": "#"}, "to": {"queue": "Q"}, **keys}
    rule = rule_of("m1", ToMqMapping.model_validate(config), "QM1")
    assert isinstance(rule, ToMqRule)
    return rule


def passes(rule: ToMqRule, payload: str, **fields: Any) -> bool:
    """Return whether a message passes. Otherwise it is omitted."""
    messages = rule.messages(publication(payload=payload.encode(), **fields))
    assert messages is not None
    return not isinstance(messages, LeftOut)


def test_one_message_per_key_and_period(clock: Clock) -> None:
    rule = to_mq(**LIMIT)
    times = [("a", 0.0), ("a", 5.0), ("b", 6.0), ("a", 9.9), ("a", 10.0), ("a", 19.0), ("b", 16.0)]
    passed = []
    for key, seconds in times:
        clock.now = 1_000.0 + seconds
        passed.append(passes(rule, f'{{"id": "{key}"}}'))
    assert passed == [True, False, True, False, True, False, True]


@pytest.mark.parametrize(
    ("deadband", "values", "passed"),
    [
        (None, ["1", "1", "1.0", '"1"', "2", "1"], [True, False, True, True, True, True]),
        (0.5, ["20", "20.5", "20.51", "20.02", "20.01", "-3e2"], [True, False, True, False, False, True]),
        (0, ["1", "1.0", "1.01"], [True, False, True]),
    ],
)
def test_report_by_exception(deadband: float | None, values: list[str], passed: list[bool]) -> None:
    rule = to_mq(changes={**CHANGES["changes"], "deadband": deadband})
    assert [passes(rule, f'{{"id": "a", "v": {value}}}') for value in values] == passed
    assert passes(rule, f'{{"id": "b", "v": {values[-1]}}}')


def test_a_value_omitted_by_limit_does_not_count_as_reported(clock: Clock) -> None:
    rule = to_mq(**LIMIT, **CHANGES)
    assert passes(rule, '{"id": "a", "v": 1}')
    assert rule.messages(publication(payload=b'{"id": "a", "v": 2}')) is LeftOut.LIMIT
    clock.now += 10
    assert rule.messages(publication(payload=b'{"id": "a", "v": 1}')) is LeftOut.UNCHANGED
    assert passes(rule, '{"id": "a", "v": 2}')  # the unchanged message did not use the period


def test_a_backed_out_unit_of_work_does_not_change_the_decision(clock: Clock) -> None:
    rule = to_mq(**LIMIT, **CHANGES)
    assert rule.rates is not None
    assert passes(rule, '{"id": "a", "v": 1}')
    rule.rates.commit()
    clock.now += 10
    assert passes(rule, '{"id": "a", "v": 2}') and passes(rule, '{"id": "b", "v": 1}')
    rule.rates.back_out()
    assert passes(rule, '{"id": "b", "v": 1}') and passes(rule, '{"id": "a", "v": 2}')
    rule.rates.back_out()
    assert not passes(rule, '{"id": "a", "v": 1}')


def test_a_message_that_stays_at_the_source_does_not_change_the_decision(clock: Clock) -> None:
    rule = to_mq(**LIMIT)
    assert rule.rates is not None
    assert passes(rule, '{"id": "a"}') and passes(rule, '{"id": "b"}')
    rule.rates.undo()
    assert passes(rule, '{"id": "b"}') and not passes(rule, '{"id": "a"}')
    rule.rates.undo()  # of a message that did not pass
    assert not passes(rule, '{"id": "a"}') and not passes(rule, '{"id": "b"}')


def test_the_mapping_forgets_the_oldest_of_too_many_keys(clock: Clock) -> None:
    rule = to_mq(limit={**LIMIT["limit"], "max_keys": 2})
    assert rule.rates is not None
    for key in "abc":
        assert passes(rule, f'{{"id": "{key}"}}')
        clock.now += 1
    assert rule.rates.commit() == 1
    assert passes(rule, '{"id": "a"}') and not passes(rule, '{"id": "c"}')
    assert rule.rates.commit() == 1
    clock.now += 20  # keys whose period is over are not forgotten, but unused
    assert all(passes(rule, f'{{"id": "{key}"}}') for key in "de")
    assert rule.rates.commit() == 0


def test_a_message_without_parts_does_not_count_as_reported() -> None:
    rule = to_mq(split="$.p", changes={"per": "all", "of": "{$.v}"})
    assert rule.messages(publication(payload=b'{"v": 1, "p": []}')) is LeftOut.NO_PARTS
    assert passes(rule, '{"v": 1, "p": [1]}') and not passes(rule, '{"v": 1, "p": [1]}')


def test_long_keys_and_values_are_compared_by_their_digest() -> None:
    rule = to_mq(changes={"per": "{$.id}", "of": "{$.v}"})
    long = "x" * 100_000
    assert passes(rule, f'{{"id": "{long}", "v": "{long}"}}')
    assert not passes(rule, f'{{"id": "{long}", "v": "{long}"}}')
    assert passes(rule, f'{{"id": "{long}", "v": "{long}y"}}')


def test_an_empty_retained_publication_passes(clock: Clock) -> None:
    rule = to_mq(limit={"per": "{topic}", "every": "10 s"})
    assert passes(rule, "1") and passes(rule, "", retain=True) and passes(rule, "", retain=True)
    assert not passes(rule, "2")


@pytest.mark.parametrize(
    "value",
    [
        '"x"',
        '"1_0"',
        '" 1"',
        '"+1"',
        '"01"',
        '"1."',
        '"1e99999999999999999999"',
        '"\u0661"',
        '"NaN"',
        '"1e999999999"',
        '"' + "1" * 1_000 + '"',
    ],
)
def test_a_deadband_compares_numbers(value: str) -> None:
    rule = to_mq(changes={**CHANGES["changes"], "deadband": 1})
    with pytest.raises(Unmappable, match=r"changes.of: .* is not a number, which changes.deadband compares"):
        rule.messages(publication(payload=f'{{"id": "a", "v": {value}}}'.encode()))


def test_a_message_without_the_key_is_rejected() -> None:
    with pytest.raises(Unmappable, match=r"limit.per: '{\$.id}' cannot be filled: the payload has no \$.id"):
        to_mq(**LIMIT).messages(publication(payload=b"{}"))


def test_messages_to_mqtt(clock: Clock) -> None:
    config = {"from": {"queue": "IN"}, "to": {"mqtt": "t"}, "limit": {"per": "{usr.device|default:''}", "every": 10}}
    rule = rule_of("m1", ToMqttMapping.model_validate(config), "QM1")
    assert isinstance(rule, ToMqttRule)
    results = [rule.publications(Message(MQMD(), b"x")) for _ in range(2)]
    assert not isinstance(results[0], LeftOut) and results[1] is LeftOut.LIMIT


@pytest.mark.parametrize(
    ("keys", "error", "why"),
    [
        ({"limit": {"every": "10 s"}}, ValidationError, "Field required"),
        ({"limit": {"per": "{topic}", "every": 0}}, ValidationError, "a duration from 100 ms to 24 h"),
        ({"limit": {"per": "{topic}", "every": 1, "max_keys": 0}}, ValidationError, "an integer from 1 to 1000000"),
        ({"limit": {"per": "{Topic}", "every": 1}}, RuleError, r"limit.per: {Topic}: did you mean {topic}\?"),
        ({"changes": {"per": "{topic", "of": "1"}}, RuleError, "changes.per: } is missing"),
        ({"changes": {"per": "{topic}", "of": "x", "deadband": 1}}, RuleError, "changes.of: 'x' is not a number"),
        ({"split": "$", "limit": {"per": "{@.id}", "every": 1}}, RuleError, "@ is a part of the payload"),
    ],
    ids=str,
)
def test_mistakes_are_reported(keys: dict[str, Any], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        to_mq(**keys)
