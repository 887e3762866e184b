"""The mappings of a running bridge. They are started, stopped and changed individually."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from bridge.administration.answers import counted
from bridge.administration.mapping_status import MappingStatus, RunnerState, UnfinishedSession
from bridge.administration.protocol import NotFound, Refused, Unavailable
from bridge.background import in_background
from bridge.config.link import LinkConfig
from bridge.config.mapping import ToMqMapping
from bridge.histogram import Histogram
from bridge.mapping.loops import LoopGuard
from bridge.mq.mqi import MQError
from bridge.mq.worker import LOST
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.unfinished_sessions import AnyMapping, UnfinishedSessions

# Runners and the broker client are imported on demand: many bridges have no mappings.
if TYPE_CHECKING:
    from bridge.link.connection import LinkConnection
    from bridge.service.mappings.runner import Runner

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds to wait for a mapping to end its unit of work, and for calls of the queue manager in progress at a stop.
STOP_TIMEOUT = 10.0

#: Maximum time in seconds to wait for the first attempts of started mappings to open their sources.
FIRST_ATTEMPTS = 5.0

#: Seconds between attempts to finish former sessions at brokers.
SETTLE_INTERVAL = 10.0


class RegistryEntry(msgspec.Struct):
    """A configured mapping, and its runner if it is enabled."""

    config: AnyMapping
    link: LinkConfig | None
    status: MappingStatus
    runner: Runner | None = None

    def signal_stop(self) -> None:
        """Request the end of the mapping after its current unit of work."""
        if self.runner is not None:
            self.runner.stop()


class Mappings:
    """All configured mappings. Methods are called on the event loop. Blocking work is done in threads."""

    def __init__(self, environment: MappingEnvironment, shard: int | None = None) -> None:
        """`shard` is the number of this bridge's shard, which runs the mappings of that shard. None: it runs all."""
        self._environment = environment
        self._shard = shard
        self._unfinished = UnfinishedSessions(environment)
        self._entries: dict[str, RegistryEntry] = {}
        #: the mappings of all shards
        self._configured: Mapping[str, AnyMapping] = {}
        self._changing = asyncio.Lock()
        #: finishes and ends former sessions at brokers
        self._settling: asyncio.Task[None] | None = None
        self._links: Mapping[str, LinkConfig] = {}
        self._stopping = asyncio.Event()
        #: sessions or subscriptions of removed mappings may remain
        self._untidy = False
        #: ends the pause between attempts to finish former sessions
        self._settle_now = asyncio.Event()

    async def start(self, mappings: Mapping[str, AnyMapping], links: Mapping[str, LinkConfig]) -> None:
        """Start enabled mappings, and clean up after removed ones."""
        await _called(self._environment.identify)
        self._configured = mappings
        await self._tidy(links)
        await self.apply(mappings, links)
        loop = asyncio.get_running_loop()
        self._environment.on_former_sessions = lambda: loop.call_soon_threadsafe(self._settle_now.set)
        # An unreachable broker must not delay the start.
        self._settling = asyncio.create_task(self._settle_former_sessions())

    def _of_shard(self, mappings: Mapping[str, AnyMapping]) -> Mapping[str, AnyMapping]:
        """Return the mappings that run in this shard."""
        if self._shard is None:
            return mappings
        return {name: config for name, config in mappings.items() if config.shard == self._shard}

    def _of_other_shards(self) -> dict[str, AnyMapping]:
        """Return the enabled mappings that run in other shards."""
        own = self._of_shard(self._configured)
        return {name: config for name, config in self._configured.items() if name not in own and config.enabled}

    async def _tidy(self, links: Mapping[str, LinkConfig]) -> None:
        """Clean up after removed mappings, and after those that no longer subscribe.

        Messages on the queues of their subscriptions may be unfinished at a broker. So the subscriptions stay until these
        messages have been moved. Keep the subscriptions and sessions of mappings that have moved to another shard.
        """
        self._untidy = not await _called(self._unfinished.leave_others, self._configured, links)
        if not self._untidy:
            subscribing = frozenset(
                name for name, config in self._configured.items() if _subscribes(config, links.get(link_name(config)))
            )
            await _called(self._environment.forget_others, subscribing)

    async def _settle_former_sessions(self) -> None:
        # If `stop` was called before the task began, `clear` must not discard its request.
        while not self._stopping.is_set():
            self._settle_now.clear()
            if self._untidy:
                async with self._changing:
                    await self._tidy(self._links)
            in_use = frozenset(entry.runner.session_key for entry in self._entries.values() if entry.runner is not None)
            others = self._of_other_shards()
            await _called(self._unfinished.settle, self._links, in_use, others, self._stopping.is_set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._settle_now.wait(), SETTLE_INTERVAL)

    async def apply(self, mappings: Mapping[str, AnyMapping], links: Mapping[str, LinkConfig]) -> list[str]:
        """Apply changed mappings and return lines that describe the changes. Unchanged mappings keep running."""
        async with self._changing:
            environment = self._environment
            environment.guard = LoopGuard(mappings, environment.queue_manager, links, mark=environment.origin)
            self._links = dict(links)
            environment.name_publishers(mappings.values())
            self._configured = mappings
            mappings = self._of_shard(mappings)
            lines = []
            for name, old in self._entries.items():
                new = mappings.get(name)
                if new is None or (old.config, old.link) != (new, links.get(link_name(new))):
                    # All threads end at the same time, because an MQGET of IBM MQ may wait for seconds.
                    old.signal_stop()
            for name in [name for name in self._entries if name not in mappings]:
                deleted_count = await self._remove(name)
                moved = self._configured.get(name)
                change = "removed" if moved is None else f"moved to shard {moved.shard}"
                lines.append(f"mapping {name} {change}{_with(deleted_count)}")
            for name, config in mappings.items():
                link = links.get(link_name(config))
                entry = self._entries.get(name)
                if entry is not None and (entry.config, entry.link) == (config, link):
                    continue
                change = _change(entry, config)
                lines.append(f"mapping {name} {change}{_with(await self._put_in_place(name, entry, config, link))}")
            await self._await_first_attempts()
            return lines or ["no mapping has changed"]

    async def _await_first_attempts(self) -> None:
        """Wait until the mappings have their subscriptions, unless the queue manager does not answer.

        A publication of a client that knows that the bridge is ready then reaches a new mapping.
        """
        runners = [entry.runner for entry in self._entries.values() if entry.runner is not None]

        def wait() -> None:
            deadline = time.monotonic() + FIRST_ATTEMPTS
            for runner in runners:
                runner.attempted.wait(max(deadline - time.monotonic(), 0.0))

        await asyncio.to_thread(wait)

    async def _put_in_place(
        self, name: str, old: RegistryEntry | None, config: AnyMapping, link: LinkConfig | None
    ) -> int:
        """Apply a mapping's configuration and return how many messages waiting for the previous one were deleted."""
        lost_messages = 0
        if old is not None:
            await self._stop(name, old)
            lost_messages = await self._move(name, old, config, link)
        entry = self._entries[name] = RegistryEntry(
            config, link, old.status if old is not None else MappingStatus(name=name)
        )
        if config.enabled:
            self._start(name, entry, old.runner if old is not None and _same_options(old, entry) else None)
        else:
            entry.status.state = RunnerState.DISABLED
        return lost_messages

    async def _remove(self, name: str) -> int:
        """End a removed mapping and return how many messages waiting for it were deleted.

        Its session at a broker is ended, unless another mapping uses it from now on. The shard to which a mapping has moved
        continues with its subscription and its session, if the mapping still uses them.
        """
        entry = self._entries.pop(name)
        await self._stop(name, entry)
        if (moved := self._configured.get(name)) is not None:
            return await self._move(name, entry, moved, self._links.get(link_name(moved)))
        leave = self._unfinished.leave
        if entry.link is not None and not await _called(leave, name, self._configured, self._links):
            self._untidy = True
            return 0
        return await _called((entry.runner or self._runner(name, entry)).leave_source)

    async def _move(self, name: str, old: RegistryEntry, config: AnyMapping, link: LinkConfig | None) -> int:
        """End subscriptions and sessions that a changed mapping no longer uses.

        Return how many waiting messages were deleted with them. Messages of sources that the mapping still uses are kept.
        """
        lost_messages, leaves_source = 0, _subscribes(old.config, old.link) and not _subscribes(config, link)
        leaves_session = old.link is not None and (link is None or type(config) is not type(old.config))
        if old.link is not None and (leaves_source or leaves_session):
            # Before the source is left, because messages on its queue may be unfinished at the broker.
            former: tuple[dict[str, AnyMapping], dict[str, LinkConfig]] = ({}, {})
            if not leaves_session and link is not None:
                former = ({name: config}, {link_name(config): link})
            has_moved = self._shard is not None and config.shard != self._shard
            if not await _called(self._unfinished.leave, name, *former, only_own=has_moved):
                self._untidy = True
                return 0
        if leaves_source:
            lost_messages = await _called((old.runner or self._runner(name, old)).leave_source)
        if old.link is None or link is None or leaves_session:
            return lost_messages
        if _session(old.link) == _session(link) or not isinstance(config, ToMqMapping):
            return lost_messages
        # The link may use another name of the same broker, where the session continues. Otherwise its messages must not be
        # lost.
        log.warning(
            "MQB5209W mapping %s: its session at %s:%d remains there with its messages; to fetch them, point the link there "
            "again; to end the session, remove the mapping while its link still points there",
            name,
            old.link.host,
            old.link.broker_port,
        )
        return lost_messages

    def _runner(self, name: str, entry: RegistryEntry) -> Runner:
        return runner_of(name, entry.config, entry.link, self._environment, entry.status)

    async def give_up(self, name: str) -> str:
        """Give up the unfinished sessions of a mapping, and return a line for display. Raises Refused."""
        async with self._changing:
            in_use = frozenset(entry.runner.session_key for entry in self._entries.values() if entry.runner is not None)
            if all(session.mapping != name for session in self._unfinished.listed):
                raise Refused(f"mapping {name} has no unfinished session")
            try:
                sessions, messages = await _called(self._unfinished.give_up, name, in_use)
            except MQError as error:
                kind = Unavailable if error.reason in LOST else Refused
                raise kind(f"queue manager {self._environment.queue_manager}: {error}") from error
            return (
                f"gave up {counted(sessions, 'session')} of mapping {name}; {counted(messages, 'message')} moved to the "
                "dead-letter queue"
            )

    async def pause(self, name: str) -> str:
        """Pause a mapping after its current unit of work, and return a line for display. Its source messages wait.

        It stays paused until it is resumed or changed by a reload. Raises Refused.
        """
        async with self._changing:
            entry = self._entry(name)
            if entry.runner is None:
                raise Refused(f"mapping {name} is already {entry.status.state}")
            if entry.status.state is RunnerState.PAUSED:
                raise Refused(f"mapping {name} is already paused")
            await self._stop(name, entry)
            if not entry.runner.ended:
                raise Refused(f"mapping {name} has not completed its unit of work yet; it stops afterwards")
            entry.status.state = RunnerState.PAUSED
            return f"mapping {name} paused; its messages wait"

    async def resume(self, name: str) -> str:
        """Resume a paused mapping and return a line for display. Raises Refused."""
        async with self._changing:
            entry = self._entry(name)
            if entry.runner is None or not entry.runner.ended:
                raise Refused(f"mapping {name} is not paused: it is {entry.status.state}")
            self._start(name, entry, entry.runner)
            return f"mapping {name} resumed"

    def _entry(self, name: str) -> RegistryEntry:
        entry = self._entries.get(name)
        if entry is None:
            raise NotFound(f"there is no mapping {name}")
        return entry

    def _start(self, name: str, entry: RegistryEntry, former: Runner | None) -> None:
        """Start the thread of a mapping. It replaces a `former` one of the same options, if there is one."""
        entry.status.state = RunnerState.STARTING
        entry.runner = self._runner(name, entry)
        if former is not None and former.ended:
            entry.runner.keep_rates(former)
        entry.runner.start()

    @staticmethod
    async def _stop(name: str, entry: RegistryEntry) -> None:
        if entry.runner is None:
            return
        entry.runner.stop()
        if not await asyncio.to_thread(entry.runner.join, STOP_TIMEOUT):
            log.warning("MQB5006W mapping %s did not complete its unit of work within %g s", name, STOP_TIMEOUT)
        entry.status.state = RunnerState.STOPPED
        entry.status.blocked, entry.status.backlog = [], 0

    async def stop(self) -> None:
        """Stop all mappings after their current units of work."""
        self._stopping.set()
        self._settle_now.set()
        # A reload that waits for the queue manager has the lock until its mappings have ended.
        for entry in self._entries.values():
            entry.signal_stop()
        # Their calls may never return if the queue manager hangs.
        if self._settling is not None:
            await _finished(self._settling)
        changing = asyncio.ensure_future(self._changing.acquire())
        is_locked = await _finished(changing)
        running = [(name, entry) for name, entry in self._entries.items() if entry.runner is not None]
        for _, entry in running:  # of mappings that a reload has started in the meantime
            entry.signal_stop()
        await asyncio.gather(*(self._stop(name, entry) for name, entry in running))
        self._environment.on_former_sessions = lambda: None
        if is_locked:
            self._changing.release()

    def statuses(self) -> list[MappingStatus]:
        """Return the status of each mapping in the order of the configuration, then of removed ones that are unfinished."""
        unfinished: dict[str, list[UnfinishedSession]] = {}
        for session in self._unfinished.listed:
            unfinished.setdefault(session.mapping, []).append(session)
        statuses = [entry.status for entry in self._entries.values()]
        for status in statuses:
            status.unfinished = unfinished.pop(status.name, [])
        former_statuses = [
            MappingStatus(name=name, state=RunnerState.REMOVED, unfinished=count) for name, count in unfinished.items()
        ]
        return [*statuses, *former_statuses]

    def connect_link(self, name: str) -> tuple[int, int]:
        """End the back-off of a link's connections, of mappings that wait for it, and of former sessions.

        Return how many mappings had no connection, and how many use the link.
        """
        runners = [entry.runner for entry in self._entries.values() if entry.runner is not None]
        using = [(runner, link) for runner in runners if (link := runner.link) is not None and link.name == name]
        waiting = [(runner, link) for runner, link in using if not link.up]
        for runner, link in waiting:
            link.connect_now()
            runner.end_pause()
        self._settle_now.set()
        return len(waiting), len(using)

    def durations(self) -> list[tuple[str, Histogram]]:
        """Return the durations of the mappings' units of work with the names of the mappings."""
        return [(name, entry.runner.seconds) for name, entry in self._entries.items() if entry.runner is not None]

    def links(self) -> list[tuple[str, LinkConnection]]:
        """Return the connections to brokers with the names of their mappings."""
        runners = [(name, entry.runner) for name, entry in self._entries.items() if entry.runner is not None]
        return [(name, link) for name, runner in runners if (link := runner.link) is not None]


async def _called(function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """Call a function that calls the queue manager. If it hangs, it does not keep the process from ending."""
    return await asyncio.wrap_future(in_background(partial(function, *arguments, **keywords), "mappings"))


async def _finished(task: asyncio.Future[Any]) -> bool:
    """Wait for a task, but not longer than for a unit of work. Otherwise, cancel it, and return False."""
    finished, _ = await asyncio.wait((task,), timeout=STOP_TIMEOUT)
    if not finished:
        task.cancel()
    return bool(finished)


def runner_of(
    name: str, config: AnyMapping, link: LinkConfig | None, environment: MappingEnvironment, status: MappingStatus
) -> Runner:
    """Return the thread of a mapping, not yet started. `link` is None for the bridge's own clients."""
    if link is None:
        from bridge.service.mappings.runner import TransferRunner

        return TransferRunner(name, config, environment, status)
    from bridge.service.mappings.exactly_once import ExactlyOnceRunner
    from bridge.service.mappings.link_runner import FromLinkRunner, ToLinkRunner

    if isinstance(config, ToMqMapping):
        return FromLinkRunner(name, config, link, environment, status)
    if config.guarantee == "exactly-once":
        return ExactlyOnceRunner(name, config, link, environment, status)
    return ToLinkRunner(name, config, link, environment, status)


def link_name(config: AnyMapping) -> str:
    """Return the link name of a mapping's MQTT side, or `local` for the bridge's own clients."""
    return config.source.link if isinstance(config, ToMqMapping) else config.destination.link


def _session(link: LinkConfig | None) -> object:
    """Return the identifying settings of a link's session: broker and client identifier."""
    return None if link is None else (link.host, link.broker_port, link.client_id)


def _subscribes(config: AnyMapping, link: LinkConfig | None) -> bool:
    """Return whether a mapping has a subscription at the queue manager."""
    return link is None if isinstance(config, ToMqMapping) else config.source.topic is not None


def _same_options(old: RegistryEntry, new: RegistryEntry) -> bool:
    """Return whether only a file or the names of other mappings have changed, and not the options of the mapping."""
    return vars(old.config) == vars(new.config) and old.link == new.link


def _change(entry: RegistryEntry | None, config: AnyMapping) -> str:
    if entry is None:
        return "added" if config.enabled else "added, disabled"
    if entry.config.enabled != config.enabled:
        return "enabled" if config.enabled else "disabled; its messages wait"
    return "changed"


def _with(count: int) -> str:
    return f", and {count} messages that waited for it" if count else ""


def started(name: str, config: AnyMapping, shard: int | None) -> str:
    """Return a line for display about a configured mapping. `shard` is that of this bridge, or None."""
    if config.enabled and shard not in (None, config.shard):
        return f"mapping {name} runs in the bridge of shard {config.shard}"
    return f"mapping {name} runs, {config.guarantee}" if config.enabled else f"mapping {name} is disabled"
