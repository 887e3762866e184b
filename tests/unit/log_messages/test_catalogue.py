"""Each log message has a unique identifier and an explanation in the catalogue."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import bridge
from bridge.cli.program import SECTIONS, Group
from bridge.config.json_schema import json_schema
from bridge.log_messages.catalogue import catalogue, reasons
from bridge.log_messages.identifier import divided
from bridge.wire import cmqc

SOURCES = Path(bridge.__file__).parent
#: Logger methods whose output operators read, and the letter of their level.
LETTERS = {"info": "I", "warning": "W", "error": "E", "exception": "E", "critical": "S"}
#: Logger methods without a fixed level, and aliases.
FORBIDDEN = {"log", "warn", "fatal"}
#: Modules that pass on log records of another process with their identifiers.
RELAYED = {"archive/event_queue.py"}
#: Names with an underscore that are not options.
FOREIGN = {"mosquitto_sub", "s_client"}
MESSAGES = catalogue()


@cache
def calls() -> list[tuple[str, str, ast.Call]]:
    """Return each logger call with its place and method."""
    logged = []
    for file in SOURCES.rglob("*.py"):
        name, text = file.relative_to(SOURCES).as_posix(), file.read_text(encoding="utf-8")
        if not re.search(r"\blog(ging)?\.", text):
            continue  # The parser needs seconds for all files.
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                logger = ast.unparse(node.func.value)
                if logger == "log" or logger == "logging" or logger.startswith("logging.getLogger"):
                    logged.append((f"{name}:{node.lineno}", node.func.attr, node))
    return logged


def identified() -> list[tuple[str, str, str]]:
    """Return place, method and text of each call above debug level."""
    return [
        (place, method, str(node.args[0].value) if node.args and isinstance(node.args[0], ast.Constant) else "")
        for place, method, node in calls()
        if method in LETTERS
    ]


def test_the_letter_of_an_identifier_is_the_log_level() -> None:
    logged = identified()
    assert len(logged) > 150
    wrong = [(place, text) for place, method, text in logged if divided(text)[0][-1:] != LETTERS[method]]
    assert wrong == []


def test_logger_calls_have_a_fixed_level() -> None:
    assert [
        place for place, method, _ in calls() if method in FORBIDDEN and place.partition(":")[0] not in RELAYED
    ] == []


def test_each_identifier_is_logged_in_one_place() -> None:
    several = Counter(divided(text)[0] for _, _, text in identified())
    assert [identifier for identifier, times in several.items() if times > 1] == []


def test_a_number_has_one_letter() -> None:
    numbers = Counter(identifier[:-1] for identifier in MESSAGES)
    assert [number for number, times in numbers.items() if times > 1] == []


def test_the_catalogue_has_exactly_the_identifiers_of_the_code() -> None:
    assert {divided(text)[0] for _, _, text in identified()} == set(MESSAGES)


def test_the_text_in_the_catalogue_matches_the_code() -> None:
    for _, _, line in identified():
        identifier, text = divided(line)
        text_of_catalogue = MESSAGES[identifier].text.removesuffix("…")
        constant = re.split(r"%[-\d.]*[srdgi]", text.split(";")[0])
        pattern = ".*".join(re.escape(part) for part in constant)
        assert re.match(pattern, text_of_catalogue, re.DOTALL), (identifier, text, text_of_catalogue)


def test_each_explanation_consists_of_sentences(subtests: pytest.Subtests) -> None:
    for identifier in MESSAGES:
        with subtests.test(identifier=identifier):
            message = MESSAGES[identifier]
            for answer in (message.happened, message.why, message.do):
                assert answer.strip() == answer
                assert re.search(r"[.`…]$", answer), answer
            # Errors need an action.
            if identifier[-1] in "ES":
                assert not message.do.startswith("Nothing.")


def test_the_first_digit_is_the_area() -> None:
    areas = sorted(Path(SOURCES, "log_messages", "explanations").iterdir())
    digits = [{line[3] for line in area.read_text().splitlines() if line.startswith("MQB")} for area in areas]
    assert all(len(entries_of_digit) == 1 for entries_of_digit in digits)
    assert len(set.union(*digits)) == len(areas)


def test_commands_and_options_that_are_recommended_exist() -> None:
    commands = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
    nested = {name: entry.commands for name, entry in commands.items() if isinstance(entry, Group)}
    sections = json_schema()["$defs"].values()
    options = set(json_schema()["properties"]).union(*(section.get("properties", {}) for section in sections))
    for identifier, message in MESSAGES.items():
        answers = f"{message.happened} {message.why} {message.do}"
        for command, second in re.findall(r"`mqbridge ([a-z-]+)(?: ([a-z-]+))?", answers):
            assert command in commands, (identifier, command)
            assert command not in nested or second in nested[command], (identifier, command, second)
        # A word with an underscore is a configuration option or a foreign program.
        for word in re.findall(r"(?<![A-Za-z_])[a-z]+(?:_[a-z]+)+(?![A-Za-z_])", answers):
            assert word in options | FOREIGN, (identifier, word)
        for section, option in re.findall(r"\b(limits|archive|audit_log|queue_manager|listener)\.([a-z_]+)", answers):
            assert {section, option} <= options, (identifier, section, option)


def test_reasons_are_names_of_reason_codes() -> None:
    assert set(reasons()) <= set(cmqc.reason_names().values())


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("MQB1201W channel X: no", ("MQB1201W", "channel X: no")),
        ("MQB1201X channel X", ("", "MQB1201X channel X")),
        ("MQB1201W", ("", "MQB1201W")),
        ("channel MQB1201W ", ("", "channel MQB1201W ")),
        ("", ("", "")),
    ],
)
def test_divided_splits_identifier_and_message(line: str, parts: tuple[str, str]) -> None:
    assert divided(line) == parts
