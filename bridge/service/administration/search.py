"""Search for objects of the bridge, its settings and problems, by a part of their names or other texts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from heapq import nsmallest
from shlex import quote
from typing import Any, Final, NamedTuple

from bridge.administration.answers import counted
from bridge.administration.protocol import Refused
from bridge.administration.requests import MAX_ROWS, ListQueues, Search, ShowTopic
from bridge.administration.search import SearchKind, SearchMatch, SearchResult
from bridge.administration.setting_list import settings_of
from bridge.config.mapping import ToMqMapping
from bridge.config.values import endpoint
from bridge.service.administration import queues
from bridge.service.administration.parts import ROWS_AT_A_TURN, Parts
from bridge.service.channels import place_of

#: Maximum number of matches of each kind in one answer.
MAX_MATCHES: Final = 100
#: Seconds to wait for the queue manager.
QUEUE_MANAGER_TIMEOUT: Final = 3.0
#: Maximum length of a match's text.
_TEXT: Final = 200


class Candidate(NamedTuple):
    """An object that may match: its name, a text for display, the command that shows it, and other texts to search."""

    name: str
    text: str
    command: str
    further: tuple[str, ...] = ()


class Incomplete(Exception):
    """Only a part of a kind's objects was searched, or none. The message is for display."""


async def search(parts: Parts, request: Search) -> SearchResult:
    """Return the objects that contain a text, ignoring case: the best matches and the total number of each kind."""
    result = SearchResult(matches=[], found={}, incomplete=[])
    text = request.text.strip().casefold()
    if not text:
        return result
    for kind in request.kinds or SOURCES:
        matches: list[tuple[int, str, SearchMatch]] = []
        try:
            number = 0
            async for candidate in SOURCES[kind](parts):
                number += 1
                if not number % ROWS_AT_A_TURN:
                    await asyncio.sleep(0)
                rank = _rank(text, candidate)
                if rank is not None:
                    match = SearchMatch(kind, candidate.name, candidate.text[:_TEXT], candidate.command)
                    matches.append((rank, candidate.name, match))
        except (Incomplete, Refused) as error:
            result.incomplete.append(f"{kind}: {error}")
        except TimeoutError:
            result.incomplete.append(f"{kind}: the queue manager did not answer within {QUEUE_MANAGER_TIMEOUT:g} s")
        if matches:
            result.found[kind] = len(matches)
            rows = min(max(request.rows, 1), MAX_MATCHES)
            result.matches += [match for _, _, match in nsmallest(rows, matches, key=lambda entry: entry[:2])]
    return result


def _rank(text: str, candidate: Candidate) -> int | None:
    """Return how well a candidate matches, or None if it does not: 0 is the name itself, 1 its beginning, 2 a part of it."""
    name = candidate.name.casefold()
    if text in name:
        return 0 if text == name else 1 if name.startswith(text) else 2
    return 3 if any(text in further.casefold() for further in candidate.further) else None


# Sources -------------------------------------------------------------------------------------------------------------


async def _problems(parts: Parts) -> AsyncIterator[Candidate]:
    for problem in await parts.problems():
        name = f"{problem.kind} {problem.subject}".rstrip()
        yield Candidate(name, f"{problem.severity}: {problem.what}", problem.command, (problem.what,))


async def _clients(parts: Parts) -> AsyncIterator[Candidate]:
    clients = parts.service.clients
    for session in list(parts.service.sessions.values()):
        client = clients.get(session.client_id)
        address = "" if client is None else client.peer.address
        user = session.identity.user.decode("utf-8", "replace")
        state = "away" if client is None else f"connected from {address}"
        state += f", user {user}" if user else ""
        text = f"{state}, {counted(len(session.outbox.backlog), 'message')} waiting"
        yield Candidate(session.client_id, text, _command("client show", session.client_id), (user, address))


async def _topics(parts: Parts) -> AsyncIterator[Candidate]:
    """Yield the topics of retained publications, and the topic filters of subscriptions."""
    async with asyncio.timeout(QUEUE_MANAGER_TIMEOUT):
        details = await queues.show_topic(parts, ShowTopic(topic_filter="#", rows=MAX_ROWS, payloads=False))
    retained = {publication.topic for publication in details.retained}
    subscriptions: dict[str, int] = {}
    for subscription in details.subscriptions:
        subscriptions[subscription.topic_filter] = subscriptions.get(subscription.topic_filter, 0) + 1
    for topic in sorted(retained | subscriptions.keys()):
        number = subscriptions.get(topic, 0)
        text = ", ".join(
            ["retained publication"] * (topic in retained) + [counted(number, "subscription")] * (number > 0)
        )
        yield Candidate(topic, text, _command("topic show", topic))
    if details.more:
        raise Incomplete(f"only {MAX_ROWS:,} retained publications and subscriptions were searched")


async def _queues(parts: Parts) -> AsyncIterator[Candidate]:
    async with asyncio.timeout(QUEUE_MANAGER_TIMEOUT):
        rows = await queues.list_queues(parts, ListQueues())
    for row in rows:
        text = f"{counted(row.depth, 'message')}{f', {row.role}' if row.role else ''}"
        command = f'mqbridge mqsc display "QLOCAL({row.name}) ALL"'
        yield Candidate(row.name, text, command, (row.description,))


async def _mappings(parts: Parts) -> AsyncIterator[Candidate]:
    mappings = parts.configuration.mappings
    for status in parts.mappings.statuses():
        mapping = mappings.get(status.name)
        ends = "" if mapping is None else f"{_end(mapping.source)} to {_end(mapping.destination)}"
        direction = "MQTT to MQ" if isinstance(mapping, ToMqMapping) else "MQ to MQTT"
        text = f"{status.state}, {direction}: {ends}" if ends else str(status.state)
        yield Candidate(status.name, text, _command("mapping show", status.name), (ends,))


def _end(end: Any) -> str:
    """Return the topics or queue of an end of a mapping."""
    names = (getattr(end, name, None) for name in ("queue", "requests_queue", "topic", "mqtt", "link"))
    return " ".join(str(name) for name in names if name)


async def _links(parts: Parts) -> AsyncIterator[Candidate]:
    for name, link in parts.configuration.links.items():
        broker = ", ".join(endpoint(*address) for address in link.addresses)
        yield Candidate(name, f"broker {broker}", _command("link show", name), (broker,))


async def _pipelines(parts: Parts) -> AsyncIterator[Candidate]:
    for name, pipeline in parts.configuration.pipelines.items():
        state = "enabled" if pipeline.enabled else "disabled"
        yield Candidate(name, state, _command("pipeline show", name))


async def _channels(parts: Parts) -> AsyncIterator[Candidate]:
    for config in parts.host.telemetry_channels.channels:
        place = place_of(config)
        state = "running" if parts.channels.get(config.name) is not None else "stopped"
        yield Candidate(config.name, f"{state}, {place}", "mqbridge channel list", (place,))


async def _settings(parts: Parts) -> AsyncIterator[Candidate]:
    for setting in await asyncio.to_thread(lambda: list(settings_of(parts.configuration))):
        command = _command("config list --all --search", setting.key)
        yield Candidate(setting.key, setting.value, command, (setting.value,))


def _command(words: str, name: str) -> str:
    return f"mqbridge {words} {quote(name)}"


#: The searched objects by kind, in the order of the answer.
SOURCES: Final[Mapping[SearchKind, Callable[[Parts], AsyncIterator[Candidate]]]] = {
    "problem": _problems,
    "client": _clients,
    "topic": _topics,
    "queue": _queues,
    "mapping": _mappings,
    "link": _links,
    "pipeline": _pipelines,
    "channel": _channels,
    "setting": _settings,
}
