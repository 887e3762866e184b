"""A connection to a broker that is tried step by step, for a person, and leaves nothing behind."""

from __future__ import annotations

import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

from bridge.config.link import LinkConfig
from bridge.config.values import endpoint
from bridge.link.connection import LinkConnection
from bridge.link.state import LinkPhase, LinkState
from bridge.security.tls import tls_context

#: Seconds that the broker may take for each step, and for a goodbye.
PATIENCE, FAREWELL = 10.0, 2.0


class TrialFailed(Exception):
    """A step failed; words for a person."""


def reach(config: LinkConfig) -> Iterator[str]:
    """Connect to a broker by TCP, and TLS where the link has it; yield a line for each step. Raises TrialFailed.

    No CONNECT packet is sent: no session is touched.
    """
    place = endpoint(config.host, config.broker_port)
    try:
        found = socket.getaddrinfo(config.host, config.broker_port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise TrialFailed(f"{config.host} is no address, and no name that is known here: {error}") from error
    yield f"resolved: {config.host} is {', '.join(dict.fromkeys(str(one[4][0]) for one in found))}"
    try:
        connection = socket.create_connection((config.host, config.broker_port), PATIENCE)
    except OSError as error:
        raise TrialFailed(f"no connection to the broker at {place}: {error}") from error
    with connection:
        yield f"TCP: connected to {endpoint(*connection.getpeername()[:2])}"
        if config.tls is None:
            return
        try:
            with tls_context(config.tls).wrap_socket(connection, server_hostname=config.host) as secured:
                yield f"TLS: {_facts(secured)}"
        except ssl.SSLCertVerificationError as error:
            raise TrialFailed(f"the certificate of {place} is refused: {error.verify_message}") from error
        except OSError as error:
            raise TrialFailed(f"no TLS with {place}: {error}") from error


def try_link(name: str, config: LinkConfig, password: Callable[[], str | None]) -> Iterator[str]:
    """Connect to a broker as its link does, but as a new client with a clean session; yield a line for each step.

    Raises TrialFailed.
    """
    yield from reach(config)
    client_id = f"mqbridge-test-{secrets.token_hex(4)}"
    decided = threading.Event()

    def changed(state: LinkState) -> None:
        if state.phase in (LinkPhase.CONNECTED, LinkPhase.WAITING):
            decided.set()

    link = LinkConnection(name, config, client_id, password=password, clean=True, on_state=changed)
    link.start()
    try:
        decided.wait(PATIENCE)
        state = link.state
        if state.phase is not LinkPhase.CONNECTED:
            raise TrialFailed(state.error or f"CONNECT: no CONNACK within {PATIENCE:g} s")
        limits = link.limits
        retained = "" if limits.retain_available else ", no retained publications"
        yield (
            f"CONNACK: accepted as {client_id}{'' if config.user is None else f', user {config.user}'}, "
            f"MQTT {config.version}; the broker takes QoS {limits.maximum_qos} at most{retained}"
        )
    finally:
        link.stop(FAREWELL)


def _facts(secured: ssl.SSLSocket) -> str:
    certificate: dict[str, Any] = secured.getpeercert() or {}
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    words = [
        f"{secured.version()}, {(secured.cipher() or ('?',))[0]}",
        f"certificate of {_name(certificate, 'subject')}",
        *([f"for {', '.join(names[:10])}"] if names else []),
        f"issued by {_name(certificate, 'issuer')}",
        f"until {certificate.get('notAfter', '?')}",
    ]
    return "; ".join(words)


def _name(certificate: dict[str, Any], whose: str) -> str:
    """Return the distinguished name of a certificate's subject or issuer."""
    parts = [f"{kind}={value}" for part in certificate.get(whose, ()) for kind, value in part]
    return ", ".join(parts) or "nobody"
