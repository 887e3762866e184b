"""MQSET and MQSTAT."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.mq.embedded.attributes import AttributeRefused, Value, read
from bridge.mq.embedded.attributes import selector as attribute
from bridge.mq.embedded.mqsc.definitions import Definitions
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.embedded.verbs.inquire import is_integer
from bridge.mq.mqi import MQSTS, MQError
from bridge.wire import cmqc
from tests.ibm_standin.mqi.hconn import MqiHconn

#: "Attributes that can be set", by selector, and the reason code for an invalid value.
_SETTABLE = {
    cmqc.MQIA_INHIBIT_GET: cmqc.MQRC_INHIBIT_VALUE_ERROR,
    cmqc.MQIA_INHIBIT_PUT: cmqc.MQRC_INHIBIT_VALUE_ERROR,
    cmqc.MQIA_DIST_LISTS: cmqc.MQRC_SELECTOR_ERROR,
    cmqc.MQIA_TRIGGER_CONTROL: cmqc.MQRC_TRIGGER_CONTROL_ERROR,
    cmqc.MQIA_TRIGGER_DEPTH: cmqc.MQRC_TRIGGER_DEPTH_ERROR,
    cmqc.MQIA_TRIGGER_MSG_PRIORITY: cmqc.MQRC_TRIGGER_MSG_PRIORITY_ERR,
    cmqc.MQIA_TRIGGER_TYPE: cmqc.MQRC_TRIGGER_TYPE_ERROR,
    cmqc.MQCA_TRIGGER_DATA: cmqc.MQRC_SELECTOR_ERROR,
}


def mqset(hconn: Hconn, hobj: int, selectors: Sequence[int], ints: Sequence[int], chars: Sequence[str]) -> Unit | None:
    """Set attributes. Return the unit of work to submit, or None if nothing changes. Raises MQError."""
    handle = hconn.find(hobj)
    kind, name = handle.definition
    if not handle.options & cmqc.MQOO_SET:
        raise MQError(cmqc.MQRC_NOT_OPEN_FOR_SET, "open it with MQOO_SET")
    remaining_ints, remaining_chars = list(ints), list(chars)
    changes: dict[str, Value] = {}
    for selector in selectors:
        integer = is_integer(selector)
        reason = _SETTABLE.get(selector)
        definition = attribute(kind, selector)
        if reason is None:
            raise MQError(cmqc.MQRC_SELECTOR_ERROR, f"attribute {selector} is not set by MQSET")
        if definition is None:
            raise MQError(cmqc.MQRC_SELECTOR_NOT_FOR_TYPE, f"{kind} has no attribute {selector}")
        rest: list[int] | list[str] = remaining_ints if integer else remaining_chars
        if not rest:
            too_few = cmqc.MQRC_INT_ATTR_COUNT_ERROR if integer else cmqc.MQRC_CHAR_ATTR_LENGTH_ERROR
            raise MQError(too_few, f"no value for attribute {selector}")
        value = rest.pop(0)
        try:
            text = definition.word(value) if isinstance(value, int) else value
            changes[definition.keyword] = read(kind, definition.keyword, text)
        except AttributeRefused as error:
            raise MQError(reason, str(error)) from error
    return _change(hconn, kind, name, changes)


def _change(hconn: Hconn, kind: str, name: str, changes: dict[str, Value]) -> Unit | None:
    held = hconn.queue_manager.objects
    old = held.of_kind(kind).get(name)
    if old is None:
        raise MQError(cmqc.MQRC_OBJECT_CHANGED, f"{kind} {name} no longer exists")
    attributes = old | changes
    if attributes == old:
        return None
    definitions = Definitions(hconn.queue_manager)

    def install() -> None:
        definitions.install(kind, name, attributes)

    if not (kind == "QLOCAL" and held.queues[name].temporary):
        return Unit().define(kind, name, attributes, install)
    unit = Unit()
    unit.changes.effects.append(install)
    return unit


def mqstat(hconn: MqiHconn, type: int) -> MQSTS:
    """Return the outcomes of the asynchronous puts since the last MQSTAT."""
    if type in (cmqc.MQSTAT_TYPE_RECONNECTION, cmqc.MQSTAT_TYPE_RECONNECTION_ERROR):
        return MQSTS()
    if type != cmqc.MQSTAT_TYPE_ASYNC_ERROR:
        raise MQError(cmqc.MQRC_STAT_TYPE_ERROR, f"MQSTAT type {type}")
    return hconn.outcomes.take_status()
