"""What forks Python workers for Spark: its own `pyspark.daemon`, which has imported beforehand what they all import.

A worker that Spark's daemon forks imports Arrow, pandas and this package after the fork: 1.2 s of a processor for each,
before a query's first batch and after each task that failed. One that this daemon forks has them. Spark's rule, that a
daemon has no thread when it forks, is kept: where an import has started one after all, this becomes Spark's
plain daemon.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Final

#: What workers import, of Spark and of this package, with all that these import.
_MODULES: Final = (
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.worker.plan_data_source_read",
    "pandas",
    "pyarrow.compute",
    "bridge.pipeline.flow.sink",
    "bridge.pipeline.flow.mq_source",
    "bridge.pipeline.flow.mqtt_source",
    "bridge.pipeline.mapping",
    "bridge.pipeline.registration",
)
#: What keeps libraries from starting threads when they are imported: Arrow's allocator, and numpy's linear algebra.
_NO_THREADS: Final = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1"}
#: A directory of each thread of this process, on Linux.
_THREADS: Final = Path("/proc/self/task")


def import_all() -> bool:
    """Import what workers do; whether this process still has one thread."""
    for name in _MODULES:
        importlib.import_module(name)
    return len(list(_THREADS.iterdir())) == 1


def main() -> None:
    """Serve Spark, as `python -m pyspark.daemon` does."""
    for name, value in _NO_THREADS.items():
        os.environ.setdefault(name, value)
    if not _THREADS.exists() or not import_all():
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    from pyspark import daemon

    daemon.manager()


if __name__ == "__main__":
    main()
