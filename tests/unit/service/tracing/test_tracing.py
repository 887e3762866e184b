"""Requirements of the section `traces`. Without it, nothing of OpenTelemetry is imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bridge.config.operations import TracesConfig
from bridge.service.tracing import TracesError, tracing_of

ENDPOINT = "http://127.0.0.1:9/v1/traces"


def test_a_missing_package_is_reported_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge does not start, and prints the installation command."""
    monkeypatch.delitem(sys.modules, "bridge.service.trace_export", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(TracesError, match="-m pip install 'opentelemetry"):
        tracing_of(TracesConfig(endpoint=ENDPOINT), lambda: 0.0)


@pytest.mark.parametrize(
    ("text", "line"),
    [("Authorization", 1), ("# a comment\n\nname:\n", 3), (": value", 1), ("name: a\tb", 1), ("a: b\nname: \x00", 2)],
)
def test_a_headers_file_that_cannot_be_read(tmp_path: Path, text: str, line: int) -> None:
    """The error names the line, and does not contain it, because it is a secret."""
    file = tmp_path / "headers"
    file.write_text(text)
    with pytest.raises(TracesError) as error:
        tracing_of(TracesConfig(endpoint=ENDPOINT, headers_file=file), lambda: 0.0)
    assert str(error.value) == f"traces.headers_file {file}, line {line}: expected NAME: VALUE"


def test_a_missing_headers_file(tmp_path: Path) -> None:
    """The error contains its name and the problem."""
    file = tmp_path / "headers"
    with pytest.raises(TracesError, match="No such file"):
        tracing_of(TracesConfig(endpoint=ENDPOINT, headers_file=file), lambda: 0.0)
