"""Mappings as an administrator looks at them, pauses and resumes them."""

from __future__ import annotations

from bridge.administration.requests import ListMappings, PauseMapping, ResumeMapping
from bridge.service.administration.parts import Done, Parts, Refused
from bridge.service.mappings.registry import MappingError
from bridge.service.mappings.status import Status


async def list_mappings(parts: Parts, request: ListMappings) -> list[Status]:
    """Return what each mapping does and did, in the order of the configuration."""
    return parts.mappings.statuses()


async def pause_mapping(parts: Parts, request: PauseMapping) -> Done:
    """Have a mapping take nothing more. Raises Refused."""
    try:
        return Done([await parts.mappings.pause(request.name)])
    except MappingError as error:
        raise Refused(str(error)) from error


async def resume_mapping(parts: Parts, request: ResumeMapping) -> Done:
    """Have a mapping that was paused go on. Raises Refused."""
    try:
        return Done([await parts.mappings.resume(request.name)])
    except MappingError as error:
        raise Refused(str(error)) from error
