"""The mode of files with secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: Docker and Podman mount secrets here, by default with mode 0444. Only the container's processes see them.
CONTAINER_SECRETS: Final = Path("/run/secrets")


def readable_by_others(path: Path) -> Iterator[str]:
    """Yield a warning if users who are neither the owner of a file with secrets nor in its group can access the file."""
    if path.stat().st_mode & 0o007 and not path.is_relative_to(CONTAINER_SECRETS):
        yield f"{path} contains secrets and can be read by every user of this machine; run `chmod o= {path}`"
