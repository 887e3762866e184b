"""What ARCHITECTURE.md and CONTRIBUTING.md name is there: files, and the classes and functions said to be in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = ("ARCHITECTURE.md", "CONTRIBUTING.md")
WORD = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")


def names_of(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """Yield the names of a module's classes, functions and methods, these as `Class.method`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from names_of(node, f"{node.name}.")


def names() -> set[str]:
    """Return those of the whole bridge."""
    return {name for path in (ROOT / "bridge").rglob("*.py") for name in names_of(ast.parse(path.read_text()))}


def words_of(guide: str) -> set[str]:
    return set(WORD.findall((ROOT / guide).read_text()))


@pytest.mark.parametrize("guide", GUIDES)
def test_files_that_are_named(guide: str) -> None:
    paths = {word for word in words_of(guide) if re.match(r"(bridge|tests|deploy|mappings)(/|$)", word)}
    assert paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("guide", GUIDES)
def test_classes_and_functions_that_are_named(guide: str) -> None:
    """A name with a capital or a dot in it is one of a class or method of the bridge."""
    named = {word for word in words_of(guide) if NAME.fullmatch(word) and re.search(r"[a-z]", word)}
    called = {name for name in named if (name[0].isupper() and name != "ClientIdentifier") or "." in name}
    called = {name for name in called if not name.endswith((".py", ".md", ".toml"))}
    assert sorted(called - names()) == []
