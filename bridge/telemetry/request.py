"""Requests and replies between MQTT 5 clients and MQ applications: Response Topic and ReplyToQ."""

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
    """Return whether a text is a valid name of a queue or queue manager: 1 to 48 characters from MQ's set."""
    return _OBJECT_NAME.fullmatch(text) is not None


CORREL_ID_LENGTH: Final = 24
#: The prefix of queue names that represent requests.
REQUEST_QUEUE_PREFIX: Final = "MQTT.REQUEST."


class ClientRequest(msgspec.Struct, frozen=True):
    """Response Topic and Correlation Data of a request from an MQTT 5 client."""

    response_topic: str
    correlation_data: bytes | None = None

    @property
    def queue(self) -> str:
        """The name of the queue that represents the request, the same for equal requests."""
        digest = blake2b(self.response_topic.encode(), digest_size=16)
        if self.correlation_data is not None:
            digest.update(b"\0" + self.correlation_data)  # topics do not contain U+0000
        return REQUEST_QUEUE_PREFIX + digest.hexdigest().upper()

    @property
    def size(self) -> int:
        """The approximate memory use, in bytes."""
        return len(self.response_topic) + len(self.correlation_data or b"") + _REQUEST_BYTES


#: Memory overhead of a request in bytes, in addition to topic and Correlation Data.
_REQUEST_BYTES: Final = 200


def request_to_keep(properties: PublishProperties) -> ClientRequest | None:
    """Return the request of a PUBLISH if it does not fit an MQMD, or None if it fits or the PUBLISH is not a request."""
    topic, correlation_data = properties.response_topic, properties.correlation_data
    if not topic:
        return None
    if is_object_name(topic) and not topic.startswith(REQUEST_QUEUE_PREFIX):
        whole = correlation_data is None or 0 < len(correlation_data.rstrip(b"\0")) == len(correlation_data)
        if whole and len(correlation_data or b"") <= CORREL_ID_LENGTH:
            return None
    return ClientRequest(topic, correlation_data)


#: The prefix of topics for replies to requests from MQ.
REPLY_TOPIC_PREFIX: Final = "$MQ/reply/"
#: Length of a `ReplyAddresses` key, in bytes.
KEY_LENGTH: Final = 32
_CODE_LENGTH: Final = 16
#: Separates queue and queue manager. MQ names do not contain it.
_AT: Final = "@"


class ReplyAddresses:
    """Creates and resolves the authenticated topics to which clients publish replies to requests from MQ."""

    def __init__(self, key: bytes, record: Callable[[bytes], None]) -> None:
        """Initialize with a random key. `record` is called with the key when it is first used, and must persist it."""
        self._key = key
        self._record: Callable[[bytes], None] | None = record

    def restore(self, key: bytes) -> None:
        """Use the recorded key."""
        self._key, self._record = key, None

    def topic(self, client_id: str, md: MQMD) -> str:
        """Return the topic for a client's reply to a request."""
        if self._record is not None:
            record, self._record = self._record, None
            record(self._key)
        address = _AT.join(name.decode("utf-8", "replace").rstrip(" \0") for name in (md.ReplyToQ, md.ReplyToQMgr))
        return f"{REPLY_TOPIC_PREFIX}{self._code(client_id, address)}/{address}"

    def queue(self, client_id: str, topic: str) -> tuple[str, str]:
        """Return the queue and queue manager of a topic, or two empty strings if it was not created for this client."""
        code, _, address = topic.removeprefix(REPLY_TOPIC_PREFIX).partition("/")
        if not hmac.compare_digest(code.encode(), self._code(client_id, address).encode()):
            return "", ""
        queue, _, queue_manager = address.partition(_AT)
        return queue, queue_manager

    def _code(self, client_id: str, address: str) -> str:
        text = f"{client_id}\0{address}".encode()
        return hmac.digest(self._key, text, "sha256")[:_CODE_LENGTH].hex().upper()


def is_request(md: MQMD) -> bool:
    """Return whether a message is a request with a ReplyToQ."""
    return md.MsgType == cmqc.MQMT_REQUEST and bool(md.ReplyToQ.strip(b" \0"))


def with_request(properties: PublishProperties, md: MQMD, response_topic: str) -> PublishProperties:
    """Return the properties of a request from MQ with this Response Topic, unless the application specified one."""
    if properties.response_topic is not None:
        return properties
    return msgspec.structs.replace(properties, response_topic=response_topic, correlation_data=answer_correl_id(md))


def answer_correl_id(md: MQMD) -> bytes:
    """Return the CorrelId for the reply to a request (MQMD.Report)."""
    return md.CorrelId if md.Report & cmqc.MQRO_PASS_CORREL_ID else md.MsgId
