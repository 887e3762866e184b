"""Requests and answers between MQTT 5 clients and MQ applications: Response Topic and ReplyToQ."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

import msgspec

from bridge.mqtt.packets import PublishProperties
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

_OBJECT_NAME = re.compile(r"[A-Za-z0-9._/%]{1,48}")


def is_object_name(text: str) -> bool:
    """Return whether a queue or queue manager may have that name: 1 to 48 of MQ's characters."""
    return _OBJECT_NAME.fullmatch(text) is not None


#: Bytes of a CorrelId.
CORREL_ID_LENGTH: Final = 24
#: What the names of queues begin with that stand for requests.
REQUEST_QUEUE_PREFIX: Final = "MQTT.REQUEST."


class Request(msgspec.Struct, frozen=True):
    """Where a client of MQTT 5 wants its answer, and what it knows it by."""

    response_topic: str
    correlation_data: bytes | None = None

    @property
    def queue(self) -> str:
        """Return the name of a queue that stands for the request; equal requests have the same."""
        digest = blake2b(self.response_topic.encode(), digest_size=16)
        if self.correlation_data is not None:
            digest.update(b"\0" + self.correlation_data)  # no topic has U+0000
        return REQUEST_QUEUE_PREFIX + digest.hexdigest().upper()

    @property
    def size(self) -> int:
        """Return the bytes, about, that the request takes."""
        return len(self.response_topic) + len(self.correlation_data or b"") + _REQUEST_BYTES


#: What Python takes for a request, beside its characters.
_REQUEST_BYTES: Final = 200


def request_to_keep(properties: PublishProperties) -> Request | None:
    """Return the request that a PUBLISH is where an MQMD cannot hold it; None for any other PUBLISH."""
    topic, correlation_data = properties.response_topic, properties.correlation_data
    if not topic:
        return None
    if is_object_name(topic) and not topic.startswith(REQUEST_QUEUE_PREFIX):
        whole = correlation_data is None or 0 < len(correlation_data.rstrip(b"\0")) == len(correlation_data)
        if whole and len(correlation_data or b"") <= CORREL_ID_LENGTH:
            return None
    return Request(topic, correlation_data)


#: What the topics begin with.
REPLY_TOPIC_PREFIX: Final = "$MQ/reply/"
#: Bytes of a key.
KEY_LENGTH: Final = 32
_CODE_LENGTH: Final = 16
#: Separates queue and queue manager; no name in MQ has it.
_AT: Final = "@"


class ReplyAddresses:
    """Makes such topics, and tells what they stand for."""

    def __init__(self, key: bytes, record: Callable[[bytes], None]) -> None:
        """Take a key of this bridge's own; `record` is called with it once it is used, and has to last from then on."""
        self._key = key
        self._record: Callable[[bytes], None] | None = record

    def restore(self, key: bytes) -> None:
        """Take over the key that is on record."""
        self._key, self._record = key, None

    def topic(self, client_id: str, md: MQMD) -> str:
        """Return the topic to which a client answers a request."""
        if self._record is not None:
            record, self._record = self._record, None
            record(self._key)
        address = _AT.join(name.decode("utf-8", "replace").rstrip(" \0") for name in (md.ReplyToQ, md.ReplyToQMgr))
        return f"{REPLY_TOPIC_PREFIX}{self._code(client_id, address)}/{address}"

    def queue(self, client_id: str, topic: str) -> tuple[str, str]:
        """Return the queue and queue manager that a topic stands for: blanks for a topic that is not this client's."""
        code, _, address = topic.removeprefix(REPLY_TOPIC_PREFIX).partition("/")
        if not hmac.compare_digest(code.encode(), self._code(client_id, address).encode()):
            return "", ""
        queue, _, queue_manager = address.partition(_AT)
        return queue, queue_manager

    def _code(self, client_id: str, address: str) -> str:
        said = f"{client_id}\0{address}".encode()
        return hmac.digest(self._key, said, "sha256")[:_CODE_LENGTH].hex().upper()


def is_request(md: MQMD) -> bool:
    """Return whether a message asks for an answer."""
    return md.MsgType == cmqc.MQMT_REQUEST and bool(md.ReplyToQ.strip(b" \0"))


def with_request(properties: PublishProperties, md: MQMD, response_topic: str) -> PublishProperties:
    """Return the properties of a request from MQ: its answer goes to this topic, unless the application specified one."""
    if properties.response_topic is not None:
        return properties
    return msgspec.structs.replace(properties, response_topic=response_topic, correlation_data=answer_correl_id(md))


def answer_correl_id(md: MQMD) -> bytes:
    """Return the CorrelId that the answer to a request is to have (MQMD.Report)."""
    return md.CorrelId if md.Report & cmqc.MQRO_PASS_CORREL_ID else md.MsgId
