"""Sessions: time of imports, missing packages, and Spark's calls of Python."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bridge.spark.session import ADDED_BY_SPARK, PYTHON_VARIABLE, PYTHON_WORKER, SparkMissing, register, session


def test_the_settings_that_the_sources_require(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.validateSchema.enabled") == "true"
    # Settings of the caller take precedence.
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"


def test_a_starting_stream_does_not_change_the_serialized_source(spark: SparkSession) -> None:
    """Spark puts some names into a map of the source. The registration has already added them."""
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


def test_only_functions_that_need_spark_import_it() -> None:
    """Neither commands nor programs that import the package for `register` import Spark."""
    imported = "{'pyspark', 'pyarrow', 'pandas', 'numpy'} & set(sys.modules)"
    command = f"import sys, bridge.cli.program, bridge.spark, mqbridge; sys.exit(str({imported}) if {imported} else 0)"
    process = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("package", ["pyspark", "pyarrow", "pandas"])
def test_the_error_for_a_missing_package_contains_the_installation_command(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec

    def find_spec(name: str, *rest: Any) -> Any:
        return None if name == package else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(SparkMissing, match=rf"^{package} is not installed: `.* -m pip install '.*'` installs it$"):
        session()


def test_workers_import_installed_packages() -> None:
    """Spark's archives are removed from PYTHONPATH, entries of the user stay."""
    archives = "/s/python/lib/pyspark.zip:/mine:/s/python/lib/py4j-0.10.9.9-src.zip:/s/jars/spark-core_2.13-4.3.0.jar"
    printed = subprocess.run(
        [PYTHON_WORKER, "-c", "import os; print(os.environ['PYTHONPATH'])"],
        env={"PYTHONPATH": f"{archives}:/yours", PYTHON_VARIABLE: sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout == "/mine:/yours\n"


WRONG = """
from bridge.spark.session import JobFailed, job

try:
    with job("wrong", "local[1]", {"spark.driver.maxResultSize": "much"}):
        pass
except JobFailed as error:
    print(error)
"""


def test_the_error_of_a_failed_session_is_one_line() -> None:
    process = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"Spark failed: .*\n", process.stdout) and "\tat " not in process.stderr, process
