"""The journal of clients: recent events of each client, the messages of watched clients, and the trace in the log.

The console shows events and messages, which are kept in memory. The trace consists of log lines about connections,
subscriptions and publications. At the log level `debug` it covers all clients, otherwise those of `log.trace_clients`.
Clients that repeatedly reconnect with a publication that the queue manager rejects are reported once.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from fnmatch import translate
from typing import Final, Literal

import msgspec

from bridge.administration.answers import ClientEvent, ClientMessage, ClientTraffic
from bridge.administration.protocol import Refused
from bridge.config.operations import LogLevel
from bridge.mapping.message_view import MessageView, body_text
from bridge.mqtt.packets import LEVEL_MQTT_5
from bridge.service.events import (
    Acknowledged,
    ClientConnected,
    ClientDisconnected,
    DeadLettered,
    EventBus,
    Finished,
    PublicationRejected,
    Published,
    SessionEnded,
    Subscribed,
    Unsubscribed,
)
from bridge.telemetry.session import Session
from bridge.telemetry.transmission import PublicationMessage, Transmission
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Maximum number of events per client, and of clients with events. The client whose last event is the oldest is forgotten.
MOST_EVENTS: Final = 20
MOST_CLIENTS: Final = 10_000
#: Maximum number of watched clients, and of messages kept for each.
MOST_WATCHED: Final = 8
MOST_MESSAGES: Final = 500
#: Seconds after the last request until a client is no longer watched.
SILENCE: Final = 15.0
#: Bytes of a payload, and characters of a text, that are kept.
PAYLOAD: Final = 1_000
_TEXT: Final = 300
#: Events of clients, and events with their messages.
_CHANGES: Final = (
    ClientConnected,
    ClientDisconnected,
    SessionEnded,
    Subscribed,
    Unsubscribed,
    PublicationRejected,
    DeadLettered,
)
_MESSAGES: Final = (Published, Acknowledged, Finished)
#: Maximum number of topic filters of one request that are kept as events.
_MAX_FILTERS: Final = 5


class _Watched:
    """The messages of a watched client."""

    def __init__(self) -> None:
        self.asked_at = 0.0
        self.number = 0
        self.messages: deque[ClientMessage] = deque(maxlen=MOST_MESSAGES)

    def add(self, direction: Literal["published", "delivered"], topic: str, qos: int, payload: bytes) -> None:
        self.number += 1
        self.messages.append(
            ClientMessage(
                number=self.number,
                time=time.time(),
                direction=direction,
                topic=topic,
                qos=qos,
                size=len(payload),
                payload=body_text(payload[:PAYLOAD]),
            )
        )


class ClientJournal:
    """Subscribes to the events of a service that somebody needs. All methods are called on its event loop."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        #: whether recent events of all clients are kept
        self.keeps = False
        self._kept: OrderedDict[str, deque[ClientEvent]] = OrderedDict()
        #: matches the identifiers of traced clients; None if no client is traced
        self._traced: re.Pattern[str] | None = None
        self._watched: dict[str, _Watched] = {}
        self._timer: asyncio.TimerHandle | None = None

    def keep(self) -> None:
        """Keep recent events of all clients."""
        self.keeps = True
        self._subscribe()

    def trace(self, level: LogLevel, patterns: Sequence[str]) -> None:
        """Trace the clients whose identifiers match one of the patterns, or all clients at the level `debug`."""
        if not patterns and level == "debug":
            patterns = ["*"]
        self._traced = re.compile("|".join(map(translate, patterns))) if patterns else None
        self._subscribe()

    def _subscribe(self) -> None:
        self._events.unsubscribe(self)
        if self.keeps or self._traced is not None:
            self._events.attach(self, _CHANGES)
        if self._watched or self._traced is not None:
            self._events.attach(self, _MESSAGES)

    def events_of(self, client_id: str) -> list[ClientEvent]:
        """Return the events of a client, the newest first."""
        return list(self._kept.get(client_id, ()))[::-1]

    def _note(self, client_id: str, text: str) -> None:
        """Keep an event and write it to the trace."""
        self._write(client_id, text)
        self._keep(client_id, text)

    def _keep(self, client_id: str, text: str) -> None:
        if not self.keeps:
            return
        events = self._kept.get(client_id)
        if events is None:
            events = self._kept[client_id] = deque(maxlen=MOST_EVENTS)
            if len(self._kept) > MOST_CLIENTS:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(client_id)
        events.append(ClientEvent(time.time(), text[:_TEXT]))

    def _write(self, client_id: str, text: str) -> None:
        if self._traced is not None and self._traced.match(client_id):
            # The flood protection does not count these lines: an administrator has asked for all of them.
            log.info("MQB2005I trace of client %r: %s", client_id, text, extra={"is_unlimited": True})

    def _connected(self, event: ClientConnected) -> None:
        session = event.session
        user = session.identity.user.decode("utf-8", "replace")
        self._note(session.client_id, f"connected via channel {session.channel} as user {user!r}")

    def _disconnected(self, event: ClientDisconnected) -> None:
        self._note(event.session.client_id, f"connection ended: {event.reason.replace('_', ' ')}")

    def _ended(self, event: SessionEnded) -> None:
        self._note(event.session.client_id, "session ended")

    def _subscribed(self, event: Subscribed) -> None:
        granted = [f"{topic!r} with QoS {qos}" if qos < 3 else f"{topic!r}, rejected" for topic, qos in event.granted]
        self._note_each(event.session, "subscribed to", granted)

    def _unsubscribed(self, event: Unsubscribed) -> None:
        self._note_each(event.session, "unsubscribed from", [repr(topic_filter) for topic_filter in event.filters])

    def _note_each(self, session: Session, verb: str, filters: list[str]) -> None:
        """Trace all topic filters, but keep only the first ones: a request can have thousands."""
        for number, topic_filter in enumerate(filters):
            note = self._note if number < _MAX_FILTERS else self._write
            note(session.client_id, f"{verb} {topic_filter}")

    def _rejected(self, event: PublicationRejected) -> None:
        # The trace has a line for each publication.
        text = f"publication to {event.message.topic!r} rejected: {cmqc.reason_name(event.reason)}"
        self._keep(event.session.client_id, text)

    def _dead_lettered(self, event: DeadLettered) -> None:
        topic = _topic(event.transmission)
        reason = f"{cmqc.reason_name(event.reason)} ({event.reason})"
        self._note(event.transmission.client_id, f"message of topic {topic!r} dead-lettered: {reason}")

    def watch(self, client_id: str, after: int, payloads: bool) -> ClientTraffic:
        """Return the messages of a client with higher numbers, and keep recording. Raises Refused."""
        self._forget_silent()
        watched = self._watched.get(client_id)
        if watched is None:
            if len(self._watched) >= MOST_WATCHED:
                raise Refused(f"{MOST_WATCHED} clients are watched, and that is the limit")
            watched = self._watched[client_id] = _Watched()
            self._subscribe()
        watched.asked_at = time.monotonic()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SILENCE, self._review)
        messages = [one for one in watched.messages if one.number > after]
        if not payloads:
            messages = [msgspec.structs.replace(one, payload="") for one in messages]
        missed = messages[0].number - after - 1 if messages and after else 0
        return ClientTraffic(messages=messages, missed=missed)

    def _review(self) -> None:
        self._timer = None
        self._forget_silent()
        if self._watched:
            self._timer = asyncio.get_running_loop().call_later(SILENCE, self._review)

    def _forget_silent(self) -> None:
        now = time.monotonic()
        for client_id, watched in list(self._watched.items()):
            if now - watched.asked_at > SILENCE:
                del self._watched[client_id]
        if not self._watched:
            self._subscribe()

    # Messages ---------------------------------------------------------------------------------------------------------

    def _published(self, event: Published) -> None:
        client_id, completion = event.session.client_id, event.completion
        watched = self._watched.get(client_id)
        for index, (message, retain) in enumerate(event.publications):
            if watched is not None:
                watched.add("published", message.topic, message.qos, message.payload)
            if self._traced is None:
                continue
            reason = completion.failure or completion.refusals.get(index, 0)
            diverted = completion.diverted.get(index, 0)
            outcome = f"rejected: {cmqc.reason_name(reason)} ({reason})" if reason else "put"
            if diverted:
                outcome = f"dead-lettered: {cmqc.reason_name(diverted)} ({diverted})"
            if violation := event.invalid.get(index):
                outcome = f"{outcome}: {violation}"
            text = f"published to {message.topic!r}, QoS {message.qos}{', retained' if retain else ''}"
            self._write(client_id, f"{text}, {len(message.payload)} bytes: {outcome}")

    def _acknowledged(self, event: Acknowledged) -> None:
        for packet_id, transmission in event.effects.acknowledged:
            self._delivered(event.session, transmission, 1, f"acknowledged packet {packet_id}")
        for packet_id, _, transmission in event.effects.released:
            self._delivered(event.session, transmission, 2, f"acknowledged packet {packet_id}")

    def _finished(self, event: Finished) -> None:
        for transmission in event.transmissions:
            why = event.discarded.get(transmission.msg_number)
            outcome = "sent with QoS 0" if why is None else f"not sent: {why}"
            self._delivered(event.session, transmission, 0 if why is None else None, outcome)

    def _delivered(self, session: Session, transmission: Transmission, qos: int | None, outcome: str) -> None:
        """Trace the outcome of a message. `qos` is None if it was not delivered."""
        watched = self._watched.get(session.client_id)
        if watched is not None and qos is not None:
            message = transmission.message
            if isinstance(message, PublicationMessage):
                payload = message.payload
            else:
                payload = MessageView(message.md, message.data).body
            watched.add("delivered", _topic(transmission), qos, payload)
        self._write(session.client_id, f"message of topic {_topic(transmission)!r}: {outcome}")


def _topic(transmission: Transmission) -> str:
    return transmission.topic or transmission.remote_queue


# Clients that are locked out ------------------------------------------------------------------------------------------

#: Maximum number of remembered clients. The one rejected longest ago is forgotten first.
REMEMBERED = 1_000
#: Number of rejections for the same topic and reason after which the client is logged.
AGAIN = 3
#: Reasons not caused by the publication: lack of memory and disk space have their own log messages.
SHORTAGES = frozenset((cmqc.MQRC_STORAGE_NOT_AVAILABLE, cmqc.MQRC_RESOURCE_PROBLEM))


class LockedOut:
    """Counts rejected publications by client, and logs the third consecutive one with the same topic and reason.

    MQTT 3.1.1 cannot reject a publication: the client is disconnected and sends it again after each reconnect.
    """

    def __init__(self) -> None:
        #: client identifier -> (topic, reason, number of rejections)
        self._refused: OrderedDict[str, tuple[str, int, int]] = OrderedDict()

    def _rejected(self, event: PublicationRejected) -> None:
        session, message, reason = event.session, event.message, event.reason
        # An MQTT 5 client gets the reason in PUBACK or PUBREC and stays connected.
        if reason in SHORTAGES or session.level == LEVEL_MQTT_5:
            return
        client_id, topic = session.client_id, message.topic
        before = self._refused.pop(client_id, None)
        times = before[2] + 1 if before is not None and before[:2] == (topic, reason) else 1
        self._refused[client_id] = (topic, reason, times)
        if len(self._refused) > REMEMBERED:
            self._refused.popitem(last=False)
        if times == AGAIN:
            log.error(
                "MQB2102E client %r is locked out: it repeats a publication to %r, which is rejected each time: %s (%d); "
                "fix the cause, or send such publications to the dead-letter queue (refused_to_dead_letters of its channel)",
                client_id,
                topic[:200],
                cmqc.reason_name(reason),
                reason,
            )
