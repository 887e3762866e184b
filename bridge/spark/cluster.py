"""Checks for a cluster: its workers must reach the directories and brokers that a pipeline names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bridge.config import values
from bridge.config.link import LOCAL
from bridge.config.pipeline import Destination, PipelineConfig
from bridge.spark.mistake import Location, Mistake
from bridge.spark.pipeline_environment import PipelineEnvironment
from bridge.spark.remote_queue_manager import is_on_this_machine, workers_of


def check_reach(config: PipelineConfig, environment: PipelineEnvironment, directory: Path, *, stateful: bool) -> None:
    """Check that the tasks of a cluster reach all that a pipeline names. Raises Mistake.

    `directory` is that of the pipeline, with the checkpoint that tasks of a `stateful` query read.
    """
    if environment.master is None:
        return
    for location, path in _directories(config):
        _check_shared(location, path, environment)
    if stateful:
        _check_shared(("checkpoint",), directory, environment)
    if is_on_this_machine(environment.master):
        return
    for section, to in _destinations(config):
        if to.mqtt is None:
            continue
        host = "127.0.0.1" if to.link == LOCAL else environment.links[to.link].host
        if values.is_loopback(host):
            raise Mistake(
                (section, "mqtt"), f"a link to a broker that {workers_of(environment.master)} reach", f"a broker at {host}"
            )


def _directories(config: PipelineConfig) -> Iterator[tuple[Location, Path]]:
    """Yield the directories that tasks read and write, with their keys in the section of the pipeline."""
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
    for section, to in (("to", config.destination), ("late", config.late), ("dead_letters", config.dead_letters)):
        if to is not None:
            yield section, to


def _check_shared(location: Location, path: Path, environment: PipelineEnvironment) -> None:
    path = path.absolute()
    if any(path.is_relative_to(shared) for shared in environment.shared):
        return
    known = f" ({', '.join(map(str, environment.shared))})" if environment.shared else ""
    assert environment.master is not None
    expected = f"a path below a directory of spark.shared{known}, because {workers_of(environment.master)} use it"
    raise Mistake(location, expected, str(path))
