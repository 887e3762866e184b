"""Fixed fuzz cases for each listener of a bridge. `python -m tests.fuzz` runs random ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.campaign import Campaign

#: Cases at each listener.
CASES = 50


async def test_no_input_causes_a_fault_of_the_bridge(tmp_path: Path) -> None:
    """Another pair of clients is not affected."""
    campaign = Campaign(tmp_path, seed=16)
    try:
        await campaign.run(range(CASES * len(campaign.listeners)))
        campaign.end()
        assert set(campaign.done.values()) == {CASES}
        assert campaign.pair.latencies
    finally:
        campaign.pair.end()
        campaign.bridge.discard()


@pytest.mark.slow
async def test_repeated_cases(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, seed=17)
    try:
        for first in range(0, 50_000, 500):
            await campaign.run(range(first, first + 500))
        campaign.end()
    finally:
        campaign.pair.end()
        campaign.bridge.discard()
