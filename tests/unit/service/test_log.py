"""The size of the log is limited, whatever names clients choose and however many errors they cause."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from bridge.service import log as log_module
from bridge.service.log import KIND_INTERVAL, KIND_LINES, Flood, JsonFormatter, TextFormatter
from bridge.transport.layers import Peer


@pytest.fixture
def lines() -> Iterator[tuple[logging.Logger, io.StringIO, logging.StreamHandler[io.StringIO]]]:
    sink = io.StringIO()
    handler = logging.StreamHandler(sink)
    handler.setFormatter(TextFormatter())
    logger = logging.Logger("test")
    logger.addHandler(handler)
    yield logger, sink, handler


def test_control_characters_of_names_do_not_reach_the_terminal(lines: Any) -> None:
    logger, sink, _ = lines
    logger.warning("client %s", "evil\n2026-01-01 CRITICAL fake \x1b[31m")
    written = sink.getvalue()
    assert written.count("\n") == 1
    assert "\x1b" not in written
    assert "evil\\x0a2026-01-01" in written


def test_long_names_are_truncated(lines: Any) -> None:
    logger, sink, _ = lines
    logger.warning("topic %s", "t" * 65_535)
    assert len(sink.getvalue()) < 1_200
    assert "(65541 characters)" in sink.getvalue()


def test_json_is_limited_too(lines: Any) -> None:
    logger, sink, handler = lines
    handler.setFormatter(JsonFormatter())
    logger.error("topic %s", "t\n" * 65_535)
    entry = json.loads(sink.getvalue())
    assert len(entry["message"]) < 5_000
    assert "\n" not in entry["message"]


def test_json_has_fields_for_client_address_and_reason(lines: Any) -> None:
    logger, sink, handler = lines
    handler.setFormatter(JsonFormatter())
    logger.error("client %s: %s", Peer("10.0.0.7:5", "dev-1"), "MQRC_Q_FULL (2053)")
    logger.error("nobody in particular")
    first, second = map(json.loads, sink.getvalue().splitlines())
    assert first["message"] == "client 'dev-1' at 10.0.0.7:5: MQRC_Q_FULL (2053)"
    assert (first["client"], first["address"], first["reason"]) == ("dev-1", "10.0.0.7:5", "MQRC_Q_FULL")
    assert not {"client", "address", "reason"} & set(second)


def test_the_number_of_combined_lines_is_logged_after_the_interval() -> None:
    """Even if no further line with the identifier follows. The number is a separate line."""
    flood = Flood()
    for number in range(3_000):
        record = logging.LogRecord("test", logging.WARNING, "here.py", 7, "number %d", (number,), None)
        record.created = 100.0
        assert flood.filter(record) is (number < KIND_LINES)
    assert flood.due(100.0 + KIND_INTERVAL - 0.1) == []
    (summary,) = flood.due(100.0 + KIND_INTERVAL)
    assert summary.getMessage() == f"{3_000 - KIND_LINES} more lines like this were left out, the last: number 2999"
    assert flood.filter(summary)
    assert flood.due(1e9) == []
    record.created = 200.0
    assert flood.filter(record)


def test_times_have_a_time_zone(lines: Any) -> None:
    logger, sink, _ = lines
    logger.warning("now")
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d WARNING now$", sink.getvalue())


def test_lines_for_the_journal_have_priorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line of a traceback, too (sd-daemon(3))."""
    monkeypatch.setattr(log_module, "is_journal", lambda: True)
    formatter = TextFormatter()
    for level, priority in ((logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3), (logging.CRITICAL, 2)):
        record = logging.LogRecord("test", level, "here.py", 7, "said", (), None)
        record.exc_text = "Traceback\n  line"
        assert [line[:3] for line in formatter.format(record).split("\n")] == [f"<{priority}>"] * 3


def test_fields_of_a_record_are_short_and_printable() -> None:
    record = logging.LogRecord("bridge", logging.WARNING, "", 0, "MQB5101W text", (), None)
    record.fields = {"topic": "a\n" + "x" * 70_000}
    topic = json.loads(JsonFormatter().format(record))["topic"]
    assert topic.startswith("a\\x0ax") and len(topic) < 10_000
