"""The peer of a connection, for log lines."""

from __future__ import annotations

from typing import Self


class Peer(str):
    """An address and, if known, a client identifier: `'dev-1' at 10.0.0.7:52311`. Both are also attributes."""

    __slots__ = ("address", "client_id")

    address: str
    client_id: str

    def __new__(cls, address: str, client_id: str = "") -> Self:
        made = super().__new__(cls, f"{client_id!r} at {address}" if client_id else f"at {address}")
        made.address, made.client_id = address, client_id
        return made
