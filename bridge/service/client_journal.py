"""Recent events and messages of individual clients, kept in memory for the console."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from typing import Final, Literal

import msgspec

from bridge.administration.answers import ClientEvent, ClientMessage, ClientTraffic
from bridge.mapping.message_view import MessageView, body_text
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


class TooManyWatched(Exception):
    """No other client can be watched now."""


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
    """Subscribes to the events of a service. All methods are called on its event loop."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._kept: OrderedDict[str, deque[ClientEvent]] = OrderedDict()
        self._watched: dict[str, _Watched] = {}
        self._listener: _Listener | None = None
        self._timer: asyncio.TimerHandle | None = None
        events.subscribe(ClientConnected, lambda event: self._note(event.session.client_id, _connected(event.session)))
        events.subscribe(ClientDisconnected, lambda event: self._note(event.session.client_id, "disconnected"))
        events.subscribe(SessionEnded, lambda event: self._note(event.session.client_id, "session ended"))
        events.subscribe(Subscribed, self._subscribed)
        events.subscribe(Unsubscribed, self._unsubscribed)
        events.subscribe(PublicationRejected, self._rejected)
        events.subscribe(DeadLettered, self._dead_lettered)

    def events_of(self, client_id: str) -> list[ClientEvent]:
        """Return the events of a client, the newest first."""
        return list(self._kept.get(client_id, ()))[::-1]

    def _note(self, client_id: str, text: str) -> None:
        events = self._kept.get(client_id)
        if events is None:
            events = self._kept[client_id] = deque(maxlen=MOST_EVENTS)
            if len(self._kept) > MOST_CLIENTS:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(client_id)
        events.append(ClientEvent(time.time(), text[:_TEXT]))

    def _subscribed(self, event: Subscribed) -> None:
        granted = ", ".join(f"{topic} (QoS {qos})" if qos < 3 else f"{topic} (rejected)" for topic, qos in event.granted[:5])
        self._note(event.session.client_id, f"subscribed to {granted}{', …' if len(event.granted) > 5 else ''}")

    def _unsubscribed(self, event: Unsubscribed) -> None:
        self._note(event.session.client_id, f"unsubscribed from {', '.join(event.filters[:5])}")

    def _rejected(self, event: PublicationRejected) -> None:
        reason = cmqc.reason_name(event.reason)
        self._note(event.session.client_id, f"publication to {event.message.topic} rejected: {reason}")

    def _dead_lettered(self, event: DeadLettered) -> None:
        transmission = event.transmission
        topic, reason = transmission.topic or transmission.remote_queue, cmqc.reason_name(event.reason)
        self._note(transmission.client_id, f"message of topic {topic} dead-lettered: {reason}")

    def watch(self, client_id: str, after: int, payloads: bool) -> ClientTraffic:
        """Return the messages of a client with higher numbers, and keep recording. Raises TooManyWatched."""
        self._forget_silent()
        watched = self._watched.get(client_id)
        if watched is None:
            if len(self._watched) >= MOST_WATCHED:
                raise TooManyWatched(f"{MOST_WATCHED} clients are watched, and that is the limit")
            watched = self._watched[client_id] = _Watched()
            if self._listener is None:
                self._listener = _Listener(self._watched)
                self._listener.listen(self._events)
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
        if not self._watched and self._listener is not None:
            self._events.unsubscribe(self._listener)
            self._listener = None


class _Listener:
    """Records the messages of watched clients. It is subscribed only while there are any."""

    def __init__(self, watched: dict[str, _Watched]) -> None:
        self._watched = watched

    def listen(self, events: EventBus) -> None:
        events.subscribe(Published, self._published)
        events.subscribe(Acknowledged, self._acknowledged)
        events.subscribe(Finished, self._finished)

    def _published(self, event: Published) -> None:
        watched = self._watched.get(event.session.client_id)
        if watched is not None:
            for message, _ in event.publications:
                watched.add("published", message.topic, message.qos, message.payload)

    def _acknowledged(self, event: Acknowledged) -> None:
        watched, effects = self._watched.get(event.session.client_id), event.effects
        if watched is not None:
            for _, transmission in effects.acknowledged:
                _delivered(watched, transmission, 1)
            for _, _, transmission in effects.released:
                _delivered(watched, transmission, 2)

    def _finished(self, event: Finished) -> None:
        watched = self._watched.get(event.session.client_id)
        if watched is not None:
            for transmission in event.transmissions:
                if transmission.msg_number not in event.discarded:
                    _delivered(watched, transmission, 0)


def _delivered(watched: _Watched, transmission: Transmission, qos: int) -> None:
    message = transmission.message
    payload = message.payload if isinstance(message, PublicationMessage) else MessageView(message.md, message.data).body
    watched.add("delivered", transmission.topic or transmission.remote_queue, qos, payload)


def _connected(session: Session) -> str:
    return f"connected to channel {session.channel} as {session.identity.user.decode('utf-8', 'replace')}"
