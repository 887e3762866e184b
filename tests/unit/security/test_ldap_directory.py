"""Names of users in answers of a directory, and passwords in plain text."""

from __future__ import annotations

import pytest

from bridge.config.authentication import LdapAuthenticationConfig
from bridge.security.authenticators import plain_passwords, user_of


def test_the_user_of_a_bound_name(subtests: pytest.Subtests) -> None:
    for bound, bind_dn, user in [
        ("dn:uid=carol,dc=example", "uid={user},dc=example", "carol"),
        ("dn:UID=Carol,DC=example", "uid={user},dc=example", "Carol"),
        ("dn:uid=o\\2Cb\\C3\\A4\\+,dc=example", "uid={user},dc=example", "o,b\u00e4+"),
        ("dn:cn=dev-7,ou=a,dc=example", "cn=dev-{user},ou=a,dc=example", "7"),
        ("dn:cn=DEV-7,ou=a,dc=example", "cn=dev-{user},ou=a,dc=example", "7"),
        ("dn:cn=7,ou=a,dc=example", "cn=dev-{user},ou=a,dc=example", None),
        ("dn:cn=dev-,ou=a,dc=example", "cn=dev-{user},ou=a,dc=example", None),
        ("dn:cn=carol,dc=example", "uid={user},dc=example", None),
        ("dn:uid=carol,ou=a,dc=example", "uid={user},dc=example", None),
        ("u:carol", "uid={user},dc=example", None),
        ("dn:cn=carol,dc=example", "{user}@example.com", None),
        ("", "uid={user},dc=example", None),
    ]:
        with subtests.test(bound=bound, bind_dn=bind_dn, user=user):
            assert user_of(bound, bind_dn) == user


@pytest.mark.parametrize(
    ("url", "options", "plain"),
    [
        ("ldap://ldap.example.com", {}, True),
        ("ldap://ldap.example.com", {"start_tls": True}, False),
        ("ldap://ldap.example.com", {"allow_plain": True}, False),
        ("ldaps://ldap.example.com", {}, False),
        ("ldap://127.0.0.1:389", {}, False),
    ],
)
def test_passwords_in_plain_text(url: str, options: dict[str, bool], plain: bool) -> None:
    config = LdapAuthenticationConfig.model_validate({"method": "ldap", "url": url, "bind_dn": "uid={user}", **options})
    assert plain_passwords(config) is plain
