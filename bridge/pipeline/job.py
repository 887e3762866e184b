"""A Spark session for one job of the command line, and what goes wrong with it in words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from bridge.pipeline.session import has_ended, session


class JobFailed(Exception):
    """Spark cannot do the job; the text is Spark's own, for a person."""


@contextlib.contextmanager
def job(name: str, master: str | None, settings: Mapping[str, str]) -> Iterator[Any]:
    """Yield a session (`pyspark.sql.SparkSession`) that ends with the job.

    Raises SparkMissing where Spark or what it needs is not there, JobFailed for errors of Spark within.
    """
    spark = session(name, master=master, settings=settings)
    from pyspark.errors import PySparkException

    try:
        yield spark
    except PySparkException as error:
        raise JobFailed(f"Spark cannot do it: {error}") from error
    finally:
        if not has_ended(spark):
            spark.stop()
