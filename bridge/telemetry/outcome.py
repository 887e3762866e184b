"""The outcomes of messages and of the events of sessions, for the archive, metrics and traces."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of a message or event. The comments list the directions that have each outcome."""

    #: in, mapped: committed by the queue manager
    PUT = "put"
    #: in: rejected or not committed by the queue manager, and not acknowledged. mapped: rejected by the broker (at most once)
    REFUSED = "refused"
    #: out, mapped: written to the connection with QoS 0
    DELIVERED = "delivered"
    #: out, mapped: PUBACK or PUBREC received and committed
    ACKNOWLEDGED = "acknowledged"
    #: out, mapped: moved to the dead-letter queue
    DEAD_LETTERED = "dead-lettered"
    #: out: the message expired, its session ended, or (QoS 0) the client was too slow. mapped: the mapping's filter rejected
    #: the message, it looped, or (QoS 0) the link was lost. `reason` contains the cause
    DISCARDED = "discarded"
    #: subscription: `topic` is the filter, `qos` the granted QoS. Repeated every day and when the service starts
    SUBSCRIBED = "subscribed"
    #: subscription
    UNSUBSCRIBED = "unsubscribed"
    #: subscription: the session ended, with its subscriptions and backlog
    ENDED = "ended"
    #: subscription: CONNACK 0 was sent to the client
    CONNECTED = "connected"
    #: subscription: the connection ended
    DISCONNECTED = "disconnected"
    #: archive: the service started to write. Without a preceding `stopped`, the rows in memory at that time are missing
    STARTED = "started"
    #: archive: the service stopped normally, and all rows are written
    STOPPED = "stopped"
    #: archive: `size` rows between `received` and `settled` did not fit into memory or could not be written
    GAP = "gap"
