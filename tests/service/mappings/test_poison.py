"""A message that cannot go where it should: tried again, then on the dead-letter queue with the reason; the others go on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bridge.mapping.message import Message
from bridge.mq.interface import MQOD, Property
from bridge.service.mappings.status import State
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.patience import until
from tests.service.mappings.scene import DEAD_LETTERS, Scene, mapping_config

POISON = b"poison: long, and no JSON"
BODIES = [b'{"n":1}', b'{"n":2}', POISON, b'{"n":4}', POISON, b'{"n":6}']
RIGHT = [body for body in BODIES if body != POISON]
BACKOUTS = 2


class Case(msgspec.Struct, kw_only=True):
    """What makes a message poison, and what the MQDLH says of it."""

    reason: int
    destination: bytes = b"OUT.X"
    #: MQSC beforehand
    script: str = ""
    #: the template of the queue; `to` is the last level of the topic
    queue: str = "{to}"
    payload: str = "bytes"
    #: whether it is tried again before it is given up
    backed_out: bool = True


CASES = {
    "queue full": Case(reason=cmqc.MQRC_Q_FULL, script="DEFINE QLOCAL(OUT.X) MAXDEPTH(0)"),
    "put inhibited": Case(reason=cmqc.MQRC_PUT_INHIBITED, script="DEFINE QLOCAL(OUT.X) PUT(DISABLED)"),
    "no such queue": Case(reason=cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    "too long for its queue": Case(
        reason=cmqc.MQRC_MSG_TOO_BIG_FOR_Q, script="DEFINE QLOCAL(OUT.X) MAXMSGL(10)"
    ),
    "a template that cannot be filled": Case(
        reason=cmqc.MQRC_PROPERTY_NOT_AVAILABLE, queue="{usr.only}", destination=b"t/+", backed_out=False
    ),
    "a payload that is not JSON": Case(
        reason=cmqc.MQRC_FORMAT_ERROR, queue="OUT", payload="json", destination=b"t/+", backed_out=False
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, scene: Scene) -> Case:
    made: Case = CASES[request.param]
    if made.script:
        scene.mqsc(made.script)
    return made


def send(scene: Scene, link: str) -> None:
    """All bodies in turn, from the broker or as a local client would."""
    for body in BODIES:
        poison = body == POISON
        topic, only = ("t/OUT.X", {}) if poison else ("t/OUT", {"only": "OUT"})
        if link == "L":
            scene.broker.send(body, topic=topic, properties=only)
        else:
            od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
            properties = [Property(name=name, value=value) for name, value in only.items()]
            scene.application.put1(od, Message(MQMD(Persistence=1), body), properties=properties)


@pytest.mark.parametrize("link", ["L", "local"])
@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_poison_goes_to_the_dead_letter_queue_and_the_others_where_they_should(
    scene: Scene, case: Case, guarantee: str, link: str
) -> None:
    config = mapping_config(
        {"mqtt": "t/{to}", "link": link},
        {"queue": case.queue},
        guarantee=guarantee,
        payload=case.payload,
        backouts=BACKOUTS,
    )
    scene.run(config, scene.settled)
    send(scene, link)
    letters = len(BODIES) - len(RIGHT)
    status = scene.run(config, lambda: scene.depth(DEAD_LETTERS) >= letters and scene.broker.quiet and scene.settled())
    # Neither lost nor doubled, and in order.
    assert scene.bodies("OUT") == RIGHT
    found = scene.letters()
    assert [letter.body for letter in found] == [POISON] * letters
    for letter in found:
        assert letter.header.Reason == case.reason, cmqc.reason_name(letter.header.Reason)
        shown = case.destination if case.backed_out or link == "local" else b"L: " + case.destination
        assert letter.header.DestQName.rstrip(b" \0") == shown
        assert letter.header.DestQMgrName.rstrip(b" \0") == b"QM1"
        assert letter.header.PutApplName.rstrip(b" \0") == b"map"
    assert (status.taken, status.moved, status.dead_lettered) == (len(BODIES), len(RIGHT), letters)
    # One that stands behind others is backed out with them once more.
    expected = range(letters * BACKOUTS, letters * (BACKOUTS + 1) + 1) if case.backed_out else range(1)
    assert status.backouts in expected
    assert status.last_error


def test_a_destination_that_recovers_gets_all_in_order(scene: Scene) -> None:
    """Full for a while: what is refused is tried again, and what stands behind it waits."""
    config = mapping_config({"mqtt": "t/a"}, {"queue": "OUT"}, backouts=1000)
    scene.run(config, scene.settled)
    scene.mqsc("ALTER QLOCAL(OUT) MAXDEPTH(2)")
    numbers = [b"%d" % number for number in range(6)]
    scene.publish("t/a", *numbers, Persistence=1)
    runner = scene.runner(config)
    until(lambda: runner.status.state is State.RETRYING)
    found = scene.bodies("OUT")
    assert found == numbers[: len(found)]
    scene.mqsc("ALTER QLOCAL(OUT) MAXDEPTH(100)")
    until(lambda: scene.depth("OUT") + len(found) >= len(numbers))
    scene.stop(runner)
    assert found + scene.bodies("OUT") == numbers
    assert scene.depth(DEAD_LETTERS) == 0
    assert runner.status.dead_lettered == 0


@pytest.mark.parametrize("link", ["L", "local"])
@pytest.mark.parametrize("how", ["MAXDEPTH(0)", "PUT(DISABLED)"])
def test_while_the_dead_letter_queue_takes_nothing_the_mapping_waits(scene: Scene, link: str, how: str) -> None:
    config: Any = mapping_config(
        {"mqtt": "t/{to}", "link": link}, {"queue": "{to}"}, guarantee="exactly-once", backouts=0
    )
    scene.run(config, scene.settled)
    scene.mqsc(f"ALTER QLOCAL({DEAD_LETTERS}) {how}")
    send(scene, link)
    runner = scene.runner(config)
    until(lambda: runner.status.state is State.STUCK)
    assert "dead-letter queue" in runner.status.last_error
    # What stands before the poison is through; nothing else is gone.
    scene.mqsc(f"ALTER QLOCAL({DEAD_LETTERS}) MAXDEPTH(100) PUT(ENABLED)")
    until(lambda: scene.depth(DEAD_LETTERS) == 2 and scene.depth("OUT") == len(RIGHT) and scene.broker.quiet)
    until(lambda: runner.status.state is State.RUNNING)
    scene.stop(runner)
    assert scene.bodies("OUT") == RIGHT
    assert [letter.body for letter in scene.letters()] == [POISON, POISON]


@pytest.mark.parametrize(("position", "most"), [(150, 8)])
def test_those_before_a_poison_message_are_one_unit_of_work(scene: Scene, position: int, most: int) -> None:
    """It costs a few backouts, however many stand before it."""
    config = mapping_config({"queue": "IN"}, {"mqtt": "{usr.to}"}, backouts=1, batch={"time": "10 s"})
    scene.mqsc("DEFINE TOPIC(SHUT) TOPICSTR('shut') PUB(DISABLED)\nDEFINE SUB(DONE) TOPICSTR('open') DEST(OUT)")
    for number in range(200):
        to = [Property(name="to", value="shut" if number == position else "open")]
        scene.application.put1(MQOD(ObjectName="IN"), Message(MQMD(), b"%d" % number), properties=to)
    status = scene.run(config, lambda: scene.depth("IN") == 0 and scene.settled())
    assert scene.bodies("OUT") == [b"%d" % number for number in range(200) if number != position]
    assert status.dead_lettered == 1
    assert status.commits + status.backouts <= most


@pytest.mark.parametrize("link", ["L", "local"])
@pytest.mark.parametrize("others", ["dead-letter", "discard"])
def test_what_the_filter_of_a_queue_does_not_take(scene: Scene, link: str, others: str) -> None:
    """Nobody else takes it from there: it is not lost, unless the mapping says so."""
    config = mapping_config(
        {"queue": "IN"}, {"mqtt": "t/a", "link": link}, filter={"json": "$.n > 1", "others": others}
    )
    scene.put("IN", b'{"n":1}', b'{"n":2}', b'{"n":3}')
    status = scene.run(config, lambda: scene.depth("IN") == 0)
    letters = scene.letters()
    assert [letter.body for letter in letters] == ([b'{"n":1}'] if others == "dead-letter" else [])
    assert all(letter.header.Reason == cmqc.MQRC_NO_SUBS_MATCHED for letter in letters)
    assert (status.moved, status.filtered, status.dead_lettered) == (2, 1 - len(letters), len(letters))
