"""Selection of a replay: accepted publications in order, by period, topic filter and client."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.archive.replay import COLUMNS, ReplaySelection
from bridge.telemetry.outcome import Outcome
from tests.helpers.archive import NOON, Story, write


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    story = Story().archive(Outcome.STARTED, 0).subscribed("c", 0, "#", 1)
    story.put(1, "a", b"1", publisher="p").put(2, "b/c", b"2", publisher="q").put(3, "$SYS/x", b"3")
    story.put(4, "a", b"4", outcome=Outcome.REFUSED).out(5, "c", "a", b"1")
    first = len(story.rows)
    story.put(3601, "b", b"5").put(3602, "a/b", b"6", publisher="q")
    write(tmp_path, story.rows[:first])
    return write(tmp_path, story.rows[first:], moment=NOON + timedelta(hours=1))


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ({}, "1256"),
        ({"topic_filter": "a/#"}, "16"),
        ({"topic_filter": "+"}, "15"),
        ({"topic_filter": "$SYS/#"}, "3"),
        ({"clients": ["q"]}, "26"),
        ({"clients": ["q", "nobody"]}, "26"),
        ({"clients": ["q", "p"]}, "1256"),
        ({"start": NOON + timedelta(seconds=2)}, "256"),
        ({"end": NOON + timedelta(seconds=2)}, "1"),
        ({"start": NOON + timedelta(hours=1), "end": NOON + timedelta(seconds=3602)}, "5"),
        ({"topic_filter": "b/#", "clients": ["q"]}, "2"),
        ({"topic_filter": "nothing"}, ""),
    ],
)
def test_accepted_publications_are_selected_in_order(archive: Path, criteria: dict[str, Any], expected: str) -> None:
    selection = ReplaySelection(archive, **criteria)
    payloads = [row["payload"].decode() for batch in selection.batches(0, ["payload"]) for row in batch]
    assert "".join(payloads) == expected
    assert selection.count() == len(expected)


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ({"mapping": "m"}, "bd"),
        ({"mapping": "n"}, "e"),
        ({"mapping": "m", "topic_filter": "t/+"}, "b"),
        ({"mapping": "m", "clients": ["q"]}, "d"),
        ({"mapping": "nobody"}, ""),
        ({}, "a"),
    ],
)
def test_messages_of_mappings_are_selected(tmp_path: Path, criteria: dict[str, Any], expected: str) -> None:
    story = Story().put(1, "t/a", b"a").mapped(2, "m", "t/a", b"b", destination="Q")
    story.mapped(3, "m", "t/a", b"c", outcome=Outcome.DEAD_LETTERED)
    story.mapped(4, "m", "Q", b"d", outcome=Outcome.ACKNOWLEDGED, publisher="q")
    story.mapped(5, "n", "Q", b"e", outcome=Outcome.DELIVERED)
    selection = ReplaySelection(story.write(tmp_path), **criteria)
    payloads = [row["payload"].decode() for batch in selection.batches(0, ["payload"]) for row in batch]
    assert "".join(payloads) == expected
    assert selection.count() == len(expected)


@pytest.mark.parametrize(("criteria", "expected"), [({}, "12"), ({"mapping": "m"}, ""), ({"clients": ["q"]}, "2")])
def test_an_archive_of_a_version_without_mappings_can_be_read(
    tmp_path: Path, criteria: dict[str, Any], expected: str
) -> None:
    story = Story().put(1, "a", b"1").put(2, "b", b"2", publisher="q")
    selection = ReplaySelection(story.write_old(tmp_path), **criteria)
    payloads = [row["payload"].decode() for batch in selection.batches(0, COLUMNS) for row in batch]
    assert "".join(payloads) == expected


def test_reading_continues_after_a_position(archive: Path) -> None:
    selection = ReplaySelection(archive)
    rows = [row for batch in selection.batches(0, ["payload"]) for row in batch]
    assert [row for batch in selection.batches(rows[1]["sequence"], ["payload"]) for row in batch] == rows[2:]
    assert selection.count(rows[1]["sequence"]) == 2
