"""Who fails to connect again and again is answered late, so that passwords cannot be tried by the thousand."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

#: Seconds after which an address has a clean slate.
PERIOD: Final = 60.0
#: Addresses remembered, at most; the ones that failed first are forgotten.
_REMEMBERED: Final = 10_000


class FailedConnects:
    """Counts refused connections by IP address; of IPv6 by the network of 64 bits that somebody has whole."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: when the first one failed, and how many have
        self._failed: dict[str, tuple[float, int]] = {}

    def delay(self, address: str, free: int, longest: float) -> float:
        """Count one more; return after how many seconds it is to be answered: 0 for the first `free` of a minute."""
        where, now = _network_of(address), self._clock()
        since, count = self._failed.pop(where, (now, 0))
        if now - since > PERIOD:
            since, count = now, 0
        while len(self._failed) >= _REMEMBERED:
            del self._failed[next(iter(self._failed))]
        self._failed[where] = since, count + 1
        late = count + 1 - free
        return 0.0 if late <= 0 else min(2.0 ** min(late - 1, 20), longest)


def _network_of(address: str) -> str:
    if ":" not in address:
        return address
    return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
