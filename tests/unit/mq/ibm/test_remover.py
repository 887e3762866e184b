"""The remover of the transmission queue."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm.coordination import BackendEvents
from bridge.mq.ibm.persistent_state import Identifiers
from bridge.mq.ibm.remover import FirstRemover, Removal, Remover
from bridge.mq.mqi import MQOD, GetOptions, Got, MQError
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.ibm_backends import TRANSMIT, drain


def test_a_message_that_cannot_be_dead_lettered_does_not_keep_others_from_being_removed(
    queue_manager: QueueManager,
) -> None:
    connection = EmbeddedConnection(queue_manager)
    for body in (b"1", b"bad", b"2"):
        connection.put1(MQOD(ObjectName="x", ObjectQMgrName="dev"), Message(MQMD(), body))
    handle = connection.open(MQOD(ObjectName=TRANSMIT), cmqc.MQOO_BROWSE)
    browsed = [connection.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT)) for _ in range(3)]
    connection.command("ALTER QLOCAL(SYSTEM.DEAD.LETTER.QUEUE) PUT(DISABLED)")
    ended: dict[str, int] = {}
    remover = FirstRemover(
        "remover",
        lambda: connection,
        queue=TRANSMIT,
        identifiers=Identifiers(),
        events=BackendEvents(),
        dead_letter_queue="SYSTEM.DEAD.LETTER.QUEUE",
    )
    remover.opened(connection)
    remover.connection = connection
    first, bad, second = browsed
    letter = (bad, bad.md, bad.data, "x", "dev", cmqc.MQRC_XQH_ERROR)
    remover.submit(Removal([first.md.MsgId], {}, partial(ended.__setitem__, "first")))
    remover.submit(Removal([], {}, partial(ended.__setitem__, "bad"), [letter]))
    remover.submit(Removal([second.md.MsgId], {}, partial(ended.__setitem__, "second")))
    while len(ended) < 3:
        try:
            remover.serve(connection)
        except MQError as error:
            remover.failed(error)
    assert ended == {"first": 0, "bad": cmqc.MQRC_PUT_INHIBITED, "second": 0}
    connection.disconnect()
    assert [message.data[-3:] for message in drain(queue_manager, TRANSMIT)] == [b"bad"]


class Removed(BackendEvents):
    """Records the messages whose removal was reported."""

    def __init__(self) -> None:
        self.msg_ids: list[bytes] = []

    def removed(self, msg_ids: Sequence[bytes]) -> None:
        self.msg_ids += msg_ids


class HalfOpen(EmbeddedConnection):
    """Breaks after the MQGET of a message. The queue manager does not notice."""

    msg_id = cmqc.MQMI_NONE

    def get(self, handle: Any, options: GetOptions) -> Got:
        got = super().get(handle, options)
        if options.MsgId == self.msg_id:
            raise MQError(cmqc.MQRC_CONNECTION_BROKEN, "get")
        return got


def test_a_message_in_the_unit_of_work_of_a_lost_connection_does_not_count_as_removed(
    queue_manager: QueueManager,
) -> None:
    """It is invisible until the queue manager notices the loss. Then it is there again, and is removed."""
    identifiers, events = Identifiers(), Removed()
    options: dict[str, Any] = {
        "queue": TRANSMIT,
        "identifiers": identifiers,
        "events": events,
        "dead_letter_queue": "SYSTEM.DEAD.LETTER.QUEUE",
    }
    application = EmbeddedConnection(queue_manager)
    application.put1(MQOD(ObjectName="x", ObjectQMgrName="dev"), Message(MQMD(), b"1"))
    browse = application.open(MQOD(ObjectName=TRANSMIT), cmqc.MQOO_BROWSE)
    msg_id = application.get(browse, GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT)).md.MsgId
    first = FirstRemover("first", lambda: application, **options)
    first.workers = 2
    first.opened(EmbeddedConnection(queue_manager))
    lost = HalfOpen(queue_manager)
    lost.msg_id = msg_id
    remover = Remover("second", lambda: lost, **options)
    remover.take_receipt(first.receipts[0])
    remover.opened(lost)
    ended: list[int] = []
    remover.submit(Removal([msg_id], {}, ended.append))
    with pytest.raises(MQError):
        remover.serve(lost)
    remover.lost()

    connection = EmbeddedConnection(queue_manager)
    with pytest.raises(MQError, match="MQRC_UOW_IN_PROGRESS"):
        remover.opened(connection)
    assert events.msg_ids == []
    lost.backout()
    remover.opened(connection)
    remover.serve(connection)
    assert (ended, events.msg_ids) == ([cmqc.MQRC_NONE], [msg_id])
    assert drain(queue_manager, TRANSMIT) == []
