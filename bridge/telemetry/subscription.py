"""Clients' subscriptions on the queue manager: names, user data, shared subscriptions and quality of service."""

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
    """A shared subscription, identified by share name and topic filter."""

    share_name: str
    topic_filter: str

    @property
    def written(self) -> str:
        """The filter of the SUBSCRIBE packet: `$share/name/filter`."""
        return f"{SHARE}{self.share_name}/{self.topic_filter}"

    @property
    def subscription_name(self) -> str:
        """MQSD.SubName."""
        return f"{SHARE}{self.share_name}:{self.topic_filter}"

    @property
    def remote_queue_manager(self) -> str:
        """The name of the remote queue manager that represents the shared subscription in MQ."""
        return "SHARE." + hashlib.sha256(f"{self.share_name}/{self.topic_filter}".encode()).hexdigest()[:32].upper()


def is_shared(topic_filter: str) -> bool:
    """Return whether the filter of a SUBSCRIBE packet is for a shared subscription."""
    return topic_filter.startswith(SHARE)


def is_remote_queue_manager(name: str) -> bool:
    """Return whether a remote queue manager represents a shared subscription, not a client."""
    return _REMOTE_QUEUE_MANAGER.fullmatch(name) is not None


def shared_subscription_error(topic_filter: str) -> str | None:
    """Return why a client cannot subscribe to a filter that begins with `$share/`, or None if it can."""
    return shared_subscription_fault(topic_filter) or topic_string_error(shared_subscription(topic_filter).topic_filter)


def shared_subscription(topic_filter: str) -> SharedSubscription:
    """Return the shared subscription for a valid filter that begins with `$share/`."""
    name, _, rest = topic_filter.removeprefix(SHARE).partition("/")
    return SharedSubscription(name, rest)


def share_of_subscription(name: str, topic_filter: str) -> SharedSubscription | None:
    """Return the shared subscription with this subscription name and topic string, or None if it is not one."""
    end = f":{topic_filter}"
    if not name.startswith(SHARE) or not name.endswith(end):
        return None
    share_name = name.removeprefix(SHARE).removesuffix(end)
    shared = SharedSubscription(share_name, topic_filter)
    return None if "/" in share_name or shared_subscription_error(shared.written) is not None else shared


#: Destination queue of clients' subscriptions, on the remote queue manager that represents the client.
PUBLICATION_QUEUE = "SYSTEM.MQTT.PUBLICATION.QUEUE"

_USER_DATA = re.compile(r"([012])( NL)?( RAP)?((?: ID=[1-9][0-9]{0,8})*)")
#: The maximum Subscription Identifier (MQTT 5 section 3.8.2.1.2).
_MAX_IDENTIFIER = 268_435_455


def is_for_subscription(remote_queue: str) -> bool:
    """Return whether a message on the transmission queue was delivered to a subscription. Direct messages were not.

    The destination of all clients' subscriptions is PUBLICATION_QUEUE. A publication that an application forwards to another
    queue name at a client is a direct message. Its topic is the queue name. Its mqps folder describes an earlier delivery and
    is ignored.
    """
    return remote_queue == PUBLICATION_QUEUE


def subscription_name(client_id: str, topic_filter: str) -> str:
    """Return the name of a client's subscription, `ClientIdentifier:Topic name`, or of a shared subscription.

    For a shared subscription, `client_id` is its remote queue manager, and `topic_filter` begins with `$share/`.
    """
    if is_remote_queue_manager(client_id):
        return shared_subscription(topic_filter).subscription_name
    return f"{client_id}:{topic_filter}"


def topic_string(client_id: str, topic_filter: str) -> str:
    """Return the topic string of a subscription: the filter, without the `$share/name/` of a shared subscription."""
    return shared_subscription(topic_filter).topic_filter if is_remote_queue_manager(client_id) else topic_filter


#: User data of subscriptions without options, by QoS. The strings are shared to save memory.
_QOS_TEXTS: Final = ("0", "1", "2")


class SubscriptionData(msgspec.Struct, frozen=True, gc=False):
    """The subscription options and identifiers that apply to each message (MQTT 5 section 3.8)."""

    qos: int = 2
    no_local: bool = False
    retain_as_published: bool = False
    #: each from 1 to 268,435,455
    subscription_identifiers: tuple[int, ...] = ()

    @property
    def user_data(self) -> str:
        """MQSD.SubUserData. Without options, it is only the QoS digit."""
        text = _QOS_TEXTS[self.qos]
        if self.no_local:
            text += " NL"
        if self.retain_as_published:
            text += " RAP"
        return text + "".join([f" ID={identifier}" for identifier in self.subscription_identifiers])

    @property
    def options(self) -> str:
        """The options of MQTT 5 in words, or blank."""
        words = ["No Local"] * self.no_local + ["Retain As Published"] * self.retain_as_published
        words += [f"Subscription Identifier {identifier}" for identifier in self.subscription_identifiers]
        return ", ".join(words)


def merged(several: Sequence[SubscriptionData]) -> SubscriptionData:
    """Return the data of a single copy of a message for several subscriptions with the same No Local option.

    Source: MQTT 5 section 3.3.4 (MQTT-3.3.4-2 to -4).
    """
    return SubscriptionData(
        max(subscription.qos for subscription in several),
        several[0].no_local,
        any(subscription.retain_as_published for subscription in several),
        tuple(identifier for subscription in several for identifier in subscription.subscription_identifiers),
    )


#: The data of a subscription whose user data was not written by the bridge, for example one that an administrator defined
#: for a client: no restrictions.
FOREIGN = SubscriptionData()


#: The data of all shared subscriptions. The QoS is at most 1, because a QoS 2 message sent to one member must not be sent to
#: another (MQTT-4.8.2-5).
SHARED = SubscriptionData(1, retain_as_published=True)


def subscriber_of(name: str, topic_filter: str, user_data: str) -> tuple[str, str] | None:
    """Return client identifier and filter for a subscription's name, topic string and user data, or None if not a client's.

    For a shared subscription, return its remote queue manager and the filter with `$share/`.
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
    """Parse the user data of a subscription. Return FOREIGN if the bridge did not write it."""
    match = _USER_DATA.fullmatch(user_data)
    if match is None:
        return FOREIGN
    identifiers = tuple([int(text) for text in match[4].split(" ID=")[1:]])
    if identifiers and max(identifiers) > _MAX_IDENTIFIER:
        return FOREIGN
    return SubscriptionData(int(match[1]), match[2] is not None, match[3] is not None, identifiers)


def user_data_in_words(user_data: str) -> str:
    """Return the QoS and the options in the user data of a subscription, or the user data if the bridge did not write it."""
    if _USER_DATA.fullmatch(user_data) is None:
        return user_data
    data = subscription_data(user_data)
    return ", ".join(filter(None, (f"QoS {data.qos}", data.options)))


#: QoS of a publication -> MQMD.Persistence (integration table 1).
PERSISTENCE_FROM_QOS: Final = (cmqc.MQPER_NOT_PERSISTENT, cmqc.MQPER_PERSISTENT, cmqc.MQPER_PERSISTENT)
#: A client changes the QoS of direct messages by subscribing to this topic with another QoS (integration table 4).
DEFAULT_QOS_TOPIC: Final = "DEFAULT.QoS"
#: The default QoS of direct messages (integration table 4).
DIRECT_MESSAGE_QOS: Final = 2
#: QoS by user data, for subscriptions without options.
_REQUESTED: Final = {"0": 0, "1": 1, "2": 2}


def publication_qos(persistence: int, mqtt_qos: int | None) -> int:
    """Return the QoS of a publication: the MQTT client's, or otherwise the QoS derived from the persistence."""
    if mqtt_qos is not None:
        return mqtt_qos
    return 2 if persistence == cmqc.MQPER_PERSISTENT else 0


def subscription_qos(user_data: str | None) -> int | None:
    """Return the QoS in a subscription's user data, 2 if the bridge did not write it, or None without a subscription."""
    if user_data is None:
        return None
    qos = _REQUESTED.get(user_data)
    return subscription_data(user_data).qos if qos is None else qos


def delivered_qos(source_qos: int, requested_qos: int | None, direct_qos: int = DIRECT_MESSAGE_QOS) -> int:
    """Return the QoS of a delivery: the lower of publication and subscription, or `direct_qos` without a subscription."""
    if requested_qos is None:
        return direct_qos
    return source_qos if source_qos < requested_qos else requested_qos
