"""As whom an application acts: who it is in MQMD.UserIdentifier, and whose authorities are asked for.

That somebody says a name counts where nobody asks who it is, nor for authorities. Else it is who it has shown to be: the
user of its process on a Unix socket, or, over TCP, whom its credentials vouch for and channel authentication records leave
it, or map it to. Whoever has shown nothing is `nobody`.
"""

from __future__ import annotations

import logging
import pwd
import socket
import struct
from typing import NamedTuple

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.errors import MQError
from bridge.security import audit_log
from bridge.security.authenticator import Certificate
from bridge.security.channel_authentication import Connecting
from bridge.security.privileged import NOBODY, as_mq_has_it
from bridge.telemetry.identity import USER_IDENTIFIER_LENGTH, fits_user_identifier
from bridge.wire import cmqc

log = logging.getLogger(__name__)


class User(NamedTuple):
    """The user of an application."""

    #: of MQMD.UserIdentifier, by which the command server authorizes
    identifier: str
    #: whose authorities are asked for
    asked: str
    #: whom somebody vouches for; "" where nobody does
    shown: str


def name_of_process(connection: socket.socket) -> str:
    """Return the user name of the process at the other end of a Unix socket, or the user's number where there is no name."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def user_of_process(queue_manager: QueueManager, said: str, process: str) -> User:
    """Return the user of an application on a Unix socket, whose process is of a user and says that it is another.

    An administrator's process may say so.
    """
    authorization = queue_manager.authorization
    if authorization is None:
        return User(said or process, process, process)
    asked = said if said and authorization.is_administrator(process) else process
    return User(asked, asked, process)


def user_of(queue_manager: QueueManager, said: str, shown: str | None) -> User:
    """Return the user of an application over TCP, which says a name and has shown another; None: nobody has asked it."""
    authorization = queue_manager.authorization
    if shown is None and authorization is None:
        return User(said, NOBODY, "")
    asked = shown or NOBODY
    if said and authorization is not None and shown and authorization.is_administrator(shown):
        asked = said
    return User(asked, asked, shown or "")


def client_of(channel: str | None, address: str, user: str, certificate: Certificate | None) -> Connecting:
    """Return what channel authentication records look at; whoever has no channel is subject to those of all channels, `*`."""
    certificate = certificate or Certificate()
    return Connecting(channel or "", address, user, certificate.subject, certificate.issuer)


def mapped(queue_manager: QueueManager, client: Connecting, shown: str | None) -> str | None:
    """Return the user that a channel authentication record maps an application over TCP to; None: to nobody.

    Raises MQError where it is refused.
    """
    own = user_of(queue_manager, client.user, shown).identifier
    verdict = queue_manager.channel_authentication.at_work.verdict(client, as_mq_has_it(own))
    channel = client.channel or "?"
    for warning in verdict.warnings:
        log.warning("MQB3314W channel %s: an application at %s: %s", channel, client.address, warning)
    why, answer = verdict.refusal, "a channel authentication record keeps it out"
    if not why and verdict.mcauser is None and shown and not fits_user_identifier(shown):
        answer = f"user name longer than {USER_IDENTIFIER_LENGTH} bytes, the length of an MQ user"
        why = f"{answer}: {shown!r}; hint: map it to a user with a channel authentication record (SSLPEERMAP or USERMAP)"
    if why:
        address = client.address
        log.warning("MQB3315W channel %s: an application at %s is refused: %s", channel, address, why)
        audit_log.note("application refused", stranger=address, user=client.user, address=address, why=why)
        raise MQError(cmqc.MQRC_NOT_AUTHORIZED, answer)
    return verdict.mcauser
