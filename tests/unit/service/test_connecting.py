"""CONNECT and its rejections, takeover, packets right after CONNECT, and the end of connections."""

from __future__ import annotations

import asyncio
import string
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.mqtt.packets import (
    Auth,
    AuthProperties,
    Connack,
    ConnackCode,
    Connect,
    ConnectProperties,
    Disconnect,
    DisconnectProperties,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Will,
)
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security.authenticator import Attempt, Authenticated, Challenge, FailedConnects, Presented
from bridge.security.authenticators import ChannelAuthentication
from bridge.service.client import Client
from bridge.service.connecting import delay
from bridge.service.events import CredentialsRejected
from bridge.telemetry.record import SentRecord, Side, StateKey
from bridge.telemetry.session import NEVER
from tests.helpers.service_bridge import ACCEPTED, PRESENT, answers

# Acceptance -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [3, 4])
async def test_session_present(bridge: Any, level: int) -> None:
    """MQTT 3.1 does not have this bit."""
    name = {3: "MQIsdp", 4: "MQTT"}[level]
    async with bridge() as running:
        flags = []
        for clean_session in (False, False, True, False, False):
            client = await running.open()
            client.send(Connect("c", name, level, clean_session))
            flags.append((await client.reader.readexactly(4))[2])
        assert flags == ([0, 1, 0, 0, 1] if level == 4 else [0] * 5)


async def test_clients_without_an_identifier_get_different_ones(bridge: Any) -> None:
    async with bridge() as running:
        first, second = await running.connect(""), await running.connect("")
        await first.silent()
        await second.silent()
        assert len(running.service.sessions) == 2


@pytest.mark.parametrize(
    ("config", "user_name", "expected"),
    [
        ({}, None, b""),
        ({}, "meter", b"meter"),
        ({"mcauser": "mca"}, "meter", b"mca"),
        ({"mcauser": "mca", "use_client_id": True}, "meter", b"sensor"),
    ],
)
async def test_identity_of_the_channel(
    bridge: Any, config: dict[str, Any], user_name: str | None, expected: bytes
) -> None:
    async with bridge(**config) as running:
        client = await running.connect("sensor", user_name=user_name)
        client.send(Publish("t", b"", 1, False, False, 1))
        await client.receive()
        assert running.backend.entered[0][0].md.UserIdentifier == expected


async def test_connack_waits_for_the_commit_of_a_durable_session(bridge: Any) -> None:
    async with bridge() as running:
        running.backend.automatic = False
        client = await running.open()
        client.send(Connect("c", clean_session=False))
        await running.backend.until(lambda: bool(running.backend.waiting))
        assert not running.backend.states
        running.backend.complete_all()
        assert await client.receive() == ACCEPTED
        assert running.backend.states


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "level"), [("MQTT", 6), ("MQTT", 3), ("MQIsdp", 4), ("MQTT", 0), ("mqtt", 4), ("HTTP", 1), ("", 4)]
)
async def test_connack_1_unacceptable_protocol(bridge: Any, name: str, level: int) -> None:
    async with bridge() as running:
        assert await answers(running, Connect("c", name, level)) == [Connack(1)]
        assert not running.service.sessions


async def test_connack_1_if_the_channel_does_not_accept_the_protocol(bridge: Any) -> None:
    async with bridge(protocols=["MQTTV311"]) as running:
        assert await answers(running, Connect("c", "MQIsdp", 3)) == [Connack(1)]
        await running.connect("c")


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(Connect("", clean_session=False), id="empty, for a durable session"),
        pytest.param(Connect("", "MQIsdp", 3), id="empty, MQTT 3.1"),
        pytest.param(Connect("x" * 24, "MQIsdp", 3), id="24 characters, MQTT 3.1"),
        pytest.param(Connect("x" * 49), id="49 bytes: no queue manager name"),
        pytest.param(Connect("\u00e9" * 25), id="25 characters, 50 bytes"),
        pytest.param(Connect("MQB1"), id="name of the queue manager"),
        pytest.param(Connect("c "), id="blank at the end: the same name to MQ as without it"),
        pytest.param(Connect(" "), id="blank"),
    ],
)
async def test_connack_2_identifier_rejected(bridge: Any, packet: Connect) -> None:
    async with bridge() as running:
        assert await answers(running, packet) == [Connack(2)]
        assert not running.service.sessions


async def test_identifiers_that_a_server_must_allow_are_accepted(bridge: Any) -> None:
    """MQTT-3.1.3-5."""
    characters = string.digits + string.ascii_letters
    async with bridge() as running:
        for client_id in (characters[:23], characters[23:46], characters[46:], "0", "Z"):
            await running.connect(client_id)


class LongChallenge:
    """An authentication method, and its exchange: a challenge of 100 bytes, except to clients that ask for none."""

    def begin(self, presented: Presented) -> LongChallenge:
        return self

    async def respond(self, data: bytes | None) -> Challenge | Authenticated:
        return Authenticated(None) if data == b"none" else Challenge(bytes(100))


@pytest.mark.parametrize("again", [False, True], ids=["connect", "re-authentication"])
async def test_a_challenge_that_is_too_long_for_the_client_is_no_failed_login(bridge: Any, again: bool) -> None:
    """MQTT-3.1.2-24. Otherwise clients with a small Maximum Packet Size would delay the others of their address."""
    rejected: list[object] = []
    async with bridge() as running:
        method = ChannelAuthentication(methods={"M": LongChallenge()})
        running.service.authentication = {running.config.name: method}
        running.service.events.subscribe(CredentialsRejected, rejected.append)
        for _ in range(3):
            data = b"none" if again else None
            properties = ConnectProperties(maximum_packet_size=100, authentication_method="M", authentication_data=data)
            client = await running.open()
            client.send(Connect("c", protocol_level=5, properties=properties))
            if again:
                assert isinstance(await client.receive(), Connack)
                client.send(Auth(ReasonCode.RE_AUTHENTICATE, AuthProperties("M", b"")))
            (answer,) = await client.rest()
            if isinstance(answer, Connack):
                assert answer.return_code == ReasonCode.PACKET_TOO_LARGE
            else:
                assert isinstance(answer, Disconnect) and answer.reason_code == ReasonCode.PACKET_TOO_LARGE
        counters = running.service.failed_connects._counters.values()
        assert [counter.failed for counter in counters] == [0, 0]
    assert not rejected


async def test_connack_3_if_max_clients_are_connected(bridge: Any) -> None:
    async with bridge(max_clients=2) as running:
        first = await running.connect("1")
        second = await running.connect("2")
        assert await answers(running) == [Connack(3)]
        await first.silent()
        second.send(Disconnect())
        assert await second.rest() == []
        await running.connect("3")


async def test_connack_3_if_the_session_cannot_be_recorded(bridge: Any) -> None:
    async with bridge() as running:
        running.backend.failure = 2102
        assert await answers(running, Connect("c", clean_session=False)) == [Connack(3)]
        running.backend.failure = 0
        client = await running.open()
        client.send(Connect("c", clean_session=False))
        assert await client.receive() == ACCEPTED


async def test_packets_after_a_rejected_connect_are_ignored(bridge: Any) -> None:
    async with bridge() as running:
        assert await answers(running, Connect("MQB1"), Publish("t", b""), Pingreq()) == [Connack(2)]
        assert not running.backend.units


@pytest.mark.usefixtures("quick_sweep")
async def test_connect_must_be_complete_within_its_time(bridge: Any) -> None:
    """Single bytes do not keep a connection open."""
    async with bridge(connect_timeout=0.05) as running:
        client = await running.open()
        client.send(b"\x10\xff\xff\x03")

        def ended() -> bool:
            if client.writer.transport.is_closing() or client.reader.at_eof():
                return True
            client.send(b"\0")
            return False

        await running.until(ended)
        assert not client.packets


@pytest.mark.usefixtures("quick_sweep")
async def test_time_outs_are_also_checked_on_an_event_loop_that_is_always_late(bridge: Any) -> None:
    async with bridge(connect_timeout=0.05) as running:
        client = await running.open()

        def work() -> None:
            time.sleep(0.03)
            if not client.reader.at_eof():
                asyncio.get_running_loop().call_soon(work)

        work()
        await running.until(client.reader.at_eof)


# Right behind CONNECT -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean_session", [False, True])
@pytest.mark.parametrize("together", [False, True], ids=["in segments", "in one segment"])
async def test_packets_sent_before_connack_are_processed_after_it(
    bridge: Any, clean_session: bool, together: bool
) -> None:
    """MQTT 3.1.1 section 3.1.4: clients may send packets without waiting for CONNACK."""
    packets = [
        Connect("c", clean_session=clean_session),
        Subscribe(1, (("t", 1),)),
        Publish("t", b"1", 1, False, False, 2),
    ]
    async with bridge() as running:
        running.backend.automatic = False
        client = await running.open()
        if together:
            client.send(*packets, Pingreq())
        else:
            for packet in [*packets, Pingreq()]:
                client.send(packet)
                await client.writer.drain()
        await running.backend.until(lambda: bool(running.backend.waiting))
        assert not running.backend.entered
        running.backend.automatic = True
        running.backend.complete_all()
        assert await client.receive() == ACCEPTED
        others = [await client.receive() for _ in range(3)]
        assert sorted(map(repr, others)) == sorted(map(repr, [Suback(1, (1,)), Puback(2), Pingresp()]))


async def test_disconnect_right_after_connect(bridge: Any) -> None:
    async with bridge() as running:
        packets = Connect("c", will=Will("will", b"")), Publish("t", b"1"), Disconnect(), Publish("t", b"2")
        assert await answers(running, *packets) == [ACCEPTED]
        await running.backend.until(lambda: bool(running.backend.entered))
        assert running.backend.payloads() == [b"1"]


async def test_a_client_that_disconnects_before_connack_leaves_nothing_behind(bridge: Any) -> None:
    async with bridge() as running:
        running.backend.automatic = False
        client = await running.open()
        client.send(Connect("c", will=Will("will", b"")))
        await running.backend.until(lambda: bool(running.backend.waiting))
        client.vanish()
        await running.until(lambda: not running.channel.connections)
        running.backend.complete_all()
        await running.until(lambda: not running.service.sessions)
        assert not running.backend.entered


# Take-over ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean_session", [False, True])
async def test_a_second_connection_takes_over(bridge: Any, clean_session: bool) -> None:
    """MQTT-3.1.4-2"""
    async with bridge() as running:
        first = await running.connect(clean_session=clean_session, will=Will("will", b"w"))
        second = await running.open()
        second.send(Connect("c", clean_session=clean_session))
        assert await second.receive() == (ACCEPTED if clean_session else PRESENT)
        assert await first.rest() == []
        await running.backend.until(lambda: bool(running.backend.entered))
        assert running.backend.payloads() == [b"w"]
        await second.silent()
        running.backend.deliver(running.backend.publication(1, 1))
        assert await second.receive() == Publish("t", b"1", 1, False, False, 1)


@pytest.mark.parametrize("kinds", [(True, True), (True, False), (False, True), (False, False)])
async def test_takeover_before_connack(bridge: Any, kinds: tuple[bool, bool]) -> None:
    async with bridge() as running:
        running.backend.automatic = False
        clients = []
        for clean_session in kinds:
            clients.append(await running.open())
            before = len(running.backend.waiting)
            clients[-1].send(Connect("c", clean_session=clean_session))
            await running.backend.until(lambda before=before: len(running.backend.waiting) > before)
        assert await clients[0].rest() == []
        running.backend.automatic = True
        running.backend.complete_all()
        assert await clients[1].receive() == ACCEPTED
        session = running.service.sessions["c"]
        assert session.durable is not kinds[1]
        clients[1].send(Publish("t", b"1", 1, False, False, 9))
        assert await clients[1].receive() == Puback(9)
        running.backend.deliver(running.backend.publication(1, 1))
        assert await clients[1].receive() == Publish("t", b"1", 1, False, False, 1)


async def test_takeover_in_the_same_segment_for_many_clients(bridge: Any) -> None:
    async with bridge() as running:
        clients = [await running.open() for _ in range(10)]
        for client in clients:
            client.send(Connect("c"))
        ended = [await client.rest() for client in clients[:-1]]
        assert all(codes in ([], [ACCEPTED]) for codes in ended)
        assert await clients[-1].receive() == ACCEPTED
        await clients[-1].silent()


# Delays ---------------------------------------------------------------------------------------------------------------


async def test_a_client_that_disconnects_during_its_delay_has_not_failed() -> None:
    """Otherwise a fleet that disconnects while it is delayed could never connect again."""
    failed = FailedConnects(lambda: 0.0)

    def attempt() -> Attempt:
        attempt = failed.begin("192.0.2.1", "carol", 1, 10.0)
        assert attempt is not None
        return attempt

    attempt().end(False)
    delayed = attempt()
    client = cast(Client, SimpleNamespace(peer="?", channel=SimpleNamespace(name="C")))
    task = asyncio.create_task(delay(client, delayed))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    # It would be 3 s later than the first one if that had failed, too.
    assert (delayed.delay, attempt().delay) == (1.0, 2.0)


# Session expiry -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "level"), [("MQIsdp", 3), ("MQTT", 4)])
@pytest.mark.parametrize("crashed", [False, True])
async def test_a_session_from_before_session_expiry_expires_after_the_next_connection(
    bridge: Any, restart: Any, name: str, level: int, crashed: bool
) -> None:
    """The session was started when the channel had no session_expiry. It waits for its client as long as before."""
    async with bridge() as running:
        client = await running.open()
        client.send(Connect("c", name, level, False))
        assert await client.receive() == Connack(0)
        if not crashed:
            client.send(Disconnect())
            await client.rest()
            await running.until(lambda: "c" not in running.service.clients and not running.backend.waiting)
        record = running.backend.states[StateKey(Side.SENT, "c")]
        assert isinstance(record, SentRecord) and record.connected is crashed
        backend = restart(running.backend)
    async with bridge(None, backend, session_expiry=100) as running:
        session = running.service.sessions["c"]
        assert session.expires_at == 0.0
        client = await running.open()
        client.send(Connect("c", name, level, False))
        assert isinstance(await client.receive(), Connack)
        assert running.service.sessions["c"] is session
        client.vanish()
        await running.until(lambda: "c" not in running.service.clients)
        assert session.expires_at == pytest.approx(session.since + 100)
        await running.until(lambda: not running.backend.waiting)
        record = running.backend.states[StateKey(Side.SENT, "c")]
        assert isinstance(record, SentRecord) and record.expiresAt == session.expires_at


@pytest.mark.parametrize(("requested", "granted"), [(0, 0), (50, 50), (100, 100), (101, 100), (NEVER, 100)])
async def test_disconnect_does_not_extend_a_session_beyond_session_expiry(
    bridge: Any, requested: int, granted: int
) -> None:
    async with bridge(session_expiry=100) as running:
        client = await running.open()
        properties = ConnectProperties(session_expiry_interval=10)
        client.send(Connect("c", "MQTT", 5, False, properties=properties))
        assert isinstance(await client.receive(), Connack)
        session = running.service.sessions["c"]
        client.send(Disconnect(properties=DisconnectProperties(session_expiry_interval=requested)))
        await client.rest()
        await running.until(lambda: "c" not in running.service.clients)
        assert session.expiry_interval == granted


async def test_during_an_outage_of_the_queue_manager_clients_are_disconnected_and_rejected(bridge: Any) -> None:
    async with bridge() as running:
        device = await running.connect("device", clean_session=False)
        running.backend.outage = True
        running.service.disconnect_all("the queue manager is unreachable", ReasonCode.SERVER_BUSY)
        assert await device.rest() == []
        late = await running.open()
        late.send(Connect("late"))
        assert await late.receive() == Connack(ConnackCode.SERVER_UNAVAILABLE, False)
        running.backend.outage = False
        assert "device" in running.service.sessions
        await running.connect("device", clean_session=False)
