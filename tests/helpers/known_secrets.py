"""Secrets that tests use: none of them may be in what a program says, whichever test it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil

from bridge.security.tokens import SHORTEST

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


def register_tokens(directory: Path) -> None:
    """Look for the tokens of admin ports that are in the token files of a directory."""
    for file in filter(Path.is_file, directory.glob("*tokens")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            token = line.strip().rpartition(":")[2]
            if len(token) >= SHORTEST and not line.startswith("#"):
                register(token)


def assert_no_secret(text: str, where: str) -> None:
    """Fail where a program has said a secret."""
    secrets = [secret for secret in (*KNOWN, *_met) if secret in text]
    assert not secrets, f"{secrets} is in {where}"


def assert_no_secret_in_processes(pid: int, variables: Mapping[str, str]) -> None:
    """Fail where `ps` shows a secret of a process, or of one that it has started.

    Their environment may contain the `variables` of the test: an option may ask for a password in a variable.
    """
    try:
        process = psutil.Process(pid)
        processes = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return  # it has ended by itself
    # pytest says in a variable which test runs, with the test's parameters.
    variables = {**variables, "PYTEST_CURRENT_TEST": ""}
    for running_process in processes:
        try:
            command, environment = running_process.cmdline(), running_process.environ()
        except psutil.Error:
            continue  # it has ended
        assert_no_secret("\n".join(command), f"the command line of process {running_process.pid}")
        others = [f"{name}={value}" for name, value in environment.items() if name not in variables]
        assert_no_secret("\n".join(others), f"the environment of process {running_process.pid}")
