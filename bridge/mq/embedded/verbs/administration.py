"""The commands that the bridge itself needs, for any user with the authority."""

from __future__ import annotations

from bridge.mq.embedded.mqsc.display import objects
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.mqi import SubscriptionEntry


def clear_retained(hconn: Hconn, topic: str) -> Unit | None:
    """Return a unit of work that clears the retained publication of a topic, or None if nothing is retained. Raises MQError.

    The user needs CLR for the topic.
    """
    queue_manager = hconn.queue_manager
    if queue_manager.authorization is not None:
        queue_manager.authorization.check_topic(hconn.principal, topic, "CLR")
    if topic not in queue_manager.retained:
        return None
    unit = Unit()
    unit.changes.latest.append((queue_manager.retained, topic, None))
    return unit


def subscriptions(hconn: Hconn, name: str) -> list[SubscriptionEntry]:
    """Return the subscriptions with a name, which may end in `*`. The user needs DSP for all topics. Raises MQError."""
    queue_manager = hconn.queue_manager
    if queue_manager.authorization is not None:
        queue_manager.authorization.check_topic(hconn.principal, "", "DSP")
    return [
        SubscriptionEntry(
            str(row["SUB"]), str(row["TOPICSTR"]), str(row["USERDATA"]), row["DURABLE"] == "YES", str(row["DEST"])
        )
        for row in objects(queue_manager, "SUB", name)
    ]
