"""The listeners of a bridge with one of each kind, and the connections of cases to them."""

from __future__ import annotations

import asyncio
import random
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from argon2 import PasswordHasher

from tests.fuzz import sequences
from tests.fuzz.sequences import Parts
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.certificate_authority import Authority

CONFIG = """
control_socket: {0}/control.sock
audit_log: {{file: {0}/audit.jsonl, size: 1 MiB, files: 2}}
log: {{level: info}}
# Sessions that mutations make durable gather what the pair sends.
limits: {{shutdown_timeout: 5 s, waiting_bytes: 64 KiB, waiting_full: drop-oldest}}
queue_manager:
  listener:
    port: 0
    max_connections: {places}
    tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key}}
channels:
  - {{name: PAIR, port: 0}}
  - {{name: PLAIN, port: 0, max_packet_size: 64 KiB}}
  - {{name: PASSWORD, port: 0, failed_connects: 1000000, authentication: [{{method: password, file: {0}/clients}},
     {{method: scram, file: {0}/clients}}]}}
  - {{name: LITTLE, port: 0, byte_order: little, protocols: [MQTTV3]}}
  - {{name: TLS, port: 0, tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key}}}}
  - {{name: WS, port: 0, websocket: {{}}, max_packet_size: 64 KiB}}
  - {{name: WSS, port: 0, websocket: {{}}, tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key}}}}
  - {{name: PROXIED, port: 0, proxies: [127.0.0.1], authentication: [{{method: certificate}}, {{method: anonymous}}]}}
  - {{name: UNIX, socket: {0}/mqtt.sock}}
"""
#: Maximum number of connections of the listener for MQ applications, more than cases at a time.
PLACES = 64


@dataclass(frozen=True)
class Listener:
    """A listener, and its protocol."""

    name: str
    #: a TCP port of this machine, or a Unix socket
    place: int | Path
    conversation: Callable[[random.Random], Parts]
    #: whether the data is sent over TLS
    tls: ssl.SSLContext | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self.place, Path):
            return await asyncio.open_unix_connection(self.place)
        host = "localhost" if self.tls is not None else None
        return await asyncio.open_connection("127.0.0.1", self.place, ssl=self.tls, server_hostname=host)


def configuration(directory: Path) -> str:
    """Return the YAML of such a bridge, and create its files."""
    Authority(directory).issue("server")
    hashed = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("right")
    (directory / "clients").write_text(f"dev:{hashed}\n", encoding="utf-8")
    return CONFIG.format(directory, places=PLACES)


def applications_port(bridge: BridgeProcess) -> int:
    """Return the TCP port for MQ applications of a running bridge."""
    (port,) = re.findall(r"MQ applications connect at 127\.0\.0\.1:(\d+)", "\n".join(bridge.announced))
    return int(port)


def listeners_of(bridge: BridgeProcess) -> list[Listener]:
    """Return the listeners of a running bridge."""
    directory = bridge.data_directory.parent
    trusting = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    ports = bridge.ports
    applications = applications_port(bridge)
    return [
        Listener("channel", ports["PLAIN"], sequences.mqtt),
        Listener("channel with passwords", ports["PASSWORD"], sequences.mqtt),
        Listener("channel, little-endian", ports["LITTLE"], partial(sequences.mqtt, level=3)),
        Listener("channel with TLS", ports["TLS"], sequences.mqtt, trusting),
        Listener("channel with TLS, without it", ports["TLS"], sequences.mqtt),
        Listener("WebSockets", ports["WS"], sequences.web_socket),
        Listener("WebSockets with TLS", ports["WSS"], sequences.web_socket, trusting),
        Listener("PROXY protocol", ports["PROXIED"], sequences.proxied),
        Listener("Unix socket", directory / "mqtt.sock", sequences.mqtt),
        Listener("MQ applications", bridge.data_directory / "mqbridge.sock", sequences.applications),
        Listener("MQ applications, TCP", applications, sequences.applications, trusting),
        Listener("MQ applications, TCP without TLS", applications, sequences.applications),
        Listener("control socket", directory / "control.sock", sequences.control),
    ]
