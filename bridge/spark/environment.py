"""The environment of pipelines: their queue manager, directories and brokers, and what workers of a cluster reach of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from bridge.config import values
from bridge.config.link import LOCAL, LinkConfig
from bridge.config.models import Configuration
from bridge.config.pipeline import PipelineConfig, is_remote
from bridge.config.queue_manager import EmbeddedQueueManagerConfig, ListenerConfig
from bridge.spark.mqtt.broker import EVERYWHERE
from bridge.spark.options import TLS_OPTIONS

#: Spark's checkpoint, and the spool of the source, in the directory of a pipeline.
CHECKPOINT: Final = "checkpoint"
SPOOL: Final = "spool"
#: The subscription of a pipeline is named this and the pipeline's name.
_SUBSCRIPTION: Final = "MQBRIDGE.PIPELINE."
#: Dead-letter queue of the embedded queue manager.
_EMBEDDED_DEAD_LETTERS: Final = "SYSTEM.DEAD.LETTER.QUEUE"


class OutOfReach(Exception):
    """Workers do not reach the queue manager. The message names the keys that change this."""


class PipelineEnvironment(msgspec.Struct, frozen=True):
    """What the pipelines of a configuration have in common."""

    #: absolute; None: no configuration file
    file: Path | None
    #: options of the source `mq` for the queue manager
    queue_manager: dict[str, str]
    dead_letter_queue: str
    #: None: each pipeline names its own
    directory: Path | None
    #: seconds for the current batch when a pipeline stops
    patience: float
    #: master of a cluster. None: tasks run on this machine
    master: str | None = None
    #: directories that the workers of a cluster have, too
    shared: tuple[Path, ...] = ()
    links: dict[str, LinkConfig] = {}

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
        if self.master is not None and not self.is_shared(directory):
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
        """Return the directories of pipelines that have a spool, those that are no longer in the file, too."""
        found = {name: self.directory_of(name, config) for name, config in pipelines.items()}
        if self.directory is not None and self.directory.is_dir():
            found |= {path.name: path for path in self.directory.iterdir() if path.name not in found}
        return {name: directory for name, directory in found.items() if (directory / SPOOL).is_dir()}

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
        """Yield what the workers of a cluster do not reach of a pipeline: the key, what was expected and what was found.

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
        known = f" ({', '.join(map(str, self.shared))})" if self.shared else ""
        for location, found in directories.items():
            if found is not None and not self.is_shared(found):
                expected = f"a path below a directory of spark.shared{known}, because workers of {self.master} use it"
                yield location, expected, str(found.absolute())
        if to is not None and to.mqtt is not None and not _is_on_this_machine(self.master):
            host = "127.0.0.1" if to.link == LOCAL else self.links[to.link].host
            if values.is_loopback(host):
                expected = f"a link to a broker that workers of {self.master} reach"
                yield ("to", "mqtt"), expected, f"a broker at {host}"


def environment_of(
    configuration: Configuration, file: Path | None, data_directory: Path, master: str | None = None
) -> PipelineEnvironment:
    """Return the environment of a configuration. Raises OutOfReach if workers of `master` do not reach the queue manager.

    `data_directory` is that of an embedded queue manager.
    """
    settings = configuration.queue_manager
    far = master if is_remote(master) else None
    shared = tuple(path.absolute() for path in configuration.spark.shared)
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
        options = _remote_options(configuration, far, options)
    return PipelineEnvironment(path, options, dead_letters, directory, patience, far, shared, dict(configuration.links))


# The queue manager of a cluster --------------------------------------------------------------------------------------


def _is_on_this_machine(master: str) -> bool:
    """Return whether a master accepts only programs of this machine, so that its workers run here."""
    return values.is_loopback(urlsplit(master).hostname or "")


def _remote_options(configuration: Configuration, master: str, local: dict[str, str]) -> dict[str, str]:
    """Return the options of the source `mq` for workers of a master; `local`: for this machine. Raises OutOfReach."""
    settings, spark = configuration.queue_manager, configuration.spark
    if not isinstance(settings, EmbeddedQueueManagerConfig):
        if settings.mode == "bindings" and not _is_on_this_machine(master):
            raise OutOfReach(
                f"workers of {master} do not reach queue manager {settings.name} in mode bindings: expected"
                " queue_manager.mode: client, with channel and connections"
            )
        return local
    listener = settings.listener
    options = {"listener": spark.listener or _address(listener, master), "queueManager": settings.name}
    if spark.tls is not None:
        options |= {"tls": "true", "tlsCheckHostName": str(spark.tls.check_host_name).lower()}
        named = {name: getattr(spark.tls, key) for name, key in TLS_OPTIONS.items()}
        options |= {name: str(value) for name, value in named.items() if value is not None and name not in options}
    elif listener is not None and listener.tls is not None:
        raise OutOfReach("queue_manager.listener has TLS: expected spark.tls, with a ca_file that is on each worker")
    if spark.user is not None:
        return options | {"user": spark.user, "passwordFile": str(spark.password_file)}
    if listener is not None and not listener.believes:
        raise OutOfReach(
            "queue_manager.listener asks for a password: expected spark.user, and spark.password_file, a file on each worker"
            " whose first line is the password of that user"
        )
    return options


def _address(listener: ListenerConfig | None, master: str) -> str:
    """Return `host(port)` at which workers reach a listener. Raises OutOfReach."""
    if listener is None:
        raise OutOfReach(
            f"workers of {master} reach the queue manager by TCP only, and it does not listen: expected"
            " queue_manager.listener with address, port and password_file (and spark.user, spark.password_file)"
        )
    here, address = _is_on_this_machine(master), listener.address
    if listener.port == 0 or (not here and (address in EVERYWHERE or values.is_loopback(address))):
        raise OutOfReach(
            f"workers of {master} do not reach queue_manager.listener at {address}({listener.port}): expected spark.listener:"
            " host(port), as workers reach it"
        )
    return f"{EVERYWHERE.get(address, address)}({listener.port})"
