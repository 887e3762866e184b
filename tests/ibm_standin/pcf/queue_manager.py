"""PCF commands for the queue manager, its channels and authority records, and for objects that it does not support."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from bridge.mq.embedded.attributes import Value, stamps
from bridge.mq.embedded.authority import COLLECTIVE, ENTITY_TYPES, NUMBERS, OBJECT_TYPES, Identity, is_about
from bridge.mq.embedded.channels import NAME as CONNECTION_AUTHENTICATION
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.mqsc.display import clients, is_named, objects
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.wire.mq.pcf import MQCFIL, MQCFIN, MQCFST, PCFParameter, string_list
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.pcf.commands import PCFRefused, Reply, Request
from tests.ibm_standin.pcf.request import (
    Attributes,
    Operation,
    attributes,
    ignore,
    inquire,
    integers,
    known_of,
    texts,
)

#: command -> (parameter with the name, list of requested attributes, reason code)
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
    cmqcfc.MQCMD_INQUIRE_PROCESS: (cmqc.MQCA_PROCESS_NAME, cmqcfc.MQIACF_PROCESS_ATTRS, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    cmqcfc.MQCMD_INQUIRE_SERVICE: (cmqc.MQCA_SERVICE_NAME, cmqcfc.MQIACF_SERVICE_ATTRS, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
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
#: commands for one object by name -> (parameter with the name, reason code)
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
    """Commands for kinds of objects that cannot be created here. Call them with the queue manager's lock held."""

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
        integers(request, wanted)
        # Other criteria (a type, a connection name) match nothing either.
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
        timestamps = stamps(self._queue_manager.created)
        return (
            MQCFST(cmqc.MQCA_ALTERATION_DATE, str(timestamps["ALTDATE"]).encode().ljust(12)),
            MQCFST(cmqc.MQCA_ALTERATION_TIME, str(timestamps["ALTTIME"]).encode()),
        )

    def _auth_infos(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_AUTH_INFO_NAME)
        kind = request.integer(cmqc.MQIA_AUTH_INFO_TYPE, cmqc.MQAIT_ALL)
        configuration = self._queue_manager.objects.connection_authentication
        parameters: tuple[PCFParameter, ...] = (
            MQCFST(cmqc.MQCA_AUTH_INFO_NAME, CONNECTION_AUTHENTICATION.encode().ljust(48)),
            MQCFIN(cmqc.MQIA_AUTH_INFO_TYPE, cmqc.MQAIT_IDPW_OS),
            MQCFST(cmqc.MQCA_AUTH_INFO_DESC, configuration.description.encode()[:64].ljust(64)),
            MQCFIN(cmqc.MQIA_CHECK_LOCAL_BINDING, cmqcfc.MQCHK_NONE),
            MQCFIN(cmqc.MQIA_CHECK_CLIENT_BINDING, _CHECKS[configuration.in_force]),
            MQCFIN(cmqc.MQIA_ADOPT_CONTEXT, cmqcfc.MQADPCTX_YES),
            MQCFIN(cmqc.MQIA_AUTHENTICATION_FAIL_DELAY, 0),
            MQCFIN(cmqc.MQIA_AUTHENTICATION_METHOD, cmqcfc.MQAUTHENTICATE_OS),
            *self._made(),
        )
        if kind not in (cmqc.MQAIT_ALL, cmqc.MQAIT_IDPW_OS):
            name = ""
        return self._one(
            request,
            name,
            CONNECTION_AUTHENTICATION,
            cmqc.MQCA_AUTH_INFO_NAME,
            parameters,
            cmqcfc.MQIACF_AUTH_INFO_ATTRS,
        )

    @staticmethod
    def _one(
        request: Request, name: str, own: str, named: int, parameters: tuple[PCFParameter, ...], wanted: int
    ) -> Reply:
        """Reply with the only object of a kind, if it has the requested name."""
        attributes_of_object: Attributes = {parameter.Parameter: parameter for parameter in parameters}
        objects = [attributes_of_object] if is_named(own, name) else []
        return inquire(request, objects, wanted, (named,), known=attributes_of_object.__contains__)

    @staticmethod
    def _auth_info_names(request: Request) -> Reply:
        ignore(request, cmqc.MQIA_AUTH_INFO_TYPE)
        return _names(request, cmqc.MQCA_AUTH_INFO_NAME, CONNECTION_AUTHENTICATION, cmqcfc.MQCACF_AUTH_INFO_NAMES)


def _names(request: Request, named: int, own: str, listed: int) -> Reply:
    name = request.name(named)
    request.finish()
    return Reply([(string_list(listed, [own.encode()] if is_named(own, name) else [], 48),)])


_FILTERS = (
    cmqcfc.MQCACF_AUTH_PROFILE_NAME,
    cmqcfc.MQCACF_ENTITY_NAME,
    cmqcfc.MQIACF_ENTITY_TYPE,
    cmqcfc.MQIACF_OBJECT_TYPE,
    cmqcfc.MQIACF_AUTHORIZATION_LIST,
)


class AuthorityCommands:
    """The authority commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self._records = queue_manager.objects.authority_records
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_SET_AUTH_REC: self._set,
            cmqcfc.MQCMD_DELETE_AUTH_REC: self._delete,
            cmqcfc.MQCMD_INQUIRE_AUTH_RECS: self._inquire,
            cmqcfc.MQCMD_REFRESH_SECURITY: self._refresh,
        }

    def _profile(self, request: Request) -> tuple[int, str]:
        """Return object type and profile name.

        The profile of the queue manager itself is its name, regardless of the name in the request.
        """
        if cmqcfc.MQIACF_OBJECT_TYPE not in request:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, cmqcfc.MQIACF_OBJECT_TYPE)
        object_type = request.choice(cmqcfc.MQIACF_OBJECT_TYPE, tuple(OBJECT_TYPES.values()))
        profile = request.text(cmqcfc.MQCACF_AUTH_PROFILE_NAME)
        if object_type == cmqc.MQOT_Q_MGR:
            return object_type, self._queue_manager.name
        if not profile:
            raise PCFRefused(cmqcfc.MQRCCF_PROFILE_NAME_MISSING, cmqcfc.MQCACF_AUTH_PROFILE_NAME)
        return object_type, profile

    def _entities(self, request: Request) -> list[tuple[int, str]]:
        principals = texts(request, cmqcfc.MQCACF_PRINCIPAL_ENTITY_NAMES)
        groups = texts(request, cmqcfc.MQCACF_GROUP_ENTITY_NAMES)
        ignore(request, cmqcfc.MQCACF_SERVICE_COMPONENT)
        entities = [(ENTITY_TYPES["PRINCIPAL"], name) for name in principals]
        entities += [(ENTITY_TYPES["GROUP"], name) for name in groups]
        if not all(name for _, name in entities) or not entities:
            raise PCFRefused(cmqcfc.MQRCCF_ENTITY_NAME_MISSING)
        return entities

    def _set(self, request: Request) -> Reply:
        object_type, profile = self._profile(request)
        added = _authorities(request, cmqcfc.MQIACF_AUTH_ADD_AUTHS)
        removed = _authorities(request, cmqcfc.MQIACF_AUTH_REMOVE_AUTHS)
        if added is None and removed is None:
            raise PCFRefused(cmqcfc.MQRCCF_AUTH_VALUE_MISSING)
        entities = self._entities(request)
        request.finish()
        unit = Unit()
        for entity_type, entity in entities:
            identity = Identity(object_type, profile, entity_type, entity)
            self._records.altered(unit, identity, added or frozenset(), removed or frozenset())
        return Reply(unit=unit)

    def _delete(self, request: Request) -> Reply:
        object_type, profile = self._profile(request)
        entities = self._entities(request)
        request.finish()
        identities = [Identity(object_type, profile, *entity) for entity in entities]
        if not all(identity in self._records.granted for identity in identities):
            raise PCFRefused(cmqc.MQRC_UNKNOWN_ENTITY)
        unit = Unit()
        for identity in identities:
            self._records.remove(unit, identity)
        return Reply(unit=unit)

    def _inquire(self, request: Request) -> Reply:
        options = request.integer(cmqcfc.MQIACF_AUTH_OPTIONS, cmqcfc.MQAUTHOPT_NAME_ALL_MATCHING) or 0
        profile = request.text(cmqcfc.MQCACF_AUTH_PROFILE_NAME) or ""
        types = (cmqc.MQOT_ALL, *OBJECT_TYPES.values())
        object_type = request.choice(cmqcfc.MQIACF_OBJECT_TYPE, types)
        entity = request.text(cmqcfc.MQCACF_ENTITY_NAME) or ""
        entity_type = request.integer(cmqcfc.MQIACF_ENTITY_TYPE)
        if entity and entity_type is None:
            raise PCFRefused(cmqcfc.MQRCCF_ENTITY_TYPE_MISSING, cmqcfc.MQIACF_ENTITY_TYPE)
        ignore(request, cmqcfc.MQCACF_SERVICE_COMPONENT)
        if object_type == cmqc.MQOT_Q_MGR:
            profile = ""
        exact = bool(options & cmqcfc.MQAUTHOPT_NAME_EXPLICIT)

        def is_wanted(identity: Identity) -> bool:
            return (
                object_type in (cmqc.MQOT_ALL, identity.object_type)
                and (not profile or (identity.profile == profile if exact else is_about(identity.profile, profile)))
                and entity_type in (None, identity.entity_type)
                and entity in ("", identity.entity)
            )

        records = (
            _record_of(identity, granted, options)
            for identity, granted in sorted(self._records.granted.items())
            if is_wanted(identity)
        )
        return inquire(
            request,
            records,
            cmqcfc.MQIACF_AUTH_PROFILE_ATTRS,
            _FILTERS,
            known=_FILTERS.__contains__,
            missing=cmqcfc.MQRCCF_NONE_FOUND,
        )

    def _refresh(self, request: Request) -> Reply:
        ignore(request, cmqcfc.MQIACF_SECURITY_TYPE, cmqcfc.MQIACF_SECURITY_ITEM)
        request.finish()
        if self._queue_manager.authorization is not None:
            self._queue_manager.authorization.refresh()
        return Reply()


_COLLECTIVE = {
    cmqcfc.MQAUTH_ALL: COLLECTIVE["ALL"],
    cmqcfc.MQAUTH_ALL_ADMIN: COLLECTIVE["ALLADM"],
    cmqcfc.MQAUTH_ALL_MQI: COLLECTIVE["ALLMQI"],
    cmqcfc.MQAUTH_NONE: COLLECTIVE["NONE"],
}


def _authorities(request: Request, number: int) -> frozenset[int] | None:
    """Return the single authorities in a list. Collective keywords such as `all` are expanded."""
    listed = integers(request, number)
    if listed is None:
        return None
    authorities: frozenset[int] = frozenset()
    for authority in listed:
        if authority not in _COLLECTIVE and authority not in NUMBERS:
            raise PCFRefused(cmqcfc.MQRCCF_AUTH_VALUE_ERROR)
        authorities |= _COLLECTIVE.get(authority, {authority})
    return authorities


def _record_of(identity: Identity, granted: frozenset[int], options: int) -> Attributes:
    """Return the attributes of an authority record."""
    authorities = tuple(sorted(granted)) or (cmqcfc.MQAUTH_NONE,)
    parameters = (
        MQCFST(cmqcfc.MQCACF_AUTH_PROFILE_NAME, identity.profile.encode().ljust(48)),
        MQCFST(cmqcfc.MQCACF_ENTITY_NAME, identity.entity.encode().ljust(64)),
        MQCFIN(cmqcfc.MQIACF_ENTITY_TYPE, identity.entity_type),
        MQCFIN(cmqcfc.MQIACF_OBJECT_TYPE, identity.object_type),
        MQCFIN(cmqcfc.MQIACF_AUTH_OPTIONS, options),
        MQCFIL(cmqcfc.MQIACF_AUTHORIZATION_LIST, authorities),
    )
    return {parameter.Parameter: parameter for parameter in parameters}


_NAME = cmqcfc.MQCACH_CHANNEL_NAME
_TYPE = cmqcfc.MQIACH_CHANNEL_TYPE
#: Texts by keyword: parameter, and the length to which it is padded with blanks.
_TEXTS = {
    "CHANNEL": (_NAME, 20),
    "DESCR": (cmqcfc.MQCACH_DESC, 64),
    "LOCLADDR": (cmqcfc.MQCACH_LOCAL_ADDRESS, 48),
    "MCAUSER": (cmqcfc.MQCACH_MCA_USER_ID, 12),
    "SSLCIPH": (cmqcfc.MQCACH_SSL_CIPHER_SPEC, 32),
    "SSLKEYP": (cmqcfc.MQCACH_SSL_KEY_PASSPHRASE, 0),
    "SSLKEYR": (cmqc.MQCA_SSL_KEY_REPOSITORY, 0),
    "CLIENTID": (cmqcfc.MQCACH_CLIENT_ID, 0),
    "CLNTUSER": (cmqcfc.MQCACH_CLIENT_USER_ID, 0),
    "CONNAME": (cmqcfc.MQCACH_CONNECTION_NAME, 0),
    "CHLSDATE": (cmqcfc.MQCACH_CHANNEL_START_DATE, 12),
    "CHLSTIME": (cmqcfc.MQCACH_CHANNEL_START_TIME, 8),
    "LMSGDATE": (cmqcfc.MQCACH_LAST_MSG_DATE, 12),
    "LMSGTIME": (cmqcfc.MQCACH_LAST_MSG_TIME, 8),
}
_NUMBERS = {
    "BACKLOG": cmqcfc.MQIACH_BACKLOG,
    "PORT": cmqcfc.MQIACH_PORT,
    "CONNECTIONS": cmqcfc.MQIACF_CONNECTION_COUNT,
    "INDOUBTIN": cmqcfc.MQIACH_IN_DOUBT_IN,
    "INDOUBTOUT": cmqcfc.MQIACH_IN_DOUBT_OUT,
    "KAINT": cmqcfc.MQIACH_MQTT_KEEP_ALIVE,
    "MSGRCVD": cmqcfc.MQIACH_MSGS_RCVD,
    "MSGSNT": cmqcfc.MQIACH_MSGS_SENT,
    "PENDING": cmqcfc.MQIACH_PENDING_OUT,
}
_WORDS = {
    "CHLTYPE": (_TYPE, {"MQTT": cmqc.MQCHT_MQTT}),
    "SSLCAUTH": (
        cmqcfc.MQIACH_SSL_CLIENT_AUTH,
        {"NEVER": cmqc.MQSCA_NEVER_REQUIRED, "OPTIONAL": cmqc.MQSCA_OPTIONAL, "REQUIRED": cmqc.MQSCA_REQUIRED},
    ),
    "STATUS": (
        cmqcfc.MQIACH_CHANNEL_STATUS,
        {
            "DISCONNECTED": cmqcfc.MQCHS_DISCONNECTED,
            "RUNNING": cmqcfc.MQCHS_RUNNING,
            "STARTING": cmqcfc.MQCHS_STARTING,
            "STOPPED": cmqcfc.MQCHS_STOPPED,
            "STOPPING": cmqcfc.MQCHS_STOPPING,
        },
    ),
    "TRPTYPE": (cmqcfc.MQIACH_XMIT_PROTOCOL_TYPE, {"TCP": cmqc.MQXPT_TCP}),
    "USECLTID": (cmqcfc.MQIACH_USE_CLIENT_ID, {"NO": cmqc.MQUCI_NO, "YES": cmqc.MQUCI_YES}),
}
#: PCF has no number for MQTT 5, so it is omitted.
_PROTOCOLS = {"MQTTV3": cmqc.MQPROTO_MQTTV3, "MQTTV311": cmqc.MQPROTO_MQTTV311, "HTTP": cmqc.MQPROTO_HTTP}
#: Attributes for filters.
_KNOWN = frozenset(
    [number for number, _ in (*_TEXTS.values(), *_WORDS.values())] + [*_NUMBERS.values(), cmqcfc.MQIACH_PROTOCOL]
)
_VERBS = {
    cmqcfc.MQCMD_DELETE_CHANNEL: "DELETE",
    cmqcfc.MQCMD_PURGE_CHANNEL: "PURGE",
    cmqcfc.MQCMD_START_CHANNEL: "START",
    cmqcfc.MQCMD_STOP_CHANNEL: "STOP",
}

Run = Callable[[Request], Reply]


class TelemetryChannelCommands:
    """The commands for telemetry channels. Call them with the queue manager's lock held."""

    def __init__(self, queue_manager: QueueManager, commands: Commands, absent: Mapping[int, Run]) -> None:
        """Begin. `absent` answers commands for channels of another type."""
        self._queue_manager = queue_manager
        self._commands = commands
        own: dict[int, Run] = {
            cmqcfc.MQCMD_INQUIRE_CHANNEL: self._channels,
            cmqcfc.MQCMD_INQUIRE_CHANNEL_NAMES: self._names,
            cmqcfc.MQCMD_INQUIRE_CHANNEL_STATUS: self._status,
            **dict.fromkeys(_VERBS, self._operate),
        }
        self.commands: dict[int, Run] = {
            number: partial(_by_type, run, absent.get(number, run)) for number, run in own.items()
        }

    def _channels(self, request: Request) -> Reply:
        channels = map(_parameters, objects(self._queue_manager, "CHANNEL", request.name(_NAME)))
        return _inquired(request, channels, cmqcfc.MQIACF_CHANNEL_ATTRS, (), cmqcfc.MQRCCF_CHANNEL_NOT_FOUND)

    def _names(self, request: Request) -> Reply:
        channels = objects(self._queue_manager, "CHANNEL", request.name(_NAME))
        request.finish()
        return Reply(
            [
                (
                    string_list(
                        cmqcfc.MQCACH_CHANNEL_NAMES, [str(channel["CHANNEL"]).encode() for channel in channels], 20
                    ),
                )
            ]
        )

    def _status(self, request: Request) -> Reply:
        name, client_id = request.name(_NAME), request.text(cmqcfc.MQCACH_CLIENT_ID)
        # Saved status exists only for channels between queue managers.
        ignore(request, cmqcfc.MQIACH_CHANNEL_INSTANCE_TYPE)
        if client_id is None:
            wanted, always = cmqcfc.MQIACH_CHANNEL_SUMMARY_ATTRS, cmqcfc.MQIACF_CONNECTION_COUNT
            rows = list(objects(self._queue_manager, "CHSTATUS", name))
        else:
            wanted, always = cmqcfc.MQIACH_CHANNEL_INSTANCE_ATTRS, cmqcfc.MQCACH_CLIENT_ID
            rows, _ = clients(self._queue_manager, name, client_id)
        statuses = map(_parameters, rows)
        own = (always, cmqcfc.MQIACH_CHANNEL_STATUS)
        return _inquired(request, statuses, wanted, own, cmqcfc.MQRCCF_CHL_STATUS_NOT_FOUND)

    def _operate(self, request: Request) -> Reply:
        operation = Operation(_VERBS[request.command], "CHANNEL", request.name(_NAME))
        operation.add("CHLTYPE", "MQTT")
        if request.command in (cmqcfc.MQCMD_PURGE_CHANNEL, cmqcfc.MQCMD_STOP_CHANNEL):
            client_id = request.text(cmqcfc.MQCACH_CLIENT_ID)
            if client_id is not None:
                operation.add("CLIENTID", client_id)
        request.finish()
        return Reply(unit=operation.run(self._commands))


def _by_type(run: Run, otherwise: Run, request: Request) -> Reply:
    """Answer for telemetry channels. Channels of another type do not exist."""
    if request.integer(_TYPE) == cmqc.MQCHT_MQTT:
        return run(request)
    if otherwise is run:
        raise PCFRefused(cmqcfc.MQRCCF_CHANNEL_TYPE_ERROR, _TYPE)
    return otherwise(request)


def _inquired(
    request: Request, rows: Iterable[Attributes], wanted: int, always: tuple[int, ...], missing: int
) -> Reply:
    return inquire(request, rows, wanted, (_NAME, _TYPE, *always), known=_KNOWN.__contains__, missing=missing)


def _parameters(row: Mapping[str, Value]) -> Attributes:
    """Return the attributes of DISPLAY as parameters."""
    return {
        parameter.Parameter: parameter for keyword, value in row.items() for parameter in _parameter(keyword, value)
    }


def _parameter(keyword: str, value: Value) -> list[PCFParameter]:
    if keyword in _TEXTS:
        number, length = _TEXTS[keyword]
        return [MQCFST(number, str(value).encode().ljust(length))]
    if keyword in _NUMBERS:
        return [MQCFIN(_NUMBERS[keyword], int(value))]
    if keyword in _WORDS:
        number, words = _WORDS[keyword]
        return [MQCFIN(number, words[str(value)])]
    protocols = tuple(_PROTOCOLS[protocol] for protocol in str(value).split(",") if protocol in _PROTOCOLS)
    if len(protocols) == 1:
        return [MQCFIN(cmqcfc.MQIACH_PROTOCOL, protocols[0])]
    return [MQCFIL(cmqcfc.MQIACH_PROTOCOL, protocols)] if protocols else []


class QueueManagerCommands:
    """The commands for one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager, commands: Commands) -> None:
        self._queue_manager = queue_manager
        self._commands = commands
        self._display = partial(objects, queue_manager)
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_INQUIRE_Q_MGR: self._inquire,
            cmqcfc.MQCMD_CHANGE_Q_MGR: self._change,
            cmqcfc.MQCMD_INQUIRE_Q_MGR_STATUS: self._status,
        }

    def _inquire(self, request: Request) -> Reply:
        return inquire(
            request,
            (attributes("QMGR", row) for row in self._display("QMGR", "*")),
            cmqcfc.MQIACF_Q_MGR_ATTRS,
            (cmqc.MQCA_Q_MGR_NAME,),
            known=known_of("QMGR"),
        )

    def _change(self, request: Request) -> Reply:
        operation = Operation("ALTER", "QMGR")
        if request.choice(cmqcfc.MQIACF_FORCE, (cmqcfc.MQFC_NO, cmqcfc.MQFC_YES)):
            operation.add("FORCE")
        operation.take(request, without=("QMNAME", "QMID", "CRDATE", "CRTIME", "ALTDATE", "ALTTIME"))
        request.finish()
        return Reply(unit=operation.run(self._commands))

    def _status(self, request: Request) -> Reply:
        queue_manager = self._queue_manager
        started = time.localtime(queue_manager.started)
        parameters: tuple[PCFParameter, ...] = (
            MQCFST(cmqc.MQCA_Q_MGR_NAME, queue_manager.name.encode().ljust(48)),
            MQCFIN(cmqcfc.MQIACF_Q_MGR_STATUS, cmqcfc.MQQMSTA_RUNNING),
            MQCFIN(cmqcfc.MQIACF_CHINIT_STATUS, cmqcfc.MQSVC_STATUS_STOPPED),
            MQCFIN(cmqcfc.MQIACF_CMD_SERVER_STATUS, cmqcfc.MQSVC_STATUS_RUNNING),
            MQCFIN(cmqcfc.MQIACF_CONNECTION_COUNT, len(queue_manager.applications)),
            MQCFST(cmqcfc.MQCACF_Q_MGR_START_DATE, time.strftime("%Y-%m-%d", started).encode().ljust(12)),
            MQCFST(cmqcfc.MQCACF_Q_MGR_START_TIME, time.strftime("%H.%M.%S", started).encode()),
        )
        attributes_of_manager = {parameter.Parameter: parameter for parameter in parameters}
        return inquire(
            request,
            [attributes_of_manager],
            cmqcfc.MQIACF_Q_MGR_STATUS_ATTRS,
            (cmqc.MQCA_Q_MGR_NAME, cmqcfc.MQIACF_Q_MGR_STATUS),
            known=attributes_of_manager.__contains__,
        )
