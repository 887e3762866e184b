"""CONNECT: a client is let in or refused, takes its session over from an older connection, or begins one.

Source: MQTT 3.1.1 sections 3.1.4 and 3.2. Whether its identity may receive messages at all is asked of the queue manager
first, so that a client that is refused does no harm to another of its client identifier, nor to that one's session.
"""

from __future__ import annotations

import logging

from bridge.mapping.telemetry.identity import ClientIdentity
from bridge.mq.backend import UnitOfWork
from bridge.mqtt.channel import Connection
from bridge.mqtt.outbox import Outgoing
from bridge.mqtt.peer import Peer
from bridge.mqtt.session import Session
from bridge.service.admission import identity_of, refusal_of, refuse
from bridge.service.sessions import Sessions
from bridge.wire import cmqc
from bridge.wire.mqtt import ConnackCode, Connect

log = logging.getLogger(__name__)


def connect(service: Sessions, connection: Connection, packet: Connect) -> None:
    """Refuse a client, or have the queue manager asked for its authority."""
    config = connection.channel.config
    connection.level = packet.protocol_level
    refusal = refusal_of(packet, config, service.queue_manager_name)
    if refusal is not None:
        refuse(connection, *refusal)
        return
    identity = identity_of(packet, config)
    user = identity.user.decode("utf-8", "replace")
    connection.client = Peer(connection.client.address, identity.client_id)

    def admitted(reason: int) -> None:
        if connection.closing:
            return  # it did not wait for the answer
        if reason:
            code = ConnackCode.SERVER_UNAVAILABLE
            if reason == cmqc.MQRC_NOT_AUTHORIZED:
                code = ConnackCode.NOT_AUTHORIZED
            what = f"user {user!r} may not receive messages: put to {service.backend.transmission_queue}"
            refuse(connection, code, f"{what}: {cmqc.reason_name(reason)} ({reason})")
        else:
            _arrive(service, connection, identity, packet)

    service.backend.admit(identity.client_id, user, admitted)


def _arrive(service: Sessions, connection: Connection, identity: ClientIdentity, packet: Connect) -> None:
    """Take a session over, or begin one; the client is answered when that is on record."""
    client_id = identity.client_id
    existing = service.sessions.get(client_id)
    if existing is not None and (existing.connection or existing.arriving) is not None:
        # MQTT-3.1.4-2
        old: Connection = existing.connection or existing.arriving
        old.close(f"taken over by a new connection {connection.client}")
        existing.arriving = None
        service.lost(old)
        existing = service.sessions.get(client_id)
    connection.will = packet.will
    durable = not packet.clean_session
    present = False
    if existing is not None and existing.durable and durable:
        session, present = existing, existing.begun
    else:
        if existing is not None:
            service.purge(existing)
        session = service.new_session(identity, durable=durable)
    session.arriving = connection

    def committed(unit: UnitOfWork) -> None:
        if unit.failure:
            # What it was to put on record is still to be.
            session.record = session.outbox.record = durable
        if session.arriving is not connection:
            return  # taken over by another connection before this one was answered
        if unit.failure:
            refuse(connection, ConnackCode.SERVER_UNAVAILABLE, cmqc.reason_name(unit.failure))
        if unit.failure or connection.closing:
            session.detach()
            service.leave(session)
        else:
            _begin(service, connection, session, identity, packet, present=present)
            if recording is not None:
                service.recorded(session, recording)

    recording: Outgoing | None = None
    unit = UnitOfWork(committed)
    if durable:
        # On record before CONNACK: that the session exists, and that messages may have been sent from now on.
        session.record = session.record or not present
        session.outbox.record = True
        recording = service.keep(session, unit)
    service.backend.execute(unit)


def _begin(
    service: Sessions,
    connection: Connection,
    session: Session,
    identity: ClientIdentity,
    packet: Connect,
    *,
    present: bool,
) -> None:
    session.attach(connection, identity, connection.channel.config.byte_order)
    connection.accept(session, session_present=present, keep_alive=packet.keep_alive)
    if service.archive is not None:
        service.archive.connected(session)
    log.info(
        "client %s connected: %s session%s",
        connection.client,
        "durable" if session.durable else "clean",
        ", present" if present else "",
    )
    out: list[bytes] = []
    session.outbox.resume(service.clock(), out)
    if out:
        connection.write(b"".join(out))
    service.pump(session)
    connection.take_held()
