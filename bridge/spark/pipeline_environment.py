"""The environment of pipelines: queue manager, configuration file, and the directories that keep how far they are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from bridge.config.link import LinkConfig
from bridge.config.models import Configuration
from bridge.config.pipeline import PipelineConfig, is_remote
from bridge.spark.remote_queue_manager import queue_manager_options

#: Spark's checkpoint in the directory of a pipeline.
CHECKPOINT: Final = "checkpoint"
#: Dead-letter queue of the embedded queue manager.
_EMBEDDED_DEAD_LETTERS: Final = "SYSTEM.DEAD.LETTER.QUEUE"


class PipelineEnvironment(msgspec.Struct, frozen=True):
    """What the pipelines of a configuration have in common."""

    #: absolute; None: all is as by default
    file: Path | None
    #: options of the source `mq` that say where the queue manager is
    queue_manager: dict[str, str]
    dead_letter_queue: str
    #: None: each pipeline says its own
    directory: Path | None
    #: seconds that a stopping pipeline may take for the batch that is under way
    patience: float
    #: of Spark, where tasks run on other machines; None: they run on this one
    master: str | None = None
    #: directories that those machines have, too
    shared: tuple[Path, ...] = ()
    links: dict[str, LinkConfig] = {}

    def directory_of(self, name: str, config: PipelineConfig) -> Path:
        """Return the directory of a pipeline: its checkpoint, its spool, what it could not write."""
        if config.checkpoint is not None:
            return config.checkpoint.absolute()
        assert self.directory is not None  # the configuration has seen to it
        return self.directory / name

    def source_options(self, name: str, config: PipelineConfig) -> dict[str, str]:
        """Return the options of the source `mq` or `mqtt` that a pipeline reads."""
        source, directory = config.source, self.directory_of(name, config)
        spool = str(directory / "spool")
        options = {"maxMessagesPerTrigger": str(config.batch), "spool": spool, **source.options}
        if self.master is not None and not any(directory.is_relative_to(shared) for shared in self.shared):
            options["embed"] = "true"
        if source.mq is None:
            return options | self.broker(source.link) | {"topic": str(source.mqtt)}
        if source.mq.queue is not None:
            return options | self.queue_manager | {"queue": source.mq.queue}
        return options | self.queue_manager | {"topic": str(source.mq.topic), "subscription": f"MQBRIDGE.PIPELINE.{name}"}

    def broker(self, link: str) -> dict[str, str]:
        """Return the options of the source `mqtt` that say where a broker is."""
        assert self.file is not None  # a pipeline comes from a file
        return {"config": str(self.file), "link": link}


def environment_of(
    configuration: Configuration, file: Path | None, data_directory: Path, master: str | None = None
) -> PipelineEnvironment:
    """Return the environment of a configuration; `data_directory` is that of an embedded queue manager.

    `master` is Spark's. Raises OutOfReach where its workers could not come to the queue manager.
    """
    settings = configuration.queue_manager
    far = master if is_remote(master) else None
    shared = tuple(one.absolute() for one in configuration.spark.shared)
    patience = configuration.limits.shutdown_timeout
    path = None if file is None else file.absolute()
    if settings.type == "ibm":
        assert path is not None
        dead_letters, directory, options = settings.dead_letter_queue, None, {"config": str(path)}
    else:
        data = data_directory.absolute()
        dead_letters, directory = _EMBEDDED_DEAD_LETTERS, data / "pipelines"
        options = {"dataDirectory": str(data), "queueManager": settings.name}
    if far is not None:
        options = queue_manager_options(configuration, far, options)
    return PipelineEnvironment(path, options, dead_letters, directory, patience, far, shared, dict(configuration.links))
