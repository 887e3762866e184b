"""The embedded queue manager: its data directory, and the puts, publications, dead letters and reports of units of work.

The MQI calls (`verbs`), the backend and the MQSC commands use it, under one lock. It follows IBM MQ's documentation, and
rejects unsupported options with IBM's reason codes.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import msgspec

from bridge.config.queue_manager import MAPPING_STATE_QUEUE, STATE_QUEUE
from bridge.mq.data_directory import StoreError, hold
from bridge.mq.dead_letter import OriginContext
from bridge.mq.dead_letter import dead_letter as behind_header
from bridge.mq.embedded.appearance import Appearance, with_properties
from bridge.mq.embedded.attributes import Value, defaults
from bridge.mq.embedded.authority import AuthorizationService
from bridge.mq.embedded.objects import RETAINED_QUEUE, SYSTEM_MAX_DEPTH, Objects, ResolvedDestination
from bridge.mq.embedded.queue import MAX_PRIORITY, Queue, StoredMessage
from bridge.mq.embedded.retained import PUT_VISITS, RetainedPublications
from bridge.mq.embedded.selector import selection_of
from bridge.mq.embedded.storage.recovery_log import RecoveryLog, allocate_available, reserve_path
from bridge.mq.embedded.storage.store import Store
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.topics import Route
from bridge.mq.embedded.unit import Unit
from bridge.mq.memory import MESSAGE_OVERHEAD, MemoryWatermark
from bridge.mq.mqi import MQError
from bridge.telemetry.conversion import publisher_of
from bridge.telemetry.headers import Headers
from bridge.telemetry.message import Message, Unmappable
from bridge.telemetry.subscription import is_for_subscription
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, fitted_mqmd

log = logging.getLogger(__name__)


def undelivered(
    queue_manager: QueueManager,
    unit: Unit,
    route: Route,
    subscription: Subscription,
    message: AnyMessage,
    persistent: bool,
    now: float,
) -> int:
    """Dead-letter or drop a copy that a subscription's destination rejects, or reject the publication."""
    queue = subscription.queue
    reason = queue.refusal(message.length)
    if route.dead_letters:
        refused = queue_manager.undeliverable(
            queue,
            message,
            persistent=persistent,
            put_time=now,
            client_id=subscription.client_id,
            remote_queue=subscription.remote_queue,
            topic=route.topic,
            user_data=subscription.user_data,
        )
        destination = (subscription.client_id and subscription.remote_queue) or queue.name
        if dead_letter(queue_manager, unit, refused, reason, destination, subscription.client_id):
            return cmqc.MQRC_NONE
    policy = route.all_deliveries[persistent]
    if policy == "ALL" or (policy == "ALLDUR" and subscription.durable):
        log.warning(
            "MQB3201W rejected publication to %s: subscription %s cannot accept it: %s (%d)",
            route.topic,
            subscription.name,
            cmqc.reason_name(reason),
            reason,
        )
        return cmqc.MQRC_PUBLICATION_FAILURE
    log.warning(
        "MQB3202W publication to %s was not delivered to subscription %s: %s (%d)",
        route.topic,
        subscription.name,
        cmqc.reason_name(reason),
        reason,
    )
    return cmqc.MQRC_NONE


def dead_letter(
    queue_manager: QueueManager,
    unit: Unit,
    stored: StoredMessage,
    reason: int,
    queue_name: str,
    manager: str = "",
    *,
    replacing: bool = False,
) -> bool:
    """Put a copy of a message, after an MQDLH, to the dead-letter queue (DEADQ). Return False if that is not possible.

    For `replacing`, see `QueueManager.put`.
    """
    name = str(queue_manager.objects.attributes["DEADQ"])
    queue = queue_manager.objects.queues.get(name)
    if queue is None or queue is stored.queue:
        why = "is not a local queue" if queue is None else "already contains it"
        log.error("MQB3203E dead-lettering a message for %s failed: DEADQ(%s) %s", queue_name, name, why)
        return False
    _fit(stored)
    msg_id = queue_manager.appearance.msg_id(stored)
    client_id, stored.client_id = stored.client_id, ""
    try:
        md, data = queue_manager.appearance.seen(stored, properties=True)
    finally:
        stored.client_id = client_id
    outer = msgspec.structs.replace(md, MsgId=msg_id)
    letter = behind_header(outer, data, reason, queue_name, manager or queue_manager.name, OriginContext.of(md))
    try:
        queue_manager.put(
            unit, queue_manager.objects.resolve(name), letter, application="mqbridge", replacing=replacing
        )
    except MQError as error:
        log.error("MQB3204E dead-lettering a message for %s failed: %s", queue_name, error)
        return False
    recipient = f"queue {queue_name} at {manager or queue_manager.name}"
    if manager and manager == client_id:
        recipient = f"client {manager!r}"
    log.warning(
        "MQB3205W dead-lettered a message for %s, topic %r, to queue %s: %s (%d)",
        recipient,
        stored.topic or "",
        name,
        cmqc.reason_name(reason),
        reason,
    )
    return True


def _fit(stored: StoredMessage) -> None:
    """Truncate MQMD fields that are too long for the headers of a dead-lettered message. Older releases accepted them."""
    md = fitted_mqmd(stored.message.md)
    if md is not stored.message.md:
        stored.message = msgspec.structs.replace(stored.message, md=md)
    if stored.correl_id is not None and len(stored.correl_id) != cmqc.MQ_CORREL_ID_LENGTH:
        stored.correl_id = stored.correl_id[: cmqc.MQ_CORREL_ID_LENGTH].ljust(cmqc.MQ_CORREL_ID_LENGTH, b"\0")
    if stored.msg_id is not None and len(stored.msg_id) > cmqc.MQ_MSG_ID_LENGTH:
        stored.msg_id = stored.msg_id[: cmqc.MQ_MSG_ID_LENGTH]


#: Feedback of a report -> the options that request it: without data, with the first 100 bytes, with all data.
_REQUESTS = {
    cmqc.MQFB_COA: (cmqc.MQRO_COA, cmqc.MQRO_COA_WITH_DATA, cmqc.MQRO_COA_WITH_FULL_DATA),
    cmqc.MQFB_COD: (cmqc.MQRO_COD, cmqc.MQRO_COD_WITH_DATA, cmqc.MQRO_COD_WITH_FULL_DATA),
    cmqc.MQFB_EXPIRATION: (cmqc.MQRO_EXPIRATION, cmqc.MQRO_EXPIRATION_WITH_DATA, cmqc.MQRO_EXPIRATION_WITH_FULL_DATA),
}
_KINDS = (*_REQUESTS.values(), (cmqc.MQRO_EXCEPTION, cmqc.MQRO_EXCEPTION_WITH_DATA, cmqc.MQRO_EXCEPTION_WITH_FULL_DATA))
#: All options that request a report, from the queue manager or an application.
REQUESTED = sum(full for _, _, full in _KINDS) | cmqc.MQRO_PAN | cmqc.MQRO_NAN | cmqc.MQRO_ACTIVITY
_KNOWN = (
    REQUESTED
    | cmqc.MQRO_PASS_MSG_ID
    | cmqc.MQRO_PASS_CORREL_ID
    | cmqc.MQRO_DISCARD_MSG
    | cmqc.MQRO_PASS_DISCARD_AND_EXPIRY
)
_FIRST_BYTES = 100


def check_report(options: int) -> None:
    """Raise MQError for report options that are unknown or contradictory."""
    wrong = options & ~_KNOWN & ~cmqc.MQRO_ACCEPT_UNSUP_MASK
    for kind in _KINDS:
        chosen = options & kind[2]
        if chosen and chosen not in kind:
            wrong |= chosen
    if wrong:
        raise MQError(cmqc.MQRC_REPORT_OPTIONS_ERROR, f"Report 0x{options & 0xFFFFFFFF:x}")


def report(queue_manager: QueueManager, unit: Unit, stored: StoredMessage, feedback: int) -> None:
    """Put a report if the sender of a message has requested it."""
    original = stored.message.md
    plain, _, with_full_data = _REQUESTS[feedback]
    request = original.Report & with_full_data
    if not request or not original.ReplyToQ:
        return
    md, data = queue_manager.appearance.whole(stored)
    data = b"" if request == plain else data if request == with_full_data else data[:_FIRST_BYTES]
    passed = original.Report & cmqc.MQRO_PASS_DISCARD_AND_EXPIRY
    discard = original.Report & cmqc.MQRO_DISCARD_MSG
    message = Message(
        MQMD(
            Report=discard if passed else cmqc.MQRO_NONE,
            MsgType=cmqc.MQMT_REPORT,
            Expiry=md.Expiry if passed else cmqc.MQEI_UNLIMITED,
            Feedback=feedback,
            Encoding=md.Encoding,
            CodedCharSetId=md.CodedCharSetId,
            Format=md.Format if request != plain else cmqc.MQFMT_NONE,
            Priority=stored.priority,
            Persistence=md.Persistence,
            MsgId=md.MsgId if original.Report & cmqc.MQRO_PASS_MSG_ID else cmqc.MQMI_NONE,
            CorrelId=md.CorrelId if original.Report & cmqc.MQRO_PASS_CORREL_ID else md.MsgId,
            UserIdentifier=md.UserIdentifier,
            AccountingToken=md.AccountingToken,
            ApplIdentityData=md.ApplIdentityData,
            PutApplType=cmqc.MQAT_QMGR,
            PutApplName=queue_manager.name.encode()[:28],
        ),
        data,
    )
    name, manager = md.ReplyToQ.decode(errors="replace"), md.ReplyToQMgr.decode(errors="replace")
    try:
        destination = queue_manager.objects.resolve(name, manager)
        if destination.queue is None:
            raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"{name} is an alias of a topic")
        queue_manager.put(unit, destination, message, replacing=True)
    except MQError as error:
        letter = queue_manager.undeliverable(
            stored.queue, message, persistent=stored.persistent, priority=stored.priority
        )
        dead_letter(queue_manager, unit, letter, error.reason, name, manager, replacing=True)


def delivery(number: int, subscription: Subscription, publication: StoredMessage) -> StoredMessage | None:
    """Return the message to put to a subscription's destination, or None if it has expired or is not selected.

    `number` is the number of the new message. `publication` is the live or retained publication. Source: IBM MQ
    documentation, PubPriority, PubAccountingToken, PubApplIdentityData, SelectionString and SubExpiry of MQSD.
    """
    # "No more publications will match this subscription after this interval has passed". It is removed later.
    if subscription.expires_at and subscription.expires_at <= time.time():
        return None
    queue = subscription.queue
    priority = publication.priority
    if subscription.priority >= 0:
        priority = subscription.priority
    elif subscription.priority == cmqc.MQPRI_PRIORITY_AS_Q_DEF:
        priority = int(queue.attributes["DEFPRTY"])
    stored = StoredMessage(
        queue=queue,
        msg_number=number,
        message=_identified(subscription, publication.message),
        persistent=publication.persistent,
        priority=priority,
        put_time=publication.put_time,
        client_id=subscription.client_id,
        remote_queue=subscription.remote_queue,
        topic=publication.topic,
        user_data=subscription.user_data,
        retained=publication.retained,
        correl_id=subscription.correl_id,
        expires_at=publication.expires_at,
        durable=publication.persistent and not subscription.ephemeral,
        put_application=publication.put_application,
    )
    if subscription.selection is not None and not subscription.selection(stored):
        return None
    if subscription.direct:
        _make_direct(stored)
    return stored


def _make_direct(stored: StoredMessage) -> None:
    """Convert a copy to a direct message, because the administrative subscription has another queue name at a client."""
    stored.message = Message(*with_properties(stored, stored.message.md, True))
    stored.topic = stored.user_data = None
    stored.retained = False


def _identified(subscription: Subscription, message: AnyMessage) -> AnyMessage:
    if not isinstance(message, Message):
        return message
    if subscription.identity is not None:
        token, data = subscription.identity
        md = msgspec.structs.replace(message.md, AccountingToken=token, ApplIdentityData=data.encode()[:32])
    elif subscription.as_subscriber:
        md = msgspec.structs.replace(message.md, UserIdentifier=subscription.user.encode()[:12])
    else:
        return message
    return msgspec.structs.replace(message, md=md)


class QueueManager:
    """A queue manager with its data in one directory.

    Raises DataDirectoryInUse if another process uses it, or StoreError if its database cannot be used.
    """

    def __init__(
        self,
        name: str,
        data_directory: Path,
        *,
        max_message_length: int = 4_194_304,
        memory: MemoryWatermark | None = None,
    ) -> None:
        self.name = name
        self.objects = Objects(name)
        #: None if authorities are not checked
        self.authorization: AuthorizationService | None = None
        self.appearance = Appearance(name)
        #: with the recovery log's reserve, determines whether messages are accepted (`shortage`)
        self.memory = memory or MemoryWatermark(None)
        #: message bytes not yet reported to the watermark
        self._accepted = 0
        self.data_directory = data_directory
        data_directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._held = hold(data_directory)
        self.lock = threading.RLock()
        self.objects.attributes["MAXMSGL"] = max_message_length
        #: attributes set by ALTER QMGR, which override the defaults and `max_message_length`
        self.altered: dict[str, Value] = {}
        #: retained publications by topic string
        self.retained = RetainedPublications()
        #: records of MQTT sessions, by client identifier
        self.states: dict[str, StoredMessage] = {}
        store = self._open_store()
        self._starts = store.starts
        #: the identity since the last restore or salvage, or "" if the database was never restored
        self.epoch = f"{store.epoch:x}" if store.epoch else ""
        #: seconds since the epoch
        self.created = store.created
        self.started = time.time()
        #: the next message number, which includes the number of starts and so is unique across restarts
        self._next = (store.starts << 40) + 1
        self.recovery_log = RecoveryLog(store, self.lock)
        #: connections (`bridge.mq.embedded.verbs.hconn.Hconn`)
        self.applications: WeakSet[Any] = WeakSet()
        #: whether the queue manager is about to end. If so, connections and calls with a FAIL_IF_QUIESCING option fail
        self.quiescing = False
        self._connections = itertools.count(1)
        #: called when the queue manager ends
        self.on_close: list[Callable[[], None]] = []
        self._load(store)

    def _open_store(self) -> Store:
        """Open the database, with the reserve's space if the disk is full."""
        reserve = reserve_path(self.data_directory)
        reserved = reserve.exists()
        reserve.unlink(missing_ok=True)
        try:
            return Store(self.data_directory / "queuemanager.db")
        except StoreError:
            if reserved:
                allocate_available(reserve)  # other programs would use the space before the next attempt
            raise

    def _load(self, store: Store) -> None:
        self.altered.update(self.objects.restore(store, self.appearance))
        for stored in self.recovery_log.replay(self.objects.queues):
            stored.queue.append(stored)
            stored.queue.expect()
            if stored.queue.name == RETAINED_QUEUE and stored.topic is not None:
                self.retained[stored.topic] = stored
            elif stored.queue.name == STATE_QUEUE and stored.client_id:
                self.states[stored.client_id] = stored
        for queue in self.objects.queues.values():
            queue.reset_statistics()

    def enforce_authorities(self) -> None:
        """Check authorities from now on."""
        self.authorization = AuthorizationService(self.name, self.objects.authority_records, self.objects.topics)

    def close(self) -> None:
        """Complete all submitted commits, and release the data directory. Idempotent."""
        if self._held.closed:
            return
        for call in self.on_close:
            call()
        self.recovery_log.close()
        self._held.close()

    def connection_id(self) -> bytes:
        """Return an identifier for a connection, unique across restarts."""
        number = (self._starts << 40) + next(self._connections)
        return b"AMQC" + self.name.encode()[:12].ljust(12) + number.to_bytes(8, "big")

    # Messages --------------------------------------------------------------------------------------------------------

    def next_number(self) -> int:
        """Return a new message number, unique for this queue manager.

        The low 16 bits are never 0, because they are the MQTT message id.
        """
        number = self._next
        self._next = number + 1 if (number + 1) & 0xFFFF else number + 2
        return number

    def shortage(self, size: int, persistent: bool) -> int:
        """Return the reason code if a message of `size` bytes in memory is not accepted now, otherwise MQRC_NONE.

        MQRC_STORAGE_NOT_AVAILABLE means that memory use is above the watermark, MQRC_RESOURCE_PROBLEM that the disk is full.
        """
        if size:
            self._accepted += size
            # Not for each message, because the watermark is not compiled.
            if self._accepted >= COUNTED_BYTES or self.memory.above:
                accepted, self._accepted = self._accepted, 0
                if not self.memory.accepts(accepted):
                    return cmqc.MQRC_STORAGE_NOT_AVAILABLE
        if persistent and self.recovery_log.reserve.full:
            return cmqc.MQRC_RESOURCE_PROBLEM
        return cmqc.MQRC_NONE

    def put(
        self,
        unit: Unit,
        destination: ResolvedDestination,
        message: Message,
        *,
        application: str | None = "",
        replacing: bool = False,
    ) -> StoredMessage:
        """Put a message with a complete MQMD to a queue in a unit of work. Raises MQError.

        `replacing` means that it replaces a removed message, so it needs no additional memory.
        """
        queue = destination.queue
        assert queue is not None
        md = message.md
        reason = queue.refusal(message.length) if destination.put_enabled else cmqc.MQRC_PUT_INHIBITED
        if reason:
            raise MQError(reason, f"put to queue {queue.name}")
        persistent = md.Persistence == cmqc.MQPER_PERSISTENT or (
            md.Persistence == cmqc.MQPER_PERSISTENCE_AS_Q_DEF and destination.persistent
        )
        # Without its state, a mapping cannot process the messages that it has got.
        if queue.name != MAPPING_STATE_QUEUE:
            reason = self.shortage(0 if replacing else message.length + MESSAGE_OVERHEAD, persistent)
            if reason:
                problem = "the disk is full" if reason == cmqc.MQRC_RESOURCE_PROBLEM else self.memory.problem
                raise MQError(reason, f"put to queue {queue.name}: {problem}")
        now = time.time()
        stored = StoredMessage(
            queue=queue,
            msg_number=self.next_number(),
            message=message,
            persistent=persistent,
            priority=min(md.Priority, MAX_PRIORITY) if md.Priority >= 0 else destination.priority,
            put_time=now,
            client_id=destination.client_id,
            remote_queue=destination.remote_queue,
            msg_id=md.MsgId if md.MsgId != cmqc.MQMI_NONE else None,
            expires_at=now + md.Expiry / 10 if md.Expiry > 0 else 0.0,
            durable=persistent and not queue.temporary,
            put_application=application,
        )
        if destination.client_id and is_for_subscription(destination.remote_queue):
            _read_delivery(stored)
        queue.expect()
        unit.puts.append(stored)
        return stored

    def undeliverable(
        self, queue: Queue, message: AnyMessage, *, persistent: bool = False, priority: int = 0, **fields: Any
    ) -> StoredMessage:
        """Return a message that its queue has rejected, for `dead_letter`."""
        fields.setdefault("put_time", time.time())
        return StoredMessage(
            queue=queue,
            msg_number=self.next_number(),
            message=message,
            persistent=persistent,
            priority=priority,
            **fields,
        )

    def put_moved(self, unit: Unit, stored: StoredMessage, queue: Queue) -> None:
        """Put a message that was got in the same unit of work to another queue, unchanged. Raises MQError."""
        if reason := queue.refusal(stored.message.length):
            raise MQError(reason, f"put to queue {queue.name}")
        if stored.durable and not queue.temporary and self.recovery_log.reserve.full:
            raise MQError(cmqc.MQRC_RESOURCE_PROBLEM, f"put to queue {queue.name}: the disk is full")
        moved = msgspec.structs.replace(
            stored,
            queue=queue,
            msg_number=self.next_number(),
            msg_id=stored.msg_id or self.appearance.generated(stored.msg_number),
            durable=stored.persistent and not queue.temporary,
            row=None,
        )
        queue.expect()
        unit.puts.append(moved)

    def publish(
        self,
        unit: Unit,
        route: Route,
        message: AnyMessage,
        now: float,
        *,
        retain: bool = False,
        clear_retained: bool = False,
        application: str | None = "",
    ) -> int:
        """Publish a message in a unit of work. Return MQRC_NONE, or the reason code if it is rejected.

        MQRC_NO_SUBS_MATCHED is not returned. If a destination rejects its copy, only that copy is lost or dead-lettered,
        unless the topic's PMSGDLV or NPMSGDLV requires all deliveries. Beyond the limits of a mapping's backlog, a persistent
        publication is rejected, and a non-persistent one does not reach the mapping. If this raises, the unit of work is
        unchanged.
        """
        topics = self.objects.topics
        if route.reviewed != topics.full_version:
            route.review(topics.full, topics.full_version)
        if route.refusal:
            return route.refusal
        md, length = message.md, message.length
        persistent = md.Persistence == 1 or (md.Persistence != 0 and route.default_persistent)
        accepted = self._accepted + length + route.memory
        if accepted < COUNTED_BYTES and not (self.memory.above or self.recovery_log.reserve.full):
            self._accepted = accepted
        else:
            # A publication that clears a retained one frees memory.
            size = 0 if clear_retained and route.topic in self.retained else length + route.memory
            if reason := self.shortage(size, persistent or retain):
                return reason
        priority = md.Priority if md.Priority >= 0 else route.priority
        expires_at = now + md.Expiry / 10 if md.Expiry > 0 else 0.0
        marked, topic, puts = retain or clear_retained, route.topic, unit.puts
        first, reason = len(puts), cmqc.MQRC_NONE
        try:
            # Inline, because a call for each copy makes this loop twice as slow. Rare cases are elsewhere.
            for subscription in route.subscriptions:
                queue = subscription.queue
                if queue.depth >= queue.max_depth or length > queue.max_length or not queue.put_enabled:
                    if reason := undelivered(self, unit, route, subscription, message, persistent, now):
                        break
                    continue
                backlog = queue.backlog
                if backlog is not None and backlog.is_large:
                    publisher = publisher_of(message) or application or ""
                    if not backlog.accepts(publisher, message.size):
                        if persistent:
                            reason = cmqc.MQRC_Q_SPACE_NOT_AVAILABLE
                            break
                        continue
                number = self._next
                self._next = number + 1 if (number + 1) & 0xFFFF else number + 2
                queue.depth += 1  # `Queue.expect` would make the loop 13 % slower
                # Keywords make a delivery 40 % slower.
                stored = StoredMessage(
                    queue, number, message, persistent, priority, now, subscription.client_id, subscription.remote_queue,
                    topic, subscription.user_data, marked and subscription.retain_as_published, subscription.correl_id, None,
                    expires_at, persistent and not subscription.ephemeral, None, 0, application,
                )  # fmt: skip
                puts.append(stored)
            if not reason and (route.selective or marked):
                publication = StoredMessage(
                    self.objects.queues[RETAINED_QUEUE], 0, message, persistent, priority, now, topic=topic,
                    expires_at=expires_at, durable=persistent, put_application=application,
                )  # fmt: skip
                reason = self._put_selected(unit, route, publication, marked)
                if not reason and marked:
                    self._keep(unit, publication, clear=clear_retained)
        except BaseException:
            unit.withdraw(first)
            raise
        if reason:
            unit.withdraw(first)
        return reason

    def _put_selected(self, unit: Unit, route: Route, publication: StoredMessage, marked: bool) -> int:
        """Put copies for subscriptions that filter or change publications. Return as `publish`."""
        for subscription in route.selective:
            stored = delivery(self.next_number(), subscription, publication)
            if stored is None:
                continue
            stored.retained = marked and subscription.retain_as_published
            message, queue = publication.message, stored.queue
            if not queue.refusal(message.length):
                queue.expect()
                unit.puts.append(stored)
            elif reason := undelivered(
                self, unit, route, subscription, message, publication.persistent, publication.put_time
            ):
                return reason
        return cmqc.MQRC_NONE

    def _keep(self, unit: Unit, publication: StoredMessage, *, clear: bool) -> None:
        """Retain a publication, or clear the retained publication of its topic."""
        topic = publication.topic
        assert topic is not None
        if clear:
            unit.changes.latest.append((self.retained, topic, None))
            return
        publication.msg_number = self.next_number()
        publication.retained = True
        publication.queue.expect()
        unit.puts.append(publication)
        unit.changes.latest.append((self.retained, topic, publication))

    def put_retained(
        self,
        unit: Unit,
        subscription: Subscription,
        topics: Iterator[str | None] | None = None,
        visits: float = math.inf,
        refused: Callable[[StoredMessage, int], object] = lambda stored, reason: None,
    ) -> float:
        """Put the retained publications that match a subscription to its destination. Call `refused` for rejected ones.

        `topics` is the rest of `RetainedPublications.named_by`. Return how many of the `visits` are left. 0 means that there
        may be more publications. Each put counts as `PUT_VISITS`.
        """
        for topic in self.retained.named_by(subscription) if topics is None else topics:
            visits -= 1 if topic is None else PUT_VISITS
            publication = None if topic is None else self.retained.get(topic)
            if (
                publication is not None
                and not publication.expired
                and (stored := delivery(self.next_number(), subscription, publication))
            ):
                stored.retained = True
                if reason := stored.queue.refusal(publication.message.length):
                    refused(stored, reason)
                else:
                    stored.queue.expect()
                    unit.puts.append(stored)
            if visits <= 0:
                return 0
        return visits

    def discard(self, stored: StoredMessage) -> None:
        """Remove an expired message."""
        stored.queue.take(stored)
        unit = Unit()
        unit.gets.append(stored)
        if stored.message.md.Report:
            report(self, unit, stored, cmqc.MQFB_EXPIRATION)
        if self.retained.get(stored.topic or "") is stored:
            del self.retained[stored.topic or ""]
        self.recovery_log.submit(unit)

    # Subscriptions -------------------------------------------------------------------------------------------------

    def add_subscription(self, unit: Unit, subscription: Subscription, *, at_once: bool = False) -> None:
        """Add a new or altered subscription, and store it if it is durable. Raises MQError.

        It takes effect when the unit of work ends. With `at_once`, it takes effect immediately, so the next publications of
        its client match it. Units of work end in order, so those publications are committed after it.
        """
        if subscription.selector and subscription.selection is None:
            subscription.selection = selection_of(self.appearance, subscription.selector)
        subscription.as_subscriber = self.objects.topics.copies_as_subscriber
        before = self.objects.topics.subscriptions.get(subscription.name)
        if subscription.durable:
            unit.define("SUB", subscription.name, subscription.row)
        elif before is not None and before.durable:
            unit.define("SUB", subscription.name, None)
        if not at_once:
            unit.changes.effects.append(lambda: self.objects.topics.add(subscription))
            return
        self.objects.topics.add(subscription)
        unit.changes.undone.append(lambda: self.objects.topics.replace(subscription.name, before))

    def remove_subscription(self, unit: Unit, name: str) -> Subscription | None:
        """Remove a subscription immediately and return it, or return None if it does not exist."""
        subscription = self.objects.topics.remove(name)
        if subscription is None:
            return None
        unit.changes.undone.append(partial(self.objects.topics.add, subscription))
        if subscription.durable:
            unit.define("SUB", name, None)
        if subscription.managed:
            queue = subscription.queue
            for stored in list(queue.messages()):
                queue.take(stored)
                unit.gets.append(stored)
            if not queue.temporary:
                unit.define("QLOCAL", queue.name, None)
            unit.changes.effects.append(lambda: self._forget(queue))
        return subscription

    def _forget(self, queue: Queue) -> None:
        self.objects.queues.pop(queue.name, None)
        if queue.backlog is not None:
            queue.backlog.end()
            queue.backlog = None

    def managed_queue(self, unit: Unit, *, durable: bool) -> Queue:
        """Create the queue of a managed subscription."""
        kind = "DURABLE" if durable else "NDURABLE"
        name = f"SYSTEM.MANAGED.{kind}.{self.next_number():016X}"
        queue = Queue(name, defaults("QLOCAL") | {"MAXDEPTH": SYSTEM_MAX_DEPTH, "MAXMSGL": 104_857_600})
        queue.temporary = not durable
        self.objects.queues[name] = queue
        unit.changes.undone.append(partial(self._forget, queue))
        if durable:
            unit.define("QLOCAL", name, queue.attributes)
        return queue


#: The memory watermark is updated once per this number of message bytes.
COUNTED_BYTES: Final = 256 * 1024


def _read_delivery(stored: StoredMessage) -> None:
    """Restore the publication attributes of a message for a subscription from its headers, for example after a retry."""
    assert isinstance(stored.message, Message)
    try:
        headers = Headers(stored.message, discard_others=True)
    except Unmappable:
        return  # the session parses the headers again and dead-letters the message
    stored.topic, stored.user_data, stored.retained = headers.topic or None, headers.user_data, headers.retained
