"""MQCONN and MQDISC."""

from __future__ import annotations

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.handle import SubscriptionHandle
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.embedded.verbs.mqclose import mqclose
from bridge.mq.embedded.verbs.mqcmit import mqback, mqcmit
from bridge.wire import cmqc


def mqconn(queue_manager: QueueManager, name: str, user: str, asked: str | None) -> Hconn:
    """Connect an application of that name. Raises MQError.

    `asked` is the user whose authorities the queue manager asks for, None the bridge itself.
    """
    if queue_manager.authorization is not None:
        queue_manager.authorization.connecting(asked, user)
    hconn = Hconn(queue_manager, name, user, asked)
    queue_manager.applications.add(hconn)
    return hconn


def mqdisc(hconn: Hconn, *, commit: bool) -> list[Unit]:
    """Disconnect, or end the connection with its process; return the units of work to submit.

    At the end of a process `commit` is False: the connection's unit of work is backed out.
    """
    hconn.queue_manager.applications.discard(hconn)
    units = []
    if commit:
        if (unit := mqcmit(hconn)) is not None:
            units.append(unit)
    else:
        mqback(hconn)
    handles = hconn.handles
    # Subscriptions first: their destinations may be dynamic queues, which go with their handles.
    for hobj in sorted(handles, key=lambda one: not isinstance(handles[one], SubscriptionHandle)):
        unit = mqclose(hconn, hobj, cmqc.MQCO_NONE)
        if unit is not None:
            units.append(unit)
    return units
