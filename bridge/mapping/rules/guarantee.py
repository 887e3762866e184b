"""What a mapping's guarantee means for QoS on a link."""

from __future__ import annotations

from typing import Final

#: QoS on a link by a mapping's guarantee: of its subscription, and at least of what it publishes.
GUARANTEED_QOS: Final = {"at-most-once": 0, "at-least-once": 1, "exactly-once": 2}


def published_qos(guarantee: str, qos: int, maximum: int = 2) -> int:
    """Return the QoS with which a publication goes to a broker that takes `maximum` at most.

    The guarantee needs at least its own; at most once is QoS 0. More than the guarantee needs is not worth a refusal.
    """
    needed = GUARANTEED_QOS[guarantee]
    return max(needed, min(qos, maximum)) if needed else 0


def received_qos(guarantee: str, qos: int) -> int:
    """Return the QoS with which a publication comes from a broker: that of the subscription at most."""
    return min(qos, GUARANTEED_QOS[guarantee])
