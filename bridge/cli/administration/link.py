"""`mqbridge link`: the links of a running bridge to other brokers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.administration.answers import age, moment
from bridge.cli import options
from bridge.cli.administration import completion
from bridge.cli.administration.control import done, shown
from bridge.cli.failures import FAILED, Failure
from bridge.cli.table import print_table

if TYPE_CHECKING:
    from bridge.administration.answers import LinkConnectionStatus, LinkStatus

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the link.", autocompletion=completion.links)]


def list_(
    config: options.ConfigurationFile = None, data_dir: options.DataDirectory = None, json: options.Json = False
) -> None:
    """Show the links to other brokers, and how many mappings are connected by each."""
    found = _links(config, data_dir)
    if json:
        from bridge.cli.output import write_json

        for one in found:
            write_json(one)
        return
    rows = [
        (
            one.name,
            one.broker,
            f"MQTT {one.version}{' TLS' * one.tls}",
            sum(connection.connected for connection in one.connections),
            len(one.connections),
        )
        for one in found
    ]
    print_table(("link", "broker", "transport", "connected", "of mappings"), rows, "the bridge has no links")


def show(
    name: Name,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
    json: options.Json = False,
) -> None:
    """Show a link, and the connection of each mapping that uses it: since when, and what went wrong last."""
    found = next((one for one in _links(config, data_dir) if one.name == name), None)
    if found is None:
        raise Failure(f"there is no link {name}", FAILED)
    if json:
        from bridge.cli.output import write_json

        write_json(found)
        return
    typer.echo(f"link {found.name}: broker {found.broker}, MQTT {found.version}{', TLS' * found.tls}")
    rows = [(one.mapping, _state(one), one.client_id, one.address) for one in found.connections]
    print_table(("mapping", "state", "client identifier", "address"), rows, "no mapping that runs uses it")
    for one in found.connections:
        if one.last_error:
            typer.echo(f"{one.mapping}: last error at {moment(one.last_error_at)}: {one.last_error}")


def test(name: Name, config: options.ConfigurationFile = None, data_dir: options.DataDirectory = None) -> None:
    """Have the running bridge try a connection to a link's broker, step by step, beside those at work.

    It connects with the link's own options, but as a new client with a clean session, and leaves nothing behind. A
    broker that lets in only clients of certain identifiers may refuse it for that. The exit status is 1 where a step fails.
    """
    from bridge.administration.requests import TestLink

    done(TestLink(name=name), config, data_dir)


def _links(config: Path | None, data_dir: Path | None) -> list[LinkStatus]:
    from bridge.administration.answers import LinkStatus
    from bridge.administration.requests import ListLinks

    return shown(ListLinks(), list[LinkStatus], config, data_dir)


def _state(one: LinkConnectionStatus) -> str:
    state = "connected" if one.connected else "NOT CONNECTED"
    return f"{state} for {age(time.time() - one.since)}" if one.since else state
