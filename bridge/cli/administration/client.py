"""`mqbridge client`: MQTT clients and their sessions at a running bridge."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.administration.answers import age, moment
from bridge.cli import options
from bridge.cli.administration import completion
from bridge.cli.administration.control import done, shown
from bridge.cli.failures import WRONG_USAGE, Failure
from bridge.cli.period import seconds
from bridge.cli.table import print_table

if TYPE_CHECKING:
    from bridge.administration.answers import ClientDetails, ClientStatus

ClientId = Annotated[str, typer.Argument(metavar="ID", help="Client identifier.", autocompletion=completion.clients)]
Channel = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Only clients of this channel.",
        autocompletion=completion.channels,
        show_default=False,
    ),
]
Away = Annotated[
    str | None,
    typer.Option(
        "--away",
        metavar="TIME",
        help="Only those that have been away for so long, such as 30d, 12h or 90min.",
        show_default=False,
    ),
]


def list_(
    pattern: Annotated[
        str, typer.Argument(metavar="[PATTERN]", help="Client identifiers, in which * stands for any characters.")
    ] = "*",
    channel: Channel = None,
    connected: Annotated[
        bool | None, typer.Option("--connected/--disconnected", help="Only these.", show_default=False)
    ] = None,
    away: Away = None,
    after: Annotated[str, typer.Option(metavar="ID", help="Only those behind this one.", show_default=False)] = "",
    rows: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="How many at most.")] = 1_000,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
    json: options.Json = False,
) -> None:
    """Show clients, connected and away, and their sessions."""
    from bridge.administration.answers import ClientStatus
    from bridge.administration.requests import ListClients

    request = ListClients(
        pattern=pattern, channel=channel, connected=connected, away_for=seconds(away, "--away"), after=after, rows=rows
    )
    found = shown(request, list[ClientStatus], config, data_dir)
    if json:
        from bridge.cli.output import write_json

        for one in found:
            write_json(one)
        return
    now = time.time()
    heads = ("client", "state", "channel", "user", "session", "subscriptions", "waiting", "in flight")
    print_table(heads, [_row(one, now) for one in found], "there are no such clients")
    if len(found) == rows:
        typer.echo(f"there may be more: --after {found[-1].client_id}")


def show(
    client_id: ClientId,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
    json: options.Json = False,
) -> None:
    """Show all that is known of a client: connection, session, subscriptions, what waits and what is in flight."""
    from bridge.administration.answers import ClientDetails
    from bridge.administration.requests import ShowClient

    found = shown(ShowClient(client_id=client_id), ClientDetails, config, data_dir)
    if json:
        from bridge.cli.output import write_json

        write_json(found)
        return
    _print(found)


def disconnect(
    client_id: ClientId, config: options.ConfigurationFile = None, data_dir: options.DataDirectory = None
) -> None:
    """Disconnect a client; its session, and what waits for it, stays."""
    from bridge.administration.requests import DisconnectClient

    done(DisconnectClient(client_id=client_id), config, data_dir)


def purge(
    client_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="Client identifier.", autocompletion=completion.clients, show_default=False
        ),
    ] = None,
    channel: Channel = None,
    away: Away = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be ended.")] = False,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """End sessions: their subscriptions, the messages that wait for them and their wills are gone.

    Of one client, or of all that have been away for a time: clients that left and never came back leave messages on the
    transmission queue. `session_expiry` of a channel ends such sessions automatically.
    """
    from bridge.administration.requests import PurgeClients

    if client_id is None and channel is None and away is None:
        raise Failure("expected a client identifier, --channel or --away", WRONG_USAGE)
    away_for = seconds(away, "--away")
    done(PurgeClients(client_id=client_id, channel=channel, away_for=away_for, dry_run=dry_run), config, data_dir)


def _row(one: ClientStatus, now: float) -> tuple[str | int, ...]:
    state = f"MQTT {_LEVELS.get(one.protocol_level, '?')}" if one.connected else "away"
    if one.since:
        state += f" for {age(now - one.since)}"
    session = "durable" if one.durable else "clean"
    return one.client_id, state, one.channel, one.user, session, one.subscriptions, one.waiting, one.in_flight


def _print(found: ClientDetails) -> None:
    status = found.status
    facts = [
        ("client identifier", status.client_id),
        ("state", _row(status, time.time())[1]),
        ("channel", status.channel),
        ("address", status.address),
        ("user", status.user),
        ("owner", found.owner),
        ("session", "durable" if status.durable else "clean"),
        ("since", moment(status.since)),
        ("expires", moment(status.expires_at)),
        ("keep-alive", f"{found.keep_alive} s" if status.connected else ""),
        ("will", found.will_topic or ""),
        ("waiting", status.waiting),
        ("in flight", status.in_flight),
        ("QoS 2 received, not released", found.received),
    ]
    for name, value in facts:
        if value != "":
            typer.echo(f"{name:<29} {value}")
    for subscription in found.subscriptions:
        typer.echo(f"subscription                  {subscription.topic_filter}  {subscription.user_data}".rstrip())
    for message in found.in_flight:
        typer.echo(
            f"in flight                     {message.topic}  QoS {message.qos}, message id {message.message_id}, "
            f"{message.phase}, sent {message.times_sent} times"
        )
    for topic in found.waiting:
        typer.echo(f"waits                         {topic}")


_LEVELS = {3: "3.1", 4: "3.1.1", 5: "5"}
