"""Messages that no filter accepts go to the mapping with `otherwise`, each to exactly one mapping."""

from __future__ import annotations

from bridge.config.mapping import ConfiguredNames
from tests.helpers.mapping_scene import Scene, mapping_config
from tests.helpers.patience import until

HOT = mapping_config({"mqtt": "plant/#"}, {"queue": "OUT"}, filter={"json": "$.temp > 30"})
REST = mapping_config({"mqtt": "plant/#"}, {"queue": "IN"}, otherwise=["hot"])
REST.resolve({"hot": HOT}, ConfiguredNames())


def test_each_message_goes_to_one_mapping_and_the_others_count_it_as_filtered(scene: Scene) -> None:
    hot, rest = scene.runner(HOT, "hot"), scene.runner(REST, "rest")
    until(lambda: hot.status.state == rest.status.state == "running")
    bodies = [b'{"temp": %d}' % number for number in (20, 31, 30, 45)]
    scene.publish("plant/a", *bodies, b"no JSON", Persistence=1)
    until(lambda: hot.status.taken == rest.status.taken == 5)
    scene.stop(hot)
    scene.stop(rest)
    assert scene.bodies("OUT") == [bodies[1], bodies[3]]
    assert scene.bodies("IN") == [bodies[0], bodies[2], b"no JSON"]
    assert (hot.status.filtered, rest.status.filtered) == (3, 2)
