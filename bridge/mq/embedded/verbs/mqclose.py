"""MQCLOSE.

Source: IBM MQ documentation, "MQCLOSE - Close object".
"""

from __future__ import annotations

from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.dynamic_queue import check_closing, delete
from bridge.mq.embedded.verbs.handle import QueueHandle, SubscriptionHandle, release_queue
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.errors import MQError
from bridge.wire import cmqc

_DELETES = cmqc.MQCO_DELETE | cmqc.MQCO_DELETE_PURGE
_SUB_ENDINGS = cmqc.MQCO_KEEP_SUB | cmqc.MQCO_REMOVE_SUB
_KNOWN = _DELETES | _SUB_ENDINGS | cmqc.MQCO_QUIESCE


def mqclose(hconn: Hconn, hobj: int, options: int) -> Unit | None:
    """Close an object; return a unit of work when a subscription or a dynamic queue ends with it. Raises MQError."""
    handle = hconn.handles.get(hobj)
    if handle is None:
        raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {hobj}")
    if options & ~_KNOWN or options & _DELETES == _DELETES or options & _SUB_ENDINGS == _SUB_ENDINGS:
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQCO options 0x{options:x}")
    if isinstance(handle, SubscriptionHandle):
        return _close_subscription(hconn, hobj, handle, options)
    if options & _SUB_ENDINGS or (options & _DELETES and not isinstance(handle, QueueHandle)):
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"MQCO options 0x{options:x}")
    if not isinstance(handle, QueueHandle):
        del hconn.handles[hobj]
        return None
    queue = handle.queue
    if options & _DELETES and not queue.deleted:
        check_closing(queue, options, handle.creator)
        if hconn.queue_manager.authorization is not None and hconn.asked != queue.owner:
            hconn.queue_manager.authorization.check(hconn.asked, cmqc.MQOT_Q, queue.name, "DLT")
    del hconn.handles[hobj]
    release_queue(handle)
    if (handle.creator or options & _DELETES) and not queue.deleted:
        return delete(hconn.queue_manager, queue)
    return None


def _close_subscription(hconn: Hconn, hobj: int, handle: SubscriptionHandle, options: int) -> Unit | None:
    subscription = handle.subscription
    if options & _DELETES or (options & cmqc.MQCO_KEEP_SUB and not subscription.durable):
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"MQCO options 0x{options:x}")
    authorization = hconn.queue_manager.authorization
    creator = subscription.user == hconn.user.decode(errors="replace")
    if authorization is not None and options & cmqc.MQCO_REMOVE_SUB and subscription.durable and not creator:
        # IBM MQ, "Not Authorized (type 3)": the creator of a subscription may remove it, and who may subscribe to the topic.
        authorization.check_topic(hconn.asked, subscription.topic_filter, "SUB")
    del hconn.handles[hobj]
    subscription.owner = None
    if not subscription.durable or options & cmqc.MQCO_REMOVE_SUB:
        unit = Unit()
        hconn.queue_manager.remove_subscription(unit, subscription.name)
        return unit
    return None


def unfinished(hconn: Hconn, hobj: int) -> int:
    """Return the reason with which MQCLOSE of a handle warns: a group or a message is not complete, or MQRC_NONE."""
    handle = hconn.handles.get(hobj)
    if not isinstance(handle, QueueHandle):
        return cmqc.MQRC_NONE
    return max(handle.put_place.unfinished, handle.got_place.unfinished)
