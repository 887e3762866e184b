"""Which messages begin a trace, and where their spans are in it."""

from __future__ import annotations

import pytest

from bridge.service.spans import Sampler, TraceContext, child_of


@pytest.mark.parametrize(("sample", "expected"), [(0.0, []), (1.0, [0, 1, 2, 3, 4])])
def test_none_and_all(sample: float, expected: list[int]) -> None:
    """With 0 no message begins a trace, with 1 each one does."""
    sampler = Sampler(sample)
    assert [sampler.take(5) for _ in range(3)] == [expected] * 3
    assert sampler.take(0) == []


def test_a_part_of_them(subtests: pytest.Subtests) -> None:
    """However many come at once, about that part of them begins a trace (six standard deviations are let pass)."""
    for batch in [1, 7, 1000]:
        for sample in [0.01, 0.5, 0.9]:
            with subtests.test(batch=batch, sample=sample):
                sampler, rounds = Sampler(sample), 100_000 // batch
                taken = [sampler.take(batch) for _ in range(rounds)]
                assert all(index in range(batch) for indices in taken for index in indices)
                assert all(sorted(set(indices)) == indices for indices in taken)
                messages = rounds * batch
                spread = (messages * sample * (1 - sample)) ** 0.5
                assert abs(sum(map(len, taken)) - messages * sample) < 6 * spread


def test_a_child_is_in_the_trace_of_its_parent() -> None:
    """It has a span of its own; flags and tracestate are the parent's. Without a parent, another trace begins."""
    parent = TraceContext(1, 2, 3, "vendor=1")
    child = child_of(parent)
    assert (child.trace_id, child.flags, child.state) == (1, 3, "vendor=1")
    assert child.span_id not in (0, 2)
    first, second = child_of(None), child_of(None)
    assert first.sampled
    assert first.trace_id != second.trace_id
