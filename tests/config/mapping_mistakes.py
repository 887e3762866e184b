"""What is told of a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config import ConfigurationError, load

ONE, OTHER = "from: {mqtt: t, link: l}, to: {queue: Q}", "from: {queue: Q}, to: {mqtt: t, link: l}"


def mistakes_of(directory: Path, text: str) -> list[str]:
    """The lines that are told of a file, without its name."""
    file = directory / "bridge.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        load(file)
    return [line.removeprefix(f"{file}:") for line in str(raised.value).splitlines()]
