"""Reported mistakes of a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.document import load
from bridge.config.problems import ConfigurationError

ADDRESS = "an IP address or a host name (0.0.0.0 means every IPv4 address of this machine)"
DURATION_UNITS = "(a number of seconds, or a number with ms, s, min, h or d)"
MQ_NAME = "an MQ name of 1 to 48 of the characters A-Z a-z 0-9 . _ / %"
NO_DEFAULT = "this key, which has no default"
SIZE_UNITS = "(an integer of bytes, or a number with B, KB, KiB, MB, MiB, GB or GiB)"
URL = "a URL that begins with file://, http://, https:// or ftp://"

ONE, OTHER = "from: {mqtt: t, link: l}, to: {queue: Q}", "from: {queue: Q}, to: {mqtt: t, link: l}"


def mistakes_of(directory: Path, text: str) -> list[str]:
    """Return the reported lines about a file, without its name."""
    file = directory / "bridge.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        load(file)
    return [line.removeprefix(f"{file}:") for line in str(raised.value).splitlines()]
