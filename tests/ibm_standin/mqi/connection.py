"""Connections of threads in the queue manager's own process, with all verbs of IBM MQ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.mqi import MQOD, MQSD, MQSTS, GetOptions, Property
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.ibm_standin.mqi.get import mqget
from tests.ibm_standin.mqi.hconn import MqiHconn
from tests.ibm_standin.mqi.inquire import mqset, mqstat
from tests.ibm_standin.mqi.open import mqclose, mqopen
from tests.ibm_standin.mqi.put import mqput, mqput1
from tests.ibm_standin.mqi.structures import MQPMO, MqiGetOptions, MqiGot, MqiSubscriptionDescriptor
from tests.ibm_standin.mqi.subscribe import mqsub, mqsubrq


class StandInConnection(EmbeddedConnection):
    """A connection with the verbs of the stand-in."""

    HCONN: ClassVar[type[Hconn]] = MqiHconn

    @property
    def _mqi(self) -> MqiHconn:
        hconn = self._hconn
        assert isinstance(hconn, MqiHconn)
        return hconn

    def open(self, od: MQOD, options: int) -> int:
        with self._lock:
            return mqopen(self._mqi, od, options)

    def close(self, handle: int, options: int = cmqc.MQCO_NONE) -> None:
        with self._lock:
            unit = mqclose(self._mqi, handle, options)
        self._end(unit)

    def put(
        self,
        handle: int,
        message: AnyMessage,
        options: int | MQPMO = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        with self._lock:
            md, unit = mqput(self._mqi, handle, Message(message.md, message.data), options, properties)
        self._end(unit)
        return md

    def put1(
        self,
        od: MQOD,
        message: AnyMessage,
        options: int | MQPMO = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        with self._lock:
            md, unit = mqput1(self._mqi, od, Message(message.md, message.data), options, properties)
        self._end(unit)
        return md

    def get(self, handle: int, options: GetOptions) -> MqiGot:
        return self._get(handle, MqiGetOptions.of(options), lambda _, hobj, options: mqget(self._mqi, hobj, options))

    def set(self, handle: int, selectors: Sequence[int], ints: Sequence[int], chars: Sequence[str]) -> None:
        with self._lock:
            unit = mqset(self._mqi, handle, selectors, ints, chars)
        self._end(unit)

    def statistics(self, type: int = cmqc.MQSTAT_TYPE_ASYNC_ERROR) -> MQSTS:
        with self._lock:
            return mqstat(self._mqi, type)

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        descriptor = MqiSubscriptionDescriptor.of(sd)
        with self._lock:
            handles, unit = mqsub(self._mqi, descriptor, handle)
        self._end(unit)
        for name in sd.__struct_fields__:
            setattr(sd, name, getattr(descriptor, name))
        return handles

    def subscription_request(
        self, handle: int, action: int = cmqc.MQSR_ACTION_PUBLICATION, options: int = cmqc.MQSRO_NONE
    ) -> int:
        with self._lock:
            count, unit = mqsubrq(self._mqi, handle, action, options)
        self._end(unit)
        return count
