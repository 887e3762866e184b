"""Places of clients that wait for something slow, such as a hash: so many for all, and a share of them for each network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bridge.security.authenticator import AuthenticatorUnavailable
from bridge.security.client_network import network_of

#: Clients that may wait, at most; to have more wait would serve nobody.
PLACES: Final = 200
#: Of these, clients of one network: whoever tries passwords from there leaves places for others.
SHARE: Final = 50


class WaitingPlaces:
    """The places for one slow thing."""

    def __init__(self, places: int = PLACES, share: int = SHARE) -> None:
        self._places = places
        self._share = share
        #: who waits, by network; "" is that of clients on Unix sockets, which have no share
        self._taken: Counter[str] = Counter()

    @contextmanager
    def place(self, address: str, what: str) -> Iterator[None]:
        """Have a place as long as it takes. Raises AuthenticatorUnavailable where there is none; `what` is waited for."""
        network = network_of(address)
        if self._taken.total() >= self._places:
            raise AuthenticatorUnavailable(f"{self._places} clients wait for {what}")
        if network and self._taken[network] >= self._share:
            raise AuthenticatorUnavailable(f"{self._share} clients of {network} wait for {what}")
        self._taken[network] += 1
        try:
            yield
        finally:
            self._taken[network] -= 1
            if not self._taken[network]:
                del self._taken[network]
