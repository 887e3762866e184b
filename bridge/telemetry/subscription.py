"""Subscriptions of clients as the queue manager keeps them: names, user data, shares, and quality of service."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from bridge.mqtt.topics import SHARE, shared_subscription_fault, topic_string_error
from bridge.telemetry.headers import remembered
from bridge.wire import cmqc

_REMOTE_QUEUE_MANAGER = re.compile(r"SHARE\.[0-9A-F]{32}")


class SharedSubscription(msgspec.Struct, frozen=True):
    """A share by its name and topic filter."""

    share_name: str
    topic_filter: str

    @property
    def written(self) -> str:
        """Return it as a client writes it in SUBSCRIBE."""
        return f"{SHARE}{self.share_name}/{self.topic_filter}"

    @property
    def subscription_name(self) -> str:
        """Return MQSD.SubName."""
        return f"{SHARE}{self.share_name}:{self.topic_filter}"

    @property
    def remote_queue_manager(self) -> str:
        """Return the queue manager that its destination is at, as far as MQ knows."""
        return "SHARE." + hashlib.sha256(f"{self.share_name}/{self.topic_filter}".encode()).hexdigest()[:32].upper()


def is_shared(topic_filter: str) -> bool:
    """Return whether a client asks for a shared subscription."""
    return topic_filter.startswith(SHARE)


def is_remote_queue_manager(name: str) -> bool:
    """Return whether a remote queue manager is that of a share, and no client."""
    return _REMOTE_QUEUE_MANAGER.fullmatch(name) is not None


def shared_subscription_error(topic_filter: str) -> str | None:
    """Return why a client cannot subscribe to what begins with `$share/`, or None when it can."""
    return shared_subscription_fault(topic_filter) or topic_string_error(shared_subscription(topic_filter).topic_filter)


def shared_subscription(topic_filter: str) -> SharedSubscription:
    """Return the share that a client asks for by a filter without errors."""
    name, _, rest = topic_filter.removeprefix(SHARE).partition("/")
    return SharedSubscription(name, rest)


def share_of_subscription(name: str, topic_filter: str) -> SharedSubscription | None:
    """Return the share that a subscription of the queue manager is; None where its name is no share's."""
    end = f":{topic_filter}"
    if not name.startswith(SHARE) or not name.endswith(end):
        return None
    share_name = name.removeprefix(SHARE).removesuffix(end)
    shared = SharedSubscription(share_name, topic_filter)
    return None if "/" in share_name or shared_subscription_error(shared.written) is not None else shared


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


#: User data of subscriptions without options, by QoS: one string for all of them.
_QOS_TEXTS: Final = ("0", "1", "2")


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
        text = _QOS_TEXTS[self.qos]
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


#: QoS of a publication -> MQMD.Persistence (integration table 1).
PERSISTENCE_FROM_QOS: Final = (cmqc.MQPER_NOT_PERSISTENT, cmqc.MQPER_PERSISTENT, cmqc.MQPER_PERSISTENT)
#: A client alters the QoS of direct messages by subscribing to this topic with another QoS (integration table 4).
DEFAULT_QOS_TOPIC: Final = "DEFAULT.QoS"
#: QoS of a message that is sent to a client without a subscription (integration table 4).
DIRECT_MESSAGE_QOS: Final = 2
#: User data of subscriptions without options.
_REQUESTED: Final = {"0": 0, "1": 1, "2": 2}


def publication_qos(persistence: int, mqtt_qos: int | None) -> int:
    """Return the QoS that an incoming publication counts as.

    A publication of an MQTT client has a QoS of its own; for one of an MQ application it follows from persistence.
    """
    if mqtt_qos is not None:
        return mqtt_qos
    return 2 if persistence == cmqc.MQPER_PERSISTENT else 0


def subscription_qos(user_data: str | None) -> int | None:
    """Return the QoS that a client asked for, as the bridge writes it into the subscription's user data.

    None stands for no subscription. User data that the bridge did not write (a subscription made by an administrator for a
    client) limits nothing: 2.
    """
    if user_data is None:
        return None
    qos = _REQUESTED.get(user_data)
    return subscription_data(user_data).qos if qos is None else qos


def delivered_qos(source_qos: int, requested_qos: int | None, direct_qos: int = DIRECT_MESSAGE_QOS) -> int:
    """Return the QoS of a message for a client: the lower of publication and subscription, or that of direct messages."""
    return direct_qos if requested_qos is None else min(source_qos, requested_qos)
