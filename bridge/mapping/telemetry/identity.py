"""Who an MQTT client is: its principal for the bridge, and its identity in MQMD.UserIdentifier.

Source: integration table 1; IBM MQ, "DEFINE CHANNEL", CHLTYPE(MQTT).
"""

from __future__ import annotations

import msgspec

from bridge.mapping.telemetry.qos import PERSISTENCE_FROM_QOS
from bridge.mapping.telemetry.reply_address import ReplyAddresses
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: MQMD.UserIdentifier is an MQCHAR12.
USER_IDENTIFIER_LENGTH = 12


def user_identifier(
    client_id: str, user_name: str | None = None, *, mcauser: str | None = None, use_client_id: bool = False
) -> bytes:
    """Return the identity of an MQTT client, as MQMD.UserIdentifier carries it: at most 12 bytes.

    In this order: USECLTID(YES) takes the client identifier; else the channel's MCAUSER; else the user name of the CONNECT.
    If none is given, the field stays blank. A longer name is cut, never in the middle of a UTF-8 character. (A client with
    a longer name is rejected at CONNECT: `bridge.service.admission`.)
    """
    name = client_id if use_client_id else (mcauser or user_name or "")
    encoded = name.encode("utf-8")[:USER_IDENTIFIER_LENGTH]
    return encoded.decode("utf-8", "ignore").encode("utf-8").rstrip(b" ")


def fits_user_identifier(name: str) -> bool:
    """Return whether MQMD.UserIdentifier has room for a whole name, without the blanks at its end."""
    return len(name.rstrip(" ").encode("utf-8")) <= USER_IDENTIFIER_LENGTH


class Principal(msgspec.Struct, frozen=True):
    """The owner of a session: an authenticated user, or any client that was not authenticated.

    All authentication methods share one namespace of users, because MQ authorizes a user by name alone.
    """

    authenticated: bool
    #: blank if the client was not authenticated (a claimed user name proves nothing), or if its method names no user
    user: str = ""

    def __str__(self) -> str:
        return f"user {self.user!r}" if self.authenticated else "an unauthenticated client"


UNAUTHENTICATED = Principal(False)


class ClientIdentity:
    """What the messages of one connected client have in common: its identifier and its MQMDs."""

    __slots__ = ("client_id", "descriptors", "replies", "user")

    def __init__(self, client_id: str, user: bytes, replies: ReplyAddresses | None = None) -> None:
        self.client_id = client_id
        #: where its answers to requests from MQ go
        self.replies = replies
        self.user = user
        of_persistence = {
            persistence: MQMD(
                Format=cmqc.MQFMT_RF_HEADER_2,
                UserIdentifier=user,
                Priority=cmqc.MQPRI_PRIORITY_AS_Q_DEF,
                Persistence=persistence,
            )
            for persistence in set(PERSISTENCE_FROM_QOS)
        }
        #: by QoS
        self.descriptors = tuple(of_persistence[persistence] for persistence in PERSISTENCE_FROM_QOS)
