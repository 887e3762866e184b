"""One class name means one class, and variables are named after what they contain."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import bridge

SOURCES: Final = Path(bridge.__file__).parent
TESTS: Final = Path(__file__).parents[1]

#: Names that several classes have, with the reason.
ALLOWED: Final = {
    "AdminPort": "the protocol and its implementation",
    "Publish": "the packet of MQTT, and the administrative request, whose name is part of the HTTP interface",
}
LONGEST: Final = 15

#: Words that do not describe the contents of a variable.
VAGUE: Final = frozenset(
    (
        "asked",
        "began",
        "begun",
        "came",
        "caught",
        "done",
        "found",
        "given",
        "gone",
        "got",
        "kept",
        "made",
        "one",
        "said",
        "seen",
        "shown",
        "taken",
        "told",
        "what",
    )
)


#: A place where a word may be a variable, a parameter or a field.
PLACE: Final = re.compile(rf"\b(?:{'|'.join(sorted(VAGUE))})\b\s*(?:[=:,)]|in\b|for\b)")


def test_a_class_name_means_one_class() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file, text in _sources(SOURCES):
        for name in re.findall(r"^ *class ([^_]\w*)", text, re.MULTILINE):
            places[name].append(str(file.relative_to(SOURCES)))
    several = {name: files for name, files in places.items() if len(files) > 1}
    assert several.keys() == ALLOWED.keys(), {
        name: files for name, files in several.items() if name not in ALLOWED
    } or "a name of ALLOWED has become unique"
    assert len(ALLOWED) <= LONGEST


def test_variables_are_named_after_what_they_contain() -> None:
    vague = [
        f"{file}:{line}: {name}"
        for directory in (SOURCES, TESTS)
        for file, text in _sources(directory)
        if PLACE.search(text)
        for name, line in _variables(ast.parse(text))
        if name in VAGUE
    ]
    assert vague == []


def test_functions_of_tests_are_named_after_what_they_return() -> None:
    vague = [
        f"{file}: {name}"
        for file, text in _sources(TESTS)
        for name in re.findall(r"^ *(?:async )?def (\w+)", text, re.MULTILINE)
        if name in VAGUE
    ]
    assert vague == []


def _sources(directory: Path) -> Iterator[tuple[Path, str]]:
    for file in sorted(directory.rglob("*.py")):
        if not file.is_relative_to(SOURCES / "compiled"):
            yield file, file.read_text(encoding="utf-8")


def _variables(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names and lines of variables and parameters. Fields of classes may be names in JSON."""
    fields: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            fields |= {statement.target for statement in node.body if isinstance(statement, ast.AnnAssign)}
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields:
            yield node.id, node.lineno
