"""SUBSCRIBE and UNSUBSCRIBE of a client: subscriptions named `ClientIdentifier:Topic name` at the queue manager."""

from __future__ import annotations

import logging

from bridge.archive.events import now_us
from bridge.mapping.telemetry.qos import DEFAULT_QOS_TOPIC, DIRECT_MESSAGE_QOS
from bridge.mapping.topic import topic_filter_error
from bridge.mqtt.session import Session
from bridge.service.client import Client
from bridge.service.sessions import Sessions
from bridge.wire import cmqc
from bridge.wire.mqtt import SUBACK_FAILURE, Subscribe, Unsubscribe

log = logging.getLogger(__name__)


def subscribe(service: Sessions, client: Client, session: Session, packet: Subscribe) -> None:
    """Answer SUBSCRIBE (MQTT 3.1.1 section 3.8) with SUBACK when the queue manager has the subscriptions.

    0x80 stands for a refusal.
    """
    user = session.identity.user.decode("utf-8", "replace")
    received = now_us()
    codes: list[int] = []
    wanted: list[tuple[int, str, int]] = []
    room = service.limits.subscriptions - len(session.filters)
    for topic_filter, qos in packet.topics:
        why = topic_filter_error(topic_filter)
        if why is None and len(codes) >= service.limits.subscribe_filters:
            why = f"a SUBSCRIBE has at most {service.limits.subscribe_filters} topic filters (limits.subscribe_filters)"
        elif why is None and topic_filter not in session.filters and room <= 0:
            why = f"a client has at most {service.limits.subscriptions} subscriptions (limits.subscriptions)"
        if why is not None:
            log.warning("client %s: subscription to %r is refused: %s", client.peer, topic_filter, why)
        else:
            room -= topic_filter not in session.filters
            wanted.append((len(codes), topic_filter, qos))
        codes.append(SUBACK_FAILURE)

    added = {topic_filter for _, topic_filter, _ in wanted} - session.filters

    def done(reasons: list[int]) -> None:
        client.release(len(wanted))
        for (position, topic_filter, qos), reason in zip(wanted, reasons, strict=True):
            if reason:
                log.warning(
                    "client %s: subscription to %r as user %r is refused: %s (%d)",
                    client.peer,
                    topic_filter,
                    user,
                    cmqc.reason_name(reason),
                    reason,
                )
                if topic_filter in added:
                    session.filters.discard(topic_filter)
                continue
            codes[position] = qos
            if topic_filter == DEFAULT_QOS_TOPIC:
                session.outbox.direct_qos = qos
        client.protocol.suback(packet.message_id, codes)
        client.transport.flush()
        granted = [(topic_filter, qos) for position, topic_filter, qos in wanted if codes[position] == qos]
        service.observers.subscribed(session, granted, received)

    session.filters |= added
    client.hold(len(wanted))
    service.backend.subscribe(
        session.client_id,
        [(topic_filter, qos) for _, topic_filter, qos in wanted],
        done,
        durable=session.durable,
        user=user,
    )


def unsubscribe(service: Sessions, client: Client, session: Session, packet: Unsubscribe) -> None:
    """Answer UNSUBSCRIBE (MQTT 3.1.1 section 3.10) with UNSUBACK when the subscriptions are gone."""
    session.filters.difference_update(packet.topics)
    received = now_us()

    client.hold(len(packet.topics))

    def done() -> None:
        client.release(len(packet.topics))
        if DEFAULT_QOS_TOPIC in packet.topics:
            session.outbox.direct_qos = DIRECT_MESSAGE_QOS
        client.protocol.unsuback(packet.message_id)
        client.transport.flush()
        service.observers.unsubscribed(session, packet.topics, received)

    service.backend.unsubscribe(session.client_id, packet.topics, done)
