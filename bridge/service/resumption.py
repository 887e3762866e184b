"""Resumption of sessions: authorizes the subscriptions of a resumed session again."""

from __future__ import annotations

import asyncio
import logging

from bridge.archive.events import now_us
from bridge.archive.filter_tree import FilterTree
from bridge.mq.backend import SubscriptionRequest, UnitOfWork, resolve
from bridge.security import audit_log
from bridge.service.client import Client
from bridge.service.events import Finished, Unsubscribed
from bridge.service.subscriptions import topics_of
from bridge.service.telemetry import TelemetryService
from bridge.telemetry.identity import ClientIdentity, TopicAccess
from bridge.telemetry.outbox import NOT_ALLOWED
from bridge.telemetry.session import Session
from bridge.telemetry.subscription import DEFAULT_QOS_TOPIC, DIRECT_MESSAGE_QOS, FOREIGN, SHARED, subscription_data
from bridge.telemetry.transmission import Transmission
from bridge.wire import cmqc

log = logging.getLogger(__name__)


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

        removals = outbox.withdraw_sent(unwanted) + outbox.withdraw_waiting(unwanted)
        if not removals:
            return
        completion = await service.units.committed(UnitOfWork(removals=removals))
        if completion.failure:
            if self._denied.keys() & session.filters.keys():
                # The next resumption discards these messages. Without the filters, it would not, and they would stay on disk.
                outbox.mark_sent([one.msg_number for one in removals])
                outbox.backlog.extendleft(reversed(removals))
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
