"""The thread that browses SYSTEM.MQTT.TRANSMIT.QUEUE. It waits in MQGET, so removing has a thread of its own (`remover`)."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from bridge.mq.ibm.coordination import BrowsePasses
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got, MQError
from bridge.mq.worker import LOST, Worker
from bridge.telemetry.headers import Headers
from bridge.telemetry.message import NO_PROPERTIES, Message, Unmappable
from bridge.telemetry.subscription import is_for_subscription
from bridge.telemetry.transmission import AnyMessage, PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MalformedHeader, byte_order_of, decode_mqmde, decode_mqxqh

log = logging.getLogger(__name__)


#: The length of an MQXQH in bytes.
MQXQH_LENGTH = 428
#: The suffix of SubUserData of temporary subscriptions that replay retained publications.
REPLAY = " REPLAY"
#: Fields of an MQMD of version 2 that an MQMDE has.
_EXTENDED = ("GroupId", "MsgSeqNumber", "Offset", "MsgFlags", "OriginalLength")


class QueuedMessage(msgspec.Struct, eq=False):
    """A message on the transmission queue of IBM MQ, a `bridge.telemetry.transmission.Transmission`."""

    msg_id: bytes
    client_id: str
    remote_queue: str
    message: AnyMessage
    topic: str | None
    user_data: str | None
    retained: bool
    persistent: bool
    msg_number: int
    #: the message on the queue, for the dead-letter queue
    got: Got
    #: time.monotonic() when it expires, after which the queue manager may remove it
    expires: float = math.inf
    #: 0.0: the MQMD contains it
    put_time: float = 0.0
    #: It came through the temporary subscription that replays retained publications.
    replay: bool = False

    @property
    def raw(self) -> bytes:
        """The data on the transmission queue."""
        return self.got.data

    @property
    def expired(self) -> bool:
        """Whether the message has expired since it was browsed."""
        return time.monotonic() >= self.expires

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the message expires (MQMD.Expiry); None if it does not expire."""
        return None if self.expires == math.inf else self.expires - time.monotonic()

    @property
    def queue_manager(self) -> str:
        """RemoteQMgrName: the queue manager name of the client."""
        return decode_mqxqh(self.got.data).RemoteQMgrName.decode("utf-8", "replace")

    @property
    def undelivered(self) -> tuple[MQMD, bytes]:
        """The original MQMD and data of the message, with properties in an RFH2."""
        header = decode_mqxqh(self.got.data)
        return header.MsgDesc, self.got.data[MQXQH_LENGTH:]


def read_transmission(got: Got) -> QueuedMessage:
    """Parse a message of the transmission queue and its headers. Raises MalformedHeader if it has no valid MQXQH."""
    if got.md.Format != cmqc.MQFMT_XMIT_Q_HEADER:
        raise MalformedHeader("MQXQH", 0, f"Format of the message is {got.md.Format!r}, not MQXMIT")
    header = decode_mqxqh(got.data)
    embedded = header.MsgDesc
    raw = _with_version_2(Message(embedded, got.data[MQXQH_LENGTH:]))
    embedded = raw.md
    remote_queue = header.RemoteQName.decode("utf-8", "replace")
    message: AnyMessage = raw
    topic: str | None = None
    user_data: str | None = None
    retained = False
    if is_for_subscription(remote_queue):
        # If the headers are malformed, the session parses them again and dead-letters the message.
        with contextlib.suppress(Unmappable):
            headers = Headers(raw, discard_others=True)
            topic, user_data, retained = headers.topic or None, headers.user_data, headers.retained
            message = _publication(headers) or raw
    replay = False
    if user_data is not None and user_data.endswith(REPLAY):
        user_data, replay = user_data.removesuffix(REPLAY), True
    return QueuedMessage(
        got.md.MsgId,
        header.RemoteQMgrName.decode("utf-8", "replace"),
        remote_queue,
        message,
        topic,
        user_data,
        retained,
        embedded.Persistence == cmqc.MQPER_PERSISTENT,
        int.from_bytes(got.md.MsgId[-8:], "big"),
        got,
        math.inf if got.md.Expiry == cmqc.MQEI_UNLIMITED else time.monotonic() + got.md.Expiry / 10,
        replay=replay,
    )


def _publication(headers: Headers) -> AnyMessage | None:
    """Return a message for a subscription without its headers; None if the session needs all of them."""
    md = headers.md
    if headers.qos is not None:
        properties = headers.properties
        return PublicationMessage(
            md,
            headers.client_id,
            headers.topic,
            headers.body,
            headers.qos,
            properties=None if properties is NO_PROPERTIES else properties,
        )
    if headers.has_folder("mqtt") or headers.has_folder("usr"):
        return None
    described = {"Format": headers.format, "CodedCharSetId": headers.ccsid}
    return Message(msgspec.structs.replace(md, **described), headers.body)


def _with_version_2(message: Message) -> Message:
    """Move the fields of a message's MQMDE to its MQMD. A malformed MQMDE is left unchanged."""
    md = message.md
    if md.Format != cmqc.MQFMT_MD_EXTENSION:
        return message
    try:
        extension = decode_mqmde(message.data, byte_order=byte_order_of(md.Encoding, "MQMDE"))
    except MalformedHeader:
        return message  # the session parses it again and dead-letters the message
    named = {name: getattr(extension, name) for name in (*_EXTENDED, "Format", "Encoding", "CodedCharSetId")}
    return Message(msgspec.structs.replace(md, Version=cmqc.MQMD_VERSION_2, **named), message.data[cmqc.MQMDE_LENGTH_2 :])


#: Milliseconds that a browse waits for a message: how long a stop may take, and, with read ahead, the first commit of
#: publishers that were quiet.
BROWSE_WAIT, READ_AHEAD_WAIT = 250, 20
#: Messages and bytes handed over at a time.
BATCH_MESSAGES, BATCH_BYTES = 500, 1_048_576
#: Bytes of a message that the first MQGET takes. A longer message costs a second MQGET.
FIRST_BUFFER = 65_536
_WHOLE = cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2 | cmqc.MQGMO_FAIL_IF_QUIESCING
_FIRST = (
    _WHOLE | cmqc.MQGMO_UNMARKED_BROWSE_MSG | cmqc.MQGMO_MARK_BROWSE_HANDLE | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
)
_NEXT = _FIRST & ~cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT
#: Reasons that concern the queue as a whole, not the message that a browse found.
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
    """Browses the transmission queue and hands over every message once."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        queue: str,
        hand_over: Callable[[Sequence[QueuedMessage]], None],
        reject: Callable[[Got, int], None],
        *,
        caught_up: Callable[[], None] = lambda: None,
        passes: BrowsePasses | None = None,
    ) -> None:
        """Begin; with `passes`, messages are read ahead of the browse (MQOO_READ_AHEAD), many in one round trip."""
        super().__init__("transmit-queue browser", connect)
        #: called once, on the thread, when all is handed over that lay on the queue at the start
        self._caught_up: Callable[[], None] | None = caught_up
        self._queue = queue
        self._hand_over = hand_over
        self._reject = reject
        self._passes = passes
        self._known_lock = threading.Lock()
        #: MsgIds handed over and not removed yet: a browse after a reconnect comes by them again
        self._known: set[bytes] = set()
        #: those of them that were removed since the last MQGET from the front
        self._removed: list[bytes] = []
        self._passing: list[Callable[[], None]] = []
        #: The next MQGET begins at the front of the queue.
        self._at_front = True
        #: Messages that could not be read over this connection.
        self.unreadable = 0

    def when_passed(self, call: Callable[[], None]) -> None:
        """Call this, on the thread, when every message that lies on the queue now has been handed over."""
        with self._known_lock:
            self._passing.append(call)

    def forget(self, msg_ids: Sequence[bytes]) -> None:
        """Forget these messages, which are off the queue, when the next browse begins at the front.

        Until then, an MQGET under way or the read-ahead buffer can still return them.
        """
        with self._known_lock:
            self._removed += msg_ids

    def probe(self, connection: Connection) -> None:
        """Do nothing: each of its waiting gets tells that the connection lives."""

    def opened(self, connection: Connection) -> None:
        self.unreadable = 0
        options = cmqc.MQOO_BROWSE | cmqc.MQOO_FAIL_IF_QUIESCING
        #: For messages that are longer than the first buffer, by MsgId.
        self._reader = connection.open(MQOD(ObjectName=self._queue), options | cmqc.MQOO_NO_READ_AHEAD)
        self._open(connection, read_ahead=self._passes is not None)

    def _open(self, connection: Connection, *, read_ahead: bool) -> None:
        """Open the queue for a browse in which no message is marked yet."""
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
            # Messages in the read-ahead buffer are marked already: another handle has to browse them again.
            self.connection.close(self._handle)
            self._open(self.connection, read_ahead=True)
        self.wait_for_jobs(1.0)

    def _browse(self, connection: Connection, *, wait: bool) -> Got | None:
        """Browse the next message that is not marked; return None for one that cannot be read.

        Raises MQError, with MQRC_NO_MSG_AVAILABLE at the end of the queue.
        """
        options, interval = _FIRST if self._at_front else _NEXT, 0
        if wait:
            options |= cmqc.MQGMO_WAIT
            interval = READ_AHEAD_WAIT if self._read_ahead else BROWSE_WAIT
        if self._at_front:
            with self._known_lock:
                self._known.difference_update(self._removed)
                self._removed.clear()
            if self._read_ahead and self._passes is not None:
                self._passes.begin()
        try:
            got = connection.get(
                self._handle, GetOptions(Options=options, WaitInterval=interval, MaxLength=FIRST_BUFFER)
            )
        except MQError as error:
            self._end_pass()
            if error.reason in LOST or error.reason in _QUEUE_REASONS:
                raise
            if self._read_ahead:
                # Only a handle that does not read ahead can browse the message with other options.
                log.info("MQB4213I %s: %s; going on without read ahead", self.name, error)
                connection.close(self._handle)
                self._open(connection, read_ahead=False)
                return None
            others = cmqc.MQGMO_NO_PROPERTIES | _FIRST & ~cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
            got = connection.get(self._handle, GetOptions(Options=others, MaxLength=MQXQH_LENGTH))
            return self._whole(connection, got)
        # Without read ahead, from the front for each message: of two units of one publisher, the first may be committed
        # behind the cursor, and the second before it. At the start, no MQTT client publishes yet.
        self._at_front = not self._read_ahead and self._caught_up is None
        if got.Reason == cmqc.MQRC_NONE or got.md.MsgId in self._known:
            return got
        return self._whole(connection, got)

    def _whole(self, connection: Connection, head: Got) -> Got | None:
        """Browse a message whose beginning was browsed; return None, and report it, if it cannot be read.

        The usual cause is a message longer than the MAXMSGL of the channel. Nothing can move it over this connection: it
        stays on the queue, marked, so that the messages after it are delivered. The bridge tries again when it reconnects.
        Raises MQError if the queue itself has failed.
        """
        try:
            return connection.get(
                self._reader,
                GetOptions(Options=_WHOLE, MatchOptions=cmqc.MQMO_MATCH_MSG_ID, MsgId=head.md.MsgId),
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
        with self._known_lock:
            passing, self._passing = self._passing, []
        batch: list[QueuedMessage] = []
        wait = self._caught_up is None and not passing
        if wait and self._at_front and self._read_ahead and self._passes is not None and not self._passes.quiet:
            self._passes.rest()
            wait = False
        try:
            empty = self._fill(connection, batch, wait=wait)
        except MQError:
            with self._known_lock:
                self._passing += passing
            raise
        finally:
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

    def _fill(self, connection: Connection, batch: list[QueuedMessage], *, wait: bool) -> bool:
        """Browse messages into a batch until it is full, or the queue has no other message.

        With `wait`, wait for the first message if the queue has none. Return whether every message on the queue has been
        browsed. Raises MQError; the batch is good even then.
        """
        length = 0
        while len(batch) < BATCH_MESSAGES and length < BATCH_BYTES:
            at_front, waits = self._at_front, wait and self._at_front
            try:
                got = self._browse(connection, wait=waits)
            except MQError as error:
                if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                    raise
                return at_front or self._caught_up is not None
            self.answered()
            if got is None:
                continue
            if got.md.MsgId in self._known:
                continue
            self._known.add(got.md.MsgId)
            try:
                batch.append(read_transmission(got))
            except MalformedHeader as error:
                log.warning("MQB4210W a message of %s names no client: %s", self._queue, error)
                self._reject(got, cmqc.MQRC_XQH_ERROR)
            except Exception:
                log.exception("MQB4212E message %s of %s cannot be mapped", got.md.MsgId.hex().upper(), self._queue)
                self._reject(got, cmqc.MQRC_UNEXPECTED_ERROR)
            length += len(got.data)
            if waits and self._read_ahead:
                return False  # no round trip lies between the arrival of a message and its delivery
            wait = False
        return False
