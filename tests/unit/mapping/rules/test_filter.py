"""Filters: accepted messages, and errors of invalid filters."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.config.mapping import FilterConfig
from bridge.mapping import json_filter
from bridge.mapping.attributes import MessageScope, PublicationScope
from bridge.mapping.filter import Filter
from bridge.mapping.template import RuleError
from bridge.telemetry.headers import Headers
from bridge.telemetry.message import NO_PROPERTIES, Message, Publication, Unmappable
from bridge.wire.mq import MQMD
from tests.helpers.publications import publication_of_fields


def takes(config: dict[str, Any], **fields: Any) -> bool:
    publication = publication_of_fields(
        **({"topic": "t", "payload": b'{"temp":31,"unit":"C","lines":"a\\nb.c"}'} | fields)
    )
    compiled = Filter(FilterConfig.model_validate(config), ("line",), of_publication=True)
    return compiled.takes(PublicationScope(publication, {"line": "7"}))


def test_filters_accept_publications(subtests: pytest.Subtests) -> None:
    for config, fields, expected in [
        ({}, {}, True),
        ({"qos": [1, 2]}, {"qos": 1}, True),
        ({"qos": [1, 2]}, {"qos": 0}, False),
        ({"retained": True}, {"retain": True}, True),
        ({"retained": False}, {"retain": True}, False),
        ({"min_size": 3}, {"payload": b"abc"}, True),
        ({"min_size": 3}, {"payload": b"ab"}, False),
        ({"max_size": 3}, {"payload": b"abc"}, True),
        ({"max_size": 3}, {"payload": b"abcd"}, False),
        ({"properties": {"site": "Ulm"}}, {"users": {"site": "Ulm"}}, True),
        ({"properties": {"usr.site": "Ulm"}}, {"users": {"site": "Bonn"}}, False),
        ({"properties": {"site": "Ulm"}}, {}, False),
        ({"properties": {"site": ["Ulm", "Bonn"]}}, {"users": {"site": "Bonn"}}, True),
        ({"properties": {"site": None}}, {}, True),
        ({"properties": {"site": None}}, {"users": {"site": ""}}, False),
        ({"properties": {"n": 5}}, {"users": {"n": "5.0"}}, True),
        ({"properties": {"n": 5}}, {"users": {"n": "five"}}, False),
        ({"properties": {"n": [1, "x", 5]}}, {"users": {"n": "5"}}, True),
        ({"properties": {"n": "5"}}, {"users": {"n": "5.0"}}, False),
        ({"properties": {"n": 0.5}}, {"users": {"n": "0.5"}}, True),
        ({"properties": {"b": True}}, {"users": {"b": "true"}}, True),
        ({"properties": {"b": False}}, {"users": {"b": "true"}}, False),
        ({"properties": {"clientId": "dev-1", "line": 7}}, {"client_id": "dev-1"}, True),
        ({"properties": {"contentType": None}}, {}, True),
        ({"json": "$.temp > 30"}, {}, True),
        ({"json": "@.temp > 30 && $.unit == 'C'"}, {}, True),
        ({"json": "$.temp > 31"}, {}, False),
        ({"json": "$.unit"}, {}, True),
        ({"json": "$.other"}, {}, False),
        ({"json": "$[?@ == 'C']"}, {}, True),
        ({"json": "match($.unit, '[CF]')"}, {}, True),
        ({"json": "length($.unit) == 1"}, {}, True),
        ({"json": "$ == 21.5"}, {"payload": b"21.5"}, True),
        ({"json": "$ == null"}, {"payload": b"null"}, True),
        ({"json": "$.temp != 1"}, {"payload": b"no JSON"}, False),
        ({"json": "$.temp != 1"}, {"payload": b""}, False),
        ({"qos": [0], "json": "$.temp > 30", "properties": {"site": None}}, {}, True),
        ({"qos": [0], "json": "$.temp > 30", "properties": {"site": "x"}}, {}, False),
    ]:
        with subtests.test(config=config, fields=fields, expected=expected):
            assert takes(config, **fields) is expected


@pytest.mark.parametrize(
    ("config", "body", "expected"),
    [
        ({"properties": {"md.CorrelId": "00" * 24, "md.Priority": 4}}, b"", True),
        ({"properties": {"md.ReplyToQ": None}}, b"", True),
        ({"properties": {"md.Priority": [1, 2]}}, b"", False),
        ({"json": "$.a == 'ü'"}, '{"a":"ü"}'.encode("cp500"), True),
        ({"json": "$.a == 'ü'"}, '{"a":"ü"}'.encode(), False),
        ({"qos": [2]}, b"", True),
        ({"min_size": 1}, b"", False),
    ],
)
def test_filters_accept_messages(config: dict[str, Any], body: bytes, expected: bool) -> None:
    message = Message(MQMD(Priority=4, CodedCharSetId=500), body)
    scope = MessageScope(Headers(message), {}, NO_PROPERTIES, topic="", qos=2, ccsid=None)
    assert Filter(FilterConfig.model_validate(config)).takes(scope) is expected


def test_a_document_is_parsed_once_and_only_if_it_is_needed() -> None:
    scope = PublicationScope(Publication(topic="t", payload=b'{"a":1}', qos=1), {})
    assert scope.document is scope.document
    assert not takes({"qos": [1], "json": "$.a == 1"}, payload=b"{", qos=0)


def test_a_document_that_is_too_deep_is_not_silently_rejected() -> None:
    with pytest.raises(Unmappable, match="cannot be applied"):
        takes({"json": "$..a"}, payload=b"[" * 500 + b"]" * 500)


def test_an_invalid_filter_is_reported_with_position_and_reason(subtests: pytest.Subtests) -> None:
    for config, where, column, part in [
        ({"json": "$.temp >"}, "filter.json", 9, "not a filter expression"),
        ({"json": "temp > 30"}, "filter.json", 1, "values of the payload begin with"),
        ({"json": "$.a == 1 && nothing($.a)"}, "filter.json", 13, "not a filter expression"),
        ({"json": "$.a == 1, ?$.b == 2"}, "filter.json", None, "more than one"),
        ({"json": "$.a == 1][?$.b == 2"}, "filter.json", None, "more than one"),
        ({"properties": {"md.Nothing": 1}}, "filter.properties.md.Nothing", None, "no field 'Nothing'"),
        ({"properties": {"md.MsgId": 1}}, "filter.properties.md.MsgId", None, "a publication has no MQMD"),
        ({"properties": {"clientID": 1}}, "filter.properties.clientID", None, "did you mean {clientId}"),
    ]:
        with subtests.test(config=config, where=where, column=column, part=part):
            with pytest.raises(RuleError, match=part) as raised:
                takes(config)
            assert (raised.value.where, raised.value.column) == (where, column)


# JSON filters ------------------------------------------------------------------------------------------------------------


def test_a_json_filter_needs_a_json_payload(subtests: pytest.Subtests) -> None:
    for text, expected in [
        ("$.temp > 30", True),
        ("@.temp == 31 && $.unit == 'C'", True),
        ("$.unit == '$'", False),
        ("$['temp'] == 31", True),
        ("$.none", False),
        ("$", True),
        ("$.temp", True),
        ("match($.unit, '[A-Z]')", True),
        ("search($.unit, 'x')", False),
        ("match($.temp, '31')", False),
        ("search($.lines, 'a.b') || search($.lines, '[.]d')", False),
        ("search($.lines, 'b.c') && search($.lines, 'b[.]c') && search($.lines, 'b\\\\.c')", True),
        ("$.search == null && $.match == null", False),
        ("length($.unit) == 1", True),
        ("$.big == 9007199254740991", False),
    ]:
        with subtests.test(text=text, expected=expected):
            assert takes({"json": text}) is expected


def test_a_payload_for_which_a_regular_expression_takes_too_long_is_unmappable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_filter, "MATCH_TIMEOUT", 0.01)
    with pytest.raises(Unmappable, match="take longer than"):
        takes({"json": "search($.a, '(x|xx)*[yz]')"}, payload=b'{"a": "' + b"x" * 1_000 + b'"}')


def test_the_time_for_regular_expressions_is_limited_for_a_message_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_filter, "MATCH_TIMEOUT", 0.0)
    with pytest.raises(Unmappable, match="take longer than"):
        takes({"json": "$[?search(@, 'y')]"}, payload=b'["x", "x"]')


@pytest.mark.parametrize("text", ["$[?@.x > 1]", "!$[?@.x, ?@.y == '?']", "count($..[?@.x]) == 1", "$[0][?@.x]"])
def test_the_time_for_the_elements_of_a_payload_is_limited(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    assert takes({"json": text}, payload=b'[{"x": 2}]') is (text[0] == "c" or ">" in text)
    monkeypatch.setattr(json_filter, "MAX_SECONDS", -1.0)
    with pytest.raises(Unmappable, match="takes longer than -1 s of the processor for the payload"):
        takes({"json": text}, payload=b'[{"x": 2}]')


def test_the_clock_of_filters_is_not_a_function_for_users() -> None:
    # The text is that of the package, and differs between its releases.
    with pytest.raises(RuleError, match="function 'mqbridge_clock'"):
        takes({"json": "mqbridge_clock(@)"})


def test_a_misleading_json_filter_is_rejected(subtests: pytest.Subtests) -> None:
    for text, column, part in [
        ("$.id == 9007199254740993", 9, "beyond 2^53"),
        ("$.a == 1e400", 8, "too large"),
        ("match($.a, $.b)", 1, "needs a literal pattern"),
        ("search($.a, $.b) && match($.a, 'x')", 1, "needs a literal pattern"),
        ("match($.a, '[')", 12, "not a regular expression"),
        ("$.a[?match(@.x, '[')]", 17, "not a regular expression"),
        ("@.a, ?@.b", None, "more than one"),
        ("@.a][?@.b", None, "more than one"),
        ("(" * 5_000 + "@" + ")" * 5_000, None, "at most"),
        ("!" * 3_000 + "@", None, "at most"),
        (" && ".join(["@.a"] * 1_000), None, "at most"),
        ("@" + ".a" * 3_000, None, "at most"),
        ("$..a..b", 5, "at most one `..`"),
        ("$.b && @..a[?@.c].d..e..f", 23, "at most one `..`"),
        ("$" + "[0, 0]" * 7, 1, "64 times at most"),
    ]:
        with subtests.test(text=text, column=column, part=part):
            with pytest.raises(RuleError) as error:
                takes({"json": text})
            assert part in str(error.value)
            if column is not None:
                assert error.value.column == column


@pytest.mark.parametrize(
    "text",
    [
        "$..a || $..b",
        "$.a == '..' && $..b && $.c == '..'",
        "$..a[?@..b]",
        "$" + "[0, 0]" * 6,
        "$['a', 'b', 'c', 'd', 'e', 'f']",
    ],
)
def test_queries_that_visit_each_element_a_few_times_are_accepted(text: str) -> None:
    takes({"json": text})


def test_private_modules_of_a_library_are_not_imported() -> None:
    """A release that changes its internals must not break `check` and `run` with a traceback (jsonpath-rfc9535 2.0 did)."""
    from pathlib import Path

    import bridge

    for path in Path(bridge.__file__).parent.rglob("*.py"):
        source = path.read_text()
        assert "from jsonpath_rfc9535." not in source and "import jsonpath_rfc9535." not in source, path
