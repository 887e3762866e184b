"""Tables: CSV and JSON files, and lookups in templates and expressions."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from bridge.config.document import load
from bridge.config.models import Configuration
from bridge.config.problems import ConfigurationError
from bridge.mapping import table
from bridge.mapping.attributes import PublicationScope
from bridge.mapping.check import problems
from bridge.mapping.expression import Expression, ExpressionError
from bridge.mapping.json_document import MISSING
from bridge.mapping.rule import ToMqRule, ToMqttRule, rule_of
from bridge.mapping.table import Table, TableError, Tables, key_text, read_table
from bridge.mapping.template import Template, TemplateError, template_of_columns
from bridge.telemetry.message import Message, Publication, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

CSV = 'id,site,factor,"in words"\r\nd7,Berlin,1.50,"one, ""half"""\r\n8,,2,"a\r\nb"\r\n'
FORM = r"a lookup is \{TABLE\[KEY\]\.COLUMN\|FILTER\}, such as .*, and KEY is one name or field, without quotes and filters"
JSON: list[Any] = [{"id": "d7", "n": 7, "list": [1, 2], "none": None, "to": "8"}, {"id": 8, "n": 2**60, "yes": True}]


def read(directory: Path, content: str | bytes, name: str = "devices.csv", key: str = "id") -> Table:
    file = directory / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(file, key)


def rows(read: Table) -> dict[str, Any]:
    return {key: read.members(row) for key, row in read._rows.items()}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    exact = json.dumps(JSON)[:-1] + ', {"id": "x", "n": 1.10}]'
    return {"devices": read(tmp_path, CSV), "more": read(tmp_path, exact, "more.json")}


def scope_of(tables: Tables, payload: Any, line: str = "8") -> PublicationScope:
    return PublicationScope(Publication("plant/8", json.dumps(payload).encode()), {"line": line}, None, tables)


# Files --------------------------------------------------------------------------------------------------------------------


def test_csv_files_are_read(tmp_path: Path) -> None:
    assert rows(read(tmp_path, CSV)) == {
        "d7": {"id": "d7", "site": "Berlin", "factor": "1.50", "in words": 'one, "half"'},
        "8": {"id": "8", "site": "", "factor": "2", "in words": "a\r\nb"},
    }


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("\ufeffid,a\n1,ä\n", {"1": {"id": "1", "a": "ä"}}),
        ("a,id\n\nx,1\n\n", {"1": {"a": "x", "id": "1"}}),
        ("id\n1", {"1": {"id": "1"}}),
        ("id\n", {}),
        ('id,a\n1," x "\n', {"1": {"id": "1", "a": " x "}}),
        ('id,a\n1,""""\n', {"1": {"id": "1", "a": '"'}}),
    ],
)
def test_csv_files_with_other_notations_are_read(tmp_path: Path, content: str, expected: dict[str, Any]) -> None:
    assert rows(read(tmp_path, content)) == expected


@pytest.mark.parametrize(
    ("content", "line", "sentence"),
    [
        ("", 1, "expected the names of the columns, found nothing"),
        ("name,a\n", 1, "there is no column 'id', only name, a"),
        ("id;a\n1;2\n", 1, "there is no column 'id', only id;a (hint: separate columns by commas)"),
        ("id,a,a\n", 1, "expected different names of columns, found 'a' again"),
        ("id,,a\n", 1, "expected different names of columns, found ''"),
        ("id,a\n1,2\n3\n", 3, "expected 2 columns, as in the first line, found 1"),
        ("id,a\n1,2,3\n", 2, "expected 2 columns, as in the first line, found 3"),
        ("id,a\n,2\n", 2, "the key, column id, is empty"),
        ('id,a\n1,"a\n\nb"\n2,x\n1,y\n', 6, "the key '1' again, after line 2"),
        ('id,a\n1,"x\n2,y\n', 2, "unexpected end of data"),
        ('id,a\n0,0\n1,"x"y\n', 3, "',' expected after '\"'"),
        ('id,a\n1,x"y\n', 2, "a quote in a field that does not begin with one"),
        ('id,a\n1,x"y"\n', 2, "a quote in a field that does not begin with one"),
        (b"id,a\n1,\xe4\n", 2, "the byte 0xE4 is not UTF-8"),
        ("id,a\n1,\0\n", 2, "U+0000 in a text"),
        ("id,a\n1," + "x" * 200_000, 2, "field larger than field limit"),
        (",".join(["id", *map(str, range(1_000))]), 1, "more than 1,000 columns"),
    ],
)
def test_invalid_csv_files_are_reported(tmp_path: Path, content: str | bytes, line: int, sentence: str) -> None:
    with pytest.raises(TableError) as error:
        read(tmp_path, content)
    assert str(error.value).startswith(f"{tmp_path}/devices.csv:{line}: {sentence}")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([{"id": 7, "a": [1]}, {"id": "x", "b": None}], {"7": {"id": 7, "a": [1]}, "x": {"id": "x", "b": None}}),
        (
            {"d7": {"a": 1}, "d8": {"id": "other", "a": 2}},
            {"d7": {"id": "d7", "a": 1}, "other": {"id": "other", "a": 2}},
        ),
        ([], {}),
        ({}, {}),
    ],
)
def test_json_files_are_read(tmp_path: Path, document: Any, expected: dict[str, Any]) -> None:
    assert rows(read(tmp_path, "\ufeff" + json.dumps(document), "t.json")) == expected


@pytest.mark.parametrize(
    ("content", "line", "sentence"),
    [
        ("[\n{},\n]", 3, "the file is not JSON"),
        ("5", 1, "expected an array of objects, or an object of objects by key"),
        ("[1]", 1, "element 0 is not an object"),
        ('{"a": 1}', 1, "member 'a' is not an object"),
        ('[{"a": 1}]', 1, "element 0 has no text or number 'id', the key"),
        ('[{"id": null}]', 1, "element 0 has no text or number 'id', the key"),
        ('[{"id": 1},\n{"id": 1.0}]', 2, "element 1 has the key '1' again"),
        ('[\n{"id": 1},\n\n [],\n{"id": 2}]', 4, "element 1 is not an object"),
        ('[\n{"id": 1},\n{"id":\n', 3, "the file is not JSON"),
        ('{"d7": {},\n"d8": {},\n\n"d7" : {}}', 4, "the name 'd7' again in the same object"),
        ('{"d7": {},\n"d\\u0037": {}}', 2, "the name 'd7' again in the same object"),
        ('[{"id": 1},\n{"id": 2, "n": {"x": 1, "x": 2}}]', 2, "the name 'x' again in the same object"),
        ("[" * 100_000, 1, "the file is not JSON"),
    ],
)
def test_invalid_json_files_are_reported(tmp_path: Path, content: str, line: int, sentence: str) -> None:
    with pytest.raises(TableError) as error:
        read(tmp_path, content, "t.json")
    assert str(error.value).startswith(f"{tmp_path}/t.json:{line}: {sentence}")


def test_tables_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_ROWS", 2)
    monkeypatch.setattr(table, "MAX_BYTES", 1024 * 1024)
    assert len(read(tmp_path, "id\n1\n2\n")) == 2
    with pytest.raises(TableError, match=r"devices.csv:4: more than 2 rows"):
        read(tmp_path, "id\n1\n2\n3\n")
    with pytest.raises(TableError, match=r"t.json:1: more than 2 rows"):
        read(tmp_path, '[{"id": 1}, {"id": 2}, {"id": 3}]', "t.json")
    with pytest.raises(TableError, match="has more than 1 MiB"):
        read(tmp_path, "id\n" + "x" * (1024 * 1024))


@pytest.mark.timeout(20)
def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for path, sentence in (
        (tmp_path / "pipe.csv", "Not a regular file"),
        (Path("/dev/zero"), "Not a regular file"),
        (tmp_path / "none.csv", "No such file or directory"),
        (tmp_path, "directory|regular"),
    ):
        with pytest.raises(TableError, match=f"{path} cannot be read: .*(?:{sentence})"):
            read_table(path, "id")


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    first = read(tmp_path, CSV)
    assert read_table(tmp_path / "devices.csv", "id") is first
    assert read_table(tmp_path / "devices.csv", "factor") is not first
    (tmp_path / "devices.csv").write_text("id\n1\n")
    assert rows(read_table(tmp_path / "devices.csv", "id")) == {"1": {"id": "1"}}


def test_tables_are_pickled(tables: Tables) -> None:
    copy = pickle.loads(pickle.dumps(tables))
    assert {name: rows(table) for name, table in copy.items()} == {name: rows(table) for name, table in tables.items()}
    row = copy["more"].row("8")
    assert copy["more"].value(row, "list") is MISSING


@pytest.mark.parametrize(
    ("value", "key"),
    [("d", "d"), (7, "7"), (7.0, "7"), (1.5, "1.5"), (True, "true"), (2**70, str(2**70)), (None, None), ([], None)],
)
def test_keys_are_text(value: Any, key: str | None) -> None:
    assert key_text(value) == key


# Templates ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{devices[$.id].site}", "Berlin"),
        ("x{devices[ $.id ].site|upper}y", "xBERLINy"),
        ("{devices[line].factor}", "2"),
        ("{devices[line].site}", ""),
        ("{devices[line].site|default:'none'}", "none"),
        ("{devices[$.list[1]]['in words']}", 'one, "half"'),
        ("{devices[$['id']].site}", "Berlin"),
        ("{more[$.id].n}", "7"),
        ("{more[$.x].n}", "1.10"),
        ("{more[line].yes}", "true"),
        ("{more[$.id].list|json}", "[1,2]"),
        ("{more[$.id].to|json}", '"8"'),
        ("{more[$.id].none|json}", "null"),
        ("{more[$.id].none|default:'null'}", "null"),
        ("{more[$.id].yes|default:'missing'}", "missing"),
        ("{devices[$.nothing].site|default:'none'}", "none"),
        ("{devices[clientId].site|default:'none'}", "none"),
        ("{devices[$.unknown].site|lower|default:'none'}", "none"),
        ("{devices[$.eight].factor}", "2"),
        ("{readings[0]|default:'a property with brackets'}", "a property with brackets"),
    ],
)
def test_templates_look_up_values(tables: Tables, text: str, expected: str) -> None:
    payload = {"id": "d7", "list": ["a", "d7"], "unknown": "d9", "x": "x", "eight": 8.0}
    assert Template(text).render(scope_of(tables, payload)) == expected


@pytest.mark.parametrize(
    ("text", "reason", "sentence"),
    [
        ("{devices[$.unknown].site}", cmqc.MQRC_PROPERTY_NOT_AVAILABLE, "table devices has no row 'd9'"),
        ("{devices[$.nothing].site}", cmqc.MQRC_PROPERTY_NOT_AVAILABLE, "the payload has no $.nothing"),
        ("{devices[user].site}", cmqc.MQRC_PROPERTY_NOT_AVAILABLE, "the message has no user"),
        ("{more[$.id].yes}", cmqc.MQRC_PROPERTY_NOT_AVAILABLE, "row 'd7' of table more has no yes"),
        ("{more[$.id].none}", cmqc.MQRC_PROPERTY_NOT_AVAILABLE, "row 'd7' of table more has no none"),
        ("{more[$.id].list}", cmqc.MQRC_PROPERTY_TYPE_ERROR, "more[$.id].list is an array, not text"),
    ],
)
def test_templates_without_a_value_are_errors(tables: Tables, text: str, reason: int, sentence: str) -> None:
    with pytest.raises(Unmappable) as error:
        Template(text).render(scope_of(tables, {"id": "d7", "unknown": "d9"}))
    assert error.value.reason == reason and sentence in str(error.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{devices[$.id]}", rf"{FORM} \(column 14\)"),
        ("{devices[$.id|upper].site}", rf"{FORM} \(column 14\)"),
        ("{devices[id | upper].site}", rf"{FORM} \(column 10\)"),
        ("{devices['d7'].site}", rf"{FORM} \(column 10\)"),
        ("{devices[{id}].site}", rf"{FORM} \(column 10\)"),
        ("{devices[other[$.id].site].site}", rf"{FORM} \(column 10\)"),
        ("{devices[$.id].site.city}", rf"{FORM} \(column 20\)"),
        ("{devices[$.id.site}", rf"{FORM} \(column 19\)"),
        ("{devices[$.a-b].site}", "'a-b' is not a name without quotes"),
    ],
)
def test_invalid_templates_are_rejected(text: str, sentence: str) -> None:
    with pytest.raises(TemplateError, match=sentence):
        Template(text)
    with pytest.raises(TemplateError, match="a lookup is for templates of mappings"):
        template_of_columns("{devices[id].site}")


# Expressions --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("devices[payload.id].site", "Berlin"),
        ("devices[line].factor", "2"),
        ("devices[more[payload.id].to].factor", "2"),
        ("devices['d' + string(3 + 4)]['in words']", 'one, "half"'),
        ("double(devices[payload.id].factor) * payload.v", 3.0),
        ("more[payload.id].n * payload.v", 14),
        ("more[payload.id].n * 1.5", 10.5),
        ("more['8'].n", 2**60),
        ("more['x'].n", 1.1),
        ("more[payload.id].list[1]", 2),
        ("more[payload.id].none == null", True),
        ("more[payload.id].none", None),
        ("has(more[payload.id].yes)", False),
        ("has(more[line].yes) && more[line].yes", True),
        ("payload.id in devices", True),
        ("payload.unknown in devices", False),
        ("payload.list in devices", False),
        ("payload.unknown in devices ? devices[payload.unknown].site : 'unknown'", "unknown"),
        ("!(payload.unknown in devices) && payload.v == 2", True),
        ("payload.unknown in devices || payload.id in devices", True),
        ("payload.a + payload.b in devices", True),
        ("[1, 2].size() == 2 && 2 in [payload.v] && 'd7' in {'d7': 1}", True),
        ("has(payload.nothing) && devices[payload.nothing].site == 'x'", False),
        ("devices[payload.id]", {"id": "d7", "site": "Berlin", "factor": "1.50", "in words": 'one, "half"'}),
        ("payload.devices", 5),
        ("'devices[' + payload.id", "devices[d7"),
    ],
)
def test_expressions_look_up_values(tables: Tables, text: str, expected: Any) -> None:
    payload = {"id": "d7", "v": 2, "unknown": "d9", "list": [], "a": "d", "b": "7", "devices": 5}
    value = Expression(text, ("line",), of_publication=True, tables=tables).value(scope_of(tables, payload))
    assert value == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("devices[payload.unknown].site", "table devices has no row 'd9'"),
        ("devices[payload.nothing].site", "the payload has no $.nothing"),
        ("devices[payload.list].site", "table devices has no row for a key that is neither text nor a number"),
        ("payload.nothing in devices", "the payload has no $.nothing"),
        ("more[payload.id].yes", 'Key not found in map : "yes"'),
        ("devices[more[payload.unknown].to].site", "table more has no row 'd9'"),
    ],
)
def test_expressions_without_a_value_are_errors(tables: Tables, text: str, sentence: str) -> None:
    expression = Expression(text, ("line",), of_publication=True, tables=tables)
    with pytest.raises(Unmappable) as error:
        expression.value(scope_of(tables, {"id": "d7", "unknown": "d9", "list": []}))
    assert error.value.reason == cmqc.MQRC_PROPERTY_NOT_AVAILABLE
    assert f"{text!r} has no value: " in str(error.value) and sentence in str(error.value)


@pytest.mark.parametrize(
    ("text", "column", "sentence"),
    [
        ("devices", 1, "table devices is used as devices[KEY].COLUMN or KEY in devices"),
        ("1 + size(devices)", 10, "table devices is used as"),
        ("devices.d7.site", 1, "table devices is used as"),
        ("devices[payload.id].sit", 21, "table devices has no column 'sit', only id, site, factor, in words"),
        ("devices[payload.id]['sit']", 21, "table devices has no column 'sit'"),
        ("devices[payload.id].site + nothing", 28, "undeclared reference to 'nothing'"),
        ("devices[1 + nothing].site", 13, "undeclared reference to 'nothing'"),
        ("devices[payload.id", 8, "the bracket is not closed"),
        ("payload.id == 'x' in devices", 13, "put parentheses around KEY in TABLE"),
        ("!payload.id in devices", 1, "put parentheses around KEY in TABLE"),
        ("in devices", 1, "the key before in is missing"),
        ("devises[payload.id].site", 1, "undeclared reference to 'devises'"),
        ("devices[payload.list.map(x, x)].site", 22, "map() is a loop"),
    ],
)
def test_invalid_expressions_are_rejected(tables: Tables, text: str, column: int, sentence: str) -> None:
    with pytest.raises(ExpressionError) as error:
        Expression(text, ("line",), of_publication=True, tables=tables)
    assert sentence in str(error.value) and error.value.column == column


def test_deep_lookups_are_rejected(tables: Tables) -> None:
    Expression("more[" * 16 + "'x'" + "].to" * 16, tables=tables)
    for depth in 17, 400:
        with pytest.raises(ExpressionError, match="nested too deeply: at most 16 are inside each other"):
            Expression("more[" * depth + "'x'" + "].to" * depth, tables=tables)


# Mappings -----------------------------------------------------------------------------------------------------------------


def configuration(directory: Path, mappings: str, tables: str = "devices: {file: devices.csv, key: id}") -> Path:
    (directory / "devices.csv").write_text(CSV)
    file = directory / "bridge.yaml"
    file.write_text(f"tables: {{{tables}}}\nmappings:\n  m: {mappings}\n")
    return file


@pytest.mark.parametrize(
    ("mapping", "place"),
    [
        (
            '{from: {mqtt: t}, to: {queue: "{devises[$.id].site}"}}',
            "3:36: mappings.m.to.queue: .*'devises' is not a table",
        ),
        (
            '{from: {mqtt: t}, to: {queue: "{devices[$.id].x}"}}',
            "3:36: mappings.m.to.queue: .*has no column 'x', only id, ",
        ),
        ('{from: {mqtt: t}, to: {queue: "{devices[mqps.No].site}"}}', "a publication has no such property"),
        (
            "{from: {mqtt: t}, to: {queue: Q}, filter: {expr: 'x in devices'}}",
            "filter.expr: .*undeclared reference to 'x'",
        ),
        (
            "{from: {mqtt: t}, to: {queue: Q}, payload: {transform: {a: '{devices[$.id].x}'}}}",
            "transform.a: .*no column 'x'",
        ),
        (
            "{from: {queue: Q}, to: {mqtt: t}, payload: {transform: {a: {expr: devices.x}}}}",
            "expr: .*table devices is used as",
        ),
    ],
)
def test_mistakes_in_mappings_are_reported(tmp_path: Path, mapping: str, place: str) -> None:
    with pytest.raises(ConfigurationError, match=place):
        load(configuration(tmp_path, mapping), problems)


@pytest.mark.parametrize(
    ("tables", "place"),
    [
        ("devices: {file: no.csv, key: id}", r"1:26: tables.devices.file: expected a table: .*/no.csv cannot be read"),
        (
            "devices: {file: devices.csv, key: nope}",
            r"1:26: tables.devices.file: .*devices.csv:1: there is no column 'nope'",
        ),
        (
            "devices: {file: devices.txt, key: id}",
            "1:26: tables.devices.file: expected the path of a file .csv or .json",
        ),
        ("payload: {file: devices.csv, key: id}", "1:10: tables.payload: expected the name of a table"),
        ("devices: {file: devices.csv}", "tables.devices.key"),
    ],
)
def test_mistakes_in_tables_are_reported(tmp_path: Path, tables: str, place: str) -> None:
    mapping = '{from: {mqtt: t}, to: {queue: "{devices[$.id].site}"}}'
    with pytest.raises(ConfigurationError, match=place) as error:
        load(configuration(tmp_path, mapping, tables), problems)
    if "devices:" in tables and "txt" not in tables and "key" in tables:
        assert len(str(error.value).splitlines()) == 1  # those of mappings follow from it


def rule_in(directory: Path, mapping: str) -> tuple[Any, Configuration]:
    loaded = load(configuration(directory, mapping), problems)
    return rule_of("m", loaded.mappings["m"], "QM"), loaded


def test_results_of_former_rows_are_not_reused(tmp_path: Path) -> None:
    """In both directions, with and without the payload in the key."""
    rule, loaded = rule_in(tmp_path, '{from: {mqtt: "t/{line}"}, to: {queue: "Q.{devices[line].factor}"}}')
    assert isinstance(rule, ToMqRule)
    publication = Publication("t/8", b"{}")
    for _ in range(2):
        assert rule.map(publication).destination.name == "Q.2"
    loaded.tables["devices"].use(read(tmp_path, "id,site,factor\n8,x,3\n"))
    for _ in range(2):
        assert rule.map(publication).destination.name == "Q.3"

    rule, loaded = rule_in(tmp_path, '{from: {queue: Q}, to: {mqtt: "t/{devices[md.Priority].factor}"}}')
    assert isinstance(rule, ToMqttRule)
    message = Message(MQMD(Priority=8), b"x")
    for _ in range(2):
        assert rule.map(message).topic == "t/2"
    loaded.tables["devices"].use(read(tmp_path, "id,site,factor\n8,x,4\n"))
    assert rule.map(message).topic == "t/4"


def test_a_rule_is_pickled_with_its_tables(tmp_path: Path) -> None:
    rule, _ = rule_in(tmp_path, '{from: {mqtt: "t/{line}"}, to: {queue: "Q.{devices[line].factor}"}}')
    pickled = pickle.dumps(rule)
    (tmp_path / "devices.csv").unlink()
    assert pickle.loads(pickled).map(Publication("t/8", b"{}")).destination.name == "Q.2"


def test_a_filter_of_unknown_keys_dead_letters(tmp_path: Path) -> None:
    """Unlike a payload without the field: the mapping tests with `in` which keys it takes."""
    rule, _ = rule_in(
        tmp_path, "{from: {mqtt: t}, to: {queue: Q}, filter: {expr: \"devices[payload.id].site == 'Berlin'\"}}"
    )
    assert rule.map(Publication("t", b'{"id": "d7"}')) is not None
    assert rule.map(Publication("t", b'{"id": "8"}')) is None
    assert rule.map(Publication("t", b"{}")) is None
    with pytest.raises(Unmappable, match="table devices has no row 'd9'"):
        rule.map(Publication("t", b'{"id": "d9"}'))


def test_filters_of_routes_look_up(tmp_path: Path) -> None:
    known = "{from: {mqtt: t}, to: {queue: Q}, filter: {expr: payload.id in devices}}"
    rest = "\n  rest: {from: {mqtt: t}, to: {queue: R}, otherwise: [m]}"
    loaded = load(configuration(tmp_path, known + rest), problems)
    rule = rule_of("rest", loaded.mappings["rest"], "QM")
    assert isinstance(rule, ToMqRule)
    assert rule.map(Publication("t", b'{"id": "d7"}')) is None
    assert rule.map(Publication("t", b'{"id": "d9"}')) is not None


def test_lookups_are_steps(tmp_path: Path) -> None:
    rule, _ = rule_in(tmp_path, '{from: {mqtt: "t/{line}"}, to: {queue: "Q.{devices[line].factor}"}}')
    steps: list[tuple[str, str]] = []
    rule.map(Publication("t/8", b"{}"), steps)
    assert steps[:3] == [
        ("{line}", "8"),
        ("devices['8']", '{"id":"8","site":"","factor":"2","in words":"a\\r\\nb"}'),
        ("to.queue", "Q.2"),
    ]


def test_values_of_tables_keep_their_type_in_new_documents(tmp_path: Path) -> None:
    (tmp_path / "more.json").write_text('{"d7": {"n": 1.10, "list": [1, {"a": null}], "text": "x"}}')
    tables = "more: {file: more.json, key: id}"
    tree = "{n: '{more[$.id].n}', list: '{more[$.id].list}', text: '{more[$.id].text}!', id: '{more[$.id].id}'}"
    mapping = f"{{from: {{mqtt: t}}, to: {{queue: Q}}, payload: {{transform: {tree}}}}}"
    loaded = load(configuration(tmp_path, mapping, tables), problems)
    mapped = rule_of("m", loaded.mappings["m"], "QM").map(Publication("t", b'{"id": "d7"}'))
    assert mapped is not None
    assert mapped.message.data.endswith(b'{"n":1.10,"list":[1,{"a":null}],"text":"x!","id":"d7"}')


def test_only_the_tables_in_use_belong_to_a_mapping(tmp_path: Path) -> None:
    """A changed table restarts only mappings that use it, and rows never do."""
    mapping = '{from: {mqtt: t}, to: {queue: "{devices[$.id].site}"}}'
    other = "\n  n: {from: {mqtt: t}, to: {queue: N}}"
    file = configuration(tmp_path, mapping + other)
    former = load(file, problems)
    assert (list(former.mappings["m"].tables), list(former.mappings["n"].tables)) == (["devices"], [])
    (tmp_path / "devices.csv").write_text("id,site\n1,x\n")
    assert load(file, problems).mappings == former.mappings
    changed = load(configuration(tmp_path, mapping + other, "devices: {file: devices.csv, key: factor}"), problems)
    assert changed.mappings["m"] != former.mappings["m"] and changed.mappings["n"] == former.mappings["n"]


def test_mapping_files_have_tables(tmp_path: Path) -> None:
    """Their paths are relative to the mapping file. A name in two files is a mistake."""
    (tmp_path / "maps").mkdir()
    (tmp_path / "maps" / "devices.csv").write_text(CSV)
    mapping = 'mappings:\n  m: {from: {mqtt: "t/{line}"}, to: {queue: "Q.{devices[line].factor}"}}\n'
    (tmp_path / "maps" / "a.yaml").write_text(f"tables: {{devices: {{file: devices.csv, key: id}}}}\n{mapping}")
    file = tmp_path / "bridge.yaml"
    file.write_text("mappings: [maps]\n")
    loaded = load(file, problems)
    mapped = rule_of("m", loaded.mappings["m"], "QM").map(Publication("t/8", b"{}"))
    assert mapped is not None and mapped.destination.name == "Q.2"
    file.write_text("tables: {devices: {file: maps/devices.csv, key: id}}\nmappings: [maps]\n")
    with pytest.raises(ConfigurationError, match=r"a.yaml:1:10: .*expected a name that no other table has"):
        load(file, problems)
