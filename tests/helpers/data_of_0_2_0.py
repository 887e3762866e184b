"""A data directory of release 0.2.0 with unfinished exchanges of links, and the broker's side of them.

To make links-0.2.0.tar.gz again, unpack commit 4c257b66 and run `python -m tests.helpers.data_of_0_2_0 DIRECTORY`.
The address of the broker is part of the records. A test chooses a free port, which replaces the port of the records.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Self

from bridge.mq.embedded.storage.layout import batch_checksum
from tests.helpers.fake_broker import CONNECT, PUBLISH, PUBREC, PUBREL, SUBSCRIBE, Peer, answer
from tests.helpers.patience import PATIENCE

ARCHIVE = Path(__file__).with_name("links-0.2.0.tar.gz")
#: The address of the broker in the records.
HOST, PORT = "127.20.47.1", 18_830
VERSIONS = ("3.1.1", "5")
LINKS = """\
links:
  three: {{host: {host}, port: {port}, version: "3.1.1"}}
  five: {{host: {host}, port: {port}, version: "5"}}
"""
MAPPINGS = "mappings:\n" + "".join(
    f"""\
  in-{link}: {{from: {{mqtt: "in/#", link: {link}}}, to: {{queue: IN.{link.upper()}}}, guarantee: exactly-once}}
  sent-{link}: {{from: {{queue: SENT.{link.upper()}}}, to: {{mqtt: sent, link: {link}}}, guarantee: exactly-once}}
  accepted-{link}: {{from: {{queue: ACCEPTED.{link.upper()}}}, to: {{mqtt: accepted, link: {link}}}, guarantee: exactly-once}}
"""
    for link in ("three", "five")
)
#: Each mapping, by the kind of its unfinished exchange: two publications received and not released, one sent, one accepted.
KINDS = ("in", "sent", "accepted")


class OldBroker:
    """The broker, at a free port by default. Before `listen`, it refuses connections."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.socket()
        self._listener.bind((HOST, port))
        self._listener.settimeout(PATIENCE)
        self.port: int = self._listener.getsockname()[1]
        self._peers: list[Peer] = []

    def listen(self) -> None:
        """Accept connections from now on."""
        self._listener.listen()

    def connections(self, number: int, *, present: bool) -> dict[str, Peer]:
        """Accept connections. Return them by the end of their client identifier: the name of the mapping.

        On a busy machine, a link may close a connection that is answered too late, and reconnect.
        """
        peers: dict[str, Peer] = {}
        while len(peers) < number:
            connection, _ = self._listener.accept()
            connection.settimeout(PATIENCE)
            peer = Peer(connection, "3.1.1")
            self._peers.append(peer)
            (body,) = peer.expect(CONNECT)
            peer.version_5 = body[6] == 5
            peer.send(peer.connack(present=present))
            name = next(
                name
                for name in (f"{kind}-{link}" for kind in KINDS for link in ("three", "five"))
                if name.encode() in body
            )
            peers[name] = peer
        return peers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.close()


def unpacked(directory: Path, port: int) -> None:
    """Unpack the data directory. Its records have this port of the broker."""
    with tarfile.open(ARCHIVE) as archive:
        # Python 3.11.2 of Debian 12 has neither an argument `filter` nor `data_filter`.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(directory)
    former, new = (b"\xa4port\xcd" + number.to_bytes(2, "big") for number in (PORT, port))  # MessagePack
    with contextlib.closing(sqlite3.connect(directory / "data" / "queuemanager.db")) as database, database:
        rows = database.execute("SELECT id, body FROM batch").fetchall()
        changed = [(row, body.replace(former, new)) for row, body in rows if former in body]
        assert changed
        for row, body in changed:
            values = (body, batch_checksum(row, body), row)
            database.execute("UPDATE batch SET body = ?, checksum = ? WHERE id = ?", values)


def main(old: str) -> None:
    """Let release 0.2.0 start exchanges, and kill it."""
    with tempfile.TemporaryDirectory() as name, OldBroker(PORT) as broker:
        broker.listen()
        directory = Path(name)
        config = directory / "bridge.yaml"
        config.write_text(LINKS.format(host=HOST, port=PORT) + MAPPINGS)
        environment = {**os.environ, "PYTHONPATH": old}
        command = [sys.executable, "-m", "bridge"]
        options = ["--data-dir", str(directory / "data")]
        bridge = subprocess.Popen([*command, "run", str(config), *options, "--port", "0"], env=environment, cwd=old)

        def mq(*words: str, script: bytes = b"") -> None:
            subprocess.run([*command, *words, *options], env=environment, cwd=old, input=script, check=True)

        time.sleep(5)
        queues = [f"{kind}.{link}" for kind in KINDS for link in ("three", "five")]
        mq("mqsc", "run", "-", script="\n".join(f"DEFINE QLOCAL({queue})" for queue in queues).upper().encode())
        peers = broker.connections(6, present=False)
        for link in ("three", "five"):
            (subscribe,) = peers[f"in-{link}"].expect(SUBSCRIBE)
            peers[f"in-{link}"].send(peers[f"in-{link}"].suback(subscribe, 2))
        for link in ("three", "five"):
            peer = peers[f"in-{link}"]
            peer.send(*(peer.publish("in/a", packet_id, qos=2, payload=b"%d" % packet_id) for packet_id in (1, 2)))
            assert peer.packet_ids(PUBREC, 2) == [1, 2]
            for kind in ("sent", "accepted"):
                mq("mq", "put", f"{kind}.{link}".upper(), "--persistent", kind)
                first, body = peers[f"{kind}-{link}"].packet()
                assert first == PUBLISH | 4, body
                if kind == "accepted":
                    peers[f"{kind}-{link}"].send(answer(PUBREC, 1))
                    assert peers[f"{kind}-{link}"].packet_ids(PUBREL, 1) == [1]
        time.sleep(2)
        bridge.send_signal(signal.SIGKILL)
        bridge.wait()
        with tarfile.open(ARCHIVE, "w:gz") as archive:
            archive.add(
                directory / "data",
                "data",
                filter=lambda item: None if "sock" in item.name or item.name.endswith(".lock") else item,
            )


if __name__ == "__main__":
    main(sys.argv[1])
