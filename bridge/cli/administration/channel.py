"""`mqbridge channel`: the telemetry channels of a running bridge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli import options
from bridge.cli.administration import completion
from bridge.cli.administration.control import done, shown
from bridge.cli.table import print_table

if TYPE_CHECKING:
    from bridge.administration.answers import ChannelStatus

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the channel.", autocompletion=completion.channels)]


def list_(
    config: options.ConfigurationFile = None, data_dir: options.DataDirectory = None, json: options.Json = False
) -> None:
    """Show the telemetry channels: where they listen, and how many clients they have."""
    from bridge.administration.answers import ChannelStatus
    from bridge.administration.requests import ListChannels

    found = shown(ListChannels(), list[ChannelStatus], config, data_dir)
    if json:
        from bridge.cli.output import write_json

        for one in found:
            write_json(one)
        return
    rows = [
        (one.name, one.state, one.endpoint, _manner(one), one.clients, one.connections, one.max_clients, one.defined_by)
        for one in found
    ]
    heads = ("channel", "state", "listens on", "transport", "clients", "connections", "max_clients", "defined by")
    print_table(heads, rows, "the bridge has no channels")
    for one in found:
        if one.problem:
            typer.echo(f"{one.name}: {one.problem}")


def start(name: Name, config: options.ConfigurationFile = None, data_dir: options.DataDirectory = None) -> None:
    """Have a channel listen that was stopped."""
    from bridge.administration.requests import StartChannel

    done(StartChannel(name=name), config, data_dir)


def stop(name: Name, config: options.ConfigurationFile = None, data_dir: options.DataDirectory = None) -> None:
    """Have a channel listen no more, and disconnect its clients; durable sessions stay.

    It stays stopped until it is started, or the bridge is.
    """
    from bridge.administration.requests import StopChannel

    done(StopChannel(name=name), config, data_dir)


def _manner(one: ChannelStatus) -> str:
    return " ".join(["TLS"] * one.tls + ["WebSockets"] * one.websocket) or "plain"
