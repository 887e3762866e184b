"""Metrics of pipelines: what the processes that run them have written down, as `mqbridge pipeline show` reads it."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from bridge.config import Configuration, EmbeddedQueueManagerConfig
from bridge.service.metrics.catalogue import Samples
from bridge.spark.administration import read_status, runs
from bridge.spark.pipeline_environment import environment_of

log = logging.getLogger(__name__)


def gather_pipelines(samples: Samples, configuration: Configuration) -> None:
    """Add what is known of each pipeline of a configuration; one that has never run is down. Reads small files."""
    if not configuration.pipelines:
        return
    settings = configuration.queue_manager
    data = settings.data_directory if isinstance(settings, EmbeddedQueueManagerConfig) else Path()
    environment = environment_of(configuration, None, data)
    for name, pipeline in configuration.pipelines.items():
        try:
            _gather(samples, name, environment.directory_of(name, pipeline))
        except (OSError, msgspec.DecodeError) as error:
            log.debug("pipeline %s is in no metric: %s", name, error)


def _gather(samples: Samples, name: str, directory: Path) -> None:
    status = read_status(directory)
    samples.add("mqbridge_pipeline_up", runs(directory) is not None, name)
    if status is None:
        return
    kinds = {"in": status.rows_in, "out": status.rows_out, "dead_letter": status.dead_letters, "late": status.late}
    for kind, rows in kinds.items():
        samples.add("mqbridge_pipeline_rows_total", rows, name, kind)
    samples.add("mqbridge_pipeline_batches_total", status.batches, name)
    if status.last_batch is not None:
        samples.add("mqbridge_pipeline_last_batch_timestamp_seconds", status.last_batch.at, name)
        if status.last_batch.waiting is not None:
            samples.add("mqbridge_pipeline_waiting_messages", status.last_batch.waiting, name)
    if status.last_error is not None:
        samples.add("mqbridge_pipeline_last_error_timestamp_seconds", status.last_error.at, name)
