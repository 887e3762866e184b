"""The dead-letter queue as an administrator uses it: looked at, tried again, taken away.

It works over any MQ connection, and holds one message at a time however many there are. IBM MQ documentation, "Working with
dead-letter queues", "The DLQ handler".
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from bridge.mapping.message import Message
from bridge.mapping.publication import Destination
from bridge.mq.administration import Administration
from bridge.mq.errors import MQError
from bridge.mq.letter import Letter, Selection, original_of, read_letter
from bridge.mq.letter_destination import Delivery, Destinations, NoDestination
from bridge.mq.mqi import MQOD, MQPMO, Connection, GetOptions, Got
from bridge.mq.worker import LOST
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_chain

__all__ = ["DeadLetterQueue", "Letter", "Retried", "Selection"]

log = logging.getLogger(__name__)

#: Bytes of a letter that are read to show it in a list: its headers.
HEADERS = 64 * 1024
_BROWSE = cmqc.MQOO_BROWSE | cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
_TAKE = _BROWSE | cmqc.MQOO_INPUT_SHARED
_NEXT = cmqc.MQGMO_BROWSE_NEXT | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2 | cmqc.MQGMO_FAIL_IF_QUIESCING
_GET = (
    cmqc.MQGMO_MSG_UNDER_CURSOR
    | cmqc.MQGMO_SYNCPOINT
    | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
    | cmqc.MQGMO_FAIL_IF_QUIESCING
)
_PUT = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING
#: Another has taken the letter, or is about to.
_GONE = frozenset((cmqc.MQRC_NO_MSG_AVAILABLE, cmqc.MQRC_NO_MSG_UNDER_CURSOR))


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a letter that was tried again."""

    letter: Letter
    #: where it was to go, in words
    place: str
    #: blank where it went there; else why it is on the dead-letter queue as before
    failure: str = ""


class DeadLetterQueue:
    """A dead-letter queue on one connection, which does nothing else meanwhile."""

    def __init__(self, connection: Connection, queue: str = "") -> None:
        """Find the queue: `queue`, or that which the queue manager names (DEADQ). Raises MQError where there is none."""
        self._connection = connection
        handle = connection.open(MQOD(ObjectType=cmqc.MQOT_Q_MGR), cmqc.MQOO_INQUIRE)
        try:
            _, found = connection.inquire(handle, (cmqc.MQCA_DEAD_LETTER_Q_NAME, cmqc.MQCA_Q_MGR_NAME))
        finally:
            connection.close(handle)
        named, self.queue_manager = (name.rstrip(" \0") for name in found)
        #: its name
        self.name = queue or named
        if not self.name:
            raise MQError(
                cmqc.MQRC_UNKNOWN_OBJECT_NAME,
                "the queue manager names no dead-letter queue (DEADQ): name one, or"
                " ALTER QMGR DEADQ('SYSTEM.DEAD.LETTER.QUEUE')",
            )

    def browse(self, selection: Selection, *, count: int | None = None) -> Iterator[Letter]:
        """Yield the letters of a selection as they stand, at most `count`; of each its headers are read. Raises MQError."""
        for letter, _, _ in islice(self._walk(_BROWSE, selection, HEADERS), count):
            yield letter

    def read(self, selection: Selection, *, count: int | None = None) -> Iterator[tuple[Letter, MQMD, bytes]]:
        """Yield the letters of a selection with MQMD and data as they are on the queue, MQDLH included. Raises MQError."""
        for letter, got, _ in islice(self._walk(_BROWSE, selection, None), count):
            yield letter, got.md, got.data

    def take(self, selection: Selection, *, count: int | None = None) -> Iterator[tuple[Letter, MQMD, bytes]]:
        """Take the letters of a selection in the unit of work of the connection, which the caller ends. Raises MQError.

        Those that another takes meanwhile are not among them.
        """
        yield from islice(self._taken(selection), count)

    def _taken(self, selection: Selection) -> Iterator[tuple[Letter, MQMD, bytes]]:
        for _, _, handle in self._walk(_TAKE, selection, HEADERS):
            got = self._get(handle)
            if got is not None:
                yield read_letter(got.md, got.data, len(got.data)), got.md, got.data

    def commit(self) -> None:
        """Commit what was taken. Raises MQError."""
        self._connection.commit()

    def delete(self, selection: Selection, *, count: int | None = None) -> Iterator[Letter]:
        """Delete letters, each in a unit of work of its own; yield them as they are gone. Raises MQError."""
        for letter, _, _ in self.take(selection, count=count):
            self._connection.commit()
            yield letter

    def retry(
        self,
        selection: Selection,
        *,
        count: int | None = None,
        to: str = "",
        sources: Mapping[str, str] | None = None,
    ) -> Iterator[Retried]:
        """Put letters to where they were bound, each in one unit of work; yield what became of each.

        `to` is a queue for all of them. `sources` has, by the names of mappings, the queue that each takes from ("" for
        none): what they could not map goes back there. The message has MsgId, CorrelId and context as before the MQDLH, the
        context where the connection has the authority SETALL. A letter that is refused once more stays where it is. Each
        letter is tried once: what comes to the queue meanwhile is left for the next time. Raises MQError where the
        connection is lost.
        """
        destinations = Destinations(self._connection, self.queue_manager, sources or {})
        for letter, md, data in self.take(selection, count=count):
            yield self._retry(letter, md, data, to, destinations)

    def _retry(self, letter: Letter, md: MQMD, data: bytes, to: str, destinations: Destinations) -> Retried:
        place = f"queue {to}" if to else letter.destination or "(none)"
        try:
            message = original_of(md, data)
            delivery = Delivery(Destination(to), message) if to else destinations.of(letter, message)
            place = delivery.place
            self._put(delivery)
            self._connection.commit()
        except (MQError, NoDestination) as error:
            if isinstance(error, MQError) and error.reason in LOST:
                raise
            self._connection.backout()
            return Retried(letter=letter, place=place, failure=str(error))
        except Exception:
            self._connection.backout()
            raise
        if delivery.retain and not _body(delivery.message):
            self._clear(delivery.destination.name)
        return Retried(letter=letter, place=place)

    def _put(self, delivery: Delivery) -> None:
        """Put a message with the context that it has, or with ours where we may set none. Raises MQError."""
        destination = delivery.destination
        if destination.is_topic:
            od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=destination.name)
        else:
            od = MQOD(ObjectName=destination.name, ObjectQMgrName=destination.queue_manager)
        options = _PUT | (cmqc.MQPMO_RETAIN if delivery.retain else 0)
        message = delivery.message
        try:
            self._connection.put1(od, message, MQPMO(Options=options | cmqc.MQPMO_SET_ALL_CONTEXT))
        except MQError as error:
            if error.reason != cmqc.MQRC_NOT_AUTHORIZED:
                raise
            self._connection.put1(od, message, MQPMO(Options=options))

    def _clear(self, topic: str) -> None:
        """Clear a retained publication: an empty one removes that which is there (MQTT-3.3.1-10), as a command does in MQ."""
        try:
            administration = Administration(self._connection)
            administration.clear_retained(topic)
            administration.close()
        except MQError as error:
            if error.reason in LOST:
                raise
            log.error("MQB3108E the retained publication of topic %r is not cleared: %s", topic, error)

    def _get(self, handle: int) -> Got | None:
        """Take the letter under the cursor, in syncpoint; None where another has it."""
        try:
            return self._connection.get(handle, GetOptions(Options=_GET, MatchOptions=cmqc.MQMO_NONE))
        except MQError as error:
            if error.reason in _GONE:
                return None
            raise

    def _walk(self, opening: int, selection: Selection, length: int | None) -> Iterator[tuple[Letter, Got, int]]:
        """Yield each letter of a selection, what a browse of `length` bytes returned, and the handle with its cursor on it.

        It ends behind the letters that were there at the beginning: what is tried again may come back.
        """
        handle = self._connection.open(MQOD(ObjectName=self.name), opening)
        try:
            (depth,), _ = self._connection.inquire(handle, (cmqc.MQIA_CURRENT_Q_DEPTH,))
            now = time.time()
            flags = _NEXT if length is None else _NEXT | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
            options = GetOptions(Options=flags, MatchOptions=cmqc.MQMO_NONE, MaxLength=length)
            for _ in range(depth):
                try:
                    got = self._connection.get(handle, options)
                except MQError as error:
                    if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                        return
                    raise
                letter = read_letter(got.md, got.data, max(got.DataLength, len(got.data)))
                if selection.chooses(letter, now):
                    yield letter, got, handle
        finally:
            self._close(handle)

    def _close(self, handle: int) -> None:
        """Close a handle; where the connection is lost it is closed already."""
        try:
            self._connection.close(handle)
        except MQError as error:
            if error.reason not in LOST:
                log.debug("closing %s: %s", self.name, error)


def _body(message: Message) -> bytes:
    """Return the data behind all headers."""
    md = message.md
    return decode_chain(md.Format, md.Encoding, md.CodedCharSetId, message.data, strict=False).body
