"""Between a client and a broker: something happens when the client sends the n-th packet of a kind."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

PUBACK, PUBREC, PUBCOMP, SUBSCRIBE = 4, 5, 7, 8


class Proxy:
    """Listens at `port` and hands on to a broker; `at` says when what happens, once."""

    def __init__(self, broker: int) -> None:
        self._broker = broker
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._fault: tuple[int, bool, Callable[[], None]] | None = None
        self._left = 0
        self.happened = False
        threading.Thread(target=self._accept, daemon=True).start()

    def at(self, packet: int, action: Callable[[], None], *, number: int = 1, after: bool = False) -> None:
        """When the client sends a packet of a type for the `number`-th time: before, or after, the broker gets it."""
        with self._lock:
            self._fault, self._left, self.happened = (packet, after, action), number, False

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection(("127.0.0.1", self._broker))
                except OSError:
                    client.close()  # as a broker that is away does
                    continue
                self._sockets += [client, broker]
                threading.Thread(target=self._watched, args=(client, broker), daemon=True).start()
                threading.Thread(target=self._copy, args=(broker, client), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        _hang_up(source, target)

    def _watched(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), client.makefile("rb") as packets:
            while first := packets.read(1):
                length, shift, header = 0, 0, first
                while True:
                    byte = packets.read(1)
                    header += byte
                    length |= (byte[0] & 0x7F) << shift
                    shift += 7
                    if byte[0] < 0x80:
                        break
                self._hand_on(first[0] >> 4, header + packets.read(length), broker)
        _hang_up(client, broker)

    def _hand_on(self, kind: int, packet: bytes, broker: socket.socket) -> None:
        action = None
        with self._lock:
            if self._fault is not None and kind == self._fault[0]:
                self._left -= 1
                if self._left == 0:
                    _, after, action = self._fault
                    self._fault, self.happened = None, True
        if action is None:
            broker.sendall(packet)
            return
        if after:
            broker.sendall(packet)
        action()
        raise EOFError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for one in self._sockets:
            one.close()


def _hang_up(*both: socket.socket) -> None:
    for one in both:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
