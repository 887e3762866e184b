"""Whether a SELECT goes on with the state that its checkpoint has: what Spark would say at its first batch, said before."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bridge.spark.flow.mistake import Mistake, sentence_of
from bridge.spark.flow.reach import has_state

#: Conditions of Spark's errors that tell of other state, and what of their sentence says which.
_OTHER_STATE: Final = re.compile(r"STATE_STORE_\w+_SCHEMA_NOT_COMPATIBLE|STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA")
_WHICH: Final = re.compile(r"(Existing .*?|Stateful operators in the metadata: .*?)(?:\. If you want.*)?$")


def check_state(spark: SparkSession, name: str, frame: DataFrame, checkpoint: Path) -> None:
    """Check that the operators of a streaming frame go on with the state in a checkpoint. Raises Mistake.

    Spark compares them when it plans the first batch of a run, whose messages it has chosen by then. It is made to plan one
    here, without any message: its rules (IncrementalExecution) read the state's schemas and write nothing. An error of any
    other kind is none of the SELECT: the query would have it, and tell.
    """
    numbers = [int(one.name) for one in checkpoint.glob("commits/*") if one.name.isdigit()]
    if not numbers:
        return
    expected = (
        "a SELECT with the state (windows, groups, joins) that its checkpoint has; to change it, run the old one with --once,"
        f" and then mqbridge pipeline reset {name}, which gives up the windows that are open"
    )
    if not any(checkpoint.glob("state/*/*")):
        if has_state(frame):
            raise Mistake(("select",), expected, "one with state, and a checkpoint without")
        return
    try:
        _planned(spark, frame, checkpoint, max(numbers))
    except (PySparkException, Py4JError) as error:
        if not _OTHER_STATE.search(str(error)):
            return
        sentence = sentence_of(error)
        which = _WHICH.search(sentence)
        raise Mistake(("select",), expected, which[1] if which is not None else sentence) from error


def _planned(spark: SparkSession, frame: DataFrame, checkpoint: Path, done: int) -> None:
    """Have Spark plan the batch behind the one that is done."""
    jvm: Any = spark._jvm
    streaming = jvm.org.apache.spark.sql.execution.streaming
    query = msgspec.json.decode((checkpoint / "metadata").read_bytes())["id"]
    noted = (checkpoint / "offsets" / str(done)).read_text(encoding="utf-8").splitlines()[1]
    # Arguments that Scala has defaults for, which py4j does not know.
    defaults = getattr(getattr(streaming.runtime, "IncrementalExecution$"), "MODULE$")
    execution = streaming.runtime.IncrementalExecution(
        spark._jsparkSession,
        frame._jdf.queryExecution().logical(),
        jvm.org.apache.spark.sql.streaming.OutputMode.Append(),
        (checkpoint / "state").as_uri(),
        jvm.java.util.UUID.fromString(query),
        jvm.java.util.UUID.fromString(str(uuid.uuid4())),
        done + 1,
        getattr(getattr(jvm.scala, "None$"), "MODULE$"),
        streaming.checkpointing.OffsetSeqMetadata.apply(noted),
        streaming.runtime.WatermarkPropagator.noop(),
        True,
        *(getattr(defaults, f"$lessinit$greater$default${number}")() for number in range(12, 17)),
    )
    execution.executedPlan()
