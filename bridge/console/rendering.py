"""How values are written in pages. Templates escape all that they are given; what is long is cut here."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bridge.administration.answers import age, moment
from bridge.console.urls import link
from bridge.service.log import LINE_LENGTH, printable

#: Characters of a name or topic in a table.
_SHORT = 120


def environment() -> Environment:
    """Return the environment of all templates."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"moment": moment, "age": age, "anchor": anchor, "count": count, "clock": clock}
    made.filters |= {"short": short, "whole": partial(short, most=2 * LINE_LENGTH)}
    made.globals["link"] = link
    return made


def short(text: str, most: int = _SHORT) -> str:
    """Return a text, what cannot be seen as escapes, cut where it is long."""
    text = printable(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def anchor(name: str) -> str:
    """Return what a page's element is known by that belongs to a name: the focus stays with it when it is made anew."""
    return f"a{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def count(value: float) -> str:
    """Return a number with its thousands set apart."""
    return f"{value:,.1f}" if isinstance(value, float) and value != int(value) else f"{int(value):,}"


def clock(seconds: float) -> str:
    """Return the time of day of seconds since the epoch, in the time zone of this machine."""
    return moment(seconds).partition(" ")[2]
