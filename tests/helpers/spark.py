"""Settings of Spark in tests: a small and quickly started session."""

from __future__ import annotations

import tempfile

#: A Java that starts fast: it compiles fast rather than well, and checks no byte code.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
JAVA_OPTIONS = f"{QUICK_JAVA} -Duser.timezone=UTC -Djava.io.tmpdir={tempfile.gettempdir()}"

SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
}
