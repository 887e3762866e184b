"""Joining and leaving shares: a share is a subscription of the queue manager as long as it has members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bridge.mq.backend import Completion, SubscriptionRequest, UnitOfWork
from bridge.service.events import Unclaimed
from bridge.service.sessions import Sessions
from bridge.service.shares import Share
from bridge.telemetry.outbox import Outgoing
from bridge.telemetry.session import Session
from bridge.telemetry.subscription import SHARED
from bridge.wire import cmqc


def join(
    service: Sessions, session: Session, requests: Sequence[SubscriptionRequest], user: str, done: Callable[[list[int]], None]
) -> None:
    """Make a session a member of shares; `done` gets a reason code for each when that is on record.

    The queue manager is asked for the authority of each member; what a share has begun with stays.
    """
    shares = [service.units.shares.share(request.topic_filter) for request in requests]
    before = dict(session.shares)
    reasons = [cmqc.MQRC_NONE] * len(shares)
    awaited = len(shares)

    def answered(index: int, answers: list[int]) -> None:
        nonlocal awaited
        awaited -= 1
        share, name = shares[index], shares[index].subscription.remote_queue_manager
        share.joining -= 1
        reason = reasons[index] = answers[0]
        asked = session.shares.get(name)
        # None: it has unsubscribed since, or its session has ended.
        if asked is not None and not reason:
            share.add(session, asked[1])
        elif asked is not None and name in before:
            session.shares[name] = before[name]
        else:
            session.shares.pop(name, None)
        end_without_members(service, share)
        if not awaited:
            put_on_record(service, session, recorded)

    def recorded(failure: int) -> None:
        for share in shares if failure else ():
            if share.subscription.remote_queue_manager not in before:
                leave(service, session, share)
                end_without_members(service, share)
        done([failure or reason for reason in reasons])

    for share, request in zip(shares, requests, strict=True):
        share.joining += 1
        session.shares[share.subscription.remote_queue_manager] = request.topic_filter, request.data.user_data
    for index, (share, request) in enumerate(zip(shares, requests, strict=True)):
        service.backend.subscribe(
            share.subscription.remote_queue_manager,
            [SubscriptionRequest(request.topic_filter, SHARED, retained=False)],
            partial(answered, index),
            durable=True,
            user=user,
            member=session.client_id,
        )


def put_on_record(service: Sessions, session: Session, done: Callable[[int], None]) -> None:
    """Have committed what shares a durable session is a member of; `done` gets the reason of a failure, or MQRC_NONE."""
    if not session.durable or service.sessions.get(session.client_id) is not session:
        done(cmqc.MQRC_NONE)
        return
    unit = UnitOfWork()
    session.save_sent()
    recording: list[tuple[Session, Outgoing | None]] = [(session, session.take_records(unit.records))]

    def ended(completion: Completion) -> None:
        service.units.saved(recording, completion)
        done(completion.failure)

    service.units.submit(unit, ended)


def leave(service: Sessions, session: Session, share: Share) -> None:
    """Make a session a member of a share no more; what it has not been sent goes to others (MQTT-3.10.4-3)."""
    share.remove(session)
    service.units.take_back(session, sent=False)
    session.shares.pop(share.subscription.remote_queue_manager, None)
    service.quotas.update_subscriptions(session)


def leave_all(service: Sessions, session: Session) -> None:
    """Take a session that ends out of its shares: what it has not acknowledged goes to others."""
    service.units.take_back(session, sent=True)
    for share in service.units.shares.of(session):
        share.remove(session)
        end_without_members(service, share)
    session.shares.clear()


def end_without_members(
    service: Sessions, share: Share, done: Callable[[list[int]], None] = lambda _reasons: None
) -> None:
    """Remove the subscription of a share without members, and its messages; then call `done` with the reason, in a list."""
    if not service.units.shares.drop(share):
        done([cmqc.MQRC_NONE])
        return
    name, written = share.subscription.remote_queue_manager, share.subscription.written
    service.backend.unsubscribe(name, [written], done, ended=True)
    removals = list(share.waiting)
    service.units.end(share.waiting)
    for transmission in removals:
        service.events.publish(Unclaimed(transmission))
    if removals:
        service.units.submit(UnitOfWork(removals=removals))
