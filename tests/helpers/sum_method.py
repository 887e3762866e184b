"""An authentication method for tests: the client adds numbers. It is found by an entry point, like any other method."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from bridge.security.authenticator import Authenticated, AuthenticationFailed, Challenge, Presented

NAME = "TEST-SUM"
ENTRY_POINT = "tests.helpers.sum_method:Sum"


class Sum:
    """The client is challenged with a number, and responds with `USER` and the number plus one, as often as it requested."""

    def begin(self, presented: Presented) -> SumExchange:
        return SumExchange(presented)


class SumExchange:
    def __init__(self, presented: Presented) -> None:
        self._presented = presented
        self._rounds: int | None = None
        self._number = 0

    async def respond(self, data: bytes | None) -> Challenge | Authenticated:
        await asyncio.sleep(0)
        if data == b"fail":
            raise RuntimeError("the method fails, as it was asked to")
        if data == b"hang":
            await asyncio.Event().wait()
        if self._rounds is None:
            self._rounds = int(data or b"0")
        else:
            user, _, answer = (data or b"").partition(b" ")
            if answer != b"%d" % (self._number + 1):
                raise AuthenticationFailed(f"{self._presented.client_id} cannot add up")
            if not self._rounds:
                return Authenticated(user.decode() or None, b"welcome")
        if not self._rounds:
            return Authenticated(None, None)
        self._rounds -= 1
        self._number += 41
        return Challenge(b"%d" % self._number)


def install(directory: Path) -> dict[str, str]:
    """Write the metadata of an installed distribution with the method. Return the environment of a process that finds it."""
    info = directory / "test_sum-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: test-sum\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        f"[mqbridge.authentication_methods]\n{NAME} = {ENTRY_POINT}\nBROKEN = tests.helpers.sum_method:missing\n",
        encoding="utf-8",
    )
    root = Path(__file__).parents[2]
    return {"PYTHONPATH": os.pathsep.join((str(directory), str(root), os.environ.get("PYTHONPATH", "")))}
