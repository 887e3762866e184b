"""Pipelines written as an operator does, run to their end on the session, the queue manager and the broker of the tests."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from bridge.config import load
from bridge.spark.flow.environment import environment_of
from bridge.spark.flow.plan import Plan, plan, register
from bridge.spark.flow.progress import Batch
from bridge.spark.flow.runner import Runner
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
        #: of all runs
        self.batches: list[Batch] = []
        self.lines: list[str] = []

    def write(self, text: str, **names: object) -> Path:
        """The configuration file; `$name` in it is what the keyword says."""
        text = textwrap.dedent(text)
        for name, value in names.items():
            text = text.replace(f"${name}", str(value))
        self.file.write_text(text, encoding="utf-8")
        return self.file

    def plan(self, name: str) -> Plan:
        """A pipeline, analysed. Raises Mistake."""
        configuration = load(self.file)
        # Directories of its own for each test, though they share the queue manager.
        environment = environment_of(configuration, self.file, self.queues.directory)
        environment = msgspec.structs.replace(environment, directory=self.directory / "state")
        return plan(self.spark, name, configuration.pipelines[name], environment)

    def runner(self, *names: str, once: bool = True, attempts: int = 1, **options: Any) -> Runner:
        chosen = names or tuple(load(self.file).pipelines)

        def planned(name: str) -> Callable[[], Plan]:
            return lambda: self.plan(name)

        given = {"tell": self.lines.append, "seen": self.batches.append, "patience": PATIENCE, **options}
        return Runner(
            self.spark,
            {name: planned(name) for name in chosen},
            once=once,
            attempts=attempts,
            **given,
        )

    def run(self, *names: str) -> None:
        """Run pipelines until all that is there is done."""
        assert not self.runner(*names).run(), self.lines

    def run_mended(self, command: str) -> list[str]:
        """Run pipelines that go on after an MQSC command, which they get when they say that they try again; all lines."""
        lines: list[str] = []

        def tell(line: str) -> None:
            lines.append(line)
            if "tried again in" in line:
                self.queues.mqsc(command)

        assert self.runner(tell=tell).run() == []
        return lines


@pytest.fixture(scope="session")
def pipelines_known(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def bench(pipelines_known: None, spark: SparkSession, queues: Queues, tmp_path: Path) -> Bench:
    return Bench(spark, queues, tmp_path)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """A mosquitto."""
    broker = Mosquitto(tmp_path_factory.mktemp("broker"), "allow_anonymous true")
    yield broker.start()
    broker.stop()
