"""The audit: each case is a separate client in one archive."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from bridge.archive.audit import Audit, Counts, MappingCounts, audit
from bridge.archive.database import NoRows
from bridge.telemetry.outcome import Outcome
from tests.helpers.archive import NOON, Story, write

Tell = Callable[[Story, str], object]

#: Each archive ends at this time.
LAST = 1000.0


def put_out(story: Story, c: str, payloads: str, out: str, qos: int = 1) -> Story:
    """A client with a subscription to its own topic. The payloads are single letters, delivered in the order of `out`."""
    story.subscribed(c, 0, f"{c}/#", 2)
    for place, letter in enumerate(payloads):
        story.put(10 + place, f"{c}/t", letter.encode(), qos, packet_id=place + 1 if qos else 0)
    for place, letter in enumerate(out):
        number = payloads.index(letter) + 1 if letter in payloads and qos else 0
        story.out(30 + place, c, f"{c}/t", letter.encode(), qos, packet_id=number)
    return story


def away(story: Story, c: str, time: float = 20) -> Story:
    return story.session(Outcome.DISCONNECTED, c, time)


def overlapping(story: Story, c: str, copies: int) -> Story:
    story.subscribed(c, 0, f"{c}/#", 2).session(Outcome.SUBSCRIBED, c, 1, f"{c}/+", 1)
    story.put(10, f"{c}/t", b"a", 2, packet_id=1).put(11, f"{c}/t", b"a", 2, packet_id=1)
    for copy in range(copies):
        story.out(12 + copy, c, f"{c}/t", b"a", 2, packet_id=1)
    return story


def between(story: Story, c: str) -> Story:
    """Put a message during a subscription request: the audit cannot decide about it."""
    story.session(Outcome.CONNECTED, c, 9).session(Outcome.SUBSCRIBED, c, 10, f"{c}/#", 1)
    return story.put(10.005, f"{c}/t", b"a")


#: client -> (events, result)
CASES: dict[str, tuple[Tell, Counts]] = {
    "delivered": (lambda s, c: put_out(s, c, "abc", "abc"), Counts(expected=3, delivered=3)),
    "lost": (lambda s, c: put_out(s, c, "abc", "ac"), Counts(expected=3, delivered=2, lost=1)),
    "lost-2": (lambda s, c: put_out(s, c, "abc", "", qos=2), Counts(expected=3, lost=3)),
    "missing-0": (lambda s, c: put_out(s, c, "abc", "ac", qos=0), Counts(expected=3, delivered=2, missing=1)),
    "doubled-2": (lambda s, c: put_out(s, c, "ab", "abb", qos=2), Counts(expected=2, delivered=2, doubled=1)),
    "doubled-0": (lambda s, c: put_out(s, c, "ab", "aba", qos=0), Counts(expected=2, delivered=2, doubled=1)),
    "repeated-1": (lambda s, c: put_out(s, c, "ab", "abb"), Counts(expected=2, delivered=2, repeated=1)),
    "disordered": (lambda s, c: put_out(s, c, "abcd", "acbd"), Counts(expected=4, delivered=4, disordered=1)),
    "disordered-twice": (lambda s, c: put_out(s, c, "abcd", "adbc"), Counts(expected=4, delivered=4, disordered=2)),
    "alike": (lambda s, c: put_out(put_out(s, c, "", ""), c, "aaa", "aaa", 0), Counts(expected=3, delivered=3)),
    "lowered": (
        lambda s, c: s.subscribed(c, 0, f"{c}/#", 0).put(10, f"{c}/t", b"a", 2, packet_id=1)
        .out(11, c, f"{c}/t", b"a", 0, packet_id=1).put(12, f"{c}/t", b"b", 2, packet_id=2),
        Counts(expected=2, delivered=1, missing=1),
    ),
    "pending": (lambda s, c: away(put_out(s, c, "ab", "a"), c), Counts(expected=2, delivered=1, pending=1)),
    "overtaken": (lambda s, c: away(put_out(s, c, "ab", "b"), c), Counts(expected=2, delivered=1, lost=1)),
    "under-way": (
        lambda s, c: s.subscribed(c, 0, f"{c}/#", 1).put(LAST - 1, f"{c}/t", b"a"), Counts(expected=1, pending=1)
    ),
    "back-again": (
        lambda s, c: away(put_out(s, c, "a", ""), c).session(Outcome.CONNECTED, c, LAST - 2), Counts(expected=1, pending=1)
    ),
    "ended": (lambda s, c: put_out(s, c, "a", "").session(Outcome.ENDED, c, 50), Counts(expected=1, ended=1)),
    "before-subscribing": (
        lambda s, c: s.put(1, f"{c}/t", b"a").subscribed(c, 5, f"{c}/#", 1).put(6, f"{c}/t", b"b")
        .out(7, c, f"{c}/t", b"b"),
        Counts(expected=1, delivered=1),
    ),
    "while-subscribing": (between, Counts()),
    "at-the-suback": (
        lambda s, c: s.session(Outcome.CONNECTED, c, 9).session(Outcome.SUBSCRIBED, c, 10, f"{c}/#", 1)
        .put(10 + 0.01, f"{c}/t", b"a"),
        Counts(),
    ),
    "at-the-unsuback": (
        lambda s, c: s.subscribed(c, 0, f"{c}/#", 1).session(Outcome.UNSUBSCRIBED, c, 20, f"{c}/#")
        .put(20 + 0.01, f"{c}/t", b"a").out(21, c, f"{c}/t", b"a"),
        Counts(delivered=1),
    ),
    "after-unsubscribing": (
        lambda s, c: put_out(s, c, "a", "a").session(Outcome.UNSUBSCRIBED, c, 20, f"{c}/#").put(21, f"{c}/t", b"b"),
        Counts(expected=1, delivered=1),
    ),
    "overlapping-once": (lambda s, c: overlapping(s, c, 2), Counts(expected=2, delivered=2)),
    "overlapping-twice": (lambda s, c: overlapping(s, c, 4), Counts(expected=2, delivered=4)),
    "overlapping-too-often": (lambda s, c: overlapping(s, c, 5), Counts(expected=2, delivered=4, doubled=1)),
    "dead-lettered": (
        lambda s, c: put_out(s, c, "a", "").out(
            20, c, f"{c}/t", b"a", packet_id=1, outcome=Outcome.DEAD_LETTERED, reason="MQRC_RFH_ERROR (2334)"
        ),
        Counts(expected=1, dead_lettered=1),
    ),
    "expired": (
        lambda s, c: put_out(s, c, "a", "").out(
            20, c, f"{c}/t", b"a", packet_id=1, outcome=Outcome.DISCARDED, reason="expired"
        ),
        Counts(expected=1, discarded=1),
    ),
    "refused": (
        lambda s, c: s.subscribed(c, 0, f"{c}/#", 1)
        .put(10, f"{c}/t", b"a", outcome=Outcome.REFUSED).put(11, f"{c}/t", b"b").out(12, c, f"{c}/t", b"b"),
        Counts(expected=1, delivered=1),
    ),
    "retained": (
        lambda s, c: put_out(s, c, "a", "a").out(60, c, f"{c}/t", b"a", packet_id=1, retain=True),
        Counts(expected=1, delivered=1),
    ),
    "replayed": (
        lambda s, c: put_out(s, c, "a", "a").out(60, c, f"{c}/t", b"a", packet_id=1, replayed="run-1"),
        Counts(expected=1, delivered=1),
    ),
    "by-applications": (
        lambda s, c: s.subscribed(c, 0, f"{c}/#", 1).out(10, c, f"{c}/t", b"a", publisher=""), Counts()
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def verdict(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    story = Story().archive(Outcome.STARTED, -10)
    for client_id, (tell, _) in CASES.items():
        tell(story, client_id)
    story.archive(Outcome.STOPPED, LAST)
    return audit([story.write(tmp_path_factory.mktemp("archive"))])


@pytest.mark.parametrize("client_id", CASES)
def test_each_case_has_the_expected_counts(verdict: Audit, client_id: str) -> None:
    total = Counts()
    for finding in verdict.findings:
        if finding.client_id == client_id:
            total.add(finding.counts)
    assert total == CASES[client_id][1]


def test_the_totals_determine_the_verdict(verdict: Audit) -> None:
    total = Counts()
    for _, counts in CASES.values():
        total.add(counts)
    assert verdict.totals == total
    assert not verdict.held
    assert sum(counts.expected for counts in verdict.by_qos.values()) == total.expected
    assert verdict.by_qos["0"].lost == 0
    assert verdict.gaps == []


def test_breaches_come_first_with_an_example(verdict: Audit) -> None:
    broken = [finding for finding in verdict.findings if finding.first]
    assert verdict.findings[: len(broken)] == broken
    breaches = {(example.breach, example.row["topic"].split("/")[0]) for example in verdict.examples}
    assert breaches == {(breach, finding.client_id) for finding in broken for breach in finding.first}
    (lost,) = (example.row for example in verdict.examples if example.row["topic"] == "overtaken/t")
    assert lost["received"] == NOON + timedelta(seconds=10) and lost["publisher"] == "p"


def test_late_deliveries_are_counted(tmp_path: Path) -> None:
    story = Story().subscribed("here", 0, "t", 1).put(10, "t", b"a").out(15, "here", "t", b"a", since=10)
    story.put(20, "t", b"b").out(21, "here", "t", b"b", since=20)
    # A client that was disconnected gets a message in time if it gets it soon after its return.
    story.subscribed("gone", 0, "u", 1).session(Outcome.DISCONNECTED, "gone", 5).put(10, "u", b"a")
    story.session(Outcome.CONNECTED, "gone", 100).out(101, "gone", "u", b"a", since=10)
    story.write(tmp_path)
    strict, lenient, without = (audit([tmp_path], late=limit) for limit in (3.0, 6.0, None))
    assert {finding.client_id: finding.counts.late for finding in strict.findings} == {"here": 1, "gone": 0}
    assert not strict.held
    assert lenient.held and without.held and lenient.totals.late == without.totals.late == 0
    assert {finding.client_id: round(finding.slowest or 0, 1) for finding in lenient.findings} == {
        "here": 5.0,
        "gone": 91.0,
    }


def test_only_publications_in_the_period_are_checked(tmp_path: Path) -> None:
    story = Story().subscribed("c", 0, "t", 2)
    for minute in range(10):
        story.put(60 * minute, "t", b"%d" % minute, 2, packet_id=minute + 1)
    story.session(Outcome.DISCONNECTED, "c", 590)
    story.session(Outcome.CONNECTED, "c", 700)
    # 2 is lost, 7 is repeated, and all arrive after the period.
    for place, minute in enumerate([0, 1, 3, 4, 5, 6, 7, 7, 8, 9]):
        story.out(720 + place, "c", "t", b"%d" % minute, 2, packet_id=minute + 1, since=60 * minute + 0.002)
    story.write(tmp_path)

    def totals(first: float, last: float) -> Counts:
        start, end = (NOON + timedelta(minutes=minutes) for minutes in (first, last))
        return audit([tmp_path], start=start, end=end).totals

    assert totals(1, 5) == Counts(expected=4, delivered=3, lost=1)
    assert totals(3, 7) == Counts(expected=4, delivered=4)
    assert totals(6.5, 8) == Counts(expected=1, delivered=1, doubled=1)


def test_losses_are_unknown_in_periods_with_missing_rows(tmp_path: Path) -> None:
    story = Story().archive(Outcome.STARTED, -1)
    story.subscribed("c", 0, "t", 2)
    story.put(1, "t", b"a", 2, packet_id=1).put(2, "t", b"b", 2, packet_id=2)
    story.out(3, "c", "t", b"a", 2, packet_id=1, since=1)
    story.archive(Outcome.STARTED, 10)  # killed at some time after 3
    story.session(Outcome.SUBSCRIBED, "c", 10, "t", 2).session(Outcome.CONNECTED, "c", 11)
    story.out(12, "c", "t", b"a", 2, packet_id=1, since=5)  # the row of its publication is missing
    story.put(20, "t", b"c", 2, packet_id=3).put(100, "t", b"d", 2, packet_id=4)
    story.out(101, "c", "t", b"d", 2, packet_id=4)
    story.write(tmp_path)
    verdict = audit([tmp_path])
    assert verdict.totals == Counts(expected=4, delivered=2, unknown=2, lost=1)
    assert [(gap["from"], gap["to"], gap["rows"]) for gap in verdict.gaps] == [
        (NOON + timedelta(seconds=3), NOON + timedelta(seconds=10), None)
    ]


def test_mappings_are_counted_separately(tmp_path: Path) -> None:
    story = Story().subscribed("c", 0, "t", 2).put(1, "t", b"a", 2, packet_id=1)
    story.out(2, "c", "t", b"a", 2, packet_id=1)
    story.mapped(2, "q", "t", b"a", msg_id=b"1" * 24, packet_id=1).mapped(
        3, "q", "t", b"a", msg_id=b"2" * 24, packet_id=1
    )
    story.mapped(9, "q", "t", b"a", msg_id=b"1" * 24, packet_id=1, since=2)  # repeated, and late
    story.mapped(4, "q", "t", b"b", msg_id=b"3" * 24, outcome=Outcome.DEAD_LETTERED)
    story.mapped(5, "q", "t", b"b", msg_id=b"3" * 24, outcome=Outcome.DISCARDED)
    story.mapped(6, "q", "t", b"b", msg_id=b"3" * 24)
    for dup in (1, 1, 2):  # the same message id for another message, and then again
        story.mapped(7, "l", "t", b"a", packet_id=5, times_sent=dup, outcome=Outcome.ACKNOWLEDGED)
    story.mapped(7, "l", "t", b"", times_sent=2).mapped(8, "l", "t", b"", times_sent=2, outcome=Outcome.REFUSED)
    story.write(tmp_path)
    verdict = audit([tmp_path], late=3)
    assert verdict.totals == Counts(expected=1, delivered=1) and verdict.held
    assert verdict.mappings == [
        MappingCounts("l", taken=5, put=4, discarded=1, doubled=1, slowest=0.1),
        MappingCounts("q", taken=6, put=4, dead_lettered=1, discarded=1, doubled=1, late=1, slowest=7.0),
    ]
    only = audit([tmp_path], start=NOON + timedelta(seconds=5), end=NOON + timedelta(seconds=6)).mappings
    assert [(counts.mapping, counts.taken) for counts in only] == [("q", 1)]


def test_an_archive_of_a_version_without_mappings_can_be_audited(tmp_path: Path) -> None:
    story = Story().subscribed("c", 0, "t", 1).put(1, "t", b"a").out(2, "c", "t", b"a")
    verdict = audit([story.write_old(tmp_path)])
    assert verdict.held and verdict.totals == Counts(expected=1, delivered=1) and verdict.mappings == []


def test_several_directories_are_one_archive(tmp_path: Path) -> None:
    story = Story().subscribed("c", 0, "t", 1).put(1, "t", b"a").out(2, "c", "t", b"a")
    write(tmp_path / "one", story.rows[:3])
    write(tmp_path / "two", story.rows[3:], moment=NOON + timedelta(hours=3))
    verdict = audit([tmp_path / "one", tmp_path / "two"])
    assert verdict.held and verdict.totals == Counts(expected=1, delivered=1)


def test_a_missing_archive_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NoRows, match="no rows of an archive"):
        audit([tmp_path])
