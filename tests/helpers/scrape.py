"""Scrapes of `/metrics`, responses of the admin port, and promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.installed import BUILD, built
from tests.helpers.patience import PATIENCE

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
_ADMIN = re.compile(r"console, metrics and health at (\S+)/$")

#: A sample: name and labels.
Series = tuple[str, frozenset[tuple[str, str]]]


def admin_url(announced: Iterable[str]) -> str:
    """Return the address of an admin port, from the log lines of its bridge."""
    return next(match[1] for line in announced if (match := _ADMIN.search(line)))


def ask(url: str, accept: str = "", token: str = "") -> tuple[int, str]:
    """Return the status of a response, and its body."""
    request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Scrape:
    """One scrape of a bridge, in the form of OpenMetrics."""

    def __init__(self, bridge: BridgeProcess) -> None:
        status, text = ask(f"{admin_url(bridge.announced)}/metrics", OPEN_METRICS)
        assert status == 200, text
        self.families = list(text_string_to_metric_families(text))
        self.values: dict[Series, float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def get(self, name: str, **labels: str) -> float | None:
        """Return the value of a sample, or None if it is missing."""
        return self.values.get((name, frozenset(labels.items())))

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of all samples with at least these labels."""
        wanted = set(labels.items())
        return sum(value for (metric, has), value in self.values.items() if metric == name and wanted <= has)


def promtool(*arguments: str | Path, text: str = "", cwd: Path | None = None) -> str:
    """Return the output of promtool. Skips the test if promtool is not installed."""
    command = shutil.which("promtool") or built("promtool", BUILD / "promtool")
    process = subprocess.run([command, *arguments], input=text, capture_output=True, text=True, cwd=cwd, timeout=120)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout + process.stderr
