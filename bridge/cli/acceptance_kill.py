"""A test of `mqbridge ibm-acceptance`: a bridge that is killed while clients publish loses no acknowledged message."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from bridge.cli.service import running_program
from bridge.config.models import Configuration
from bridge.mq.ibm.acceptance import PREFIX, TOPIC
from bridge.mq.ibm.acceptance_measurements import Failed

#: Publications, and how many of them are acknowledged when the bridge is killed.
MESSAGES, BEFORE_KILL = 2_000, 500
#: Seconds to wait for the bridge, and for the messages.
START, DELIVERY = 60.0, 120.0


def kill_under_load(configuration: Configuration) -> str:
    """Run a bridge, kill it while a client publishes, and start it again. Return what arrived. Raises Failed."""
    with tempfile.TemporaryDirectory() as directory, _port() as port:
        bridge = _Bridge(configuration, Path(directory), port)
        try:
            return _Load(bridge, port).run()
        finally:
            bridge.stop()


@contextlib.contextmanager
def _port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    yield port


class _Bridge:
    """A bridge of its own process, with one channel on the loopback address."""

    def __init__(self, configuration: Configuration, directory: Path, port: int) -> None:
        settings = configuration.queue_manager.model_dump(mode="json", exclude_unset=True)
        document: dict[str, Any] = {
            "queue_manager": {"type": configuration.queue_manager.type, **settings},
            "transmission_queue": configuration.transmission_queue,
            "channels": [{"name": "ACCEPTANCE", "port": port}],
        }
        self._file, self._log = directory / "bridge.yaml", directory / "log"
        self._file.write_text(json.dumps(document), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the bridge, and return when it accepts clients. Raises Failed."""
        self._log.unlink(missing_ok=True)
        with self._log.open("wb") as log:
            command = [str(running_program()), "run", str(self._file)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ)
        until = time.monotonic() + START
        while "listens for MQTT clients" not in (text := self._log.read_text(encoding="utf-8", errors="replace")):
            if self._process.poll() is not None or time.monotonic() > until:
                last = text.strip().rpartition("\n")[2]
                raise Failed(f"the bridge does not start: {last}", "run the bridge, and see its log")
            time.sleep(0.05)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(START)
            self._process.kill()
            self._process.wait()


class _Load:
    """A durable subscriber and a publisher, both with QoS 1."""

    def __init__(self, bridge: _Bridge, port: int) -> None:
        self._bridge, self._port = bridge, port
        identifier = uuid.uuid4().hex[:8].upper()
        self._topic = f"{TOPIC}/{identifier}/kill"
        self._subscriber_id = f"{PREFIX}.{identifier}"
        self._changed = threading.Condition()
        self._received: list[bytes] = []
        self._acknowledged = 0
        self._subscribed = False

    def run(self) -> str:
        self._bridge.start()
        subscriber, publisher = self._client(self._subscriber_id), self._client("")
        try:
            self._wait(lambda: self._subscribed, "the subscriber is not subscribed")
            for number in range(MESSAGES):
                publisher.publish(self._topic, str(number), qos=1)
            self._wait(lambda: self._acknowledged >= BEFORE_KILL, f"{self._acknowledged} publications are acknowledged")
            self._bridge.kill()
            at_kill = self._acknowledged
            self._bridge.start()
            self._wait(lambda: self._acknowledged >= MESSAGES, "publications are not acknowledged after the restart")
            self._wait(lambda: len(set(self._received)) >= MESSAGES, "")
        finally:
            for client in (publisher, subscriber):
                client.disconnect()
                client.loop_stop()
            self._end_session()
        lost_count = MESSAGES - len(set(self._received))
        again = len(self._received) - len(set(self._received))
        losses = f"{lost_count} lost, {again} delivered again"
        summary = f"{MESSAGES} publications acknowledged, {at_kill} before the kill; {losses}"
        if lost_count:
            raise Failed(summary, "report this to the developers of the bridge, with the log of the bridge")
        return summary

    def _wait(self, condition: Callable[[], bool], failure: str) -> None:
        """Wait for a condition. Raises Failed unless `failure` is blank."""
        with self._changed:
            if not self._changed.wait_for(condition, DELIVERY) and failure:
                raise Failed(
                    f"{failure} after {DELIVERY:g} s", "see the log of the bridge, and the queue manager's AMQERR01.LOG"
                )

    def _client(self, client_id: str) -> Client:
        client = Client(CallbackAPIVersion.VERSION2, client_id, clean_session=not client_id)
        client.max_inflight_messages_set(100)
        client.reconnect_delay_set(1, 1)

        def connected(*_: Any) -> None:
            if client_id:
                client.subscribe(self._topic, qos=1)

        client.on_connect = connected
        client.on_subscribe = lambda *_: self._count("_subscribed")
        client.on_publish = lambda *_: self._count("_acknowledged")
        client.on_message = self._receive
        client.connect("127.0.0.1", self._port)
        client.loop_start()
        return client

    def _count(self, name: str) -> None:
        with self._changed:
            setattr(self, name, getattr(self, name) + 1)
            self._changed.notify_all()

    def _receive(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        with self._changed:
            self._received.append(bytes(message.payload))
            self._changed.notify_all()

    def _end_session(self) -> None:
        """Delete the durable session, which removes its subscription and its state."""
        ended = threading.Event()
        client = Client(CallbackAPIVersion.VERSION2, self._subscriber_id, clean_session=True)
        client.on_connect = lambda *_: ended.set()
        with contextlib.suppress(OSError):
            client.connect("127.0.0.1", self._port)
            client.loop_start()
            ended.wait(DELIVERY)
            client.disconnect()
            client.loop_stop()
