"""A trivial forwarder, which shows the maximum rate of the generator.

`python -m tests.benchmarks.relay` is not a broker. It acknowledges publishers in whole batches and forwards their
PUBLISH packets unchanged to the only subscriber. It ignores topics, and stores neither sessions nor messages.
"""

from __future__ import annotations

import selectors
import socket

from tests.benchmarks import frames
from tests.benchmarks.channel import RECEIVE


class Peer:
    """An accepted connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.rest = b""
        self.out = bytearray()


class Relay:
    """Accept connections, answer the handshakes, and forward."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.subscriber: Peer | None = None
        self.port: int = self.listener.getsockname()[1]

    def serve(self) -> None:
        """Run until killed."""
        while True:
            for key, _ in self.selector.select():
                peer = key.data
                if peer is None:
                    self._accept()
                    continue
                try:
                    self._read(peer)
                except (BlockingIOError, InterruptedError):
                    pass
                except OSError:
                    self._drop(peer)
            for key in list(self.selector.get_map().values()):
                if key.data is not None:
                    self._flush(key.data)

    def _accept(self) -> None:
        sock, _ = self.listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.selector.register(sock, selectors.EVENT_READ, Peer(sock))

    def _drop(self, peer: Peer) -> None:
        self.selector.unregister(peer.socket)
        peer.socket.close()
        if self.subscriber is peer:
            self.subscriber = None

    def _read(self, peer: Peer) -> None:
        if len(peer.out) > 1 << 22:
            return
        chunk = peer.socket.recv(RECEIVE)
        if not chunk:
            self._drop(peer)
            return
        data, at = peer.rest + chunk, 0
        while (end := frames.packet_end(data, at)) is not None:
            kind, size = data[at] & 0xF0, end - at
            run = frames.run_of(data, at, data[at : min(at + 2, end)], size)
            self._take(peer, data, at, size, run, kind)
            at += run * size
        peer.rest = data[at:]

    def _take(self, peer: Peer, data: bytes, at: int, size: int, run: int, kind: int) -> None:
        """Handle a run of equal packets from one peer."""
        if kind == 0x30:
            if qos := data[at] >> 1 & 3:
                packet_id = at + 4 + int.from_bytes(data[at + 2 : at + 4])
                peer.out += frames.answers(frames.PUBACK if qos == 1 else frames.PUBREC, data, packet_id, size, run)
            if self.subscriber is not None:
                self.subscriber.out += memoryview(data)[at : at + run * size]
        elif kind == frames.PUBREC:
            peer.out += frames.answers(frames.PUBREL, data, at + 2, size, run)
        elif kind == frames.PUBREL & 0xF0:
            peer.out += frames.answers(frames.PUBCOMP, data, at + 2, size, run)
        elif kind == 0x10:
            peer.out += b"\x20\x02\x00\x00"
        elif kind == 0x80:
            peer.out += bytes((frames.SUBACK, 3, data[at + 2], data[at + 3], data[at + size - 1]))
            self.subscriber = peer

    def _flush(self, peer: Peer) -> None:
        if not peer.out:
            return
        try:
            sent = peer.socket.send(peer.out)
            del peer.out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(peer)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.out else 0)
        if self.selector.get_key(peer.socket).events != wanted:
            self.selector.modify(peer.socket, wanted, peer)


def main() -> None:
    """Print the address, then forward."""
    relay = Relay()
    print(f"relay on 127.0.0.1:{relay.port}", flush=True)
    relay.serve()


if __name__ == "__main__":
    main()
