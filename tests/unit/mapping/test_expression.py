"""CEL expressions: results, expressions that `check` rejects, and the cost of hostile payloads."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mapping.expression import Expression, ExpressionError
from bridge.mapping.json_document import document_of, encoded
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc

PAYLOAD = b"""{"temp": 31.50, "whole": 21, "unit": "C", "n": 9007199254740993, "large": 123456789012345678901234567,
 "larger": 123456789012345678901234568, "list": [1, 2.50], "nothing": null, "o": {"b": 1.10, "a": [true]}, "a name": 1}"""


class Scope:
    """A message with this payload."""

    user_properties: Mapping[str, str] = {"site": "ulm"}
    descriptor: Mapping[str, str | int] = {"Priority": 4, "Format": "MQSTR"}

    def __init__(self, payload: bytes = PAYLOAD) -> None:
        self.document = document_of(payload)

    def __call__(self, name: str) -> str | None:
        return {"topic": "plant/l1/temp", "line": "l1", "clientId": "dev-7", "user": "op"}.get(name)


def value(text: str, payload: bytes = PAYLOAD) -> Any:
    return Expression(text, ["line"]).value(Scope(payload))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("payload.temp > 30 && topic.startsWith('plant/')", "true"),
        ("payload.whole == 21.0 && payload.whole < 21.5", "true"),
        ("payload['a name'] + 1", "2"),
        ("has(payload.missing) ? 1 : 2", "2"),
        ("payload.nothing == null", "true"),
        ("payload.unit in ['C', 'F']", "true"),
        ("line + '/' + clientId + '/' + user + '/' + usr.site", '"l1/dev-7/op/ulm"'),
        ("md.Priority + 1", "5"),
        ("md.Format", '"MQSTR"'),
        ("topic.split('/')[1].upperAscii()", '"L1"'),
        ("math.greatest(payload.list[0], 3)", "3"),
        ("'%s %.1f'.format([payload.unit, payload.temp])", '"C 31.5"'),
        ("time > timestamp('2020-01-01T00:00:00Z')", "true"),
        ("timestamp('2020-07-01T00:00:00Z').getHours('Europe/Berlin') + duration('3h').getHours()", "5"),
        ("string(payload.whole) + payload.unit", '"21C"'),
        ("payload.list[1]", "2.50"),
        ("'a' == 'a' // a comment: nope", "true"),
    ],
)
def test_the_value_of_an_expression(text: str, expected: str) -> None:
    assert encoded(value(text)).decode() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("payload.temp * 2", 63.0),
        ("payload.temp * 1.8 + 32", 88.7),
        ("payload.whole * 1.8 + 32", 69.8),
        ("payload.temp + payload.whole", 52.5),
        ("payload.list[1] + payload.list[0]", 3.5),
        ("payload.whole + 1", 22),
        ("payload.whole / 2", 10),
        ("payload.whole / 2.0", 10.5),
        ("payload.whole % 2", 1),
        ("(payload.temp - 32) / 1.8", -0.2777),
        ("topic.substring(0, 5) == 'plant' ? payload.whole * 1.8 + 32 : 0", 69.8),
        ("size(payload.list) == 2 ? payload.whole * 1.5 + 1 : payload.temp + 2", 32.5),
        ("size(payload.list) == 3 ? payload.whole * 1.5 + 1 : payload.temp + 2", 33.5),
        ("size(payload.list) + 1 > 2 ? payload.whole * 1.5 + 1 : 0", 32.5),
        ("payload.whole * 1.5 > 3 ? int(payload.temp) : 5", 31),
    ],
)
def test_integers_and_decimals_can_be_combined(text: str, expected: float) -> None:
    assert math.isclose(value(text), expected, rel_tol=1e-3)
    assert isinstance(value(text), type(expected))


@given(st.floats(-1e6, 1e6) | st.integers(-(10**6), 10**6), st.floats(0.1, 1e3))
def test_whether_a_device_sends_21_or_21_0_does_not_matter(number: float, factor: float) -> None:
    payload = json.dumps({"x": number}).encode()
    expected = number * factor + 32
    assert math.isclose(value(f"payload.x * {factor!r} + 32", payload), expected, rel_tol=1e-12, abs_tol=1e-9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("payload.large", "123456789012345678901234567"),
        ("payload", PAYLOAD.replace(b"\n ", b"").replace(b": ", b":").replace(b", ", b",").decode()),
        ("payload.o", '{"b":1.10,"a":[true]}'),
        ("payload.temp > 30.0 ? payload.o.b : payload.temp", "1.10"),
        ("payload.temp > 30.0 ? payload.large : payload.n", "123456789012345678901234567"),
        ("[payload.temp, payload.large]", "[31.50,123456789012345678901234567]"),
        ("payload.n", "9007199254740993"),
        ("payload.n + 1", "9007199254740994"),
        ("payload.large == payload.large && payload.large != payload.larger", "true"),
    ],
)
def test_numbers_without_arithmetic_keep_their_digits(text: str, expected: str) -> None:
    assert encoded(value(text)).decode() == expected


@pytest.mark.parametrize(
    ("text", "reason", "why"),
    [
        ("payload.missing > 3", cmqc.MQRC_PROPERTY_NOT_AVAILABLE, "Key not found"),
        ("payload.missing", cmqc.MQRC_PROPERTY_NOT_AVAILABLE, "the payload has no $.missing"),
        ("usr.missing", cmqc.MQRC_PROPERTY_NOT_AVAILABLE, "Key not found"),
        ("payload.unit + 1", cmqc.MQRC_FORMAT_ERROR, "this operation does not exist: _+_(string, int64)"),
        ("payload.large + 1", cmqc.MQRC_FORMAT_ERROR, "this operation does not exist"),
        ("payload.large > 1", cmqc.MQRC_FORMAT_ERROR, "this operation does not exist"),
        ("payload.whole / 0", cmqc.MQRC_FORMAT_ERROR, "divide by zero"),
        ("payload.temp / 0.0", cmqc.MQRC_FORMAT_ERROR, "beyond the range of a double"),
        ("9223372036854775807 + payload.whole", cmqc.MQRC_FORMAT_ERROR, "overflow"),
        ("duration('5s')", cmqc.MQRC_FORMAT_ERROR, "not a value of JSON"),
        ("{1: 2}", cmqc.MQRC_FORMAT_ERROR, "the names of an object are text"),
        (r"'%s'.format([b'\xff'])", cmqc.MQRC_FORMAT_ERROR, "the result is not UTF-8"),
    ],
)
def test_an_expression_without_a_value_is_an_error_of_the_message(text: str, reason: int, why: str) -> None:
    with pytest.raises(Unmappable) as error:
        value(text)
    assert error.value.reason == reason
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("text", "column", "why"),
    [
        ("temp > 30", 1, "undeclared reference to 'temp'; known names are clientId, line, payload"),
        ("md.Priority > 3", 3, "undeclared reference to 'md.Priority'"),
        ("topic + 1", 7, "no matching overload for '_+_' applied to '(string, int)'"),
        ("payload. > 3", 10, "Syntax error"),
        ("topic ==\n 'a' + nope", 17, "undeclared reference to 'nope'"),
        ("payload.list.exists(x, x > 1)", 14, "exists() is a loop"),
        ("payload.list.map(x, x)", 14, "map() is a loop"),
        ("payload.s.replace(payload.a, 'b')", 11, "replace() needs literals"),
        ("payload.list.join(payload.s)", 14, "join() needs literals"),
        ("payload.s.contains(payload.a)", 11, "contains() needs literals"),
        ("payload.s.indexOf(payload.a)", 11, "indexOf() needs literals"),
        ("payload.s.lastIndexOf(payload.a)", 11, "lastIndexOf() needs literals"),
        ("payload.s.split(payload.a)", 11, "split() needs literals"),
        ("payload.s.matches(payload.a)", 11, "matches() needs literals"),
        ("matches(payload.s, payload.a)", 1, "matches() follows a text, such as topic.matches('…')"),
        ("payload.s.matches('[a-z]{200}-[0-9]{60}')", 19, "the pattern '[a-z]{200}-[0-9]{60}' has 261 characters"),
        (r"payload.s.matches('a\x7b300}')", 19, "has 300 characters with its counts written out, of 256 at most"),
        ("payload.s.matches('(a')", 19, "'(a' is not a pattern: invalid regular expression: missing )"),
        ("payload.s.replace('a',", 23, "Syntax error"),
        ("time.getHours(payload.zone) < 6", 6, "getHours() needs literals"),
        ("time.getDate(usr.zone) < 6", 6, "getDate() needs literals"),
        ("time.getHours('Europe/Ulm') < 6", 15, "'Europe/Ulm' is not a time zone: Invalid timezone"),
        (r"payload.l == ['''\'''', payload.l.map(x, x), '''''']", 35, "map() is a loop"),
        ("payload.s" + ".replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')" * 3, 109, "with replace(), the result"),
        ("payload.s" + ".split('').join('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')" * 3, 123, "with join(), the result"),
        ("strings.quote(" * 13 + "payload.s" + ")" * 13, 177, "with quote(), the result"),
        ("'%x'.format([" * 13 + "payload.s" + "])" * 13, 162, "with format(), the result"),
        (r"'\x25x'.format([" * 13 + "payload.s" + "])" * 13, 201, "with format(), the result"),
        ("payload.f.format([1])", 11, "format() needs a literal text"),
        ("+".join(["1"] * 3_000), None, "at most 4,096 characters"),
        ("(" * 100 + "1" + ")" * 100, None, "recursion"),
    ],
)
def test_expressions_that_check_rejects(text: str, column: int | None, why: str) -> None:
    with pytest.raises(ExpressionError) as error:
        Expression(text, ["line"], of_publication=True)
    assert error.value.column == column
    assert why in error.value.sentence


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("payload.list.join(', ').size()", json.dumps({"list": ["x" * 10] * 100_000})),
        ("payload.s.replace('a', 'bb').size()", json.dumps({"s": "a" * 1_000_000})),
        ("payload.s.matches('^(a+)+$')", json.dumps({"s": "a" * 1_000_000 + "b"})),
        ("7 in payload.list", json.dumps({"list": [1] * 1_000_000})),
        (
            "payload.o == payload.p",
            '{"o": ' + '{"a":' * 300 + "1" + "}" * 300 + ', "p": ' + '{"a":' * 300 + "2" + "}" * 300 + "}",
        ),
        ("payload.temp > 3", json.dumps({"temp": 4, "list": [[1] * 1_000] * 1_000})),
    ],
    ids=["join", "replace", "regular expression", "long list", "deep objects", "large payload"],
)
def test_a_hostile_payload_costs_little(text: str, payload: str) -> None:
    """Without loops, the cost is the length of the expression times that of the payload. A failure takes minutes."""
    expression = Expression(text)
    scope = Scope(payload.encode())
    start = time.process_time()
    encoded(expression.value(scope))
    assert time.process_time() - start < 60


def test_a_payload_cannot_contain_the_marker_of_large_integers() -> None:
    assert (
        value("payload.o == payload.p", b'{"o": 123456789012345678901, "p": {"integer": "123456789012345678901"}}')
        is False
    )


def test_a_condition_is_true_or_false() -> None:
    assert Expression("payload.on").can_be_true
    assert not Expression("payload.on ? 1 : 2").can_be_true
    assert Expression("payload.temp > 3").truth(Scope())
    with pytest.raises(Unmappable, match="neither true nor false"):
        Expression("payload.temp").truth(Scope())


@pytest.mark.parametrize("payload", [b'{"s": "admin\\u0000", "o": {}}', b'{"s": "admin", "o": {"a\\u0000": 1}}'])
def test_the_package_would_truncate_text_at_u_0000(payload: bytes) -> None:
    with pytest.raises(Unmappable, match="contains U\\+0000, which expressions cannot use"):
        value("payload.s == 'admin' && size(payload.o) < 3", payload)


@pytest.mark.parametrize("name", ["string", "int", "type", "map"])
def test_a_capture_with_the_name_of_a_type_does_not_prevent_expressions(name: str) -> None:
    assert Expression("string(payload.whole)", [name]).value(Scope()) == "21"


@pytest.mark.parametrize(
    "text",
    [
        "payload.unit"
        + "".join(f".replace('{old}', '{new}')" for old, new in zip("&<>", ("&amp;", "&lt;", "&gt;"), strict=True)),
        "payload.unit" + "".join(f".replace('{old}', '{old}e')" for old in "äöüÄÖÜß"),
    ],
)
def test_usual_replacements_are_accepted(text: str) -> None:
    assert value(text) == "C"
