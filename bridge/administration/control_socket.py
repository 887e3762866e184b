"""The control socket from outside: how commands of `mqbridge` have a running bridge answer."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec

from bridge.administration.requests import Answer, AnyRequest
from bridge.security.unix_socket import socket_address

#: Seconds that a bridge may take to answer: a reload waits for units of work under way.
ANSWER_TIMEOUT = 60.0


class NoBridge(Exception):
    """No bridge answers at a control socket; the message says where it was looked for."""


def ask(path: Path, request: AnyRequest, timeout: float = ANSWER_TIMEOUT) -> Answer:
    """Have a running bridge answer. Raises NoBridge where none does, or none in time."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            with socket_address(path) as address:
                connection.connect(address)
            connection.sendall(msgspec.json.encode(request) + b"\n")
            with connection.makefile("rb") as stream:
                answer = stream.readline()
    except TimeoutError as error:
        raise NoBridge(f"the bridge at {path} does not answer within {timeout:g} s: does it hang?") from error
    except OSError as error:
        raise NoBridge(f"no bridge answers at {path} ({error.strerror or error}); is it running?") from error
    try:
        return msgspec.json.decode(answer, type=Answer)
    except msgspec.DecodeError as error:
        raise NoBridge(f"what answers at {path} is no bridge, or it ended meanwhile: {error}") from error
