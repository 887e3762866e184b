"""PCF commands for queues, topics, namelists and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from bridge.mq.embedded.attributes import QUEUE_TYPES, Value, selector
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.mqsc.definitions import UNALTERABLE
from bridge.mq.embedded.mqsc.display import objects, subscription_id
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.wire.mq.pcf import MQCFBS, MQCFIL, MQCFIN, MQCFST, string_list
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.pcf.commands import PCFRefused, Reply, Request
from tests.ibm_standin.pcf.request import Attributes, Operation, attributes, byte_string, ignore, inquire, known_of

KINDS = {number: kind for kind, number in QUEUE_TYPES.items()}
#: Queue types that do not exist here, but can be requested.
_NONE_OF = (cmqc.MQQT_CLUSTER,)


class QueueCommands:
    """The queue commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager, commands: Commands) -> None:
        self._queue_manager = queue_manager
        self._commands = commands
        self._display = partial(objects, queue_manager)
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_CREATE_Q: self._create,
            cmqcfc.MQCMD_CHANGE_Q: self._change,
            cmqcfc.MQCMD_COPY_Q: self._copy,
            cmqcfc.MQCMD_DELETE_Q: self._delete,
            cmqcfc.MQCMD_CLEAR_Q: self._clear,
            cmqcfc.MQCMD_INQUIRE_Q: self._inquire,
            cmqcfc.MQCMD_INQUIRE_Q_NAMES: self._names,
        }

    def _kind(self, request: Request) -> str | None:
        """Return the kind of queue in MQIA_Q_TYPE, or None without the parameter."""
        number = request.integer(cmqc.MQIA_Q_TYPE)
        if number is None:
            return None
        if number not in KINDS:
            raise PCFRefused(cmqcfc.MQRCCF_Q_TYPE_ERROR, cmqc.MQIA_Q_TYPE)
        return KINDS[number]

    def _existing_kind(self, name: str) -> str | None:
        queue_manager = self._queue_manager
        held: tuple[tuple[str, object], ...] = (
            ("QLOCAL", queue_manager.objects.queues),
            ("QALIAS", queue_manager.objects.aliases),
            ("QREMOTE", queue_manager.objects.remotes),
            ("QMODEL", queue_manager.objects.models),
        )
        return next((kind for kind, objects in held if isinstance(objects, dict) and name in objects), None)

    def _kind_of(self, request: Request, name: str) -> str:
        """Return the kind of an existing queue.

        Raises PCFRefused if the queue is missing, or if its kind differs from the request.
        """
        kind_of_request, kind = self._kind(request), self._existing_kind(name)
        if kind is None:
            raise PCFRefused(cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQCA_Q_NAME)
        if kind_of_request is not None and kind_of_request != kind:
            raise PCFRefused(cmqcfc.MQRCCF_Q_WRONG_TYPE, cmqc.MQIA_Q_TYPE)
        return kind

    def _create(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_Q_NAME)
        kind = self._kind(request)
        if kind is None:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, cmqc.MQIA_Q_TYPE)
        operation = Operation("DEFINE", kind, name)
        replace(request, operation)
        return self._define(request, operation)

    def _copy(self, request: Request) -> Reply:
        model, name = request.name(cmqcfc.MQCACF_FROM_Q_NAME), request.name(cmqcfc.MQCACF_TO_Q_NAME)
        operation = Operation("DEFINE", self._kind_of(request, model), name)
        operation.add("LIKE", model)
        replace(request, operation)
        return self._define(request, operation)

    def _change(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_Q_NAME)
        kind = self._kind_of(request, name)
        operation = Operation("ALTER", kind, name)
        if request.choice(cmqcfc.MQIACF_FORCE, (cmqcfc.MQFC_NO, cmqcfc.MQFC_YES)) and kind != "QMODEL":
            operation.add("FORCE")
        return self._define(request, operation)

    def _define(self, request: Request, operation: Operation) -> Reply:
        operation.take(request)
        request.finish()
        return Reply(unit=operation.run(self._commands))

    def _delete(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_Q_NAME)
        kind = self._kind_of(request, name)
        purge = request.choice(cmqcfc.MQIACF_PURGE, (cmqcfc.MQPO_NO, cmqcfc.MQPO_YES))
        operation = Operation("DELETE", kind, name)
        operation.take_records(request)
        request.finish()
        if purge and kind == "QLOCAL":
            operation.add("PURGE")
        return Reply(unit=operation.run(self._commands))

    def _clear(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_Q_NAME)
        request.finish()
        kind = self._existing_kind(name)
        if kind not in (None, "QLOCAL"):
            raise PCFRefused(cmqcfc.MQRCCF_Q_WRONG_TYPE, cmqc.MQCA_Q_NAME)
        try:
            return Reply(unit=Operation("CLEAR", "QLOCAL", name).run(self._commands))
        except PCFRefused as error:
            if error.reason == cmqcfc.MQRCCF_OBJECT_OPEN:
                raise PCFRefused(cmqc.MQRC_OBJECT_IN_USE) from error
            raise

    def _queues(self, request: Request) -> Iterator[dict[str, Value]]:
        """Return the queues that match the requested name and type."""
        name = request.name(cmqc.MQCA_Q_NAME)
        allowed = (cmqc.MQQT_ALL, *KINDS, *_NONE_OF)
        number = request.integer(cmqc.MQIA_Q_TYPE, cmqc.MQQT_ALL)
        if number not in allowed:
            raise PCFRefused(cmqcfc.MQRCCF_Q_TYPE_ERROR, cmqc.MQIA_Q_TYPE)
        return (
            row
            for row in self._display("QUEUE", name)
            if number == cmqc.MQQT_ALL or QUEUE_TYPES[str(row["TYPE"])] == number
        )

    def _inquire(self, request: Request) -> Reply:
        queues = self._queues(request)
        ignore(request, cmqcfc.MQIACF_CLUSTER_INFO)
        return inquire(
            request,
            (attributes(str(row["TYPE"]), row) for row in queues),
            cmqcfc.MQIACF_Q_ATTRS,
            (cmqc.MQCA_Q_NAME, cmqc.MQIA_Q_TYPE),
            known=known_of("QUEUE"),
        )

    def _names(self, request: Request) -> Reply:
        queues = list(self._queues(request))
        request.finish()
        names = string_list(cmqcfc.MQCACF_Q_NAMES, (str(row["QUEUE"]).encode() for row in queues), 48)
        types = MQCFIL(cmqcfc.MQIACF_Q_TYPES, tuple(QUEUE_TYPES[str(row["TYPE"])] for row in queues))
        return Reply([(names, types)])


def replace(request: Request, operation: Operation) -> None:
    """Add REPLACE to an operation if MQIACF_REPLACE requests it."""
    if request.choice(cmqcfc.MQIACF_REPLACE, (cmqcfc.MQRP_NO, cmqcfc.MQRP_YES)) == cmqcfc.MQRP_YES:
        operation.add("REPLACE")


@dataclass(frozen=True)
class Defined:
    """A kind of objects, with the parameters of its commands."""

    #: the noun in MQSC
    noun: str
    #: the parameter with an object's name
    name: int
    #: the parameters of Copy: the object to copy, and the new object
    source: int
    target: int
    #: parameters with only one possible value, and this value
    fixed: tuple[tuple[int, int], ...] = ()

    def create(self, commands: Commands, request: Request) -> Reply:
        operation = Operation("DEFINE", self.noun, request.name(self.name))
        replace(request, operation)
        return self._define(commands, request, operation)

    def copy(self, commands: Commands, request: Request) -> Reply:
        model = request.name(self.source)
        operation = Operation("DEFINE", self.noun, request.name(self.target))
        operation.add("LIKE", model)
        replace(request, operation)
        return self._define(commands, request, operation)

    def change(self, commands: Commands, request: Request, name: str | None = None) -> Reply:
        """Alter an object. `name` is its name if the request may identify the object in another way."""
        operation = Operation("ALTER", self.noun, request.name(self.name) if name is None else name)
        return self._define(commands, request, operation)

    def _define(self, commands: Commands, request: Request, operation: Operation) -> Reply:
        for parameter, value in self.fixed:
            request.choice(parameter, (value,))
        operation.take(request)
        request.finish()
        return Reply(unit=operation.run(commands))

    def delete(self, commands: Commands, request: Request) -> Reply:
        name = request.name(self.name)
        operation = Operation("DELETE", self.noun, name)
        operation.take_records(request)
        request.finish()
        return Reply(unit=operation.run(commands))


_TOPIC_TYPES = (cmqc.MQTOPT_LOCAL, cmqc.MQTOPT_ALL, cmqc.MQTOPT_CLUSTER)
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
        self._display = partial(objects, queue_manager)
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_CREATE_TOPIC: partial(_TOPIC.create, commands),
            cmqcfc.MQCMD_CHANGE_TOPIC: partial(_TOPIC.change, commands),
            cmqcfc.MQCMD_COPY_TOPIC: partial(_TOPIC.copy, commands),
            cmqcfc.MQCMD_DELETE_TOPIC: partial(_TOPIC.delete, commands),
            cmqcfc.MQCMD_INQUIRE_TOPIC: self._inquire,
            cmqcfc.MQCMD_INQUIRE_TOPIC_NAMES: self._names,
            cmqcfc.MQCMD_INQUIRE_TOPIC_STATUS: self._status,
        }

    def _topics(self, request: Request) -> Iterator[dict[str, Value]]:
        name = request.name(cmqc.MQCA_TOPIC_NAME)
        type_ = request.choice(cmqc.MQIA_TOPIC_TYPE, _TOPIC_TYPES)
        ignore(request, cmqcfc.MQIACF_CLUSTER_INFO)
        return (row for row in self._display("TOPIC", name) if type_ != cmqc.MQTOPT_CLUSTER)

    def _inquire(self, request: Request) -> Reply:
        topics = self._topics(request)
        return inquire(
            request,
            (attributes("TOPIC", row) for row in topics),
            cmqcfc.MQIACF_TOPIC_ATTRS,
            (cmqc.MQCA_TOPIC_NAME, cmqc.MQIA_TOPIC_TYPE),
            known=known_of("TOPIC"),
        )

    def _names(self, request: Request) -> Reply:
        names = [str(row["TOPIC"]).encode() for row in self._topics(request)]
        request.finish()
        return Reply([(string_list(cmqcfc.MQCACF_TOPIC_NAMES, names, 48),)])

    def _status(self, request: Request) -> Reply:
        topic = request.name(cmqc.MQCA_TOPIC_STRING)
        kinds = (cmqcfc.MQIACF_TOPIC_STATUS, cmqcfc.MQIACF_TOPIC_SUB, cmqcfc.MQIACF_TOPIC_PUB)
        kind = request.choice(cmqcfc.MQIACF_TOPIC_STATUS_TYPE, kinds)
        nodes = list(self._display("TPSTATUS", topic))
        if not nodes:
            raise PCFRefused(cmqcfc.MQRCCF_TOPIC_STRING_NOT_FOUND, cmqc.MQCA_TOPIC_STRING)
        rows: list[Attributes] = []
        for node in nodes:
            if kind == cmqcfc.MQIACF_TOPIC_STATUS:
                rows.append(attributes("TPSTATUS", node))
            elif kind == cmqcfc.MQIACF_TOPIC_SUB:
                rows += self._subscribers(str(node["TPSTATUS"]))
        return inquire(
            request,
            rows,
            cmqcfc.MQIACF_TOPIC_STATUS_ATTRS,
            (cmqc.MQCA_TOPIC_STRING,),
            known=known_of("TPSTATUS"),
            missing=cmqcfc.MQRCCF_NONE_FOUND,
        )

    def _subscribers(self, topic: str) -> Iterator[Attributes]:
        """Yield topic status of type SUB: the subscriptions for exactly this topic string."""
        manager = self._queue_manager.name
        for subscription in self._queue_manager.objects.topics.subscriptions.values():
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
            yield {parameter.Parameter: parameter for parameter in parameters}


_NAMELIST = Defined(
    "NAMELIST", cmqc.MQCA_NAMELIST_NAME, cmqcfc.MQCACF_FROM_NAMELIST_NAME, cmqcfc.MQCACF_TO_NAMELIST_NAME
)


class NamelistCommands:
    """The namelist commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager, commands: Commands) -> None:
        self._display = partial(objects, queue_manager)
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_CREATE_NAMELIST: partial(_NAMELIST.create, commands),
            cmqcfc.MQCMD_CHANGE_NAMELIST: partial(_NAMELIST.change, commands),
            cmqcfc.MQCMD_COPY_NAMELIST: partial(_NAMELIST.copy, commands),
            cmqcfc.MQCMD_DELETE_NAMELIST: partial(_NAMELIST.delete, commands),
            cmqcfc.MQCMD_INQUIRE_NAMELIST: self._inquire,
            cmqcfc.MQCMD_INQUIRE_NAMELIST_NAMES: self._names,
        }

    def _inquire(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_NAMELIST_NAME)
        ignore(request, cmqc.MQIA_NAMELIST_TYPE)
        return inquire(
            request,
            (attributes("NAMELIST", row) for row in self._display("NAMELIST", name)),
            cmqcfc.MQIACF_NAMELIST_ATTRS,
            (cmqc.MQCA_NAMELIST_NAME,),
            known=known_of("NAMELIST"),
        )

    def _names(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_NAMELIST_NAME)
        request.finish()
        names = [str(row["NAMELIST"]).encode() for row in self._display("NAMELIST", name)]
        return Reply([(string_list(cmqcfc.MQCACF_NAMELIST_NAMES, names, 48),)])


_DURABLE = {cmqc.MQSUB_DURABLE_ALL: (), cmqc.MQSUB_DURABLE_YES: ("YES",), cmqc.MQSUB_DURABLE_NO: ("NO",)}
_SUBSCRIPTION_TYPES: dict[int, tuple[str, ...]] = {
    cmqcfc.MQSUBTYPE_ALL: (),
    cmqcfc.MQSUBTYPE_USER: ("ADMIN", "API"),
    cmqcfc.MQSUBTYPE_ADMIN: ("ADMIN",),
    cmqcfc.MQSUBTYPE_API: ("API",),
    cmqcfc.MQSUBTYPE_PROXY: ("PROXY",),
}
#: A subscription that a command creates is always administrative and durable.
_SUBSCRIPTION = Defined(
    "SUB",
    cmqcfc.MQCACF_SUB_NAME,
    cmqcfc.MQCACF_FROM_SUB_NAME,
    cmqcfc.MQCACF_TO_SUB_NAME,
    ((cmqcfc.MQIACF_SUB_TYPE, cmqcfc.MQSUBTYPE_ADMIN), (cmqcfc.MQIACF_DURABLE_SUBSCRIPTION, cmqc.MQSUB_DURABLE_YES)),
)
#: Attributes of Inquire Subscription Status. All others are attributes of the subscription.
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
        self._display = partial(objects, queue_manager)
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
            for parameter in request.rest():
                attribute = selector("SUB", parameter.Parameter)
                if attribute is not None and attribute.keyword == keyword:
                    raise PCFRefused(cmqcfc.MQRCCF_ATTR_VALUE_FIXED, parameter.Parameter)
        return _SUBSCRIPTION.change(self._commands, request, name)

    def _delete(self, request: Request) -> Reply:
        name = self._named(request)
        request.finish()
        return Reply(unit=Operation("DELETE", "SUB", name).run(self._commands))

    def _named(self, request: Request) -> str:
        """Return the name of the subscription that the request identifies by name or SubId."""
        name, identifier = request.text(cmqcfc.MQCACF_SUB_NAME), byte_string(request, cmqcfc.MQBACF_SUB_ID)
        if name is None and identifier is None:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, cmqcfc.MQCACF_SUB_NAME)
        for row in self._display("SUB", "*"):
            if row["SUB"] == name if name else bytes.fromhex(str(row["SUBID"])) == identifier:
                return str(row["SUB"])
        raise PCFRefused(cmqc.MQRC_NO_SUBSCRIPTION)

    def _subscriptions(self, request: Request) -> Iterator[dict[str, Value]]:
        name, identifier = request.text(cmqcfc.MQCACF_SUB_NAME), byte_string(request, cmqcfc.MQBACF_SUB_ID)
        if name is None and identifier is None:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, cmqcfc.MQCACF_SUB_NAME)
        durable = _DURABLE[request.choice(cmqcfc.MQIACF_DURABLE_SUBSCRIPTION, tuple(_DURABLE))]
        types = _SUBSCRIPTION_TYPES[request.choice(cmqcfc.MQIACF_SUB_TYPE, tuple(_SUBSCRIPTION_TYPES))]
        return (
            row
            for row in self._display("SUB", name or "*")
            if (not identifier or bytes.fromhex(str(row["SUBID"])) == identifier)
            and (not durable or row["DURABLE"] in durable)
            and (not types or row["SUBTYPE"] in types)
        )

    def _inquire(self, request: Request) -> Reply:
        rows = self._subscriptions(request)
        ignore(request, cmqc.MQIA_DISPLAY_TYPE)
        return inquire(
            request,
            (attributes("SUB", row) for row in rows),
            cmqcfc.MQIACF_SUB_ATTRS,
            (cmqcfc.MQCACF_SUB_NAME, cmqcfc.MQBACF_SUB_ID),
            known=known_of("SUB"),
            missing=cmqc.MQRC_NO_SUBSCRIPTION,
        )

    def _status(self, request: Request) -> Reply:
        rows = self._subscriptions(request)
        return inquire(
            request,
            (
                {number: parameter for number, parameter in attributes("SUB", row).items() if number in _STATUS}
                for row in rows
            ),
            cmqcfc.MQIACF_SUB_STATUS_ATTRS,
            (cmqcfc.MQCACF_SUB_NAME, cmqcfc.MQBACF_SUB_ID),
            known=_STATUS.__contains__,
            missing=cmqc.MQRC_NO_SUBSCRIPTION,
        )
