"""The thread that browses SYSTEM.MQTT.TRANSMIT.QUEUE. It waits in MQGET, so other threads remove messages (`remover`)."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

from bridge.mq.ibm.coordination import BackendEvents, BrowsePasses
from bridge.mq.ibm.transmission import MQXQH_LENGTH, QueuedMessage, read_transmission
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got, MQError, get_or_none, inquire
from bridge.mq.worker import LOST, Worker, raise_if_lost
from bridge.wire import cmqc
from bridge.wire.mq import MalformedHeader, decode_mqxqh

log = logging.getLogger(__name__)


#: The maximum wait of a browse in milliseconds, and so the maximum delay of a stop. With read ahead, it delays the first
#: commit of publishers that were idle.
BROWSE_WAIT, READ_AHEAD_WAIT = 250, 20
#: The maximum wait in milliseconds while the bridge is idle, and the seconds without work after which it is idle.
IDLE_WAIT, IDLE_AFTER = 1_000, 10.0
#: Seconds between passes over the queue while the bridge is idle, for each message that waits for an absent client, so that
#: the queue manager's load does not grow with these messages. The minimum is IDLE_WAIT. The second number is the maximum.
PASS_INTERVAL, MAX_PASS_INTERVAL = 0.0002, 30.0
#: The maximum number of messages of a batch, and of bytes.
BATCH_MESSAGES, BATCH_BYTES = 500, 1_048_576
#: Seconds between inquiries of the depth of the queue while messages arrive.
DEPTH_INTERVAL = 0.25
#: Buffer of the first MQGET in bytes. A longer message costs a second MQGET.
FIRST_BUFFER = 65_536
_WHOLE = cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2 | cmqc.MQGMO_FAIL_IF_QUIESCING
_FIRST = _WHOLE | cmqc.MQGMO_UNMARKED_BROWSE_MSG | cmqc.MQGMO_MARK_BROWSE_HANDLE | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
_NEXT = _FIRST & ~cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT
#: Options of the sentinel, which reads no data.
_SENTINEL_FIRST = _FIRST & ~cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2 | cmqc.MQGMO_NO_PROPERTIES
_SENTINEL_NEXT = _SENTINEL_FIRST & ~cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT
#: Reason codes for the queue as a whole, not for a browsed message.
_QUEUE_REASONS = frozenset(
    (
        cmqc.MQRC_NO_MSG_AVAILABLE,
        cmqc.MQRC_GET_INHIBITED,
        cmqc.MQRC_NOT_OPEN_FOR_BROWSE,
        cmqc.MQRC_NOT_AUTHORIZED,
        cmqc.MQRC_Q_DELETED,
        cmqc.MQRC_OBJECT_DAMAGED,
    )
)


class Browser(Worker[None]):
    """Browses the transmission queue and reports each message once."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        queue: str,
        events: BackendEvents,
        *,
        passes: BrowsePasses | None = None,
        is_shard: bool = False,
    ) -> None:
        """With `passes`, read messages ahead of the browse (MQOO_READ_AHEAD), many in one round trip.

        `is_shard` means that the queue belongs to a shard.
        """
        super().__init__("transmit-queue browser", connect, events=events)
        self._events = events
        #: whether the messages that were on the queue at the start have been reported
        self._has_caught_up = False
        #: depth of the queue when it was first opened, because applications and clients of other shards may put continuously
        self._depth_at_start: float = math.inf
        self._queue = queue
        self._shard_queue = queue if is_shard else ""
        self._passes = passes
        self._known_lock = threading.Lock()
        #: MsgIds reported but not yet removed. A browse after a reconnect finds them again
        self._known: set[bytes] = set()
        #: MsgIds removed since the last MQGET from the front
        self._removed: list[bytes] = []
        self._passing: list[Callable[[], None]] = []
        #: time.monotonic() of the last message or request
        self._worked = time.monotonic()
        #: time.monotonic() of the next pass of the sentinel over the queue
        self._pass_at = 0.0
        #: whether the next MQGET begins at the front of the queue
        self._at_front = True
        #: MsgIds of messages on the queue that could not be read over this connection
        self.unreadable: set[bytes] = set()
        #: number of unreported messages on the queue at the last inquiry, and time.monotonic() of the next inquiry
        self.unread = 0
        self._inquire_at = 0.0
        #: numbers of messages, in the order in which they are reported
        self._positions = itertools.count(1)

    @property
    def depth(self) -> int:
        """The number of messages that were reported and not yet removed."""
        return len(self._known) - len(self._removed)

    def when_passed(self, call: Callable[[], None]) -> None:
        """Call `call`, on the thread, when all messages that are on the queue now have been reported."""
        with self._known_lock:
            self._passing.append(call)
            self._worked = time.monotonic()

    def forget(self, msg_ids: Sequence[bytes]) -> None:
        """Forget messages that were removed from the queue, when the next browse begins at the front.

        Until then, a current MQGET or the read-ahead buffer may still return them.
        """
        with self._known_lock:
            self._removed += msg_ids

    def probe(self, connection: Connection) -> None:
        """Forget unreadable messages that an administrator has removed. Each waiting get checks the connection."""
        for msg_id in tuple(self.unreadable):
            options = GetOptions(
                Options=_WHOLE | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG,
                MatchOptions=cmqc.MQMO_MATCH_MSG_ID,
                MsgId=msg_id,
                MaxLength=MQXQH_LENGTH,
            )
            if get_or_none(connection, self._reader, options) is None:
                self.unreadable.discard(msg_id)
                log.info(
                    "MQB4215I message %s, which could not be read, is no longer on %s",
                    msg_id.hex().upper(),
                    self._queue,
                )

    def opened(self, connection: Connection) -> None:
        self.unreadable.clear()
        options = cmqc.MQOO_BROWSE | cmqc.MQOO_FAIL_IF_QUIESCING
        #: reads messages that are longer than the first buffer, by MsgId
        self._reader = connection.open(MQOD(ObjectName=self._queue), options | cmqc.MQOO_NO_READ_AHEAD)
        self._open(connection, read_ahead=self._passes is not None)
        if self._depth_at_start == math.inf:
            # Fails without the authority +inq. The next call notices a lost connection.
            with contextlib.suppress(MQError):
                (depth,), _ = inquire(connection, MQOD(ObjectName=self._queue), (cmqc.MQIA_CURRENT_Q_DEPTH,))
                self._depth_at_start = depth
        if self._read_ahead:
            #: waits while the bridge is idle. Publishers may commit meanwhile, because it delivers no messages
            self._sentinel = connection.open(MQOD(ObjectName=self._queue), options | cmqc.MQOO_READ_AHEAD)
            self._pass_at = 0.0

    def _open(self, connection: Connection, *, read_ahead: bool) -> None:
        """Open the queue for browsing, with no message marked."""
        self._read_ahead = read_ahead
        ahead = cmqc.MQOO_READ_AHEAD if read_ahead else cmqc.MQOO_NO_READ_AHEAD
        options = cmqc.MQOO_BROWSE | cmqc.MQOO_FAIL_IF_QUIESCING | ahead
        self._handle = connection.open(MQOD(ObjectName=self._queue), options)
        self._end_pass()

    def _end_pass(self) -> None:
        self._at_front = True
        if self._passes is not None:
            self._passes.end()

    def lost(self) -> None:
        self._end_pass()

    def failed(self, error: MQError) -> None:
        log.error("MQB4209E %s: %s", self.name, error)
        self._end_pass()
        if self._read_ahead and self.connection is not None:
            # Messages in the read-ahead buffer are already marked, so another handle must browse them again.
            self.connection.close(self._handle)
            self._open(self.connection, read_ahead=True)
        self.wait_for_jobs(1.0)

    def _browse(self, connection: Connection, *, wait: bool) -> Got | None:
        """Browse the next unmarked message. Return None if it cannot be read.

        Raises MQError, with MQRC_NO_MSG_AVAILABLE at the end of the queue.
        """
        options, interval = _FIRST if self._at_front else _NEXT, 0
        if wait:
            options |= cmqc.MQGMO_WAIT
            interval = READ_AHEAD_WAIT if self._read_ahead else IDLE_WAIT if self._idle else BROWSE_WAIT
        if self._at_front:
            with self._known_lock:
                self._known.difference_update(self._removed)
                self._removed.clear()
            if self._read_ahead and self._passes is not None:
                self._passes.begin()
        try:
            message = connection.get(
                self._handle, GetOptions(Options=options, WaitInterval=interval, MaxLength=FIRST_BUFFER)
            )
        except MQError as error:
            self._end_pass()
            if error.reason in LOST or error.reason in _QUEUE_REASONS:
                raise
            if self._read_ahead:
                # Only a handle without read ahead can browse the message with other options.
                log.info("MQB4213I %s: %s; continuing without read ahead", self.name, error)
                connection.close(self._handle)
                self._open(connection, read_ahead=False)
                return None
            others = cmqc.MQGMO_NO_PROPERTIES | _FIRST & ~cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
            message = connection.get(self._handle, GetOptions(Options=others, MaxLength=MQXQH_LENGTH))
            return self._whole(connection, message)
        # Without read ahead, browse each message from the front. Of two units of one publisher, the first may be
        # committed behind the cursor, and the second ahead of it. At the start, no MQTT client publishes yet.
        self._at_front = not self._read_ahead and self._has_caught_up
        if message.Reason == cmqc.MQRC_NONE or message.md.MsgId in self._known:
            return message
        return self._whole(connection, message)

    def _whole(self, connection: Connection, head: Got) -> Got | None:
        """Browse a message whose beginning was browsed. Return None, and log an error, if it cannot be read.

        The usual cause is a message longer than the MAXMSGL of the channel, which this connection cannot transfer. The
        message stays on the queue, marked, so that later messages are delivered. The bridge retries when it reconnects.
        Raises MQError if the queue itself has failed.
        """
        try:
            return connection.get(
                self._reader, GetOptions(Options=_WHOLE, MatchOptions=cmqc.MQMO_MATCH_MSG_ID, MsgId=head.md.MsgId)
            )
        except MQError as error:
            if error.reason in LOST or error.reason in _QUEUE_REASONS - {cmqc.MQRC_NO_MSG_AVAILABLE}:
                raise
            if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                return None  # it expired, or was removed
            try:
                client_id = decode_mqxqh(head.data).RemoteQMgrName.decode("utf-8", "replace")
            except MalformedHeader:
                client_id = ""
            self.unreadable.add(head.md.MsgId)
            log.error(
                "MQB4211E message %s (%d bytes) for client %r could not be read and stays on %s: %s",
                head.md.MsgId.hex().upper(),
                head.DataLength,
                client_id,
                self._queue,
                error,
            )
            return None

    @property
    def _idle(self) -> bool:
        return time.monotonic() - self._worked >= IDLE_AFTER

    def _wait_as_sentinel(self, connection: Connection) -> bool:
        """Wait for a message that has not been browsed. Return False if no message arrived.

        The sentinel is a second handle with its own marks. It waits after the last message, so it does not skip messages. A
        message before its cursor has a higher priority, or was put long before its commit. The next pass finds that message.
        """
        now = time.monotonic()
        options = _SENTINEL_NEXT | cmqc.MQGMO_WAIT
        if now >= self._pass_at:
            options = _SENTINEL_FIRST
            interval = min(PASS_INTERVAL * len(self._known), MAX_PASS_INTERVAL)
            self._pass_at = now + max(IDLE_WAIT / 1_000, interval)
        while True:
            try:
                message = connection.get(
                    self._sentinel, GetOptions(Options=options, WaitInterval=IDLE_WAIT, MaxLength=0)
                )
            except MQError as error:
                if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                    raise
                return False
            self.answered()
            if message.md.MsgId not in self._known:
                return True
            options = _SENTINEL_NEXT

    def _inquire_depth(self, connection: Connection) -> None:
        """Determine at intervals how many messages have not been browsed. Without the authority +inq, assume none."""
        now = time.monotonic()
        if now < self._inquire_at:
            return
        self._inquire_at = now + DEPTH_INTERVAL
        try:
            (depth,), _ = inquire(connection, MQOD(ObjectName=self._queue), (cmqc.MQIA_CURRENT_Q_DEPTH,))
        except MQError as error:
            raise_if_lost(error)
            return
        self.unread = max(0, depth - self.depth)

    def serve(self, connection: Connection) -> None:
        with self._known_lock:
            passing, self._passing = self._passing, []
        batch: list[QueuedMessage] = []
        wait = self._has_caught_up and not passing
        if wait and self._at_front and self._read_ahead and self._passes is not None:
            if not self._passes.quiet:
                self._worked = time.monotonic()
                self._passes.rest()
                wait = False
            elif self._idle:
                if not self._wait_as_sentinel(connection):
                    return
                wait = False
        try:
            empty = self._fill(connection, batch, wait=wait)
        except MQError:
            with self._known_lock:
                self._passing += passing
            raise
        finally:
            if batch:
                self._worked = time.monotonic()
                self._events.browsed(batch)
        if empty:
            for call in passing:
                call()
        else:
            with self._known_lock:
                self._passing += passing
        if not self._has_caught_up and (empty or len(self._known) >= self._depth_at_start):
            self._events.has_caught_up()
            self._has_caught_up = True

    def _fill(self, connection: Connection, batch: list[QueuedMessage], *, wait: bool) -> bool:
        """Browse messages into a batch until it is full, or the queue has no more messages.

        With `wait`, wait for the first message if the queue has none. Return whether every message on the queue has been
        browsed. Raises MQError. The batch is then still valid.
        """
        length = 0
        while len(batch) < BATCH_MESSAGES and length < BATCH_BYTES:
            if not self._idle:
                self._inquire_depth(connection)
            at_front, waits = self._at_front, wait and self._at_front
            try:
                message = self._browse(connection, wait=waits)
            except MQError as error:
                if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                    raise
                return at_front or not self._has_caught_up
            self.answered()
            if message is None:
                continue
            if message.md.MsgId in self._known:
                continue
            self._known.add(message.md.MsgId)
            try:
                batch.append(read_transmission(message, next(self._positions), self._shard_queue))
            except MalformedHeader as error:
                log.warning("MQB4210W a message on %s specifies no client: %s", self._queue, error)
                self._events.malformed(message, cmqc.MQRC_XQH_ERROR)
            except Exception:
                log.exception(
                    "MQB4212E message %s of %s could not be mapped", message.md.MsgId.hex().upper(), self._queue
                )
                self._events.malformed(message, cmqc.MQRC_UNEXPECTED_ERROR)
            length += len(message.data)
            if waits and self._read_ahead:
                return False  # deliver the message without another round trip
            wait = False
        return False
