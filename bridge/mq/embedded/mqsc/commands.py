"""MQSC commands at work on the embedded queue manager.

Source: IBM MQ documentation, "MQSC commands reference". Commands that only an IBM MQ queue manager can act on are
refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.mqsc import language as mqsc
from bridge.mq.embedded.mqsc.amq import CommandRefused, message
from bridge.mq.embedded.mqsc.authority_commands import AuthorityRecordCommands
from bridge.mq.embedded.mqsc.channel_authentication_commands import ChannelAuthenticationCommands
from bridge.mq.embedded.mqsc.channel_commands import ChannelCommands, ServerChannelCommands, of_server_channel
from bridge.mq.embedded.mqsc.channel_display import ChannelDisplay
from bridge.mq.embedded.mqsc.connection_authentication_commands import ConnectionAuthenticationCommands
from bridge.mq.embedded.mqsc.definitions import QUEUE_KINDS, Answer, Definitions
from bridge.mq.embedded.mqsc.display import Display
from bridge.mq.embedded.mqsc.language import Command, MQSCSyntaxError
from bridge.mq.embedded.mqsc.subscriptions import Subscriptions
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.errors import MQError
from bridge.mq.mqi import CommandResponse
from bridge.mqtt.topics import is_wildcard


class Commands:
    """Reads and runs MQSC commands for one queue manager."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self._display = Display(queue_manager)
        definitions = Definitions(queue_manager)
        subscriptions = Subscriptions(queue_manager)
        self._authority_records = AuthorityRecordCommands(queue_manager)
        self._channel_authentication = ChannelAuthenticationCommands(queue_manager)
        channels, channel_display = ChannelCommands(queue_manager), ChannelDisplay(queue_manager)
        server_channels = ServerChannelCommands(queue_manager)
        connection_authentication = ConnectionAuthenticationCommands(queue_manager)
        self._shows: dict[str, Callable[[Command], tuple[str, list[dict[str, Value]]]]] = {
            "AUTHINFO": connection_authentication.show,
            "AUTHREC": self._authority_records.show,
            "CHANNEL": channel_display.show,
            "CHLAUTH": self._channel_authentication.show,
            "CHSTATUS": channel_display.show_status,
        }
        self._runs: dict[tuple[str, str], Callable[[Command], Answer]] = {
            ("ALTER", "AUTHINFO"): connection_authentication.alter,
            ("ALTER", "QMGR"): definitions.alter_queue_manager,
            ("CLEAR", "QLOCAL"): definitions.clear,
            ("CLEAR", "TOPICSTR"): self._clear_topic_string,
            ("PING", "QMGR"): self._ping,
            ("REFRESH", "SECURITY"): self._refresh_security,
            ("SET", "AUTHREC"): self._authority_records.set,
            ("DELETE", "AUTHREC"): self._authority_records.delete,
            ("SET", "CHLAUTH"): self._channel_authentication.set,
            ("DEFINE", "SUB"): subscriptions.define,
            ("ALTER", "SUB"): subscriptions.alter,
            ("DELETE", "SUB"): subscriptions.delete,
            ("DEFINE", "CHANNEL"): channels.define,
            ("ALTER", "CHANNEL"): channels.alter,
            ("DELETE", "CHANNEL"): channels.delete,
            ("START", "CHANNEL"): channels.start,
            ("STOP", "CHANNEL"): channels.stop,
            ("PURGE", "CHANNEL"): channels.purge,
            ("START", "SVRCONN"): server_channels.start,
            ("STOP", "SVRCONN"): server_channels.stop,
        }
        for noun in (*QUEUE_KINDS, "NAMELIST", "SVRCONN", "TOPIC"):
            self._runs["DEFINE", noun] = definitions.define
            self._runs["ALTER", noun] = definitions.alter
            self._runs["DELETE", noun] = definitions.delete

    def known(self) -> Iterator[tuple[str, str]]:
        """Yield verb and noun of each command that there is."""
        shown = [("DISPLAY", noun) for noun in (*self._display.nouns, *self._shows)]
        # DEFINE CHANNEL(…) CHLTYPE(SVRCONN) is a command about a CHANNEL.
        yield from (one for one in (*self._runs, *shown) if one[1] != "SVRCONN")

    def read(self, text: str) -> list[Command]:
        """Return the commands of a script.

        A command that is no MQSC is among them and answers with its syntax error.
        """
        return mqsc.read(text)

    def run(self, command: Command) -> tuple[CommandResponse, Unit | None]:
        """Run one command, with the queue manager's lock held.

        What it changes takes effect, in memory and on disk, when the unit that is returned ends; the caller submits it
        to the recovery log. A command that is refused changes nothing.
        """
        response = CommandResponse(command=command.text, message="", ok=True, line=command.line)
        unit = None
        try:
            if command.problem is not None:
                raise command.problem
            if command.noun == "CHANNEL":
                command = self._channel_kind(command)
            if command.verb == "DISPLAY" and (command.noun in self._shows or self._display.knows(command.noun)):
                show = self._shows.get(command.noun, self._display.show)
                response.message, response.objects = show(command)
            else:
                response.message, unit = self.execute(command)
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
        """Run one command that is no DISPLAY. Raises MQSCSyntaxError, CommandRefused or MQError."""
        if command.noun == "CHANNEL":
            command = self._channel_kind(command)
        run = self._runs.get((command.verb, command.noun))
        if run is None:
            detail = f"the embedded queue manager has no command {command.verb} {command.noun}"
            raise MQSCSyntaxError(detail, command.where, command.noun)
        return run(command)

    def _channel_kind(self, command: Command) -> Command:
        """Return a command about a channel as one about a server-connection channel if it is one.

        Without CHLTYPE, DISPLAY, START and STOP are about the server-connection channel of that name if no telemetry channel
        has it.
        """
        if command.verb in ("DISPLAY", "START", "STOP") and command.parameter("CHLTYPE") is None:
            server = command.name in self._queue_manager.server_channels
            telemetry = any(one.name == command.name for one in self._queue_manager.telemetry_channels.channels)
            return dataclasses.replace(command, noun="SVRCONN") if server and not telemetry else command
        return of_server_channel(command) or command

    def _ping(self, command: Command) -> Answer:
        return message("AMQ8415I", name=self._queue_manager.name), None

    def _refresh_security(self, command: Command) -> Answer:
        """Do REFRESH SECURITY: ask anew which user is in which group; records take effect without it."""
        if self._queue_manager.authorization is not None:
            self._queue_manager.authorization.refresh()
        return message("AMQ8560I"), None

    def _clear_topic_string(self, command: Command) -> Answer:
        """Do CLEAR TOPICSTR; a topic string without a retained publication is no error (IBM MQ, "CLEAR TOPICSTR")."""
        topic = command.name
        if not topic:
            raise MQSCSyntaxError("TOPICSTR takes a topic string in parentheses", command.where, "TOPICSTR")
        kind = command.parameter("CLRTYPE")
        if kind is None or kind.value != "RETAINED":
            where = command.where if kind is None else kind.where
            raise MQSCSyntaxError("CLEAR TOPICSTR takes CLRTYPE(RETAINED)", where, "CLRTYPE")
        for parameter in command.parameters:
            if parameter.keyword != "CLRTYPE" and (parameter.keyword, parameter.value) != ("SCOPE", "LOCAL"):
                detail = f"CLEAR TOPICSTR knows no {parameter.keyword}"
                raise MQSCSyntaxError(detail, parameter.where, parameter.keyword)
        queue_manager = self._queue_manager
        answer = message("AMQ8022I", what=f"Retained publication of {topic!r}")
        found = [one for one in queue_manager.retained.matching(topic) if one is not None]
        if not found:
            return answer, None
        unit = Unit()
        unit.changes.latest += [(queue_manager.retained, one, None) for one in found]
        what = f"Retained publications of {len(found)} topic strings" if is_wildcard(topic) else None
        return message("AMQ8022I", what=what) if what else answer, unit
