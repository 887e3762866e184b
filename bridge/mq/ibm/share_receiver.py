"""The thread that gets the messages of shared subscriptions for the members that this shard serves.

The publications of such a subscription wait on its queue, which all shards with members have open for shared input. Each
shard moves as many messages as its members can receive now to its own transmission queue, with an MQXQH that identifies the
subscription. Messages that its members can no longer receive return to the queue of the subscription, for members in any
shard.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from bridge.mq.backend import ShareLimit
from bridge.mq.dead_letter import DeadLetterRefused, DeadLetters
from bridge.mq.ibm.coordination import BackendEvents
from bridge.mq.ibm.forwarder import forwarded_descriptor
from bridge.mq.ibm.share_members import resume_share
from bridge.mq.ibm.transmission import MQXQH_LENGTH
from bridge.mq.message_consumer import OPENED_ELSEWHERE
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got, MQError, get_or_none
from bridge.mq.worker import Worker, back_out, raise_if_lost
from bridge.telemetry.message import Message
from bridge.telemetry.subscription import SharedSubscription
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MQXQH, MalformedHeader, decode_mqxqh, encode_mqxqh, fitted_mqmd

log = logging.getLogger(__name__)

#: Maximum number of messages in a unit of work.
_BATCH: Final = 100
#: Maximum number of open queues. MAXHANDS, 256 by default, must also suffice for the connection's other handles.
_MAX_QUEUES = 200
#: Wait interval of an MQGET in milliseconds, with requests for one and for several subscriptions.
_WAIT_FOR_ONE, _WAIT_FOR_SEVERAL = 250, 50
#: Seconds between attempts after a failure of one subscription, and of the thread.
_RETRY: Final = 2.0
#: Maximum number of subscriptions that are tried in turn. A subscription is always tried for some seconds after a message.
_AT_ONCE, _RECENT = 50, 1.0
#: Seconds between inquiries of the depths of the queues, for `_AT_ONCE` subscriptions in turn.
_DEPTH_INTERVAL: Final = 5.0
#: Fraction of MAXDEPTH above which the oldest messages are removed from a queue.
_NEARLY_FULL: Final = 0.85
_TOO_BIG: Final = frozenset((cmqc.MQRC_MSG_TOO_BIG_FOR_Q, cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR))
_GET: Final = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_FAIL_IF_QUIESCING | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
_PUT: Final = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING | cmqc.MQPMO_NEW_MSG_ID
_SHARED: Final = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_OUTPUT | cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING


class ReturnJob(msgspec.Struct, eq=False):
    """Messages that move from the transmission queue to the queue of their shared subscription."""

    share: SharedSubscription
    #: MsgIds of each message on the transmission queue, several if it has segments
    messages: Sequence[Sequence[bytes]]
    #: called on the thread with MQRC_NONE, or with the reason code of a failure, and the number of messages that have moved
    done: Callable[[int, int], None]
    #: whether the shard no longer has members
    leaves: bool = False
    #: number of messages whose move is committed
    moved: int = 0


class ShareReceiver(Worker[ReturnJob]):
    """Moves messages between the queues of shared subscriptions and the transmission queue."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        transmission_queue: str,
        *,
        events: BackendEvents,
        dead_letter_queue: str,
        limit: Callable[[], ShareLimit],
    ) -> None:
        """`limit` returns the current limit. It is called on the thread."""
        super().__init__("shared subscriptions", connect, events=events)
        self._events = events
        self._transmission_queue, self._dead_letter_queue = transmission_queue, dead_letter_queue
        self._limit = limit
        #: how many messages may be moved, by remote queue manager. Contains the subscriptions with members
        self._wanted: dict[str, int] = {}
        self._shares: dict[str, SharedSubscription] = {}
        self._is_requested = False
        #: subscriptions whose messages were moved but have not arrived yet
        self._arriving: set[str] = set()
        self._job: ReturnJob | None = None
        #: handles of the queues, by remote queue manager, least recently used first
        self._queues: dict[str, int] = {}
        #: time.monotonic() until which a subscription pauses after a failure
        self._pauses: dict[str, float] = {}
        #: time.monotonic() of the last message of each subscription
        self._last_messages: dict[str, float] = {}
        self._depths_at = 0.0
        #: positions in the lists of subscriptions that are tried in turn
        self._turn = self._depth_turn = 0

    def request(self, share: SharedSubscription, messages: int) -> None:
        """Move at most this number of messages, once, as soon as messages are available. Callable on any thread.

        Replaces the previous request. `BackendEvents.received_share` reports that messages were moved. The next messages
        are moved after `arrived`.
        """
        name = share.remote_queue_manager
        with self._changed:
            self._shares[name] = share
            if messages:
                self._wanted[name] = messages
                self._is_requested = True
                self._changed.notify_all()
            else:
                self._wanted.pop(name, None)

    def arrived(self, name: str) -> None:
        """Note that the moved messages have arrived. Callable on any thread."""
        with self._changed:
            self._arriving.discard(name)
            self._is_requested = True
            self._changed.notify_all()

    def forget(self, share: SharedSubscription) -> None:
        """Stop requesting messages of a subscription. Callable on any thread."""
        with self._changed:
            for of_share in (self._wanted, self._shares, self._last_messages):
                of_share.pop(share.remote_queue_manager, None)

    # On the thread ---------------------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        self._queues = {}
        self._pauses = {}
        options = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING
        self._transmission = connection.open(MQOD(ObjectName=self._transmission_queue), options)
        self._dead_letters = DeadLetters(connection, self._dead_letter_queue, "shared subscriptions")

    def lost(self) -> None:
        if self._job is not None:
            self.give_back([self._job])
            self._job = None

    def failed(self, error: MQError) -> None:
        log.error("MQB4219E %s: %s", self.name, error)
        assert self.connection is not None
        back_out(self.connection)
        job, self._job = self._job, None
        if job is None:
            self._pause(_RETRY)
            return
        if (queue := self._queues.pop(job.share.remote_queue_manager, None)) is not None:
            # The next attempt opens the queue again, even if it was deleted and created again.
            with contextlib.suppress(MQError):
                self.connection.close(queue)
        job.done(error.reason, job.moved)

    def serve(self, connection: Connection) -> None:
        if (job := self.next_job()) is not None:
            self._job = job
            reason = self._return(connection, job)
            self._job = None
            job.done(reason, job.moved)
            return
        self._look_at_depths(connection)
        with self._changed:
            self._is_requested = False
            numbers = {name: number for name, number in self._wanted.items() if name not in self._arriving}
        now = time.monotonic()
        numbers = {name: number for name, number in numbers.items() if self._pauses.get(name, 0.0) <= now}
        if not numbers:
            self._pause(min(1.0, self.probe_interval))
            return
        names = self._next_names(list(numbers))
        received = [self._receive(connection, name, numbers[name]) for name in names]
        if not any(received):
            name = names[self._turn % len(names)]
            self._receive(connection, name, numbers[name], _WAIT_FOR_ONE if len(numbers) == 1 else _WAIT_FOR_SEVERAL)

    def _next_names(self, names: list[str]) -> list[str]:
        """Return the subscriptions to try now: those with recent messages, and some of the others in turn.

        Many subscriptions without messages do not delay those with messages.
        """
        self._turn += 1
        if len(names) <= _AT_ONCE:
            return names
        self._turn = (self._turn + _AT_ONCE - 1) % len(names)
        in_turn = {*(names + names)[self._turn : self._turn + _AT_ONCE]}
        recent = time.monotonic() - _RECENT
        return [name for name in names if name in in_turn or self._last_messages.get(name, 0.0) > recent]

    def _pause(self, seconds: float) -> None:
        self.busy_since = 0.0
        with self._changed:
            self._changed.wait_for(
                lambda: self._jobs or self._ending or self._probe_requested or self._is_requested, seconds
            )
        self.busy_since = time.monotonic()

    def _receive(self, connection: Connection, name: str, number: int, wait: int = 0) -> bool:
        """Move at most `number` messages of a subscription. Return whether any were moved. Raises MQError if all fail.

        `wait` is the wait interval for the first message in milliseconds. A failure of one subscription does not affect
        others.
        """
        try:
            moved = self._move(connection, name, number, wait)
        except MQError as error:
            raise_if_lost(error)
            self._fail(connection, name, error)
            return False
        if not moved:
            return False
        with self._changed:
            self._wanted.pop(name, None)
            self._arriving.add(name)
            self._last_messages[name] = time.monotonic()
        self._events.received_share(name)
        return True

    def _fail(self, connection: Connection, name: str, error: MQError) -> None:
        """Back out, and pause a subscription after a failure, unless another shard has it open briefly."""
        back_out(connection)
        if (queue := self._queues.pop(name, None)) is not None:
            # The next attempt opens the queue again, even if it was deleted and created again.
            with contextlib.suppress(MQError):
                connection.close(queue)
        if error.reason not in OPENED_ELSEWHERE:
            log.warning("MQB4220W %s: %s: %s", self.name, self._written(name), error)
            self.failure, self.failed_at = f"shared subscription {self._written(name)}: {error}", time.monotonic()
            self._pauses[name] = time.monotonic() + _RETRY

    def _written(self, name: str) -> str:
        share = self._shares.get(name)
        return name if share is None else share.written

    def _move(self, connection: Connection, name: str, number: int, wait: int) -> int:
        queue = self._queue(connection, name)
        if queue is None:
            return 0
        count = 0
        for _ in range(min(number, _BATCH)):
            waits = cmqc.MQGMO_WAIT if wait and not count else 0
            message = get_or_none(
                connection, queue, GetOptions(Options=_GET | waits, WaitInterval=wait if waits else 0)
            )
            self.answered()
            if message is None:
                break
            if wait and not count and name not in self._wanted:
                # The request ended during the wait. The message keeps its position.
                connection.backout()
                return 0
            count += 1
            try:
                connection.put(self._transmission, self._transmission_message(message, name), _PUT)
            except MalformedHeader as error:  # an application has put it there
                self._dead_letters.put(message.md, message.data, cmqc.MQRC_XQH_ERROR, str(error))
            except MQError as error:
                raise_if_lost(error)
                if error.reason not in _TOO_BIG:
                    raise
                self._dead_letters.put(message.md, message.data, error.reason, f"{self._transmission_queue}: {error}")
            self.answered()
        if count:
            connection.commit()
        return count

    def _transmission_message(self, message: Got, name: str) -> Message:
        """Return a message of a subscription as it is on the transmission queue. Raises MalformedHeader.

        A returned message already has an MQXQH, with the transmission queue of another shard.
        """
        if message.md.Format == cmqc.MQFMT_XMIT_Q_HEADER:
            embedded, data = decode_mqxqh(message.data).MsgDesc, message.data[MQXQH_LENGTH:]
            md = forwarded_descriptor(message.md)
        else:
            embedded = msgspec.structs.replace(fitted_mqmd(message.md), Version=cmqc.MQMD_VERSION_1)
            data = message.data
            md = MQMD(
                Format=cmqc.MQFMT_XMIT_Q_HEADER,
                CorrelId=message.md.MsgId,
                Persistence=message.md.Persistence,
                Priority=message.md.Priority,
                Expiry=message.md.Expiry,
            )
        header = MQXQH(RemoteQName=name.encode(), RemoteQMgrName=self._transmission_queue.encode(), MsgDesc=embedded)
        return Message(md, encode_mqxqh(header) + data)

    def _queue(self, connection: Connection, name: str) -> int | None:
        """Return the handle of the queue of a subscription, or None if the shard no longer has members. Raises MQError.

        The queue handle from MQSUB closes with the subscription handle, which only one shard may have open.
        """
        share = self._shares.get(name)
        if name not in self._queues and share is not None:
            self._keep(connection, name, opened_queue(connection, share))
        elif name in self._queues:
            self._queues[name] = self._queues.pop(name)
        return self._queues.get(name)

    def _keep(self, connection: Connection, name: str, queue: int) -> None:
        while len(self._queues) >= _MAX_QUEUES:
            connection.close(self._queues.pop(next(iter(self._queues))))
        self._queues[name] = queue
        self.answered()

    def _return(self, connection: Connection, job: ReturnJob) -> int:
        """Move messages back to the queue of their subscription, in units of work. Raises MQError.

        Return MQRC_NONE, or a reason code in OPENED_ELSEWHERE if another shard has the subscription open briefly.
        """
        name = job.share.remote_queue_manager
        if job.messages:
            queue = self._queues.get(name)
            if queue is None:
                try:
                    queue = opened_queue(connection, job.share)
                except MQError as error:
                    if error.reason not in OPENED_ELSEWHERE:
                        raise
                    log.debug("%s: %s: %s", self.name, job.share.written, error)
                    return error.reason
                self._keep(connection, name, queue)
            while job.moved < len(job.messages):
                batch = job.messages[job.moved : job.moved + _BATCH]
                self._return_batch(connection, queue, [*itertools.chain(*batch)])
                job.moved += len(batch)
        if job.leaves and (handle := self._queues.pop(name, None)) is not None:
            connection.close(handle)
        return cmqc.MQRC_NONE

    def _return_batch(self, connection: Connection, queue: int, msg_ids: Sequence[bytes]) -> None:
        for msg_id in msg_ids:
            get_options = GetOptions(Options=_GET, MatchOptions=cmqc.MQMO_MATCH_MSG_ID, MsgId=msg_id)
            # The message may have expired.
            if (message := get_or_none(connection, self._transmission, get_options)) is not None:
                connection.put(queue, Message(forwarded_descriptor(message.md), message.data), _PUT)
            self.answered()
        connection.commit()
        self._events.removed(msg_ids)

    def _look_at_depths(self, connection: Connection) -> None:
        """Remove the oldest messages of queues that are longer than the limit."""
        now = time.monotonic()
        if now < self._depths_at:
            return
        self._depths_at = now + _DEPTH_INTERVAL
        names = list(self._shares)
        self._depth_turn = (self._depth_turn + _AT_ONCE) % len(names) if len(names) > _AT_ONCE else 0
        for name in (names + names)[self._depth_turn :][: min(_AT_ONCE, len(names))]:
            try:
                self._limit_depth(connection, name)
            except MQError as error:
                raise_if_lost(error)
                self._fail(connection, name, error)

    def _limit_depth(self, connection: Connection, name: str) -> None:
        queue = self._queue(connection, name)
        if queue is None:
            return
        limit = self._limit()
        first, most = self._excess(connection, queue, limit)
        count_removed, excess = 0, first
        try:
            while excess > 0 and count_removed < first:
                # Other shards may do the same now. Each of them removes at most one unit of work too many.
                count = self._remove_oldest(connection, queue, name, min(_BATCH, math.ceil(excess / 10)), limit)
                if not count:
                    break
                count_removed += count
                excess, most = self._excess(connection, queue, limit)
        finally:
            # Also report messages that were removed before a failure.
            if count_removed:
                log.warning(
                    "MQB4221W removed the %d oldest messages of shared subscription %s: more than %d messages wait",
                    count_removed,
                    self._written(name),
                    most,
                )
                self._events.limited_share(name, count_removed)

    def _excess(self, connection: Connection, queue: int, limit: ShareLimit) -> tuple[int, int]:
        """Return the number of messages beyond the limit, and the limit."""
        (depth, most), _ = connection.inquire(queue, (cmqc.MQIA_CURRENT_Q_DEPTH, cmqc.MQIA_MAX_Q_DEPTH))
        self.answered()
        most = min(limit.messages, int(most * _NEARLY_FULL))
        return depth - most, most

    def _remove_oldest(self, connection: Connection, queue: int, name: str, number: int, limit: ShareLimit) -> int:
        count = 0
        for _ in range(number):
            message = get_or_none(connection, queue, GetOptions(Options=_GET))
            self.answered()
            if message is None:
                break
            count += 1
            persistent = message.md.Persistence == cmqc.MQPER_PERSISTENT
            if limit.dead_letters and persistent and self._events.may_dead_letter(name, len(message.data)):
                why = f"too many messages wait for shared subscription {self._written(name)}"
                try:
                    self._dead_letters.put(message.md, message.data, cmqc.MQRC_Q_FULL, why)
                except DeadLetterRefused:
                    # The message is discarded, like those that exceed limits.dead_letter_bytes.
                    log.warning("MQB4222W discarded a message of shared subscription %s: %s", self._written(name), why)
        connection.commit()
        return count


def opened_queue(connection: Connection, share: SharedSubscription) -> int:
    """Open the queue of a shared subscription separately from the subscription. Raises MQError."""
    handle, destination = resume_share(connection, share)
    _, (queue,) = connection.inquire(destination, (cmqc.MQCA_Q_NAME,))
    connection.close(destination)
    connection.close(handle)
    return connection.open(MQOD(ObjectName=queue.strip()), _SHARED)
