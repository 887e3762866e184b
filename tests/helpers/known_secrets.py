"""Secrets of the tests: the output of programs must not contain any of them, in any test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil

from bridge.security.tokens import MIN_LENGTH

#: Parts of passwords, of passwords of keys, and the beginnings of keys and JSON Web Tokens.
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
#: Secrets that differ in each run, such as tokens of an admin port.
_met: set[str] = set()


def register(*secrets: str) -> None:
    """Search for these, too, from now on."""
    _met.update(secrets)


def register_tokens(directory: Path) -> None:
    """Search for the tokens of admin ports in the token files of a directory."""
    for file in filter(Path.is_file, directory.glob("*tokens")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            token = line.strip().rpartition(":")[2]
            if len(token) >= MIN_LENGTH and not line.startswith("#"):
                register(token)


def assert_no_secret(text: str, where: str) -> None:
    """Fail if the output of a program contains a secret."""
    secrets = [secret for secret in (*KNOWN, *_met) if secret in text]
    assert not secrets, f"{secrets} is in {where}"


def assert_no_secret_in_processes(pid: int, variables: Mapping[str, str]) -> None:
    """Fail if `ps` shows a secret of a process or of its children.

    Their environment may contain values `given` by the test, because an option can name a variable with a password.
    """
    try:
        process = psutil.Process(pid)
        processes = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return  # it has ended
    # pytest has a variable with the current test and its parameters.
    variables = {**variables, "PYTEST_CURRENT_TEST": ""}
    for running_process in processes:
        try:
            command, environment = running_process.cmdline(), running_process.environ()
        except psutil.Error:
            continue  # it has ended
        assert_no_secret("\n".join(command), f"the command line of process {running_process.pid}")
        others = [f"{name}={value}" for name, value in environment.items() if name not in variables]
        assert_no_secret("\n".join(others), f"the environment of process {running_process.pid}")
