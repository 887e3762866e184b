"""The subscription of a client at the queue manager: its name, and where its messages go (integration table 3)."""

from __future__ import annotations

#: Destination queue of clients' subscriptions, at the remote queue manager that a client is to MQ.
PUBLICATION_QUEUE = "SYSTEM.MQTT.PUBLICATION.QUEUE"


def subscription_name(client_id: str, topic_filter: str) -> str:
    """Return the name of an MQTT client's subscription: `ClientIdentifier:Topic name`."""
    return f"{client_id}:{topic_filter}"
