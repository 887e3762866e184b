"""MQSC commands for channels, channel authentication records and connection authentication."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from pydantic import ValidationError

from bridge.config.authentication import ChannelAuthenticationConfig
from bridge.mq.embedded.attributes import AttributeRefused, Value, defaults
from bridge.mq.embedded.channels import AUTHINFO, CHECKS, NAME, definition_of
from bridge.mq.embedded.mqsc.definitions import MANNERS, Answer, object_name, replace_and_like, settings
from bridge.mq.embedded.mqsc.display import Shown, is_named
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqsc import Command, CommandRefused, MQSCSyntaxError, Parameter, message
from bridge.mq.telemetry_channels import KIND, Definition, RunningChannels
from bridge.security.channel_authentication import KIND as CHLAUTH
from bridge.security.channel_authentication import Connecting, is_default, matches_channel
from bridge.wire import cmqcfc

CHANNEL_NAME_LENGTH = 20
_STOPPED = " It is stopped. START CHANNEL and each start of the bridge start it."
_LOOPBACK = " It listens on {address} only, because LOCLADDR is blank."


def of_server_channel(command: Command) -> Command | None:
    """Return a command for a server-connection channel as a command for an object of kind SVRCONN.

    Return None for another CHLTYPE. Raises CommandRefused or MQSCSyntaxError.
    """
    if command.value("CHLTYPE") != "SVRCONN":
        return None
    if command.verb != "DISPLAY":
        object_name(command, CHANNEL_NAME_LENGTH)
    rest = tuple(parameter for parameter in command.parameters if parameter.keyword != "CHLTYPE")
    return dataclasses.replace(command, noun="SVRCONN", parameters=rest)


class ChannelCommands:
    """The commands that change telemetry channels of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._register = queue_manager.objects.telemetry_channels

    def define(self, command: Command) -> Answer:
        """Run DEFINE CHANNEL. Raises MQSCSyntaxError or CommandRefused."""
        name = _name(command)
        replace, model = replace_and_like(command)
        parameters = _given(command, *MANNERS)
        base = defaults(KIND) if model is None else dict(self._own(model).attributes)
        self._refuse_of_file(name)
        old = self._register.defined.get(name)
        if old is not None and not replace:
            raise CommandRefused("AMQ8150E", kind="Channel", name=name)
        definition = _definition(command, name, base | parameters)
        if old is not None:
            return message("AMQ8016I", name=name), self._kept(name, definition)
        blank = not definition.attributes["LOCLADDR"] and definition.config.authentication == []
        hint = _STOPPED + (_LOOPBACK.format(address=definition.config.address) if blank else "")
        return message("AMQ8014I", name=name, hint=hint), self._kept(name, definition)

    def alter(self, command: Command) -> Answer:
        """Run ALTER CHANNEL. Raises MQSCSyntaxError or CommandRefused."""
        name = _name(command)
        parameters = _given(command)
        old = self._own(name)
        definition = _definition(command, name, dict(old.attributes) | parameters)
        answer = message("AMQ8016I", name=name)
        return answer, None if definition == old else self._kept(name, definition)

    def delete(self, command: Command) -> Answer:
        """Run DELETE CHANNEL, which fails while the channel is running. Raises MQSCSyntaxError or CommandRefused."""
        name = _name(command)
        command.check_keywords("CHLTYPE")
        if name not in self._register.defined:
            self._own(name)
        if self._state(name) != "stopped" and not self._register.is_of_file(name):
            raise CommandRefused(
                "AMQ8148E", kind="Channel", name=name, detail="it is running; hint: STOP CHANNEL first"
            )
        return message("AMQ8015I", name=name), Unit().define(KIND, name, None, lambda: self._register.forget(name))

    def start(self, command: Command) -> Answer:
        """Run START CHANNEL. Raises MQSCSyntaxError or CommandRefused."""
        name = _name(command)
        command.check_keywords("CHLTYPE")
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
            client = running.client(client_id)
            if client is None or not client.status.connected or client.status.channel != name:
                raise CommandRefused(
                    "AMQ9533W", name=name, detail=f"client {client_id!r} is not connected via this channel"
                )
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
            client = running.client(client_id)
            if client is None or client.status.channel != name:
                raise CommandRefused(
                    "AMQ9533W", name=name, detail=f"client {client_id!r} has no session via this channel"
                )
        running.purge(name, client_id)
        return message("AMQ8019I", verb="Purge", name=name), None

    def _reached(self, command: Command) -> tuple[RunningChannels, str, str | None]:
        """Return the running channels, and the channel name and client identifier of a command."""
        name = _name(command)
        command.check_keywords("CHLTYPE", "CLIENTID")
        client_id = command.value("CLIENTID")
        if not client_id and command.parameter("CLIENTID") is not None:
            raise command.wrong("CLIENTID requires a client identifier", "CLIENTID")
        self._existing(name)
        if not self._register.running.active:
            raise CommandRefused("AMQ9533W", name=name, detail="no telemetry service runs")
        return self._register.running, name, client_id

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
            detail = (
                f"the bridge's configuration file defines channel {name}; hint: change it there and `mqbridge reload`"
            )
            raise CommandRefused("AMQ8101E", detail=detail)

    def _kept(self, name: str, definition: Definition) -> Unit:
        return Unit().define(KIND, name, definition.attributes, lambda: self._register.set(name, definition))


def _name(command: Command) -> str:
    """Return the name of a command's telemetry channel. Raises CommandRefused or MQSCSyntaxError."""
    name = object_name(command, CHANNEL_NAME_LENGTH)
    if command.value("CHLTYPE") != "MQTT":
        raise command.wrong("CHLTYPE(MQTT) or CHLTYPE(SVRCONN) is required", "CHLTYPE")
    return name


def _given(command: Command, *manners: str) -> dict[str, Value]:
    """Return the attributes that DEFINE or ALTER sets. Raises CommandRefused or MQSCSyntaxError."""
    jaas = command.parameter("JAASCFG")
    if jaas is not None and (jaas.value is None or jaas.value.strip()):
        detail = (
            "JAAS is not supported; hint: configure `authentication` of the channel in the bridge's configuration file"
        )
        raise CommandRefused("AMQ8101E", detail=detail)
    return settings(KIND, command, "CHLTYPE", "JAASCFG", *manners)


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
_OF_FILE = "the bridge's configuration file defines that record; hint: change it there"


class ChannelAuthenticationCommands:
    """The CHLAUTH commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._register = queue_manager.objects.channel_authentication

    def set(self, command: Command) -> Answer:
        """Run SET CHLAUTH. Raises MQSCSyntaxError or CommandRefused."""
        if not command.name:
            detail = "CHLAUTH requires the name of a channel, or the beginning of a name with *"
            raise MQSCSyntaxError(detail, command.where, "CHLAUTH")
        action = command.choice("ACTION", _ACTIONS, "ADD")
        if command.value("TYPE") == "QMGRMAP":
            return message(
                "AMQ8877I", hint=" It has no effect: queue managers do not connect via telemetry channels."
            ), None
        command.check_keywords("ACTION", "CHCKCLNT", *_KEYS)
        hint = ""
        if command.choice("CHCKCLNT", _CHECKS):
            hint = " CHCKCLNT has no effect: queue_manager.listener determines which users need a password."
        values: dict[str, Any] = {"channel": command.name} | {
            _KEYS[parameter.keyword]: _value(command, parameter)
            for parameter in command.parameters
            if parameter.keyword in _KEYS
        }
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
        former = self._register.known(record.key)
        if former is not None and not replace:
            if not record.type.startswith("BLOCK"):
                raise CommandRefused("AMQ8883E", name=record.channel, kind=record.type)
            lists = {key: [*getattr(former, key), *getattr(record, key)] for key in ("user_list", "address_list")}
            record = record.model_copy(update={key: list(dict.fromkeys(values)) for key, values in lists.items()})
        return message("AMQ8877I", hint=hint), self._kept(record)

    def _remove(self, record: ChannelAuthenticationConfig) -> Answer:
        former = self._register.known(record.key)
        if former is None:
            raise CommandRefused("AMQ8884E", name=record.channel)
        remaining = {
            key: [entry for entry in getattr(former, key) if entry not in getattr(record, key)]
            for key in ("user_list", "address_list")
        }
        if any(remaining.values()):
            return message("AMQ8877I", hint=""), self._kept(former.model_copy(update=remaining))
        return self._dropped([former])

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
        return Unit().define(CHLAUTH, " ".join(record.key), _row(record), lambda: self._register.set(record))

    def _dropped(self, records: list[ChannelAuthenticationConfig]) -> Answer:
        unit = Unit()
        hint = ""
        for record in records:
            # Store the removal of a default record, because it is created at each start.
            row = _row(record) | {"removed": True} if is_default(record.key) else None
            unit.define(CHLAUTH, " ".join(record.key), row, partial(self._register.forget, record.key))
            if row is not None:
                hint = " Privileged users are still rejected, unless a record maps a client to one."
        return message("AMQ8877I", hint=hint), unit

    def show(self, command: Command) -> tuple[str, list[Shown]]:
        """Run DISPLAY CHLAUTH. Return the AMQ message and the records.

        MATCH(RUNCHECK) displays the record that applies to a client. Raises CommandRefused or MQSCSyntaxError.
        """
        command.check_keywords(*_KEYS, "MATCH", "ALL", "QMNAME")
        profile = command.name or "*"
        match = command.choice("MATCH", ("EXACT", "GENERIC", "ALL", "RUNCHECK"), "EXACT")
        if match == "RUNCHECK":
            records = self._run_check(command, profile)
        else:
            kind = command.value("TYPE")
            record_type = None if kind == "ALL" else kind
            every = match != "EXACT" or profile.endswith("*")
            records = [
                record
                for record in self._register.records
                if record_type in (None, record.type)
                and (
                    record.channel == profile
                    or (every and matches_channel(profile, record.channel))
                    or (match == "GENERIC" and matches_channel(record.channel, profile))
                )
            ]
        if not records:
            raise CommandRefused("AMQ8884E", name=profile)
        return message("AMQ8878I"), [_shown(record) for record in records]

    def _run_check(self, command: Command, channel: str) -> list[ChannelAuthenticationConfig]:
        """Return the record that applies to a client with these properties, or an empty list.

        The client identifier is unknown, so the effect of USECLTID(YES) is not considered.
        """
        if channel.endswith("*"):
            raise MQSCSyntaxError("MATCH(RUNCHECK) requires the name of one channel", command.where, "MATCH")
        address, user, *certificate = (
            command.value(key) or "" for key in ("ADDRESS", "CLNTUSER", "SSLPEER", "SSLCERTI")
        )
        if not address:
            raise MQSCSyntaxError("MATCH(RUNCHECK) requires the client's ADDRESS", command.where, "ADDRESS")
        client = Connecting(channel, address, user, *certificate)
        verdict = self._register.at_work.verdict(client, self._register.own_user(channel, user))
        if verdict.refusal and verdict.record is None:
            raise CommandRefused("AMQ8101E", detail=f"no record applies, and the client is rejected: {verdict.refusal}")
        return [] if verdict.record is None else [verdict.record]


def _row(record: ChannelAuthenticationConfig) -> dict[str, Any]:
    return record.model_dump(exclude_defaults=True) | {"type": record.type}


def _shown(record: ChannelAuthenticationConfig) -> dict[str, Value]:
    attributes: dict[str, Value] = {"CHLAUTH": record.channel, "TYPE": record.type, "DESCR": record.description}
    for keyword, key in _KEYS.items():
        value = getattr(record, key)
        if keyword in _LISTS:
            if value:
                attributes[keyword] = ",".join(value)
        elif keyword == "WARN":
            attributes[keyword] = "YES" if value else "NO"
        elif keyword == "USERSRC":
            if not record.type.startswith("BLOCK"):
                attributes[keyword] = value
        elif value is not None:
            attributes[keyword] = value
    return attributes


def _value(command: Command, parameter: Parameter) -> Any:
    """Convert the value of a parameter to the value in the YAML file. Raises MQSCSyntaxError."""
    if parameter.keyword in _LISTS:
        return [value for value in parameter.values or () if isinstance(value, str) and value]
    if parameter.keyword == "WARN":
        return command.choice("WARN", ("YES", "NO")) == "YES"
    if parameter.value is None:
        raise command.wrong(f"{parameter.keyword} requires one value", parameter.keyword)
    return parameter.value.strip() or None if parameter.keyword != "DESCR" else parameter.value


_TYPE = "IDPWOS"
_NO_EFFECT = " It has no effect: the listener has no authentication method (queue_manager.listener.password_file)."


class ConnectionAuthenticationCommands:
    """The AUTHINFO commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._object = queue_manager.objects.connection_authentication

    def alter(self, command: Command) -> Answer:
        """Run ALTER AUTHINFO for CHCKCLNT and DESCR. Raises MQSCSyntaxError or CommandRefused."""
        if command.name != NAME:
            raise CommandRefused("AMQ8147E", kind="Authentication information object", name=command.name)
        values = {"CHCKCLNT": self._object.check_clients, "DESCR": self._object.description}
        command.check_keywords("AUTHTYPE", *values)
        command.choice("AUTHTYPE", (_TYPE,))
        values["CHCKCLNT"] = command.choice("CHCKCLNT", CHECKS, values["CHCKCLNT"])
        if command.parameter("DESCR") is not None:
            values["DESCR"] = command.value("DESCR") or ""
        unit = Unit().define(AUTHINFO, NAME, values, lambda: self._object.restore(values))
        return message("AMQ8567I", hint="" if self._object.asks else _NO_EFFECT), unit

    def show(self, command: Command) -> tuple[str, list[Shown]]:
        """Run DISPLAY AUTHINFO. Return the AMQ message and the object. Raises CommandRefused or MQSCSyntaxError."""
        attributes: dict[str, Value] = {
            "AUTHINFO": NAME,
            "AUTHTYPE": _TYPE,
            "DESCR": self._object.description,
            "CHCKCLNT": self._object.in_force,
            "CHCKLOCL": "NONE",
            "ADOPTCTX": "YES",
        }
        command.check_keywords(*attributes, "ALL")
        if not is_named(NAME, command.name or "*"):
            raise CommandRefused("AMQ8147E", kind="Authentication information object", name=command.name)
        return message("AMQ8566I"), [attributes]
