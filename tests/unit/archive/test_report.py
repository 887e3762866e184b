"""The report: its figures, and the page with them."""

from __future__ import annotations

from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bridge.archive.database import NoRows
from bridge.archive.report import report
from bridge.archive.report_page import Report, ReportSection, page
from bridge.charts import number
from bridge.telemetry.outcome import Outcome
from tests.helpers.archive import NOON, Story, write

WRONG = "MQRC_RFH_ERROR (2334)"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    story = Story().archive(Outcome.STARTED, 0).subscribed("c", 0, "#", 2)
    for place in range(10):
        story.put(place, f"plant/{place % 2}/temp", b"x" * 50, 1, publisher=f"p{place % 2}")
        story.out(place + 0.5, "c", f"plant/{place % 2}/temp", b"x" * 50, 1, since=place + 0.5 - (place + 1) / 100)
    story.mapped(20, "in", "t", b"xyz", destination="Q").mapped(21, "in", "t", b"xy", outcome=Outcome.DELIVERED)
    story.mapped(22, "in", "t", b"x", outcome=Outcome.DEAD_LETTERED, reason=WRONG)
    story.mapped(23, "in", "t", b"x", outcome=Outcome.DISCARDED, reason="it has come round")
    story.mapped(24, "out", "Q", b"x", outcome=Outcome.ACKNOWLEDGED)
    first = len(story.rows)
    story.put(3600, "<b>&", b"", 0, publisher="p0").out(3600, "c", "<b>&", b"", 0, since=3599.9)
    story.put(3601, "plant/0", b"y" * 5000, 2, outcome=Outcome.REFUSED, reason="MQRC_Q_FULL (2053)")
    story.out(3602, "d", "plant/0", b"z", 2, outcome=Outcome.DEAD_LETTERED, reason=WRONG)
    story.out(3602, "e", "plant/0", b"z", 2, outcome=Outcome.DEAD_LETTERED, reason=WRONG)
    story.out(3603, "d", "plant/0", b"z", 1, outcome=Outcome.DISCARDED, reason="expired")
    directory = write(tmp_path_factory.mktemp("report"), story.rows[:first])
    return write(directory, story.rows[first:], moment=NOON + timedelta(hours=1))


@pytest.fixture(scope="module")
def whole(archive: Path) -> Report:
    return report([archive])


def rows(archive_report: Report, key: str) -> list[list[Any]]:
    (section,) = (section for section in archive_report.sections if section.key == key)
    return section.rows


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("hour", [["2026-03-02 12:00", 10, 500, 10, 500], ["2026-03-02 13:00", 1, 0, 1, 0]]),
        ("topics", [["plant/0", 5, 250, 5, 250], ["plant/1", 5, 250, 5, 250], ["<b>&", 1, 0, 1, 0]]),
        ("clients", [["c", 0, 0, 11, 500], ["p0", 6, 250, 0, 0], ["p1", 5, 250, 0, 0], ["d", 0, 0, 0, 0],
                     ["e", 0, 0, 0, 0], ["p", 0, 0, 0, 0]]),
        ("qos", [[0, 1, 0, 1, 0], [1, 10, 500, 10, 500], [2, 0, 0, 0, 0]]),
        ("size", [["empty", 1, 0, 1, 0], ["to 64 B", 10, 500, 10, 500], ["to 16 KiB", 0, 0, 0, 0]]),
        ("latency", [[0, 1, 100.0, 100.0, 100.0, 100.0, 100.0], [1, 10, 50.0, 90.0, 100.0, 100.0, 100.0]]),
        ("dead_letters", [[WRONG, 2]]),
        ("refused", [["MQRC_Q_FULL (2053)", 1]]),
        ("discarded", [["expired", 1]]),
        ("mappings", [["in", 4, 2, 5, 1, 1], ["out", 1, 1, 1, 0, 0]]),
        ("mapping_reasons", [["in", "dead-lettered", WRONG, 1], ["in", "discarded", "it has come round", 1]]),
    ],
)  # fmt: skip
def test_each_section_has_its_figures(whole: Report, key: str, expected: list[list[Any]]) -> None:
    assert rows(whole, key) == expected


def test_messages_belong_to_the_time_at_which_they_were_settled(archive: Path) -> None:
    small = report([archive], start=NOON + timedelta(hours=1), end=NOON + timedelta(hours=1, seconds=1))
    assert small.rows == 2
    assert rows(small, "hour") == [["2026-03-02 13:00", 1, 0, 1, 0]]


def test_an_archive_of_a_version_without_mappings_has_a_report(tmp_path: Path) -> None:
    small = report([Story().put(1, "t", b"a").write_old(tmp_path)])
    assert small.rows == 1 and rows(small, "mappings") == []


def test_an_archive_of_mappings_only_has_a_report(tmp_path: Path) -> None:
    small = report([Story().mapped(1, "m", "t", b"a").write(tmp_path)])
    assert small.rows == 0 and rows(small, "mappings") == [["m", 1, 1, 1, 0, 0]]


def test_levels_and_top_limit_the_rows(archive: Path) -> None:
    small = report([archive], levels=1, top=2)
    assert [row[0] for row in rows(small, "topics")] == ["plant", "<b>&"]
    assert [row[0] for row in rows(small, "clients")] == ["c", "p0"]


def test_a_period_without_messages_is_reported(archive: Path) -> None:
    with pytest.raises(NoRows, match="no messages"):
        report([archive], start=NOON + timedelta(minutes=30), end=NOON + timedelta(minutes=31))


class Page(HTMLParser):
    """Return the elements of a page. Fails if tags are not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_needs_no_other_files(whole: Report) -> None:
    parsed = Page(page(whole))
    names = {name for _, attributes in parsed.tags for name in attributes}
    assert not names & {"src", "href", "onclick"}
    assert not {tag for tag, _ in parsed.tags} & {"script", "link", "img", "iframe"}
    (style,) = (text for text in parsed.texts if "prefers-color-scheme: dark" in text)
    assert "url(" not in style and "@import" not in style


def test_each_chart_has_a_table(whole: Report) -> None:
    parsed = Page(page(whole))
    charts = [attributes["aria-label"] for tag, attributes in parsed.tags if tag == "svg"]
    assert charts == [section.title for section in whole.sections]
    assert [tag for tag, _ in parsed.tags].count("caption") == len(charts)
    assert "<b>&" in parsed.texts  # text of clients is escaped
    assert WRONG in parsed.texts


def test_a_section_without_rows_reports_that() -> None:
    parsed = Page(page(Report(None, NOON, 0, [ReportSection("refused", "Refused", ["reason"], [])])))
    assert "none" in parsed.texts
    assert any("to 2026-03-02 12:00:00 UTC" in text for text in parsed.texts)


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "0"), (1234567, "1,234,567"), (2.0, "2"), (0.123, "0.12"), (1234.56, "1,234.6")]
)
def test_numbers_are_short(value: float, expected: str) -> None:
    assert number(value) == expected
