"""The trace of clients: log lines about their connections and publications."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from bridge.administration.requests import DisconnectClients, SetLogLevel, StopChannel
from bridge.config.operations import LogLevel
from bridge.mqtt.packets import Publish
from bridge.service.lifecycle import Bridge
from tests.helpers.raw_client import RawClient
from tests.unit.service.test_problems import configuration, running


def exchange(port: int, client_id: str) -> None:
    with RawClient.connected(port, client_id) as client:
        client.subscribe(("t", 1))
        client.publish("t", b"abc", 1)
        client.acknowledge(client.expect(Publish))
        client.ping()
        client.publish("nobody/subscribes", b"", 0)
        client.ping()
        client.disconnect()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records if "MQB2005I" in record.getMessage()]
    caplog.clear()
    return messages


def port_of(bridge: Bridge) -> int:
    channel = bridge.parts.channels.get("A")
    assert channel is not None and channel.endpoint is not None
    return channel.endpoint[1]


@pytest.mark.parametrize(
    ("level", "patterns", "traced"),
    [("info", [], False), ("debug", [], True), ("info", ["dev-*", "x"], True), ("debug", ["other"], False)],
)
async def test_clients_are_traced_by_level_and_pattern(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: LogLevel, patterns: Sequence[str], traced: bool
) -> None:
    caplog.set_level(logging.INFO)
    async with running(configuration(tmp_path, log={"level": level, "trace_clients": patterns})) as bridge:
        await asyncio.to_thread(exchange, port_of(bridge), "dev-1")
        await asyncio.to_thread(exchange, port_of(bridge), "dev-1")  # the first session has ended
        prefix = "MQB2005I trace of client 'dev-1': "
        events = [re.sub(r"packet \d+|127\S+", "N", line.removeprefix(prefix)) for line in lines(caplog)]
        assert events[:8] == (
            [
                "connected via channel A from N as user '': clean session",
                "subscribed to 't' with QoS 1",
                "published to 't', QoS 1, 3 bytes: put",
                "message of topic 't': acknowledged N",
                "published to 'nobody/subscribes', QoS 0, 0 bytes: put",
                "connection from N disconnected by the client",
                "session ended",
                "connected via channel A from N as user '': clean session",
            ]
            if traced
            else []
        )


async def test_the_log_level_of_a_command_traces_clients(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(configuration(tmp_path)) as bridge:
        level = logging.getLogger().level
        try:
            for name, traced in (("debug", True), ("info", False)):
                assert (await bridge.answer(SetLogLevel(level=name), "maria")).ok
                await asyncio.to_thread(exchange, port_of(bridge), "c")
                assert (lines(caplog) != []) is traced
        finally:
            logging.getLogger().setLevel(level)


async def test_administrative_actions_are_logged_with_user_and_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(configuration(tmp_path)) as bridge:
        await bridge.answer(StopChannel(name="A"), "maria")
        await bridge.answer(DisconnectClients(ids=["nobody"]), "maria")
    events = [record.getMessage() for record in caplog.records if record.getMessage().startswith("MQB901")]
    assert events == [
        "MQB9010I user maria: channel stop name=A: channel A stopped; 0 clients disconnected",
        "MQB9011W user maria: client disconnect ids=['nobody'] was rejected: there is no session of client 'nobody'",
    ]
