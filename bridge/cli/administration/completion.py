"""`mqbridge completion`, and what the shell completes beside commands and options: names, which a running bridge knows."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from bridge.administration.requests import AnyRequest

T = TypeVar("T")

#: Seconds that a running bridge may take to answer: somebody waits at the keyboard.
PATIENCE = 0.5
#: Names that are offered at most.
MOST_NAMES = 100


#: Names that a shell takes as they are; others would end up as something else.
_WORD = re.compile(r"[\w./:@%+,=-]+")


class Shell(StrEnum):
    """The shells that there is a script for."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the script that has a shell complete what one types.

    Commands, options, and names that the running bridge knows. In bash: source <(mqbridge completion bash), in
    ~/.bashrc. In zsh: the same with zsh, behind compinit. In fish: mqbridge completion fish >
    ~/.config/fish/completions/mqbridge.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="mqbridge", complete_var="_MQBRIDGE_COMPLETE", shell=shell.value))


def channels(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of channels."""
    from bridge.administration.answers import ChannelStatus
    from bridge.administration.requests import ListChannels

    return _names(ctx, incomplete, ListChannels(), ChannelStatus, lambda one: one.name)


def clients(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return client identifiers of sessions."""
    from bridge.administration.answers import ClientStatus
    from bridge.administration.requests import ListClients

    request = ListClients(pattern=f"{incomplete}*", rows=MOST_NAMES)
    return _names(ctx, incomplete, request, ClientStatus, lambda one: one.client_id)


def mappings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of mappings."""
    from bridge.administration.mapping_status import Status
    from bridge.administration.requests import ListMappings

    return _names(ctx, incomplete, ListMappings(), Status, lambda one: one.name)


def links(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of links."""
    from bridge.administration.answers import LinkStatus
    from bridge.administration.requests import ListLinks

    return _names(ctx, incomplete, ListLinks(), LinkStatus, lambda one: one.name)


def _names(
    ctx: typer.Context, incomplete: str, request: AnyRequest, kind: type[T], name_of: Callable[[T], str]
) -> list[str]:
    """Return the names in a list of the running bridge; none where no bridge answers: the shell has nothing to say of it."""
    from bridge.cli.administration.control import shown
    from bridge.cli.failures import Failure
    from bridge.config import ConfigurationError

    try:
        found = shown(request, list[kind], ctx.params.get("config"), ctx.params.get("data_dir"), timeout=PATIENCE)  # type: ignore[valid-type]
    except (Failure, ConfigurationError, OSError):
        return []
    return [name for name in map(name_of, found) if name.startswith(incomplete) and _WORD.fullmatch(name)]
