"""The MQ interface: MQI verbs in Python, one signature for every queue manager.

Names of fields and options are those of IBM's MQI (IBM MQ documentation, "MQI application reference"). A connection
belongs to one thread at a time. Every verb raises MQError with the reason code that a queue manager gives.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from bridge.mapping.message import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


class MQOD(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Object descriptor: what MQOPEN and MQPUT1 name."""

    ObjectType: int = cmqc.MQOT_Q
    ObjectName: str = ""
    ObjectQMgrName: str = ""
    #: topic string of an MQOT_TOPIC; joined to the topic object's own by a `/` when ObjectName is given as well
    ObjectString: str = ""


class MQSD(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Subscription descriptor: what MQSUB creates, alters or resumes."""

    Options: int = cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE
    ObjectName: str = ""
    ObjectString: str = ""
    SubName: str = ""
    SubUserData: str = ""
    SubCorrelId: bytes = bytes(24)
    SubLevel: int = 1
    #: tenths of a second
    SubExpiry: int = cmqc.MQEI_UNLIMITED


class GetOptions(msgspec.Struct, kw_only=True, omit_defaults=True):
    """MQGMO, and the MsgId and CorrelId of the MQMD that a get matches (all zero: any message)."""

    Options: int = cmqc.MQGMO_NO_SYNCPOINT
    #: milliseconds, with MQGMO_WAIT; MQWI_UNLIMITED (-1) for ever
    WaitInterval: int = 0
    MsgId: bytes = bytes(24)
    CorrelId: bytes = bytes(24)
    #: length of the caller's buffer in bytes; None takes any message
    MaxLength: int | None = None


class Got(msgspec.Struct, kw_only=True):
    """What MQGET returns: the MQMD, the message data, and the object the message came from."""

    md: MQMD
    data: bytes
    ResolvedQName: str = ""
    #: whole length of the message data; more than len(data) when it was truncated
    DataLength: int = 0
    #: MQRC_NONE, or the reason of an MQCC_WARNING (MQRC_TRUNCATED_MSG_ACCEPTED)
    Reason: int = cmqc.MQRC_NONE


class Connection(Protocol):
    """An MQ connection: what MQCONN returns and the other verbs take."""

    def open(self, od: MQOD, options: int) -> int:
        """MQOPEN: a handle for the object."""

    def close(self, handle: int, options: int = cmqc.MQCO_NONE) -> None:
        """MQCLOSE; with MQCO_REMOVE_SUB a subscription is removed."""

    def put(self, handle: int, message: AnyMessage, options: int = cmqc.MQPMO_NO_SYNCPOINT) -> MQMD:
        """MQPUT to a queue or topic; returns the MQMD as the queue manager filled it in."""

    def put1(self, od: MQOD, message: AnyMessage, options: int = cmqc.MQPMO_NO_SYNCPOINT) -> MQMD:
        """MQPUT1: open, put, close."""

    def get(self, handle: int, options: GetOptions) -> Got:
        """MQGET: take or browse a message."""

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        """MQSUB: (handle of the subscription, handle of the queue it puts to).

        `handle` is a queue opened by the caller as destination; None with MQSO_MANAGED makes one.
        """

    def commit(self) -> None:
        """MQCMIT."""

    def backout(self) -> None:
        """MQBACK."""

    def command(self, text: str) -> list[CommandResponse]:
        """Run MQSC commands, one response for each."""

    def disconnect(self) -> None:
        """MQDISC: commits the unit of work that is open, closes all handles."""


class CommandResponse(msgspec.Struct, kw_only=True):
    """What one MQSC command answered."""

    command: str
    #: AMQ message as runmqsc prints it, such as "AMQ8006I: IBM MQ queue created."
    message: str
    ok: bool
    #: one attribute map for each object displayed, in the order to show
    objects: list[dict[str, str | int]] = []
    line: int = 1
