"""Containerfile and mq/compose.yaml: files exist, and the health check works. Nothing is built, because that needs Docker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.config.document import load
from bridge.config.queue_manager import IbmQueueManagerConfig
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mosquitto import Subscriber, free_port, publish
from tests.helpers.patience import PATIENCE

DEPLOY = Path(__file__).parents[3] / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
#: The user of the image. From the number, Kubernetes knows that it is not root.
USER = "10001:10001"


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((DEPLOY / "mq" / "compose.yaml").read_text(encoding="utf-8"))


def stages() -> dict[str, list[str]]:
    """Return the instructions of each stage of the Containerfile, by its name."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE, flags=re.M).replace("\\\n", " ")
    instructions: dict[str, list[str]] = {}
    for line in filter(None, text.splitlines()):
        if line.startswith("FROM "):
            instructions[line.rpartition(" AS ")[2]] = [line]
        elif instructions:
            instructions[list(instructions)[-1]].append(line)
    return instructions


def test_the_configuration_of_the_container_is_valid(compose: Any, tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text(compose["configs"]["bridge"]["content"])
    configuration = load(file)
    settings = configuration.queue_manager
    assert isinstance(settings, IbmQueueManagerConfig)
    services = compose["services"]
    assert settings.name == services["qmgr"]["environment"]["MQ_QMGR_NAME"]
    assert settings.connections == ["qmgr(1414)"]
    assert settings.password_file == Path("/run/secrets") / services["bridge"]["secrets"][0]
    assert services["qmgr"]["secrets"] == services["bridge"]["secrets"] == list(compose["secrets"])
    assert f"127.0.0.1:{configuration.admin.port}/healthz" in CONTAINERFILE
    (volume,) = (
        volume_option for volume_option in services["bridge"]["volumes"] if volume_option.endswith(":/var/lib/mqbridge")
    )
    assert configuration.control_socket == Path(volume.partition(":")[2]) / "control.sock"
    (tmp_path / "password").write_text("secret")
    (tmp_path / "password").chmod(0o600)
    file.write_text(file.read_text().replace("/run/secrets/mqAppPassword", str(tmp_path / "password")))
    checked = CliRunner().invoke(program, ["check", str(file)])
    assert (checked.exit_code, checked.stdout.splitlines()[-1]) == (0, f"{file} is OK")


def test_the_image_starts_without_a_mounted_configuration(tmp_path: Path) -> None:
    """Clients outside the container reach the channel, and the health check reaches the admin port."""
    shipped = (DEPLOY / "container.yaml").read_text()
    assert "COPY deploy/container.yaml /etc/mqbridge/bridge.yaml" in stages()["base"]
    configuration = load(DEPLOY / "container.yaml")
    assert f"127.0.0.1:{configuration.admin.port}/healthz" in CONTAINERFILE
    bridge = BridgeProcess(tmp_path / "data", config=shipped.replace("9157", str(free_port()))).start()
    with Subscriber(bridge.port, "t", qos=1) as subscriber:
        publish(bridge.port, "t", "x", qos=1)
        assert subscriber.message()["payload"] == "x"
    assert bridge.stop() == 0


def test_the_volumes_of_compose_exist(compose: Any) -> None:
    used = set()
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            source = volume["source"] if isinstance(volume, dict) else volume.partition(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / "mq" / source).is_file()
            else:
                used.add(source)
    assert used == set(compose["volumes"])


def test_the_files_of_the_containers_exist(compose: Any) -> None:
    made_here = re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE, re.M)
    names = {name for line in made_here for name in line.split()}
    assert names >= {"bridge", "pyproject.toml"}
    assert [name for name in names if not (DEPLOY.parent / name).exists()] == []
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line[0] == "!"} == {name.partition("/")[0] for name in names}
    build = compose["services"]["bridge"]["build"]
    assert (DEPLOY / "mq" / build["context"] / build["dockerfile"]).is_file()
    assert build["target"] in stages()
    for line in (DEPLOY / "mq" / "bridge.mqsc").read_text().splitlines():
        assert "GROUP" not in line or line.startswith("*") or "GROUP('mqbridge')" in line  # the text that sed replaces


def test_each_stage_starts_with_an_existing_one() -> None:
    earlier_stages: set[str] = set()
    for name, (begin, *instructions) in stages().items():
        assert begin.split()[1] in earlier_stages | {"${PYTHON}"}
        assert {stage for line in instructions for stage in re.findall(r"--from=(\S+)", line)} <= earlier_stages
        earlier_stages.add(name)


@pytest.mark.parametrize("target", ["embedded", "ibm"])
def test_the_bridge_does_not_run_as_root(target: str) -> None:
    assert stages()[target][-1] == f"USER {USER}"
    # Compilers and installers stay in the build stages.
    assert not [line for line in stages()[target] + stages()["base"] if "pip install" in line or "apt-get" in line]


def test_the_health_check_detects_a_hanging_bridge(tmp_path: Path) -> None:
    (check,) = (line for line in stages()["base"] if line.startswith("HEALTHCHECK"))
    port = free_port()
    program, *words = json.loads(check.partition(" CMD ")[2])
    assert program == "/opt/mqbridge/bin/python"
    command = [sys.executable, *(word.replace(":9157/", f":{port}/") for word in words)]
    bridge = BridgeProcess(tmp_path / "data", config=f"admin: {{port: {port}}}\n").start()
    alive = subprocess.run(command, timeout=PATIENCE, check=False)
    assert (bridge.stop(), alive.returncode) == (0, 0)
    assert subprocess.run(command, timeout=PATIENCE, check=False, stderr=subprocess.DEVNULL).returncode != 0
