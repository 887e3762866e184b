"""One class name means one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final

import bridge

#: Names of several classes, and why.
ALLOWED: Final = {
    "AdminPort": "the protocol and its implementation",
    "Publish": "the packet of MQTT, and the administrative request, whose name is part of the HTTP interface",
}
LONGEST: Final = 15


def test_a_class_name_means_one_class() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    root = Path(bridge.__file__).parent
    for file in root.rglob("*.py"):
        if file.is_relative_to(root / "compiled"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(root)))
    several = {name: files for name, files in places.items() if len(files) > 1}
    assert several.keys() == ALLOWED.keys(), {
        name: files for name, files in several.items() if name not in ALLOWED
    } or "a name of ALLOWED has become unique"
    assert len(ALLOWED) <= LONGEST
