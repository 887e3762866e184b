"""The subscription of a client at the queue manager: name, destination, and user data (integration table 3).

Its user data are the QoS that the client asked for, and what else it asked for in MQTT 5, in this order: `1`,
`2 NL` (No Local), `0 RAP` (Retain As Published), `1 NL RAP ID=5` (Subscription Identifier). A message that comes once for
several subscriptions has the highest QoS and all identifiers: `2 ID=5 ID=7`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from bridge.mapping.remembered import remembered
from bridge.mapping.telemetry.shared_subscription import (
    is_remote_queue_manager,
    share_of_subscription,
    shared_subscription,
)

#: Destination queue of clients' subscriptions, at the remote queue manager that a client is to MQ.
PUBLICATION_QUEUE = "SYSTEM.MQTT.PUBLICATION.QUEUE"

_USER_DATA = re.compile(r"([012])( NL)?( RAP)?((?: ID=[1-9][0-9]{0,8})*)")
#: MQTT 5 section 3.8.2.1.2.
_MOST_IDENTIFIER = 268_435_455


def is_for_subscription(remote_queue: str) -> bool:
    """Return whether a message on the transmission queue came for a subscription; False for a direct message.

    The destination of all subscriptions of clients is PUBLICATION_QUEUE at the client. An application that forwards a
    publication to another queue name at a client sends a direct message: the topic is that queue name, and the folder mqps,
    which describes an earlier delivery, does not count.
    """
    return remote_queue == PUBLICATION_QUEUE


def subscription_name(client_id: str, topic_filter: str) -> str:
    """Return the name of an MQTT client's subscription, `ClientIdentifier:Topic name`, or of a share's.

    For a share, `client_id` is its remote queue manager, and `topic_filter` is as clients write it.
    """
    if is_remote_queue_manager(client_id):
        return shared_subscription(topic_filter).subscription_name
    return f"{client_id}:{topic_filter}"


def topic_string(client_id: str, topic_filter: str) -> str:
    """Return the topic string of a subscription: the filter, for a share without what stands before it."""
    return shared_subscription(topic_filter).topic_filter if is_remote_queue_manager(client_id) else topic_filter


class SubscriptionData(msgspec.Struct, frozen=True, gc=False):
    """What a client asked for with a topic filter, as far as it concerns each message (MQTT 5 section 3.8)."""

    #: 0 to 2
    qos: int = 2
    no_local: bool = False
    retain_as_published: bool = False
    #: each 1 to 268 435 455
    subscription_identifiers: tuple[int, ...] = ()

    @property
    def user_data(self) -> str:
        """Return MQSD.SubUserData: the digit of the QoS alone, where there are no options."""
        text = str(self.qos)
        if self.no_local:
            text += " NL"
        if self.retain_as_published:
            text += " RAP"
        return text + "".join([f" ID={identifier}" for identifier in self.subscription_identifiers])


def merged(several: Sequence[SubscriptionData]) -> SubscriptionData:
    """Return the data of a single copy of a message for several subscriptions with the same No Local option.

    Source: MQTT 5 section 3.3.4 (MQTT-3.3.4-2 to -4).
    """
    return SubscriptionData(
        max(one.qos for one in several),
        several[0].no_local,
        any(one.retain_as_published for one in several),
        tuple(identifier for one in several for identifier in one.subscription_identifiers),
    )


#: What user data say that the bridge did not write, such as those of a subscription that an administrator made for a client:
#: they limit nothing.
FOREIGN = SubscriptionData()


#: What a share asks the queue manager for, whatever its members ask for: QoS 1 at most, for a message that one member has
#: seen with QoS 2 must not go to another (MQTT-4.8.2-5).
SHARED = SubscriptionData(1, retain_as_published=True)


def subscriber_of(name: str, topic_filter: str, user_data: str) -> tuple[str, str] | None:
    """Return client identifier and filter of a subscription by its name, topic string and user data; None for another's.

    The subscription of a share has its remote queue manager for a client identifier, and the filter as clients write it.
    """
    share = share_of_subscription(name, topic_filter)
    if share is not None and user_data == SHARED.user_data:
        return share.remote_queue_manager, share.written
    client_id, separator, rest = name.partition(":")
    if separator and client_id and rest == topic_filter and _USER_DATA.fullmatch(user_data):
        return client_id, topic_filter
    return None


@remembered(4096)
def subscription_data(user_data: str) -> SubscriptionData:
    """Return what the user data of a subscription say."""
    found = _USER_DATA.fullmatch(user_data)
    if found is None:
        return FOREIGN
    identifiers = tuple([int(text) for text in found[4].split(" ID=")[1:]])
    if identifiers and max(identifiers) > _MOST_IDENTIFIER:
        return FOREIGN
    return SubscriptionData(int(found[1]), found[2] is not None, found[3] is not None, identifiers)
