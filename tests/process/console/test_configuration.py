"""The configuration in the console and on the command line: settings, their sources, and the check of an edited copy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.console import Console

CONFIG = """\
channels:
  - {{name: PLAIN, port: 0}}
admin: {{port: 0}}
audit_log: {{file: {directory}/audit.jsonl}}
limits: {{waiting_bytes: 2 MiB}}
mappings:
  out: {{from: {{mqtt: "out/#"}}, to: {{topic: taken}}, attributes: {{properties: {{api_key: classified}}}}}}
"""


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("configuration")
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory=directory))) as process:
        yield process


@pytest.fixture
def console(bridge: BridgeProcess) -> Console:
    return Console(bridge).log_in()


def text_of(console: Console) -> str:
    """Return the text of the configuration file."""
    assert console.bridge.config is not None
    return console.bridge.config.read_text()


def checked(console: Console, text: str) -> Any:
    headers = {"Accept": "application/json", "Authorization": f"Bearer {console.token}"}
    page = Console(console.bridge).post("/configuration/check", headers=headers, text=text)
    assert page.status == 200, page.html
    return json.loads(page.bytes)["outcome"]


def test_settings_that_differ_from_the_defaults_have_their_source(console: Console) -> None:
    page = console.json("/configuration")
    settings = {setting["key"]: setting for setting in page["settings"]}
    config = console.bridge.config
    assert settings["limits.waiting_bytes"]["value"] == "2097152"
    assert settings["limits.waiting_bytes"]["source"].endswith(f"{config}:5")
    assert settings["mappings.out.attributes.properties.api_key"]["value"] == "(hidden)"
    assert "limits.sessions" not in settings
    assert settings["queue_manager.data_directory"]["source"] == "--data-dir"
    every = console.json("/configuration", show="all", section="limits")
    assert {setting["key"].partition(".")[0] for setting in every["settings"]} == {"limits"}
    limits = {setting["key"]: setting for setting in every["settings"]}
    assert limits["limits.sessions"] == {
        "key": "limits.sessions",
        "value": "100000",
        "default": "100000",
        "source": "default",
    }
    (section,) = [section for section in page["sections"] if section["name"] == "limits"]
    assert section["changed"] == 1
    html = console.get("/configuration").html
    assert "<b>2097152</b>" in html
    assert "classified" not in html
    assert console.get("/configuration", section="nosuch").status == 422


def test_a_reload_updates_the_sources(console: Console) -> None:
    config = console.bridge.config
    assert config is not None
    text = text_of(console)
    try:
        config.write_text("# another line\n" + text.replace("2 MiB", "3 MiB") + "transmission_queue: OTHER\n")
        assert "limits" in console.change("/reload", confirm="1").text
        settings = {setting["key"]: setting for setting in console.json("/configuration")["settings"]}
        assert settings["limits.waiting_bytes"]["value"] == "3145728"
        assert settings["limits.waiting_bytes"]["source"].endswith(":6")
        # transmission_queue needs a restart, so the default is still in effect.
        assert "transmission_queue" not in settings
        assert settings["queue_manager.data_directory"]["source"] == "--data-dir"
    finally:
        config.write_text(text)
        console.change("/reload", confirm="1")


def test_mistakes_have_the_line_numbers_of_the_copy(console: Console) -> None:
    text = text_of(console).replace("waiting_bytes: 2 MiB", "waiting_bites: 2 MiB")
    outcome = checked(console, text)
    (mistake,) = outcome["mistakes"]
    assert (outcome["ok"], mistake["line"], mistake["key"]) == (False, 5, "limits.waiting_bites")
    page = console.change("/configuration/check", text=text)
    assert f"{console.bridge.config}:5:" in page.text
    assert "did you mean waiting_bytes?" in page.text
    assert "waiting_bites: 2 MiB" in page.html, "the text to correct"


def test_mistakes_are_those_of_the_check_command(console: Console, tmp_path: Path) -> None:
    text = text_of(console).replace("port: 0", "port: 99999")
    edited = tmp_path / "bridge.yaml"
    edited.write_text(text)
    printed = CliRunner().invoke(program, ["check", str(edited), "-o", "json"])
    expected = [mistake["text"].replace(str(edited), "") for mistake in json.loads(printed.stdout)["mistakes"]]
    mistakes = [
        mistake["text"].replace(str(console.bridge.config), "") for mistake in checked(console, text)["mistakes"]
    ]
    assert expected == mistakes
    assert len(mistakes) == 2


def test_a_valid_copy_is_compared_and_not_saved(console: Console) -> None:
    before = text_of(console)
    assert checked(console, before)["changes"] == []
    text = before.replace("2 MiB", "4 MiB") + "queue_manager: {name: QM2}\n"
    outcome = checked(console, text)
    changes = {change["key"]: (change["before"], change["after"]) for change in outcome["changes"]}
    assert changes == {"limits.waiting_bytes": ("2097152", "4194304"), "queue_manager.name": ("MQB1", "QM2")}
    assert outcome["restart"] == ["queue_manager"]
    page = console.change("/configuration/check", text=text)
    assert "they need a restart" in page.text
    assert text_of(console) == before
    assert console.json("/configuration", search="waiting_bytes")["settings"][0]["value"] == "2097152"


def test_checking_a_copy_requires_the_right_to_change(console: Console) -> None:
    with (console.bridge.data_directory / "admin.tokens").open("a") as tokens:
        tokens.write(f"reader:read:{'r' * 32}\n")
    headers = {"Accept": "application/json", "Authorization": f"Bearer {'r' * 32}"}
    refused = Console(console.bridge).post("/configuration/check", headers=headers, text="x: 1")
    assert refused.status == 403
    assert "textarea" not in Console(console.bridge).log_in("r" * 32).get("/configuration/check").html
    # A form of another site has no token of the login.
    assert console.post("/configuration/check", text="x: 1").status == 403


def test_a_copy_reads_no_other_files(console: Console) -> None:
    outcome = checked(console, "mappings: [/etc/passwd]\n")
    assert "only files that the present configuration names" in outcome["mistakes"][0]["text"]
    assert "root:" not in json.dumps(outcome)


@pytest.mark.parametrize(
    "text", ["a: [", "\x00", "- 1\n", "x: &a [*a]\n", "a: {" * 40, "x" * 1_100_000, "&a [*a, *a]", "{{7*7}}<script>"]
)
def test_hostile_copies_result_in_an_error_message(console: Console, text: str) -> None:
    headers = {"Accept": "application/json", "Authorization": f"Bearer {console.token}"}
    page = Console(console.bridge).post("/configuration/check", headers=headers, text=text)
    answer = json.loads(page.bytes)
    assert page.status in (400, 422) or answer["outcome"]["mistakes"], answer


def test_the_check_is_audited_without_the_text(console: Console) -> None:
    checked(console, "# classified remark\n" + text_of(console))
    entries = console.json("/audit", search="config check")["entries"]
    assert entries[0]["user"] == "token admin"
    assert entries[0]["text"] == "(hidden)"
    assert "classified" not in json.dumps(entries)
    assert "classified" not in console.bridge.log


def test_the_commands_print_the_same_settings_as_the_pages(console: Console, tmp_path: Path) -> None:
    administrator = Administrator(console.bridge)
    assert administrator.json("config", "list") == console.json("/configuration")["settings"]
    assert (
        administrator.json("config", "list", "limits", "--all")
        == (console.json("/configuration", section="limits", show="all")["settings"])
    )
    assert "limits.waiting_bytes  2097152" in administrator.does("config", "list", "--search", "waiting_bytes")
    assert "waiting_bytes: 2097152" in administrator.does("config", "show")
    edited = tmp_path / "edited.yaml"
    edited.write_text(text_of(console).replace("2 MiB", "5 MiB"))
    assert "5242880" in administrator.does("config", "check", str(edited))
    edited.write_text("chanels: []\n")
    result = administrator.run("config", "check", str(edited))
    assert result.exit_code == 2
    assert "bridge.yaml:1:1" in result.stderr or ":1:1: chanels" in result.stderr
    assert administrator.run("config", "list", "nosuch").exit_code != 0
    edited.write_bytes(b"log: \xff\n")
    assert "expected text in UTF-8, found the byte 0xFF" in administrator.refused(
        "config", "check", str(edited), status=2
    )


def test_check_prints_the_changed_settings(console: Console) -> None:
    config = str(console.bridge.config)
    text = CliRunner().invoke(program, ["check", config, "--changed"]).stdout
    assert "limits.waiting_bytes" in text
    assert f"{config}:5" in text
    assert "limits.sessions" not in text
    findings = json.loads(CliRunner().invoke(program, ["check", config, "-o", "json"]).stdout)
    assert {change["key"] for change in findings["changed"]} >= {"limits.waiting_bytes"}
