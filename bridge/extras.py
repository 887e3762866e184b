"""Commands that install the optional dependencies (extras) of the bridge."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

#: The virtual environment of the Debian package, which has no pip, and the directory for additional packages.
_PACKAGED, _ADDITIONAL = Path("/usr/lib/mqbridge"), "/usr/local/lib/mqbridge"


def install(extra: str) -> str:
    """Return the command that installs the dependencies of an extra.

    The command lists the dependencies instead of the bridge, because the bridge is not on PyPI, and another project could
    register its name there.
    """
    pip = f"{sys.executable} -m pip install"
    if Path(sys.prefix) == _PACKAGED:
        pip = f"pip install --upgrade --target {_ADDITIONAL}"
    packages = " ".join(f"'{package}'" for package in _packages(extra))
    return f"{pip} {packages}"


def _packages(extra: str) -> list[str]:
    try:
        requirements = requires("mqbridge") or []
    except PackageNotFoundError:  # a checkout that is not installed
        return [f".[{extra}]"]
    parts = [requirement.partition(";") for requirement in requirements]
    return [package.strip() for package, _, marker in parts if marker.strip() == f"extra == '{extra}'"]
