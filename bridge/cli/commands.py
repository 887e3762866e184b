"""A group of commands: each is imported when it is asked for, and its expected errors are told."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
import typer.core
import typer.main

from bridge.cli.examples import epilog
from bridge.cli.failures import failure_of


class Commands(typer.core.TyperGroup):
    """Commands whose expected errors are told, not thrown at the user.

    One of them is run: the others, and what they would import, only cost time. So their functions are named here, in the
    order in which the help lists them, and made into commands when somebody asks for them.
    """

    #: name of a command -> where its function is, as "module:name"
    FUNCTIONS: ClassVar[Mapping[str, str]] = {}
    #: older name of a command -> where its function is. It works, and the help, the manual page and completion omit it.
    HIDDEN: ClassVar[Mapping[str, str]] = {}
    #: what stands before their names
    PREFIX: ClassVar[str] = ""

    #: heading of the help -> commands and groups below it; without any, all are below one
    SECTIONS: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        if not self.SECTIONS:
            super().format_commands(ctx, formatter)
            return
        names = self.list_commands(ctx)
        placed = {name for section in self.SECTIONS.values() for name in section}
        sections = {**self.SECTIONS, "Commands": tuple(name for name in names if name not in placed)}
        for heading, section in sections.items():
            if section:
                width = formatter.width - 6 - max(map(len, section))
                with formatter.section(heading):
                    formatter.write_dl([(name, self.get_command(ctx, name).get_short_help_str(width)) for name in section])

    def list_commands(self, ctx: Any) -> list[str]:
        return list({**self.FUNCTIONS, **self.commands})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.HIDDEN:
            return _command(cmd_name, self.HIDDEN[cmd_name], "")
        if cmd_name not in self.commands:
            # Of a name that is none typer says which it is like, of those that are there.
            for name in self.FUNCTIONS if cmd_name not in self.FUNCTIONS else (cmd_name,):
                self.commands[name] = _command(name, self.FUNCTIONS[name], epilog(self.PREFIX + name))
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            if failure.text:
                typer.echo(failure.text, err=True)
            raise typer.Exit(failure.status) from error


def _command(name: str, place: str, end: str) -> Any:
    module, function = place.split(":")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    called = getattr(import_module(module), function)
    # The whole first sentence, on two lines where it is long: without this, the list of commands has its beginning only.
    sentence = (called.__doc__ or "").partition("\n")[0]
    alone.command(name, epilog=end, short_help=sentence)(called)
    return typer.main.get_command(alone)
