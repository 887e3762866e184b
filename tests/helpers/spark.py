"""Settings of Spark for tests: a small session that starts quickly."""

from __future__ import annotations

import tempfile

from bridge.spark.session import QUICK_JAVA

JAVA_OPTIONS = f"{QUICK_JAVA} -Duser.timezone=UTC -Djava.io.tmpdir={tempfile.gettempdir()}"

SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
}
