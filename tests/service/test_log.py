"""The log is bounded, whatever clients choose as names and however many errors they make."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from bridge.service.log import KIND_INTERVAL, KIND_LINES, Flood, JsonFormatter, TextFormatter


@pytest.fixture
def lines() -> Iterator[tuple[logging.Logger, io.StringIO, logging.StreamHandler[io.StringIO]]]:
    sink = io.StringIO()
    handler = logging.StreamHandler(sink)
    handler.setFormatter(TextFormatter())
    logger = logging.Logger("test")
    logger.addHandler(handler)
    yield logger, sink, handler


def test_control_characters_of_names_do_not_reach_the_terminal(lines) -> None:
    logger, sink, _ = lines
    logger.warning("client %s", "evil\n2026-01-01 CRITICAL fake \x1b[31m")
    written = sink.getvalue()
    assert written.count("\n") == 1
    assert "\x1b" not in written
    assert "evil\\x0a2026-01-01" in written


def test_long_names_are_cut(lines) -> None:
    logger, sink, _ = lines
    logger.warning("topic %s", "t" * 65_535)
    assert len(sink.getvalue()) < 1_200
    assert "(65541 characters)" in sink.getvalue()


def test_json_is_bounded_too(lines) -> None:
    logger, sink, handler = lines
    handler.setFormatter(JsonFormatter())
    logger.error("topic %s", "t\n" * 65_535)
    entry = json.loads(sink.getvalue())
    assert len(entry["message"]) < 5_000
    assert "\n" not in entry["message"]


def test_many_lines_of_a_kind_become_few(lines) -> None:
    logger, sink, handler = lines
    handler.addFilter(Flood())
    for _ in range(3):
        for number in range(1_000):
            logger.warning("dead letter %d", number)
    logger.warning("something else")
    written = sink.getvalue().splitlines()
    assert len(written) == KIND_LINES + 1
    assert written[-1].endswith("something else")


def test_the_next_interval_tells_what_was_left_out() -> None:
    flood = Flood()
    kept = []
    for number in range(KIND_LINES + 8):
        record = logging.LogRecord("test", logging.WARNING, "here.py", 7, "number %d", (number,), None)
        record.created = 100.0 if number < KIND_LINES + 7 else 100.0 + KIND_INTERVAL
        if flood.filter(record):
            kept.append(record.getMessage())
    assert len(kept) == KIND_LINES + 1
    assert kept[-1] == f"number {KIND_LINES + 7} (7 more like this were left out)"
