"""The network by which clients are counted: an IPv4 address, or the 64 bits of IPv6 that somebody has whole."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


@lru_cache(10_000)
def network_of(address: str) -> str:
    """Return what an IP address is counted as: IPv4 as it is, also where it is mapped into IPv6; of IPv6 its /64.

    What is no IP address, such as "" on a Unix socket, is returned as it is.
    """
    if ":" not in address:
        return address
    there = ipaddress.IPv6Address(address.partition("%")[0])
    if there.ipv4_mapped is not None:
        return str(there.ipv4_mapped)
    return str(ipaddress.ip_network((there, 64), strict=False))
