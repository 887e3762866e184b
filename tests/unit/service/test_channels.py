"""Telemetry channels are started, stopped and altered separately: disconnected clients, reports, retries."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.config.channel import ChannelConfig
from bridge.config.models import LimitsConfig
from bridge.mq.telemetry_channels import Definition, TelemetryChannelRegister
from bridge.mqtt.packets import Connack, Connect, Disconnect
from bridge.mqtt.reason_codes import ReasonCode
from bridge.service.channels import ChannelError, Channels
from tests.helpers.certificate_authority import Authority
from tests.helpers.mosquitto import free_port
from tests.helpers.service_bridge import Client


class Site:
    """Channels of the file and of commands, with a queue manager that the test controls."""

    def __init__(self, make_owner: Any) -> None:
        self.register = TelemetryChannelRegister()
        self.limits = LimitsConfig()
        self.clients: list[Client] = []
        self.channels = Channels(make_owner, self.limits, self.register)

    async def begin(self, *configs: ChannelConfig) -> list[str]:
        self.register.use_file(configs)
        return await self.channels.begin()

    async def apply(self, *configs: ChannelConfig) -> list[str]:
        self.register.use_file(configs)
        return await self.channels.apply(self.limits)

    def port(self, name: str) -> int:
        channel = self.channels.get(name)
        assert channel is not None and channel.endpoint is not None
        return channel.endpoint[1]

    async def connect(self, name: str, client_id: str = "c") -> Client:
        return await self.connected(*await asyncio.open_connection("127.0.0.1", self.port(name)), client_id=client_id)

    async def connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str = "c"
    ) -> Client:
        client = Client(reader, writer)
        self.clients.append(client)  # a free port, which is closed
        client.send(Connect(client_id, protocol_level=5))
        answer = await client.receive()
        assert isinstance(answer, Connack) and answer.return_code == 0
        return client


@pytest.fixture
async def site(bridge: Callable[[], Any]) -> AsyncIterator[Site]:
    async with bridge() as started:
        new_site = Site(started.make_owner)
        yield new_site
        new_site.channels.stop_listening()
        new_site.channels.abort()
        await new_site.channels.end()


def config(name: str = "A", **values: Any) -> ChannelConfig:
    return ChannelConfig(name=name, **{"port": 0} | values)


def taken_port() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


async def test_a_channel_of_the_file_that_cannot_listen_ends_the_start(site: Site) -> None:
    with taken_port() as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ChannelError, match=f"channel A cannot listen on 127.0.0.1:{port}: .*another broker"):
            await site.begin(config(port=port))


async def test_a_channel_of_a_command_that_cannot_listen_does_not(site: Site) -> None:
    with taken_port() as listener:
        site.register.set("D", Definition({}, config("D", port=listener.getsockname()[1])))
        first, second = await site.begin(config())
    assert first.startswith("channel A listens for MQTT clients on 127.0.0.1:")
    assert second.startswith("channel D cannot listen on")
    assert list(site.channels.problems) == ["D"]


async def test_channels_are_stopped_and_started(site: Site) -> None:
    """Disconnected clients get the reason. A stopped channel does not listen, and cannot be stopped again."""
    await site.begin(config(), config("B"))
    client, other = await site.connect("A"), await site.connect("B", "other")
    port = site.port("A")
    assert await site.channels.stop("A") == "channel A stopped; 1 client disconnected"
    assert [packet.reason_code for packet in await client.rest()] == [ReasonCode.ADMINISTRATIVE_ACTION]
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    with pytest.raises(ChannelError, match="channel A is already stopped"):
        await site.channels.stop("A")
    assert (await site.channels.start("A")).startswith("channel A listens for MQTT clients on")
    with pytest.raises(ChannelError, match="channel A is already running"):
        await site.channels.start("A")
    with pytest.raises(ChannelError, match=r"there is no channel 'C' \(channels: A, B\)"):
        await site.channels.start("C")
    assert not other.reader.at_eof()


#: Changes of channel A by a reload, their report, and whether A's client stays.
CHANGES: list[tuple[str, dict[str, Any], str, bool]] = [
    ("nothing", {}, "", True),
    ("max_clients", {"max_clients": 1}, "channel A changed, for clients that connect from now on", True),
    ("protocols", {"protocols": ["MQTTV3"]}, "channel A changed, for clients that connect from now on", True),
    ("websocket", {"websocket": {}}, "channel A changed, for clients that connect from now on", True),
    ("proxies", {"proxies": ["192.0.2.1"]}, "channel A changed, for clients that connect from now on", True),
    ("another address", {"address": "127.0.0.2"}, "channel A listens for MQTT clients on 127.0.0.2:", False),
    ("backlog", {"backlog": 7}, "channel A listens for MQTT clients on 127.0.0.1:", False),
]


@pytest.mark.parametrize(("values", "line", "stays"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
async def test_a_changed_option_keeps_or_disconnects_clients(
    site: Site, values: dict[str, Any], line: str, stays: bool
) -> None:
    """A client of a channel that listens elsewhere gets a reason. Clients of other channels are not affected."""
    await site.begin(config(), config("B"))
    client, other = await site.connect("A"), await site.connect("B", "other")
    lines = await site.apply(config(**values), config("B"))
    assert [text.startswith(line) for text in lines] == ([True] if line else [])
    if not stays:
        assert [packet.reason_code for packet in await client.rest()] == [ReasonCode.ADMINISTRATIVE_ACTION]
    connections = [len(channel.connections) for channel in site.channels]
    assert sum(connections) == 1 + stays
    other.send(Disconnect())
    assert await other.rest() == []


async def test_a_new_port(site: Site) -> None:
    port = free_port()
    await site.begin(config())
    client = await site.connect("A")
    (line,) = await site.apply(config(port=port))
    assert line == f"channel A listens for MQTT clients on 127.0.0.1:{port} (changed)"
    assert [packet.reason_code for packet in await client.rest()] == [ReasonCode.ADMINISTRATIVE_ACTION]
    assert site.port("A") == port


async def test_ports_are_exchanged(site: Site) -> None:
    """In one reload, two channels swap their ports, and a new channel gets the port of a removed one."""
    a, b, c = free_port(), free_port(), free_port()
    await site.begin(config(port=a), config("B", port=b), config("C", port=c))
    lines = await site.apply(config(port=b), config("B", port=a), config("D", port=c))
    assert [line.split(" listens")[0] for line in lines] == ["channel C removed", "channel A", "channel B", "channel D"]
    assert (site.port("A"), site.port("B"), site.port("D")) == (b, a, c)
    assert not site.channels.problems


async def test_a_port_becomes_a_socket(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    await site.begin(config())
    client = await site.connect("A")
    (line,) = await site.apply(config(socket=path))
    assert line == f"channel A listens for MQTT clients on {path} (changed)"
    assert await client.rest()
    client = await site.connected(*await asyncio.open_unix_connection(path))
    (line,) = await site.apply(config())
    assert await client.rest()
    assert line.startswith("channel A listens for MQTT clients on 127.0.0.1:")
    await site.connect("A")


async def test_tls_for_new_clients(site: Site, tmp_path: Path) -> None:
    """Connected clients stay. An invalid certificate is reported, and can be fixed for the next reload."""
    Authority(tmp_path).issue("server")
    tls = {"certificate_file": tmp_path / "server.pem", "key_file": tmp_path / "server.key"}
    await site.begin(config())
    await site.connect("A")
    missing = config(tls=tls | {"key_file": tmp_path / "none"})
    with pytest.raises(ChannelError, match=r"channel A cannot use TLS: tls\.certificate_file .*No such file"):
        site.channels.check([missing])
    (line,) = await site.apply(missing)
    assert line.startswith("channel A keeps its previous configuration: TLS cannot be used")
    assert site.channels.problems == {"A": line}
    await site.connect("A", "second")
    (tmp_path / "none").write_bytes((tmp_path / "server.key").read_bytes())
    assert await site.apply(missing) == ["channel A tried again, for clients that connect from now on"]
    assert not site.channels.problems
    channel = site.channels.get("A")
    assert channel is not None and channel.tls is not None
    assert len(channel.connections) == 2


async def test_a_port_in_use_is_reported_and_retried(site: Site) -> None:
    """For added and altered channels: other channels are changed nevertheless, and the next reload tries again."""
    await site.begin(config())
    with taken_port() as listener:
        port = listener.getsockname()[1]
        altered, added = config(port=port), config("B", port=port)
        for actions in (("changed", "added"), ("tried again", "tried again")):
            lines = await site.apply(altered, added, config("C"))
            for name, how, line in zip("AB", actions, lines, strict=False):
                message = f"channel {name} {how}, but does not listen: channel {name} cannot listen on 127.0.0.1:{port}"
                assert line.startswith(message)
            assert sorted(site.channels.problems) == ["A", "B"]
            assert site.channels.get("C") is not None
    added = config("B")
    lines = await site.apply(altered, added, config("C"))
    assert [line.split(" ")[1:3] for line in lines] == [["A", "listens"], ["B", "listens"]]
    assert not site.channels.problems
    assert site.port("A") == port


async def test_a_stopped_channel_stays_stopped(site: Site) -> None:
    await site.begin(config(), config("B"))
    await site.channels.stop("A")
    assert await site.apply(config(), config("B")) == []
    assert await site.apply(config(max_clients=1), config("B")) == ["channel A changed; it is stopped"]
    assert await site.apply(config("B")) == ["channel A removed"]
    assert [channel.config.name for channel in site.channels] == ["B"]


async def test_channels_defined_by_commands(site: Site) -> None:
    """They are stopped initially. A channel of the file with the same name overrides them."""
    await site.begin(config())
    site.register.set("D", Definition({}, config("D", max_clients=5)))
    assert await site.apply(config()) == ["channel D defined; it is stopped"]
    assert await site.apply(config()) == []
    lines = await site.apply(config(), config("D"))
    assert [line.split(" on ")[0] for line in lines] == ["channel D listens for MQTT clients"]
    assert await site.apply(config()) == ["channel D changed, for clients that connect from now on"]
    assert [channel_config.max_clients for channel_config in site.channels.configs] == [10_000, 5]
    site.register.forget("D")
    assert await site.apply(config()) == ["channel D removed"]
    assert site.channels.get("D") is None


async def test_changes_wait_for_each_other(site: Site) -> None:
    """A start during a change neither fails nor listens twice."""
    await site.begin(config(), config("B"))
    await site.channels.stop("A")
    line, lines = await asyncio.gather(site.channels.start("A"), site.apply(config(backlog=5), config("B", backlog=5)))
    assert line.startswith("channel A listens")
    assert [line.split(" ")[1] for line in lines] == ["A", "B"]
    assert len(site.channels) == 2


async def test_a_stopping_bridge_does_not_listen(site: Site) -> None:
    await site.begin(config(), config("B"))
    await site.channels.stop("A")
    site.channels.stop_listening()
    with pytest.raises(ChannelError, match="the bridge stops"):
        await site.channels.start("A")
