"""The client side of the control socket: sends requests of `mqbridge` commands to a running bridge."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec

from bridge.administration.protocol import Answer, Request
from bridge.security.unix_socket import socket_address

#: The maximum time that a bridge may take to answer, in seconds. A reload waits for the current units of work.
ANSWER_TIMEOUT = 60.0


class NoBridge(Exception):
    """No bridge answers at a control socket. The message contains the path of the socket."""


def ask(path: Path, request: Request[Any], timeout: float = ANSWER_TIMEOUT) -> Answer:
    """Send a request to a running bridge and return its answer.

    Raises NoBridge if no bridge answers within `timeout` seconds.
    """
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
        raise NoBridge(f"no bridge answers at {path} ({error.strerror or error}). Is it running?") from error
    try:
        return msgspec.json.decode(answer, type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoBridge(
            f"the process that listens at {path} is not a bridge, or ended before it answered: {error}"
        ) from error
