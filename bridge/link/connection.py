"""A connection of one mapping to an MQTT broker: what a worker calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridge.config.link import LinkConfig
from bridge.link.network import Network
from bridge.link.state import Limits, LinkCounters, LinkPhase, LinkState, Refusal
from bridge.telemetry.message import Publication, Received

ANSWERS_TIMEOUT = 60.0
"""Seconds that a broker may take to answer a batch."""


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
        self._network = Network(
            name,
            config,
            client_id,
            password if callable(password) else lambda: password,
            None if topic_filter is None else (topic_filter, qos),
            config.session == "clean" if clean is None else clean,
        )
        self._network.on_state = on_state
        self._network.on_session = on_session
        self._inbox = self._network.inbox
        self._outbox = self._network.outbox

    def identify(self, client_id: str) -> None:
        """Set the client identifier; called before `start`."""
        self._network.client_id = client_id

    def resume(self, former: Sequence[str], *, subscribed: bool) -> None:
        """Tell what the session at the broker has, if it is there still; called before `start`.

        `former` are filters of before, to be unsubscribed; `subscribed` says that it has the subscription, as it is to be.
        """
        self._network.former = tuple(former)
        self._network.subscribed = subscribed

    @property
    def subscribed(self) -> bool:
        """Return whether the session has its own subscription, and no other."""
        return self._network.subscribed

    def start(self) -> None:
        """Begin to connect, on the network thread."""
        self._network.start()

    def stop(self, timeout: float) -> bool:
        """End: take nothing more, write what is queued, DISCONNECT. False where it took longer than `timeout` seconds."""
        return self._network.stop(timeout)

    @property
    def name(self) -> str:
        """Return the name of the link."""
        return self._network.name

    @property
    def state(self) -> LinkState:
        """Return the state at this moment."""
        return self._network.state

    @property
    def client_id(self) -> str:
        """Return the client identifier at the broker."""
        return self._network.client_id

    @property
    def since(self) -> float:
        """Return when it was connected or disconnected last, in seconds since the epoch; 0.0: it was never connected."""
        return self._network.since

    @property
    def last_error(self) -> tuple[str, float]:
        """Return what went wrong last, and when, in seconds since the epoch; "" and 0.0: nothing has."""
        return self._network.last_error

    @property
    def up(self) -> bool:
        """Return whether it is connected now."""
        return self.state.phase is LinkPhase.CONNECTED

    @property
    def counters(self) -> LinkCounters:
        """Return the counters since the start; they go on counting."""
        return self._network.counters

    @property
    def session_present(self) -> bool | None:
        """Return whether the broker still had the session at the last CONNACK; None before the first."""
        return self._inbox.session_present

    @property
    def generation(self) -> int:
        """Return the number of the last connection that was accepted; 0 before the first."""
        return self._inbox.generation

    @property
    def granted_qos(self) -> int | None:
        """Return the QoS that the broker granted to the subscription; None before the first SUBACK."""
        return self._network.granted_qos

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
        self._network.reset_back_off()

    # Receiving -------------------------------------------------------------------------------------------------------

    def take(self, messages: int, size: int, wait: float) -> list[Received]:
        """Take publications that came, in their order.

        Waits at most `wait` seconds for the first one, then takes what is there: at most `messages`, with payloads of
        `size` bytes in all (one alone may be larger). Returns early, and perhaps with nothing, when PUBRELs have come,
        a connection was accepted (`session_present` may have changed: look at it before anything is done with what was
        taken), `interrupt` was called or the link was stopped.
        """
        taken = self._inbox.take(messages, size, wait)
        self._network.taken()
        return taken

    def interrupt(self) -> None:
        """Make the take() under way, or else the next one, return."""
        self._inbox.interrupt()

    def acknowledge(self, received: Sequence[Received]) -> None:
        """Send PUBACK (QoS 1) or PUBREC (QoS 2). Of an earlier connection: nothing; the broker sends those again."""
        generation, packets = self._inbox.acknowledge(received)
        if packets and self._network.submit(generation, b"".join(packets)):
            self._network.counters.acknowledged += len(packets)

    def released(self) -> list[int]:
        """Return the message ids whose PUBREL has come since the last call.

        After a restart there are also such as nothing is known of.
        """
        return self._inbox.released()

    def complete(self, mids: Sequence[int]) -> None:
        """Send PUBCOMP. For PUBRELs of an earlier connection: nothing; the broker sends those again."""
        generation, packets = self._inbox.complete(mids)
        if packets:
            self._network.submit(generation, b"".join(packets))

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
