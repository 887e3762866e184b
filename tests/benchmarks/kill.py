"""`python -m tests.benchmarks.kill`: how many acknowledged publications survive `kill -9`.

A client with a durable session subscribes with QoS 1 and disconnects. Another one publishes 200 messages with QoS 1. After
the last PUBACK the server is killed with SIGKILL and started again on its files. The client returns and counts its messages.

SIGKILL ends the process, not the machine. Written data survives in the page cache, even without fsync. A power failure may
lose more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from tests.benchmarks.servers import PEERS, Bridge, Mosquitto, MosquittoAutosave, MosquittoPersistent, Server

SUBSCRIBER = "kill-subscriber"
TOPIC = "kill/messages"
WAIT = 30.0
#: Seconds without a message after which the rest is lost.
SILENCE = 3.0


def client(identifier: str, port: int, clean: bool) -> paho.Client:
    """Return a connected client whose network loop runs in a thread."""
    connected = threading.Event()
    paho_client = paho.Client(CallbackAPIVersion.VERSION2, identifier, clean_session=clean)
    paho_client.max_inflight_messages_set(100)
    paho_client.on_connect = lambda *_: connected.set()
    paho_client.connect("127.0.0.1", port)
    paho_client.loop_start()
    if not connected.wait(WAIT):
        raise TimeoutError(f"{identifier}: no CONNACK")
    return paho_client


def end(connection: paho.Client) -> None:
    """Disconnect a client and stop its thread."""
    connection.disconnect()
    connection.loop_stop()


def subscribe(port: int) -> None:
    """Create the durable session."""
    subscribed = threading.Event()
    connection = client(SUBSCRIBER, port, clean=False)
    connection.on_subscribe = lambda *_: subscribed.set()
    connection.subscribe(TOPIC, qos=1)
    if not subscribed.wait(WAIT):
        raise TimeoutError("no SUBACK")
    end(connection)


def publish(port: int, count: int) -> paho.Client:
    """Publish the messages, and return the connected publisher when all are acknowledged."""
    connection = client("kill-publisher", port, clean=True)
    for number in [connection.publish(TOPIC, str(number), qos=1) for number in range(count)]:
        number.wait_for_publish(WAIT)
    return connection


def received(port: int, count: int) -> int:
    """Return how many different messages the durable session receives."""
    numbers: set[int] = set()
    arrived = threading.Event()

    def on_message(_client: paho.Client, _userdata: Any, message: paho.MQTTMessage) -> None:
        numbers.add(int(message.payload))
        arrived.set()

    connection = paho.Client(CallbackAPIVersion.VERSION2, SUBSCRIBER, clean_session=False)
    connection.on_message = on_message
    connection.connect("127.0.0.1", port)
    connection.loop_start()
    while len(numbers) < count and arrived.wait(SILENCE):
        arrived.clear()
    end(connection)
    return len(numbers)


def survivors(server: Server, count: int) -> int:
    """Return how many of the acknowledged publications survive a SIGKILL of a server."""
    server.start()
    try:
        subscribe(server.port)
        publisher = publish(server.port, count)
        server.crash()
        with contextlib.suppress(OSError):
            end(publisher)
        server.launch()
        return received(server.port, count)
    finally:
        server.stop()


def main() -> None:
    """Run all servers in turn, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.kill", description=__doc__)
    parser.add_argument("--messages", type=int, default=200, help="acknowledged publications per run (200)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each server (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args()
    kinds: list[type[Server]] = [Bridge, Mosquitto, MosquittoPersistent, MosquittoAutosave, *PEERS.values()]
    survivor_counts: dict[str, list[int]] = {kind.name: [] for kind in kinds}
    start = time.monotonic()
    for _ in range(options.rounds):
        for kind in kinds:
            survivor_counts[kind.name].append(survivors(kind(), options.messages))
    print(f"messages kept of {options.messages} acknowledged, {options.rounds} runs, {time.monotonic() - start:.0f} s")
    for kind in kinds:
        runs = survivor_counts[kind.name]
        print(
            f"{kind.name:22} {kind().version():24} median {statistics.median(runs):g}  runs {', '.join(map(str, runs))}"
        )
    if options.json:
        options.json.write_text(json.dumps(survivor_counts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
