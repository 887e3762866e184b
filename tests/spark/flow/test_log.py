"""Standard error: what is told there of errors is told by pipelines, in words."""

from __future__ import annotations

import logging

import pytest
from py4j import java_gateway  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from bridge.spark.flow.log import silence


def test_neither_stacks_of_servers_nor_of_py4j(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    silence(spark)
    silence(spark)
    root = logging.getLogger()
    try:
        raise EOFError
    except EOFError:
        spark.sparkContext._accumulatorServer.handle_error(None, "")  # type: ignore[arg-type]
    of_py4j = root.makeRecord("root", logging.ERROR, java_gateway.__file__, 1060, "Exception while sending", (), None)
    assert not root.filter(of_py4j)
    assert root.filter(root.makeRecord("root", logging.ERROR, __file__, 1, "other", (), None))
    handler = logging.StreamHandler()  # as py4j adds one when it logs a lost connection
    root.addHandler(handler)
    try:
        logging.getLogger("py4j.clientserver").error("There was an exception while executing the Python Proxy")
    finally:
        root.removeHandler(handler)
    assert capfd.readouterr().err == ""
