"""`python -m tests.benchmarks.transports`: the bridge compared with mosquitto over TCP, TLS and WebSockets.

The figures are messages per second at QoS 1 with the load of `load.c`, new and resumed TLS connections per second by
openssl s_time, and the memory of each server per idle TLS client. Ratios are computed within each round.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import socket
import ssl
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from bridge.mqtt.packets import Connect
from bridge.mqtt.writer import encode
from tests.benchmarks.servers import Announced, Bridge, Mosquitto, Server, ServerUnavailable, free_port
from tests.helpers.certificate_authority import Authority

TRANSPORTS = ("tcp", "tls", "websocket")
#: name, publishers, subscribers, pairs, window. With 100 pairs over WebSockets mosquitto 2.0.11 stops answering.
SHAPES = (
    ("4 -> 1, window 100", 4, 1, 0, 100),
    ("20 pairs, window 10", 20, 20, 1, 10),
    ("4 -> 1, window 1", 4, 1, 0, 1),
)
IDLE = 500


class TransportsMosquitto(Mosquitto):
    """mosquitto with a listener for each transport."""

    def __init__(self, certificates: Path, cores: set[int] | None = None) -> None:
        super().__init__(cores)
        self.certificates = certificates
        self.ports = {"tls": free_port(), "websocket": free_port()}

    def command(self) -> list[str]:
        command = super().command()
        files = f"certfile {self.certificates}/server.pem\nkeyfile {self.certificates}/server.key\n"
        with open(command[-1], "a", encoding="utf-8") as config:
            config.write(f"listener {self.ports['tls']} 127.0.0.1\n{files}")
            config.write(f"listener {self.ports['websocket']} 127.0.0.1\nprotocol websockets\n")
        self.ports["tcp"] = self.port
        return command


class TransportsBridge(Bridge):
    """The bridge with a channel for each transport."""

    def __init__(self, certificates: Path, cores: set[int] | None = None) -> None:
        super().__init__(cores)
        self.certificates = certificates
        self.ports = {"tls": free_port(), "websocket": free_port()}

    def command(self) -> list[str]:
        config = self.folder / "bridge.yaml"
        files = f"certificate_file: {self.certificates}/server.pem, key_file: {self.certificates}/server.key"
        config.write_text(
            "channels:\n  - {name: TCP}\n"
            f"  - {{name: TLS, port: {self.ports['tls']}, tls: {{{files}}}}}\n"
            f"  - {{name: WEBSOCKET, port: {self.ports['websocket']}, websocket: {{}}}}\n"
        )
        program, run, *options = super().command()
        return [program, run, str(config), *options]

    def _ready(self) -> bool:
        ready = Announced._ready(self)
        self.ports["tcp"] = self.port
        return ready


def generator(directory: Path) -> Path:
    """Compile the load with TLS (Debian: libssl-dev)."""
    program = directory / "load"
    source = Path(__file__).with_name("load.c")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("no C compiler: `sh deploy/packages.sh gcc libc6-dev libssl-dev`")
    command = [compiler, "-O2", "-DTLS", "-o", str(program), str(source), "-lssl", "-lcrypto"]
    subprocess.run(command, check=True)
    return program


def rate(program: Path, port: int, shape: Sequence[object], seconds: float, transport: str) -> float:
    """Return the messages per second received in one run."""
    _, publishers, subscribers, pairs, window = shape
    numbers = (port, publishers, subscribers, pairs, 1, window, 100, 0, seconds, 4, 0)
    process = subprocess.run([str(program), *map(str, numbers), transport], capture_output=True, text=True, check=True)
    figures = json.loads(process.stdout)
    if figures["failure"]:
        raise SystemExit(f"{transport}, {shape[0]}: {figures['failure']}")
    return float(figures["rate"])


def handshakes(port: int, kind: str, seconds: float) -> float:
    """Return the TLS connections per second of one client that does nothing else."""
    command = [
        "openssl",
        "s_time",
        "-connect",
        f"127.0.0.1:{port}",
        kind,
        "-time",
        f"{max(1, round(seconds))}",
        "-tls1_3",
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    match = re.search(r"(\d+) connections in (\d+) real seconds", process.stdout)
    assert match, process.stdout + process.stderr
    return int(match[1]) / int(match[2])


def idle_bytes(server: Server, port: int) -> float:
    """Return the bytes of the server's memory per idle TLS client."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def connections(begin: int, count: int) -> list[ssl.SSLSocket]:
        streams = []
        for number in range(begin, begin + count):
            stream = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
            stream.sendall(encode(Connect(f"idle-{number}")))
            assert stream.recv(4)[3] == 0
            streams.append(stream)
        return streams

    process = psutil.Process(server.pid)
    first = connections(0, 50)
    before = process.memory_info().rss
    rest = connections(50, IDLE)
    after = process.memory_info().rss
    for connection in first + rest:
        connection.close()
    return (after - before) / IDLE


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="The bridge compared with mosquitto over TCP, TLS and WebSockets.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    cores = sorted(psutil.Process().cpu_affinity())
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        Authority(directory).issue("server")
        (directory / "server.key").chmod(0o644)  # mosquitto changes from root to its own user
        program = generator(directory)
        servers = (TransportsMosquitto(directory, {cores[0]}), TransportsBridge(directory, {cores[0]}))
        psutil.Process().cpu_affinity([cores[-1]])
        try:
            for server in servers:
                server.start()
            for transport in TRANSPORTS:
                for shape in SHAPES:
                    rounds = [
                        [
                            rate(program, server.ports[transport], shape, options.seconds, transport)
                            for server in servers
                        ]
                        for _ in range(options.rounds)
                    ]
                    ratios = [ours / theirs for theirs, ours in rounds]
                    theirs, ours = (statistics.median(column) for column in zip(*rounds, strict=True))
                    print(
                        f"{transport:10} {shape[0]:22} mosquitto {theirs:8.0f}/s  bridge {ours:8.0f}/s  "
                        f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})",
                        flush=True,
                    )
            for word, kind in (("new", "-new"), ("resumed", "-reuse")):
                theirs, ours = (handshakes(server.ports["tls"], kind, options.seconds) for server in servers)
                label = f"{word} connections"
                print(f"tls        {label:22} mosquitto {theirs:8.0f}/s  bridge {ours:8.0f}/s  {ours / theirs:.2f}")
            theirs, ours = (idle_bytes(server, server.ports["tls"]) for server in servers)
            print(f"tls        {'idle client':22} mosquitto {theirs / 1000:8.1f} kB bridge {ours / 1000:8.1f} kB")
        except ServerUnavailable as error:
            raise SystemExit(str(error)) from error
        finally:
            for server in servers:
                server.stop()


if __name__ == "__main__":
    main()
