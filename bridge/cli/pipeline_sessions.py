"""Sessions at brokers that pipelines have left behind: `mqbridge pipeline end-session`."""

from __future__ import annotations

from typing import Annotated

import typer

from bridge.cli import options
from bridge.cli.failures import FAILED, Failure
from bridge.cli.output import write
from bridge.cli.pipeline import configuration_of, environment_of


def end_session(
    client_ids: Annotated[
        list[str],
        typer.Argument(metavar="CLIENTID…", help="Client identifiers, as `pipeline check` says them.", show_default=False),
    ],
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """End sessions at brokers that a pipeline has left behind when it was renamed, or read something else.

    The broker keeps no more for them, and what waits in them there is gone. To have that first, let a pipeline go on with the
    session, as `pipeline check` says. What is in the spool stays.
    """
    from bridge.spark.errors import OptionError
    from bridge.spark.flow.left_behind import end_sessions, left_behind
    from bridge.spark.mqtt.session_end import SessionNotEnded
    from bridge.spark.spool import SpoolDamaged

    file, configuration = configuration_of(config)
    environment = environment_of(configuration, file, data_dir)
    try:
        for line in end_sessions(client_ids, left_behind(configuration.pipelines, environment), environment):
            write(line)
    except (SessionNotEnded, SpoolDamaged, OptionError, OSError) as error:
        raise Failure(str(error), FAILED) from error
