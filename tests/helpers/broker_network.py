"""Brokers at several addresses, each with a session per client identifier, and links that connect to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from bridge.config.link import LinkConfig
from bridge.config.values import endpoint
from bridge.link.state import LinkLost, PublicationRefusal
from bridge.telemetry.message import Publication, Received
from tests.helpers.mapping_broker import Broker, FakeLink, Killed, LinkFault


class BrokerNetwork:
    """The brokers, by address and client identifier."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sessions: dict[tuple[str, str], Broker] = {}
        self.unreachable: set[str] = set()
        self.links: list[RoutedLink] = []
        #: affects one call of any link: the address becomes unreachable
        self.fault = LinkFault()
        #: whether the fault also kills the bridge, and how
        self.kill: Callable[[], None] = lambda: None
        #: the call at which the fault happens
        self.call = ""

    def at(self, address: str, client_id: str) -> Broker:
        """Return the broker's side of a session, which need not exist yet."""
        with self.lock:
            return self.sessions.setdefault((address, client_id), Broker())

    def restore(self, address: str) -> None:
        """Make the address reachable again. Links without a connection connect."""
        with self.lock:
            self.unreachable.discard(address)
            for link in self.links:
                link.find_way()

    def cut(self, address: str) -> None:
        """Make the address unreachable."""
        with self.lock:
            self.unreachable.add(address)
            for link in self.links:
                if link.address == address:
                    link.leave()

    def link_connection(
        self, mapping: str, name: str, config: LinkConfig, *, topic_filter: str | None = None, **options: Any
    ) -> RoutedLink:
        """Replacement for `bridge.link.connection.link_connection`."""
        return RoutedLink(self, config, **options)

    @property
    def failures(self) -> list[str]:
        return [failure for broker in self.sessions.values() for failure in broker.failures]


class RoutedLink(FakeLink):
    """A link with a client identifier and addresses."""

    def __init__(self, network: BrokerNetwork, config: LinkConfig, *, client_id: str = "", **options: Any) -> None:
        super().__init__(Broker(), **options)
        self.client_id = client_id
        self._network = network
        self._addresses = [endpoint(*address) for address in config.addresses]
        self.address = self._addresses[0]
        self.away = True
        self._bound = ""
        self._started = False

    def bind(self, address: str) -> None:
        self._bound = address

    @property
    def session_present(self) -> bool | None:
        return self._present

    # Connecting ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        with self._network.lock:
            self._started = True
            self._network.links.append(self)
            self.find_way()

    def find_way(self) -> None:
        """Connect to the first reachable address, if there is no connection."""
        if not self._started or not self.away:
            return
        for address in self._addresses:
            if address not in self._network.unreachable:
                self.address = address
                self._broker = self._network.at(address, self.client_id)
                self._broker.arrivals.append(self._on_arrival)
                self.reconnect()
                return

    def leave(self) -> None:
        """Lose the connection."""
        super().leave()
        self.find_way()

    def stop(self, timeout: float) -> bool:
        with self._network.lock:
            self._started = False
            if self in self._network.links:
                self._network.links.remove(self)
            if self._clean and not self.away:
                self._broker.session = False
            self.away = True
        return super().stop(timeout)

    def reconnect(self, *, lose_session: bool = False) -> None:
        super().reconnect(lose_session=lose_session)

    # Faults ----------------------------------------------------------------------------------------------------------

    def _struck(self, call: str, moment: str) -> bool:
        network = self._network
        if network.call != call or network.fault.moment != moment or network.fault.struck:
            return False
        network.fault.struck = call
        network.call = ""
        network.cut(self.address)
        if network.fault.kills:
            network.kill()
            raise Killed
        return True

    def _check(self) -> None:
        if self.away or self._bound not in ("", self.address):
            lost = LinkLost("unreachable, or connected to another address")
            lost.unsent = True
            raise lost

    # Receiving -------------------------------------------------------------------------------------------------------

    def take(self, messages: int, size: int, wait: float) -> list[Received]:
        if self.away:
            threading.Event().wait(wait)
            return []
        arrivals = super().take(messages, size, wait)
        if arrivals and self._struck("take", "after"):
            return []
        return arrivals

    def acknowledge(self, received: Sequence[Received]) -> None:
        if self.away or (received and self._struck("acknowledge", "before")):
            return
        super().acknowledge(received)
        if received:
            self._struck("acknowledge", "after")

    def complete(self, packet_ids: Sequence[int]) -> None:
        if self.away or (packet_ids and self._struck("complete", "before")):
            return
        super().complete(packet_ids)

    # Sending ---------------------------------------------------------------------------------------------------------

    def wait_connected(self, wait: float, *, once: bool = False) -> bool:
        if self.away:
            threading.Event().wait(min(wait, 0.005))
        return not self.away

    def publish(self, publications: Sequence[Publication]) -> dict[int, PublicationRefusal]:
        self._check()
        broker = self._broker
        refusals = super().publish(publications)
        broker.released_payloads += [publication.payload for publication in publications]
        return refusals

    def publish_exactly(
        self, publications: Sequence[Publication], packet_ids: Sequence[int], dup: bool = False
    ) -> dict[int, PublicationRefusal]:
        self._check()
        if self._struck("publish_exactly", "before"):
            raise LinkLost("before it was sent")
        refusals = super().publish_exactly(publications, packet_ids, dup)
        if self._struck("publish_exactly", "after"):
            raise LinkLost("before it was answered")
        return refusals

    def release(self, packet_ids: Sequence[int]) -> None:
        self._check()
        if self._struck("release", "before"):
            raise LinkLost("before it was sent")
        super().release(packet_ids)
        if self._struck("release", "after"):
            raise LinkLost("before it was answered")
