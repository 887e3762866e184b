"""The remover of the transmission queue."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.config.queue_manager import BridgeQueues
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm.coordination import BackendEvents
from bridge.mq.ibm.persistent_state import Identifiers
from bridge.mq.ibm.remover import (
    CHUNK,
    MAX_EXTRA,
    FirstRemover,
    Removal,
    RemovalDispatch,
    Remover,
    Undeliverable,
)
from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.telemetry.message import Message
from bridge.telemetry.removal_limit import LONG_LAG
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.ibm_backends import TRANSMIT, drain
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.mqi.structures import MqiGot


def test_a_message_that_cannot_be_dead_lettered_does_not_block_other_removals(
    queue_manager: QueueManager,
) -> None:
    connection = StandInConnection(queue_manager)
    for body in (b"1", b"bad", b"2"):
        connection.put1(MQOD(ObjectName="x", ObjectQMgrName="dev"), Message(MQMD(), body))
    handle = connection.open(MQOD(ObjectName=TRANSMIT), cmqc.MQOO_BROWSE)
    browsed = [connection.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT)) for _ in range(3)]
    connection.command("ALTER QLOCAL(SYSTEM.DEAD.LETTER.QUEUE) PUT(DISABLED)")
    ended: dict[str, int] = {}
    remover = FirstRemover(
        "remover",
        lambda: connection,
        queues=BridgeQueues(),
        identifiers=Identifiers(),
        events=BackendEvents(),
        dead_letter_queue="SYSTEM.DEAD.LETTER.QUEUE",
    )
    remover.opened(connection)
    remover.connection = connection
    first, bad, second = browsed
    letter = Undeliverable(bad, bad.md, bad.data, "x", "dev", cmqc.MQRC_XQH_ERROR)
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


def test_a_standby_with_a_delay_leaves_the_lock_to_others(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It becomes active when the lock has been free for `standby_delay`. Each other bridge starts the time again."""
    now = 100.0
    monkeypatch.setattr("bridge.mq.ibm.remover.time", SimpleNamespace(monotonic=lambda: now))

    def remover(**options: float) -> FirstRemover:
        return FirstRemover(
            "remover",
            lambda: StandInConnection(queue_manager),
            queues=BridgeQueues(),
            identifiers=Identifiers(),
            events=BackendEvents(),
            dead_letter_queue="SYSTEM.DEAD.LETTER.QUEUE",
            **options,
        )

    def is_active(first_remover: FirstRemover) -> bool:
        """Return whether the next attempt makes the bridge the active first_remover."""
        connection = StandInConnection(queue_manager)
        try:
            first_remover.opened(connection)
        except MQError as error:
            connection.disconnect()
            assert error.reason == cmqc.MQRC_OBJECT_IN_USE and first_remover.is_temporary(error)
            return False
        first_remover.connection = connection
        return True

    standby, preferred = remover(standby_delay=10.0), remover()
    assert not is_active(standby)
    now += 9.0
    assert not is_active(standby)
    assert is_active(preferred)
    now += 9.0
    assert not is_active(standby)
    assert preferred.connection is not None
    preferred.connection.disconnect()
    assert not is_active(standby)
    now += 9.0
    assert not is_active(standby)
    now += 1.0
    assert is_active(standby)


class Removed(BackendEvents):
    """Record the messages whose removal was reported."""

    def __init__(self) -> None:
        self.msg_ids: list[bytes] = []

    def removed(self, msg_ids: Sequence[bytes]) -> None:
        self.msg_ids += msg_ids


class HalfOpen(StandInConnection):
    """Break after the MQGET of a message. The queue manager does not notice."""

    msg_id = cmqc.MQMI_NONE

    def get(self, handle: Any, options: GetOptions) -> MqiGot:
        message = super().get(handle, options)
        if options.MsgId == self.msg_id:
            raise MQError(cmqc.MQRC_CONNECTION_BROKEN, "get")
        return message


def test_a_message_in_the_unit_of_work_of_a_lost_connection_does_not_count_as_removed(
    queue_manager: QueueManager,
) -> None:
    """It is invisible until the queue manager notices the loss. Then it is visible again, and is removed."""
    identifiers, events = Identifiers(), Removed()
    options: dict[str, Any] = {
        "queues": BridgeQueues(),
        "identifiers": identifiers,
        "events": events,
        "dead_letter_queue": "SYSTEM.DEAD.LETTER.QUEUE",
    }
    application = StandInConnection(queue_manager)
    application.put1(MQOD(ObjectName="x", ObjectQMgrName="dev"), Message(MQMD(), b"1"))
    browse = application.open(MQOD(ObjectName=TRANSMIT), cmqc.MQOO_BROWSE)
    msg_id = application.get(browse, GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT)).md.MsgId
    first = FirstRemover("first", lambda: application, **options)
    first.workers = 2
    first.opened(StandInConnection(queue_manager))
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

    connection = StandInConnection(queue_manager)
    with pytest.raises(MQError, match="MQRC_UOW_IN_PROGRESS"):
        remover.opened(connection)
    assert events.msg_ids == []
    lost.backout()
    remover.opened(connection)
    remover.serve(connection)
    assert (ended, events.msg_ids) == ([cmqc.MQRC_NONE], [msg_id])
    assert drain(queue_manager, TRANSMIT) == []


class Idle(Remover):
    """A remover that keeps its jobs."""

    def __init__(self, name: str) -> None:
        def connect() -> Any:
            raise AssertionError

        super().__init__(
            name,
            connect,
            queues=BridgeQueues(),
            identifiers=Identifiers(),
            events=BackendEvents(),
            dead_letter_queue="SYSTEM.DEAD.LETTER.QUEUE",
        )

    @property
    def removals(self) -> list[Removal]:
        return list(self._jobs)


def dispatch(round_trip: float, number: int = 32) -> tuple[RemovalDispatch, list[Idle]]:
    removers = [Idle(f"remover {number}") for number in range(number)]
    removers[0].round_trip = round_trip
    return RemovalDispatch(removers), removers


@pytest.mark.parametrize(
    ("round_trip", "active"), [(0.0, 1), (0.0001, 1), (0.0002, 1), (0.00031, 2), (0.001, 6), (0.005, 20), (1.0, 20)]
)
def test_the_round_trip_determines_the_number_of_active_removers(round_trip: float, active: int) -> None:
    removals, removers = dispatch(round_trip, number=20)
    msg_ids = [bytes([number % 256] * 24) for number in range(CHUNK * 30)]
    ended: list[int] = []
    parts = removals.remove(msg_ids, ended.append)
    assert sum(bool(remover.removals) for remover in removers) == active
    jobs = [job for remover in removers for job in remover.removals]
    assert len(jobs) == parts
    assert sorted(msg_id for job in jobs for msg_id in job.msg_ids) == sorted(msg_ids)
    removals.ended(jobs)
    assert {remover.load for remover in removers} == {0}


def test_a_long_lag_of_removals_activates_more_removers() -> None:
    """The queue manager is busy, and gives one connection less time than deliveries need."""
    removals, removers = dispatch(0.0, number=8)
    late, prompt = (Removal([], {}, lambda _reason: None, remover=removers[0]) for _ in range(2))
    active = []
    for job, lag in [(late, LONG_LAG + 1)] * 5 + [(prompt, 0.0)] * 8:
        job.submitted = time.monotonic() - lag
        removals.ended([job])
        active.append(removals.active)
    most = 1 + MAX_EXTRA
    assert active[:5] == [min(number, most) for number in (2, 3, 4, 5, 6)]
    assert active[5:] == [max(most - number, 1) for number in range(1, 9)]


def test_a_remover_without_a_connection_gets_work_only_if_no_other_has_a_connection() -> None:
    removals, removers = dispatch(0.005, number=3)
    removers[1].lost_since = 1.0
    removals.remove([bytes(24)] * CHUNK * 10, lambda _reason: None)
    assert [bool(remover.removals) for remover in removers] == [True, False, True]


def test_jobs_of_one_client_stay_in_order_on_one_remover() -> None:
    removals, removers = dispatch(0.005, number=4)
    ended: list[str] = []
    for number in range(3):
        for client_id in ("a", "b"):

            def completed(_reason: int, name: str = f"{client_id}{number}") -> None:
                ended.append(name)

            removals.submit(client_id, Removal([bytes(24)], {}, completed))
    busy = [remover.removals for remover in removers if remover.removals]
    assert [len(jobs) for jobs in busy] == [3, 3]
    for jobs in busy:
        removals.ended(jobs)
        for job in jobs:
            job.done(0)
    assert ended == ["a0", "a1", "a2", "b0", "b1", "b2"]
    removals.remove([bytes(24)] * CHUNK * 2, lambda _reason: None)
    removals.submit("a", Removal([bytes(24)], {}, lambda _reason: None))
    assert removers[2].removals, "it is no longer bound to the first remover, which has more to do"
