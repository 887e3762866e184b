"""Sessions: what is imported when, what is missing, and how Spark calls Python."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from bridge.spark.errors import SparkMissing
from bridge.spark.java import QUICK_JAVA
from bridge.spark.registration import ADDED_BY_SPARK, register
from bridge.spark.session import PYTHON_VARIABLE, PYTHON_WORKER, session
from tests.helpers.patience import PATIENCE, until


def test_the_settings_that_the_sources_rely_on(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.validateSchema.enabled") == "true"
    # What the caller sets wins.
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"


def test_what_ends_this_process_group_spares_the_jvm(spark: SparkSession) -> None:
    """Who has to bring a batch to its end needs it until then."""
    jvm: Any = spark._jvm
    assert os.getpgid(jvm.java.lang.ProcessHandle.current().pid()) != os.getpgrp()


def test_a_stream_that_begins_adds_nothing_that_others_are_serialized_with(spark: SparkSession) -> None:
    """Spark puts some names into a map of the source; they have been in there since it was made known."""
    jvm: Any = spark._jvm
    register(spark)
    assert not ADDED_BY_SPARK.keys() & spark.sparkContext.environment.keys()
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    for name in ("mq", "mqtt"):
        assert ADDED_BY_SPARK.keys() <= set(sources.lookupDataSource(name).dataSourceCls().envVars().keySet())
    runner = "org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner"
    resource = jvm.java.lang.Class.forName(runner).getResourceAsStream("PythonStreamingSourceRunner.class")
    names = set(re.findall(rb"SPARK_[A-Z_]+", bytes(resource.readAllBytes())))
    assert names == {name.encode() for name in ADDED_BY_SPARK}


def test_spark_is_imported_by_those_who_use_it_only() -> None:
    """Not by the commands, nor by who imports the package for `register`."""
    found = "{'pyspark', 'pyarrow', 'pandas', 'numpy'} & set(sys.modules)"
    command = f"import sys, bridge.cli.program, bridge.spark, mqbridge; sys.exit(str({found}) if {found} else 0)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["pyspark", "pyarrow", "pandas"])
def test_a_missing_package_is_said_with_what_installs_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def find_spec(name: str, *rest: Any) -> Any:
        return None if name == package else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(SparkMissing, match=rf"^{package} is not installed: `.* -m pip install '.*'` installs it$"):
        session()


def test_workers_import_what_is_installed() -> None:
    """Spark's archives go off PYTHONPATH, what the user has there stays."""
    archives = "/s/python/lib/pyspark.zip:/mine:/s/python/lib/py4j-0.10.9.9-src.zip:/s/jars/spark-core_2.13-4.3.0.jar"
    printed = subprocess.run(
        [PYTHON_WORKER, "-c", "import os; print(os.environ['PYTHONPATH'])"],
        env={"PYTHONPATH": f"{archives}:/yours", PYTHON_VARIABLE: sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout == "/mine:/yours\n"


@pytest.mark.parametrize("worker", ["pyspark.worker", "pyspark.sql.worker.create_data_source"])
def test_what_forks_workers_has_imported_all_and_started_no_thread(worker: str) -> None:
    """Else it were Spark's own daemon by the time that it says where it listens."""
    command = [PYTHON_WORKER, "-m", "pyspark.daemon", worker]
    given = os.environ | {PYTHON_VARIABLE: sys.executable}
    with subprocess.Popen(command, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdin is not None and daemon.stdout is not None
        assert int.from_bytes(daemon.stdout.read(4), "big") > 0  # the port
        assert "bridge.spark.daemon" in psutil.Process(daemon.pid).cmdline()
        assert psutil.Process(daemon.pid).num_threads() == 1
        daemon.stdin.close()


def test_programs_import_mqbridge() -> None:
    """What is installed beside the package under the name of the command."""
    import mqbridge

    import bridge.spark

    assert mqbridge.register is bridge.spark.register


SHORT = """
from bridge.spark.job import job

for number in range(2):
    with job("short", "local[1]", {"spark.driver.extraJavaOptions": "-Dmine=1"}, short=True) as spark:
        options = spark.conf.get("spark.driver.extraJavaOptions")
        print(spark.sparkContext._gateway.proc.pid, spark.range(number + 1).count(), options)
"""


@pytest.mark.slow
def test_a_short_job_waits_for_no_end_of_java() -> None:
    """One after the other, each with a Java of its own, which ends, and says nothing."""
    done = subprocess.run([sys.executable, "-c", SHORT], capture_output=True, text=True, check=True)
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert [line[1] for line in lines] == ["1", "2"]
    assert all(QUICK_JAVA in line[2] and line[2].endswith("-Dmine=1") for line in lines)
    assert done.stderr == "" and lines[0][0] != lines[1][0]
    until(lambda: not any(psutil.pid_exists(int(pid)) for pid, *_ in lines))


CLASSES = """
import sys
from bridge.spark.job import job

settings = {"spark.driver.extraJavaOptions": f"-Xlog:class+load=info:file={sys.argv[2]}"}
with job("classes", "local[1]", settings, short=sys.argv[1] == "short") as spark:
    print(spark.range(3).count())
"""


@pytest.mark.slow
def test_java_takes_the_classes_of_spark_from_an_archive(tmp_path: Path) -> None:
    """One that a run has left that ended in order; whatever is wrong with it, nobody is told, and Java starts without."""
    kept = tmp_path / "cache" / "mqbridge"

    def taken(kind: str, cache: Path = tmp_path / "cache") -> bool:
        """Whether a job, short or long, takes classes of Spark from it."""
        given = {name: value for name, value in os.environ.items() if name not in ("SPARK_CONF_DIR", "SPARK_HOME")}
        loaded = tmp_path / "loaded"
        command = [sys.executable, "-c", CLASSES, kind, str(loaded)]
        done = subprocess.run(command, env=given | {"XDG_CACHE_HOME": str(cache)}, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("3\n", "")
        return "org.apache.spark.SparkContext source: shared objects file" in loaded.read_text()

    kept.mkdir(parents=True)
    (kept / "classes-of-another.jsa").write_bytes(b"of a Java that is gone")
    (kept / ".classes.lock").touch()
    assert not taken("long")
    (archive,) = kept.glob("*.jsa")
    assert sorted(kept.iterdir()) == [kept / ".classes.lock", archive]
    assert taken("short")
    whole = archive.stat().st_size
    os.truncate(archive, whole // 2)
    assert not taken("short")
    os.truncate(archive, whole)  # its second half is zeros
    assert not taken("short")
    (tmp_path / "file").touch()
    assert not taken("long", cache=tmp_path / "file")


WRONG = """
from bridge.spark.job import JobFailed, job

try:
    with job("wrong", "local[1]", {"spark.log.level": "FATAL", "spark.driver.maxResultSize": "much"}, short=True):
        pass
except JobFailed as error:
    print(error)
"""


def test_a_session_that_cannot_be_made_is_told_in_a_line() -> None:
    done = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"Spark does not start: .*\n", done.stdout) and "\tat " not in done.stderr, done


BEGUN = """
import time
import bridge.spark.registration
from bridge.spark.session import session

def register(spark):
    print("made", flush=True)
    time.sleep({patience})

bridge.spark.registration.register = register
print("begun", flush=True)
session()
"""


@pytest.mark.parametrize("moment", ["while the JVM starts", "while the session is made"])
def test_ctrl_c_ends_a_session_that_is_half_made(moment: str) -> None:
    command = [sys.executable, "-c", BEGUN.format(patience=PATIENCE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not (java := children.read_text().split()):
            assert process.poll() is None
        if moment == "while the session is made":
            assert process.stdout.readline() == "made\n"
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(PATIENCE) != 0
    assert "KeyboardInterrupt" in said and "\tat " not in said, said
    assert not any(Path(f"/proc/{one}").exists() for one in java)
