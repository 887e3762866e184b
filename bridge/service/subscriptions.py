"""SUBSCRIBE, UNSUBSCRIBE and the subscriptions of resumed sessions.

The queue manager's subscriptions have the name `ClientIdentifier:Topic filter`. A share is a subscription of the queue
manager as long as it has members. Both sequences run to their end even if the client disconnects, because its session must
reflect what the queue manager has done.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from bridge.clock import now_us
from bridge.config.models import LimitsConfig
from bridge.mq.backend import SubscriptionRequest, UnitOfWork, resolve
from bridge.mqtt.packets import LEVEL_MQTT_5, SUBACK_FAILURE, PacketType, Subscribe, SubscriptionOptions, Unsubscribe
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.topics import FilterTree, topic_filter_error
from bridge.security import audit_log
from bridge.service.client import REQUEST_WEIGHT, Client
from bridge.service.events import Finished, Subscribed, Unsubscribed
from bridge.service.telemetry import LEVELS_PER_SUBSCRIPTION, Excess, Quotas, TelemetryService, levels_left
from bridge.telemetry.conversion import reason_code_of
from bridge.telemetry.identity import ClientIdentity, TopicAccess
from bridge.telemetry.session import Session
from bridge.telemetry.subscription import (
    DEFAULT_QOS_TOPIC,
    DIRECT_MESSAGE_QOS,
    FOREIGN,
    SHARED,
    SubscriptionData,
    is_shared,
    shared_subscription_error,
    subscription_data,
)
from bridge.telemetry.transmission import Transmission
from bridge.telemetry.undelivered import NOT_ALLOWED
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Maximum number of shared subscriptions of a client if other bridges serve members, too. The queue manager has a queue for
#: each, which the bridge polls.
MAX_DIVIDED_SHARES = 100
#: Maximum number of seconds for which UNSUBACK waits until shared subscriptions without members are removed. Another bridge
#: may hang while it changes the members.
MAX_UNSUBACK_DELAY = 2.0
#: Syntax of EMQX and VerneMQ for shared subscriptions without a share name. In MQTT this is an ordinary topic, so every
#: subscriber would get every message.
_QUEUE = "$queue/"
_NO_QUEUE = "$queue/ is not part of MQTT, subscribe to $share/NAME/FILTER (MQTT 5 section 4.8.2)"

_NO_OPTIONS = SubscriptionOptions()
#: The options of a bridge of another broker, which cannot specify them before MQTT 5. It does not receive its own
#: publications, and RETAIN is that of the publication, as between bridges of mosquitto.
_BRIDGE_OPTIONS = SubscriptionOptions(no_local=True, retain_as_published=True)
_TOO_LONG = "the answer for so many topic filters is longer than its Maximum Packet Size (MQTT-3.1.2-24)"


def topics_of(topic_filter: str) -> str:
    """Return a topic filter without its share prefix."""
    return topic_filter.split("/", 2)[2] if is_shared(topic_filter) else topic_filter


def _fault(topic_filter: str) -> str | None:
    """Return the error in a topic filter, or None."""
    return (shared_subscription_error if is_shared(topic_filter) else topic_filter_error)(topic_filter)


class Rejection(NamedTuple):
    """The reason why the bridge rejects a topic filter without asking the queue manager."""

    code: ReasonCode
    why: str
    #: the limit that the subscription would exceed
    excess: Excess | None = None


class RequestedFilter(msgspec.Struct, eq=False):
    """A topic filter of a SUBSCRIBE, and its answer."""

    topic_filter: str
    #: None if the bridge itself rejects the filter
    request: SubscriptionRequest | None = None
    #: the reason code of SUBACK: the granted QoS, or an error
    code: int = ReasonCode.UNSPECIFIED_ERROR
    #: why the bridge rejects the filter
    why: str = ""

    @property
    def shared(self) -> bool:
        return is_shared(self.topic_filter)


class FilterRules:
    """The rules for the topic filters of one SUBSCRIBE."""

    def __init__(self, session: Session, limits: LimitsConfig, quotas: Quotas, *, divided: bool = False) -> None:
        """`divided`: other bridges serve members of shared subscriptions, too."""
        self._session = session
        self._limits = limits
        self._known = {*session.filters, *(topic_filter for topic_filter, _ in session.shares.values())}
        #: numbers of subscriptions and of topic levels that the session may add
        self._subscriptions, self._reached = quotas.subscriptions_left(session)
        self._levels = levels_left(session, limits)
        self._filters = 0
        #: number of shared subscriptions that the session may join
        self._shares = MAX_DIVIDED_SHARES - len(session.shares) if divided else sys.maxsize

    def rejection(self, topic_filter: str) -> Rejection | None:
        """Return why the next filter is rejected, or None, and then count it."""
        rejection = self._rejection(topic_filter)
        self._filters += 1
        if rejection is None and topic_filter not in self._known:
            self._subscriptions -= 1
            self._levels -= topic_filter.count("/") + 1
            self._shares -= is_shared(topic_filter)
        return rejection

    def _rejection(self, topic_filter: str) -> Rejection | None:
        session = self._session
        if session.ending:
            why = "its session ends when it has received the waiting messages, because its backlog exceeded the limits"
            return Rejection(ReasonCode.QUOTA_EXCEEDED, why)
        if topic_filter.startswith(_QUEUE):
            return Rejection(ReasonCode.TOPIC_FILTER_INVALID, _NO_QUEUE)
        if (fault := _fault(topic_filter)) is not None:
            return Rejection(ReasonCode.TOPIC_FILTER_INVALID, fault)
        if (excess := self._excess(topic_filter)) is not None:
            return Rejection(ReasonCode.QUOTA_EXCEEDED, str(excess), excess)
        if session.topics is not None and not session.topics.may_subscribe(topics_of(topic_filter)):
            why = "the channel does not allow it (subscribe_topics)"
            return Rejection(ReasonCode.NOT_AUTHORIZED, why)
        return None

    def _excess(self, topic_filter: str) -> Excess | None:
        limits = self._limits
        if self._filters >= limits.subscribe_filters:
            why = f"a SUBSCRIBE has at most {limits.subscribe_filters} topic filters"
            return Excess("subscribe_filters", "", why)
        if topic_filter in self._known:
            return None
        if self._subscriptions <= 0:
            return self._reached
        if self._shares <= 0 and is_shared(topic_filter):
            why = f"a client has at most {MAX_DIVIDED_SHARES} shared subscriptions (queue_manager.shard)"
            return Excess("subscriptions", "", why)
        if self._levels <= topic_filter.count("/"):
            most = LEVELS_PER_SUBSCRIPTION * limits.subscriptions
            return Excess("subscriptions", "", f"the filters of a client have at most {most} levels")
        return None


async def subscribe(service: TelemetryService, client: Client, session: Session, packet: Subscribe) -> None:
    """Answer SUBSCRIBE (MQTT 3.1.1 section 3.8) with SUBACK after the queue manager has created the subscriptions."""
    user = session.identity.user.decode("utf-8", "replace")
    received = now_us()
    filters = _judge(service, client, session, packet)
    shared = [requested.request for requested in filters if requested.request and requested.shared]
    plain = [requested.request for requested in filters if requested.request and not requested.shared]
    new_filters = {request.topic_filter for request in plain} - session.filters.keys()
    session.filters |= {
        request.topic_filter: request.data.user_data for request in plain if request.topic_filter in new_filters
    }

    client.hold(REQUEST_WEIGHT * (len(plain) + len(shared)))
    # Both are submitted before the first await, to preserve the order of the client's packets.
    subscribing = service.backend.subscribe(session.client_id, plain, durable=session.durable, user=user)
    joining = Joining(service, session, shared, user)
    service.quotas.update_subscriptions(session)
    plain_reasons = iter(await subscribing)
    client.release(REQUEST_WEIGHT * len(plain))
    shared_reasons = iter(await joining.finish())
    client.release(REQUEST_WEIGHT * len(shared))

    granted: list[tuple[str, int]] = []
    for requested in filters:
        if requested.request is None:
            continue
        topic_filter, subscription = requested.topic_filter, requested.request.data
        if reason := next(shared_reasons if requested.shared else plain_reasons):
            _report_rejected(client, topic_filter, user, reason)
            requested.code = reason_code_of(reason, PacketType.SUBACK)
            if topic_filter in new_filters:
                session.filters.pop(topic_filter, None)
            continue
        requested.code = subscription.qos
        granted.append((topic_filter, subscription.qos))
        if topic_filter in session.filters:
            session.filters[topic_filter] = subscription.user_data
        if topic_filter == DEFAULT_QOS_TOPIC:
            session.outbox.direct_qos = subscription.qos
    service.quotas.update_subscriptions(session)
    _answer(client, packet.packet_id, filters)
    service.events.publish(Subscribed(session, granted, received))
    if shared and client.session is session:
        service.delivery.pump(session, client)


def _judge(service: TelemetryService, client: Client, session: Session, packet: Subscribe) -> list[RequestedFilter]:
    """Return the filters of a SUBSCRIBE with the requests to the queue manager, and log those that the bridge rejects."""
    rules = FilterRules(session, service.limits, service.quotas, divided=service.backend.divided_shares is not None)
    identifier = packet.properties.subscription_identifier if packet.properties is not None else None
    identifiers = () if identifier is None else (identifier,)
    implied = itertools.repeat(_BRIDGE_OPTIONS if client.protocol.bridge else _NO_OPTIONS)
    filters: list[RequestedFilter] = []
    for (topic_filter, qos), options in zip(packet.topics, packet.options or implied, strict=False):
        rejection = rules.rejection(topic_filter)
        if rejection is None:
            request = _request(session, topic_filter, qos, options, identifiers)
            filters.append(RequestedFilter(topic_filter, request))
            continue
        code, why, excess = rejection
        filters.append(RequestedFilter(topic_filter, None, code, why))
        if excess is not None:
            service.limit_hits.note(excess.option, excess.owner or session.client_id)
        log.warning("MQB2201W client %s: rejected subscription to %r: %s", client.peer, topic_filter, why)
        audit_log.note("subscription refused", client.peer, channel=client.channel.name, filter=topic_filter, why=why)
    return filters


def _request(
    session: Session, topic_filter: str, qos: int, options: SubscriptionOptions, identifiers: tuple[int, ...]
) -> SubscriptionRequest:
    if is_shared(topic_filter):
        # QoS 2 cannot be guaranteed across members: see SHARED.
        shared = SubscriptionData(min(qos, SHARED.qos), False, options.retain_as_published, identifiers)
        return SubscriptionRequest(topic_filter, shared, retained=False)
    handling = options.retain_handling
    retained = not handling or (handling == 1 and topic_filter not in session.filters)
    subscription = SubscriptionData(qos, options.no_local, options.retain_as_published, identifiers)
    return SubscriptionRequest(topic_filter, subscription, retained)


def _report_rejected(client: Client, topic_filter: str, user: str, reason: int) -> None:
    log.warning(
        "MQB2202W client %s: rejected subscription to %r as user %r: %s (%d)",
        client.peer,
        topic_filter,
        user,
        cmqc.reason_name(reason),
        reason,
    )


def _answer(client: Client, packet_id: int, filters: Sequence[RequestedFilter]) -> None:
    """Send SUBACK. Before MQTT 5, the return code 0x80 means a rejection."""
    codes = [requested.code for requested in filters]
    if client.protocol.level != LEVEL_MQTT_5:
        codes = [min(code, SUBACK_FAILURE) for code in codes]
    why = _NO_QUEUE if any(requested.why is _NO_QUEUE for requested in filters) else ""
    if not client.protocol.suback(packet_id, codes, why):
        client.close(_TOO_LONG, ReasonCode.PACKET_TOO_LARGE)
    client.transport.flush()


class Joining:
    """A session that is becoming a member of shares.

    The queue manager checks the authority of each member. An existing share keeps its subscription.
    """

    def __init__(
        self, service: TelemetryService, session: Session, requests: Sequence[SubscriptionRequest], user: str
    ) -> None:
        """Submit the requests to the queue manager."""
        self._service = service
        self._session = session
        self._shares = [service.delivery.shares.share(request.topic_filter) for request in requests]
        self._before = dict(session.shares)
        for share, request in zip(self._shares, requests, strict=True):
            share.joining += 1
            session.shares[share.subscription.remote_queue_manager] = request.topic_filter, request.data.user_data
        self._answers = [
            service.backend.subscribe(
                share.subscription.remote_queue_manager,
                [SubscriptionRequest(request.topic_filter, SHARED, retained=False)],
                durable=True,
                user=user,
                member=session.client_id,
            )
            for share, request in zip(self._shares, requests, strict=True)
        ]

    async def finish(self) -> list[int]:
        """Return a reason code for each share after recording the memberships."""
        if not self._shares:
            return []
        service, session, before = self._service, self._session, self._before
        reasons = []
        for share, answer in zip(self._shares, self._answers, strict=True):
            (reason,) = await answer
            reasons.append(reason)
            name = share.subscription.remote_queue_manager
            share.joining -= 1
            membership = session.shares.get(name)
            # None: the client has unsubscribed, or the session has ended.
            if membership is not None and not reason:
                share.add(session, membership[1])
            elif membership is not None and name in before:
                session.shares[name] = before[name]
            else:
                session.shares.pop(name, None)
            service.end_share(share)
        failure = await _record_memberships(service, session)
        if not failure:
            return reasons
        for share in self._shares:
            if share.subscription.remote_queue_manager not in before:
                service.leave_share(session, share)
                service.end_share(share)
        return [failure] * len(reasons)


async def _record_memberships(service: TelemetryService, session: Session) -> int:
    """Commit the memberships of a durable session and return the reason of a failure, or MQRC_NONE."""
    if not session.durable or session.ended:
        return cmqc.MQRC_NONE
    session.save_sent()
    return (await service.delivery.commit(session)).failure


async def unsubscribe(service: TelemetryService, client: Client, session: Session, packet: Unsubscribe) -> None:
    """Answer UNSUBSCRIBE (MQTT 3.1.1 section 3.10) with UNSUBACK after the subscriptions were removed."""
    shares = [share for share in service.delivery.shares.of(session) if share.subscription.written in packet.topics]
    filters = {*session.filters, *(share.subscription.written for share in shares)}
    codes: list[int] = []
    for topic_filter in packet.topics:
        if topic_filter in filters:
            # Treat each filter like a separate packet (MQTT-3.10.4-6): a repeated filter no longer exists.
            filters.discard(topic_filter)
            codes.append(ReasonCode.SUCCESS)
        elif _fault(topic_filter) is not None:
            codes.append(ReasonCode.TOPIC_FILTER_INVALID)
        else:
            codes.append(ReasonCode.NO_SUBSCRIPTION_EXISTED)
    former = {
        topic_filter: user_data
        for topic_filter in packet.topics
        if (user_data := session.filters.pop(topic_filter, None)) is not None
    }
    service.quotas.update_subscriptions(session)
    received = now_us()

    client.hold(REQUEST_WEIGHT * len(packet.topics))
    for share in shares:
        service.leave_share(session, share)
    unsubscribing = service.backend.unsubscribe(session.client_id, packet.topics)
    if shares:
        # Record the change first: shares without recorded members are removed at the next start at the latest.
        await _record_memberships(service, session)
        endings = [ending for share in shares if (ending := service.end_share(share)) is not None]
        if endings:
            await asyncio.wait(endings, timeout=MAX_UNSUBACK_DELAY)
    reasons = await unsubscribing

    client.release(REQUEST_WEIGHT * len(packet.topics))
    failed = {
        topic_filter: reason
        for topic_filter, reason in zip(packet.topics, reasons, strict=True)
        if reason and topic_filter in former
    }
    if DEFAULT_QOS_TOPIC in former.keys() - failed.keys():
        session.outbox.direct_qos = DIRECT_MESSAGE_QOS
    if failed:
        _keep_subscribed(service, client, session, former, failed)
        for position, topic_filter in enumerate(packet.topics):
            if reason := failed.pop(topic_filter, 0):
                codes[position] = reason_code_of(reason, PacketType.UNSUBACK)
        if client.protocol.level != LEVEL_MQTT_5:
            return  # UNSUBACK cannot report failures: the connection was closed
    if not client.protocol.unsuback(packet.packet_id, codes):
        client.close(_TOO_LONG, ReasonCode.PACKET_TOO_LARGE)
    client.transport.flush()
    service.events.publish(Unsubscribed(session, packet.topics, received))


def _keep_subscribed(
    service: TelemetryService, client: Client, session: Session, former: Mapping[str, str], failed: Mapping[str, int]
) -> None:
    """Keep the filters of subscriptions that the queue manager failed to remove, and report the failure to the client."""
    if not session.ended:
        session.filters |= {topic_filter: former[topic_filter] for topic_filter in failed}
        service.quotas.update_subscriptions(session)
    topic_filter, reason = next(iter(failed.items()))
    why = f"unsubscribing from {topic_filter[:200]!r} failed: {cmqc.reason_name(reason)} ({reason})"
    log.warning("MQB2204W client %s: %s", client.peer, why)
    if client.protocol.level != LEVEL_MQTT_5:
        client.close(f"{why}; it is not acknowledged")


class AuthorizationFailure(Exception):
    """The subscriptions of a session cannot be authorized now. The message is for the log."""


async def authorize_again(
    service: TelemetryService, client: Client, session: Session, identity: ClientIdentity, topics: TopicAccess | None
) -> None:
    """Remove the subscriptions of a resumed session that its client is no longer allowed to have.

    The channel's rules are checked if they differ from those of the previous connection, or if that connection is unknown
    because the bridge was restarted. The queue manager decides which authorities it checks (`Backend.authorize`). Raises
    AuthorizationFailure.
    """
    while (earlier := service.resuming.get(session)) is not None:
        # A previous connection of the same owner has started this. The client must not receive messages before that ends.
        await asyncio.wait([earlier])
    service.resuming[session] = ended = asyncio.get_running_loop().create_future()
    try:
        await Authorization(service, client, session, identity).run(topics)
    finally:
        del service.resuming[session]
        resolve(ended, None)


class Authorization:
    """The authorization of one resumed session's subscriptions."""

    def __init__(self, service: TelemetryService, client: Client, session: Session, identity: ClientIdentity) -> None:
        self._service = service
        self._client = client
        self._session = session
        self._user = identity.user.decode("utf-8", "replace")
        self._changed = identity.user != session.identity.user
        #: topic filters as written by the client -> reason for display
        self._denied: dict[str, str] = {}

    async def run(self, topics: TopicAccess | None) -> None:
        """Check the rules of the channel and the queue manager, remove denied subscriptions. Raises AuthorizationFailure."""
        failure = await self._check(topics)
        if self._denied and not self._session.ended:
            self._report()
            service, session = self._service, self._session
            # The next record of the session, which precedes CONNACK, contains the changed memberships.
            for share in service.delivery.shares.of(session):
                if share.subscription.written in self._denied:
                    service.leave_share(session, share)
                    service.end_share(share)
            # Remove the messages of denied subscriptions first: after a crash, nothing would show which subscription they
            # belong to.
            await self._discard()
            await self._unsubscribe()
            if not (failure or session.ended):
                service.events.publish(Unsubscribed(session, list(self._denied), now_us()))
        if failure:
            raise AuthorizationFailure(failure)

    async def _check(self, topics: TopicAccess | None) -> str:
        """Determine the denied subscriptions. Return why others cannot be authorized, or ""."""
        session = self._session
        shares = {share.subscription.written: share for share in self._service.delivery.shares.of(session)}
        if topics is not None and (session.topics is None or not session.topics.subscribes_like(topics)):
            why = "the channel does not allow it (subscribe_topics)"
            for topic_filter in (*session.filters, *shares):
                if not topics.may_subscribe(topics_of(topic_filter)):
                    self._denied[topic_filter] = why
        requests = [
            SubscriptionRequest(topic_filter, subscription_data(user_data), retained=False)
            for topic_filter, user_data in session.filters.items()
            if topic_filter not in self._denied
        ]
        questions = [(session.client_id, requests, "")] if requests else []
        for shared_filter, share in shares.items():
            if shared_filter not in self._denied:
                request = SubscriptionRequest(shared_filter, SHARED, retained=False)
                questions.append((share.subscription.remote_queue_manager, [request], session.client_id))
        answers = [
            self._service.backend.authorize(name, requests, user=self._user, changed=self._changed, member=member)
            for name, requests, member in questions
        ]
        failure = ""
        for (_, checked_requests, _), answer in zip(questions, answers, strict=True):
            for request, reason in zip(checked_requests, await answer, strict=True):
                why = f"user {self._user!r}: {cmqc.reason_name(reason)} ({reason})"
                if reason == cmqc.MQRC_NOT_AUTHORIZED:
                    self._denied[request.topic_filter] = why
                elif reason:
                    failure = f"its subscription to {request.topic_filter!r} cannot be authorized as {why}"
        return failure

    def _report(self) -> None:
        client = self._client
        for topic_filter, why in self._denied.items():
            log.warning(
                "MQB2203W client %s: unsubscribed from %r on resumption of its session: %s",
                client.peer,
                topic_filter,
                why,
            )
            audit_log.note(
                "unsubscribed on resumption", client.peer, channel=client.channel.name, filter=topic_filter, why=why
            )

    async def _discard(self) -> None:
        """Remove the messages of subscriptions that no remaining topic filter covers. Raises AuthorizationFailure."""
        service, session, outbox = self._service, self._session, self._session.outbox
        remaining: FilterTree[None] = FilterTree()
        for topic_filter in session.filters:
            if topic_filter not in self._denied:
                remaining.add(topic_filter, None)

        def unwanted(transmission: Transmission) -> bool:
            user_data = transmission.user_data
            if (
                user_data is None
                or subscription_data(user_data) is FOREIGN
                or transmission.client_id != session.client_id
            ):
                return False  # put directly to the client, or for another subscription
            return not remaining.find(transmission.topic or "")

        withdrawn = outbox.withdraw_sent(unwanted) + outbox.withdraw_waiting(unwanted)
        removals = [transmission for _, transmission in withdrawn]
        if not removals:
            return
        completion = await service.units.committed(UnitOfWork(removals=removals))
        if completion.failure:
            if self._denied.keys() & session.filters.keys():
                # The next resumption discards these messages. Without the filters, it would not, and they would stay on disk.
                outbox.restore(withdrawn)
            raise AuthorizationFailure(f"messages cannot be discarded: {cmqc.reason_name(completion.failure)}")
        reasons = {transmission.msg_number: NOT_ALLOWED for transmission in removals}
        service.events.publish(Finished(session, removals, reasons))
        service.delivery.review(outbox.backlog)

    async def _unsubscribe(self) -> None:
        """Remove denied subscriptions, and discard messages still on their way. Raises AuthorizationFailure."""
        service, session = self._service, self._session
        denied = [topic_filter for topic_filter in self._denied if topic_filter in session.filters]
        if session.ended or not denied:
            return
        user_data = {topic_filter: session.filters.pop(topic_filter) for topic_filter in denied}
        service.quotas.update_subscriptions(session)
        reasons = await service.backend.unsubscribe(session.client_id, denied, handed_over=True)
        if reason := next(filter(None, reasons), cmqc.MQRC_NONE):
            session.filters |= user_data
            service.quotas.update_subscriptions(session)
            raise AuthorizationFailure(f"subscriptions cannot be removed: {cmqc.reason_name(reason)}")
        if DEFAULT_QOS_TOPIC in user_data:
            session.outbox.direct_qos = DIRECT_MESSAGE_QOS
        # Those messages reach the session after the deliveries that wait for their turn.
        await service.turns.turn()
        await self._discard()
