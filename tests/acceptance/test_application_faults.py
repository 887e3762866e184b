"""Applications over HTTP under attack: many calls, reloads, kills, misbehaving devices, and lost token files."""

from __future__ import annotations

import http.client
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.mqtt.packets import Puback, Publish, PublishProperties
from tests.helpers.administrator import Administrator
from tests.helpers.applications import TOKEN, Answer, Application, tokens_of
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.console import Console
from tests.helpers.patience import PATIENCE, eventually, until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import QueueManagerProcess, RemoteBridgeProcess
from tests.helpers.scrape import Scrape

pytestmark = pytest.mark.queue_managers("embedded", "ibmmq", slow="pymqi")

ORDERS = "DEFINE QLOCAL(ORDERS) REPLACE MAXDEPTH(100000)\nDEFINE SUB(ORDERS) TOPICSTR('orders') DEST(ORDERS) REPLACE\n"
APP = "    app: {mq_user: app, publish_rate: null, requests: 60, call_timeout: 300}\n"
OTHER = "    other: {mq_user: other, publish_rate: null, requests: 40, call_timeout: 300, max_payload: 1 KiB}\n"
CONFIG = """
channels: [{{name: PLAIN.MQTT, port: 0}}]
control_socket: {1}
admin:
  port: 0
  token_file: {0}
  applications:
"""
ADMIN = f"admin:change:{TOKEN}admin\n"
#: Publications and calls in progress when the bridge is killed.
BUSY = 8


@pytest.fixture
def bridge(queue_manager: str, tmp_path: Path) -> Iterator[BridgeProcess]:
    tokens = tmp_path / "tokens"
    tokens.write_text(ADMIN + tokens_of("app", "other"))
    tokens.chmod(0o600)
    config = CONFIG.format(tokens, tmp_path / "control") + APP + OTHER
    process: BridgeProcess
    if queue_manager == "embedded":
        script = tmp_path / "orders.mqsc"
        script.write_text(ORDERS)
        process = BridgeProcess(tmp_path / "data", config=f"queue_manager: {{scripts: [{script}]}}\n{config}")
    else:
        host = QueueManagerProcess(tmp_path / "data", ORDERS)
        process = RemoteBridgeProcess(host.data_directory, library=queue_manager, queue_manager=host, config=config)
    with at_work(process) as running:
        yield running


def reload(bridge: BridgeProcess, old: str, new: str) -> str:
    """Reload the configuration after a replacement, and return the lines about it."""
    assert bridge.config is not None
    text = bridge.config.read_text()
    assert old in text
    bridge.config.write_text(text.replace(old, new))
    return Administrator(bridge).does("reload")


class Calls:
    """Calls of a device that wait for their replies, each on its own thread."""

    def __init__(self, bridge: BridgeProcess, device: RawClient) -> None:
        self.answers: dict[bytes, Answer | Exception] = {}
        self.requests: dict[bytes, Publish] = {}
        self._bridge = bridge
        self._device = device
        self._threads: list[threading.Thread] = []

    def begin(self, name: str, number: int) -> None:
        """Begin calls of an application, and return when the device has their requests."""
        threads = [
            threading.Thread(target=self._call, args=(name, f"{name} {index}".encode())) for index in range(number)
        ]
        for thread in threads:
            thread.start()
        self._threads += threads
        for _ in threads:
            request = self._device.take()
            self.requests[request.payload] = request

    def _call(self, name: str, payload: bytes) -> None:
        try:
            self.answers[payload] = Application(self._bridge, name).call("device", payload)
        except (OSError, http.client.HTTPException) as error:
            self.answers[payload] = error

    def reply(self, payload: bytes, text: bytes, correlation: bytes | None = None, **properties: Any) -> None:
        """Send a reply to a request, by default with its Correlation Data."""
        request_properties = self.requests[payload].properties
        assert request_properties is not None and request_properties.response_topic is not None
        correlation_data = request_properties.correlation_data if correlation is None else correlation
        answer = PublishProperties(correlation_data=correlation_data or None, **properties)
        number = self._device.next_packet_id()
        self._device.send(Publish(request_properties.response_topic, text, 1, packet_id=number, properties=answer))
        assert self._device.wait_for(Puback).packet_id == number

    def end(self) -> None:
        """Wait for all answers."""
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def outcomes(self, name: str) -> list[tuple[int, str]]:
        """The statuses and texts of an application's calls."""
        answers = [self.answers[payload] for payload in self.requests if payload.startswith(name.encode())]
        return [(answer.status, answer.text) if isinstance(answer, Answer) else (0, repr(answer)) for answer in answers]


@pytest.fixture
def device(bridge: BridgeProcess) -> Iterator[RawClient]:
    with RawClient.connected(bridge.port, "device", level=5) as client:
        client.subscribe(("device", 1))
        yield client


@pytest.fixture
def calls(bridge: BridgeProcess, device: RawClient) -> Calls:
    return Calls(bridge, device)


def in_progress(bridge: BridgeProcess) -> float:
    scrape = Scrape(bridge)
    return sum(scrape.total("mqbridge_application_requests_in_progress", application=name) for name in ("app", "other"))


# Many calls, and reloads ---------------------------------------------------------------------------------------------


def test_a_hundred_calls_wait(bridge: BridgeProcess, calls: Calls) -> None:
    """As many as the admin port permits: others are answered, limits apply, and each call gets its own reply."""
    calls.begin("app", 60)
    calls.begin("other", 40)
    assert in_progress(bridge) == 100
    for name, number in (("app", 60), ("other", 40)):
        refused = Application(bridge, name).publish("orders")
        assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        assert f"{number} requests of application {name} are in progress" in refused.text
    assert Console(bridge).get("/healthz").status == 200
    assert Console(bridge).log_in(f"{TOKEN}admin").get("/clients").status == 200
    for payload in reversed(calls.requests):
        calls.reply(payload, b"to " + payload)
    calls.end()
    assert {payload: answer.body for payload, answer in calls.answers.items() if isinstance(answer, Answer)} == {
        payload: b"to " + payload for payload in calls.requests
    }
    assert Application(bridge, "app").publish("orders").status == 200


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (APP, "", 403),
        ("mq_user: app", "mq_user: another", 200),
        ("requests: 60", "requests: 1", 200),
    ],
    ids=["removed", "other user", "other limit"],
)
def test_a_reload_ends_the_calls_of_a_changed_application_only(
    bridge: BridgeProcess, calls: Calls, old: str, new: str, status: int
) -> None:
    calls.begin("app", 5)
    calls.begin("other", 5)
    assert "applications" in reload(bridge, old, new)
    until(lambda: len(calls.answers) == 5)
    assert all(code == 503 and "its configuration has changed" in text for code, text in calls.outcomes("app"))
    assert Application(bridge, "app").publish("orders").status == status
    for payload in calls.requests:
        if payload.startswith(b"other"):
            calls.reply(payload, b"done")
    calls.end()
    assert calls.outcomes("other") == [(200, "done")] * 5
    eventually(lambda: Scrape(bridge).total("mqbridge_application_requests_in_progress", application="other"), 0)


@pytest.mark.parametrize("fault", ["removed token", "no file", "directory"])
def test_calls_go_on_without_their_token(bridge: BridgeProcess, calls: Calls, tmp_path: Path, fault: str) -> None:
    """The application gets 401 from then on, until the file has its token again."""
    tokens, text = tmp_path / "tokens", (tmp_path / "tokens").read_text()
    application = Application(bridge, "app")
    calls.begin("app", 2)
    tokens.unlink()
    if fault == "removed token":
        _write_secret(tokens, ADMIN)
    elif fault == "directory":
        tokens.mkdir()
    assert application.publish("orders").status == 401
    if fault != "removed token":
        assert "MQB9206E" in bridge.log
    for payload in calls.requests:
        calls.reply(payload, b"done")
    calls.end()
    assert calls.outcomes("app") == [(200, "done")] * 2
    if fault == "directory":
        tokens.rmdir()
    _write_secret(tokens, text)
    assert application.publish("orders").status == 200


def _write_secret(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


# Kills and two faults at a time --------------------------------------------------------------------------------------


class Publishers:
    """Programs that publish numbered orders with QoS 1, until the bridge is gone."""

    def __init__(self, bridge: BridgeProcess) -> None:
        self._bridge = bridge
        self._ended = threading.Event()
        self.accepted: set[str] = set()
        self.statuses: set[int] = set()
        self.threads = [threading.Thread(target=self._publish, args=(index,)) for index in range(BUSY)]
        for thread in self.threads:
            thread.start()

    def _publish(self, index: int) -> None:
        application, number = Application(self._bridge, "app"), 0
        while not self._ended.is_set():
            payload = f"{index}.{number}"
            number += 1
            try:
                answer = application.publish("orders", payload.encode())
            except (OSError, http.client.HTTPException):
                return
            self.statuses.add(answer.status)
            if answer.status == 200:
                self.accepted.add(payload)

    def end(self) -> None:
        self._ended.set()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def orders(bridge: BridgeProcess) -> list[str]:
    """Get all orders, after another one."""
    assert Application(bridge, "app").publish("orders", b"last").status == 200
    *earlier, last = (message["body"] for message in bridge.mq_json("get", "ORDERS", "--limit", "0"))
    assert last == "last"
    return earlier


def test_a_kill_loses_no_accepted_publication(bridge: BridgeProcess, calls: Calls) -> None:
    calls.begin("other", BUSY)
    publishers = Publishers(bridge)
    until(lambda: len(publishers.accepted) > 20 * BUSY)
    bridge.kill()
    publishers.end()
    calls.end()
    bridge.start()
    arrived = orders(bridge)
    assert publishers.accepted <= set(arrived)
    assert len(arrived) == len(set(arrived))
    # Programs whose connection breaks know that they have no reply.
    assert {status for status, _ in calls.outcomes("other")} == {0}


@pytest.mark.queue_managers("ibmmq", slow="pymqi")  # the embedded one cannot be away
@pytest.mark.parametrize("dies", [False, True], ids=["hangs", "dies"])
def test_a_reload_while_the_queue_manager_is_away(
    bridge: RemoteBridgeProcess, device: RawClient, calls: Calls, dies: bool
) -> None:
    """Requests in progress of the changed application fail. The others are performed later, or fail as well."""
    calls.begin("app", 3)
    publishers = Publishers(bridge)
    until(lambda: publishers.accepted)
    if dies:
        bridge.queue_manager.kill()
    else:
        bridge.queue_manager.pause()
    assert "applications" in reload(bridge, "mq_user: app", "mq_user: another")
    calls.end()
    assert all(status == 503 for status, _ in calls.outcomes("app"))
    if dies:
        bridge.queue_manager.start()
    else:
        bridge.queue_manager.resume()
    publishers.end()
    until(lambda: Application(bridge, "app").publish("orders", b"after").status == 200)
    assert publishers.statuses <= {200, 503}
    assert publishers.accepted | {"after"} <= set(orders(bridge))
    eventually(lambda: in_progress(bridge), 0)


# Replies -------------------------------------------------------------------------------------------------------------


def test_only_the_first_reply_with_the_right_correlation_counts(bridge: BridgeProcess, calls: Calls) -> None:
    calls.begin("app", 1)
    (payload,) = calls.requests
    calls.reply(payload, b"wrong", b"another call")
    calls.reply(payload, b"blank", b"")
    calls.reply(payload, b"text\0" * 100_000, content_type="no header\x7f")
    calls.reply(payload, b"twice")
    calls.end()
    (answer,) = calls.answers.values()
    assert isinstance(answer, Answer)
    assert (answer.status, answer.body) == (200, b"text\0" * 100_000)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    # A reply that is late is not the reply to the next call.
    calls.reply(payload, b"late")
    calls.begin("app", 1)
    calls.reply(payload, b"in time")
    calls.end()
    assert calls.outcomes("app") == [(200, "in time")]
