"""Requests of MQTT 5 that the fields of an MQMD cannot hold, and the queue name that stands for each in ReplyToQ.

MQMD.ReplyToQ has 48 characters, of a few kinds; MQMD.CorrelId has 24 bytes. What does not fit is kept beside the session of
the client that asks; the answer is put to the queue name, and so comes back with the Response Topic and Correlation Data.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from bridge.mapping.object_name import is_object_name
from bridge.wire.mqtt import PublishProperties

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
