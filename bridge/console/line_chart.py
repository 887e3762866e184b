"""Line charts as inline SVG; what they look like is the style sheet's business."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

#: Of the drawing, which scales with the page.
WIDTH: Final = 600
HEIGHT: Final = 120
#: Points of a line, at most: of more, so many together are one, at their mean.
POINTS: Final = 200


class LineChart(msgspec.Struct, frozen=True):
    """A chart, ready to be drawn."""

    title: str
    #: what a person reads who does not see the picture
    words: str
    #: for each line its name, its last value, and the points of the polyline
    lines: list[tuple[str, float, str]]
    most: float


def line_chart(title: str, seconds: float, series: Sequence[tuple[str, Sequence[float]]]) -> LineChart:
    """Return a chart of one or several series over so many seconds, the last value at its right edge."""
    gathered = [(name, _gathered(values)) for name, values in series]
    most = _ceiling(max((value for _, values in gathered for value in values), default=0.0))
    lines = []
    words = []
    for (name, values), (_, whole) in zip(gathered, series, strict=True):
        step = WIDTH / (POINTS - 1)
        left = WIDTH - step * (len(values) - 1)
        points = " ".join(
            f"{left + step * place:.1f},{HEIGHT - HEIGHT * value / most:.1f}" for place, value in enumerate(values)
        )
        last = whole[-1] if whole else 0.0
        lines.append((name, last, points))
        if whole:
            words.append(f"{name} now {last:.0f}, from {min(whole):.0f} to {max(whole):.0f}")
    return LineChart(title, f"{title}, last {seconds / 60:.0f} minutes: {'; '.join(words) or 'no values yet'}", lines, most)


def _gathered(values: Sequence[float], together: int = 3) -> list[float]:
    # The groups end at the newest value, so that all of them move by one place at a time.
    found = []
    for end in range(len(values), 0, -together):
        part = values[max(end - together, 0) : end]
        found.append(sum(part) / len(part))
    return found[:POINTS][::-1]


def _ceiling(value: float) -> float:
    """Return the round number above a value that a scale ends at."""
    ceiling = 1.0
    while True:
        for factor in (1.0, 2.0, 5.0):
            if ceiling * factor >= value:
                return ceiling * factor
        ceiling *= 10
