"""The will of a client: a publication that the bridge makes in its place (MQTT 3.1.1 section 3.1.2.5)."""

from __future__ import annotations

import logging

from bridge.archive.recorder import now_us
from bridge.mapping.telemetry.to_mq import to_mq
from bridge.mq.backend import UnitOfWork
from bridge.mqtt.channel import Connection
from bridge.mqtt.session import Session
from bridge.service.sessions import Sessions
from bridge.wire import cmqc
from bridge.wire.mqtt import Publish

log = logging.getLogger(__name__)


def publish_will(service: Sessions, connection: Connection, session: Session) -> None:
    """Publish the will of a client whose connection ended without DISCONNECT (MQTT-3.1.2-8)."""
    will = connection.will
    assert will is not None
    connection.will = None
    message = to_mq(Publish(will.topic, will.payload, will.qos, will.retain), session.identity)
    received = now_us()

    def done(unit: UnitOfWork) -> None:
        if service.archive is not None:
            service.archive.published(session, unit.publications, unit, received)
        reason = unit.failure or unit.refusals.get(0, 0)
        if reason:
            log.error(
                "the will of client %s, a publication to %r as user %r, is refused: %s (%d)",
                connection.client,
                will.topic,
                session.identity.user.decode("utf-8", "replace"),
                cmqc.reason_name(reason),
                reason,
            )

    unit = UnitOfWork(done)
    unit.publications.append((message, will.retain))
    service.backend.execute(unit)
