"""Telemetry channels as an administrator asks about them, starts and stops them."""

from __future__ import annotations

from bridge.administration.answers import ChannelStatus
from bridge.administration.requests import ListChannels, StartChannel, StopChannel
from bridge.config.values import endpoint
from bridge.mqtt.reason_codes import ReasonCode
from bridge.service.administration.parts import Done, Parts, Refused
from bridge.service.channels import ChannelError, place_of


async def list_channels(parts: Parts, request: ListChannels) -> list[ChannelStatus]:
    """Return how each channel is, in the order of the configuration; those that commands have defined come behind."""
    return statuses_of(parts)


def statuses_of(parts: Parts) -> list[ChannelStatus]:
    """Return how each channel is. Callable on any thread."""
    clients: dict[str, int] = {}
    for client in list(parts.service.clients.values()):
        clients[client.channel.name] = clients.get(client.channel.name, 0) + 1
    found = []
    # The register's: a command may ask for one that it has defined just now.
    for config in parts.host.telemetry_channels.channels:
        channel = parts.channels.get(config.name)
        bound = None if channel is None else channel.endpoint
        found.append(
            ChannelStatus(
                name=config.name,
                state="stopped" if channel is None else "running",
                endpoint=place_of(config) if bound is None else endpoint(*bound),
                tls=config.tls is not None,
                websocket=config.websocket is not None,
                protocols=list(config.protocols),
                connections=0 if channel is None else len(channel.connections),
                clients=clients.get(config.name, 0),
                max_clients=config.max_clients,
                defined_by="file" if parts.host.telemetry_channels.is_of_file(config.name) else "command",
                problem=parts.channels.problems.get(config.name, ""),
            )
        )
    return found


async def start_channel(parts: Parts, request: StartChannel) -> Done:
    """Have a channel listen again. Raises Refused."""
    try:
        return Done([await parts.channels.start(request.name)])
    except ChannelError as error:
        raise Refused(str(error)) from error


async def stop_channel(parts: Parts, request: StopChannel) -> Done:
    """Stop a channel, or disconnect one client of it. Raises Refused."""
    if request.client_id is not None:
        client = parts.service.clients.get(request.client_id)
        if client is None or client.channel.name != request.name:
            raise Refused(f"client {request.client_id!r} is not connected by channel {request.name}")
        client.close("disconnected by an administrator", ReasonCode.ADMINISTRATIVE_ACTION)
        return Done([f"client {request.client_id!r} disconnected"])
    try:
        return Done([await parts.channels.stop(request.name)])
    except ChannelError as error:
        raise Refused(str(error)) from error
