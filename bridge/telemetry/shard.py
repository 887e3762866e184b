"""Shards: the parts into which the clients of a queue manager are divided, by their client identifiers."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable
from typing import Final

import msgspec


class Shard(msgspec.Struct, frozen=True):
    """The clients that one bridge serves."""

    number: int = 0
    #: number of shards
    of: int = 1
    #: Server Reference for clients of other shards. `{shard}` is the number of their shard
    server_reference: str | None = None

    def owns(self, client_id: str) -> bool:
        """Return whether a client belongs to this shard."""
        return self.of == 1 or self.shard_of(client_id) == self.number

    def shard_of(self, client_id: str) -> int:
        """Return the shard number of a client: the remainder of its CRC-32, which load balancers also compute."""
        return zlib.crc32(client_id.encode()) % self.of

    def part_of(self, client_id: str, parts: int) -> int:
        """Return the index, from 0, of a client's part if a shard's clients are divided into equal parts."""
        # The remainder of the CRC-32 is the same for all clients of a shard.
        return zlib.crc32(client_id.encode()) // self.of % parts

    def reference_for(self, client_id: str) -> str | None:
        """Return the Server Reference for a client of another shard, or None if none is configured."""
        if self.server_reference is None:
            return None
        return self.server_reference.replace("{shard}", str(self.shard_of(client_id)))

    def assigned_client_id(self, token: Callable[[], str] = lambda: secrets.token_hex(9)) -> str:
        """Return a client identifier for a client that has none. It belongs to this shard."""
        while not self.owns(client_id := f"auto-{token()}"):
            pass
        return client_id


#: The only shard of a queue manager whose clients are not divided.
UNDIVIDED: Final = Shard()
