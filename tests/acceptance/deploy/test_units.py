"""The systemd units in deploy/: their contents, verification by systemd, and restrictions."""

from __future__ import annotations

import configparser
import functools
import os
import re
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.config.document import load
from bridge.config.models import default_configuration
from bridge.config.queue_manager import IbmQueueManagerConfig
from tests.helpers import installed
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.line_process import LineProcess
from tests.helpers.mosquitto import Subscriber, publish
from tests.helpers.patience import PATIENCE

DEPLOY = Path(__file__).parents[3] / "deploy"
UNIT = DEPLOY / "mqbridge.service"
PIPELINE_UNIT = DEPLOY / "mqbridge-pipeline@.service"
CREDENTIALS = DEPLOY / "credentials.conf"
UNITS = [UNIT, DEPLOY / "mqbridge@.service", PIPELINE_UNIT]


@functools.cache
def obstacle() -> str | None:
    """Return why systemd-analyze cannot examine units here, or None. Without a running systemd, it may need root."""
    if os.geteuid() == 0:
        return None
    with tempfile.TemporaryDirectory() as directory:
        unit = Path(directory) / "probe.service"
        unit.write_text("[Service]\nExecStart=/bin/true\n", encoding="utf-8")
        for words in (["verify", "--man=no"], ["security", "--offline=true", "--no-pager"]):
            command = ["systemd-analyze", *words, str(unit)]
            result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            if result.returncode:
                return (
                    f"systemd-analyze {words[0]} fails for this user even for a minimal unit: {result.stderr.strip()}"
                )
    return None


@pytest.fixture
def systemd_analyze() -> None:
    installed.program("systemd-analyze")
    if reason := obstacle():
        pytest.skip(reason)


def test_the_service_file_has_the_data_directory_of_the_units() -> None:
    """Commands outside the unit's environment need it."""
    directory = load(DEPLOY / "service.yaml").queue_manager.data_directory
    for unit in (UNIT, PIPELINE_UNIT):
        assert f"Environment=MQBRIDGE_DATA_DIR={directory}\n" in unit.read_text()


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]
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
        ("LimitCORE", "0"),
        ("NoNewPrivileges", "true"),
        ("ProtectSystem", "strict"),
        ("PrivateTmp", "true"),
        ("CapabilityBoundingSet", ""),
    ],
)
def test_contents_of_the_unit(key: str, value: str, unit: configparser.ConfigParser) -> None:
    assert unit["Service"][key] == value


def test_systemd_waits_longer_than_the_bridge(unit: configparser.ConfigParser) -> None:
    assert float(unit["Service"]["TimeoutStopSec"]) > default_configuration().limits.shutdown_timeout


def test_the_limit_of_open_files_suffices_for_the_clients(unit: configparser.ConfigParser) -> None:
    assert int(unit["Service"]["LimitNOFILE"]) > default_configuration().channels[0].max_clients


def test_the_pipeline_runs_an_existing_command() -> None:
    """systemd's SIGTERM does not reach the JVM, and the program accepts the command."""
    lines = PIPELINE_UNIT.read_text(encoding="utf-8").splitlines()
    assert "KillMode=mixed" in lines
    (started,) = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
    assert started == "/opt/mqbridge/bin/mqbridge pipeline run %i --config /etc/mqbridge/bridge.yaml"
    outcome = CliRunner().invoke(program, [*started.split()[1:3], "--help"])
    assert (outcome.exit_code, "--config" in outcome.output) == (0, True)


def complaints(unit: Path, directory: Path, drop_in: str = "") -> list[str]:
    """Return the output of `systemd-analyze verify` for a unit with a drop-in."""
    copy = directory / unit.name.replace("@", "@averages")
    # It also searches for the program, which is not installed on a build machine.
    copy.write_text(unit.read_text(encoding="utf-8").replace("/opt/mqbridge/bin/mqbridge", "/bin/true"))
    drop_ins = directory / f"{copy.name}.d"
    drop_ins.mkdir()
    (drop_ins / "credentials.conf").write_text(drop_in)
    verify = ["systemd-analyze", "verify", "--man=no", str(copy)]
    result = subprocess.run(verify, capture_output=True, text=True, timeout=PATIENCE, check=False)
    # Unknown keys and invalid values are warnings with exit status 0. Warnings about other units are ignored.
    lines = [line for line in result.stderr.splitlines() if copy.name in line]
    assert lines or result.returncode == 0, result.stderr
    return lines


@pytest.mark.usefixtures("systemd_analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    assert complaints(unit, tmp_path) == []


@pytest.mark.usefixtures("systemd_analyze")
def test_systemd_accepts_the_example_of_credentials(tmp_path: Path) -> None:
    text = CREDENTIALS.read_text(encoding="utf-8")
    (tmp_path / "right").mkdir()
    assert complaints(UNIT, tmp_path / "right", re.sub("^#(?=[A-Z])", "", text, flags=re.M)) == []
    (tmp_path / "wrong").mkdir()
    assert complaints(UNIT, tmp_path / "wrong", text.replace("LoadCredential=", "LoadCredentials="))


@pytest.mark.usefixtures("systemd_analyze")
@pytest.mark.parametrize("mode", ["client", "bindings"])
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_drop_ins_for_ibm_mq(unit: Path, mode: str, tmp_path: Path) -> None:
    text = (DEPLOY / f"ibm-mq-{mode}.conf").read_text(encoding="utf-8")
    assert complaints(unit, tmp_path, text) == []


@pytest.mark.usefixtures("systemd_analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_exposure_of_the_unit_is_below_2(unit: Path) -> None:
    """Of 10, by systemd's measure."""
    analyze = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    result = subprocess.run(analyze, capture_output=True, text=True, timeout=PATIENCE, check=True)
    level = re.search(r"Overall exposure level for \S+: (\d+\.\d)", result.stdout)
    assert level and float(level[1]) < 2.0, result.stdout


def test_the_configuration_names_credentials_by_their_path(tmp_path: Path) -> None:
    """In the comment of the example, and on the page."""
    text = CREDENTIALS.read_text(encoding="utf-8")
    names = set(re.findall(r"^LoadCredential=([^:]+):", text, re.M))
    tls, settings = re.findall(r"^#   (?:tls|queue_manager): (\{.*\})$", text, re.M)
    settings = settings.replace("...", "name: QM1, channel: C, connections: h(1414), user: u")
    tls = tls.replace("...", "certificate_file: /etc/mqbridge/server.pem")
    page = (DEPLOY.parent / "docs" / "how-to" / "service.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    written = [block for block in blocks if "/run/credentials" in block]
    file = tmp_path / "bridge.yaml"
    for lines in (f"queue_manager: {settings}\nchannels: [{{tls: {tls}}}]\n", *written):
        file.write_text(lines, encoding="utf-8")
        configuration = load(file)
        queue_manager, server = configuration.queue_manager, configuration.channels[0].tls
        assert isinstance(queue_manager, IbmQueueManagerConfig) and server is not None
        files = [file for file in (queue_manager.password_file, server.key_file) if file is not None]
        assert {str(file.parent) for file in files} == {f"/run/credentials/{UNIT.name}"}
        assert {file.name for file in files} | {server.key_password_credential} == names
    assert len(written) == 1


needs_sysusers = pytest.mark.skipif(os.geteuid() != 0, reason="only root creates users")


@needs_sysusers
def test_user_and_directories_of_the_service(tmp_path: Path) -> None:
    """They are created: the data directory for the service only, and the configuration readable for it."""
    (tmp_path / "etc").mkdir()
    for words in (
        ["systemd-sysusers", DEPLOY / "sysusers.conf"],
        ["systemd-tmpfiles", "--create", DEPLOY / "tmpfiles.conf"],
    ):
        subprocess.run([*words, f"--root={tmp_path}"], check=True, timeout=PATIENCE, capture_output=True)
    name, _, user, group, _, home, shell = (tmp_path / "etc/passwd").read_text().strip().split(":")
    assert (name, home, shell) == ("mqbridge", "/var/lib/mqbridge", "/usr/sbin/nologin")
    owners = {}
    for path in ("var/lib/mqbridge", "etc/mqbridge"):
        status = (tmp_path / path).stat()
        owners[path] = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
    assert owners == {
        "var/lib/mqbridge": (0o750, int(user), int(group)),
        "etc/mqbridge": (0o750, 0, int(group)),
    }


def allowed(unit: Path) -> set[str]:
    """Return the system calls that a unit allows: systemd's sets added and removed, in the order of the lines."""
    calls: set[str] = set()
    for taken_away, names in re.findall(r"^SystemCallFilter=(~?)(.*)$", unit.read_text(encoding="utf-8"), re.M):
        members = set().union(*map(members_of, names.split()))
        calls = calls - members if taken_away else calls | members
    return calls


def members_of(name: str) -> set[str]:
    if not name.startswith("@"):
        return {name}
    show = ["systemd-analyze", "syscall-filter", "--no-pager", name]
    filter_listing = subprocess.run(show, capture_output=True, text=True, timeout=PATIENCE, check=True)
    lines = [line.strip() for line in filter_listing.stdout.splitlines()[1:]]
    return set().union(*(members_of(line) for line in lines if line and not line.startswith("#")))


@pytest.mark.slow
def test_the_bridge_uses_no_system_call_that_the_unit_forbids(tmp_path: Path) -> None:
    """From start to end, with publications of each QoS and an archive."""
    installed.program("strace", "systemd-analyze")
    calls, config = tmp_path / "calls", tmp_path / "bridge.yaml"
    config.write_text(f"archive: {{directory: {tmp_path}/archive}}\n")
    # -D: the bridge is the child that gets the signals, and strace observes it.
    trace = ["strace", "-D", "-f", "-qq", "-o", str(calls)]
    arguments = [str(MQBRIDGE), "run", str(config), "--data-dir", str(tmp_path / "data"), "--port", "0"]
    with LineProcess([*trace, *arguments]) as bridge:
        port = int(bridge.line_where(lambda line: "listens for MQTT" in line).rpartition(":")[2])
        with Subscriber(port, "a/#", qos=2) as subscriber:
            for qos in (0, 1, 2):
                publish(port, f"a/{qos}", "x", qos=qos)
                assert subscriber.message()["topic"] == f"a/{qos}"
        assert bridge.terminate() == 0
    used = set(re.findall(r"^\d+ +(\w+)\(", calls.read_text(), re.M))
    assert used >= {"bind", "fdatasync", "openat", "setpriority"}
    # As root, SQLite creates the additional files of a database with the owner of the database.
    assert used - allowed(UNIT) <= ({"fchown"} if os.geteuid() == 0 else set())
