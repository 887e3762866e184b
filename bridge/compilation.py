"""Compiled modules: what `deploy/compile.py` has made of sources, loaded in their stead while these are the same.

The compiled modules know one another's layout, and constants and types of what they import: all of them are loaded, or none.
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
#: Compiled modules, each under its whole name, and the manifest, which says of what and for which Python they were made. They
#: do not lie beside their sources, where Python itself would find them, changed or not.
DIRECTORY = Path(__file__).with_name("compiled")


class Finder:
    """Finds compiled modules in front of their sources."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is; None where it is not compiled."""
        file = self._files.get(name)
        if file is None:
            return None
        return spec_from_file_location(name, file, loader=ExtensionFileLoader(name, str(file)))


def load() -> str:
    """Have the compiled modules imported; return why they are not, or ""."""
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


#: why the bridge runs as its sources are; "" where what is compiled of it runs
PURE = load()
