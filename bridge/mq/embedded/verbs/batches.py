"""Batches of MQI calls (`bridge.mq.batch`) for an application, during which the queue manager does nothing else.

Calls outside syncpoint share one unit of work, so they are committed together or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from bridge.mq.batch import (
    AT_ONCE,
    GLANCE,
    Named,
    Seen,
    following,
    glance,
    got_each,
    got_many,
    looked_many,
    put_each,
    token,
)
from bridge.mq.embedded.unit import Unit, undo
from bridge.mq.embedded.verbs.application import Application
from bridge.mq.embedded.verbs.get import (
    BROWSES,
    candidates,
    get_result,
    manner_of,
    matching,
    ready_handle,
    release_lock,
    take,
)
from bridge.mq.embedded.verbs.get import OPTIONS as PROPERTIES
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.mqi import GetOptions, Got, MQError
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: Hard limits of a batch: messages, bytes of message data, and seconds. At least one call is executed.
_MESSAGES: Final = 1_000
_GLANCES: Final = 4_000
_SIZE: Final = 4 * 1024 * 1024
_SECONDS: Final = 0.02
#: Options of browses that change nothing but the cursor, so that a batch is a single pass over the queue.
_WALK: Final = (
    cmqc.MQGMO_BROWSE_FIRST
    | cmqc.MQGMO_BROWSE_NEXT
    | cmqc.MQGMO_NO_SYNCPOINT
    | cmqc.MQGMO_WAIT
    | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
    | cmqc.MQGMO_FAIL_IF_QUIESCING
    | sum(PROPERTIES)
)
#: Options of gets that have no other effects than getting the message.
_TAKE: Final = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_FAIL_IF_QUIESCING | GLANCE

Result = TypeVar("Result")


def get_many(
    application: Application, handle: int, options: GetOptions, messages: int, size: int
) -> tuple[list[Got], Unit | None]:
    """Get messages. Return them, and the unit of work to submit. Raises MQError."""
    messages, size = min(messages, _MESSAGES), min(size, _SIZE)
    if (found := _browse_many(application.hconn, handle, options, messages, size, _until())) is not None:
        return found, None
    return _Verbs(application).done(lambda verbs: got_many(verbs.get, handle, options, messages, size))


def get_each(
    application: Application, handle: int, options: GetOptions, msg_ids: Sequence[bytes], size: int
) -> tuple[list[Got | None], Unit | None]:
    """Get messages by MsgId. Return them, and the unit of work to submit. Raises MQError."""
    size = min(size, _SIZE)
    return _Verbs(application).done(lambda verbs: got_each(verbs.get, handle, options, msg_ids[:_MESSAGES], size))


def look_many(
    application: Application, handle: int, options: GetOptions, messages: int
) -> tuple[list[Seen], Unit | None]:
    """Browse messages without their data. Return them, and the unit of work to submit. Raises MQError."""
    messages, options = min(messages, _GLANCES), glance(options)
    if (found := _look_many(application.hconn, handle, options, messages, _until())) is not None:
        return found, None
    return _Verbs(application).done(lambda verbs: looked_many(verbs.get, handle, options, messages, token))


def take_each(
    application: Application, handle: int, options: GetOptions, wanted: Sequence[Named]
) -> tuple[list[bool], Unit | None]:
    """Get messages without their data. Return whether each existed, and the unit of work to submit. Raises MQError."""
    wanted, options = wanted[:_GLANCES], glance(options)
    unit = Unit()
    try:
        found = _take_each(application.hconn, handle, options, wanted, _until(), unit)
    except BaseException:
        undo(unit)
        raise
    if found is not None:
        return found, None if unit.empty else unit
    return _Verbs(application).done(lambda verbs: _took_each(verbs.get, handle, options, wanted))


def put_many(application: Application, puts: Sequence[tuple[int, Message, int]]) -> tuple[list[MQMD], Unit | None]:
    """Put messages. Return their MQMDs, and the unit of work to submit. Raises MQError."""
    return _Verbs(application).done(lambda verbs: put_each(verbs.put, puts))


def _until() -> float:
    """Return the deadline, as time.monotonic(), for a batch that begins now."""
    return time.monotonic() + _SECONDS


# Verbs in a row, the options of which are looked at once ---------------------------------------------------------------


def _browse_many(
    hconn: Hconn, hobj: int, options: GetOptions, messages: int, size: int, until: float
) -> list[Got] | None:
    """Browse messages until a limit is reached: `messages`, bytes, or time.monotonic() `until`.

    Return None if the options are not supported here. Raises the MQError of the first browse.
    """
    if options.Options & ~_WALK or not options.Options & BROWSES:
        return None
    handle = ready_handle(hconn, hobj, options)
    how = manner_of(handle, options)
    found: list[Got] = []
    for stored in candidates(hconn, handle, options):
        try:
            got = get_result(hconn, handle, [stored], options, how)
        except MQError:
            if not found:
                raise
            break
        if not found:
            release_lock(handle)
            options = following(options)
        handle.cursor = stored
        found.append(got)
        size -= len(got.data)
        if len(found) >= messages or size <= 0 or time.monotonic() > until:
            break
    if not found:
        raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"queue {handle.queue.name}")
    return found


def _look_many(hconn: Hconn, hobj: int, options: GetOptions, messages: int, until: float) -> list[Seen] | None:
    """Browse like `_browse_many`, but without data. `options` are from `glance`."""
    if options.Options & ~_WALK or not options.Options & BROWSES:
        return None
    handle = ready_handle(hconn, hobj, options)
    how = manner_of(handle, options)
    appearance = hconn.queue_manager.appearance
    transmission = handle.queue.is_transmission
    found: list[Seen] = []
    stored = None
    for stored in candidates(hconn, handle, options):
        message = stored.message
        if transmission or not isinstance(message, Message) or message.md.Format == cmqc.MQFMT_RF_HEADER_2:
            got = get_result(hconn, handle, [stored], options, how)
            msg_id, length = got.md.MsgId, got.DataLength
        else:  # avoid creating the RFH2 of properties that are not requested
            msg_id, length = appearance.msg_id(stored), len(message.data)
        found.append(Seen(msg_id, stored.msg_number.to_bytes(8, "big"), stored.expires_at > 0, length))
        if len(found) >= messages or time.monotonic() > until:
            break
    if stored is None:
        raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"queue {handle.queue.name}")
    release_lock(handle)
    handle.cursor = stored
    return found


def _take_each(
    hconn: Hconn, hobj: int, options: GetOptions, names: Sequence[Named], until: float, unit: Unit
) -> list[bool] | None:
    """Get messages by MsgId and fingerprint, without data. Return whether each existed.

    Return None if the options are not supported here. `options` are from `glance`. Gets outside syncpoint are added to
    `unit`. Raises the MQError of the first get.
    """
    if options.Options & ~_TAKE or options.MatchOptions != cmqc.MQMO_MATCH_MSG_ID:
        return None
    handle = ready_handle(hconn, hobj, options)
    if handle.options & cmqc.MQOO_SAVE_ALL_CONTEXT:
        return None
    manner_of(handle, options)
    syncpoint = bool(options.Options & cmqc.MQGMO_SYNCPOINT)
    wanted = msgspec.structs.replace(options)
    anything = msgspec.structs.replace(options, MatchOptions=cmqc.MQMO_NONE)
    found: list[bool] = []
    # Messages are usually requested in queue order, so try the first message of the queue.
    first = next(rest := candidates(hconn, handle, anything), None)
    for msg_id, fingerprint in names:
        if found and time.monotonic() > until:
            break
        wanted.MsgId = msg_id
        has_it = matching(hconn.queue_manager.appearance, wanted)
        number = int.from_bytes(fingerprint, "big")
        is_first = (
            first is not None and (has_it is None or has_it(first)) and (not fingerprint or first.msg_number == number)
        )
        if is_first:
            stored = first
        else:
            alike = candidates(hconn, handle, wanted)
            stored = next((one for one in alike if not fingerprint or one.msg_number == number), None)
        if stored is not None:
            if syncpoint:
                try:
                    unit = hconn.unit_of_work()
                except MQError:
                    if not found:
                        raise
                    break
            take(hconn, handle, (stored,), unit)
            if not is_first:
                rest = candidates(hconn, handle, anything)
            first = next(rest, None)
        found.append(stored is not None)
    return found


def _took_each(
    get: Callable[[int, GetOptions], Got], handle: int, options: GetOptions, names: Sequence[Named]
) -> list[bool]:
    """Implement `_take_each` with the MQGET function `verbs.get`."""
    found: list[bool] = []
    for msg_id, fingerprint in names:
        wanted = msgspec.structs.replace(options)
        if fingerprint:
            wanted.MatchOptions |= cmqc.MQMO_MATCH_MSG_TOKEN
            wanted.MsgToken = bytes(8) + fingerprint
        try:
            found += [got is not None for got in got_each(get, handle, wanted, [msg_id], 1)]
        except MQError as error:
            if not found or error.reason in AT_ONCE:
                raise
            break
    return found


class _Verbs:
    """MQI calls of an application, which collects their units of work."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._unit: Unit | None = None
        self._until = _until()
        self._begun = False

    def done(self, batch: Callable[[_Verbs], Result]) -> tuple[Result, Unit | None]:
        """Run a batch. Return its result, and the unit of work to submit."""
        try:
            return batch(self), self._unit
        except BaseException:
            if self._unit is not None:
                undo(self._unit)
            raise

    def get(self, handle: int, options: GetOptions) -> Got:
        """Call MQGET, without waiting."""
        self._begin()
        got, unit = self._application.get(handle, options)
        self._add(unit)
        return got

    def put(self, handle: int, message: AnyMessage, options: int) -> MQMD:
        """Call MQPUT."""
        self._begin()
        assert isinstance(message, Message)
        md, unit = self._application.put(handle, message, options)
        self._add(unit)
        return md

    def _begin(self) -> None:
        if self._begun and time.monotonic() > self._until:
            # End the batch like a failed call. The reason code is not visible to the application.
            raise MQError(cmqc.MQRC_RESOURCE_PROBLEM, "the batch took its time")
        self._begun = True

    def _add(self, unit: Unit | None) -> None:
        if unit is None or self._unit is None:
            self._unit = self._unit or unit
            return
        self._unit.add(unit)
