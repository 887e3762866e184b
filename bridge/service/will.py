"""The will of a client: a publication that the bridge makes in its place (MQTT 3.1.1 section 3.1.2.5)."""

from __future__ import annotations

import logging

from bridge.archive.events import now_us
from bridge.mapping.telemetry.to_mq import to_mq
from bridge.mq.unit_of_work import Completion, UnitOfWork
from bridge.mqtt.session import Session
from bridge.service.client import Client
from bridge.service.sessions import Sessions
from bridge.wire import cmqc
from bridge.wire.mqtt import Publish

log = logging.getLogger(__name__)


def publish_will(service: Sessions, client: Client, session: Session) -> None:
    """Publish the will of a client whose connection ended without DISCONNECT (MQTT-3.1.2-8)."""
    will = client.will
    assert will is not None
    client.will = None
    message = to_mq(Publish(will.topic, will.payload, will.qos, will.retain), session.identity)
    received = now_us()

    def ended(completion: Completion) -> None:
        service.observers.published(session, unit.publications, completion, received)
        reason = completion.failure or completion.refusals.get(0, 0)
        if reason:
            log.error(
                "the will of client %s, a publication to %r as user %r, is refused: %s (%d)",
                client.peer,
                will.topic,
                session.identity.user.decode("utf-8", "replace"),
                cmqc.reason_name(reason),
                reason,
            )

    unit = UnitOfWork()
    unit.publications.append((message, will.retain))
    service.units.submit(unit, ended)
