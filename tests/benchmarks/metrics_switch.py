"""A bridge that switches metrics or traces every tenth of a second, and prints their cost at its end.

`python -m tests.benchmarks.metrics_switch ARGUMENTS` is `mqbridge ARGUMENTS`. The feature of its configuration, an
admin port or traces, is switched. The cost is that of its main thread. Neighbouring intervals of one process under one
load are compared, so differences between processes and other load on the machine affect both.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Callable
from typing import Final

from bridge.cli import main
from bridge.mq.embedded.host import EmbeddedHost
from bridge.service.lifecycle import Bridge

#: Prefix of the line with the figures.
FIGURES: Final = "it costs "
#: Seconds of an interval, and the minimum number of messages for it to count.
SPELL: Final = 0.1
LEAST: Final = 500


def _counting(bridge: Bridge) -> Callable[[bool], None]:
    """Return the function that switches metrics."""
    assert bridge.metrics is not None
    service, traffic = bridge.parts.service, bridge.metrics.traffic

    def turn(on: bool) -> None:
        for session in service.sessions.values():
            session.counts = session.outbox.counts = traffic.of(session).counts if on else None
        service.events.unsubscribe(traffic)
        if on:
            service.events.attach(traffic)

    return turn


def _tracing(bridge: Bridge) -> Callable[[bool], None]:
    """Return the function that switches traces."""
    assert bridge.parts.traces is not None
    service, traces = bridge.parts.service, bridge.parts.traces

    def turn(on: bool) -> None:
        service.units.traces = traces.publications if on else None
        service.events.unsubscribe(traces.deliveries)
        if on:
            service.events.attach(traces.deliveries)

    turn(True)
    return lambda on: None if on is (service.units.traces is not None) else turn(on)


async def switch(bridge: Bridge) -> None:
    """Switch counting (or tracing) on and off while there are clients."""
    assert isinstance(bridge.host, EmbeddedHost)
    service = bridge.parts.service
    turn = _counting(bridge) if bridge.metrics is not None else _tracing(bridge)
    while len(service.clients) < 2:  # noqa: ASYNC110 - clients send no event
        await asyncio.sleep(SPELL)
    queue = bridge.host.queue_manager.objects.queues[bridge.configuration.transmission_queue]
    spells: list[tuple[bool, float]] = []
    counting = True
    while service.clients:
        turn(counting)
        messages, start = queue.enqueued, time.thread_time()
        await asyncio.sleep(SPELL)
        spent = time.thread_time() - start
        if queue.enqueued - messages >= LEAST:
            spells.append((counting, spent / (queue.enqueued - messages)))
        counting = not counting
    costs = [
        (cost / other if first else other / cost) - 1
        for (first, cost), (second, other) in itertools.pairwise(spells)
        if first is not second
    ]
    figures = {
        "spells": len(spells),
        "off_us": 1e6 * statistics.median([spent for on, spent in spells if not on]),
        "on_us": 1e6 * statistics.median([spent for on, spent in spells if on]),
        "cost": statistics.median(costs),
        "quartiles": statistics.quantiles(costs, n=4)[::2],
    }
    print(FIGURES + json.dumps(figures), flush=True)


class Switched(Bridge):
    """A bridge with the switch."""

    async def start(self) -> None:
        await super().start()
        self._switching = asyncio.create_task(switch(self))


if __name__ == "__main__":
    import bridge.service.foreground

    bridge.service.foreground.Bridge = Switched  # type: ignore[attr-defined]
    main()
