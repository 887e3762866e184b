"""The reader of a queue: a thread that takes messages off the queue and writes them to a spool, exactly once.

Each unit of work gets messages, and replaces the state message of the spool on SYSTEM.MQTT.MAPPING.STATE by one with the
number of the segment that contains them. The segment is durable before the commit. So after a crash, the state message
determines which segments are valid: a segment with a higher number is deleted, and its messages are on the queue again.

The queue is open for exclusive input, so one reader at a time takes its messages. Every unit of work also takes the state
message and compares it with the one that the reader put last. So a reader that lost its connection cannot continue next to
its successor.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.mqi import MQOD, MQSD, Connection, GetOptions, MQError
from bridge.mq.remote import get_many
from bridge.mq.state import StateQueue
from bridge.mq.worker import FIRST_PAUSE, LOST, MAX_PAUSE
from bridge.spark.columns import MQ_ARROW_SCHEMA
from bridge.spark.mq.envelope import put_time, record_batch
from bridge.spark.mq.queue_manager import QUEUE_MANAGER_OPTIONS, QueueManagerOptions, queue_manager_options_of
from bridge.spark.options import Options
from bridge.spark.segment import STATE_MARK, Segment, SpoolDamaged, SpoolState, state_mark
from bridge.spark.spool import (
    STREAM_OPTIONS,
    Spool,
    SpoolFiller,
    StreamOptions,
    columns_of,
    open_former,
    stream_options_of,
)
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Messages, and bytes of their data, of one unit of work. MAXUMSGS is 10000 by default.
UNIT_ROWS: Final = 8_000
UNIT_BYTES: Final = 16 * 1024 * 1024
#: Messages and bytes that one request to an embedded queue manager gets.
_GET_ROWS: Final = 1_000
_GET_BYTES: Final = 4 * 1024 * 1024
#: Milliseconds that a get waits for a message.
WAIT: Final = 500
#: Seconds that a new reader waits for the queue, and for the state message: Spark does not wait for processes that it ended.
TAKEOVER_WAIT: Final = 15.0
_PAUSE: Final = 0.1
#: Seconds between inquiries of the depth of the queue.
_INQUIRY: Final = 1.0

#: Gets of the complete message. Properties are in an MQRFH2, independently of PROPCTL.
GET: Final = cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2 | cmqc.MQGMO_FAIL_IF_QUIESCING
_OPEN: Final = cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
_TAKE: Final = cmqc.MQGMO_SYNCPOINT | GET

Result = TypeVar("Result")

# Options -------------------------------------------------------------------------------------------------------------

READ_OPTIONS: Final = (*QUEUE_MANAGER_OPTIONS, "queue", "topic", "subscription", "selector", *STREAM_OPTIONS)


class MqSourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options, checked. Either `queues` or a `subscription`."""

    queue_manager: QueueManagerOptions
    queues: tuple[str, ...] = ()
    topic: str | None = None
    subscription: str | None = None
    #: SQL92, as applications give it to MQOPEN; blank for all messages
    selector: str = ""
    stream: StreamOptions = StreamOptions()
    #: Arrow schema of the columns
    schema: Any = MQ_ARROW_SCHEMA

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that have a spool. The spool of a subscription survives the deletion of its queue."""
        return self.queues if self.subscription is None else (f"subscription {self.subscription}",)

    def queue_names(self, connection: Connection) -> tuple[str, ...]:
        """Return the queues to read. A subscription is created if it does not exist. Raises MQError."""
        if self.subscription is not None:
            return (managed_queue(connection, self.subscription, self.topic),)
        return self.queues


def source_options_of(options: Options, schema: Any = None) -> MqSourceOptions:
    """Return the options of a reader, checked. `schema` replaces the option `columns`. Raises OptionError."""
    queues = tuple(options.names("queue"))
    topic, subscription = options.text("topic"), options.text("subscription")
    if queues and (topic or subscription):
        other = "topic" if topic else "subscription"
        raise options.wrong(other, "no value, because the option queue is set")
    if topic and not subscription:
        raise options.wrong("subscription", "the name of a durable subscription, which stores publications to topic")
    if not queues and not subscription:
        raise options.wrong("queue", "the name of a queue, or of several with commas (or topic and subscription)")
    if len(set(queues)) != len(queues):
        raise options.wrong("queue", "each queue once")
    return MqSourceOptions(
        queue_manager=queue_manager_options_of(options),
        queues=queues,
        topic=topic,
        subscription=subscription,
        selector=options.text("selector") or "",
        stream=stream_options_of(options),
        schema=columns_of(options, MQ_ARROW_SCHEMA) if schema is None else schema,
    )


def managed_queue(connection: Connection, subscription: str, topic: str | None) -> str:
    """Return the queue of a durable subscription. With a topic string, create it if necessary. Raises MQError."""
    options = cmqc.MQSO_RESUME | cmqc.MQSO_DURABLE | cmqc.MQSO_MANAGED | cmqc.MQSO_FAIL_IF_QUIESCING
    sd = MQSD(Options=options | (cmqc.MQSO_CREATE if topic else 0), SubName=subscription, ObjectString=topic or "")
    handle, destination = connection.subscribe(sd)
    try:
        return connection.inquire(destination, [cmqc.MQCA_Q_NAME])[1][0].strip()
    finally:
        connection.close(handle, cmqc.MQCO_KEEP_SUB)
        connection.close(destination)


def depth(connection: Connection, handle: int) -> int:
    """Return CURDEPTH: messages on a queue, including uncommitted ones."""
    return connection.inquire(handle, [cmqc.MQIA_CURRENT_Q_DEPTH])[0][0]


# The reader ----------------------------------------------------------------------------------------------------------


class ReaderSuperseded(Exception):
    """Another reader has continued the spool."""


class QueueReader(SpoolFiller):
    """Fills a spool from a queue."""

    def __init__(
        self,
        queue_manager: QueueManagerOptions,
        queue: str,
        spool: Spool,
        schema: Any,
        options: StreamOptions,
        *,
        selector: str = "",
    ) -> None:
        super().__init__(f"queue {queue}", spool, options)
        self._queue_manager = queue_manager
        self._queue = queue
        self._schema = schema
        self._selector = selector
        self._unit_rows = min(options.max_messages, UNIT_ROWS)
        self._unit_bytes = min(options.max_bytes, UNIT_BYTES)
        now = datetime.now(UTC).isoformat(" ", "seconds")
        self._owner = f"process {os.getpid()} on {socket.gethostname()}, since {now}"
        #: converts messages to record batches
        self._converter = ThreadPoolExecutor(1)
        self._connected = threading.Event()
        self._until_empty = False
        #: remaining number of messages to take, after `finish`
        self._left: int | None = None
        self._finished = False
        self._inquired = 0.0
        self._state: StateQueue | None = None
        self._last_state: SpoolState | None = None
        #: a segment whose unit of work may or may not have been committed
        self._pending: tuple[Segment, SpoolState] | None = None
        self._runs: list[tuple[int, str]] = []

    def start(self) -> None:
        """Start taking messages. Raises the error of the first connection: MQError, SpoolDamaged, OSError."""
        self._thread.start()
        self._connected.wait()
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Stop taking messages when the queue is empty, or after as many as are on the queue now."""
        self._until_empty = True

    @property
    def finished(self) -> bool:
        """Whether the run that `finish` limited has ended."""
        return self._finished

    # The thread ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = FIRST_PAUSE
        try:
            while not (self._stopping or self._finished):
                try:
                    with self._queue_manager.connected() as connection:
                        handle = self._begin(connection)
                        pause = FIRST_PAUSE
                        self._connected.set()
                        while not (self._stopping or self._finished):
                            self._round(connection, handle)
                        connection.backout()
                except MQError as error:
                    if not self._connected.is_set() or not (error.reason in LOST or isinstance(error, _InUse)):
                        raise
                    log.warning("MQB8004W reader of queue %s lost its MQ connection: %s", self._queue, error)
                    time.sleep(pause)
                    pause = min(pause * 2, MAX_PAUSE)
        except Exception as error:
            if self._connected.is_set():
                log.error("MQB8005E the reader of queue %s has ended: %s", self._queue, error)
            self._error = error
            self._connected.set()
        finally:
            self._converter.shutdown()

    def _begin(self, connection: Connection) -> int:
        """Open the queue, and recover the spool by its state message. Return the handle of the queue."""
        self._state = StateQueue(connection, MAPPING_STATE_QUEUE)
        handle = with_retries(partial(self._opened, connection, self._state))
        state = with_retries(partial(self._found_state, self._state))
        connection.commit()
        spool = self.spool
        if self._last_state is None:
            runs = spool.recover(state.last, state.runs)
            after = [number for number, _ in runs[1:]]
            needed = [run for run, end in zip(runs, [*after, spool.last + 1], strict=False) if end > spool.first]
            self._runs = [*needed, (spool.last + 1, spool.run)]
            self._last_state = state
        elif self._pending is not None and state == self._pending[1]:
            self._publish(*self._pending)
        elif state == self._last_state:
            if self._pending is not None:
                spool.discard(self._pending[0])
        else:
            raise ReaderSuperseded(f"another process has continued spool {spool.place.path} of queue {self._queue}")
        self._pending = None
        return handle

    def _publish(self, segment: Segment, state: SpoolState) -> None:
        self.spool.publish(segment)
        self._last_state, self._pending = state, None
        self.depth = max(self.depth - segment.rows, 0)
        if self._left is not None:
            self._left -= segment.rows
            self._finished = self._left <= 0

    def _opened(self, connection: Connection, states: StateQueue) -> int:
        try:
            return connection.open(MQOD(ObjectName=self._queue, SelectionString=self._selector), _OPEN)
        except MQError as error:
            if error.reason != cmqc.MQRC_OBJECT_IN_USE:
                raise
            owners = [state.owner for state in _states(states) if state.queue == self._queue]
            last = f"; last streaming reader: {owners[-1]}" if owners else ""
            why = (
                f"queue {self._queue} is open for input elsewhere{last}; hint: a streaming query needs the queue for itself."
                " Stop the other reader, or use a separate queue for this query"
            )
            raise _InUse(error.reason, why) from error

    def _found_state(self, states: StateQueue) -> SpoolState:
        """Return the state of the spool. Put the first one for a new spool. Raises _NoState if a reader has it."""
        mark = state_mark(self.spool.id)
        message = next(states.browse(mark), None)
        if message is not None:
            return msgspec.msgpack.decode(message.data, type=SpoolState)
        if not self.spool.is_unused:
            raise _no_state(self.spool)
        state = SpoolState(self._queue, self._owner, self.spool.id, 0, [])
        states.put(mark, msgspec.msgpack.encode(state))
        return state

    def _round(self, connection: Connection, handle: int) -> None:
        """Take messages in one unit of work, or wait for some."""
        self._inquire(connection, handle)
        if not self.spool.wait_below(self._limit, WAIT / 1000):
            return
        try:
            batches, size, milliseconds = self._take(connection, handle)
        except MQError as error:
            if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                raise
            self._finished = self._until_empty
            return
        segment = self.spool.append(batches, size, milliseconds)
        state = SpoolState(self._queue, self._owner, self.spool.id, segment.number, self._runs)
        self._pending = segment, state
        try:
            self._replace_state(state)
        except MQError as error:
            if error.reason != cmqc.MQRC_SYNCPOINT_LIMIT_REACHED or segment.rows == 1:
                raise
            connection.backout()
            self.spool.discard(segment)
            self._pending = None
            self._unit_rows = max(segment.rows // 2, 1)
            return
        # If the connection is lost here, `_begin` determines from the state message whether the unit of work was committed.
        connection.commit()
        self._publish(segment, state)

    def _take(self, connection: Connection, handle: int) -> tuple[list[Any], int, int]:
        """Get messages under syncpoint until the queue is empty or the unit is full.

        Return record batches, the bytes of message data, and the time when the first message was put, in milliseconds since
        the epoch. Raises MQError if there is no message.
        """
        options = GetOptions(Options=_TAKE, MatchOptions=cmqc.MQMO_NONE)
        if not self._until_empty:
            options = msgspec.structs.replace(options, Options=_TAKE | cmqc.MQGMO_WAIT, WaitInterval=WAIT)
        batches: list[Future[Any]] = []
        rows = size = milliseconds = 0
        while rows < self._unit_rows and size < self._unit_bytes:
            most = min(self._unit_rows - rows, _GET_ROWS)
            try:
                batch = get_many(connection, handle, options, most, min(self._unit_bytes - size, _GET_BYTES))
            except MQError as error:
                if rows and error.reason in (cmqc.MQRC_NO_MSG_AVAILABLE, cmqc.MQRC_SYNCPOINT_LIMIT_REACHED):
                    break
                raise
            if not rows:
                since = put_time(batch[0].md.PutDate, batch[0].md.PutTime)
                milliseconds = int(time.time() * 1000) if since is None else since // 1000
            messages = [(message.md, message.data) for message in batch]
            # Meanwhile, the queue manager processes the next request.
            batches.append(self._converter.submit(record_batch, self._queue, messages, self._schema))
            rows += len(batch)
            size += sum(len(message.data) for message in batch)
            options = msgspec.structs.replace(options, Options=_TAKE)
        return [batch.result() for batch in batches], size, milliseconds

    def _replace_state(self, state: SpoolState) -> None:
        assert self._state is not None
        mark = state_mark(self.spool.id)
        former = self._state.take(mark)
        if former is None or msgspec.msgpack.decode(former, type=SpoolState) != self._last_state:
            raise ReaderSuperseded(
                f"another process has continued spool {self.spool.place.path} of queue {self._queue}"
            )
        self._state.put(mark, msgspec.msgpack.encode(state))

    def _inquire(self, connection: Connection, handle: int) -> None:
        begins = self._until_empty and self._left is None
        if begins or time.monotonic() - self._inquired >= _INQUIRY:
            self._inquired = time.monotonic()
            self.depth = depth(connection, handle)
            if begins:
                self._left = max(self.depth, 1)


class _InUse(MQError):
    """Another connection has the queue open for input."""


class _NoState(SpoolDamaged):
    """The state message of a spool is missing, or in the unit of work of a reader whose connection was lost."""


def _no_state(spool: Spool) -> _NoState:
    return _NoState(
        f"the state message of spool {spool.place.path} is missing on {MAPPING_STATE_QUEUE}; hint: only it records which"
        " segments were committed. If it was removed, start with a new spool and checkpoint"
    )


def with_retries(attempt: Callable[[], Result]) -> Result:
    """Repeat an attempt for up to TAKEOVER_WAIT seconds, until the queue manager has noticed the end of a lost connection."""
    before = time.monotonic() + TAKEOVER_WAIT
    while True:
        try:
            return attempt()
        except (MQError, _NoState) as error:
            is_temporary = isinstance(error, _InUse | _NoState) or error.reason == cmqc.MQRC_UOW_IN_PROGRESS
            if not is_temporary or time.monotonic() > before:
                raise
        time.sleep(_PAUSE)


def _states(queue: StateQueue) -> list[SpoolState]:
    """Return all state messages of spools on a queue."""
    states = []
    for message in queue.browse():
        if message.md.CorrelId[:4] == STATE_MARK:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                states.append(msgspec.msgpack.decode(message.data, type=SpoolState))
    return states


def queue_readers(options: MqSourceOptions) -> dict[str, QueueReader]:
    """Return a reader for each queue, not started. Raises MQError, OSError, SpoolBusy, SpoolDamaged."""
    with options.queue_manager.connected() as connection:
        queues = options.queue_names(connection)
    return {
        source: QueueReader(
            options.queue_manager,
            queue,
            Spool(options.stream.spool, source, "mq"),
            options.schema,
            options.stream,
            selector=options.selector,
        )
        for source, queue in zip(options.sources, queues, strict=True)
    }


def former_spools(options: MqSourceOptions) -> dict[str, Spool]:
    """Return the spools of queues, subscriptions and topic filters that are no longer read.

    Raises MQError, OSError, SpoolDamaged.
    """
    former = open_former(options.stream.spool, options.sources)
    if former:
        with options.queue_manager.connected() as connection:
            states = StateQueue(connection, MAPPING_STATE_QUEUE)
            for source, spool in list(former.items()):
                if spool.kind == "mqtt":
                    spool.recover()
                elif recover(spool, states) is None:
                    former.pop(source).close()
    return former


def recover(spool: Spool, states: StateQueue) -> SpoolState | None:
    """Find the published segments of a spool that no reader uses. Return its state, or None if it never had a segment.

    Raises MQError, SpoolDamaged.
    """

    def found() -> SpoolState | None:
        if (message := next(states.browse(state_mark(spool.id)), None)) is not None:
            return msgspec.msgpack.decode(message.data, type=SpoolState)
        if not spool.is_unused:
            raise _no_state(spool)
        return None

    if (state := with_retries(found)) is not None:
        spool.recover(state.last, state.runs)
    return state
