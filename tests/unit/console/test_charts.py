"""Charts, and live views that too much comes for: parts of the console by themselves."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from bridge.console.bridge_access import BridgeAccess
from bridge.console.line_chart import HEIGHT, POINTS, WIDTH, line_chart
from bridge.console.live_views import LiveViews
from bridge.console.samples import rates
from bridge.mq.mqi import MQSD, GetOptions, Got
from bridge.wire.mq import MQMD
from tests.helpers.patience import PATIENCE


def test_rates() -> None:
    """A rate is by how much a total rose in a second; a total that began anew has none."""
    assert rates([0.0, 1.0, 3.0, 4.0], [0, 10, 30, 5]) == [10.0, 10.0, 0.0]
    assert rates([1.0], [7]) == []
    assert rates([1.0, 1.0], [7, 8]) == [0.0]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 600, 5_000])
def test_a_line_is_within_its_chart(count: int) -> None:
    """All points of a line are within the chart, the newest at its right edge, however many values there are."""
    chart = line_chart("Title", 600, [("line", [float(number % 7) for number in range(count)])])
    ((name, _, written),) = chart.lines
    points = [tuple(map(float, point.split(","))) for point in written.split()]
    assert name == "line"
    assert len(points) <= POINTS
    assert all(-0.1 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert not points or points[-1][0] == WIDTH
    assert "Title" in chart.words


@pytest.mark.parametrize(("most", "scale"), [(0, 1), (1, 1), (1.5, 2), (3, 5), (7, 10), (1_001, 2_000)])
def test_the_scale_is_round(most: float, scale: float) -> None:
    """The scale of a chart ends at a round number above its values."""
    assert line_chart("", 600, [("", [most])]).most == scale


class Flood:
    """A connection by which messages come as fast as they are asked for."""

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


async def test_a_view_that_too_much_comes_for_ends() -> None:
    """A view ends where more messages come than it can take from its queue, and says what to do."""
    bridge = Flooded()
    views = LiveViews(cast(BridgeAccess, bridge))
    said = b""
    async with asyncio.timeout(PATIENCE):
        async for event in views.events(views.begin("anna", "flood/#", True), lambda: True):
            said += event
    assert b"take a narrower filter" in said
    assert said.count(b"event: message") <= 200
    assert b"event: end" in said
    await views.stop()
    assert bridge.connection.disconnected
