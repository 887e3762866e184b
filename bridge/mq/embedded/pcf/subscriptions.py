"""Subscription commands: Change, Copy, Create, Delete and Inquire Subscription, Inquire Subscription Status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from bridge.mq.embedded.attribute_selectors import selector
from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.mqsc.display import Display
from bridge.mq.embedded.mqsc.subscriptions import UNALTERABLE
from bridge.mq.embedded.pcf.defined import Defined
from bridge.mq.embedded.pcf.inquiry import attributes, inquire, known_of
from bridge.mq.embedded.pcf.operation import Operation
from bridge.mq.embedded.pcf.request import PCFRefused, Reply, Request
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.wire import cmqc, cmqcfc

_DURABLE = {cmqc.MQSUB_DURABLE_ALL: (), cmqc.MQSUB_DURABLE_YES: ("YES",), cmqc.MQSUB_DURABLE_NO: ("NO",)}
_TYPES: dict[int, tuple[str, ...]] = {
    cmqcfc.MQSUBTYPE_ALL: (),
    cmqcfc.MQSUBTYPE_USER: ("ADMIN", "API"),
    cmqcfc.MQSUBTYPE_ADMIN: ("ADMIN",),
    cmqcfc.MQSUBTYPE_API: ("API",),
    cmqcfc.MQSUBTYPE_PROXY: ("PROXY",),
}
#: A subscription that a command makes is administrative and durable: there is nothing else to choose.
_SUBSCRIPTION = Defined(
    "SUB",
    cmqcfc.MQCACF_SUB_NAME,
    cmqcfc.MQCACF_FROM_SUB_NAME,
    cmqcfc.MQCACF_TO_SUB_NAME,
    (
        (cmqcfc.MQIACF_SUB_TYPE, cmqcfc.MQSUBTYPE_ADMIN),
        (cmqcfc.MQIACF_DURABLE_SUBSCRIPTION, cmqc.MQSUB_DURABLE_YES),
    ),
)
#: What Inquire Subscription Status tells; the rest is the subscription's own.
_STATUS = frozenset(
    (
        cmqcfc.MQCACF_SUB_NAME,
        cmqcfc.MQBACF_SUB_ID,
        cmqc.MQCA_TOPIC_STRING,
        cmqcfc.MQIACF_DURABLE_SUBSCRIPTION,
        cmqcfc.MQIACF_SUB_TYPE,
        cmqcfc.MQCACF_SUB_USER_ID,
    )
)


class SubscriptionCommands:
    """The subscription commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager, commands: Commands) -> None:
        self._commands = commands
        self._display = Display(queue_manager)
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_CREATE_SUBSCRIPTION: partial(_SUBSCRIPTION.create, commands),
            cmqcfc.MQCMD_CHANGE_SUBSCRIPTION: self._change,
            cmqcfc.MQCMD_COPY_SUBSCRIPTION: partial(_SUBSCRIPTION.copy, commands),
            cmqcfc.MQCMD_DELETE_SUBSCRIPTION: self._delete,
            cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION: self._inquire,
            cmqcfc.MQCMD_INQUIRE_SUB_STATUS: self._status,
        }

    def _change(self, request: Request) -> Reply:
        name = self._named(request)
        for keyword in UNALTERABLE:
            for one in request.rest():
                attribute = selector("SUB", one.Parameter)
                if attribute is not None and attribute.keyword == keyword:
                    raise PCFRefused(cmqcfc.MQRCCF_ATTR_VALUE_FIXED, one.Parameter)
        return _SUBSCRIPTION.change(self._commands, request, name)

    def _delete(self, request: Request) -> Reply:
        name = self._named(request)
        request.finish()
        return Reply(unit=Operation("DELETE", "SUB", name).run(self._commands))

    def _named(self, request: Request) -> str:
        """Return the name of the one subscription that the request gives by name or SubId."""
        name, identifier = request.text(cmqcfc.MQCACF_SUB_NAME), request.byte_string(cmqcfc.MQBACF_SUB_ID)
        if name is None and identifier is None:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, cmqcfc.MQCACF_SUB_NAME)
        for one in self._display.objects("SUB", "*"):
            if one["SUB"] == name if name else bytes.fromhex(str(one["SUBID"])) == identifier:
                return str(one["SUB"])
        raise PCFRefused(cmqc.MQRC_NO_SUBSCRIPTION)

    def _subscriptions(self, request: Request) -> Iterator[dict[str, Value]]:
        name, identifier = request.text(cmqcfc.MQCACF_SUB_NAME), request.byte_string(cmqcfc.MQBACF_SUB_ID)
        if name is None and identifier is None:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, cmqcfc.MQCACF_SUB_NAME)
        durable = _DURABLE[request.choice(cmqcfc.MQIACF_DURABLE_SUBSCRIPTION, tuple(_DURABLE))]
        types = _TYPES[request.choice(cmqcfc.MQIACF_SUB_TYPE, tuple(_TYPES))]
        return (
            one
            for one in self._display.objects("SUB", name or "*")
            if (not identifier or bytes.fromhex(str(one["SUBID"])) == identifier)
            and (not durable or one["DURABLE"] in durable)
            and (not types or one["SUBTYPE"] in types)
        )

    def _inquire(self, request: Request) -> Reply:
        found = self._subscriptions(request)
        request.ignore(cmqc.MQIA_DISPLAY_TYPE)
        return inquire(
            request,
            (attributes("SUB", one) for one in found),
            cmqcfc.MQIACF_SUB_ATTRS,
            (cmqcfc.MQCACF_SUB_NAME, cmqcfc.MQBACF_SUB_ID),
            known=known_of("SUB"),
            missing=cmqc.MQRC_NO_SUBSCRIPTION,
        )

    def _status(self, request: Request) -> Reply:
        found = self._subscriptions(request)
        return inquire(
            request,
            ({number: one for number, one in attributes("SUB", shown).items() if number in _STATUS} for shown in found),
            cmqcfc.MQIACF_SUB_STATUS_ATTRS,
            (cmqcfc.MQCACF_SUB_NAME, cmqcfc.MQBACF_SUB_ID),
            known=_STATUS.__contains__,
            missing=cmqc.MQRC_NO_SUBSCRIPTION,
        )
