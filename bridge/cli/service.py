"""The bridge itself: `mqbridge run`, `check`, `schema` and `version`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli import options
from bridge.cli.failures import WRONG_USAGE, Failure

if TYPE_CHECKING:
    from bridge.config import Configuration


def run(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="Configuration file; without it, all is as by default."),
    ] = None,
    data_dir: options.DataDirectory = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="N", help="TCP port of the first channel; 0: any free one.", show_default=False
        ),
    ] = None,
    log_level: Annotated[
        options.LogLevel | None, typer.Option(help="Least severe entries of the log.", show_default=False)
    ] = None,
) -> None:
    """Run the bridge in the foreground, until Ctrl-C or SIGTERM."""
    from bridge.cli.queue_manager import configuration_in, read

    file = configuration_in(config) if config is not None else None
    configuration = configured(file, data_dir, port, log_level.value if log_level else None)
    from bridge.service.process import run as serve
    from bridge.service.reload import ConfigurationSource

    source = ConfigurationSource(config, file, read) if config is not None and file is not None else None
    if configuration.admin.port is None:
        raise typer.Exit(serve(configuration, source))
    # Imported only where there is an admin port: with it comes an HTTP server.
    from bridge.console.server import AdminPort

    raise typer.Exit(serve(configuration, source, AdminPort))


def configured(
    file: Configuration | None, data_dir: Path | None, port: int | None, log_level: str | None
) -> Configuration:
    """Return the configuration that a file (None: there is none) and the options of `mqbridge run` give together."""
    from bridge.cli.queue_manager import data_directory
    from bridge.config import default_configuration
    from bridge.config.models import clashes

    base = file or default_configuration()
    changes: dict[str, object] = {}
    if base.queue_manager.type == "embedded":
        directory = {"data_directory": data_directory(data_dir, file)}
        changes["queue_manager"] = base.queue_manager.model_copy(update=directory)
    elif data_dir is not None:
        raise Failure(f"--data-dir {data_dir}: a queue manager of IBM MQ has no data directory here", WRONG_USAGE)
    if log_level is not None:
        changes["log"] = base.log.model_copy(update={"level": log_level})
    if port is not None:
        if not base.channels:
            raise typer.BadParameter(
                "the configuration file has no channel whose port it could be", param_hint="--port"
            )
        changes["channels"] = [base.channels[0].model_copy(update={"port": port}), *base.channels[1:]]
    configuration = base.model_copy(update=changes)
    if port is not None and (found := clashes(configuration)):
        text = "; ".join(f"expected {clash.expected}, found {clash.found}" for clash in found)
        raise Failure(f"--port {port}: {text}", WRONG_USAGE)
    return configuration


def schema(
    mapping_file: Annotated[
        bool, typer.Option("--mapping-file", help="That of a mapping file, which `mappings:` may name.")
    ] = False,
) -> None:
    """Print the JSON Schema of the configuration file, for editors.

    Save it and let the first line of the file name it: # yaml-language-server: $schema=mqbridge.schema.json
    """
    import json

    from bridge.config.json_schema import json_schema, mapping_file_schema

    typer.echo(json.dumps(mapping_file_schema() if mapping_file else json_schema(), indent=2))


def version() -> None:
    """Print the versions of the bridge, Python and the platform."""
    import platform

    import bridge

    pure = bridge.compilation.PURE
    typer.echo(f"mqbridge {bridge.__version__} ({f'pure Python: {pure}' if pure else 'compiled'})")
    typer.echo(f"Python {platform.python_version()} ({platform.python_implementation()})")
    typer.echo(platform.platform())
