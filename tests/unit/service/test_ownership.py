"""Ownership of sessions: the principal that can resume or discard one, with any protocol and channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count, product
from typing import Any

import msgspec
import pytest

from bridge.config.channel import ChannelConfig
from bridge.mqtt.packets import (
    Connack,
    Connect,
    ConnectProperties,
    Disconnect,
    Publish,
    Will,
    WillProperties,
)
from bridge.security.authenticator import Authenticated, AuthenticationFailed, Presented
from bridge.security.authenticators import ChannelAuthentication
from bridge.service.events import ConnectRejected, EventBus, Finished
from bridge.telemetry.identity import UNAUTHENTICATED, Principal
from bridge.telemetry.record import Side, StateKey, decode
from bridge.telemetry.undelivered import NOT_ALLOWED
from bridge.transport.channel import Channel
from bridge.wire import cmqc
from tests.helpers.service_bridge import Client

OPEN, PASSWORD, TOKEN = "OPEN", "PASSWORD", "TOKEN"


class Passwords:
    """Accept the reversed user name as the password."""

    def applies_to(self, presented: Presented) -> bool:
        return presented.password is not None

    async def authenticate(self, presented: Presented) -> Authenticated:
        user = presented.user_name or ""
        if presented.password != user[::-1].encode():
            raise AuthenticationFailed("wrong password")
        return Authenticated(user)


class Tokens:
    """The password determines the user. The claimed user name is ignored."""

    def applies_to(self, presented: Presented) -> bool:
        return presented.password is not None

    async def authenticate(self, presented: Presented) -> Authenticated:
        return Authenticated((presented.password or b"")[::-1].decode())


AUTHENTICATION = {
    OPEN: ChannelAuthentication(),
    PASSWORD: ChannelAuthentication(True, [Passwords()]),
    TOKEN: ChannelAuthentication(True, [Tokens()]),
}


class Site:
    """A telemetry service with channels of several kinds."""

    def __init__(self, running: Any, channels: dict[str, Channel]) -> None:
        self.running, self.channels = running, channels
        self.service, self.backend = running.service, running.backend
        self.devices: list[Client] = []

    async def connect(
        self,
        channel: str,
        client_id: str,
        user: str = "alice",
        *,
        level: int = 4,
        clean: bool = False,
        durable: bool = True,
        will: Will | None = None,
    ) -> tuple[Client, Connack]:
        """Send CONNECT. Session Expiry Interval in MQTT 5, and Clean Session before it, determine whether the session is
        durable.
        """
        device = Client(*await asyncio.open_connection(*(self.channels[channel].endpoint or ())))
        self.devices.append(device)
        properties = ConnectProperties(session_expiry_interval=3600) if level == 5 and durable else None
        packet = Connect(client_id, "MQIsdp" if level == 3 else "MQTT", level, clean, will=will, properties=properties)
        if channel == OPEN:
            packet = msgspec.structs.replace(packet, user_name=user)
        else:
            packet = msgspec.structs.replace(packet, user_name=user, password=user[::-1].encode())
        device.send(packet)
        answer = await device.receive()
        assert isinstance(answer, Connack)
        return device, answer

    async def accepted(self, *where: Any, **fields: Any) -> Client:
        device, answer = await self.connect(*where, **fields)
        assert answer.return_code == 0
        return device

    async def leave(self, device: Client, client_id: str) -> None:
        """Disconnect, and keep the session."""
        device.send(Disconnect())
        await device.rest()
        await self.running.until(lambda: client_id not in self.service.clients)

    def record(self, client_id: str) -> Any:
        return self.backend.states[StateKey(Side.SENT, client_id)]


@pytest.fixture
def site(bridge: Any) -> Callable[..., Any]:
    @asynccontextmanager
    async def begin(backend: Any = None, listeners: Any = (), **options: dict[str, Any]) -> AsyncIterator[Site]:
        async with bridge(backend=backend, listeners=listeners) as running:
            authentication, channels = {}, {}
            for name, authentication_of in AUTHENTICATION.items():
                config = ChannelConfig(name=name, port=0, **options.get(name, {}))
                authentication[name] = msgspec.structs.replace(
                    authentication_of, shared_client_ids=config.shared_client_ids
                )
                channels[name] = Channel(config, running.make_owner, pending_bytes=running.limits.pending_bytes)
                await channels[name].listen()
            running.service.authentication = authentication
            new_site = Site(running, channels)
            try:
                yield new_site
            finally:
                for device in new_site.devices:
                    device.vanish()
                for channel in channels.values():
                    channel.stop_listening()
                running.backend.automatic = True
                running.backend.complete_all()
                for channel in channels.values():
                    await channel.close()

    return begin


# Every combination ----------------------------------------------------------------------------------------------------

#: (channel of the owner, channel of the other client) -> result for the same user name, and for another one
OUTCOMES = {
    (OPEN, OPEN): ("allowed", "allowed"),  # names on a channel without authentication are claims
    (OPEN, PASSWORD): ("rejected", "rejected"),
    (OPEN, TOKEN): ("rejected", "rejected"),
    (PASSWORD, OPEN): ("rejected", "rejected"),
    (PASSWORD, PASSWORD): ("allowed", "rejected"),
    (PASSWORD, TOKEN): ("allowed", "rejected"),  # one namespace of users
    (TOKEN, OPEN): ("rejected", "rejected"),
    (TOKEN, PASSWORD): ("allowed", "rejected"),
    (TOKEN, TOKEN): ("allowed", "rejected"),
}

#: (owner's session is durable, owner is connected): there is no session if both are false
STATES = [(True, True), (True, False), (False, True)]


@pytest.mark.parametrize("newcomer_level", [3, 4, 5])
@pytest.mark.parametrize(("owner", "newcomer"), OUTCOMES)
async def test_only_the_owner_of_a_session_can_resume_or_end_it(
    site: Any, owner: str, newcomer: str, newcomer_level: int
) -> None:
    async with site() as running:
        numbers = count(1)
        for same, clean, level, (durable, connected) in product([True, False], [True, False], [3, 4, 5], STATES):
            case = f"{same=} {clean=} {level=} {durable=} {connected=}"
            number = next(numbers)
            client_id = f"c{number}"
            will = Will(f"will/{client_id}", b"")
            before = await running.accepted(
                owner, client_id, level=level, clean=not durable, durable=durable, will=will
            )
            assert await before.subscribe("t") == (1,), case
            session = running.service.sessions[client_id]
            if not connected:
                await running.leave(before, client_id)
            running.backend.deliver(running.backend.publication(number, 1, client_id=client_id))
            if connected:
                assert isinstance(await before.receive(), Publish), case
            states = dict(running.backend.states)
            user = "alice" if same else "bob"
            device, answer = await running.connect(newcomer, client_id, user, level=newcomer_level, clean=clean)
            if OUTCOMES[owner, newcomer][not same] == "rejected":
                assert answer.return_code == (0x87 if newcomer_level == 5 else 5), case
                await device.rest()
                assert running.service.sessions[client_id] is session and "t" in session.filters, case
                assert len(session.outbox.pending()) == 1 and running.backend.states == states, case
                assert f"will/{client_id}" not in [message.topic for message, _ in running.backend.entered], case
                assert session.connected is connected, case
                if connected:
                    await before.publish("alive")
                continue
            assert answer.return_code == 0, case
            if connected:
                await before.rest()
            resumed = durable and not clean
            assert answer.session_present is (resumed and newcomer_level != 3), case
            assert (running.service.sessions[client_id] is session) is resumed, case
            if resumed:
                redelivered = await device.receive()
                assert isinstance(redelivered, Publish) and redelivered.topic == "t", case
            await device.publish("alive")


# Rejection ------------------------------------------------------------------------------------------------------------


async def test_a_client_whose_connect_is_not_committed_yet_keeps_its_session(site: Any) -> None:
    async with site() as running:
        running.backend.automatic = False
        owner = asyncio.ensure_future(running.connect(PASSWORD, "c", "alice"))
        await running.backend.until(lambda: bool(running.backend.waiting))
        for clean in (False, True):
            _, answer = await running.connect(PASSWORD, "c", "bob", clean=clean)
            assert answer == Connack(5)
        running.backend.automatic = True
        running.backend.complete_all()
        device, answer = await owner
        assert answer == Connack(0)
        await device.publish("alive")


async def test_a_rejected_client_does_not_stop_a_delayed_will(site: Any) -> None:
    async with site() as running:
        will = Will("gone", b"", properties=WillProperties(will_delay_interval=3600))
        owner = await running.accepted(PASSWORD, "c", "alice", level=5, will=will)
        owner.vanish()
        await running.running.until(lambda: "c" not in running.service.clients)
        for clean in (False, True):
            assert (await running.connect(PASSWORD, "c", "bob", level=5, clean=clean))[1].return_code == 0x87
        assert not running.backend.entered
        running.service.wills.publish_all()
        await running.backend.until(lambda: bool(running.backend.entered))
        (publication,) = running.backend.entered
        assert publication[0].topic == "gone" and publication[0].md.UserIdentifier == b"alice"


async def test_a_rejected_client_is_logged_counted_and_told_the_remedy(
    site: Any, caplog: pytest.LogCaptureFixture
) -> None:
    counted: list[str] = []

    def listen(events: EventBus) -> None:
        events.subscribe(ConnectRejected, lambda event: counted.extend([event.channel] * event.by_owner))

    async with site(listeners=[listen]) as running:
        await running.accepted(PASSWORD, "pump-7", "alice")
        await running.connect(OPEN, "pump-7", "mallory")
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("MQB1212W")]
    for part in (
        "OPEN",
        "pump-7",
        "127.0.0.1",
        "an unauthenticated client",
        "user 'alice'",
        "PASSWORD",
        "client purge",
    ):
        assert part in line
    assert not [record for record in caplog.records if record.getMessage().startswith("MQB1201W")]
    assert counted == [OPEN]


async def test_an_anonymous_client_of_a_channel_with_authentication_is_not_authenticated(site: Any) -> None:
    """`anonymous` accepts clients without credentials. Their sessions do not belong to an authenticated user
    without a name.
    """
    async with site() as running:
        running.service.authentication |= {PASSWORD: ChannelAuthentication(True, [Passwords()], anonymous=True)}
        device = Client(*await asyncio.open_connection(*running.channels[PASSWORD].endpoint))
        running.devices.append(device)
        device.send(Connect("c", clean_session=False, user_name="alice"))
        assert await device.receive() == Connack(0)
        assert running.service.sessions["c"].principal == UNAUTHENTICATED


class Vouching:
    """A method of enhanced authentication whose user the test chooses."""

    def begin(self, presented: Presented) -> Vouching:
        return self

    async def respond(self, data: bytes | None) -> Authenticated:
        return Authenticated((data or b"").decode())


async def by_method(running: Site, client_id: str, user: str) -> Connack:
    device = Client(*await asyncio.open_connection(*(running.channels[OPEN].endpoint or ())))
    running.devices.append(device)
    properties = ConnectProperties(3600, authentication_method="VOUCH", authentication_data=user.encode())
    device.send(Connect(client_id, protocol_level=5, clean_session=False, properties=properties))
    answer = await device.receive()
    assert isinstance(answer, Connack)
    return answer


async def test_a_user_of_enhanced_authentication_is_the_same_principal_as_one_with_a_password(site: Any) -> None:
    """Also on a channel whose other clients are not authenticated."""
    async with site() as running:
        running.service.authentication |= {OPEN: ChannelAuthentication(methods={"VOUCH": Vouching()})}
        assert (await by_method(running, "c", "alice")).return_code == 0
        assert running.service.sessions["c"].principal == Principal(True, "alice")
        assert (await running.connect(OPEN, "c", "alice"))[1] == Connack(5)
        assert (await running.connect(PASSWORD, "c", "alice"))[1] == Connack(0, True)
        assert (await by_method(running, "c", "bob")).return_code == 0x87


@pytest.mark.parametrize("user", ["alice ", " alice", "al\u200bice"])
async def test_a_method_cannot_authenticate_a_user_name_that_looks_like_another(site: Any, user: str) -> None:
    async with site() as running:
        running.service.authentication |= {OPEN: ChannelAuthentication(methods={"VOUCH": Vouching()})}
        assert (await by_method(running, "c", user)).return_code == 0x87


# Upgrade and binding --------------------------------------------------------------------------------------------------


async def test_a_session_of_an_older_record_belongs_to_the_first_user_who_resumes_it(
    site: Any, restart: Any, durable_subscription: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with site() as running:
        await running.accepted(PASSWORD, "c", "alice")
        backend = restart(running.backend, durable_subscription("c", "news", "1", True))
    old = decode(
        b'{"side":"sent","clientIdentifier":"c","connected":true,"channel":"PASSWORD","sequence":3,"version":2}'
    )
    backend.states[StateKey(Side.SENT, "c")] = old
    backend.recovered.records[:] = list(backend.states.values())
    async with site(backend) as running:
        _, answer = await running.connect(PASSWORD, "c", "alice")
        assert answer == Connack(0, True)
        assert (await running.connect(PASSWORD, "c", "bob"))[1] == Connack(5)
        assert running.record("c").principal == Principal(True, "alice")
    assert any(record.getMessage().startswith("MQB2004I") for record in caplog.records)


async def test_the_owner_survives_a_restart(site: Any, restart: Any) -> None:
    async with site() as running:
        await running.accepted(PASSWORD, "c", "alice")
        backend = restart(running.backend)
    async with site(backend) as running:
        assert (await running.connect(OPEN, "c", "alice"))[1] == Connack(5)
        assert (await running.connect(PASSWORD, "c", "bob"))[1] == Connack(5)
        assert (await running.connect(TOKEN, "c", "alice"))[1] == Connack(0, True)


async def test_clients_keep_their_sessions_when_their_channel_gets_authentication(site: Any) -> None:
    """The session of an unauthenticated client is taken over only if its own channel now has authentication."""
    async with site() as running:
        await running.leave(await running.accepted(OPEN, "c", "alice"), "c")
        assert (await running.connect(PASSWORD, "c", "alice"))[1] == Connack(5)
        running.service.authentication |= {OPEN: AUTHENTICATION[PASSWORD]}
        assert (await running.connect(PASSWORD, "c", "alice"))[1] == Connack(0, True)
        assert (await running.connect(PASSWORD, "c", "bob"))[1] == Connack(5)


# Sharing --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner_shares", "newcomer_shares", "code"),
    [(True, True, 0), (True, False, 5), (False, True, 5), (False, False, 5)],
)
async def test_users_share_a_session_only_if_both_channels_allow_it(
    site: Any, owner_shares: bool, newcomer_shares: bool, code: int
) -> None:
    options = {PASSWORD: {"shared_client_ids": owner_shares}, TOKEN: {"shared_client_ids": newcomer_shares}}
    async with site(**options) as running:
        await running.accepted(PASSWORD, "c", "alice")
        _, answer = await running.connect(TOKEN, "c", "bob")
        assert answer.return_code == code
        owner = "alice" if code else "bob"
        assert running.service.sessions["c"].principal == Principal(True, owner)
        assert running.record("c").principal == Principal(True, owner)


async def test_a_session_of_a_removed_channel_is_not_shared(site: Any) -> None:
    async with site(PASSWORD={"shared_client_ids": True}, TOKEN={"shared_client_ids": True}) as running:
        await running.leave(await running.accepted(PASSWORD, "c", "alice"), "c")
        running.service.authentication = {TOKEN: running.service.authentication[TOKEN]}
        assert (await running.connect(TOKEN, "c", "bob"))[1] == Connack(5)


# Subscriptions of a resumed session -----------------------------------------------------------------------------------

RULES = {"subscribe_topics": ["devices/%u/#", "news"], "publish_topics": ["devices/%u/#"]}
SHARING = {"shared_client_ids": True}


def waiting(running: Site) -> list[int]:
    """Return the numbers of the messages that wait for client c."""
    return [transmission.msg_number for transmission in running.service.sessions["c"].outbox.pending()]


async def test_a_resumed_session_loses_messages_that_its_new_user_may_not_receive(
    site: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Alice has one message in flight and others waiting. Bob gets only messages that a filter of the session still
    covers.
    """
    finished: list[tuple[int, str | None]] = []

    def note(event: Finished) -> None:
        finished.extend(
            (transmission.msg_number, event.discarded.get(transmission.msg_number))
            for transmission in event.transmissions
        )

    async with site(listeners=[lambda events: events.subscribe(Finished, note)], PASSWORD=RULES | SHARING) as running:
        backend = running.backend
        alice = await running.accepted(PASSWORD, "c", "alice")
        assert await alice.subscribe("devices/alice/#", "news") == (1, 1)
        backend.deliver(backend.publication(1, 1, topic="devices/alice/a", payload=b"1"))
        assert isinstance(await alice.receive(), Publish)
        await running.leave(alice, "c")
        backend.deliver(
            backend.publication(2, 1, topic="devices/alice/b"),
            backend.publication(3, 1, topic="news"),
            backend.direct(4),
            backend.publication(5, 1, topic="devices/alice/c", user_data="an administrator's"),
        )
        bob, answer = await running.connect(PASSWORD, "c", "bob")
        assert answer == Connack(0, True)
        packets = [await bob.receive() for _ in range(3)]
        assert [packet.payload for packet in packets if isinstance(packet, Publish)] == [b"3", b"", b"5"]
        assert [transmission.msg_number for transmission in backend.removed] == [1, 2]
        assert backend.unsubscribed == [("c", "devices/alice/#")]
        assert list(running.service.sessions["c"].filters) == ["news"]
        assert [number for number, why in finished if why == NOT_ALLOWED] == [1, 2]
        await bob.publish("devices/bob/alive")
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("MQB2203W")]
    assert "'devices/alice/#'" in line and "subscribe_topics" in line


async def test_a_resumption_is_rejected_while_a_forbidden_subscription_cannot_be_removed(site: Any) -> None:
    async with site(PASSWORD=RULES | SHARING) as running:
        backend = running.backend
        alice = await running.accepted(PASSWORD, "c", "alice")
        await alice.subscribe("devices/alice/#", "news")
        await running.leave(alice, "c")
        backend.not_removable["devices/alice/#"] = cmqc.MQRC_NOT_AUTHORIZED
        _, answer = await running.connect(PASSWORD, "c", "bob")
        assert isinstance(answer, Connack) and answer.return_code
        assert set(running.service.sessions["c"].filters) == {"devices/alice/#", "news"}
        backend.not_removable.clear()
        _, answer = await running.connect(PASSWORD, "c", "bob")
        assert answer == Connack(0, True)
        assert list(running.service.sessions["c"].filters) == ["news"]


async def test_a_client_is_answered_after_it_is_unsubscribed(site: Any) -> None:
    """Messages that arrive before the queue manager has unsubscribed it are discarded, too."""
    async with site(PASSWORD=RULES | SHARING) as running:
        backend = running.backend
        alice = await running.accepted(PASSWORD, "c", "alice")
        await alice.subscribe("devices/alice/#")
        await running.leave(alice, "c")
        backend.automatic = False
        bob = asyncio.ensure_future(running.connect(PASSWORD, "c", "bob"))
        await backend.until(lambda: bool(backend.waiting))
        backend.deliver(backend.publication(1, 1, topic="devices/alice/a"))
        assert not bob.done()
        backend.complete()
        assert backend.unsubscribed == [("c", "devices/alice/#")]
        backend.automatic = True
        backend.complete_all()
        device, answer = await bob
        assert answer == Connack(0, True) and [transmission.msg_number for transmission in backend.removed] == [1]
        await device.publish("devices/bob/alive")


async def test_a_second_connection_waits_until_the_first_is_authorized(site: Any) -> None:
    async with site(PASSWORD=RULES | SHARING) as running:
        backend = running.backend
        alice = await running.accepted(PASSWORD, "c", "alice")
        await alice.subscribe("devices/alice/#")
        await running.leave(alice, "c")
        backend.deliver(backend.publication(1, 1, topic="devices/alice/a"))
        backend.automatic = False
        first = asyncio.ensure_future(running.connect(PASSWORD, "c", "bob"))
        await backend.until(lambda: bool(backend.waiting))
        second = asyncio.ensure_future(running.connect(PASSWORD, "c", "bob"))
        with pytest.raises(ConnectionError):
            await first
        assert not second.done()
        backend.automatic = True
        backend.complete_all()
        device, answer = await second
        assert answer == Connack(0, True) and backend.unsubscribed == [("c", "devices/alice/#")]
        await device.publish("devices/bob/alive")


async def test_a_changed_rule_applies_when_a_session_is_resumed(
    site: Any, restart: Any, durable_subscription: Any
) -> None:
    """After a reload as well as after a restart, and only once."""
    narrow = {"subscribe_topics": ["news"]}
    async with site() as running:
        device = await running.accepted(PASSWORD, "c", "alice")
        assert await device.subscribe("plant/#", "news") == (1, 1)
        await running.leave(device, "c")
        backend = restart(
            running.backend,
            durable_subscription("c", "plant/#", "1", True),
            durable_subscription("c", "news", "1", True),
        )
        running.channels[PASSWORD].use(ChannelConfig(name=PASSWORD, port=0, **narrow))
        assert (await running.connect(PASSWORD, "c", "alice"))[1] == Connack(0, True)
        assert running.backend.unsubscribed == [("c", "plant/#")]
    backend.lying = [backend.publication(1, 1, topic="plant/a"), backend.publication(2, 1, topic="news")]
    async with site(backend, PASSWORD=narrow) as running:
        device = await running.accepted(PASSWORD, "c", "alice")
        packet = await device.receive()
        assert isinstance(packet, Publish) and packet.payload == b"2"
        assert backend.unsubscribed == [("c", "plant/#")] and [
            transmission.msg_number for transmission in backend.removed
        ] == [1]


@pytest.mark.parametrize("by", ["rules", "the queue manager"])
async def test_a_resumed_session_leaves_shares_that_its_new_user_may_not_join(site: Any, by: str) -> None:
    options = SHARING | (RULES if by == "rules" else {})
    async with site(PASSWORD=options) as running:
        backend = running.backend
        written = "$share/group/devices/alice/#"
        alice = await running.accepted(PASSWORD, "c", "alice")
        other = await running.accepted(PASSWORD, "other", "alice")
        for device in (alice, other):
            assert await device.subscribe(written) == (1,)
        if by != "rules":
            backend.unauthorized["bob", written] = 2035
        bob, answer = await running.connect(PASSWORD, "c", "bob")
        assert answer == Connack(0, True)
        session = running.service.sessions["c"]
        (share,) = running.service.delivery.shares.values()
        assert not session.shares and list(share.members) == ["other"] and running.record("c").shares == []
        await bob.publish("devices/bob/alive")


async def test_subscriptions_are_authorized_by_the_queue_manager_for_another_mq_user(site: Any, restart: Any) -> None:
    async with site(PASSWORD=SHARING) as running:
        backend = running.backend
        alice = await running.accepted(PASSWORD, "c", "alice")
        await alice.subscribe("a", "b")
        assert running.record("c").mqUser == "alice"
        backend.unauthorized["bob", "a"] = 2035
        bob = await running.accepted(PASSWORD, "c", "bob")
        assert backend.authorized == [("c", "a", "bob", True), ("c", "b", "bob", True)]
        assert list(running.service.sessions["c"].filters) == ["b"] and backend.unsubscribed == [("c", "a")]
        assert running.record("c").mqUser == "bob"
        await bob.publish("alive")
        backend.authorized.clear()
        await running.accepted(PASSWORD, "c", "bob")
        assert backend.authorized == [("c", "b", "bob", False)]


async def test_a_client_is_rejected_temporarily_if_its_subscriptions_cannot_be_authorized(site: Any) -> None:
    """The session does not change."""
    async with site(PASSWORD=SHARING) as running:
        backend = running.backend
        alice = await running.accepted(PASSWORD, "c", "alice")
        await alice.subscribe("a")
        await running.leave(alice, "c")
        backend.unauthorized["bob", "a"] = 2102
        assert (await running.connect(PASSWORD, "c", "bob"))[1] == Connack(3)
        assert list(running.service.sessions["c"].filters) == ["a"] and not running.service.sessions["c"].connected
        backend.unauthorized.clear()
        await running.accepted(PASSWORD, "c", "bob")


async def test_messages_stay_if_they_cannot_be_discarded(site: Any) -> None:
    async with site(PASSWORD=RULES | SHARING) as running:
        backend = running.backend
        alice = await running.accepted(PASSWORD, "c", "alice")
        await alice.subscribe("devices/alice/#")
        await running.leave(alice, "c")
        backend.deliver(backend.publication(1, 1, topic="devices/alice/a"))
        backend.failure = 2102
        assert (await running.connect(PASSWORD, "c", "bob"))[1] == Connack(3)
        assert list(running.service.sessions["c"].filters) == ["devices/alice/#"]
        backend.failure = 0
        bob = await running.accepted(PASSWORD, "c", "bob")
        await bob.publish("devices/bob/alive")
        assert [transmission.msg_number for transmission in backend.removed] == [1]


# Wills ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topic", "refused"), [("devices/alice/gone", True), ("devices/bob/gone", False)])
@pytest.mark.parametrize("delay", [0, 3600])
async def test_a_will_is_authorized_for_its_own_user(site: Any, topic: str, refused: bool, delay: int) -> None:
    """Also a delayed will, and after the session belonged to alice before."""
    async with site(PASSWORD=RULES | SHARING) as running:
        await running.leave(await running.accepted(PASSWORD, "c", "alice", level=5), "c")
        will = Will(topic, b"", properties=WillProperties(will_delay_interval=delay))
        bob = await running.accepted(PASSWORD, "c", "bob", level=5, will=will)
        bob.vanish()
        await running.running.until(lambda: "c" not in running.service.clients)
        running.service.wills.publish_all()
        publications = [unit for unit in running.backend.units if unit.publications]
        (unit,) = publications
        assert (0 in unit.forbidden) is refused
        assert unit.publications[0][0].md.UserIdentifier == b"bob"


async def test_a_will_of_a_client_with_changed_rules_is_rejected(site: Any) -> None:
    async with site() as running:
        will = Will("plant/gone", b"")
        first = await running.accepted(PASSWORD, "c", "alice", will=will)
        await running.leave(first, "c")
        running.channels[PASSWORD].use(ChannelConfig(name=PASSWORD, port=0, publish_topics=["news"]))
        second = await running.accepted(PASSWORD, "c", "alice", will=will)
        second.vanish()
        await running.backend.until(lambda: any(unit.publications for unit in running.backend.units))
        (unit,) = [unit for unit in running.backend.units if unit.publications]
        assert unit.forbidden == {0: cmqc.MQRC_NOT_AUTHORIZED}
