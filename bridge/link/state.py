"""State, counters, limits and errors of a link."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from bridge.histogram import Histogram
from bridge.link.violations import Violation


class LinkPhase(enum.StrEnum):
    """The connection phase of a link."""

    #: connecting: TCP, TLS, CONNECT, SUBSCRIBE
    CONNECTING = enum.auto()
    #: CONNACK and, if the link subscribes, SUBACK were received
    CONNECTED = enum.auto()
    #: waiting for the next attempt after a failure
    WAITING = enum.auto()
    #: not started, or stopped
    STOPPED = enum.auto()


class LinkState(msgspec.Struct, frozen=True):
    """A snapshot of a link's state."""

    phase: LinkPhase
    #: the error of the last attempt or connection, for display, or "" if none occurred since the last success
    error: str = ""
    #: seconds until the next attempt, in phase WAITING
    pause: float = 0.0
    #: host and port of the current broker address
    address: str = ""


class LinkCounters(msgspec.Struct):
    """Counters since the start of a link."""

    #: publications received from the broker
    received: int = 0
    #: received publications acknowledged with PUBACK or PUBREC
    acknowledged: int = 0
    #: publications accepted by the broker: written (QoS 0), or acknowledged with PUBACK or PUBREC (QoS 1 and 2)
    sent: int = 0
    #: publications rejected by the broker, or by the link because of the broker's limits
    refused: int = 0
    #: connections made after the first one
    reconnects: int = 0
    #: durations of batches of publications, from the first PUBLISH to the last acknowledgement
    seconds: Histogram = msgspec.field(default_factory=Histogram)


class Limits(msgspec.Struct, frozen=True):
    """The broker's limits, from CONNACK (MQTT 5 section 3.2.2.3). MQTT 3.1.1 has no such limits."""

    #: maximum number of unacknowledged QoS 1 and 2 publications
    receive_maximum: int = 65535
    maximum_qos: int = 2
    retain_available: bool = True
    #: bytes of a packet, including its fixed header
    maximum_packet_size: int = 268_435_460


class PublicationRefusal(msgspec.Struct, frozen=True):
    """A permanent rejection of a publication. Sending it again unchanged is useless."""

    #: MQTT 5 reason code, 0x80 or above (section 2.4). For the link's own checks, the code that a broker would return
    reason: int
    #: name of the reason and, if present, the broker's Reason String
    text: str


class LinkLost(Exception):
    """The link is not connected, or the connection broke during a call. The broker may have received the sent packets."""

    #: after `publish`, indices of the publications that the broker has not acknowledged, or None if unknown
    unanswered: Sequence[int] | None = None
    #: the call has sent nothing
    unsent = False
    #: the broker's violation of the protocol, so that no message is at fault, or None
    violation: Violation | None = None


class LinkRefused(LinkLost):
    """The broker rejected CONNECT or SUBSCRIBE for a probably permanent reason, such as a wrong password."""
