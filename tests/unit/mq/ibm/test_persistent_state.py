"""Records on the state queue."""

from __future__ import annotations

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm.persistent_state import Identifiers, PersistentState
from bridge.telemetry.record import ReceivedRecord
from tests.ibm_standin.mqi.connection import StandInConnection


def test_the_newest_record_of_a_session_applies_wherever_it_is_on_the_queue(queue_manager: QueueManager) -> None:
    """An older one can return after it, if the queue manager backs out the unit of work of a lost connection."""
    connection = StandInConnection(queue_manager)
    state = PersistentState(connection, Identifiers())
    for order in ((1, 2), (2, 1)):
        saved = {sequence: state.save(ReceivedRecord("c", [sequence]), sequence) for sequence in order}
        connection.commit()
        records, obsolete = state.read()
        assert list(records.values()) == [(saved[2], ReceivedRecord("c", [2], sequence=2))]
        assert obsolete == [saved[1]]
        assert all(state.remove(msg_id) for msg_id in saved.values())
        connection.commit()
