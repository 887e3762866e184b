"""Detection of clients that reconnect again and again with a publication that the queue manager rejects."""

from __future__ import annotations

import logging
from collections import OrderedDict

from bridge.mqtt.packets import LEVEL_MQTT_5
from bridge.service.events import EventBus, PublicationRejected
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Clients remembered; the one refused longest ago is forgotten first.
REMEMBERED = 1_000
#: Refusals of the same publication's topic after which the log names the client.
AGAIN = 3
#: Reasons of the queue manager's that no publication can cause: lack of memory and of disk have log events of their own.
SHORTAGES = frozenset((cmqc.MQRC_STORAGE_NOT_AVAILABLE, cmqc.MQRC_RESOURCE_PROBLEM))


class LockedOut:
    """Counts rejected publications by client, and logs the third one in a row to the same topic.

    MQTT 3.1.1 cannot reject a publication: the client is disconnected, and sends it again after each reconnection.
    """

    def __init__(self) -> None:
        #: client identifier -> (topic, reason, times)
        self._refused: OrderedDict[str, tuple[str, int, int]] = OrderedDict()

    def listen(self, events: EventBus) -> None:
        """Subscribe to the events of a service."""
        events.subscribe(PublicationRejected, self._rejected)

    def _rejected(self, event: PublicationRejected) -> None:
        session, message, reason = event.session, event.message, event.reason
        # A client of MQTT 5 gets the reason in its PUBACK or PUBREC, and stays connected.
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
                "MQB2102E client %r is locked out: it comes back with a publication to %r, which is refused each "
                "time: %s (%d); "
                "mend the cause, or have such publications dead-lettered (refused_to_dead_letters of its channel)",
                client_id,
                topic[:200],
                cmqc.reason_name(reason),
                reason,
            )
