"""`mqbridge check`, and the configuration of `mqbridge run` from a file, options and environment."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.config.models import Configuration


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Configuration]:
    """Record the configurations with which the service was run. It ends with status 7 at once."""
    configurations: list[Configuration] = []
    process = types.ModuleType("bridge.service.foreground")

    def run(configuration: Configuration, source: object) -> int:
        configurations.append(configuration)
        return 7

    process.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bridge.service.foreground", process)
    return configurations


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def file(directory: Path, text: str) -> Path:
    path = directory / "bridge.yaml"
    path.write_text(text)
    return path


def test_defaults(invoke: Any, served: list[Configuration], here: Path) -> None:
    file(here, "channels: [{port: 1}]")  # no file is read without a request
    result = invoke("run")
    assert (result.exit_code, result.output) == (7, "")
    assert served == [Configuration()]


@pytest.mark.parametrize(
    ("option", "yaml", "variable", "directory"),
    [
        (None, None, None, "data"),
        (None, None, "/variable", "/variable"),
        (None, None, "", "data"),
        (None, "name: QM2", "/variable", "/variable"),
        (None, "data_directory: /yaml", "/variable", "/yaml"),
        (None, "data_directory: data", "/variable", "{here}/data"),
        ("/option", "data_directory: /yaml", "/variable", "/option"),
        ("relative", None, "/variable", "relative"),
    ],
)
def test_the_data_directory_comes_from_option_file_or_environment(
    invoke: Any,
    served: list[Configuration],
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str | None,
    yaml: str | None,
    variable: str | None,
    directory: str,
) -> None:
    arguments: list[Any] = []
    if yaml is not None:
        arguments.append(file(here, f"queue_manager: {{{yaml}}}"))
    if option is not None:
        arguments += ["--data-dir", option]
    if variable is not None:
        monkeypatch.setenv("MQBRIDGE_DATA_DIR", variable)
    assert invoke("run", *arguments).exit_code == 7
    assert served[0].queue_manager.data_directory == Path(directory.format(here=here))


def test_port_sets_that_of_the_first_channel(invoke: Any, served: list[Configuration], here: Path) -> None:
    path = file(here, "channels: [{name: A, port: 1001}, {name: B, port: 1002}]")
    assert invoke("run", path, "--port", 0).exit_code == 7
    assert [(channel.name, channel.port) for channel in served[0].channels] == [("A", 0), ("B", 1002)]


def test_the_option_port_needs_no_file(invoke: Any, served: list[Configuration], here: Path) -> None:
    assert invoke("run", "--port", 65535).exit_code == 7
    assert [channel.port for channel in served[0].channels] == [65535]


def test_log_level(invoke: Any, served: list[Configuration], here: Path) -> None:
    assert invoke("run", "--log-level", "debug").exit_code == 7
    assert served[0].log.level == "debug"
    assert served[0].log.format == "text"


@pytest.mark.parametrize(
    ("yaml", "arguments", "complaint"),
    [
        (None, ["--port", "65536"], "--port"),
        (None, ["--port", "-1"], "--port"),
        (None, ["--log-level", "loud"], "--log-level"),
        ("channels: []", ["--port", "1"], "--port"),
        ("channels: [{name: A, port: 1001}, {name: B, port: 1002}]", ["--port", "1002"], "channels[0]"),
        ("channels: [{prot: 1}]", [], "did you mean port?"),
    ],
)
def test_invalid_options_of_run_are_rejected(
    invoke: Any, served: list[Configuration], here: Path, yaml: str | None, arguments: list[str], complaint: str
) -> None:
    paths = [file(here, yaml)] if yaml is not None else []
    result = invoke("run", *paths, *arguments)
    assert (result.exit_code, result.stdout, served) == (2, "", [])
    assert complaint in result.stderr


def test_check(invoke: Any, here: Path) -> None:
    path = file(here, "queue_manager: {name: QM2}\nchannels: [{port: 1884}]\n")
    result = invoke("check", path)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:3] == ["queue_manager:", "  type: embedded", "  name: QM2"]
    assert {"  address: 127.0.0.1", "  port: 1884"} <= set(lines)
    assert lines[-1] == f"{path} is OK"


@pytest.mark.parametrize(
    ("yaml", "directory"), [("{}", "/variable"), ("queue_manager: {data_directory: /yaml}", "/yaml")]
)
def test_check_uses_the_data_directory_of_run(
    invoke: Any, here: Path, monkeypatch: pytest.MonkeyPatch, yaml: str, directory: str
) -> None:
    monkeypatch.setenv("MQBRIDGE_DATA_DIR", "/variable")
    result = invoke("check", file(here, yaml))
    assert f"  data_directory: {directory}\n" in result.stdout
    assert ("is empty: every setting has its default" in result.stdout) == (yaml == "{}")


def test_check_reports_each_mistake_on_a_line(invoke: Any, here: Path) -> None:
    path = file(here, "channels:\n  - port: many\n    nmae: A\n")
    result = invoke("check", path)
    assert (result.exit_code, result.stdout) == (2, "")
    first, second, error = result.stderr.splitlines()
    assert error == f"mqbridge: error: {path}: 2 mistakes"
    assert first.startswith(f"{path}:2:")
    assert "channels[0].port: expected " in first
    assert "found 'many'" in first
    assert second.startswith(f"{path}:3:")


def test_check_reports_a_missing_file(invoke: Any, here: Path) -> None:
    result = invoke("check", "missing.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("missing.yaml: expected ")


def test_check_reports_an_authentication_method_that_is_not_installed(invoke: Any, here: Path) -> None:
    path = file(here, "channels: [{name: A, authentication_methods: [NOBODY-HAS-IT]}]\n")
    result = invoke("check", path)
    assert result.exit_code == 1
    assert "channel A: authentication method 'NOBODY-HAS-IT' is not installed" in result.stderr


def test_check_as_json(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    link = "links: {l: {host: h, password_variable: NOT_SET_ANYWHERE, user: u}}\n"
    file.write_text(link + "mappings: {m: {from: {mqtt: a, link: l}, to: {queue: Q}}}\n")
    result = CliRunner().invoke(program, ["check", str(file), "--json"])
    report = json.loads(result.stdout)
    assert (result.exit_code, report["ok"], report["mistakes"]) == (1, False, [])
    assert any("NOT_SET_ANYWHERE" in line for line in report["missing"])
    assert {"mappings:", "      queue: Q"} <= set(report["description"])
    file.write_text("channels: 7\n")
    result = CliRunner().invoke(program, ["check", str(file), "--json"])
    (mistake,) = json.loads(result.stdout)["mistakes"]
    assert result.exit_code == 2
    assert (mistake["file"], mistake["line"], mistake["key"]) == (str(file), 1, "channels")
