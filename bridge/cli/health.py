"""`mqbridge health`: problems, resources, certificates, connections and rates of a running bridge."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from bridge.administration import requests
from bridge.administration.health import Gauge, HealthReport, last, mean
from bridge.cli import options, output
from bridge.cli.administration import as_typed, print_problem
from bridge.cli.failures import FAILED, WRONG_USAGE, Failure
from bridge.cli.options import BRIDGE, OUTPUT, option, takes
from bridge.cli.queue_manager import shown


@takes(BRIDGE | OUTPUT)
def health(
    period: Annotated[
        float,
        option(
            "TIME", "Range of the rates, from 1min to 24h.", "--period", parser=options.duration, show_default="10min"
        ),
    ] = 600.0,
    name: Annotated[str, option("TEXT", "Only rates of queues, mappings and links with this text in their name.")] = "",
    limit: Annotated[
        int, option("N", "Print at most N rates of each kind.", "--limit", "-n", show_default=True, min=0, max=100)
    ] = 10,
) -> None:
    """Show the health of the running bridge.

    It has the problems by cause, the resources and their limits, the certificates, the connections to the queue manager, and
    the rates of queues, mappings and links. The busiest come first. IBM MQ reports the depth of a queue, but no rates.

    Exit status 1 if there is a problem, otherwise 0.
    """
    if not 60 <= period <= 86_400:
        raise Failure("--period: expected a duration from 1min to 24h", WRONG_USAGE)
    report = shown(requests.ShowHealth(seconds=int(period), search=name, rows=limit))
    output.print_record(report, "health", _print_health)
    if report.problems:
        raise typer.Exit(FAILED)


def _print_health(report: HealthReport) -> None:
    for group in report.problems:
        typer.echo(output.styled(group.cause.replace("_", " "), bold=True))
        for problem in group.problems:
            print_problem(problem)
            for remedy in problem.remedies:
                typer.echo(f"  try `{as_typed(f'mqbridge {remedy.command} {remedy.name}'.rstrip())}`")
    if not report.problems:
        typer.echo("no problems")
    columns: dict[str, Any] = {
        "resource": "name",
        "used": lambda gauge: _amount(gauge, gauge.used),
        "limit": lambda gauge: "" if gauge.limit is None else _amount(gauge, gauge.limit),
        "%": lambda gauge: "" if gauge.share is None else f"{gauge.share:.1%}".removesuffix("%"),
        "option": "option",
    }
    output.print_table(*output.table_of(report.gauges, columns), title="Resources")
    columns = {
        "used by": "owner",
        "expires": lambda certificate: time.strftime("%Y-%m-%d", time.gmtime(certificate.expires_at)),
        "days left": lambda certificate: int((certificate.expires_at - time.time()) // 86_400),
        "file": "file",
    }
    if report.certificates:
        output.print_table(*output.table_of(report.certificates, columns), title="Certificates")
    columns = {
        "connection": "name",
        "state": lambda link: "connected" if link.connected else f"NOT CONNECTED: {link.problem}".removesuffix(": "),
        "user": "user",
        "address": "address",
    }
    if report.connections:
        table = output.table_of(report.connections, columns)
        output.print_table(*table, title="Connections to the queue manager")
    for kind, incoming, outgoing in (
        ("queue", "put/s", "got/s"),
        ("mapping", "taken/s", "moved/s"),
        ("link", "in/s", "out/s"),
    ):
        columns = {
            kind: "name",
            incoming: lambda rates: _rate(last(rates.incoming)),
            "mean": lambda rates: _rate(mean(rates.incoming)),
            outgoing: lambda rates: _rate(last(rates.outgoing)),
            "mean ": lambda rates: _rate(mean(rates.outgoing)),
        }
        if kind == "queue":
            columns["depth"] = lambda queue: _rate(last(queue.depth))
        series = [link_series for link_series in report.rates.series if link_series.kind == kind]
        if series:
            output.print_table(*output.table_of(series, columns), title=f"Rates of {kind}s", numbers=True)
    if report.rates.problem:
        output.note(report.rates.problem)


def _amount(gauge: Gauge, value: float) -> str:
    return f"{value / 2**20:,.1f} MiB" if gauge.unit == "bytes" else f"{value:,.0f}"


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}".removesuffix(".0")
