"""Response Topics that stand for the ReplyToQ of requests from MQ: a client of MQTT 5 answers by publishing to one.

Such a topic says queue, queue manager, and a code that only the bridge can make, for one client: a client can put answers to
the queues that it was asked from, and to no other. Nothing has to be kept for a request, beside the key of the codes.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from bridge.wire import cmqc
from bridge.wire.mq import MQMD

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


def answer_correl_id(md: MQMD) -> bytes:
    """Return the CorrelId that the answer to a request is to have (MQMD.Report)."""
    return md.CorrelId if md.Report & cmqc.MQRO_PASS_CORREL_ID else md.MsgId
