"""Loops at run time: hop marks end them, through queues, topics, and a link of MQTT 5."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mapping.loops import LoopGuard
from tests.helpers.mapping_scene import LINK, Scene, mapping_config
from tests.helpers.patience import until

#: Mappings that mirror topics in both directions, by name.
MIRRORS: dict[str, dict[str, Any]] = {
    "to one link and back": {
        "out": mapping_config({"topic": "m/#"}, {"mqtt": "{topic}", "link": "L"}),
        "in": mapping_config({"mqtt": "m/#", "link": "L"}, {"topic": "{topic}"}),
    },
    "through a queue": {
        "out": mapping_config({"mqtt": "m/#"}, {"queue": "IN"}),
        "in": mapping_config({"queue": "IN"}, {"mqtt": "m/a"}),
    },
    "between two topics": {
        "out": mapping_config({"topic": "m/#"}, {"mqtt": "n/{topic}"}),
        "in": mapping_config({"topic": "n/m/#"}, {"mqtt": "m/a"}),
    },
}


@pytest.mark.parametrize("mirror", MIRRORS)
def test_loops_are_cut(scene: Scene, mirror: str) -> None:
    """Each publication passes each mapping at most once. A later one proves that none is in transit."""
    mappings = MIRRORS[mirror]
    # The broker sends all publications to its subscribers, with their user properties.
    scene.broker.echoes = True
    scene.environment.guard = LoopGuard(mappings, scene.name, {"L": LINK})
    scene.mqsc("DEFINE SUB(WATCH) TOPICSTR('m/#') DEST(OUT)")
    runners = {name: scene.runner(config, name) for name, config in mappings.items()}
    until(lambda: all(runner.status.state == "running" for runner in runners.values()))
    for round_ in range(1, 4):
        scene.publish("m/a", b"%d" % round_, Persistence=1)
        until(lambda round_=round_: sum(runner.status.cut for runner in runners.values()) == round_)  # type: ignore[misc]
    for runner in runners.values():
        scene.stop(runner)
    assert scene.bodies("OUT") == [b"1", b"2", b"3"]
    assert sum(runner.status.moved for runner in runners.values()) == 3
    assert sum(runner.status.dead_lettered for runner in runners.values()) == 0
