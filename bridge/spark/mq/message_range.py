"""Certain messages of a queue, browsed: a range of it, which mostly still is one when it is read.

So it is browsed from its first message on, and each message is compared with the one that is expected. Others that came in
between are passed over; what is not where it is expected is looked for by its MsgId, and known by its fingerprint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from bridge.mq.batch import MESSAGES, fingerprint_by, get_each, get_many
from bridge.mq.mqi import Connection, GetOptions, Got, MQError
from bridge.spark.mq.browsing import GET, look, open_for_browse
from bridge.spark.mq.envelope import MqMessage
from bridge.spark.mq.offset import Entry
from bridge.wire import cmqc

#: Messages that nobody expects, one behind the other, after which the next is looked for by its MsgId.
_PASSED: Final = 50
#: Messages that are not there, after which one look at the whole queue says which of the others are.
_MISSED: Final = 10

_NEXT: Final = GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT | GET)
_BY_MSG_ID: Final = GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST | GET, MatchOptions=cmqc.MQMO_MATCH_MSG_ID)


class MessageGone(Exception):
    """A message of a batch is not on its queue any more, and did not expire."""


def browse_messages(
    connection: Connection, queue: str, messages: Sequence[Entry], *, lenient: bool
) -> Iterator[MqMessage]:
    """Yield certain messages of a queue, in the order given.

    Raises MessageGone for one that is not there, unless it may have expired, or `lenient`.
    """
    found = _MessageRange(connection, queue, messages, lenient)
    for got in found.browse():
        yield got.md, got.data
    found.close()


class _MessageRange:
    """The messages of a range, and how far they are read."""

    def __init__(self, connection: Connection, queue: str, messages: Sequence[Entry], lenient: bool) -> None:
        self._connection = connection
        self._queue = queue
        self._messages = messages
        self._lenient = lenient
        self._fingerprint = fingerprint_by(connection)
        #: number of the next message
        self._at = 0
        #: MsgId and fingerprint -> numbers, once a message is not the one expected
        self._numbers: dict[tuple[bytes, bytes], deque[int]] = {}
        #: where the browse stands, and a handle to look for messages elsewhere
        self._handle = open_for_browse(connection, queue)
        self._aside = open_for_browse(connection, queue)
        self._missed = 0
        #: MsgIds on the queue, once many messages were not
        self._there: set[bytes] | None = None

    def close(self) -> None:
        self._connection.close(self._handle)
        self._connection.close(self._aside)

    def browse(self) -> Iterator[Got]:
        while self._at < len(self._messages):
            first = self._find(self._handle)
            if first is not None:
                yield first
                yield from self._behind()

    def _behind(self) -> Iterator[Got]:
        """Yield what follows the message that was found, until the messages that nobody expects are too many."""
        passed = 0
        while passed < _PASSED and (left := len(self._messages) - self._at):
            try:
                found = get_many(self._connection, self._handle, _NEXT, min(left, MESSAGES))
            except MQError as error:
                if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                    return
                raise
            for got in found:
                number = self._number(got)
                if number < self._at:
                    passed += 1
                    continue
                while self._at < number:
                    elsewhere = self._find(self._aside)
                    if elsewhere is not None:
                        yield elsewhere
                self._at += 1
                passed = 0
                yield got

    def _number(self, got: Got) -> int:
        """Return the number of a message, of equal ones the next; -1 for one that is passed over."""
        if self._at < len(self._messages) and self._is(got, self._messages[self._at]):
            return self._at
        if not self._numbers:
            for number, one in enumerate(self._messages):
                self._numbers.setdefault((one.msg_id, one.fingerprint), deque()).append(number)
        md = got.md
        for key in ((md.MsgId, self._fingerprint(got)), (md.MsgId, b"")):
            numbers = self._numbers.get(key, ())
            while numbers and numbers[0] < self._at:
                numbers.popleft()
            if numbers:
                return numbers[0]
        return -1

    def _is(self, got: Got, entry: Entry) -> bool:
        return got.md.MsgId == entry.msg_id and (not entry.fingerprint or self._fingerprint(got) == entry.fingerprint)

    def _find(self, handle: int) -> Got | None:
        """Return the next message by its MsgId; None where it is gone. Raises MessageGone where it should not be."""
        entry = self._messages[self._at]
        self._at += 1
        if self._there is None or entry.msg_id in self._there:
            (got,) = get_each(self._connection, handle, _BY_MSG_ID, [entry.msg_id])
            before = entry.occurrence
            while got is not None:
                if self._is(got, entry):
                    if not before:
                        return got
                    before -= 1
                got = self._next_of(handle, entry.msg_id)
        if not (entry.expires or self._lenient):
            raise MessageGone(
                f"message {entry.msg_id.hex().upper()} of a batch is not on queue {self._queue} any more: somebody got it"
                " while no query read the queue, or it was not persistent and its queue manager has ended; to go on"
                " without such messages, set the option failOnDataLoss to false"
            )
        self._missed += 1
        if self._missed == _MISSED:
            self._there = {seen.msg_id for seen in look(self._connection, self._aside)}
        return None

    def _next_of(self, handle: int, msg_id: bytes) -> Got | None:
        """Return the next message of a MsgId behind the one that was browsed."""
        wanted = replace(_BY_MSG_ID, Options=cmqc.MQGMO_BROWSE_NEXT | GET, MsgId=msg_id)
        try:
            return self._connection.get(handle, wanted)
        except MQError as error:
            if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                return None
            raise
