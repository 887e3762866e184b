"""deploy/bridge.yaml says every option at its default; deploy/mqbridge.service is a unit that systemd accepts."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import BaseModel

from bridge.config import Configuration, default_configuration, load

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "mqbridge.service"


@pytest.fixture
def uncommented(tmp_path: Path) -> Path:
    """The shipped file with each option in force, but not its explanations (`##`)."""
    file = tmp_path / "bridge.yaml"
    file.write_text(re.sub(r"^#(?!#)", "", (DEPLOY / "bridge.yaml").read_text(encoding="utf-8"), flags=re.MULTILINE))
    return file


def test_as_shipped_the_file_changes_nothing() -> None:
    configuration = load(DEPLOY / "bridge.yaml")
    assert configuration == default_configuration()
    assert configuration.model_fields_set == set()


def test_its_options_stand_at_their_defaults(uncommented: Path) -> None:
    configuration = load(uncommented)
    # A data directory that is written counts from the file, as the file says; the default, from the working directory.
    assert configuration.queue_manager.data_directory == uncommented.parent / "data"
    default = default_configuration()
    directory = {"data_directory": default.queue_manager.data_directory}
    queue_manager = configuration.queue_manager.model_copy(update=directory)
    assert configuration.model_copy(update={"queue_manager": queue_manager}) == default


def test_it_has_every_option(uncommented: Path) -> None:
    def unset(section: BaseModel) -> set[str]:
        return set(type(section).model_fields) - section.model_fields_set

    configuration: Configuration = load(uncommented)
    channel = configuration.channels[0]
    sections = [configuration, configuration.queue_manager, channel, configuration.limits, configuration.log]
    assert [unset(section) for section in sections] == [set()] * 5


def test_its_example_of_a_listener_works(tmp_path: Path) -> None:
    example = re.search(
        r"^##    (listener:\n##      address: .*\n##      port: .*\n)", (DEPLOY / "bridge.yaml").read_text(), re.M
    )
    assert example
    file = tmp_path / "bridge.yaml"
    file.write_text("queue_manager:\n  " + example[1].replace("##    ", "  "))
    assert load(file).queue_manager.listener is not None


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


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    # It looks for the program too, which a build machine does not have in its place.
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/mqbridge/bin/mqbridge", "/bin/true"))
    verify = ["systemd-analyze", "verify", "--man=no", str(copy)]
    result = subprocess.run(verify, capture_output=True, text=True, timeout=60, check=False)
    # Unknown keys and bad values are warnings that leave the exit code 0; warnings of other units are not ours.
    complaints = [line for line in result.stderr.splitlines() if UNIT.name in line]
    assert (complaints, result.returncode) == ([], 0), result.stderr
