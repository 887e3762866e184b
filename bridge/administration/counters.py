"""Counters of a running bridge, and the rates that two readings of them are."""

from __future__ import annotations

import msgspec


class ChannelCounters(msgspec.Struct, kw_only=True):
    """What the clients of a channel have sent and got since the counting began."""

    name: str
    #: connected now
    clients: int
    #: publications that have ended: put, or refused
    received: int = 0
    #: messages that were written with QoS 0, or acknowledged
    sent: int = 0
    #: units of work with publications, and the seconds that they took in all, from PUBLISH to the commit
    units: int = 0
    unit_seconds: float = 0.0


class ClientRate(msgspec.Struct, kw_only=True):
    """Publications of one client in a second, and messages for it."""

    client_id: str
    channel: str
    received: float
    sent: float


class MappingCounters(msgspec.Struct, kw_only=True):
    """What a mapping has done since the bridge started."""

    name: str
    state: str
    taken: int
    moved: int
    dead_lettered: int


class Counters(msgspec.Struct, kw_only=True):
    """A reading of the counters of a bridge."""

    #: seconds since the epoch: of the reading, and when the counting of publications began
    time: float
    since: float
    clients: int
    sessions: int
    #: messages sent to clients and not acknowledged
    in_flight: int
    units_of_work: int
    #: messages on the transmission queue; None where the queue manager does not answer
    transmission_queue_depth: int | None
    channels: list[ChannelCounters]
    #: the busiest first, as they were in the last second or two
    busiest_clients: list[ClientRate]
    mappings: list[MappingCounters]


class ChannelRates(msgspec.Struct, kw_only=True):
    """Publications of a channel's clients in a second, and messages for them."""

    name: str
    clients: int
    received: float
    sent: float
    #: seconds that a unit of work took on the average, from PUBLISH to the commit; None where there was none
    unit_seconds: float | None


class MappingRates(msgspec.Struct, kw_only=True):
    """Messages that a mapping takes, moves and dead-letters in a second."""

    name: str
    state: str
    taken: float
    moved: float
    dead_lettered: float


class Rates(msgspec.Struct, kw_only=True):
    """What a bridge does, between two readings of its counters. Rates are for a second."""

    #: seconds since the epoch
    time: float
    #: seconds
    interval: float
    received: float
    sent: float
    clients: int
    sessions: int
    in_flight: int
    units_of_work: int
    transmission_queue_depth: int | None
    #: the slowest first
    channels: list[ChannelRates]
    busiest_clients: list[ClientRate]
    mappings: list[MappingRates]


def rates(before: Counters, after: Counters) -> Rates:
    """Return the rates between two readings of one bridge's counters, which may have begun anew in between."""
    anew = before.since != after.since
    interval = max(after.time - (after.since if anew else before.time), 1e-3)
    channels = {} if anew else {one.name: one for one in before.channels}
    mappings = {one.name: one for one in before.mappings}
    found = [_of_channel(one, channels.get(one.name), interval) for one in after.channels]
    return Rates(
        time=after.time,
        interval=interval,
        received=sum(one.received for one in found),
        sent=sum(one.sent for one in found),
        clients=after.clients,
        sessions=after.sessions,
        in_flight=after.in_flight,
        units_of_work=after.units_of_work,
        transmission_queue_depth=after.transmission_queue_depth,
        channels=sorted(found, key=lambda one: -(one.unit_seconds or 0.0)),
        busiest_clients=after.busiest_clients,
        mappings=[_of_mapping(one, mappings.get(one.name), max(after.time - before.time, 1e-3)) for one in after.mappings],
    )


def _of_channel(after: ChannelCounters, before: ChannelCounters | None, interval: float) -> ChannelRates:
    before = before or ChannelCounters(name=after.name, clients=0)
    units = after.units - before.units
    return ChannelRates(
        name=after.name,
        clients=after.clients,
        received=(after.received - before.received) / interval,
        sent=(after.sent - before.sent) / interval,
        unit_seconds=(after.unit_seconds - before.unit_seconds) / units if units else None,
    )


def _of_mapping(after: MappingCounters, before: MappingCounters | None, interval: float) -> MappingRates:
    # One that is there for the first time, or again, has no rate yet.
    before = before if before is not None and before.taken <= after.taken else after
    return MappingRates(
        name=after.name,
        state=after.state,
        taken=(after.taken - before.taken) / interval,
        moved=(after.moved - before.moved) / interval,
        dead_lettered=(after.dead_lettered - before.dead_lettered) / interval,
    )
