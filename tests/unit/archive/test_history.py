"""The expected deliveries of clients, from rows about sessions."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.archive.history import NEVER, Interval, SessionHistory
from bridge.archive.schema import NAMES
from bridge.telemetry.outcome import Outcome
from tests.helpers.archive import Story, at

S, U = Outcome.SUBSCRIBED, Outcome.UNSUBSCRIBED


def history_of(story: Story) -> SessionHistory:
    history = SessionHistory()
    history.read(dict(zip(NAMES, values_of_row, strict=True)) for values_of_row in story.rows)
    return history


def interval(
    begin: float,
    end: float | None = None,
    *,
    client_id: str = "c",
    topic: str = "a/#",
    qos: int = 1,
    durable: bool = True,
    end_settled: float | None = None,
) -> Interval:
    certain = NEVER if end is None else at(end)
    possible = certain if end_settled is None else at(end_settled)
    return Interval(client_id, topic, qos, durable, at(begin), at(begin + 0.01), certain, possible)


CASES: dict[str, tuple[Story, list[Interval]]] = {
    "it stands": (Story().session(S, "c", 0, "a/#", 1), [interval(0)]),
    "it ends with UNSUBSCRIBE": (
        Story().session(S, "c", 0, "a/#", 1).session(U, "c", 5, "a/#"),
        [interval(0, 5, end_settled=5.01)],
    ),
    "said again, it goes on": (
        Story().session(S, "c", 0, "a/#", 1).session(S, "c", 5, "a/#", 1),
        [interval(0)],
    ),
    "another QoS is another subscription": (
        Story().session(S, "c", 0, "a/#", 1).session(S, "c", 5, "a/#", 2),
        [interval(0, 5, end_settled=5.01), interval(5, qos=2)],
    ),
    "a session ends with all of them": (
        Story().session(S, "c", 0, "a/#", 1).session(S, "c", 0, "b", 1).session(S, "d", 0, "b", 1)
        .session(Outcome.ENDED, "c", 5),
        [interval(0, 5.01), interval(0, 5.01, topic="b"), interval(0, client_id="d", topic="b")],
    ),
    "an unsubscribe without a subscription": (Story().session(U, "c", 5, "a/#"), []),
    "a kill of the bridge ends clean sessions": (
        Story().archive(Outcome.STARTED, 0).session(S, "c", 1, "a/#", 1).session(S, "d", 2, "a/#", 1, durable=False)
        .archive(Outcome.STARTED, 9),
        [interval(1), interval(2, 2.01, client_id="d", durable=False, end_settled=9)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_subscriptions_apply_to_intervals(case: str) -> None:
    story, expected = CASES[case]
    assert history_of(story).intervals == expected


def test_connections_and_ends_of_clients_are_collected() -> None:
    story = (
        Story()
        .session(Outcome.CONNECTED, "c", 0).session(Outcome.DISCONNECTED, "c", 3)
        .session(Outcome.CONNECTED, "c", 5).session(Outcome.ENDED, "d", 6)
    )  # fmt: skip
    story.rows.append(story.rows[2])  # the next day repeats it
    clients = history_of(story).clients
    assert clients["c"].connects == [at(0.01), at(5.01)] and clients["c"].connected == at(5.01)
    assert clients["d"].ends == [at(6.01)] and clients["d"].connected is None


def test_no_client_is_connected_after_a_restart() -> None:
    story = Story().session(Outcome.CONNECTED, "c", 0).archive(Outcome.STOPPED, 1).archive(Outcome.STARTED, 2)
    assert history_of(story).clients["c"].connected is None


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        pytest.param(Story().archive(Outcome.STARTED, 0).archive(Outcome.STOPPED, 5), [], id="in order"),
        pytest.param(
            Story().archive(Outcome.STARTED, 0).archive(Outcome.STOPPED, 5).archive(Outcome.STARTED, 7), [], id="restarted"
        ),
        pytest.param(
            Story().archive(Outcome.STARTED, 0).session(Outcome.CONNECTED, "c", 4).archive(Outcome.STARTED, 7),
            [(at(4.01), at(7), None)], id="killed",
        ),
        pytest.param(
            Story().archive(Outcome.STARTED, 0).archive(Outcome.GAP, 7, since=6, rows=12), [(at(6), at(7), 12)], id="full"
        ),
    ],
)  # fmt: skip
def test_gaps_have_a_period_and_a_number_of_rows(story: Story, expected: list[Any]) -> None:
    assert [(gap.start, gap.end, gap.rows) for gap in history_of(story).gaps] == expected
