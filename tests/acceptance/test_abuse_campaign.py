"""The campaign itself, on its cheapest scenario. Its limits are for a quiet machine: `python -m tests.fuzz.abuse`."""

from __future__ import annotations

from tests.fuzz.abuse.campaign import run
from tests.fuzz.abuse.scenarios import SCENARIOS


def test_a_scenario_measures_the_bystander_and_the_bridge_in_each_phase() -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "ws-empty")
    lines: list[str] = []
    measurement = run(scenario, 1.0, lines.append)
    assert measurement.problems == []
    assert [phase["name"] for phase in measurement.phases] == ["frames"]
    assert measurement.baseline_ping > 0
    assert measurement.loop > 0
    assert 0 < measurement.puback_median <= measurement.puback
    assert measurement.cpu > 0
    assert lines[0] == "  frames ..."
