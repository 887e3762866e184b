"""Certain messages of a queue, browsed: a range of it, which mostly still is one when it is read.

So it is browsed from its first message on, and each message is compared with the one that is expected. Others that came in
between are passed over; what is not where it is expected is looked for by its MsgId.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bridge.mq.batch import MESSAGES, get_each, get_many
from bridge.mq.errors import MQError
from bridge.mq.mqi import Connection, GetOptions, Got
from bridge.pipeline.mq.browsing import GET, look, open_for_browse
from bridge.pipeline.mq.envelope import MqMessage
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
    connection: Connection, queue: str, messages: Sequence[tuple[bytes, bool]], *, lenient: bool
) -> Iterator[MqMessage]:
    """Yield certain messages of a queue (MsgId, and whether it may expire), in the order given.

    Raises MessageGone for one that is not there, unless it may have expired, or `lenient`.
    """
    found = _MessageRange(connection, queue, messages, lenient)
    for got in found.browse():
        yield got.md, got.data
    found.close()


class _MessageRange:
    """The messages of a range, and how far they are read."""

    def __init__(
        self, connection: Connection, queue: str, messages: Sequence[tuple[bytes, bool]], lenient: bool
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._messages = messages
        self._lenient = lenient
        #: number of the next message
        self._at = 0
        #: MsgId -> number, once a message is not the one expected
        self._numbers: dict[bytes, int] = {}
        #: where the browse stands, and a handle to look for messages elsewhere
        self._handle = open_for_browse(connection, queue)
        self._aside = open_for_browse(connection, queue)
        self._missed = 0
        #: what is on the queue, once many were not
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
                number = self._number(got.md.MsgId)
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

    def _number(self, msg_id: bytes) -> int:
        """Return the number of the message with this MsgId; -1 for another."""
        if self._at < len(self._messages) and self._messages[self._at][0] == msg_id:
            return self._at
        if not self._numbers:
            self._numbers = {one: number for number, (one, _) in enumerate(self._messages)}
        return self._numbers.get(msg_id, -1)

    def _find(self, handle: int) -> Got | None:
        """Return the next message by its MsgId; None where it is gone. Raises MessageGone where it should not be."""
        msg_id, expires = self._messages[self._at]
        self._at += 1
        if self._there is None or msg_id in self._there:
            (got,) = get_each(self._connection, handle, _BY_MSG_ID, [msg_id])
            if got is not None:
                return got
        if not (expires or self._lenient):
            raise MessageGone(
                f"message {msg_id.hex().upper()} of a batch is not on queue {self._queue} any more: somebody else got it."
                " Let one streaming query alone read a queue; to go on without such messages, set the option"
                " failOnDataLoss to false"
            )
        self._missed += 1
        if self._missed == _MISSED:
            self._there = {seen.msg_id for seen in look(self._connection, self._aside)}
        return None
