"""`mqbridge audit` and `mqbridge report`: output and exit statuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bridge.archive.audit import Audit, Counts, MappingCounts
from bridge.cli.archive import verdict
from bridge.cli.program import program
from tests.helpers.archive import NOON, Story

Command = Callable[..., Result]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `mqbridge` in this process."""
    monkeypatch.delenv("MQBRIDGE_CONFIG", raising=False)
    return lambda *arguments: CliRunner().invoke(program, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    story = Story().subscribed("c", 0, "t", 1).put(1, "t", b"a").out(6, "c", "t", b"a", since=1)
    return story.write(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    story = Story().subscribed("c", 0, "t", 1).put(1, "t", b"a").put(2, "t", b"b").out(600, "c", "t", b"b", since=2)
    return story.write(tmp_path_factory.mktemp("bad"))


def test_an_archive_without_breaches_has_exit_status_0(command: Command, good: Path, tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text(f"archive:\n  directory: {good}\n")
    result = command("audit", "--config", file)
    assert result.exit_code == 0, result.output
    assert "The audit passed." in result.stdout and "lost, for example" not in result.stdout


def test_messages_of_mappings_are_shown(command: Command, tmp_path: Path) -> None:
    story = Story().mapped(1, "orders", "t", b"a", msg_id=b"1").mapped(2, "orders", "t", b"a", msg_id=b"1")
    result = command("audit", "--archive", story.write(tmp_path))
    assert result.exit_code == 0, result.output
    assert "Mappings" in result.stdout and "orders" in result.stdout
    assert "there is nothing to check" in result.stdout
    result = command("report", "--archive", tmp_path)
    assert result.exit_code == 0 and "Messages by mapping" in result.stdout


def test_an_archive_with_a_breach_has_exit_status_1(command: Command, bad: Path) -> None:
    result = command("audit", "--archive", bad)
    assert result.exit_code == 1
    assert "The audit failed." in result.stdout
    assert "Findings" in result.stdout
    assert "lost, for example: sequence=3" in result.stdout


@pytest.mark.parametrize(
    ("counts", "held", "text"),
    [
        (
            Counts(),
            True,
            "No client had to receive or received a message in that period, so there is nothing to check.",
        ),
        (Counts(expected=77, delivered=77), True, "The audit passed."),
        (Counts(expected=77, delivered=76, lost=1), False, "The audit failed."),
        (
            Counts(expected=77, delivered=50, unknown=27),
            True,
            "No violation was found, but 27 deliveries cannot be checked (77 were expected), because rows are missing in the"
            " archive. Later publications can be checked: --from 2026-03-02T13:00:00+00:00",
        ),
        (
            Counts(expected=77, delivered=49, lost=1, unknown=27),
            False,
            "The audit failed, and 27 deliveries cannot be checked (77 were expected), because rows are missing"
            " in the archive. Later publications can be checked: --from 2026-03-02T13:00:00+00:00",
        ),
    ],
)
def test_the_result_is_printed_in_words(counts: Counts, held: bool, text: str) -> None:
    gaps = [{"from": NOON, "to": NOON + timedelta(hours=hours), "rows": None} for hours in (1, 0)]
    assert verdict(Audit(held, 1, None, None, None, counts, {}, [], [], gaps)) == text


@pytest.mark.parametrize(
    ("mappings", "counts", "status"),
    [
        ([], Counts(), 3),
        ([MappingCounts("m", taken=1, put=1)], Counts(), 0),
        ([], Counts(expected=2, unknown=2), 0),
        ([], Counts(expected=1, delivered=1, doubled=1), 1),
    ],
)
@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_exit_statuses_distinguish_breaches_and_errors(
    command: Command,
    good: Path,
    monkeypatch: pytest.MonkeyPatch,
    mappings: list[MappingCounts],
    counts: Counts,
    status: int,
    arguments: list[str],
) -> None:
    audit_made = Audit(not counts.doubled, 1, None, None, None, counts, {}, [], [], [], mappings)
    monkeypatch.setattr("bridge.archive.audit.audit", lambda *arguments, **options: audit_made)
    assert command("audit", "--archive", good, *arguments).exit_code == status


def test_a_latency_limit_is_checked(command: Command, good: Path) -> None:
    result = command("audit", "--archive", good, "--late", "4")
    assert result.exit_code == 1
    assert "The audit failed." in result.stdout


def test_json_contains_everything(command: Command, bad: Path) -> None:
    result = command("audit", "--archive", bad, "--json", "--from", "2026-03-02", "--to", "2026-03-02T13:00+00:00")
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert report["held"] is False
    assert report["totals"]["lost"] == 1
    assert report["findings"][0]["first"] == {"lost": 3}
    assert report["examples"][0]["row"]["received"].startswith("2026-03-02T12:00:01")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--from", "yesterday"], "--from: expected a time such as 2026-11-21"),
        (["--from", "2026-03-03", "--to", "2026-03-02"], "is not before --to"),
        (["--from", "-5weeks"], "--from: expected a time such as 2026-11-21"),
        (["--from", "-99999999d"], "--from: expected a time such as 2026-11-21"),
        (["--to", "-40s", "--from", "-1.5min"], "no rows of an archive in that time"),
        (["--from", "-40s", "--to", "-1 min"], "is not before --to"),
        (["--from", "2030-01-01"], "no rows of an archive in that time"),
        (["--late", "soon"], "invalid value for '--late'"),
    ],
)
@pytest.mark.parametrize("name", ["audit", "report"])
def test_wrong_usage_is_not_a_breach(command: Command, good: Path, name: str, arguments: list[str], text: str) -> None:
    if name == "report" and "--late" in arguments:
        arguments, text = ["--levels", "0"], "invalid value for '--levels'"
    result = command(name, "--archive", good, *arguments)
    assert result.exit_code == (3 if text.startswith("no rows") else 2)
    assert text in result.output


def test_an_archive_must_be_specified(command: Command, tmp_path: Path) -> None:
    result = command("audit")
    assert (result.exit_code, "--archive" in result.output) == (2, True)
    result = command("audit", "--archive", tmp_path / "nothing")
    assert (result.exit_code, "is not a directory" in result.output) == (2, True)


@pytest.mark.parametrize("name", ["audit", "report"])
def test_missing_or_unreadable_archives_are_not_breaches(
    command: Command, good: Path, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hour = tmp_path / "date=2026-03-02" / "hour=12"
    hour.mkdir(parents=True)
    (hour / "1.parquet").write_bytes(b"no Parquet")
    result = command(name, "--archive", tmp_path)
    assert result.exit_code == 2
    assert "the archive cannot be read: " in result.output and "Parquet" in result.output
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.delitem(sys.modules, "bridge.archive.database", raising=False)
    result = command(name, "--archive", good)
    assert result.exit_code == 2
    assert f"duckdb is not installed: `{sys.executable} -m pip install '" in result.output


def test_a_report_has_tables_json_and_a_page(command: Command, good: Path, tmp_path: Path) -> None:
    invocation = command("report", "--archive", good)
    assert invocation.exit_code == 0
    assert "Messages by hour (UTC)" in invocation.stdout and "Dead letters by reason: none" in invocation.stdout
    file = tmp_path / "report.html"
    report = json.loads(command("report", "--archive", good, "--json", "--html", file).stdout)
    assert [section["key"] for section in report["sections"]][:4] == ["hour", "topics", "clients", "qos"]
    assert file.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
