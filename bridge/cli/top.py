"""`mqbridge top`: the activity of a running bridge."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli import options
from bridge.cli.failures import WRONG_USAGE, Failure
from bridge.cli.options import BRIDGE, OUTPUT, settings, takes
from bridge.cli.output import print_records, printable
from bridge.cli.queue_manager import shown

if TYPE_CHECKING:
    from rich.console import Group

    from bridge.administration.counters import Counters, Rates

#: Rows of each table.
ROWS = 10


@takes(BRIDGE | OUTPUT)
def top(
    interval: Annotated[
        float, typer.Option(parser=options.duration, metavar="TIME", help="Time between two readings.", show_default="1s")
    ] = 1.0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, metavar="N", help="End after N readings. 0: continue.")] = 0,
) -> None:
    """Show the activity of the running bridge, updated every second.

    It shows the rates of publications, the backlog, the slowest channels, the busiest clients, and the mappings. Press `q`
    or Ctrl-C to quit. Publications are counted only while somebody watches. Other formats than table print each reading,
    with rates per second.
    """
    if not 0.1 <= interval <= 3_600:
        raise Failure("--interval: expected a duration from 100ms to 1h", WRONG_USAGE)
    with _keys() as keys, contextlib.suppress(KeyboardInterrupt):
        readings = _readings(interval, limit, keys)
        if settings.output is options.Format.table:
            _show(readings)
        else:
            print_records(readings, lambda one: one.time)


def _readings(interval: float, count: int, keys: _Keys) -> Iterator[Rates]:
    """Yield the rates of each interval, until the user quits."""
    from bridge.administration.counters import rates

    before = _reading()
    number = 0
    due = time.monotonic()
    while not count or number < count:
        due = max(due + interval, time.monotonic())
        if keys.quits_within(due - time.monotonic()):
            return
        after = _reading()
        yield rates(before, after)
        before = after
        number += 1


def _reading() -> Counters:
    from bridge.administration.counters import Counters
    from bridge.administration.requests import ShowCounters

    return shown(ShowCounters(clients=ROWS), Counters)


def _show(readings: Iterator[Rates]) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(no_color=not settings.colored)
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
    """The keyboard. Without a terminal, no key is ever pressed."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def quits_within(self, seconds: float) -> bool:
        """Wait, and return True as soon as `q` is pressed."""
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
    """Read keys without the Enter key, and restore the terminal in the end."""
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
