"""The thread that forwards messages of MQ applications to the transmission queues of the shards.

Applications put messages to a queue manager with the name of a client. DEFXMITQ routes them to the common transmission queue.
The bridge of shard 0 moves them, with their MQXQH, to the queue of the client's shard in one unit of work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Never

import msgspec

from bridge.mq.dead_letter import DeadLetterRefused, DeadLetters
from bridge.mq.ibm.coordination import BackendEvents
from bridge.mq.message_producer import MessageProducer
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got, MQError, get_or_none
from bridge.mq.worker import Worker, back_out, raise_if_lost
from bridge.telemetry.identity import ClientNames
from bridge.telemetry.message import Destination, MappedMessage, Message
from bridge.telemetry.shard import Shard
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MalformedHeader, decode_mqxqh

log = logging.getLogger(__name__)

#: Maximum number of messages in a unit of work.
_BATCH: Final = 100
#: Wait interval for the first message of a unit of work, in milliseconds.
_WAIT: Final = 1_000
#: Seconds between attempts after a failure of the dead-letter queue.
_RETRY: Final = 5.0
#: Seconds for which the connection of the former active bridge may still have the queue open.
_HANDOVER: Final = 30.0
_IN_USE_PAUSE: Final = 0.5
_GET: Final = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_FAIL_IF_QUIESCING | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2


class Forwarder(Worker[Never]):
    """Moves messages from the common transmission queue to the queues of the shards.

    A message that the queue of its shard rejects goes to the dead-letter queue, so it does not delay messages of other
    shards.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        queue: str,
        shard: Shard,
        names: ClientNames,
        *,
        events: BackendEvents,
        dead_letter_queue: str,
    ) -> None:
        """`queue` is the common transmission queue."""
        super().__init__("forwarder", connect, events=events)
        self._queue, self._shard, self._names = queue, shard, names
        self._dead_letter_queue = dead_letter_queue
        #: handle of the common transmission queue
        self._input: int | None = None
        #: time.monotonic() until which the common transmission queue may be in use
        self._in_use_until = 0.0
        #: maximum number of messages in the next unit of work
        self._limit = _BATCH

    def opened(self, connection: Connection) -> None:
        self._producer = MessageProducer(connection)
        self._input = None
        self._in_use_until = time.monotonic() + _HANDOVER
        self._dead_letters = DeadLetters(connection, self._dead_letter_queue, "forwarder", self._queue)

    def serve(self, connection: Connection) -> None:
        if self._input is None:
            self._open(connection)
        if self._input is None:
            self._pause(_IN_USE_PAUSE)
            return
        limit, self._limit = self._limit, _BATCH
        for number in range(limit):
            wait = 0 if number else _WAIT
            options = GetOptions(Options=_GET | (cmqc.MQGMO_WAIT if wait else 0), WaitInterval=wait)
            message = get_or_none(connection, self._input, options)
            self.answered()
            if message is None:
                if not number:
                    return
                break
            try:
                self._forward(message)
            except DeadLetterRefused:
                if not number:
                    raise
                # The messages before this one do not wait for the dead-letter queue.
                connection.backout()
                self._limit = number
                return
            self.answered()
        connection.commit()

    def _open(self, connection: Connection) -> None:
        """Open the common transmission queue, unless the former active bridge still reads it. Raises MQError.

        The connection of a failed bridge may still have messages in its unit of work. Later messages must not overtake them,
        so only one bridge may read the queue.
        """
        options = cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_FAIL_IF_QUIESCING
        try:
            self._input = connection.open(MQOD(ObjectName=self._queue), options)
        except MQError as error:
            if error.reason != cmqc.MQRC_OBJECT_IN_USE or time.monotonic() > self._in_use_until:
                raise
        self.answered()

    def _forward(self, transmission: Got) -> None:
        """Put a message to the transmission queue of its shard, or to the dead-letter queue. Raises MQError."""
        try:
            if transmission.md.Format != cmqc.MQFMT_XMIT_Q_HEADER:
                raise MalformedHeader("MQXQH", 0, f"Format of the message is {transmission.md.Format!r}, not MQXMIT")
            name = decode_mqxqh(transmission.data).RemoteQMgrName.decode("utf-8", "replace")
            number = self._shard.shard_of(self._names.client_of(name) or name)
        except MalformedHeader as error:
            log.warning("MQB4217W dead-lettered a message on %s that specifies no client: %s", self._queue, error)
            self._dead_letters.put(transmission.md, transmission.data, cmqc.MQRC_XQH_ERROR, str(error))
            return
        queue = f"{self._queue}.{number}"
        try:
            message = Message(forwarded_descriptor(transmission.md), transmission.data)
            self._producer.put(MappedMessage(destination=Destination(queue), message=message))
        except MQError as error:
            raise_if_lost(error)
            if error.reason == cmqc.MQRC_BACKED_OUT:
                raise
            why = f"message for client {name!r} cannot be forwarded to {queue}: {error}"
            self._dead_letters.put(transmission.md, transmission.data, error.reason, why)

    def failed(self, error: MQError) -> None:
        log.error(
            "MQB4216E forwarding messages from %s to the shards failed, trying again in %g s: %s",
            self._queue,
            _RETRY,
            error,
        )
        assert self.connection is not None
        back_out(self.connection)
        self._pause(_RETRY)

    def _pause(self, seconds: float) -> None:
        self.busy_since = 0.0
        with self._changed:
            self._changed.wait_for(lambda: self._ending, seconds)


def forwarded_descriptor(md: MQMD) -> MQMD:
    """Return the MQMD of a forwarded message. The queue manager sets its context."""
    return msgspec.structs.replace(
        md,
        UserIdentifier=b"",
        AccountingToken=bytes(32),
        ApplIdentityData=b"",
        PutApplName=b"",
        PutDate=b"",
        PutTime=b"",
    )
