"""Records on state queues, replaced in the units of work of the messages that they describe."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got, MQError, get_or_none
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

_OPEN = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING


class StateQueue:
    """A state queue on one connection. Puts and gets are under syncpoint. Every method raises MQError."""

    def __init__(self, connection: Connection, name: str, options: int = _OPEN) -> None:
        self.name = name
        self._connection = connection
        try:
            self._handle = connection.open(MQOD(ObjectName=name), options)
        except MQError as error:
            if error.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME:
                words = f"state queue {name} is missing; hint: deploy/mq/bridge.mqsc defines it"
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
        """Put a message. Without `msg_id` it gets a new MsgId. `options` are additional MQPMO options."""
        md = MQMD(MsgId=msg_id, CorrelId=correl_id, Persistence=cmqc.MQPER_PERSISTENT, Expiry=expiry)
        if msg_id == cmqc.MQMI_NONE:
            options |= cmqc.MQPMO_NEW_MSG_ID
        options |= cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING
        self._connection.put(self._handle, Message(md, body), options)

    def take(self, correl_id: bytes = cmqc.MQCI_NONE, *, wait: int = 0) -> bytes | None:
        """Get the oldest matching message. Return its body, or None if none arrives within `wait` milliseconds."""
        message = self._get(cmqc.MQGMO_SYNCPOINT, correl_id, cmqc.MQMI_NONE, wait)
        return None if message is None else message.data

    def remove(self, correl_id: bytes = cmqc.MQCI_NONE, *, msg_id: bytes = cmqc.MQMI_NONE, wait: int = 0) -> Got | None:
        """Get the oldest matching message without its body. Return None if no message matches."""
        return self._get(cmqc.MQGMO_SYNCPOINT, correl_id, msg_id, wait, with_body=False)

    def holds(self, msg_id: bytes) -> bool:
        """Return whether the queue contains a committed message with this MsgId."""
        return self._get(cmqc.MQGMO_BROWSE_FIRST, cmqc.MQCI_NONE, msg_id, with_body=False) is not None

    def browse(self, correl_id: bytes = cmqc.MQCI_NONE, *, with_body: bool = True) -> Iterator[Got]:
        """Yield matching messages, the oldest first."""
        how = cmqc.MQGMO_BROWSE_FIRST
        while (message := self._get(how, correl_id, cmqc.MQMI_NONE, with_body=with_body)) is not None:
            yield message
            how = cmqc.MQGMO_BROWSE_NEXT

    def _get(
        self, options: int, correl_id: bytes, msg_id: bytes, wait: int = 0, *, with_body: bool = True
    ) -> Got | None:
        options |= cmqc.MQGMO_FAIL_IF_QUIESCING
        if wait:
            options |= cmqc.MQGMO_WAIT
        if not with_body:
            options |= cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
        get_options = GetOptions(
            Options=options, WaitInterval=wait, MsgId=msg_id, CorrelId=correl_id, MaxLength=None if with_body else 0
        )
        return get_or_none(self._connection, self._handle, get_options)

    def close(self) -> None:
        """Close the queue."""
        self._connection.close(self._handle)


#: The first byte of a record. An empty message means that there is no record.
_MARK = b"R"


def correl_id_of(kind: str, name: str) -> bytes:
    """Return the CorrelId of the messages of one kind about one mapping, session or program."""
    return hashlib.sha256(f"mqbridge {kind} {name}".encode()).digest()[:24]


class MappingState:
    """One record, found by its kind and name. One connection at a time saves it."""

    def __init__(self, connection: Connection, name: str, *, kind: str = "mapping") -> None:
        """Open the queue. Raises MQError."""
        self._connection = connection
        self._correl_id = correl_id_of(kind, name)
        self._queue = StateQueue(connection, MAPPING_STATE_QUEUE)

    def load(self, *, create: bool = True) -> bytes | None:
        """Return the last committed record, or None.

        With `create`, the first replacement of a new record is detected too while it is in progress.

        Do not call this within a unit of work, because it may commit. Raises MQError, with MQRC_UOW_IN_PROGRESS while another
        connection, which may be lost, is replacing the record.
        """
        records = [message.data for message in self._queue.browse(self._correl_id)]
        if len(records) == 1:
            raise MQError(
                cmqc.MQRC_UOW_IN_PROGRESS,
                f"the unit of work of a lost connection has not ended yet (a record on {MAPPING_STATE_QUEUE} is incomplete)",
            )
        if not records:
            if create:
                self.save(None)
                self._connection.commit()
            return None
        return records[-1][len(_MARK) :] if records[-1] else None

    def save(self, record: bytes | None) -> None:
        """Replace the record, or remove it with None, in the unit of work of the connection. Raises MQError."""
        body = b"" if record is None else _MARK + record
        if self._queue.remove(self._correl_id) is None:
            self._queue.put(self._correl_id, body)
        self._queue.put(self._correl_id, body)

    def remove(self) -> bool:
        """Remove the messages of the record in the unit of work of the connection. Return whether there were any.

        Raises MQError.
        """
        existed = False
        while self._queue.remove(self._correl_id) is not None:
            existed = True
        return existed

    def close(self) -> None:
        """Close the queue. Raises MQError."""
        self._queue.close()
