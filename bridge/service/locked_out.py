"""Detection of clients that repeatedly reconnect with a publication that the queue manager rejects."""

from __future__ import annotations

import logging
from collections import OrderedDict

from bridge.mqtt.packets import LEVEL_MQTT_5
from bridge.service.events import EventBus, PublicationRejected
from bridge.wire import cmqc

log = logging.getLogger(__name__)

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

    def listen(self, events: EventBus) -> None:
        """Subscribe to the events of a service."""
        events.subscribe(PublicationRejected, self._rejected)

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
