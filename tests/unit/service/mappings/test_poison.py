"""Messages that cannot be put: retried, then dead-lettered with the reason. Other messages continue."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bridge.administration.mapping_status import RunnerState
from bridge.config.queue_manager import SET_ASIDE_QUEUE
from bridge.link.state import Limits
from bridge.mq.dead_letter_room import OVERHEAD
from bridge.mq.mqi import MQOD, Property
from bridge.service.log import JsonFormatter, entry_of
from bridge.telemetry.headers import rfh2_of
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.mapping_scene import DEAD_LETTERS, Scene, mapping_config
from tests.helpers.patience import until

POISON = b"poison: long, and no JSON"
BODIES = [b'{"n":1}', b'{"n":2}', POISON, b'{"n":4}', POISON, b'{"n":6}']
RIGHT = [body for body in BODIES if body != POISON]
BACKOUTS = 2


class Case(msgspec.Struct, kw_only=True):
    """The reason why a message cannot be put, and the expected MQDLH."""

    reason: int
    destination: bytes = b"OUT.X"
    #: MQSC beforehand
    script: str = ""
    #: template of the queue. `to` is the last level of the topic
    queue: str = "{to}"
    payload: str = "bytes"
    #: whether the destination exists and rejects the message
    mapped: bool = True


CASES = {
    "no such queue": Case(reason=cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    "too long for its queue": Case(
        reason=cmqc.MQRC_MSG_TOO_BIG_FOR_Q, script="DEFINE QLOCAL(OUT.X) MAXMSGL(10)"
    ),
    "a template that cannot be filled": Case(
        reason=cmqc.MQRC_PROPERTY_NOT_AVAILABLE, queue="{usr.only}", destination=b"t/+", mapped=False
    ),
    "a payload that is not JSON": Case(
        reason=cmqc.MQRC_FORMAT_ERROR, queue="OUT", payload="json", destination=b"t/+", mapped=False
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, scene: Scene) -> Case:
    chosen: Case = CASES[request.param]
    if chosen.script:
        scene.mqsc(chosen.script)
    return chosen


def send(scene: Scene, link: str) -> None:
    """Send all bodies in turn, via the broker or as a local client."""
    for body in BODIES:
        poison = body == POISON
        topic, only = ("t/OUT.X", {}) if poison else ("t/OUT", {"only": "OUT"})
        if link == "L":
            scene.broker.send(body, topic=topic, users=only)
        else:
            od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
            properties = [Property(name=name, value=value) for name, value in only.items()]
            scene.application.put1(od, Message(MQMD(Persistence=1), body), properties=properties)


@pytest.mark.parametrize("link", ["L", "local"])
@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_poison_messages_are_dead_lettered_and_others_arrive(
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
    # Neither lost nor duplicated, and in order.
    assert scene.bodies("OUT") == RIGHT
    letters_put = scene.letters()
    assert [letter.body for letter in letters_put] == [POISON] * letters
    for letter in letters_put:
        assert letter.header.Reason == case.reason, cmqc.reason_name(letter.header.Reason)
        destination = case.destination if case.mapped or link == "local" else b"L: " + case.destination
        assert letter.header.DestQName.rstrip(b" \0") == destination
        assert letter.header.DestQMgrName.rstrip(b" \0") == b"QM1"
        assert letter.header.PutApplName.rstrip(b" \0") == b"map"
    assert (status.taken, status.moved, status.dead_lettered) == (len(BODIES), len(RIGHT), letters)
    # Permanently rejected messages are not retried, and do not block others.
    assert status.backouts == 0
    assert status.last_error


def test_the_log_names_mapping_client_and_topic_of_a_dead_letter(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    config = mapping_config({"mqtt": "t/{to}"}, {"queue": "OUT"}, payload="json")
    scene.run(config, scene.settled)
    header = rfh2_of("pump-7", 1, 1, None)
    md = MQMD(Persistence=1, Format=cmqc.MQFMT_RF_HEADER_2)
    scene.application.put1(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="t/a"), Message(md, header + POISON))
    scene.run(config, lambda: scene.depth(DEAD_LETTERS) == 1 and scene.settled())
    (record,) = (record for record in caplog.records if record.getMessage().startswith("MQB5101W"))
    text = "MQB5101W mapping map: dead-lettered a message of client 'pump-7', topic 't/a' to queue "
    assert record.getMessage().startswith(text)
    entry = json.loads(JsonFormatter().format(record))
    assert (entry["mapping"], entry["client"], entry["topic"]) == ("map", "pump-7", "t/a")
    assert b"MQBRIDGE_CLIENT=pump-7\n" in entry_of(record)


@pytest.mark.parametrize("order", ["destination", "strict"])
@pytest.mark.parametrize("shut", ["MAXDEPTH(2)", "PUT(DISABLED)"])
def test_a_recovered_destination_gets_all_messages_in_order(scene: Scene, shut: str, order: str) -> None:
    config = mapping_config({"mqtt": "t/a"}, {"queue": "OUT"}, backouts=0, order=order)
    scene.run(config, scene.settled)
    scene.mqsc(f"ALTER QLOCAL(OUT) {shut}")
    numbers = [b"%d" % number for number in range(6)]
    room = 2 if "MAXDEPTH" in shut else 0
    scene.publish("t/a", *numbers, Persistence=1)
    runner = scene.runner(config)
    until(lambda: runner.status.state is RunnerState.RETRYING and scene.depth("OUT") == room)
    bodies = scene.bodies("OUT")
    assert bodies == numbers[: len(bodies)]
    scene.mqsc("ALTER QLOCAL(OUT) MAXDEPTH(100) PUT(ENABLED)")
    until(lambda: scene.depth("OUT") + len(bodies) >= len(numbers))
    scene.stop(runner)
    assert bodies + scene.bodies("OUT") == numbers
    assert scene.depth(DEAD_LETTERS) == 0
    assert runner.status.dead_lettered == 0


@pytest.mark.parametrize("source", [{"mqtt": "t/a"}, {"mqtt": "t/a", "link": "L"}, {"queue": "IN"}], ids=str)
def test_above_the_memory_watermark_a_mapping_waits_and_dead_letters_nothing(
    scene: Scene, source: dict[str, str]
) -> None:
    """A link reads from its broker only until its buffer is full, and continues in order when memory use is lower."""
    destination = {"mqtt": "t/out"} if "queue" in source else {"queue": "OUT"}
    scene.mqsc("DEFINE SUB(OUTPUT) TOPICSTR('t/out') DEST(OUT)")
    config = mapping_config(source, destination, backouts=0)
    scene.run(config, scene.settled)
    numbers = [b"%d" % number for number in range(6)]
    if "link" in source:
        scene.broker.send(*numbers)
    elif "queue" in source:
        scene.put("IN", *numbers, Persistence=1)
    else:
        scene.publish("t/a", *numbers, Persistence=1)
    memory = scene.queue_manager.memory
    memory.above = True
    runner = scene.runner(config)
    until(lambda: runner.status.state is RunnerState.RETRYING and runner.status.backouts > 5)
    assert scene.depth("OUT") == 0 and "MQRC_STORAGE_NOT_AVAILABLE" in runner.status.last_error
    memory.above = False
    until(lambda: scene.depth("OUT") == len(numbers))
    scene.stop(runner)
    assert scene.bodies("OUT") == numbers
    assert (scene.depth(DEAD_LETTERS), runner.status.dead_lettered) == (0, 0)


@pytest.mark.parametrize("link", ["L", "local"])
@pytest.mark.parametrize("how", ["MAXDEPTH(0)", "PUT(DISABLED)"])
def test_the_mapping_waits_while_the_dead_letter_queue_is_full(scene: Scene, link: str, how: str) -> None:
    config: Any = mapping_config(
        {"mqtt": "t/{to}", "link": link}, {"queue": "{to}"}, guarantee="exactly-once", backouts=0
    )
    scene.run(config, scene.settled)
    scene.mqsc(f"ALTER QLOCAL({DEAD_LETTERS}) {how}")
    send(scene, link)
    runner = scene.runner(config)
    until(lambda: runner.status.state is RunnerState.STUCK)
    assert "dead-letter queue" in runner.status.last_error
    # Messages before the poison message have arrived. No other message has left the queue.
    scene.mqsc(f"ALTER QLOCAL({DEAD_LETTERS}) MAXDEPTH(100) PUT(ENABLED)")
    until(lambda: scene.depth(DEAD_LETTERS) == 2 and scene.depth("OUT") == len(RIGHT) and scene.broker.quiet)
    until(lambda: runner.status.state is RunnerState.RUNNING)
    scene.stop(runner)
    assert scene.bodies("OUT") == RIGHT
    assert [letter.body for letter in scene.letters()] == [POISON, POISON]


@pytest.mark.parametrize(("position", "most"), [(150, 8)])
def test_messages_before_a_poison_message_are_one_unit_of_work(scene: Scene, position: int, most: int) -> None:
    """The poison message costs a few backouts, however many messages precede it."""
    config = mapping_config({"queue": "IN"}, {"mqtt": "{usr.to}"}, backouts=1, batch={"time": "10 s"})
    # A publication that cannot be delivered to a subscriber: MQRC_PUBLICATION_FAILURE, temporary or permanent.
    scene.mqsc(
        "DEFINE TOPIC(SHUT) TOPICSTR('shut') NPMSGDLV(ALL) USEDLQ(NO)\nDEFINE QLOCAL(FULL) MAXDEPTH(0)\n"
        "DEFINE SUB(NEVER) TOPICSTR('shut') DEST(FULL)\nDEFINE SUB(DONE) TOPICSTR('open') DEST(OUT)"
    )
    for number in range(200):
        to = [Property(name="to", value="shut" if number == position else "open")]
        scene.application.put1(MQOD(ObjectName="IN"), Message(MQMD(), b"%d" % number), properties=to)
    status = scene.run(config, lambda: scene.depth("IN") == 0 and scene.settled())
    assert scene.bodies("OUT") == [b"%d" % number for number in range(200) if number != position]
    assert status.dead_lettered == 1
    assert status.commits + status.backouts <= most


@pytest.mark.parametrize("link", ["L", "local"])
@pytest.mark.parametrize("others", ["dead-letter", "discard"])
def test_messages_of_a_queue_that_the_filter_rejects(scene: Scene, link: str, others: str) -> None:
    """No other program gets them, so they are dead-lettered unless the mapping discards them."""
    config = mapping_config(
        {"queue": "IN"}, {"mqtt": "t/a", "link": link}, filter={"json": "$.n > 1", "others": others}
    )
    scene.put("IN", b'{"n":1}', b'{"n":2}', b'{"n":3}')
    status = scene.run(config, lambda: scene.depth("IN") == 0)
    letters = scene.letters()
    assert [letter.body for letter in letters] == ([b'{"n":1}'] if others == "dead-letter" else [])
    assert all(letter.header.Reason == cmqc.MQRC_NO_SUBS_MATCHED for letter in letters)
    assert (status.moved, status.filtered, status.dead_lettered) == (2, 1 - len(letters), len(letters))


def test_a_mapping_from_the_dead_letter_queue_sets_invalid_messages_aside(scene: Scene) -> None:
    """A message that it cannot map is not retried forever, and does not block later messages.

    The message leaves the dead-letter queue, so no limit of dead letters applies to it.
    """
    scene.dead_letter_room.owner_bytes = 0
    config = mapping_config({"queue": DEAD_LETTERS}, {"mqtt": "t/{md.CorrelId|text}"}, backouts=0)
    scene.application.put1(MQOD(ObjectName=DEAD_LETTERS), Message(MQMD(CorrelId=b"\xff" * 24), b"1"))
    scene.application.put1(MQOD(ObjectName=DEAD_LETTERS), Message(MQMD(CorrelId=b"a"), b"2"))
    status = scene.run(config, lambda: scene.depth(DEAD_LETTERS) == 0)
    assert (status.moved, status.dead_lettered) == (1, 1)
    (letter,) = scene.letters(SET_ASIDE_QUEUE)
    assert (letter.body, letter.header.Reason) == (b"1", cmqc.MQRC_NOT_CONVERTED)
    assert letter.header.DestQName.decode() == DEAD_LETTERS


def test_without_the_queue_for_messages_set_aside_the_mapping_waits_and_names_the_remedy(scene: Scene) -> None:
    scene.mqsc(f"DELETE QLOCAL({SET_ASIDE_QUEUE})")
    config = mapping_config({"queue": DEAD_LETTERS}, {"mqtt": "t/{md.CorrelId|text}"}, backouts=0)
    scene.application.put1(MQOD(ObjectName=DEAD_LETTERS), Message(MQMD(CorrelId=b"\xff" * 24), b"1"))
    runner = scene.runner(config)
    until(lambda: "mqbridge mqsc-script" in runner.status.last_error, lambda: runner.status)
    assert runner.status.state == RunnerState.STUCK
    assert f"{SET_ASIDE_QUEUE} rejected a message" in runner.status.last_error
    assert "(hint: `mqbridge mqsc-script` defines it)" in runner.status.last_error
    scene.mqsc(f"DEFINE QLOCAL({SET_ASIDE_QUEUE})")
    until(lambda: scene.depth(DEAD_LETTERS) == 0)
    scene.stop(runner)
    assert [letter.body for letter in scene.letters(SET_ASIDE_QUEUE)] == [b"1"]


def test_a_payload_that_a_filter_cannot_evaluate_in_time_is_dead_lettered(scene: Scene) -> None:
    config = mapping_config(
        {"mqtt": "t/a", "link": "L"}, {"queue": "OUT"}, filter={"json": "!search($.a, '(x|xx)*[yz]')"}
    )
    hostile = b'{"a": "' + b"x" * 1_000 + b'"}'
    scene.broker.send(hostile, b'{"a": "x"}', topic="t/a", qos=1)
    scene.run(config, lambda: scene.broker.quiet and scene.settled())
    assert scene.bodies("OUT") == [b'{"a": "x"}']
    assert [letter.body for letter in scene.letters()] == [hostile]


def test_a_message_too_long_for_the_dead_letter_queue_is_not_acknowledged(scene: Scene) -> None:
    """The complete message is dead-lettered when the queue accepts it."""
    scene.mqsc(f"ALTER QLOCAL({DEAD_LETTERS}) MAXMSGL(1000)")
    config = mapping_config({"mqtt": "t/{to}", "link": "L"}, {"queue": "{to}"})
    scene.broker.send(b"x" * 1000, topic="t/NOWHERE", qos=1)
    runner = scene.runner(config)
    until(lambda: runner.status.state is RunnerState.STUCK)
    assert "raise MAXMSGL of the dead-letter queue" in runner.status.last_error
    assert not scene.broker.quiet
    scene.mqsc(f"ALTER QLOCAL({DEAD_LETTERS}) MAXMSGL(4194304)")
    until(lambda: scene.broker.quiet)
    scene.stop(runner)
    assert [letter.body for letter in scene.letters()] == [b"x" * 1000]


def test_a_request_is_answered_with_its_correl_id_or_its_msg_id(scene: Scene) -> None:
    """The stored request is found with either identifier, because applications use both conventions."""
    config = mapping_config(
        {"mqtt": "ask", "link": "L"}, {"queue": "OUT", "requests_queue": "IN"}, attributes={"reply_to_queue": "OUT"}
    )
    scene.broker.send(b"q", topic="ask", response_topic="answers/1", qos=1)
    scene.run(config, lambda: scene.depth("OUT") == 1 and scene.broker.quiet)
    (message,) = scene.take_messages("OUT")
    assert message.md.CorrelId == message.md.MsgId != cmqc.MQMI_NONE


# Links -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_broker_with_maximum_qos_1(scene: Scene, guarantee: str) -> None:
    """A persistent message is sent with QoS 1, which keeps at-least-once. Exactly-once waits for another broker."""
    config = mapping_config({"queue": "IN"}, {"mqtt": "t/a", "link": "L"}, guarantee=guarantee)
    scene.broker.limits = Limits(maximum_qos=1, retain_available=False)
    scene.put("IN", b"1", Persistence=1)
    if guarantee == "at-least-once":
        scene.run(config, lambda: scene.broker.arrived == [b"1"])
    else:
        runner = scene.runner(config)
        until(lambda: runner.status.state is RunnerState.STUCK)
        assert "QoS 1 at most" in runner.status.last_error
        scene.stop(runner)
        assert scene.depth("IN") == 1
    assert scene.depth(DEAD_LETTERS) == 0


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_message_that_the_broker_rejects_permanently_does_not_block_others(scene: Scene, guarantee: str) -> None:
    config = mapping_config({"queue": "IN"}, {"mqtt": "t/a", "link": "L"}, guarantee=guarantee, backouts=1_000)
    scene.broker.reason = 0x95
    scene.broker.refusing = lambda publication: publication.payload == b"bad"
    scene.put("IN", b"1", b"bad", b"2", Persistence=1)
    scene.run(config, lambda: scene.depth("IN") == 0 and scene.settled())
    assert sorted(scene.broker.arrived) == [b"1", b"2"]
    assert [letter.body for letter in scene.letters()] == [b"bad"]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_mapping_waits_for_a_broker_without_space(scene: Scene, guarantee: str) -> None:
    config = mapping_config({"queue": "IN"}, {"mqtt": "t/a", "link": "L"}, guarantee=guarantee, backouts=0)
    scene.broker.reason = 0x97
    refused: list[bytes] = []

    def refusing(publication: Any) -> bool:
        refused.append(publication.payload)
        return len(refused) < 20

    scene.broker.refusing = refusing
    scene.put("IN", b"1", Persistence=1)
    scene.run(config, lambda: scene.depth("IN") == 0 and scene.settled())
    assert scene.broker.arrived == [b"1"]
    assert scene.depth(DEAD_LETTERS) == 0


SOURCES: dict[str, dict[str, str]] = {
    "topic": {"mqtt": "t/{to}"},
    "link": {"mqtt": "t/{to}", "link": "L"},
    "queue": {"queue": "IN"},
}


def send_to(scene: Scene, source: str, *bodies: bytes) -> None:
    if source == "link":
        scene.broker.send(*bodies, topic="t/a")
    elif source == "topic":
        scene.publish("t/a", *bodies, Persistence=1)
    else:
        scene.put("IN", *bodies, Persistence=1)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("full", [None, "pause", "discard"])
def test_a_mapping_whose_dead_letters_reach_the_limit(
    scene: Scene, caplog: pytest.LogCaptureFixture, source: str, full: str | None
) -> None:
    """A mapping of a queue waits for an administrator. A device does not stop other mappings, unless that is configured."""
    pauses = full == "pause" or (full is None and source == "queue")
    destination = {"mqtt": "t/out"} if source == "queue" else {"queue": "OUT"}
    scene.mqsc("DEFINE SUB(OUTPUT) TOPICSTR('t/out') DEST(OUT)")
    config = mapping_config(SOURCES[source], destination, payload="json", dead_letters_full=full)
    room = scene.dead_letter_room
    room.owner_bytes = 2 * (len(POISON) + OVERHEAD)
    reached: list[tuple[str, tuple[str, str]]] = []
    room.on_full = lambda limit, owner: reached.append((limit, owner))
    scene.run(config, scene.settled)
    send_to(scene, source, b"1", POISON, b"2", POISON, b"3", POISON, b"4", POISON, b"5")
    runner = scene.runner(config)
    if pauses:
        until(lambda: runner.status.state is RunnerState.STUCK and runner.status.backouts > 3)
        assert "limits.dead_letter_bytes" in runner.status.last_error
        assert room.used_by(("mapping", "map")) == scene.depth(DEAD_LETTERS) * (len(POISON) + OVERHEAD)
        room.owner_bytes = 100_000
    until(lambda: scene.depth("OUT") == 5)
    until(lambda: runner.status.taken == 9)
    scene.stop(runner)
    assert scene.bodies("OUT") == [b"1", b"2", b"3", b"4", b"5"]
    assert {*reached} == {("dead_letter_bytes", ("mapping", "map"))}
    status = runner.status
    assert status.dead_lettered == scene.depth(DEAD_LETTERS) == (4 if pauses else 2)
    assert status.discarded == ({} if pauses else {"MQRC_FORMAT_ERROR": 2})
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("MQB5011E")]
    assert len(lines) == (0 if pauses else 1), "one line a minute"
    assert room.used_by(("mapping", "map")) == status.dead_lettered * (len(POISON) + OVERHEAD)


def test_a_publication_without_the_name_of_its_publisher(scene: Scene) -> None:
    """On IBM MQ, the copy for a mapping has the user of its subscription in the MQMD."""
    scene.environment.names_publishers = True
    config = mapping_config({"mqtt": "t/{to}"}, {"queue": "{to}", "as": "publisher"})
    runner = scene.runner(config)
    until(lambda: runner.status.state == RunnerState.RUNNING)
    format_ = cmqc.MQFMT_RF_HEADER_2
    scene.publish("t/OUT", rfh2_of("client", 1, 1, None, user="alice") + b"1", Format=format_)
    scene.publish("t/OUT", rfh2_of("client", 1, 1, None) + b"2", Format=format_)
    scene.publish("t/OUT", rfh2_of("client", 1, 1, None, user="bob") + b"3", Format=format_)
    until(lambda: runner.status.taken == 3, lambda: runner.status)
    scene.stop(runner)
    assert [
        (message.md.UserIdentifier.rstrip(b" \0"), message.data[-1:]) for message in scene.take_messages("OUT")
    ] == [
        (b"alice", b"1"),
        (b"bob", b"3"),
    ]
    (letter,) = scene.letters()
    assert letter.header.Reason == cmqc.MQRC_NOT_AUTHORIZED
    assert "does not name its publisher" in runner.status.last_error
