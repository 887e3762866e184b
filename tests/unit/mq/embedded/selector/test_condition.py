"""Message selectors: results, errors, and three-valued logic compared with a second implementation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mq.embedded.selector import MAX_DEPTH, MAX_LENGTH, selector
from bridge.mq.mqi import MQError
from bridge.wire import cmqc

VALUES: dict[str, Any] = {
    "colour": "red",
    "quote": "it's",
    "pattern": "50%_off",
    "lines": "a\nb",
    "weight": 7,
    "price": 2.5,
    "urgent": True,
    "done": False,
    "id": b"\x0a\xfc",
    "Root.MQMD.Priority": 4,
    "a.b": "nested",
}


def evaluate(text: str) -> bool | None:
    return selector(text)(VALUES.get)


def test_selectors_have_their_results(subtests: pytest.Subtests) -> None:
    for text, expected in [
        ("colour = 'red'", True),
        ("colour <> 'red'", False),
        ("colour='blue'", False),
        ("'red' = colour", True),
        ("quote = 'it''s'", True),
        ("weight = 7", True),
        ("weight <> 7", False),
        ("weight > 6 AND weight >= 7 and weight < 8 And weight <= 7", True),
        ("weight = 7.0", True),
        ("weight = 0x7", True),
        ("weight = 7L", True),
        ("price = 25E-1", True),
        ("price = 2.5f", True),
        ("price = .25e1", True),
        ("price < 3", True),
        ("weight = 3 + 2 * 2", True),
        ("weight = (3 + 2) * 2 - 3", True),
        ("weight / 2 = 3", True),
        ("-weight / 2 = -3", True),
        ("weight / 2.0 = 3.5", True),
        ("- -weight = +7", True),
        ("weight / 0 = 1", None),
        ("weight - 3 - 2 = 2", True),
        ("weight BETWEEN 5 AND 7", True),
        ("weight NOT BETWEEN 5 AND 7", False),
        ("weight BETWEEN 8 AND 9", False),
        ("colour IN ('blue', 'red')", True),
        ("colour NOT IN ('blue', 'red')", False),
        ("weight IN (1, 7)", True),
        ("colour IN ('blue')", False),
        ("colour LIKE 'r%'", True),
        ("colour LIKE 'r_d'", True),
        ("colour LIKE 'r_'", False),
        ("colour NOT LIKE 'b%'", True),
        ("colour LIKE 'RED'", False),
        ("colour LIKE 'r.d'", False),
        ("pattern LIKE '50!%!_off' ESCAPE '!'", True),
        ("pattern LIKE '50!_!_off' ESCAPE '!'", False),
        ("lines LIKE 'a%b'", True),
        ("weight LIKE '7'", False),
        ("nothing IS NULL", True),
        ("nothing IS NOT NULL", False),
        ("colour IS NULL", False),
        ("colour is not null", True),
        ("urgent", True),
        ("NOT urgent", False),
        ("urgent = TRUE", True),
        ("urgent <> FALSE", True),
        ("done = false", True),
        ("TRUE", True),
        ("FALSE OR urgent", True),
        ('id = "0x0AFC"', True),
        ('id = "0X0a"', False),
        ("Root.MQMD.Priority > 3", True),
        ("a.b = 'nested'", True),
        ("(colour = 'red')", True),
        # Values of different types are neither equal nor unequal.
        ("colour = weight", False),
        ("colour <> weight", False),
        ("urgent = weight", False),
        ("colour < pattern", False),
        # Unknown.
        ("nothing = 1", None),
        ("nothing <> 1", None),
        ("NOT nothing = 1", None),
        ("nothing > 1 OR urgent", True),
        ("nothing > 1 AND done", False),
        ("nothing > 1 AND urgent", None),
        ("nothing LIKE 'x'", None),
        ("nothing NOT IN ('x')", None),
        ("nothing BETWEEN 1 AND 2", None),
        ("nothing + 1 = 1", None),
        ("colour + 1 = 1", None),
        ("nothing", None),
        ("colour", None),
        ("NOT weight", None),
    ]:
        with subtests.test(text=text, expected=expected):
            assert evaluate(text) is expected


def test_invalid_selectors_are_rejected(subtests: pytest.Subtests) -> None:
    for text in [
        "",
        "   ",
        "colour =",
        "= 'red'",
        "colour == 'red'",
        "colour 'red'",
        "colour = 'red",
        "colour = 'red' AND",
        "(colour = 'red'",
        "colour = 'red')",
        "colour IN ()",
        "colour IN 'red'",
        "colour IN (weight)",
        "colour IN (TRUE)",
        "'red' IN ('red')",
        "colour LIKE red",
        "colour LIKE 7",
        "'red' LIKE 'r%'",
        "colour LIKE 'r%' ESCAPE '!!'",
        "colour LIKE 'r!' ESCAPE '!'",
        "colour LIKE 'r!d' ESCAPE '!'",
        "1 IS NULL",
        "colour IS 'red'",
        "weight BETWEEN 1",
        "weight BETWEEN 'a' AND 'b'",
        "NOT",
        "AND colour = 'red'",
        "7",
        "'red'",
        "weight + 1",
        "TRUE + 1 = 2",
        "'a' + 'b' = 'ab'",
        "'a' < 'b'",
        "TRUE > FALSE",
        "1 = 'a'",
        "select = 1 from x",
        "weight = 1x",
        "weight = 1.2.3",
        'id = "0x0"',
        'id = "red"',
        "NULL = 1",
        "between = 1",
        "weight NOT = 1",
        "weight; DROP",
        "(" * (MAX_DEPTH + 1) + "urgent" + ")" * (MAX_DEPTH + 1),
        "NOT " * (MAX_DEPTH + 1) + "urgent",
        "weight = " + "- " * (MAX_DEPTH + 1) + "1",
    ]:
        with subtests.test(text=text):
            with pytest.raises(MQError) as error:
                selector(text)
            assert error.value.reason == cmqc.MQRC_SELECTOR_SYNTAX_ERROR


def test_depth_and_length_have_reachable_limits() -> None:
    assert evaluate("(" * MAX_DEPTH + "urgent" + ")" * MAX_DEPTH) is True
    assert evaluate("urgent" + " " * (MAX_LENGTH - 6)) is True
    with pytest.raises(MQError) as error:
        selector("urgent" + " " * (MAX_LENGTH - 5))
    assert error.value.reason == cmqc.MQRC_SELECTION_STRING_ERROR


# Hypothesis draws a selector as a tree. Its value is computed from the tree here, and from the text by `selector`. ----

NAMES = st.sampled_from(["a", "b", "c", "Root.MQMD.Priority"])
ENVIRONMENTS = st.fixed_dictionaries(
    {},
    optional={
        name: st.one_of(st.integers(-5, 5), st.booleans(), st.sampled_from(["x", "y", "it's"]))
        for name in ("a", "b", "c", "Root.MQMD.Priority")
    },
)
NUMBERS = st.integers(0, 5)
numeric = st.recursive(
    st.one_of(NUMBERS.map(lambda n: ("number", n)), NAMES.map(lambda n: ("name", n))),
    lambda inner: st.tuples(st.sampled_from("+-*"), inner, inner),
    max_leaves=4,
)
conditions = st.recursive(
    st.one_of(
        st.tuples(st.just("compare"), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numeric, numeric),
        st.tuples(st.just("text"), NAMES, st.sampled_from(["=", "<>"]), st.sampled_from(["x", "y", "it's"])),
        st.tuples(st.just("null"), NAMES, st.booleans()),
        st.tuples(st.just("between"), st.booleans(), numeric, numeric, numeric),
        st.tuples(st.just("in"), st.booleans(), NAMES, st.lists(st.sampled_from(["x", "y"]), min_size=1, max_size=2)),
    ),
    lambda inner: st.one_of(st.tuples(st.just("not"), inner), st.tuples(st.sampled_from(["and", "or"]), inner, inner)),
    max_leaves=8,
)


def written(tree: Any) -> str:
    match tree:
        case ("number", value):
            return str(value)
        case ("name", name):
            return str(name)
        case ("+" | "-" | "*" as sign, left, right):
            return f"({written(left)} {sign} {written(right)})"
        case ("compare", sign, left, right):
            return f"{written(left)}{sign}{written(right)}"
        case ("text", name, sign, text):
            quoted = text.replace("'", "''")
            return f"{name} {sign} '{quoted}'"
        case ("null", name, negated):
            return f"{name} IS {'NOT ' if negated else ''}NULL"
        case ("between", negated, value, low, high):
            return f"{written(value)} {'NOT ' if negated else ''}BETWEEN {written(low)} AND {written(high)}"
        case ("in", negated, name, items):
            listed = ", ".join(f"'{item}'" for item in items)
            return f"{name} {'NOT ' if negated else ''}IN ({listed})"
        case ("not", inner):
            return f"NOT ({written(inner)})"
        case (join, left, right):
            return f"({written(left)}) {join} ({written(right)})"
    raise AssertionError(tree)


def number(tree: Any, values: dict[str, Any]) -> Any:
    """The value of an arithmetic tree."""
    match tree:
        case ("number", value):
            return value
        case ("name", name):
            return values.get(name)
        case (sign, left, right):
            left_number, other = number(left, values), number(right, values)
            if type(left_number) is not int or type(other) is not int:
                return None
            return {"+": left_number + other, "-": left_number - other, "*": left_number * other}[sign]
    raise AssertionError(tree)


def compared(sign: str, left_value: Any, other: Any) -> bool | None:
    if left_value is None or other is None:
        return None
    if type(left_value) is not type(other) or (type(left_value) is not int and sign not in ("=", "<>")):
        return False
    order = int(left_value > other) - int(left_value < other)
    return {"=": order == 0, "<>": order != 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[sign]


def lowest(*values: bool | None) -> bool | None:
    """AND: false below unknown below true."""
    return min(values, key=(False, None, True).index)


def opposite(value: bool | None) -> bool | None:
    return {True: False, False: True, None: None}[value]


def meaning(tree: Any, values: dict[str, Any]) -> bool | None:
    match tree:
        case ("compare", sign, left, right):
            return compared(sign, number(left, values), number(right, values))
        case ("text", name, sign, text):
            return compared(sign, values.get(name), text)
        case ("null", name, negated):
            return (values.get(name) is None) is not negated
        case ("between", negated, value, low, high):
            middle = number(value, values)
            result = lowest(compared(">=", middle, number(low, values)), compared("<=", middle, number(high, values)))
            return opposite(result) if negated else result
        case ("in", negated, name, items):
            value = values.get(name)
            result = None if value is None else value in items
            return opposite(result) if negated else result
        case ("not", inner):
            return opposite(meaning(inner, values))
        case ("and", left, right):
            return lowest(meaning(left, values), meaning(right, values))
        case ("or", left, right):
            return opposite(lowest(opposite(meaning(left, values)), opposite(meaning(right, values))))
    raise AssertionError(tree)


@given(conditions, ENVIRONMENTS)
def test_three_valued_logic(tree: Any, values: Any) -> None:
    assert selector(written(tree))(values.get) is meaning(tree, values)


@given(st.text(st.sampled_from("ab '\"%_(),<>=+-*/.0123xE\n\0ä"), max_size=30) | st.text(max_size=30))
def test_any_text_is_parsed_or_rejected(text: Any) -> None:
    try:
        read = selector(text)
    except MQError as error:
        assert error.reason == cmqc.MQRC_SELECTOR_SYNTAX_ERROR
    else:
        assert read({"a": 1, "b": "x"}.get) in (True, False, None)
