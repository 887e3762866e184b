"""The mappings of a running bridge: started, stopped, and changed one by one while the others go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from bridge.config import LinkConfig
from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.rules.loops import LoopGuard
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.status import State, Status

# What runs a mapping, and the client of brokers, are imported by the functions that need them: many a bridge has no mapping.
if TYPE_CHECKING:
    from bridge.link.connection import LinkConnection
    from bridge.service.mappings.runner import Runner

log = logging.getLogger(__name__)

#: Seconds that a mapping may take to end its unit of work.
STOP_TIMEOUT = 10.0

AnyMapping = ToMqMapping | ToMqttMapping


class MappingError(Exception):
    """A mapping cannot be paused or resumed; words for a person."""


class Entry(msgspec.Struct):
    """A mapping as it is configured, and the thread that runs it, if one does."""

    config: AnyMapping
    link: LinkConfig | None
    status: Status
    runner: Runner | None = None


class Mappings:
    """All mappings of the configuration. Everything is called on the event loop; what has to wait does so in threads."""

    def __init__(self, environment: MappingEnvironment) -> None:
        self._environment = environment
        self._entries: dict[str, Entry] = {}
        self._changing = asyncio.Lock()
        #: ends what mappings of before have left at brokers
        self._ending: asyncio.Task[None] | None = None

    async def start(self, mappings: Mapping[str, AnyMapping], links: Mapping[str, LinkConfig]) -> None:
        """Start those that are enabled, and end what is left of mappings that are no more."""
        await asyncio.to_thread(self._environment.forget_others, frozenset(mappings))
        await self.apply(mappings, links)
        # A broker that is away must not hold up the others.
        self._ending = asyncio.create_task(
            asyncio.to_thread(self._environment.end_other_sessions, frozenset(mappings), dict(links))
        )

    async def apply(self, mappings: Mapping[str, AnyMapping], links: Mapping[str, LinkConfig]) -> list[str]:
        """Let the mappings be these from now on; lines that say what has changed. Those that have not go on meanwhile."""
        async with self._changing:
            environment = self._environment
            environment.guard = LoopGuard(mappings, environment.queue_manager, links, mark=environment.origin)
            lines = []
            for name in [name for name in self._entries if name not in mappings]:
                lines.append(f"mapping {name} removed{_with(await self._remove(name))}")
            for name, config in mappings.items():
                link = links.get(link_name(config))
                entry = self._entries.get(name)
                if entry is not None and (entry.config, entry.link) == (config, link):
                    continue
                change = _change(entry, config)
                lines.append(f"mapping {name} {change}{_with(await self._put_in_place(name, entry, config, link))}")
            return lines or ["no mapping has changed"]

    async def _put_in_place(self, name: str, old: Entry | None, config: AnyMapping, link: LinkConfig | None) -> int:
        """Have a mapping be as it is configured; return how many messages are gone that waited for it as it was."""
        lost = 0
        if old is not None:
            await self._stop(name, old)
            lost = await self._move(name, old, config, link)
        entry = self._entries[name] = Entry(config, link, old.status if old is not None else Status(name=name))
        if config.enabled:
            self._start(name, entry)
        else:
            entry.status.state = State.DISABLED
        return lost

    async def _remove(self, name: str) -> int:
        """End a mapping that is no more; return how many messages are gone that waited for it."""
        entry = self._entries.pop(name)
        await self._stop(name, entry)
        runner = entry.runner or self._runner(name, entry)
        lost = await asyncio.to_thread(runner.leave_source)
        await asyncio.to_thread(runner.leave_session)
        return lost

    async def _move(self, name: str, old: Entry, config: AnyMapping, link: LinkConfig | None) -> int:
        """End what takes messages for a mapping where it takes none any more; return how many are gone that waited there.

        What it goes on with keeps what waits.
        """
        lost = 0
        if _subscribes(old.config, old.link) and not _subscribes(config, link):
            lost = await asyncio.to_thread((old.runner or self._runner(name, old)).leave_source)
        if _session(old.link) == _session(link) or old.link is None:
            return lost
        if link is None or type(config) is not type(old.config):
            await asyncio.to_thread((old.runner or self._runner(name, old)).leave_session)
            return lost
        # Another name of the same broker, perhaps: then its session is gone on with. Else what waits there is not lost.
        log.warning(
            "MQB5209W mapping %s: its session at %s:%d is left there, with what waits in it; to take that, point the "
            "link there once "
            "more, and to end the session, remove the mapping while its link still points there",
            name,
            old.link.host,
            old.link.broker_port,
        )
        return lost

    def _runner(self, name: str, entry: Entry) -> Runner:
        return runner_of(name, entry.config, entry.link, self._environment, entry.status)

    async def pause(self, name: str) -> str:
        """Have a mapping take nothing more, once its unit of work has ended; what comes for it waits.

        It stays so until it is resumed or a reload changes it. Returns a line that says so. Raises MappingError.
        """
        async with self._changing:
            entry = self._entry(name)
            if entry.runner is None:
                raise MappingError(f"mapping {name} is {entry.status.state} already")
            if entry.status.state is State.PAUSED:
                raise MappingError(f"mapping {name} is paused already")
            await self._stop(name, entry)
            if not entry.runner.ended:
                raise MappingError(f"mapping {name} has not ended its unit of work yet; it takes nothing more when it has")
            entry.status.state = State.PAUSED
            return f"mapping {name} paused; what comes for it waits"

    async def resume(self, name: str) -> str:
        """Have a mapping that was paused go on; a line that says so. Raises MappingError."""
        async with self._changing:
            entry = self._entry(name)
            if entry.runner is None or not entry.runner.ended:
                raise MappingError(f"mapping {name} is not paused: it is {entry.status.state}")
            self._start(name, entry)
            return f"mapping {name} goes on"

    def _entry(self, name: str) -> Entry:
        entry = self._entries.get(name)
        if entry is None:
            raise MappingError(f"there is no mapping {name}")
        return entry

    def _start(self, name: str, entry: Entry) -> None:
        entry.status.state = State.STARTING
        entry.runner = self._runner(name, entry)
        entry.runner.start()

    @staticmethod
    async def _stop(name: str, entry: Entry) -> None:
        if entry.runner is None:
            return
        entry.runner.stop()
        if not await asyncio.to_thread(entry.runner.join, STOP_TIMEOUT):
            log.warning("MQB5006W mapping %s has not ended its unit of work within %g s", name, STOP_TIMEOUT)
        entry.status.state = State.STOPPED
        entry.status.blocked, entry.status.backlog = [], 0

    async def stop(self) -> None:
        """End all of them, each after its unit of work."""
        if self._ending is not None:
            await asyncio.wait((self._ending,))
        async with self._changing:
            running = [(name, entry) for name, entry in self._entries.items() if entry.runner is not None]
            for _, entry in running:
                assert entry.runner is not None
                entry.runner.stop()
            await asyncio.gather(*(self._stop(name, entry) for name, entry in running))

    def statuses(self) -> list[Status]:
        """Return the status of each mapping, in the order of the configuration."""
        return [entry.status for entry in self._entries.values()]

    def links(self) -> list[tuple[str, LinkConnection]]:
        """Return the connections to brokers, each with the name of its mapping."""
        runners = [(name, entry.runner) for name, entry in self._entries.items() if entry.runner is not None]
        return [(name, link) for name, runner in runners if (link := runner.link) is not None]


def runner_of(
    name: str, config: AnyMapping, link: LinkConfig | None, environment: MappingEnvironment, status: Status
) -> Runner:
    """Make the thread of a mapping, not yet started; `link` is None for the bridge's own clients."""
    if link is None:
        from bridge.service.mappings.transfer import TransferRunner

        return TransferRunner(name, config, environment, status)
    from bridge.service.mappings.exactly_once import ExactlyOnceRunner
    from bridge.service.mappings.from_link import FromLinkRunner
    from bridge.service.mappings.to_link import ToLinkRunner

    if isinstance(config, ToMqMapping):
        return FromLinkRunner(name, config, link, environment, status)
    if config.guarantee == "exactly-once":
        return ExactlyOnceRunner(name, config, link, environment, status)
    return ToLinkRunner(name, config, link, environment, status)


def link_name(config: AnyMapping) -> str:
    """Return the name of the link of a mapping's MQTT side; `local` for the bridge's own clients."""
    return config.source.link if isinstance(config, ToMqMapping) else config.destination.link


def _session(link: LinkConfig | None) -> object:
    """Return the marks that tell the session of a link from others: the broker, and the client identifier."""
    return None if link is None else (link.host, link.broker_port, link.client_id)


def _subscribes(config: AnyMapping, link: LinkConfig | None) -> bool:
    """Return whether a mapping takes from a topic of the queue manager."""
    return link is None if isinstance(config, ToMqMapping) else config.source.topic is not None


def _change(entry: Entry | None, config: AnyMapping) -> str:
    if entry is None:
        return "added" if config.enabled else "added, disabled"
    if entry.config.enabled != config.enabled:
        return "enabled" if config.enabled else "disabled; what comes for it waits"
    return "changed"


def _with(lost: int) -> str:
    return f", and {lost} messages that waited for it" if lost else ""


def started(mapping: tuple[str, AnyMapping]) -> str:
    """Return a line that tells a person of a mapping as it is configured."""
    name, config = mapping
    return f"mapping {name} runs, {config.guarantee}" if config.enabled else f"mapping {name} is disabled"
