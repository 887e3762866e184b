"""A message on the transmission queue, as those who deliver it see it; the queue manager's side provides it."""

from __future__ import annotations

import math
from typing import Protocol

from bridge.mapping.telemetry.message import AnyMessage


class Transmission(Protocol):
    """A message on the transmission queue, waiting for the client that its MQXQH names."""

    #: RemoteQMgrName: the client identifier
    client_id: str
    #: RemoteQName: the topic that an application put a direct message to
    remote_queue: str
    message: AnyMessage
    #: topic string published with; None for a message put straight to the client
    topic: str | None
    #: user data of the subscription that it came for; None without a subscription
    user_data: str | None
    #: it comes as a retained publication
    retained: bool
    persistent: bool
    #: last eight bytes of MQMD.MsgId on the transmission queue, as a number
    msg_number: int
    #: seconds since the epoch when it was put; 0.0 where the message itself has to say so
    put_time: float

    @property
    def raw(self) -> bytes | None:
        """Return the data as they lie on the transmission queue of IBM MQ, MQXQH included; None: there are parts only."""

    @property
    def expired(self) -> bool:
        """Return whether the MQMD.Expiry of the message has run down."""

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds until the MQMD.Expiry of the message runs down; None: it has none."""


def message_expiry_interval(transmission: Transmission) -> int | None:
    """Return the Message Expiry Interval of a message as it leaves: what is left of it (MQTT-3.3.2-6); None for none.

    A part of a second counts as one.
    """
    left = transmission.seconds_left
    return None if left is None else max(math.ceil(left), 0)
