"""Messages and subscriptions whose time has run down (MQMD.Expiry; MQSD.SubExpiry)."""

from __future__ import annotations

import time

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit


def expire(queue_manager: QueueManager) -> None:
    """Remove what has expired, also where nobody gets or browses: on queues of clients that are away, and retained."""
    now = time.time()
    with queue_manager.lock:
        unit = Unit()
        for name, subscription in list(queue_manager.topics.subscriptions.items()):
            if subscription.expires_at and subscription.expires_at <= now:
                queue_manager.remove_subscription(unit, name)
        if not unit.empty:
            queue_manager.recovery_log.submit(unit)
        for queue in list(queue_manager.queues.values()):
            if not queue.expiring:
                continue
            queue.expiring = False
            for stored in queue.messages():
                if stored.expired:
                    queue_manager.discard(stored)
                elif stored.expires_at:
                    queue.expiring = True
