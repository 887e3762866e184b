"""What tasks of Spark reach that run on other machines than the driver: brokers and directories.

What they do not reach is refused before anything starts: what they write to a directory of their own nobody would find.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame

from bridge.config import Destination, PipelineConfig, values
from bridge.config.link import LOCAL
from bridge.spark.flow.environment import PipelineEnvironment
from bridge.spark.flow.mistake import Location, Mistake
from bridge.spark.flow.remote_queue_manager import is_on_this_machine, workers_of

#: Operators of Spark that keep state in the checkpoint, from where tasks read it.
_STATEFUL: Final = ("Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct")


def check_reach(
    config: PipelineConfig,
    environment: PipelineEnvironment,
    directory: Path,
    frame: DataFrame,
    broker: Mapping[str, str] | None,
    staging: Path | None,
) -> None:
    """Check that tasks reach all that a pipeline names. Raises Mistake.

    `directory` keeps its checkpoint, `frame` is what it makes, `broker` the options of where it publishes, `staging` where
    a batch is kept before it is written.
    """
    if environment.master is None:
        return
    for location, path in _directories(config):
        _check_shared(location, path, environment, "read and write there")
    if config.dead_letters.mqtt is not None or config.dead_letters.format is not None:
        why = "leave dead letters there, which the driver writes where they go"
        _check_shared(("checkpoint",), directory, environment, why)
    published: list[tuple[Location, str]] = [
        ((section, "mqtt"), to.link) for section, to in _destinations(config) if to.mqtt is not None
    ]
    if config.destination is None and broker is not None:
        published.append((("mapping",), broker["link"]))
    for place, link in [] if is_on_this_machine(environment.master) else published:
        host = "127.0.0.1" if link == LOCAL else environment.links[link].host
        if values.is_loopback(host):
            what = "the bridge itself, as this machine alone reaches it" if link == LOCAL else f"a broker at {host}"
            raise Mistake(place, f"a link to a broker that {workers_of(environment.master)} reach, too", what)
    if has_state(frame):
        _check_shared(("checkpoint",), directory, environment, "keep there what the SELECT remembers from batch to batch")
    if staging is not None:
        why = "keep there what the SELECT makes of a batch, which might come out otherwise when it is run again"
        _check_shared(("checkpoint",), staging, environment, why)


def _directories(config: PipelineConfig) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield what tasks read and write on disk, with its place in the section of the pipeline."""
    if config.source.archive is not None:
        yield ("from", "archive"), config.source.archive
    for name, path in config.tables.items():
        yield ("tables", name), path
    for section, to in _destinations(config):
        if to.archive is not None:
            yield (section, "archive"), to.archive
        if isinstance(to.path, Path):
            yield (section, "path"), to.path


def _destinations(config: PipelineConfig) -> Iterator[tuple[str, Destination]]:
    """Yield the destinations of a pipeline, with the sections that say them."""
    for section, to in (("to", config.destination), ("late", config.late), ("dead_letters", config.dead_letters)):
        if to is not None:
            yield section, to


def _check_shared(location: tuple[str, ...], path: Path, environment: PipelineEnvironment, why: str) -> None:
    path = path.absolute()
    if any(path.is_relative_to(one) for one in environment.shared):
        return
    known = f" ({', '.join(map(str, environment.shared))})" if environment.shared else ""
    assert environment.master is not None
    raise Mistake(
        location,
        f"a path below one of the directories spark.shared{known}, because {workers_of(environment.master)} {why}, each on"
        " a disk of its own where it is not shared",
        str(path),
    )


def directory_of_tasks(environment: PipelineEnvironment, directory: Path) -> Path:
    """Return where a task may leave what it reads again itself: in the directory of a pipeline, where it has that."""
    if environment.master is None:
        return directory
    return Path(tempfile.gettempdir(), f"mqbridge-{hashlib.sha256(str(directory).encode()).hexdigest()[:16]}")


def has_state(frame: DataFrame) -> bool:
    """Return whether a streaming frame keeps state."""
    return _any_stateful(frame._jdf.queryExecution().analyzed())


def _any_stateful(plan: Any) -> bool:
    if not plan.isStreaming():
        return False
    name = str(plan.nodeName())
    children = [plan.children().apply(number) for number in range(plan.children().size())]
    if name in _STATEFUL or "State" in name or (name == "Join" and all(one.isStreaming() for one in children)):
        return True
    return any(map(_any_stateful, children))
