"""`mqbridge install-service`: the bridge as a service of systemd, or of a queue manager of IBM MQ."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.failures import FAILED, WRONG_USAGE, Failure
from bridge.shipped import shipped_file

#: What the files of `deploy/` say, and each system has of its own.
PROGRAM, CONFIGURATION, USER = Path("/opt/mqbridge/bin/mqbridge"), Path("/etc/mqbridge/bridge.yaml"), "mqbridge"
#: Where each goes that is the service's own. Its configuration is the administrator's: it is written once, and never removed.
SYSUSERS, TMPFILES = Path("/etc/sysusers.d/mqbridge.conf"), Path("/etc/tmpfiles.d/mqbridge.conf")
FILES = {
    Path("/etc/systemd/system/mqbridge.service"): "deploy/mqbridge.service",
    Path("/etc/systemd/system/mqbridge-pipeline@.service"): "deploy/mqbridge-pipeline@.service",
    SYSUSERS: "deploy/sysusers.conf",
    TMPFILES: "deploy/tmpfiles.conf",
}
#: Units of a package, beside which nobody needs others of the same name.
PACKAGED = (Path("/usr/lib/systemd/system/mqbridge.service"), Path("/lib/systemd/system/mqbridge.service"))
#: What the unit does not see (ProtectHome=, PrivateTmp=).
HIDDEN = (Path("/home"), Path("/root"), Path("/run/user"), Path("/tmp"), Path("/var/tmp"))

_USER = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
#: Lines of units, sysusers.d(5) and tmpfiles.d(5) that name the user or its group.
_OF_USER = re.compile(r"^(?:User=|Group=|u |d ).*$", re.M)
#: A path that systemd, sysusers.d, tmpfiles.d and MQSC take as it stands.
_PATH = re.compile(r"(?:/[A-Za-z0-9_.,:@=-]+)+")


@dataclass(frozen=True)
class Service:
    """What is particular of a service: the program and its configuration file, its user, and the root that it goes below."""

    program: Path
    config: Path
    user: str
    root: Path

    def place(self, path: Path) -> Path:
        """Return where a path of the service is from here."""
        return self.root / path.relative_to("/")

    def text(self, name: str) -> str:
        """Return a file of `deploy/` with what is particular of this service in it."""
        text = shipped_file(name).read_text(encoding="utf-8")
        text = text.replace(str(PROGRAM), str(self.program))
        if self.config.parent != CONFIGURATION.parent:  # a directory of somebody else's keeps its mode and owner
            text = re.sub(rf"^d {CONFIGURATION.parent} .*\n", "", text, flags=re.M)
        text = text.replace(str(CONFIGURATION), str(self.config))
        return _OF_USER.sub(lambda line: re.sub(rf"(?<=[ =]){USER}(?= |$)", self.user, line[0]), text)


def install_service(
    user: Annotated[str, typer.Option(metavar="NAME", help="The user that the service runs as, and its group.")] = USER,
    config: Annotated[
        Path, typer.Option(metavar="FILE", help="Its configuration file, which is written if it is not there.")
    ] = CONFIGURATION,
    root: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Write below this directory, as for an image; no program of systemd is run then."
        ),
    ] = Path("/"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Stop the service and remove its files, but for configuration and data.")
    ] = False,
    mq: Annotated[
        bool,
        typer.Option("--mq", help="Print MQSC that makes it a service of a queue manager of IBM MQ; nothing else."),
    ] = False,
) -> None:
    """Install the bridge as a service of systemd, and say each thing that is done.

    It writes the units, which run the mqbridge that you run now, has systemd make user and directories, and writes a
    configuration file where there is none. It starts nothing. A second time it changes nothing that is as it should be;
    a file that is otherwise is kept beside the new one, as FILE.old.

    Exit status 1 when something could not be done; that is a line on standard error.
    """
    if not _USER.fullmatch(user):
        raise Failure(f"--user {user}: expected a name of a-z, 0-9, _ and -, at most 31 of them", WRONG_USAGE)
    service = Service(_running_program(), config, user, root.absolute())
    for option, path in (("--config", config), ("mqbridge is at", service.program)):
        if not _PATH.fullmatch(str(path)) or ".." in path.parts:
            raise Failure(f"{option} {path}: expected an absolute path of letters, digits and _.,:@=-", WRONG_USAGE)
    if mq:
        typer.echo(service.text("deploy/mq/service.mqsc"), nl=False)
        return
    work = Work(service.root, dry_run)
    if not (work.is_elsewhere or dry_run or os.geteuid() == 0):
        raise Failure("install-service writes to /etc: run it as root, or see with --dry-run what it would do")
    if remove:
        _remove(service, work)
    else:
        if not work.is_elsewhere:
            _refuse(service)
        _install(service, work)
    raise typer.Exit(FAILED if work.failed else 0)


def unseen(*paths: Path) -> Iterator[Path]:
    """Yield those of the paths that the unit cannot run, because systemd hides their directory from it."""
    return (path for path in paths if any(path.is_relative_to(hidden) for hidden in HIDDEN))


def _running_program() -> Path:
    """Return the `mqbridge` beside the Python that runs: of a virtual environment, its own."""
    program = Path(sys.executable).absolute().with_name("mqbridge")
    found = program if program.is_file() else shutil.which("mqbridge")
    if found is None:
        raise Failure(f"there is no program mqbridge beside {sys.executable}, nor on PATH: install the package first")
    return Path(found)


def _refuse(service: Service) -> None:
    """Raise Failure where this system cannot have the service."""
    if package := next((path for path in PACKAGED if path.exists()), None):
        raise Failure(f"a package has installed the service already ({package}): nothing is to be done here")
    interpreter = Path(sys.executable).resolve()
    if hidden := list(unseen(service.program, interpreter)):
        raise Failure(
            f"{hidden[0]} is in a directory that the service does not see; install the bridge with a Python of the system:"
            " python3 -m venv /opt/mqbridge, then /opt/mqbridge/bin/pip install . in its sources, or of its wheel"
        )


class Work:
    """What is done to a system, each thing with a line that says so; with `is_dry` nothing is done."""

    def __init__(self, root: Path, is_dry: bool) -> None:
        self._is_dry = is_dry
        #: whether the system is not the one that runs
        self.is_elsewhere = root != Path("/")
        self.failed = False
        #: whether anything was to be changed
        self.changed = False

    def say(self, text: str) -> None:
        typer.echo(text)

    def write(self, path: Path, text: str) -> None:
        """Write a file that is the service's own, unless it is so already."""
        before = path.read_text(encoding="utf-8") if path.is_file() else None
        if before == text:
            self.say(f"{path}: as it should be")
            return
        self.changed = True
        if before is None:
            self.say(f"{path}: {self._will('written')}")
        else:
            self.say(f"{path}: {self._will('replaced')}; what it was is in {path}.old")
        if not self._is_dry:
            if not path.parent.exists():
                path.parent.mkdir(parents=True)
                path.parent.chmod(0o755)  # whatever the umask of root is
            if before is not None:
                path.with_name(f"{path.name}.old").write_text(before, encoding="utf-8")
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)

    def delete(self, path: Path) -> None:
        """Delete a file, if it is there."""
        if not path.is_file():
            self.say(f"{path}: not there")
            return
        self.changed = True
        self.say(f"{path}: {self._will('removed')}")
        if not self._is_dry:
            path.unlink()

    def run(self, *command: str) -> None:
        """Run a program of systemd, if it is there."""
        line = " ".join(command)
        if self.is_elsewhere:
            self.say(f"not run below another root: {line}")
        elif command[0] == "systemctl" and not Path("/run/systemd/system").is_dir():
            self.say(f"not run, for systemd does not run here: {line}")
        elif shutil.which(command[0]) is None:
            self._fail(f"{command[0]} is not there; have done by hand what it would have: {line}")
        elif self._is_dry:
            self.say(f"would run: {line}")
        else:
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            if ended.returncode:
                self._fail(f"{line}: {ended.stderr.strip() or f'exit status {ended.returncode}'}")
            else:
                self.say(f"run: {line}")

    def _will(self, participle: str) -> str:
        return f"would be {participle}" if self._is_dry else participle

    def _fail(self, text: str) -> None:
        self.failed = True
        typer.echo(text, err=True)


def _install(service: Service, work: Work) -> None:
    for path, name in FILES.items():
        work.write(service.place(path), service.text(name))
    work.run("systemd-sysusers", str(SYSUSERS))
    work.run("systemd-tmpfiles", "--create", str(TMPFILES))
    config = service.place(service.config)
    if config.exists():
        work.say(f"{config}: there already; left alone")
    else:
        work.write(config, service.text("deploy/service.yaml"))
    if not work.changed:
        work.say("nothing had to be changed")
        return
    work.run("systemctl", "daemon-reload")
    work.say("it is not started: systemctl enable --now mqbridge (one that runs: systemctl restart mqbridge)")


def _remove(service: Service, work: Work) -> None:
    if any(service.place(path).is_file() for path in FILES):
        work.run("systemctl", "stop", "mqbridge.service", "mqbridge-pipeline@*.service")
        work.run("systemctl", "disable", "mqbridge.service", "mqbridge-pipeline@.service")
    for path in FILES:
        work.delete(service.place(path))
    if not work.changed:
        work.say("nothing had to be removed")
        return
    work.run("systemctl", "daemon-reload")
    work.say("kept: its configuration file, the data in /var/lib/mqbridge, and its user")
