"""MQSC scripts that a queue manager runs when it starts, above all the one that defines what the bridge needs."""

from __future__ import annotations

import dataclasses
import threading

from bridge.mq.embedded.mqsc.authority_commands import AuthorityRecordCommands
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.mqsc.language import Command
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import CommandResponse
from bridge.shipped import shipped_file
from bridge.wire import cmqc

_NAME = "deploy/mq/bridge.mqsc"
_ALREADY_EXISTS = "AMQ8150E"


class ScriptFailed(Exception):
    """A command of a script failed; the message names the script, the line and the AMQ message."""


def bridge_script() -> str:
    """Return the MQSC script that defines the objects of the bridge."""
    return shipped_file(_NAME).read_text(encoding="utf-8")


def prepare(queue_manager: QueueManager) -> None:
    """Define what the bridge needs where it is not there yet. Raises ScriptFailed.

    Attributes of the queue manager that have a value already keep it, and so do authority records: a restart must not
    undo what an administrator altered. Call it before the recovery log dispatches to an event loop.
    """
    commands = [
        _where_blank(queue_manager, one)
        for one in Commands(queue_manager).read(bridge_script())
        if not _is_on_record(queue_manager, one)
    ]
    _run(queue_manager, commands, "bridge.mqsc")


def run_script(queue_manager: QueueManager, text: str, source: str) -> list[CommandResponse]:
    """Run a script; what is defined already is no error. Raises ScriptFailed at the first command that fails."""
    return _run(queue_manager, Commands(queue_manager).read(text), source)


def _run(queue_manager: QueueManager, commands: list[Command], source: str) -> list[CommandResponse]:
    runner = Commands(queue_manager)
    responses = []
    for command in commands:
        ended = threading.Event()
        reasons: list[int] = []
        with queue_manager.lock:
            response, unit = runner.run(command)
            if unit is not None:

                def done(reason: int, reasons: list[int] = reasons, ended: threading.Event = ended) -> None:
                    reasons.append(reason)
                    ended.set()

                unit.done = done
                queue_manager.recovery_log.submit(unit)
        if unit is not None:
            ended.wait()
            if reasons[0]:
                reason = f"{cmqc.reason_name(reasons[0])} ({reasons[0]})"
                raise ScriptFailed(f"{source}, line {command.line}: {command.text}: {reason}")
        if not response.ok and not response.message.startswith(_ALREADY_EXISTS):
            raise ScriptFailed(f"{source}, line {command.line}: {response.message}")
        responses.append(response)
    return responses


def _where_blank(queue_manager: QueueManager, command: Command) -> Command:
    """Return ALTER QMGR without the attributes that have a value; any other command as it is."""
    if (command.verb, command.noun) != ("ALTER", "QMGR"):
        return command
    blank = tuple(one for one in command.parameters if queue_manager.attributes.get(one.keyword) in (None, ""))
    return dataclasses.replace(command, parameters=blank)


def _is_on_record(queue_manager: QueueManager, command: Command) -> bool:
    """Return whether a command is a SET AUTHREC whose records are there already."""
    if (command.verb, command.noun) != ("SET", "AUTHREC"):
        return False
    identities = AuthorityRecordCommands(queue_manager).identities(command)
    return all(one in queue_manager.authority_records.granted for one in identities)
