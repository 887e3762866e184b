"""`mqbridge pipeline submit`: pipelines on a cluster whose workers have no bridge of their own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bridge.config.queue_manager import ListenerConfig
from bridge.spark.archived_environment import ArchivedEnvironment
from tests.helpers.served_queue_manager import ServedQueueManager
from tests.spark.cluster import can_stand_apart, cluster
from tests.spark.conftest import ROOT, Queues
from tests.spark.driver import CLUSTER

#: An archive is made, and a driver and a cluster are started, on what may be a busy machine.
PATIENCE = 600

FILE = """
queue_manager: {{data_directory: {directory}/data, listener: {{address: 10.1.2.3, port: 1414, allow_anonymous_remote: true}}}}
spark: {{conf: {{spark.executor.memory: 2g}}, shared: [{directory}/nfs]}}
pipelines:
  readings:
    from: {{mq: {{queue: IN}}}}
    select: SELECT body FROM input
    to: {{mq: {{queue: OUT}}}}
    checkpoint: {checkpoint}
"""


def submit(directory: Path, *arguments: str, file: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`mqbridge pipeline submit` of a file, its cache below a directory."""
    command = [str(Path(sys.executable).with_name("mqbridge")), "pipeline", "submit", *arguments]
    given = os.environ | {"PYTHONPATH": ROOT, "XDG_CACHE_HOME": str(directory / "cache")}
    command += ["--config", str(file or directory / "nfs" / "bridge.yaml")]
    return subprocess.run(command, cwd=directory, env=given, capture_output=True, text=True, timeout=PATIENCE)


def written(directory: Path, checkpoint: str = "one") -> None:
    (directory / "nfs").mkdir(exist_ok=True)
    text = FILE.format(directory=directory, checkpoint=checkpoint)
    (directory / "nfs" / "bridge.yaml").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("master", ["yarn", "k8s://https://10.0.0.1:6443"])
def test_what_spark_submit_would_run(master: str, tmp_path: Path) -> None:
    """The archive comes to driver and workers as `environment`, and Python is in it; nothing is made."""
    written(tmp_path)
    shown = submit(tmp_path, "--master", master, "--deploy-mode", "cluster", "--conf", "spark.a=b c", "--once", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    archive, command = shown.stdout.splitlines()
    place = archive.split()[1]
    assert place.startswith(f"{tmp_path}/cache/mqbridge/environment-") and "would be made of" in archive
    program, *words = shlex.split(command)
    assert Path(program).name == "spark-submit" and os.access(program, os.X_OK)
    at = next(number for number, word in enumerate(words) if word.endswith(".py"))
    options = list(zip(words[:at:2], words[1:at:2], strict=True))
    assert dict(options) | {"--conf": ""} == {
        "--master": master,
        "--deploy-mode": "cluster",
        "--name": "mqbridge",
        "--archives": f"{place}#environment",
        "--conf": "",
    }
    assert [value for name, value in options if name == "--conf"] == [
        "spark.executor.memory=2g",
        "spark.a=b c",
        "spark.pyspark.python=./environment/bin/python-worker",
        "spark.pyspark.driver.python=./environment/bin/python",
    ]
    file = f"{tmp_path}/nfs/bridge.yaml"
    assert words[at + 1 :] == ["pipeline", "run", "readings", "--config", file, "--once", "--master", master]
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("arguments", "checkpoint", "sentence"),
    [
        (["--master", "local[2]"], "one", "--master: expected a cluster, .* found local\\[2\\] .*: mqbridge pipeline run"),
        ([], "one", "--master: expected a cluster, .* found none"),
        (["--master", "spark://h:7077", "--deploy-mode", "cluster"], "one", "--deploy-mode cluster: expected client"),
        (["--master", "yarn", "--deploy-mode", "cluster"], "/var/x", "the checkpoint of readings below .*/nfs.*/var/x"),
    ],
)
def test_what_no_cluster_could_run_is_said_before(
    arguments: list[str], checkpoint: str, sentence: str, tmp_path: Path
) -> None:
    written(tmp_path, checkpoint)
    done = submit(tmp_path, *arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert re.search(sentence, line), line


def packed(**files: Path) -> ArchivedEnvironment:
    """An environment with these files only."""
    environment = ArchivedEnvironment()
    environment.files = {f"bin/{name}": path for name, path in files.items()}
    return environment


def test_an_archive_is_kept_while_its_environment_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "source"
    source.write_text("as it was")
    before = packed(one=source)
    with before.kept():
        assert before.file.parent.stat().st_mode & 0o777 == 0o700
        made = before.file.stat()
        with packed(one=source).kept():  # of another process
            assert before.file.stat().st_ino == made.st_ino
        source.write_text("is another now")
        unfinished = before.file.with_name(".environment-0123.tar.gz.4711")  # killed when it was written
        unfinished.touch()
        after = packed(one=source)
        with after.kept():
            assert before.file.exists() and not unfinished.exists()
    with packed(one=source).kept():
        assert after.file.exists() and not before.file.exists()
    with tarfile.open(after.file) as archive:
        assert {"bin/one", "bin/python", "pyvenv.cfg"} <= {one.name.removeprefix("./") for one in archive}


@pytest.mark.slow
@pytest.mark.skipif(not can_stand_apart(), reason="needs mount namespaces")
@pytest.mark.timeout(PATIENCE * 2)
def test_on_workers_that_have_neither_the_bridge_nor_its_packages(spark: SparkSession, tmp_path: Path) -> None:
    """What they have: Java, Spark, the interpreter that environments are made of, and what is shared."""
    seen, hidden = tmp_path / "seen", tmp_path / "hidden"
    seen.mkdir()
    (seen / "known").write_text("spark:s3cret\n", encoding="utf-8")
    (seen / "secret").write_text("s3cret\n", encoding="utf-8")
    with ServedQueueManager(hidden / "data", listener=ListenerConfig(password_file=seen / "known")) as served:
        queues = Queues(hidden / "data")
        source, target = queues.queue(), queues.queue()
        file = hidden / "bridge.yaml"
        file.write_text(
            f"""
            queue_manager:
              data_directory: {hidden}/data
              listener: {{port: {served.port}, password_file: {seen}/known}}
            spark: {{user: spark, password_file: {seen}/secret, shared: [{seen}]}}
            pipelines:
              rows:
                from: {{mq: {{queue: {source}}}, options: {{partitions: 2}}}}
                select: SELECT payload:n::int AS n FROM input DISTRIBUTE BY payload:n::int
                to: {{mq: {{queue: {target}}}, archive: {seen}/table}}
                checkpoint: {seen}/one
            """,
            encoding="utf-8",
        )
        confs = [f"--conf={name}={value}" for name, value in CLUSTER.items()]
        nowhere = [hidden, Path(sys.prefix), Path(ROOT)]  # what is hidden first may be in what is hidden then
        with cluster(spark, seen / "workers", nowhere, installed=seen / "installed") as master:
            queues.put(source, *(b'{"n": %d}' % number for number in range(60)))
            done = submit(tmp_path, "--master", master, "--once", *confs, file=file)
        assert done.returncode == 0 and "rows: done" in done.stderr, done.stderr
        assert sorted(one.name for one in seen.glob("workers/app-*/*")) == ["0", "1"]
        assert queues.depth(source) == 0
        assert sorted(queues.bodies(target)) == sorted(b'{"n":%d}' % number for number in range(60))
        assert spark.read.parquet(str(seen / "table")).count() == 60
        queues.connection.disconnect()
