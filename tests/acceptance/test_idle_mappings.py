"""200 idle mappings need hardly any threads on the embedded queue manager, and continue when messages arrive."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.mosquitto import Mosquitto, Subscriber, publish
from tests.helpers.patience import eventually, until
from tests.helpers.raw_client import RawClient

MANY, THREADS = 200, 40


def kinds(number: int) -> str:
    """Return mappings of each kind: between queues and the bridge's own clients, and between queues and a broker."""
    queue, topic = f"Q{number}", f"t/{number}"
    return (
        f"{{from: {{mqtt: {topic}, link: local}}, to: {{queue: {queue}}}}}",
        f"{{from: {{queue: {queue}}}, to: {{mqtt: {topic}, link: local}}}}",
        f"{{from: {{mqtt: {topic}, link: cloud}}, to: {{queue: {queue}}}}}",
        f"{{from: {{queue: {queue}}}, to: {{mqtt: {topic}, link: cloud}}, guarantee: exactly-once}}",
    )[number % 4]


def test_200_idle_mappings(tmp_path: Path, broker: Mosquitto) -> None:
    script = tmp_path / "objects.mqsc"
    script.write_text("".join(f"DEFINE QLOCAL(Q{number})\n" for number in range(MANY)))
    mappings = "".join(f"  m{number}: {kinds(number)}\n" for number in range(MANY))
    config = (
        f"queue_manager: {{scripts: [{script}]}}\nchannels: [{{name: A, port: 0}}]\n"
        # The link must send PINGREQ while it has no thread.
        f"links: {{cloud: {{host: 127.0.0.1, port: {broker.port}, keep_alive: 5 s}}}}\nmappings:\n{mappings}"
    )
    try:
        with at_work(BridgeProcess(tmp_path / "data", config=config)) as bridge:
            process = psutil.Process(bridge.process.pid)
            administrator = Administrator(bridge)

            def states() -> list[str]:
                lines = administrator.run("mapping", "list", "--json").stdout.splitlines()
                return [json.loads(line)["state"] for line in lines]

            eventually(states, ["running"] * MANY)
            until(lambda: process.num_threads() < THREADS, lambda: f"{process.num_threads()} threads")
            # Longer than the broker waits for PINGREQ.
            connected = broker.log.count("New client connected")
            idle_until = time.monotonic() + 15
            until(lambda: time.monotonic() > idle_until)
            assert process.num_threads() < THREADS
            assert broker.log.count("New client connected") == connected
            with RawClient.connected(bridge.port, "client") as client:
                client.subscribe(("t/1", 1))
                client.publish("t/0", b"in", 1)
                bridge.mq("put", "Q1", "out")
                assert client.take().payload == b"out"
            bridge.wait_for_depth("Q0", 1)
            publish(broker.port, "t/2", "in", qos=1)
            bridge.wait_for_depth("Q2", 1)
            with Subscriber(broker.port, "t/3", qos=2) as subscriber:
                bridge.mq("put", "Q3", "out")
                assert subscriber.message()["payload"] == "out"
            until(lambda: process.num_threads() < THREADS, lambda: f"{process.num_threads()} threads")
    finally:
        broker.stop()
