"""Bar charts as inline SVG. Colours are classes that the page's style sheet gives, for light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

#: Width of all charts; they scale with the page.
WIDTH: Final = 640
_LABELS, _VALUES, _BAR, _GAP = 190, 90, 14, 10
_HEIGHT, _FOOT = 180, 46
#: Most characters of a label beside a bar.
_LABEL_LENGTH: Final = 28


def number(value: float) -> str:
    """Return a number as a person reads it."""
    if isinstance(value, float) and value != int(value):
        return f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"
    return f"{int(value):,}"


def bars(title: str, labels: Sequence[str], series: Sequence[Sequence[float]]) -> str:
    """Draw horizontal bars: a group for each label, in it a bar for each series, its value behind it."""
    most = max((value for values in series for value in values), default=0) or 1
    group = _BAR * len(series) + _GAP
    room = WIDTH - _LABELS - _VALUES
    parts = []
    for place, label in enumerate(labels):
        top = place * group
        shown = label if len(label) <= _LABEL_LENGTH else f"{label[: _LABEL_LENGTH - 1]}…"
        middle = top + (group - _GAP) / 2 + 4
        parts.append(f'<text class="label" x="{_LABELS - 8}" y="{middle:g}" text-anchor="end">{escape(shown)}</text>')
        for index, values in enumerate(series):
            length = room * values[place] / most
            y = top + index * _BAR
            parts.append(f'<rect class="s{index}" x="{_LABELS}" y="{y}" width="{length:.1f}" height="{_BAR - 2}" rx="2"/>')
            parts.append(f'<text class="value" x="{_LABELS + length + 6:.1f}" y="{y + 10}">{number(values[place])}</text>')
    return _svg(title, max(group * len(labels), 1), parts)


def columns(title: str, labels: Sequence[str], series: Sequence[Sequence[float]]) -> str:
    """Draw columns over time: a group for each label; only so many labels are written as fit."""
    most = max((value for values in series for value in values), default=0) or 1
    left, count = 70, max(len(labels), 1)
    step = (WIDTH - left) / count
    width = max(step * 0.8 / len(series), 0.5)
    parts = []
    for quarter in range(5):
        y = _HEIGHT - quarter * (_HEIGHT - 10) / 4
        parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH}" y1="{y:g}" y2="{y:g}"/>')
        value = number(round(most * quarter / 4, 1))
        parts.append(f'<text class="value" x="{left - 6}" y="{y + 4:g}" text-anchor="end">{value}</text>')
    every = max(1, -(-count // 8))
    for place, label in enumerate(labels):
        x = left + place * step
        for index, values in enumerate(series):
            height = (_HEIGHT - 10) * values[place] / most
            parts.append(
                f'<rect class="s{index}" x="{x + step * 0.1 + index * width:.1f}" y="{_HEIGHT - height:.1f}"'
                f' width="{width:.1f}" height="{height:.1f}"/>'
            )
        if place % every == 0:
            for line, word in enumerate(label.split(" ")):
                parts.append(
                    f'<text class="label" x="{x + step / 2:.1f}" y="{_HEIGHT + 16 + line * 14}" text-anchor="middle">'
                    f"{escape(word)}</text>"
                )
    return _svg(title, _HEIGHT + _FOOT, parts)


def _svg(title: str, height: float, parts: list[str]) -> str:
    # The table beside it says the same in words: for a screen reader the picture needs its name only.
    return (
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {WIDTH} {height:g}"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
