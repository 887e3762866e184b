"""The journal of clients: their history, the traces that administrators request, and the trace in the log.

The history contains the events of all clients (`bridge.service.client_history`). A trace also contains the messages of one
client. Administrators read it while it is recorded. The log contains a trace of the clients in `log.trace_clients`, or of all
clients at the level `debug`. Clients that repeatedly reconnect with a publication that the queue manager rejects are reported
once.
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

from bridge.administration.answers import ClientEventKind, ClientTrace, TraceEntry
from bridge.administration.protocol import Refused
from bridge.config.operations import LogLevel
from bridge.mapping.message_view import MessageView, body_text
from bridge.mqtt.packets import LEVEL_MQTT_5
from bridge.mqtt.reason_codes import ReasonCode
from bridge.service.client_history import ClientEventHistory
from bridge.service.events import (
    Acknowledged,
    ClientConnected,
    ClientDisconnected,
    ConnectRejected,
    DeadLettered,
    EventBus,
    Finished,
    MessagesDropped,
    PublicationRejected,
    Published,
    SessionEnded,
    Subscribed,
    Unsubscribed,
)
from bridge.telemetry.session import Session
from bridge.telemetry.transmission import PublicationMessage, Transmission
from bridge.transport.stream import BY_CLIENT, CONNECTION_LOST, TRANSPORT_ERROR
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Maximum number of traced clients, and of entries kept for each.
MAX_TRACED: Final = 8
MAX_ENTRIES: Final = 1_000
#: Seconds after the last request until a client is no longer traced.
IDLE_TIMEOUT: Final = 15.0
#: Bytes of a payload that are kept.
PAYLOAD: Final = 1_000
#: Events of clients, and events with their messages.
_CHANGES: Final = (
    ClientConnected,
    ClientDisconnected,
    ConnectRejected,
    SessionEnded,
    Subscribed,
    Unsubscribed,
    PublicationRejected,
    DeadLettered,
    MessagesDropped,
)
_MESSAGES: Final = (Published, Acknowledged, Finished)
#: Maximum number of topic filters of one request that are kept as events.
_MAX_FILTERS: Final = 5
_TAKEN_OVER: Final = ReasonCode.SESSION_TAKEN_OVER.name.lower()
#: Why a connection ended, if the bridge did not end it.
_ENDS: Final = {
    BY_CLIENT: "disconnected by the client",
    CONNECTION_LOST: "lost, without DISCONNECT",
    TRANSPORT_ERROR: "ended by an error of TLS, WebSocket or the PROXY protocol",
}


class _Trace:
    """The trace of a client."""

    def __init__(self) -> None:
        self.asked_at = 0.0
        self.number = 0
        self.entries: deque[TraceEntry] = deque(maxlen=MAX_ENTRIES)

    def note(self, text: str) -> None:
        """Add an event."""
        self.number += 1
        self.entries.append(TraceEntry(number=self.number, time=time.time(), kind="event", text=text))

    def add(
        self, kind: Literal["published", "delivered"], text: str, topic: str, qos: int | None, payload: bytes
    ) -> None:
        """Add a message."""
        self.number += 1
        self.entries.append(
            TraceEntry(
                number=self.number,
                time=time.time(),
                kind=kind,
                text=text,
                topic=topic,
                qos=qos,
                size=len(payload),
                payload=body_text(payload[:PAYLOAD]),
            )
        )


class ClientJournal:
    """Subscribes to the events of a service that its history and traces need. All methods are called on its event loop."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        #: None in tests
        self.history: ClientEventHistory | None = None
        #: matches the identifiers of clients with a trace in the log; None if there are none
        self._logged: re.Pattern[str] | None = None
        self._traces: dict[str, _Trace] = {}
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, history: ClientEventHistory) -> None:
        """Keep the events of all clients."""
        self.history = history
        self._subscribe()

    def trace_to_log(self, level: LogLevel, patterns: Sequence[str]) -> None:
        """Log the clients whose identifiers match one of the patterns, or all clients at the level `debug`."""
        if not patterns and level == "debug":
            patterns = ["*"]
        self._logged = re.compile("|".join(map(translate, patterns))) if patterns else None
        self._subscribe()

    def _subscribe(self) -> None:
        self._events.unsubscribe(self)
        if self.history is not None or self._traces or self._logged is not None:
            self._events.attach(self, _CHANGES)
        if self._traces or self._logged is not None:
            self._events.attach(self, _MESSAGES)

    def _note(self, client_id: str, kind: ClientEventKind, text: str) -> None:
        """Keep an event and write it to the traces."""
        self._write(client_id, text)
        self._keep(client_id, kind, text)

    def _keep(self, client_id: str, kind: ClientEventKind, text: str, number: int = 1) -> None:
        if self.history is not None:
            self.history.add(client_id, kind, text, number)

    def _write(self, client_id: str, text: str) -> None:
        trace = self._traces.get(client_id)
        if trace is not None:
            trace.note(text)
        self._log(client_id, text)

    def _log(self, client_id: str, text: str) -> None:
        if self._logged is not None and self._logged.match(client_id):
            # The flood protection does not count these lines: an administrator has asked for all of them.
            log.info("MQB2005I trace of client %r: %s", client_id, text, extra={"is_unlimited": True})

    def _connected(self, event: ClientConnected) -> None:
        session = event.session
        user = session.identity.user.decode("utf-8", "replace")
        place = f" from {event.address}" if event.address else ""
        kind = f"{'durable' if session.durable else 'clean'} session{', resumed' if event.is_resumed else ''}"
        text = f"connected via channel {session.channel}{place} as user {user!r}: {kind}"
        self._note(session.client_id, "connected", text)

    def _disconnected(self, event: ClientDisconnected) -> None:
        place = f" from {event.address}" if event.address else ""
        by_bridge = f"ended by the bridge: {event.why or event.reason.replace('_', ' ')}"
        end = by_bridge if event.why else _ENDS.get(event.reason, by_bridge)
        kind: ClientEventKind = "taken_over" if event.reason == _TAKEN_OVER else "disconnected"
        self._note(event.session.client_id, kind, f"connection{place} {end}")

    def _connect_rejected(self, event: ConnectRejected) -> None:
        text = f"connection from {event.address} to channel {event.channel} rejected: {event.why}"
        self._note(event.client_id, "rejected", text)

    def _ended(self, event: SessionEnded) -> None:
        self._note(event.session.client_id, "session_ended", "session ended")

    def _subscribed(self, event: Subscribed) -> None:
        granted = [f"{topic!r} with QoS {qos}" if qos < 3 else f"{topic!r}, rejected" for topic, qos in event.granted]
        self._note_each(event.session, "subscribed", "subscribed to", granted)

    def _unsubscribed(self, event: Unsubscribed) -> None:
        filters = [repr(topic_filter) for topic_filter in event.filters]
        self._note_each(event.session, "unsubscribed", "unsubscribed from", filters)

    def _note_each(self, session: Session, kind: ClientEventKind, verb: str, filters: list[str]) -> None:
        """Trace all topic filters, but keep only the first ones: a request can have thousands."""
        for topic_filter in filters:
            self._write(session.client_id, f"{verb} {topic_filter}")
        for topic_filter in filters[:_MAX_FILTERS]:
            self._keep(session.client_id, kind, f"{verb} {topic_filter}")
        if (more := len(filters) - _MAX_FILTERS) > 0:
            self._keep(session.client_id, kind, f"{verb} {more:,} more topic filters in the same request")

    def _rejected(self, event: PublicationRejected) -> None:
        # The trace has a line for each publication.
        text = f"publication to {event.message.topic!r} rejected: {cmqc.reason_name(event.reason)}"
        self._keep(event.session.client_id, "publication_rejected", text)

    def _dead_lettered(self, event: DeadLettered) -> None:
        topic = _topic(event.transmission)
        reason = f"{cmqc.reason_name(event.reason)} ({event.reason})"
        text = f"message of topic {topic!r} dead-lettered: {reason}"
        self._note(event.transmission.client_id, "dead_lettered", text)

    def _dropped(self, event: MessagesDropped) -> None:
        self._write(event.owner, f"{event.number:,} messages dropped: {event.why}")
        self._keep(event.owner, "dropped", f"message dropped: {event.why}", event.number)

    def trace(self, client_id: str, after: int, payloads: bool) -> ClientTrace:
        """Return the entries of a client's trace with higher numbers, and keep recording. Raises Refused."""
        self._forget_silent()
        trace = self._traces.get(client_id)
        if trace is None:
            if len(self._traces) >= MAX_TRACED:
                raise Refused(f"at most {MAX_TRACED} clients can be traced at a time")
            trace = self._traces[client_id] = _Trace()
            self._subscribe()
        trace.asked_at = time.monotonic()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_TIMEOUT, self._review)
        entries = [entry for entry in trace.entries if entry.number > after]
        if not payloads:
            entries = [msgspec.structs.replace(entry, payload=None) for entry in entries]
        missed = entries[0].number - after - 1 if entries and after else 0
        return ClientTrace(entries=entries, missed=missed)

    def _review(self) -> None:
        self._timer = None
        self._forget_silent()
        if self._traces:
            self._timer = asyncio.get_running_loop().call_later(IDLE_TIMEOUT, self._review)

    def _forget_silent(self) -> None:
        now = time.monotonic()
        for client_id, trace in list(self._traces.items()):
            if now - trace.asked_at > IDLE_TIMEOUT:
                del self._traces[client_id]
        if not self._traces:
            self._subscribe()

    # Messages ---------------------------------------------------------------------------------------------------------

    def _published(self, event: Published) -> None:
        client_id, completion = event.session.client_id, event.completion
        trace = self._traces.get(client_id)
        if trace is None and self._logged is None:
            return
        for index, (message, retain) in enumerate(event.publications):
            reason = completion.failure or completion.refusals.get(index, 0)
            diverted = completion.diverted.get(index, 0)
            outcome = f"rejected: {cmqc.reason_name(reason)} ({reason})" if reason else "put"
            if diverted:
                outcome = f"dead-lettered: {cmqc.reason_name(diverted)} ({diverted})"
            if violation := event.invalid.get(index):
                outcome = f"{outcome}: {violation}"
            retained = ", retained" if retain else ""
            if trace is not None:
                trace.add("published", outcome + retained, message.topic, message.qos, message.payload)
            text = f"published to {message.topic!r}, QoS {message.qos}{retained}"
            self._log(client_id, f"{text}, {len(message.payload)} bytes: {outcome}")

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
        trace = self._traces.get(session.client_id)
        if trace is not None:
            message = transmission.message
            if isinstance(message, PublicationMessage):
                payload = message.payload
            else:
                payload = MessageView(message.md, message.data).body
            trace.add("delivered", outcome, _topic(transmission), qos, payload)
        self._log(session.client_id, f"message of topic {_topic(transmission)!r}: {outcome}")


def _topic(transmission: Transmission) -> str:
    return transmission.topic or transmission.remote_queue


# Clients that are locked out ------------------------------------------------------------------------------------------

#: Maximum number of remembered clients. The client with the oldest rejection is forgotten first.
MAX_REMEMBERED = 1_000
#: Number of rejections for the same topic and reason after which the client is logged.
REJECTIONS_UNTIL_LOGGED = 3
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
        if len(self._refused) > MAX_REMEMBERED:
            self._refused.popitem(last=False)
        if times == REJECTIONS_UNTIL_LOGGED:
            log.error(
                "MQB2102E client %r is locked out: it repeats a publication to %r, which is rejected each time: %s (%d); "
                "fix the cause, or send such publications to the dead-letter queue (refused_to_dead_letters of its channel)",
                client_id,
                topic[:200],
                cmqc.reason_name(reason),
                reason,
            )
