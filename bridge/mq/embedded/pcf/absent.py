"""Kinds of objects that this queue manager has none of, or only those that every queue manager has.

It has no channels but telemetry channels (`bridge.mq.embedded.pcf.channels`), and no listeners, services and processes:
whoever asks for them is told so with the reasons of IBM MQ, not that the command is unknown.
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.mq.embedded.attributes import stamps
from bridge.mq.embedded.connection_authentication import NAME as CONNECTION_AUTHENTICATION
from bridge.mq.embedded.mqsc.filter import is_named
from bridge.mq.embedded.pcf.inquiry import Attributes, inquire
from bridge.mq.embedded.pcf.request import PCFRefused, Reply, Request
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFIN, MQCFST, PCFParameter, string_list

#: command -> (parameter with the name, list of attributes asked for, reason)
_NONE: dict[int, tuple[int, int, int]] = {
    cmqcfc.MQCMD_INQUIRE_CHANNEL: (
        cmqcfc.MQCACH_CHANNEL_NAME,
        cmqcfc.MQIACF_CHANNEL_ATTRS,
        cmqcfc.MQRCCF_CHANNEL_NOT_FOUND,
    ),
    cmqcfc.MQCMD_INQUIRE_CHANNEL_STATUS: (
        cmqcfc.MQCACH_CHANNEL_NAME,
        cmqcfc.MQIACH_CHANNEL_INSTANCE_ATTRS,
        cmqcfc.MQRCCF_CHL_STATUS_NOT_FOUND,
    ),
    cmqcfc.MQCMD_INQUIRE_CHLAUTH_RECS: (
        cmqcfc.MQCACH_CHANNEL_NAME,
        cmqcfc.MQIACF_CHLAUTH_ATTRS,
        cmqcfc.MQRCCF_CHLAUTH_NOT_FOUND,
    ),
    cmqcfc.MQCMD_INQUIRE_LISTENER: (
        cmqcfc.MQCACH_LISTENER_NAME,
        cmqcfc.MQIACF_LISTENER_ATTRS,
        cmqc.MQRC_UNKNOWN_OBJECT_NAME,
    ),
    cmqcfc.MQCMD_INQUIRE_LISTENER_STATUS: (
        cmqcfc.MQCACH_LISTENER_NAME,
        cmqcfc.MQIACF_LISTENER_STATUS_ATTRS,
        cmqcfc.MQRCCF_LSTR_STATUS_NOT_FOUND,
    ),
    cmqcfc.MQCMD_INQUIRE_PROCESS: (
        cmqc.MQCA_PROCESS_NAME,
        cmqcfc.MQIACF_PROCESS_ATTRS,
        cmqc.MQRC_UNKNOWN_OBJECT_NAME,
    ),
    cmqcfc.MQCMD_INQUIRE_SERVICE: (
        cmqc.MQCA_SERVICE_NAME,
        cmqcfc.MQIACF_SERVICE_ATTRS,
        cmqc.MQRC_UNKNOWN_OBJECT_NAME,
    ),
    cmqcfc.MQCMD_INQUIRE_SERVICE_STATUS: (
        cmqc.MQCA_SERVICE_NAME,
        cmqcfc.MQIACF_SERVICE_STATUS_ATTRS,
        cmqcfc.MQRCCF_SERV_STATUS_NOT_FOUND,
    ),
    cmqcfc.MQCMD_INQUIRE_CLUSTER_Q_MGR: (
        cmqc.MQCA_CLUSTER_Q_MGR_NAME,
        cmqcfc.MQIACF_CLUSTER_Q_MGR_ATTRS,
        cmqc.MQRC_UNKNOWN_OBJECT_NAME,
    ),
}
#: command -> (parameter with the name, parameter that lists the names)
_NO_NAMES: dict[int, tuple[int, int]] = {
    cmqcfc.MQCMD_INQUIRE_CHANNEL_NAMES: (cmqcfc.MQCACH_CHANNEL_NAME, cmqcfc.MQCACH_CHANNEL_NAMES),
    cmqcfc.MQCMD_INQUIRE_PROCESS_NAMES: (cmqc.MQCA_PROCESS_NAME, cmqcfc.MQCACF_PROCESS_NAMES),
}
#: commands about one object by its name -> (parameter with the name, reason)
_UNKNOWN: dict[int, tuple[int, int]] = {
    **dict.fromkeys(
        (
            cmqcfc.MQCMD_CHANGE_CHANNEL,
            cmqcfc.MQCMD_DELETE_CHANNEL,
            cmqcfc.MQCMD_PING_CHANNEL,
            cmqcfc.MQCMD_RESET_CHANNEL,
            cmqcfc.MQCMD_RESOLVE_CHANNEL,
            cmqcfc.MQCMD_START_CHANNEL,
            cmqcfc.MQCMD_STOP_CHANNEL,
        ),
        (cmqcfc.MQCACH_CHANNEL_NAME, cmqcfc.MQRCCF_CHANNEL_NOT_FOUND),
    ),
    **dict.fromkeys(
        (cmqcfc.MQCMD_CHANGE_LISTENER, cmqcfc.MQCMD_DELETE_LISTENER),
        (cmqcfc.MQCACH_LISTENER_NAME, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    ),
    **dict.fromkeys(
        (cmqcfc.MQCMD_CHANGE_PROCESS, cmqcfc.MQCMD_DELETE_PROCESS),
        (cmqc.MQCA_PROCESS_NAME, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    ),
    **dict.fromkeys(
        (
            cmqcfc.MQCMD_CHANGE_SERVICE,
            cmqcfc.MQCMD_DELETE_SERVICE,
            cmqcfc.MQCMD_START_SERVICE,
            cmqcfc.MQCMD_STOP_SERVICE,
        ),
        (cmqc.MQCA_SERVICE_NAME, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    ),
}
#: CHCKCLNT, and its numbers
_CHECKS = {
    "NONE": cmqcfc.MQCHK_NONE,
    "OPTIONAL": cmqcfc.MQCHK_OPTIONAL,
    "REQDADM": cmqcfc.MQCHK_REQUIRED_ADMIN,
    "REQUIRED": cmqcfc.MQCHK_REQUIRED,
}


class AbsentCommands:
    """Commands about kinds of objects that are not to be made here. Call them with the queue manager's lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_INQUIRE_AUTH_INFO: self._auth_infos,
            cmqcfc.MQCMD_INQUIRE_AUTH_INFO_NAMES: self._auth_info_names,
            **dict.fromkeys(_NONE, self._none),
            **dict.fromkeys(_NO_NAMES, self._no_names),
            **dict.fromkeys(_UNKNOWN, self._unknown),
        }

    @staticmethod
    def _none(request: Request) -> Reply:
        name, wanted, reason = _NONE[request.command]
        request.name(name)
        request.integers(wanted)
        # What else narrows the question down (a type, a connection name) finds nothing either.
        raise PCFRefused(reason)

    @staticmethod
    def _unknown(request: Request) -> Reply:
        name, reason = _UNKNOWN[request.command]
        request.name(name)
        raise PCFRefused(reason)

    @staticmethod
    def _no_names(request: Request) -> Reply:
        name, names = _NO_NAMES[request.command]
        request.name(name)
        return Reply([(string_list(names, ()),)])

    def _made(self) -> tuple[PCFParameter, PCFParameter]:
        made = stamps(self._queue_manager.created)
        return (
            MQCFST(cmqc.MQCA_ALTERATION_DATE, str(made["ALTDATE"]).encode().ljust(12)),
            MQCFST(cmqc.MQCA_ALTERATION_TIME, str(made["ALTTIME"]).encode()),
        )

    def _auth_infos(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_AUTH_INFO_NAME)
        kind = request.integer(cmqc.MQIA_AUTH_INFO_TYPE, cmqc.MQAIT_ALL)
        shown = self._queue_manager.connection_authentication
        parameters: tuple[PCFParameter, ...] = (
            MQCFST(cmqc.MQCA_AUTH_INFO_NAME, CONNECTION_AUTHENTICATION.encode().ljust(48)),
            MQCFIN(cmqc.MQIA_AUTH_INFO_TYPE, cmqc.MQAIT_IDPW_OS),
            MQCFST(cmqc.MQCA_AUTH_INFO_DESC, shown.description.encode()[:64].ljust(64)),
            MQCFIN(cmqc.MQIA_CHECK_LOCAL_BINDING, cmqcfc.MQCHK_NONE),
            MQCFIN(cmqc.MQIA_CHECK_CLIENT_BINDING, _CHECKS[shown.in_force]),
            MQCFIN(cmqc.MQIA_ADOPT_CONTEXT, cmqcfc.MQADPCTX_YES),
            MQCFIN(cmqc.MQIA_AUTHENTICATION_FAIL_DELAY, 0),
            MQCFIN(cmqc.MQIA_AUTHENTICATION_METHOD, cmqcfc.MQAUTHENTICATE_OS),
            *self._made(),
        )
        if kind not in (cmqc.MQAIT_ALL, cmqc.MQAIT_IDPW_OS):
            name = ""
        return self._one(
            request, name, CONNECTION_AUTHENTICATION, cmqc.MQCA_AUTH_INFO_NAME, parameters, cmqcfc.MQIACF_AUTH_INFO_ATTRS
        )

    @staticmethod
    def _one(request: Request, name: str, own: str, named: int, parameters: tuple[PCFParameter, ...], wanted: int) -> Reply:
        """Reply with the one object of a kind, where it has the name that was asked for."""
        found: Attributes = {one.Parameter: one for one in parameters}
        objects = [found] if is_named(own, name) else []
        return inquire(request, objects, wanted, (named,), known=found.__contains__)

    @staticmethod
    def _auth_info_names(request: Request) -> Reply:
        request.ignore(cmqc.MQIA_AUTH_INFO_TYPE)
        return _names(request, cmqc.MQCA_AUTH_INFO_NAME, CONNECTION_AUTHENTICATION, cmqcfc.MQCACF_AUTH_INFO_NAMES)


def _names(request: Request, named: int, own: str, listed: int) -> Reply:
    name = request.name(named)
    request.finish()
    return Reply([(string_list(listed, [own.encode()] if is_named(own, name) else [], 48),)])
