"""Quotas: limits for sessions and subscriptions of a user, of a network, and of all clients together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.config.channel import ChannelConfig
from bridge.config.models import LimitsConfig
from bridge.mqtt.packets import (
    Connack,
    Connect,
    ConnectProperties,
    Disconnect,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from bridge.security.authenticator import Authenticated, Presented
from bridge.security.authenticators import ChannelAuthentication
from bridge.service.telemetry import Quotas, subscriptions_of
from bridge.telemetry.record import SentRecord, Side, StateKey
from bridge.transport.channel import Channel


class Names:
    """Authenticate each client with a password as the user that it claims to be."""

    def applies_to(self, presented: Presented) -> bool:
        return True

    async def authenticate(self, presented: Presented) -> Authenticated:
        return Authenticated(presented.user_name)


def asks(running: Any, **options: Any) -> None:
    """Authenticate the clients of the channel of `running`."""
    running.service.authentication = {running.config.name: ChannelAuthentication(True, [Names()], **options)}


async def connect(
    running: Any,
    client_id: str,
    user: str | None = None,
    *,
    network: str = "127.0.0.1",
    level: int = 4,
    clean: bool = False,
    expiry: int = 3600,
) -> tuple[Any, int]:
    """Connect from an address of this machine. Return the client and the code of CONNACK."""
    client = await running.open()
    client.writer.close()
    client.reader, client.writer = await asyncio.open_connection(*running.address, local_addr=(network, 0))
    properties = ConnectProperties(session_expiry_interval=expiry) if level == 5 else None
    password = None if user is None else b"password"
    client.send(Connect(client_id, "MQTT", level, clean, user_name=user, password=password, properties=properties))
    answer = await client.receive()
    assert isinstance(answer, Connack)
    return client, answer.return_code


def check_counts(running: Any) -> None:
    """Check that the counts equal the existing sessions, counted again."""
    quotas: Quotas = running.service.quotas
    users: Counter[str] = Counter()
    networks: Counter[str] = Counter()
    subscriptions: Counter[str] = Counter()
    total = 0
    for session in running.service.sessions.values():
        total += subscriptions_of(session)
        networks[session.network] += 1
        if session.principal is not None and session.principal.authenticated:
            users[session.principal.user] += 1
            subscriptions[session.principal.user] += subscriptions_of(session)
    assert len(quotas._counted) == len(running.service.sessions)
    assert quotas._sessions_of_user == users
    assert quotas._sessions_of_network == {name: number for name, number in networks.items() if name}
    assert quotas._subscriptions_of_user == {user: number for user, number in subscriptions.items() if number}
    assert quotas._subscriptions == total


# Sessions -------------------------------------------------------------------------------------------------------------

#: limit, (user, network) of a rejected client, of an accepted one, and the reason in the log
SESSION_LIMITS: dict[str, tuple[tuple[str | None, str], tuple[str | None, str] | None, str]] = {
    "sessions": ((None, "127.0.0.9"), None, "there are 2 sessions already (limits.sessions)"),
    "sessions_per_user": (
        ("alice", "127.0.0.9"),
        ("bob", "127.0.0.1"),
        "user 'alice' has 2 sessions already (limits.sessions_per_user)",
    ),
    "sessions_per_network": (
        ("bob", "127.0.0.1"),
        ("alice", "127.0.0.9"),
        "network 127.0.0.1 has 2 sessions already (limits.sessions_per_network)",
    ),
}


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("limit", SESSION_LIMITS)
async def test_one_more_session_than_a_limit_is_rejected(
    bridge: Any, caplog: pytest.LogCaptureFixture, limit: str, level: int
) -> None:
    """Sessions of disconnected clients count. Clients with a session are always accepted."""
    rejected, accepted, why = SESSION_LIMITS[limit]
    async with bridge({limit: 2}) as running:
        asks(running)
        connected, _ = await connect(running, "connected", "alice", level=level)
        away, _ = await connect(running, "away", "alice", level=level)
        away.send(Disconnect())
        await away.rest()
        assert (await connect(running, "new", rejected[0], network=rejected[1], level=level))[1] == (3, 0x97)[
            level == 5
        ]
        assert "new" not in running.service.sessions
        (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("MQB1201W")]
        assert why in line
        for client_id, clean in (("away", False), ("connected", False), ("connected", True), ("away", True)):
            assert (await connect(running, client_id, "alice", level=level, clean=clean))[1] == 0
        if accepted is not None:
            assert (await connect(running, "new", accepted[0], network=accepted[1], level=level))[1] == 0
        assert (await connected.rest()) is not None
        check_counts(running)


async def test_quotas_do_not_apply_to_claimed_users(bridge: Any) -> None:
    """A channel without authentication accepts any name, so the name does not identify the owner of a session."""
    async with bridge({"sessions_per_user": 1, "subscriptions_per_user": 1}) as running:
        for number in range(3):
            client, code = await connect(running, f"c{number}", "alice")
            assert code == 0
            assert await client.subscribe("a", "b") == (1, 1)
        check_counts(running)


async def test_clients_of_a_unix_socket_do_not_count_for_a_network(bridge: Any, tmp_path: Path) -> None:
    async with bridge({"sessions_per_network": 1}) as running:
        config = ChannelConfig(name="LOCAL", socket=tmp_path / "mqtt.sock")
        channel = Channel(config, running.make_owner, pending_bytes=running.limits.pending_bytes)
        await channel.listen()
        for number in range(3):
            client = await running.open()
            client.writer.close()
            client.reader, client.writer = await asyncio.open_unix_connection(config.socket)
            client.send(Connect(f"c{number}", clean_session=False))
            assert await client.receive() == Connack(0)
        check_counts(running)
        channel.stop_listening()
        await channel.close()


async def test_a_restarted_session_keeps_its_place(bridge: Any) -> None:
    """Messages of the old session are still being removed. Meanwhile, no other session can take its place."""
    async with bridge({"sessions": 1}) as running:
        first = await running.connect("c", clean_session=True)
        held: list[Callable[[], None]] = []
        turns = running.service.turns
        run, turns.run = turns.run, held.append
        again = await running.open()
        again.send(Connect("c", clean_session=True))
        await running.until(lambda: bool(held))
        assert await first.rest() == []
        other = await running.open()
        other.send(Connect("other", clean_session=True))
        assert await other.receive() == Connack(3)
        turns.run = run
        for step in held:
            step()
        assert await again.receive() == Connack(0)
        check_counts(running)


@pytest.mark.parametrize("how", ["disconnect", "purge"])
async def test_an_ended_session_frees_its_place(bridge: Any, how: str) -> None:
    async with bridge({"sessions_per_network": 1}) as running:
        client, _ = await connect(running, "c", clean=how == "disconnect")
        if how == "disconnect":
            client.send(Disconnect())
            await client.rest()
        else:
            client.vanish()
            await running.until(lambda: "c" not in running.service.clients)
            running.service.purge(running.service.sessions["c"])
        await running.until(lambda: not running.service.quotas._counted)
        assert (await connect(running, "other"))[1] == 0
        check_counts(running)


async def test_a_session_counts_for_its_new_owner(bridge: Any) -> None:
    async with bridge({"sessions_per_user": 2}) as running:
        asks(running, shared_client_ids=True)
        for client_id in ("a", "b"):
            client, _ = await connect(running, client_id, "alice")
            await client.subscribe("t")
        assert (await connect(running, "a", "bob"))[1] == 0
        check_counts(running)
        assert (await connect(running, "c", "alice"))[1] == 0
        assert (await connect(running, "d", "bob"))[1] == 0
        assert (await connect(running, "e", "bob"))[1] == 3
        check_counts(running)


# Subscriptions --------------------------------------------------------------------------------------------------------

#: limit of 3, user whose second client is rejected, user whose second client is accepted, and the reason in the log
SUBSCRIPTION_LIMITS: dict[str, tuple[str, str | None, str]] = {
    "subscriptions_per_user": (
        "alice",
        "bob",
        "user 'alice' has 2 subscriptions already (limits.subscriptions_per_user)",
    ),
    "subscriptions_total": ("bob", None, "there are 2 subscriptions already (limits.subscriptions_total)"),
}


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("limit", SUBSCRIPTION_LIMITS)
async def test_more_subscriptions_than_a_limit_are_rejected(
    bridge: Any, caplog: pytest.LogCaptureFixture, limit: str, level: int
) -> None:
    """An existing topic filter is accepted, and each member of a shared subscription counts."""
    rejected, accepted, why = SUBSCRIPTION_LIMITS[limit]
    refusal = (0x80, 0x97)[level == 5]
    async with bridge({limit: 3}) as running:
        asks(running)
        first, _ = await connect(running, "first", "alice", level=level)
        assert await first.subscribe("a", "$share/s/a") == (1, 1)
        second, _ = await connect(running, "second", rejected, level=level)
        assert await second.subscribe("a", "b", "$share/s/a") == (1, refusal, refusal)
        assert await second.subscribe("a") == (1,)
        assert await first.subscribe("a", "$share/s/a") == (1, 1)
        assert (
            sum(why in record.getMessage() for record in caplog.records if record.getMessage().startswith("MQB2201W"))
            == 2
        )
        if accepted is not None:
            third, _ = await connect(running, "third", accepted, level=level)
            assert await third.subscribe("a", "b") == (1, 1)
        check_counts(running)


async def test_rejected_and_ended_subscriptions_do_not_count(bridge: Any) -> None:
    async with bridge({"subscriptions_total": 3}) as running:
        asks(running)
        running.backend.refused = {"denied": 2035, "a": 0}
        client, _ = await connect(running, "c", "alice")
        assert await client.subscribe("denied", "a", "$share/s/a") == (0x80, 1, 1)
        check_counts(running)
        client.send(Unsubscribe(2, ("a", "$share/s/a")))
        assert isinstance(await client.receive(), Unsuback)
        check_counts(running)
        assert await client.subscribe("a", "b", "c") == (1, 1, 1)
        other, _ = await connect(running, "other", "alice")
        assert await other.subscribe("a") == (0x80,)
        running.service.purge(running.service.sessions["c"])
        await running.until(lambda: len(running.service.quotas._counted) == 1)
        assert await other.subscribe("a") == (1,)
        check_counts(running)


async def test_subscriptions_that_a_resumed_session_loses_do_not_count(bridge: Any) -> None:
    async with bridge() as running:
        asks(running)
        client, _ = await connect(running, "c", "alice")
        await client.subscribe("a", "b", "$share/s/b")
        running.backend.unauthorized = {("alice", "b"): 2035, ("alice", "$share/s/b"): 2035}
        client, _ = await connect(running, "c", "alice")
        assert list(running.service.sessions["c"].filters) == ["a"]
        check_counts(running)
        assert running.service.quotas._subscriptions == 1


# Restart and reload ---------------------------------------------------------------------------------------------------


async def test_the_counts_are_the_same_after_a_restart(bridge: Any, restart: Any, durable_subscription: Any) -> None:
    limits = {"sessions_per_user": 2, "sessions_per_network": 3, "subscriptions_per_user": 3}
    async with bridge(limits) as running:
        asks(running)
        for client_id, user, network in (
            ("a", "alice", "127.0.0.1"),
            ("b", "alice", "127.0.0.2"),
            ("c", "bob", "127.0.0.1"),
        ):
            client, code = await connect(running, client_id, user, network=network)
            assert code == 0
            await client.subscribe("t")
        await connect(running, "d", "carol", clean=True)  # ends with the bridge
        old = running.backend.states[StateKey(Side.SENT, "c")]
        assert isinstance(old, SentRecord) and old.network == "127.0.0.1"
        backend = restart(running.backend, *(durable_subscription(client_id, "t", "1", True) for client_id in "abc"))
    # As an older bridge wrote it.
    older = msgspec.structs.replace(old, clientIdentifier="older", principal=None, network="")
    backend.recovered.records.append(older)
    async with bridge(limits, backend) as running:
        asks(running)
        assert running.service.sessions.keys() == {"a", "b", "c", "older"}
        check_counts(running)
        assert (await connect(running, "e", "alice"))[1] == 3
        assert (await connect(running, "f", "bob"))[1] == 0
        assert (await connect(running, "g", "carol"))[1] == 3
        client, code = await connect(running, "a", "alice", network="127.0.0.3")
        assert code == 0 and running.service.sessions["a"].network == "127.0.0.1"
        assert await client.subscribe("u", "v") == (1, 0x80)
        check_counts(running)


async def test_reloaded_limits_apply_to_new_sessions_and_subscriptions(bridge: Any) -> None:
    async with bridge() as running:
        asks(running)
        for client_id in "ab":
            client, _ = await connect(running, client_id, "alice")
            await client.subscribe("t")
        running.service.use_limits(LimitsConfig(sessions_per_user=2, subscriptions_per_user=1))
        assert running.service.sessions.keys() == {"a", "b"}
        assert (await connect(running, "c", "alice"))[1] == 3
        assert await client.subscribe("t", "u") == (1, 0x80)
        running.service.use_limits(LimitsConfig())
        assert (await connect(running, "c", "alice"))[1] == 0
        assert await client.subscribe("u") == (1,)


async def test_filters_have_ten_levels_on_average_at_most(bridge: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Deep filters cost as much as many filters, because a publication may be compared with each of their levels."""
    async with bridge({"subscriptions": 3}) as running:
        client = await running.connect()
        twenty, eleven, ten = "/".join("+" * 20), "/".join("+" * 11), "/".join("+" * 10)
        client.send(Subscribe(1, ((twenty, 0), (eleven, 0), (ten, 0))))
        assert (await client.receive()).return_codes == (0, 0x80, 0)
        assert "the filters of a client have at most 30 levels" in caplog.text
        client.send(Unsubscribe(2, (twenty,)))
        await client.receive()
        client.send(Subscribe(3, ((eleven, 0),)))
        assert (await client.receive()).return_codes == (0,)
