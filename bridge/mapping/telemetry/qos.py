"""Quality of service and persistence, both ways (integration tables 1, 4 and 5)."""

from __future__ import annotations

from typing import Final

from bridge.mapping.telemetry.subscription import subscription_data
from bridge.wire import cmqc

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
