"""A connection of one mapping to an MQTT broker: what a worker calls, and the network thread that keeps it up."""

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
from bridge.config.values import endpoint
from bridge.link.client import Handshake, LinkClient, Sinks
from bridge.link.inbox import Inbox
from bridge.link.outbox import Outbox
from bridge.link.publication import received
from bridge.link.state import Limits, LinkCounters, LinkLost, LinkPhase, LinkRefused, LinkState, Refusal
from bridge.mqtt.packets import Publish
from bridge.telemetry.message import Publication, Received

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
#: Seconds that a broker may take to answer a batch.
ANSWERS_TIMEOUT = 60.0
#: Seconds: the longest wait for the network; after it paho looks after the keep-alive.
TURN = 1.0


class _Stopped(Exception):
    """The link is stopped while it waits."""


class LinkConnection:
    """A session at a broker, kept up by a thread of its own.

    Reconnects by itself, after pauses that grow. All methods may be called from any thread; sending is for one caller at
    a time, the next one waits. Whole batches cross to the network thread and back.
    """

    def __init__(
        self,
        name: str,
        config: LinkConfig,
        client_id: str,
        *,
        topic_filter: str | None = None,
        qos: int = 0,
        password: Callable[[], str | None] | str | None = None,
        clean: bool | None = None,
        on_state: Callable[[LinkState], None] | None = None,
        on_session: Callable[[bool], None] | None = None,
    ) -> None:
        """Prepare; nothing happens before `start`.

        Args:
            name: name of the link, for the log, and as origin of publications that tell none.
            config: the link's section of the configuration.
            client_id: client identifier, `{mapping}` in it already replaced.
            topic_filter: what to subscribe to; None: nothing, a link that only sends.
            qos: of the subscription.
            password: the password itself, or a function that reads it for each connection and raises OSError where it
                cannot be had; it appears nowhere else.
            clean: whether the broker forgets the session with the connection; None: as `config.session` says. A link
                that only sends, and not exactly once, needs no session; and with one, a message id that a killed bridge
                left at QoS 2 makes the broker take the next publication with this id for a repetition.
            on_state: called on the network thread at each change of state; must not wait, nor raise.
            on_session: called on the network thread at each CONNACK with Session Present, before anything that came on
                the new connection can be taken; must not wait, nor raise.
        """
        self.name = name
        self.client_id = client_id
        self._config = config
        self._password = password if callable(password) else lambda: password
        self._subscription = None if topic_filter is None else (topic_filter, qos)
        self._clean = config.session == "clean" if clean is None else clean
        self._version_5 = config.version == "5"
        self._on_state = on_state
        self._on_session = on_session
        #: counters since the start
        self.counters = LinkCounters()
        allowed = Limits(
            maximum_qos=config.maximum_qos,
            retain_available=config.retain,
            maximum_packet_size=config.maximum_packet_size,
        )
        self._inbox = Inbox(config.in_flight)
        self._outbox = Outbox(config.in_flight, self._version_5, self.counters, self._submit, self._abandon, allowed)
        self._addresses = config.addresses
        #: index of the address that is in use, or tried
        self._address = 0
        #: addresses that were tried since the last pause, and the shortest pause that their errors ask for, in seconds
        self._tried = 0
        self._shortest_pause = 0.0
        #: the state at this moment
        self.state = LinkState(LinkPhase.STOPPED, address=self.address)
        #: when it was connected or disconnected last, in seconds since the epoch; 0.0 if it was never connected
        self.since = 0.0
        #: the last error, and when it occurred, in seconds since the epoch; "" and 0.0 if there was none
        self.last_error: tuple[str, float] = ("", 0.0)
        #: QoS that the broker granted to the subscription; None before the first SUBACK
        self.granted_qos: int | None = None
        #: whether the session, if the broker still has it, has its own subscription and no other
        self.subscribed = False
        #: filters that the session may still be subscribed to besides its own: they are unsubscribed
        self._former: Sequence[str] = ()
        #: number of the connection that is made, or was made last
        self._generation = 0
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

    def identify(self, client_id: str) -> None:
        """Set the client identifier; called before `start`."""
        self.client_id = client_id

    def resume(self, former: Sequence[str], *, subscribed: bool) -> None:
        """Tell what the session at the broker has, if it is there still; called before `start`.

        `former` are filters of before, to be unsubscribed; `subscribed` says that it has the subscription, as it is to be.
        """
        self._former = tuple(former)
        self.subscribed = subscribed

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Write what is to be written, say DISCONNECT, and end; False where that did not happen in time."""
        self._stop_before = time.monotonic() + timeout
        self._stopping.set()
        self._inbox.end()
        self._wake()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def address(self) -> str:
        """Return host and port of the broker that is in use, or tried."""
        return endpoint(*self._addresses[self._address])

    @property
    def up(self) -> bool:
        """Return whether it is connected now."""
        return self.state.phase is LinkPhase.CONNECTED

    @property
    def session_present(self) -> bool | None:
        """Return whether the broker still had the session at the last CONNACK; None before the first."""
        return self._inbox.session_present

    @property
    def generation(self) -> int:
        """Return the number of the last connection that was accepted; 0 before the first."""
        return self._inbox.generation

    @property
    def limits(self) -> Limits:
        """Return the limits that the broker and the configuration set for sending.

        Before the first CONNACK, they are the configuration's alone.
        """
        return self._outbox.limits

    def wait_connected(self, wait: float) -> bool:
        """Wait until the link is connected, for so many seconds at most; whether it is."""
        return self._outbox.wait_ready(wait)

    def reset_back_off(self) -> None:
        """Start the pauses between connections from the shortest one again.

        For callers that got past the publication at which the broker closed the connection.
        """
        self._failures = 0

    # Receiving -------------------------------------------------------------------------------------------------------

    def take(self, messages: int, size: int, wait: float) -> list[Received]:
        """Take publications that came, in their order.

        Waits at most `wait` seconds for the first one, then takes what is there: at most `messages`, with payloads of
        `size` bytes in all (one alone may be larger). Returns early, and perhaps with nothing, when PUBRELs have come,
        a connection was accepted (`session_present` may have changed: look at it before anything is done with what was
        taken), `interrupt` was called or the link was stopped.
        """
        taken = self._inbox.take(messages, size, wait)
        if self._paused:
            # There is room in the inbox.
            self._wake()
        return taken

    def interrupt(self) -> None:
        """Make the take() under way, or else the next one, return."""
        self._inbox.interrupt()

    def acknowledge(self, received: Sequence[Received]) -> None:
        """Send PUBACK (QoS 1) or PUBREC (QoS 2). Of an earlier connection: nothing; the broker sends those again."""
        generation, packets = self._inbox.acknowledge(received)
        if packets and self._submit(generation, b"".join(packets)):
            self.counters.acknowledged += len(packets)

    def released(self) -> list[int]:
        """Return the message ids whose PUBREL has come since the last call.

        After a restart there are also such as nothing is known of.
        """
        return self._inbox.released()

    def complete(self, mids: Sequence[int]) -> None:
        """Send PUBCOMP. For PUBRELs of an earlier connection: nothing; the broker sends those again."""
        generation, packets = self._inbox.complete(mids)
        if packets:
            self._submit(generation, b"".join(packets))

    # Sending ---------------------------------------------------------------------------------------------------------

    @property
    def in_flight_limit(self) -> int:
        """Return how many publications with QoS 1 and 2 may be unanswered at once, by the configuration and the broker."""
        return self._outbox.in_flight_limit

    def publish(
        self,
        publications: Sequence[Publication],
        mids: Sequence[int] | None = None,
        dup: bool = False,
        timeout: float = ANSWERS_TIMEOUT,
    ) -> dict[int, Refusal]:
        """Send publications in their order, each with its own QoS, and wait for all answers.

        QoS 0: written to the network; QoS 1: PUBACK; QoS 2: PUBCOMP, PUBREL is sent at PUBREC. There may be any number:
        they are sent as the in-flight limit allows. `mids` are message ids of 1 to 65533 (of no meaning with QoS 0);
        None: new ones. `dup` sets DUP.

        Returns, by index, those that are refused and that there is no use in repeating; all others are with the broker.
        Raises LinkLost where there is no connection, or it breaks, or the broker takes longer than `timeout` seconds
        (then the connection is broken off): those that LinkLost names as unanswered may or may not be with the broker.
        ValueError: message ids.
        """
        return self._outbox.publish(publications, mids, dup, False, timeout)

    def publish_exactly(
        self,
        publications: Sequence[Publication],
        mids: Sequence[int],
        dup: bool = False,
        timeout: float = ANSWERS_TIMEOUT,
    ) -> dict[int, Refusal]:
        """Send publications with QoS 2 and wait for all PUBRECs. PUBREL is not sent: that is `release`.

        At most `in_flight_limit` at once, less those that are not released. Returns and raises as `publish` does; a
        refused one is not to be released. After LinkLost, or a restart: the same publications with the same message ids
        and `dup`, or, where the commit is done, `release`. One that the broker has answered with PUBREC on this very
        connection is not sent again, and counts as sent. ValueError: one has another QoS, or they are too many.
        """
        if any(publication.qos != 2 for publication in publications):
            raise ValueError("exactly once is QoS 2")
        return self._outbox.publish(publications, mids, dup, True, timeout)

    def release(self, mids: Sequence[int], timeout: float = ANSWERS_TIMEOUT) -> None:
        """Send PUBREL and wait for all PUBCOMPs; also for message ids of an earlier connection or process.

        A broker that does not know one of them any more answers so, and that counts as an answer. Raises LinkLost.
        """
        self._outbox.release(mids, timeout)

    def _submit(self, generation: int, packets: bytes) -> bool:
        """Write packets on the connection of a generation; nothing, and False, where it is gone."""
        client = self._client
        if client is None or generation != self._generation:
            return False
        client.queue(packets)
        self._wake()
        return True

    def _wake(self) -> None:
        """Make the thread look at what there is to do."""
        if not self._woken:
            self._woken = True
            # Full: it rings already. Closed: the thread has ended.
            with contextlib.suppress(OSError):
                self._bell.send(b"\0")

    def _abandon(self, generation: int, error: str) -> None:
        self._abandoned = (generation, error)
        self._wake()

    # On the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        error = ""
        try:
            while not self._stopping.is_set():
                self._failures = self._tried = 0
                tenacity.Retrying(
                    retry=tenacity.retry_if_exception_type(LinkLost),
                    wait=self._pause_after,
                    before_sleep=self._tell,
                    sleep=self._pause,
                )(self._stay_connected)
        except _Stopped:
            pass
        except Exception as crash:
            log.exception("MQB6006E link %s (%s) ended by an error of the bridge", self.name, self.address)
            error = f"ended by {type(crash).__name__}: {crash}"
        finally:
            self._ear.close()
            self._bell.close()
            self._inbox.end()
            self._outbox.lost(error or "the link is stopped")
            log.info("MQB6004I link %s: stopped, %s", self.name, self.address)
            self._change(LinkPhase.STOPPED, error)

    def _pause_after(self, attempt: tenacity.RetryCallState) -> float:
        """Return the seconds to the next attempt: none to one at the next address, until all were tried."""
        error = attempt.outcome.exception() if attempt.outcome is not None else None
        if isinstance(error, LinkRefused):
            self._shortest_pause = REFUSED_PAUSE
        self._tried += 1
        if self._tried % len(self._addresses):
            return 0.0
        exponential = min(FIRST_PAUSE * 2.0 ** min(self._failures, 30), LONGEST_PAUSE)
        self._failures += 1
        shortest, self._shortest_pause = self._shortest_pause, 0.0
        return max(exponential, shortest) * random.uniform(1, 1.5)

    def _tell(self, attempt: tenacity.RetryCallState) -> None:
        error = attempt.outcome.exception() if attempt.outcome is not None else None
        # Each address has its lines.
        number = (attempt.attempt_number - 1) // len(self._addresses) + 1
        if number in (1, 5) or number % 30 == 0:
            log.warning("MQB6002W link %s: not connected to %s (attempt %d): %s", self.name, self.address, number, error)
        self._change(LinkPhase.WAITING, str(error), attempt.upcoming_sleep)

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise _Stopped
        self._address = (self._address + 1) % len(self._addresses)

    def _change(self, phase: LinkPhase, error: str = "", pause: float = 0.0) -> None:
        now = time.time()
        if (phase is LinkPhase.CONNECTED) != (self.state.phase is LinkPhase.CONNECTED):
            self.since = now
        # While the next attempt is under way, the error of before is told once more.
        if error and (phase is not LinkPhase.CONNECTING or error != self.state.error):
            self.last_error = (error, now)
        self.state = LinkState(phase, error, pause, self.address)
        if self._on_state is not None:
            self._on_state(self.state)

    def _stay_connected(self) -> None:
        """Connect, and return when the link is to end, or a connection that had settled was lost.

        Raises LinkLost where there was no connection, or a short one.
        """
        self._change(LinkPhase.CONNECTING, self.state.error)
        since = math.inf
        self._generation += 1
        sinks = Sinks(self._publications, self._outbox.answered, self._inbox.put_released, self._room)
        self._client = client = LinkClient(
            self.client_id, self._version_5, self._clean, sinks, self._config.path_of_websocket
        )
        selector = selectors.DefaultSelector()
        try:
            selector.register(self._ear, selectors.EVENT_READ)
            handshake = self._open(client, selector)
            since = time.monotonic()
            self._serve(client, handshake, selector)
        except LinkLost as error:
            self._outbox.lost(str(error))
            if time.monotonic() - since < SETTLED or since == math.inf:
                raise
            log.warning(
                "MQB6003W link %s: the connection to %s is lost: %s; reconnecting", self.name, self.address, error
            )
            self._change(LinkPhase.CONNECTING, str(error))
        except _Stopped:
            raise
        except Exception as crash:
            # Somebody stumbles over what the broker sent: this connection is over, not the link.
            why = f"{type(crash).__name__}: {crash}"
            log.exception("MQB6007E link %s (%s): the connection is given up", self.name, self.address)
            self._outbox.lost(why)
            raise LinkRefused(why) from crash
        finally:
            self._client = None
            client.close()
            selector.close()

    def _open(self, client: LinkClient, selector: selectors.BaseSelector) -> Handshake:
        """Connect and subscribe. Raises LinkLost."""
        handshake = Handshake(client, self._config, self._addresses[self._address], self._accepted)
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
        if self._subscription is not None and (self._version_5 or self._former or not subscribed):
            self._subscribe(client, handshake, selector, *self._subscription, self._former if present else ())
            self._former, self.subscribed = (), True
        log.info(
            "MQB6001I link %s: connected to %s as %s%s", self.name, self.address, self.client_id,
            ", the broker still has the session" if present else "",
        )  # fmt: skip
        self.counters.reconnects += self._connected_before
        self._connected_before = True
        self._outbox.begin(self._generation, handshake.limits, present)
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
                self.name, self.address, topic_filter, granted, qos,
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
        if self._abandoned[0] == self._generation:
            raise LinkLost(self._abandoned[1])
        self._outbox.written(lambda: not client.want_write())

    # Called by LinkClient and Handshake ------------------------------------------------------------------------------

    def _accepted(self, session_present: bool) -> None:
        self._inbox.begin(self._generation, session_present)
        if self._on_session is not None:
            self._on_session(session_present)

    def _publications(self, packets: list[Publish]) -> None:
        origin = self.name, self._generation, self._config.trusted
        self._inbox.put([received(packet, *origin) for packet in packets])
        self.counters.received += len(packets)

    def _room(self) -> int:
        # A worker that waits for answers takes nothing: answers have to be read however much stands before them.
        return self._config.in_flight if self._outbox.waiting else self._inbox.room()
