"""Remedies for exceptions of sources and sinks, of which Spark reports the traceback as text."""

from __future__ import annotations

import pytest

from bridge.link.state import LinkLost
from bridge.spark.failures import query_failure_of
from bridge.spark.mq.queue_reader import ReaderSuperseded
from bridge.spark.mq.writer_state import AttemptSuperseded, BatchUnfinished
from bridge.spark.mqtt.subscriber import NotConnected
from bridge.spark.mqtt.writer import BrokerAway
from bridge.spark.spool import DataLoss, SpoolBusy
from bridge.spark.staging import StageDamaged, StageUnusable


def reported(kind: type[Exception]) -> Exception:
    """Return the error that Spark raises for an exception in a Python worker."""
    return Exception(
        'Traceback (most recent call last):\n  File "x.py", line 1, in x\n'
        f"{kind.__module__}.{kind.__qualname__}: the reason"
    )


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (BrokerAway, "the broker is available"),
        (LinkLost, "the broker is available"),
        (NotConnected, "check that the broker runs"),
        (SpoolBusy, "end the other process"),
        (AttemptSuperseded, "another attempt continues"),
        (ReaderSuperseded, "another attempt continues"),
        (StageUnusable, "check the disk"),
    ],
)
def test_an_exception_has_a_remedy(kind: type[Exception], remedy: str) -> None:
    failure = query_failure_of(reported(kind))
    assert remedy in failure.remedy and not failure.final


@pytest.mark.parametrize("kind", [DataLoss, StageDamaged, BatchUnfinished])
def test_an_exception_after_which_a_repetition_is_pointless(kind: type[Exception]) -> None:
    assert query_failure_of(reported(kind)).final
