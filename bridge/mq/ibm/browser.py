"""The thread that browses SYSTEM.MQTT.TRANSMIT.QUEUE. It waits in MQGET, so removing has a thread of its own (`remover`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from bridge.mq.errors import MQError
from bridge.mq.ibm.transmission import MQXQH_LENGTH, QueuedMessage, read_transmission
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got
from bridge.mq.worker import LOST, Worker
from bridge.wire import cmqc
from bridge.wire.mq import MalformedHeader, decode_mqxqh

log = logging.getLogger(__name__)

#: Milliseconds that a browse waits for a message: how long a stop may take.
BROWSE_WAIT = 250
#: Messages and bytes handed over at a time.
BATCH_MESSAGES, BATCH_BYTES = 500, 1_048_576
_BROWSE = (
    cmqc.MQGMO_BROWSE_FIRST
    | cmqc.MQGMO_UNMARKED_BROWSE_MSG
    | cmqc.MQGMO_MARK_BROWSE_HANDLE
    | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
    | cmqc.MQGMO_FAIL_IF_QUIESCING
)
#: The same from the cursor on.
_BROWSE_ON = _BROWSE & ~cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT
_UNDER_CURSOR = (
    cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2 | cmqc.MQGMO_FAIL_IF_QUIESCING
)
#: Reasons that concern the queue as a whole, not the message that a browse found.
_QUEUE_REASONS = frozenset(
    (
        cmqc.MQRC_GET_INHIBITED,
        cmqc.MQRC_NOT_OPEN_FOR_BROWSE,
        cmqc.MQRC_NOT_AUTHORIZED,
        cmqc.MQRC_OPTIONS_ERROR,
        cmqc.MQRC_Q_DELETED,
        cmqc.MQRC_OBJECT_DAMAGED,
    )
)


class Browser(Worker[None]):
    """Browses the transmission queue and hands over every message once."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        queue: str,
        hand_over: Callable[[Sequence[QueuedMessage]], None],
        reject: Callable[[Got, int], None],
        *,
        caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("transmit-queue browser", connect)
        #: called once, on the thread, when all is handed over that lay on the queue at the start
        self._caught_up: Callable[[], None] | None = caught_up
        self._queue = queue
        self._hand_over = hand_over
        self._reject = reject
        self._known_lock = threading.Lock()
        #: MsgIds handed over and not removed yet: a browse after a reconnect comes by them again
        self._known: set[bytes] = set()
        #: those of them that were removed since the last MQGET was asked for
        self._removed: list[bytes] = []
        self._passing: list[Callable[[], None]] = []
        #: Messages that could not be read over this connection.
        self.unreadable = 0

    def when_passed(self, call: Callable[[], None]) -> None:
        """Call this, on the thread, when every message that lies on the queue now has been handed over."""
        with self._known_lock:
            self._passing.append(call)

    def forget(self, msg_ids: Sequence[bytes]) -> None:
        """Forget these messages, which are off the queue: as soon as no MQGET asked for before can still return them."""
        with self._known_lock:
            self._removed += msg_ids

    def probe(self, connection: Connection) -> None:
        """Do nothing: each of its waiting gets tells that the connection lives."""

    def opened(self, connection: Connection) -> None:
        self.unreadable = 0
        self._handle = connection.open(MQOD(ObjectName=self._queue), cmqc.MQOO_BROWSE | cmqc.MQOO_FAIL_IF_QUIESCING)

    def failed(self, error: MQError) -> None:
        log.error("MQB4209E %s: %s", self.name, error)
        self.wait_for_jobs(1.0)

    def _browse(self, connection: Connection, options: GetOptions) -> Got | None:
        """Browse the next message; return None for one that cannot be read. Raises MQError."""
        try:
            return connection.get(self._handle, options)
        except MQError as error:
            if error.reason in LOST or error.reason in _QUEUE_REASONS or error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                raise
        return self._read_or_pass_over(connection)

    def _read_or_pass_over(self, connection: Connection) -> Got | None:
        """Browse the message that a browse has failed for; return None, and report it, if it cannot be read.

        The usual cause is a message longer than the MAXMSGL of the channel. Nothing can move it over this connection: it
        stays on the queue, marked, so that the messages after it are delivered. The bridge tries again when it reconnects.
        Raises MQError if the queue itself has failed.
        """
        options = cmqc.MQGMO_NO_PROPERTIES | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
        options |= _BROWSE & ~cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
        head = connection.get(self._handle, GetOptions(Options=options, MaxLength=MQXQH_LENGTH))
        try:
            return connection.get(self._handle, GetOptions(Options=_UNDER_CURSOR))
        except MQError as error:
            if error.reason in LOST or error.reason in _QUEUE_REASONS:
                raise
            if error.reason == cmqc.MQRC_NO_MSG_UNDER_CURSOR:
                return None  # it expired, or was removed
            try:
                client_id = decode_mqxqh(head.data).RemoteQMgrName.decode("utf-8", "replace")
            except MalformedHeader:
                client_id = ""
            self.unreadable += 1
            log.error(
                "MQB4211E message %s (%d bytes) for client %r cannot be read and stays on %s: %s",
                head.md.MsgId.hex().upper(),
                head.DataLength,
                client_id,
                self._queue,
                error,
            )
            return None

    def serve(self, connection: Connection) -> None:
        batch: list[QueuedMessage] = []
        length = 0
        options = GetOptions(Options=_BROWSE)
        with self._known_lock:
            passing, self._passing = self._passing, []
        if self._caught_up is None and not passing:
            options = GetOptions(Options=_BROWSE | cmqc.MQGMO_WAIT, WaitInterval=BROWSE_WAIT)
        empty = False
        while len(batch) < BATCH_MESSAGES and length < BATCH_BYTES:
            try:
                got = self._browse(connection, options)
            except MQError as error:
                if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                    empty = True
                    break
                if batch:
                    self._hand_over(batch)
                with self._known_lock:
                    self._passing += passing
                raise
            # From the front for each message: of two units of work of one publisher, the first may be committed behind
            # the cursor, and the second before it; MQGMO_BROWSE_NEXT would then turn their order round. At the start no
            # MQTT client publishes yet, and what lies on the queue is passed over once only.
            options = GetOptions(Options=_BROWSE if self._caught_up is None else _BROWSE_ON)
            if got is None:
                continue
            with self._known_lock:
                known = got.md.MsgId in self._known
                self._known.add(got.md.MsgId)
                # Not in `forget`: the queue manager may have answered this MQGET just before the message was removed.
                self._known.difference_update(self._removed)
                self._removed.clear()
            if known:
                continue
            try:
                batch.append(read_transmission(got))
            except MalformedHeader as error:
                log.warning("MQB4210W a message of %s names no client: %s", self._queue, error)
                self._reject(got, cmqc.MQRC_XQH_ERROR)
            except Exception:
                log.exception("MQB4212E message %s of %s cannot be mapped", got.md.MsgId.hex().upper(), self._queue)
                self._reject(got, cmqc.MQRC_UNEXPECTED_ERROR)
            length += len(got.data)
        if batch:
            self._hand_over(batch)
        if empty:
            for call in passing:
                call()
        else:
            with self._known_lock:
                self._passing += passing
        if empty and self._caught_up is not None:
            self._caught_up()
            self._caught_up = None
