"""Who is let in: what CONNECT is checked for before there is a session (MQTT 3.1.1 section 3.1.4)."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection
from typing import Any

from bridge.config import ChannelConfig, LimitsConfig
from bridge.mqtt.connection import REASON_CODES, TOPIC_ALIAS_MAXIMUM
from bridge.mqtt.packets import LEVEL_MQTT_5, ConnackCode, ConnackProperties, Connect
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.security.authenticator import Authenticated, Certificate
from bridge.security.channel_authentication import Connecting
from bridge.service.client import Client, granted_expiry
from bridge.service.events import ConnectRejected
from bridge.service.sessions import Sessions
from bridge.telemetry.identity import (
    AS_IS,
    USER_IDENTIFIER_LENGTH,
    ClientIdentity,
    ClientNames,
    fits_user_identifier,
    user_identifier,
)
from bridge.telemetry.request import ReplyAddresses
from bridge.telemetry.session import NEVER
from bridge.telemetry.subscription import is_remote_queue_manager, is_shared
from bridge.transport.interface import Peer

log = logging.getLogger(__name__)

#: Protocol names and levels that a channel speaks, by the words of its PROTOCOL attribute.
PROTOCOLS = {"MQTTV3": ("MQIsdp", 3), "MQTTV311": ("MQTT", 4), "MQTTV5": ("MQTT", LEVEL_MQTT_5)}
#: Longest client identifier of MQTT 3.1, in characters.
CLIENT_ID_LENGTH_3_1 = 23
NO_CERTIFICATE = Certificate()


def refusal_of(
    packet: Connect,
    config: ChannelConfig,
    queue_manager_name: str,
    methods: Collection[str] = (),
    names: ClientNames = AS_IS,
) -> tuple[ConnackCode, str, ReasonCode | None] | None:
    """Return the CONNACK code that refuses a client, and the reason in words; None for a client that may come in.

    `methods` are those of enhanced authentication that the channel has, `names` the queue manager names of clients. A reason
    code of MQTT 5 goes with the refusal where it says more than the CONNACK code.
    """
    # The dialect of little-endian words is older than MQTT 5.
    spoken = {PROTOCOLS[word] for word in config.protocols if word != "MQTTV5" or config.byte_order == "big"}
    if (packet.protocol_name, packet.protocol_level) not in spoken:
        return (
            ConnackCode.UNACCEPTABLE_PROTOCOL_VERSION,
            f"protocol {packet.protocol_name[:20]!r} level {packet.protocol_level}",
            None,
        )
    method = packet.properties.authentication_method if packet.properties is not None else None
    if method is not None and method not in methods:
        why = f"authentication method {method[:40]!r} is none of this channel's (authentication, authentication_methods)"
        return ConnackCode.NOT_AUTHORIZED, why, ReasonCode.BAD_AUTHENTICATION_METHOD
    fault = _identifier_error(packet, queue_manager_name, names)
    return None if fault is None else (ConnackCode.IDENTIFIER_REJECTED, fault, None)


def _identifier_error(packet: Connect, queue_manager_name: str, names: ClientNames) -> str | None:
    client_id = packet.client_id
    if not client_id:
        if packet.protocol_level == 3:
            return "MQTT 3.1 asks for a client identifier of 1 to 23 characters"
        if packet.protocol_level == LEVEL_MQTT_5 or packet.clean_session:
            return None
        return "an empty client identifier needs a clean session"
    if packet.protocol_level == 3 and len(client_id) > CLIENT_ID_LENGTH_3_1:
        return f"a client identifier of MQTT 3.1 has at most 23 characters, not {len(client_id)}"
    if (error := names.error(client_id)) is not None:
        return error
    if is_shared(client_id) or is_remote_queue_manager(client_id):
        return "a client identifier of this form is kept for shared subscriptions"
    if names.name_of(client_id) == queue_manager_name:
        return "the client identifier is the name of the queue manager itself"
    return None


def identity_of(
    packet: Connect, config: ChannelConfig, replies: ReplyAddresses, user_name: str | None = None
) -> ClientIdentity:
    """Return the identity of a client as MQ knows it; a client that gave no identifier gets one (MQTT-3.1.3-6).

    `user_name` is the user that it has authenticated itself as, None for the one of its CONNECT.
    """
    client_id = packet.client_id or "auto-" + secrets.token_hex(9)
    user_name = packet.user_name if user_name is None else user_name
    user = user_identifier(client_id, user_name, mcauser=config.mcauser, use_client_id=config.use_client_id)
    return ClientIdentity(client_id, user, replies)


class Barred(Exception):
    """A channel authentication record keeps a client out; words for the log."""


def admitted_identity(
    service: Sessions, client: Client, packet: Connect, shown: Authenticated
) -> tuple[ClientIdentity, str]:
    """Return who a client is to MQ, and the user that it has shown to be; the channel's rules and the records say so.

    Raises Barred.
    """
    config, transport = client.channel, client.transport
    identity = identity_of(packet, config, service.replies, shown.user_name)
    transport.peer = Peer(transport.peer.address, identity.client_id)
    certificate = transport.certificate or NO_CERTIFICATE
    name = (packet.user_name if shown.user_name is None else shown.user_name) or ""
    connecting = Connecting(config.name, transport.address, name, certificate.subject, certificate.issuer)
    verdict = service.channel_authentication.at_work.verdict(connecting, identity.user.decode("utf-8", "replace"))
    for warning in verdict.warnings:
        log.warning("MQB1204W channel %s: client %s: %s", config.name, client.peer, warning)
        audit_log.note("would be refused", client.peer, channel=config.name, why=warning)
    if verdict.refusal:
        raise Barred(verdict.refusal)
    if verdict.mcauser is not None:
        identity = ClientIdentity(identity.client_id, verdict.mcauser.encode(), service.replies)
    elif why := _too_long_for_mq(identity.client_id, name, config):
        raise Barred(why)
    return identity, name


def _too_long_for_mq(client_id: str, user_name: str, config: ChannelConfig) -> str | None:
    """Return why a client cannot act as its own user: cut to 12 bytes, the names of several clients could be one MQ user.

    IBM MQ limits users of AIX and Linux to 12 characters ("User IDs").
    """
    if config.use_client_id:
        what, name = "client identifier", client_id
        hint = "map the client to a user with a channel authentication record, or set use_client_id: false"
    elif config.mcauser:
        return None
    else:
        what, name = "user name", user_name
        hint = "map it to a user with a channel authentication record (SSLPEERMAP or USERMAP), or give the channel an mcauser"
    if fits_user_identifier(name):
        return None
    return f"its {what} {name!r} is longer than {USER_IDENTIFIER_LENGTH} bytes, the length of an MQ user; hint: {hint}"


def session_expiry_interval(packet: Connect, config: ChannelConfig) -> int:
    """Return how many seconds the session that a CONNECT asks for is to outlive its connection: 0 to NEVER.

    Before MQTT 5 a session ends with its connection where Clean Session is set, else never (MQTT 5 section 3.1.2.11.2).
    """
    return granted_expiry(_asked_expiry_interval(packet), config)


def _asked_expiry_interval(packet: Connect) -> int:
    if packet.protocol_level != LEVEL_MQTT_5:
        return 0 if packet.clean_session else NEVER
    return (packet.properties.session_expiry_interval or 0) if packet.properties is not None else 0


def connack_properties(packet: Connect, client: Client, client_id: str, limits: LimitsConfig) -> ConnackProperties:
    """Return what a client of MQTT 5 is told when it is let in (MQTT 5 section 3.2.2.3)."""
    keep_alive = client.channel.keep_alive
    shorter = keep_alive and not 0 < packet.keep_alive <= keep_alive
    granted = session_expiry_interval(packet, client.channel)
    return ConnackProperties(
        session_expiry_interval=None if granted == _asked_expiry_interval(packet) else granted,
        server_keep_alive=keep_alive if shorter else None,
        receive_maximum=limits.unreleased,
        maximum_packet_size=client.channel.max_packet_size,
        assigned_client_identifier=None if packet.client_id else client_id,
        topic_alias_maximum=TOPIC_ALIAS_MAXIMUM,
        authentication_method=client.protocol.authentication_method,
        authentication_data=None if client.authentication is None else client.authentication.data,
    )


def answer_refusal(
    service: Sessions,
    client: Client,
    code: ConnackCode,
    why: str,
    reason_code: ReasonCode | None = None,
    *,
    event: str = "refused",
    **facts: Any,
) -> None:
    """Answer with a CONNACK that refuses, count and audit the refusal, and close. The caller writes the log line."""
    stranger = client.transport.address
    audit_log.note(event, client.peer, stranger=stranger, channel=client.channel.name, code=int(code), why=why, **facts)
    service.events.publish(ConnectRejected(client.channel.name, reason_code or REASON_CODES[code]))
    client.protocol.refuse(code, reason_code=reason_code)
    client.transport.flush()


def refuse(
    service: Sessions, client: Client, code: ConnackCode, why: str, reason_code: ReasonCode | None = None
) -> None:
    """Answer with a CONNACK that refuses, say so in the log, and close; `reason_code` is of MQTT 5, where it says more."""
    log.warning(
        "MQB1201W channel %s: client %s is refused, CONNACK %d (%s): %s",
        client.channel.name,
        client.peer,
        code,
        code.name.replace("_", " ").lower(),
        why,
    )
    answer_refusal(service, client, code, why, reason_code)
