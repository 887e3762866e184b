"""The health of a running bridge: resources and limits, certificates, connections, rates, and problems with remedies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from bridge.administration.answers import Problem, ProblemKind
from bridge.mq.inquiries import QueueManagerConnectionStatus as QueueManagerConnectionStatus

RateKind = Literal["queue", "mapping", "link"]


class Gauge(msgspec.Struct, frozen=True):
    """A resource of the bridge and its limit."""

    name: str
    used: float
    #: the maximum, or None without a limit
    limit: float | None
    unit: Literal["", "bytes"]
    #: the option that sets the limit
    option: str

    @property
    def share(self) -> float | None:
        """The used share of the limit, from 0 to 1 or more, or None if there is no limit."""
        return self.used / self.limit if self.limit else None


class CertificateStatus(msgspec.Struct, frozen=True):
    """A certificate of the bridge, or of a broker that it is connected to."""

    #: the channel, link or other part that uses it
    owner: str
    #: the file, or blank for a certificate that a broker presented
    file: str
    #: seconds since the epoch
    expires_at: float


class RateSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of a queue, mapping or link over time. A value is None if it is unknown."""

    kind: RateKind
    name: str
    #: messages per second that were put to the queue, taken by the mapping, or received from the broker
    incoming: list[float | None]
    #: messages per second that were got from the queue, moved by the mapping, or sent to the broker
    outgoing: list[float | None]
    #: messages on the queue
    depth: list[float | None]


class RatePage(msgspec.Struct, kw_only=True):
    """The rates of queues, mappings and links."""

    #: when the rates were measured, in seconds since the epoch
    times: list[float]
    #: the busiest of each kind first
    series: list[RateSeries]
    #: number of queues, mappings and links that are not in `series`
    left_out: int
    #: the reason if rates are not available, otherwise blank
    problem: str = ""


class Remedy(msgspec.Struct, frozen=True):
    """A change or test that may solve a problem, and that can be undone."""

    command: Literal["mapping resume", "link test", "link connect", "channel start", "reload"]
    #: the name of the mapping, link or channel, or blank for `reload`
    name: str = ""


class RemediableProblem(Problem, frozen=True, kw_only=True):
    """A problem, and the actions against it."""

    remedies: list[Remedy]


class ProblemGroup(msgspec.Struct, frozen=True):
    """The problems of one cause."""

    cause: ProblemKind
    #: the most severe first
    problems: list[RemediableProblem]


class HealthReport(msgspec.Struct, kw_only=True):
    """The health of a bridge."""

    #: the group with the most severe problem first
    problems: list[ProblemGroup]
    gauges: list[Gauge]
    #: the first to expire first
    certificates: list[CertificateStatus]
    connections: list[QueueManagerConnectionStatus]
    rates: RatePage


def last(values: Sequence[float | None]) -> float | None:
    """Return the last known value."""
    return next((value for value in reversed(values) if value is not None), None)


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values, or None if there are none."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
