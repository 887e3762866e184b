"""The dead-letter queue for administrators: browse messages, retry them at their destinations, and delete them.

It works over any MQ connection and keeps one message in memory at a time. Source: IBM MQ documentation, "Working with
dead-letter queues", "The DLQ handler".
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import islice

import msgspec

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.config.queue_manager import DEFAULT_TRANSMISSION_QUEUE
from bridge.mq.dead_letter import (
    DeadLetterMessage,
    Selection,
    as_name,
    characters,
    content_of,
    dead_letter_queue_of,
    header_of,
    original_of,
    put_application,
    read_letter,
    transmitted,
    with_dead_letter_time,
)
from bridge.mq.message_consumer import names
from bridge.mq.message_producer import descriptor_of, name_of
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got, MQError, get_or_none
from bridge.mq.worker import LOST, raise_if_lost
from bridge.telemetry.headers import is_set
from bridge.telemetry.message import Destination, Message
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, MQMD, RFH2, MalformedHeader, decode_chain, encode_chain


def sources_of(mappings: Mapping[str, ToMqMapping | ToMqttMapping]) -> dict[str, str]:
    """Return the source queue of each mapping, "" if its source is not a queue, by MQDLH.PutApplName."""
    return {put_application(name): getattr(mapping.source, "queue", None) or "" for name, mapping in mappings.items()}


class NoDestination(Exception):
    """The destination of a dead-lettered message is unknown. The text contains a hint."""


class Redelivery(msgspec.Struct, frozen=True):
    """A message to put, and its destination."""

    destination: Destination
    message: Message
    #: the publication was to be retained
    retain: bool = False
    #: the mapping that will get the message from the destination and map it again
    mapping: str = ""
    #: the destination that the mapping determined, or blank
    mapped_to: str = ""

    @property
    def place(self) -> str:
        """The destination, in words."""
        if self.mapping:
            return f"{self.mapped_to} by mapping {self.mapping}" if self.mapped_to else f"mapping {self.mapping}"
        return name_of(self.destination)


class Destinations:
    """Determines the destinations of dead-lettered messages, on one connection."""

    def __init__(self, connection: Connection, queue_manager: str, sources: Mapping[str, str]) -> None:
        """Initialize with the name of the connected queue manager. `sources` is a result of `sources_of`."""
        self._connection = connection
        self._queue_manager = queue_manager
        self._sources = sources
        #: mapping -> queue of its subscription, "" if it has none, or the reason why it cannot be inquired
        self._subscribed: dict[str, str | NoDestination] = {}

    def of(self, letter: DeadLetterMessage, message: Message) -> Redelivery:
        """Return the message to put for a dead-lettered message, and its destination. Raises NoDestination or MQError.

        A refused publication (`refused_to_dead_letters`) is published again. A message that a mapping failed to map returns
        to the mapping's source. All others go to the destination in the MQDLH. The MQXQH of a transmission queue message is
        removed, because the queue manager adds it again.
        """
        if not letter.has_header:
            raise NoDestination("it has no MQDLH, so its destination is unknown; hint: specify a queue with --to")
        if (publication := self._publication(letter, message)) is not None:
            return publication
        if (source := self._source(letter)) is not None:
            # The MQDLH of a message that the mapping could not map contains the mapping's source instead of a destination.
            is_mapped = letter.destination not in (source, letter.topic) and not set("+#") & set(letter.destination)
            mapped_to = letter.destination if is_mapped else ""
            return Redelivery(Destination(source), message, mapping=letter.put_by, mapped_to=mapped_to)
        name, manager = letter.destination, letter.destination_queue_manager
        transmission = transmitted(message)
        if transmission is not None:
            header, message = transmission
            name, manager = characters(header.RemoteQName), characters(header.RemoteQMgrName)
        if not name:
            raise NoDestination("its MQDLH contains no destination; hint: specify a queue with --to")
        return Redelivery(Destination(name, queue_manager="" if manager == self._queue_manager else manager), message)

    def _publication(self, letter: DeadLetterMessage, message: Message) -> Redelivery | None:
        """Return the publication if the dead-lettered message is a refused publication, otherwise None.

        Its RFH2 contains the topic string, its MQDLH the beginning of the topic string. A message with mqps.Sud (subscription
        user data) is not a publication but a delivery to one subscription.
        """
        if not letter.topic or letter.destination_queue_manager not in ("", self._queue_manager):
            return None
        if as_name(letter.topic).decode().rstrip() != letter.destination:
            return None
        md = message.md
        try:
            chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, message.data)
            if not chain.headers or not isinstance(header := chain.headers[0], RFH2):
                return None
            mqps = content_of(header, "mqps")
            if "Sud" in mqps:
                return None
            # The queue manager writes the mqps folder for each subscription.
            bare = msgspec.structs.replace(
                header, folders=tuple(folder for folder in header.folders if folder.name != "mqps")
            )
            format_, encoding, ccsid, data = encode_chain(
                msgspec.structs.replace(chain, headers=(bare, *chain.headers[1:]))
            )
        except MalformedHeader as error:
            raise NoDestination(f"its headers cannot be read ({error}); hint: specify a queue with --to") from error
        described = msgspec.structs.replace(md, Format=format_, Encoding=encoding, CodedCharSetId=ccsid)
        topic = Destination(letter.topic, is_topic=True)
        return Redelivery(topic, Message(described, data), retain=is_set(mqps.get("Ret", "")))

    def _source(self, letter: DeadLetterMessage) -> str | None:
        """Return the source queue of the mapping that dead-lettered a message, or None. Raises NoDestination."""
        mapping = letter.put_by
        if not mapping or mapping == "mqbridge":
            return None
        if source := self._sources.get(mapping):
            return source
        if not letter.topic and mapping not in self._sources:
            return None
        if mapping not in self._subscribed:
            if len(self._subscribed) >= _REMEMBERED:
                self._subscribed.clear()
            self._subscribed[mapping] = self._subscription_queue(mapping)
        queue = self._subscribed[mapping]
        if isinstance(queue, NoDestination):
            raise NoDestination(str(queue))
        if not queue and mapping in self._sources:
            raise NoDestination(
                f"mapping {mapping} got it from a link, or no longer has a subscription; hint: specify a queue with --to"
            )
        return queue or None

    def _subscription_queue(self, mapping: str) -> str | NoDestination:
        """Return the queue of a mapping's subscription, "" if it has none, or the error if the inquiry fails."""
        try:
            for name in names(mapping):
                for subscription in self._connection.subscriptions(name):
                    return subscription.destination
        except MQError as error:
            raise_if_lost(error)
            if mapping not in self._sources:
                return ""  # use the MQDLH
            return NoDestination(
                f"the subscription of mapping {mapping} cannot be inquired ({error}); hint: specify a queue with --to"
            )
        return ""


#: The maximum number of mappings whose subscription queues are cached.
_REMEMBERED = 1_000


log = logging.getLogger(__name__)

#: The maximum number of bytes to read for the headers of a message.
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
_FIRST = cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG | cmqc.MQGMO_FAIL_IF_QUIESCING
_PUT = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING
#: Reason codes if another application has got the message, committed or not.
_GONE = frozenset((cmqc.MQRC_NO_MSG_AVAILABLE, cmqc.MQRC_NO_MSG_UNDER_CURSOR))


#: Maximum time for mappings and the bridge to process retried messages, in seconds.
FOLLOW_TIMEOUT = 5.0
#: The maximum number of messages whose outcome is awaited together.
_MAX_PENDING = 1_000
_MIN_PAUSE, _MAX_PAUSE = 0.05, 1.0


class RetryOutcome(StrEnum):
    """The outcome of a retry."""

    DELIVERED = "delivered"
    #: its mapping has not processed it yet, or its client has not received it
    WAITING = "waiting"
    #: it was put and then dead-lettered again
    RETURNED = "returned"
    #: it could not be put and is still on the dead-letter queue
    STAYED = "stayed"


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was retried, and its outcome."""

    letter: DeadLetterMessage
    #: the destination, in words
    place: str
    outcome: RetryOutcome = RetryOutcome.DELIVERED
    #: why the message is on the dead-letter queue or still waits. Blank if it was delivered
    failure: str = ""


class _PendingRetry(msgspec.Struct, frozen=True):
    """A message that was put to a queue from which a mapping or the bridge gets messages."""

    letter: DeadLetterMessage
    delivery: Redelivery
    #: the MQMD and the MQDLH that the message had on the dead-letter queue
    md: MQMD
    header: MQDLH


class DeadLetterQueue:
    """A dead-letter queue on one connection, which must not be used for anything else meanwhile."""

    def __init__(self, connection: Connection, queue: str = "") -> None:
        """Use `queue`, or by default the queue manager's dead-letter queue. Raises MQError if DEADQ is blank."""
        self._connection = connection
        deadq, self.queue_manager = dead_letter_queue_of(connection)
        self.name = queue or deadq
        if not self.name:
            raise MQError(
                cmqc.MQRC_UNKNOWN_OBJECT_NAME,
                "the queue manager has no dead-letter queue (DEADQ); hint: specify a queue, or"
                " ALTER QMGR DEADQ('SYSTEM.DEAD.LETTER.QUEUE')",
            )

    def browse(self, selection: Selection, *, count: int | None = None) -> Iterator[DeadLetterMessage]:
        """Yield the selected messages in queue order, at most `count`. Only headers are read. Raises MQError."""
        for letter, _, _ in islice(self._walk(_BROWSE, selection, HEADERS), count):
            yield letter

    def read(
        self, selection: Selection, *, count: int | None = None
    ) -> Iterator[tuple[DeadLetterMessage, MQMD, bytes]]:
        """Yield the selected messages with MQMD and data, including the MQDLH. Raises MQError."""
        for letter, message, _ in islice(self._walk(_BROWSE, selection, None), count):
            yield letter, message.md, message.data

    def take(
        self, selection: Selection, *, count: int | None = None
    ) -> Iterator[tuple[DeadLetterMessage, MQMD, bytes]]:
        """Get the selected messages under syncpoint. The caller commits or backs out. Raises MQError.

        Messages that another application gets meanwhile are skipped.
        """
        yield from islice(self._taken(selection), count)

    def _taken(self, selection: Selection) -> Iterator[tuple[DeadLetterMessage, MQMD, bytes]]:
        for _, _, handle in self._walk(_TAKE, selection, HEADERS):
            message = self._get(handle)
            if message is not None:
                yield read_letter(message.md, message.data, len(message.data)), message.md, message.data

    def commit(self) -> None:
        """Commit the unit of work. Raises MQError."""
        self._connection.commit()

    def delete(self, selection: Selection, *, count: int | None = None) -> Iterator[DeadLetterMessage]:
        """Delete messages, each in its own unit of work, and yield them. Raises MQError."""
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
        transmission_queue: str = DEFAULT_TRANSMISSION_QUEUE,
        timeout: float = FOLLOW_TIMEOUT,
    ) -> Iterator[Retried]:
        """Put messages to their destinations, each in its own unit of work, and yield the outcomes.

        `to` is a queue for all of them. `sources` is a result of `sources_of`: messages that a mapping failed to map return
        to its source. A message keeps its MsgId and CorrelId, and its context if the connection has SETALL authority. A
        message that cannot be put stays on the dead-letter queue. Messages that arrive meanwhile are not retried.

        The outcome of a message for a mapping or a client is awaited for up to `timeout` seconds. If it is dead-lettered
        again, its original dead-letter time is restored. Raises MQError if the connection is lost.
        """
        destinations = Destinations(self._connection, self.queue_manager, sources or {})
        pending_retries: list[_PendingRetry] = []
        for letter, md, data in self.take(selection, count=count):
            outcome = self._retry(letter, md, data, to, destinations)
            if isinstance(outcome, Retried):
                yield outcome
                continue
            pending_retries.append(outcome)
            if len(pending_retries) == _MAX_PENDING:
                yield from self._outcomes(pending_retries, transmission_queue, timeout)
                pending_retries = []
        yield from self._outcomes(pending_retries, transmission_queue, timeout)

    def _retry(
        self, letter: DeadLetterMessage, md: MQMD, data: bytes, to: str, destinations: Destinations
    ) -> Retried | _PendingRetry:
        place = f"queue {to}" if to else letter.destination or "(none)"
        try:
            message = original_of(md, data)
            delivery = Redelivery(Destination(to), message) if to else destinations.of(letter, message)
            place = delivery.place
            self._put(delivery)
            self._connection.commit()
        except (MQError, NoDestination) as error:
            if isinstance(error, MQError) and error.reason in LOST:
                raise
            self._connection.backout()
            return Retried(letter=letter, place=place, outcome=RetryOutcome.STAYED, failure=str(error))
        except Exception:
            self._connection.backout()
            raise
        if delivery.retain and not _body(delivery.message):
            self._clear(delivery.destination.name)
        header = header_of(md, data)
        if header is not None and (delivery.mapping or delivery.destination.queue_manager):
            # Drop the data, because many messages may be pending.
            bare = msgspec.structs.replace(delivery, message=Message(message.md, b""))
            return _PendingRetry(letter, bare, md, header)
        return Retried(letter=letter, place=place)

    def _outcomes(
        self, pending_retries: list[_PendingRetry], transmission_queue: str, timeout: float
    ) -> Iterator[Retried]:
        """Yield the outcome of each message within `timeout` seconds."""
        deadline, pause = time.monotonic() + timeout, _MIN_PAUSE
        reasons = [""] * len(pending_retries)
        while pending_retries:
            remaining: list[_PendingRetry] = []
            waiting: list[str] = []
            for pending, reason in zip(pending_retries, reasons, strict=True):
                # If a mapping is blocked, this loop searches a long queue for each of many messages.
                if time.monotonic() >= deadline:
                    remaining.append(pending)
                    unknown = f"its outcome is unknown after {timeout:g} s"
                    waiting.append(f"{unknown}: {reason}" if reason else unknown)
                    continue
                queue = pending.delivery.destination.name if pending.delivery.mapping else transmission_queue
                # In this order: after the commit of the get, the message was either dead-lettered or never will be.
                why = self._waits_on(queue, pending)
                if (returned := self._returned(pending)) is not None:
                    yield returned
                elif why:
                    remaining.append(pending)
                    waiting.append(why)
                else:
                    yield Retried(letter=pending.letter, place=pending.delivery.place)
            pending_retries, reasons = remaining, waiting
            if pending_retries and time.monotonic() >= deadline:
                for pending, why in zip(remaining, waiting, strict=True):
                    yield Retried(
                        letter=pending.letter, place=pending.delivery.place, outcome=RetryOutcome.WAITING, failure=why
                    )
                return
            if pending_retries:
                time.sleep(pause)
                pause = min(pause * 2, _MAX_PAUSE)

    def _waits_on(self, queue: str, pending: _PendingRetry) -> str:
        """Return why a message may still be on a queue, or "" if it was got and the get is committed."""
        msg_id = pending.delivery.message.md.MsgId
        match = GetOptions(Options=_FIRST, MatchOptions=cmqc.MQMO_MATCH_MSG_ID, MsgId=msg_id, MaxLength=0)
        if not pending.delivery.mapping:
            # On a transmission queue, MQMD.CorrelId is the MsgId of the message. IBM MQ documentation, "MQXQH".
            match = GetOptions(Options=_FIRST, MatchOptions=cmqc.MQMO_MATCH_CORREL_ID, CorrelId=msg_id, MaxLength=0)
        try:
            handle = self._connection.open(MQOD(ObjectName=queue), _BROWSE)
            try:
                self._connection.get(handle, match)
            finally:
                self._close(handle)
        except MQError as error:
            raise_if_lost(error)
            if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                return f"queue {queue} cannot be browsed: {error}"
        else:
            return f"it is on queue {queue}"
        return self._why_uncommitted(queue)

    def _why_uncommitted(self, queue: str) -> str:
        """Return why a queue may have uncommitted messages, or "" (IBM MQ documentation, "DISPLAY QSTATUS", UNCOM)."""
        try:
            responses = self._connection.command(f"DISPLAY QSTATUS('{queue}') UNCOM")
        except MQError as error:
            raise_if_lost(error)
            return f"DISPLAY QSTATUS('{queue}') failed: {error}"
        states = {row.get("UNCOM") for response in responses for row in response.objects}
        if not states:
            return f"DISPLAY QSTATUS('{queue}') failed: {'; '.join(response.message for response in responses)}"
        return "" if states == {"NO"} else f"queue {queue} has uncommitted messages"

    def _returned(self, pending: _PendingRetry) -> Retried | None:
        """Return the outcome of a message that was dead-lettered again, or None. Restore its dead-letter time."""
        options = GetOptions(
            Options=_NEXT | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG,
            MatchOptions=cmqc.MQMO_MATCH_MSG_ID,
            MsgId=pending.delivery.message.md.MsgId,
            MaxLength=HEADERS,
        )
        handle = self._connection.open(MQOD(ObjectName=self.name), _TAKE)
        try:
            while True:
                message = get_or_none(self._connection, handle, options)
                if message is None:
                    return None
                letter = read_letter(message.md, message.data, max(message.DataLength, len(message.data)))
                if _is_return(letter, pending):
                    break
            failure = f"{letter.reason_name} ({letter.reason}): {letter.what}"
            if (whole := self._get(handle)) is not None:
                letter = self._restore_time(letter, whole, pending)
            return Retried(letter=letter, place=pending.delivery.place, outcome=RetryOutcome.RETURNED, failure=failure)
        finally:
            self._close(handle)

    def _restore_time(self, letter: DeadLetterMessage, whole: Got, pending: _PendingRetry) -> DeadLetterMessage:
        """Put a message back with its previous dead-letter time and commit. Return its new description."""
        message = with_dead_letter_time(whole.md, whole.data, pending.md, pending.header)
        try:
            self._connection.put1(MQOD(ObjectName=self.name), message, _PUT | cmqc.MQPMO_SET_ALL_CONTEXT)
            self._connection.commit()
        except MQError as error:
            raise_if_lost(error)
            self._connection.backout()
            log.warning("MQB3109W dead-letter time of message %s not restored: %s", letter.name, error)
            return letter
        return read_letter(message.md, message.data, len(message.data))

    def _put(self, delivery: Redelivery) -> None:
        """Put a message with its own context, or with this user's if the user may not set context. Raises MQError."""
        od = descriptor_of(delivery.destination)
        options = _PUT | (cmqc.MQPMO_RETAIN if delivery.retain else 0)
        message = delivery.message
        try:
            self._connection.put1(od, message, options | cmqc.MQPMO_SET_ALL_CONTEXT)
        except MQError as error:
            if error.reason != cmqc.MQRC_NOT_AUTHORIZED:
                raise
            self._connection.put1(od, message, options)

    def _clear(self, topic: str) -> None:
        """Clear a retained publication with a command. In MQTT, an empty retained message does that (MQTT-3.3.1-10)."""
        try:
            self._connection.clear_retained(topic)
        except MQError as error:
            raise_if_lost(error)
            log.error("MQB3108E clearing the retained publication of topic %r failed: %s", topic, error)

    def _get(self, handle: int) -> Got | None:
        """Get the message under the browse cursor, under syncpoint. Return None if another application has got it."""
        try:
            return self._connection.get(handle, GetOptions(Options=_GET, MatchOptions=cmqc.MQMO_NONE))
        except MQError as error:
            if error.reason in _GONE:
                return None
            raise

    def _walk(
        self, opening: int, selection: Selection, length: int | None
    ) -> Iterator[tuple[DeadLetterMessage, Got, int]]:
        """Yield each selected message, its first `length` bytes, and the handle with the browse cursor on it.

        Stop after as many messages as the queue had at the start, because retried messages may come back.
        """
        handle = self._connection.open(MQOD(ObjectName=self.name), opening)
        try:
            (depth,), _ = self._connection.inquire(handle, (cmqc.MQIA_CURRENT_Q_DEPTH,))
            now = time.time()
            flags = _NEXT if length is None else _NEXT | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
            options = GetOptions(Options=flags, MatchOptions=cmqc.MQMO_NONE, MaxLength=length)
            for _ in range(depth):
                message = get_or_none(self._connection, handle, options)
                if message is None:
                    return
                letter = read_letter(message.md, message.data, max(message.DataLength, len(message.data)))
                if selection.chooses(letter, now):
                    yield letter, message, handle
        finally:
            self._close(handle)

    def _close(self, handle: int) -> None:
        """Close a handle. Ignore a lost connection, which has closed the handle already."""
        try:
            self._connection.close(handle)
        except MQError as error:
            if error.reason not in LOST:
                log.debug("closing %s: %s", self.name, error)


def _body(message: Message) -> bytes:
    """Return the data after all MQ headers."""
    md = message.md
    return decode_chain(md.Format, md.Encoding, md.CodedCharSetId, message.data, strict=False).body


def _is_return(letter: DeadLetterMessage, pending: _PendingRetry) -> bool:
    """Return whether a dead-lettered message with the same MsgId is this message, not another delivery of its publication."""
    if pending.delivery.mapping:
        return letter.put_by == pending.letter.put_by
    return letter.destination_queue_manager == pending.delivery.destination.queue_manager
