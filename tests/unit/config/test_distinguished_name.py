"""Patterns of distinguished names: which names have what they ask for, and what is none."""

from __future__ import annotations

import pytest

from bridge.config.authentication import matches_name, name_pattern

PUMP = (
    "CN=pump-7,OU=plant,OU=west,O=Example\\, Inc,ST=Here,EMAILADDRESS=pump@example.org,TITLE=pump,UID=p7,C=DE,"
    "postalCode=1,dnQualifier=q,unstructuredName=n"
)


def test_distinguished_names(subtests: pytest.Subtests) -> None:
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
def test_what_is_none(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        name_pattern(pattern)
    assert not matches_name(pattern, PUMP) and not matches_name(pattern, "")


def test_an_asterisk_in_a_certificate_is_one() -> None:
    assert matches_name("CN=\\*.example.org", "CN=*.example.org")
    assert not matches_name("CN=\\*.example.org", "CN=www.example.org")
