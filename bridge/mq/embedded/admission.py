"""Admission of MQ applications: the TCP listener, connection limits, credentials, and the resulting MQ user.

Source: IBM MQ documentation, "Connection authentication".
"""

from __future__ import annotations

import asyncio
import errno
import logging
import pwd
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

import msgspec

from bridge.config.queue_manager import ListenerConfig
from bridge.mq.embedded.channels import NONE, ConnectionAuthentication
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQError
from bridge.security import audit_log
from bridge.security.authenticator import (
    Authenticated,
    AuthenticationFailed,
    AuthenticatorUnavailable,
    Certificate,
    FailedConnects,
    Presented,
    network_of,
)
from bridge.security.authenticators import Authenticators, ChannelAuthentication
from bridge.security.channel_authentication import Connecting
from bridge.security.privileged import NOBODY, as_mq_has_it
from bridge.security.tls import ListenerTls, reason_of
from bridge.telemetry.identity import USER_IDENTIFIER_LENGTH, fits_user_identifier
from bridge.wire import cmqc

log = logging.getLogger(__name__)


#: The maximum time from the first byte to MQCONN, in seconds.
FIRST_TIMEOUT: Final = 30.0


class User(NamedTuple):
    """The user of an application."""

    #: MQMD.UserIdentifier, whose authorities the command server checks
    identifier: str
    #: the user whose authorities are checked
    principal: str
    #: the authenticated user, or ""
    authenticated_user: str


def process_of(connection: socket.socket) -> tuple[int, str]:
    """Return process ID and user name, or user ID if it has no name, of the peer of a Unix socket."""
    process_id, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        return process_id, pwd.getpwuid(user).pw_name
    except KeyError:
        return process_id, str(user)


def user_of_process(queue_manager: QueueManager, claimed_user: str, process: str) -> User:
    """Return the user of an application on a Unix socket, from the user of its process and the claimed user.

    Only processes of administrators may claim another user.
    """
    authorization = queue_manager.authorization
    if authorization is None:
        return User(claimed_user or process, process, process)
    principal = claimed_user if claimed_user and authorization.is_administrator(process) else process
    return User(principal, principal, process)


def user_of(queue_manager: QueueManager, claimed_user: str, authenticated_user: str | None) -> User:
    """Return the user of an application over TCP, from the claimed and the authenticated user (None if not checked)."""
    authorization = queue_manager.authorization
    if authenticated_user is None and authorization is None:
        return User(claimed_user, NOBODY, "")
    principal = authenticated_user or NOBODY
    if (
        claimed_user
        and authorization is not None
        and authenticated_user
        and authorization.is_administrator(authenticated_user)
    ):
        principal = claimed_user
    return User(principal, principal, authenticated_user or "")


def client_of(channel: str, address: str, user: str, certificate: Certificate | None) -> Connecting:
    """Return the attributes that channel authentication records match. Records for `*` also apply without a channel."""
    certificate = certificate or Certificate()
    return Connecting(channel, address, user, certificate.subject, certificate.issuer)


def mapped(queue_manager: QueueManager, client: Connecting, authenticated_user: str | None) -> str | None:
    """Return the user to which a channel authentication record maps an application over TCP, or None.

    Raises MQError if the application is blocked.
    """
    own = user_of(queue_manager, client.user, authenticated_user).identifier
    verdict = queue_manager.objects.channel_authentication.at_work.verdict(client, as_mq_has_it(own))
    channel = client.channel or "?"
    for warning in verdict.warnings:
        log.warning("MQB3314W channel %s: an application at %s: %s", channel, client.address, warning)
    why, answer = verdict.refusal, "a channel authentication record blocks it"
    if not why and verdict.mcauser is None and authenticated_user and not fits_user_identifier(authenticated_user):
        answer = f"user name longer than {USER_IDENTIFIER_LENGTH} bytes, the length of an MQ user"
        hint = "map it to a user with a channel authentication record (SSLPEERMAP or USERMAP)"
        why = f"{answer}: {authenticated_user!r}; hint: {hint}"
    if why:
        address = client.address
        log.warning("MQB3315W channel %s: rejected an application at %s: %s", channel, address, why)
        note_refusal(address, why, user=client.user)
        raise MQError(cmqc.MQRC_NOT_AUTHORIZED, answer)
    return verdict.mcauser


#: The maximum duration of an authentication, and the maximum delay after failed attempts, in seconds.
AUTHENTICATION_TIMEOUT: Final = 30.0


class ConnectionSlot:
    """The slot of a connection over TCP in the connection limits."""

    def __init__(self, address: str, connections: Counter[str], network: str) -> None:
        #: IP address of the peer, which a connection that was reset no longer provides
        self.address: Final = address
        self._connections = connections
        self._network: str | None = network

    def give_back(self) -> None:
        """Release the slot. Further calls have no effect."""
        network, self._network = self._network, None
        if network is not None:
            self._connections[network] -= 1
            if not self._connections[network]:
                del self._connections[network]


def note_refusal(address: str, why: str, **facts: Any) -> None:
    """Record in the audit log that an application was rejected."""
    audit_log.note("application refused", stranger=address, **facts, address=address, why=why)


class Admission:
    """Connection limits and authentication of applications over TCP, from the listener's configuration."""

    def __init__(
        self, config: ListenerConfig | None = None, connection_authentication: ConnectionAuthentication | None = None
    ) -> None:
        """Without `connection_authentication`, all applications must authenticate. Raises UnknownPlugin."""
        self._connection_authentication = connection_authentication
        self.config = config or ListenerConfig()
        self._authenticators = Authenticators()
        self._authentication: ChannelAuthentication = self._authenticators.of_listener(self.config)
        self._failed = FailedConnects(time.monotonic)
        #: number of connections by network of the address
        self._connections: Counter[str] = Counter()

    def take(self, address: str) -> ConnectionSlot | None:
        """Allocate a slot for a new connection from an address. Return None if a limit is reached."""
        config, count, network = self.config, self._connections, network_of(address)
        most = config.max_connections_per_address
        if count.total() >= config.max_connections:
            log.warning(
                "MQB3302W rejected an MQ application at %s: max_connections %d is reached",
                address,
                config.max_connections,
            )
            note_refusal(address, f"max_connections {config.max_connections} is reached")
        elif most is not None and count[network] >= most:
            log.warning(
                "MQB3303W rejected an MQ application at %s: max_connections_per_address %d is reached", address, most
            )
            note_refusal(address, f"max_connections_per_address {most} is reached")
        else:
            count[network] += 1
            return ConnectionSlot(address, count, network)
        return None

    @property
    def asks(self) -> bool:
        """Whether the listener has an authentication method."""
        return self._authentication.asks

    @property
    def connections(self) -> int:
        """The number of connections over TCP."""
        return self._connections.total()

    async def admit(
        self, user: str, password: bytes, address: str = "", certificate: Certificate | None = None
    ) -> Authenticated:
        """Return the authenticated user, or "" without an authentication method.

        Raises MQError: MQRC_NOT_AUTHORIZED, or MQRC_SECURITY_ERROR if authentication is unavailable.
        """
        if not self._authentication.asks:
            return Authenticated("")
        presented = Presented("", user or None, password or None, certificate, address)
        authentication, check = self._authentication, self._connection_authentication
        if check is not None and check.in_force == NONE:
            return Authenticated("")
        if check is not None and not password and check.allows_no_password(user):
            presented = msgspec.structs.replace(presented, user_name=None)
            authentication = msgspec.structs.replace(authentication, anonymous=True)
        attempt = self._failed.begin(address, user, self.config.failed_connects, AUTHENTICATION_TIMEOUT)
        if attempt is None:
            log.warning(
                "MQB3312W rejected an application at %s: too many failed attempts from its address are queued",
                address or "?",
            )
            why = "too many authentications from its address are delayed (failed_connects)"
            note_refusal(address, why, user=user)
            raise MQError(
                cmqc.MQRC_SECURITY_ERROR, "too many authentications are delayed after failed attempts (failed_connects)"
            )
        presented = msgspec.structs.replace(presented, attempt=attempt)
        succeeded = True  # an application that disconnects before the check has not failed
        try:
            await asyncio.sleep(attempt.delay)
            succeeded = False
            async with asyncio.timeout(AUTHENTICATION_TIMEOUT):
                login = await authentication.authenticate(presented)
            succeeded = True
        except AuthenticationFailed as error:
            log.warning("MQB3305W rejected an application at %s as user %r: %s", address or "?", user[:40], error)
            note_refusal(address, str(error), user=user)
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, "user or password is wrong") from None
        except (AuthenticatorUnavailable, TimeoutError) as error:
            succeeded = True  # the result is unknown
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from None  # the application disconnected while its check was queued
            why = str(error) or f"authentication timed out after {AUTHENTICATION_TIMEOUT:g} s"
            log.error("MQB3306E queue_manager.listener: rejected an application at %s: %s", address or "?", why)
            note_refusal(address, why, user=user)
            raise MQError(cmqc.MQRC_SECURITY_ERROR, "authentication is not available") from None
        finally:
            attempt.end(succeeded)
        return Authenticated(user if login.user_name is None else login.user_name, None, login.expires)

    async def check_password(self, user: str, password: bytes) -> None:
        """Check the password of a user other than an application, for example an MQTT client.

        Raises MQError: MQRC_NOT_AUTHORIZED, or MQRC_SECURITY_ERROR if the password cannot be checked.
        """
        presented = Presented("", user, password)
        if not any(authenticator.applies_to(presented) for authenticator in self._authentication.authenticators):
            raise MQError(
                cmqc.MQRC_SECURITY_ERROR, "the queue manager has no passwords (queue_manager.listener.password_file)"
            )
        try:
            login = await self._authentication.authenticate(presented)
        except AuthenticationFailed as error:
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, str(error)) from None
        except AuthenticatorUnavailable as error:
            raise MQError(cmqc.MQRC_SECURITY_ERROR, str(error)) from None
        if login.user_name not in (None, user):
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, f"the password belongs to user {login.user_name!r}")

    def close(self) -> None:
        """Stop the threads of the authenticators."""
        self._authenticators.close()


#: The backlog of the listening socket.
_BACKLOG: Final = 128
#: Errors of accept for a lack of resources, and the delay before the next attempt in seconds.
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NO_ROOM_INTERVAL: Final = 1.0


class TcpListener:
    """Listens on a TCP address.

    `conversation` returns the protocol for a connection with a slot. `blocked` returns why an address is blocked, or "".
    """

    def __init__(
        self,
        admission: Admission,
        conversation: Callable[[ConnectionSlot], asyncio.Protocol],
        blocked: Callable[[str], str] = lambda address: "",
    ) -> None:
        self._admission = admission
        self._blocked = blocked
        self._conversation = conversation
        self._loop = asyncio.get_running_loop()
        #: None without TLS
        self._tls: ListenerTls | None = None
        self._sockets: list[socket.socket] = []
        #: tasks that accept connections, and tasks of connections before their protocol starts
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, address: str, port: int) -> tuple[str, int]:
        """Listen, and return the bound address and port. Raises OSError or TlsError."""
        config = self._admission.config.tls
        if config is not None:
            self._tls = ListenerTls("queue_manager.listener", config)
        flags = socket.AI_PASSIVE
        try:
            for addrinfo in await self._loop.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=flags):
                listening = socket.create_server(addrinfo[4][:2], family=addrinfo[0], backlog=_BACKLOG)
                listening.setblocking(False)
                self._sockets.append(listening)
        except OSError:
            self.close()
            raise
        for listening in self._sockets:
            self._start(self._accept(listening))
        name = self._sockets[0].getsockname()
        return name[0], name[1]

    def close(self) -> None:
        """Stop accepting connections. Accepted connections stay open."""
        for task in self._tasks:
            task.cancel()
        for listening in self._sockets:
            listening.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _NO_ROOM:
                    log.error("MQB3310E accepting MQ applications failed: %s", error.strerror)
                    await asyncio.sleep(_NO_ROOM_INTERVAL)
                continue
            if why := self._blocked(address[0]):
                log.warning("MQB3313W rejected an MQ application at %s: %s", address[0], why)
                note_refusal(address[0], why)
                connection.close()
                continue
            slot = self._admission.take(address[0])
            if slot is not None:
                self._start(self._start_protocol(connection, slot))
            else:
                connection.close()

    async def _start_protocol(self, connection: socket.socket, slot: ConnectionSlot) -> None:
        context = None
        if self._tls is not None:
            self._tls.reload_if_changed()
            context = self._tls.context
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._conversation(slot),
                connection,
                ssl=context,
                ssl_handshake_timeout=None if context is None else FIRST_TIMEOUT,
            )
        except OSError as error:
            slot.give_back()
            log.warning("MQB3311W rejected an MQ application at %s: TLS: %s", slot.address, reason_of(error))
            note_refusal(slot.address, f"TLS: {reason_of(error)}")
        except BaseException:
            slot.give_back()
            raise
