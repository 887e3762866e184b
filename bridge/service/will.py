"""Wills: publications that the bridge makes in the place of clients that are gone (MQTT 3.1.1 and 5, section 3.1.2.5)."""

from __future__ import annotations

import logging
from functools import partial

from bridge.archive.events import now_us
from bridge.mq.backend import Completion, UnitOfWork
from bridge.mqtt.packets import Publish, PublishProperties, Will
from bridge.service.client import Client
from bridge.service.events import Published
from bridge.service.sessions import Sessions
from bridge.service.timers import Timers
from bridge.service.units import forbidden_of
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.session import Session
from bridge.wire import cmqc

log = logging.getLogger(__name__)


class Wills:
    """The wills of clients whose connections ended without DISCONNECT (MQTT-3.1.2-8), and those that wait for their delay."""

    def __init__(self, service: Sessions) -> None:
        self._service = service
        self._timers = Timers()
        #: by client identifier
        self._waiting: dict[str, tuple[Will, Session]] = {}

    def leave(self, client: Client, session: Session) -> None:
        """Publish the will of a client that is gone, or have it wait for its Will Delay Interval (MQTT-3.1.3-9).

        It waits no longer than its session lasts.
        """
        will, client.will = client.will, None
        assert will is not None
        delay = (will.properties.will_delay_interval or 0) if will.properties is not None else 0
        if delay and session.expiry_interval:
            self._waiting[session.client_id] = will, session
            self._timers.set(session.client_id, delay, partial(self.publish_now, session.client_id))
        else:
            self._publish(will, session)

    def withdraw(self, client_id: str) -> None:
        """Forget the will of a client that is back."""
        self._timers.cancel(client_id)
        self._waiting.pop(client_id, None)

    def publish_now(self, client_id: str) -> None:
        """Publish a will that waits, if there is one: its delay or its session has ended."""
        self._timers.cancel(client_id)
        waiting = self._waiting.pop(client_id, None)
        if waiting is not None:
            self._publish(*waiting)

    def publish_all(self) -> None:
        """Publish all wills that wait: the bridge stops, and nobody else knows of them."""
        for client_id in list(self._waiting):
            self.publish_now(client_id)

    def _publish(self, will: Will, session: Session) -> None:
        publication = Publish(will.topic, will.payload, will.qos, will.retain, properties=_properties(will))
        message = to_mq(publication, session.identity)
        received = now_us()
        service = self._service

        def ended(completion: Completion) -> None:
            service.events.publish(Published(session, unit.publications, completion, received))
            reason = completion.failure or completion.refusals.get(0, 0)
            if reason:
                log.error(
                    "MQB2103E the will of client %r, a publication to %r as user %r, is refused: %s (%d)",
                    session.client_id,
                    will.topic,
                    session.identity.user.decode("utf-8", "replace"),
                    cmqc.reason_name(reason),
                    reason,
                )

        publications = [(message, will.retain)]
        unit = UnitOfWork(publications, forbidden=forbidden_of(session, publications))
        traces = service.units.traces
        service.units.submit(unit, ended if traces is None else traces.following(session, publications, received, ended))


def _properties(will: Will) -> PublishProperties | None:
    """Return the properties of the publication that a will becomes."""
    properties = will.properties
    if properties is None:
        return None
    return PublishProperties(
        payload_format_indicator=properties.payload_format_indicator,
        message_expiry_interval=properties.message_expiry_interval,
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        user_property=properties.user_property,
    )
