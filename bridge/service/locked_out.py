"""Clients that come back again and again with a publication that the queue manager refuses."""

from __future__ import annotations

import logging
from collections import OrderedDict

from bridge.mqtt.packets import LEVEL_MQTT_5
from bridge.service.observers import Observer
from bridge.telemetry.session import Session
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Clients remembered; the one refused longest ago is forgotten first.
REMEMBERED = 1_000
#: Refusals of the same publication's topic after which the log names the client.
AGAIN = 3
#: Reasons of the queue manager's that no publication can cause: lack of memory and of disk have log events of their own.
SHORTAGES = frozenset((cmqc.MQRC_STORAGE_NOT_AVAILABLE, cmqc.MQRC_RESOURCE_PROBLEM))


class LockedOut(Observer):
    """Counts refusals by client.

    MQTT 3.1.1 cannot refuse a publication: the client is disconnected and sends it again when it is back, for ever.
    """

    def __init__(self) -> None:
        #: client identifier -> (topic, reason, times)
        self._refused: OrderedDict[str, tuple[str, int, int]] = OrderedDict()

    def refused(self, session: Session, message: PublicationMessage, reason: int) -> None:
        """Count a refusal; the third of the same topic is told, once."""
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
