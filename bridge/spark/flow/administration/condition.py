"""The condition of a pipeline: what it does or did, what waits for it, and whether a process runs it."""

from __future__ import annotations

from typing import Any

import msgspec

from bridge.config import PipelineConfig
from bridge.mq.mqi import MQError
from bridge.spark.errors import OptionError
from bridge.spark.flow.administration.lag import waiting
from bridge.spark.flow.administration.status import Status, read_status, runs
from bridge.spark.flow.environment import PipelineEnvironment
from bridge.spark.spool import SpoolDamaged


class StatusDamaged(Exception):
    """The file with the status of a pipeline cannot be read; the text says what to do."""


def condition(name: str, config: PipelineConfig, environment: PipelineEnvironment, now: float) -> dict[str, Any]:
    """Return what there is to say of a pipeline, as `mqbridge pipeline show --json` has it. Raises StatusDamaged, OSError."""
    directory = environment.directory_of(name, config)
    process = runs(directory)
    try:
        status = read_status(directory)
    except msgspec.DecodeError as error:
        raise StatusDamaged(f"{directory}: status.json is damaged, and may be removed: {error}") from error
    left, unknown = None, None
    try:
        left = waiting(name, config, environment)
    except (MQError, OSError, OptionError, SpoolDamaged) as error:
        unknown = str(error)
    if left is None and status is not None and process is not None and status.last_batch is not None:
        left = status.last_batch.waiting
    # As the last batch has told, of what waits behind it: nobody looks at the messages of a queue for that here.
    oldest = status.last_batch.oldest if left and status is not None and status.last_batch is not None else None
    rates = (0.0, 0.0) if status is None or process is None else status.rate(now)
    fields = msgspec.to_builtins(status) if status is not None else dict.fromkeys(Status.__struct_fields__)
    fields.pop("recent")
    return {
        "name": name,
        **fields,
        "state": state_of(status, process),
        "process": None if process is None else int(process) if process.isdecimal() else process,
        "rows_in_per_second": round(rates[0], 1),
        "rows_out_per_second": round(rates[1], 1),
        "waiting": left,
        "oldest": oldest,
        "waiting_unknown": unknown,
        "directory": str(directory),
    }


def state_of(status: Status | None, process: str | None) -> str:
    """Return the state of a pipeline in words; `process` runs it."""
    if process is not None:
        return "starting" if status is None or status.until is not None else status.state
    if status is None:
        return "never run"
    return "killed" if status.until is None else status.state
