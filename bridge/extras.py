"""Packages that only some parts of the bridge need, its extras: the command that installs them where this bridge is."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

#: Where the Debian package of the bridge is, which has no pip, and where it looks for what is not in it.
_PACKAGED, _BESIDE = Path("/usr/lib/mqbridge"), "/usr/local/lib/mqbridge"


def install(extra: str) -> str:
    """Return the command that installs what an extra needs.

    It names the packages themselves: whoever had registered the name of the bridge at PyPI would be installed else.
    """
    pip = f"{sys.executable} -m pip install"
    if Path(sys.prefix) == _PACKAGED:
        pip = f"pip install --upgrade --target {_BESIDE}"
    packages = " ".join(f"'{one}'" for one in _packages(extra))
    return f"{pip} {packages}"


def _packages(extra: str) -> list[str]:
    try:
        found = requires("mq-mqtt-bridge") or []
    except PackageNotFoundError:  # a checkout that nobody has installed
        return [f".[{extra}]"]
    named = [one.partition(";") for one in found]
    return [package.strip() for package, _, marker in named if marker.strip() == f"extra == '{extra}'"]
