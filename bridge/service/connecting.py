"""CONNECT: a client is let in or refused, takes its session over from an older connection, or begins one.

Source: MQTT 3.1.1 sections 3.1.4 and 3.2. Whether its identity may receive messages at all is asked of the queue manager
first, so that a client that is refused does no harm to another of its client identifier, nor to that one's session.
"""

from __future__ import annotations

import logging
import math
import time
from functools import partial
from typing import Any

from bridge.mq.backend import Completion, UnitOfWork
from bridge.mqtt.connection import State
from bridge.mqtt.flow import MAX_IDENTIFIER
from bridge.mqtt.packets import LEVEL_MQTT_5, ConnackCode, ConnackProperties, Connect
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.security.authenticator import Authenticated
from bridge.security.failed_connects import network_of
from bridge.service.admission import (
    Barred,
    admitted_identity,
    connack_properties,
    refusal_of,
    refuse,
    session_expiry_interval,
)
from bridge.service.authentication import BELIEVED, authenticate, identify, judge, refused_code
from bridge.service.client import Client
from bridge.service.events import ClientConnected
from bridge.service.ownership import authorize_again, belongs_to_another, refuse_for_owner, take_ownership
from bridge.service.sessions import Sessions
from bridge.telemetry.identity import UNAUTHENTICATED, ClientIdentity, Principal
from bridge.telemetry.outbox import Outgoing
from bridge.telemetry.session import Session
from bridge.telemetry.topic_access import TopicAccess
from bridge.transport.interface import Peer
from bridge.wire import cmqc

log = logging.getLogger(__name__)


def connect(service: Sessions, client: Client, packet: Connect) -> None:
    """Refuse a client, or have it authenticate itself, and the queue manager asked for its authority."""
    config = client.channel
    # As it says of itself, for the log; who it is, is another matter.
    client.transport.peer = Peer(client.transport.peer.address, packet.client_id)
    authentication = service.authentication.get(config.name, BELIEVED)
    admit = partial(_admit, service, client, packet)
    refusal = refusal_of(packet, config, service.queue_manager_name, authentication.methods, service.backend.client_names)
    if refusal is not None:
        refuse(service, client, *refusal)
    elif service.backend.outage:
        refuse(service, client, ConnackCode.SERVER_UNAVAILABLE, "the queue manager is unreachable")
    elif blocked := service.channel_authentication.at_work.blocked_address(client.transport.address):
        refuse(service, client, ConnackCode.NOT_AUTHORIZED, blocked)
    elif client.protocol.authentication_method is not None:
        then = partial(identify, service, client, packet, admit)
        judge(service, client, packet, partial(authenticate, service, client, packet, then))
    elif authentication.asks:
        judge(service, client, packet, partial(identify, service, client, packet, admit))
    else:
        admit(Authenticated(packet.user_name, verified=False))


def _admit(service: Sessions, client: Client, packet: Connect, shown: Authenticated) -> None:
    """Have the queue manager asked for the authority of a client that has shown who it is."""
    try:
        identity, client.user_name = admitted_identity(service, client, packet, shown)
    except Barred as error:
        # Who guesses passwords is not to see by the answer which one is right.
        refuse(service, client, refused_code(service, client, packet), str(error))
        return
    client.principal = Principal(True, client.user_name) if shown.verified else UNAUTHENTICATED
    if client.attempt is not None:
        client.attempt.end(True)
    client.expires = math.inf if shown.expires is None else shown.expires
    user = identity.user.decode("utf-8", "replace")

    def admitted(reason: int) -> None:
        if client.protocol.state is not State.AUTHENTICATING:
            return  # it did not wait for the answer
        if reason:
            code = ConnackCode.SERVER_UNAVAILABLE
            if reason == cmqc.MQRC_NOT_AUTHORIZED:
                code = ConnackCode.NOT_AUTHORIZED
            what = f"user {user!r} may not receive messages: put to {service.backend.transmission_queue}"
            refuse(service, client, code, f"{what}: {cmqc.reason_name(reason)} ({reason})")
        else:
            _arrive(service, client, identity, packet)

    service.backend.admit(identity.client_id, user, admitted)


def _arrive(service: Sessions, client: Client, identity: ClientIdentity, packet: Connect) -> None:
    """Take a session over, or begin one; the client is answered when that is on record."""
    client_id = identity.client_id
    existing = service.sessions.get(client_id)
    if existing is not None and belongs_to_another(service, client, existing):
        refuse_for_owner(service, client, existing)
        return
    properties = None
    if packet.protocol_level == LEVEL_MQTT_5:
        properties = connack_properties(packet, client, client_id, service.limits)
    if not client.protocol.admits(properties):
        why = f"CONNACK is longer than its Maximum Packet Size, {client.protocol.max_packet_size} bytes"
        client.close(why, ReasonCode.PACKET_TOO_LARGE)
        return
    again = partial(_arrive_again, service, client, identity, packet)
    if service.after_purge(client_id, again):
        return
    network = network_of(client.transport.address)
    if existing is None and (excess := service.quotas.session_excess(client.principal, network)):
        refuse(service, client, ConnackCode.SERVER_UNAVAILABLE, excess, ReasonCode.QUOTA_EXCEEDED)
        return
    old = service.clients.get(client_id)
    if old is not None:
        # MQTT-3.1.4-2
        audit_log.note("taken over", old.peer, channel=old.channel.name, by=client.peer.address)
        old.close(f"taken over by a new connection {client.peer}", ReasonCode.SESSION_TAKEN_OVER)
        service.lost(old)
    existing = service.sessions.get(client_id)  # a clean session ended with its connection
    if existing is not None:
        take_ownership(client, existing)
        service.quotas.update(existing)
    client.will = packet.will
    expiry_interval = session_expiry_interval(packet, client.channel)
    present = False
    if existing is not None and existing.durable and not packet.clean_session:
        session, present = existing, existing.begun
        service.wills.withdraw(client_id)
    else:
        if existing is not None:
            service.purge(existing)
        if service.after_purge(client_id, again):
            return
        session = service.new_session(identity, durable=expiry_interval > 0)
        session.principal, session.network = client.principal, network
        service.quotas.update(session)
    service.timers.cancel(client_id)
    service.clients[client_id] = client
    session.connect(client.channel.name, client.protocol.level, expiry_interval, time.time())
    topics = _topics(client, identity)
    commit = partial(_commit, service, client, session, identity, packet, properties, topics, present)
    if session is existing:
        authorize_again(service, client, session, identity, topics, commit)
    else:
        commit("")


def _topics(client: Client, identity: ClientIdentity) -> TopicAccess | None:
    """Return the topic rules of a client's channel; None if there are none."""
    config = client.channel
    if config.publish_topics is None and config.subscribe_topics is None:
        return None
    return TopicAccess(config.publish_topics, config.subscribe_topics, identity.client_id, client.user_name)


def _commit(
    service: Sessions,
    client: Client,
    session: Session,
    identity: ClientIdentity,
    packet: Connect,
    properties: ConnackProperties | None,
    topics: TopicAccess | None,
    present: bool,
    failure: str,
) -> None:
    """Record that a client has a session, unless there is a failure already; the client is answered after that."""
    client_id = identity.client_id
    durable = session.durable
    if service.clients.get(client_id) is not client:
        return  # taken over by another connection meanwhile
    if failure or client.protocol.state is not State.AUTHENTICATING:
        _give_up(service, client, session, failure)
        return
    session.identity = identity

    def committed(completion: Completion) -> None:
        reason = completion.failure
        if reason:
            # What it was to put on record is still to be.
            session.save_again()
        if service.clients.get(client_id) is not client:
            return  # taken over by another connection before this one was answered
        if reason or client.protocol.state is not State.AUTHENTICATING:
            _give_up(service, client, session, cmqc.reason_name(reason) if reason else "")
            return
        session.topics = topics
        _begin(service, client, session, identity, packet, properties, present=present)
        if recording is not None:
            service.units.recorded(session, recording)

    recording: Outgoing | None = None
    unit = UnitOfWork()
    if durable:
        # On record before CONNACK: that the session exists, and that messages may have been sent from now on.
        if present:
            session.save_sent()
        else:
            session.save_again()
        recording = session.take_records(unit.records)
    service.units.submit(unit, committed)


def _arrive_again(service: Sessions, client: Client, identity: ClientIdentity, packet: Connect) -> None:
    """Go on when the messages of the session before are removed: they must not be taken for messages of the new session."""
    if client.protocol.state is State.AUTHENTICATING:
        _arrive(service, client, identity, packet)


def _give_up(service: Sessions, client: Client, session: Session, failure: str) -> None:
    """Let go of a session whose client is gone before CONNACK, or is refused because of a failure."""
    if failure:
        refuse(service, client, ConnackCode.SERVER_UNAVAILABLE, failure)
    del service.clients[session.client_id]
    if service.sessions.get(session.client_id) is session:  # else it was purged
        session.detach(time.time())
        service.leave(session)


def _begin(
    service: Sessions,
    client: Client,
    session: Session,
    identity: ClientIdentity,
    packet: Connect,
    properties: ConnackProperties | None,
    *,
    present: bool,
) -> None:
    protocol = client.protocol
    receive_maximum = packet.properties.receive_maximum if packet.properties is not None else None
    session.attach(identity, receive_maximum or MAX_IDENTIFIER)
    config = client.channel
    client.session = session
    protocol.accept(service.clock(), session_present=present, properties=properties)
    service.events.publish(ClientConnected(session))
    user = identity.user.decode("utf-8", "replace")
    facts: dict[str, Any] = {"user": user, "user_name": client.user_name, "authenticated": client.principal.authenticated}
    audit_log.note("connected", client.peer, channel=config.name, **facts)
    log.info(
        "MQB2001I client %s connected: %s session%s",
        client.peer,
        "durable" if session.durable else "clean",
        ", present" if present else "",
    )
    session.outbox.send_again(protocol, service.clock())
    client.transport.flush()
    service.pump(client)
    client.transport.take_turn()
