"""DISPLAY CHANNEL and DISPLAY CHSTATUS: telemetry channels and their clients, as MQSC shows them.

Source: IBM MQ documentation, "DISPLAY CHANNEL (MQTT)", "DISPLAY CHSTATUS (MQTT)". Without CLIENTID, DISPLAY CHSTATUS shows
a row for each channel, with CLIENTID one for each client. A client that is away (STATUS(DISCONNECTED)) is shown under the
channel by which it was connected last.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bridge.administration.channels import ChannelStatus
from bridge.mq.embedded.attributes import ATTRIBUTES, SYNONYMS, Value
from bridge.mq.embedded.mqsc.amq import CommandRefused, message
from bridge.mq.embedded.mqsc.filter import Filter, is_named
from bridge.mq.embedded.mqsc.language import Command, MQSCSyntaxError
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.telemetry_channel import attributes_of
from bridge.mq.telemetry_channels import KIND, ClientChannelStatus

Shown = dict[str, Value]

#: Clients that one command looks at.
LOOKED_AT = 20_000
#: The model queue whose MAXDEPTH says how many rows one command shows, as IBM MQ has it.
_REPLY_QUEUE = "SYSTEM.MQSC.REPLY.QUEUE"
_PROTOCOLS = {3: "MQTTV3", 4: "MQTTV311", 5: "MQTTV5"}
_CHANNEL = frozenset(ATTRIBUTES[KIND])
_SUMMARY = frozenset(("CONNECTIONS", "STATUS"))
_DETAILS = frozenset(
    (
        "CHLSDATE",
        "CHLSTIME",
        "CLNTUSER",
        "CONNAME",
        "INDOUBTIN",
        "INDOUBTOUT",
        "KAINT",
        "LMSGDATE",
        "LMSGTIME",
        "MCAUSER",
        "MSGRCVD",
        "MSGSNT",
        "PENDING",
        "PROTOCOL",
        "STATUS",
    )
)


class ChannelDisplay:
    """Shows the telemetry channels of a queue manager. Call it with the queue manager's lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self._register = queue_manager.telemetry_channels

    def show(self, command: Command) -> tuple[str, list[Shown]]:
        """Do DISPLAY CHANNEL: return the AMQ message, and the channels. Raises CommandRefused or MQSCSyntaxError."""
        name = _name(command)
        wanted, where = _request(command, _CHANNEL | {"CHANNEL"})
        whole = "ALL" in wanted or not (wanted or where or name.endswith("*"))
        shown = [
            _only(one, ("CHANNEL", "CHLTYPE"), wanted, where, whole)
            for one in self.channels(name)
            if where is None or where.passes(one)
        ]
        if not shown:
            raise CommandRefused("AMQ8147E", kind="Channel", name=name)
        return message("AMQ8414I"), shown

    def channels(self, name: str) -> Iterator[Shown]:
        """Yield the channels that a name, perhaps a generic one, names, with all their attributes."""
        register = self._register
        of_file = {one.name: attributes_of(one) for one in register.of_file}
        channels = {own: one.attributes for own, one in register.defined.items()} | of_file
        for own in sorted(channels):
            if is_named(own, name):
                yield {"CHANNEL": own, "CHLTYPE": "MQTT", **channels[own]}

    def show_status(self, command: Command) -> tuple[str, list[Shown]]:
        """Do DISPLAY CHSTATUS: return the AMQ message, and a row for each channel or client.

        Raises CommandRefused or MQSCSyntaxError.
        """
        name = _name(command)
        client_id = command.parameter("CLIENTID")
        if client_id is not None and not client_id.value:
            raise MQSCSyntaxError("CLIENTID takes a client identifier, or the beginning of one", client_id.where, "CLIENTID")
        if client_id is not None and command.parameter("SUMMARY") is not None:
            raise MQSCSyntaxError("CLIENTID and SUMMARY exclude each other", client_id.where, "CLIENTID")
        own = {"CHANNEL"} if client_id is None else {"CHANNEL", "CLIENTID"}
        wanted, where = _request(command, (_SUMMARY if client_id is None else _DETAILS) | own)
        heads: tuple[str, ...] = ("CHANNEL", "CHLTYPE", "CONNECTIONS", "STATUS")
        more = False
        if client_id is None:
            shown = [one for one in self.summaries(name) if where is None or where.passes(one)]
        else:
            heads = ("CHANNEL", "CHLTYPE", "CLIENTID", "STATUS")
            shown, more = self.clients(name, client_id.value or "", where)
        if not shown:
            raise CommandRefused("AMQ8420I")
        answer = message("AMQ8492W", looked_at=LOOKED_AT) if more else message("AMQ8417I")
        return answer, [_only(one, heads, wanted, where, "ALL" in wanted) for one in shown]

    def summaries(self, name: str) -> Iterator[Shown]:
        """Yield a row for each channel that a name, perhaps a generic one, names."""
        running = self._register.running
        statuses = [] if running is None else running.statuses()
        for one in sorted(statuses, key=lambda status: status.name):
            if is_named(one.name, name):
                yield _summary(one)

    def clients(self, name: str, client_id: str, where: Filter | None = None) -> tuple[list[Shown], bool]:
        """Return a row for each client that names, perhaps generic ones, name, and whether there are more of them."""
        running = self._register.running
        shown: list[Shown] = []
        if running is None:
            return shown, False
        most = int(self._queue_manager.models[_REPLY_QUEUE]["MAXDEPTH"])
        for number, one in enumerate(running.clients(lambda own: is_named(own, client_id))):
            if number == LOOKED_AT or len(shown) == most:
                return shown, True
            row = _details(one)
            if is_named(one.status.channel, name) and (where is None or where.passes(row)):
                shown.append(row)
        return shown, False


def _name(command: Command) -> str:
    """Return the name of a DISPLAY, which may be generic. Raises MQSCSyntaxError."""
    if not command.name:
        raise MQSCSyntaxError(f"{command.noun} takes a name in parentheses", command.where, command.noun)
    kind = command.parameter("CHLTYPE")
    if kind is not None and kind.value not in (None, "MQTT", "ALL"):
        raise MQSCSyntaxError("give CHLTYPE(MQTT) or CHLTYPE(SVRCONN): there are no other channels", kind.where, "CHLTYPE")
    return command.name


def _request(command: Command, known: frozenset[str]) -> tuple[list[str], Filter | None]:
    """Return the attributes that a DISPLAY asks for, and its WHERE. Raises MQSCSyntaxError."""
    wanted: list[str] = []
    where: Filter | None = None
    for parameter in command.parameters:
        keyword = SYNONYMS.get(parameter.keyword, parameter.keyword)
        if keyword == "WHERE":
            where = Filter.read(parameter, known)
        elif keyword in ("CHLTYPE", "SUMMARY") or (keyword == "CLIENTID" and command.noun == "CHSTATUS"):
            continue
        elif parameter.values is not None:
            raise MQSCSyntaxError(f"{keyword} takes no value in DISPLAY", parameter.where, keyword)
        elif keyword == "ALL" or keyword in known:
            wanted.append(keyword)
        else:
            detail = f"{keyword} is no attribute that DISPLAY {command.noun} shows"
            raise MQSCSyntaxError(detail, parameter.where, keyword)
    return wanted, where


def _only(shown: Shown, heads: tuple[str, ...], wanted: list[str], where: Filter | None, whole: bool) -> Shown:
    """Return what identifies a row, and of the rest what was asked for; with `whole`, all of it."""
    asked = sorted(shown) if whole else [*wanted, *([] if where is None else [where.keyword])]
    return {keyword: shown[keyword] for keyword in dict.fromkeys((*heads, *asked)) if keyword in shown}


def _summary(status: ChannelStatus) -> Shown:
    return {
        "CHANNEL": status.name,
        "CHLTYPE": "MQTT",
        "CONNECTIONS": status.clients,
        "STATUS": status.state.upper(),
    }


def _details(client: ClientChannelStatus) -> Shown:
    status = client.status
    return {
        "CHANNEL": status.channel,
        "CHLTYPE": "MQTT",
        "CLIENTID": status.client_id,
        "STATUS": "RUNNING" if status.connected else "DISCONNECTED",
        "CHLSDATE": _date(status.since),
        "CHLSTIME": _clock(status.since),
        "CLNTUSER": client.user_name,
        "CONNAME": status.address,
        "INDOUBTIN": client.unreleased,
        "INDOUBTOUT": status.in_flight,
        "KAINT": client.keep_alive,
        "LMSGDATE": _date(client.last_message_at),
        "LMSGTIME": _clock(client.last_message_at),
        "MCAUSER": status.user,
        "MSGRCVD": client.messages_received,
        "MSGSNT": client.messages_sent,
        "PENDING": status.waiting,
        "PROTOCOL": _PROTOCOLS.get(status.protocol_level, ""),
    }


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds)) if seconds else ""


def _clock(seconds: float) -> str:
    return time.strftime("%H.%M.%S", time.localtime(seconds)) if seconds else ""
