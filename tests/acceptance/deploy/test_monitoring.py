"""deploy/alerts.yaml and deploy/grafana.json: accepted by Prometheus, with existing metrics, and with explanations."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.administration.answers import ProblemKind
from bridge.cli.program import all_examples
from bridge.service.metric_catalogue import CATALOGUE
from tests.helpers.scrape import promtool

HERE = Path(__file__).parent
DEPLOY = HERE.parents[2] / "deploy"
ALERTS = DEPLOY / "alerts.yaml"
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

#: A metric of the bridge, or of the process, by name.
_NAME = re.compile(r"\b(?:mqbridge|ibmmq|process|python)_[a-z0-9_]+")
#: The parts of a histogram.
_PARTS = re.compile(r"_(?:bucket|count|sum)$")
#: Metrics of prometheus_client, on Linux.
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}


def unknown(expression: str) -> set[str]:
    """Return the metrics of an expression that no scrape contains."""
    names = set()
    for name in _NAME.findall(expression):
        whole = _PARTS.sub("", name)
        histogram = whole != name and whole in CATALOGUE and CATALOGUE[whole].kind == "histogram"
        if not histogram and name not in CATALOGUE and name not in PROCESS:
            names.add(name)
    return names


def expressions() -> list[str]:
    """Return all expressions of the dashboard."""
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    return queries + [annotation["expr"] for annotation in DASHBOARD["annotations"]["list"]]


def test_prometheus_accepts_the_alerts() -> None:
    """`promtool check rules` accepts them, including their templates."""
    assert f"{len(RULES)} rules found" in promtool("check", "rules", ALERTS)


def test_alerts_fire_for_their_problem_only() -> None:
    """Each alert fires for its problem, and not otherwise (alerts_test.yaml)."""
    promtool("test", "rules", "alerts_test.yaml", cwd=HERE)


def test_each_alert_is_tested_in_both_states() -> None:
    """There is a case in which the alert fires, and one in which it does not."""
    tests = yaml.safe_load((HERE / "alerts_test.yaml").read_text())["tests"]
    cases = {(case["name"].split()[0], "does not fire" in case["name"]) for case in tests}
    assert cases == {(rule["alert"], quiet) for rule in RULES for quiet in (False, True)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_an_action(rule: dict[str, Any]) -> None:
    """Each alert uses existing metrics, and has a severity, a description and a command."""
    assert not unknown(rule["expr"])
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description", "action"}
    assert re.search(r"`[^`]+`", rule["annotations"]["action"])


def test_commands_in_alerts_exist() -> None:
    """Each command of mqbridge in an alert exists."""
    for rule in RULES:
        for line in re.findall(r"`mqbridge ([^`]+)`", rule["annotations"]["action"]):
            words = line.split()
            assert any(" ".join(words[:number]) in all_examples() for number in (1, 2, 3)), line


def test_each_kind_of_problem_has_an_alert() -> None:
    assert all(any(f'"{kind}"' in rule["expr"] for rule in RULES) for kind in ProblemKind)


def test_a_wrong_metric_name_is_noticed() -> None:
    """A metric that no scrape contains is found in any expression."""
    assert unknown("rate(mqbridge_publications[5m])") == {"mqbridge_publications"}
    assert unknown("mqbridge_clients_count / ibmmq_queue_dept") == {"mqbridge_clients_count", "ibmmq_queue_dept"}
    assert unknown("rate(mqbridge_put_seconds_bucket[5m])") == set()


def test_metrics_of_the_dashboard_exist() -> None:
    """Each panel, annotation and variable of the dashboard uses metrics of a scrape."""
    variables = [variable["definition"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"]
    for expression in [*expressions(), *variables]:
        assert not unknown(expression), expression


def test_the_variable_for_shards_selects_their_bridges() -> None:
    """All panels ask for the selected bridges."""
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert list(variables).index("shard") < list(variables).index("instance")
    assert 'number=~"$shard"' in variables["instance"]["query"]["query"]
    # Otherwise, "All" would mean those of other shards, too.
    assert "allValue" not in variables["instance"]
    assert all('instance=~"$instance"' in expression for expression in expressions() if "mqbridge_" in expression)


def test_prometheus_accepts_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    """Prometheus can parse each expression of the dashboard."""
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(expressions())
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", file)


def test_panels_do_not_overlap() -> None:
    """Each panel has a title, a description, a unique identifier and a separate place."""
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    occupied_cells: set[tuple[int, int]] = set()
    for panel in PANELS:
        assert panel["title"] and panel["description"].endswith(".")
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        cells = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & occupied_cells, panel["title"]
        occupied_cells |= cells


def test_names_follow_the_conventions_of_prometheus() -> None:
    """Only counters end in _total. Names contain the units seconds and bytes. Each meaning is a sentence."""
    for metric in CATALOGUE.values():
        assert metric.name.startswith(("mqbridge_", "ibmmq_"))
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert metric.meaning.endswith("."), metric.name
        for unit in ("seconds", "bytes"):
            if f"_{unit}" in metric.name:
                assert metric.name.removesuffix("_total").endswith(f"_{unit}"), metric.name


def test_no_panel_is_empty() -> None:
    """A healthy bridge may have no mappings, links, dead letters or archive. Each panel then names the missing objects."""
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"]["noValue"], panel["title"]
