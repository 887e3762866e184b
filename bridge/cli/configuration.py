"""Commands for the configuration of a running bridge: its settings, and the check of an edited copy of its file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bridge.administration import answers, requests
from bridge.administration.configuration import Setting
from bridge.cli import options, output
from bridge.cli.failures import WRONG_USAGE, Failure
from bridge.cli.options import BRIDGE, OUTPUT, argument, flag, option, settings, takes
from bridge.cli.queue_manager import shown


@takes(BRIDGE | OUTPUT)
def list_config(
    section: Annotated[str, argument("[SECTION]", "Only this section of the file, such as limits.")] = "",
    all_: Annotated[bool, flag("List all settings, not only those that differ from their defaults.", "--all")] = False,
    search: Annotated[str, option("TEXT", "Only settings with this text in their path or value.")] = "",
    limit: options.Limit = 1_000,
) -> None:
    """List the settings of the running bridge with their defaults and sources.

    Without --all, only the settings that differ from their defaults are listed. The source is a line of a file, an option of
    the command line, or default. Secrets are hidden.
    """
    page = shown(requests.ListSettings(section=section, changed=not all_, search=search, rows=limit))

    def table(settings_: list[Setting]) -> None:
        columns: dict[str, Any] = {
            "setting": "key",
            "value": lambda setting: output.shortened(setting.value),
            "default": lambda setting: "(none)" if setting.default is None else output.shortened(setting.default),
            "source": "source",
        }
        output.print_table(*output.table_of(settings_, columns), "no such settings")
        if page.found > len(settings_):
            output.say(f"{page.found - len(settings_):,} more settings match")

    output.print_records(page.settings, lambda setting: setting.key, table=table)


@takes(BRIDGE | OUTPUT)
def show_config() -> None:
    """Print the effective configuration of the running bridge as YAML. Secrets are hidden."""
    text = shown(requests.ShowConfiguration())
    output.print_record(text, "configuration", lambda text: typer.echo(text.rstrip()))


@takes(BRIDGE | OUTPUT)
def check_config(file: Annotated[Path, argument("FILE", "The edited copy.")]) -> None:
    """Check an edited copy of the configuration file, and print what differs from the running bridge.

    The bridge reads no files that its present configuration does not name: use `mqbridge check` for those. Nothing is saved.

    Exit status 2 if the copy has mistakes. Each mistake is a line on standard error.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        byte = f"the byte 0x{error.object[error.start]:02X} at offset {error.start:,}"
        raise Failure(f"{file}: expected text in UTF-8, found {byte}", WRONG_USAGE) from error
    checked = shown(requests.CheckConfiguration(text=text))
    if settings.output is not options.Format.table:
        output.print_record(checked, file, lambda _: None)
        raise typer.Exit(0 if checked.ok else WRONG_USAGE)
    if checked.mistakes:
        lines = tuple(mistake.text for mistake in checked.mistakes)
        raise Failure(f"{file}: {answers.counted(len(lines), 'mistake')}", WRONG_USAGE, lines=lines)
    for note in checked.notes:
        typer.echo(f"note: {note}")
    columns: dict[str, Any] = {
        "setting": "key",
        "in effect": lambda change: "(not set)" if change.before is None else output.shortened(change.before),
        "in the copy": lambda change: "(not set)" if change.after is None else output.shortened(change.after),
    }
    output.print_table(*output.table_of(checked.changes, columns), f"{file} has the settings of the running bridge")
    for section in checked.restart:
        typer.echo(f"{section}: the changes need a restart")


CONFIG = {"list": list_config, "show": show_config, "check": check_config}
