"""Mappings with `split`, `limit` and `changes`: units of work, rejected parts, blocked queues, limits."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.administration.mapping_status import MappingStatus, RunnerState
from bridge.wire import cmqc
from tests.helpers.mapping_scene import DEAD_LETTERS, Scene, mapping_config
from tests.helpers.patience import until

SPLIT = {"split": "$", "payload": {"transform": {"n": "{@.n}"}}}


def array(*parts: tuple[int, str]) -> bytes:
    """Return an array of parts, each with a number and its queue."""
    return ("[" + ",".join(f'{{"n":{number},"to":"{queue}"}}' for number, queue in parts) + "]").encode()


def body(number: int) -> bytes:
    return b'{"n":%d}' % number


def send(scene: Scene, link: str, *payloads: bytes) -> None:
    if link == "L":
        scene.broker.send(*payloads)
    else:
        scene.publish("t/a", *payloads, Persistence=1)


def run(scene: Scene, config: Any, link: str, *payloads: bytes) -> MappingStatus:
    scene.run(config, scene.settled)
    send(scene, link, *payloads)
    return scene.run(config, lambda: scene.broker.quiet and scene.settled())


@pytest.mark.parametrize("link", ["L", "local"])
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_part_with_an_invalid_destination_dead_letters_the_whole_message(
    scene: Scene, link: str, guarantee: str
) -> None:
    config = mapping_config({"mqtt": "t/#", "link": link}, {"queue": "{@.to}"}, guarantee=guarantee, **SPLIT)
    wrong = array((2, "OUT"), (3, "NO.SUCH.QUEUE"), (4, "OUT"))
    status = run(scene, config, link, array((1, "OUT")), wrong, array((5, "OUT"), (6, "OUT")))
    assert scene.bodies("OUT") == [body(1), body(5), body(6)]
    (letter,) = scene.letters()
    assert letter.body == wrong and letter.header.Reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME
    assert letter.header.DestQName.rstrip(b" \0") in (b"NO.SUCH.QUEUE", b"t/#")
    assert (status.taken, status.moved, status.parts, status.dead_lettered) == (3, 2, 3, 1)


def test_a_part_that_is_too_long_dead_letters_the_message(scene: Scene) -> None:
    """Another part was put before, and must be backed out."""
    scene.mqsc("DEFINE QLOCAL(SHORT) MAXMSGL(100)")
    config = mapping_config({"mqtt": "t/#"}, {"queue": "{@.to}"}, **SPLIT)
    status = run(scene, config, "local", array((1, "OUT"), (2, "SHORT")), array((3, "OUT")))
    assert scene.bodies("OUT") == [body(3)]
    (letter,) = scene.letters()
    assert letter.body == array((1, "OUT"), (2, "SHORT"))
    assert letter.header.Reason == cmqc.MQRC_MSG_TOO_BIG_FOR_Q
    assert (status.moved, status.dead_lettered) == (1, 1)


def test_a_full_queue_delays_a_message_with_all_its_parts(scene: Scene) -> None:
    scene.mqsc("DEFINE QLOCAL(FULL) MAXDEPTH(2)")
    scene.put("FULL", b"in the way")
    config = mapping_config({"mqtt": "t/#"}, {"queue": "{@.to}"}, **SPLIT)
    scene.run(config, scene.settled)
    send(scene, "local", array((1, "OUT"), (2, "FULL"), (3, "FULL"), (4, "OUT")), array((5, "OUT")))
    runner = scene.runner(config)
    until(lambda: runner.status.state is RunnerState.RETRYING and runner.status.backouts > 2)
    assert (scene.depth("OUT"), scene.depth("FULL")) == (0, 1)
    scene.mqsc("ALTER QLOCAL(FULL) MAXDEPTH(10)")
    until(lambda: scene.depth("OUT") == 3)
    scene.stop(runner)
    assert scene.bodies("OUT") == [body(1), body(4), body(5)] and scene.bodies("FULL")[1:] == [body(2), body(3)]
    assert scene.depth(DEAD_LETTERS) == 0


def test_a_message_with_more_parts_than_the_queue_accepts_is_dead_lettered(scene: Scene) -> None:
    scene.mqsc("DEFINE QLOCAL(SMALL) MAXDEPTH(2)")
    config = mapping_config({"mqtt": "t/#"}, {"queue": "{@.to}"}, **SPLIT)
    many = array((1, "SMALL"), (2, "SMALL"), (3, "SMALL"))
    status = run(scene, config, "local", many, array((4, "SMALL"), (5, "SMALL")))
    assert scene.bodies("SMALL") == [body(4), body(5)]
    (letter,) = scene.letters()
    assert letter.body == many and letter.header.Reason == cmqc.MQRC_Q_FULL
    assert status.dead_lettered == 1 and "MAXDEPTH" in status.last_error


def test_a_dead_lettered_message_does_not_count_as_reported(scene: Scene) -> None:
    """Whether the mapping or its destination rejects it."""
    config = mapping_config(
        {"mqtt": "t/{to}"},
        {"queue": "{to}"},
        payload={"transform": {"n": "{$.n}"}},
        changes={"per": "{to}", "of": "{$.v}"},
    )
    status = run(scene, config, "local", b'{"v":1}', b'{"v":1,"n":2}', b'{"v":1,"n":3}')
    assert (status.dead_lettered, status.left_out) == (3, {})  # queue `a` does not exist
    scene.mqsc("DEFINE QLOCAL('a')")
    status = run(scene, config, "local", b'{"v":1}', b'{"v":1,"n":4}', b'{"v":1,"n":5}')
    assert scene.bodies("a") == [body(4)]
    assert (status.dead_lettered, status.left_out) == (1, {"unchanged": 1})


def test_units_of_work_with_many_parts_stay_below_the_limit_of_the_queue_manager(scene: Scene) -> None:
    scene.mqsc("ALTER QMGR MAXUMSGS(6000)")
    config = mapping_config({"mqtt": "t/#"}, {"queue": "OUT"}, split="$", batch={"messages": 100, "time": "1 s"})
    numbers = ",".join(map(str, range(1_000)))
    small, large = [b"[1,2]"] * 30, [f"[{numbers}]".encode()] * 9
    status = run(scene, config, "local", *small, *large, *small)
    assert scene.depth("OUT") == 2 * 30 + 9 * 1_000 + 2 * 30
    assert (status.moved, status.parts, status.dead_lettered) == (69, 9_120, 0)


def test_messages_omitted_by_a_limit_are_not_dead_lettered(scene: Scene) -> None:
    """The filter did not reject the messages that `limit` omits."""
    config = mapping_config(
        {"queue": "IN"}, {"mqtt": "done/a"}, limit={"per": "all", "every": "1 h"}, filter={"max_size": 5}
    )
    scene.put("IN", b"1", b"2", b"too long", b"3")
    status = scene.run(config, lambda: scene.depth("IN") == 0 and scene.settled())
    assert (status.moved, status.left_out, status.dead_lettered) == (1, {"limit": 2}, 1)


def test_limit_is_applied_again_to_a_message_that_waits_for_a_blocked_queue(scene: Scene) -> None:
    """Messages for other queues continue meanwhile, and the waiting message does not count as passed."""
    scene.mqsc("DEFINE QLOCAL(FULL) PUT(DISABLED)")
    config = mapping_config({"mqtt": "t/{to}"}, {"queue": "{to}"}, limit={"per": "{to}", "every": "1 h"})
    scene.run(config, scene.settled)
    runner = scene.runner(config)
    for number in range(3):
        scene.publish("t/FULL", b"f%d" % number, Persistence=1)
        scene.publish("t/OUT", b"%d" % number, Persistence=1)
    until(lambda: runner.status.blocked and runner.status.left_out == {"limit": 2})
    assert scene.bodies("OUT") == [b"0"]
    scene.mqsc("ALTER QLOCAL(FULL) PUT(ENABLED)")
    until(lambda: not runner.status.blocked and runner.status.left_out == {"limit": 4})
    scene.stop(runner)
    assert scene.bodies("FULL") == [b"f0"]


def test_forgotten_keys_are_a_limit_that_names_the_mapping(scene: Scene) -> None:
    reached = []
    scene.environment.on_limit = lambda *arguments: reached.append(arguments)
    config = mapping_config({"mqtt": "t/{id}"}, {"queue": "OUT"}, limit={"per": "{id}", "every": 60, "max_keys": 2})
    scene.run(config, scene.settled)
    for number in range(5):
        scene.publish(f"t/{number}", b"x", Persistence=1)
    scene.run(config, scene.settled)
    assert {(limit, mapping) for limit, mapping, _ in reached} == {("max_keys", "map")}
    assert sum(number for _, _, number in reached) == 3


def test_a_rejected_part_does_not_affect_a_message_with_the_same_identifier(scene: Scene) -> None:
    scene.mqsc("ALTER QMGR MAXMSGL(32768)")
    scene.mqsc("DEFINE SUB('S') TOPICSTR('t') DEST('OUT')")
    long = "x" * 20_000  # fits once
    wrong = f'[{{"text":"2"}},{{"text":"{long}"}}]'.encode()
    scene.put("IN", b'[{"text":"1"}]', wrong, b'[{"text":"3"}]', MsgId=b"same".ljust(24, b"\0"))
    config = mapping_config({"queue": "IN"}, {"mqtt": "t"}, split="$", payload={"transform": {"n": "{@.text}{@.text}"}})
    status = scene.run(config, lambda: scene.depth("IN") == 0)
    assert scene.bodies("OUT") == [b'{"n":"11"}', b'{"n":"33"}']
    assert [letter.body for letter in scene.letters()] == [wrong]
    assert (status.moved, status.dead_lettered) == (2, 1)
