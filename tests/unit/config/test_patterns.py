"""Patterns of channel authentication records: distinguished names and addresses."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bridge.config.authentication import address_pattern, matches_name, name_pattern

PUMP = (
    "CN=pump-7,OU=plant,OU=west,O=Example\\, Inc,ST=Here,EMAILADDRESS=pump@example.org,TITLE=pump,UID=p7,C=DE,"
    "postalCode=1,dnQualifier=q,unstructuredName=n"
)


def test_patterns_match_distinguished_names(subtests: pytest.Subtests) -> None:
    for pattern, matches in [
        ("CN=pump-7", True), ("cn=PUMP-7", True), ("CN=pump*", True), ("CN=*7", True), ("CN=*ump*", True), ("CN=*", True),
        ("CN=pump", False), ("CN=pump\\*", False), ("O=Example\\, Inc,CN=pump-7", True), ('O="Example, Inc"', True),
        ("CN=pump-7;C=DE", True), ("CN = pump-7 ; C=DE", True), ("O=Example", False), ("OU=plant,OU=west", True),
        ("OU=west,OU=plant", False), ("OU=west", True), ("OU=east", False), ("L=here", False), ("ST=here", True),
        ("SP=here", True), ("S=here", True), ("MAIL=pump@*", True), ("E=pump@*", True), ("T=pump", True),
        ("USERID=p7", True), ("PC=1,DNQ=q,UNSTRUCTUREDNAME=n", True),
    ]:  # fmt: skip
        with subtests.test(pattern=pattern, matches=matches):
            name_pattern(pattern)
            assert matches_name(pattern, PUMP) is matches


@pytest.mark.parametrize(
    "pattern",
    ["", ",", "pump*", "CN:pump*", "CN:pump*,O=Example", "CN=a,", "CN=", "XN=a", "=a", "CN=a*b", "CN=*a*b*", 'CN="a',
     "CN=a\\"],
)  # fmt: skip
def test_invalid_patterns_of_distinguished_names_are_rejected(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        name_pattern(pattern)
    assert not matches_name(pattern, PUMP) and not matches_name(pattern, "")


def test_an_asterisk_in_a_certificate_is_not_a_wildcard() -> None:
    assert matches_name("CN=\\*.example.org", "CN=*.example.org")
    assert not matches_name("CN=\\*.example.org", "CN=www.example.org")


def test_patterns_match_addresses(subtests: pytest.Subtests) -> None:
    for pattern, address, matches in [
        ("*", "10.1.2.3", True), ("*", "::1", True), ("*", "", True), ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.30", False), ("10.1.2.*", "10.1.2.3", True), ("10.*", "10.1.2.3", True),
        ("10.*", "11.1.2.3", False), ("10.1.*.3", "10.1.9.3", True), ("10.1.*.3", "10.1.9.4", False),
        ("192.*.2", "192.0.5.2", True), ("192.*.2", "192.0.2.5", False), ("*.2", "192.0.5.2", True),
        ("*.*.*.2", "192.0.5.2", True), ("192.*.5.*", "192.0.5.2", True), ("192.*.5.*", "192.5.0.2", False),
        ("10.1-3.*", "10.3.0.1", True), ("10.1-3.*", "10.4.0.1", False), ("10.1.2.1-5", "10.1.2.5", True),
        ("192.0.*.1-8", "192.0.7.8", True), ("10.1.2.3", "", False), ("10.*", "", False),
        ("10.1.2.3", "::ffff:10.1.2.3", True), ("::ffff:10.1.2.3", "10.1.2.3", True),
        ("::FFFF:10.1.2.*", "::ffff:a01:203", True), ("10.1.2.3", "::1", False), ("::1", "::1", True),
        ("::1", "0:0:0:0:0:0:0:1", True), ("2001:db8:0-f:*", "2001:db8:a::1", True),
        ("2001:db8:0-f:*", "2001:db8:10::1", False), ("2001:DB8:0:0:0:*:0:1", "2001:db8::7:0:1", True),
        ("2001:*:1", "2001:db8::1", True), ("2001:*:1", "2001:db8::2", False),
        ("2001:db8::5", "2001:db8:0:0:0:0:0:5", True), ("2001:db8::5", "2001:db8::6", False),
        ("2001:db8::", "2001:db8::", True), ("fe80::1", "fe80::1%eth0", True), ("::1", "127.0.0.1", False),
        ("2001:*", "32.1.0.0", False), ("10.1.2.3", "no address", False),
    ]:  # fmt: skip
        with subtests.test(pattern=pattern, address=address, matches=matches):
            assert address_pattern(pattern).matches(address) is matches


@pytest.mark.parametrize(
    "pattern",
    ["300.1.1.1", "1*.2.3.4", "192.0*", "dead", "10", "10.1.2", "10.1.2.3.4", "-", "10.1.2.-5", "10.1.2.5-", "10.1.2.5-5",
     "10.1.2.9-5", "10.1.2.1-300", "10.1.2.1-2-3", "192.0.*.*", "*.*", "**", "", ".", "10..2.3", "10.01.2.3", "10.1.2.a",
     ":", ":::", "::1::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7::8:9", "2001::*", "2001:*::1", "12345::1",
     "g::1", "0:0:0:0:0:ffff:*", "0:0:0:0:0:ffff:a01:203", "::ffff:10.1.2", "::10.1.2.3"],
)  # fmt: skip
def test_invalid_patterns_of_addresses_are_rejected(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        address_pattern(pattern)


@pytest.mark.parametrize(
    "patterns",
    [
        ["10.1.2.3", "10.1.2.3-4", "10.1.2.1-9", "10.1.2.1-200", "10.1.2.*", "10.1.1-2.3", "10.1.*.3", "10.1.*", "10.0-1.*",
         "10.*.2.3", "10.*", "1-10.1.2.3", "*.1.2.3", "*.3", "*"],
        ["2001::1", "2001:0:0:0:0:0:0:*", "2001:*:1", "2000-2001:*", "*"],
    ],
)  # fmt: skip
def test_the_more_specific_pattern_takes_precedence(patterns: list[str]) -> None:
    keys = [address_pattern(pattern).specificity for pattern in patterns]
    assert all(key >= another for key, another in pairwise(keys))
    assert sorted(keys, reverse=True) == keys
