"""Which messages a message selector sees: the identifiers of a selector, and what they are of a message.

`Root.MQMD.Field` is a field of the MQMD; any other identifier is a message property. Source: IBM MQ documentation,
"Message selector syntax", "Property name synonyms", "JMS fields and properties with corresponding MQMD fields".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from bridge.mq.embedded.appearance import Appearance
from bridge.mq.embedded.property import USER_FOLDER, split
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.selector.condition import selector
from bridge.mq.embedded.selector.logic import Value
from bridge.wire.mq import MQMD

#: Whether a message is among those selected.
Selection: TypeAlias = Callable[[StoredMessage], bool]

_MQMD = "Root.MQMD."
#: MQBYTEn fields of the MQMD; its other fields of bytes are text.
_BYTE_FIELDS = frozenset(("MsgId", "CorrelId", "AccountingToken", "GroupId"))
#: Names that JMS gives to fields of the MQMD and to properties.
_SYNONYMS = {
    "JMSCorrelationID": "jms.Cid",
    "JMSDeliveryMode": "Root.MQMD.Persistence",
    "JMSDestination": "jms.Dst",
    "JMSExpiration": "Root.MQMD.Expiry",
    "JMSMessageID": "Root.MQMD.MsgId",
    "JMSPriority": "Root.MQMD.Priority",
    "JMSReplyTo": "jms.Rto",
    "JMSTimestamp": "jms.Tms",
    "JMSType": "mcd.Type",
    "JMSXAppID": "Root.MQMD.PutApplName",
    "JMSXDeliveryCount": "Root.MQMD.BackoutCount",
    "JMSXGroupID": "jms.Gid",
    "JMSXGroupSeq": "jms.Seq",
    "JMSXUserID": "Root.MQMD.UserIdentifier",
}


def selection_of(appearance: Appearance, text: str) -> Selection | None:
    """Return the selection that a SelectionString makes; None for a blank one. Raises MQError."""
    if not text.strip():
        return None
    condition = selector(text)

    def is_selected(stored: StoredMessage) -> bool:
        return condition(_Identifiers(appearance, stored).value) is True

    return is_selected


class _Identifiers:
    """The values of identifiers for one message; MQMD and properties are worked out once, when they are asked for."""

    def __init__(self, appearance: Appearance, stored: StoredMessage) -> None:
        self._appearance = appearance
        self._stored = stored
        self._md: MQMD | None = None
        self._properties: dict[str, Value] | None = None

    def value(self, name: str) -> Value:
        name = _SYNONYMS.get(name, name)
        if name.startswith(_MQMD):
            return self._field(name[len(_MQMD) :])
        if self._properties is None:
            md, data = self._appearance.whole(self._stored)
            self._properties = {one.name: one.value for one in split(md, data)[2]}
        folder, dot, path = name.partition(".")
        if dot and folder == USER_FOLDER and "." not in path:
            name = path
        return self._properties.get(name)

    def _field(self, name: str) -> Value:
        if self._md is None:
            self._md = self._appearance.descriptor(self._stored)
        value = getattr(self._md, name, None)
        if name in _BYTE_FIELDS or not isinstance(value, (bytes, int)):
            return value if isinstance(value, bytes) else None
        return value if isinstance(value, int) else value.rstrip(b" \0").decode(errors="replace")
