"""`mqbridge check`: mistakes in a configuration file, missing files and packages, and a description of its effects."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from bridge.administration.answers import counted
from bridge.administration.configuration import Setting
from bridge.cli.failures import FAILED, WRONG_USAGE, Failure, failure_of
from bridge.cli.options import CONFIG, OUTPUT, Format, argument, flag, settings, takes
from bridge.cli.output import print_record, print_table, shortened, table_of
from bridge.extras import install

if TYPE_CHECKING:
    from bridge.config.channel import ChannelConfig
    from bridge.config.link import LinkConfig
    from bridge.config.models import Configuration
    from bridge.config.operations import AdminConfig, TracesConfig
    from bridge.config.queue_manager import ListenerConfig

    Listening = ChannelConfig | ListenerConfig | AdminConfig


class CheckFindings(msgspec.Struct):
    """The results of `mqbridge check`, as printed by `-o json`."""

    file: str
    ok: bool = False
    #: mistakes in the file, each with file, line, column, key, expected and found
    mistakes: list[dict[str, Any]] = []
    #: a description of the effective configuration
    description: list[str] = []
    #: the settings that differ from their defaults
    changed: list[Setting] = []
    loops: list[str] = []
    notes: list[str] = []
    #: missing files, environment variables and packages
    missing: list[str] = []
    #: with --connect: missing objects and authorities of the queue manager, and those that only some clients need
    queue_manager_lacks: list[str] = []
    queue_manager_notes: list[str] = []


@takes(CONFIG | OUTPUT)
def check(
    file: Annotated[Path | None, argument("[FILE]", "Configuration file.")] = None,
    connect: Annotated[
        bool,
        flag(
            "Also connect to the queue manager and the brokers, and report missing objects and authorities.",
            "--connect",
        ),
    ] = False,
    changed: Annotated[
        bool, flag("Print only the settings that differ from their defaults, with line and default.", "--changed")
    ] = False,
    as_service: Annotated[
        bool,
        flag(
            "Check as the installed service: as its user, with the restrictions of its unit. Needs root.",
            "--as-service",
        ),
    ] = False,
) -> None:
    """Check a configuration file, and print its effective settings, including defaults.

    Values of plugin options, Spark settings and message properties whose names indicate a secret, such as token or api_key,
    are printed as (hidden), and so are passwords in URLs.

    With --changed, only the settings that differ from their defaults are printed, with the lines of the file that set them.
    `-o json` has them in any case.

    Exit status 2 if the file has mistakes. Each mistake is a line on standard error.

    Exit status 1 if a file, environment variable or package is missing. With --connect, also if the queue manager or a
    broker cannot be reached, or the queue manager lacks an object or an authority. Each problem is a line on standard
    error. For a missing object or authority, the line contains the MQSC command that creates it. A queue manager or broker
    that accepts the connection and does not answer is reported within 15 seconds. Lines that start with note: point out
    settings that may not do what you expect.

    With --as-service, systemd runs the check (systemd-run). Credentials of the unit (LoadCredential=) are missing then.
    """
    from bridge.cli.queue_manager import configuration_path

    config = file or configuration_path()
    if as_service:
        from bridge.cli.service import restricted, running_program

        options = [*["--connect"] * connect, *["--changed"] * changed]
        words = ["check", str(config.absolute()), *options, "--output", settings.output.value]
        raise typer.Exit(subprocess.run(restricted([str(running_program()), *words]), check=False).returncode)
    findings, status = find(config, connect)
    if settings.output is not Format.table:
        print_record(findings, config, lambda _: None)
        raise typer.Exit(status)
    if findings.mistakes:
        lines = tuple(str(mistake["text"]) for mistake in findings.mistakes)
        raise Failure(f"{config}: {counted(len(lines), 'mistake')}", status, lines=lines)
    if changed:
        columns: dict[str, Any] = {
            "setting": "key",
            "value": lambda setting: shortened(setting.value),
            "default": lambda setting: "(none)" if setting.default is None else shortened(setting.default),
            "source": "source",
        }
        print_table(*table_of(findings.changed, columns), "every setting has its default")
    else:
        for line in findings.description:
            typer.echo(line)
    for loop in findings.loops:
        typer.echo(f"loop: {loop}")
    for note in findings.notes:
        typer.echo(f"note: {note}")
    for note in findings.queue_manager_notes:
        typer.echo(f"note: {note}", err=True)
    missing = (*findings.missing, *findings.queue_manager_lacks)
    if missing:
        raise Failure(f"{config} is valid, but {counted(len(missing), 'requirement')} not met", status, lines=missing)
    typer.echo(f"{config} is OK")


def find(config: Path, connect: bool) -> tuple[CheckFindings, int]:
    """Return the findings about a configuration file, and the exit status."""
    from bridge.administration.setting_list import settings_of
    from bridge.cli.queue_manager import configured, read
    from bridge.config.advice import advice
    from bridge.config.effective import described
    from bridge.config.problems import ConfigurationError
    from bridge.mapping.check import loops_of, warnings_of

    findings = CheckFindings(str(config))
    try:
        configuration = read(config)
    except ConfigurationError as error:
        names = ("line", "column", "key", "expected", "found")
        findings.mistakes = [
            {"text": str(problem), "file": str(problem.file)} | {name: getattr(problem, name) for name in names}
            for problem in error.problems
        ]
        return findings, WRONG_USAGE
    empty = not configuration.model_fields_set
    configuration = configured(configuration, settings.data_dir, None, None)
    findings.changed = [setting for setting in settings_of(configuration) if setting.differs]
    findings.description = [*described(configuration), *sizes(configuration)]
    findings.loops = [str(loop) for loop in loops_of(configuration)]
    findings.notes = list(warnings_of(configuration))
    findings.notes += advice(configuration)
    findings.notes += long_user_names(configuration)
    findings.notes += expiring(configuration)
    findings.notes += undefined_queues(configuration)
    findings.notes += late_limits(configuration)
    if empty:
        findings.notes.append(f"{config} is empty: every setting has its default")
    findings.missing = list(lacking(configuration))
    if connect:
        from bridge.cli.connections import lacking_at_queue_manager, unreachable

        used = ((name, link) for name, link in _used_links(configuration) if not any(_of_link(name, link)))
        brokers = unreachable(used)
        try:
            findings.queue_manager_lacks, findings.queue_manager_notes = lacking_at_queue_manager(configuration)
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            findings.queue_manager_lacks = failure.text.splitlines()
        findings.missing += brokers()
        if not findings.queue_manager_lacks:
            exceptions = ", except for the notes" if findings.queue_manager_notes else ""
            name = configuration.queue_manager.name
            findings.description.append(f"queue manager {name} meets all requirements of the bridge{exceptions}")
    findings.ok = not findings.missing and not findings.queue_manager_lacks
    return findings, 0 if findings.ok else FAILED


# Memory ---------------------------------------------------------------------------------------------------------------


def sizes(configuration: Configuration) -> Iterator[str]:
    """Yield a line with the sizes of the limits that are shares of the available memory of this machine."""
    from bridge.mq.memory import MIB, available_memory, in_bytes

    limits = configuration.limits
    embedded = configuration.queue_manager.type == "embedded"
    names = ["waiting_total", *(["retained_total"] if embedded else []), "dead_letter_total", "memory_watermark"]
    shares = {name: share for name in names if (share := getattr(limits, name)) is not None}
    amounts = ", ".join(f"{name} {in_bytes(share) / MIB:,.0f} MiB" for name, share in shares.items())
    yield f"of {available_memory() / MIB:,.0f} MiB of available memory: {amounts}"


def late_limits(configuration: Configuration) -> Iterator[str]:
    """Yield a note if the memory watermark may reject publications before the limits of backlogs apply."""
    from bridge.mq.memory import MIB, in_bytes

    limits = configuration.limits
    if limits.memory_watermark is None or configuration.queue_manager.type != "embedded":
        return
    total = sum(map(in_bytes, (limits.waiting_total, limits.retained_total, limits.dead_letter_total)))
    watermark = in_bytes(limits.memory_watermark)
    if total > watermark:
        yield (
            f"limits.waiting_total, retained_total and dead_letter_total are {total / MIB:,.0f} MiB together, more than"
            f" limits.memory_watermark ({watermark / MIB:,.0f} MiB): the bridge may reject all publications before these"
            " limits apply"
        )


# Requirements ---------------------------------------------------------------------------------------------------------

#: A queue definition in MQSC.
_DEFINED_QUEUE = re.compile(
    r"\bDEF(?:INE)?\s+Q(?:LOCAL|L|ALIAS|A|REMOTE|R)\s*\(\s*('[^']*'|[^\s')]+)\s*\)", re.IGNORECASE
)


def undefined_queues(configuration: Configuration) -> Iterator[str]:
    """Yield a note for each queue of a mapping that no script of the embedded queue manager defines."""
    from bridge.config.mapping import ToMqttMapping

    settings = configuration.queue_manager
    if settings.type != "embedded":
        return
    defined: set[str] = set()
    for script in settings.scripts:
        if os.access(script, os.R_OK):
            names = _DEFINED_QUEUE.findall(script.read_text(encoding="utf-8", errors="replace"))
            defined |= {name[1:-1] if name.startswith("'") else name.upper() for name in names}
    for name, mapping in configuration.mappings.items():
        side = mapping.source if isinstance(mapping, ToMqttMapping) else mapping.destination
        for queue in dict.fromkeys(filter(None, (side.queue, side.requests_queue))):
            if "{" not in queue and not queue.startswith("SYSTEM.") and queue not in defined:
                yield (
                    f"mapping {name}: no script in queue_manager.scripts defines queue {queue}; unless a command has defined"
                    f" it, the mapping needs DEFINE QLOCAL('{queue}')"
                )


def long_user_names(configuration: Configuration) -> Iterator[str]:
    """Yield a note for each password file of a channel with user names that are too long for an MQ user."""
    from bridge.config.advice import is_mapped
    from bridge.telemetry.identity import USER_IDENTIFIER_LENGTH, fits_user_identifier

    for channel in configuration.channels:
        if channel.use_client_id or channel.mcauser or is_mapped(configuration, channel) or not channel.authentication:
            continue
        from bridge.security.password_file import PasswordFileError, read_password_file

        for file in dict.fromkeys(
            source.file for source in channel.authentication if source.method in ("password", "scram")
        ):
            try:
                names = [name for name in read_password_file(file) if not fits_user_identifier(name)]
            except (OSError, PasswordFileError):
                continue  # reported by `lacking`
            if names:
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                yield (
                    f"channel {channel.name}: {file}: user names longer than {USER_IDENTIFIER_LENGTH} bytes, the length of an"
                    f" MQ user, are rejected: {', '.join(names[:3])}{more}; map them to a user with a channel authentication"
                    " record (USERMAP), or give the channel an mcauser"
                )


def lacking(configuration: Configuration) -> Iterator[str]:
    """Yield a line for each missing file, environment variable and package."""
    for name, link in _used_links(configuration):
        yield from _of_link(name, link)
    for channel in configuration.channels:
        yield from _unknown_methods(channel)
    for name, listening, addresses in _listening(configuration):
        yield from (f"{name}: {line}" for line in _of_clients(listening, addresses))
    if configuration.archive.directory is not None and find_spec("pyarrow") is None:
        yield f"archive: pyarrow is not installed; `{install('archive')}` installs it"
    yield from _of_traces(configuration.traces)
    if any(pipeline.enabled for pipeline in configuration.pipelines.values()) and find_spec("pyspark") is None:
        yield f"pipelines: pyspark is not installed; `{install('spark')}` installs it"
    yield from _of_applications(configuration)
    yield from _readable_by_others(configuration)
    yield from _expired(configuration)
    settings = configuration.queue_manager
    if settings.type == "embedded":
        for script in settings.scripts:
            yield from _unreadable("queue_manager", scripts=script)
        if settings.listener is not None:
            yield from _unreadable("queue_manager.listener", password_file=settings.listener.password_file)
    else:
        yield from _unreadable("queue_manager", password_file=settings.password_file, token_file=settings.token_file)
        if settings.tls is not None:
            yield from _unreadable("queue_manager.tls", **settings.tls.files)


def _of_applications(configuration: Configuration) -> Iterator[str]:
    """Yield a line for each application that cannot send requests."""
    if not configuration.admin.applications:
        return
    if configuration.admin.port is None:
        yield "admin.applications: no application can connect without admin.port"
        return
    from bridge.security.tokens import Right, TokenFile

    path = configuration.token_file_path
    if path is not None and path.exists() and not os.access(path, os.R_OK):
        return  # only the user of the bridge can read it
    names = set() if path is None else TokenFile(path).names(Right.APPLICATION)
    for name in configuration.admin.applications:
        if name not in names:
            problem = "admin.token_file is not set, and needs the line" if path is None else f"{path} has no line"
            yield f"admin.applications.{name}: {problem} `{name}:{Right.APPLICATION}:TOKEN`"


def _readable_by_others(configuration: Configuration) -> Iterator[str]:
    """Yield a line for each file with a secret that every user of this machine can read."""
    from bridge.security.secret_file import readable_by_others

    files = dict(configuration.files_with_secrets())
    if configuration.admin.port is not None and configuration.token_file_path is not None:
        files["admin.token_file"] = configuration.token_file_path
    for option, path in files.items():
        # A file that is missing, or in a directory that this user cannot search, is reported elsewhere if it is needed.
        with contextlib.suppress(OSError):
            yield from [f"{option}: {line}" for line in readable_by_others(path)]


def _unreadable(section: str, **files: Path | None) -> Iterator[str]:
    """Yield a line for each file, by its option, that cannot be read."""
    for option, file in files.items():
        if file is not None and not os.access(file, os.R_OK):
            yield f"{section}.{option}: {file} cannot be read"


def _of_traces(traces: TracesConfig) -> Iterator[str]:
    if traces.endpoint is None:
        return
    if not _has_exporter():
        yield f"traces: opentelemetry is not installed; `{install('otel')}` installs it"
    yield from _unreadable("traces", headers_file=traces.headers_file, ca_file=traces.ca_file)


def _has_exporter() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # of a part of the name
        return False


def expiring(configuration: Configuration) -> Iterator[str]:
    """Yield a note for each certificate that expires soon."""
    from bridge.security.tls import SOON, certificates_in_use

    for certificate in certificates_in_use(configuration):
        if 0 < certificate.days_left < SOON:
            file = f"{certificate.owner}: {certificate.option} {certificate.file}"
            yield f"{file} expires on {certificate.date}, in {certificate.days_left:.0f} days"


def _expired(configuration: Configuration) -> Iterator[str]:
    """Yield a line for each expired certificate of a link, Spark or the key repository."""
    from bridge.security.tls import certificates_in_use

    for certificate in certificates_in_use(configuration):
        if certificate.use in ("link", "spark", "key_repository") and certificate.days_left <= 0:
            yield f"{certificate.owner}: {certificate.option} {certificate.file} expired on {certificate.date}"


def _used_links(configuration: Configuration) -> Iterator[tuple[str, LinkConfig]]:
    """Yield the links of enabled mappings, by name."""
    ends = [
        end
        for mapping in configuration.mappings.values()
        if mapping.enabled
        for end in (mapping.source, mapping.destination)
    ]
    used = {getattr(end, "link", None) for end in ends}
    return ((name, link) for name, link in configuration.links.items() if name in used)


def _unknown_methods(channel: ChannelConfig) -> Iterator[str]:
    for name in channel.authentication_methods:
        from bridge.security.authenticator import UnknownPlugin, plugin

        try:
            plugin("authentication method", name)
        except UnknownPlugin as error:
            yield f"channel {channel.name}: {error}"


def _listening(configuration: Configuration) -> Iterator[tuple[str, Listening, Sequence[str]]]:
    """Yield the channels, the admin port, and the listener for MQ applications, with their addresses."""
    for channel in configuration.channels:
        yield f"channel {channel.name}", channel, () if channel.socket is not None else (channel.address,)
    admin, settings = configuration.admin, configuration.queue_manager
    if admin.port is not None:
        yield "admin", admin, (admin.address,)
    if settings.type == "embedded" and settings.listener is not None:
        yield "queue_manager.listener", settings.listener, (settings.listener.address,)


def _of_clients(listening: Listening, addresses: Sequence[str]) -> Iterator[str]:
    """Yield the missing requirements of authentication and TLS."""
    for method in listening.authentication:
        from bridge.security.authenticators import lacking as lacking_of

        yield from (f"authentication by {method.method}: {line}" for line in lacking_of(method))
    if listening.tls is not None:
        from bridge.security.tls import lacking as lacking_of_tls

        yield from lacking_of_tls(listening.tls, addresses)


def _of_link(name: str, link: LinkConfig) -> Iterator[str]:
    from bridge.link.connection import password_of
    from bridge.security.tls import tls_context

    try:
        password_of(name, link)
    except OSError as error:
        yield str(error)
    if link.tls is not None:
        try:
            tls_context(link.tls)
        except OSError as error:
            yield f"link {name}: {error}"
