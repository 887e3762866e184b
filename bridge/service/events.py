"""Events of the telemetry service, and the bus that delivers them to their subscribers.

The archive, the metrics, the traces, `mqbridge top` and the detection of locked-out clients subscribe. Events are published
on the event loop, after the fact. A subscriber that raises does not affect messages or other subscribers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from bridge.mq.backend import ClientSubscription, Completion
from bridge.mq.mqi import Got
from bridge.mqtt.reason_codes import ReasonCode
from bridge.telemetry.message import Received
from bridge.telemetry.outcome import Outcome
from bridge.telemetry.session import NONE_INVALID, ReceiveEffects, Session
from bridge.telemetry.transmission import PublicationMessage, Transmission

log = logging.getLogger(__name__)

#: Publications of one unit of work, each with its RETAIN flag.
Publications = Sequence[tuple[PublicationMessage, bool]]


class Event(msgspec.Struct, gc=False):
    """The base of all events."""


class Recovered(Event):
    """The service has exclusive use of the transmission queue, and knows the subscriptions of the queue manager."""

    subscriptions: Sequence[ClientSubscription]


class ConnectRejected(Event):
    """A client of a channel was rejected by CONNACK. The reason code is an MQTT 5 reason code for all versions."""

    channel: str
    reason: ReasonCode
    #: the client and the reason in words
    what: str
    #: the client identifier and address, and the reason alone
    client_id: str = ""
    address: str = ""
    why: str = ""
    #: the client was rejected by a limit on sessions
    by_limit: bool = False
    #: the client identifier belongs to a session of another user
    by_owner: bool = False


class CredentialsRejected(Event):
    """The credentials of a client of a channel were rejected."""

    channel: str


class ClientConnected(Event):
    """CONNACK with code 0 was sent."""

    session: Session
    #: the address of the client
    address: str = ""
    #: the client has resumed its session
    is_resumed: bool = False


class ClientDisconnected(Event):
    """The connection of a client was closed, for one of the reasons in `bridge.transport.stream`."""

    session: Session
    reason: str
    #: the address of the client
    address: str = ""
    #: why the bridge closed the connection, or blank
    why: str = ""


class Subscribed(Event):
    """SUBACK was sent for topic filters, each with the QoS granted."""

    session: Session
    granted: Sequence[tuple[str, int]]
    #: when SUBSCRIBE arrived, in microseconds since the epoch
    received_at: int


class Unsubscribed(Event):
    """UNSUBACK was sent for topic filters."""

    session: Session
    filters: Sequence[str]
    #: when UNSUBSCRIBE arrived, in microseconds since the epoch
    received_at: int


class MessagesAbandoned(Event):
    """Messages were removed because their session had ended."""

    session: Session
    transmissions: Sequence[Transmission]


class SessionEnded(Event):
    """A session ended, and its messages were removed."""

    session: Session


class Published(Event):
    """The unit of work with publications of a client ended: they were put, rejected, or the commit failed."""

    session: Session
    publications: Publications
    completion: Completion
    #: when they arrived, in microseconds since the epoch
    received_at: int
    #: how publications violate a schema of the channel, by index
    invalid: Mapping[int, str] = NONE_INVALID


class PublicationRejected(Event):
    """A publication with QoS 1 or 2 was rejected."""

    session: Session
    message: PublicationMessage
    #: MQRC
    reason: int


class Acknowledged(Event):
    """Acknowledgements of a client were committed. The session still contains the acknowledged messages."""

    session: Session
    effects: ReceiveEffects


class Finished(Event):
    """Messages that need no acknowledgement were written with QoS 0, or discarded."""

    session: Session
    transmissions: Sequence[Transmission]
    #: number of a discarded message -> reason
    discarded: Mapping[int, str]


class Unclaimed(Event):
    """A message was removed without a session: its session had ended, or the reason is given."""

    transmission: Transmission
    reason: str = ""


class DeadLettered(Event):
    """A message was put to the dead-letter queue instead of being sent to its client."""

    transmission: Transmission
    #: MQRC
    reason: int


class MessagesDropped(Event):
    """Messages for a client or a shared subscription were discarded: a limit was reached, or it cannot take them."""

    #: the client identifier, or the remote queue manager of a shared subscription
    owner: str
    number: int
    why: str


#: The taken message, its outcome, the reason, and the destination queue or topic.
Fate = tuple[Got | Received, Outcome, str | None, str | None]

#: Values of `reason` for messages that a mapping discarded.
FILTERED: Final = "the mapping's filter does not take it"
CAME_ROUND: Final = "it has come round"
NO_DEAD_LETTER_ROOM: Final = "it cannot be processed, and too many dead letters wait"
LINK_LOST: Final = "the link was lost, and it is sent once at most"


E = TypeVar("E", bound=Event)


class EventBus:
    """Delivers events to the handlers that were subscribed to their types, in the order of subscription."""

    def __init__(self) -> None:
        self._handlers: dict[type[Event], tuple[Callable[[Any], None], ...]] = {}

    def subscribe(self, event: type[E], handler: Callable[[E], None]) -> None:
        """Call a handler with each event of a type."""
        self._handlers[event] = (*self._handlers.get(event, ()), handler)

    def attach(self, subscriber: object, events: Iterable[type[Event]] = ()) -> None:
        """Subscribe the methods of a subscriber that have a parameter `event: TYPE`, each to the events of its type.

        `events` restricts the types.
        """
        types = {event.__name__: event for event in events or Event.__subclasses__()}
        for name, method in vars(type(subscriber)).items():
            event = types.get(getattr(method, "__annotations__", {}).get("event", ""))
            if event is not None:
                self.subscribe(event, getattr(subscriber, name))

    def unsubscribe(self, subscriber: object) -> None:
        """Remove the handlers that are methods of a subscriber."""
        for event, handlers in self._handlers.items():
            self._handlers[event] = tuple(
                handler for handler in handlers if getattr(handler, "__self__", None) is not subscriber
            )

    def publish(self, event: Event) -> None:
        """Call the handlers of an event. Exceptions are logged with their traceback (limited by `bridge.service.log`)."""
        for handler in self._handlers.get(type(event), ()):
            try:
                handler(event)
            except Exception:
                log.exception(
                    "MQB0007E handler %s of event %s failed; messages are not affected",
                    handler.__qualname__,
                    type(event).__name__,
                )
