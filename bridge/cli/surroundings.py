"""What a configuration needs of its surroundings: files, variables, packages. What is wrong with it shows at `check`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bridge.extras import install

if TYPE_CHECKING:
    from bridge.config import (
        AdminConfig,
        ChannelConfig,
        Configuration,
        IbmQueueManagerConfig,
        LinkConfig,
        ListenerConfig,
    )
    from bridge.config.operations import TracesConfig


#: A queue definition in MQSC.
_DEFINED_QUEUE = re.compile(r"\bDEF(?:INE)?\s+Q(?:LOCAL|L|ALIAS|A|REMOTE|R)\s*\(\s*('[^']*'|[^\s')]+)\s*\)", re.IGNORECASE)


def undefined_queues(configuration: Configuration) -> Iterator[str]:
    """Yield a note for each queue of a mapping that no script of the embedded queue manager defines."""
    from bridge.config import ToMqttMapping

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
    from bridge.config.description import is_mapped
    from bridge.telemetry.identity import USER_IDENTIFIER_LENGTH, fits_user_identifier

    for channel in configuration.channels:
        if channel.use_client_id or channel.mcauser or is_mapped(configuration, channel) or not channel.authentication:
            continue
        from bridge.security.password_file import PasswordFileError, read_password_file

        for file in dict.fromkeys(one.file for one in channel.authentication if one.method in ("password", "scram")):
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
    """Yield a sentence for each thing that is not there, and without which a part of the bridge cannot work."""
    for name, link in _used_links(configuration):
        yield from _of_link(name, link)
    for channel in configuration.channels:
        if channel.authentication_methods or channel.authentication or channel.tls is not None:
            yield from _of_channel(channel)
    if configuration.archive.directory is not None and find_spec("pyarrow") is None:
        yield f"archive: pyarrow is not installed; `{install('archive')}` brings it"
    yield from _of_traces(configuration.traces)
    if any(pipeline.enabled for pipeline in configuration.pipelines.values()) and find_spec("pyspark") is None:
        yield f"pipelines: pyspark is not installed; `{install('spark')}` brings it"
    admin = configuration.admin
    if admin.port is not None:
        for line in _of_clients(admin, (admin.address,)):
            yield f"admin: {line}"
        from bridge.security.authenticators import readable_by_others

        tokens = configuration.token_file_path
        if tokens is not None and tokens.exists():
            yield from (f"admin.token_file: {line}" for line in readable_by_others(tokens))
    settings = configuration.queue_manager
    if settings.type == "embedded":
        for script in settings.scripts:
            if not os.access(script, os.R_OK):
                yield f"queue_manager.scripts: {script} cannot be read"
        if settings.listener is not None:
            yield from _of_listener(settings.listener)
    else:
        yield from _of_ibm_mq(settings)


def _of_ibm_mq(settings: IbmQueueManagerConfig) -> Iterator[str]:
    named = {"password_file": settings.password_file, "token_file": settings.token_file}
    if settings.tls is not None:
        named |= {f"tls.{option}": file for option, file in settings.tls.files.items()}
    for option, file in named.items():
        if file is not None and not os.access(file, os.R_OK):
            yield f"queue_manager.{option}: {file} cannot be read"


def _of_traces(traces: TracesConfig) -> Iterator[str]:
    if traces.endpoint is None:
        return
    if not _has_exporter():
        yield f"traces: opentelemetry is not installed; `{install('otel')}` brings it"
    for name, file in (("headers_file", traces.headers_file), ("ca_file", traces.ca_file)):
        if file is not None and not os.access(file, os.R_OK):
            yield f"traces.{name}: {file} cannot be read"


def _has_exporter() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # of a part of the name
        return False


def expiring(configuration: Configuration) -> Iterator[str]:
    """Yield a sentence for each certificate that ends soon."""
    from bridge.security import tls as certificate_files

    for channel in configuration.channels:
        if channel.tls is not None:
            yield from (f"channel {channel.name}: {line}" for line in certificate_files.expiring(channel.tls))
    if configuration.admin.port is not None and configuration.admin.tls is not None:
        yield from (f"admin: {line}" for line in certificate_files.expiring(configuration.admin.tls))
    settings = configuration.queue_manager
    if settings.type == "embedded" and settings.listener is not None and settings.listener.tls is not None:
        yield from (f"queue_manager.listener: {line}" for line in certificate_files.expiring(settings.listener.tls))


def unreachable(configuration: Configuration) -> Iterator[str]:
    """Yield a sentence for each broker of a link that no connection reaches.

    No CONNECT packet is sent: it would end the session of a bridge that runs. So user and password are not tried.
    """
    from bridge.link.trial import TrialFailed, reach

    for name, link in _used_links(configuration):
        if any(_of_link(name, link)):
            continue  # `lacking` tells
        try:
            for _ in reach(link):
                pass
        except TrialFailed as error:
            yield f"link {name}: {error}"


def _used_links(configuration: Configuration) -> Iterator[tuple[str, LinkConfig]]:
    """Yield the links of enabled mappings, by name."""
    ends = [end for one in configuration.mappings.values() if one.enabled for end in (one.source, one.destination)]
    used = {getattr(end, "link", None) for end in ends}
    return ((name, link) for name, link in configuration.links.items() if name in used)


def _of_channel(channel: ChannelConfig) -> Iterator[str]:
    from bridge.security.authenticator import UnknownMethod, load

    try:
        load(channel.authentication_methods)
    except UnknownMethod as error:
        yield f"channel {channel.name}: {error}"
    names = () if channel.socket is not None else (channel.address,)
    for line in _of_clients(channel, names):
        yield f"channel {channel.name}: {line}"


def _of_listener(listener: ListenerConfig) -> Iterator[str]:
    passwords = listener.password_file
    if passwords is not None and not os.access(passwords, os.R_OK):
        yield f"queue_manager.listener.password_file: {passwords} cannot be read, so nobody connects"
    for line in _of_clients(listener, (listener.address,)):
        yield f"queue_manager.listener: {line}"


def _of_clients(listening: ChannelConfig | ListenerConfig | AdminConfig, addresses: Sequence[str]) -> Iterator[str]:
    """Yield what is lacking of authentication and TLS: of a channel, the listener for MQ applications, or the admin port."""
    from bridge.security.authenticators import lacking as lacking_of
    from bridge.security.tls import lacking as lacking_of_tls

    for method in listening.authentication:
        for line in lacking_of(method):
            yield f"authentication by {method.method}: {line}"
    if listening.tls is not None:
        yield from lacking_of_tls(listening.tls, addresses)


def _of_link(name: str, link: LinkConfig) -> Iterator[str]:
    from bridge.security.tls import tls_context
    from bridge.service.mappings.link_session import password_of

    try:
        password_of(name, link)
    except OSError as error:
        yield str(error)
    if link.tls is not None:
        try:
            tls_context(link.tls)
        except OSError as error:
            yield f"link {name}: {error}"
