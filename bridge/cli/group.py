"""`mqbridge group`: the bridges of all shards of a queue manager."""

from __future__ import annotations

import re
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
import typer

from bridge.administration.answers import BridgeState, BridgeStatus
from bridge.administration.control_socket import NoBridge, ask
from bridge.administration.protocol import result_of
from bridge.administration.requests import ShowStatus
from bridge.cli.failures import FAILED, NOT_FOUND, WRONG_USAGE, Failure
from bridge.cli.options import CONFIG, OUTPUT, argument, option, takes
from bridge.cli.output import print_record, print_records, print_table, write
from bridge.cli.queue_manager import configuration_in, configuration_path

#: The maximum number of bridges that are asked at the same time.
_AT_ONCE = 16
#: host:port, such as 10.0.0.11:9150 or [::1]:9150
_HOST_AND_PORT = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A bridge: its status, or why it does not answer."""

    #: the configuration file, the control socket, or the URL of the admin port
    bridge: str
    #: such as "1 of 2", or blank if the clients are not divided
    shard: str
    status: BridgeStatus | None = None
    failure: str = ""

    @property
    def healthy(self) -> bool:
        """Whether the bridge answers and has no problem."""
        return self.status is not None and not self.status.problems and self.status.state is not BridgeState.STARTING


@takes(OUTPUT)
def status(
    bridges: Annotated[
        list[str],
        argument(
            "BRIDGE...",
            "Configuration files or control sockets of bridges on this host, and admin ports of bridges on any host, as"
            " host:port or URL.",
        ),
    ],
    token_file: Annotated[
        Path | None, option("FILE", "File with the token for the admin ports, of a user with the right to read.")
    ] = None,
    cafile: Annotated[
        Path | None, option("FILE", "Certificate authorities of https:// admin ports. Default: those of the system.")
    ] = None,
) -> None:
    """Show the bridges of several shards, one line each.

    Exit status 1 if a bridge does not answer, is starting or has a problem, otherwise 0.
    """
    token = "" if token_file is None else _token_in(token_file)
    asks = [
        partial(_status_at, url, token, cafile) if (url := _url(bridge)) else partial(_status_of, bridge)
        for bridge in bridges
    ]
    with ThreadPoolExecutor(_AT_ONCE) as executor:
        statuses = [answer.result() for answer in [executor.submit(query) for query in asks]]
    print_records(statuses, lambda shard_status: shard_status.shard or shard_status.bridge, table=_print_table)
    if not all(shard_status.healthy for shard_status in statuses):
        raise typer.Exit(FAILED)


def _token_in(file: Path) -> str:
    """Read a token from its file: the token alone, or the first token of a file for admin.token_file."""
    lines = file.read_text(encoding="utf-8").splitlines()
    line = next((line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    token = re.sub("^[^:]*:(read|operate|change|application):", "", line)
    if not re.fullmatch("[!-~]+", token):
        raise Failure(f"{file} contains no token", WRONG_USAGE)
    return token


def _url(bridge: str) -> str:
    """Return the URL of an admin port, blank if the argument is a file."""
    if bridge.startswith(("http://", "https://")):
        try:
            split = urlsplit(bridge)
            valid = bool(split.hostname) and split.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise Failure(f"expected a URL such as https://host:port/, found {bridge!r}", WRONG_USAGE)
        return bridge
    return f"http://{bridge}/" if _HOST_AND_PORT.fullmatch(bridge) and not Path(bridge).exists() else ""


def _status_at(url: str, token: str, ca_file: Path | None) -> ShardStatus:
    """Ask an admin port."""
    # Imported only now, because most commands do not speak HTTP.
    from bridge.administration.admin_port import read_status

    try:
        status = read_status(url, token, ca_file)
    except NoBridge as error:
        return ShardStatus(bridge=url, shard="", failure=str(error))
    return ShardStatus(bridge=url, shard=status.shard, status=status)


def _status_of(file: str) -> ShardStatus:
    """Ask a control socket, or that of a configuration file."""
    path, shard = Path(file), ""
    if not (path.exists() and stat.S_ISSOCK(path.stat().st_mode)):
        configuration = configuration_in(path)
        shard = "" if configuration.shard is None else f"{configuration.shard.number} of {configuration.shard.of}"
        if configuration.control_socket_path is None:
            return ShardStatus(bridge=file, shard=shard, failure="the file has no control_socket")
        path = configuration.control_socket_path
    try:
        answer = ask(path, ShowStatus())
    except NoBridge as error:
        return ShardStatus(bridge=file, shard=shard, failure=str(error))
    status = result_of(ShowStatus(), answer)
    return ShardStatus(bridge=file, shard=status.shard or shard, status=status)


def _print_table(statuses: list[ShardStatus]) -> None:
    rows: list[tuple[str | int, ...]] = []
    for shard_status in statuses:
        if shard_status.status is None:
            rows.append((shard_status.shard or "?", "no answer", 0, 0, shard_status.failure))
            continue
        problems = "; ".join(problem.what for problem in shard_status.status.problems)
        rows.append(
            (
                shard_status.shard,
                str(shard_status.status.state),
                shard_status.status.clients,
                shard_status.status.sessions,
                problems,
            )
        )
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
    print_record(
        ShardOfClient(client, number, config.of), number, lambda place: write(f"shard {place.number} of {place.of}")
    )
