"""Handles that a changed definition makes invalid: every later call but MQCLOSE returns MQRC_OBJECT_CHANGED.

Source: IBM MQ documentation, "MQOPEN - Open object" (the attributes that affect handles), "Some cases where the put calls
fail", "ALTER queues" and "ALTER QMGR" (FORCE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.objects import Destination
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.verbs.handle import (
    INPUT,
    DefinitionHandle,
    Handle,
    QueueHandle,
    SubscriptionHandle,
    TopicHandle,
)
from bridge.mq.errors import MQError


def open_handles(queue_manager: QueueManager) -> Iterator[Handle]:
    """Yield the handles of all applications."""
    for hconn in list(queue_manager.applications):
        yield from hconn.handles.values()


def invalidate(handles: Iterable[Handle]) -> None:
    """Make handles invalid. A get that waits with one of them ends."""
    for handle in handles:
        if not isinstance(handle, SubscriptionHandle):
            handle.changed = True
        if isinstance(handle, QueueHandle):
            handle.queue.announce()


def open_for(queue_manager: QueueManager, kind: str, name: str) -> list[Handle]:
    """Return the handles that are open for a queue, or whose names resolve through its definition."""

    def is_for(handle: Handle) -> bool:
        if isinstance(handle, SubscriptionHandle):
            return False
        if kind == "QLOCAL":
            return isinstance(handle, QueueHandle) and handle.queue is queue_manager.queues.get(name)
        if isinstance(handle, DefinitionHandle):
            return (handle.kind, handle.name) == (kind, name)
        return name in handle.opened

    return [one for one in open_handles(queue_manager) if is_for(one)]


def affected(queue_manager: QueueManager, kind: str, name: str, old: dict[str, Value], new: dict[str, Value]) -> list[Handle]:
    """Return the handles that other attributes of a queue make invalid; the command needs FORCE if there are any."""
    if kind == "QLOCAL":
        handles = open_for(queue_manager, kind, name)
        inputs = [one for one in handles if isinstance(one, QueueHandle) and one.options & INPUT]
        unshared = (old["SHARE"], new["SHARE"]) == ("YES", "NO") and len(inputs) > 1
        return handles if unshared or old["USAGE"] != new["USAGE"] else []
    if kind not in ("QALIAS", "QREMOTE"):
        return []
    resolving = ("TARGET", "TARGTYPE") if kind == "QALIAS" else ("RNAME", "RQMNAME", "XMITQ")
    if all(old[keyword] == new[keyword] for keyword in resolving):
        return []
    inquiring = [one for one in open_for(queue_manager, kind, name) if isinstance(one, DefinitionHandle)]
    return inquiring + rerouted(queue_manager, queue_manager.held(kind), name, new)


def rerouted(queue_manager: QueueManager, held: dict[str, Any], key: str, value: object) -> list[Handle]:
    """Return the handles whose names resolve to something else once `held[key]` is `value`."""
    before = held[key]
    held[key] = value
    try:
        return [one for one in open_handles(queue_manager) if _leads_elsewhere(queue_manager.resolve, one)]
    finally:
        held[key] = before


def _leads_elsewhere(resolve: Callable[[str, str], Destination], handle: Handle) -> bool:
    if not isinstance(handle, QueueHandle | TopicHandle) or not handle.opened:
        return False
    try:
        found = resolve(*handle.opened)
    except MQError:
        return True
    if isinstance(handle, TopicHandle):
        return found.topic != handle.topic
    own = handle.destination
    return found.queue is not own.queue or (found.remote_queue, found.client_id) != (own.remote_queue, own.client_id)
