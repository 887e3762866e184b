"""Compiled modules, made by `deploy/compile.py` and loaded instead of their sources while these are unchanged.

Compiled modules depend on the layout of each other, and on constants and types that they import. So either all of them are
loaded, or none.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
#: Compiled modules under their full names, and the manifest with their sources and Python version. They are not next to
#: their sources, where Python would load them even if the sources have changed.
DIRECTORY = Path(__file__).with_name("compiled")


class Finder:
    """Finds compiled modules in front of their sources."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the location of a module, or None if it is not compiled."""
        file = self._files.get(name)
        if file is None:
            return None
        return spec_from_file_location(name, file, loader=ExtensionFileLoader(name, str(file)))


def load() -> str:
    """Install the finder of compiled modules. Return why they cannot be used, or ""."""
    if os.environ.get("MQBRIDGE_PURE", "0") != "0":
        return "MQBRIDGE_PURE is set"
    try:
        manifest = json.loads((DIRECTORY / "manifest.json").read_bytes())
    except FileNotFoundError:
        return "not compiled"
    except (OSError, ValueError) as error:
        return f"{DIRECTORY / 'manifest.json'}: {error}"
    if manifest["python"] != EXTENSION_SUFFIXES[0]:
        return f"compiled for another Python ({manifest['python']})"
    try:
        for path, digest in manifest["sources"].items():
            if hashlib.sha256((ROOT / path).read_bytes()).hexdigest() != digest:
                return f"{path} has changed since it was compiled"
    except OSError as error:
        return str(error)
    files = {module: DIRECTORY / f"{module}.so" for module in manifest["modules"]}
    missing = files.keys() - {path.stem for path in DIRECTORY.iterdir()}
    if missing:
        return f"{files[min(missing)]} is missing"
    sys.meta_path.insert(0, Finder(files))
    return ""


#: why the compiled modules are not used, or "" if they are
PURE = load()
