"""The Debian package: built, then installed, upgraded, removed and purged in a separate Debian (a chroot)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.installed import program
from tests.helpers.line_process import LineProcess
from tests.helpers.mosquitto import Subscriber, publish

ROOT = Path(__file__).parents[3]
MIRROR = "http://deb.debian.org/debian"
#: Timeout for the network and the package manager, in seconds.
LONG = 3600
#: The chroot of the tests, kept for the next run. It has the release of Debian on which the tests run, as the package does.
BASE = ROOT / "build" / "chroot.tar"
#: Dependencies of the package in Debian, and setpriv.
PACKAGES = "python3,systemd,util-linux"

#: The completion of a shell for `mqbridge inst` and the Tab key.
COMPLETE = """
. /usr/share/bash-completion/completions/mqbridge
COMP_WORDS=(mqbridge inst) COMP_CWORD=1
_mqbridge_completion mqbridge
echo "${COMPREPLY[@]}"
"""

#: Path of the unit.
PACKAGED, INSTALLED = "lib/systemd/system", "etc/systemd/system"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3 * LONG),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a chroot"),
]


def run(*words: str | Path, **options: Any) -> str:
    """Return the output of a command that succeeds."""
    process = subprocess.run(words, capture_output=True, text=True, timeout=LONG, check=False, **options)
    assert process.returncode == 0, f"{words}: {process.stdout[-4000:]}{process.stderr[-4000:]}"
    return process.stdout


class Debian:
    """A Debian in a directory, without systemd: `policy-rc.d` prevents package scripts from starting services."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def command(self, *words: str, user: str | None = None) -> list[str]:
        """Run a command in the chroot, with a temporary /proc."""
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        inside = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
        return ["unshare", "--mount", "sh", "-c", inside, str(self.directory), *as_user, *words]

    def run(self, *words: str) -> str:
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND": "noninteractive",
            "LC_ALL": "C.UTF-8",
        }
        return run(*self.command(*words), env=environment, stdin=subprocess.DEVNULL)

    def install(self, package: Path) -> str:
        name = re.sub("_[^_]*$", ".deb", package.name)
        shutil.copy(package, self.directory / name)
        return self.run("apt-get", "install", "--yes", "--no-install-recommends", f"/{name}")

    def owner(self, path: str) -> str:
        """Return mode, user and group of a file, by its passwd."""
        return self.run("stat", "-c", "%a %U:%G", path).strip()

    def exists(self, path: str) -> bool:
        return os.path.lexists(self.directory / path.lstrip("/"))

    def service(self, directory: str) -> LineProcess:
        """Start the bridge as the unit does, at a free port: the network is that of this machine."""
        unit = (self.directory / directory / "mqbridge.service").read_text()
        start = re.search("^ExecStart=(.*)$", unit, re.M)
        assert start and "\nUser=mqbridge\n" in unit and "\nLogsDirectory=mqbridge\n" in unit
        self.run("install", "-d", "-m", "0750", "-o", "mqbridge", "-g", "mqbridge", "/var/log/mqbridge")
        return LineProcess(self.command(*start[1].split(), "--port", "0", user="mqbridge"))


def port_of(bridge: LineProcess) -> int:
    return int(bridge.line_where(lambda line: "listens for MQTT clients" in line).rpartition(":")[2])


@pytest.fixture
def debian(tmp_path: Path) -> Iterator[Debian]:
    directory = tmp_path / "debian"
    if not BASE.is_file():
        codename = re.search("^VERSION_CODENAME=(.*)$", Path("/etc/os-release").read_text(), re.M)
        assert codename
        base = tmp_path / "base"
        run(program("debootstrap"), "--variant=minbase", f"--include={PACKAGES}", codename[1], base, MIRROR)
        BASE.parent.mkdir(exist_ok=True)
        run("tar", "-C", base, "-cf", BASE.with_suffix(".part"), ".")
        BASE.with_suffix(".part").rename(BASE)
        shutil.rmtree(base)
    directory.mkdir()
    run("tar", "-C", directory, "-xf", BASE)
    policy = directory / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    yield Debian(directory)
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Build the package of the working tree as another version: `package("0.1.1")`. lintian finds no error in it."""

    @cache
    def build(version: str) -> Path:
        source = tmp_path_factory.mktemp(version) / "source"
        skip = shutil.ignore_patterns("__pycache__", "compiled")
        for name in ("bridge", "deploy", "docs", "mappings"):
            shutil.copytree(ROOT / name, source / name, ignore=skip)
        for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"):
            shutil.copy(ROOT / name, source)
        for file, begin in (("pyproject.toml", "version = "), ("bridge/__init__.py", "__version__ = ")):
            text, count = re.subn(f'^{begin}".*"$', f'{begin}"{version}"', (source / file).read_text(), flags=re.M)
            assert count == 1
            (source / file).write_text(text)
        run("make", "deb", cwd=source)
        (built,) = (source / "build").glob(f"mqbridge_{version}_*.deb")
        return built

    return build


def test_the_package_is_installed_upgraded_removed_and_purged(debian: Debian, package: Callable[[str], Path]) -> None:
    """An upgrade and a removal keep the configuration. A purge deletes it, but not the messages."""
    debian.install(package("0.0.1"))
    assert debian.run("mqbridge", "--version").splitlines()[0] == "mqbridge 0.0.1 (compiled)"
    for document in ("docs/index.md", "examples/alerts.yaml", "examples/grafana.json"):
        assert debian.exists(f"/usr/share/doc/mqbridge/{document}") or debian.exists(
            f"/usr/share/doc/mqbridge/{document}.gz"
        )
    assert debian.owner("/var/lib/mqbridge") == "750 mqbridge:mqbridge"
    assert debian.owner("/etc/mqbridge") == "750 root:mqbridge"
    assert debian.exists("/etc/systemd/system/multi-user.target.wants/mqbridge.service")
    debian.run("systemd-analyze", "verify", "--man=no", "mqbridge.service", "mqbridge-pipeline@averages.service")
    assert debian.run("bash", "-c", COMPLETE).strip() == "install-service"
    # Root has not written any bytecode, either: that of the package is used.
    assert debian.run("find", "/usr/lib/mqbridge", "-type", "f", "-newer", "/mqbridge_0.0.1.deb") == ""
    # Python packages that an administrator adds are found.
    (debian.directory / "usr/local/lib/mqbridge").mkdir()
    (debian.directory / "usr/local/lib/mqbridge/plant.py").write_text("print('found')")
    assert debian.run("/usr/lib/mqbridge/bin/python3", "-c", "import plant") == "found\n"
    refused = subprocess.run(
        debian.command("mqbridge", "install-service"), capture_output=True, text=True, timeout=LONG
    )
    assert refused.returncode == 1
    assert "a package has already installed the service (/usr/lib/systemd/system/mqbridge.service)" in refused.stderr

    with debian.service(PACKAGED) as bridge:
        publish(port_of(bridge), "plant/state", "running", "-r", qos=1)
        assert bridge.terminate() == 0
    assert debian.owner("/var/lib/mqbridge/queuemanager.db").endswith(" mqbridge:mqbridge")

    configuration = debian.directory / "etc/mqbridge/bridge.yaml"
    edited = f"{configuration.read_text()}\nlog: {{level: debug}}\n"
    configuration.write_text(edited)
    debian.install(package("0.0.2"))
    assert debian.run("mqbridge", "--version").startswith("mqbridge 0.0.2 ")
    assert configuration.read_text() == edited
    with debian.service(PACKAGED) as bridge, Subscriber(port_of(bridge), "plant/#", qos=1) as subscriber:
        assert subscriber.message() == {"topic": "plant/state", "payload": "running", "qos": 1, "retain": 1}
        assert bridge.terminate() == 0

    debian.run("apt-get", "remove", "--yes", "mqbridge")
    assert [path for path in ("/usr/bin/mqbridge", "/usr/lib/mqbridge") if debian.exists(path)] == []
    assert configuration.read_text() == edited
    assert debian.exists("/var/lib/mqbridge/queuemanager.db")

    assert "rm -r /var/lib/mqbridge" in debian.run("apt-get", "purge", "--yes", "mqbridge")
    assert debian.exists("/var/lib/mqbridge/queuemanager.db")
    shutil.rmtree(debian.directory / "var/lib/mqbridge")
    shutil.rmtree(debian.directory / "usr/local/lib/mqbridge")
    remaining_files = debian.run("find", "/etc", "/usr", "/var", "/lib/systemd", "-xdev", "-name", "*mqbridge*").split()
    assert remaining_files == []
    # The user ID is not reused, because a backup may contain files of the user.
    assert "mqbridge" in (debian.directory / "etc/passwd").read_text()


def test_install_service_in_a_chroot(debian: Debian, package: Callable[[str], Path]) -> None:
    """From an environment in /opt, where pip would have installed it: user, directories and units, and a running bridge."""
    debian.install(package("0.0.1"))
    debian.run("cp", "-a", "/usr/lib/mqbridge", "/opt/mqbridge")
    debian.run("sed", "-i", "1s|/usr/lib/|/opt/|", "/opt/mqbridge/bin/mqbridge")
    debian.run("apt-get", "purge", "--yes", "mqbridge")
    debian.run("userdel", "mqbridge")

    lines = debian.run("/opt/mqbridge/bin/mqbridge", "install-service").splitlines()
    assert lines == [
        "/etc/systemd/system/mqbridge.service: written",
        "/etc/systemd/system/mqbridge@.service: written",
        "/etc/systemd/system/mqbridge-pipeline@.service: written",
        "/etc/sysusers.d/mqbridge.conf: written",
        "/etc/tmpfiles.d/mqbridge.conf: written",
        "/usr/local/share/man/man1/mqbridge.1: written",
        "run: systemd-sysusers /etc/sysusers.d/mqbridge.conf",
        "run: systemd-tmpfiles --create /etc/tmpfiles.d/mqbridge.conf",
        "/etc/mqbridge/bridge.yaml: written",
        "not run, because systemd is not running: systemctl daemon-reload",
        "start the service with `systemctl enable --now mqbridge`, or restart it with `systemctl restart mqbridge`",
    ]
    assert debian.owner("/var/lib/mqbridge") == "750 mqbridge:mqbridge"
    assert debian.owner("/etc/mqbridge") == "750 root:mqbridge"
    debian.run(
        "systemd-analyze",
        "verify",
        "--man=no",
        "mqbridge.service",
        "mqbridge@shard-0.service",
        "mqbridge-pipeline@averages.service",
    )
    with debian.service(INSTALLED) as bridge:
        publish(port_of(bridge), "plant/state", "running", qos=1)
        assert bridge.terminate() == 0

    assert debian.run("/opt/mqbridge/bin/mqbridge", "install-service").endswith("nothing to change\n")
    debian.run("/opt/mqbridge/bin/mqbridge", "install-service", "--remove")
    assert not debian.exists("/etc/systemd/system/mqbridge.service")
    assert debian.exists("/var/lib/mqbridge/queuemanager.db") and debian.exists("/etc/mqbridge/bridge.yaml")
