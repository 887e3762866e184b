"""Who a client is: by what its CONNECT presents, or by an enhanced authentication, at CONNECT or again later.

The latter are AUTH packets and a method (MQTT 5 section 4.12).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

import msgspec

from bridge.mqtt.connection_state import State
from bridge.mqtt.session import Session
from bridge.security.authentication_method import Exchange
from bridge.security.authenticator import (
    Authenticated,
    AuthenticationFailed,
    AuthenticatorUnavailable,
    Presented,
)
from bridge.security.authenticators import ChannelAuthentication
from bridge.service.admission import identity_of, refuse
from bridge.service.client import Client
from bridge.service.sessions import Sessions
from bridge.wire.mqtt import Auth, ConnackCode, Connect, ReasonCode

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
            log.exception("channel %s: client %s: its authentication method fails", client.channel.name, client.peer)
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
        self._service.observers.authentication_failed(client.channel.name)
        if client.protocol.state is State.CONNECTED:
            client.close(f"it did not authenticate itself again: {why}", reason_code)
        elif client.protocol.state < State.CONNECTED:
            refuse_late(
                self._service, client, ConnackCode.NOT_AUTHORIZED, f"it did not authenticate itself: {why}", reason_code
            )


def authenticate(service: Sessions, client: Client, packet: Connect, then: Callable[[Authenticated], None]) -> None:
    """Have a client authenticate itself by the method that its CONNECT names."""
    properties = packet.properties
    assert properties is not None
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
    if not authentication.asks:
        assert shown is not None
        then(shown)
        return
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
        wrong = packet.password is not None
        code = ConnackCode.BAD_USER_NAME_OR_PASSWORD if wrong else ConnackCode.NOT_AUTHORIZED
        service.observers.authentication_failed(client.channel.name)
        refuse_late(service, client, code, str(error))
    except AuthenticatorUnavailable as error:
        refuse(service, client, ConnackCode.SERVER_UNAVAILABLE, str(error))
    except TimeoutError:
        why = f"to find out who it is takes longer than {seconds:g} s (connect_timeout)"
        refuse(service, client, ConnackCode.SERVER_UNAVAILABLE, why)
    except Exception:
        log.exception("channel %s: client %s: an authenticator fails", client.channel.name, client.peer)
        refuse(service, client, ConnackCode.SERVER_UNAVAILABLE, "an authenticator fails")
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
    )


def refuse_late(
    service: Sessions, client: Client, code: ConnackCode, why: str, reason_code: ReasonCode | None = None
) -> None:
    """Refuse a client that did not show who it is; one of an address that fails again and again, after a while."""
    config = client.channel
    delay = service.failed_connects.delay(client.transport.address, config.failed_connects, config.connect_timeout)
    if not delay:
        refuse(service, client, code, why, reason_code)
        return
    late = _refuse_after(service, delay, client, code, why, reason_code)
    client.identification = asyncio.get_running_loop().create_task(late)


async def _refuse_after(
    service: Sessions, delay: float, client: Client, code: ConnackCode, why: str, reason_code: ReasonCode | None
) -> None:
    await asyncio.sleep(delay)
    if client.protocol.state < State.CONNECTED:
        why = f"{why}; answered {delay:g} s late, for others of its address failed before"
        refuse(service, client, code, why, reason_code)


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
            identity = identity_of(connect, client.channel, service.replies, result.user_name)
            if identity.user != identity_before.user:
                again.fail(ReasonCode.NOT_AUTHORIZED, f"as another user, {result.user_name!r}")
                return
            client.expires = math.inf if result.expires is None else result.expires
            client.protocol.authenticated(result.data)
            client.transport.flush()

        authentication = again = _begin(service, client, connect, authenticated)
    authentication.take(packet.properties.authentication_data)


def _begin(service: Sessions, client: Client, packet: Connect, then: Callable[[Authenticated], None]) -> Authentication:
    assert packet.properties is not None
    methods = service.authentication.get(client.channel.name, BELIEVED).methods
    exchange = methods[packet.properties.authentication_method or ""].begin(presented_by(client, packet))
    client.authentication = begun = Authentication(service, client, packet, exchange, then)
    return begun
