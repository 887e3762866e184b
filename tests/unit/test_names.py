"""One class name means one class, and variables are named after what they contain."""

from __future__ import annotations

import ast
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
        "came",
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


def test_a_class_name_means_one_class() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file, tree in _trees(SOURCES):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(SOURCES)))
    several = {name: files for name, files in places.items() if len(files) > 1}
    assert several.keys() == ALLOWED.keys(), {
        name: files for name, files in several.items() if name not in ALLOWED
    } or "a name of ALLOWED has become unique"
    assert len(ALLOWED) <= LONGEST


def test_variables_are_named_after_what_they_contain() -> None:
    vague = [
        f"{file}:{line}: {name}"
        for directory in (SOURCES, TESTS)
        for file, tree in _trees(directory)
        for name, line in _variables(tree)
        if name in VAGUE
    ]
    assert vague == []


def test_functions_of_tests_are_named_after_what_they_return() -> None:
    vague = [
        f"{file}:{node.lineno}: {node.name}"
        for file, tree in _trees(TESTS)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in VAGUE
    ]
    assert vague == []


def _trees(directory: Path) -> Iterator[tuple[Path, ast.Module]]:
    for file in sorted(directory.rglob("*.py")):
        if not file.is_relative_to(SOURCES / "compiled"):
            yield file, ast.parse(file.read_text(encoding="utf-8"))


def _variables(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names and lines of variables and parameters. Fields of classes may be names in JSON."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = [statement.target for node in classes for statement in node.body if isinstance(statement, ast.AnnAssign)]
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields:
            yield node.id, node.lineno
