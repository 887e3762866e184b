"""Charts as inline SVG, for the console and the archive's report. A style sheet sets the colours s0 to s3 and grid."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
from markupsafe import Markup, escape

#: Sizes of line charts and of bar and column charts, in units of the viewBox, which scales with the page.
LINE_WIDTH, LINE_HEIGHT = 480, 190
WIDTH: Final = 640
_COLUMNS_HEIGHT: Final = 226
#: The plot area of a line chart.
LEFT, RIGHT, TOP, BOTTOM = 62, 470, 10, 160
#: Steps between time labels, in seconds.
_TIME_STEPS: Final = (60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 14_400, 21_600, 43_200, 86_400)
_LABEL_LENGTH: Final = 28

#: A series: its name and its values, None for unknown ones.
Series = tuple[str, Sequence[float | None]]


class Chart(msgspec.Struct, frozen=True):
    """A chart, ready to be drawn."""

    title: str
    #: alternative text for screen readers
    description: str
    svg: Markup
    #: the name of each series and its last value
    legend: list[tuple[str, float | None]]


def number(value: float) -> str:
    """Format a number for display."""
    if isinstance(value, float) and value != int(value):
        return f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"
    return f"{int(value):,}"


def short_number(value: float) -> str:
    """Format a number for an axis."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if value >= size:
            return f"{value / min(size, 1_000 if unit == 'k' else size):g}{unit}"
    return f"{value:g}"


def ceiling(value: float) -> float:
    """Return the smallest of 1, 2, 4, 10, 20, 40, … that is not less than a value. All of them divide by four or two."""
    if value <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 4, 10) if factor * power >= value - 1e-9)


def line_chart(title: str, times: Sequence[float], series: Sequence[Series], start: float, end: float) -> Chart:
    """Return a line chart over time, in seconds since the epoch. Lines are interrupted where values are unknown."""
    numbers = [value for _, values in series for value in values if value is not None]
    top = ceiling(max(numbers, default=0.0))
    span = max(end - start, 1.0)

    def x(moment: float) -> float:
        return LEFT + (RIGHT - LEFT) * (moment - start) / span

    def y(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * value / top

    parts = []
    steps = 2 if top <= 2 else 4
    for step in range(steps + 1):
        value = top * step / steps
        parts.append(_grid(LEFT, RIGHT, y(value)))
        parts.append(_text(LEFT - 6, y(value) + 4, short_number(value), "value", "end"))
    parts.extend(_time_axis(start, end, x))
    for place, (_, values) in enumerate(series):
        for points in _segments(times, values, start):
            path = " ".join(f"{x(moment):.1f},{y(value):.1f}" for moment, value in points)
            parts.append(Markup('<polyline class="s{}" points="{}"/>').format(place, path))
    words = []
    for name, values in series:
        readings = [value for value in values if value is not None]
        if readings:
            words.append(
                f"{name} now {number(round(readings[-1], 1))}, from {number(min(readings))} to {number(max(readings))}"
            )
    description = f"{title}: {'; '.join(words) or 'no values yet'}"
    legend = [(name, values[-1] if values else None) for name, values in series]
    return Chart(title, description, _svg(description, LINE_WIDTH, LINE_HEIGHT, parts, "lines"), legend)


def _segments(
    times: Sequence[float], values: Sequence[float | None], start: float
) -> Iterator[list[tuple[float, float]]]:
    points: list[tuple[float, float]] = []
    for moment, value in zip(times, values, strict=True):
        if value is None or moment < start:
            if points:
                yield points
            points = []
        else:
            points.append((moment, value))
    if points:
        yield points


def _time_axis(start: float, end: float, x: Callable[[float], float]) -> Iterator[Markup]:
    step = next((step for step in _TIME_STEPS if (end - start) / step <= 5), _TIME_STEPS[-1])
    moment = math.ceil(start / step) * step
    while moment <= end:
        label = time.strftime("%H:%M", time.gmtime(moment))
        yield Markup('<text class="value" x="{:.1f}" y="{}" text-anchor="{}" data-time="{}">{}</text>').format(
            x(moment), BOTTOM + 20, "end" if x(moment) > LINE_WIDTH - 30 else "middle", int(moment), label
        )
        yield Markup('<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>').format(
            x(moment), BOTTOM, BOTTOM + 5
        )
        moment += step


def column_chart(title: str, labels: Sequence[str], series: Sequence[Series]) -> Chart:
    """Return a chart with a group of columns for each label. Labels are written as far as they fit."""
    most = _most(series)
    count, per_group = len(labels), len(series)
    step = 570 / count
    width = max(step * 0.8 / per_group, 0.5)
    parts = []
    for quarter in range(5):
        y = 180 - quarter * 42.5
        parts.append(_grid(70, WIDTH, y))
        parts.append(_text(64, y + 4, number(round(most * quarter / 4, 1)), "value", "end"))
    for index, label in enumerate(labels):
        x = 70 + index * step
        for place, (_, values) in enumerate(series):
            height = 170 * (values[index] or 0) / most
            parts.append(_rect(place, x + step * 0.1 + place * width, 180 - height, width, height))
        if index % max(math.ceil(count / 8), 1) == 0:
            for line, word in enumerate(label.split(" ")):
                parts.append(_text(x + step / 2, 196 + line * 14, word, "label", "middle"))
    return _chart(title, series, _COLUMNS_HEIGHT, parts)


def bar_chart(title: str, labels: Sequence[str], series: Sequence[Series]) -> Chart:
    """Return a chart with a group of horizontal bars for each label, each with its value."""
    most = _most(series)
    group = 14 * len(series) + 10
    parts = []
    for index, label in enumerate(labels):
        top = index * group
        text = label if len(label) <= _LABEL_LENGTH else f"{label[: _LABEL_LENGTH - 1]}…"
        parts.append(_text(182, top + 7 * len(series) + 4, text, "label", "end"))
        for place, (_, values) in enumerate(series):
            value = values[index] or 0
            parts.append(_rect(place, 190, top + place * 14, 360 * value / most, 12))
            parts.append(_text(196 + 360 * value / most, top + place * 14 + 10, number(value), "value", "start"))
    return _chart(title, series, group * len(labels), parts)


def _most(series: Sequence[Series]) -> float:
    """Return the maximum of all values, or 1 if all are 0: the scale of a chart."""
    return max((value or 0 for _, values in series for value in values), default=0) or 1


def _chart(title: str, series: Sequence[Series], height: int, parts: Sequence[Markup]) -> Chart:
    legend = [(name, values[-1] if values else None) for name, values in series]
    # The table next to the chart contains the same values: for a screen reader the picture only needs a name.
    return Chart(title, title, _svg(title, WIDTH, height, parts, "bars"), legend)


def _svg(description: str, width: int, height: int, parts: Sequence[Markup], kind: str) -> Markup:
    head = Markup('<svg class="{}" role="img" aria-label="{}" viewBox="0 0 {} {}" xmlns="http://www.w3.org/2000/svg">')
    return head.format(kind, description, width, height) + Markup("").join(parts) + Markup("</svg>")


def _grid(x: float, right: float, y: float) -> Markup:
    return Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(x, right, y, y)


def _text(x: float, y: float, text: str, name: str, anchor: str) -> Markup:
    element = Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')
    return element.format(name, x, y, anchor, escape(text))


def _rect(place: int, x: float, y: float, width: float, height: float) -> Markup:
    element = Markup('<rect class="s{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="1"/>')
    return element.format(place, x, y, width, height)
