"""How the properties of a message come to the application that gets it: as an RFH2, in a message handle, or not at all.

PROPCTL of the queue that was opened decides, unless an MQGMO_PROPERTIES_ option does. Source: IBM MQ documentation,
"PropertyControl (MQLONG)", "Property options (MQGMO)", "Message properties and PROPCTL".
"""

from __future__ import annotations

from bridge.mq.embedded.appearance import Appearance
from bridge.mq.embedded.property import COMPATIBLE_FOLDERS, leading, split
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.errors import MQError
from bridge.mq.mqi import Property
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: Properties come as an RFH2, whatever they are.
ALL = "ALL"
#: As an RFH2 when one of them is of a folder that JMS knows; else not at all.
COMPATIBLE = "COMPAT"
NONE = "NONE"
HANDLE = "HANDLE"

#: The MQGMO_PROPERTIES_ options; AS_Q_DEF is none of them.
OPTIONS = {
    cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2: ALL,
    cmqc.MQGMO_NO_PROPERTIES: NONE,
    cmqc.MQGMO_PROPERTIES_IN_HANDLE: HANDLE,
    cmqc.MQGMO_PROPERTIES_COMPATIBILITY: COMPATIBLE,
}
_MASK = sum(OPTIONS)
#: PROPCTL -> without a message handle, with one
_CONTROL = {
    "ALL": (ALL, HANDLE),
    "COMPAT": (COMPATIBLE, HANDLE),
    "FORCE": (ALL, ALL),
    "NONE": (NONE, NONE),
    "V6COMPAT": (ALL, ALL),
}


def manner(options: int, control: str, handle: bool) -> str:
    """Return the manner in which a get wants properties.

    It follows from its MQGMO options, the queue's PROPCTL, and whether it gave a message handle. Raises MQError when the
    options contradict each other.
    """
    chosen = options & _MASK
    if not chosen:
        return _CONTROL[control][handle]
    if chosen not in OPTIONS:
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, "one way for properties to come, not several")
    return OPTIONS[chosen]


def render(appearance: Appearance, stored: StoredMessage, how: str) -> tuple[MQMD, bytes, list[Property]]:
    """Return MQMD, data and properties as a get returns them."""
    if how == COMPATIBLE:
        how = _compatible(stored)
        if how == COMPATIBLE:
            return *appearance.seen(stored), []
    md, data = appearance.seen(stored, properties=True)
    if how == ALL:
        return md, data, []
    md, data, properties = split(md, data)
    return md, data, properties if how == HANDLE else []


def _compatible(stored: StoredMessage) -> str:
    """Return what PROPCTL(COMPAT) means for one message: an RFH2 that its putter wrote is data and stays as it is."""
    message = stored.message
    if not isinstance(message, Message) or not message.made_rfh2 or stored.queue.is_transmission:
        return COMPATIBLE
    own = leading(message.md, message.data)
    names = {folder.name for folder in own[0].folders} if own is not None else set()
    return ALL if names & COMPATIBLE_FOLDERS else NONE
