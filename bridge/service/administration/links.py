"""Links to other brokers as an administrator looks at them, and has them tried."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bridge.administration.answers import LinkConnectionStatus, LinkStatus
from bridge.administration.requests import Answer, ListLinks, TestLink
from bridge.config import LinkConfig
from bridge.config.values import endpoint
from bridge.service.administration.parts import Parts, Refused

# The client of brokers is imported where there is a link.
if TYPE_CHECKING:
    from bridge.link.connection import LinkConnection

#: Seconds that a trial may take in all.
TRIAL_TIMEOUT = 45.0


async def list_links(parts: Parts, request: ListLinks) -> list[LinkStatus]:
    """Return the links, in the order of the configuration, and who is connected to each."""
    connections: dict[str, list[LinkConnectionStatus]] = {}
    for mapping, connection in parts.mappings.links():
        connections.setdefault(connection.name, []).append(_status(mapping, connection))
    return [
        LinkStatus(
            name=name,
            broker=", ".join(endpoint(*address) for address in link.addresses),
            tls=link.tls is not None,
            version=link.version,
            connections=connections.get(name, []),
        )
        for name, link in parts.configuration.links.items()
    ]


def _status(mapping: str, connection: LinkConnection) -> LinkConnectionStatus:
    error, at = connection.last_error
    return LinkConnectionStatus(
        mapping=mapping,
        connected=connection.up,
        client_id=connection.client_id,
        address=connection.address,
        since=connection.since,
        last_error=error,
        last_error_at=at,
    )


async def test_link(parts: Parts, request: TestLink) -> Answer:
    """Try a connection to a link's broker, and say each step; one at a time is tried. Raises Refused."""
    config = parts.configuration.links.get(request.name)
    if config is None:
        raise Refused(f"there is no link {request.name}")
    if parts.trying_link:
        raise Refused("another link is being tried; try again when that is over")
    parts.trying_link = True
    steps: list[str] = []
    # Its thread goes on where it is given up: only when it has ended is there another.
    trial = asyncio.get_running_loop().run_in_executor(None, _try, request.name, config, steps)

    def ended(_: object) -> None:
        parts.trying_link = False

    trial.add_done_callback(ended)
    try:
        async with asyncio.timeout(TRIAL_TIMEOUT):
            failure = await asyncio.shield(trial)
    except TimeoutError:
        failure = f"given up after {TRIAL_TIMEOUT:g} s"
    lines = [f"link {request.name}: {step}" for step in (*steps, *([] if failure is None else [f"FAILED: {failure}"]))]
    return Answer(ok=failure is None, lines=lines)


def _try(name: str, config: LinkConfig, steps: list[str]) -> str | None:
    """Add the steps of a trial to a list, on a thread of its own; return why it failed, None where it has not."""
    # Imported by who asks: with it comes the client of brokers, which many a bridge has no use for.
    from bridge.link.trial import TrialFailed, try_link
    from bridge.service.mappings.link_session import password_of

    try:
        for step in try_link(name, config, lambda: password_of(name, config)):
            steps.append(step)
    except TrialFailed as error:
        return str(error)
    return None
