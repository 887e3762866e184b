"""The guarantees, whichever verb or call breaks or kills the bridge: before, during or after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.helpers.mapping_broker import LinkFault
from tests.helpers.mapping_scene import DEAD_LETTERS, Fault, Scene, mapping_config

# A killed bridge ends by an unhandled exception in its threads.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

GUARANTEES = ("at-most-once", "at-least-once", "exactly-once")
NUMBERS = [b"%d" % number for number in range(6)]
#: The numbers as elements of arrays, one of them empty.
ARRAYS = [b"[0]", b"[1,2]", b"[]", b"[3]", b"[4]", b"[5]"]
SPLIT = {"split": "$"}
#: Each number twice: report by exception omits the second one.
TWICE = [number for number in NUMBERS for _ in range(2)]
CHANGES = {"changes": {"per": "{topic}", "of": "{text}"}}
BATCH = {"messages": 2, "time": "1 s"}
#: If messages may be lost, a fault loses at most one unit of work.
FEW: Any = BATCH["messages"]


class Case(msgspec.Struct):
    """A mapping, a way to send messages to it, a condition for its end, and the received messages."""

    config: Any
    send: Callable[[Scene], None]
    done: Callable[[Scene], bool]
    arrived: Callable[[Scene], list[bytes]]


def _local(source: dict[str, str], destination: dict[str, str], send: Callable[[Scene], None], **steps: Any) -> Case:
    return Case(
        mapping_config(source, destination, guarantee="exactly-once", batch=BATCH, **steps),
        send,
        lambda scene: scene.settled(),
        lambda scene: scene.bodies("OUT"),
    )


def _from_link(guarantee: str, payloads: Sequence[bytes] = NUMBERS, **steps: Any) -> Case:
    qos = {"at-most-once": 0, "at-least-once": 1, "exactly-once": 2}[guarantee]

    return Case(
        mapping_config({"mqtt": "t/#", "link": "L"}, {"queue": "OUT"}, guarantee=guarantee, batch=BATCH, **steps),
        lambda scene: scene.broker.send(*payloads, qos=qos),
        lambda scene: scene.broker.quiet and scene.settled(),
        lambda scene: scene.bodies("OUT"),
    )


def _to_link(guarantee: str) -> Case:
    exactly = guarantee == "exactly-once"
    return Case(
        mapping_config({"queue": "IN"}, {"mqtt": "t/a", "link": "L"}, guarantee=guarantee, batch=BATCH),
        lambda scene: scene.put("IN", *NUMBERS),
        lambda scene: scene.depth("IN") == 0 and scene.broker.quiet and scene.settled(),
        lambda scene: scene.broker.released_payloads if exactly else scene.broker.arrived,
    )


CASES = {
    "queue to local topic": _local({"queue": "IN"}, {"mqtt": "done/a"}, lambda scene: scene.put("IN", *NUMBERS)),
    "local topic to queue": _local(
        {"mqtt": "t/#"}, {"queue": "OUT"}, lambda scene: scene.publish("t/a", *NUMBERS, Persistence=1)
    ),
    **{f"link to queue, {guarantee}": _from_link(guarantee) for guarantee in GUARANTEES},
    **{f"queue to link, {guarantee}": _to_link(guarantee) for guarantee in GUARANTEES},
    "queue to local topic, split": _local(
        {"queue": "IN"}, {"mqtt": "done/a"}, lambda scene: scene.put("IN", *ARRAYS), **SPLIT
    ),
    "link to queue, split": _from_link("exactly-once", ARRAYS, **SPLIT),
    "local topic to queue, changes": _local(
        {"mqtt": "t/#"}, {"queue": "OUT"}, lambda scene: scene.publish("t/a", *TWICE, Persistence=1), **CHANGES
    ),
    "link to queue, changes": _from_link("exactly-once", TWICE, **CHANGES),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, scene: Scene) -> Case:
    """A mapping that has its subscription, and has run once."""
    scene.mqsc("DEFINE SUB(DONE) TOPICSTR('done/#') DEST(OUT)")
    chosen: Case = CASES[request.param]
    scene.run(chosen.config, scene.settled)
    return chosen


def check(scene: Scene, case: Case, fault: str, *, killed: bool) -> None:
    """Check the received messages against the guarantee."""
    arrived = case.arrived(scene)
    guarantee = case.config.guarantee
    if guarantee == "exactly-once":
        assert arrived == NUMBERS, fault
        assert scene.broker.arrived in ([], NUMBERS), fault
    elif guarantee == "at-least-once":
        assert list(dict.fromkeys(arrived)) == NUMBERS, fault
    else:
        assert all(number == 1 for number in Counter(arrived).values()), fault
        assert arrived == sorted(arrived), fault
        # Received QoS 0 messages that are not processed are lost with the process.
        assert len(arrived) >= len(NUMBERS) - (len(NUMBERS) if killed else FEW), fault
    assert scene.depth(DEAD_LETTERS) == 0, fault
    scene.broker.arrived.clear()
    scene.broker.released_payloads.clear()


@pytest.mark.parametrize("kills", [False, True], ids=["broken", "killed"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_fault_at_every_verb(scene: Scene, case: Case, after: bool, kills: bool) -> None:
    number, struck = 0, set[str]()
    while True:
        number += 1
        fault = Fault(number, after=after, kills=kills)
        case.send(scene)
        scene.run(case.config, lambda: case.done(scene), fault=fault)
        check(scene, case, f"verb {number}, {fault.struck}", killed=kills)
        if not fault.struck:
            break
        struck.add(fault.struck)
    assert {"open", "commit"} <= struck


@pytest.mark.parametrize("kills", [False, True], ids=["broken", "killed"])
@pytest.mark.parametrize("moment", ["before", "within", "after"])
def test_a_fault_at_every_call_of_the_link(scene: Scene, case: Case, moment: str, kills: bool) -> None:
    number, struck = 0, set[str]()
    while True:
        number += 1
        fault = LinkFault(number, moment, kills=kills)
        case.send(scene)
        scene.run(case.config, lambda: case.done(scene), link_fault=fault)
        check(scene, case, f"call {number}, {fault.struck}", killed=kills)
        if not fault.struck:
            break
        struck.add(fault.struck)
