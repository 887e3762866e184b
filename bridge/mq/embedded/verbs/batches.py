"""Batches of verbs (`bridge.mq.batch`) for an application, done while the queue manager does nothing else.

What single verbs would commit one by one is one unit of work here: on disk together, or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from bridge.mapping.message import Message
from bridge.mapping.telemetry.message import AnyMessage
from bridge.mq.batch import Seen, glance, got_each, got_many, looked_many, put_each, took_each
from bridge.mq.embedded.unit import Unit, undo
from bridge.mq.embedded.verbs.application import Application
from bridge.mq.errors import MQError
from bridge.mq.mqi import GetOptions, Got
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: Messages, bytes of their data, and seconds, after which a batch ends whatever is asked for. One verb is done at least.
_MESSAGES: Final = 1_000
_GLANCES: Final = 4_000
_SIZE: Final = 4 * 1024 * 1024
_SECONDS: Final = 0.02

Result = TypeVar("Result")


def get_many(
    application: Application, handle: int, options: GetOptions, messages: int, size: int
) -> tuple[list[Got], Unit | None]:
    """Get messages; return them, and the unit of work to submit. Raises MQError."""
    messages, size = min(messages, _MESSAGES), min(size, _SIZE)
    if (found := application.browse_many(handle, options, messages, size, _until())) is not None:
        return found, None
    return _Verbs(application).done(lambda verbs: got_many(verbs.get, handle, options, messages, size))


def get_each(
    application: Application, handle: int, options: GetOptions, msg_ids: Sequence[bytes], size: int
) -> tuple[list[Got | None], Unit | None]:
    """Get the messages of some MsgIds; return them, and the unit of work to submit. Raises MQError."""
    size = min(size, _SIZE)
    return _Verbs(application).done(lambda verbs: got_each(verbs.get, handle, options, msg_ids[:_MESSAGES], size))


def look_many(
    application: Application, handle: int, options: GetOptions, messages: int
) -> tuple[list[Seen], Unit | None]:
    """Look at the messages that are there; return them, and the unit of work to submit. Raises MQError."""
    messages, options = min(messages, _GLANCES), glance(options)
    if (found := application.look_many(handle, options, messages, _until())) is not None:
        return found, None
    return _Verbs(application).done(lambda verbs: looked_many(verbs.get, handle, options, messages))


def take_each(
    application: Application, handle: int, options: GetOptions, msg_ids: Sequence[bytes]
) -> tuple[list[bool], Unit | None]:
    """Take some messages; return whether each was there, and the unit of work to submit. Raises MQError."""
    msg_ids, options = msg_ids[:_GLANCES], glance(options)
    unit = Unit()
    try:
        found = application.take_each(handle, options, msg_ids, _until(), unit)
    except BaseException:
        undo(unit)
        raise
    if found is not None:
        return found, None if unit.empty else unit
    return _Verbs(application).done(lambda verbs: took_each(verbs.get, handle, options, msg_ids))


def put_many(application: Application, puts: Sequence[tuple[int, Message, int]]) -> tuple[list[MQMD], Unit | None]:
    """Put messages; return their MQMDs, and the unit of work to submit. Raises MQError."""
    return _Verbs(application).done(lambda verbs: put_each(verbs.put, puts))


def _until() -> float:
    """Return the time when a batch that begins now ends."""
    return time.monotonic() + _SECONDS


class _Verbs:
    """Verbs of an application; collects what they leave to be committed."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._unit: Unit | None = None
        self._until = _until()
        self._begun = False

    def done(self, batch: Callable[[_Verbs], Result]) -> tuple[Result, Unit | None]:
        """Run a batch; return its result, and the unit of work to submit."""
        try:
            return batch(self), self._unit
        except BaseException:
            if self._unit is not None:
                undo(self._unit)
            raise

    def get(self, handle: int, options: GetOptions) -> Got:
        """Do MQGET, without waiting."""
        self._begin()
        got, unit = self._application.get(handle, options)
        self._add(unit)
        return got

    def put(self, handle: int, message: AnyMessage, options: int) -> MQMD:
        """Do MQPUT of a Message."""
        self._begin()
        assert isinstance(message, Message)
        md, unit = self._application.put(handle, message, options)
        self._add(unit)
        return md

    def _begin(self) -> None:
        if self._begun and time.monotonic() > self._until:
            # The batch ends here as it does where a verb fails; nobody sees the reason.
            raise MQError(cmqc.MQRC_RESOURCE_PROBLEM, "the batch took its time")
        self._begun = True

    def _add(self, unit: Unit | None) -> None:
        if unit is None or self._unit is None:
            self._unit = self._unit or unit
            return
        whole = self._unit
        whole.puts += unit.puts
        whole.gets += unit.gets
        whole.definitions += unit.definitions
        whole.latest += unit.latest
        whole.displaced += unit.displaced
        whole.effects += unit.effects
        whole.undone += unit.undone
