"""Expiry dates of listener certificates. Changed files are read again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from bridge.config import Configuration, EmbeddedQueueManagerConfig
from bridge.config.tls import ListenerTlsConfig

log = logging.getLogger(__name__)


class Certificates:
    """Caches the expiry dates of certificate files."""

    def __init__(self) -> None:
        #: file -> modification time and expiry date
        self._known: dict[Path, tuple[int, float | None]] = {}

    def expiries(self, configuration: Configuration) -> Iterator[tuple[str, str, Path, float]]:
        """Yield the listener, channel name, file and expiry date of each certificate. Reads files."""
        for listener, channel, tls in _listeners(configuration):
            expiry = self._expiry(tls.certificate_file)
            if expiry is not None:
                yield listener, channel, tls.certificate_file, expiry

    def _expiry(self, file: Path) -> float | None:
        """Return the expiry date of a file's first certificate in seconds since the epoch, or None if the file is invalid."""
        from cryptography import x509

        try:
            changed = file.stat().st_mtime_ns
            known = self._known.get(file)
            if known is not None and known[0] == changed:
                return known[1]
            expiry = x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp()
        except (OSError, ValueError) as error:
            log.debug("certificate file %s: %s", file, error)
            self._known.pop(file, None)
            return None
        self._known[file] = changed, expiry
        return expiry


def _listeners(configuration: Configuration) -> Iterator[tuple[str, str, ListenerTlsConfig]]:
    """Yield the type, channel name and TLS configuration of each listener that has TLS."""
    for channel in configuration.channels:
        if channel.tls is not None:
            yield "channel", channel.name, channel.tls
    if configuration.admin.tls is not None:
        yield "admin", "", configuration.admin.tls
    settings = configuration.queue_manager
    if isinstance(settings, EmbeddedQueueManagerConfig) and settings.listener is not None:
        tls = settings.listener.tls
        if tls is not None:
            yield "queue_manager", "", tls
