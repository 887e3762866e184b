"""What a connection is told."""

from __future__ import annotations

from typing import Any

from bridge.mqtt.packets import Connack

ACCEPTED, PRESENT = Connack(0), Connack(0, True)


async def answers(bridge: Any, *packets: Any) -> list[Any]:
    """What a new connection gets until it is closed."""
    client = await bridge.open()
    client.send(*packets)
    return await client.rest()
