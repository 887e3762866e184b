"""A Spark session for one job of the command line, and what goes wrong with it in words."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bridge.spark.class_archive import ClassArchive
from bridge.spark.java import QUICK_JAVA, find_java
from bridge.spark.session import JAVA_OPTIONS, abandon, has_configuration, has_ended, session


class JobFailed(Exception):
    """Spark cannot do the job; the text is Spark's own, for a person."""


@contextlib.contextmanager
def job(
    name: str,
    master: str | None,
    settings: Mapping[str, str],
    *,
    short: bool = False,
    meanwhile: Callable[[], object] | None = None,
) -> Iterator[Any]:
    """Yield a session (`pyspark.sql.SparkSession`) that ends with the job.

    `short`: it computes little, so that what counts is how soon it has begun and ended. `meanwhile` is done while it begins.

    Raises SparkMissing where Spark or what it needs is not there, JobFailed for errors of Spark within.
    """
    own = [QUICK_JAVA] if short else []
    classes = None if has_configuration() else ClassArchive(find_java(), write=not short)
    if classes is not None:
        own.append(classes.options)
    if any(own):
        settings = {**settings, JAVA_OPTIONS: " ".join(filter(None, [*own, settings.get(JAVA_OPTIONS)]))}
    try:
        spark = session(name, master=master, settings=settings, meanwhile=meanwhile)
    except Exception as error:
        if (said := _why_not(error)) is None:
            raise
        raise JobFailed(f"Spark does not start: {said}") from error
    from pyspark.errors import PySparkException

    try:
        yield spark
    except PySparkException as error:
        raise JobFailed(f"Spark cannot do it: {error}") from error
    finally:
        if not has_ended(spark):
            process = getattr(spark.sparkContext._gateway, "proc", None)
            (abandon if short else type(spark).stop)(spark)
            if classes is not None:
                classes.finish(process)


def _why_not(error: Exception) -> str | None:
    """Return what Spark says of a session that cannot be made, without its stacks; None: the error is not of Spark."""
    try:
        from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
    except ImportError:
        return None
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getMessage()).strip().splitlines()[0]
    return str(error).strip().splitlines()[0] if isinstance(error, PySparkException | Py4JError) else None
