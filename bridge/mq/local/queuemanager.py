"""The embedded queue manager: its objects, its name resolution, and how messages get onto queues.

It lives in one process and is reached by verbs (`connection`), by whole units of work (`agent`) and by MQSC commands
(`commands`); all of them work on what is here, under one lock. Semantics follow IBM MQ's documentation; what it does not
do is refused with IBM's reason code, not done differently.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec

from bridge.mapping.message import AnyMessage, Message
from bridge.mq.errors import MQError
from bridge.mq.local.attributes import BASE_TOPIC, Value, defaults
from bridge.mq.local.journal import Journal, Unit, undo
from bridge.mq.local.queue import Queue
from bridge.mq.local.store import Delivery, Put, Store
from bridge.mq.local.stored import Appearance, StoredMessage
from bridge.mq.local.topics import Route, Subscription, TopicTree
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, encode_mqdlh

log = logging.getLogger(__name__)

RETAINED_QUEUE = "SYSTEM.RETAINED.PUB.QUEUE"
STATE_QUEUE = "SYSTEM.MQTT.PERSISTENT.STATE"
#: Depth of queues that the queue manager makes for itself.
SYSTEM_MAX_DEPTH = 999_999_999


class DataDirectoryInUse(Exception):
    """Another process runs a queue manager on the same data directory."""


class Destination(msgspec.Struct, gc=False):
    """Where a name leads: a queue, behind an MQXQH when it is on the way elsewhere, or a topic."""

    queue: Queue | None
    remote_queue: str = ""
    client_id: str = ""
    topic: str | None = None
    #: DEFPRTY and DEFPSIST of the object that was opened
    priority: int = 0
    persistent: bool = False
    put_enabled: bool = True
    name: str = ""


class QueueManager:
    """A queue manager with its data in one directory.

    Raises DataDirectoryInUse when another process has it, StoreError when its database cannot be used.
    """

    def __init__(self, name: str, data_directory: Path, *, max_message_length: int = 4_194_304) -> None:
        self.name = name
        self.data_directory = data_directory
        data_directory.mkdir(parents=True, exist_ok=True)
        self._held = _hold(data_directory)
        self.lock = threading.RLock()
        self.appearance = Appearance(name)
        self.attributes: dict[str, Value] = defaults("QMGR") | {"MAXMSGL": max_message_length}
        #: what ALTER QMGR has set, as kept on disk; it wins over the defaults and over `max_message_length`
        self.altered: dict[str, Value] = {}
        self.queues: dict[str, Queue] = {}
        self.aliases: dict[str, dict[str, Value]] = {}
        self.remotes: dict[str, dict[str, Value]] = {}
        self.topics = TopicTree()
        #: retained publications in force, by topic string
        self.retained: dict[str, StoredMessage] = {}
        #: records of MQTT sessions, by client identifier
        self.states: dict[str, StoredMessage] = {}
        store = Store(data_directory / "queuemanager.db")
        self._starts = store.starts
        #: next number for a message: the start count makes it unique over restarts
        self._next = (store.starts << 40) + 1
        self.journal = Journal(store, self.lock)
        self.journal.queues = self.queues.values
        #: callables that run when the queue manager ends
        self.on_close: list[Callable[[], None]] = []
        self._load(store)

    def _load(self, store: Store) -> None:
        subscriptions = []
        for kind, name, attributes in store.objects():
            if kind == "SUB":
                subscriptions.append((name, attributes))
            else:
                self._install(kind, name, attributes)
        for name, topic in (("SYSTEM.BASE.TOPIC", ""),):
            if name not in self.topics.objects:
                self.topics.objects[name] = defaults("TOPIC") | BASE_TOPIC | {"TOPICSTR": topic}
        if RETAINED_QUEUE not in self.queues:
            self.queues[RETAINED_QUEUE] = Queue(
                RETAINED_QUEUE, defaults("QLOCAL") | {"MAXDEPTH": SYSTEM_MAX_DEPTH, "MAXMSGL": 104_857_600}
            )
        for name, attributes in subscriptions:
            try:
                self.topics.add(self.make_subscription(name, attributes))
            except MQError as error:
                log.error("subscription %s is not restored: %s", name, error)
        for stored in self.journal.replay(self._stored_from).values():
            stored.queue.append(stored)
            stored.queue.depth += 1
            if stored.queue.name == RETAINED_QUEUE and stored.topic is not None:
                self.retained[stored.topic] = stored
            elif stored.queue.name == STATE_QUEUE:
                self.states[stored.client_id] = stored

    def _install(self, kind: str, name: str, attributes: dict[str, Any]) -> None:
        if kind == "QMGR":
            self.altered.update(attributes)
            self.attributes.update(attributes)
            return
        attributes = defaults(kind) | attributes
        if kind == "QLOCAL":
            self.queues[name] = Queue(name, attributes)
        elif kind == "QALIAS":
            self.aliases[name] = attributes
        elif kind == "QREMOTE":
            self.remotes[name] = attributes
        elif kind == "TOPIC":
            self.topics.objects[name] = attributes

    def _stored_from(self, put: Put, delivery: Delivery) -> StoredMessage | None:
        queue = self.queues.get(delivery.queue)
        if queue is None:
            log.error("a message of queue %s is dropped: the queue is not defined any more", delivery.queue)
            return None
        return StoredMessage(
            queue, delivery.msg_number, put.message, True, put.priority, put.put_time, delivery.client_id,
            delivery.remote_queue, put.topic, delivery.user_data, delivery.retained, delivery.correl_id, put.msg_id,
            put.expires_at, True, put_application=put.put_application,
        )  # fmt: skip

    def close(self) -> None:
        """End in order: every commit asked for is done, then the data directory is free. Idempotent."""
        if self._held.closed:
            return
        for call in self.on_close:
            call()
        self.journal.close()
        self._held.close()

    def next_number(self) -> int:
        """A number for a message, never used before by this queue manager.

        None ends in sixteen zero bits: the number's last two bytes serve as MQTT message id, which is never 0.
        """
        number = self._next
        self._next = number + 1 if (number + 1) & 0xFFFF else number + 2
        return number

    # Names -----------------------------------------------------------------------------------------------------------

    def resolve(self, name: str, manager: str = "") -> Destination:
        """Queue name resolution (IBM MQ documentation, "Queue name resolution"). Raises MQError."""
        if manager and manager != self.name:
            return self._resolve_remote(name, manager)
        queue = self.queues.get(name)
        if queue is not None:
            attributes = queue.attributes
            return Destination(
                queue, priority=int(attributes["DEFPRTY"]), persistent=attributes["DEFPSIST"] == "YES", name=name
            )
        alias = self.aliases.get(name)
        if alias is not None:
            return self._resolve_alias(name, alias)
        remote = self.remotes.get(name)
        if remote is not None:
            if not remote["RNAME"] and remote["RQMNAME"]:
                raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"{name} is a queue manager alias, not a queue")
            destination = self._by_transmission(str(remote["RNAME"]), str(remote["RQMNAME"]), str(remote["XMITQ"]))
            destination.priority = int(remote["DEFPRTY"])
            destination.persistent = remote["DEFPSIST"] == "YES"
            destination.put_enabled = remote["PUT"] == "ENABLED"
            destination.name = name
            return destination
        raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no queue {name!r} at queue manager {self.name}")

    def _resolve_alias(self, name: str, alias: dict[str, Value]) -> Destination:
        target = str(alias["TARGET"])
        own = {
            "priority": int(alias["DEFPRTY"]),
            "persistent": alias["DEFPSIST"] == "YES",
            "put_enabled": alias["PUT"] == "ENABLED",
        }
        if alias["TARGTYPE"] == "TOPIC":
            attributes = self.topics.objects.get(target)
            if attributes is None:
                raise MQError(cmqc.MQRC_UNKNOWN_ALIAS_BASE_Q, f"alias {name} names topic object {target!r}")
            return Destination(None, topic=str(attributes["TOPICSTR"]), name=name, **own)
        if target in self.aliases:
            raise MQError(cmqc.MQRC_ALIAS_BASE_Q_TYPE_ERROR, f"alias {name} names another alias, {target}")
        if target not in self.queues and target not in self.remotes:
            raise MQError(cmqc.MQRC_UNKNOWN_ALIAS_BASE_Q, f"alias {name} names queue {target!r}")
        base = self.resolve(target)
        return msgspec.structs.replace(base, name=name, **own)

    def _resolve_remote(self, name: str, manager: str) -> Destination:
        alias = self.remotes.get(manager)
        if alias is not None and not alias["RNAME"]:
            target = str(alias["RQMNAME"])
            if target == self.name:
                return self.resolve(name)
            return self._by_transmission(name, target, str(alias["XMITQ"]))
        return self._by_transmission(name, manager, "")

    def _by_transmission(self, name: str, manager: str, transmission_queue: str) -> Destination:
        if not transmission_queue:
            if manager == self.name:
                return self.resolve(name)
            named = self.queues.get(manager)
            transmission_queue = manager if named is not None else str(self.attributes["DEFXMITQ"])
            if not transmission_queue:
                raise MQError(
                    cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR,
                    f"no way to queue manager {manager!r}: no transmission queue of that name, and no DEFXMITQ",
                )
            missing, wrong = (
                (cmqc.MQRC_UNKNOWN_DEF_XMIT_Q, cmqc.MQRC_DEF_XMIT_Q_USAGE_ERROR)
                if named is None
                else (cmqc.MQRC_UNKNOWN_XMIT_Q, cmqc.MQRC_XMIT_Q_USAGE_ERROR)
            )
        else:
            missing, wrong = cmqc.MQRC_UNKNOWN_XMIT_Q, cmqc.MQRC_XMIT_Q_USAGE_ERROR
        queue = self.queues.get(transmission_queue)
        if queue is None:
            raise MQError(missing, f"transmission queue {transmission_queue!r} is not defined")
        if not queue.is_transmission:
            raise MQError(wrong, f"queue {transmission_queue} has USAGE(NORMAL)")
        return Destination(queue, name, manager, name=name)

    def topic_string(self, object_name: str, object_string: str) -> str:
        """The full topic string of a topic object's name and a string (IBM MQ, "Combining topic strings")."""
        if not object_name:
            return object_string
        attributes = self.topics.objects.get(object_name)
        if attributes is None:
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no topic object {object_name!r}")
        base = str(attributes["TOPICSTR"])
        if not object_string:
            return base
        return f"{base}/{object_string}" if base else object_string

    # Messages --------------------------------------------------------------------------------------------------------

    def put(self, unit: Unit, destination: Destination, message: Message, *, application: str = "") -> StoredMessage:
        """Put a message to a queue in a unit of work; `message.md` is already complete. Raises MQError."""
        queue = destination.queue
        assert queue is not None
        md = message.md
        if md.Priority > 9 or md.Priority < cmqc.MQPRI_PRIORITY_AS_Q_DEF:
            raise MQError(cmqc.MQRC_PRIORITY_ERROR, f"priority {md.Priority}")
        reason = queue.refusal(message.length) if destination.put_enabled else cmqc.MQRC_PUT_INHIBITED
        if reason:
            raise MQError(reason, f"put to queue {queue.name}")
        persistent = md.Persistence == cmqc.MQPER_PERSISTENT or (
            md.Persistence == cmqc.MQPER_PERSISTENCE_AS_Q_DEF and destination.persistent
        )
        now = time.time()
        stored = StoredMessage(
            queue,
            self.next_number(),
            message,
            persistent,
            md.Priority if md.Priority >= 0 else destination.priority,
            now,
            destination.client_id,
            destination.remote_queue,
            msg_id=md.MsgId if md.MsgId != cmqc.MQMI_NONE else None,
            expires_at=now + md.Expiry / 10 if md.Expiry > 0 else 0.0,
            durable=persistent and not queue.temporary,
            put_application=application,
        )
        queue.depth += 1
        unit.puts.append(stored)
        return stored

    def publish(
        self,
        unit: Unit,
        route: Route,
        message: AnyMessage,
        now: float,
        *,
        retain: bool = False,
        clear_retained: bool = False,
        application: str = "",
    ) -> int:
        """Publish a message in a unit of work; returns MQRC_NONE or the reason for which it is refused.

        MQRC_NO_SUBS_MATCHED is no refusal and not reported. A destination that cannot take its copy costs only that copy,
        unless the topic's PMSGDLV or NPMSGDLV says otherwise; the copy then goes to the dead-letter queue.
        """
        if not route.publish_enabled:
            return cmqc.MQRC_PUT_INHIBITED
        md = message.md
        persistent = md.Persistence == 1 or (md.Persistence != 0 and route.default_persistent)
        priority = md.Priority if md.Priority >= 0 else route.priority
        length = message.length
        expires_at = now + md.Expiry / 10 if md.Expiry > 0 else 0.0
        puts = unit.puts
        first = len(puts)
        for subscription in route.subscriptions:
            queue = subscription.queue
            if queue.depth >= queue.max_depth or length > queue.max_length or not queue.put_enabled:
                reason = self._undelivered(unit, route, subscription, message, persistent, now)
                if reason:
                    for stored in puts[first:]:
                        stored.queue.depth -= 1
                    del puts[first:]
                    return reason
                continue
            number = self._next
            self._next = number + 1 if (number + 1) & 0xFFFF else number + 2
            queue.depth += 1
            puts.append(
                StoredMessage(
                    queue, number, message, persistent, priority, now, subscription.client_id,
                    subscription.remote_queue, route.topic, subscription.user_data, False, subscription.correl_id, None,
                    expires_at, persistent and not subscription.ephemeral, put_application=application,
                )  # fmt: skip
            )
        if clear_retained:
            unit.latest.append((self.retained, route.topic, None))
        elif retain:
            queue = self.queues[RETAINED_QUEUE]
            queue.depth += 1
            kept = StoredMessage(
                queue, self.next_number(), message, persistent, priority, now, topic=route.topic, retained=True,
                expires_at=expires_at, durable=persistent, put_application=application,
            )  # fmt: skip
            puts.append(kept)
            unit.latest.append((self.retained, route.topic, kept))
        return cmqc.MQRC_NONE

    def _undelivered(
        self, unit: Unit, route: Route, subscription: Subscription, message: AnyMessage, persistent: bool, now: float
    ) -> int:
        """A subscription's destination cannot take its copy: dead-letter it, drop it, or refuse the publication."""
        queue = subscription.queue
        reason = queue.refusal(message.length)
        if route.dead_letters:
            refused = StoredMessage(
                queue, self.next_number(), message, persistent, 0, now, subscription.client_id,
                subscription.remote_queue, route.topic, subscription.user_data,
            )  # fmt: skip
            destination = (subscription.client_id and subscription.remote_queue) or queue.name
            if self.dead_letter(unit, refused, reason, destination, subscription.client_id):
                return cmqc.MQRC_NONE
        policy = route.all_deliveries[persistent]
        if policy == "ALL" or (policy == "ALLDUR" and subscription.durable):
            log.warning(
                "publication to %s is refused: subscription %s cannot take it: %s (%d)",
                route.topic, subscription.name, cmqc.reason_name(reason), reason,
            )  # fmt: skip
            return cmqc.MQRC_PUBLICATION_FAILURE
        log.warning(
            "publication to %s is not delivered to subscription %s: %s (%d)",
            route.topic, subscription.name, cmqc.reason_name(reason), reason,
        )  # fmt: skip
        return cmqc.MQRC_NONE

    def dead_letter(self, unit: Unit, stored: StoredMessage, reason: int, queue_name: str, manager: str = "") -> bool:
        """Put a copy of a message, behind an MQDLH, to the queue that DEADQ names; False when that is not possible."""
        name = str(self.attributes["DEADQ"])
        queue = self.queues.get(name)
        if queue is None:
            log.error("a message for %s cannot be dead-lettered: DEADQ(%s) is no local queue", queue_name, name)
            return False
        client_id, stored.client_id = stored.client_id, ""
        md, data = self.appearance.seen(stored, properties=True)
        stored.client_id = client_id
        header = MQDLH(
            Reason=reason,
            DestQName=queue_name.encode()[:48],
            DestQMgrName=(manager or self.name).encode()[:48],
            Encoding=md.Encoding,
            CodedCharSetId=md.CodedCharSetId,
            Format=md.Format,
            PutApplType=md.PutApplType,
            PutApplName=md.PutApplName,
            PutDate=md.PutDate,
            PutTime=md.PutTime,
        )
        outer = msgspec.structs.replace(
            md, Format=cmqc.MQFMT_DEAD_LETTER_HEADER, Encoding=cmqc.MQENC_NATIVE, CodedCharSetId=1208
        )
        try:
            self.put(unit, self.resolve(name), Message(outer, encode_mqdlh(header) + data), application="mqbridge")
        except MQError as error:
            log.error("a message for %s cannot be dead-lettered: %s", queue_name, error)
            return False
        log.warning(
            "message for queue %s at %s goes to dead-letter queue %s: %s (%d)",
            queue_name, manager or self.name, name, cmqc.reason_name(reason), reason,
        )  # fmt: skip
        return True

    def put_retained(self, unit: Unit, subscription: Subscription) -> None:
        """Put the retained publications that a new subscription names to its destination."""
        for topic in self.topics.retained_matching(subscription.topic_filter, self.retained):  # type: ignore[arg-type]
            kept = self.retained[topic]
            queue = subscription.queue
            if kept.expired or queue.refusal(kept.message.length):
                continue
            queue.depth += 1
            unit.puts.append(
                StoredMessage(
                    queue, self.next_number(), kept.message, kept.persistent, kept.priority, kept.put_time,
                    subscription.client_id, subscription.remote_queue, topic, subscription.user_data, True,
                    subscription.correl_id, None, kept.expires_at, kept.persistent and not subscription.ephemeral,
                    put_application=kept.put_application,
                )  # fmt: skip
            )

    def discard(self, stored: StoredMessage) -> None:
        """Remove a message that has expired."""
        stored.queue.take(stored)
        unit = Unit()
        unit.gets.append(stored)
        if self.retained.get(stored.topic or "") is stored:
            del self.retained[stored.topic or ""]
        self.journal.submit(unit)

    def back_out(self, unit: Unit) -> None:
        """Undo a unit of work that was not submitted."""
        undo(unit)

    # Subscriptions and definitions -----------------------------------------------------------------------------------

    def make_subscription(self, name: str, attributes: dict[str, Any]) -> Subscription:
        """A subscription from its MQSC attributes (as stored, or as DEFINE SUB gives them). Raises MQError."""
        topic_filter = self.topic_string(str(attributes.get("TOPICOBJ") or ""), str(attributes.get("TOPICSTR") or ""))
        destination = self.resolve(str(attributes["DEST"]), str(attributes.get("DESTQMGR") or ""))
        if destination.queue is None:
            raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"destination {attributes['DEST']} is a topic")
        correl_id = str(attributes.get("DESTCORL") or "")
        return Subscription(
            name=name,
            topic_filter=topic_filter,
            queue=destination.queue,
            destination=str(attributes["DEST"]),
            destination_manager=str(attributes.get("DESTQMGR") or ""),
            remote_queue=destination.remote_queue,
            client_id=destination.client_id,
            user_data=attributes.get("USERDATA") or None,
            correl_id=bytes.fromhex(correl_id).ljust(24, b"\0") if correl_id else None,
            durable=True,
            level=int(attributes.get("SUBLEVEL", 1)),
            user=str(attributes.get("SUBUSER") or ""),
            topic_object=str(attributes.get("TOPICOBJ") or attributes.get("OBJECT") or ""),
            kind=str(attributes.get("SUBTYPE", "ADMIN")),
            managed=bool(attributes.get("MANAGED")),
            expires_at=float(attributes.get("EXPIRES", 0)),
        )

    def subscription_row(self, subscription: Subscription) -> tuple[str, str, str | None]:
        """A durable subscription as a row of the object table."""
        attributes: dict[str, Value | float | bool] = {
            "TOPICSTR": subscription.topic_filter,
            "OBJECT": subscription.topic_object,
            "DEST": subscription.destination,
            "DESTQMGR": subscription.destination_manager,
            "USERDATA": subscription.user_data or "",
            "DESTCORL": subscription.correl_id.hex().upper() if subscription.correl_id else "",
            "SUBLEVEL": subscription.level,
            "SUBUSER": subscription.user,
            "SUBTYPE": subscription.kind,
            "MANAGED": subscription.managed,
            "EXPIRES": subscription.expires_at,
        }
        return "SUB", subscription.name, msgspec.json.encode(attributes).decode()

    def add_subscription(self, unit: Unit, subscription: Subscription) -> None:
        """Let a subscription take part when the unit of work ends; on disk then when it is durable."""
        if subscription.durable:
            unit.definitions.append(self.subscription_row(subscription))
        unit.effects.append(lambda: self.topics.add(subscription))

    def remove_subscription(self, unit: Unit, name: str) -> Subscription | None:
        """End a subscription at once; None when there is none of that name."""
        subscription = self.topics.remove(name)
        if subscription is not None and subscription.durable:
            unit.definitions.append(("SUB", name, None))
        if subscription is not None and subscription.managed:
            queue = subscription.queue
            for stored in list(queue.messages()):
                queue.take(stored)
                unit.gets.append(stored)
            if not queue.temporary:
                unit.definitions.append(("QLOCAL", queue.name, None))
            unit.effects.append(lambda: self.queues.pop(queue.name, None) and None)
        return subscription

    def managed_queue(self, unit: Unit, *, durable: bool) -> Queue:
        """A queue for a managed subscription."""
        kind = "DURABLE" if durable else "NDURABLE"
        name = f"SYSTEM.MANAGED.{kind}.{self.next_number():016X}"
        queue = Queue(name, defaults("QLOCAL") | {"MAXDEPTH": SYSTEM_MAX_DEPTH, "MAXMSGL": 104_857_600})
        queue.temporary = not durable
        self.queues[name] = queue
        if durable:
            unit.definitions.append(("QLOCAL", name, msgspec.json.encode(queue.attributes).decode()))
        return queue


def _hold(data_directory: Path) -> IO[str]:
    """Take the lock of a data directory; it is free again when the file is closed or the process ends."""
    held = open(data_directory / "lock", "a+", encoding="ascii")  # noqa: SIM115
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held.seek(0)
        owner = held.read().strip() or "unknown"
        held.close()
        raise DataDirectoryInUse(
            f"{data_directory} is in use by another bridge (process {owner}); stop it or give another --data-dir"
        ) from error
    held.seek(0)
    held.truncate()
    held.write(f"{os.getpid()}\n")
    held.flush()
    with contextlib.suppress(OSError):
        os.chmod(data_directory / "lock", 0o640)
    return held
