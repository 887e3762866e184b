"""MQSTAT: the outcomes of asynchronous puts."""

from __future__ import annotations

from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQSTS
from bridge.wire import cmqc


def mqstat(hconn: Hconn, type: int) -> MQSTS:
    """Return the outcomes of the asynchronous puts since the last MQSTAT."""
    if type in (cmqc.MQSTAT_TYPE_RECONNECTION, cmqc.MQSTAT_TYPE_RECONNECTION_ERROR):
        return MQSTS()
    if type != cmqc.MQSTAT_TYPE_ASYNC_ERROR:
        raise MQError(cmqc.MQRC_STAT_TYPE_ERROR, f"MQSTAT type {type}")
    return hconn.outcomes.taken()
