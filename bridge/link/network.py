"""The network thread of a link: connects, and connects again, and moves packets between the broker and both boxes."""

from __future__ import annotations

import contextlib
import logging
import math
import random
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tenacity

from bridge.config.link import LinkConfig
from bridge.link.client import Handshake, LinkClient, Sinks
from bridge.link.inbox import Inbox
from bridge.link.outbox import Outbox
from bridge.link.publication import received
from bridge.link.state import Limits, LinkCounters, LinkLost, LinkPhase, LinkRefused, LinkState
from bridge.mqtt.packets import Publish

log = logging.getLogger(__name__)

#: Seconds: first and longest pause between attempts to connect, doubling; jitter makes each up to half as long again.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
#: Seconds: the shortest pause after a refusal that does not heal by itself, such as a wrong password.
REFUSED_PAUSE = 10.0
#: Seconds that a connection has to last for the next one to be made at once; else two bridges with the same client
#: identifier would throw each other out without end.
SETTLED = 5.0
#: Seconds that CONNACK, and SUBACK, may take.
ANSWER_TIME = 30.0
#: Seconds: the longest wait for the network; after it paho looks after the keep-alive.
TURN = 1.0


class _Stopped(Exception):
    """The link is told to end while it waits."""


class Network:
    """Owns the thread, the connection, and the state of a link."""

    def __init__(
        self,
        name: str,
        config: LinkConfig,
        client_id: str,
        password: Callable[[], str | None],
        subscription: tuple[str, int] | None,
        clean: bool,
    ) -> None:
        self.name = name
        self.config = config
        self.client_id = client_id
        self._password = password
        self._subscription = subscription
        self._clean = clean
        self._version_5 = config.version == "5"
        self.counters = LinkCounters()
        self.inbox = Inbox(config.in_flight)
        allowed = Limits(
            maximum_qos=config.maximum_qos,
            retain_available=config.retain,
            maximum_packet_size=config.maximum_packet_size,
        )
        self.outbox = Outbox(config.in_flight, self._version_5, self.counters, self.submit, self._abandon, allowed)
        self.state = LinkState(LinkPhase.STOPPED)
        #: seconds since the epoch: when it was connected or disconnected last; 0.0: it was never connected
        self.since = 0.0
        #: what went wrong last, and when, in seconds since the epoch; "" and 0.0: nothing has
        self.last_error: tuple[str, float] = ("", 0.0)
        self.on_state: Callable[[LinkState], None] | None = None
        self.on_session: Callable[[bool], None] | None = None
        #: filters that the session may still be subscribed to beside its own: they are unsubscribed
        self.former: Sequence[str] = ()
        #: the session, if the broker still has it, has the subscription
        self.subscribed = False
        #: QoS that the broker granted to the subscription; None: no SUBACK yet
        self.granted_qos: int | None = None
        self.generation = 0
        self._client: LinkClient | None = None
        self._connected_before = False
        #: attempts and short connections since the back-off began; any thread may set it to 0
        self._failures = 0
        self._paused = False
        self._woken = False
        self._abandoned: tuple[int, str] = (0, "")
        self._stopping = threading.Event()
        self._stop_before = math.inf
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=f"link-{name}", daemon=True)

    @property
    def place(self) -> str:
        """Return the host and port of the broker, for a person."""
        return f"{self.config.host}:{self.config.broker_port}"

    # From other threads ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Write what is to be written, say DISCONNECT, and end; False where that did not happen in time."""
        self._stop_before = time.monotonic() + timeout
        self._stopping.set()
        self.inbox.end()
        self.wake()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def submit(self, generation: int, packets: bytes) -> bool:
        """Write packets on the connection of a generation; nothing, and False, where it is gone."""
        client = self._client
        if client is None or generation != self.generation:
            return False
        client.queue(packets)
        self.wake()
        return True

    def wake(self) -> None:
        """Make the thread look at what there is to do."""
        if not self._woken:
            self._woken = True
            # Full: it rings already. Closed: the thread has ended.
            with contextlib.suppress(OSError):
                self._bell.send(b"\0")

    def taken(self) -> None:
        """Wake the thread where reading is paused: there is room in the inbox."""
        if self._paused:
            self.wake()

    def reset_back_off(self) -> None:
        """Start the pauses between connections from the shortest one again."""
        self._failures = 0

    def _abandon(self, generation: int, error: str) -> None:
        self._abandoned = (generation, error)
        self.wake()

    # On the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        error = ""
        try:
            while not self._stopping.is_set():
                self._failures = 0
                tenacity.Retrying(
                    retry=tenacity.retry_if_exception_type(LinkLost),
                    wait=self._pause_after,
                    before_sleep=self._tell,
                    sleep=self._pause,
                )(self._stay_connected)
        except _Stopped:
            pass
        except Exception as crash:
            log.exception("MQB6006E link %s (%s) ended by an error of the bridge", self.name, self.place)
            error = f"ended by {type(crash).__name__}: {crash}"
        finally:
            self._ear.close()
            self._bell.close()
            self.inbox.end()
            self.outbox.lost(error or "the link is stopped")
            log.info("MQB6004I link %s: stopped, %s", self.name, self.place)
            self._change(LinkPhase.STOPPED, error)

    def _pause_after(self, attempt: tenacity.RetryCallState) -> float:
        exponential = min(FIRST_PAUSE * 2.0 ** min(self._failures, 30), LONGEST_PAUSE)
        self._failures += 1
        error = attempt.outcome.exception() if attempt.outcome is not None else None
        shortest = REFUSED_PAUSE if isinstance(error, LinkRefused) else 0.0
        return max(exponential, shortest) * random.uniform(1, 1.5)

    def _tell(self, attempt: tenacity.RetryCallState) -> None:
        error = attempt.outcome.exception() if attempt.outcome is not None else None
        number = attempt.attempt_number
        if number in (1, 5) or number % 30 == 0:
            log.warning("MQB6002W link %s: not connected to %s (attempt %d): %s", self.name, self.place, number, error)
        self._change(LinkPhase.WAITING, str(error), attempt.upcoming_sleep)

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise _Stopped

    def _change(self, phase: LinkPhase, error: str = "", pause: float = 0.0) -> None:
        now = time.time()
        if (phase is LinkPhase.CONNECTED) != (self.state.phase is LinkPhase.CONNECTED):
            self.since = now
        # While the next attempt is under way, the error of before is told once more.
        if error and (phase is not LinkPhase.CONNECTING or error != self.state.error):
            self.last_error = (error, now)
        self.state = LinkState(phase, error, pause)
        if self.on_state is not None:
            self.on_state(self.state)

    def _stay_connected(self) -> None:
        """Connect, and return when the link is to end, or a connection that had settled was lost.

        Raises LinkLost where there was no connection, or a short one.
        """
        self._change(LinkPhase.CONNECTING, self.state.error)
        since = math.inf
        self.generation += 1
        sinks = Sinks(self._publications, self.outbox.answered, self.inbox.put_released, self._room)
        self._client = client = LinkClient(self.client_id, self._version_5, self._clean, sinks)
        selector = selectors.DefaultSelector()
        try:
            selector.register(self._ear, selectors.EVENT_READ)
            handshake = self._open(client, selector)
            since = time.monotonic()
            self._serve(client, handshake, selector)
        except LinkLost as error:
            self.outbox.lost(str(error))
            if time.monotonic() - since < SETTLED or since == math.inf:
                raise
            log.warning(
                "MQB6003W link %s: the connection to %s is lost: %s; reconnecting", self.name, self.place, error
            )
            self._change(LinkPhase.CONNECTING, str(error))
        except _Stopped:
            raise
        except Exception as crash:
            # Somebody stumbles over what the broker sent: this connection is over, not the link.
            why = f"{type(crash).__name__}: {crash}"
            log.exception("MQB6007E link %s (%s): the connection is given up", self.name, self.place)
            self.outbox.lost(why)
            raise LinkRefused(why) from crash
        finally:
            self._client = None
            client.close()
            selector.close()

    def _open(self, client: LinkClient, selector: selectors.BaseSelector) -> Handshake:
        """Connect and subscribe. Raises LinkLost."""
        handshake = Handshake(client, self.config, self._accepted)
        try:
            password = self._password()
        except OSError as error:
            raise LinkRefused(str(error)) from error
        handshake.connect(password, self._clean)
        selector.register(client.socket(), selectors.EVENT_READ)  # type: ignore[arg-type]
        self._turn_until(client, handshake, selector, lambda: handshake.accepted, "CONNACK")
        present = handshake.session_present
        # MQTT 3.1.1 sends all retained publications at each SUBSCRIBE: it is sent where the session has no subscription, or
        # has another filter's as well, or nobody knows.
        subscribed = present and (self._connected_before or self.subscribed)
        if self._subscription is not None and (self._version_5 or self.former or not subscribed):
            self._subscribe(client, handshake, selector, *self._subscription, self.former if present else ())
            self.former, self.subscribed = (), True
        log.info(
            "MQB6001I link %s: connected to %s as %s%s", self.name, self.place, self.client_id,
            ", the broker still has the session" if present else "",
        )  # fmt: skip
        self.counters.reconnects += self._connected_before
        self._connected_before = True
        self.outbox.begin(self.generation, handshake.limits, present)
        self._change(LinkPhase.CONNECTED)
        return handshake

    def _subscribe(
        self,
        client: LinkClient,
        handshake: Handshake,
        selector: selectors.BaseSelector,
        topic_filter: str,
        qos: int,
        former: Sequence[str],
    ) -> None:
        handshake.subscribe(topic_filter, qos)
        if former:
            # In one write: what comes in between comes by one of them, and hardly by both.
            handshake.unsubscribe(former)
        self._turn_until(client, handshake, selector, lambda: handshake.granted is not None, "SUBACK")
        self._turn_until(client, handshake, selector, lambda: handshake.unsubscribed, "UNSUBACK")
        granted = handshake.granted_qos(topic_filter)
        if granted < qos and granted != self.granted_qos:
            log.warning(
                "MQB6005W link %s: %s grants the subscription to %s QoS %d only, not %d",
                self.name, self.place, topic_filter, granted, qos,
            )  # fmt: skip
        self.granted_qos = granted

    def _turn_until(
        self,
        client: LinkClient,
        handshake: Handshake,
        selector: selectors.BaseSelector,
        done: Callable[[], bool],
        answer: str,
    ) -> None:
        before = time.monotonic() + ANSWER_TIME
        while not done():
            if self._stopping.is_set():
                raise _Stopped
            if time.monotonic() > before:
                raise LinkLost(f"no {answer} within {ANSWER_TIME:g} s")
            self._turn(client, handshake, selector)

    def _serve(self, client: LinkClient, handshake: Handshake, selector: selectors.BaseSelector) -> None:
        """Move packets until the link is to end; raises LinkLost."""
        while not self._stopping.is_set():
            self._turn(client, handshake, selector)
        # What is queued comes before DISCONNECT, and is written with it.
        client.disconnect()
        while client.socket() is not None and time.monotonic() < self._stop_before:
            try:
                self._turn(client, handshake, selector)
            except LinkLost:
                break

    def _turn(self, client: LinkClient, handshake: Handshake, selector: selectors.BaseSelector) -> None:
        """Wait for the network or a wake-up, and do what there is to do. Raises LinkLost."""
        # First told, then looked at: who takes meanwhile sees it and wakes this thread.
        self._paused = True
        self._paused = self._room() == 0
        wanted = 0 if self._paused else selectors.EVENT_READ
        if client.want_write():
            wanted |= selectors.EVENT_WRITE
        sock: Any = client.socket()
        registered = selector.get_map().get(sock)
        if registered is None:
            if wanted:
                selector.register(sock, wanted)
        elif not wanted:
            selector.unregister(sock)
        elif registered.events != wanted:
            selector.modify(sock, wanted)
        ready = 0
        for key, events in selector.select(0 if client.backlog and not self._paused else TURN):
            if key.fileobj is self._ear:
                with contextlib.suppress(BlockingIOError):
                    self._ear.recv(4096)
                self._woken = False
            else:
                ready = events
        if self._paused:
            client.forgive_silence()
        elif ready & selectors.EVENT_READ or client.backlog:
            client.loop_read()
        if client.want_write():
            client.loop_write()
        client.loop_misc()
        if client.socket() is None and not (self._stopping.is_set() and client.fault == ""):
            raise handshake.lost()
        if self._abandoned[0] == self.generation:
            raise LinkLost(self._abandoned[1])
        self.outbox.written(lambda: not client.want_write())

    # Called by LinkClient and Handshake ------------------------------------------------------------------------------

    def _accepted(self, session_present: bool) -> None:
        self.inbox.begin(self.generation, session_present)
        if self.on_session is not None:
            self.on_session(session_present)

    def _publications(self, packets: list[Publish]) -> None:
        said = self.name, self.generation, self.config.trusted
        self.inbox.put([received(packet, *said) for packet in packets])
        self.counters.received += len(packets)

    def _room(self) -> int:
        # A worker that waits for answers takes nothing: answers have to be read however much stands before them.
        return self.config.in_flight if self.outbox.waiting else self.inbox.room()
