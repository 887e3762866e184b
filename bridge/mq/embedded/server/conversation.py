"""An MQ connection of another process at the embedded queue manager, whichever language it speaks.

A language is a subclass: it cuts the bytes into requests, has the application do them, and writes the replies. What no
language changes is here: one request is worked on at a time; a request whose unit of work must end first is answered when
it has; a get that waits holds up nobody else; the end of the connection backs out what is open.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, cast

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server.admission import Admission, Place
from bridge.mq.embedded.server.identity import User, client_of, mapped, name_of_process, user_of, user_of_process
from bridge.mq.embedded.server.tcp_keepalive import keep_alive
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.application import Application
from bridge.mq.errors import MQError
from bridge.mq.mqi import GetOptions, Got, TruncatedMessage
from bridge.security import audit_log
from bridge.security.privileged import NOBODY
from bridge.security.tls import certificate_of
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Bytes of a frame at most: the largest message MQ knows, and room for headers.
MAX_FRAME = 104_857_600 + 1_048_576
#: Bytes of a frame at most before MQCONN, and seconds until it has to be there: whoever says nothing is owed nothing.
FIRST_FRAME = 65_536
FIRST_TIMEOUT = 30.0
#: Bytes of requests that wait behind the one that is worked on: with more, the application is not read until they are fewer.
READ_AHEAD = 262_144
#: Bytes that a Unix socket takes of a reply at once: most batches of messages. (Over TCP the kernel finds out by itself.)
SEND_BUFFER = 1_048_576


class Server(Protocol):
    """Where conversations are known, so that the queue manager's end can break them."""

    queue_manager: QueueManager
    admission: Admission
    connections: set[Conversation]

    def discard(self, connection: Conversation) -> None: ...


class Language(Protocol):
    """A class of conversations besides the server's own, which it is given: programs in C have one."""

    @property
    def SPEAKERS(self) -> str:
        """Return who speaks it, for the log."""

    @property
    def SOCKET_NAME(self) -> str:
        """Return the name of its socket in the queue manager's data directory."""

    @property
    def GREETING(self) -> bytes:
        """Return the bytes that each connection begins with, the first of them larger than that of any MessagePack frame."""

    def __call__(self, server: Server, place: Place | None = None, /) -> Conversation:
        """Return the conversation for a new connection; over TCP it has a place."""


class Malformed(Exception):
    """The bytes are no request: the other side does not speak this language."""


class Conversation(asyncio.Protocol, ABC):
    """One MQ connection of another process."""

    #: the length in front of a frame; it does not count itself
    LENGTH: ClassVar[struct.Struct]

    def __init__(self, server: Server, place: Place | None = None) -> None:
        self._server = server
        #: over TCP
        self.place = place
        self._queue_manager = server.queue_manager
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._application: Application | None = None
        self._transport: asyncio.Transport | None = None
        #: IP address of the other end; "" on a Unix socket
        self.address = "" if place is None else place.address
        #: the user that has connected
        self._user = ""
        #: finds out who the application is
        self._identification: asyncio.Task[None] | None = None
        #: runs until what the application has shown ends to be true
        self._expiry: asyncio.TimerHandle | None = None
        #: a request is being worked on: what arrives meanwhile waits
        self._working = False
        #: a unit of work is about to end: what it begins, a subscription perhaps, is there when it has
        self._ending = False
        #: too much waits behind the request that is worked on
        self._unread = False
        #: the other end does not read its replies as fast as they are written
        self._full = False
        #: that the queue manager is about to end
        self._told = False
        #: runs until MQCONN
        self._first: asyncio.TimerHandle | None = None
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

    # The stream ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family == socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        elif connection is not None:
            keep_alive(connection)
        self._server.connections.add(self)
        self._expect_mqconn()

    def _expect_mqconn(self) -> None:
        """End the connection unless MQCONN comes soon: without one, or after one that was refused, it is owed nothing."""
        if self._first is not None:
            self._first.cancel()
        self._first = self._loop.call_later(FIRST_TIMEOUT, self._silent)

    def _silent(self) -> None:
        if self._application is None and self._working:
            self._expect_mqconn()
        elif self._application is None:
            self._fail(f"no MQCONN within {FIRST_TIMEOUT:g} s")

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        for timer in (self._first, self._identification, self._expiry):
            if timer is not None:
                timer.cancel()
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

    def abort(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    @property
    def _may_work(self) -> bool:
        """Return whether the next request may be worked on: nobody works for who does not read the replies.

        What has arrived of a connection that has ended is not worked on: nothing would end what it begins.
        """
        return not self._working and not self._full and self._transport is not None

    def _pace(self) -> None:
        """Read the other end, or not: a request is as long as it has to be, but what waits behind one is bounded."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        waits = len(self._buffer) if not self._may_work else 0
        if self._application is None and waits > FIRST_FRAME:
            self._fail(f"{waits} bytes behind an MQCONN that is not answered")
        elif self._wait is not None and waits > READ_AHEAD:
            # While it is not read its end would not be seen, and a wait may be for ever.
            self._fail(f"{waits} bytes behind a get that waits")
        elif self._unread != (waits > READ_AHEAD):
            self._unread = not self._unread
            transport.pause_reading() if self._unread else transport.resume_reading()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Work on the next request that has arrived in full."""
        self._work_on()
        self._pace()

    def _work_on(self) -> None:
        buffer = self._buffer
        size = self.LENGTH.size
        while self._may_work and len(buffer) >= size:
            (length,) = self.LENGTH.unpack_from(buffer)
            if length > (FIRST_FRAME if self._application is None else MAX_FRAME):
                self._fail(f"a request of {length} bytes")
                return
            if len(buffer) < size + length:
                return
            request = bytes(memoryview(buffer)[size : size + length])
            del buffer[: size + length]
            self._working = True
            try:
                with self._queue_manager.lock:
                    self._work(request)
            except Malformed as error:
                self._fail(str(error))
                return
            except MQError as error:
                self._refuse(error)
            except Exception as error:
                self._refuse(unexpected(error))

    def _fail(self, what: str) -> None:
        log.warning("MQB3307W an MQ connection is closed, it does not speak the protocol of this bridge: %s", what)
        self.abort()

    def _reply(self, frame: bytes | bytearray) -> None:
        self._working = False
        if self._transport is None:
            return
        self._transport.write(frame)
        if self._buffer or self._unread:
            self._loop.call_soon(self._next)

    # Verbs -----------------------------------------------------------------------------------------------------------

    def _connect(
        self,
        queue_manager: str,
        application: str,
        user: str,
        password: bytes,
        channel: str | None,
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
            identify = self._identify(application, user, password, channel, then)
            self._identification = self._loop.create_task(identify)

    def _let_in(self, name: str, user: User) -> None:
        """Make the connection of an application of that name. Raises MQError."""
        self._application = Application(self._queue_manager, name, user.identifier, user.asked)
        self._user = user.shown or user.identifier
        audit_log.note("application connected", user=self._user, address=self.address, application=name)

    async def _identify(
        self, application: str, user: str, password: bytes, channel: str | None, then: Callable[[], None]
    ) -> None:
        """Find out who an application is that connects over TCP, and answer it."""
        assert self._transport is not None
        stream = self._transport.get_extra_info("ssl_object")
        certificate = certificate_of(stream) if stream is not None else None
        try:
            admission = self._server.admission
            found = await admission.admit(channel, user, password, self.address, certificate)
            shown = found.user_name if admission.asks else None
            client = client_of(channel, self.address, user if shown is None else shown, certificate)
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
