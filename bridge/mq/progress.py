"""SYSTEM.MQTT.MAPPING.STATE: how far a mapping has come that moves messages exactly once.

One persistent message for each such mapping, found by a CorrelId made of its name; what it says is the mapping's business.
A mapping to a link works on two connections. One holds the messages that it has taken, uncommitted, until the broker has
them; the other commits the record of what is being sent before it is sent. So the record outlives a crash that puts the
messages back, and says which of them the broker may have already. A mapping from a link needs one connection: the record of
what it has received is saved in the unit of work that puts it.
"""

from __future__ import annotations

import hashlib

from bridge.mapping.message import Message
from bridge.mq.errors import MQError
from bridge.mq.interface import MQOD, Connection, GetOptions
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

MAPPING_STATE_QUEUE = "SYSTEM.MQTT.MAPPING.STATE"
_OPTIONS = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING


class Progress:
    """The record of one mapping. One connection at a time saves it."""

    def __init__(self, connection: Connection, mapping: str) -> None:
        """Open the queue. Raises MQError."""
        self._connection = connection
        self._correl_id = hashlib.sha256(b"mqbridge mapping " + mapping.encode()).digest()[:24]
        self._handle = connection.open(MQOD(ObjectName=MAPPING_STATE_QUEUE), _OPTIONS)

    def _get(self, options: int, room: int | None = None) -> bytes | None:
        """A record of this mapping; None when there is none, or no further one."""
        wanted = GetOptions(
            Options=options | cmqc.MQGMO_FAIL_IF_QUIESCING,
            MatchOptions=cmqc.MQMO_MATCH_CORREL_ID,
            CorrelId=self._correl_id,
            MaxLength=room,
        )
        try:
            return self._connection.get(self._handle, wanted).data
        except MQError as error:
            if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                return None
            raise

    def load(self) -> bytes | None:
        """The record that was committed last; None without one. Raises MQError."""
        record = None
        how = cmqc.MQGMO_BROWSE_FIRST
        while (found := self._get(how)) is not None:
            record, how = found, cmqc.MQGMO_BROWSE_NEXT
        return record

    def save(self, record: bytes | None) -> None:
        """Replace the record, in the unit of work of the connection; None removes it. Raises MQError."""
        while self._get(cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG, 0) is not None:
            pass
        if record is None:
            return
        md = MQMD(CorrelId=self._correl_id, Persistence=cmqc.MQPER_PERSISTENT)
        options = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NEW_MSG_ID | cmqc.MQPMO_FAIL_IF_QUIESCING
        self._connection.put(self._handle, Message(md, record), options)
