"""Pipelines on a cluster whose workers have no bridge of their own: `mqbridge pipeline submit`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from bridge.cli import options, pipeline
from bridge.cli.failures import WRONG_USAGE, Failure
from bridge.cli.output import note, write

if TYPE_CHECKING:
    from bridge.config import PipelineConfig
    from bridge.spark.flow.environment import PipelineEnvironment

#: What `spark-submit` runs.
_PROGRAM: Final = Path(__file__).with_name("__main__.py")


class DeployMode(StrEnum):
    """Where the driver runs, by Spark's words."""

    client = "client"
    cluster = "cluster"


def submit(
    names: pipeline.Names = None,
    master: options.Master = None,
    deploy_mode: Annotated[
        DeployMode, typer.Option(help="Where the driver runs: in this process, or on a machine of the cluster.")
    ] = DeployMode.client,
    archive: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The archive to use, made where it is not there; without it, one in the cache directory.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be made and run, and do nothing.")] = False,
    conf: pipeline.Conf = None,
    packages: pipeline.Packages = None,
    jars: pipeline.Jars = None,
    once: pipeline.Once = False,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """Run pipelines on a cluster whose workers have Java, Spark and Python, and no bridge.

    It makes an archive of the Python environment that this command runs in, once for each that is new, which Spark brings to
    the workers. Then it is `pipeline run`; with `--deploy-mode cluster` (YARN, Kubernetes) that runs on a machine of the
    cluster, for which the configuration file and the checkpoints are below a directory of `spark.shared`.
    """  # fmt: skip
    file, configuration = pipeline.configuration_of(config)
    from bridge.config.pipeline import is_remote
    from bridge.spark.archived_environment import ArchivedEnvironment
    from bridge.spark.java import find_java
    from bridge.spark.session import UNPACKED

    chosen = pipeline.chosen_of(configuration, names)
    master = master or configuration.spark.master
    if master is None or not is_remote(master):
        sentence = f"--master: expected a cluster, such as spark://host:7077, yarn or k8s://..., found {master or 'none'}"
        raise Failure(f"{sentence} (for this machine: mqbridge pipeline run)", WRONG_USAGE)
    if deploy_mode == "cluster" and master.startswith("spark:"):
        sentence = "--deploy-mode cluster: expected client, because Spark's own master runs no driver in Python"
        raise Failure(sentence, WRONG_USAGE)
    environment = pipeline.environment_of(configuration, file, data_dir, master)
    if deploy_mode == "cluster":
        _check_shared(file, chosen, environment)
    settings = pipeline.settings_of(configuration.spark, conf, packages, jars)
    packed = ArchivedEnvironment()
    place = archive or str(packed.file)
    settings["spark.archives"] = ",".join(filter(None, [settings.get("spark.archives"), f"{place}#{UNPACKED}"]))
    options_of_run = [*(["--once"] if once else []), *(["--data-dir", str(data_dir.absolute())] if data_dir else [])]
    command = _command(master, deploy_mode, settings, [*chosen, "--config", str(file.absolute()), *options_of_run])
    is_there = bool(urlsplit(place).scheme) or Path(place).exists()
    if dry_run:
        write(f"archive: {place} ({'is there' if is_there else f'would be made of {len(packed.files)} files'})")
        write(shlex.join(command))
        return
    if not is_there:
        note(f"making {place}, of the Python environment in {sys.prefix}")
        if archive:
            packed.write(Path(archive))
    with nullcontext() if archive else packed.kept():
        if deploy_mode == "client":
            pipeline.run_all(file, configuration, chosen, environment, master, settings, once=once)
        else:
            raise typer.Exit(subprocess.run(command, env=os.environ | find_java().environment).returncode)


def _command(master: str, deploy_mode: DeployMode, settings: dict[str, str], run: list[str]) -> list[str]:
    """Return the command of Spark's that runs `mqbridge pipeline run` on a cluster."""
    from pyspark.find_spark_home import _find_spark_home

    from bridge.spark.session import UNPACKED_PYTHON, UNPACKED_WORKER

    python = sys.executable if deploy_mode == "client" else UNPACKED_PYTHON
    said = {**settings, "spark.pyspark.python": UNPACKED_WORKER, "spark.pyspark.driver.python": python}
    archives = ["--archives", said.pop("spark.archives")]
    confs = [part for name, value in said.items() for part in ("--conf", f"{name}={value}")]
    submit = [f"{_find_spark_home()}/bin/spark-submit", "--master", master, "--deploy-mode", deploy_mode.value]
    return [*submit, "--name", "mqbridge", *archives, *confs, str(_PROGRAM), "pipeline", "run", *run, "--master", master]


def _check_shared(file: Path, chosen: dict[str, PipelineConfig], environment: PipelineEnvironment) -> None:
    """Check that a driver on another machine has the configuration file, and goes on with the checkpoints. Raises Failure."""
    places = {"the configuration file": file.absolute()}
    places |= {f"the checkpoint of {name}": environment.directory_of(name, one) for name, one in chosen.items()}
    for what, path in places.items():
        if not any(path.is_relative_to(one) for one in environment.shared):
            known = ", ".join(map(str, environment.shared)) or "there is none"
            sentence = f"expected {what} below a directory of spark.shared ({known}), because the driver may run anywhere"
            raise Failure(f"--deploy-mode cluster: {sentence}, found {path}", WRONG_USAGE)
