"""A TCP relay between a program and a server, which can forget connections as a firewall does: neither side hears of it."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class Pair:
    """A connection of a program, and the one to the server behind it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.forgotten = False

    def close(self) -> None:
        """End it on both sides."""
        for connection in (self.client, self.server):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


class Relay:
    """Listens at `port`, and hands on to a port of this machine what both sides send."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._pairs: list[Pair] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    pair = Pair(client, socket.create_connection(("127.0.0.1", self._target)))
                except OSError:
                    client.close()  # as a server that is away does
                    continue
                self._pairs.append(pair)
                for way in ((pair.client, pair.server), (pair.server, pair.client)):
                    threading.Thread(target=self._serve, args=(pair, *way), daemon=True).start()

    def _serve(self, pair: Pair, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            self.hand_on(pair, source, target)
        if not pair.forgotten:
            pair.close()

    def hand_on(self, pair: Pair, source: socket.socket, target: socket.socket) -> None:
        """Hand on what one side sends, to its end. OSError and EOFError end the connection."""
        while data := source.recv(65536):
            if not pair.forgotten:
                target.sendall(data)

    def forget(self) -> list[Pair]:
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
