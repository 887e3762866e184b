"""`mqbridge mqsc-script` and `mqbridge ibm-acceptance`: prepare a queue manager of IBM MQ for the bridge, and test it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from bridge.cli.failures import FAILED, WRONG_USAGE, Failure
from bridge.cli.queue_manager import configuration_in, configuration_of, connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.config import Configuration
    from bridge.mq.mqi import Connection


def print_mqsc_script(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Configuration file.", show_default=False)
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Grant authorities to this user.", show_default=False)
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Grant authorities to this group.  [default: mqbridge]", show_default=False),
    ] = None,
) -> None:
    """Print the MQSC script that prepares a queue manager for a configuration.

    The script defines the queues and the channel of the bridge, and grants its user or group the authorities that the
    configuration needs, and no others. Without a file it is the script of the default configuration. Run it as an
    administrator: mqbridge mqsc-script --config bridge.yaml | runmqsc QM1
    """
    from bridge.config import default_configuration
    from bridge.mq.ibm.mqsc_script import mqsc_script

    if user is not None and group is not None:
        raise Failure("--user and --group exclude each other: authorities are granted to one of them", WRONG_USAGE)
    for name in filter(None, (user, group)):
        if not name.isprintable() or "'" in name or " " in name:
            raise Failure(f"{name!r} is not the name of a user or group", WRONG_USAGE)
    configuration = configuration_of(config, None) or default_configuration()
    settings = configuration.queue_manager
    connects_as = user or (settings.user if settings.type == "ibm" else None) or "mqbridge"
    grantee = f"PRINCIPAL('{user}')" if user is not None else f"GROUP('{group or 'mqbridge'}')"
    typer.echo(mqsc_script(configuration, grantee, connects_as), nl=False)


def ibm_acceptance(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="Configuration file.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="Print each result as a line of JSON.")] = False,
) -> None:
    """Test a queue manager of IBM MQ before the bridge uses it for the first time.

    The tests connect as the bridge does, publish, subscribe, and send messages to a client that does not exist. They use
    names that begin with MQBRIDGE.ACCEPTANCE, and remove everything that they create. Stop the bridge first: tests that
    need the transmission queue are skipped while a bridge runs.

    Exit status 1 if a test fails. The report contains the reason for each skipped test.
    """
    from bridge.mq.ibm.acceptance import Acceptance
    from bridge.mq.ibm.requirements import requirements_of

    configuration = configuration_in(config)
    settings = configuration.queue_manager
    acceptance = Acceptance(
        lambda: connect(None, configuration),
        requirements_of(configuration),
        channel=(settings.channel or "") if settings.type == "ibm" else "",
        wrong_password=_wrong_password(configuration),
    )
    results = {"pass": 0, "skip": 0, "fail": 0}
    for outcome in acceptance.run():
        results[outcome.result] += 1
        if json:
            typer.echo(msgspec.json.encode(outcome).decode())
            continue
        typer.echo(f"{outcome.result:<5} {outcome.test}: {outcome.detail}")
        if outcome.remedy:
            typer.echo(f"      remedy: {outcome.remedy}")
    if not json:
        typer.echo(f"queue manager {settings.name}: " + ", ".join(f"{number} {word}" for word, number in results.items()))
    raise typer.Exit(FAILED if results["fail"] else 0)


def _wrong_password(configuration: Configuration) -> Callable[[], Connection] | None:
    """Return what connects with a wrong password; None if the configuration has no password."""
    settings = configuration.queue_manager
    if settings.type != "ibm" or settings.user is None:
        return None
    from bridge.mq.ibm.connection import connect_ibm
    from bridge.mq.ibm.parameters import load_library, parameters

    found = parameters(settings, os.environ)
    wrong = msgspec.structs.replace(found, password=f"{found.password[:8]}-wrong")
    return lambda: connect_ibm(load_library(settings.library), wrong)
