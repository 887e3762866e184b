"""SUBSCRIBE, UNSUBSCRIBE and the subscriptions of resumed sessions.

The queue manager's subscriptions have the name `ClientIdentifier:Topic filter`. A share is a subscription of the queue
manager as long as it has members. Both sequences run to their end even if the client disconnects, because its session must
reflect what the queue manager has done.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping, Sequence

from bridge.clock import now_us
from bridge.mq.backend import SubscriptionRequest, UnitOfWork, resolve
from bridge.mqtt.packets import LEVEL_MQTT_5, SUBACK_FAILURE, PacketType, Subscribe, SubscriptionOptions, Unsubscribe
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.topics import FilterTree, topic_filter_error
from bridge.security import audit_log
from bridge.service.client import REQUEST_WEIGHT, Client
from bridge.service.events import Finished, Subscribed, Unsubscribed
from bridge.service.telemetry import LEVELS_PER_SUBSCRIPTION, Excess, TelemetryService, levels_left
from bridge.telemetry.conversion import reason_code_of
from bridge.telemetry.identity import ClientIdentity, TopicAccess
from bridge.telemetry.outbox import NOT_ALLOWED
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
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Syntax of EMQX and VerneMQ for shared subscriptions without a share name. In MQTT this is an ordinary topic, so every
#: subscriber would get every message.
_QUEUE = "$queue/"
_NO_QUEUE = "$queue/ is not part of MQTT, subscribe to $share/NAME/FILTER (MQTT 5 section 4.8.2)"

_NO_OPTIONS = SubscriptionOptions()
#: For the bridge of another broker, which has no options before MQTT 5: it does not get its own publications back, and RETAIN
#: is that of the publication, as between bridges of mosquitto.
_BRIDGE_OPTIONS = SubscriptionOptions(no_local=True, retain_as_published=True)
_TOO_LONG = "the answer for so many topic filters is longer than its Maximum Packet Size (MQTT-3.1.2-24)"


def topics_of(topic_filter: str) -> str:
    """Return a topic filter without its share prefix."""
    return topic_filter.split("/", 2)[2] if is_shared(topic_filter) else topic_filter


async def subscribe(service: TelemetryService, client: Client, session: Session, packet: Subscribe) -> None:
    """Answer SUBSCRIBE (MQTT 3.1.1 section 3.8) with SUBACK after the queue manager has created the subscriptions.

    Before MQTT 5, the return code 0x80 means a rejection.
    """
    user = session.identity.user.decode("utf-8", "replace")
    received = now_us()
    version_5 = client.protocol.level == LEVEL_MQTT_5
    codes: list[int] = []
    told = ""
    wanted: list[tuple[int, SubscriptionRequest]] = []
    shared: list[tuple[int, SubscriptionRequest]] = []
    known = {*session.filters, *(topic_filter for topic_filter, _ in session.shares.values())}
    identifier = packet.properties.subscription_identifier if packet.properties is not None else None
    identifiers = () if identifier is None else (identifier,)
    plain = itertools.repeat(_BRIDGE_OPTIONS if client.protocol.bridge else _NO_OPTIONS)
    room, full = service.quotas.subscriptions_left(session)
    levels = levels_left(session, service.limits)
    for (topic_filter, qos), options in zip(packet.topics, packet.options or plain, strict=False):
        sharing = is_shared(topic_filter)
        error = shared_subscription_error if sharing else topic_filter_error
        why, code = error(topic_filter), ReasonCode.TOPIC_FILTER_INVALID
        excess: Excess | None = None
        if session.ending:
            why = "its session ends when it has received the waiting messages, because its backlog exceeded the limits"
            code = ReasonCode.QUOTA_EXCEEDED
        elif topic_filter.startswith(_QUEUE):
            why = told = _NO_QUEUE
        elif why is None and len(codes) >= service.limits.subscribe_filters:
            excess = Excess(
                "subscribe_filters", "", f"a SUBSCRIBE has at most {service.limits.subscribe_filters} topic filters"
            )
        elif why is None and topic_filter not in known and room <= 0:
            excess = full
        elif why is None and topic_filter not in known and levels <= topic_filter.count("/"):
            most = LEVELS_PER_SUBSCRIPTION * service.limits.subscriptions
            excess = Excess("subscriptions", "", f"the filters of a client have at most {most} levels")
        elif why is None and session.topics is not None and not session.topics.may_subscribe(topics_of(topic_filter)):
            why, code = "the channel does not let it subscribe to that (subscribe_topics)", ReasonCode.NOT_AUTHORIZED
        if excess is not None:
            why, code = str(excess), ReasonCode.QUOTA_EXCEEDED
            service.limit_hits.note(excess.option, excess.owner or session.client_id)
        if why is not None:
            log.warning("MQB2201W client %s: rejected subscription to %r: %s", client.peer, topic_filter, why)
            audit_log.note(
                "subscription refused", client.peer, channel=client.channel.name, filter=topic_filter, why=why
            )
        elif sharing:
            # QoS 2 cannot be guaranteed across members: see SHARED.
            data = SubscriptionData(min(qos, SHARED.qos), False, options.retain_as_published, identifiers)
            shared.append((len(codes), SubscriptionRequest(topic_filter, data, retained=False)))
        else:
            data = SubscriptionData(qos, options.no_local, options.retain_as_published, identifiers)
            handling = options.retain_handling
            retained = not handling or (handling == 1 and topic_filter not in session.filters)
            wanted.append((len(codes), SubscriptionRequest(topic_filter, data, retained)))
        if why is None and topic_filter not in known:
            room -= 1
            levels -= topic_filter.count("/") + 1
        codes.append(code if version_5 else SUBACK_FAILURE)

    added = {
        request.topic_filter: request.data.user_data
        for _, request in wanted
        if request.topic_filter not in session.filters
    }
    session.filters |= added
    client.hold(REQUEST_WEIGHT * (len(wanted) + len(shared)))
    subscribing = service.backend.subscribe(
        session.client_id, [request for _, request in wanted], durable=session.durable, user=user
    )
    joining = Joining(service, session, [request for _, request in shared], user)
    service.quotas.update_subscriptions(session)
    reasons = await subscribing
    client.release(REQUEST_WEIGHT * len(wanted))
    reasons = reasons + await joining.finish()
    client.release(REQUEST_WEIGHT * len(shared))

    granted = []
    for (position, request), reason in sorted(
        zip(wanted + shared, reasons, strict=True), key=lambda asked: asked[0][0]
    ):
        topic_filter, qos = request.topic_filter, request.data.qos
        if reason:
            log.warning(
                "MQB2202W client %s: rejected subscription to %r as user %r: %s (%d)",
                client.peer,
                topic_filter,
                user,
                cmqc.reason_name(reason),
                reason,
            )
            if topic_filter in added:
                session.filters.pop(topic_filter, None)
            codes[position] = reason_code_of(reason, PacketType.SUBACK) if version_5 else SUBACK_FAILURE
            continue
        codes[position] = qos
        if topic_filter in session.filters:
            session.filters[topic_filter] = request.data.user_data
        granted.append((topic_filter, qos))
        if topic_filter == DEFAULT_QOS_TOPIC:
            session.outbox.direct_qos = qos
    service.quotas.update_subscriptions(session)
    if not client.protocol.suback(packet.message_id, codes, told):
        client.close(_TOO_LONG, ReasonCode.PACKET_TOO_LARGE)
    client.transport.flush()
    service.events.publish(Subscribed(session, granted, received))
    if shared and client.session is session:
        service.delivery.pump(session, client)


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
            asked = session.shares.get(name)
            # None: the client has unsubscribed, or the session has ended.
            if asked is not None and not reason:
                share.add(session, asked[1])
            elif asked is not None and name in before:
                session.shares[name] = before[name]
            else:
                session.shares.pop(name, None)
            service.end_share(share)
        failure = await _put_on_record(service, session)
        if not failure:
            return reasons
        for share in self._shares:
            if share.subscription.remote_queue_manager not in before:
                service.leave_share(session, share)
                service.end_share(share)
        return [failure] * len(reasons)


async def _put_on_record(service: TelemetryService, session: Session) -> int:
    """Commit the memberships of a durable session and return the reason of a failure, or MQRC_NONE."""
    if not session.durable or service.sessions.get(session.client_id) is not session:
        return cmqc.MQRC_NONE
    unit = UnitOfWork()
    session.save_sent()
    recording = [(session, session.take_records(unit.records))]
    completion = await service.units.committed(unit)
    service.delivery.saved(recording, unit.records, completion)
    return completion.failure


async def unsubscribe(service: TelemetryService, client: Client, session: Session, packet: Unsubscribe) -> None:
    """Answer UNSUBSCRIBE (MQTT 3.1.1 section 3.10) with UNSUBACK after the subscriptions were removed."""
    shares = [share for share in service.delivery.shares.of(session) if share.subscription.written in packet.topics]
    known = {*session.filters, *(share.subscription.written for share in shares)}
    codes: list[int] = []
    for topic_filter in packet.topics:
        error = shared_subscription_error if is_shared(topic_filter) else topic_filter_error
        if topic_filter in known:
            # Treat each filter like a separate packet (MQTT-3.10.4-6): a repeated filter no longer exists.
            known.discard(topic_filter)
            codes.append(ReasonCode.SUCCESS)
        elif error(topic_filter) is not None:
            codes.append(ReasonCode.TOPIC_FILTER_INVALID)
        else:
            codes.append(ReasonCode.NO_SUBSCRIPTION_EXISTED)
    removed = {one: data for one in packet.topics if (data := session.filters.pop(one, None)) is not None}
    service.quotas.update_subscriptions(session)
    received = now_us()

    client.hold(REQUEST_WEIGHT * len(packet.topics))
    for share in shares:
        service.leave_share(session, share)
    unsubscribing = service.backend.unsubscribe(session.client_id, packet.topics)
    if shares:
        # Record the change first: shares without recorded members are removed at the next start at the latest.
        await _put_on_record(service, session)
        for ending in [service.end_share(share) for share in shares]:
            if ending is not None:
                await ending
    reasons = await unsubscribing

    client.release(REQUEST_WEIGHT * len(packet.topics))
    failed = {one: reason for one, reason in zip(packet.topics, reasons, strict=True) if reason and one in removed}
    if DEFAULT_QOS_TOPIC in removed.keys() - failed.keys():
        session.outbox.direct_qos = DIRECT_MESSAGE_QOS
    if failed:
        _keep_subscribed(service, client, session, removed, failed)
        for position, topic_filter in enumerate(packet.topics):
            if reason := failed.pop(topic_filter, 0):
                codes[position] = reason_code_of(reason, PacketType.UNSUBACK)
        if client.protocol.level != LEVEL_MQTT_5:
            return  # UNSUBACK cannot report failures: the connection was closed
    if not client.protocol.unsuback(packet.message_id, codes):
        client.close(_TOO_LONG, ReasonCode.PACKET_TOO_LARGE)
    client.transport.flush()
    service.events.publish(Unsubscribed(session, packet.topics, received))


def _keep_subscribed(
    service: TelemetryService, client: Client, session: Session, removed: Mapping[str, str], failed: Mapping[str, int]
) -> None:
    """Keep the filters of subscriptions that the queue manager failed to remove, and report the failure to the client."""
    if service.sessions.get(session.client_id) is session:
        session.filters |= {one: removed[one] for one in failed}
        service.quotas.update_subscriptions(session)
    topic_filter, reason = next(iter(failed.items()))
    why = f"unsubscribing from {topic_filter[:200]!r} failed: {cmqc.reason_name(reason)} ({reason})"
    log.warning("MQB2204W client %s: %s", client.peer, why)
    if client.protocol.level != LEVEL_MQTT_5:
        client.close(f"{why}; it is not acknowledged")


class Failure(Exception):
    """The subscriptions of a session cannot be authorized now. The message is for the log."""


async def authorize_again(
    service: TelemetryService, client: Client, session: Session, identity: ClientIdentity, topics: TopicAccess | None
) -> None:
    """Remove the subscriptions of a resumed session that its client is no longer allowed to have. Raises Failure.

    The channel's rules are checked if they differ from those of the previous connection, or if that connection is unknown
    because the bridge was restarted. The queue manager decides what it checks (`Backend.authorize`).
    """
    while (earlier := service.resuming.get(session)) is not None:
        # A previous connection of the same owner has started this. The client must not get messages before it has ended.
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
        """Check the channel's rules and the queue manager's authorities, and remove denied subscriptions. Raises Failure."""
        failure = await self._check(topics)
        if self._denied and self._current:
            self._report()
            service, session = self._service, self._session
            # The next record of the session, which precedes CONNACK, contains the changed memberships.
            for share in service.delivery.shares.of(session):
                if share.subscription.written in self._denied:
                    service.leave_share(session, share)
                    service.end_share(share)
            # Remove the messages of denied subscriptions first: after a crash, nothing would show which subscription they
            # came for.
            await self._discard()
            await self._unsubscribe()
            if self._current and not failure:
                service.events.publish(Unsubscribed(session, list(self._denied), now_us()))
        if failure:
            raise Failure(failure)

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
        for written, share in shares.items():
            if written not in self._denied:
                request = SubscriptionRequest(written, SHARED, retained=False)
                questions.append((share.subscription.remote_queue_manager, [request], session.client_id))
        answers = [
            self._service.backend.authorize(name, asked, user=self._user, changed=self._changed, member=member)
            for name, asked, member in questions
        ]
        failure = ""
        for (_, asked, _), answer in zip(questions, answers, strict=True):
            for request, reason in zip(asked, await answer, strict=True):
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

    @property
    def _current(self) -> bool:
        """Whether the session has not ended in the meantime."""
        return self._service.sessions.get(self._session.client_id) is self._session

    async def _discard(self) -> None:
        """Remove the messages of subscriptions that no remaining topic filter covers. Raises Failure."""
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
            raise Failure(f"messages cannot be discarded: {cmqc.reason_name(completion.failure)}")
        reasons = {one.msg_number: NOT_ALLOWED for one in removals}
        service.events.publish(Finished(session, removals, reasons))
        service.delivery.review(outbox.backlog)

    async def _unsubscribe(self) -> None:
        """Remove denied subscriptions, and discard messages still on their way. Raises Failure."""
        service, session = self._service, self._session
        denied = [topic_filter for topic_filter in self._denied if topic_filter in session.filters]
        if not self._current or not denied:
            return
        user_data = {topic_filter: session.filters.pop(topic_filter) for topic_filter in denied}
        service.quotas.update_subscriptions(session)
        reasons = await service.backend.unsubscribe(session.client_id, denied, handed_over=True)
        if reason := next(filter(None, reasons), cmqc.MQRC_NONE):
            session.filters |= user_data
            service.quotas.update_subscriptions(session)
            raise Failure(f"subscriptions cannot be removed: {cmqc.reason_name(reason)}")
        if DEFAULT_QOS_TOPIC in user_data:
            session.outbox.direct_qos = DIRECT_MESSAGE_QOS
        # Those messages reach the session after the deliveries that wait for their turn.
        await service.turns.turn()
        await self._discard()
