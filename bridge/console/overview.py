"""The first page: how the bridge is, what is wrong in words, its rates, its channels."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.administration.answers import BridgeStatus, ChannelStatus
from bridge.administration.requests import ListChannels, ShowStatus, StartChannel, StopChannel
from bridge.console.access import Who
from bridge.console.console import Console, Done
from bridge.console.line_chart import LineChart, line_chart
from bridge.console.problem import Problem
from bridge.console.queues import dead_letter_queue, depths
from bridge.console.samples import KEPT, Sample, rates
from bridge.mq.mqi import Connection, MQError

#: Seconds that the queue manager has to say how many messages are on queues.
_LOOK: Final = 1.0
_CHANGES: Final[dict[str, type[StartChannel] | type[StopChannel]]] = {"start": StartChannel, "stop": StopChannel}


def routes(console: Console) -> list[Route]:
    """Return the routes."""

    async def page(request: Request, who: Who) -> Response:
        status = await console.asked(ShowStatus(), BridgeStatus, who)
        channels = await console.asked(ListChannels(), list[ChannelStatus], who)
        samples = console.sampler.samples()
        waiting, dead_letters = await _depths(console)
        return console.render(
            "overview.html",
            request,
            who,
            status=status,
            channels=channels,
            charts=_charts(samples),
            alarms=_alarms(status),
            waiting=waiting,
            dead_letters=dead_letters,
            transmission_queue=console.configuration.transmission_queue,
        )

    async def change(request: Request, who: Who, form: Mapping[str, str]) -> Done:
        made = _CHANGES.get(request.path_params["what"])
        if made is None:
            raise Problem(404, "A channel can be started and stopped")
        return await console.changed(made(name=form.get("name", "")), who, "/")

    return [console.page("/", page), console.change("/channels/{what}", change)]


async def _depths(console: Console) -> tuple[int | None, int | None]:
    """Return how many messages wait on the transmission queue, and how many dead letters there are.

    None: that cannot be found out now. How the bridge is, is told without it.
    """
    transmission_queue, configured = console.configuration.transmission_queue, console.dead_letter_queue

    def look(connection: Connection) -> list[int | None]:
        return depths([transmission_queue, dead_letter_queue(configured, connection)], connection)

    try:
        async with asyncio.timeout(_LOOK):
            waiting, dead_letters = await console.queue_manager.run(look)
    except (MQError, Problem, TimeoutError):
        return None, None
    return waiting, dead_letters


def _alarms(status: BridgeStatus) -> list[str]:
    found = [problem.what for problem in status.problems]
    if status.state != "running":
        found.insert(0, f"The bridge is {status.state}")
    return found


def _charts(samples: list[Sample]) -> list[LineChart]:
    times = [one.time for one in samples]
    published = rates(times, [one.published for one in samples])
    delivered = rates(times, [one.delivered for one in samples])
    clients = [float(one.clients) for one in samples]
    sessions = [float(one.sessions) for one in samples]
    units = [float(one.units_of_work) for one in samples]
    return [
        line_chart("Messages a second", KEPT, [("published by clients", published), ("delivered to clients", delivered)]),
        line_chart("Clients", KEPT, [("connected", clients), ("sessions", sessions)]),
        line_chart("Units of work under way", KEPT, [("units of work", units)]),
    ]
