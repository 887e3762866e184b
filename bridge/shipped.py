"""The files that the bridge ships next to its modules: `deploy/…` and `mappings/…`."""

from pathlib import Path


def shipped_file(name: str) -> Path:
    """Return the file that the bridge ships as `name`: of the installed package, else of the checkout."""
    package = Path(__file__).resolve().parent
    for directory in (package, package.parent):
        if (directory / name).is_file():
            return directory / name
    raise FileNotFoundError(f"{name} is neither in {package} nor in {package.parent}: the installation is incomplete")
