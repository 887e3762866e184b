"""Topics: their publishers, the route of a publication, and clearing retained publications."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from bridge.administration.answers import (
    AccessRule,
    PublisherPage,
    RoutedMapping,
    RoutedQueue,
    RoutedSubscription,
    TopicPublisher,
    TopicRoute,
)
from bridge.administration.protocol import Answer, Invalid, NotFound, Refused
from bridge.administration.requests import MAX_ROWS, ClearTopic, ExplainAccess, ListPublishers, RouteTopic
from bridge.config.link import LOCAL
from bridge.config.mapping import ToMqMapping
from bridge.config.models import Configuration
from bridge.mapping.topic_pattern import pattern_of
from bridge.mapping.trial import NotTaken, trial_of
from bridge.mq.inquiries import TopicDetails, TopicSubscription
from bridge.mq.message_consumer import mapping_of
from bridge.mq.mqi import Connection
from bridge.mqtt.topics import matches, topic_filter_error
from bridge.service.administration.access import check_topic, explain_access, topic_object_rule
from bridge.service.administration.parts import ROWS_AT_A_TURN, Parts, answer_of
from bridge.service.administration.queues import rows_of_queue
from bridge.telemetry.message import Unmappable
from bridge.telemetry.subscription import PUBLICATION_QUEUE, delivered_qos, subscription_qos
from bridge.wire import cmqc

#: Maximum number of queues inquired, and of mappings tried, for one route.
MAX_QUEUES = 50
MAX_MAPPINGS = 200


async def clear_topic(parts: Parts, request: ClearTopic) -> Answer:
    check_topic(request.topic)
    await parts.queue_manager_connection.run(lambda connection: connection.clear_retained(request.topic), changes=True)
    return Answer(lines=[f"deleted the retained publication of {request.topic}"])


async def list_publishers(parts: Parts, request: ListPublishers) -> PublisherPage:
    if (error := topic_filter_error(request.topic_filter)) is not None:
        raise Invalid(f"{request.topic_filter[:100]!r} is not a valid topic filter: {error}")
    counted = parts.publishers.of(request.topic_filter)
    publishers = counted.publishers()
    client_ids = {publisher.client_id for publisher in publishers}
    for number, (client_id, client) in enumerate(list(parts.service.clients.items()), 1):
        if client_id not in client_ids and client.published_at and matches(request.topic_filter, client.last_topic):
            last = client.published_at / 1e6
            publishers.append(TopicPublisher(client_id=client_id, topic=client.last_topic, last=last))
        if not number % ROWS_AT_A_TURN:
            await asyncio.sleep(0)
    publishers.sort(key=lambda publisher: (-publisher.last, publisher.client_id))
    rows = min(max(request.rows, 1), MAX_ROWS)
    more = counted.more or len(publishers) > rows
    return PublisherPage(publishers=publishers[:rows], since=counted.since, more=more)


async def route_topic(parts: Parts, request: RouteTopic) -> TopicRoute:
    check_topic(request.topic)
    rows = min(max(request.rows, 1), MAX_ROWS)
    details = await answer_of(parts.host, parts.host.topic_inquiry.details(request.topic, rows, payloads=False))
    mappings = await asyncio.to_thread(_mappings, parts.configuration, request)
    states = {status.name: str(status.state) for status in parts.mappings.statuses()}
    for mapping in mappings:
        mapping.state = states.get(mapping.name, "")
    subscriptions = [
        _subscription(parts, subscription, request.qos)
        for subscription in details.subscriptions
        if not mapping_of(subscription.name)
    ]
    queues = {mapping.queue for mapping in mappings if mapping.queue}
    queues |= {
        subscription.destination
        for subscription in details.subscriptions
        if not subscription.client_id and not mapping_of(subscription.name)
    }

    def work(connection: Connection) -> tuple[AccessRule | None, list[RoutedQueue]]:
        return topic_object_rule(connection, request.topic), _queues(parts, connection, sorted(queues)[:MAX_QUEUES])

    rule, reached = await parts.queue_manager_connection.run(work)
    rules = [] if rule is None else [rule]
    if request.client_id:
        rules = await _rules_of_client(parts, request)
    rules += _retained(details, request)
    return TopicRoute(
        topic=request.topic,
        accepted=all(rule.permits for rule in rules),
        rules=rules,
        subscriptions=subscriptions,
        mappings=mappings,
        queues=reached,
        more=details.more,
    )


async def _rules_of_client(parts: Parts, publication: RouteTopic) -> list[AccessRule]:
    """Return the rules for a client with a session. Raises NotFound."""
    session = parts.service.sessions.get(publication.client_id)
    if session is None:
        raise NotFound(f"there is no session of client {publication.client_id!r}")
    client = parts.service.clients.get(publication.client_id)
    user = session.identity.user.decode("utf-8", "replace") if client is None else client.user_name
    address = "" if client is None else client.transport.address
    question = ExplainAccess(
        user=user, channel=session.channel, topic=publication.topic, client_id=publication.client_id, address=address
    )
    return (await explain_access(parts, question)).rules


def _retained(details: TopicDetails, request: RouteTopic) -> list[AccessRule]:
    if not request.retain:
        return []
    exists = any(publication.topic == request.topic for publication in details.retained)
    if request.payload:
        return [AccessRule("retained", True, f"it {'replaces' if exists else 'becomes'} the retained publication")]
    return [
        AccessRule("retained", True, "it deletes the retained publication" if exists else "it is not retained: empty")
    ]


def _subscription(parts: Parts, subscription: TopicSubscription, qos: int) -> RoutedSubscription:
    session = parts.service.sessions.get(subscription.client_id) if subscription.client_id else None
    is_client = bool(subscription.client_id) or subscription.destination == PUBLICATION_QUEUE
    return RoutedSubscription(
        subscriber=subscription.client_id or subscription.name,
        client_id=subscription.client_id,
        topic_filter=subscription.topic_filter,
        qos=delivered_qos(qos, subscription_qos(subscription.user_data)) if is_client else None,
        state="" if session is None else "connected" if session.connected else "away",
        waiting=0 if session is None else len(session.outbox.backlog),
        destination=subscription.destination,
    )


def _mappings(configuration: Configuration, request: RouteTopic) -> list[RoutedMapping]:
    """Try the publication with the mappings whose topic matches. Runs on a separate thread."""
    routed: list[RoutedMapping] = []
    for name, config in configuration.mappings.items():
        if not isinstance(config, ToMqMapping) or config.source.link != LOCAL:
            continue
        if not pattern_of(config.source.mqtt).matches(request.topic):
            continue
        if len(routed) == MAX_MAPPINGS:
            break
        takes, queue = False, ""
        try:
            trial = trial_of(name, configuration)
            publication = trial.published(
                request.topic,
                request.payload,
                qos=request.qos,
                retain=request.retain,
                client_id=request.client_id,
                properties={},
            )
            destination = trial.messages(publication)[0].destination
            takes = True
            outcome = f"{'topic' if destination.is_topic else 'queue'} {destination.name}"
            queue = "" if destination.is_topic or destination.queue_manager else destination.name
        except NotTaken as error:
            outcome = f"not taken: {error}"
        except Unmappable as error:
            outcome = f"dead-lettered with {cmqc.reason_name(error.reason)}: {error}"
        routed.append(RoutedMapping(name=name, state="", takes=takes, outcome=outcome, queue=queue))
    return routed


def _queues(parts: Parts, connection: Connection, names: Iterable[str]) -> list[RoutedQueue]:
    queues = []
    for name in names:
        try:
            (row,) = rows_of_queue(parts, name, connection)
        except (Refused, ValueError):
            continue  # an alias or a remote queue
        problem = "PUT(DISABLED)" if row.put_inhibited else "it is full" if row.depth >= row.max_depth else ""
        queues.append(RoutedQueue(name=name, depth=row.depth, max_depth=row.max_depth, problem=problem))
    return queues
