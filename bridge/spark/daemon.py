"""What forks Python workers for Spark: its own `pyspark.daemon`, which has imported beforehand what they all import.

A worker that Spark's daemon forks imports Arrow, pandas and this package after the fork: 1.2 s of a processor for each,
before a query's first batch and after each task that failed, and 1 s for each of the steps in which Spark plans a query.
One that this daemon forks has them. Spark's rule, that a daemon has no thread when it forks, is kept: where an import has
started one after all, this becomes Spark's plain daemon. `python-worker` runs it in place of that.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path
from typing import Final

#: What workers of data sources import, with all that these import.
_SOURCES: Final = (
    "bridge.spark.flow.sources.mq",
    "bridge.spark.flow.sources.mqtt",
    "bridge.spark.registration",
)
#: Those of tasks, more.
_TASKS: Final = (
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.worker.plan_data_source_read",
    "pandas",
    "pyarrow.compute",
    "bridge.spark.flow.sink",
    "bridge.spark.mapping",
)
#: What Spark has its daemon fork, by the module that it names: workers of tasks, and one that looks for packages only.
_TASK: Final = "pyspark.worker"
_LOOKUP: Final = "pyspark.sql.worker.lookup_data_sources"
#: What keeps libraries from starting threads when they are imported: Arrow's allocator, and numpy's linear algebra.
_NO_THREADS: Final = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1"}
#: A directory of each thread of this process, on Linux.
_THREADS: Final = Path("/proc/self/task")


def import_all(worker: str) -> bool:
    """Import what workers of a module of Spark do; return whether this process still has one thread."""
    if worker != _LOOKUP:
        for name in (worker, *_SOURCES, *(_TASKS if worker == _TASK else ())):
            importlib.import_module(name)
    return len(list(_THREADS.iterdir())) == 1


def main() -> None:
    """Serve Spark, as `python -m pyspark.daemon` does."""
    for name, value in _NO_THREADS.items():
        os.environ.setdefault(name, value)
    worker = sys.argv[1] if sys.argv[1:] else _TASK
    if not _THREADS.exists() or not import_all(worker):
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    from pyspark import daemon

    # A worker collects garbage after each task: 25 ms of a processor, if it had to look through what is imported.
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
