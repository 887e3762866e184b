"""What a scrape holds, as plain values: by metric, one for each combination of labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from bridge.administration.histogram import Histogram
from bridge.service.metrics.catalogue import CATALOGUE, Metric


class Distribution:
    """A histogram at one moment: what was counted up to each upper bound, and the sum of all."""

    __slots__ = ("buckets", "sum")

    def __init__(self, histogram: Histogram) -> None:
        self.buckets = histogram.buckets()
        self.sum = histogram.sum


Value: TypeAlias = float | Distribution


class Samples:
    """Values of the metrics of the catalogue, and of no others."""

    def __init__(self) -> None:
        self._values: dict[str, list[tuple[tuple[str, ...], Value]]] = {name: [] for name in CATALOGUE}

    def add(self, name: str, value: float | Histogram, *labels: str) -> None:
        """Add a value; the labels are in the order of the catalogue. Raises ValueError where they are not as many."""
        if len(labels) != len(CATALOGUE[name].labels):
            raise ValueError(f"{name} has the labels {CATALOGUE[name].labels}, not {labels}")
        taken = Distribution(value) if isinstance(value, Histogram) else float(value)
        self._values[name].append((labels, taken))

    def __iter__(self) -> Iterator[tuple[Metric, list[tuple[tuple[str, ...], Value]]]]:
        """Yield each metric with its values; of one that there is nothing to say of, none."""
        for name, values in self._values.items():
            yield CATALOGUE[name], values
