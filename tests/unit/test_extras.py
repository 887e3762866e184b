"""Commands that install the dependencies of an extra."""

from __future__ import annotations

import sys

import pytest

from bridge import extras
from bridge.extras import install


def test_the_command_lists_the_dependencies() -> None:
    for extra, package in (
        ("archive", "pyarrow"),
        ("otel", "opentelemetry-sdk"),
        ("spark", "pyspark"),
        ("ibmmq", "ibmmq"),
    ):
        command = install(extra)
        assert command.startswith(f"{sys.executable} -m pip install '")
        assert f"'{package}" in command
        assert "mqbridge" not in command.removeprefix(sys.executable)


def test_in_the_debian_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/usr/lib/mqbridge")
    command = install("archive")
    assert command.startswith("pip install --upgrade --target /usr/local/lib/mqbridge '") and "'pyarrow" in command


def test_in_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: str) -> list[str]:
        raise extras.PackageNotFoundError  # type: ignore[attr-defined]

    monkeypatch.setattr(extras, "requires", nothing)
    assert install("archive").endswith("pip install '.[archive]'")
