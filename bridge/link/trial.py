"""Step-by-step connection tests of a broker, for display. They do not change its state."""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

from bridge.config.link import LinkConfig
from bridge.config.values import endpoint
from bridge.link.connection import LinkConnection
from bridge.link.state import LinkLost, LinkPhase, LinkState
from bridge.link.stream import WebSocketStream
from bridge.security.tls import tls_context
from bridge.telemetry.message import Publication

#: Timeouts for each step and for disconnecting, in seconds.
TIMEOUT, STOP_TIMEOUT = 10.0, 2.0


class TrialFailed(Exception):
    """A step failed. The message is for display."""


def reach(config: LinkConfig) -> Iterator[str]:
    """Connect to a broker up to, but not including, CONNECT. Yield a line for each step. Raises TrialFailed.

    The steps are TCP and, if configured, TLS and WebSocket. All addresses are tried. One of them must be reachable. The
    broker's sessions are not affected.
    """
    addresses = config.addresses
    failed: list[TrialFailed] = []
    for host, port in addresses:
        try:
            yield from _reach(config, host, port)
        except TrialFailed as error:
            failed.append(error)
            if len(failed) == len(addresses):
                raise
            yield f"FAILED: {error}"


def _reach(config: LinkConfig, host: str, port: int) -> Iterator[str]:
    place = endpoint(host, port)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise TrialFailed(f"{host} is not an address or a known host name: {error}") from error
    yield f"resolved: {host} is {', '.join(dict.fromkeys(str(addrinfo[4][0]) for addrinfo in addresses))}"
    try:
        connection = socket.create_connection((host, port), TIMEOUT)
    except OSError as error:
        raise TrialFailed(f"no connection to the broker at {place}: {error}") from error
    with contextlib.ExitStack() as connections:
        connections.enter_context(connection)
        yield f"TCP: connected to {endpoint(*connection.getpeername()[:2])}"
        if config.tls is not None:
            try:
                context = tls_context(config.tls, config.tls.alpn)
                connection = secured = connections.enter_context(context.wrap_socket(connection, server_hostname=host))
            except ssl.SSLCertVerificationError as error:
                raise TrialFailed(f"the certificate of {place} was rejected: {error.verify_message}") from error
            except OSError as error:
                raise TrialFailed(f"TLS handshake with {place} failed: {error}") from error
            yield f"TLS: {_facts(secured)}"
        path = config.path_of_websocket
        if path is not None:
            try:
                WebSocketStream(connection, host, port, path, TIMEOUT).close()
            except (OSError, LinkLost) as error:
                raise TrialFailed(f"WebSocket handshake with {place} failed: {error}") from error
            yield f"WebSocket: open at {path}"


def try_link(name: str, config: LinkConfig, password: Callable[[], str | None]) -> Iterator[str]:
    """Connect to a broker like its link does, but with a new client identifier and a clean session.

    Yields a line for each step. Raises TrialFailed.
    """
    yield from reach(config)
    client_id = f"mqbridge-test-{secrets.token_hex(4)}"
    decided = threading.Event()

    def changed(state: LinkState) -> None:
        # A state without a pause precedes the attempt at the next address.
        if state.phase is LinkPhase.CONNECTED or (state.phase is LinkPhase.WAITING and state.pause):
            decided.set()

    link = LinkConnection(name, config, client_id, password=password, clean=True, on_state=changed)
    link.start()
    try:
        decided.wait(TIMEOUT)
        state = link.state
        if state.phase is not LinkPhase.CONNECTED:
            raise TrialFailed(state.error or f"CONNECT: no CONNACK within {TIMEOUT:g} s")
        limits = link.limits
        tried = ""
        if limits.maximum_qos == 2:
            tried = _try_qos_2(link, client_id)
            limits = link.limits
        at = f" at {state.address}" if config.failover else ""
        retained = "" if limits.retain_available else ", no retained publications"
        yield (
            f"CONNACK: accepted{at} as {client_id}{'' if config.user is None else f', user {config.user}'}, "
            f"MQTT {config.version}, the broker supports QoS {limits.maximum_qos} at most{retained}"
        )
        if tried:
            yield tried
    finally:
        link.stop(STOP_TIMEOUT)


def _try_qos_2(link: LinkConnection, client_id: str) -> str:
    """Publish an empty message with QoS 2 to a topic without subscribers. Return the broker's reaction as text."""
    topic = f"mqbridge-test/{client_id}"
    try:
        refusals = link.publish([Publication(topic, b"", 2)], timeout=TIMEOUT)
    except LinkLost as error:
        return f"QoS 2: the broker did not accept a test publication to {topic}: {error}"
    if not link.acknowledges_qos_2:
        return "QoS 2: the broker answered a publication with PUBACK. It supports QoS 1 at most, and not exactly-once"
    if refusals:
        return f"QoS 2: the broker rejected a test publication to {topic}: {refusals[0].text}"
    return "QoS 2: the broker accepted a test publication with PUBREC and PUBCOMP"


def _facts(secured: ssl.SSLSocket) -> str:
    certificate: dict[str, Any] = secured.getpeercert() or {}
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    words = [
        f"{secured.version()}, {(secured.cipher() or ('?',))[0]}",
        f"certificate of {_name(certificate, 'subject')}",
        *([f"ALPN {secured.selected_alpn_protocol()}"] if secured.selected_alpn_protocol() else []),
        *([f"for {', '.join(names[:10])}"] if names else []),
        f"issued by {_name(certificate, 'issuer')}",
        f"until {certificate.get('notAfter', '?')}",
    ]
    return "; ".join(words)


def _name(certificate: dict[str, Any], whose: str) -> str:
    """Return the distinguished name of a certificate's subject or issuer."""
    parts = [f"{kind}={value}" for part in certificate.get(whose, ()) for kind, value in part]
    return ", ".join(parts) or "nobody"
