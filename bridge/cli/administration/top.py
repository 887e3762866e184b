"""`mqbridge top`: what a running bridge does, second by second."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli import options
from bridge.cli.administration.control import shown
from bridge.cli.table import printable

if TYPE_CHECKING:
    from rich.console import Group

    from bridge.administration.counters import Counters, Rates

#: Rows of each table in the terminal.
ROWS = 10


def top(
    interval: Annotated[float, typer.Option(min=0.1, max=3_600, metavar="S", help="Seconds between two readings.")] = 1.0,
    count: Annotated[int, typer.Option(min=0, metavar="N", help="End after N readings; 0: go on.")] = 0,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
    json: options.Json = False,
) -> None:
    """Show what the running bridge does, second by second.

    Rates of publications, what waits and is in flight, the slowest channels, the busiest clients, mappings. `q` or
    Ctrl-C ends it. Publications are counted while somebody looks; with --json each reading is an object on a line of its
    own, and rates are for a second.
    """
    with _keys() as quits, contextlib.suppress(KeyboardInterrupt):
        readings = _readings(interval, count, config, data_dir, quits)
        if json:
            from bridge.cli.output import write_json

            for one in readings:
                write_json(one)
        else:
            _show(readings)


def _readings(
    interval: float, count: int, config: Path | None, data_dir: Path | None, quits: _Keys
) -> Iterator[Rates]:
    """Yield the rates of each interval, until a key ends it."""
    from bridge.administration.counters import rates

    before = _reading(config, data_dir)
    number = 0
    due = time.monotonic()
    while not count or number < count:
        due = max(due + interval, time.monotonic())
        if quits.within(due - time.monotonic()):
            return
        after = _reading(config, data_dir)
        yield rates(before, after)
        before = after
        number += 1


def _reading(config: Path | None, data_dir: Path | None) -> Counters:
    from bridge.administration.counters import Counters
    from bridge.administration.requests import ShowCounters

    return shown(ShowCounters(clients=ROWS), Counters, config, data_dir)


def _show(readings: Iterator[Rates]) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not console.is_terminal:
        for one in readings:
            console.print(_view(one))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for one in readings:
            live.update(_view(one), refresh=True)


def _view(now: Rates) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def table(*heads: str) -> Table:
        made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for number, head in enumerate(heads):
            made.add_column(head, justify="right" if number else "left", no_wrap=True)
        return made

    depth = "not known" if now.transmission_queue_depth is None else f"{now.transmission_queue_depth:,}"
    head = Text.assemble(
        (time.strftime("%H:%M:%S", time.localtime(now.time)), "bold"),
        f"   publications in {now.received:,.0f}/s   out {now.sent:,.0f}/s\n",
        f"{now.clients:,} clients connected, {now.sessions:,} sessions   in flight {now.in_flight:,}   "
        f"transmission queue {depth}   units of work {now.units_of_work:,}",
    )
    channels = table("channel, slowest first", "clients", "in/s", "out/s", "commit")
    for channel in now.channels[:ROWS]:
        took = "" if channel.unit_seconds is None else f"{channel.unit_seconds * 1_000:,.1f} ms"
        channels.add_row(
            Text(channel.name), f"{channel.clients:,}", f"{channel.received:,.0f}", f"{channel.sent:,.0f}", took
        )
    clients = table("client, busiest first", "channel", "in/s", "out/s")
    for client in now.busiest_clients:
        clients.add_row(
            Text(printable(client.client_id)), Text(client.channel), f"{client.received:,.1f}", f"{client.sent:,.1f}"
        )
    mappings = table("mapping", "state", "taken/s", "moved/s", "dead letters/s")
    for one in sorted(now.mappings, key=lambda one: -one.taken)[:ROWS]:
        rates = (one.taken, one.moved, one.dead_lettered)
        mappings.add_row(Text(one.name), Text(one.state), *(f"{rate:,.1f}" for rate in rates))
    tables = [one for one in (channels, clients, mappings) if one.row_count]
    return Group(head, *(part for one in tables for part in (Text(), one)))


class _Keys:
    """The keys of the terminal; without a terminal there are none."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def within(self, seconds: float) -> bool:
        """Return whether `q` is pressed within a time; else when that is over."""
        before = time.monotonic() + seconds
        while (left := before - time.monotonic()) > 0:
            if self._descriptor is None:
                time.sleep(left)
            elif select.select([self._descriptor], [], [], left)[0]:
                keys = os.read(self._descriptor, 64)
                if b"q" in keys.lower() or not keys:
                    return True
        return False


@contextlib.contextmanager
def _keys() -> Iterator[_Keys]:
    """Have keys come without the Enter key, where there is a terminal, and put it back in the end."""
    # Imported by what has a use for them: they are of terminals alone.
    import termios
    import tty

    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):
        yield _Keys(None)
        return
    tty.setcbreak(descriptor)
    try:
        yield _Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
