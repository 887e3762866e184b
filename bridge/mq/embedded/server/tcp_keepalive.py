"""TCP keepalive of MQ connections: one whose other machine is gone ends, and gives up what it has open.

A machine that loses power or its network says no more. Without questions of TCP its connection would live for ever, with
the queues that it has open for exclusive input and its units of work. (IBM MQ: `KeepAlive=Yes` in the TCP stanza of qm.ini.)
"""

from __future__ import annotations

import socket
from typing import Final

#: Seconds without a word after which TCP asks, the seconds between two questions, and how many stay unanswered.
_IDLE: Final = 30
_BETWEEN: Final = 10
_QUESTIONS: Final = 3

#: Names of socket options, which not every system has, and their values.
_OPTIONS: Final = {
    "TCP_KEEPIDLE": _IDLE,
    "TCP_KEEPINTVL": _BETWEEN,
    "TCP_KEEPCNT": _QUESTIONS,
    # While data that was sent is not acknowledged, TCP asks nothing.
    "TCP_USER_TIMEOUT": (_IDLE + _BETWEEN * _QUESTIONS) * 1000,
}


def keep_alive(connection: socket.socket) -> None:
    """Have a TCP connection break a minute after the machine at its other end is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
