"""SUBSCRIBE and UNSUBSCRIBE of a client: subscriptions named `ClientIdentifier:Topic name` at the queue manager."""

from __future__ import annotations

import itertools
import logging

from bridge.archive.events import now_us
from bridge.mapping.telemetry.qos import DEFAULT_QOS_TOPIC, DIRECT_MESSAGE_QOS
from bridge.mapping.telemetry.reason_code import reason_code_of
from bridge.mapping.telemetry.subscription import SubscriptionData
from bridge.mapping.topic import topic_filter_error
from bridge.mq.backend import SubscriptionRequest
from bridge.mqtt.session import Session
from bridge.service.client import Client
from bridge.service.sessions import Sessions
from bridge.wire import cmqc
from bridge.wire.mqtt import LEVEL_MQTT_5, SUBACK_FAILURE, ReasonCode, Subscribe, SubscriptionOptions, Unsubscribe

log = logging.getLogger(__name__)


def subscribe(service: Sessions, client: Client, session: Session, packet: Subscribe) -> None:
    """Answer SUBSCRIBE (MQTT 3.1.1 section 3.8) with SUBACK when the queue manager has the subscriptions.

    0x80 stands for a refusal.
    """
    user = session.identity.user.decode("utf-8", "replace")
    received = now_us()
    version_5 = client.protocol.level == LEVEL_MQTT_5
    codes: list[int] = []
    wanted: list[tuple[int, SubscriptionRequest]] = []
    identifier = packet.properties.subscription_identifier if packet.properties is not None else None
    plain = itertools.repeat(SubscriptionOptions())
    room = service.limits.subscriptions - len(session.filters)
    for (topic_filter, qos), options in zip(packet.topics, packet.options or plain, strict=False):
        why, code = topic_filter_error(topic_filter), ReasonCode.TOPIC_FILTER_INVALID
        if why is None and version_5 and topic_filter.startswith("$share/"):
            why, code = "there are no shared subscriptions here", ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        elif why is None and len(codes) >= service.limits.subscribe_filters:
            why = f"a SUBSCRIBE has at most {service.limits.subscribe_filters} topic filters (limits.subscribe_filters)"
            code = ReasonCode.QUOTA_EXCEEDED
        elif why is None and topic_filter not in session.filters and room <= 0:
            why = f"a client has at most {service.limits.subscriptions} subscriptions (limits.subscriptions)"
            code = ReasonCode.QUOTA_EXCEEDED
        if why is not None:
            log.warning("client %s: subscription to %r is refused: %s", client.peer, topic_filter, why)
        else:
            room -= topic_filter not in session.filters
            data = SubscriptionData(qos, options.no_local, options.retain_as_published, identifier)
            handling = options.retain_handling
            retained = not handling or (handling == 1 and topic_filter not in session.filters)
            wanted.append((len(codes), SubscriptionRequest(topic_filter, data, retained)))
        codes.append(code if version_5 else SUBACK_FAILURE)

    added = {request.topic_filter for _, request in wanted} - session.filters

    def done(reasons: list[int]) -> None:
        client.release(len(wanted))
        granted = []
        for (position, request), reason in zip(wanted, reasons, strict=True):
            topic_filter, qos = request.topic_filter, request.data.qos
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
                codes[position] = reason_code_of(reason) if version_5 else SUBACK_FAILURE
                continue
            codes[position] = qos
            granted.append((topic_filter, qos))
            if topic_filter == DEFAULT_QOS_TOPIC:
                session.outbox.direct_qos = qos
        client.protocol.suback(packet.message_id, codes)
        client.transport.flush()
        service.observers.subscribed(session, granted, received)

    session.filters |= added
    client.hold(len(wanted))
    service.backend.subscribe(
        session.client_id,
        [request for _, request in wanted],
        done,
        durable=session.durable,
        user=user,
    )


def unsubscribe(service: Sessions, client: Client, session: Session, packet: Unsubscribe) -> None:
    """Answer UNSUBSCRIBE (MQTT 3.1.1 section 3.10) with UNSUBACK when the subscriptions are gone."""
    codes = [
        ReasonCode.SUCCESS if topic_filter in session.filters else ReasonCode.NO_SUBSCRIPTION_EXISTED
        for topic_filter in packet.topics
    ]
    session.filters.difference_update(packet.topics)
    received = now_us()

    client.hold(len(packet.topics))

    def done() -> None:
        client.release(len(packet.topics))
        if DEFAULT_QOS_TOPIC in packet.topics:
            session.outbox.direct_qos = DIRECT_MESSAGE_QOS
        client.protocol.unsuback(packet.message_id, codes)
        client.transport.flush()
        service.observers.unsubscribed(session, packet.topics, received)

    service.backend.unsubscribe(session.client_id, packet.topics, done)
