"""The environment of pipelines: their queue manager, directories and brokers, and whether workers of a cluster reach them.

Only the driver connects to queue managers and brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from bridge.config.models import PIPELINES, Configuration, LimitsConfig
from bridge.config.pipeline import PipelineConfig, is_remote
from bridge.spark.options import TLS_OPTIONS, UNIT_ROWS

#: Spark's checkpoint, the spool of the source, and the staged rows of the sinks, in the directory of a pipeline.
CHECKPOINT: Final = "checkpoint"
SPOOL: Final = "spool"
STAGE: Final = "stage"
#: Prefix of the name of a pipeline's subscription, followed by the name of the pipeline.
_SUBSCRIPTION: Final = "MQBRIDGE.PIPELINE."
#: Dead-letter queue of the embedded queue manager, and the name of the bridge as its application.
_EMBEDDED_DEAD_LETTERS: Final = "SYSTEM.DEAD.LETTER.QUEUE"
_EMBEDDED_APPLICATION: Final = "mqbridge"


class LetterCounts(msgspec.Struct, frozen=True):
    """The parameters for counting the dead letters of a bridge and its pipelines."""

    limits: LimitsConfig
    #: the application name with which the bridge puts messages
    application: str
    mappings: tuple[str, ...] = ()


class PipelineEnvironment(msgspec.Struct, frozen=True):
    """The common environment of the pipelines of a configuration."""

    #: absolute; None: no configuration file
    file: Path | None
    #: options of the source `mq` for the queue manager
    queue_manager: dict[str, str]
    dead_letter_queue: str
    #: None: each pipeline names its own
    directory: Path | None
    #: maximum duration of the current batch after a pipeline was stopped, in seconds
    stop_timeout: float
    #: master of a cluster. None: tasks run on this machine
    master: str | None = None
    #: directories that the workers of a cluster have, too
    shared: tuple[Path, ...] = ()
    #: the option `stage` of the sinks of one pipeline, if the workers reach its directory
    stage: dict[str, str] = {}
    letter_counts: LetterCounts = LetterCounts(LimitsConfig(), "")

    def staged(self, directory: Path) -> PipelineEnvironment:
        """Return the environment of one pipeline, whose sinks stage rows in its directory if the workers reach it."""
        reached = self.master is None or self.is_shared(directory)
        return msgspec.structs.replace(self, stage={"stage": str(directory / STAGE)} if reached else {})

    def directory_of(self, name: str, config: PipelineConfig) -> Path:
        """Return the directory of a pipeline, which contains its checkpoint, spool and status."""
        if config.checkpoint is not None:
            return config.checkpoint.absolute()
        assert self.directory is not None  # checked with the configuration
        return self.directory / name

    def source_options(self, name: str, config: PipelineConfig) -> dict[str, str]:
        """Return the options of the source `mq` or `mqtt` of a pipeline."""
        source, directory = config.source, self.directory_of(name, config)
        options = {"maxMessagesPerTrigger": str(config.batch), "spool": str(directory / SPOOL), **source.options}
        if self.embeds(name, config):
            options["embed"] = "true"
        if source.mq is None:
            return options | self.broker(source.link) | {"topic": str(source.mqtt)}
        if source.mq.queue is not None:
            return options | self.queue_manager | {"queue": source.mq.queue}
        return options | self.queue_manager | {"topic": str(source.mq.topic), "subscription": f"{_SUBSCRIPTION}{name}"}

    def sources_of(self, name: str, config: PipelineConfig) -> list[str]:
        """Return the queue, the subscription or the topic filters that a pipeline reads, by the names of their spools."""
        source = config.source
        if source.mqtt is not None:
            return [part.strip() for part in source.mqtt.split(",") if part.strip()]
        if source.mq is None:
            return []
        return [source.mq.queue] if source.mq.queue is not None else [f"subscription {_SUBSCRIPTION}{name}"]

    def spool_directories(self, pipelines: Mapping[str, PipelineConfig]) -> dict[str, Path]:
        """Return the directories of pipelines that have a spool, including pipelines that are no longer in the file."""
        directories = {name: self.directory_of(name, config) for name, config in pipelines.items()}
        if self.directory is not None and self.directory.is_dir():
            directories |= {path.name: path for path in self.directory.iterdir() if path.name not in directories}
        return {name: directory for name, directory in directories.items() if (directory / SPOOL).is_dir()}

    @staticmethod
    def fails_on_data_loss(config: PipelineConfig) -> bool:
        """Return whether a pipeline refuses to start if its spool has messages of a source that it no longer reads."""
        return str(_option(config, "failOnDataLoss")).lower() != "false"

    def embeds(self, name: str, config: PipelineConfig) -> bool:
        """Return whether messages travel with the tasks (option `embed`), because the workers do not reach the spool."""
        option = _option(config, "embed")
        if config.source.archive is not None or option is not None:
            return config.source.archive is None and str(option).lower() == "true"
        return self.master is not None and not self.is_shared(self.directory_of(name, config))

    def broker(self, link: str) -> dict[str, str]:
        """Return the options of the source or sink `mqtt` for the broker of a link."""
        assert self.file is not None  # a pipeline comes from a file
        return {"config": str(self.file), "link": link}

    def is_shared(self, path: Path) -> bool:
        """Return whether the workers of a cluster have a directory, too."""
        return any(path.absolute().is_relative_to(shared) for shared in self.shared)

    def unreachable(
        self, config: PipelineConfig, directory: Path, *, stateful: bool
    ) -> Iterator[tuple[tuple[str, ...], str, str]]:
        """Yield the settings of a pipeline that workers of a cluster cannot use: the key, the expected and the actual value.

        `directory` is that of the pipeline, with the checkpoint that tasks of a `stateful` query use.
        """
        if self.master is None:
            return
        to, late, dead = config.destination, config.late, config.dead_letters
        path = None if to is None or not isinstance(to.path, Path) else to.path
        directories: dict[tuple[str, ...], Path | None] = {
            ("from", "archive"): config.source.archive,
            **{("tables", name): table for name, table in config.tables.items()},
            ("to", "archive"): None if to is None else to.archive,
            ("late", "archive"): None if late is None else late.archive,
            ("dead_letters", "archive"): dead.archive,
            ("to", "path"): path,
            ("checkpoint",): directory if stateful else None,
        }
        listed = f" ({', '.join(map(str, self.shared))})" if self.shared else ""
        for location, place in directories.items():
            if place is not None and not self.is_shared(place):
                expected = f"a path below a directory of spark.shared{listed}, because workers of {self.master} use it"
                yield location, expected, str(place.absolute())
        if str(_option(config, "embed")).lower() == "false" and not self.is_shared(directory):
            shared = f"a path below a directory of spark.shared{listed}"
            expected = f"true, or as checkpoint {shared}, because workers read the spool"
            yield ("from", "options", "embed"), expected, "false"
        if not self.is_shared(directory) and (config.mapping or (to and to.mq) or (late and late.mq)):
            # A request of a mapping needs two messages.
            most = UNIT_ROWS // 2 if config.mapping else UNIT_ROWS
            shared = f"a path below a directory of spark.shared{listed}"
            if config.source.archive is not None:
                why = f"because workers of {self.master} stage batches of more than {most} rows there"
                yield ("checkpoint",), f"{shared}, {why}", str(directory)
            elif config.batch > most:
                why = f"because workers of {self.master} stage larger batches there"
                yield ("batch",), f"at most {most}, or as checkpoint {shared}, {why}", str(config.batch)


def _option(config: PipelineConfig, name: str) -> str | None:
    """Return an option of the source, which may be written as in Spark programs or as in YAML. None: it is not set."""
    plain = {key.replace("_", "").lower(): value for key, value in config.source.options.items()}
    return plain.get(name.lower())


def environment_of(
    configuration: Configuration, file: Path | None, data_directory: Path, master: str | None = None
) -> PipelineEnvironment:
    """Return the environment of a configuration. `data_directory` is that of an embedded queue manager."""
    settings = configuration.queue_manager
    far = master if is_remote(master) else None
    shared = tuple(path.absolute() for path in configuration.spark.shared)
    stop_timeout = configuration.limits.shutdown_timeout
    path = None if file is None else file.absolute()
    if settings.type == "ibm":
        dead_letters, directory = settings.dead_letter_queue, None
        options = {} if path is None else {"config": str(path)}
    else:
        data_path = data_directory.absolute()
        dead_letters, directory = _EMBEDDED_DEAD_LETTERS, data_path / PIPELINES
        options = {"dataDirectory": str(data_path), "queueManager": settings.name}
    if far is not None:
        options = _remote_options(configuration, options)
    application = settings.application_name if settings.type == "ibm" else _EMBEDDED_APPLICATION
    counts = LetterCounts(configuration.limits, application, tuple(configuration.mappings))
    return PipelineEnvironment(path, options, dead_letters, directory, stop_timeout, far, shared, letter_counts=counts)


def environment_at_bridge(configuration: Configuration) -> PipelineEnvironment:
    """Return the environment of a configuration for a bridge, which inspects pipelines but starts none."""
    settings = configuration.queue_manager
    return environment_of(configuration, None, settings.data_directory if settings.type == "embedded" else Path())


def _remote_options(configuration: Configuration, local: dict[str, str]) -> dict[str, str]:
    """Return the options of the source `mq` if the driver does not run on the machine of the bridge (`spark.listener`)."""
    settings, spark = configuration.queue_manager, configuration.spark
    if spark.listener is None or settings.type == "ibm":
        return local
    options = {"listener": spark.listener, "queueManager": settings.name}
    if spark.tls is not None:
        options |= {"tls": "true", "tlsCheckHostName": str(spark.tls.check_host_name).lower()}
        tls_options = {name: getattr(spark.tls, key) for name, key in TLS_OPTIONS.items()}
        options |= {
            name: str(value) for name, value in tls_options.items() if value is not None and name not in options
        }
    if spark.user is not None:
        options |= {"user": spark.user, "passwordFile": str(spark.password_file)}
    return options
