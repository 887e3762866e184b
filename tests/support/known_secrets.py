"""Secrets that tests use: none of them may be in what a program says, whichever test it is."""

from __future__ import annotations

#: Parts of passwords, of passwords of keys, and what keys and JSON Web Tokens begin with.
KNOWN = (
    "correct horse",
    "battery staple",
    "s3cret",
    "pa55 word",
    "p4ss",
    "hunter2",
    "eyJhbGciOi",
    "-----BEGIN",
    "$argon2id$v=",
    "SCRAM-SHA-256$",
)
#: Those that are another each time, such as tokens of an admin port.
_met: set[str] = set()


def register(*secrets: str) -> None:
    """Look for these, too, from now on."""
    _met.update(secrets)


def assert_no_secret(said: str, where: str) -> None:
    """Fail where a program has said a secret."""
    found = [secret for secret in (*KNOWN, *_met) if secret in said]
    assert not found, f"{found} is in {where}"
