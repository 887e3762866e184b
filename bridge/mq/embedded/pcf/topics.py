"""Topic commands: Change, Copy, Create, Delete and Inquire Topic, its names and its status, and Clear Topic String."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.mqsc.display import Display, subscription_id
from bridge.mq.embedded.pcf.defined import Defined
from bridge.mq.embedded.pcf.inquiry import Attributes, attributes, inquire, known_of
from bridge.mq.embedded.pcf.operation import Operation
from bridge.mq.embedded.pcf.request import PCFRefused, Reply, Request
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFBS, MQCFIN, MQCFST, string_list

_TYPES = (cmqc.MQTOPT_LOCAL, cmqc.MQTOPT_ALL, cmqc.MQTOPT_CLUSTER)
_TOPIC = Defined(
    "TOPIC",
    cmqc.MQCA_TOPIC_NAME,
    cmqcfc.MQCACF_FROM_TOPIC_NAME,
    cmqcfc.MQCACF_TO_TOPIC_NAME,
    ((cmqc.MQIA_TOPIC_TYPE, cmqc.MQTOPT_LOCAL),),
)


class TopicCommands:
    """The topic commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager, commands: Commands) -> None:
        self._queue_manager = queue_manager
        self._commands = commands
        self._display = Display(queue_manager)
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_CREATE_TOPIC: partial(_TOPIC.create, commands),
            cmqcfc.MQCMD_CHANGE_TOPIC: partial(_TOPIC.change, commands),
            cmqcfc.MQCMD_COPY_TOPIC: partial(_TOPIC.copy, commands),
            cmqcfc.MQCMD_DELETE_TOPIC: partial(_TOPIC.delete, commands),
            cmqcfc.MQCMD_INQUIRE_TOPIC: self._inquire,
            cmqcfc.MQCMD_INQUIRE_TOPIC_NAMES: self._names,
            cmqcfc.MQCMD_INQUIRE_TOPIC_STATUS: self._status,
            cmqcfc.MQCMD_CLEAR_TOPIC_STRING: self._clear,
        }

    def _topics(self, request: Request) -> Iterator[dict[str, Value]]:
        name = request.name(cmqc.MQCA_TOPIC_NAME)
        type_ = request.choice(cmqc.MQIA_TOPIC_TYPE, _TYPES)
        request.ignore(cmqcfc.MQIACF_CLUSTER_INFO)
        return (one for one in self._display.objects("TOPIC", name) if type_ != cmqc.MQTOPT_CLUSTER)

    def _inquire(self, request: Request) -> Reply:
        topics = self._topics(request)
        return inquire(
            request,
            (attributes("TOPIC", one) for one in topics),
            cmqcfc.MQIACF_TOPIC_ATTRS,
            (cmqc.MQCA_TOPIC_NAME, cmqc.MQIA_TOPIC_TYPE),
            known=known_of("TOPIC"),
        )

    def _names(self, request: Request) -> Reply:
        names = [str(one["TOPIC"]).encode() for one in self._topics(request)]
        request.finish()
        return Reply([(string_list(cmqcfc.MQCACF_TOPIC_NAMES, names, 48),)])

    def _status(self, request: Request) -> Reply:
        topic = request.name(cmqc.MQCA_TOPIC_STRING)
        kinds = (cmqcfc.MQIACF_TOPIC_STATUS, cmqcfc.MQIACF_TOPIC_SUB, cmqcfc.MQIACF_TOPIC_PUB)
        kind = request.choice(cmqcfc.MQIACF_TOPIC_STATUS_TYPE, kinds)
        nodes = list(self._display.objects("TPSTATUS", topic))
        if not nodes:
            raise PCFRefused(cmqcfc.MQRCCF_TOPIC_STRING_NOT_FOUND, cmqc.MQCA_TOPIC_STRING)
        found: list[Attributes] = []
        for node in nodes:
            if kind == cmqcfc.MQIACF_TOPIC_STATUS:
                found.append(attributes("TPSTATUS", node))
            elif kind == cmqcfc.MQIACF_TOPIC_SUB:
                found += self._subscribers(str(node["TPSTATUS"]))
        return inquire(
            request,
            found,
            cmqcfc.MQIACF_TOPIC_STATUS_ATTRS,
            (cmqc.MQCA_TOPIC_STRING,),
            known=known_of("TPSTATUS"),
            missing=cmqcfc.MQRCCF_NONE_FOUND,
        )

    def _subscribers(self, topic: str) -> Iterator[Attributes]:
        """Yield topic status of type SUB: the subscriptions for just that topic string."""
        manager = self._queue_manager.name
        for subscription in self._queue_manager.topics.subscriptions.values():
            if subscription.topic_filter != topic:
                continue
            durable = cmqc.MQSUB_DURABLE_YES if subscription.durable else cmqc.MQSUB_DURABLE_NO
            type_ = cmqcfc.MQSUBTYPE_ADMIN if subscription.kind == "ADMIN" else cmqcfc.MQSUBTYPE_API
            parameters = (
                MQCFST(cmqc.MQCA_TOPIC_STRING, topic.encode()),
                MQCFBS(cmqcfc.MQBACF_SUB_ID, subscription_id(manager, subscription.name)),
                MQCFST(cmqcfc.MQCACF_SUB_USER_ID, subscription.user.encode().ljust(12)),
                MQCFIN(cmqcfc.MQIACF_DURABLE_SUBSCRIPTION, durable),
                MQCFIN(cmqcfc.MQIACF_SUB_TYPE, type_),
            )
            yield {one.Parameter: one for one in parameters}

    def _clear(self, request: Request) -> Reply:
        topic = request.name(cmqc.MQCA_TOPIC_STRING)
        if cmqcfc.MQIACF_CLEAR_TYPE not in request:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, cmqcfc.MQIACF_CLEAR_TYPE)
        request.choice(cmqcfc.MQIACF_CLEAR_TYPE, (cmqcfc.MQCLRT_RETAINED,))
        request.choice(cmqcfc.MQIACF_CLEAR_SCOPE, (cmqcfc.MQCLRS_LOCAL,))
        request.finish()
        operation = Operation("CLEAR", "TOPICSTR", topic)
        operation.add("CLRTYPE", "RETAINED")
        return Reply(unit=operation.run(self._commands))
