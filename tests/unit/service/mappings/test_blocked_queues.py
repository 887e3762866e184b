"""A destination queue that accepts no messages: its messages wait in order, and those for other queues continue."""

from __future__ import annotations

import pytest

from bridge.administration.mapping_status import MappingStatus, RunnerState
from bridge.mq.message_consumer import MessageConsumer
from bridge.mq.mqi import Got
from bridge.service.mappings import runner as transfer
from tests.helpers.mapping_scene import DEAD_LETTERS, Fault, Scene, mapping_config
from tests.helpers.patience import until

CONFIG = mapping_config(
    {"mqtt": "t/{to}"}, {"queue": "{to}"}, guarantee="exactly-once", batch={"messages": 3, "time": "1 s"}
)
STRICT = CONFIG.model_copy(update={"order": "strict"})


@pytest.fixture
def full(scene: Scene) -> Scene:
    """Queue FULL accepts one message, and queue OUT everything. The mapping has its subscription."""
    scene.mqsc("DEFINE QLOCAL(FULL) MAXDEPTH(1)")
    scene.run(CONFIG, scene.settled)
    return scene


def publish(scene: Scene, *numbers: int) -> None:
    """Publish each number to FULL and to OUT."""
    for number in numbers:
        scene.publish("t/FULL", b"%d" % number, Persistence=1)
        scene.publish("t/OUT", b"%d" % number, Persistence=1)


def in_order(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def waiting(status: MappingStatus) -> list[tuple[str, int]]:
    return [(queue.queue, queue.waiting) for queue in status.blocked]


@pytest.mark.parametrize("first_retry", [transfer.FIRST_RETRY, 0.0])
def test_messages_for_other_queues_continue_and_those_for_a_full_queue_arrive_in_order_later(
    full: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, first_retry: float
) -> None:
    """Also on a machine so slow that a retry is due before a message was browsed."""
    monkeypatch.setattr(transfer, "FIRST_RETRY", first_retry)
    caplog.set_level("INFO")
    publish(full, *range(10))
    runner = full.runner(CONFIG)
    status = runner.status
    until(lambda: full.depth("OUT") == 10 and waiting(status) == [("FULL", 9)])
    # The thread changes them after the commit, one after the other.
    until(lambda: (status.state, status.moved, status.backlog) == (RunnerState.RETRYING, 11, 9))
    assert "MQRC_Q_FULL" in status.blocked[0].reason and "FULL" in status.last_error
    publish(full, 10)  # before the cursor of the browse
    until(lambda: full.depth("OUT") == 11 and waiting(status) == [("FULL", 10)])
    full.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(100)")
    until(lambda: full.depth("FULL") == 11 and status.state is RunnerState.RUNNING)
    until(lambda: (status.blocked, status.backlog) == ([], 0))
    publish(full, 11)
    until(lambda: status.moved == 24)
    full.stop(runner)
    assert full.bodies("FULL") == full.bodies("OUT") == in_order(*range(12))
    assert full.depth(DEAD_LETTERS) == 0
    lines = [record.getMessage() for record in caplog.records if "FULL" in record.getMessage()]
    assert [line.split()[0] for line in lines] == ["MQB5007W", "MQB5008I"], lines


def test_with_strict_order_a_full_queue_blocks_all_later_messages(
    full: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    publish(full, *range(4))
    runner = full.runner(STRICT)
    until(lambda: runner.status.backouts > 5)
    # FULL has 0, and 1 is rejected. OUT has the messages before it.
    assert (full.depth("OUT"), runner.status.blocked) == (1, [])
    full.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(100)")
    until(lambda: full.depth("OUT") == full.depth("FULL") == 4)
    full.stop(runner)
    assert full.bodies("FULL") == full.bodies("OUT") == in_order(*range(4))
    assert [record.getMessage()[:8] for record in caplog.records].count("MQB5010I") == 1


def test_a_queue_that_frees_one_place_at_a_time_gets_its_messages_in_order(full: Scene) -> None:
    publish(full, *range(6))
    runner = full.runner(CONFIG)
    bodies: list[bytes] = []

    def take() -> bool:
        bodies.extend(full.bodies("FULL"))
        return len(bodies) == 6

    until(lambda: full.depth("OUT") == 6)
    until(take)
    until(lambda: runner.status.state is RunnerState.RUNNING)
    full.stop(runner)
    assert bodies == in_order(*range(6))


def test_two_blocked_queues_recover_independently(full: Scene) -> None:
    full.mqsc("DEFINE QLOCAL(SHUT) PUT(DISABLED)")
    for number in in_order(*range(8)):
        for queue in ("SHUT", "FULL", "OUT"):
            full.publish(f"t/{queue}", number, Persistence=1)
    runner = full.runner(CONFIG)
    until(lambda: sorted(waiting(runner.status)) == [("FULL", 7), ("SHUT", 8)])
    full.mqsc("ALTER QLOCAL(SHUT) PUT(ENABLED)")
    until(lambda: full.depth("SHUT") == 8 and waiting(runner.status) == [("FULL", 7)])
    full.stop(runner)
    assert full.bodies("SHUT") == full.bodies("OUT") == in_order(*range(8))
    assert full.bodies("FULL") == in_order(0)


def test_look_ahead_is_limited_and_reported(
    full: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transfer, "LOOK_AHEAD", 4)
    publish(full, *range(10))
    runner = full.runner(CONFIG)
    until(lambda: "MQB5009W" in caplog.text and waiting(runner.status) == [("FULL", 4)])
    # Numbers 1 to 4 wait for FULL. Number 4 for OUT is after the last of them.
    assert full.depth("OUT") == 4
    full.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(100)")
    until(lambda: full.depth("OUT") == full.depth("FULL") == 10)
    full.stop(runner)
    assert full.bodies("FULL") == full.bodies("OUT") == in_order(*range(10))
    assert caplog.text.count("MQB5009W") == 1


def test_each_message_is_browsed_once_however_many_wait(full: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    browsed, browse = [], MessageConsumer.browse

    def counted(consumer: MessageConsumer, wait: float = 0.0) -> Got | None:
        message = browse(consumer, wait)
        if message is not None:
            browsed.append(message.MsgToken)
        return message

    monkeypatch.setattr(MessageConsumer, "browse", counted)
    publish(full, 0, 1)
    runner = full.runner(CONFIG)
    until(lambda: waiting(runner.status) == [("FULL", 1)])
    publish(full, *range(2, 200))
    until(lambda: waiting(runner.status) == [("FULL", 199)] and full.depth("OUT") == 200)
    full.stop(runner)
    assert len(browsed) == len(set(browsed)) >= 2 * 198


def test_a_message_of_higher_priority_is_found_before_the_cursor(full: Scene) -> None:
    publish(full, *range(3))
    runner = full.runner(CONFIG)
    until(lambda: waiting(runner.status) == [("FULL", 2)])
    full.publish("t/OUT", b"urgent", Persistence=1, Priority=9)
    until(lambda: full.depth("OUT") == 4)
    full.stop(runner)


def test_invalid_messages_are_dead_lettered_while_a_queue_is_blocked(full: Scene) -> None:
    publish(full, *range(3))
    runner = full.runner(CONFIG)
    until(lambda: waiting(runner.status) == [("FULL", 2)])
    full.publish("t/MISSING", b"bad", Persistence=1)
    publish(full, 3)
    until(lambda: full.depth("OUT") == 4 and full.depth(DEAD_LETTERS) == 1)
    full.stop(runner)
    assert [letter.body for letter in full.letters()] == [b"bad"]
    assert runner.status.dead_lettered == 1


def test_a_full_dead_letter_queue_loses_and_duplicates_nothing_while_a_queue_is_blocked(full: Scene) -> None:
    full.mqsc(f"ALTER QLOCAL({DEAD_LETTERS}) PUT(DISABLED)")
    publish(full, *range(3))
    runner = full.runner(CONFIG)
    until(lambda: waiting(runner.status) == [("FULL", 2)])
    full.publish("t/MISSING", b"bad", Persistence=1)
    publish(full, 3)
    until(lambda: runner.status.state is RunnerState.STUCK)
    full.mqsc(f"ALTER QLOCAL({DEAD_LETTERS}) PUT(ENABLED)")
    until(lambda: full.depth("OUT") == 4 and full.depth(DEAD_LETTERS) == 1)
    full.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(100)")
    until(lambda: full.depth("FULL") == 4)
    full.stop(runner)
    assert full.bodies("FULL") == full.bodies("OUT") == in_order(*range(4))


def test_an_expired_message_no_longer_waits(full: Scene) -> None:
    publish(full, 0)
    full.publish("t/FULL", b"expires", Persistence=1, Expiry=1)
    publish(full, 1)
    runner = full.runner(CONFIG)
    until(lambda: waiting(runner.status) == [("FULL", 2)])
    until(lambda: runner.status.backlog == 1)  # CURDEPTH, after the expiry
    full.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(100)")
    until(lambda: runner.status.state is RunnerState.RUNNING)
    full.stop(runner)
    assert full.bodies("FULL") == full.bodies("OUT") == in_order(0, 1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kills", [False, True], ids=["broken", "killed"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_fault_at_any_verb_loses_and_duplicates_nothing(full: Scene, after: bool, kills: bool) -> None:
    number, struck = 0, set[str]()
    while True:
        number += 1
        fault = Fault(number, after=after, kills=kills)
        full.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(1)")
        publish(full, *range(5))

        def is_finished() -> bool:
            if full.depth("OUT") == 5:
                full.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(100)")
            return full.depth("FULL") == 5 and full.settled()

        full.run(CONFIG, is_finished, fault=fault)
        assert full.bodies("FULL") == full.bodies("OUT") == in_order(*range(5)), f"verb {number}, {fault.struck}"
        assert full.depth(DEAD_LETTERS) == 0
        if not fault.struck:
            break
        struck.add(fault.struck)
    assert {"open", "get", "put", "commit"} <= struck
