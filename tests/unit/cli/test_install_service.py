"""`mqbridge install-service`: files that it writes, its output, and files that it does not touch."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.cli.service import FILES, Work, restricted, unseen
from bridge.config.document import load
from bridge.mq.mqsc import read
from tests.helpers.command_line import Invoke

UNIT = Path("etc/systemd/system/mqbridge.service")
CONFIGURATION = Path("etc/mqbridge/bridge.yaml")


@pytest.fixture(autouse=True)
def program(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The installing program, at a path that units can contain. The path of the checkout may have spaces."""
    executable = Path(sys.executable)
    directory = tmp_path_factory.mktemp("bin")
    for name in (executable.name, "mqbridge"):
        (directory / name).symlink_to(executable.with_name(name))
    monkeypatch.setattr(sys, "executable", str(directory / executable.name))
    return directory / "mqbridge"


def files(root: Path) -> dict[str, str]:
    """Return the files below a directory."""
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_it_writes_the_files_of_the_service_and_reports_them(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("install-service", "--root", tmp_path)
    assert result.exit_code == 0
    assert set(files(tmp_path)) == {*(str(path)[1:] for path in FILES), str(CONFIGURATION)}
    for name in files(tmp_path):
        assert f"{tmp_path / name}: written\n" in result.output
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o644
    for command in ("systemd-sysusers", "systemd-tmpfiles", "systemctl daemon-reload"):
        assert f"not run, because of --root: {command}" in result.output
    assert "start the service with `systemctl enable --now mqbridge`" in result.output
    manual_page = (tmp_path / "usr/local/share/man/man1/mqbridge.1").read_text()
    assert manual_page.startswith(".TH MQBRIDGE 1") and "Documentation=man:mqbridge(1)" in (tmp_path / UNIT).read_text()


def test_the_units_run_the_mqbridge_that_installs_them(invoke: Invoke, tmp_path: Path, program: Path) -> None:
    invoke("install-service", "--root", tmp_path, "--user", "bridge", "--config", "/srv/plant/bridge.yaml")
    unit = (tmp_path / UNIT).read_text()
    for line in (
        f"ExecStart={program} run /srv/plant/bridge.yaml",
        f"ExecReload={program} reload -c /srv/plant/bridge.yaml",
        "User=bridge",
        "Group=bridge",
        "StateDirectory=mqbridge",
    ):
        assert f"\n{line}\n" in unit
    assert (
        f"ExecStart={program} run /etc/mqbridge/%i.yaml\n"
        in (tmp_path / UNIT.with_name("mqbridge@.service")).read_text()
    )
    pipeline = (tmp_path / UNIT.with_name("mqbridge-pipeline@.service")).read_text()
    assert f"ExecStart={program} pipeline run %i --config /srv/plant/bridge.yaml\n" in pipeline
    assert '\nu bridge - "MQ-MQTT bridge"' in (tmp_path / "etc/sysusers.d/mqbridge.conf").read_text()
    # Mode and owner of a directory that was chosen by the user do not change.
    rules = [line for line in (tmp_path / "etc/tmpfiles.d/mqbridge.conf").read_text().splitlines() if line[0] != "#"]
    assert rules == ["d /var/lib/mqbridge 0750 bridge bridge -"]
    assert load(tmp_path / "srv/plant/bridge.yaml").queue_manager.data_directory == Path("/var/lib/mqbridge")


def test_a_second_run_changes_nothing_and_reports_that(invoke: Invoke, tmp_path: Path) -> None:
    invoke("install-service", "--root", tmp_path)
    before = files(tmp_path)
    result = invoke("install-service", "--root", tmp_path)
    assert (result.exit_code, files(tmp_path)) == (0, before)
    assert result.output.count(": unchanged") == len(FILES)
    assert f"{tmp_path / CONFIGURATION}: exists, left unchanged\n" in result.output
    assert result.output.endswith("nothing to change\n")


def test_a_configuration_is_never_overwritten_and_an_edited_unit_is_kept(
    invoke: Invoke, tmp_path: Path, program: Path
) -> None:
    invoke("install-service", "--root", tmp_path)
    for path in (UNIT, CONFIGURATION):
        (tmp_path / path).write_text("# edited\n")
    result = invoke("install-service", "--root", tmp_path)
    assert (tmp_path / CONFIGURATION).read_text() == "# edited\n"
    assert (tmp_path / f"{UNIT}.old").read_text() == "# edited\n"
    assert f"ExecStart={program}" in (tmp_path / UNIT).read_text()
    assert f"{tmp_path / UNIT}: replaced; the previous file is {tmp_path / UNIT}.old\n" in result.output


def test_a_dry_run_only_prints(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("install-service", "--root", tmp_path, "--dry-run")
    assert (result.exit_code, list(tmp_path.iterdir())) == (0, [])
    assert f"{tmp_path / UNIT}: would be written\n" in result.output
    invoke("install-service", "--root", tmp_path)
    before = files(tmp_path)
    result = invoke("install-service", "--root", tmp_path, "--remove", "--dry-run")
    assert files(tmp_path) == before
    assert f"{tmp_path / UNIT}: would be removed\n" in result.output


def test_files_of_the_service_are_removed_and_data_and_configuration_are_kept(invoke: Invoke, tmp_path: Path) -> None:
    invoke("install-service", "--root", tmp_path)
    database = tmp_path / "var/lib/mqbridge/queuemanager.db"
    database.parent.mkdir(parents=True)
    database.write_text("messages")
    result = invoke("install-service", "--root", tmp_path, "--remove")
    assert result.exit_code == 0
    assert set(files(tmp_path)) == {str(CONFIGURATION), "var/lib/mqbridge/queuemanager.db"}
    assert result.output.count(": removed\n") == len(FILES)
    assert "kept: the configuration file, the data in /var/lib/mqbridge" in result.output
    again = invoke("install-service", "--root", tmp_path, "--remove")
    assert again.output.endswith("nothing to remove\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--user", "Bridge User"], "--user Bridge User: expected a name of at most 31 characters a-z, 0-9, _ and -"),
        (["--user", ""], "--user : expected a name"),
        (["--config", "bridge.yaml"], "--config bridge.yaml: expected an absolute path"),
        (["--config", "/etc/my bridge.yaml"], "--config /etc/my bridge.yaml: expected an absolute path"),
        (["--config", "/etc/%n.yaml"], "--config /etc/%n.yaml: expected an absolute path"),
        (["--config", "/etc/../bridge.yaml"], "--config /etc/../bridge.yaml: expected an absolute path"),
    ],
)
def test_paths_that_systemd_would_misinterpret_are_rejected(
    arguments: list[str], message: str, invoke: Invoke, tmp_path: Path
) -> None:
    result = invoke("install-service", "--root", tmp_path, *arguments)
    assert (result.exit_code, files(tmp_path)) == (2, {})
    assert message in result.output


def test_users_other_than_root_are_rejected(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = invoke("install-service")
    assert (result.exit_code, result.output) == (
        1,
        "mqbridge: error: install-service writes to /etc\nhint: run it as root, or with --dry-run\n",
    )


@pytest.mark.parametrize(
    ("path", "is_seen"),
    [
        ("/opt/mqbridge/bin/mqbridge", True),
        ("/usr/bin/python3.11", True),
        ("/homes/mqbridge", True),
        ("/home/ann/.venv/bin/mqbridge", False),
        ("/root/.pyenv/versions/3.11.7/bin/python3.11", False),
        ("/tmp/venv/bin/mqbridge", False),
    ],
)
def test_a_program_must_be_visible_to_the_unit(path: str, is_seen: bool) -> None:
    assert list(unseen(Path(path))) == ([] if is_seen else [Path(path)])


def test_the_service_of_a_queue_manager_is_mqsc(invoke: Invoke, program: Path) -> None:
    printed = invoke("install-service", "--mq", "--config", "/etc/mqbridge/QM1.yaml").stdout
    (command,) = read(printed)
    assert command.problem is None
    assert (command.verb, command.noun, command.name) == ("DEFINE", "SERVICE", "MQBRIDGE")
    attributes = {parameter.keyword: parameter.value for parameter in command.parameters}
    assert attributes == {
        "REPLACE": None,
        "DESCR": "MQ-MQTT bridge",
        "CONTROL": "QMGR",
        "SERVTYPE": "SERVER",
        "STARTCMD": str(program),
        "STARTARG": "run /etc/mqbridge/QM1.yaml",
        "STOPCMD": "/bin/kill",
        "STOPARG": "-TERM +MQ_SERVER_PID+",
        "STDOUT": "+MQ_Q_MGR_DATA_PATH+/mqbridge.stdout",
        "STDERR": "+MQ_Q_MGR_DATA_PATH+/mqbridge.stderr",
    }
    assert all(len(line) <= 72 for line in printed.splitlines() if str(program) not in line)


SERVICE_DROP_IN = Path("etc/systemd/system/mqbridge.service.d/ibm-mq.conf")
PIPELINE_DROP_IN = Path("etc/systemd/system/mqbridge-pipeline@.service.d/ibm-mq.conf")
IBM = {
    "client": "queue_manager: {type: ibm, name: QM1, channel: C, connections: mq1(1414)}\n",
    "bindings": "queue_manager: {type: ibm, name: QM1, mode: bindings}\n",
}


def configured(root: Path, text: str) -> None:
    (root / CONFIGURATION).parent.mkdir(parents=True, exist_ok=True)
    (root / CONFIGURATION).write_text(text)


@pytest.mark.parametrize(
    ("mode", "lines"),
    [
        ("client", ["Environment=MQ_OVERRIDE_DATA_PATH=/var/log/mqbridge/ibm-mq", "ReadWritePaths=-/var/mqm"]),
        ("bindings", ["ReadWritePaths=/var/mqm", "ProtectProc=default", "RemoveIPC=false"]),
    ],
)
def test_a_bridge_on_ibm_mq_gets_a_drop_in(mode: str, lines: list[str], invoke: Invoke, tmp_path: Path) -> None:
    configured(tmp_path, IBM[mode])
    result = invoke("install-service", "--root", tmp_path)
    assert result.exit_code == 0
    assert f"{tmp_path / SERVICE_DROP_IN}: written\n" in result.output
    text = (tmp_path / SERVICE_DROP_IN).read_text()
    assert {*lines, "[Service]", "Environment=LD_LIBRARY_PATH=/opt/mqm/lib64"} <= set(text.splitlines())
    assert (tmp_path / PIPELINE_DROP_IN).read_text() == text
    assert invoke("install-service", "--root", tmp_path).output.endswith("nothing to change\n")
    other = next(text for name, text in IBM.items() if name != mode)
    configured(tmp_path, other)
    invoke("install-service", "--root", tmp_path)
    assert (tmp_path / SERVICE_DROP_IN).read_text() != text
    # With mistakes in the file, the drop-in does not change. With the embedded queue manager, it is removed.
    before = (tmp_path / SERVICE_DROP_IN).read_text()
    configured(tmp_path, "queue_manager: {type: ibm}\n")
    warned = invoke("install-service", "--root", tmp_path)
    assert "has mistakes, so the drop-in for IBM MQ stays as it is" in warned.output
    assert (tmp_path / SERVICE_DROP_IN).read_text() == before
    configured(tmp_path, "queue_manager: {type: embedded}\n")
    result = invoke("install-service", "--root", tmp_path)
    assert f"{tmp_path / SERVICE_DROP_IN}: removed\n" in result.output
    assert not (tmp_path / SERVICE_DROP_IN).exists() and not (tmp_path / PIPELINE_DROP_IN).exists()


def test_the_drop_in_names_the_library_of_the_environment(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, library = tmp_path / "root", Path("/opt/ibm2-test/lib64")
    real_exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: path == library / "libmqm_r.so" or real_exists(path))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{library}")
    configured(root, IBM["client"])
    assert invoke("install-service", "--root", root).exit_code == 0
    assert f"\nEnvironment=LD_LIBRARY_PATH={library}\n" in (root / SERVICE_DROP_IN).read_text()
    monkeypatch.setattr(Path, "exists", lambda path: path == Path("/home/x/libmqm_r.so") or real_exists(path))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/home/x")
    hidden = invoke("install-service", "--root", root)
    assert hidden.exit_code == 1 and "/home/x is in a directory that is hidden from the service" in hidden.output


def test_the_drop_in_is_removed_with_the_service(invoke: Invoke, tmp_path: Path) -> None:
    configured(tmp_path, IBM["client"])
    invoke("install-service", "--root", tmp_path)
    assert invoke("install-service", "--root", tmp_path, "--remove").exit_code == 0
    assert set(files(tmp_path)) == {str(CONFIGURATION)}


def test_the_units_of_a_package_stay_and_a_drop_in_is_added(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The units of a Debian package stay. Only the drop-in is added for a bridge on IBM MQ."""
    packaged = tmp_path / "mqbridge.service"
    packaged.touch()
    config = tmp_path / "bridge.yaml"
    written = tuple(tmp_path / f"{number}.d" / "ibm-mq.conf" for number in (1, 2))
    monkeypatch.setattr("bridge.cli.service.PACKAGED", (packaged,))
    monkeypatch.setattr("bridge.cli.service.DROP_INS", written)
    monkeypatch.setattr("bridge.cli.service.HIDDEN", ())
    monkeypatch.setattr(Work, "run", lambda *_: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    config.write_text(IBM["client"])
    result = invoke("install-service", "--config", config)
    assert (result.exit_code, all(path.is_file() for path in written)) == (0, True)
    assert "sysusers" not in result.output
    config.write_text("queue_manager: {type: embedded}\n")
    assert invoke("install-service", "--config", config).exit_code == 0
    assert not any(path.exists() for path in written)
    refused = invoke("install-service", "--config", config)
    assert refused.exit_code == 1 and "a package has already installed the service" in refused.output


SHOWN_UNIT = """# /etc/systemd/system/mqbridge.service
[Unit]
Description=x
[Service]
Type=notify
ExecStart=/opt/mqbridge/bin/mqbridge run /etc/mqbridge/bridge.yaml
User=mqbridge
RuntimeDirectory=mqbridge
SystemCallFilter=@system-service \\
  @mount
LoadCredential=a:/b
# /etc/systemd/system/mqbridge.service.d/ibm-mq.conf
[Service]
ReadWritePaths=-/var/mqm
[Install]
WantedBy=multi-user.target
"""


def test_a_check_as_the_service_uses_its_user_and_restrictions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "is_dir", lambda path: path == Path("/run/systemd/system"))
    unit_shown = subprocess.CompletedProcess([], 0, SHOWN_UNIT, "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: unit_shown)
    command = restricted(["mqbridge", "check", "x"])
    assert command[-3:] == ["mqbridge", "check", "x"]
    assert [word.removeprefix("--property=") for word in command if word.startswith("--property=")] == [
        "User=mqbridge",
        "SystemCallFilter=@system-service    @mount",
        "ReadWritePaths=-/var/mqm",
    ]


def test_a_check_as_the_service_needs_systemd_and_the_service(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_dir", lambda _: False)
    result = invoke("check", "--as-service", "/etc/mqbridge/bridge.yaml")
    assert result.exit_code == 1 and "--as-service: systemd is not running" in result.output
