"""Session ownership: which clients may resume a session, and what a resumed session may still receive."""

from __future__ import annotations

import logging

from bridge.mqtt.session import Session
from bridge.security import audit_log
from bridge.service.admission import answer_refusal
from bridge.service.authentication import BELIEVED
from bridge.service.client import Client
from bridge.service.sessions import Sessions
from bridge.wire.mqtt import ConnackCode

log = logging.getLogger(__name__)


def belongs_to_another(service: Sessions, client: Client, session: Session) -> bool:
    """Return whether a session has an owner other than the client's principal, and sharing is not allowed."""
    owner = session.principal
    if owner is None or owner == client.principal:
        return False
    former = service.authentication.get(session.channel, BELIEVED)
    if not owner.authenticated and former.asks:
        # The channel had no authentication when the session was last used. Its clients must not be locked out.
        return False
    present = service.authentication.get(client.channel.name, BELIEVED)
    return not (former.shared_client_ids and present.shared_client_ids)


def refuse_for_owner(service: Sessions, client: Client, session: Session) -> None:
    """Reject a client whose client identifier belongs to a session of another principal."""
    log.warning(
        "MQB1209W channel %s: rejected client %s as %s: its client identifier belongs to a session of %s on channel %s; "
        "hint: `mqbridge client purge` ends that session, shared_client_ids of both channels lets users share it",
        client.channel.name,
        client.peer,
        client.principal,
        session.principal,
        session.channel,
    )
    service.observers.session_refused(client.channel.name)
    answer_refusal(
        service,
        client,
        ConnackCode.NOT_AUTHORIZED,
        f"the session belongs to {session.principal}",
        event="session refused",
        user_name=client.user_name,
        authenticated=client.principal.authenticated,
        owner_channel=session.channel,
    )


def take_ownership(client: Client, session: Session) -> None:
    """Bind a session that a client resumes or discards to the client's principal."""
    former, session.principal = session.principal, client.principal
    if former == client.principal:
        return
    log.info(
        "MQB2004I client %s: session now belongs to %s, before to %s",
        client.peer,
        client.principal,
        former or "no recorded user",
    )
    audit_log.note(
        "session owner changed",
        client.peer,
        channel=client.channel.name,
        user_name=client.user_name,
        authenticated=client.principal.authenticated,
        former=None if former is None else str(former),
    )
