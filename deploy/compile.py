"""Compile modules of the bridge with mypyc: `python deploy/compile.py`, and a build hook of hatchling for wheels.

The modules are `compiled` in `[tool.mqbridge]` of pyproject.toml. The results go to `bridge/compiled`, with a manifest of
their sources. `bridge/compilation.py` loads them only if the sources have not changed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

try:
    import tomllib
except ModuleNotFoundError:  # pip compares requires-python only after this hook has run
    version = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"mqbridge needs Python 3.11 or newer, found {version}\nhint: python3.11 -m pip install .")

ROOT = Path(__file__).resolve().parents[1]
#: Directory of the compiled modules, relative to the root of the project.
PRODUCTS = Path("bridge", "compiled")
#: The library that all compiled modules share. mypyc appends `__mypyc`.
LIBRARY = "mqbridge"


class CustomBuildHook(BuildHookInterface[Any]):
    """Compile the modules for a wheel if MQBRIDGE_COMPILE is 1."""

    def dependencies(self) -> list[str]:
        """Return the requirements of the hook, except hatchling. mypyc reads the types of the bridge's packages."""
        core = self.metadata.core
        return [*core.dependencies, *core.optional_dependencies["compile"]] if wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not wanted():
            return
        compile_all()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"][str(ROOT / PRODUCTS)] = str(PRODUCTS)


def wanted() -> bool:
    """Return whether wheels contain compiled modules."""
    return os.environ.get("MQBRIDGE_COMPILE") == "1"


def compile_all() -> None:
    """Compile all modules to `bridge/compiled`. Raises CalledProcessError."""
    modules: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mqbridge"]["compiled"]
    before = hashes(modules)
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="compile-", dir=ROOT / "build") as name:
        folder = Path(name)
        subprocess.run([sys.executable, __file__, name, *map(str, map(source, modules))], cwd=ROOT, check=True)
        made = folder / "made"
        names = [*modules, f"{LIBRARY}__mypyc"]
        manifest = {"python": EXTENSION_SUFFIXES[0], "modules": names, "sources": before}
        (made / "manifest.json").write_text(json.dumps(manifest, indent=1))
        shutil.rmtree(ROOT / PRODUCTS, ignore_errors=True)
        made.rename(ROOT / PRODUCTS)


def source(module: str) -> Path:
    """Return the file of a module, below the root of the project."""
    path = Path(*module.split("."))
    return path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py")


def hashes(modules: list[str]) -> dict[str, str]:
    """Return the SHA-256 of the sources of the modules, and of all modules of the bridge that they import.

    The compiled code contains constants and types of all of them.
    """
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        path = source(waiting.pop())
        if str(path) not in found and (ROOT / path).is_file():
            content = (ROOT / path).read_bytes()
            found[str(path)] = hashlib.sha256(content).hexdigest()
            waiting += imported(ast.parse(content), path.parent.parts)
    return dict(sorted(found.items()))


def imported(tree: ast.Module, package: tuple[str, ...]) -> Iterator[str]:
    """Yield the names that a module of a package imports from the bridge, of modules and of their members."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith("bridge."))
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) + 1 - node.level] if node.level else ()
            name = ".".join((*parts, *([node.module] if node.module else [])))
            if name.startswith("bridge"):
                yield name
                yield from (f"{name}.{one.name}" for one in node.names)


def build(folder: Path, sources: list[str]) -> None:
    """Build extensions from source files: one library, and for each module a small extension that loads it."""
    import setuptools  # noqa: F401 before mypyc, which otherwise uses the distutils of Python 3.11
    from mypyc.build import ccompiler, mypycify, sysconfig

    # Errors of imported modules do not matter: their packages may be optional and missing, such as OpenTelemetry.
    options = ["--config-file=pyproject.toml", "--cache-dir=.mypy_cache/compiled", "--follow-imports=silent"]
    level = os.environ.get("MYPYC_OPT_LEVEL", "2")
    extensions = mypycify(
        [*options, *sources],
        opt_level=level,
        debug_level="0",
        multi_file=True,
        target_dir=str(folder),
        group_name=LIBRARY,
    )
    compiler: Any = ccompiler.new_compiler()
    sysconfig.customize_compiler(compiler)
    made = folder / "made"
    made.mkdir()
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def objects(extension: Any) -> list[Any]:
            def compiled(file: str) -> list[str]:
                include = [*extension.include_dirs, sysconfig.get_python_inc()]
                args = extension.extra_compile_args
                return list(compiler.compile([file], str(folder / "objects"), None, include, extra_postargs=args))

            return [pool.submit(compiled, file) for file in extension.sources]

        for extension, waiting in [(extension, objects(extension)) for extension in extensions]:
            files = [file for future in waiting for file in future.result()]
            compiler.link_shared_object(files, str(made / f"{extension.name}.so"))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        try:
            compile_all()
        except subprocess.CalledProcessError as error:
            sys.exit(error.returncode)  # the compiler has printed the error
    else:
        build(Path(sys.argv[1]), sys.argv[2:])
