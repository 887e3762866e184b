"""DEFINE, ALTER, DELETE, START, STOP and PURGE CHANNEL: the MQSC commands that change channels.

Source: IBM MQ documentation, "DEFINE CHANNEL", "START CHANNEL (MQTT)", "PURGE CHANNEL" and the like. Channels of the YAML
file are shown, started and stopped, and altered there only; those that commands define are kept by the queue manager.
Server-connection channels, CHLTYPE(SVRCONN), are objects as queues are (`bridge.mq.embedded.mqsc.definitions`).
"""

from __future__ import annotations

import dataclasses

import msgspec

from bridge.mq.embedded.attributes import AttributeRefused, Value, defaults, invalid_name_character
from bridge.mq.embedded.mqsc.amq import CommandRefused, message
from bridge.mq.embedded.mqsc.definitions import Answer, attribute_parameters, like, replaces, settings
from bridge.mq.embedded.mqsc.language import Command, MQSCSyntaxError
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.telemetry_channel import definition_of
from bridge.mq.embedded.unit import Unit
from bridge.mq.telemetry_channels import KIND, Definition, RunningChannels
from bridge.wire import cmqcfc

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
    rest = tuple(one for one in command.parameters if one is not kind)
    return dataclasses.replace(command, noun="SVRCONN", parameters=rest)


class ServerChannelCommands:
    """START and STOP CHANNEL of server-connection channels."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._instances = queue_manager.channel_instances
        self._channels = queue_manager.server_channels

    def start(self, command: Command) -> Answer:
        """Do START CHANNEL. Raises MQSCSyntaxError or CommandRefused."""
        name = self._existing(command)
        _known(command, ())
        if not self._instances.start(name):
            raise CommandRefused("AMQ9514E", name=name, detail="it is running already")
        return message("AMQ8018I", name=name, hint=""), None

    def stop(self, command: Command) -> Answer:
        """Do STOP CHANNEL: MODE(QUIESCE), the default, FORCE or TERMINATE. Raises MQSCSyntaxError or CommandRefused."""
        name = self._existing(command)
        _known(command, ("MODE",))
        mode = command.parameter("MODE")
        if mode is not None and mode.value not in ("QUIESCE", "FORCE", "TERMINATE"):
            raise MQSCSyntaxError("MODE is one of QUIESCE, FORCE, TERMINATE", mode.where, "MODE")
        self._instances.stop(name, force=mode is not None and mode.value != "QUIESCE")
        return message("AMQ8019I", verb="Stop", name=name), None

    def _existing(self, command: Command) -> str:
        if command.name not in self._channels:
            raise CommandRefused("AMQ8147E", kind="Channel", name=command.name, reason=cmqcfc.MQRCCF_CHANNEL_NOT_FOUND)
        return command.name


class ChannelCommands:
    """The commands that change telemetry channels of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._register = queue_manager.telemetry_channels

    def define(self, command: Command) -> Answer:
        """Do DEFINE CHANNEL. Raises MQSCSyntaxError or CommandRefused."""
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
        """Do ALTER CHANNEL. Raises MQSCSyntaxError or CommandRefused."""
        name = _name(command)
        given = _given(command)
        old = self._own(name)
        definition = _definition(command, name, dict(old.attributes) | given)
        answer = message("AMQ8016I", name=name)
        return answer, None if definition == old else self._kept(name, definition)

    def delete(self, command: Command) -> Answer:
        """Do DELETE CHANNEL; one that is running is in use. Raises MQSCSyntaxError or CommandRefused."""
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
        """Do START CHANNEL. Raises MQSCSyntaxError or CommandRefused."""
        name = _name(command)
        _known(command, ())
        self._existing(name)
        running = self._register.running
        if running is None:
            # A script that the queue manager runs before there is a telemetry service, which then starts all channels.
            return message("AMQ8018I", name=name, hint=" It starts with the telemetry service."), None
        if self._state(name) in ("running", "starting"):
            raise CommandRefused("AMQ9514E", name=name, detail="it is running already")
        running.start(name)
        return message("AMQ8018I", name=name, hint=""), None

    def stop(self, command: Command) -> Answer:
        """Do STOP CHANNEL, or disconnect one client by CLIENTID. Raises MQSCSyntaxError or CommandRefused."""
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
        """Do PURGE CHANNEL: end the sessions of connected clients, and stop it; or end the session of one by CLIENTID.

        That one may be away, if it was connected by this channel last. Raises MQSCSyntaxError or CommandRefused.
        """
        running, name, client_id = self._reached(command)
        if client_id is not None:
            found = running.client(client_id)
            if found is None or found.status.channel != name:
                raise CommandRefused("AMQ9533W", name=name, detail=f"client {client_id!r} has no session by it")
        running.purge(name, client_id)
        return message("AMQ8019I", verb="Purge", name=name), None

    def _reached(self, command: Command) -> tuple[RunningChannels, str, str | None]:
        """Return the running channels, and which one and which client a command is about."""
        name = _name(command)
        _known(command, ("CLIENTID",))
        client_id = command.parameter("CLIENTID")
        if client_id is not None and not client_id.value:
            raise MQSCSyntaxError("CLIENTID takes a client identifier", client_id.where, "CLIENTID")
        self._existing(name)
        if self._register.running is None:
            raise CommandRefused("AMQ9533W", name=name, detail="no telemetry service runs")
        return self._register.running, name, None if client_id is None else client_id.value

    def _state(self, name: str) -> str:
        running = self._register.running
        states = {} if running is None else {one.name: one.state for one in running.statuses()}
        return states.get(name, "stopped")

    def _existing(self, name: str) -> None:
        """Raise CommandRefused where there is no channel of this name."""
        if name not in self._register.defined and not self._register.is_of_file(name):
            raise CommandRefused("AMQ8147E", kind="Channel", name=name, reason=cmqcfc.MQRCCF_CHANNEL_NOT_FOUND)

    def _own(self, name: str) -> Definition:
        """Return the definition of a channel that a command has defined. Raises CommandRefused."""
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
    """Return the name of the telemetry channel to work on. Raises CommandRefused or MQSCSyntaxError."""
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
    return settings(KIND, [one for one in attribute_parameters(command) if one.keyword not in ("CHLTYPE", "JAASCFG")])


def _definition(command: Command, name: str, attributes: dict[str, Value]) -> Definition:
    try:
        return definition_of(name, attributes)
    except AttributeRefused as error:
        raise MQSCSyntaxError(str(error), command.where, "CHANNEL") from None
