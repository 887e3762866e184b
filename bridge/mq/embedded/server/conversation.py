"""An MQ connection of another process at the embedded queue manager, whichever language it speaks.

A language is a subclass: it reads requests, has the application do them, and writes the replies. What no language changes
is here: a request whose unit of work must end first is answered when it has; a get that waits holds up nobody else; the end
of the connection backs out what is open. The stream of requests is `request_stream`.
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
    name_of_process,
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
    """Where conversations are known, so that the queue manager's end can break them."""

    queue_manager: QueueManager
    admission: Admission
    connections: set[Conversation]

    def discard(self, connection: Conversation) -> None: ...


class Conversation(RequestStream):
    """One MQ connection of another process."""

    def __init__(self, server: Server, place: Place | None = None) -> None:
        super().__init__()
        self._server = server
        #: over TCP
        self.place = place
        self._queue_manager = server.queue_manager
        self._application: Application | None = None
        #: IP address of the other end; "" on a Unix socket
        self.address = "" if place is None else place.address
        #: the server-connection channel that a subclass connects by; "": none
        self._channel = ""
        #: the user that has connected
        self._user = ""
        #: finds out who the application is
        self._identification: asyncio.Task[None] | None = None
        #: runs until what the application has shown ends to be true
        self._expiry: asyncio.TimerHandle | None = None
        #: a unit of work is about to end: what it begins, a subscription perhaps, is there when it has
        self._ending = False
        #: that the queue manager is about to end
        self._told = False
        self._wait: tuple[list[Callable[[], None]], Callable[[], None], asyncio.TimerHandle | None] | None = None

    # What a language has of its own ----------------------------------------------------------------------------------

    @abstractmethod
    def _work(self, request: bytes) -> None:
        """Do a request, with the queue manager's lock held: it answers, refuses, or raises MQError or Malformed."""

    @abstractmethod
    def _answer(self, result: Any = None, warning: MQError | None = None) -> None:
        """Reply that the request was done; `warning` if not quite."""

    @abstractmethod
    def _refuse(self, error: MQError) -> None:
        """Reply that it was not."""

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
        """End what is open of a connection that has ended."""
        application, self._application = self._application, None
        if application is not None:
            with self._queue_manager.lock:
                for unit in application.disconnect(commit=False):
                    self._queue_manager.recovery_log.submit(unit)

    def quiesce(self) -> None:
        """Have a get that waits look again: it ends now, if it is one that fails when the queue manager quiesces."""
        if self._wait is not None:
            waiters, arrived, _ = self._wait
            if arrived in waiters:
                waiters.remove(arrived)
                arrived()
            self._told = True

    @property
    def is_leaving(self) -> bool:
        """Return whether the application may still have to commit or disconnect before the queue manager ends."""
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
        """Connect an application, and answer it by `then`: at once, or when its password has been looked at."""
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
        """Make the connection of an application of that name. Raises MQError."""
        self._application = Application(self._queue_manager, name, user.identifier, user.asked)
        self._application.hconn.address = self.address
        self._user = user.shown or user.identifier
        audit_log.note("application connected", user=self._user, address=self.address, application=name)

    async def _identify(self, application: str, user: str, password: bytes, then: Callable[[], None]) -> None:
        """Find out who an application is that connects over TCP, and answer it."""
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
                # To ask the operating system for somebody's groups may take long.
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
        """Return the user name of the process at the other end of a Unix socket.

        It is blank over TCP, where nothing vouches for a user name.
        """
        assert self._transport is not None
        connection = self._transport.get_extra_info("socket")
        if connection is None or connection.family != socket.AF_UNIX:
            return ""
        return name_of_process(connection)

    def _disconnect(self) -> None:
        application = self._connected()
        self._application = None
        self._expect_mqconn()
        units = application.disconnect(commit=True) or [Unit()]
        for unit in units[:-1]:
            self._queue_manager.recovery_log.submit(unit)
        self._end(units[-1])

    def _end(self, unit: Unit | None, result: Any = None, warning: MQError | None = None) -> None:
        """Answer once a unit of work has ended."""
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

    # A get that may wait ---------------------------------------------------------------------------------------------

    def _get(
        self,
        handle: int,
        options: GetOptions,
        form: Callable[[Got], Any] = lambda got: got,
        verb: Callable[[], tuple[Any, Unit | None]] | None = None,
    ) -> None:
        """Do MQGET and answer, now or when the wait ends.

        `form` makes of what was got the result to answer; `verb` gets in another way, without `form`.
        """
        application = self._connected()
        if self._try_to_get(application, handle, options, form, verb):
            return
        waiters = application.queue_of(handle).waiters
        interval = options.WaitInterval

        def arrived() -> None:
            # Units of work of this process end in the thread that submits them.
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
        """Get and answer; False when there is no message and the caller waits for one."""
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
    """Return the error for an application whose request fails in a way that nobody foresaw.

    The application must not wait for ever.
    """
    log.exception("MQB3309E a request of an MQ application failed", exc_info=error)
    return MQError(cmqc.MQRC_UNEXPECTED_ERROR, "the log of the bridge says more")
