"""Bridges that wait for their queue manager, at a start and as standby: all outputs report the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.applications import Application, tokens_of
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import eventually, until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import NAME, RemoteBridgeProcess
from tests.helpers.scrape import admin_url, ask

#: IBM's reason code, or the reason why it is missing.
AWAY, HANGS = r"MQRC_\w+ \(\d+\)", "connected, but no reply"
TOKEN = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"


class Observer:
    """All outputs that report the problems of a bridge, which may not serve clients."""

    def __init__(self, bridge: RemoteBridgeProcess, process: LineProcess) -> None:
        self._administrator = Administrator(bridge)
        self._process = process
        self.url = admin_url(process.seen)
        self.state = ""

    def status(self) -> Any:
        # The control socket may start after the admin port.
        return json.loads(self._administrator.run("status", "--json").stdout or '{"state": "", "problems": []}')

    def expect(self, state: str, reason: str) -> None:
        """Status, log, readiness, metrics and console report that the queue manager does not answer, and the reason."""
        pattern = re.compile(f"queue manager {NAME} does not answer: {reason}")
        self._process.line_where(lambda line: "MQB0302E problem began: " in line and pattern.search(line) is not None)
        until(lambda: self.status()["problems"], self.status)
        status = self.status()
        (problem,) = status["problems"]
        assert (status["state"], status["queue_manager_available"]) == (state, False)
        assert pattern.match(problem["what"]) and problem["kind"] == "queue_manager" and problem["remedy"]
        assert problem["since"] > 0 and status["waits_since"] > 0
        outcome = self._administrator.run("status")
        assert outcome.exit_code == 1
        assert pattern.search(outcome.stdout) and f"it waits for {status['waits_for']}, since " in outcome.stdout
        assert f"the bridge is {state} and waits for " in self._administrator.refused("client", "list")
        code, body = ask(f"{self.url}/readyz")
        first, *problems = body.splitlines()
        assert (code, first, len(problems)) == (503, state, 1) and pattern.match(problems[0])
        assert 'mqbridge_problem{kind="queue_manager"} 1.0' in ask(f"{self.url}/metrics")[1]
        page = ask(f"{self.url}/", "text/html", TOKEN)[1]
        assert pattern.search(page) and status["waits_for"] in page
        assert pattern.search(
            ask(f"{self.url}/log?level=error", "text/html", TOKEN)[1]
        )  # the page named by the problem
        assert self.status()["problems"][0]["since"] == problem["since"]

    def expect_none(self, state: str) -> None:
        eventually(lambda: (self.status()["state"], self.status()["problems"]), (state, []))
        self._process.line_where(lambda line: "MQB0303I problem ended: queue manager" in line)
        assert self._administrator.run("status").exit_code == 0
        assert 'mqbridge_problem{kind="queue_manager"} 0.0' in ask(f"{self.url}/metrics")[1]


@pytest.fixture
def settings(tmp_path: Path) -> Callable[[str], str]:
    """Settings of an observed bridge."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"reader:read:{TOKEN}\n{tokens_of('app')}")
    tokens.chmod(0o600)
    admin = f"{{port: 0, token_file: {tokens}, applications: {{app: {{mq_user: app}}}}}}"
    return lambda name: f"control_socket: {tmp_path}/{name}.control\nadmin: {admin}\n"


def test_an_unreachable_queue_manager_at_the_start(
    remote: Callable[..., RemoteBridgeProcess], settings: Callable[[str], str]
) -> None:
    bridge = remote(settings=settings("data"))
    assert bridge.config is not None
    with LineProcess([MQBRIDGE, "run", bridge.config, "--port", "0"], env=bridge.env) as process:
        process.line_where(lambda line: "console, metrics and health" in line)
        observer = Observer(bridge, process)
        observer.expect("starting", AWAY)
        bridge.queue_manager.start()
        observer.expect_none("running")
        assert process.terminate() == 0


def test_a_standby_whose_queue_manager_dies(
    remote: Callable[..., RemoteBridgeProcess], settings: Callable[[str], str]
) -> None:
    first = remote("first").start()
    bridge = remote("second", queue_manager=first.queue_manager, settings=settings("second"))
    assert bridge.config is not None
    with LineProcess([MQBRIDGE, "run", bridge.config, "--port", "0"], env=bridge.env) as process:
        process.line_where(lambda line: "MQB0017I standing by" in line)
        observer = Observer(bridge, process)
        status = observer.status()
        assert (status["state"], status["problems"], status["queue_manager_state"]) == ("standing by", [], "answers")
        assert "has SYSTEM.MQTT.BRIDGE.LOCK or SYSTEM.MQTT.TRANSMIT.QUEUE open" in status["waits_for"]
        for answer in (Application(observer.url, "app").publish("t"), Application(observer.url, "app").call("t")):
            assert answer.status == 503
            assert status["waits_for"] in answer.text
        first.queue_manager.kill()
        observer.expect("standing by", AWAY)
        first.stop()
        first.queue_manager.start()
        observer.expect_none("running")
        assert process.terminate() == 0


def test_a_bridge_that_starts_with_a_hanging_queue_manager_can_be_stopped(
    remote: Callable[..., RemoteBridgeProcess], settings: Callable[[str], str]
) -> None:
    bridge = remote(settings=settings("data"))
    bridge.queue_manager.start()
    bridge.queue_manager.pause()
    assert bridge.config is not None
    with LineProcess([MQBRIDGE, "run", bridge.config, "--port", "0"], env=bridge.env) as process:
        process.line_where(lambda line: "console, metrics and health" in line)
        observer = Observer(bridge, process)
        eventually(lambda: observer.status()["state"], "starting")
        assert process.terminate() == 0


@pytest.mark.slow
def test_a_hanging_queue_manager(
    remote: Callable[..., RemoteBridgeProcess], settings: Callable[[str], str], tmp_path: Path
) -> None:
    """A running bridge, a standby and a starting bridge report it, each as one problem and in one line of the log."""
    first = remote("first").start()
    manager = first.queue_manager
    standby = remote("standby", queue_manager=manager, settings=settings("standby"))
    starting = remote("starting", queue_manager=manager, settings=settings("starting"))
    assert standby.config is not None and starting.config is not None
    with (
        RawClient.connected(first.port, "client") as client,
        LineProcess([MQBRIDGE, "run", standby.config, "--port", "0"], env=standby.env) as waiting,
    ):
        client.subscribe(("t", 1))
        waiting.line_where(lambda line: "MQB0017I standing by" in line)
        begin = len(first.log)
        manager.pause()
        with LineProcess([MQBRIDGE, "run", starting.config, "--port", "0"], env=starting.env) as process:
            process.line_where(lambda line: "console, metrics and health" in line)
            Observer(starting, process).expect("starting", HANGS)
            Observer(standby, waiting).expect("standing by", HANGS)
            manager.resume()
            Observer(standby, waiting).expect_none("standing by")
            Observer(starting, process).expect_none("standing by")
            assert process.terminate() == waiting.terminate() == 0
        until(lambda: "MQB0303I" in first.log[begin:])
        lines = [re.search(r"MQB\w+ .*", line)[0] for line in first.log[begin:].splitlines()]  # type: ignore[index]
        problem = f"queue manager {NAME} does not answer: {HANGS}: the queue manager, its machine or the network hangs"
        assert lines == [
            f"MQB0302E problem began: {problem}; hint: `mqbridge check --connect`",
            f"MQB0303I problem ended: {problem}",
        ]
        client.publish("t", b"after", 1)
        assert client.take().payload == b"after"
