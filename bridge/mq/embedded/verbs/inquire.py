"""MQINQ."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.attributes import selector as attribute
from bridge.mq.embedded.mqsc.display import objects
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.mqi import MQError
from bridge.wire import cmqc

_MAX_SELECTORS = 256


def is_integer(selector: int) -> bool:
    """Return whether a selector is an MQIA_ selector. Raises MQError if it is neither MQIA_ nor MQCA_."""
    if cmqc.MQIA_FIRST <= selector <= cmqc.MQIA_LAST:
        return True
    if cmqc.MQCA_FIRST <= selector <= cmqc.MQCA_LAST:
        return False
    raise MQError(cmqc.MQRC_SELECTOR_ERROR, f"selector {selector}")


def mqinq(hconn: Hconn, hobj: int, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
    """Return values of the MQIA_ and MQCA_ selectors. Texts are padded to the attribute's length. Raises MQError."""
    handle = hconn.find(hobj)
    kind, name = handle.definition
    if not handle.options & cmqc.MQOO_INQUIRE:
        raise MQError(cmqc.MQRC_NOT_OPEN_FOR_INQUIRE, "open it with MQOO_INQUIRE")
    if len(selectors) > _MAX_SELECTORS:
        raise MQError(cmqc.MQRC_SELECTOR_LIMIT_EXCEEDED, f"{len(selectors)} selectors")
    attributes = _shown(hconn, kind, name)
    ints: list[int] = []
    chars: list[str] = []
    for selector in selectors:
        integer = is_integer(selector)
        definition = attribute(kind, selector)
        value = attributes.get(definition.keyword, definition.fixed) if definition is not None else None
        if definition is None or value is None:
            detail = f"{kind} has no attribute {selector}"
            raise MQError(cmqc.MQRC_SELECTOR_NOT_FOR_TYPE, detail, cmqc.MQCC_WARNING)
        if integer:
            ints.append(definition.integer(value))
        else:
            chars.append(definition.characters(value).decode(errors="replace"))
    return ints, chars


def _shown(hconn: Hconn, kind: str, name: str) -> dict[str, Value]:
    """Return the attributes of an object, by MQSC keyword."""
    for attributes in objects(hconn.queue_manager, kind, name):
        if attributes.get("TYPE", kind) == kind:
            return attributes
    raise MQError(cmqc.MQRC_OBJECT_CHANGED, f"{kind} {name} no longer exists")
