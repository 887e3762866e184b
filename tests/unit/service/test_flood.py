"""Repeated log lines are combined: their number is logged, and nothing is lost."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading

import pytest

from bridge.config.operations import LogConfig
from bridge.service import log as log_module
from bridge.service.log import (  # type: ignore[attr-defined]
    EQUAL_LINES,
    KIND_INTERVAL,
    KIND_LINES,
    LINE_LENGTH,
    Flood,
    FloodHandler,
    JsonFormatter,
    TextFormatter,
    printable,
    set_level,
)
from bridge.transport.layers import Peer

LINE = "MQB2301W client %s: refused"


def record(
    text: str, *arguments: object, created: float = 100.0, error: BaseException | None = None
) -> logging.LogRecord:
    log_record = logging.LogRecord(
        "test", logging.WARNING, "here.py", 7, text, arguments, None if error is None else (type(error), error, None)
    )
    log_record.created = created
    return log_record


def summaries(flood: Flood, now: float = 100.0 + KIND_INTERVAL) -> list[str]:
    return [record_due.getMessage() for record_due in flood.due(now)]


def test_a_repeated_line_is_logged_a_few_times_and_then_with_its_number() -> None:
    flood = Flood()
    assert all(flood.filter(record(LINE, "a")) for _ in range(EQUAL_LINES))
    assert not any(flood.filter(record(LINE, "a")) for _ in range(37))
    assert summaries(flood, 100.0 + KIND_INTERVAL - 0.1) == []
    assert summaries(flood) == ["MQB2301W client a: refused (repeated 37 more times in 10 s)"]
    assert summaries(flood, float("inf")) == []
    assert flood.filter(record(LINE, "a", created=200.0))


def test_alternating_lines_keep_their_order() -> None:
    """An object that is lost and back, twice, is not reported as lost at the end."""
    flood = Flood()
    assert all(flood.filter(record(text)) for _ in range(2) for text in ("MQB4001W lost", "MQB4004W back"))
    assert summaries(flood) == []


def test_other_lines_with_the_same_identifier_are_logged() -> None:
    """A limited number per interval, independent of repetitions. Lines that were written are also combined."""
    flood = Flood()
    for _ in range(1_000):
        flood.filter(record(LINE, "a"))
    others = [f"client {number}" for number in range(KIND_LINES - EQUAL_LINES)]
    assert all(flood.filter(record("MQB2301W %s", other)) for other in others)
    assert not any(flood.filter(record("MQB2301W %s", other)) for other in (*others, "one too many"))
    assert summaries(flood) == [
        "MQB2301W client a: refused (repeated 997 more times in 10 s)",
        *(f"MQB2301W {other} (repeated once more in 10 s)" for other in others),
        "MQB2301W 1 more lines like this were left out, the last: one too many",
    ]


def test_lines_are_combined_by_identifier_wherever_they_come_from() -> None:
    """The service writes the lines of the archive process with one call."""
    flood = Flood()
    assert all(flood.filter(record("%s", f"MQB7009I day {day}")) for day in range(KIND_LINES))
    assert not flood.filter(record("%s", "MQB7009I day 50"))
    assert flood.filter(record("%s", "MQB7010E another"))


def test_lines_without_an_identifier_are_not_combined() -> None:
    flood = Flood()
    assert all(flood.filter(record("of another package")) for _ in range(KIND_LINES))


def test_equal_lines_with_different_errors_are_different() -> None:
    flood = Flood()
    for number in range(EQUAL_LINES):
        assert flood.filter(record(LINE, "a", error=ValueError(number)))
        assert flood.filter(record(LINE, "a", error=ValueError("y")))
    assert not flood.filter(record(LINE, "a", error=ValueError("y")))
    assert summaries(flood) == ["MQB2301W client a: refused (repeated once more in 10 s)"]


def test_a_long_line_keeps_the_count_at_its_end() -> None:
    flood = Flood()
    for _ in range(EQUAL_LINES + 1):
        flood.filter(record(LINE, "\n" * 60_000))
    (line,) = summaries(flood)
    assert len(line) <= LINE_LENGTH
    assert printable(line).endswith("(repeated once more in 10 s)")


def test_the_count_has_the_fields_of_the_line() -> None:
    flood = Flood()
    for _ in range(EQUAL_LINES + 2):
        flood.filter(record(LINE, Peer("10.0.0.7:5", "dev-1")))
    (summary,) = flood.due(float("inf"))
    entry = json.loads(JsonFormatter().format(summary))
    assert (entry["id"], entry["client"], entry["address"]) == ("MQB2301W", "dev-1", "10.0.0.7:5")
    assert entry["message"] == "client 'dev-1' at 10.0.0.7:5: refused (repeated 2 more times in 10 s)"


def test_memory_is_limited() -> None:
    """Clients choose their names: a limited number of lines per identifier is remembered, each with a limited length."""
    flood = Flood()
    for number in range(10_000):
        flood.filter(record(LINE, f"{number}{'x' * 5_000}"))
    (kind,) = flood._kinds.values()
    assert len(kind.known) == KIND_LINES
    assert all(len(line) < LINE_LENGTH * 2 for line in kind.known)


def test_many_threads_lose_no_line() -> None:
    sink = io.StringIO()
    handler = FloodHandler(logging.StreamHandler(sink))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    threads = [threading.Thread(target=lambda: [logger.warning(LINE, "a") for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.close()
    lines = sink.getvalue().splitlines()
    counts = [line for line in lines if "repeated" in line]
    gathered = sum(int(line.split("(repeated ")[1].split(" more times")[0]) for line in counts if "times" in line)
    assert len(lines) - len(counts) + gathered + sum("once more" in line for line in counts) == 4_000
    assert lines[:EQUAL_LINES] == [LINE % "a"] * EQUAL_LINES


def test_the_level_changes_while_the_bridge_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """At `debug`, each line is written. Combined lines from before are logged."""
    root, written = logging.getLogger(), io.StringIO()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(sys, "stderr", written)
    log_module.configure(LogConfig(level="warning"))
    log = logging.getLogger("bridge.test")

    def lines() -> list[str]:
        return [line.split(" ", 3)[3].strip() for line in written.getvalue().splitlines()]

    log.info("MQB2001I hidden")
    for _ in range(5):
        log.warning("MQB2301W seen")
    assert lines() == ["MQB2301W seen"] * 3
    set_level("debug")
    assert lines()[3:] == ["MQB2301W seen (repeated 2 more times in 10 s)"]
    log.debug("a debugger's")
    for _ in range(5):
        log.warning("MQB2301W seen")
    assert lines()[4:] == ["a debugger's"] + ["MQB2301W seen"] * 5
    set_level("error")
    log.warning("MQB2301W hidden now")
    for _ in range(4):
        log.error("MQB2103E once")
    assert lines()[10:] == ["MQB2103E once"] * 3
    root.handlers[0].close()
    assert lines()[13:] == ["MQB2103E once (repeated once more in 10 s)"]


def test_a_reconfigured_log_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a reload, combined lines are logged in the old format, and later lines in the new one."""
    root, written = logging.getLogger(), io.StringIO()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(sys, "stderr", written)
    log_module.configure(LogConfig())
    for _ in range(EQUAL_LINES + 1):
        logging.getLogger("bridge.test").warning("MQB2301W seen")
    log_module.configure(LogConfig(format="json"))
    logging.getLogger("bridge.test").warning("MQB2301W seen")
    *texts, count, entry = written.getvalue().splitlines()
    assert len(texts) == EQUAL_LINES
    assert count.endswith("MQB2301W seen (repeated once more in 10 s)")
    assert json.loads(entry)["id"] == "MQB2301W"
    (handler,) = root.handlers
    handler.close()


def test_text_starts_with_the_identifier_and_json_has_it_as_a_field() -> None:
    log_record = record("MQB2103E the will of client %r is refused: MQRC_Q_FULL (2053)", "dev-1")
    assert " WARNING MQB2103E the will of client 'dev-1'" in TextFormatter().format(log_record)
    entry = json.loads(JsonFormatter().format(log_record))
    assert entry["id"] == "MQB2103E"
    assert entry["message"] == "the will of client 'dev-1' is refused: MQRC_Q_FULL (2053)"
    assert "id" not in json.loads(JsonFormatter().format(record("of another package")))
