"""A mapping's connection to an MQTT broker: the interface for a worker, and the network thread that maintains it."""

from __future__ import annotations

import logging
import math
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bridge.config.link import LinkConfig, client_id_of
from bridge.config.queue_manager import read_password
from bridge.link.attempts import Attempts, WakeUp
from bridge.link.client import LinkClient, LinkHandshake, Sinks
from bridge.link.inbox import Inbox
from bridge.link.outbox import LinkOutbox, received
from bridge.link.state import Limits, LinkCounters, LinkLost, LinkPhase, LinkRefused, LinkState, PublicationRefusal
from bridge.link.stream import Stream
from bridge.link.violations import Reaction, Violation, Violations
from bridge.mqtt.packets import Publish
from bridge.parking import ParkingThread, Pause
from bridge.telemetry.message import Publication, Received

log = logging.getLogger(__name__)

#: A connection that lasted this many seconds is re-established without a pause. The minimum prevents two bridges with the
#: same client identifier from disconnecting each other in a tight loop.
SETTLED = 5.0
#: Seconds to wait for CONNACK, and for SUBACK.
ANSWER_TIME = 30.0
#: Seconds to wait for the acknowledgements of a batch.
ANSWERS_TIMEOUT = 60.0
#: The longest wait for the network, in seconds. Afterwards the link needs no thread until a packet arrives or is due.
TURN = 1.0


class _Stopped(Exception):
    """The link was stopped during a wait."""


class LinkConnection:
    """A session at a broker, maintained by a dedicated thread.

    It contains the interface for workers and the code of the network thread. `Attempts` determines when and where to connect,
    `LinkClient` exchanges packets, and `Inbox` and `LinkOutbox` keep unfinished messages of workers. The interface and the
    thread share the current connection and its generation, so they are one class.

    Reconnects with exponential back-off. All methods may be called from any thread. Concurrent senders wait for each other.
    Batches are passed to and from the network thread as a whole.
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
        on_arrival: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a link. It connects when `start` is called.

        `name` is for the log, and the origin of publications without an origin property. Without a topic filter, the link
        only sends. If `password` is a function, it reads the password for each connection and may raise OSError. `clean`
        replaces `config.session`. A link that only sends, and not exactly once, needs no session. A session would keep
        packet identifiers of QoS 2 in use after the bridge was killed.

        The network thread calls `on_state` when the state changes, and `on_session` at each CONNACK with Session Present
        before messages of the new connection can be taken. `on_arrival` is called on any thread when `take` would return.
        All three must neither block nor raise.
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
        self._inbox = Inbox(config.in_flight, on_arrival)
        self._violations = Violations()
        self._outbox = LinkOutbox(
            config.in_flight,
            self._version_5,
            self.counters,
            self._submit,
            self._abandon,
            allowed,
            self._violations,
        )
        #: whether missing support for QoS 2 has been logged
        self._qos_2_logged = False
        self._attempts = Attempts(config.addresses)
        #: whether all addresses know the same session
        self._shared = config.failover_sessions == "shared"
        #: host and port of the last accepted connection, or of the first address before that
        self.connected_address = self.address
        #: the current state
        self.state = LinkState(LinkPhase.STOPPED, address=self.address)
        #: expiry date of the broker's last certificate, in seconds since the epoch, or None without TLS
        self.certificate_expiry: float | None = None
        #: time of the last connect or disconnect, in seconds since the epoch, or 0.0 if never connected
        self.since = 0.0
        #: the last error and its time in seconds since the epoch, or "" and 0.0 before the first error
        self.last_error: tuple[str, float] = ("", 0.0)
        #: QoS granted to the subscription, or None before the first SUBACK
        self.granted_qos: int | None = None
        #: whether the session, if the broker still has it, contains exactly the configured subscription
        self.subscribed = False
        #: other filters that the session may still be subscribed to. They are unsubscribed
        self._former: Sequence[str] = ()
        #: number of the current or last connection
        self._generation = 0
        self._client: LinkClient | None = None
        self._connected_before = False
        #: addresses at which the session has the configured subscription
        self._subscribed_at: set[int] = set()
        self._paused = False
        self._abandoned: tuple[int, str] = (0, "")
        self._stopping = threading.Event()
        #: ends a pause
        self._hurry = threading.Event()
        self._stop_before = math.inf
        self._wake_up = WakeUp()
        #: time.monotonic() of the last turns that read and wrote
        self._read_at = self._wrote_at = 0.0
        self._thread = ParkingThread(f"link-{name}", self._run)

    def identify(self, client_id: str) -> None:
        """Set the client identifier. Must be called before `start`."""
        self.client_id = client_id

    def resume(self, former: Sequence[str], *, subscribed: bool) -> None:
        """Set the state of the session at the broker: former topic filters to unsubscribe, and whether it is `subscribed`.

        Must be called before `start`.
        """
        self._former = tuple(former)
        self.subscribed = subscribed

    def start(self) -> None:
        """Start the network thread."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Write queued packets, send DISCONNECT and stop. Return False if this takes longer than `timeout` seconds."""
        self._stop_before = time.monotonic() + timeout
        self._stopping.set()
        self._hurry.set()
        self._inbox.end()
        self._wake_up.ring()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def address(self) -> str:
        """Host and port of the current broker address."""
        return self._attempts.place

    @property
    def up(self) -> bool:
        """Whether the link is connected."""
        return self.state.phase is LinkPhase.CONNECTED

    @property
    def session_present(self) -> bool | None:
        """Whether the broker still had the session at the last CONNACK, or None before the first."""
        return self._inbox.session_present

    @property
    def generation(self) -> int:
        """The number of the last accepted connection, or 0 before the first."""
        return self._inbox.generation

    @property
    def limits(self) -> Limits:
        """The limits for sending, from the broker (after the first CONNACK) and the configuration."""
        return self._outbox.limits

    def wait_connected(self, wait: float, *, once: bool = False) -> bool:
        """Wait up to `wait` seconds for a connection. Return whether the link is connected.

        With `once`, return as soon as the first attempt has failed.
        """
        return self._outbox.wait_ready(wait, once=once)

    def bind(self, address: str) -> None:
        """Make `publish_exactly` and `release` raise LinkLost while the link is connected to another address."""
        self._outbox.bound = address

    def reset_back_off(self) -> None:
        """Restart the back-off with the shortest pause, after the message for which the broker closed the connection."""
        self._attempts.reset()
        self._violations.forget()

    @property
    def unsuitable(self) -> str:
        """Why the broker does not support exactly-once delivery, or ""."""
        return self._outbox.unsuitable

    @property
    def acknowledges_qos_2(self) -> bool:
        """Whether the broker supports QoS 2. False after it has answered a publication of QoS 2 with PUBACK."""
        return not self._outbox.no_qos_2

    def connect_now(self) -> None:
        """End a pause between connection attempts, and restart the back-off with the shortest pause."""
        self._attempts.reset()
        self._hurry.set()

    # Receiving -------------------------------------------------------------------------------------------------------

    def take(self, messages: int, size: int, wait: float) -> list[Received]:
        """Take received publications in order, after waiting up to `wait` seconds for the first one.

        Takes at most `messages` publications with at most `size` payload bytes in total (a single one may be larger). Returns
        early, possibly empty, if PUBRELs arrived, a connection was accepted (check `session_present`), `interrupt` was called
        or the link was stopped.
        """
        batch = self._inbox.take(messages, size, wait)
        if self._paused:
            # The inbox has room again.
            self._wake_up.ring()
        return batch

    def interrupt(self) -> None:
        """Make the current or next take() return."""
        self._inbox.interrupt()

    def acknowledge(self, received: Sequence[Received]) -> None:
        """Send PUBACK (QoS 1) or PUBREC (QoS 2). Messages of earlier connections are ignored: the broker sends them again."""
        generation, packets = self._inbox.acknowledge(received)
        if packets and self._submit(generation, b"".join(packets)):
            self.counters.acknowledged += len(packets)

    def released(self) -> list[int]:
        """Return the packet identifiers of PUBRELs received since the last call. After a restart, some may be unknown."""
        return self._inbox.released()

    def complete(self, packet_ids: Sequence[int]) -> None:
        """Send PUBCOMP. PUBRELs of earlier connections are ignored: the broker sends them again."""
        generation, packets = self._inbox.complete(packet_ids)
        if packets:
            self._submit(generation, b"".join(packets))

    # Sending ---------------------------------------------------------------------------------------------------------

    @property
    def in_flight_limit(self) -> int:
        """The maximum number of unacknowledged QoS 1 and 2 publications, from the configuration and the broker."""
        return self._outbox.in_flight_limit

    @property
    def in_flight(self) -> int:
        """The number of unacknowledged QoS 1 and 2 publications."""
        return self._outbox.in_flight

    def publish(
        self,
        publications: Sequence[Publication],
        packet_ids: Sequence[int] | None = None,
        dup: bool = False,
        timeout: float = ANSWERS_TIMEOUT,
    ) -> dict[int, PublicationRefusal]:
        """Send publications in order, each with its own QoS, and wait for all acknowledgements.

        A QoS 0 publication is complete when written to the network, QoS 1 at PUBACK, QoS 2 at PUBCOMP. `packet_ids` are
        from 1 to 65533 (ignored for QoS 0). None assigns new ones. `dup` sets DUP.

        Returns permanently rejected publications by index. The broker has accepted all others. Raises LinkLost, which lists
        the unacknowledged publications, without a connection, if the connection breaks, or if the broker needs more than
        `timeout` seconds. In the last case, the connection is closed. Raises ValueError for invalid packet identifiers.
        """
        return self._outbox.publish(publications, packet_ids, dup, False, timeout)

    def publish_exactly(
        self,
        publications: Sequence[Publication],
        packet_ids: Sequence[int],
        dup: bool = False,
        timeout: float = ANSWERS_TIMEOUT,
    ) -> dict[int, PublicationRefusal]:
        """Send QoS 2 publications and wait for all PUBRECs. `release` sends PUBREL. Otherwise like `publish`.

        At most `in_flight_limit` publications, minus those not yet released. Do not release rejected ones. After LinkLost or
        a restart, send the same publications with the same packet identifiers and `dup`, or call `release` if the commit
        succeeded. A publication that was answered with PUBREC on the current connection is not sent again. Raises ValueError
        for another QoS or too many publications.
        """
        if any(publication.qos != 2 for publication in publications):
            raise ValueError("exactly-once delivery requires QoS 2")
        return self._outbox.publish(publications, packet_ids, dup, True, timeout)

    def release(self, packet_ids: Sequence[int], timeout: float = ANSWERS_TIMEOUT) -> None:
        """Send PUBREL, in the order of PUBREC, and wait for all PUBCOMPs. Raises LinkLost.

        The packet identifiers may be those of an earlier connection or process.
        """
        self._outbox.release(packet_ids, timeout)

    def _submit(self, generation: int, packets: bytes) -> bool:
        """Write packets to the connection of a generation. Return False if that connection is gone."""
        client = self._client
        if client is None or generation != self._generation:
            return False
        client.queue(packets)
        self._wake_up.ring()
        return True

    def _abandon(self, generation: int, error: str) -> None:
        self._abandoned = (generation, error)
        self._wake_up.ring()

    # On the network thread --------------------------------------------------------------------------------------------

    def _run(self) -> Iterator[Pause]:
        error = ""
        try:
            while not self._stopping.is_set():
                try:
                    yield from self._stay_connected()
                    self._attempts.settled()
                except LinkLost as failure:
                    pause = self._attempts.failed(failure)
                    self._tell(failure, pause)
                    self._pause(pause)
        except Exception as crash:
            log.exception("MQB6006E link %s (%s) ended because of an internal error", self.name, self.address)
            error = f"ended by {type(crash).__name__}: {crash}"
        finally:
            self._wake_up.close()
            self._inbox.end()
            self._outbox.lost(error or "the link is stopped")
            log.info("MQB6004I link %s: stopped, %s", self.name, self.address)
            self._change(LinkPhase.STOPPED, error)

    def _tell(self, error: LinkLost, pause: float) -> None:
        number = self._attempts.number
        if number in (1, 5) or number % 30 == 0:
            log.warning(
                "MQB6002W link %s: connecting to %s failed (attempt %d): %s", self.name, self.address, number, error
            )
        self._change(LinkPhase.WAITING, str(error), pause)

    def _pause(self, seconds: float) -> None:
        self._hurry.clear()
        if not self._stopping.is_set():
            self._hurry.wait(seconds)
        if self._stopping.is_set():
            return
        self._attempts.next_address()

    def _change(self, phase: LinkPhase, error: str = "", pause: float = 0.0) -> None:
        now = time.time()
        if (phase is LinkPhase.CONNECTED) != (self.state.phase is LinkPhase.CONNECTED):
            self.since = now
        # While the next attempt is in progress, the previous error is reported again.
        if error and (phase is not LinkPhase.CONNECTING or error != self.state.error):
            self.last_error = (error, now)
        self.state = LinkState(phase, error, pause, self.address)
        if self._on_state is not None:
            self._on_state(self.state)

    def _stay_connected(self) -> Iterator[Pause]:
        """Connect and serve. Return if the link is stopped or an established connection is lost.

        Raises LinkLost if no connection was made, or if it was lost after a short time.
        """
        self._change(LinkPhase.CONNECTING, self.state.error)
        since = math.inf
        self._generation += 1
        sinks = Sinks(self._publications, self._outbox.answered, self._inbox.put_released, self._room)
        self._client = client = LinkClient(
            self.client_id, self._version_5, self._clean, sinks, self._config.path_of_websocket
        )
        self._selector = selectors.DefaultSelector()
        try:
            self._selector.register(self._wake_up.listener, selectors.EVENT_READ)
            handshake = self._open(client)
            since = time.monotonic()
            yield from self._serve(handshake)
        except LinkLost as error:
            self._outbox.lost(str(error), error.violation)
            if error.violation is not None and self._pauses_after(error.violation):
                raise LinkRefused(str(error)) from error
            if time.monotonic() - since < SETTLED or since == math.inf:
                raise
            log.warning("MQB6003W link %s: lost the connection to %s: %s; reconnecting", self.name, self.address, error)
            self._change(LinkPhase.CONNECTING, str(error))
        except _Stopped:
            return
        except Exception as crash:
            # The broker's data caused an error in the bridge. Close this connection, but keep the link.
            why = f"{type(crash).__name__}: {crash}"
            log.exception(
                "MQB6007E link %s (%s): closed the connection after an unexpected error", self.name, self.address
            )
            self._outbox.lost(why, Violation.UNEXPECTED)
            raise LinkRefused(why) from crash
        finally:
            self._client = None
            client.close()
            self._selector.close()

    def _pauses_after(self, violation: Violation) -> bool:
        """Return whether to pause after a violation. If it is an acknowledgement, `LinkOutbox` has already reacted to it."""
        if violation is Violation.WRONG_ACKNOWLEDGEMENT:
            return bool(self._outbox.unsuitable)
        return self._violations.react(violation, exactly=False) is Reaction.PAUSE

    def _open(self, client: LinkClient) -> LinkHandshake:
        """Connect and subscribe. Raises LinkLost."""
        handshake = LinkHandshake(client, self._config, self._attempts.address, self._accepted)
        try:
            password = self._password()
        except OSError as error:
            raise LinkRefused(str(error)) from error
        handshake.connect(password, self._clean)
        stream = client.socket()
        self._selector.register(stream, selectors.EVENT_READ)  # type: ignore[arg-type]
        self._turn_until(handshake, lambda: handshake.accepted, "CONNACK")
        if isinstance(stream, Stream):
            self.certificate_expiry = stream.certificate_expiry
        present = handshake.session_present
        # With MQTT 3.1.1, the broker sends all retained messages after each SUBSCRIBE. Subscribe only if the session has no
        # subscription, also has former subscriptions, or if its state is unknown.
        place = 0 if self._shared else self._attempts.index
        subscribed = present and (place in self._subscribed_at or (self.subscribed and not self._connected_before))
        if self._subscription is not None and (self._version_5 or self._former or not subscribed):
            self._subscribe(handshake, *self._subscription, self._former if present else ())
            self._former, self.subscribed = (), True
        self._subscribed_at.add(place)
        log.info(
            "MQB6001I link %s: connected to %s as %s%s",
            self.name,
            self.address,
            self.client_id,
            ", the broker still has the session" if present else "",
        )
        self.counters.reconnects += self._connected_before
        self._connected_before = True
        self._outbox.begin(self._generation, handshake.limits, present, self.connected_address)
        self._change(LinkPhase.CONNECTED)
        return handshake

    def _subscribe(self, handshake: LinkHandshake, topic_filter: str, qos: int, former: Sequence[str]) -> None:
        handshake.subscribe(topic_filter, qos)
        if former:
            # In one write, so that a message is rarely delivered for both subscriptions.
            handshake.unsubscribe(former)
        self._turn_until(handshake, lambda: handshake.granted is not None, "SUBACK")
        self._turn_until(handshake, lambda: handshake.unsubscribed, "UNSUBACK")
        granted = handshake.granted_qos(topic_filter)
        if granted < qos and granted != self.granted_qos:
            log.warning(
                "MQB6005W link %s: %s granted the subscription to %s only QoS %d instead of %d",
                self.name,
                self.address,
                topic_filter,
                granted,
                qos,
            )
        self.granted_qos = granted

    def _turn_until(self, handshake: LinkHandshake, is_over: Callable[[], bool], answer: str) -> None:
        before = time.monotonic() + ANSWER_TIME
        while not is_over():
            if self._stopping.is_set():
                raise _Stopped
            if time.monotonic() > before:
                failure = LinkLost(f"no {answer} within {ANSWER_TIME:g} s")
                failure.violation = Violation.NO_HANDSHAKE
                raise failure
            self._turn(handshake, TURN)

    def _serve(self, handshake: LinkHandshake) -> Iterator[Pause]:
        """Exchange packets until the link is stopped. Raises LinkLost."""
        # Server Keep Alive, if CONNACK contains it, or else the configured one (MQTT-3.1.2-21).
        keep_alive = handshake.client.keepalive or math.inf
        self._read_at = self._wrote_at = time.monotonic()
        wait = linger = TURN
        while not self._stopping.is_set():
            idle = not self._turn(handshake, wait)
            now = time.monotonic()
            # paho sends PINGREQ after keep-alive without a packet in one of the directions.
            due = min(self._read_at, self._wrote_at) + keep_alive - now
            if due <= TURN:
                wait = TURN  # for PINGREQ or PINGRESP
            elif not idle:
                wait = linger
            else:
                yield Pause(self._selector.fileno(), due)
                wait = 0.0  # the pause was the wait
                # A link with rare packets does not keep its thread. Otherwise, many links would need many threads.
                linger = TURN if time.monotonic() - now < TURN else 0.0
        # DISCONNECT is queued after the pending output.
        client = handshake.client
        client.disconnect()
        while client.socket() is not None and time.monotonic() < self._stop_before:
            try:
                self._turn(handshake, TURN)
            except LinkLost:
                break

    def _turn(self, handshake: LinkHandshake, wait: float) -> bool:
        """Wait for the network or a wake-up, and process it. Return False after a timeout. Raises LinkLost."""
        client, selector = handshake.client, self._selector
        # Set the flag before checking for room: a concurrent take() then wakes this thread.
        self._paused = True
        self._paused = self._room() == 0
        selected_events = 0 if self._paused else selectors.EVENT_READ
        if client.want_write():
            selected_events |= selectors.EVENT_WRITE
        sock: Any = client.socket()
        registered = selector.get_map().get(sock)
        if registered is None:
            if selected_events:
                selector.register(sock, selected_events)
        elif not selected_events:
            selector.unregister(sock)
        elif registered.events != selected_events:
            selector.modify(sock, selected_events)
        ready = 0
        selected = selector.select(0 if client.backlog and not self._paused else wait)
        for key, events in selected:
            if key.fileobj is self._wake_up.listener:
                self._wake_up.answer()
            else:
                ready = events
        if self._paused:
            client.forgive_silence()
        elif ready & selectors.EVENT_READ or client.backlog:
            self._read_at = time.monotonic()
            client.loop_read()
        if client.want_write():
            self._wrote_at = time.monotonic()
            client.loop_write()
        client.loop_misc()
        if client.socket() is None and not (self._stopping.is_set() and client.fault == ""):
            raise handshake.lost()
        if self._abandoned[0] == self._generation:
            failure = LinkLost(self._abandoned[1])
            failure.violation = Violation.UNANSWERED
            raise failure
        if self._outbox.no_qos_2 and not self._qos_2_logged:
            self._qos_2_logged = True
            log.warning(
                "MQB6008W link %s: %s acknowledges QoS 2 with PUBACK: it supports QoS 1", self.name, self.address
            )
        self._outbox.written(lambda: not client.want_write())
        return bool(selected or client.backlog or client.want_write())

    # Callbacks of LinkClient and Handshake ----------------------------------------------------------------------------

    def _accepted(self, session_present: bool) -> None:
        moved = not self._shared and self._connected_before and self.address != self.connected_address
        self.connected_address = self.address
        # The broker at another address sends the session's publications again when the link returns there.
        self._inbox.begin(self._generation, session_present, dropping=session_present or moved)
        if self._on_session is not None:
            self._on_session(session_present)

    def _publications(self, packets: list[Publish]) -> None:
        origin = self.name, self._generation, self._config.trusted
        self._inbox.put([received(packet, *origin) for packet in packets])
        self.counters.received += len(packets)

    def _room(self) -> int:
        # A worker that waits for acknowledgements does not take messages. Acknowledgements must be read regardless of the
        # number of publications that precede them.
        return self._config.in_flight if self._outbox.waiting else self._inbox.room()


#: Seconds to wait for the end of a session.
END_TIMEOUT = 5.0


def password_of(name: str, config: LinkConfig) -> str | None:
    """Return the password of a link, or None. Raises NoPassword."""
    if config.password_file is None and config.password_variable is None:
        return None
    return read_password(f"link {name}", config.password_file, config.password_variable, os.environ)


def link_connection(
    mapping: str,
    name: str,
    config: LinkConfig,
    *,
    client_id: str = "",
    topic_filter: str | None = None,
    qos: int = 0,
    clean: bool | None = None,
    on_state: Callable[[LinkState], None] | None = None,
    on_session: Callable[[bool], None] | None = None,
    on_arrival: Callable[[], None] = lambda: None,
) -> LinkConnection:
    """Return the connection of a mapping to a link's broker, not yet started. It reads the password itself.

    A blank `client_id` must be replaced with `identify` before the start.
    """
    return LinkConnection(
        name,
        config,
        client_id or client_id_of(config.client_id, mapping, ""),
        topic_filter=topic_filter,
        qos=qos,
        password=lambda: password_of(name, config),
        clean=clean,
        on_state=on_state,
        on_session=on_session,
        on_arrival=on_arrival,
    )


def end_session(mapping: str, name: str, config: LinkConfig, client_id: str) -> bool:
    """End the broker session of a removed mapping by connecting with a clean session. Return whether it succeeded."""
    connection = link_connection(mapping, name, config, client_id=client_id, clean=True)
    connection.start()
    ended = connection.wait_connected(END_TIMEOUT, once=True)
    if not ended:
        log.warning(
            "MQB5208W ending the session of mapping %s at the broker of link %s failed: %s",
            mapping,
            name,
            connection.state.error,
        )
    connection.stop(END_TIMEOUT)
    return ended
