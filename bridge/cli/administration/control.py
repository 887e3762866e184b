"""Commands' way to a running bridge: its control socket, by the configuration file or the data directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from bridge.cli.failures import FAILED, WRONG_USAGE, Failure

if TYPE_CHECKING:
    from bridge.administration.requests import Answer, AnyRequest

T = TypeVar("T")


def asked(request: AnyRequest, config: Path | None, data_dir: Path | None, timeout: float | None = None) -> Answer:
    """Have the running bridge answer a request, within so many seconds. Raises Failure where no bridge answers."""
    from bridge.administration.control_socket import ANSWER_TIMEOUT, NoBridge, ask
    from bridge.cli.queue_manager import connection_settings_of
    from bridge.cli.service import configured

    path = configured(connection_settings_of(config, data_dir), data_dir, None, None).control_socket_path
    if path is None:
        raise Failure(
            "the configuration file names no control_socket, which a bridge on IBM MQ needs for this; `kill -HUP` makes it"
            " reload, too",
            WRONG_USAGE,
        )
    try:
        return ask(path, request, ANSWER_TIMEOUT if timeout is None else timeout)
    except NoBridge as error:
        raise Failure(str(error)) from error


def shown(
    request: AnyRequest, kind: type[T], config: Path | None, data_dir: Path | None, timeout: float | None = None
) -> T:
    """Return what a request asks for. Raises Failure where it is refused, or no bridge answers."""
    import msgspec

    answer = asked(request, config, data_dir, timeout)
    if not answer.ok:
        raise Failure("\n".join(answer.lines), FAILED)
    return msgspec.json.decode(answer.result, type=kind)


def done(request: AnyRequest, config: Path | None, data_dir: Path | None, *, json: bool = False) -> None:
    """Have something done, and print what was. Raises Failure where it is refused, or no bridge answers."""
    answer = asked(request, config, data_dir)
    if not answer.ok:
        raise Failure("\n".join(answer.lines), FAILED)
    if json:
        from bridge.cli.output import write_json

        write_json({"ok": True, "lines": answer.lines})
        return
    for line in answer.lines:
        typer.echo(line)
