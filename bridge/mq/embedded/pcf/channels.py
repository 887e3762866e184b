"""Telemetry channels: Inquire, Inquire Status, Start, Stop, Purge and Delete Channel with ChannelType MQCHT_MQTT.

Source: IBM MQ documentation, "Inquire Channel Status (MQTT)", "Start Channel (MQTT)", "Purge Channel" and the like. As in IBM
MQ, these channels are told of where they are asked for by their type. MQSC creates and changes them, perhaps in Escape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.mqsc.channel_display import ChannelDisplay
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.pcf.inquiry import Attributes, inquire
from bridge.mq.embedded.pcf.operation import Operation
from bridge.mq.embedded.pcf.request import PCFRefused, Reply, Request
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFIL, MQCFIN, MQCFST, PCFParameter, string_list

_NAME = cmqcfc.MQCACH_CHANNEL_NAME
_TYPE = cmqcfc.MQIACH_CHANNEL_TYPE
#: Texts by keyword: parameter, and the length up to which it is filled with blanks.
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
        {
            "NEVER": cmqc.MQSCA_NEVER_REQUIRED,
            "OPTIONAL": cmqc.MQSCA_OPTIONAL,
            "REQUIRED": cmqc.MQSCA_REQUIRED,
        },
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
#: PCF has no number for MQTT 5: it is left out.
_PROTOCOLS = {"MQTTV3": cmqc.MQPROTO_MQTTV3, "MQTTV311": cmqc.MQPROTO_MQTTV311, "HTTP": cmqc.MQPROTO_HTTP}
#: What can be filtered by.
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
    """The commands about telemetry channels. Call them with the queue manager's lock held."""

    def __init__(self, queue_manager: QueueManager, commands: Commands, absent: Mapping[int, Run]) -> None:
        """Begin; `absent` answers where a command is about channels of another type."""
        self._display = ChannelDisplay(queue_manager)
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
        found = map(_parameters, self._display.channels(request.name(_NAME)))
        return _inquired(request, found, cmqcfc.MQIACF_CHANNEL_ATTRS, (), cmqcfc.MQRCCF_CHANNEL_NOT_FOUND)

    def _names(self, request: Request) -> Reply:
        found = self._display.channels(request.name(_NAME))
        request.finish()
        return Reply([(string_list(cmqcfc.MQCACH_CHANNEL_NAMES, [str(one["CHANNEL"]).encode() for one in found], 20),)])

    def _status(self, request: Request) -> Reply:
        name, client_id = request.name(_NAME), request.text(cmqcfc.MQCACH_CLIENT_ID)
        # Saved status is of channels between queue managers.
        request.ignore(cmqcfc.MQIACH_CHANNEL_INSTANCE_TYPE)
        if client_id is None:
            wanted, always = cmqcfc.MQIACH_CHANNEL_SUMMARY_ATTRS, cmqcfc.MQIACF_CONNECTION_COUNT
            rows = list(self._display.summaries(name))
        else:
            wanted, always = cmqcfc.MQIACH_CHANNEL_INSTANCE_ATTRS, cmqcfc.MQCACH_CLIENT_ID
            rows, _ = self._display.clients(name, client_id)
        found = map(_parameters, rows)
        own = (always, cmqcfc.MQIACH_CHANNEL_STATUS)
        return _inquired(request, found, wanted, own, cmqcfc.MQRCCF_CHL_STATUS_NOT_FOUND)

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
    """Answer for telemetry channels, or as there are no channels of another type."""
    if request.integer(_TYPE) == cmqc.MQCHT_MQTT:
        return run(request)
    if otherwise is run:
        raise PCFRefused(cmqcfc.MQRCCF_CHANNEL_TYPE_ERROR, _TYPE)
    return otherwise(request)


def _inquired(request: Request, found: Iterable[Attributes], wanted: int, always: tuple[int, ...], missing: int) -> Reply:
    return inquire(request, found, wanted, (_NAME, _TYPE, *always), known=_KNOWN.__contains__, missing=missing)


def _parameters(shown: Mapping[str, Value]) -> Attributes:
    """Return what DISPLAY shows as parameters."""
    return {one.Parameter: one for keyword, value in shown.items() for one in _parameter(keyword, value)}


def _parameter(keyword: str, value: Value) -> list[PCFParameter]:
    if keyword in _TEXTS:
        number, length = _TEXTS[keyword]
        return [MQCFST(number, str(value).encode().ljust(length))]
    if keyword in _NUMBERS:
        return [MQCFIN(_NUMBERS[keyword], int(value))]
    if keyword in _WORDS:
        number, words = _WORDS[keyword]
        return [MQCFIN(number, words[str(value)])]
    protocols = tuple(_PROTOCOLS[one] for one in str(value).split(",") if one in _PROTOCOLS)
    if len(protocols) == 1:
        return [MQCFIN(cmqcfc.MQIACH_PROTOCOL, protocols[0])]
    return [MQCFIL(cmqcfc.MQIACH_PROTOCOL, protocols)] if protocols else []
