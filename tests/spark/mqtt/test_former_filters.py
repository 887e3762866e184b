"""Publications in the spool of a topic filter that is no longer read."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.link import LinkConfig
from bridge.spark.mq.queue_manager import QueueManagerOptions
from bridge.spark.mqtt.broker import Broker
from bridge.spark.mqtt.subscriber import MqttSourceOptions, former_spools
from bridge.spark.spool import StreamOptions
from bridge.spark.spool_inventory import Positions
from bridge.spark.spool_return import NotReturned, put_back
from tests.helpers.mosquitto import Mosquitto, publish
from tests.helpers.patience import until
from tests.spark.conftest import Queues
from tests.spark.mqtt.spooler import session_made, spooling


def test_publications_become_messages(queues: Queues, mosquitto: Mosquitto, tmp_path: Path) -> None:
    session_made(mosquitto.port, tmp_path, "former/#")
    with spooling(mosquitto.port, tmp_path, "former/#") as spool:
        for number in range(3):
            publish(mosquitto.port, f"former/{number}", f"{number}", qos=2)
        until(lambda: sum(segment.rows for segment in spool.between(spool.first - 1, spool.last)) == 3)
    # The query now reads another topic.
    options = MqttSourceOptions(
        broker=Broker(link=LinkConfig(host="127.0.0.1")),
        topic_filters=("x",),
        stream=StreamOptions(spool=str(tmp_path)),
    )
    former = former_spools(options)
    assert list(former) == ["former/#"] and former["former/#"].last == spool.last
    for client in former.values():
        client.close()
    target = queues.queue()
    with QueueManagerOptions(data_directory=str(queues.directory)).connected() as connection:
        with pytest.raises(NotReturned, match=r"former/# is a topic filter, .* name a queue for them with --to"):
            put_back(connection, str(tmp_path), "former/#", Positions())
        assert put_back(connection, str(tmp_path), "former/#", Positions(), to=target) == 3
    assert sorted(body[-1:] for body in queues.bodies(target)) == [b"0", b"1", b"2"]
    # The session continues with the same spool.
    with spooling(mosquitto.port, tmp_path, "former/#") as spool:
        publish(mosquitto.port, "former/4", "4", qos=2)
        until(lambda: sum(segment.rows for segment in spool.between(spool.first - 1, spool.last)) == 1)
