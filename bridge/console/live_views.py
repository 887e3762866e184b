"""Live views: what is published to a topic filter, shown in a page while it is open.

Each has a subscription and a thread of its own. It takes all that comes for it, so that its queue does not fill, and shows
some of it; one for which too much comes ends.
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

from bridge.console.bridge_access import BridgeAccess
from bridge.console.problem import Problem
from bridge.mapping.message_view import MessageView, body_text
from bridge.mq.mqi import MQSD, Connection, GetOptions, Got, MQError
from bridge.mqtt.topics import is_wildcard
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Views at a time, of all users and of one user or token.
MAX_VIEWS: Final = 8
MAX_VIEWS_PER_USER: Final = 4
#: Messages of a second that are shown; of more than the second number the view ends.
SHOWN: Final = 20
TOO_MANY: Final = 1_000
#: Bytes of a payload that are shown.
PAYLOAD: Final = 1_000
#: Milliseconds that the thread waits for a message before it looks whether the view is still there.
_WAIT: Final = 500
#: Seconds after which a view says that it lives.
_HEARTBEAT: Final = 10.0
#: Messages that wait to be sent to the page.
_ROOM: Final = 200
_SUBSCRIBE: Final = (
    cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE | cmqc.MQSO_MANAGED | cmqc.MQSO_WILDCARD_TOPIC | cmqc.MQSO_FAIL_IF_QUIESCING
)
_GET: Final = (
    cmqc.MQGMO_WAIT
    | cmqc.MQGMO_NO_SYNCPOINT
    | cmqc.MQGMO_FAIL_IF_QUIESCING
    | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
    | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
)


class Seen(msgspec.Struct, frozen=True):
    """A publication in a live view, or what is said of the view itself."""

    #: message, notice or end
    kind: str
    text: str
    topic: str = ""
    size: int = 0
    retained: bool = False
    #: seconds since the epoch
    time: float = msgspec.field(default_factory=time.time)


class LiveViews:
    """All live views. Used on the event loop of the admin port."""

    def __init__(self, bridge: BridgeAccess) -> None:
        self._bridge = bridge
        self._views: set[LiveView] = set()

    def check(self, user: str) -> None:
        """Raise Problem if a user may not begin another view now."""
        own = sum(view.user == user for view in self._views)
        if own >= MAX_VIEWS_PER_USER:
            raise Problem(
                429,
                f"{user} has {own} live views open, and {MAX_VIEWS_PER_USER} is the limit for each user",
                ["Close one of them, then load this page again."],
            )
        if len(self._views) >= MAX_VIEWS:
            raise Problem(
                503,
                f"{MAX_VIEWS} live views are open, and that is the limit for all users together",
                ["Reload this page after another view was closed."],
            )

    def begin(self, user: str, topic_filter: str, payloads: bool) -> LiveView:
        """Begin a view for a user, named as in the audit log. Raises Problem if too many are open."""
        self.check(user)
        view = LiveView(self._bridge, user, topic_filter, payloads)
        self._views.add(view)
        return view

    async def events(self, view: LiveView, may_look: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield server-sent events of a view until it ends, or whoever looks at it goes away, or may look no more."""
        try:
            while True:
                try:
                    async with asyncio.timeout(_HEARTBEAT):
                        seen: Seen | None = await view.seen.get()
                except TimeoutError:
                    seen = None
                if not may_look():
                    seen = Seen("end", "The view ends: who looked at it is logged in no more")
                if seen is None:
                    yield b": alive\n\n"
                    continue
                yield b"event: %s\ndata: %s\n\n" % (seen.kind.encode(), msgspec.json.encode(seen))
                if seen.kind == "end":
                    return
        finally:
            view.end()
            self._views.discard(view)

    def end(self) -> None:
        """Have all views end soon; callable on any thread."""
        for view in list(self._views):
            view.end()

    async def stop(self) -> None:
        """End all views, and wait for their threads."""
        self.end()
        for view in list(self._views):
            await asyncio.to_thread(view.thread.join, 5.0)


class LiveView:
    """One view: `seen` is filled by its thread."""

    def __init__(self, bridge: BridgeAccess, user: str, topic_filter: str, payloads: bool) -> None:
        self._bridge = bridge
        self.user = user
        self._filter = topic_filter
        self._payloads = payloads
        self.seen: asyncio.Queue[Seen] = asyncio.Queue(_ROOM)
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        self.thread = threading.Thread(target=self._run, name="console live view", daemon=True)
        self.thread.start()

    def end(self) -> None:
        """Have the thread end soon."""
        self._ended.set()

    def _run(self) -> None:
        try:
            connection = self._bridge.connect()
            try:
                self._watch(connection)
            finally:
                with contextlib.suppress(MQError):
                    connection.disconnect()
        except MQError as error:
            self._show(Seen("end", f"The view ends: {error}"))
        except Exception as error:
            log.exception("MQB9205E console: a live view fails")
            self._show(Seen("end", f"The view ends: {type(error).__name__}; the log of the bridge says why"))
        else:
            self._show(Seen("end", "The view has ended"))

    def _watch(self, connection: Connection) -> None:
        options = _SUBSCRIBE
        if is_wildcard(self._filter):
            # As many retained publications as there are topics would come at once; the topic's page shows them.
            options |= cmqc.MQSO_NEW_PUBLICATIONS_ONLY
        _, queue = connection.subscribe(MQSD(Options=options, ObjectString=self._filter))
        self._show(Seen("notice", f"Subscribed to {self._filter}"))
        gmo = GetOptions(Options=_GET, WaitInterval=_WAIT, MatchOptions=cmqc.MQMO_NONE, MaxLength=65_536)
        second, came = 0, 0
        while not self._ended.is_set():
            try:
                got = connection.get(queue, gmo)
            except MQError as error:
                if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                    raise
                got = None
            if int(time.time()) != second:
                self._tell_hidden(came)
                second, came = int(time.time()), 0
            if got is None:
                continue
            came += 1
            if came <= SHOWN:
                self._show(self._seen(got))
            elif came > TOO_MANY:
                text = f"The view ends: more than {TOO_MANY:,} messages a second match {self._filter}; take a narrower filter"
                self._show(Seen("notice", text))
                return

    def _tell_hidden(self, came: int) -> None:
        if came > SHOWN:
            self._show(Seen("notice", f"{came - SHOWN} more came in that second, which are not shown"))

    def _seen(self, got: Got) -> Seen:
        view = MessageView(got.md, got.data)
        folders = [header["folders"] for header in view.json()["rfh2"]]
        mqps: dict[str, object] = next((one["mqps"] for one in folders if isinstance(one.get("mqps"), dict)), {})
        size = max(got.DataLength - len(got.data), 0) + len(view.body)
        text = body_text(view.body[:PAYLOAD]) if self._payloads else ""
        return Seen("message", text, str(mqps.get("Top", self._filter)), size, bool(mqps.get("Ret")))

    def _show(self, seen: Seen) -> None:
        with contextlib.suppress(RuntimeError):  # the admin port has ended meanwhile
            self._loop.call_soon_threadsafe(self._add, seen)

    def _add(self, seen: Seen) -> None:
        if seen.kind == "end":
            while self.seen.full():
                self.seen.get_nowait()
        if not self.seen.full():
            self.seen.put_nowait(seen)
