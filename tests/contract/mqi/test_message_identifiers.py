"""The forms of MsgIds: unique, not ordered, and with the last bytes of IBM MQ on Linux and AIX."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mq.mqi import MQOD
from bridge.mq.remote import RemoteConnection
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.served_queue_manager import ServedQueueManager
from tests.ibm_standin.message_identifiers import FORMS

pytestmark = pytest.mark.smoke
EMBEDDED = 1 << 63


@pytest.mark.parametrize("form", sorted(FORMS))
@given(number=st.integers(1, (1 << 54) - 1), embedded=st.sampled_from([0, EMBEDDED]))
def test_each_number_has_one_msg_id(form: str, number: int, embedded: int) -> None:
    appearance = FORMS[form]("QM1")
    msg_id = appearance.generated(number | embedded)
    assert len(msg_id) == 24 and msg_id.startswith(b"AMQ QM1 ")
    assert appearance.number_of(msg_id) == number | embedded


@pytest.mark.parametrize(
    ("form", "endings", "ordered"), [("linux", 1, False), ("aix", 256, True), ("distinct", 300, True)]
)
def test_the_last_two_bytes_of_successive_messages(tmp_path: Path, form: str, endings: int, ordered: bool) -> None:
    """MsgIds that the queue manager generates for one program."""
    with ServedQueueManager(tmp_path, stand_in=True, msg_ids=form) as served:
        connection = RemoteConnection(served.directory)
        queue = connection.open(MQOD(ObjectName="SYSTEM.DEAD.LETTER.QUEUE"), cmqc.MQOO_OUTPUT)
        put = [connection.put(queue, Message(MQMD(), b""), cmqc.MQPMO_NEW_MSG_ID).MsgId for _ in range(300)]
        connection.disconnect()
    assert len(set(put)) == 300
    assert len({msg_id[-2:] for msg_id in put}) == endings
    assert (sorted(put) == put) is ordered
