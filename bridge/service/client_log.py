"""Log lines derived from the events of clients.

The trace reports connections, subscriptions and publications: at the log level `debug` of all clients, otherwise of those in
`log.trace_clients`. Clients that repeatedly reconnect with a publication that the queue manager rejects are reported once.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Sequence
from fnmatch import translate
from typing import Any

from bridge.config.operations import LogLevel
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
from bridge.telemetry.transmission import Transmission
from bridge.wire import cmqc

log = logging.getLogger(__name__)


class ClientTrace:
    """Logs the events of traced clients. Subscribes to the events only while clients are traced."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._matches = re.compile("").match

    def use(self, level: LogLevel, patterns: Sequence[str]) -> None:
        """Trace the clients whose identifiers match one of the patterns, or all clients at the level `debug`."""
        self._events.unsubscribe(self)
        if not patterns and level == "debug":
            patterns = ["*"]
        if not patterns:
            return
        self._matches = re.compile("|".join(map(translate, patterns))).match
        self._events.attach(self)

    def _write(self, client_id: str, text: str, *arguments: Any) -> None:
        if self._matches(client_id):
            # The flood protection does not count these lines: an administrator has asked for all of them.
            log.info("MQB2005I trace of client %r: %s", client_id, text % arguments, extra={"is_unlimited": True})

    def _connected(self, event: ClientConnected) -> None:
        session = event.session
        user = session.identity.user.decode("utf-8", "replace")
        self._write(session.client_id, "connected via channel %s as user %r", session.channel, user)

    def _disconnected(self, event: ClientDisconnected) -> None:
        self._write(event.session.client_id, "disconnected")

    def _ended(self, event: SessionEnded) -> None:
        self._write(event.session.client_id, "session ended")

    def _subscribed(self, event: Subscribed) -> None:
        for topic_filter, qos in event.granted:
            self._write(event.session.client_id, "subscribed to %r with QoS %d", topic_filter, qos)

    def _unsubscribed(self, event: Unsubscribed) -> None:
        for topic_filter in event.filters:
            self._write(event.session.client_id, "unsubscribed from %r", topic_filter)

    def _published(self, event: Published) -> None:
        completion = event.completion
        for index, (message, retain) in enumerate(event.publications):
            reason = completion.failure or completion.refusals.get(index, 0)
            diverted = completion.diverted.get(index, 0)
            outcome = f"rejected: {cmqc.reason_name(reason)} ({reason})" if reason else "put"
            if diverted:
                outcome = f"dead-lettered: {cmqc.reason_name(diverted)} ({diverted})"
            self._write(
                event.session.client_id,
                "published to %r, QoS %d%s, %d bytes: %s",
                message.topic,
                message.qos,
                ", retained" if retain else "",
                len(message.payload),
                outcome,
            )

    def _acknowledged(self, event: Acknowledged) -> None:
        for message_id, transmission in event.effects.acknowledged:
            self._delivered(event.session, transmission, f"acknowledged packet {message_id}")
        for message_id, _, transmission in event.effects.released:
            self._delivered(event.session, transmission, f"acknowledged packet {message_id}")

    def _finished(self, event: Finished) -> None:
        for transmission in event.transmissions:
            why = event.discarded.get(transmission.msg_number)
            self._delivered(event.session, transmission, "sent with QoS 0" if why is None else f"not sent: {why}")

    def _delivered(self, session: Session, transmission: Transmission, outcome: str) -> None:
        topic = transmission.topic or transmission.remote_queue
        self._write(session.client_id, "message of topic %r: %s", topic, outcome)

    def _dead_lettered(self, event: DeadLettered) -> None:
        transmission, reason = event.transmission, event.reason
        topic = transmission.topic or transmission.remote_queue
        self._write(
            transmission.client_id, "message of topic %r dead-lettered: %s (%d)", topic, cmqc.reason_name(reason), reason
        )


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
                client_id, topic[:200], cmqc.reason_name(reason), reason,
            )  # fmt: skip
