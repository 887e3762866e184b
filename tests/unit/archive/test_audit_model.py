"""The audit has the same results as a simple Python program, for any archive."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.archive.audit import audit
from bridge.archive.history import NEVER
from bridge.archive.schema import NAMES
from bridge.telemetry.outcome import Outcome
from tests.helpers import naive_audit
from tests.helpers.archive import NOON, Story, write

CLIENTS, PUBLISHERS = st.sampled_from(["a", "b"]), st.sampled_from(["p", "p", "p", "p", "q", ""])
TOPICS, FILTERS = st.sampled_from(["t", "t", "u/v"]), st.sampled_from(["t", "u/+", "#"])
QOS, MESSAGE_IDS, PAYLOADS = st.integers(0, 2), st.integers(0, 9), st.sampled_from([b"x", b"y"])
#: Seconds since the previous event.
STEPS = st.sampled_from([0.0, 0.005, 1.0, 1.0, 1.0, 5.0, 200.0])
OUTCOMES = st.sampled_from([None, None, None, None, None, None, Outcome.DEAD_LETTERED, Outcome.DISCARDED])
FATES = st.sampled_from([Outcome.PUT, Outcome.ACKNOWLEDGED, Outcome.REFUSED, Outcome.DEAD_LETTERED])
MSG_IDS = st.sampled_from([None, b"1", b"2"])
SESSIONS = st.sampled_from([Outcome.CONNECTED, Outcome.DISCONNECTED, Outcome.ENDED, Outcome.UNSUBSCRIBED])

EVENTS = {
    "subscribed": st.tuples(CLIENTS, FILTERS, QOS, st.booleans()),
    "session": st.tuples(SESSIONS, CLIENTS, FILTERS),
    "put": st.tuples(TOPICS, PAYLOADS, QOS, PUBLISHERS, MESSAGE_IDS, st.integers(1, 10)),
    # One of the last published messages.
    "delivered": st.tuples(CLIENTS, st.integers(0, 4), OUTCOMES),
    "out": st.tuples(CLIENTS, TOPICS, PAYLOADS, QOS, PUBLISHERS, MESSAGE_IDS, OUTCOMES, st.integers(1, 20)),
    "mapped": st.tuples(CLIENTS, TOPICS, PAYLOADS, MESSAGE_IDS, MSG_IDS, st.integers(0, 2), FATES),
    "archive": st.tuples(st.sampled_from([Outcome.STARTED, Outcome.STOPPED, Outcome.GAP])),
}
#: Frequency of each event.
SHARES = {"subscribed": 2, "session": 1, "put": 12, "delivered": 14, "out": 1, "mapped": 3}
ORDINARY = st.sampled_from([kind for kind, share in SHARES.items() for _ in range(share)])


def stories(kinds: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[float, tuple[Any, ...]]]]:
    event = kinds.flatmap(lambda kind: EVENTS[kind].map(lambda values: (kind, *values)))
    return st.lists(st.tuples(STEPS, event), min_size=20, max_size=60)


#: Archives with and without periods of missing rows, for which no loss is certain.
STORIES = st.one_of(stories(ORDINARY), stories(st.one_of(ORDINARY, ORDINARY, ORDINARY, st.just("archive"))))
SUBSCRIBED = [(0.0, ("subscribed", client_id, "#", 2, True)) for client_id in "ab"]


def apply_event(story: Story, time: float, event: tuple[Any, ...], puts: list[tuple[Any, ...]]) -> None:
    match event:
        case "subscribed", client_id, topic, qos, durable:
            story.subscribed(client_id, time, topic, qos, durable=durable)
        case "session", outcome, client_id, topic:
            story.session(outcome, client_id, time, topic if outcome == Outcome.UNSUBSCRIBED else "")
        case "put", topic, payload, qos, publisher, packet_id, chance:
            outcome = Outcome.REFUSED if chance == 1 else Outcome.PUT
            story.put(time, topic, payload, qos, publisher=publisher, packet_id=packet_id, outcome=outcome)
            puts.append((time, topic, payload, qos, publisher, packet_id))
        case "out", client_id, topic, payload, qos, publisher, packet_id, outcome, chance:
            story.out(
                time,
                client_id,
                topic,
                payload,
                qos,
                publisher=publisher,
                packet_id=packet_id,
                outcome=outcome,
                retain=chance == 1,
                replayed="run" if chance == 2 else None,
            )
        case "delivered", client_id, back, outcome:
            if back < len(puts):
                since, topic, payload, qos, publisher, packet_id = puts[-1 - back]
                story.out(
                    time,
                    client_id,
                    topic,
                    payload,
                    qos,
                    publisher=publisher,
                    packet_id=packet_id,
                    outcome=outcome,
                    since=since,
                )
        case "mapped", mapping, topic, payload, packet_id, msg_id, times_sent, outcome:
            story.mapped(
                time,
                mapping,
                topic,
                payload,
                packet_id=packet_id,
                msg_id=msg_id,
                times_sent=times_sent,
                outcome=outcome,
                since=time - times_sent,
            )
        case "archive", outcome:
            story.archive(outcome, time, since=time - 2, rows=3)


@given(
    STORIES,
    st.sampled_from([None, 0.0, 0.5, 60.0]),
    st.sampled_from([None, 0, 100, 400]),
    st.sampled_from([None, 50, 600]),
    st.integers(1, 3),
)
def test_results_equal_those_of_a_simple_program(
    events: list[tuple[float, tuple[Any, ...]]], late: float | None, first: int | None, length: int | None, files: int
) -> None:
    story = Story()
    puts: list[tuple[Any, ...]] = []
    time = 0.0
    for step, event in SUBSCRIBED + events:
        time += step
        apply_event(story, time, event, puts)
    start = None if first is None else NOON + timedelta(seconds=first)
    end = None if length is None else (start or NOON) + timedelta(seconds=length)
    low = 0 if start is None else int(start.timestamp() * 1_000_000)
    high = NEVER if end is None else int(end.timestamp() * 1_000_000)
    with tempfile.TemporaryDirectory() as name:
        for rows in parts(story.rows, files):
            write(Path(name), rows)
        verdict = audit([Path(name)], start=start, end=end, late=late)
    rows = [dict(zip(NAMES, row, strict=True)) for row in story.rows]
    findings = {
        (finding.client_id, finding.topic, finding.qos): (finding.counts, finding.first, finding.slowest)
        for finding in verdict.findings
    }
    assert findings == naive_audit.audit(rows, low, high, late)
    assert verdict.mappings == naive_audit.mappings(rows, low, high, late)
    assert verdict.gaps == [
        {"from": moment(gap.start), "to": moment(gap.end), "rows": gap.rows}
        for gap in naive_audit.history_of(rows).gaps
    ]


def parts(rows: list[Any], count: int) -> list[list[Any]]:
    """Distribute rows over files, the later ones first."""
    size = -(-len(rows) // count)
    return [rows[first : first + size] for first in reversed(range(0, len(rows), size))]


def moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)
