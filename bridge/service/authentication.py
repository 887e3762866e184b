"""Who a client is: by what its CONNECT presents, or by an enhanced authentication, at CONNECT or again later.

The latter are AUTH packets and a method (MQTT 5 section 4.12).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

import msgspec

from bridge.mqtt.connection import State
from bridge.mqtt.packets import Auth, ConnackCode, Connect
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security.authenticator import (
    Authenticated,
    AuthenticationFailed,
    AuthenticatorUnavailable,
    Exchange,
    Presented,
)
from bridge.security.authenticators import ChannelAuthentication
from bridge.service.admission import Barred, admitted_identity, refuse
from bridge.service.client import Client
from bridge.service.events import CredentialsRejected
from bridge.service.sessions import Sessions
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.session import Session

log = logging.getLogger(__name__)

#: The authentication of a channel that asks nobody.
BELIEVED = ChannelAuthentication()


class Authentication:
    """One exchange between a client and a method, whose steps are taken one at a time."""

    def __init__(
        self,
        service: Sessions,
        client: Client,
        connect: Connect,
        exchange: Exchange,
        then: Callable[[Authenticated], None],
    ) -> None:
        """Begin; `then` is called when the client of a CONNECT has authenticated itself."""
        self.connect = connect
        #: what the client is told at the end
        self.data: bytes | None = None
        self._service = service
        self._client = client
        self._exchange = exchange
        self._then = then
        #: the step under way, to which the event loop itself keeps no reference
        self._step: asyncio.Task[None] | None = None

    def take(self, data: bytes | None) -> None:
        """Give the method what the client says, and see to what follows."""
        self._step = asyncio.get_running_loop().create_task(self._take(data))

    def stop(self) -> None:
        """End a step that is under way: the client is gone."""
        if self._step is not None:
            self._step.cancel()

    async def _take(self, data: bytes | None) -> None:
        client = self._client
        seconds = client.channel.connect_timeout
        try:
            async with asyncio.timeout(seconds):
                result = await self._exchange.respond(data)
        except AuthenticationFailed as error:
            self.fail(ReasonCode.NOT_AUTHORIZED, str(error))
            return
        except TimeoutError:
            self.fail(ReasonCode.SERVER_BUSY, f"the method took longer than {seconds:g} s (connect_timeout)")
            return
        except Exception:
            log.exception(
                "MQB1202E channel %s: client %s: its authentication method fails", client.channel.name, client.peer
            )
            self.fail(ReasonCode.UNSPECIFIED_ERROR, "its authentication method fails")
            return
        if client.protocol.state >= State.DISCONNECTING:
            return
        if isinstance(result, Authenticated):
            self.data = result.data
            self._then(result)
            return
        client.protocol.challenge(result.data)
        client.transport.flush()
        client.transport.take_turn()

    def fail(self, reason_code: ReasonCode, why: str) -> None:
        """Refuse the client, or end its connection: it did not show who it is."""
        client = self._client
        self._service.events.publish(CredentialsRejected(client.channel.name))
        if client.protocol.state is State.CONNECTED:
            client.close(f"it did not authenticate itself again: {why}", reason_code)
        elif client.protocol.state < State.CONNECTED:
            service = self._service
            refuse(service, client, ConnackCode.NOT_AUTHORIZED, f"it did not authenticate itself: {why}", reason_code)


def authenticate(service: Sessions, client: Client, packet: Connect, then: Callable[[Authenticated], None]) -> None:
    """Have a client authenticate itself by the method that its CONNECT names."""
    properties = packet.properties
    assert properties is not None
    if client.attempt is not None:
        client.attempt.start()
    _begin(service, client, packet, then).take(properties.authentication_data)


def identify(
    service: Sessions,
    client: Client,
    packet: Connect,
    then: Callable[[Authenticated], None],
    shown: Authenticated | None = None,
) -> None:
    """Find out who a client is by all that it presents; `shown` is what it has shown by an enhanced authentication."""
    authentication = service.authentication.get(client.channel.name, BELIEVED)
    found = _identify(service, client, packet, authentication, then, shown)
    client.identification = asyncio.get_running_loop().create_task(found)


async def _identify(
    service: Sessions,
    client: Client,
    packet: Connect,
    authentication: ChannelAuthentication,
    then: Callable[[Authenticated], None],
    shown: Authenticated | None,
) -> None:
    seconds = client.channel.connect_timeout
    try:
        async with asyncio.timeout(seconds):
            result = await authentication.authenticate(presented_by(client, packet), shown)
    except AuthenticationFailed as error:
        service.events.publish(CredentialsRejected(client.channel.name))
        refuse(service, client, refused_code(service, client, packet), str(error))
    except AuthenticatorUnavailable as error:
        _refuse_unjudged(service, client, str(error))
    except TimeoutError:
        _refuse_unjudged(service, client, f"to find out who it is takes longer than {seconds:g} s (connect_timeout)")
    except Exception:
        log.exception("MQB1203E channel %s: client %s: an authenticator fails", client.channel.name, client.peer)
        _refuse_unjudged(service, client, "an authenticator fails")
    else:
        if client.protocol.state is State.AUTHENTICATING:
            then(result)


def presented_by(client: Client, packet: Connect) -> Presented:
    """Return what a client has shown by its CONNECT and its connection."""
    transport = client.transport
    return Presented(
        packet.client_id,
        packet.user_name,
        packet.password,
        transport.certificate,
        transport.address,
        client.channel.name,
        client.attempt,
    )


def judge(service: Sessions, client: Client, packet: Connect, begin: Callable[[], None]) -> None:
    """Have it found out who a client is, by `begin`: at once, or later where others of its network or user have failed."""
    config = client.channel
    address, user = client.transport.address, packet.user_name or ""
    attempt = service.failed_connects.begin(address, user, config.failed_connects, config.connect_timeout)
    if attempt is None:
        why = "too many of its address wait to be judged, for others have failed before (failed_connects)"
        refuse(service, client, ConnackCode.SERVER_UNAVAILABLE, why, ReasonCode.CONNECTION_RATE_EXCEEDED)
        return
    client.attempt = attempt
    if not attempt.delay:
        begin()
        return
    log.warning(
        "MQB1206W channel %s: client %s is judged %g s late, for others of its address have failed before (failed_connects)",
        config.name,
        client.peer,
        attempt.delay,
    )
    client.identification = asyncio.get_running_loop().create_task(_begin_after(attempt.delay, client, begin))


async def _begin_after(delay: float, client: Client, begin: Callable[[], None]) -> None:
    try:
        await asyncio.sleep(delay)
    except asyncio.CancelledError:
        # The client left before its credentials were checked: a fleet that gives up must not lock itself out.
        assert client.attempt is not None
        client.attempt.end(True)
        raise
    if client.protocol.state is State.AUTHENTICATING:
        begin()


def refused_code(service: Sessions, client: Client, packet: Connect) -> ConnackCode:
    """Return the CONNACK code for a client that is not let in: the same whether its password is wrong or it is kept out."""
    asks = service.authentication.get(client.channel.name, BELIEVED).asks
    if asks and packet.password is not None:
        return ConnackCode.BAD_USER_NAME_OR_PASSWORD
    return ConnackCode.NOT_AUTHORIZED


def _refuse_unjudged(service: Sessions, client: Client, why: str) -> None:
    """Refuse a client of which nothing can be found out now; it has not failed."""
    if client.attempt is not None:
        client.attempt.end(True)
    if client.protocol.state is State.AUTHENTICATING:  # else the client has left
        refuse(service, client, ConnackCode.SERVER_UNAVAILABLE, why)


def respond(service: Sessions, client: Client, session: Session | None, packet: Auth) -> None:
    """Act on AUTH: a response to a challenge, or the wish to authenticate again (MQTT 5 section 4.12.1)."""
    authentication = client.authentication
    assert authentication is not None
    assert packet.properties is not None
    if packet.reason_code == ReasonCode.RE_AUTHENTICATE:
        assert session is not None
        identity_before = session.identity
        connect = msgspec.structs.replace(authentication.connect, client_id=session.client_id)

        def authenticated(result: Authenticated) -> None:
            judged = _again(service, client, connect, identity_before, result, again)
            client.identification = asyncio.get_running_loop().create_task(judged)

        authentication = again = _begin(service, client, connect, authenticated)
    authentication.take(packet.properties.authentication_data)


async def _again(
    service: Sessions,
    client: Client,
    packet: Connect,
    before: ClientIdentity,
    result: Authenticated,
    authentication: Authentication,
) -> None:
    """Let a client that has authenticated itself again go on: as the user it was, with all that it presented right still."""
    try:
        async with asyncio.timeout(client.channel.connect_timeout):
            channel = service.authentication.get(client.channel.name, BELIEVED)
            shown = await channel.authenticate(presented_by(client, packet), result)
        identity, name = admitted_identity(service, client, packet, shown)
    except (AuthenticationFailed, AuthenticatorUnavailable, TimeoutError, Barred) as error:
        authentication.fail(ReasonCode.NOT_AUTHORIZED, str(error) or "it takes longer than connect_timeout")
        return
    except Exception:
        log.exception(
            "MQB1205E channel %s: client %s authenticates itself again: an authenticator fails",
            client.channel.name,
            client.peer,
        )
        authentication.fail(ReasonCode.UNSPECIFIED_ERROR, "an authenticator fails")
        return
    if (identity.user, name) != (before.user, client.user_name):
        authentication.fail(ReasonCode.NOT_AUTHORIZED, f"as another user, {name!r}")
    elif client.protocol.state is State.CONNECTED:
        client.expires = math.inf if shown.expires is None else shown.expires
        client.protocol.authenticated(result.data)
        client.transport.flush()


def _begin(service: Sessions, client: Client, packet: Connect, then: Callable[[Authenticated], None]) -> Authentication:
    assert packet.properties is not None
    methods = service.authentication.get(client.channel.name, BELIEVED).methods
    exchange = methods[packet.properties.authentication_method or ""].begin(presented_by(client, packet))
    client.authentication = begun = Authentication(service, client, packet, exchange, then)
    return begun
