"""The command that brings what a part of the bridge needs, where the bridge is installed."""

from __future__ import annotations

import sys

import pytest

from bridge import extras
from bridge.extras import install


def test_packages_are_named_themselves() -> None:
    """The name of the bridge is nobody's at PyPI: it is in no such command."""
    for extra, package in (("archive", "pyarrow"), ("otel", "opentelemetry-sdk"), ("spark", "pyspark"), ("ibmmq", "ibmmq")):
        command = install(extra)
        assert command.startswith(f"{sys.executable} -m pip install '")
        assert f"'{package}" in command
        assert "mq-mqtt-bridge" not in command


def test_in_the_debian_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no pip, and looks for what is not in it in another place."""
    monkeypatch.setattr(sys, "prefix", "/usr/lib/mqbridge")
    command = install("archive")
    assert command.startswith("pip install --upgrade --target /usr/local/lib/mqbridge '") and "'pyarrow" in command


def test_in_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: str) -> list[str]:
        raise extras.PackageNotFoundError  # type: ignore[attr-defined]

    monkeypatch.setattr(extras, "requires", nothing)
    assert install("archive").endswith("pip install '.[archive]'")
