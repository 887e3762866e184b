"""Counters of the bridge for an administrator who looks at them, once or again and again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from bridge.administration.counters import Counters, MappingCounters
from bridge.administration.requests import ShowCounters
from bridge.service.administration.parts import ROWS_AT_A_TURN, Parts

#: Clients of one reading at most.
MOST_CLIENTS = 1_000


async def show_counters(parts: Parts, request: ShowCounters) -> Counters:
    """Return a reading of the counters."""
    activity = parts.watch.asked()
    clients = Counter(client.channel.name for client in parts.service.clients.values())
    in_flight = 0
    for number, session in enumerate(list(parts.service.sessions.values()), 1):
        in_flight += len(session.outbox.in_flight.deliveries)
        if not number % ROWS_AT_A_TURN:
            await asyncio.sleep(0)
    depth = await parts.watch.depth()
    names = dict.fromkeys([*(one.name for one in parts.channels.configs), *activity.channels])
    return Counters(
        time=time.time(),
        since=activity.since,
        clients=len(parts.service.clients),
        sessions=len(parts.service.sessions),
        in_flight=in_flight,
        units_of_work=parts.service.units.under_way,
        transmission_queue_depth=depth,
        channels=[activity.of(name, clients[name]) for name in names],
        busiest_clients=activity.busiest(min(max(request.clients, 0), MOST_CLIENTS)),
        mappings=[
            MappingCounters(
                name=one.name, state=one.state, taken=one.taken, moved=one.moved, dead_lettered=one.dead_lettered
            )
            for one in parts.mappings.statuses()
        ],
    )
