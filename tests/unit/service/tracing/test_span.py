"""Messages that start a trace, and the position of their spans."""

from __future__ import annotations

import pytest

from bridge.service.spans import TraceContext, child_of, sampled


@pytest.mark.parametrize("sample", [0.0, 0.01, 0.5, 1.0])
def test_a_part_of_all_messages_starts_a_trace(sample: float) -> None:
    """Six standard deviations are tolerated."""
    messages = 100_000
    indexes = sampled(sample, messages)
    assert indexes == sorted(set(indexes)) and set(indexes) <= set(range(messages))
    assert abs(len(indexes) - messages * sample) <= 6 * (messages * sample * (1 - sample)) ** 0.5


def test_a_child_is_in_the_trace_of_its_parent() -> None:
    """It has a separate span, and the flags and tracestate of the parent. Without a parent, another trace starts."""
    parent = TraceContext(1, 2, 3, "vendor=1")
    child = child_of(parent)
    assert (child.trace_id, child.flags, child.state) == (1, 3, "vendor=1")
    assert child.span_id not in (0, 2)
    first, second = child_of(None), child_of(None)
    assert first.sampled
    assert first.trace_id != second.trace_id
