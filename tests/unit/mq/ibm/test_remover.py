"""The remover of the transmission queue."""

from __future__ import annotations

from functools import partial

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm.coordination import BackendEvents
from bridge.mq.ibm.persistent_state import Identifiers
from bridge.mq.ibm.remover import FirstRemover, Removal
from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.ibm_backends import TRANSMIT, drain


def test_a_message_that_cannot_be_dead_lettered_does_not_keep_others_from_being_removed(queue_manager: QueueManager) -> None:
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
