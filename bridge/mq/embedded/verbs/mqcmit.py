"""MQCMIT and MQBACK."""

from __future__ import annotations

from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.hconn import Hconn


def mqcmit(hconn: Hconn) -> Unit | None:
    """Return the unit of work to submit, None when nothing was done."""
    unit, hconn.unit = hconn.unit, None
    return unit


def mqback(hconn: Hconn) -> None:
    """Back the unit of work out."""
    unit, hconn.unit = hconn.unit, None
    if unit is not None:
        hconn.queue_manager.back_out(unit)
