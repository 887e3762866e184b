"""What a link tells of itself: its state, its counters, what its broker grants, and what the broker refused."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec


class LinkPhase(enum.StrEnum):
    """Where a link is on its way to the broker."""

    #: an attempt is under way: TCP, TLS, CONNECT, SUBSCRIBE
    CONNECTING = enum.auto()
    #: CONNACK and, where the link subscribes, SUBACK are there
    CONNECTED = enum.auto()
    #: the last attempt failed; the next one comes after a pause
    WAITING = enum.auto()
    #: not started yet, or stopped
    STOPPED = enum.auto()


class LinkState(msgspec.Struct, frozen=True):
    """The state of a link at one moment."""

    phase: LinkPhase
    #: what the last attempt or connection ended with, for a person; "" where nothing went wrong since the last success
    error: str = ""
    #: seconds until the next attempt, while waiting
    pause: float = 0.0
    #: host and port of the broker that is in use, or tried
    address: str = ""


class LinkCounters(msgspec.Struct):
    """Numbers since the start of a link."""

    #: publications that came from the broker
    received: int = 0
    #: those of them that were answered with PUBACK or PUBREC
    acknowledged: int = 0
    #: publications that the broker took: written (QoS 0), or answered by PUBACK or PUBREC (QoS 1 and 2)
    sent: int = 0
    #: publications that the broker, or what it allows, refused
    refused: int = 0
    #: connections made after the first one
    reconnects: int = 0


class Limits(msgspec.Struct, frozen=True):
    """What the broker allows, from CONNACK (MQTT 5 section 3.2.2.3); MQTT 3.1.1 knows no such limits."""

    #: unanswered publications with QoS 1 and 2
    receive_maximum: int = 65535
    maximum_qos: int = 2
    retain_available: bool = True
    #: bytes of a packet, its fixed header included
    maximum_packet_size: int = 268_435_460


class Refusal(msgspec.Struct, frozen=True):
    """A publication that the broker does not take, now or ever: there is no use in sending it again as it is."""

    #: MQTT 5 reason code, 0x80 or above (section 2.4); the link's own findings have the one that a broker would give
    reason: int
    #: name of the reason and, where there is one, the broker's Reason String
    text: str


class LinkLost(Exception):
    """There is no connection to the broker, or it broke before all was answered; what was sent may or may not be there."""

    #: after `publish`: indices of the publications that the broker has not acknowledged; None: unknown
    unanswered: Sequence[int] | None = None


class LinkRefused(LinkLost):
    """The broker refused CONNECT or SUBSCRIBE for a reason that hardly heals by itself, such as a wrong password."""
