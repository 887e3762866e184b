"""Restoration of objects and messages from the data directory, and creation of system objects."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from bridge.config.authentication import ChannelAuthenticationConfig
from bridge.config.queue_manager import COMMAND_QUEUE
from bridge.mq.embedded.appearance import Appearance
from bridge.mq.embedded.attributes import BASE_TOPIC, MODEL_QUEUES, NAMELISTS, SERVER_CHANNELS, Value, defaults
from bridge.mq.embedded.authority import KIND as AUTHORITY_RECORD
from bridge.mq.embedded.channels import AUTHINFO as CONNECTION_AUTHENTICATION
from bridge.mq.embedded.channels import restore_channel
from bridge.mq.embedded.objects import Objects
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.embedded.selector import selection_of
from bridge.mq.embedded.storage.store import Delivery, Lane, Put, Store
from bridge.mq.embedded.topics import shared_text
from bridge.mq.mqi import MQError
from bridge.mq.telemetry_channels import KIND as TELEMETRY_CHANNEL
from bridge.security.channel_authentication import KIND as CHANNEL_AUTHENTICATION_RECORD
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire.mq import MQMD

log = logging.getLogger(__name__)

RETAINED_QUEUE: Final = "SYSTEM.RETAINED.PUB.QUEUE"
#: MAXDEPTH of system queues.
SYSTEM_MAX_DEPTH = 999_999_999
_RETAINED_QUEUE: dict[str, Value] = {"MAXDEPTH": SYSTEM_MAX_DEPTH, "MAXMSGL": 104_857_600}
_COMMAND_QUEUE: dict[str, Value] = {"SHARE": "NO", "DESCR": "IBM MQ administration commands (PCF)"}


#: Attributes of subscriptions that often have equal values, which are shared to save memory.
_REPEATED: Final = ("DEST", "DESTQMGR", "USERDATA", "SUBUSER", "SUBTYPE")


def restore_objects(objects: Objects, appearance: Appearance, store: Store) -> dict[str, Value]:
    """Restore all objects and durable subscriptions. Return the attributes set by ALTER QMGR.

    A record or subscription that cannot be restored is logged and skipped.
    """
    altered: dict[str, Value] = {}
    for kind, name, attributes in store.objects():
        if kind == "QMGR":
            altered.update(attributes)
            objects.attributes.update(attributes)
        else:
            _restore(objects, kind, name, attributes)
    _make_system_objects(objects)
    for name, attributes in store.subscriptions():
        attributes |= {keyword: shared_text(attributes[keyword]) for keyword in _REPEATED if keyword in attributes}
        try:
            subscription = objects.make_subscription(name, attributes, stored=True)
            subscription.selection = selection_of(appearance, subscription.selector)
            objects.topics.add(subscription)
        except MQError as error:
            log.error("MQB3104E restoring subscription %s failed: %s", name, error)
    return altered


def _restore(objects: Objects, kind: str, name: str, attributes: dict[str, Any]) -> None:
    if kind == AUTHORITY_RECORD:
        objects.authority_records.restore(attributes)
    elif kind == CONNECTION_AUTHENTICATION:
        objects.connection_authentication.restore(attributes)
    elif kind == CHANNEL_AUTHENTICATION_RECORD:
        register = objects.channel_authentication
        try:
            removed = attributes.pop("removed", False)
            record = ChannelAuthenticationConfig.model_validate(attributes)
            register.forget(record.key) if removed else register.set(record)
        except ValidationError as error:
            why = "; ".join(one["msg"] for one in error.errors())
            log.error("MQB3107E restoring channel authentication record %s failed, set it again: %s", name, why)
    elif kind == TELEMETRY_CHANNEL:
        restore_channel(objects.telemetry_channels, name, attributes)
    elif kind == "QLOCAL":
        objects.queues[name] = Queue(name, defaults(kind) | attributes)
    else:
        objects.held(kind)[name] = defaults(kind) | attributes


def _make_system_objects(objects: Objects) -> None:
    topics, queues = objects.topics.objects, objects.queues
    topics.setdefault("SYSTEM.BASE.TOPIC", defaults("TOPIC") | BASE_TOPIC | {"TOPICSTR": ""})
    for name, own in ((RETAINED_QUEUE, _RETAINED_QUEUE), (COMMAND_QUEUE, _COMMAND_QUEUE)):
        if name not in queues:
            queues[name] = Queue(name, defaults("QLOCAL") | own)
    for name, own in MODEL_QUEUES.items():
        objects.models.setdefault(name, defaults("QMODEL") | own)
    for name in SERVER_CHANNELS:
        objects.server_channels.setdefault(name, defaults("SVRCONN"))
    for name, own in NAMELISTS.items():
        objects.namelists.setdefault(name, defaults("NAMELIST") | own)


class MessageRestorer:
    """Restores messages from the recovery log.

    Messages share equal parts, as they did before the restart. Otherwise a backlog of small messages would need a quarter
    more memory after a restart than before.
    """

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        #: the MQMD of each client's last publication, by client identifier
        self._descriptors: dict[str, MQMD] = {}
        self._message: Message | PublicationMessage | None = None

    def restored(self, put: Put, delivery: Delivery, lane: Lane) -> StoredMessage | None:
        """Return a message of the recovery log, or None if its queue no longer exists."""
        queue = self._queues.get(lane.queue)
        if queue is None:
            return None
        message, share = put.message, shared_text
        topic = put.topic
        if isinstance(message, PublicationMessage):
            if message is not self._message:
                self._message = message
                client_id = message.client_id = share(message.client_id)
                message.topic = share(message.topic)
                before = self._descriptors.get(client_id)
                if before == message.md:
                    message.md = before
                else:
                    self._descriptors[client_id] = message.md
            topic = message.topic
        return StoredMessage(
            queue=queue,
            msg_number=delivery.msg_number,
            message=message,
            persistent=True,
            priority=put.priority,
            put_time=put.put_time,
            client_id=share(lane.client_id),
            remote_queue=share(lane.remote_queue),
            topic=topic,
            user_data=None if lane.user_data is None else share(lane.user_data),
            retained=delivery.retained,
            correl_id=lane.correl_id,
            msg_id=put.msg_id,
            expires_at=put.expires_at,
            durable=True,
            put_application=None if put.put_application is None else share(put.put_application),
        )
