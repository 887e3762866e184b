"""Live views: server-sent events with messages, shown in a page while it is open.

The live view of a topic filter has a subscription, a connection and a thread. It gets all messages, so that its queue does
not fill up, and shows some of them. It ends if there are too many.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from bridge.console.bridge_access import BridgeAccess
from bridge.console.forms import RequestProblem
from bridge.mapping.message_view import MessageView, body_text
from bridge.mq.mqi import MQSD, Connection, GetOptions, Got, MQError
from bridge.mqtt.topics import is_wildcard
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Maximum number of live views, of all users and of one user or token.
MAX_VIEWS: Final = 8
MAX_VIEWS_PER_USER: Final = 4
#: Maximum number of messages that are shown per second, and maximum number of messages per second before the view ends.
MAX_SHOWN: Final = 20
MAX_RATE: Final = 1_000
#: Maximum number of payload bytes that are shown.
MAX_PAYLOAD: Final = 1_000
#: Time in milliseconds that the thread waits for a message before it checks whether the view has ended.
_WAIT: Final = 500
#: Seconds between heartbeats of an idle view.
_HEARTBEAT: Final = 10.0
#: Maximum number of messages that wait to be sent to the page.
_MAX_PENDING: Final = 200
_SUBSCRIBE: Final = (
    cmqc.MQSO_CREATE
    | cmqc.MQSO_NON_DURABLE
    | cmqc.MQSO_MANAGED
    | cmqc.MQSO_WILDCARD_TOPIC
    | cmqc.MQSO_FAIL_IF_QUIESCING
)
_GET: Final = (
    cmqc.MQGMO_WAIT
    | cmqc.MQGMO_NO_SYNCPOINT
    | cmqc.MQGMO_FAIL_IF_QUIESCING
    | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
    | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
)


class ViewEvent(msgspec.Struct, frozen=True):
    """A message in a live view, or a notice about the view itself."""

    #: message, notice or end
    kind: str
    text: str
    topic: str = ""
    size: int = 0
    retained: bool = False
    #: seconds since the epoch
    time: float = msgspec.field(default_factory=time.time)


def event(view_event: ViewEvent) -> bytes:
    """Return a server-sent event."""
    return b"event: %s\ndata: %s\n\n" % (view_event.kind.encode(), msgspec.json.encode(view_event))


class EventStream(StreamingResponse):
    """Server-sent events. `on_close` is called at the end, even if the client has gone before the first event."""

    def __init__(self, events: AsyncIterator[bytes], on_close: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_close()


class LiveViews:
    """The open live views. Used on the event loop of the admin port."""

    def __init__(self, bridge: BridgeAccess) -> None:
        self._bridge = bridge
        #: each open view and its user
        self._views: dict[object, str] = {}
        #: the bridge is stopping, and all views must end
        self.ended = False

    def check(self, user: str) -> None:
        """Raise RequestProblem if a user may not open another view now."""
        own = sum(owner == user for owner in self._views.values())
        if own >= MAX_VIEWS_PER_USER:
            raise RequestProblem(
                429,
                f"{user} has {own} live views open, and {MAX_VIEWS_PER_USER} is the limit for each user",
                ["Close one of them, then load this page again."],
            )
        if len(self._views) >= MAX_VIEWS:
            raise RequestProblem(
                503,
                f"{MAX_VIEWS} live views are open, and that is the limit for all users together",
                ["Reload this page after another view was closed."],
            )

    def stream(self, user: str, events: AsyncIterator[bytes]) -> EventStream:
        """Open a view with these events. Raises RequestProblem if too many are open."""
        self.check(user)
        key = object()
        self._views[key] = user
        return EventStream(events, lambda: self._close(key))

    def topic(self, user: str, topic_filter: str, payloads: bool, is_valid: Callable[[], bool]) -> EventStream:
        """Open a view of a topic filter for a user, named as in the audit log. Raises RequestProblem if too many are open."""
        self.check(user)
        view = LiveView(self._bridge, topic_filter, payloads)
        self._views[view] = user
        return EventStream(view.events(is_valid), lambda: self._close(view))

    def _close(self, view: object) -> None:
        self._views.pop(view, None)
        if isinstance(view, LiveView):
            view.end()

    def end(self) -> None:
        """End all views soon. Callable on any thread."""
        self.ended = True
        for view in list(self._views):
            if isinstance(view, LiveView):
                view.end()

    async def stop(self) -> None:
        """End all views and wait for their threads."""
        self.end()
        for view in list(self._views):
            if isinstance(view, LiveView):
                await asyncio.to_thread(view.thread.join, 5.0)


class LiveView:
    """A view of a topic filter. Its thread adds the events."""

    def __init__(self, bridge: BridgeAccess, topic_filter: str, payloads: bool) -> None:
        self._bridge = bridge
        self._filter = topic_filter
        self._payloads = payloads
        self._events: asyncio.Queue[ViewEvent] = asyncio.Queue(_MAX_PENDING)
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        self.thread = threading.Thread(target=self._run, name="console live view", daemon=True)
        self.thread.start()

    def end(self) -> None:
        """End the thread soon."""
        self._ended.set()

    async def events(self, is_valid: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield server-sent events until the view ends, or its user may no longer see it."""
        while True:
            try:
                async with asyncio.timeout(_HEARTBEAT):
                    view_event: ViewEvent | None = await self._events.get()
            except TimeoutError:
                view_event = None
            if not is_valid():
                view_event = ViewEvent("end", "The view ends: the login has ended")
            if view_event is None:
                yield b": alive\n\n"
                continue
            yield event(view_event)
            if view_event.kind == "end":
                return

    def _run(self) -> None:
        try:
            connection = self._bridge.connect()
            try:
                self._watch(connection)
            finally:
                with contextlib.suppress(MQError):
                    connection.disconnect()
        except MQError as error:
            self._show(ViewEvent("end", f"The view ends: {error}"))
        except Exception as error:
            log.exception("MQB9205E console: a live view failed")
            self._show(
                ViewEvent("end", f"The view ends: {type(error).__name__}. The log of the bridge contains the reason")
            )
        else:
            self._show(ViewEvent("end", "The view has ended"))

    def _watch(self, connection: Connection) -> None:
        options = _SUBSCRIBE
        if is_wildcard(self._filter):
            # There may be many retained publications. The page of the topic shows them.
            options |= cmqc.MQSO_NEW_PUBLICATIONS_ONLY
        _, queue = connection.subscribe(MQSD(Options=options, ObjectString=self._filter))
        self._show(ViewEvent("notice", f"Subscribed to {self._filter}"))
        gmo = GetOptions(Options=_GET, WaitInterval=_WAIT, MatchOptions=cmqc.MQMO_NONE, MaxLength=65_536)
        second, count = 0, 0
        while not self._ended.is_set():
            try:
                message = connection.get(queue, gmo)
            except MQError as error:
                if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                    raise
                message = None
            if int(time.time()) != second:
                self._report_hidden(count)
                second, count = int(time.time()), 0
            if message is None:
                continue
            count += 1
            if count <= MAX_SHOWN:
                self._show(self._event_of(message))
            elif count > MAX_RATE:
                text = f"The view ends: more than {MAX_RATE:,} messages a second match {self._filter}. Use a narrower filter"
                self._show(ViewEvent("notice", text))
                return

    def _report_hidden(self, count: int) -> None:
        if count > MAX_SHOWN:
            self._show(ViewEvent("notice", f"{count - MAX_SHOWN} more messages in that second were not shown"))

    def _event_of(self, message: Got) -> ViewEvent:
        view = MessageView(message.md, message.data)
        folders = [header["folders"] for header in view.json()["rfh2"]]
        mqps: dict[str, object] = next(
            (folder["mqps"] for folder in folders if isinstance(folder.get("mqps"), dict)), {}
        )
        size = max(message.DataLength - len(message.data), 0) + len(view.body)
        text = body_text(view.body[:MAX_PAYLOAD]) if self._payloads else ""
        return ViewEvent("message", text, str(mqps.get("Top", self._filter)), size, bool(mqps.get("Ret")))

    def _show(self, view_event: ViewEvent) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop of the admin port has ended
            self._loop.call_soon_threadsafe(self._add, view_event)

    def _add(self, view_event: ViewEvent) -> None:
        if view_event.kind == "end":
            while self._events.full():
                self._events.get_nowait()
        if not self._events.full():
            self._events.put_nowait(view_event)
