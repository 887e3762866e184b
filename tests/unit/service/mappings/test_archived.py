"""Archive rows of mappings: one row for each message, after the commit of its unit of work, whatever breaks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from bridge.archive.events import MappedEvent, events_of, together
from bridge.archive.rows import Rows
from bridge.archive.schema import NAMES
from bridge.mapping.loops import LoopGuard
from bridge.service.events import CAME_ROUND, FILTERED
from bridge.service.recorder import MappingRecorder
from bridge.wire import cmqc
from tests.helpers.mapping_scene import Fault, Scene, mapping_config

Settings = dict[str, Any]


class Archive:
    """The archive of a bridge. Rows are made as in its process."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._rows = Rows(itertools.count(1), payloads=True)

    def mapping(self, name: str) -> MappingRecorder:
        return MappingRecorder(name, self)

    def add(self, now: int, data: bytes, rows: int) -> None:
        (event,) = events_of(together([data]) + data)
        assert isinstance(event, MappedEvent)
        event_rows = self._rows.mapped(event)
        assert len(event_rows) == rows
        self.rows += [dict(zip(NAMES, row, strict=True)) for row in event_rows]

    def of(self, *columns: str) -> list[Any]:
        return [tuple(row[name] for name in columns) for row in self.rows]


@pytest.fixture
def archive(scene: Scene) -> Archive:
    recorder = Archive()
    scene.environment.recorder = recorder.mapping
    return recorder


class Case(msgspec.Struct):
    """A mapping, a way to send messages to it, a condition for its end, and the rows."""

    config: Any
    send: Callable[[Scene], None]
    done: Callable[[Scene], bool]
    outcome: str
    topic: str
    destination: str


def put(scene: Scene) -> None:
    scene.put("IN", b"1", b"2", Persistence=1)


def empty(scene: Scene) -> bool:
    return scene.depth("IN") == 0 and scene.broker.quiet and scene.settled()


def to_link(guarantee: str, outcome: str) -> Case:
    config = mapping_config({"queue": "IN"}, {"mqtt": "t/a", "link": "L"}, guarantee=guarantee)
    return Case(config, put, empty, outcome, "IN", "t/a")


def from_link(guarantee: str, qos: int) -> Case:
    config = mapping_config({"mqtt": "t/#", "link": "L"}, {"queue": "OUT"}, guarantee=guarantee)
    return Case(config, lambda scene: scene.broker.send(b"1", b"2", qos=qos), empty, "put", "t/a", "OUT")


CASES = {
    "queue to local topic": Case(
        mapping_config({"queue": "IN"}, {"mqtt": "done/a"}, guarantee="exactly-once"), put, empty, "put", "IN", "done/a"
    ),
    "local topic to queue": Case(
        mapping_config({"mqtt": "t/#"}, {"queue": "OUT"}, guarantee="exactly-once"),
        lambda scene: scene.publish("t/a", b"1", b"2", Persistence=1), empty, "put", "t/a", "OUT",
    ),
    "queue to link, at-most-once": to_link("at-most-once", "delivered"),
    "queue to link, at-least-once": to_link("at-least-once", "acknowledged"),
    "queue to link, exactly-once": to_link("exactly-once", "acknowledged"),
    "link to queue, at-most-once": from_link("at-most-once", 0),
    "link to queue, at-least-once": from_link("at-least-once", 1),
    "link to queue, exactly-once": from_link("exactly-once", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_message_is_a_row(scene: Scene, archive: Archive, name: str) -> None:
    case = CASES[name]
    scene.run(case.config, scene.settled)  # it now has its subscription
    case.send(scene)
    scene.run(case.config, lambda: case.done(scene) and len(archive.rows) >= 2)
    assert archive.of("direction", "client_id", "outcome", "reason", "topic", "destination", "payload", "size") == [
        ("mapped", "map", case.outcome, None, case.topic, case.destination, payload, 1) for payload in (b"1", b"2")
    ]
    assert all(row["received"] <= row["settled"] for row in archive.rows)
    ids = [row["msg_id"] for row in archive.rows]
    if "link to" in name:
        assert ids == [None, None]
    else:
        assert all(ids) and len(set(ids)) == 2


@pytest.mark.parametrize("number", range(3, 16, 2))
def test_a_backed_out_message_is_archived_once(scene: Scene, archive: Archive, number: int) -> None:
    """Whichever verb breaks the connection, rows and messages are equal, except for a commit with unknown result."""
    config = mapping_config({"queue": "IN"}, {"mqtt": "done/a"}, guarantee="exactly-once", batch={"messages": 2})
    scene.mqsc("DEFINE SUB(DONE) TOPICSTR('done/#') DEST(OUT)")
    scene.run(config, scene.settled)
    scene.put("IN", *(b"%d" % number for number in range(6)), Persistence=1)
    scene.run(config, lambda: empty(scene), fault=Fault(number))
    arrived = scene.bodies("OUT")
    assert arrived == [b"%d" % number for number in range(6)]
    payloads = [row["payload"] for row in archive.rows]
    assert payloads == arrived


def test_rejected_messages_have_a_reason(scene: Scene, archive: Archive) -> None:
    config = mapping_config(
        {"mqtt": "t/#"}, {"queue": "OUT.X"}, guarantee="exactly-once", backouts=1, filter={"min_size": 2}
    )
    scene.run(config, scene.settled)
    scene.publish("t/taken", b"12", Persistence=1)
    scene.publish("t/other", b"2", Persistence=1)
    scene.run(config, lambda: scene.settled() and len(archive.rows) == 2)
    reason = f"MQRC_UNKNOWN_OBJECT_NAME ({cmqc.MQRC_UNKNOWN_OBJECT_NAME})"
    assert archive.of("outcome", "reason", "topic", "destination") == [
        ("dead-lettered", reason, "t/taken", "OUT.X"),
        ("discarded", FILTERED, "t/other", None),
    ]


def test_messages_of_a_loop_are_discarded(scene: Scene, archive: Archive) -> None:
    config = mapping_config({"mqtt": "t/#"}, {"topic": "t/again"}, guarantee="exactly-once")
    scene.run(config, scene.settled)
    scene.publish("t/a", b"1", Persistence=1)
    scene.run(config, lambda: scene.settled() and len(archive.rows) == 2)
    assert isinstance(scene.environment.guard, LoopGuard)
    assert archive.of("outcome", "reason", "topic") == [("put", None, "t/a"), ("discarded", CAME_ROUND, "t/again")]
