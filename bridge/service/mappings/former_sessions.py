"""Former sessions: sessions at brokers that no mapping uses any longer. Their exchanges are finished when possible.

When a mapping no longer uses a session, `leave` parks the messages of the unfinished batch. In one unit of work, it gets them
from their queue, maps them as the former configuration did, and puts them to the state queue. `settle` connects to the
session and finishes the exchanges there. `give_up` moves the messages to the dead-letter queue.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError

from bridge.administration.mapping_status import UnfinishedSession
from bridge.config.link import LinkConfig, client_id_of
from bridge.config.mapping import AnyMapping, ToMqMapping, ToMqttMapping
from bridge.config.values import endpoint
from bridge.link import connection as links
from bridge.link.state import LinkLost
from bridge.mapping.rule import ToMqttRule
from bridge.mq.dead_letter import DeadLetters
from bridge.mq.link_sessions import (
    ExchangeRecord,
    Exchanges,
    FormerSession,
    LinkSession,
    LinkSessions,
    ParkedMessage,
    ParkedMessages,
    session_key,
)
from bridge.mq.message_consumer import MessageConsumer
from bridge.mq.mqi import Connection, MQError
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.runner import consumer_source
from bridge.telemetry.message import Message, Publication, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import decode_mqmd, encode_mqmd

log = logging.getLogger(__name__)

#: The last packet identifier of a mapping. The first one follows it. The link itself uses higher identifiers.
LAST_PACKET_ID = 60_000
#: Number of packet identifiers that `release_all` releases at a time.
_RELEASED_TOGETHER = 1_000

_mapping: TypeAdapter[Any] = TypeAdapter(AnyMapping)
#: One thread at a time works on a session.
_busy: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


class _Before0_3(msgspec.Struct, array_like=True):
    """The record of a batch of releases before 0.3.0."""

    sending: list[tuple[int, bytes]] = []
    releasing: list[int] = []


def convert_former_record(connection: Connection, session: LinkSession, *, certain: bool, sends: bool) -> None:
    """Convert the record of a release before 0.3.0, which does not name its session. Raises MQError.

    `certain` means that the record belongs to `session`. Otherwise its packet identifiers are forgotten: messages may come
    twice, but none is lost. `sends` means that the mapping sent messages to a broker.
    """
    sessions = LinkSessions(connection)
    encoded = sessions.unnamed(session.mapping)
    if encoded is None:
        return
    record, discarded_count = ExchangeRecord(connection, session), 0
    exchanges = Exchanges()
    releasing: list[int] = []
    try:
        if sends:
            before = msgspec.msgpack.decode(encoded, type=_Before0_3)
            exchanges.sending, releasing = before.sending, before.releasing
        else:
            exchanges.received = msgspec.msgpack.decode(encoded, type=list[int])
    except (msgspec.DecodeError, UnicodeDecodeError):
        # A record of the other direction does not describe this session.
        certain, discarded_count = False, 1
    if not certain:
        discarded_count += len(exchanges.sending) + len(exchanges.received)
        exchanges = Exchanges()
    if exchanges.unfinished or certain:
        record.save(exchanges)
    if releasing:
        # The messages have left their queue. The broker ignores the release of a packet identifier that it does not know.
        sessions.save_former(FormerSession(session, time.time(), releasing=releasing))
    sessions.remove_unnamed(session.mapping)
    connection.commit()
    if discarded_count:
        log.warning(
            "MQB5306W mapping %s: the unfinished exchanges on record do not name their session; messages in flight may come "
            "twice",
            session.mapping,
        )


def leave(
    connection: Connection,
    environment: MappingEnvironment,
    session: LinkSession,
    *,
    ending: bool,
    consumer: MessageConsumer | None = None,
) -> None:
    """Record that a session is no longer used, and park the messages of its unfinished batch. Raises MQError.

    `ending` means that the session is to be ended at the broker. `consumer` is open on the source of the former
    configuration. Without it, the source is opened.
    """
    with _busy[session.key]:
        sessions = LinkSessions(connection)
        if sessions.load(session.mapping) != session:
            return  # another thread has done so
        convert_former_record(connection, session, certain=not environment.epoch, sends=not session.filters)
        record = ExchangeRecord(connection, session, environment.epoch)
        exchanges = record.load()
        batch = [
            *((*exchange, True) for exchange in exchanges.releasing),
            *((*exchange, False) for exchange in exchanges.sending),
        ]
        former = sessions.former(session)
        parked = _park(connection, environment, session, batch, consumer) if batch else []
        # The broker may have messages that are no longer on the queue, too.
        unknown_ids = [] if parked is None else [packet_id for packet_id, _, _ in batch if packet_id not in parked]
        if exchanges.received or parked or unknown_ids or ending or former is not None:
            since = time.time() if former is None else former.since
            releasing = [*([] if former is None else former.releasing), *unknown_ids]
            ending = ending or (former is not None and former.ending)
            sessions.save_former(FormerSession(session, since, ending, releasing, len(exchanges.received)))
        if ending or parked is None:
            record.remove()
        else:
            # Save even an empty record. A mapping that returns to the session then knows that no other exchange is
            # unfinished.
            record.save(msgspec.structs.replace(exchanges, sending=[], releasing=[]))
        sessions.remove(session.mapping)
        connection.commit()
        if consumer is not None:
            consumer.ended()
        environment.note_former_sessions()
    if parked:
        log.info(
            "MQB5307I mapping %s: %d messages that the broker may have are finished in session %s",
            session.mapping,
            len(parked),
            session.key,
        )


def _park(
    connection: Connection,
    environment: MappingEnvironment,
    session: LinkSession,
    batch: list[tuple[int, bytes, bool]],
    consumer: MessageConsumer | None,
) -> list[int] | None:
    """Move a batch from its queue to the parked messages, and return their packet identifiers.

    `batch` contains packet identifiers, MsgIds, and whether the broker has accepted the message. None means that the former
    configuration is unknown, and nothing was moved.
    """
    config = _mapping_config(session)
    if config is None:
        log.warning(
            "MQB5308W mapping %s: %d messages that the broker may have in session %s are sent again in another one",
            session.mapping,
            len(batch),
            session.key,
        )
        return None
    rule = ToMqttRule(session.mapping, config, environment.origin)
    source = consumer_source(session.mapping, rule, session.owner)
    source_consumer = consumer or MessageConsumer(connection, source)
    letters = DeadLetters(connection, environment.dead_letter_queue, session.mapping, source.queue)
    parked = ParkedMessages(connection, session)
    messages, now = [], time.time()
    for packet_id, msg_id, accepted in batch:
        for message in source_consumer.take_exactly((msg_id,)):
            try:
                publication = rule.map(
                    Message(message.md, message.data), request=source_consumer.request_of(message.md)
                )
            except Unmappable as error:
                letters.put(message.md, message.data, error.reason, str(error), None)
                continue
            if publication is None:
                letters.put(message.md, message.data, cmqc.MQRC_NO_SUBS_MATCHED, "the filter no longer matches", None)
                continue
            publication.qos = 2
            expires_at = None if publication.expiry is None else now + publication.expiry
            messages.append(
                ParkedMessage(
                    packet_id,
                    publication,
                    encode_mqmd(message.md),
                    bytes(message.data),
                    accepted,
                    expires_at,
                    environment.epoch,
                )
            )
    parked.add(messages)
    parked.close()
    if consumer is None:
        source_consumer.close()
    return [message.packet_id for message in messages]


def _mapping_config(session: LinkSession) -> ToMqttMapping | None:
    if not session.mapping_config:
        return None
    try:
        config = _mapping.validate_json(session.mapping_config)
    except ValidationError:
        return None
    return config if isinstance(config, ToMqttMapping) else None


def link_of(session: LinkSession, present: Mapping[str, LinkConfig]) -> LinkConfig | None:
    """Return the link to the broker of a session: as recorded with the session, or else as configured now."""
    config = present.get(session.link)
    if session.link_config:
        try:
            config = LinkConfig.model_validate_json(session.link_config)
        except ValidationError:
            log.warning("MQB5309W the recorded configuration of session %s is no longer valid", session.key)
    if config is None:
        return None
    return config.model_copy(update={"host": session.host, "port": session.port, "failover": []})


def settle(
    connection: Connection, environment: MappingEnvironment, former: FormerSession, config: LinkConfig | None
) -> bool:
    """Connect to a former session, finish its exchanges, and end it if requested. Return whether all of that succeeded.

    Raises MQError.
    """
    session = former.session
    with _busy[session.key]:
        sessions = LinkSessions(connection)
        current = sessions.former(session)
        if current is None:
            return True
        former = current
        parked = ParkedMessages(connection, session)
        unfinished = bool(len(parked) or former.releasing)
        parked.close()
        if config is None:
            return False
        if unfinished and not _finish_there(connection, environment, former, config):
            return False
        if former.ending:
            if not links.end_session(session.mapping, session.link, config, session.client_id):
                return False
            ExchangeRecord(connection, session, environment.epoch).remove()
        if former.ending or not former.received:
            sessions.remove_former(session)
        else:
            sessions.save_former(msgspec.structs.replace(former, releasing=[]))
        connection.commit()
        environment.note_former_sessions()
        return True


def _finish_there(
    connection: Connection, environment: MappingEnvironment, former: FormerSession, config: LinkConfig
) -> bool:
    """Connect and finish the exchanges. Return whether that succeeded.

    A broker without QoS 2 announces that (MQTT 5), or answers a publication with PUBACK. It receives the messages at least
    once.
    """
    session = former.session
    for exactly in (True, False):
        losses: list[bool] = []
        link = links.link_connection(
            session.mapping,
            session.link,
            config,
            client_id=session.client_id,
            clean=False,
            on_session=lambda present, losses=losses: None if present else losses.append(True),  # type: ignore[misc]
        )
        link.start()
        try:
            if not link.wait_connected(links.END_TIMEOUT, once=True):
                return False
            qos = min(link.limits.maximum_qos, 2 if exactly else 1)
            _finish(connection, environment, former, link, lambda losses=losses: len(losses), 0, qos=qos)  # type: ignore[misc]
        except LinkLost as error:
            connection.backout()
            if not (exactly and link.unsuitable):
                log.info("MQB5310I mapping %s: session %s is not finished yet: %s", session.mapping, session.key, error)
                return False
            continue
        finally:
            link.stop(links.END_TIMEOUT)
        if qos < 2:
            log.warning(
                "MQB5312W mapping %s: finished session %s at least once, because its broker does not support QoS 2",
                session.mapping,
                session.key,
            )
        return True
    return False


def finish(
    connection: Connection,
    environment: MappingEnvironment,
    session: LinkSession,
    link: links.LinkConnection,
    new_sessions: Callable[[], int],
    recorded: int,
) -> int:
    """Finish the exchanges of a session over a mapping's own link, and forget that the session was former.

    `new_sessions` returns the number of connections at which the broker had no session. The records take `recorded` of them
    into account. Return that number after the exchanges. Raises LinkLost and MQError.
    """
    with _busy[session.key]:
        sessions = LinkSessions(connection)
        if (former := sessions.former(session)) is not None:
            recorded = _finish(connection, environment, former, link, new_sessions, recorded)
            sessions.remove_former(session)
            connection.commit()
            environment.note_former_sessions()
    return recorded


def _finish(
    connection: Connection,
    environment: MappingEnvironment,
    former: FormerSession,
    link: links.LinkConnection,
    new_sessions: Callable[[], int],
    recorded: int,
    *,
    qos: int = 2,
) -> int:
    """Perform the steps of `exactly_once` for the parked messages. With a `qos` below 2, only publish them."""
    parked = ParkedMessages(connection, former.session)
    try:
        return _finish_parked(connection, environment, former, link, new_sessions, recorded, parked, qos)
    finally:
        # LinkLost is usual here, and the connection to the queue manager stays open.
        with contextlib.suppress(MQError):
            parked.close()


def _finish_parked(
    connection: Connection,
    environment: MappingEnvironment,
    former: FormerSession,
    link: links.LinkConnection,
    new_sessions: Callable[[], int],
    recorded: int,
    parked: ParkedMessages,
    qos: int,
) -> int:
    session = former.session
    letters = DeadLetters(connection, environment.dead_letter_queue, session.mapping, _source_queue(session))
    most = link.in_flight_limit
    for first in range(0, len(former.releasing), most):
        link.release(former.releasing[first : first + most])
    while messages := parked.load():
        if any(parked_message.epoch != environment.epoch for parked_message in messages):
            release_all(link)
            messages = [
                msgspec.structs.replace(parked_message, accepted=False, epoch=environment.epoch)
                for parked_message in messages
            ]
            _replace(connection, parked, messages)
        if (now := new_sessions()) != recorded:
            accepted = sum(parked_message.accepted for parked_message in messages)
            if accepted:
                report_lost_session(session.mapping, session.link, accepted)
                messages = [msgspec.structs.replace(parked_message, accepted=False) for parked_message in messages]
                _replace(connection, parked, messages)
            recorded = now
        part, rest = messages[: link.in_flight_limit], messages[link.in_flight_limit :]
        if unsent := [parked_message for parked_message in part if not parked_message.accepted]:
            packet_ids = [parked_message.packet_id for parked_message in unsent]
            publications = [
                _publication(parked_message, qos, retain=link.limits.retain_available) for parked_message in unsent
            ]
            refusals = link.publish_exactly(publications, packet_ids, True) if qos == 2 else link.publish(publications)
            for index, refusal in refusals.items():
                topic = unsent[index].publication.topic
                why = f"the broker of link {session.link} rejects the publication to {topic!r}: {refusal.text}"
                _dead_letter(letters, unsent[index], why)
            refused = {packet_ids[index] for index in refusals}
            if qos == 2:
                part = [
                    msgspec.structs.replace(parked_message, accepted=True)
                    for parked_message in part
                    if parked_message.packet_id not in refused
                ]
            else:
                part = [parked_message for parked_message in part if parked_message.accepted]
            _replace(connection, parked, [*part, *rest])
        if part:
            link.release([parked_message.packet_id for parked_message in part])
        if new_sessions() == recorded:
            _replace(connection, parked, rest)
    log.info("MQB5311I mapping %s: finished its messages in session %s", session.mapping, session.key)
    return recorded


def release_all(link: links.LinkConnection) -> None:
    """Release all packet identifiers in the session at a broker. Raises LinkLost.

    The unfinished exchanges of this session are not on record, for example after a restore. The broker would treat new
    publications with their packet identifiers as duplicates. It ignores identifiers that it does not know.
    """
    for first in range(1, LAST_PACKET_ID + 1, _RELEASED_TOGETHER):
        link.release(range(first, min(first + _RELEASED_TOGETHER, LAST_PACKET_ID + 1)))


def report_lost_session(mapping: str, link: str, accepted: int) -> None:
    """Log that a broker has lost a session with messages that it had accepted."""
    log.warning(
        "MQB5302W mapping %s: the broker of link %s lost the session with %d accepted messages; sending them again",
        mapping,
        link,
        accepted,
    )


def _replace(connection: Connection, parked: ParkedMessages, messages: list[ParkedMessage]) -> None:
    parked.take()
    parked.add(messages)
    connection.commit()


def _publication(message: ParkedMessage, qos: int, *, retain: bool) -> Publication:
    publication = message.publication
    publication.qos = qos
    publication.retain = publication.retain and retain
    if message.expires_at is not None:
        publication.expiry = max(message.expires_at - time.time(), 0.0)
    return publication


def _dead_letter(letters: DeadLetters, message: ParkedMessage, why: str) -> None:
    letters.put(decode_mqmd(message.md), message.data, cmqc.MQRC_PUBLICATION_FAILURE, why, None)


def give_up(connection: Connection, environment: MappingEnvironment, former: FormerSession) -> int:
    """Give up a former session: move its messages to the dead-letter queue, and forget its records. Return their number.

    Raises MQError.
    """
    session = former.session
    with _busy[session.key]:
        parked = ParkedMessages(connection, session)
        letters = DeadLetters(connection, environment.dead_letter_queue, session.mapping, _source_queue(session))
        messages = parked.take()
        for message in messages:
            _dead_letter(letters, message, f"session {session.key} was given up; the broker may have the message")
        ExchangeRecord(connection, session, environment.epoch).remove()
        LinkSessions(connection).remove_former(session)
        connection.commit()
        parked.close()
        environment.note_former_sessions()
    return len(messages)


def _source_queue(session: LinkSession) -> str:
    config = _mapping_config(session)
    return "" if config is None else config.source.queue or ""


def parked_number(connection: Connection, session: LinkSession) -> int:
    """Return the number of messages that are parked for a session. Raises MQError."""
    parked = ParkedMessages(connection, session)
    try:
        return len(parked)
    finally:
        parked.close()


def is_used(session: LinkSession, config: AnyMapping | None, present: Mapping[str, LinkConfig]) -> bool:
    """Return whether a mapping, as configured now, may use its recorded session and keeps the kind of its source.

    If the mapping read a topic and now reads a queue, its subscription is removed. After a change to another queue, topic or
    address, the mapping itself leaves the session when it begins.
    """
    if isinstance(config, ToMqMapping):
        return config.source.link in present and bool(session.filters)
    if config is None or config.destination.link not in present or session.filters:
        return False
    former = _mapping_config(session)
    return former is None or former.source.topic is None or config.source.topic is not None


def configured_keys(
    session: LinkSession,
    mappings: Mapping[str, ToMqMapping | ToMqttMapping],
    present: Mapping[str, LinkConfig],
    bridge: str,
) -> set[str]:
    """Return the keys of the sessions that mappings may use in the same direction as `session`.

    `bridge` identifies the queue manager.
    """
    keys = set()
    for name, config in mappings.items():
        receives = isinstance(config, ToMqMapping)
        link = present.get(config.source.link if isinstance(config, ToMqMapping) else config.destination.link)
        if link is not None and receives == bool(session.filters):
            client_id = client_id_of(link.client_id, name, bridge)
            keys |= {session_key(client_id, endpoint(*address)) for address in link.addresses}
    return keys


def listed(connection: Connection, owner: str, present: Mapping[str, LinkConfig]) -> list[UnfinishedSession]:
    """Return the former sessions of a bridge for display. Raises MQError."""
    return [
        UnfinishedSession(
            mapping=former.session.mapping,
            client_id=former.session.client_id,
            address=former.session.address,
            since=former.since,
            messages=parked_number(connection, former.session) + len(former.releasing),
            received=former.received,
            ending=former.ending,
            reachable=link_of(former.session, present) is not None,
        )
        for former in LinkSessions(connection).all(owner)[1]
    ]


def settle_all(
    connection: Connection,
    environment: MappingEnvironment,
    present: Mapping[str, LinkConfig],
    in_use: Collection[str],
    others: Mapping[str, ToMqMapping | ToMqttMapping],
    stopping: Callable[[], bool],
) -> None:
    """Try once to settle each former session that no mapping uses now, and none of another shard may use. Raises MQError."""
    bridge = environment.bridge_id(connection) if others else ""
    for former in LinkSessions(connection).all(environment.owner)[1]:
        if stopping():
            return
        if former.session.key in in_use:
            continue
        if former.session.key not in configured_keys(former.session, others, present, bridge):
            settle(connection, environment, former, link_of(former.session, present))
