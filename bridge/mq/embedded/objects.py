"""The objects of a queue manager, their restoration from the database, and the resolution of queue names."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from bridge.config.authentication import ChannelAuthenticationConfig
from bridge.mq.embedded.appearance import Appearance
from bridge.mq.embedded.attributes import (
    ATTRIBUTES,
    BASE_TOPIC,
    MODEL_QUEUES,
    MQ_OBJECT_NAME_LENGTH,
    NAMELISTS,
    SERVER_CHANNELS,
    Value,
    defaults,
    effective,
)
from bridge.mq.embedded.authority import KIND as AUTHORITY_RECORD
from bridge.mq.embedded.authority import AuthorityRecords
from bridge.mq.embedded.channels import AUTHINFO, ConnectionAuthentication, restore_channel
from bridge.mq.embedded.queue import Queue
from bridge.mq.embedded.selector import selection_of
from bridge.mq.embedded.storage.store import Store
from bridge.mq.embedded.subscription import STORED, Subscription
from bridge.mq.embedded.topics import TopicTree, shared_text
from bridge.mq.mqi import MQError
from bridge.mq.telemetry_channels import KIND as TELEMETRY_CHANNEL
from bridge.mq.telemetry_channels import TelemetryChannelRegister
from bridge.security.channel_authentication import KIND as CHANNEL_AUTHENTICATION_RECORD
from bridge.security.channel_authentication import ChannelAuthenticationRegister
from bridge.security.privileged import PrivilegedUsers
from bridge.wire import cmqc

log = logging.getLogger(__name__)

RETAINED_QUEUE: Final = "SYSTEM.RETAINED.PUB.QUEUE"
#: MAXDEPTH of system queues.
SYSTEM_MAX_DEPTH: Final = 999_999_999
_RETAINED_QUEUE: dict[str, Value] = {"MAXDEPTH": SYSTEM_MAX_DEPTH, "MAXMSGL": 104_857_600}
#: Attributes of subscriptions that often have equal values, which are shared to save memory.
_REPEATED: Final = ("DEST", "DESTQMGR", "USERDATA", "SUBUSER", "SUBTYPE")


class ResolvedDestination(msgspec.Struct):
    """The result of name resolution: a topic, or a queue, which may be a transmission queue for another destination."""

    queue: Queue | None
    remote_queue: str = ""
    client_id: str = ""
    topic: str | None = None
    #: DEFPRTY and DEFPSIST of the object that was opened
    priority: int = 0
    persistent: bool = False
    put_enabled: bool = True
    get_enabled: bool = True
    name: str = ""


class Objects:
    """The objects of a queue manager by name: everything that the object table of its database stores."""

    def __init__(self, name: str) -> None:
        #: name of the queue manager
        self.name = name
        self.attributes: dict[str, Value] = defaults("QMGR")
        self.queues: dict[str, Queue] = {}
        self.aliases: dict[str, dict[str, Value]] = {}
        self.remotes: dict[str, dict[str, Value]] = {}
        #: model queues
        self.models: dict[str, dict[str, Value]] = {}
        self.namelists: dict[str, dict[str, Value]] = {}
        self.server_channels: dict[str, dict[str, Value]] = {}
        self.topics = TopicTree()
        self.authority_records = AuthorityRecords()
        self.telemetry_channels = TelemetryChannelRegister()
        privileged = PrivilegedUsers()
        self.channel_authentication = ChannelAuthenticationRegister(privileged.include)
        self.connection_authentication = ConnectionAuthentication(privileged.include)

    def restore(self, store: Store, appearance: Appearance) -> dict[str, Value]:
        """Restore all objects and durable subscriptions. Return the attributes set by ALTER QMGR.

        A record or subscription that cannot be restored is logged and skipped.
        """
        altered: dict[str, Value] = {}
        for kind, name, attributes in store.objects():
            if kind in ATTRIBUTES:
                attributes = effective(kind, attributes)
            if kind == "QMGR":
                altered.update(attributes)
                self.attributes.update(attributes)
            else:
                self._restore(kind, name, attributes)
        self._make_system_objects()
        for name, attributes in store.subscriptions():
            attributes |= {keyword: shared_text(attributes[keyword]) for keyword in _REPEATED if keyword in attributes}
            try:
                subscription = self.make_subscription(name, attributes, stored=True)
                subscription.selection = selection_of(appearance, subscription.selector)
                self.topics.add(subscription)
            except MQError as error:
                log.error("MQB3104E restoring subscription %s failed: %s", name, error)
        return altered

    def _restore(self, kind: str, name: str, attributes: dict[str, Any]) -> None:
        if kind == AUTHORITY_RECORD:
            self.authority_records.restore(attributes)
        elif kind == AUTHINFO:
            self.connection_authentication.restore(attributes)
        elif kind == CHANNEL_AUTHENTICATION_RECORD:
            register = self.channel_authentication
            try:
                is_removed = attributes.pop("removed", False)
                record = ChannelAuthenticationConfig.model_validate(attributes)
                register.forget(record.key) if is_removed else register.set(record)
            except ValidationError as error:
                why = "; ".join(detail["msg"] for detail in error.errors())
                log.error("MQB3107E restoring channel authentication record %s failed, set it again: %s", name, why)
        elif kind == TELEMETRY_CHANNEL:
            restore_channel(self.telemetry_channels, name, attributes)
        elif kind == "QLOCAL":
            self.queues[name] = Queue(name, defaults(kind) | attributes)
        else:
            self.of_kind(kind)[name] = defaults(kind) | attributes

    def _make_system_objects(self) -> None:
        self.topics.objects.setdefault("SYSTEM.BASE.TOPIC", defaults("TOPIC") | BASE_TOPIC | {"TOPICSTR": ""})
        if RETAINED_QUEUE not in self.queues:
            self.queues[RETAINED_QUEUE] = Queue(RETAINED_QUEUE, defaults("QLOCAL") | _RETAINED_QUEUE)
        for name, own in MODEL_QUEUES.items():
            self.models.setdefault(name, defaults("QMODEL") | own)
        for name in SERVER_CHANNELS:
            self.server_channels.setdefault(name, defaults("SVRCONN"))
        for name, own in NAMELISTS.items():
            self.namelists.setdefault(name, defaults("NAMELIST") | own)

    def of_kind(self, kind: str) -> dict[str, dict[str, Value]]:
        """Return the attributes of all objects of a kind, by name. For local queues, the dictionary is a copy."""
        if kind == "QLOCAL":
            return {name: queue.attributes for name, queue in self.queues.items()}
        kinds = {
            "NAMELIST": self.namelists,
            "QALIAS": self.aliases,
            "QMODEL": self.models,
            "QREMOTE": self.remotes,
            "SVRCONN": self.server_channels,
            "TOPIC": self.topics.objects,
        }
        return kinds[kind]

    def resolve(self, name: str, manager: str = "") -> ResolvedDestination:
        """Resolve a queue name (IBM MQ documentation, "Queue name resolution"). Raises MQError."""
        if manager and manager != self.name:
            return self._resolve_remote(name, manager)
        queue = self.queues.get(name)
        if queue is not None:
            attributes = queue.attributes
            return ResolvedDestination(
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
            return self._opened_as(destination, name, remote)
        raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no queue {name!r} at queue manager {self.name}")

    def _resolve_alias(self, name: str, alias: dict[str, Value]) -> ResolvedDestination:
        target = str(alias["TARGET"])
        if alias["TARGTYPE"] == "TOPIC":
            attributes = self.topics.objects.get(target)
            if attributes is None:
                raise MQError(
                    cmqc.MQRC_UNKNOWN_ALIAS_BASE_Q,
                    f"topic object {target!r}, the target of alias {name}, does not exist",
                )
            destination = ResolvedDestination(None, topic=str(attributes["TOPICSTR"]))
            return self._opened_as(destination, name, alias)
        if target in self.aliases:
            raise MQError(cmqc.MQRC_ALIAS_BASE_Q_TYPE_ERROR, f"the target of alias {name} is another alias, {target}")
        if target not in self.queues and target not in self.remotes:
            raise MQError(
                cmqc.MQRC_UNKNOWN_ALIAS_BASE_Q, f"queue {target!r}, the target of alias {name}, does not exist"
            )
        return self._opened_as(self.resolve(target), name, alias)

    @staticmethod
    def _opened_as(destination: ResolvedDestination, name: str, attributes: dict[str, Value]) -> ResolvedDestination:
        """Return a destination with the name, DEFPRTY, DEFPSIST, PUT and GET of the opened object."""
        destination.name = name
        destination.priority = int(attributes["DEFPRTY"])
        destination.persistent = attributes["DEFPSIST"] == "YES"
        destination.put_enabled = destination.put_enabled and attributes["PUT"] == "ENABLED"
        destination.get_enabled = attributes.get("GET", "ENABLED") == "ENABLED"
        return destination

    def _resolve_remote(self, name: str, manager: str) -> ResolvedDestination:
        alias = self.remotes.get(manager)
        if alias is not None and not alias["RNAME"]:
            target = str(alias["RQMNAME"])
            if target == self.name:
                return self.resolve(name)
            return self._by_transmission(name, target, str(alias["XMITQ"]))
        return self._by_transmission(name, manager, "")

    def _by_transmission(self, name: str, manager: str, transmission_queue: str) -> ResolvedDestination:
        if not transmission_queue:
            if manager == self.name:
                return self.resolve(name)
            own_queue = self.queues.get(manager)
            transmission_queue = manager if own_queue is not None else str(self.attributes["DEFXMITQ"])
            if not transmission_queue:
                raise MQError(
                    cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR,
                    f"no route to queue manager {manager!r}: no transmission queue with that name, and no DEFXMITQ",
                )
            missing, wrong = (
                (cmqc.MQRC_UNKNOWN_DEF_XMIT_Q, cmqc.MQRC_DEF_XMIT_Q_USAGE_ERROR)
                if own_queue is None
                else (cmqc.MQRC_UNKNOWN_XMIT_Q, cmqc.MQRC_XMIT_Q_USAGE_ERROR)
            )
        else:
            missing, wrong = cmqc.MQRC_UNKNOWN_XMIT_Q, cmqc.MQRC_XMIT_Q_USAGE_ERROR
        queue = self.queues.get(transmission_queue)
        if queue is None:
            raise MQError(missing, f"transmission queue {transmission_queue!r} is not defined")
        if not queue.is_transmission:
            raise MQError(wrong, f"queue {transmission_queue} has USAGE(NORMAL)")
        # Longer names do not fit into the MQXQH, and a message without an MQXQH would block the reader of the queue.
        if len(name.encode()) > MQ_OBJECT_NAME_LENGTH:
            raise MQError(cmqc.MQRC_OBJECT_NAME_ERROR, f"{name!r} has more than {MQ_OBJECT_NAME_LENGTH} bytes")
        if len(manager.encode()) > MQ_OBJECT_NAME_LENGTH:
            raise MQError(cmqc.MQRC_OBJECT_Q_MGR_NAME_ERROR, f"{manager!r} has more than {MQ_OBJECT_NAME_LENGTH} bytes")
        attributes = queue.attributes
        return ResolvedDestination(
            queue,
            name,
            manager,
            priority=int(attributes["DEFPRTY"]),
            persistent=attributes["DEFPSIST"] == "YES",
            put_enabled=attributes["PUT"] == "ENABLED",
            name=name,
        )

    def topic_string(self, object_name: str, object_string: str) -> str:
        """Return the complete topic string of a topic object and a string (IBM MQ, "Combining topic strings")."""
        if not object_name:
            return object_string
        attributes = self.topics.objects.get(object_name)
        if attributes is None:
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no topic object {object_name!r}")
        base = str(attributes["TOPICSTR"])
        if not object_string:
            return base
        return f"{base}/{object_string}" if base else object_string

    def make_subscription(self, name: str, attributes: dict[str, Any], *, stored: bool = False) -> Subscription:
        """Create a subscription from its MQSC attributes.

        Raises MQError. The destination of a `stored` subscription may be missing, because the queue may have been deleted.
        """
        topic_filter = self.topic_string(str(attributes.get("TOPICOBJ") or ""), str(attributes.get("TOPICSTR") or ""))
        try:
            destination = self.resolve(str(attributes["DEST"]), str(attributes.get("DESTQMGR") or ""))
        except MQError as error:
            if not stored:
                raise
            log.error("MQB3103E the destination of subscription %s cannot be resolved: %s", name, error)
            destination = ResolvedDestination(Queue(str(attributes["DEST"]), defaults("QLOCAL")))
            assert destination.queue is not None
            destination.queue.end()
        if destination.queue is None:
            raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"destination {attributes['DEST']} is a topic")
        correl_id = str(attributes.get("DESTCORL") or "")
        stored_fields: dict[str, Any] = {"topic_object": "", "kind": "ADMIN"}
        stored_fields |= {field: attributes[keyword] for keyword, field in STORED.items() if keyword in attributes}
        stored_fields["topic_object"] = str(attributes.get("TOPICOBJ") or stored_fields["topic_object"])
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
            characters=attributes.get("WSCHEMA") == "CHAR",
            identity=_identity(attributes.get("IDENTITY")),
            **stored_fields,
        )


def _identity(text: object) -> tuple[bytes, str] | None:
    """Decode PubAccountingToken (64 hexadecimal digits) and PubApplIdentityData of a row."""
    return (bytes.fromhex(text[:64]), text[64:]) if isinstance(text, str) and text else None
