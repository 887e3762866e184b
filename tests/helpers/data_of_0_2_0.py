"""A data directory of release 0.2.0 with unfinished exchanges of links, and the broker's side of them.

To make links-0.2.0.tar.gz again, unpack commit 4c257b66 and run `python -m tests.helpers.data_of_0_2_0 DIRECTORY`.
The address of the broker is part of the records, so it is fixed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Self

from tests.helpers.fake_broker import CONNECT, PUBLISH, PUBREC, PUBREL, SUBSCRIBE, Peer, answer
from tests.helpers.patience import PATIENCE

ARCHIVE = Path(__file__).with_name("links-0.2.0.tar.gz")
#: A loopback address that nothing else uses, and its port.
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
    """The broker at the fixed address. Waits until another test has left it."""

    def __init__(self) -> None:
        before = time.monotonic() + 6 * PATIENCE
        while True:
            try:
                self._listener = socket.create_server((HOST, PORT))
                break
            except OSError:
                assert time.monotonic() < before
                time.sleep(0.1)
        self._listener.settimeout(PATIENCE)
        self._peers: list[Peer] = []

    def connections(self, number: int, *, present: bool) -> dict[str, Peer]:
        """Accept connections. Returns them by the end of their client identifier: the name of the mapping."""
        peers = {}
        for _ in range(number):
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


def unpacked(directory: Path) -> Path:
    """Unpack the data directory, and return it."""
    with tarfile.open(ARCHIVE) as archive:
        # Python 3.11.2 of Debian 12 has neither an argument `filter` nor `data_filter`.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(directory)
    return directory / "data"


def main(old: str) -> None:
    """Let release 0.2.0 begin exchanges, and kill it."""
    with tempfile.TemporaryDirectory() as name, OldBroker() as broker:
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
            peer.send(*(peer.publish("in/a", mid, qos=2, payload=b"%d" % mid) for mid in (1, 2)))
            assert peer.mids(PUBREC, 2) == [1, 2]
            for kind in ("sent", "accepted"):
                mq("mq", "put", f"{kind}.{link}".upper(), "--persistent", kind)
                first, body = peers[f"{kind}-{link}"].packet()
                assert first == PUBLISH | 4, body
                if kind == "accepted":
                    peers[f"{kind}-{link}"].send(answer(PUBREC, 1))
                    assert peers[f"{kind}-{link}"].mids(PUBREL, 1) == [1]
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
