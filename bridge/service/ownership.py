"""Session ownership: which clients may resume a session, and what a resumed session may still receive."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from bridge.archive.events import now_us
from bridge.archive.filter_tree import FilterTree
from bridge.mq.backend import Completion, SubscriptionRequest, UnitOfWork
from bridge.mqtt.packets import ConnackCode
from bridge.security import audit_log
from bridge.service.admission import answer_refusal
from bridge.service.authentication import BELIEVED
from bridge.service.client import Client
from bridge.service.events import Finished, SessionRejected, Unsubscribed
from bridge.service.sessions import Sessions
from bridge.service.sharing import end_without_members, leave
from bridge.service.subscriptions import topics_of
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.outbox import NOT_ALLOWED
from bridge.telemetry.session import Session
from bridge.telemetry.subscription import DEFAULT_QOS_TOPIC, DIRECT_MESSAGE_QOS, FOREIGN, SHARED, subscription_data
from bridge.telemetry.topic_access import TopicAccess
from bridge.telemetry.transmission import Transmission
from bridge.wire import cmqc

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
        "MQB1212W channel %s: rejected client %s as %s: its client identifier belongs to a session of %s on channel %s; "
        "hint: `mqbridge client purge` ends that session, shared_client_ids of both channels lets users share it",
        client.channel.name,
        client.peer,
        client.principal,
        session.principal,
        session.channel,
    )
    service.events.publish(SessionRejected(client.channel.name))
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


#: Called when the subscriptions of a resumed session are authorized; with the reason, in words, if that failed.
Authorized = Callable[[str], None]


def authorize_again(
    service: Sessions,
    client: Client,
    session: Session,
    identity: ClientIdentity,
    topics: TopicAccess | None,
    then: Authorized,
) -> None:
    """Unsubscribe a resumed session from all that its client may not receive any longer, then call `then`.

    The rules of the channel are checked if they differ from those of the previous connection, or if that one is not known
    because the bridge was restarted. The queue manager decides what it checks (`Backend.authorize`).
    """
    if session.resuming is not None:
        # A previous connection of the same owner began this. The next one must not get messages before it has ended.
        session.resuming.append(partial(authorize_again, service, client, session, identity, topics, then))
        return
    session.resuming = []
    Authorization(service, client, session, identity, then).begin(topics)


class Authorization:
    """The subscriptions of one resumed session while they are being authorized."""

    def __init__(
        self, service: Sessions, client: Client, session: Session, identity: ClientIdentity, then: Authorized
    ) -> None:
        self._service = service
        self._client = client
        self._session = session
        self._user = identity.user.decode("utf-8", "replace")
        self._changed = identity.user != session.identity.user
        self._then = then
        #: topic filters as clients write them, with the reason in words
        self._denied: dict[str, str] = {}
        self._failure = ""
        self._awaited = 0

    def begin(self, topics: TopicAccess | None) -> None:
        """Check the rules of the channel, then ask the queue manager."""
        session = self._session
        shares = {share.subscription.written: share for share in self._service.units.shares.of(session)}
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
        self._awaited = len(questions)
        if not questions:
            self._checked()
        for name, asked, member in questions:
            answered = partial(self._answered, asked)
            authorize = self._service.backend.authorize
            authorize(name, asked, answered, user=self._user, changed=self._changed, member=member)

    def _answered(self, requests: Sequence[SubscriptionRequest], reasons: Sequence[int]) -> None:
        for request, reason in zip(requests, reasons, strict=True):
            why = f"user {self._user!r}: {cmqc.reason_name(reason)} ({reason})"
            if reason == cmqc.MQRC_NOT_AUTHORIZED:
                self._denied[request.topic_filter] = why
            elif reason:
                self._failure = f"its subscription to {request.topic_filter!r} cannot be authorized as {why}"
        self._awaited -= 1
        if not self._awaited:
            self._checked()

    def _checked(self) -> None:
        """Discard what waits for denied subscriptions, on disk first: after a crash nothing would show what it came for."""
        if not self._denied or not self._current:
            self._end()
            return
        session, client = self._session, self._client
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
        # Members that left are on record with the next record of the session, which precedes CONNACK.
        for share in self._service.units.shares.of(session):
            if share.subscription.written in self._denied:
                leave(self._service, session, share)
                end_without_members(self._service, share)
        self._discard(self._unsubscribe)

    @property
    def _current(self) -> bool:
        """Whether the session has not ended meanwhile."""
        return self._service.sessions.get(self._session.client_id) is self._session

    def _discard(self, then: Callable[[], None]) -> None:
        """Remove the messages of subscriptions that no remaining topic filter covers."""
        session, outbox = self._session, self._session.outbox
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
                return False  # put straight to the client, or for a subscription that is not its own
            return not remaining.find(transmission.topic or "")

        removals = outbox.withdraw_sent(unwanted) + outbox.withdraw_waiting(unwanted)
        if not removals:
            then()
            return

        def committed(completion: Completion) -> None:
            if completion.failure:
                if self._denied.keys() & session.filters.keys():
                    # The next resumption discards them. Without the filters, nothing would tell it to: they stay on disk.
                    outbox.sent_before.update(one.msg_number for one in removals)
                    outbox.backlog.extendleft(reversed(removals))
                self._failure = f"messages cannot be discarded: {cmqc.reason_name(completion.failure)}"
                self._end()
                return
            service = self._service
            reasons = {one.msg_number: NOT_ALLOWED for one in removals}
            service.events.publish(Finished(session, removals, reasons))
            service.units.review(outbox.backlog)
            then()

        self._service.units.submit(UnitOfWork(removals=removals), committed)

    def _unsubscribe(self) -> None:
        session = self._session
        denied = [topic_filter for topic_filter in self._denied if topic_filter in session.filters]
        if not self._current or not denied:
            self._end()
            return
        user_data = {topic_filter: session.filters.pop(topic_filter) for topic_filter in denied}
        self._service.quotas.update_subscriptions(session)

        def unsubscribed(reasons: list[int]) -> None:
            if reason := next(filter(None, reasons), cmqc.MQRC_NONE):
                session.filters |= user_data
                self._service.quotas.update_subscriptions(session)
                self._failure = f"subscriptions cannot be removed: {cmqc.reason_name(reason)}"
                self._end()
                return
            if DEFAULT_QOS_TOPIC in user_data:
                session.outbox.direct_qos = DIRECT_MESSAGE_QOS
            self._service.units.turns.run(partial(self._discard, self._end))

        # What was on its way arrives first, and is discarded as well.
        self._service.backend.unsubscribe(session.client_id, denied, unsubscribed, handed_over=True)

    def _end(self) -> None:
        session = self._session
        waiting, session.resuming = session.resuming or [], None
        if self._denied and self._current and not self._failure:
            self._service.events.publish(Unsubscribed(session, list(self._denied), now_us()))
        self._then(self._failure)
        for resume in waiting:
            resume()
