"""A TCP relay between a program and a server that can drop connections like a firewall, without notifying either side."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class Pair:
    """A connection of a program, and the one to the server."""

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
    """Listen at `port`, and forward the data of both sides to a port of this machine."""

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
                    client.close()  # like an unreachable server
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
        """Forward the data of one side to its end. OSError and EOFError end the connection."""
        while data := source.recv(65536):
            if not pair.forgotten:
                target.sendall(data)

    def forget(self) -> list[Pair]:
        """Forward nothing on existing connections from now on. New ones are forwarded. Return the dropped connections."""
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
