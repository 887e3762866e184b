"""Subscriptions as MQTT clients of 3.1.1 ask for them: filters, each with a QoS."""

from __future__ import annotations

from bridge.mq.backend import SubscriptionRequest
from bridge.telemetry.subscription import SubscriptionData


def requests(*filters: tuple[str, int]) -> list[SubscriptionRequest]:
    """Return what a backend is asked for."""
    return [SubscriptionRequest(topic_filter, SubscriptionData(qos)) for topic_filter, qos in filters]
