"""MQSC commands and scripts on the embedded queue manager, including authority records (SET AUTHREC).

Source: IBM MQ documentation, "MQSC commands reference". Commands that only IBM MQ can execute are rejected.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

from bridge.mq import mqsc
from bridge.mq.embedded.attributes import ATTRIBUTES, Value, without_effect
from bridge.mq.embedded.authority import (
    COLLECTIVE,
    ENTITY_TYPES,
    NUMBERS,
    OBJECT_TYPES,
    WORDS,
    AuthorityRecords,
    Identity,
    is_about,
)
from bridge.mq.embedded.mqsc.channels import (
    ChannelAuthenticationCommands,
    ChannelCommands,
    ConnectionAuthenticationCommands,
    of_server_channel,
)
from bridge.mq.embedded.mqsc.definitions import QUEUE_KINDS, Answer, Definitions, Subscriptions
from bridge.mq.embedded.mqsc.display import NOUNS, Shown, connection_name, show
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import CommandResponse, MQError
from bridge.mq.mqsc import FLAGS, Command, CommandRefused, MQSCSyntaxError, Parameter, message
from bridge.mqtt.topics import is_wildcard
from bridge.security.privileged import groups_of
from bridge.shipped import shipped_file
from bridge.wire import cmqc

_OBJECT_WORDS = {number: word for word, number in OBJECT_TYPES.items()}
_ENTITY_WORDS = {number: word for word, number in ENTITY_TYPES.items()}
_WHOSE = ("PROFILE", "OBJTYPE", "SERVCOMP", *ENTITY_TYPES)
_SHOWN = ("PROFILE", "ENTITY", "ENTTYPE", "OBJTYPE", "AUTHLIST")


class AuthorityRecordCommands:
    """The AUTHREC commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self._records: AuthorityRecords = queue_manager.objects.authority_records

    def identities(self, command: Command) -> list[Identity]:
        """Return the identities of the records of a SET or DELETE. Raises MQSCSyntaxError."""
        if command.parameter("OBJTYPE") is None:
            raise command.wrong("OBJTYPE must be the type of the profile's objects", "OBJTYPE")
        object_type = OBJECT_TYPES[command.choice("OBJTYPE", OBJECT_TYPES)]
        name = self._queue_manager.name if object_type == cmqc.MQOT_Q_MGR else command.value("PROFILE")
        if not name:
            raise command.wrong("PROFILE requires one name, of an object or generic", "PROFILE")
        identities = [
            Identity(object_type, name, number, entity)
            for word, number in ENTITY_TYPES.items()
            for entity in _words(command, word)
        ]
        if not identities:
            raise MQSCSyntaxError("PRINCIPAL or GROUP is required", command.where, "AUTHREC")
        return identities

    def set(self, command: Command) -> Answer:
        """Run SET AUTHREC."""
        command.check_keywords(*_WHOSE, "AUTHADD", "AUTHRMV")
        if command.parameter("AUTHADD") is None and command.parameter("AUTHRMV") is None:
            raise MQSCSyntaxError("AUTHADD or AUTHRMV is required", command.where, "AUTHREC")
        granted, revoked = _authorities(command, "AUTHADD"), _authorities(command, "AUTHRMV")
        unit = Unit()
        for identity in self.identities(command):
            self._records.altered(unit, identity, granted, revoked)
        return message("AMQ8862I", hint=self._hint), unit

    @property
    def _hint(self) -> str:
        if self._queue_manager.authorization is not None:
            return ""
        return " It has no effect with queue_manager.authorities: ignored."

    def delete(self, command: Command) -> Answer:
        """Run DELETE AUTHREC."""
        command.check_keywords(*_WHOSE)
        unit = Unit()
        for identity in self.identities(command):
            if identity not in self._records.granted:
                raise CommandRefused("AMQ8871E", name=identity.entity, profile=identity.profile)
            self._records.remove(unit, identity)
        return message("AMQ8863I"), unit

    def show(self, command: Command) -> tuple[str, list[Shown]]:
        """Run DISPLAY AUTHREC. Return the AMQ message and the records. Raises CommandRefused or MQSCSyntaxError."""
        command.check_keywords(*_WHOSE, "MATCH", "ALL", *_SHOWN)
        is_selected = self._wanted(command)
        keywords = [parameter.keyword for parameter in command.parameters if parameter.values is None]
        whole = not keywords or "ALL" in keywords
        rows = [
            {keyword: value for keyword, value in _shown(identity, granted).items() if whole or keyword in keywords}
            for identity, granted in sorted(self._records.granted.items())
            if is_selected(identity)
        ]
        if not rows:
            raise CommandRefused("AMQ8147E", kind="Authority record", name=command.value("PROFILE") or "*")
        return message("AMQ8864I"), rows

    def _wanted(self, command: Command) -> Callable[[Identity], bool]:
        """Return a predicate for the records that a DISPLAY requests.

        MATCH(MEMBERSHIP) adds those of the principal's groups.
        """
        profile, kind = command.value("PROFILE"), command.parameter("OBJTYPE")
        object_type = (
            OBJECT_TYPES[command.choice("OBJTYPE", OBJECT_TYPES)] if kind is not None and kind.values else None
        )
        if object_type == cmqc.MQOT_Q_MGR:
            profile = None
        match = command.choice("MATCH", ("PROFILE", "EXACT", "MEMBERSHIP"))
        entity_keywords = [word for word in ENTITY_TYPES if command.parameter(word) is not None]
        if len(entity_keywords) > 1:
            raise command.wrong("PRINCIPAL and GROUP exclude each other", entity_keywords[1])
        entities = {(ENTITY_TYPES[word], name) for word in entity_keywords for name in _words(command, word)}
        if match == "MEMBERSHIP":
            if entity_keywords != ["PRINCIPAL"]:
                raise MQSCSyntaxError("MATCH(MEMBERSHIP) requires PRINCIPAL", command.where, "MATCH")
            entities |= {(ENTITY_TYPES["GROUP"], group) for _, name in entities.copy() for group in groups_of(name)}

        def wanted(identity: Identity) -> bool:
            return (
                object_type in (None, identity.object_type)
                and (
                    not profile
                    or (identity.profile == profile if match == "EXACT" else is_about(identity.profile, profile))
                )
                and (not entities or (identity.entity_type, identity.entity) in entities)
            )

        return wanted


def _shown(identity: Identity, granted: frozenset[int]) -> dict[str, Value]:
    return {
        "PROFILE": identity.profile,
        "ENTITY": identity.entity,
        "ENTTYPE": _ENTITY_WORDS[identity.entity_type],
        "OBJTYPE": _OBJECT_WORDS[identity.object_type],
        "AUTHLIST": ",".join(sorted(NUMBERS[authority] for authority in granted)) or "NONE",
    }


def _words(command: Command, keyword: str) -> list[str]:
    """Return the values of a list parameter, which may be missing. Raises MQSCSyntaxError if the list is empty."""
    parameter = command.parameter(keyword)
    if parameter is None:
        return []
    words = [value for value in parameter.values or () if isinstance(value, str) and value]
    if not words or len(words) != len(parameter.values or ()):
        raise command.wrong(f"{keyword} requires names separated by commas", keyword)
    return words


def _authorities(command: Command, keyword: str) -> frozenset[int]:
    """Return the authorities in AUTHADD or AUTHRMV, with collective keywords expanded. Raises MQSCSyntaxError."""
    authorities: frozenset[int] = frozenset()
    for word in _words(command, keyword):
        if word in COLLECTIVE:
            authorities |= COLLECTIVE[word]
        elif word in WORDS:
            authorities |= {WORDS[word]}
        else:
            raise command.wrong(
                f"{word} is not an authority, expected one of {', '.join((*COLLECTIVE, *WORDS))}", keyword
            )
    return authorities


class Commands:
    """Reads and runs MQSC commands for one queue manager."""

    #: More commands, by verb and noun. The tests' stand-in for IBM MQ adds those that control server-connection channels.
    ADDED: ClassVar[dict[tuple[str, str], Callable[[QueueManager, Command], Answer]]] = {}

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        definitions = Definitions(queue_manager)
        subscriptions = Subscriptions(queue_manager)
        authority_records = AuthorityRecordCommands(queue_manager)
        channel_authentication = ChannelAuthenticationCommands(queue_manager)
        channels = ChannelCommands(queue_manager)
        connection_authentication = ConnectionAuthenticationCommands(queue_manager)
        self._shows: dict[str, Callable[[Command], tuple[str, list[Shown]]]] = {
            **dict.fromkeys(NOUNS, partial(show, queue_manager)),
            "AUTHINFO": connection_authentication.show,
            "AUTHREC": authority_records.show,
            "CHLAUTH": channel_authentication.show,
        }
        self._runs: dict[tuple[str, str], Callable[[Command], Answer]] = {
            ("ALTER", "AUTHINFO"): connection_authentication.alter,
            ("ALTER", "QMGR"): definitions.alter_queue_manager,
            ("CLEAR", "QLOCAL"): definitions.clear,
            ("CLEAR", "TOPICSTR"): self._clear_topic_string,
            ("MOVE", "QLOCAL"): definitions.move,
            ("PING", "QMGR"): self._ping,
            ("REFRESH", "SECURITY"): self._refresh_security,
            ("SET", "AUTHREC"): authority_records.set,
            ("DELETE", "AUTHREC"): authority_records.delete,
            ("SET", "CHLAUTH"): channel_authentication.set,
            ("START", "CHANNEL"): channels.start,
            ("STOP", "CHANNEL"): channels.stop,
            ("PURGE", "CHANNEL"): channels.purge,
            ("STOP", "CONN"): self._stop_connection,
            **{key: partial(run, queue_manager) for key, run in self.ADDED.items()},
        }
        kinds: dict[str, Definitions | Subscriptions | ChannelCommands] = {
            **dict.fromkeys((*QUEUE_KINDS, "NAMELIST", "SVRCONN", "TOPIC"), definitions),
            "SUB": subscriptions,
            "CHANNEL": channels,
        }
        for noun, kind in kinds.items():
            self._runs |= {("DEFINE", noun): kind.define, ("ALTER", noun): kind.alter, ("DELETE", noun): kind.delete}

    def known(self) -> Iterator[tuple[str, str]]:
        """Yield verb and noun of each supported command."""
        displays = [("DISPLAY", noun) for noun in self._shows]
        # DEFINE CHANNEL(…) CHLTYPE(SVRCONN) has the noun CHANNEL.
        yield from (command for command in (*self._runs, *displays) if command[1] != "SVRCONN")

    def read(self, text: str) -> list[Command]:
        """Return the commands of a script. Running a command with a syntax error reports the error."""
        return mqsc.read(text)

    def run(self, command: Command) -> tuple[CommandResponse, Unit | None]:
        """Run one command, with the queue manager's lock held.

        The changes take effect, in memory and on disk, when the returned unit ends. The caller submits it to the recovery
        log. A rejected command changes nothing.
        """
        response = CommandResponse(command=command.text, message="", ok=True, line=command.line)
        command, response.ignored = _with_effect(command)
        unit = None
        try:
            if command.problem is not None:
                raise command.problem
            if command.noun == "CHANNEL":
                command = self._channel_kind(command)
            if command.verb == "DISPLAY" and command.noun in self._shows:
                response.message, response.objects = self._shows[command.noun](command)
            else:
                response.message, unit = self.execute(command)
            if response.ignored:
                response.message += f" Ignored, because it has no effect here: {', '.join(response.ignored)}."
        except MQSCSyntaxError as error:
            response.ok = False
            near = f", near {error.near!r}" if error.near else ""
            response.message = message(
                "AMQ8405I", line=error.where.line, column=error.where.column, near=near, detail=error.detail
            )
        except CommandRefused as error:
            response.ok = False
            response.message = str(error)
        except MQError as error:
            response.ok = False
            response.message = message("AMQ8101E", detail=error)
        return response, unit

    def execute(self, command: Command) -> Answer:
        """Run one command other than DISPLAY. Raises MQSCSyntaxError, CommandRefused or MQError."""
        if command.noun == "CHANNEL":
            command = self._channel_kind(command)
        run = self._runs.get((command.verb, command.noun))
        if run is None:
            noun = "CHANNEL for server-connection channels" if command.noun == "SVRCONN" else command.noun
            detail = f"the embedded queue manager has no command {command.verb} {noun}"
            raise MQSCSyntaxError(detail, command.where, command.noun)
        return run(command)

    def _channel_kind(self, command: Command) -> Command:
        """Change the noun of a channel command to SVRCONN if it is for a server-connection channel.

        Without CHLTYPE, DISPLAY, START and STOP apply to a server-connection channel if no telemetry channel has the name.
        """
        if command.verb in ("DISPLAY", "START", "STOP") and command.parameter("CHLTYPE") is None:
            objects = self._queue_manager.objects
            telemetry = {channel.name for channel in objects.telemetry_channels.channels}
            server = command.name in objects.server_channels and command.name not in telemetry
            return dataclasses.replace(command, noun="SVRCONN") if server else command
        return of_server_channel(command) or command

    def _ping(self, command: Command) -> Answer:
        return message("AMQ8415I", name=self._queue_manager.name), None

    def _stop_connection(self, command: Command) -> Answer:
        """Run STOP CONN, which closes the connection of an application and backs out its unit of work."""
        if not command.name or command.parameters:
            where = command.parameters[0] if command.parameters else command
            raise MQSCSyntaxError("STOP CONN requires a connection identifier in parentheses", where.where, "CONN")
        for application in self._queue_manager.applications:
            if connection_name(application) == command.name:
                if application.stop is None:
                    detail = "the bridge uses it"
                    raise CommandRefused("AMQ8148E", kind="Connection", name=command.name, detail=detail)
                application.stop()
                return message("AMQ8457I", name=command.name), None
        raise CommandRefused("AMQ8147E", kind="Connection", name=command.name)

    def _refresh_security(self, command: Command) -> Answer:
        """Run REFRESH SECURITY, which discards cached groups. Authority records take effect without it."""
        if self._queue_manager.authorization is not None:
            self._queue_manager.authorization.refresh()
        return message("AMQ8560I"), None

    def _clear_topic_string(self, command: Command) -> Answer:
        """Run CLEAR TOPICSTR. A missing retained publication is not an error (IBM MQ documentation, "CLEAR TOPICSTR")."""
        topic = command.name
        if not topic:
            raise MQSCSyntaxError("TOPICSTR requires a topic string in parentheses", command.where, "TOPICSTR")
        if command.value("CLRTYPE") != "RETAINED":
            raise command.wrong("CLEAR TOPICSTR requires CLRTYPE(RETAINED)", "CLRTYPE")
        command.check_keywords("CLRTYPE", "SCOPE")
        command.choice("SCOPE", ("LOCAL",))
        queue_manager = self._queue_manager
        answer = message("AMQ8022I", what=f"Retained publication of {topic!r}")
        topic_names = [name for name in queue_manager.retained.matching(topic) if name is not None]
        if not topic_names:
            return answer, None
        unit = Unit()
        unit.changes.latest += [(queue_manager.retained, topic_name, None) for topic_name in topic_names]
        subject = f"Retained publications of {len(topic_names)} topic strings" if is_wildcard(topic) else None
        return message("AMQ8022I", what=subject) if subject else answer, unit


def _with_effect(command: Command) -> tuple[Command, list[str]]:
    """Return a command without the attributes that have no effect here, and these attributes."""
    kinds = ("QLOCAL", "QALIAS", "QREMOTE") if command.noun == "QUEUE" else (command.noun,)
    parameters: list[Parameter] = []
    ignored: list[Parameter] = []
    for parameter in command.parameters:
        keyword = FLAGS.get(parameter.keyword, (parameter.keyword,))[0]
        has_none = kinds[0] in ATTRIBUTES and all(without_effect(kind, keyword) for kind in kinds)
        (ignored if has_none else parameters).append(parameter)
    return dataclasses.replace(command, parameters=tuple(parameters)), [parameter.keyword for parameter in ignored]


_NAME = "deploy/mq/bridge.mqsc"
_ALREADY_EXISTS = "AMQ8150E"


class ScriptFailed(Exception):
    """A command of a script failed. The message contains the script, the line and the AMQ message."""


def bridge_script() -> str:
    """Return the MQSC script that defines the objects of the bridge."""
    return shipped_file(_NAME).read_text(encoding="utf-8")


def prepare(queue_manager: QueueManager) -> None:
    """Define missing objects that the bridge needs. Raises ScriptFailed.

    Existing queue manager attributes and authority records are not changed, so a restart keeps an administrator's changes.
    Call this function before the recovery log dispatches to an event loop.
    """
    commands = [
        _where_blank(queue_manager, command)
        for command in Commands(queue_manager).read(bridge_script())
        if not _is_on_record(queue_manager, command)
    ]
    _run(queue_manager, commands, "bridge.mqsc")


def run_script(queue_manager: QueueManager, text: str, source: str) -> list[CommandResponse]:
    """Run a script. Existing objects are not an error. Raises ScriptFailed at the first command that fails."""
    return _run(queue_manager, Commands(queue_manager).read(text), source)


def _run(queue_manager: QueueManager, commands: list[Command], source: str) -> list[CommandResponse]:
    runner = Commands(queue_manager)
    responses = []
    for command in commands:
        with queue_manager.lock:
            response, unit = runner.run(command)
        if unit is not None and (reason := queue_manager.recovery_log.commit(unit)):
            explanation = f"{cmqc.reason_name(reason)} ({reason})"
            raise ScriptFailed(f"{source}, line {command.line}: {command.text}: {explanation}")
        if not response.ok and not response.message.startswith(_ALREADY_EXISTS):
            raise ScriptFailed(f"{source}, line {command.line}: {response.message}")
        responses.append(response)
    return responses


def _where_blank(queue_manager: QueueManager, command: Command) -> Command:
    """Return ALTER QMGR without attributes that already have a value. Return any other command unchanged."""
    if (command.verb, command.noun) != ("ALTER", "QMGR"):
        return command
    blank = tuple(
        parameter
        for parameter in command.parameters
        if queue_manager.objects.attributes.get(parameter.keyword) in (None, "")
    )
    return dataclasses.replace(command, parameters=blank)


def _is_on_record(queue_manager: QueueManager, command: Command) -> bool:
    """Return whether a command is a SET AUTHREC whose records exist."""
    if (command.verb, command.noun) != ("SET", "AUTHREC"):
        return False
    identities = AuthorityRecordCommands(queue_manager).identities(command)
    return all(identity in queue_manager.objects.authority_records.granted for identity in identities)
