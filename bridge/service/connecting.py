"""CONNECT and AUTH: authenticates a client and assigns its session, or rejects it.

Source: MQTT 3.1.1 sections 3.1.4 and 3.2, MQTT 5 section 4.12. The queue manager first decides whether the client's identity
may receive messages at all. So a rejected client affects neither another client with the same identifier nor its session.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection
from typing import Any

import msgspec

from bridge.config.channel import ChannelConfig
from bridge.config.models import LimitsConfig
from bridge.mqtt.connection import REASON_CODES, TOPIC_ALIAS_MAXIMUM, ConnectionState
from bridge.mqtt.flow import MAX_IDENTIFIER
from bridge.mqtt.packets import LEVEL_MQTT_5, Auth, ConnackCode, ConnackProperties, Connect
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.security.authenticator import (
    Attempt,
    Authenticated,
    AuthenticationFailed,
    AuthenticatorUnavailable,
    Certificate,
    Exchange,
    Presented,
    network_of,
)
from bridge.security.authenticators import ChannelAuthentication
from bridge.security.channel_authentication import Connecting
from bridge.service.client import Client, granted_expiry
from bridge.service.events import ClientConnected, ConnectRejected, CredentialsRejected
from bridge.service.subscriptions import AuthorizationFailure, authorize_again
from bridge.service.telemetry import TelemetryService
from bridge.telemetry.identifier_release import IdentifierRelease
from bridge.telemetry.identity import (
    AS_IS,
    UNAUTHENTICATED,
    ClientIdentity,
    ClientNames,
    Principal,
    TopicAccess,
    too_long_for_mq,
    user_identifier,
)
from bridge.telemetry.request import ReplyAddresses
from bridge.telemetry.session import NEVER, Session
from bridge.telemetry.shard import UNDIVIDED, Shard
from bridge.telemetry.subscription import is_remote_queue_manager, is_shared
from bridge.transport.layers import Peer
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: MQTT protocol names and levels by the values of a channel's PROTOCOL attribute.
PROTOCOLS = {"MQTTV3": ("MQIsdp", 3), "MQTTV311": ("MQTT", 4), "MQTTV5": ("MQTT", LEVEL_MQTT_5)}
#: Longest client identifier of MQTT 3.1, in characters.
CLIENT_ID_LENGTH_3_1 = 23
NO_CERTIFICATE = Certificate()
#: The authentication of a channel that requires none.
NO_AUTHENTICATION = ChannelAuthentication()


_AUTH_TOO_LONG = "AUTH is longer than the client's Maximum Packet Size (MQTT-3.1.2-24)"


class Rejected(Exception):
    """A client is rejected: CONNACK code, reason for the log, and an MQTT 5 reason code if it is more specific.

    `session` is a session of another principal to which the client identifier belongs, or None. `server_reference` is the
    server to which a client of MQTT 5 should connect instead.
    """

    def __init__(
        self,
        code: ConnackCode,
        why: str,
        reason_code: ReasonCode | None = None,
        session: Session | None = None,
        server_reference: str | None = None,
    ) -> None:
        super().__init__(why)
        self.code = code
        self.reason_code = reason_code
        self.session = session
        self.server_reference = server_reference


class OverLimit(Rejected):
    """A client is rejected because there are too many sessions."""


class Gone(Exception):
    """The connection has ended, so no answer is possible."""


class AuthTooLong(Gone):
    """The connection was closed because the client does not accept a challenge of this length."""


# The sequences ----------------------------------------------------------------------------------------------------------


async def connect(service: TelemetryService, client: Client, packet: Connect) -> None:
    """Answer CONNECT."""
    # For the log: the claimed client identifier, not authenticated yet.
    client.transport.peer = Peer(client.transport.peer.address, packet.client_id)
    try:
        await Handshake(service, client, packet).accept()
    except Rejected as rejected:
        if client.protocol.state < ConnectionState.CONNECTED:  # else the client has left
            reject(service, client, rejected)
    except Gone:
        pass
    finally:
        client.sequence = None


class Handshake:
    """The processing of a CONNECT up to its answer."""

    def __init__(self, service: TelemetryService, client: Client, packet: Connect) -> None:
        self._service = service
        self._client = client
        self._packet = packet
        self._authentication = service.authentication.get(client.channel.name, NO_AUTHENTICATION)
        #: Authentication Data for CONNACK
        self._data: bytes | None = None

    async def accept(self) -> None:
        """Accept the client. Raises Rejected and Gone."""
        identity = await self._identify()
        user = identity.user.decode("utf-8", "replace")
        reason = await self._service.backend.admit(identity.client_id, user)
        self._still_waiting()
        if reason:
            code = ConnackCode.SERVER_UNAVAILABLE
            if reason == cmqc.MQRC_NOT_AUTHORIZED:
                code = ConnackCode.NOT_AUTHORIZED
            problem = f"user {user!r} may not receive messages: put to {self._service.backend.transmission_queue}"
            raise Rejected(code, f"{problem}: {cmqc.reason_name(reason)} ({reason})")
        await self._take_up_session(identity)

    def _still_waiting(self) -> None:
        """Raise Gone if the client has disconnected before the answer."""
        if self._client.protocol.state is not ConnectionState.AUTHENTICATING:
            raise Gone

    # Identity of the client

    async def _identify(self) -> ClientIdentity:
        """Authenticate the client and return its MQ identity. Raises Rejected and Gone."""
        service, client, packet = self._service, self._client, self._packet
        config = client.channel
        methods = self._authentication.methods
        rejected = refusal_of(packet, config, service.queue_manager_name, methods, service.backend.client_names)
        if rejected is not None:
            raise rejected
        if service.backend.shard.of > 1:
            self._check_shard(packet.client_id)
        if service.backend.outage:
            raise Rejected(ConnackCode.SERVER_UNAVAILABLE, "the queue manager is unreachable")
        if blocked := service.channel_authentication.at_work.blocked_address(client.transport.address):
            raise Rejected(ConnackCode.NOT_AUTHORIZED, blocked)
        if client.protocol.authentication_method is None and not self._authentication.asks:
            return self._admitted_identity(Authenticated(packet.user_name, verified=client.channel.AUTHENTICATED))
        await asyncio.sleep(0)  # timeouts need a task
        address, user = client.transport.address, packet.user_name or ""
        attempt = service.failed_connects.begin(address, user, config.failed_connects, config.connect_timeout)
        if attempt is None:
            why = "authentication of too many clients of its address is delayed after failed attempts (failed_connects)"
            raise Rejected(ConnackCode.SERVER_UNAVAILABLE, why, ReasonCode.CONNECTION_RATE_EXCEEDED)
        try:
            if attempt.delay:
                await delay(client, attempt)
                self._still_waiting()
            identity = self._admitted_identity(await self._authenticate(attempt))
            attempt.end(True)
        finally:
            attempt.end(False)
        return identity

    def _check_shard(self, client_id: str) -> None:
        """Raise Rejected for a client of another shard. A client without an identifier belongs to each."""
        shard = self._service.backend.shard
        if not client_id or shard.owns(client_id):
            return
        self._service.limit_hits.note("shard", client_id, channel=self._client.channel.name)
        other = shard.shard_of(client_id)
        raise Rejected(
            ConnackCode.SERVER_UNAVAILABLE,
            f"the client belongs to shard {other}, and this bridge is shard {shard.number} of {shard.of}",
            ReasonCode.USE_ANOTHER_SERVER,
            server_reference=shard.reference_for(client_id),
        )

    def _admitted_identity(self, login: Authenticated) -> ClientIdentity:
        client = self._client
        try:
            identity, client.user_name = admitted_identity(self._service, client, self._packet, login)
        except AuthenticationFailed as error:
            # Don't reveal whether the password was correct.
            raise self._unauthenticated(str(error)) from None
        client.principal = Principal(True, client.user_name) if login.verified else UNAUTHENTICATED
        client.expires = math.inf if login.expires is None else login.expires
        return identity

    async def _authenticate(self, attempt: Attempt) -> Authenticated:
        """Authenticate the client with its enhanced authentication method, if any, and its CONNECT."""
        service, client, packet = self._service, self._client, self._packet
        presented = presented_by(client, packet, attempt)
        login = None
        if client.protocol.authentication_method is not None:
            assert packet.properties is not None
            client.connect = packet
            attempt.start()
            exchange = self._authentication.methods[client.protocol.authentication_method].begin(presented)
            try:
                login = await authenticate(client, exchange, packet.properties.authentication_data)
            except AuthTooLong:
                attempt.end(True)  # no credentials were checked
                raise
            except Rejected as error:
                service.events.publish(CredentialsRejected(client.channel.name))
                why = f"authentication failed: {error}"
                raise Rejected(error.code, why, error.reason_code) from None
            self._data = login.data
        seconds = client.channel.connect_timeout
        try:
            async with asyncio.timeout(seconds):
                authenticated = await self._authentication.authenticate(presented, login)
        except AuthenticationFailed as error:
            service.events.publish(CredentialsRejected(client.channel.name))
            raise self._unauthenticated(str(error)) from None
        except AuthenticatorUnavailable as error:
            why = str(error)
        except TimeoutError:
            why = f"authentication took longer than {seconds:g} s (connect_timeout)"
        except Exception:
            log.exception("MQB1203E channel %s: client %s: authenticator failed", client.channel.name, client.peer)
            why = "an authenticator failed"
        else:
            self._still_waiting()
            return authenticated
        attempt.end(True)  # not a failed attempt
        raise Rejected(ConnackCode.SERVER_UNAVAILABLE, why)

    def _unauthenticated(self, why: str) -> Rejected:
        """Return the rejection of a client. It does not reveal whether the password was correct."""
        if self._authentication.asks and self._packet.password is not None:
            return Rejected(ConnackCode.BAD_USER_NAME_OR_PASSWORD, why)
        return Rejected(ConnackCode.NOT_AUTHORIZED, why)

    # Session of the client

    async def _take_up_session(self, identity: ClientIdentity) -> None:
        """Take over or create a session, and answer the client after it has been recorded."""
        service, client, packet = self._service, self._client, self._packet
        client_id = identity.client_id
        properties = None
        if packet.protocol_level == LEVEL_MQTT_5:
            properties = connack_properties(
                packet, client, client_id, service.limits, self._data, service.backend.shard
            )
        network = network_of(client.transport.address)
        expiry_interval = session_expiry_interval(packet, client.channel)
        while True:
            existing = service.sessions.get(client_id)
            if existing is not None and belongs_to_another(service, client, existing):
                why = f"the session belongs to {existing.principal}"
                raise Rejected(ConnackCode.NOT_AUTHORIZED, why, session=existing)
            if not client.protocol.admits(properties):
                why = (
                    f"CONNACK is longer than the client's Maximum Packet Size, {client.protocol.max_packet_size} bytes"
                )
                client.close(why, ReasonCode.PACKET_TOO_LARGE)
                return
            if await self._purged(client_id):
                continue
            if existing is None and (excess := service.quotas.session_excess(client.principal, network)):
                service.limit_hits.note(excess.option, excess.owner or client_id)
                raise OverLimit(ConnackCode.SERVER_UNAVAILABLE, str(excess), ReasonCode.QUOTA_EXCEEDED)
            old = service.clients.get(client_id)
            if old is not None:
                # MQTT-3.1.4-2
                audit_log.note("taken over", old.peer, channel=old.channel.name, by=client.peer.address)
                old.close(f"taken over by a new connection {client.peer}", ReasonCode.SESSION_TAKEN_OVER)
                service.lost(old)
            existing = service.sessions.get(client_id)  # a clean session ended with its connection
            if existing is not None:
                take_ownership(client, existing)
                service.quotas.update(existing)
            client.will = packet.will
            if existing is not None and existing.durable and not packet.clean_session:
                session, present = existing, existing.begun
                service.wills.withdraw(client_id)
                break
            if existing is not None:
                service.purge(existing)
            if await self._purged(client_id):
                continue
            session, present = service.new_session(identity, durable=expiry_interval > 0), False
            session.principal, session.network = client.principal, network
            if session.durable and service.epoch and packet.protocol_level < LEVEL_MQTT_5:
                # The client may continue a session from before the restore, although this one is new. MQTT 5 forbids that.
                session.outbox.release = IdentifierRelease()
            service.quotas.update(session)
            break
        service.timers.cancel(client_id)
        service.clients[client_id] = client
        client.committing = True  # from here on, the sequence runs to its end
        session.connect(client.channel.name, client.protocol.level, expiry_interval, time.time())
        topics = _topics(client, identity)
        try:
            if session is existing:
                await authorize_again(service, client, session, identity, topics)
            self._still_owner(client_id)
            session.identity = identity
            await self._record(session, present=present)
            self._still_owner(client_id)
        except Exception as error:
            current = service.clients.get(client_id) is client  # otherwise another connection has taken over
            if current:
                self._give_up(session)
            if isinstance(error, AuthorizationFailure):
                raise Rejected(ConnackCode.SERVER_UNAVAILABLE, str(error)) if current else Gone from None
            raise
        finally:
            client.committing = False
        session.topics = topics
        self._begin(session, identity, properties, present=present)

    def _still_owner(self, client_id: str) -> None:
        """Raise Gone if the client has disconnected or another connection has taken over its session."""
        self._still_waiting()
        if self._service.clients.get(client_id) is not self._client:
            raise Gone

    async def _record(self, session: Session, *, present: bool) -> None:
        """Commit the session of the client, and the packet identifiers of its first waiting messages.

        Raises AuthorizationFailure.
        """
        if session.durable:
            # Before CONNACK, record that the session exists, and that messages may be sent from now on.
            if present:
                session.save_sent()
            else:
                session.save_again()
            session.outbox.prepare()
        completion = await self._service.delivery.commit(session)
        if completion.failure:
            raise AuthorizationFailure(cmqc.reason_name(completion.failure))

    def _give_up(self, session: Session) -> None:
        """Release a session whose client has disconnected before CONNACK, or is rejected because of a failure."""
        service = self._service
        del service.clients[session.client_id]
        if not session.ended:
            session.detach(time.time())
            service.leave(session)

    def _begin(
        self, session: Session, identity: ClientIdentity, properties: ConnackProperties | None, *, present: bool
    ) -> None:
        """Answer with CONNACK 0, and send the backlog."""
        service, client, packet = self._service, self._client, self._packet
        protocol = client.protocol
        receive_maximum = packet.properties.receive_maximum if packet.properties is not None else None
        session.attach(identity, receive_maximum or MAX_IDENTIFIER)
        client.session = session
        protocol.accept(service.clock(), session_present=present, properties=properties)
        service.events.publish(ClientConnected(session, client.peer.address, present))
        user = identity.user.decode("utf-8", "replace")
        facts: dict[str, Any] = {
            "user": user,
            "user_name": client.user_name,
            "authenticated": client.principal.authenticated,
        }
        audit_log.note("connected", client.peer, channel=client.channel.name, **facts)
        log.info(
            "MQB2001I channel %s: client %s connected as user %r: %s session%s",
            client.channel.name,
            client.peer,
            user,
            "durable" if session.durable else "clean",
            ", present" if present else "",
        )
        session.outbox.send_again(protocol, service.clock())
        client.transport.flush()
        service.delivery.pump(session, client)
        client.transport.take_turn()
        if session.ending:
            service.endings.review(session)

    async def _purged(self, client_id: str) -> bool:
        """Wait until the messages of an ended session are removed. Return False if none are being removed.

        Without waiting, they would be mistaken for messages of the new session.
        """
        purging = self._service.purging(client_id)
        if purging is None:
            return False
        await purging
        self._still_waiting()
        return True


async def delay(client: Client, attempt: Attempt) -> None:
    """Delay an attempt to authenticate after failed ones of the same network or user."""
    log.warning(
        "MQB1206W channel %s: delayed authentication of client %s by %g s after failed attempts from its address "
        "(failed_connects)",
        client.channel.name,
        client.peer,
        attempt.delay,
    )
    try:
        await asyncio.sleep(attempt.delay)
    except asyncio.CancelledError:
        # The client left before its credentials were checked: clients that give up must not lock out their address.
        attempt.end(True)
        raise


async def authenticate(client: Client, exchange: Exchange, authentication_data: bytes | None) -> Authenticated:
    """Exchange AUTH packets with a client until authentication succeeds. Raises Rejected and Gone."""
    seconds = client.channel.connect_timeout
    while True:
        try:
            async with asyncio.timeout(seconds):
                step = await exchange.respond(authentication_data)
        except AuthenticationFailed as error:
            raise Rejected(ConnackCode.NOT_AUTHORIZED, str(error), ReasonCode.NOT_AUTHORIZED) from error
        except TimeoutError as error:
            why = f"the method took longer than {seconds:g} s (connect_timeout)"
            raise Rejected(ConnackCode.NOT_AUTHORIZED, why, ReasonCode.SERVER_BUSY) from error
        except Exception as error:
            log.exception(
                "MQB1202E channel %s: client %s: authentication method failed", client.channel.name, client.peer
            )
            why = "its authentication method failed"
            raise Rejected(ConnackCode.NOT_AUTHORIZED, why, ReasonCode.UNSPECIFIED_ERROR) from error
        if client.protocol.state >= ConnectionState.DISCONNECTING:
            raise Gone
        if isinstance(step, Authenticated):
            return step
        if not client.protocol.challenge(step.data):
            client.close(_AUTH_TOO_LONG, ReasonCode.PACKET_TOO_LARGE)
            raise AuthTooLong
        client.response = asyncio.get_running_loop().create_future()
        client.transport.flush()
        client.transport.take_turn()
        authentication_data = await client.response


async def authenticate_again(service: TelemetryService, client: Client, packet: Auth) -> None:
    """Answer AUTH of a connected client that re-authenticates (MQTT 5 section 4.12.1).

    The user must be the same as before, and all credentials in CONNECT must still be valid.
    """
    await asyncio.sleep(0)  # timeouts need a task
    try:
        session, method = client.session, client.protocol.authentication_method
        if session is None:
            raise Gone
        assert client.connect is not None and method is not None and packet.properties is not None
        before = session.identity
        connect = msgspec.structs.replace(client.connect, client_id=session.client_id)
        channel = service.authentication.get(client.channel.name, NO_AUTHENTICATION)
        presented = presented_by(client, connect)
        exchanged = await authenticate(
            client, channel.methods[method].begin(presented), packet.properties.authentication_data
        )
        try:
            async with asyncio.timeout(client.channel.connect_timeout):
                login = await channel.authenticate(presented, exchanged)
            identity, name = admitted_identity(service, client, connect, login)
        except (AuthenticationFailed, AuthenticatorUnavailable, TimeoutError) as error:
            why = str(error) or "it took longer than connect_timeout"
            raise Rejected(ConnackCode.NOT_AUTHORIZED, why, ReasonCode.NOT_AUTHORIZED) from error
        except Exception as error:
            log.exception(
                "MQB1205E channel %s: re-authentication of client %s: authenticator failed",
                client.channel.name,
                client.peer,
            )
            raise Rejected(
                ConnackCode.NOT_AUTHORIZED, "an authenticator failed", ReasonCode.UNSPECIFIED_ERROR
            ) from error
        if (identity.user, name) != (before.user, client.user_name):
            raise Rejected(ConnackCode.NOT_AUTHORIZED, f"as another user, {name!r}", ReasonCode.NOT_AUTHORIZED)
        if client.protocol.state is ConnectionState.CONNECTED:
            client.expires = math.inf if login.expires is None else login.expires
            if not client.protocol.authenticated(exchanged.data):
                client.close(_AUTH_TOO_LONG, ReasonCode.PACKET_TOO_LARGE)
            client.transport.flush()
    except Rejected as error:
        service.events.publish(CredentialsRejected(client.channel.name))
        if client.protocol.state is ConnectionState.CONNECTED:
            client.close(f"re-authentication failed: {error}", error.reason_code)
    except Gone:
        pass
    finally:
        client.sequence = None


# The contents of a CONNECT ----------------------------------------------------------------------------------------------


def presented_by(client: Client, packet: Connect, attempt: Attempt | None = None) -> Presented:
    """Return the credentials in a CONNECT and of its connection."""
    transport = client.transport
    return Presented(
        packet.client_id,
        packet.user_name,
        packet.password,
        transport.certificate,
        transport.address,
        client.channel.name,
        attempt,
    )


def refusal_of(
    packet: Connect,
    config: ChannelConfig,
    queue_manager_name: str,
    methods: Collection[str] = (),
    names: ClientNames = AS_IS,
) -> Rejected | None:
    """Return the rejection of a client, or None if it may be accepted.

    `methods` are the channel's enhanced authentication methods, `names` the queue manager names of clients. The rejection
    contains an MQTT 5 reason code if that is more specific than the CONNACK code.
    """
    # The little-endian dialect predates MQTT 5.
    accepted = {PROTOCOLS[word] for word in config.protocols if word != "MQTTV5" or config.byte_order == "big"}
    if (packet.protocol_name, packet.protocol_level) not in accepted:
        why = f"protocol {packet.protocol_name[:20]!r} level {packet.protocol_level}"
        return Rejected(ConnackCode.UNACCEPTABLE_PROTOCOL_VERSION, why)
    method = packet.properties.authentication_method if packet.properties is not None else None
    if method is not None and method not in methods:
        why = f"authentication method {method[:40]!r} is not configured (authentication, authentication_methods)"
        return Rejected(ConnackCode.NOT_AUTHORIZED, why, ReasonCode.BAD_AUTHENTICATION_METHOD)
    fault = _identifier_error(packet, queue_manager_name, names)
    return None if fault is None else Rejected(ConnackCode.IDENTIFIER_REJECTED, fault)


def _identifier_error(packet: Connect, queue_manager_name: str, names: ClientNames) -> str | None:
    client_id = packet.client_id
    if not client_id:
        if packet.protocol_level == 3:
            return "MQTT 3.1 requires a client identifier of 1 to 23 characters"
        if packet.protocol_level == LEVEL_MQTT_5 or packet.clean_session:
            return None
        return "an empty client identifier requires a clean session"
    if packet.protocol_level == 3 and len(client_id) > CLIENT_ID_LENGTH_3_1:
        return f"a client identifier of MQTT 3.1 has at most 23 characters, not {len(client_id)}"
    if (error := names.error(client_id)) is not None:
        return error
    if is_shared(client_id) or is_remote_queue_manager(client_id):
        return "client identifiers of this form are reserved for shared subscriptions"
    if names.name_of(client_id) == queue_manager_name:
        return "the client identifier is the name of the queue manager itself"
    return None


def identity_of(
    packet: Connect,
    config: ChannelConfig,
    replies: ReplyAddresses,
    user_name: str | None = None,
    shard: Shard = UNDIVIDED,
) -> ClientIdentity:
    """Return the MQ identity of a client. A blank client identifier is replaced by one of the shard (MQTT-3.1.3-6).

    `user_name` is the authenticated user name. None uses the one in CONNECT.
    """
    client_id = packet.client_id or shard.assigned_client_id()
    user_name = packet.user_name if user_name is None else user_name
    user = user_identifier(client_id, user_name, mcauser=config.mcauser, use_client_id=config.use_client_id)
    return ClientIdentity(client_id, user, replies)


def admitted_identity(
    service: TelemetryService, client: Client, packet: Connect, login: Authenticated
) -> tuple[ClientIdentity, str]:
    """Apply the channel's rules and channel authentication records and return the MQ identity and the user name.

    The user name is authenticated or merely claimed. Raises AuthenticationFailed.
    """
    config, transport = client.channel, client.transport
    identity = identity_of(packet, config, service.replies, login.user_name, service.backend.shard)
    transport.peer = Peer(transport.peer.address, identity.client_id)
    certificate = transport.certificate or NO_CERTIFICATE
    name = (packet.user_name if login.user_name is None else login.user_name) or ""
    connecting = Connecting(config.name, transport.address, name, certificate.subject, certificate.issuer)
    verdict = service.channel_authentication.at_work.verdict(connecting, identity.user.decode("utf-8", "replace"))
    for warning in verdict.warnings:
        log.warning("MQB1204W channel %s: client %s: %s", config.name, client.peer, warning)
        audit_log.note("would be refused", client.peer, channel=config.name, why=warning)
    if verdict.refusal:
        raise AuthenticationFailed(verdict.refusal)
    if verdict.mcauser is not None:
        identity = ClientIdentity(identity.client_id, verdict.mcauser.encode(), service.replies)
    elif why := too_long_for_mq(identity.client_id, name, mcauser=config.mcauser, use_client_id=config.use_client_id):
        raise AuthenticationFailed(why)
    return identity, name


def session_expiry_interval(packet: Connect, config: ChannelConfig) -> int:
    """Return the session expiry interval in seconds for a CONNECT: 0 to NEVER.

    Before MQTT 5, a session ends with its connection if Clean Session is set, otherwise never (MQTT 5 section 3.1.2.11.2).
    """
    return granted_expiry(_asked_expiry_interval(packet), config)


def _asked_expiry_interval(packet: Connect) -> int:
    if packet.protocol_level != LEVEL_MQTT_5:
        return 0 if packet.clean_session else NEVER
    return (packet.properties.session_expiry_interval or 0) if packet.properties is not None else 0


def connack_properties(
    packet: Connect,
    client: Client,
    client_id: str,
    limits: LimitsConfig,
    authentication_data: bytes | None,
    shard: Shard = UNDIVIDED,
) -> ConnackProperties:
    """Return the CONNACK properties for an accepted MQTT 5 client (MQTT 5 section 3.2.2.3)."""
    keep_alive = client.channel.keep_alive
    shorter = keep_alive and not 0 < packet.keep_alive <= keep_alive
    granted = session_expiry_interval(packet, client.channel)
    return ConnackProperties(
        session_expiry_interval=None if granted == _asked_expiry_interval(packet) else granted,
        server_keep_alive=keep_alive if shorter else None,
        receive_maximum=limits.unreleased,
        maximum_packet_size=client.channel.max_packet_size,
        assigned_client_identifier=None if packet.client_id else client_id,
        topic_alias_maximum=TOPIC_ALIAS_MAXIMUM,
        authentication_method=client.protocol.authentication_method,
        authentication_data=authentication_data,
    )


def _topics(client: Client, identity: ClientIdentity) -> TopicAccess | None:
    """Return the topic rules of a client's channel, or None if it has none."""
    config = client.channel
    if config.publish_topics is None and config.subscribe_topics is None:
        return None
    return TopicAccess(config.publish_topics, config.subscribe_topics, identity.client_id, client.user_name)


# Owner of a session -----------------------------------------------------------------------------------------------------


def belongs_to_another(service: TelemetryService, client: Client, session: Session) -> bool:
    """Return whether a session has an owner other than the client's principal, and sharing is not allowed."""
    owner = session.principal
    if owner is None or owner == client.principal:
        return False
    former = service.authentication.get(session.channel, NO_AUTHENTICATION)
    if not owner.authenticated and former.asks:
        # The channel had no authentication when the session was last used. Its clients must not be locked out.
        return False
    present = service.authentication.get(client.channel.name, NO_AUTHENTICATION)
    return not (former.shared_client_ids and present.shared_client_ids)


def take_ownership(client: Client, session: Session) -> None:
    """Bind a session that a client resumes or discards to the client's principal."""
    former, session.principal = session.principal, client.principal
    if former == client.principal:
        return
    log.info(
        "MQB2004I client %s: session now belongs to %s, before to %s",
        client.peer,
        client.principal,
        former or "no recorded user",
    )
    audit_log.note(
        "session owner changed",
        client.peer,
        channel=client.channel.name,
        user_name=client.user_name,
        authenticated=client.principal.authenticated,
        former=None if former is None else str(former),
    )


# Rejections -------------------------------------------------------------------------------------------------------------


def reject(service: TelemetryService, client: Client, rejected: Rejected) -> None:
    """Log, count and audit a rejection, answer with CONNACK, and close the connection."""
    name, code, session = client.channel.name, rejected.code, rejected.session
    facts: dict[str, Any] = {}
    if session is None:
        log.warning(
            "MQB1201W channel %s: rejected client %s with CONNACK %d (%s): %s",
            name,
            client.peer,
            code,
            code.name.replace("_", " ").lower(),
            rejected,
        )
    else:
        log.warning(
            "MQB1212W channel %s: rejected client %s as %s: its client identifier belongs to a session of %s on channel %s; "
            "hint: `mqbridge client purge` ends that session, shared_client_ids of both channels lets users share it",
            name,
            client.peer,
            client.principal,
            session.principal,
            session.channel,
        )
        principal = client.principal
        facts = {
            "user_name": client.user_name,
            "authenticated": principal.authenticated,
            "owner_channel": session.channel,
        }
    audit_log.note(
        "refused" if session is None else "session refused",
        client.peer,
        stranger=client.transport.address,
        channel=name,
        code=int(code),
        why=str(rejected),
        **facts,
    )
    reason_code = rejected.reason_code
    service.events.publish(
        ConnectRejected(
            name,
            reason_code or REASON_CODES[code],
            f"client {client.peer}: {rejected}",
            client_id=client.peer.client_id,
            address=client.peer.address,
            why=str(rejected),
            by_limit=isinstance(rejected, OverLimit),
            by_owner=session is not None,
        )
    )
    client.protocol.refuse(code, reason_code=reason_code, server_reference=rejected.server_reference)
    client.transport.flush()
