"""A queue that keeps what must survive: persistent messages, each known by its MsgId, or with others by a CorrelId.

Four layouts stand on it: sessions of clients (`bridge.mq.ibm.persistent_state`), mappings (`bridge.mq.mapping_state`), and
Spark's writers and readers (`bridge.pipeline.mq.writer_state`, `bridge.pipeline.mq.lease`). All put what they keep in the
unit of work of what it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

_OPEN = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING


class StateQueue:
    """Such a queue as one connection uses it. Messages are put and taken in syncpoint; every method raises MQError."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection
        try:
            self._handle = connection.open(MQOD(ObjectName=name), _OPEN)
        except MQError as error:
            if error.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME:
                words = f"no queue {name}, which keeps what must survive; deploy/mq/bridge.mqsc defines it"
                raise MQError(error.reason, words) from error
            raise

    def put(
        self,
        correl_id: bytes,
        body: bytes,
        *,
        msg_id: bytes = cmqc.MQMI_NONE,
        expiry: int = cmqc.MQEI_UNLIMITED,
        options: int = cmqc.MQPMO_NONE,
    ) -> None:
        """Put a message; without a MsgId it gets a new one. `options` are further MQPMO ones."""
        md = MQMD(MsgId=msg_id, CorrelId=correl_id, Persistence=cmqc.MQPER_PERSISTENT, Expiry=expiry)
        if msg_id == cmqc.MQMI_NONE:
            options |= cmqc.MQPMO_NEW_MSG_ID
        options |= cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING
        self._connection.put(self._handle, Message(md, body), options)

    def take(
        self, correl_id: bytes = cmqc.MQCI_NONE, *, msg_id: bytes = cmqc.MQMI_NONE, wait: int = 0
    ) -> bytes | None:
        """Take the oldest message that matches; return its body, or None where none comes within `wait` milliseconds."""
        got = self._get(cmqc.MQGMO_SYNCPOINT, correl_id, msg_id, wait)
        return None if got is None else got.data

    def remove(
        self, correl_id: bytes = cmqc.MQCI_NONE, *, msg_id: bytes = cmqc.MQMI_NONE, wait: int = 0
    ) -> Got | None:
        """Take the oldest message that matches without its body; None where there is none."""
        return self._get(cmqc.MQGMO_SYNCPOINT, correl_id, msg_id, wait, with_body=False)

    def holds(self, msg_id: bytes) -> bool:
        """Return whether a message with this MsgId is on the queue, committed."""
        return self._get(cmqc.MQGMO_BROWSE_FIRST, cmqc.MQCI_NONE, msg_id, with_body=False) is not None

    def browse(self, correl_id: bytes = cmqc.MQCI_NONE, *, with_body: bool = True) -> Iterator[Got]:
        """Return the messages that match, the oldest first."""
        how = cmqc.MQGMO_BROWSE_FIRST
        while (got := self._get(how, correl_id, cmqc.MQMI_NONE, with_body=with_body)) is not None:
            yield got
            how = cmqc.MQGMO_BROWSE_NEXT

    def _get(
        self, options: int, correl_id: bytes, msg_id: bytes, wait: int = 0, *, with_body: bool = True
    ) -> Got | None:
        options |= cmqc.MQGMO_FAIL_IF_QUIESCING
        if wait:
            options |= cmqc.MQGMO_WAIT
        if not with_body:
            options |= cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
        wanted = GetOptions(
            Options=options, WaitInterval=wait, MsgId=msg_id, CorrelId=correl_id, MaxLength=None if with_body else 0
        )
        try:
            return self._connection.get(self._handle, wanted)
        except MQError as error:
            if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                return None
            raise

    def close(self) -> None:
        """Close the queue."""
        self._connection.close(self._handle)
