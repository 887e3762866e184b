"""`mqbridge group`: the bridges of all shards of a queue manager."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from bridge.administration.answers import BridgeState, BridgeStatus
from bridge.administration.control_socket import NoBridge, ask
from bridge.administration.protocol import result_of
from bridge.administration.requests import ShowStatus
from bridge.cli.failures import FAILED, NOT_FOUND, WRONG_USAGE, Failure
from bridge.cli.options import CONFIG, OUTPUT, argument, takes
from bridge.cli.output import print_record, print_records, print_table, write
from bridge.cli.queue_manager import configuration_in, configuration_path


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The bridge of a configuration file: its status, or why it does not answer."""

    file: str
    #: such as "1 of 2", or blank if the clients are not divided
    shard: str
    status: BridgeStatus | None = None
    failure: str = ""

    @property
    def healthy(self) -> bool:
        """Whether the bridge answers and has no problem."""
        return self.status is not None and not self.status.problems and self.status.state is not BridgeState.STARTING


@takes(OUTPUT)
def status(files: Annotated[list[Path], argument("FILE...", "Configuration files of bridges on this host.")]) -> None:
    """Show the bridges of several shards on this host, one line each.

    Exit status 1 if a bridge does not answer, is starting or has a problem, otherwise 0.
    """
    found = [_status(file) for file in files]
    print_records(found, lambda one: one.shard or one.file, table=_print_table)
    if not all(one.healthy for one in found):
        raise typer.Exit(FAILED)


def _status(file: Path) -> ShardStatus:
    configuration = configuration_in(file)
    shard = "" if configuration.shard is None else f"{configuration.shard.number} of {configuration.shard.of}"
    path = configuration.control_socket_path
    if path is None:
        return ShardStatus(file=str(file), shard=shard, failure="the file has no control_socket")
    try:
        answer = ask(path, ShowStatus())
    except NoBridge as error:
        return ShardStatus(file=str(file), shard=shard, failure=str(error))
    return ShardStatus(file=str(file), shard=shard, status=result_of(ShowStatus(), answer))


def _print_table(found: list[ShardStatus]) -> None:
    rows: list[tuple[str | int, ...]] = []
    for one in found:
        if one.status is None:
            rows.append((one.shard, "no answer", 0, 0, one.failure))
            continue
        problems = "; ".join(problem.what for problem in one.status.problems)
        rows.append((one.shard, str(one.status.state), one.status.clients, one.status.sessions, problems))
    print_table(("shard", "state", "clients", "sessions", "problems"), rows)


class ShardOfClient(msgspec.Struct, frozen=True):
    """The shard of a client."""

    client_id: str
    number: int
    of: int


@takes(CONFIG | OUTPUT)
def shard(client: Annotated[str, argument("CLIENT", "Client identifier.")]) -> None:
    """Print the shard of a client."""
    from bridge.telemetry.shard import Shard

    config = configuration_in(configuration_path()).shard
    if config is None:
        raise Failure("the clients of this bridge are not divided (queue_manager.shard)", NOT_FOUND)
    if not client:
        raise Failure("a client without an identifier belongs to the shard to which it connects", WRONG_USAGE)
    number = Shard(config.number, config.of).shard_of(client)
    print_record(ShardOfClient(client, number, config.of), number, lambda one: write(f"shard {one.number} of {one.of}"))
