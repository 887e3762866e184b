"""`mqbridge topic`: the topic tree of a running bridge's queue manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli import options
from bridge.cli.administration.control import shown
from bridge.cli.table import print_table, printable

if TYPE_CHECKING:
    from bridge.administration.answers import RetainedStatus

Rows = Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="How many at most.")]

#: Characters of a payload in a table.
_PAYLOAD_WIDTH = 60


def list_(
    below: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]", help="Topic whose lower levels are meant; without it, the root.", show_default=False
        ),
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only levels behind this one.", show_default=False)
    ] = None,
    rows: Rows = 1_000,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
    json: options.Json = False,
) -> None:
    """Show the levels of the topic tree below a topic: where something is retained, and how many subscribe.

    A level is there while something is retained at it or below it, or somebody subscribes; + and # are levels, too.
    """
    from bridge.administration.answers import TopicNode
    from bridge.administration.requests import ListTopics

    found = shown(ListTopics(below=below, after=after, rows=rows), list[TopicNode], config, data_dir)
    if json:
        from bridge.cli.output import write_json

        for one in found:
            write_json(one)
        return
    table = [
        (
            (printable(one.topic) or "(no name)") + "/..." * one.has_lower,
            "retained" if one.retained else "",
            one.subscriptions,
        )
        for one in found
    ]
    print_table(("topic", "publication", "subscriptions"), table, "there is nothing below")
    if len(found) == rows:
        typer.echo(f"there may be more: --after {found[-1].name!r}")


def show(
    topic_filter: Annotated[str, typer.Argument(metavar="FILTER", help="A topic, or a topic filter such as 'plant/#'.")],
    rows: Rows = 1_000,
    payloads: Annotated[bool, typer.Option("--payloads/--no-payloads", help="Show the beginnings of payloads.")] = True,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
    json: options.Json = False,
) -> None:
    """Show what is retained for a topic filter, and the subscriptions that take publications of its topics."""
    from bridge.administration.answers import TopicDetails
    from bridge.administration.requests import ShowTopic

    found = shown(ShowTopic(topic_filter=topic_filter, rows=rows, payloads=payloads), TopicDetails, config, data_dir)
    if json:
        from bridge.cli.output import write_json

        write_json(found)
        return
    retained = [
        (printable(one.topic), one.size, "persistent" if one.persistent else "", one.publisher, _payload(one))
        if one.size >= 0
        else (printable(one.topic), "", "", "", "")
        for one in found.retained
    ]
    print_table(("retained at", "bytes", "", "publisher", "payload" if payloads else ""), retained, "nothing is retained")
    typer.echo()
    subscriptions = [
        (
            printable(one.client_id or one.name),
            printable(one.topic_filter),
            one.user_data,
            "durable" if one.durable else "",
            one.destination,
        )
        for one in found.subscriptions
    ]
    print_table(("subscriber", "filter", "user data", "", "destination"), subscriptions, "nobody subscribes")
    if found.more:
        typer.echo(f"there is more than {rows} of them: name a narrower filter, or more --rows")


def _payload(one: RetainedStatus) -> str:
    try:
        text = printable(one.payload.decode()) if one.payload else ""
    except UnicodeDecodeError:
        text = f"0x{one.payload.hex()}"
    return text if len(text) <= _PAYLOAD_WIDTH else text[:_PAYLOAD_WIDTH] + "..."
