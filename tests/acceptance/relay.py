"""A TCP relay between a program and a server that can forget connections, as a firewall does: neither side hears of it."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class Relay:
    """Listens at `port`, and hands on to a port of this machine what both sides send."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._pairs: list[_Pair] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._pairs.append(_Pair(client, socket.create_connection(("127.0.0.1", self._target))))

    def forget(self) -> list[_Pair]:
        """From now on nothing passes on the connections that are there; new ones are handed on. Those that are forgotten."""
        forgotten, self._pairs = self._pairs, []
        for pair in forgotten:
            pair.forgotten = True
        return forgotten

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for pair in self._pairs:
            pair.close()


class _Pair:
    """A connection of a program, and the one to the server behind it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._sockets = (client, server)
        self.forgotten = False
        for source, target in (self._sockets, self._sockets[::-1]):
            threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self.forgotten:
                    target.sendall(data)
        if not self.forgotten:
            self.close()

    def close(self) -> None:
        """End it on both sides."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
