"""Templates: parsing, filling, and errors."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mapping.template import Template, TemplateError
from bridge.mapping.topic_pattern import TopicPattern
from bridge.telemetry.message import Unmappable

VALUES = {
    "line": "a/b",
    "mixed": " Ab ",
    "usr.site": "Ulm",
    "empty": "",
    "hex": b"ORDER-7\0\0".hex(),
    "blank": b"ORDER  ".hex(),
    "notext": "ff",
}


def test_filled_templates(subtests: pytest.Subtests) -> None:
    for template, expected in [
        ("PLANT", "PLANT"),
        ("PLANT.{line|upper}", "PLANT.A/B"),
        ("PLANT.{line|mqname|upper}", "PLANT.A.B"),
        ("{usr.site|lower}", "ulm"),
        ("[{mixed|trim}]", "[Ab]"),
        ("{mixed|mqname}", "_Ab_"),
        ("{hex|text}", "ORDER-7"),
        ("{blank|text}", "ORDER"),
        ("{hex|bytes}", b"ORDER-7\0\0".hex()),
        ("{nothing|default:'00ff'|bytes}", "00ff"),
        ("{nothing|default:'x y'}", "x y"),
        ("{empty|default:'none'}", "none"),
        ("{nothing|default:''}", ""),
        ("{line|default:'none'}", "a/b"),
        ("{nothing|upper|default:'a'|upper}", "A"),
        ("{{{line}}}", "{a/b}"),
        ("{{line}}", "{line}"),
        ("{ line | upper }", "A/B"),
    ]:
        with subtests.test(template=template, expected=expected):
            compiled = Template(template)
            assert compiled.render(VALUES.get) == expected
            assert pickle.loads(pickle.dumps(compiled)).render(VALUES.get) == expected


def test_names_in_templates_are_found() -> None:
    assert Template("{a}.{usr.b|upper}/{{c}}").names == {"a", "usr.b"}


@pytest.mark.parametrize(
    ("template", "reason", "part"),
    [
        ("{nothing}", 2471, "the message has no nothing"),
        ("{nothing|upper|trim}", 2471, "the message has no nothing"),
        ("{notext|text}", 2119, "ff"),
        ("{line|text}", 2119, "hexadecimal"),
        ("{line|bytes}", 2119, "hexadecimal"),
        ("{nothing|bytes}", 2471, "the message has no nothing"),
    ],
)
def test_templates_that_cannot_be_filled(template: str, reason: int, part: str) -> None:
    with pytest.raises(Unmappable, match=part) as raised:
        Template(template).render(VALUES.get)
    assert raised.value.reason == reason


def test_errors_have_position_and_reason(subtests: pytest.Subtests) -> None:
    for template, column, part in [
        ("a{", 3, "name is missing"),
        ("a{}", 3, "name is missing"),
        ("a}", 2, "no partner"),
        ("{line", 6, "is missing after {line"),
        ("{line|}", 7, "a filter follows"),
        ("{line|shout}", 7, "'shout' is not a filter"),
        ("{line|upper:'x'}", 7, "accepts no value"),
        ("{line|default}", 7, "default:'none'"),
        ("x{md.correlid}", 3, "did you mean md.CorrelId"),
        ("{md.Nothing}", 2, "no field 'Nothing'"),
        ("{usr..a}", 2, "not a name"),
        ("a\ud800", 2, "surrogate"),
        ("{hex|bytes}!", None, "no other text"),
        ("{hex}{hex|bytes}", None, "one name"),
        ("{hex|bytes|upper}", None, "the last filter"),
        ("{hex|bytes|bytes}", None, "the last filter"),
    ]:
        with subtests.test(template=template, column=column, part=part):
            with pytest.raises(TemplateError, match=part) as raised:
                Template(template)
            assert raised.value.column == column


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_with_doubled_braces_is_a_template(text: str) -> None:
    template = Template(text.replace("{", "{{").replace("}", "}}"))
    assert template.literal == template.render(VALUES.get) == text


@given(st.text(max_size=30))
def test_any_text_is_a_template_or_an_error(text: str) -> None:
    try:
        Template(text).render({}.get)
    except (TemplateError, Unmappable):
        return


@given(st.lists(st.text(st.characters(exclude_characters="/+#\0$", exclude_categories=["Cs"])), min_size=1, max_size=4))
def test_a_template_restores_the_captures_of_a_pattern(levels: list[str]) -> None:
    names = "/".join(f"{{c{index}}}" for index in range(len(levels)))
    topic = "/".join(levels)
    captures = TopicPattern(names).captures(topic)
    assert captures is not None
    assert Template(names).render(captures.get) == topic
