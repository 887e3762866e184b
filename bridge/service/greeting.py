"""What a bridge that has started tells a newcomer to try."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable

from bridge.transport.channel import Channel

_ADDRESSES = {"127.0.0.1": "", "0.0.0.0": "", "::": " -h ::1"}


def greeting(channels: Iterable[Channel], hint: str) -> list[str]:
    """Return lines for a person; none where no channel listens at an address.

    `hint` are the options by which a command finds the bridge.
    """
    listening = [(one.endpoint, one.config) for one in channels if one.endpoint is not None]
    if not listening:
        return []
    lines = ["try next, each in a terminal of its own:"]
    # By a channel where it works as it stands.
    plain = [place for place, one in listening if not (one.tls or one.websocket or one.proxies or one.authentication)]
    for address, port in plain[:1]:
        lines.append(f"  mosquitto_sub{_ADDRESSES.get(address, f' -h {address}')} -p {port} -t 'demo/#' -v")
    command = "mqbridge" if shutil.which("mqbridge") else shlex.quote(sys.argv[0])
    return [*lines, f"  {command} mq pub demo/hello 'hello from MQ' {hint}"]
