"""Administration of queues, topics and namelists by MQSC commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from bridge.administration.answers import CommandEffect, ObjectDetails, ObjectRow, counted
from bridge.administration.protocol import Answer, Invalid, NotFound, Refused
from bridge.administration.requests import DumpDefinitions, ListObjects, PreviewCommands, RunCommands, ShowObject
from bridge.mq.definitions import definitions
from bridge.mq.mqi import CommandResponse, Connection
from bridge.mq.mqsc import CommandRefused
from bridge.mq.object_changes import TooManyCommands, details, effects
from bridge.mq.object_changes import objects as objects_of
from bridge.service.administration.parts import Parts

T = TypeVar("T")

#: Maximum number of commands whose results an answer contains.
MAX_LINES = 100


async def _ask(parts: Parts, work: Callable[[Connection], T], *, repeatable: bool = True) -> T:
    try:
        return await parts.queue_manager_connection.run(work, repeatable=repeatable)
    except (CommandRefused, TooManyCommands) as error:
        raise Invalid(str(error)) from error


def _is_embedded(parts: Parts) -> bool:
    return parts.configuration.queue_manager.type == "embedded"


async def list_objects(parts: Parts, request: ListObjects) -> list[ObjectRow]:
    return await _ask(parts, lambda connection: objects_of(connection, request.kind, system=request.system))


async def show_object(parts: Parts, request: ShowObject) -> ObjectDetails:
    object_details = await _ask(parts, lambda connection: details(connection, request.kind, request.name))
    if object_details is None:
        raise NotFound(f"there is no {request.kind} {request.name}")
    return msgspec.structs.replace(object_details, can_change=_is_embedded(parts))


async def dump_definitions(parts: Parts, request: DumpDefinitions) -> str:
    if not _is_embedded(parts):
        raise Refused(f"the queue manager is not embedded; hint: use dmpmqcfg -m {parts.host.name} -a")
    configuration = parts.configuration
    channels = {channel.name for channel in configuration.channels}
    records = {(record.channel, record.type) for record in configuration.channel_authentication}

    def work(connection: Connection) -> str:
        lines = definitions(connection, channels, records, everything=request.everything)
        return "".join(f"{line}\n" for line in lines)

    return await _ask(parts, work)


async def preview_commands(parts: Parts, request: PreviewCommands) -> list[CommandEffect]:
    return await _ask(parts, lambda connection: effects(connection, request.commands))


async def run_commands(parts: Parts, request: RunCommands) -> Answer:
    """Run the commands that have an effect. Raises Refused without changes if a command is invalid."""
    if not _is_embedded(parts):
        raise Refused("the bridge does not change objects of IBM MQ; hint: run these commands in runmqsc")

    def work(connection: Connection) -> tuple[list[CommandEffect], list[CommandResponse]]:
        preview = effects(connection, request.commands)
        if mistakes := [effect for effect in preview if effect.effect == "error"]:
            first = mistakes[0]
            more = f" (and {counted(len(mistakes) - 1, 'more mistake')})" if len(mistakes) > 1 else ""
            raise Refused(f"nothing was changed: line {first.line}: {first.text}{more}")
        commands = [effect.command for effect in preview if effect.effect not in ("left out", "none")]
        return preview, [response for command in commands for response in connection.command(command)]

    preview, responses = await _ask(parts, work, repeatable=False)
    failed = [response for response in responses if not response.ok]
    lines = [f"{counted(len(responses), 'MQSC command')} run, {len(failed)} failed"]
    if left_out := sum(effect.effect == "left out" for effect in preview):
        lines.append(f"{counted(left_out, 'command')} left out: SYSTEM objects, or other kinds of objects")
    # Failures first: the lines are limited.
    lines += [response.message for response in sorted(responses, key=lambda response: response.ok)[:MAX_LINES]]
    return Answer(ok=not failed, lines=lines)
