"""Pipelines written like those of an operator, run with the session, the queue manager and the broker of the tests."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from bridge.config.document import load
from bridge.spark.administration import CompletedBatch
from bridge.spark.environment import environment_of
from bridge.spark.pipeline import Pipeline, plan
from bridge.spark.runner import PipelineRunner
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.patience import PATIENCE
from tests.spark.conftest import Queues


class Bench:
    """A configuration file in a directory, and its pipelines."""

    def __init__(self, spark: SparkSession, queues: Queues, directory: Path) -> None:
        self.spark = spark
        self.queues = queues
        self.directory = directory
        self.file = directory / "bridge.yaml"
        #: batches and lines of all runs
        self.batches: list[CompletedBatch] = []
        self.lines: list[str] = []

    def write(self, text: str, **names: object) -> Path:
        """Write the configuration file. `$name` stands for the value of a keyword."""
        text = textwrap.dedent(text)
        for name, value in names.items():
            text = text.replace(f"${name}", str(value))
        self.file.write_text(text, encoding="utf-8")
        return self.file

    def plan(self, name: str, *, reads: bool = True) -> Pipeline:
        """Plan a pipeline. Raises Mistake."""
        configuration = load(self.file)
        environment = environment_of(configuration, self.file, self.queues.directory)
        environment = msgspec.structs.replace(environment, directory=self.directory / "state")
        return plan(self.spark, name, configuration.pipelines[name], environment, reads=reads)

    def runner(self, *names: str, once: bool = True, attempts: int = 1, **options: Any) -> PipelineRunner:
        """Return a Runner of the named pipelines, or of all."""
        chosen = names or tuple(load(self.file).pipelines)

        def planned(name: str) -> Callable[[], Pipeline]:
            return lambda: self.plan(name)

        runner_options = {
            "report": self.lines.append,
            "on_batch": self.batches.append,
            "stop_timeout": PATIENCE,
            **options,
        }
        return PipelineRunner(
            self.spark, {name: planned(name) for name in chosen}, once=once, attempts=attempts, **runner_options
        )

    def run(self, *names: str) -> None:
        """Run pipelines until all available messages are processed."""
        assert not self.runner(*names).run(), self.lines

    def sums(self) -> dict[str, int]:
        """Return rows in and out, dead letters and late rows of all batches, without zeros."""
        sums = {"in": 0, "out": 0, "dead": 0, "late": 0}
        for batch in self.batches:
            counts = {"in": batch.rows_in, "out": batch.rows_out, "dead": batch.dead_letters, "late": batch.late}
            sums = {name: sums[name] + count for name, count in counts.items()}
        return {name: count for name, count in sums.items() if count}


@pytest.fixture
def bench(spark: SparkSession, queues: Queues, tmp_path: Path) -> Bench:
    return Bench(spark, queues, tmp_path)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """A mosquitto."""
    broker = Mosquitto(tmp_path_factory.mktemp("broker"), "allow_anonymous true")
    yield broker.start()
    broker.stop()
