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
from collections.abc import Callable
from typing import Any

import tenacity
from paho.mqtt.client import ConnectFlags, DisconnectFlags
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from bridge.config.link import LinkConfig
from bridge.mqtt.link.client import LinkClient, Sinks
from bridge.mqtt.link.inbox import Inbox
from bridge.mqtt.link.outbox import Outbox
from bridge.mqtt.link.publish_packet import decode_publish
from bridge.mqtt.link.state import Limits, LinkCounters, LinkLost, LinkPhase, LinkRefused, LinkState
from bridge.mqtt.link.tls import tls_context

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

_FOREVER = 0xFFFFFFFF
"""Session Expiry Interval of a session that does not expire (MQTT 5 section 3.1.2.11.2)."""

# Reason codes of CONNACK that are about this moment; after the others a person has to do something.
_PASSING = frozenset((0x80, 0x81, 0x82, 0x83, 0x88, 0x89, 0x97, 0x9C, 0x9F))


class _Stopped(Exception):
    """The link is told to end while it waits."""


class Network:
    """Owns the thread, the connection, and the state of a link."""

    def __init__(
        self,
        name: str,
        config: LinkConfig,
        client_id: str,
        password: str | None,
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
        self.outbox = Outbox(config.in_flight, self._version_5, self.counters, self.submit, self._abandon)
        self.state = LinkState(LinkPhase.STOPPED)
        self.on_state: Callable[[LinkState], None] | None = None
        self.on_session: Callable[[bool], None] | None = None
        #: QoS that the broker granted to the subscription; None: no SUBACK yet
        self.granted_qos: int | None = None
        self.generation = 0
        self._client: LinkClient | None = None
        self._subscribed = False
        self._limits = Limits()
        # What the callbacks of a connection tell.
        self._accepted = False
        self._refused: LinkLost | None = None
        self._granted: list[ReasonCode] | None = None
        self._over = ""
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
        """Host and port of the broker, for a person."""
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
        """There is room in the inbox."""
        if self._paused:
            self.wake()

    def _abandon(self, generation: int, error: str) -> None:
        self._abandoned = (generation, error)
        self.wake()

    # On the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        error = ""
        try:
            while not self._stopping.is_set():
                tenacity.Retrying(
                    retry=tenacity.retry_if_exception_type(LinkLost),
                    wait=self._pause_after,
                    before_sleep=self._tell,
                    sleep=self._pause,
                )(self._stay_connected)
        except _Stopped:
            pass
        except Exception as crash:
            log.exception("link %s (%s) ended by an error of the bridge", self.name, self.place)
            error = f"ended by {type(crash).__name__}: {crash}"
        finally:
            self._ear.close()
            self._bell.close()
            self.inbox.end()
            self.outbox.lost(error or "the link is stopped")
            self._change(LinkPhase.STOPPED, error)

    def _pause_after(self, attempt: tenacity.RetryCallState) -> float:
        exponential = tenacity.wait_exponential(multiplier=FIRST_PAUSE, max=LONGEST_PAUSE)
        error = attempt.outcome.exception() if attempt.outcome is not None else None
        shortest = REFUSED_PAUSE if isinstance(error, LinkRefused) else 0.0
        return max(exponential(attempt), shortest) * random.uniform(1, 1.5)

    def _tell(self, attempt: tenacity.RetryCallState) -> None:
        error = attempt.outcome.exception() if attempt.outcome is not None else None
        number = attempt.attempt_number
        if number in (1, 5) or number % 30 == 0:
            log.warning("link %s: no connection to %s (attempt %d): %s", self.name, self.place, number, error)
        self._change(LinkPhase.WAITING, str(error), attempt.upcoming_sleep)

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise _Stopped

    def _change(self, phase: LinkPhase, error: str = "", pause: float = 0.0) -> None:
        self.state = LinkState(phase, error, pause)
        if self.on_state is not None:
            self.on_state(self.state)

    def _stay_connected(self) -> None:
        """Connect, and return when the link is to end, or a connection that had settled was lost.

        Raises LinkLost where there was no connection, or a short one.
        """
        self._change(LinkPhase.CONNECTING, self.state.error)
        since = math.inf
        client = self._new_client()
        selector = selectors.DefaultSelector()
        try:
            selector.register(self._ear, selectors.EVENT_READ)
            self._open(client, selector)
            since = time.monotonic()
            self._serve(client, selector)
        except LinkLost as error:
            self.outbox.lost(str(error))
            if time.monotonic() - since < SETTLED or since == math.inf:
                raise
            log.warning("link %s: the connection to %s is lost: %s; reconnecting", self.name, self.place, error)
            self._change(LinkPhase.CONNECTING, str(error))
        finally:
            self._client = None
            client.close()
            selector.close()

    def _new_client(self) -> LinkClient:
        self.generation += 1
        self._accepted, self._refused, self._granted, self._over = False, None, None, ""
        sinks = Sinks(self._publications, self.outbox.answered, self._releases, self._room)
        client = LinkClient(self.client_id, self._version_5, self._clean, sinks)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        self._client = client
        return client

    def _open(self, client: LinkClient, selector: selectors.BaseSelector) -> None:
        """Connect and subscribe. Raises LinkLost."""
        config = self.config
        if config.user is not None or self._password is not None:
            client.username_pw_set(config.user or "", self._password)
        options: dict[str, Any] = {}
        if self._version_5:
            properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.ReceiveMaximum = config.in_flight
            if not self._clean:
                properties.SessionExpiryInterval = _FOREVER
            options = {"clean_start": self._clean, "properties": properties}
        try:
            if config.tls is not None:
                client.tls_set_context(tls_context(config.tls))
            client.connect(config.host, config.broker_port, math.ceil(config.keep_alive), **options)
        except (OSError, UnicodeError) as error:
            # UnicodeError: a host name that IDNA cannot encode.
            raise LinkLost(f"cannot connect: {error}") from error
        selector.register(client.socket(), selectors.EVENT_READ)  # type: ignore[arg-type]
        self._turn_until(client, selector, lambda: self._accepted, "CONNACK")
        session_present = bool(self.inbox.session_present)
        if self._subscription is not None and (self._version_5 or not (session_present and self._subscribed)):
            self._subscribe(client, selector, *self._subscription)
        log.info(
            "link %s: connected to %s as %s%s", self.name, self.place, self.client_id,
            ", the broker still has the session" if session_present else "",
        )
        if self.generation > 1 and self._subscribed:
            self.counters.reconnects += 1
        self._subscribed = True
        self.outbox.begin(self.generation, self._limits, session_present)
        self._change(LinkPhase.CONNECTED)

    def _subscribe(self, client: LinkClient, selector: selectors.BaseSelector, topic_filter: str, qos: int) -> None:
        # Retained publications are wanted as retained, and when the subscription is new, not after each loss of the
        # network. A shared subscription must not have No Local (MQTT-3.8.3-4).
        options = SubscribeOptions(
            qos,
            noLocal=not topic_filter.startswith("$share/"),
            retainAsPublished=True,
            retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB,
        )
        try:
            if self._version_5:
                client.subscribe(topic_filter, options=options)
            else:
                client.subscribe(topic_filter, qos)
        except ValueError as error:
            raise LinkRefused(f"{topic_filter!r} is no topic filter: {error}") from error
        self._turn_until(client, selector, lambda: self._granted is not None, "SUBACK")
        granted = self._granted[0] if self._granted else None
        if granted is None or granted.is_failure:
            raise LinkRefused(f"the broker refused the subscription to {topic_filter}: {granted}")
        if granted.value < qos and granted.value != self.granted_qos:
            log.warning(
                "link %s: %s grants the subscription to %s QoS %d only, not %d",
                self.name, self.place, topic_filter, granted.value, qos,
            )
        self.granted_qos = granted.value

    def _turn_until(
        self, client: LinkClient, selector: selectors.BaseSelector, done: Callable[[], bool], answer: str
    ) -> None:
        before = time.monotonic() + ANSWER_TIME
        while not done():
            if self._stopping.is_set():
                raise _Stopped
            if time.monotonic() > before:
                raise LinkLost(f"no {answer} within {ANSWER_TIME:g} s")
            self._turn(client, selector)

    def _serve(self, client: LinkClient, selector: selectors.BaseSelector) -> None:
        """Move packets until the link is to end; raises LinkLost."""
        while not self._stopping.is_set():
            self._turn(client, selector)
        # What is queued comes before DISCONNECT, and is written with it.
        client.disconnect()
        while client.socket() is not None and time.monotonic() < self._stop_before:
            try:
                self._turn(client, selector)
            except LinkLost:
                break

    def _turn(self, client: LinkClient, selector: selectors.BaseSelector) -> None:
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
            raise self._refused or LinkLost(client.fault or client.write_error() or self._over or "it broke")
        if self._abandoned[0] == self.generation:
            raise LinkLost(self._abandoned[1])
        self.outbox.written(lambda: not client.want_write())

    # Called by paho and LinkClient -----------------------------------------------------------------------------------

    def _publications(self, packets: list[tuple[int, bytes]]) -> None:
        version_5, name, generation = self._version_5, self.name, self.generation
        self.inbox.put([decode_publish(first, packet, version_5, name, generation) for first, packet in packets])
        self.counters.received += len(packets)

    def _releases(self, mids: list[int]) -> None:
        self.inbox.put_released(mids)

    def _room(self) -> int:
        # A worker that waits for answers takes nothing: answers have to be read however much stands before them.
        return self.config.in_flight if self.outbox.waiting else self.inbox.room()

    def _on_connect(
        self, client: Any, userdata: Any, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if reason.is_failure:
            explanation = getattr(properties, "ReasonString", "")
            text = f"the broker refused CONNECT: {reason}" + (f" ({explanation})" if explanation else "")
            self._refused = (LinkLost if reason.value in _PASSING else LinkRefused)(text)
            return
        self._limits = Limits(
            receive_maximum=getattr(properties, "ReceiveMaximum", 65535),
            maximum_qos=getattr(properties, "MaximumQoS", 2),
            retain_available=bool(getattr(properties, "RetainAvailable", 1)),
            maximum_packet_size=getattr(properties, "MaximumPacketSize", Limits().maximum_packet_size),
        )
        self.inbox.begin(self.generation, flags.session_present)
        if self.on_session is not None:
            self.on_session(flags.session_present)
        self._accepted = True

    def _on_subscribe(self, client: Any, userdata: Any, mid: int, reasons: list[ReasonCode], properties: Any) -> None:
        self._granted = reasons

    def _on_disconnect(
        self, client: Any, userdata: Any, flags: DisconnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            explanation = getattr(properties, "ReasonString", "")
            self._over = f"the broker disconnected: {reason}" + (f" ({explanation})" if explanation else "")
        elif not self._accepted and not self._version_5:
            # paho calls nobody for this one refusal of MQTT 3.1.1.
            self._over = "the broker refused CONNECT: Unsupported protocol version, or no MQTT broker"
        else:
            self._over = str(reason)
