"""`mqbridge run`, `schema`, `version`, and `install-service`: the bridge as a process and as a service."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.failures import FAILED, WRONG_USAGE, Failure
from bridge.cli.options import BRIDGE, CONFIG, YES, LogLevel, argument, flag, option, settings, takes
from bridge.cli.output import confirm, note, say
from bridge.shipped import shipped_file


@takes(BRIDGE)
def run(
    file: Annotated[
        Path | None,
        argument("[FILE]", "Configuration file. Without it, all settings have their defaults."),
    ] = None,
    port: Annotated[
        int | None, option("N", "TCP port of the first channel. 0: any free port.", min=0, max=65535)
    ] = None,
    log_level: Annotated[LogLevel | None, option("LEVEL", "Log level: debug, info, warning or error.")] = None,
) -> None:
    """Run the bridge in the foreground, until Ctrl-C or SIGTERM."""
    from bridge.cli.queue_manager import configuration_in, configured, read

    path = file or settings.config
    configuration = configuration_in(path) if path is not None else None
    effective = configured(configuration, settings.data_dir, port, log_level.value if log_level else None)
    from bridge.service.foreground import run as serve
    from bridge.service.reload import ConfigurationSource

    source = ConfigurationSource(path, configuration, read) if path is not None and configuration is not None else None
    if effective.admin.port is None:
        raise typer.Exit(serve(effective, source))
    # Imported only if there is an admin port, because it imports an HTTP server.
    from bridge.console.server import AdminPort

    raise typer.Exit(serve(effective, source, AdminPort))


def schema(
    mapping_file: Annotated[
        bool, flag("Print the schema of a mapping file, which `mappings:` can name.", "--mapping-file")
    ] = False,
) -> None:
    """Print the JSON Schema of the configuration file, for editors.

    Save it, and name it in the first line of the file: # yaml-language-server: $schema=mqbridge.schema.json
    """
    import json

    from bridge.config.json_schema import json_schema, mapping_file_schema

    typer.echo(json.dumps(mapping_file_schema() if mapping_file else json_schema(), indent=2))


def version() -> None:
    """Print the versions of the bridge, Python and the platform."""
    import platform

    import bridge

    pure = bridge.compilation.PURE
    typer.echo(f"mqbridge {bridge.__version__} ({f'pure Python: {pure}' if pure else 'compiled'})")
    typer.echo(f"Python {platform.python_version()} ({platform.python_implementation()})")
    typer.echo(platform.platform())


# The service ---------------------------------------------------------------------------------------------------------

#: The values in the files of `deploy/` that each system replaces.
PROGRAM, CONFIGURATION, USER = Path("/opt/mqbridge/bin/mqbridge"), Path("/etc/mqbridge/bridge.yaml"), "mqbridge"
#: Files of the service. The configuration file belongs to the administrator: it is created, never replaced or removed.
SYSUSERS, TMPFILES = Path("/etc/sysusers.d/mqbridge.conf"), Path("/etc/tmpfiles.d/mqbridge.conf")
FILES = {
    Path("/etc/systemd/system/mqbridge.service"): "deploy/mqbridge.service",
    Path("/etc/systemd/system/mqbridge@.service"): "deploy/mqbridge@.service",
    Path("/etc/systemd/system/mqbridge-pipeline@.service"): "deploy/mqbridge-pipeline@.service",
    SYSUSERS: "deploy/sysusers.conf",
    TMPFILES: "deploy/tmpfiles.conf",
    # The units name it in Documentation=.
    Path("/usr/local/share/man/man1/mqbridge.1"): "deploy/man.py",
}
#: Drop-ins for a bridge on IBM MQ, with the same text.
DROP_INS = (
    Path("/etc/systemd/system/mqbridge.service.d/ibm-mq.conf"),
    Path("/etc/systemd/system/mqbridge@.service.d/ibm-mq.conf"),
    Path("/etc/systemd/system/mqbridge-pipeline@.service.d/ibm-mq.conf"),
)
#: The directory of IBM's library, by default.
LIBRARY_DIRECTORY = Path("/opt/mqm/lib64")
#: Units that a package installs.
PACKAGED = (Path("/usr/lib/systemd/system/mqbridge.service"), Path("/lib/systemd/system/mqbridge.service"))
#: Directories that are hidden from the unit (ProtectHome=, PrivateTmp=).
HIDDEN = (Path("/home"), Path("/root"), Path("/run/user"), Path("/tmp"), Path("/var/tmp"))

_USER = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
#: Lines of units, sysusers.d(5) and tmpfiles.d(5) that name the user or its group.
_OF_USER = re.compile(r"^(?:User=|Group=|u |d ).*$", re.M)
#: A path that needs no quoting in systemd, sysusers.d, tmpfiles.d and MQSC.
_PATH = re.compile(r"(?:/[A-Za-z0-9_.,:@=-]+)+")


@dataclass(frozen=True)
class Service:
    """A service: the program, its configuration file, its user, and the root directory of the system."""

    program: Path
    config: Path
    user: str
    root: Path

    def place(self, path: Path) -> Path:
        """Return a path of the service below the root directory."""
        return self.root / path.relative_to("/")

    def text(self, name: str) -> str:
        """Return a file of `deploy/` with the values of this service. A program there prints the manual page."""
        if name.endswith(".py"):
            return str(runpy.run_path(str(shipped_file(name)))["manual_page"]())
        text = shipped_file(name).read_text(encoding="utf-8")
        text = text.replace(str(PROGRAM), str(self.program))
        if self.config.parent != CONFIGURATION.parent:  # other directories keep their mode and owner
            text = re.sub(rf"^d {CONFIGURATION.parent} .*\n", "", text, flags=re.M)
        text = text.replace(str(CONFIGURATION), str(self.config))
        return _OF_USER.sub(lambda line: re.sub(rf"(?<=[ =]){USER}(?= |$)", self.user, line[0]), text)


def drop_in(service: Service) -> str | None:
    """Return the drop-in for a service, or None if it needs none, or its configuration has mistakes. Raises Failure."""
    from bridge.config.document import load_connection
    from bridge.config.problems import ConfigurationError

    config = service.place(service.config)
    if not config.is_file():
        return None
    try:
        settings = load_connection(config).queue_manager
    except ConfigurationError:
        note(f"warning: {config} has mistakes, so the drop-in for IBM MQ stays as it is (`mqbridge check` lists them)")
        return next((path.read_text(encoding="utf-8") for path in map(service.place, DROP_INS) if path.is_file()), None)
    if settings.type != "ibm":
        return None
    directory = _library_directory()
    if not _PATH.fullmatch(str(directory)):
        raise Failure(
            f"LD_LIBRARY_PATH {directory}: expected an absolute path of letters, digits and _.,:@=-", WRONG_USAGE
        )
    if any(unseen(directory)):
        raise Failure(
            f"{directory} is in a directory that is hidden from the service", hint="install IBM's client in /opt/mqm"
        )
    return service.text(f"deploy/ibm-mq-{settings.mode}.conf").replace(str(LIBRARY_DIRECTORY), str(directory))


def _library_directory() -> Path:
    """Return the directory of LD_LIBRARY_PATH that contains IBM's library, otherwise the default one."""
    for directory in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")):
        if any((Path(directory) / name).exists() for name in ("libmqm_r.so", "libmqic_r.so")):
            return Path(directory).absolute()
    return LIBRARY_DIRECTORY


@takes(CONFIG | YES)
def install_service(
    user: Annotated[str, option("NAME", "User and group of the service.", show_default=True)] = USER,
    root: Annotated[
        Path,
        option(
            "DIR", "Install into the system below this directory. Programs of systemd are not run.", show_default=True
        ),
    ] = Path("/"),
    dry_run: Annotated[bool, flag("Print the changes without making them.", "--dry-run")] = False,
    remove: Annotated[
        bool, flag("Stop the service and remove its files, except configuration and data.", "--remove")
    ] = False,
    mq: Annotated[
        bool,
        flag("Print the MQSC that defines a service of an IBM MQ queue manager, and do nothing else.", "--mq"),
    ] = False,
) -> None:
    """Install the bridge as a service of systemd.

    The command installs systemd units that run this mqbridge installation, and a manual page. It creates the user, the
    directories and, if it does not exist, the configuration file (--config, by default /etc/mqbridge/bridge.yaml). It does
    not start the service. It saves edited files as FILE.old before it replaces them. It prints each step.

    If the configuration has `type: ibm`, it also writes a drop-in for IBM MQ, with the path of the library (LD_LIBRARY_PATH)
    and the directories that the library writes to. Run the command again after you change `type` or `mode`. If a package has
    installed the units, it writes only the drop-in.

    Exit status 1 if a step failed.
    """
    config = settings.config or CONFIGURATION
    if not _USER.fullmatch(user):
        raise Failure(f"--user {user}: expected a name of at most 31 characters a-z, 0-9, _ and -", WRONG_USAGE)
    service = Service(running_program(), config, user, root.absolute())
    for label, path in (("--config", config), ("mqbridge is at", service.program)):
        if not _PATH.fullmatch(str(path)) or ".." in path.parts:
            raise Failure(f"{label} {path}: expected an absolute path of letters, digits and _.,:@=-", WRONG_USAGE)
    if mq:
        typer.echo(service.text("deploy/mq/service.mqsc"), nl=False)
        return
    work = Work(service.root, dry_run)
    if not (work.is_elsewhere or dry_run or os.geteuid() == 0):
        raise Failure("install-service writes to /etc", hint="run it as root, or with --dry-run")
    if remove:
        if not dry_run:
            confirm("Remove the service?")
        _remove(service, work)
    else:
        packaged = False
        if not work.is_elsewhere:
            packaged = _refuse(service)
        _install(service, work, packaged=packaged)
    raise typer.Exit(FAILED if work.failed else 0)


#: Settings of the unit that are not restrictions of its processes. RuntimeDirectory= would delete the directory of the
#: running service at the end of the check.
_NOT_RESTRICTIONS = re.compile(
    r"(Exec\w+|Type|NotifyAccess|WatchdogSec|Restart\w*|Timeout\w*|KillMode|RuntimeDirectory\w*|LoadCredential\w*|SetCredential\w*)="
)


def restricted(command: list[str]) -> list[str]:
    """Return a command that runs another one with the user and the restrictions of the installed unit. Raises Failure."""
    if not Path("/run/systemd/system").is_dir():
        raise Failure("--as-service: systemd is not running", hint="run the command as the user of the service instead")
    unit_file = subprocess.run(["systemctl", "cat", "mqbridge.service"], capture_output=True, text=True, check=False)
    if unit_file.returncode:
        raise Failure(f"--as-service: {unit_file.stderr.strip()}", hint="mqbridge install-service installs the service")
    properties, section = [], ""
    for line in map(str.strip, unit_file.stdout.replace("\\\n", " ").splitlines()):
        if line.startswith("["):
            section = line
        elif section == "[Service]" and re.match(r"\w+=", line) and not _NOT_RESTRICTIONS.match(line):
            properties.append(f"--property={line}")
    run = ["systemd-run", "--quiet", "--unit=mqbridge-check", "--collect", "--wait", "--pipe", *properties]
    return [*run, *command]


def unseen(*paths: Path) -> Iterator[Path]:
    """Yield the paths that are hidden from the unit."""
    return (path for path in paths if any(path.is_relative_to(hidden) for hidden in HIDDEN))


def running_program() -> Path:
    """Return the path of `mqbridge`, which is in the directory of the Python interpreter or on PATH. Raises Failure."""
    program = Path(sys.executable).absolute().with_name("mqbridge")
    path = program if program.is_file() else shutil.which("mqbridge")
    if path is None:
        raise Failure(f"no program mqbridge next to {sys.executable} or on PATH", hint="install the package first")
    return Path(path)


def _refuse(service: Service) -> bool:
    """Raise Failure if the service cannot be installed on this system. Return whether a package has installed the units."""
    if package := next((path for path in PACKAGED if path.exists()), None):
        if drop_in(service) is None and not any(path.is_file() for path in DROP_INS):
            raise Failure(f"a package has already installed the service ({package})")
        return True
    interpreter = Path(sys.executable).resolve()
    if hidden := list(unseen(service.program, interpreter)):
        raise Failure(
            f"{hidden[0]} is in a directory that is hidden from the service",
            hint="install the bridge with the system's Python: python3 -m venv /opt/mqbridge, then"
            " /opt/mqbridge/bin/pip install . in its sources, or its wheel",
        )
    return False


class Work:
    """Steps of an installation. Each is printed. With `is_dry`, nothing is changed."""

    def __init__(self, root: Path, is_dry: bool) -> None:
        self._is_dry = is_dry
        #: the target is not the running system
        self.is_elsewhere = root != Path("/")
        self.failed = False
        #: something was changed, or would be
        self.changed = False

    def write(self, path: Path, text: str) -> None:
        """Write a file of the service if its content differs."""
        before = path.read_text(encoding="utf-8") if path.is_file() else None
        if before == text:
            say(f"{path}: unchanged")
            return
        self.changed = True
        if before is None:
            say(f"{path}: {self._will('written')}")
        else:
            say(f"{path}: {self._will('replaced')}; the previous file is {path}.old")
        if not self._is_dry:
            if not path.parent.exists():
                path.parent.mkdir(parents=True)
                path.parent.chmod(0o755)  # independent of the umask of root
            if before is not None:
                path.with_name(f"{path.name}.old").write_text(before, encoding="utf-8")
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)

    def delete(self, path: Path) -> None:
        """Delete a file if it exists."""
        if not path.is_file():
            say(f"{path}: does not exist")
            return
        self.changed = True
        say(f"{path}: {self._will('removed')}")
        if not self._is_dry:
            path.unlink()

    def run(self, *command: str) -> None:
        """Run a program of systemd if possible."""
        line = " ".join(command)
        if self.is_elsewhere:
            say(f"not run, because of --root: {line}")
        elif command[0] == "systemctl" and not Path("/run/systemd/system").is_dir():
            say(f"not run, because systemd is not running: {line}")
        elif shutil.which(command[0]) is None:
            self._fail(f"{command[0]} is not installed, and could not run: {line}")
        elif self._is_dry:
            say(f"would run: {line}")
        else:
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            if ended.returncode:
                self._fail(f"{line}: {ended.stderr.strip() or f'exit status {ended.returncode}'}")
            else:
                say(f"run: {line}")

    def _will(self, participle: str) -> str:
        return f"would be {participle}" if self._is_dry else participle

    def _fail(self, text: str) -> None:
        self.failed = True
        typer.echo(text, err=True)


def _install(service: Service, work: Work, *, packaged: bool) -> None:
    if not packaged:
        for path, name in FILES.items():
            work.write(service.place(path), service.text(name))
        work.run("systemd-sysusers", str(SYSUSERS))
        work.run("systemd-tmpfiles", "--create", str(TMPFILES))
    config = service.place(service.config)
    if config.exists():
        say(f"{config}: exists, left unchanged")
    else:
        work.write(config, service.text("deploy/service.yaml"))
    text = drop_in(service)
    for path in map(service.place, DROP_INS):
        if text is not None:
            work.write(path, text)
        elif path.is_file():
            work.delete(path)
    if not work.changed:
        say("nothing to change")
        return
    work.run("systemctl", "daemon-reload")
    say("start the service with `systemctl enable --now mqbridge`, or restart it with `systemctl restart mqbridge`")


def _remove(service: Service, work: Work) -> None:
    if any(service.place(path).is_file() for path in FILES):
        work.run("systemctl", "stop", "mqbridge.service", "mqbridge@*.service", "mqbridge-pipeline@*.service")
        work.run("systemctl", "disable", "mqbridge.service", "mqbridge@.service", "mqbridge-pipeline@.service")
    for path in FILES:
        work.delete(service.place(path))
    for path in map(service.place, DROP_INS):
        if path.is_file():
            work.delete(path)
    if not work.changed:
        say("nothing to remove")
        return
    work.run("systemctl", "daemon-reload")
    say("kept: the configuration file, the data in /var/lib/mqbridge, and the user")
