"""Subscriptions of MQTT clients at the embedded queue manager, named `ClientIdentifier:Topic name`, and of shares."""

from __future__ import annotations

from bridge.mq.backend import ClientSubscription, SubscriptionRequest
from bridge.mq.embedded.queue import Queue
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.topics import check_topic_string
from bridge.mq.embedded.unit import Unit
from bridge.mq.errors import MQError
from bridge.security.privileged import NOBODY
from bridge.telemetry.subscription import (
    PUBLICATION_QUEUE,
    is_remote_queue_manager,
    share_of_subscription,
    subscription_name,
    topic_string,
)
from bridge.wire import cmqc


def refusal_to_receive(
    queue_manager: QueueManager, transmission_queue: str, user: str, topic_filter: str | None = None
) -> int:
    """Return MQRC_NONE where messages may be put on the transmission queue for a client, else the reason.

    Where `topic_filter` is given, the messages are those of a subscription with it. The log of the authorization
    service has the rest.
    """
    if queue_manager.authorization is None:
        return cmqc.MQRC_NONE
    asked = user or NOBODY
    with queue_manager.lock:
        try:
            if topic_filter is None:
                queue_manager.authorization.check(asked, cmqc.MQOT_Q, transmission_queue, "PUT")
            else:
                queue_manager.authorization.subscribing(asked, None, topic_filter, "SUB", transmission_queue)
        except MQError as error:
            return error.reason
    return cmqc.MQRC_NONE


def subscribe(
    queue_manager: QueueManager,
    work: Unit,
    transmission_queue: Queue,
    client_id: str,
    request: SubscriptionRequest,
    *,
    durable: bool,
    user: str,
) -> Subscription:
    """Make or alter a subscription in a unit of work. Raises MQError."""
    name = subscription_name(client_id, request.topic_filter)
    topic_filter = topic_string(client_id, request.topic_filter)
    check_topic_string(topic_filter)
    taken = queue_manager.topics.subscriptions.get(name)
    if taken is not None and (taken.client_id, taken.topic_filter) != (client_id, topic_filter):
        # Client `a` and filter `b:c` make the same name as client `a:b` and filter `c`.
        raise MQError(cmqc.MQRC_SUB_ALREADY_EXISTS, name)
    if refused := refusal_to_receive(queue_manager, transmission_queue.name, user, topic_filter):
        raise MQError(refused, name)
    attributes = queue_manager.topics.attributes(topic_filter)
    if attributes["SUB"] != "ENABLED":
        raise MQError(cmqc.MQRC_SUB_INHIBITED, name)
    if durable and attributes["DURSUB"] != "YES":
        raise MQError(cmqc.MQRC_DURABILITY_NOT_ALLOWED, name)
    subscription = Subscription(
        name=name,
        topic_filter=topic_filter,
        queue=transmission_queue,
        destination=PUBLICATION_QUEUE,
        destination_manager=client_id,
        remote_queue=PUBLICATION_QUEUE,
        client_id=client_id,
        user_data=request.data.user_data,
        retain_as_published=request.data.retain_as_published,
        durable=durable,
        user=user,
        ephemeral=not durable,
    )
    queue_manager.add_subscription(work, subscription, at_once=True)
    return subscription


def unsubscribe(queue_manager: QueueManager, work: Unit, client_id: str, topic_filter: str) -> None:
    """Remove a subscription in a unit of work; one that the client does not have is no error."""
    name = subscription_name(client_id, topic_filter)
    held = queue_manager.topics.subscriptions.get(name)
    if held is not None and held.client_id == client_id:
        queue_manager.remove_subscription(work, name)


def client_subscriptions(queue_manager: QueueManager) -> list[ClientSubscription]:
    """Return the subscriptions of all clients and shares; a share has its remote queue manager for a client identifier."""
    found = []
    with queue_manager.lock:
        for subscription in queue_manager.topics.subscriptions.values():
            client_id, topic_filter = subscription.client_id, subscription.topic_filter
            share = share_of_subscription(subscription.name, topic_filter)
            if share is not None and share.remote_queue_manager == client_id:
                topic_filter = share.written
            elif is_remote_queue_manager(client_id):
                continue
            if client_id and subscription.name == subscription_name(client_id, topic_filter):
                found.append(
                    ClientSubscription(client_id, topic_filter, subscription.user_data or "", subscription.durable)
                )
    return found
