"""Counters of a running bridge, and the rates between two readings."""

from __future__ import annotations

import msgspec

from bridge.administration.mapping_status import MappingStatus


class ChannelCounters(msgspec.Struct, kw_only=True):
    """Publications received from the clients of a channel and messages sent to them, since counting began."""

    name: str
    #: currently connected clients
    clients: int
    #: publications completed: put or rejected
    received: int = 0
    #: messages written with QoS 0, or acknowledged
    sent: int = 0
    #: units of work with publications, and their total duration in seconds, from PUBLISH to the commit
    units: int = 0
    unit_seconds: float = 0.0


class ClientRate(msgspec.Struct, kw_only=True):
    """Publications from one client and messages to it, per second."""

    client_id: str
    channel: str
    received: float
    sent: float


class Counters(msgspec.Struct, kw_only=True):
    """A reading of the counters of a bridge."""

    #: time of the reading, and time at which counting began, in seconds since the epoch
    time: float
    since: float
    clients: int
    sessions: int
    #: messages sent to clients and not acknowledged
    in_flight: int
    units_of_work: int
    #: messages on the transmission queue, or None if the queue manager does not answer
    transmission_queue_depth: int | None
    channels: list[ChannelCounters]
    #: the busiest clients first, with the rates of the last second or two
    busiest_clients: list[ClientRate]
    mappings: list[MappingStatus]


class ChannelRates(msgspec.Struct, kw_only=True):
    """Publications from a channel's clients and messages to them, per second."""

    name: str
    clients: int
    received: float
    sent: float
    #: average duration of a unit of work in seconds, from PUBLISH to the commit, or None if there was no unit of work
    unit_seconds: float | None


class MappingRates(msgspec.Struct, kw_only=True):
    """Messages that a mapping takes, moves and dead-letters, per second."""

    name: str
    state: str
    taken: float
    moved: float
    dead_lettered: float


class Rates(msgspec.Struct, kw_only=True):
    """Rates between two readings of the counters, per second."""

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
    """Return the rates between two readings of one bridge's counters. Counting may have restarted between the readings."""
    anew = before.since != after.since
    interval = max(after.time - (after.since if anew else before.time), 1e-3)
    channels = {} if anew else {channel.name: channel for channel in before.channels}
    mappings = {mapping.name: mapping for mapping in before.mappings}
    channel_rates = [_of_channel(channel, channels.get(channel.name), interval) for channel in after.channels]
    return Rates(
        time=after.time,
        interval=interval,
        received=sum(of_channel.received for of_channel in channel_rates),
        sent=sum(of_channel.sent for of_channel in channel_rates),
        clients=after.clients,
        sessions=after.sessions,
        in_flight=after.in_flight,
        units_of_work=after.units_of_work,
        transmission_queue_depth=after.transmission_queue_depth,
        channels=sorted(channel_rates, key=lambda of_channel: -(of_channel.unit_seconds or 0.0)),
        busiest_clients=after.busiest_clients,
        mappings=[
            _of_mapping(mapping, mappings.get(mapping.name), max(after.time - before.time, 1e-3))
            for mapping in after.mappings
        ],
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


def _of_mapping(after: MappingStatus, before: MappingStatus | None, interval: float) -> MappingRates:
    # A mapping that is new or was restarted has no rate yet.
    before = before if before is not None and before.taken <= after.taken else after
    return MappingRates(
        name=after.name,
        state=after.state,
        taken=(after.taken - before.taken) / interval,
        moved=(after.moved - before.moved) / interval,
        dead_lettered=(after.dead_lettered - before.dead_lettered) / interval,
    )
