"""Sequences: coroutines that answer CONNECT, AUTH, SUBSCRIBE and UNSUBSCRIBE of clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator
from typing import Any

from bridge.mqtt.reason_codes import ReasonCode
from bridge.service.client import Client

log = logging.getLogger(__name__)

Sequence = Coroutine[Any, Any, None]


class Sequences:
    """The sequences that are running."""

    def __init__(self) -> None:
        #: the event loop itself keeps no reference to a task
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, client: Client, sequence: Sequence) -> asyncio.Task[None] | None:
        """Run a sequence at once up to its first await that has to wait, and the rest as a task; None if there is no rest.

        So a client's packets reach the queue manager in the order in which they came, and an answer that the queue manager
        gives at once goes out at once. From Python 3.12 on, asyncio has this itself (`eager_start`).
        """
        guarded = _guarded(client, sequence)
        try:
            awaited = guarded.send(None)
        except StopIteration:
            return None
        task = asyncio.get_running_loop().create_task(_rest(guarded, awaited))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _guarded(client: Client, sequence: Sequence) -> None:
    """Run a sequence. If it raises, only its client is disconnected."""
    try:
        await sequence
    except Exception:
        log.exception("MQB2105E client %s: a packet cannot be answered; the client is disconnected", client.peer)
        client.close("", ReasonCode.UNSPECIFIED_ERROR)


async def _rest(coroutine: Sequence, awaited: object) -> None:
    await _Started(coroutine, awaited)


class _Started:
    """A coroutine that has run up to an await, as an awaitable."""

    def __init__(self, coroutine: Sequence, awaited: object) -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, None]:
        coroutine, awaited = self._coroutine, self._awaited
        while True:
            try:
                try:
                    result = yield awaited
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:
                    awaited = coroutine.throw(error)
                else:
                    awaited = coroutine.send(result)
            except StopIteration:
                return
