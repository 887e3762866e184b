"""A restore of the queue manager, and exactly-once mappings from and to a real broker.

The broker has exchanges that the restored queue manager does not know, or that have ended since the backup. Messages in the
backup may be duplicated. No message sent after the restore is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_backup import mqbridge
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.frozen_relay import FrozenRelay
from tests.helpers.mosquitto import Mosquitto, Subscriber, publish
from tests.helpers.patience import until
from tests.helpers.relay import Relay

# IBM MQ has its own backup.
pytestmark = pytest.mark.queue_managers("embedded")


@pytest.fixture
def relay(broker: Mosquitto) -> Iterator[FrozenRelay]:
    with FrozenRelay(broker.port) as relay:
        yield relay


def config_of(relay: Relay, version: str, topic_filter: str = "in/#") -> str:
    link = f'{{host: 127.0.0.1, port: {relay.port}, version: "{version}", client_id: "{{mapping}}"}}'
    return f"""\
links:
  broker: {link}
mappings:
  in: {{from: {{mqtt: "{topic_filter}", link: broker}}, to: {{queue: in}}, guarantee: exactly-once}}
  out: {{from: {{queue: out}}, to: {{mqtt: "out", link: broker}}, guarantee: exactly-once}}
"""


def bridge_of(directory: Path, config: str) -> BridgeProcess:
    return BridgeProcess(directory, config=config)


def put(bridge: BridgeProcess, *bodies: str) -> None:
    for body in bodies:
        bridge.mq("put", "out", body, "--persistent")


def arrived(bridge: BridgeProcess) -> list[str]:
    return [str(message["body"]) for message in bridge.messages("in")]


def depth(bridge: BridgeProcess, queue: str) -> int:
    return int(bridge.mq_json("display", f"QLOCAL('{queue}')", "CURDEPTH")[0]["CURDEPTH"])


def numbered(word: str, count: int) -> list[str]:
    return [f"{word} {number}" for number in range(count)]


def restore(tmp_path: Path, config: str) -> BridgeProcess:
    restored = bridge_of(tmp_path / "restored", config)
    process = mqbridge("data", "restore", tmp_path / "b.db", "--data-dir", restored.data_directory)
    assert process.returncode == 0, process.stderr
    return restored


def backup(tmp_path: Path, bridge: BridgeProcess) -> None:
    process = mqbridge("data", "backup", tmp_path / "b.db", "--data-dir", bridge.data_directory)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_no_message_after_a_restore_is_treated_as_a_repetition(
    tmp_path: Path, broker: Mosquitto, relay: FrozenRelay, version: str
) -> None:
    """Exchanges are open in both directions at the time of the backup, and others at the time of the crash."""
    config = config_of(relay, version)
    subscriber = Subscriber(broker.port, "out", qos=2)
    with at_work(bridge_of(tmp_path / "data", config)) as bridge:
        bridge.mqsc("DEFINE QLOCAL('in')\nDEFINE QLOCAL('out')")
        until(lambda: bridge.log.count("MQB6001I") >= 2)
        relay.freezing = True
        put(bridge, *numbered("open at the backup", 3))
        for body in numbered("open at the backup", 3):
            publish(broker.port, "in/a", body, qos=2)
        until(lambda: relay.frozen == 2 and depth(bridge, "in") >= 1)
        backup(tmp_path, bridge)
        relay.thaw()
        assert {subscriber.message()["payload"] for _ in range(3)} == set(numbered("open at the backup", 3))
        put(bridge, *numbered("between", 10))
        assert [subscriber.message()["payload"] for _ in range(10)] == numbered("between", 10)
        frozen = relay.frozen
        relay.freezing = True
        put(bridge, *numbered("open at the crash", 3))
        until(lambda: relay.frozen == frozen + 1)
        bridge.kill()
        relay.thaw()
    with at_work(restore(tmp_path, config)) as restored:
        sent = numbered("after", 40)
        put(restored, *sent)
        for body in numbered("after", 5):
            publish(broker.port, "in/a", body, qos=2)
        received: list[str] = []
        while not set(sent) <= set(received):
            received.append(str(subscriber.message()["payload"]))
        assert [number for number in received if number in sent] == sent
        # Messages that are not in the backup were lost with the data directory, unless the broker had accepted them.
        assert set(received) <= {*sent, *numbered("open at the backup", 3), *numbered("open at the crash", 3)}
        assert restored.log.count("MQB5313I") == 1
        until(lambda: depth(restored, "in") >= 6)
        assert {"open at the backup 0", *numbered("after", 5)} <= set(arrived(restored))
        # The next start has a record.
        restored.restart()
        put(restored, "last")
        assert subscriber.message()["payload"] == "last"
        assert restored.log.count("MQB5313I") == 1
    subscriber.stop()


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_subscription_that_was_changed_after_the_backup_is_made_again(
    tmp_path: Path, broker: Mosquitto, relay: FrozenRelay, version: str
) -> None:
    """According to the restored queue manager, its session has the subscription."""
    config = config_of(relay, version)
    with at_work(bridge_of(tmp_path / "data", config)) as bridge:
        bridge.mqsc("DEFINE QLOCAL('in')\nDEFINE QLOCAL('out')")
        publish(broker.port, "in/a", "before", "-r", qos=2)
        until(lambda: depth(bridge, "in") == 1)
        backup(tmp_path, bridge)
        assert bridge.config is not None
        bridge.config.write_text(config_of(relay, version, "other/#"))
        bridge.restart()
        publish(broker.port, "other/a", "other", "-r", qos=2)
        until(lambda: depth(bridge, "in") == 2)
        bridge.kill()
    with at_work(restore(tmp_path, config)) as restored:
        until(lambda: restored.log.count("MQB6001I") >= 2)
        publish(broker.port, "in/a", "after", qos=2)
        until(lambda: "after" in arrived(restored))
