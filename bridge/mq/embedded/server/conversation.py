"""An MQ connection of another process to the embedded queue manager, independent of the wire protocol.

A subclass implements a protocol: it decodes requests, executes them, and encodes replies. This class sends a reply after the
request's unit of work has ended, runs waiting gets without blocking other connections, and backs out when the connection
ends. The byte stream is in `request_stream`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server.admission import (
    Admission,
    Place,
    User,
    client_of,
    mapped,
    process_of,
    user_of,
    user_of_process,
)
from bridge.mq.embedded.server.request_stream import Malformed, RequestStream
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.application import Application
from bridge.mq.mqi import GetOptions, Got, MQError, TruncatedMessage
from bridge.security import audit_log
from bridge.security.privileged import NOBODY
from bridge.security.tls import certificate_of
from bridge.wire import cmqc

log = logging.getLogger(__name__)


class Server(Protocol):
    """The server that owns conversations and closes them when the queue manager stops."""

    queue_manager: QueueManager
    admission: Admission
    connections: set[Conversation]

    def discard(self, connection: Conversation) -> None: ...


class Conversation(RequestStream):
    """One MQ connection of another process."""

    def __init__(self, server: Server, place: Place | None = None) -> None:
        super().__init__()
        self._server = server
        #: the slot of a connection over TCP
        self.place = place
        self._queue_manager = server.queue_manager
        self._application: Application | None = None
        #: IP address of the peer; "" on a Unix socket
        self.address = "" if place is None else place.address
        #: the server-connection channel of a subclass; "" if there is none
        self._channel = ""
        #: the process at the other end of a Unix socket; 0 over TCP
        self._process_id = 0
        #: the user that has connected
        self._user = ""
        #: authenticates the application
        self._identification: asyncio.Task[None] | None = None
        #: runs until the credentials expire
        self._expiry: asyncio.TimerHandle | None = None
        #: a unit of work of a request is about to end
        self._ending = False
        #: the application has been told that the queue manager is quiescing
        self._told = False
        self._wait: tuple[list[Callable[[], None]], Callable[[], None], asyncio.TimerHandle | None] | None = None

    # To be implemented by protocols ----------------------------------------------------------------------------------

    @abstractmethod
    def _work(self, request: bytes) -> None:
        """Execute a request and reply, with the queue manager's lock held. Raises MQError or Malformed."""

    @abstractmethod
    def _answer(self, result: Any = None, warning: MQError | None = None) -> None:
        """Reply to a successful request, possibly with a warning."""

    @abstractmethod
    def _refuse(self, error: MQError) -> None:
        """Reply to a failed request."""

    # The connection --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        for end in (self._identification, self._expiry):
            if end is not None:
                end.cancel()
        self._server.discard(self)
        self._stop_waiting()
        if not self._ending:
            self._leave()

    def _leave(self) -> None:
        """Clean up after the connection has ended."""
        application, self._application = self._application, None
        if application is not None:
            with self._queue_manager.lock:
                for unit in application.disconnect(commit=False):
                    self._queue_manager.recovery_log.submit(unit)

    def _stop(self) -> None:
        """Abort the connection, from any thread. Requests that follow are not processed."""
        try:
            same_thread = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            same_thread = False
        if same_thread:
            self.abort()
        else:
            self._loop.call_soon_threadsafe(self.abort)

    def quiesce(self) -> None:
        """Retry a waiting get, which fails now if it has MQGMO_FAIL_IF_QUIESCING."""
        if self._wait is not None:
            waiters, arrived, _ = self._wait
            if arrived in waiters:
                waiters.remove(arrived)
                arrived()
            self._told = True

    @property
    def is_leaving(self) -> bool:
        """Whether the application may still have to commit or disconnect before the queue manager stops."""
        return self._told or (self._application is not None and self._application.in_unit_of_work)

    @property
    def _is_connected(self) -> bool:
        return self._application is not None

    @property
    def _waits(self) -> bool:
        return self._wait is not None

    def _take(self, request: bytes) -> None:
        try:
            with self._queue_manager.lock:
                self._work(request)
        except Malformed:
            raise
        except MQError as error:
            self._refuse(error)
        except Exception as error:
            self._refuse(unexpected(error))

    # Verbs -----------------------------------------------------------------------------------------------------------

    def _connect(
        self,
        queue_manager: str,
        application: str,
        user: str,
        password: bytes,
        then: Callable[[], None],
    ) -> None:
        """Connect an application, and reply with `then`, immediately or after authentication."""
        name = self._queue_manager.name
        if queue_manager not in ("", name):
            raise MQError(cmqc.MQRC_Q_MGR_NAME_ERROR, f"this is queue manager {name}, not {queue_manager}")
        if self._application is not None:
            raise MQError(cmqc.MQRC_ALREADY_CONNECTED, name)
        if self._queue_manager.quiescing:
            raise MQError(cmqc.MQRC_Q_MGR_QUIESCING, f"queue manager {name} is about to end")

        if peer := self._peer():
            self._let_in(application, user_of_process(self._queue_manager, user, peer))
            then()
        else:
            identify = self._identify(application, user, password, then)
            self._identification = self._loop.create_task(identify)

    def _let_in(self, name: str, user: User) -> None:
        """Connect an authenticated application. Raises MQError."""
        self._application = Application(self._queue_manager, name, user.identifier, user.asked)
        hconn = self._application.hconn
        hconn.address, hconn.channel, hconn.process_id = self.address, self._channel, self._process_id
        hconn.stop = self._stop
        self._user = user.shown or user.identifier
        audit_log.note("application connected", user=self._user, address=self.address, application=name)

    async def _identify(self, application: str, user: str, password: bytes, then: Callable[[], None]) -> None:
        """Authenticate an application that connects over TCP, and reply to it."""
        assert self._transport is not None
        stream = self._transport.get_extra_info("ssl_object")
        certificate = certificate_of(stream) if stream is not None else None
        try:
            admission = self._server.admission
            found = await admission.admit(user, password, self.address, certificate)
            shown = found.user_name if admission.asks else None
            client = client_of(self._channel, self.address, user if shown is None else shown, certificate)
            mcauser = mapped(self._queue_manager, client, shown)
            if (authorization := self._queue_manager.authorization) is not None:
                # Looking up groups in the operating system may block.
                await self._loop.run_in_executor(None, authorization.groups, mcauser or shown or NOBODY)
            with self._queue_manager.lock:
                self._let_in(application, user_of(self._queue_manager, user, shown if mcauser is None else mcauser))
                then()
        except MQError as error:
            self._refuse(error)
        except Exception as error:
            self._refuse(unexpected(error))
        else:
            if found.expires is not None:
                self._expiry = self._loop.call_later(found.expires - time.time(), self._expire, found.user_name)

    def _expire(self, user: str | None) -> None:
        log.info("MQB3308I the MQ connection of user %r ends, as what it has shown of itself does", user)
        self.abort()

    def _connected(self) -> Application:
        if self._application is None:
            raise MQError(cmqc.MQRC_HCONN_ERROR, "MQCONN comes first")
        return self._application

    def _peer(self) -> str:
        """Return the user name of the process at the other end of a Unix socket, blank over TCP."""
        assert self._transport is not None
        connection = self._transport.get_extra_info("socket")
        if connection is None or connection.family != socket.AF_UNIX:
            return ""
        self._process_id, user = process_of(connection)
        return user

    def _disconnect(self) -> None:
        application = self._connected()
        self._application = None
        self._expect_mqconn()
        units = application.disconnect(commit=True) or [Unit()]
        for unit in units[:-1]:
            self._queue_manager.recovery_log.submit(unit)
        self._end(units[-1])

    def _end(self, unit: Unit | None, result: Any = None, warning: MQError | None = None) -> None:
        """Reply after a unit of work has ended."""
        if unit is None:
            self._answer(result, warning)
            return

        def done(reason: int) -> None:
            self._ending = False
            if reason:
                self._refuse(MQError(reason, "the unit of work was backed out"))
            else:
                self._answer(result, warning)
            if self._transport is None:
                self._leave()

        unit.done = done
        self._ending = True
        self._queue_manager.recovery_log.submit(unit)

    # Waiting gets ----------------------------------------------------------------------------------------------------

    def _get(
        self,
        handle: int,
        options: GetOptions,
        form: Callable[[Got], Any] = lambda got: got,
        verb: Callable[[], tuple[Any, Unit | None]] | None = None,
    ) -> None:
        """Execute MQGET and reply, now or when the wait ends.

        `form` converts the message to the result of the reply. `verb`, if given, replaces MQGET and `form`.
        """
        application = self._connected()
        if self._try_to_get(application, handle, options, form, verb):
            return
        waiters = application.queue_of(handle).waiters
        interval = options.WaitInterval

        def arrived() -> None:
            # Units of work in this process may end on any thread.
            self._loop.call_soon_threadsafe(again)

        def again() -> None:
            if self._wait is None or self._application is not application:
                return
            wait, self._wait = self._wait, None
            try:
                with self._queue_manager.lock:
                    got = self._try_to_get(application, handle, options, form, verb)
            except MQError as error:
                got = True
                self._refuse(error)
            except Exception as error:
                got = True
                self._refuse(unexpected(error))
            if not got:
                self._wait = wait
                waiters.append(arrived)
            elif wait[2] is not None:
                wait[2].cancel()

        def late() -> None:
            self._stop_waiting()
            self._refuse(MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"none came in {interval} ms"))

        timer = self._loop.call_later(interval / 1000, late) if interval >= 0 else None
        waiters.append(arrived)
        self._wait = (waiters, arrived, timer)

    def _try_to_get(
        self,
        application: Application,
        handle: int,
        options: GetOptions,
        form: Callable[[Got], Any],
        verb: Callable[[], tuple[Any, Unit | None]] | None,
    ) -> bool:
        """Get a message and reply. Return False if there is no message and the get waits."""
        try:
            if verb is not None:
                result, unit = verb()
            else:
                got, unit = application.get(handle, options)
                result = form(got)
        except TruncatedMessage as error:
            self._answer(form(error.got), error)
        except MQError as error:
            if not options.Options & cmqc.MQGMO_WAIT or error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                raise
            return False
        else:
            self._end(unit, result)
        return True

    def _stop_waiting(self) -> None:
        if self._wait is None:
            return
        waiters, arrived, timer = self._wait
        self._wait = None
        if arrived in waiters:
            waiters.remove(arrived)
        if timer is not None:
            timer.cancel()


def unexpected(error: Exception) -> MQError:
    """Log an unexpected error, and return the error for the application, which must get a reply."""
    log.exception("MQB3309E a request of an MQ application failed", exc_info=error)
    return MQError(cmqc.MQRC_UNEXPECTED_ERROR, "the log of the bridge says more")
