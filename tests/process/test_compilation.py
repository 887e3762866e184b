"""Either all compiled modules are loaded or none: they must match the sources from which they were compiled."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from bridge import compilation
from tests.helpers.patience import PATIENCE

#: A module in C with `MADE_OF = "C"`.
EXTENSION = """
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "NAME", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_NAME(void) {
    PyObject *module = PyModule_Create(&definition);
    PyModule_AddStringConstant(module, "MADE_OF", "C");
    return module;
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package `bridge` with two compiled modules, and one module that they import."""
    root = tmp_path_factory.mktemp("compiled")
    directory = root / "bridge" / "compiled"
    directory.mkdir(parents=True)
    package = Path(compilation.__file__).parent
    for name in ("__init__.py", "compilation.py"):
        shutil.copy(package / name, root / "bridge" / name)
    for name in ("one", "other", "imported"):
        (root / "bridge" / f"{name}.py").write_text('MADE_OF = "Python"\n')
    for name in ("one", "other"):
        (root / "source.c").write_text(EXTENSION.replace("NAME", name))
        include = f"-I{sysconfig.get_path('include')}"
        words = ["cc", "-shared", "-fPIC", include, "-o", str(directory / f"bridge.{name}.so"), str(root / "source.c")]
        subprocess.run(words, check=True)
    sources = {
        f"bridge/{name}.py": hashlib.sha256((root / "bridge" / f"{name}.py").read_bytes()).hexdigest()
        for name in ("one", "other", "imported")
    }
    manifest = {"python": EXTENSION_SUFFIXES[0], "modules": ["bridge.one", "bridge.other"], "sources": sources}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return root


@pytest.fixture
def tree(compiled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compiled, tmp_path / "tree"))


def run(root: Path, **environment: str) -> list[str]:
    """Import both modules in a new process. Return the language of each, and why it is Python."""
    program = (
        "import bridge.one, bridge.other as o; print(bridge.one.MADE_OF, o.MADE_OF, bridge.compilation.PURE, sep='|')"
    )
    process = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={**os.environ, "MQBRIDGE_PURE": "0", "PYTHONPATH": str(root), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return process.stdout.rstrip("\n").split("|")


def test_compiled_modules_are_loaded(tree: Path) -> None:
    assert run(tree) == ["C", "C", ""]


def change(name: str) -> Callable[[Path], Any]:
    return lambda root: (root / "bridge" / name).write_text('MADE_OF = "Python"  # changed\n')


def other_python(root: Path) -> None:
    manifest = root / "bridge" / "compiled" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(EXTENSION_SUFFIXES[0], ".cpython-27.so"))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (change("one.py"), "bridge/one.py has changed since it was compiled"),
        (change("imported.py"), "bridge/imported.py has changed since it was compiled"),
        (lambda root: (root / "bridge" / "imported.py").unlink(), "No such file or directory"),
        (lambda root: (root / "bridge" / "compiled" / "bridge.other.so").unlink(), "bridge.other.so is missing"),
        (lambda root: (root / "bridge" / "compiled" / "manifest.json").write_text("{"), "manifest.json: "),
        (lambda root: (root / "bridge" / "compiled" / "manifest.json").unlink(), "not compiled"),
        (other_python, "compiled for another Python (.cpython-27.so)"),
    ],
    ids=["changed", "import changed", "source gone", "module gone", "broken manifest", "no manifest", "other Python"],
)
def test_one_changed_or_missing_file_disables_all_compiled_modules(
    tree: Path, spoil: Callable[[Path], Any], reason: str
) -> None:
    spoil(tree)
    first, other, why = run(tree)
    assert (first, other) == ("Python", "Python")
    assert reason in why


def test_compiled_modules_can_be_disabled(tree: Path) -> None:
    assert run(tree, MQBRIDGE_PURE="1") == ["Python", "Python", "MQBRIDGE_PURE is set"]


def no_compiler(root: Path) -> dict[str, str]:
    programs = root / "programs"
    programs.mkdir()
    for name in ("sh", "dirname"):
        (programs / name).symlink_to(str(shutil.which(name)))
    return {"PATH": str(programs)}


@pytest.mark.parametrize(
    ("spoil", "command", "text", "attempted"),
    [
        (lambda root: {}, "true", "", False),
        (change("one.py"), "true", "setup: compiling the bridge", True),
        (change("one.py"), "false", "setup: could not compile: the bridge runs as pure Python", True),
        (lambda root: (change("one.py")(root), no_compiler(root))[1], "true", "setup: no C compiler", False),
        (lambda root: (change("one.py")(root), {"MQBRIDGE_PURE": "1"})[1], "true", "", False),
    ],
    ids=["compiled already", "changed", "compiling fails", "no compiler", "pure by will"],
)
def test_setup_compiles_if_possible_and_never_fails(
    tree: Path, spoil: Callable[[Path], Any], command: str, text: str, attempted: bool
) -> None:
    spoiled = spoil(tree)
    environment = spoiled if isinstance(spoiled, dict) else {}
    process = subprocess.run(
        [
            "/bin/sh",
            str(compilation.ROOT / "deploy" / "compiled.sh"),
            sys.executable,
            "sh",
            "-c",
            f": >attempted; {command}",
        ],
        cwd=tree,
        env={**os.environ, "MQBRIDGE_PURE": "0", "PYTHONPATH": str(tree), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert (text in process.stdout) and bool(text) == bool(process.stdout)
    assert not process.stderr
    assert (tree / "attempted").exists() == attempted


def bases(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each class of a file with the last word of each base class, and `=` for each keyword."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ClassDef):
            yield from ((node.name, ast.unparse(base).split("[")[0].split(".")[-1]) for base in node.bases)
            yield from ((node.name, "=") for _ in node.keywords)


def test_classes_of_compiled_modules_can_be_compiled() -> None:
    listed = tomllib.loads((compilation.ROOT / "pyproject.toml").read_text())["tool"]["mqbridge"]["compiled"]
    paths = {compilation.ROOT / Path(*module.split(".")).with_suffix(".py") for module in listed}
    assert not [path for path in sorted(paths) if not path.is_file()]
    assert not [(path, name) for path in sorted(paths) for name, base in bases(path) if base == "="]
    for path in sorted((compilation.ROOT / "bridge").rglob("*.py")):
        imported = {
            alias.name: compilation.ROOT / Path(*node.module.split(".")).with_suffix(".py")
            for node in ast.walk(ast.parse(path.read_bytes()))
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        assert path in paths or not [base for _, base in bases(path) if imported.get(base) in paths], path
