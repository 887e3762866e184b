"""The handles of all applications, and those that a changed definition invalidates.

Calls with an invalid handle, except MQCLOSE, return MQRC_OBJECT_CHANGED. Source: IBM MQ documentation, "MQOPEN - Open
object" (the attributes that affect handles), "Some cases where the put calls fail", "ALTER queues" and "ALTER QMGR" (FORCE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.objects import Destination
from bridge.mq.embedded.queue import Queue
from bridge.mq.embedded.queuemanager import QueueManager

#: Resolves ObjectName and ObjectQMgrName. Raises MQError.
Resolve = Callable[[str, str], Destination]


class OpenHandle(Protocol):
    """A handle of `bridge.mq.embedded.verbs.handle`."""

    @property
    def names(self) -> tuple[str, str]:
        """OBJTYPE and OBJNAME of DISPLAY CONN."""

    @property
    def gets(self) -> bool:
        """Whether it is open for input."""

    def is_for(self, kind: str, name: str, queue: Queue | None) -> bool:
        """Return whether it is open for an object, or its name resolves via it. `queue` is the queue of a QLOCAL."""

    def inquires(self, kind: str, name: str) -> bool:
        """Return whether it is open only for the definition of an object."""

    def leads_elsewhere(self, resolve: Resolve) -> bool:
        """Return whether its name now resolves to a different destination."""

    def invalidate(self) -> None:
        """Allow only MQCLOSE from now on. A waiting get ends."""


def open_handles(queue_manager: QueueManager) -> Iterator[OpenHandle]:
    """Yield the handles of all applications."""
    for hconn in list(queue_manager.applications):
        yield from hconn.handles.values()


def invalidate(handles: Iterable[OpenHandle]) -> None:
    for handle in handles:
        handle.invalidate()


def open_for(queue_manager: QueueManager, kind: str, name: str) -> list[OpenHandle]:
    """Return the handles that are open for a queue, or whose names resolve via its definition."""
    queue = queue_manager.queues.get(name) if kind == "QLOCAL" else None
    return [one for one in open_handles(queue_manager) if one.is_for(kind, name, queue)]


def affected(
    queue_manager: QueueManager, kind: str, name: str, old: dict[str, Value], new: dict[str, Value]
) -> list[OpenHandle]:
    """Return the handles that new attributes of a queue invalidate. If there are any, the command requires FORCE."""
    if kind == "QLOCAL":
        handles = open_for(queue_manager, kind, name)
        unshared = (old["SHARE"], new["SHARE"]) == ("YES", "NO") and sum(one.gets for one in handles) > 1
        return handles if unshared or old["USAGE"] != new["USAGE"] else []
    if kind not in ("QALIAS", "QREMOTE"):
        return []
    resolving = ("TARGET", "TARGTYPE") if kind == "QALIAS" else ("RNAME", "RQMNAME", "XMITQ")
    if all(old[keyword] == new[keyword] for keyword in resolving):
        return []
    inquiring = [one for one in open_handles(queue_manager) if one.inquires(kind, name)]
    return inquiring + rerouted(queue_manager, queue_manager.held(kind), name, new)


def rerouted(queue_manager: QueueManager, held: dict[str, Any], key: str, value: object) -> list[OpenHandle]:
    """Return the handles whose names resolve to a different destination if `held[key]` is `value`."""
    before = held[key]
    held[key] = value
    try:
        return [one for one in open_handles(queue_manager) if one.leads_elsewhere(queue_manager.resolve)]
    finally:
        held[key] = before
