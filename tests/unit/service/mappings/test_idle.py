"""Idle mappings make no calls and have no threads. On IBM MQ, their waits become longer."""

from __future__ import annotations

import threading
import time
from typing import Any

import msgspec
import pytest

from bridge.administration.mapping_status import RunnerState
from bridge.mq.mqi import GetOptions, Got, MQError
from bridge.mq.worker import PROBE_INTERVAL
from bridge.service.mappings import runner as runner_module
from bridge.service.mappings.runner import Runner
from bridge.wire import cmqc
from tests.helpers.mapping_scene import Scene, mapping_config
from tests.helpers.patience import until

MANY = 200


def config(number: int) -> Any:
    """Mappings of each kind in turn."""
    queue, topic = f"Q{number}", f"t/{number}"
    return (
        mapping_config({"mqtt": f"{topic}/#"}, {"queue": queue}),
        mapping_config({"queue": queue}, {"mqtt": topic}),
        mapping_config({"mqtt": "t/#", "link": "L"}, {"queue": queue}),
        mapping_config({"queue": queue}, {"mqtt": topic, "link": "L"}),
    )[number % 4]


def test_200_idle_mappings_make_no_calls_and_have_no_threads(scene: Scene) -> None:
    before = threading.active_count()
    for number in range(MANY):
        scene.mqsc(f"DEFINE QLOCAL(Q{number})")
    runners = [scene.runner(config(number), f"m{number}") for number in range(MANY)]
    until(lambda: all(runner.parked and runner.status.state is RunnerState.RUNNING for runner in runners))
    # One thread starts all others.
    until(lambda: threading.active_count() <= before + 1)
    verbs = scene.fault.calls
    # They continue when there are messages.
    for number in range(MANY):
        match number % 4:
            case 0:
                scene.publish(f"t/{number}/a", b"x")
            case 2:
                scene.broker.send(b"x", qos=0)
            case _:
                scene.put(f"Q{number}", b"x")
    until(lambda: sum(runner.status.moved for runner in runners) == MANY)
    assert scene.fault.calls > verbs + MANY
    until(lambda: all(runner.parked for runner in runners))
    verbs = scene.fault.calls
    scene.put("IN", b"no mapping reads this queue")
    for runner in runners:
        scene.stop(runner)
    assert verbs <= scene.fault.calls <= verbs + 6 * MANY, "a stop backs out and disconnects"


def test_a_blocked_mapping_keeps_its_thread_and_the_others_continue(scene: Scene) -> None:
    scene.mqsc("DEFINE QLOCAL(FULL) MAXDEPTH(1)")
    scene.put("FULL", b"x")
    blocked = [scene.runner(mapping_config({"mqtt": f"b/{n}"}, {"queue": "FULL"}), f"b{n}") for n in range(50)]
    free = scene.runner(mapping_config({"mqtt": "free"}, {"queue": "OUT"}), "free")
    until(lambda: all(runner.status.state is RunnerState.RUNNING for runner in (*blocked, free)))
    for number in range(50):
        scene.publish(f"b/{number}", b"x", Persistence=1)
    until(lambda: all(runner.status.state is RunnerState.RETRYING for runner in blocked))
    until(lambda: free.parked)
    scene.publish("free", b"1", Persistence=1)
    until(lambda: free.status.moved == 1)
    for runner in (*blocked, free):
        scene.stop(runner)


def test_a_source_that_is_get_disabled_while_the_mapping_is_idle(scene: Scene) -> None:
    runner = scene.runner(mapping_config({"queue": "IN"}, {"mqtt": "t"}))
    until(lambda: runner.parked)
    scene.mqsc("ALTER QLOCAL(IN) GET(DISABLED)")
    until(lambda: runner.status.state is RunnerState.STUCK)
    scene.mqsc("ALTER QLOCAL(IN) GET(ENABLED)")
    until(lambda: runner.status.state is RunnerState.RUNNING and runner.parked)
    scene.stop(runner)


class SilentConnection:
    """A connection to a queue manager that does not announce messages. A waiting MQGET returns immediately."""

    def __init__(self, inner: Any, waits: list[int]) -> None:
        self._inner, self._waits = inner, waits

    def __getattr__(self, name: str) -> Any:
        if name == "announce":
            raise AttributeError(name)
        return getattr(self._inner, name)

    def get(self, handle: int, options: GetOptions) -> Got:
        waits = bool(options.Options & cmqc.MQGMO_WAIT)
        options = msgspec.structs.replace(options, Options=options.Options & ~cmqc.MQGMO_WAIT)
        try:
            return self._inner.get(handle, options)
        except MQError as error:
            if waits and error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                self._waits.append(options.WaitInterval)
            raise


def test_other_queue_managers_are_polled_less_and_less_often(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "WAIT", 0.25)
    waits: list[int] = []
    connect = scene.connect
    monkeypatch.setattr(scene, "connect", lambda purpose: SilentConnection(connect(purpose), waits))
    runner: Runner = scene.runner(mapping_config({"queue": "IN"}, {"mqtt": "t"}))
    until(lambda: len(waits) >= 20)
    assert waits[:7] == [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]
    assert not runner.parked
    assert time.monotonic() - runner._probed < PROBE_INTERVAL, "MQGET is a probe"
    count = len(waits)
    scene.put("IN", b"1")
    until(lambda: runner.status.moved == 1)
    until(lambda: 250 in waits[count:])
    scene.stop(runner)
