"""A look at queues of a queue manager elsewhere: by MQINQ, and by PCF for the age of the oldest message."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence

from bridge.mq.administration import Administration, CommandFailed
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD, Connection
from bridge.mq.queue_manager_status import QueueManagerStatus, QueueStatus
from bridge.mq.worker import LOST
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFST

log = logging.getLogger(__name__)

_INQUIRE = cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
_ATTRIBUTES = (
    cmqc.MQIA_Q_TYPE,
    cmqc.MQIA_USAGE,
    cmqc.MQIA_CURRENT_Q_DEPTH,
    cmqc.MQIA_MAX_Q_DEPTH,
    cmqc.MQIA_OPEN_INPUT_COUNT,
    cmqc.MQIA_OPEN_OUTPUT_COUNT,
    cmqc.MQIA_INHIBIT_PUT,
)


class IbmInquiry:
    """`bridge.mq.queue_manager_status.QueueManagerInquiry` over a connection, which is kept from one look to the next."""

    interval = 15.0

    def __init__(self, connect: Callable[[], Connection], dead_letter_queue: str) -> None:
        self._connect = connect
        self._dead_letter_queue = dead_letter_queue
        self._connection: Connection | None = None
        self._administration: Administration | None = None
        #: queues whose messages' age the command server does not tell, and whether it answers at all; the log has said so
        self._ageless: set[str] = set()
        self._answered = True

    def look(self, queues: Sequence[str], *, ages: bool = True) -> QueueManagerStatus:
        try:
            if self._connection is None:
                self._connection = self._connect()
            connection = self._connection
            # The queue manager's own, which need not be the one that the bridge uses.
            dead_letter_queue = _dead_letter_queue(connection) or self._dead_letter_queue
            names = dict.fromkeys(filter(None, [*queues, self._dead_letter_queue, dead_letter_queue]))
            found = [one for name in names if (one := self._queue(connection, name, ages)) is not None]
        except MQError:
            self.close()
            raise
        return QueueManagerStatus(queues=found, dead_letter_queue=dead_letter_queue)

    def close(self) -> None:
        connection, self._connection, self._administration = self._connection, None, None
        self._ageless.clear()
        self._answered = True
        if connection is not None:
            with contextlib.suppress(MQError):
                connection.disconnect()

    def _queue(self, connection: Connection, name: str, ages: bool) -> QueueStatus | None:
        """Return the status of a queue; None for one that is not local, not there, or that the bridge may not inquire."""
        try:
            handle = connection.open(MQOD(ObjectName=name), _INQUIRE)
            try:
                (kind, usage, depth, max_depth, inputs, outputs, inhibited), _ = connection.inquire(handle, _ATTRIBUTES)
            finally:
                connection.close(handle)
        except MQError as error:
            if error.reason in LOST:
                raise
            log.debug("queue %s is in no metric: %s", name, error)
            return None
        if kind != cmqc.MQQT_LOCAL:
            return None
        return QueueStatus(
            name=name,
            transmission=usage == cmqc.MQUS_TRANSMISSION,
            depth=depth,
            max_depth=max_depth,
            oldest_message_age=self._age(connection, name) if depth and ages else None,
            input_handles=inputs,
            output_handles=outputs,
            put_inhibited=inhibited == cmqc.MQQA_PUT_INHIBITED,
        )

    def _age(self, connection: Connection, name: str) -> float | None:
        if not self._answered or name in self._ageless:
            return None
        try:
            if self._administration is None:
                self._administration = Administration(connection)
            queue = MQCFST(cmqc.MQCA_Q_NAME, name.encode())
            responses = self._administration.run(cmqcfc.MQCMD_INQUIRE_Q_STATUS, queue)
        except MQError as error:
            if error.reason in LOST:
                raise
            self._ageless.add(name)
            self._answered = isinstance(error, CommandFailed)
            queues = f"queue {name}" if self._answered else "queues"
            log.warning("MQB9103W the age of messages on %s is in no metric: the command server says: %s", queues, error)
            return None
        age = responses[0].parameters.get(cmqcfc.MQIACF_OLDEST_MSG_AGE)
        return float(age) if isinstance(age, int) and age != cmqc.MQMON_NOT_AVAILABLE else None


def _dead_letter_queue(connection: Connection) -> str:
    try:
        handle = connection.open(MQOD(ObjectType=cmqc.MQOT_Q_MGR), _INQUIRE)
    except MQError as error:
        if error.reason in LOST:
            raise
        log.debug("the name of the dead-letter queue cannot be inquired: %s", error)
        return ""
    try:
        _, (name,) = connection.inquire(handle, (cmqc.MQCA_DEAD_LETTER_Q_NAME,))
    finally:
        connection.close(handle)
    return name.strip()
