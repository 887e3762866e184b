"""MQSC commands for channels, channel authentication records and connection authentication."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec
from pydantic import ValidationError

from bridge.administration.answers import ChannelStatus
from bridge.config.authentication import ChannelAuthenticationConfig
from bridge.mq.embedded.attributes import (
    ATTRIBUTES,
    SYNONYMS,
    AttributeRefused,
    Value,
    defaults,
    invalid_name_character,
)
from bridge.mq.embedded.channels import AUTHINFO, CHECKS, NAME, attributes_of, definition_of
from bridge.mq.embedded.mqsc.definitions import Answer, attribute_parameters, like, replaces, settings
from bridge.mq.embedded.mqsc.display import Filter, is_named
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqsc import Command, CommandRefused, MQSCSyntaxError, Parameter, message
from bridge.mq.telemetry_channels import KIND, ClientChannelStatus, Definition, RunningChannels
from bridge.security.channel_authentication import KIND as CHLAUTH
from bridge.security.channel_authentication import Connecting, is_default, matches_channel
from bridge.wire import cmqcfc

Shown = dict[str, Value]

#: The maximum number of clients that one command examines.
LOOKED_AT = 20_000
#: The model queue whose MAXDEPTH limits the rows of one command, as in IBM MQ.
_REPLY_QUEUE = "SYSTEM.MQSC.REPLY.QUEUE"
_PROTOCOLS = {3: "MQTTV3", 4: "MQTTV311", 5: "MQTTV5"}
_CHANNEL = frozenset(ATTRIBUTES[KIND])
_SUMMARY = frozenset(("CONNECTIONS", "STATUS"))
_DETAILS = frozenset(
    (
        "CHLSDATE", "CHLSTIME", "CLNTUSER", "CONNAME", "INDOUBTIN", "INDOUBTOUT", "KAINT", "LMSGDATE", "LMSGTIME",
        "MCAUSER", "MSGRCVD", "MSGSNT", "PENDING", "PROTOCOL", "STATUS",
    )
)  # fmt: skip


class ChannelDisplay:
    """Shows the telemetry channels of a queue manager. Call it with the queue manager's lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self._register = queue_manager.objects.telemetry_channels

    def show(self, command: Command) -> tuple[str, list[Shown]]:
        """Run DISPLAY CHANNEL. Return the AMQ message and the channels. Raises CommandRefused or MQSCSyntaxError."""
        name = _generic_name(command)
        wanted, where = _request(command, _CHANNEL | {"CHANNEL"})
        whole = "ALL" in wanted or not (wanted or where or name.endswith("*"))
        shown = [
            _only(channel, ("CHANNEL", "CHLTYPE"), wanted, where, whole)
            for channel in self.channels(name)
            if where is None or where.passes(channel)
        ]
        if not shown:
            raise CommandRefused("AMQ8147E", kind="Channel", name=name)
        return message("AMQ8414I"), shown

    def channels(self, name: str) -> Iterator[Shown]:
        """Yield the channels that match a name, which may be generic, with all attributes."""
        register = self._register
        of_file = {config.name: attributes_of(config) for config in register.of_file}
        channels = {own: one.attributes for own, one in register.defined.items()} | of_file
        for own in sorted(channels):
            if is_named(own, name):
                yield {"CHANNEL": own, "CHLTYPE": "MQTT", **channels[own]}

    def show_status(self, command: Command) -> tuple[str, list[Shown]]:
        """Run DISPLAY CHSTATUS. Return the AMQ message, and a row for each channel or client.

        Raises CommandRefused or MQSCSyntaxError.
        """
        name = _generic_name(command)
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
            shown = [summary for summary in self.summaries(name) if where is None or where.passes(summary)]
        else:
            heads = ("CHANNEL", "CHLTYPE", "CLIENTID", "STATUS")
            shown, more = self.clients(name, client_id.value or "", where)
        if not shown:
            raise CommandRefused("AMQ8420I")
        answer = message("AMQ8492W", looked_at=LOOKED_AT) if more else message("AMQ8417I")
        return answer, [_only(one, heads, wanted, where, "ALL" in wanted) for one in shown]

    def summaries(self, name: str) -> Iterator[Shown]:
        """Yield a row for each channel that matches a name, which may be generic."""
        for status in sorted(self._register.running.statuses(), key=attrgetter("name")):
            if is_named(status.name, name):
                yield _summary(status)

    def clients(self, name: str, client_id: str, where: Filter | None = None) -> tuple[list[Shown], bool]:
        """Return a row for each client that matches the names, which may be generic, and whether there are more."""
        shown: list[Shown] = []
        most = int(self._queue_manager.objects.models[_REPLY_QUEUE]["MAXDEPTH"])
        for number, one in enumerate(self._register.running.clients(lambda own: is_named(own, client_id))):
            if number == LOOKED_AT or len(shown) == most:
                return shown, True
            row = _details(one)
            if is_named(one.status.channel, name) and (where is None or where.passes(row)):
                shown.append(row)
        return shown, False


def _generic_name(command: Command) -> str:
    """Return the channel name of a DISPLAY, which may be generic. Raises MQSCSyntaxError."""
    if not command.name:
        raise MQSCSyntaxError(f"{command.noun} takes a name in parentheses", command.where, command.noun)
    kind = command.parameter("CHLTYPE")
    if kind is not None and kind.value not in (None, "MQTT", "ALL"):
        raise MQSCSyntaxError("give CHLTYPE(MQTT) or CHLTYPE(SVRCONN): there are no other channels", kind.where, "CHLTYPE")
    return command.name


def _request(command: Command, known: frozenset[str]) -> tuple[list[str], Filter | None]:
    """Return the attributes that a DISPLAY requests, and its WHERE. Raises MQSCSyntaxError."""
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
    """Return the identifying attributes of a row, and the requested ones. `whole` requests all attributes."""
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


CHANNEL_NAME_LENGTH = 20
_STOPPED = " It is stopped: START CHANNEL starts it, and so does each start of the bridge."
_LOOPBACK = " It listens on {address} alone: LOCLADDR is blank."


def of_server_channel(command: Command) -> Command | None:
    """Return a command about a server-connection channel as a command about an object of kind SVRCONN.

    None for another CHLTYPE. Raises CommandRefused or MQSCSyntaxError.
    """
    kind = command.parameter("CHLTYPE")
    if kind is None or kind.value != "SVRCONN":
        return None
    if command.verb != "DISPLAY":
        _channel_name(command)
    rest = tuple(parameter for parameter in command.parameters if parameter is not kind)
    return dataclasses.replace(command, noun="SVRCONN", parameters=rest)


class ChannelCommands:
    """The commands that change telemetry channels of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._register = queue_manager.objects.telemetry_channels

    def define(self, command: Command) -> Answer:
        """Run DEFINE CHANNEL. Raises MQSCSyntaxError or CommandRefused."""
        name = _name(command)
        replace, model = replaces(command), like(command)
        given = _given(command)
        base = defaults(KIND) if model is None else dict(self._own(model).attributes)
        self._refuse_of_file(name)
        old = self._register.defined.get(name)
        if old is not None and not replace:
            raise CommandRefused("AMQ8150E", kind="Channel", name=name)
        definition = _definition(command, name, base | given)
        if old is not None:
            return message("AMQ8016I", name=name), self._kept(name, definition)
        blank = not definition.attributes["LOCLADDR"] and definition.config.authentication == []
        hint = _STOPPED + (_LOOPBACK.format(address=definition.config.address) if blank else "")
        return message("AMQ8014I", name=name, hint=hint), self._kept(name, definition)

    def alter(self, command: Command) -> Answer:
        """Run ALTER CHANNEL. Raises MQSCSyntaxError or CommandRefused."""
        name = _name(command)
        given = _given(command)
        old = self._own(name)
        definition = _definition(command, name, dict(old.attributes) | given)
        answer = message("AMQ8016I", name=name)
        return answer, None if definition == old else self._kept(name, definition)

    def delete(self, command: Command) -> Answer:
        """Run DELETE CHANNEL, which fails while the channel is running. Raises MQSCSyntaxError or CommandRefused."""
        name = _name(command)
        _known(command, ())
        if name not in self._register.defined:
            self._own(name)
        if self._state(name) != "stopped" and not self._register.is_of_file(name):
            raise CommandRefused("AMQ8148E", kind="Channel", name=name, detail="it is running; STOP CHANNEL first")
        unit = Unit()
        unit.changes.definitions.append((KIND, name, None))
        unit.changes.effects.append(lambda: self._register.forget(name))
        return message("AMQ8015I", name=name), unit

    def start(self, command: Command) -> Answer:
        """Run START CHANNEL. Raises MQSCSyntaxError or CommandRefused."""
        name = _name(command)
        _known(command, ())
        self._existing(name)
        running = self._register.running
        if not running.active:
            # The command is in a script that runs before the telemetry service starts, which starts all channels.
            return message("AMQ8018I", name=name, hint=" It starts with the telemetry service."), None
        if self._state(name) in ("running", "starting"):
            raise CommandRefused("AMQ9514E", name=name, detail="it is running already")
        running.start(name)
        return message("AMQ8018I", name=name, hint=""), None

    def stop(self, command: Command) -> Answer:
        """Run STOP CHANNEL. With CLIENTID, disconnect one client only. Raises MQSCSyntaxError or CommandRefused."""
        running, name, client_id = self._reached(command)
        if client_id is not None:
            found = running.client(client_id)
            if found is None or not found.status.connected or found.status.channel != name:
                raise CommandRefused("AMQ9533W", name=name, detail=f"client {client_id!r} is not connected by it")
        elif self._state(name) not in ("running", "starting"):
            raise CommandRefused("AMQ9533W", name=name, detail="it is stopped already")
        running.stop(name, client_id)
        return message("AMQ8019I", verb="Stop", name=name), None

    def purge(self, command: Command) -> Answer:
        """Run PURGE CHANNEL: end the sessions of connected clients and stop the channel. With CLIENTID, end one session only.

        That client may be disconnected, if it last used this channel. Raises MQSCSyntaxError or CommandRefused.
        """
        running, name, client_id = self._reached(command)
        if client_id is not None:
            found = running.client(client_id)
            if found is None or found.status.channel != name:
                raise CommandRefused("AMQ9533W", name=name, detail=f"client {client_id!r} has no session by it")
        running.purge(name, client_id)
        return message("AMQ8019I", verb="Purge", name=name), None

    def _reached(self, command: Command) -> tuple[RunningChannels, str, str | None]:
        """Return the running channels, and the channel name and client identifier of a command."""
        name = _name(command)
        _known(command, ("CLIENTID",))
        client_id = command.parameter("CLIENTID")
        if client_id is not None and not client_id.value:
            raise MQSCSyntaxError("CLIENTID takes a client identifier", client_id.where, "CLIENTID")
        self._existing(name)
        if not self._register.running.active:
            raise CommandRefused("AMQ9533W", name=name, detail="no telemetry service runs")
        return self._register.running, name, None if client_id is None else client_id.value

    def _state(self, name: str) -> str:
        states = {status.name: status.state for status in self._register.running.statuses()}
        return states.get(name, "stopped")

    def _existing(self, name: str) -> None:
        """Raise CommandRefused if there is no channel with this name."""
        if name not in self._register.defined and not self._register.is_of_file(name):
            raise CommandRefused("AMQ8147E", kind="Channel", name=name, reason=cmqcfc.MQRCCF_CHANNEL_NOT_FOUND)

    def _own(self, name: str) -> Definition:
        """Return the definition of a channel defined by a command. Raises CommandRefused."""
        self._refuse_of_file(name)
        self._existing(name)
        return self._register.defined[name]

    def _refuse_of_file(self, name: str) -> None:
        if self._register.is_of_file(name):
            detail = f"the bridge's configuration file has channel {name}; change it there, and `mqbridge reload`"
            raise CommandRefused("AMQ8101E", detail=detail)

    def _kept(self, name: str, definition: Definition) -> Unit:
        unit = Unit()
        row = msgspec.json.encode(definition.attributes).decode()
        unit.changes.definitions.append((KIND, name, row))
        unit.changes.effects.append(lambda: self._register.set(name, definition))
        return unit


def _name(command: Command) -> str:
    """Return the name of a command's telemetry channel. Raises CommandRefused or MQSCSyntaxError."""
    name = _channel_name(command)
    kind = command.parameter("CHLTYPE")
    if kind is None or kind.value != "MQTT":
        where = command.where if kind is None else kind.where
        raise MQSCSyntaxError("give CHLTYPE(MQTT) or CHLTYPE(SVRCONN): there are no other channels", where, "CHLTYPE")
    return name


def _channel_name(command: Command) -> str:
    name = command.name
    if name is None:
        raise MQSCSyntaxError("CHANNEL takes a name in parentheses", command.where, "CHANNEL")
    if not name or len(name) > CHANNEL_NAME_LENGTH:
        raise CommandRefused("AMQ8424E", name=name, detail=f"a channel's name has 1 to {CHANNEL_NAME_LENGTH} characters")
    if wrong := invalid_name_character(name):
        raise CommandRefused("AMQ8424E", name=name, detail=f"{wrong!r} is no character of MQ object names")
    return name


def _known(command: Command, keywords: tuple[str, ...]) -> None:
    """Raise MQSCSyntaxError for a parameter that is neither CHLTYPE nor one of these."""
    for parameter in command.parameters:
        if parameter.keyword not in ("CHLTYPE", *keywords):
            detail = f"{command.verb} CHANNEL knows no {parameter.keyword} here"
            raise MQSCSyntaxError(detail, parameter.where, parameter.keyword)


def _given(command: Command) -> dict[str, Value]:
    """Return the attributes that DEFINE or ALTER sets. Raises CommandRefused or MQSCSyntaxError."""
    jaas = command.parameter("JAASCFG")
    if jaas is not None and (jaas.value is None or jaas.value.strip()):
        detail = (
            "there is no JAAS here; how the clients of a channel show who they are, by passwords, tokens or a directory, "
            "`authentication` says of a channel in the bridge's configuration file"
        )
        raise CommandRefused("AMQ8101E", detail=detail)
    return settings(
        KIND,
        [parameter for parameter in attribute_parameters(command) if parameter.keyword not in ("CHLTYPE", "JAASCFG")],
    )


def _definition(command: Command, name: str, attributes: dict[str, Value]) -> Definition:
    try:
        return definition_of(name, attributes)
    except AttributeRefused as error:
        raise MQSCSyntaxError(str(error), command.where, "CHANNEL") from None


#: The keys of the YAML file by keyword.
_KEYS = {
    "TYPE": "type",
    "ADDRESS": "address",
    "CLNTUSER": "client_user",
    "SSLPEER": "ssl_peer",
    "SSLCERTI": "ssl_cert_issuer",
    "USERSRC": "user_source",
    "MCAUSER": "mcauser",
    "USERLIST": "user_list",
    "ADDRLIST": "address_list",
    "WARN": "warn",
    "DESCR": "description",
}
_LISTS = ("USERLIST", "ADDRLIST")
_CHECKS = ("ASQMGR", "REQDADM", "REQUIRED")
_ACTIONS = ("ADD", "REPLACE", "REMOVE", "REMOVEALL")
_OF_FILE = "the bridge's configuration file has that record; change it there"
_ASKED = ("ADDRESS", "CLNTUSER", "SSLPEER", "SSLCERTI")


class ChannelAuthenticationCommands:
    """The CHLAUTH commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._register = queue_manager.objects.channel_authentication

    def set(self, command: Command) -> Answer:
        """Run SET CHLAUTH. Raises MQSCSyntaxError or CommandRefused."""
        if not command.name:
            detail = "CHLAUTH takes the name of a channel, or the beginning of one with *"
            raise MQSCSyntaxError(detail, command.where, "CHLAUTH")
        action = _choice(command.parameter("ACTION"), _ACTIONS) or "ADD"
        kind = command.parameter("TYPE")
        if kind is not None and kind.value == "QMGRMAP":
            return message("AMQ8877I", hint=" It has no effect: no queue manager connects by a telemetry channel."), None
        values: dict[str, Any] = {"channel": command.name}
        hint = ""
        for parameter in command.parameters:
            if parameter.keyword == "ACTION":
                continue
            if parameter.keyword == "CHCKCLNT":
                _choice(parameter, _CHECKS)
                hint = " CHCKCLNT has no effect: queue_manager.listener decides who needs a password."
                continue
            if parameter.keyword not in _KEYS:
                detail = f"SET CHLAUTH knows no {parameter.keyword} here"
                raise MQSCSyntaxError(detail, parameter.where, parameter.keyword)
            values[_KEYS[parameter.keyword]] = _value(parameter)
        if action == "REMOVEALL":
            return self._remove_all(command, values)
        if action == "REMOVE":
            # Only the identifying attributes are required.
            values = {key: value for key, value in values.items() if key not in ("user_source", "mcauser")}
            if not str(values.get("type")).startswith("BLOCK"):
                values["user_source"] = "CHANNEL"
        try:
            record = ChannelAuthenticationConfig.model_validate(values)
        except ValidationError as error:
            detail = "; ".join(detail["msg"].removeprefix("expected ") for detail in error.errors())
            raise MQSCSyntaxError(f"expected {detail}", command.where, "CHLAUTH") from None
        if record.key in {config.key for config in self._register.of_file}:
            raise CommandRefused("AMQ8101E", detail=_OF_FILE)
        if action == "REMOVE":
            return self._remove(record)
        return self._add(record, hint, replace=action == "REPLACE")

    def _add(self, record: ChannelAuthenticationConfig, hint: str, *, replace: bool) -> Answer:
        known = self._register.known(record.key)
        if known is not None and not replace:
            if not record.type.startswith("BLOCK"):
                raise CommandRefused("AMQ8883E", name=record.channel, kind=record.type)
            lists = {key: [*getattr(known, key), *getattr(record, key)] for key in ("user_list", "address_list")}
            record = record.model_copy(update={key: list(dict.fromkeys(values)) for key, values in lists.items()})
        return message("AMQ8877I", hint=hint), self._kept(record)

    def _remove(self, record: ChannelAuthenticationConfig) -> Answer:
        known = self._register.known(record.key)
        if known is None:
            raise CommandRefused("AMQ8884E", name=record.channel)
        left = {
            key: [one for one in getattr(known, key) if one not in getattr(record, key)]
            for key in ("user_list", "address_list")
        }
        if any(left.values()):
            return message("AMQ8877I", hint=""), self._kept(known.model_copy(update=left))
        return self._dropped([known])

    def _remove_all(self, command: Command, values: dict[str, Any]) -> Answer:
        records = [
            record
            for record in self._register.records
            if (record.channel, record.type) == (command.name, values.get("type"))
        ]
        if not records:
            raise CommandRefused("AMQ8884E", name=command.name)
        if {record.key for record in records} & {config.key for config in self._register.of_file}:
            raise CommandRefused("AMQ8101E", detail=_OF_FILE)
        return self._dropped(records)

    def _kept(self, record: ChannelAuthenticationConfig) -> Unit:
        unit = Unit()
        row = _row(record)
        unit.changes.definitions.append((CHLAUTH, _record_name(record), row))
        unit.changes.effects.append(lambda: self._register.set(record))
        return unit

    def _dropped(self, records: list[ChannelAuthenticationConfig]) -> Answer:
        unit = Unit()
        hint = ""
        for record in records:
            # Store the removal of a default record, because it is created at each start.
            row = _row(record, removed=True) if is_default(record.key) else None
            unit.changes.definitions.append((CHLAUTH, _record_name(record), row))
            unit.changes.effects.append(partial(self._register.forget, record.key))
            if row is not None:
                hint = " Privileged users are refused all the same, unless a record maps a client to one."
        return message("AMQ8877I", hint=hint), unit

    def show(self, command: Command) -> tuple[str, list[dict[str, Value]]]:
        """Run DISPLAY CHLAUTH. Return the AMQ message and the records.

        MATCH(RUNCHECK) displays the record that applies to a client. Raises CommandRefused or MQSCSyntaxError.
        """
        for parameter in command.parameters:
            if parameter.keyword not in (*_KEYS, "MATCH", "ALL", "QMNAME"):
                detail = f"DISPLAY CHLAUTH knows no {parameter.keyword}"
                raise MQSCSyntaxError(detail, parameter.where, parameter.keyword)
        profile = command.name or "*"
        match = _choice(command.parameter("MATCH"), ("EXACT", "GENERIC", "ALL", "RUNCHECK")) or "EXACT"
        if match == "RUNCHECK":
            found = self._run_check(command, profile)
        else:
            kind = command.parameter("TYPE")
            wanted = None if kind is None or kind.value in (None, "ALL") else kind.value
            every = match != "EXACT" or profile.endswith("*")
            found = [
                record
                for record in self._register.records
                if wanted in (None, record.type)
                and (record.channel == profile or (every and matches_channel(profile, record.channel))
                     or (match == "GENERIC" and matches_channel(record.channel, profile)))
            ]  # fmt: skip
        if not found:
            raise CommandRefused("AMQ8884E", name=profile)
        return message("AMQ8878I"), [_shown(one) for one in found]

    def _run_check(self, command: Command, channel: str) -> list[ChannelAuthenticationConfig]:
        """Return the record that applies to a client with these properties, or an empty list.

        The client identifier is unknown, so the effect of USECLTID(YES) is not considered.
        """
        if channel.endswith("*"):
            raise MQSCSyntaxError("MATCH(RUNCHECK) takes the name of one channel", command.where, "MATCH")
        said = {key: one.value or "" for key in _ASKED if (one := command.parameter(key)) is not None}
        if not said.get("ADDRESS"):
            raise MQSCSyntaxError("MATCH(RUNCHECK) takes the client's ADDRESS", command.where, "ADDRESS")
        user = said.get("CLNTUSER", "")
        client = Connecting(channel, said["ADDRESS"], user, said.get("SSLPEER", ""), said.get("SSLCERTI", ""))
        verdict = self._register.at_work.verdict(client, self._register.own_user(channel, user))
        if verdict.refusal and verdict.record is None:
            raise CommandRefused("AMQ8101E", detail=f"no record applies, and the client is rejected: {verdict.refusal}")
        return [] if verdict.record is None else [verdict.record]


def _record_name(record: ChannelAuthenticationConfig) -> str:
    return " ".join(record.key)


def _row(record: ChannelAuthenticationConfig, **more: Any) -> str:
    return msgspec.json.encode(record.model_dump(exclude_defaults=True) | {"type": record.type} | more).decode()


def _shown(record: ChannelAuthenticationConfig) -> dict[str, Value]:
    shown: dict[str, Value] = {"CHLAUTH": record.channel, "TYPE": record.type, "DESCR": record.description}
    for keyword, key in _KEYS.items():
        value = getattr(record, key)
        if keyword in _LISTS:
            if value:
                shown[keyword] = ",".join(value)
        elif keyword == "WARN":
            shown[keyword] = "YES" if value else "NO"
        elif keyword == "USERSRC":
            if not record.type.startswith("BLOCK"):
                shown[keyword] = value
        elif value is not None:
            shown[keyword] = value
    return shown


def _value(parameter: Parameter) -> Any:
    """Convert the value of a parameter to that in the YAML file. Raises MQSCSyntaxError."""
    values = [value for value in parameter.values or () if isinstance(value, str)]
    if parameter.keyword in _LISTS:
        return [value for value in values if value]
    if parameter.keyword == "WARN":
        return _choice(parameter, ("YES", "NO")) == "YES"
    if len(values) != 1 or len(parameter.values or ()) != 1:
        raise MQSCSyntaxError(f"{parameter.keyword} takes one value", parameter.where, parameter.keyword)
    return values[0].strip() or None if parameter.keyword != "DESCR" else values[0]


def _choice(parameter: Parameter | None, known: tuple[str, ...]) -> str | None:
    if parameter is None:
        return None
    if parameter.value not in known:
        raise MQSCSyntaxError(f"{parameter.keyword} is one of {', '.join(known)}", parameter.where, parameter.keyword)
    return parameter.value


_TYPE = "IDPWOS"
_NO_EFFECT = " It has no effect: the listener asks nobody who it is (queue_manager.listener.password_file)."


class ConnectionAuthenticationCommands:
    """The AUTHINFO commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._object = queue_manager.objects.connection_authentication

    def alter(self, command: Command) -> Answer:
        """Run ALTER AUTHINFO for CHCKCLNT and DESCR. Raises MQSCSyntaxError or CommandRefused."""
        if command.name != NAME:
            raise CommandRefused("AMQ8147E", kind="Authentication information object", name=command.name)
        values = {"CHCKCLNT": self._object.check_clients, "DESCR": self._object.description}
        for parameter in command.parameters:
            keyword, value = parameter.keyword, parameter.value or ""
            known = {"CHCKCLNT": CHECKS, "AUTHTYPE": (_TYPE,), "DESCR": (value,)}.get(keyword)
            if known is None:
                raise MQSCSyntaxError(f"ALTER AUTHINFO knows no {keyword} here", parameter.where, keyword)
            if value not in known:
                raise MQSCSyntaxError(f"{keyword} is one of {', '.join(known)}", parameter.where, keyword)
            if keyword in values:
                values[keyword] = value
        unit = Unit()
        unit.changes.definitions.append((AUTHINFO, NAME, msgspec.json.encode(values).decode()))
        unit.changes.effects.append(lambda: self._object.restore(values))
        return message("AMQ8567I", hint="" if self._object.asks else _NO_EFFECT), unit

    def show(self, command: Command) -> tuple[str, list[dict[str, Value]]]:
        """Run DISPLAY AUTHINFO. Return the AMQ message and the object.

        Raises CommandRefused or MQSCSyntaxError.
        """
        shown: dict[str, Value] = {
            "AUTHINFO": NAME,
            "AUTHTYPE": _TYPE,
            "DESCR": self._object.description,
            "CHCKCLNT": self._object.in_force,
            "CHCKLOCL": "NONE",
            "ADOPTCTX": "YES",
        }
        for parameter in command.parameters:
            if parameter.keyword not in (*shown, "ALL"):
                raise MQSCSyntaxError(f"DISPLAY AUTHINFO knows no {parameter.keyword}", parameter.where, parameter.keyword)
        if not is_named(NAME, command.name or "*"):
            raise CommandRefused("AMQ8147E", kind="Authentication information object", name=command.name)
        return message("AMQ8566I"), [shown]
