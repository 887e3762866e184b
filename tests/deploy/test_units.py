"""The units of deploy/: what they say, that systemd accepts them, and how little they may do."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.config import IbmQueueManagerConfig, default_configuration, load
from tests.support.patience import PATIENCE

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "mqbridge.service"
PIPELINE_UNIT = DEPLOY / "mqbridge-pipeline@.service"
CREDENTIALS = DEPLOY / "credentials.conf"

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def test_the_file_of_the_service_says_where_the_units_have_their_data() -> None:
    """So that commands find it that do not run in the unit's environment."""
    directory = load(DEPLOY / "service.yaml").queue_manager.data_directory
    for unit in (UNIT, PIPELINE_UNIT):
        assert f"Environment=MQBRIDGE_DATA_DIR={directory}\n" in unit.read_text()


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    return parser


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Type", "notify"),
        ("NotifyAccess", "main"),
        ("WatchdogSec", "30"),
        ("ExecStart", "/opt/mqbridge/bin/mqbridge run /etc/mqbridge/bridge.yaml"),
        ("Restart", "on-failure"),
        ("User", "mqbridge"),
        ("Group", "mqbridge"),
        ("StateDirectory", "mqbridge"),
        ("WorkingDirectory", "/var/lib/mqbridge"),
        ("Environment", "MQBRIDGE_DATA_DIR=/var/lib/mqbridge"),
        ("LimitNOFILE", "65536"),
        ("NoNewPrivileges", "true"),
        ("ProtectSystem", "strict"),
        ("PrivateTmp", "true"),
        ("CapabilityBoundingSet", ""),
    ],
)
def test_the_unit_says(key: str, value: str, unit: configparser.ConfigParser) -> None:
    assert unit["Service"][key] == value


def test_systemd_waits_longer_than_the_bridge_does(unit: configparser.ConfigParser) -> None:
    assert float(unit["Service"]["TimeoutStopSec"]) > default_configuration().limits.shutdown_timeout


def test_there_are_enough_open_files_for_the_clients(unit: configparser.ConfigParser) -> None:
    assert int(unit["Service"]["LimitNOFILE"]) > default_configuration().channels[0].max_clients


def test_the_pipeline_runs_as_a_command_that_there_is() -> None:
    """systemd's SIGTERM spares the JVM, and the command is one that the program takes."""
    lines = PIPELINE_UNIT.read_text(encoding="utf-8").splitlines()
    assert "KillMode=mixed" in lines
    (started,) = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
    assert started == "/opt/mqbridge/bin/mqbridge pipeline run %i --config /etc/mqbridge/bridge.yaml"
    shown = CliRunner().invoke(program, [*started.split()[1:3], "--help"])
    assert (shown.exit_code, "--config" in shown.output) == (0, True)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize(("unit", "instance"), [(UNIT, UNIT.name), (PIPELINE_UNIT, "mqbridge-pipeline@averages.service")])
def test_systemd_accepts_the_unit(unit: Path, instance: str, tmp_path: Path) -> None:
    # It looks for the program too, which a build machine does not have in its place.
    copy = tmp_path / instance
    copy.write_text(unit.read_text(encoding="utf-8").replace("/opt/mqbridge/bin/mqbridge", "/bin/true"))
    verify = ["systemd-analyze", "verify", "--man=no", str(copy)]
    result = subprocess.run(verify, capture_output=True, text=True, timeout=60, check=False)
    # Unknown keys and bad values are warnings that leave the exit code 0; warnings of other units are not ours.
    complaints = [line for line in result.stderr.splitlines() if instance in line]
    assert (complaints, result.returncode) == ([], 0), result.stderr
