"""The network by which clients are counted."""

from __future__ import annotations

import pytest

from bridge.security.authenticator import network_of


def test_addresses_of_a_client_have_one_network(subtests: pytest.Subtests) -> None:
    """IPv4 is counted by address, in any notation, and IPv6 by the first 64 bits, which belong to one customer."""
    for address, network in [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:c000:207", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
        ("2001:DB8:1:3::9", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
    ]:
        with subtests.test(address=address, network=network):
            assert network_of(address) == network
