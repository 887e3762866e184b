"""Mappings as an administrator looks at them, pauses and resumes them."""

from __future__ import annotations

from bridge.administration.requests import ListMappings
from bridge.service.administration.parts import Parts
from bridge.service.mappings.status import Status


async def list_mappings(parts: Parts, request: ListMappings) -> list[Status]:
    """Return what each mapping does and did, in the order of the configuration."""
    return parts.mappings.statuses()
