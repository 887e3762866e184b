"""Charts, the history they show, and live views with too many messages."""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

import pytest

from bridge.charts import BOTTOM, LEFT, RIGHT, TOP, ceiling, line_chart
from bridge.console.bridge_access import BridgeAccess
from bridge.console.live_views import LiveViews
from bridge.mq.mqi import MQSD, GetOptions, Got
from bridge.service.activity import COARSE, FINE, MAX_POINTS, HistoryRecorder, Sample
from bridge.wire.mq import MQMD
from tests.helpers.patience import PATIENCE


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 240])
def test_a_line_is_within_the_plot_area(count: int) -> None:
    """All points of a line are within the axes, the newest at the right edge, however many values there are."""
    times = [1_000.0 + number for number in range(count)]
    values = [float(number % 7) for number in range(count)]
    chart = line_chart("Title", times, [("line", values)], 1_000.0, times[-1] if count else 0)
    written = re.findall(r'points="([^"]+)"', chart.svg)
    points = [tuple(map(float, point.split(","))) for path in written for point in path.split()]
    assert len(points) == count
    assert all(LEFT <= x <= RIGHT and TOP <= y <= BOTTOM for x, y in points)
    assert count < 2 or points[-1][0] == RIGHT
    assert "Title" in chart.description


def test_unknown_values_interrupt_a_line() -> None:
    chart = line_chart("", [0.0, 1.0, 2.0, 3.0, 4.0], [("line", [1.0, 2.0, None, 3.0, 4.0])], 0.0, 4.0)
    assert chart.svg.count("<polyline") == 2
    assert chart.legend == [("line", 4.0)]


@pytest.mark.parametrize(("most", "scale"), [(0, 1), (1, 1), (1.5, 2), (3, 4), (7, 10), (1_001, 2_000)])
def test_the_axis_ends_at_a_round_number(most: float, scale: float) -> None:
    assert ceiling(most) == scale


def sample(time: float, published: int, backlog: int | None = 0) -> Sample:
    return Sample(time, published, 0, 1, 2, backlog, 0)


def recorder() -> HistoryRecorder:
    nothing = cast("Any", None)
    return HistoryRecorder(nothing, nothing, nothing, nothing, nothing)


def test_rates_are_increases_per_second() -> None:
    """If a total decreases because counting has restarted, the rate is 0."""
    history = recorder()
    for time, published in ((0.0, 0), (1.0, 10), (3.0, 30), (4.0, 5)):
        history.add(sample(time, published))
    assert history.history(600, 4.0).published == [None, 10.0, 10.0, 0.0]


@pytest.mark.parametrize("seconds", [600, 3_600, 86_400])
def test_the_history_is_limited(seconds: int) -> None:
    history, now = recorder(), 2 * 86_400
    for time in range(now + 1):
        history.add(sample(float(time), time, None if time % 2 else 7))
    samples = history.history(seconds, float(now))
    assert 50 < len(samples.times) <= MAX_POINTS
    assert samples.times[-1] == now
    assert samples.times[0] >= now - seconds
    assert {rate for rate in samples.published if rate is not None} == {1.0}
    assert len(history._fine) + len(history._coarse) <= FINE + COARSE + 2


class Flood:
    """A connection that returns a message for each MQGET at once."""

    def __init__(self) -> None:
        self.disconnected = False

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        return 1, 2

    def get(self, handle: int, options: GetOptions) -> Got:
        return Got(md=MQMD(), data=b"x", DataLength=1)

    def disconnect(self) -> None:
        self.disconnected = True


class Flooded:
    def __init__(self) -> None:
        self.connection = Flood()

    def connect(self) -> Flood:
        return self.connection


async def test_a_view_with_too_many_messages_ends() -> None:
    bridge = Flooded()
    views = LiveViews(cast(BridgeAccess, bridge))
    output = b""
    async with asyncio.timeout(PATIENCE):
        async for event in views.topic("anna", "flood/#", True, lambda: True).body_iterator:
            output += event if isinstance(event, bytes) else str(event).encode()
    assert b"Use a narrower filter" in output
    assert output.count(b"event: message") <= 200
    assert b"event: end" in output
    await views.stop()
    assert bridge.connection.disconnected
