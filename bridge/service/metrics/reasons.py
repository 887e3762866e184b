"""Reasons as labels: names of MQRC and of MQTT 5, so few that a table of them is bounded whatever clients do."""

from __future__ import annotations

from functools import cache
from typing import Final, get_args

from bridge.config.channel import Reason
from bridge.mqtt.reason_codes import ReasonCode
from bridge.wire import cmqc

#: Of a reason that is none of those below.
OTHER: Final = "other"
#: Reasons for which publications are refused, units of work fail, or messages become dead letters.
REASONS: Final = frozenset(
    (
        *get_args(Reason),
        "MQRC_CALL_INTERRUPTED",
        "MQRC_CONNECTION_BROKEN",
        "MQRC_FORMAT_ERROR",
        "MQRC_Q_MGR_NOT_AVAILABLE",
        "MQRC_Q_MGR_STOPPING",
        "MQRC_RESOURCE_PROBLEM",
        "MQRC_STORAGE_NOT_AVAILABLE",
        "MQRC_UNKNOWN_OBJECT_NAME",
        "MQRC_UNKNOWN_REMOTE_Q_MGR",
    )
)
#: Versions of MQTT by protocol level.
_VERSIONS: Final = {3: "3.1", 4: "3.1.1", 5: "5"}


@cache
def reason_label(reason: int) -> str:
    """Return the name of an MQRC, or `other`."""
    name = cmqc.reason_name(reason)
    return name if name in REASONS else OTHER


def connack_label(reason: ReasonCode) -> str:
    """Return a reason of CONNACK as MQTT 5 names it, in lower case."""
    return reason.name.lower()


def version_label(level: int) -> str:
    """Return the version of MQTT that has a protocol level; `unknown` for a session whose client has not come yet."""
    return _VERSIONS.get(level, "unknown")
