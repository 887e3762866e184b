"""The identifier that a line of the log begins with: `MQB2301W`.

A letter says how severe the line is: I for information, W for a warning, E for an error, S for a severe one, after which the
bridge or a part of it does not go on. The first digit is the room of the bridge:

    MQB0  life cycle, configuration, reload, the log, systemd
    MQB1  channels, transports, TLS, authentication
    MQB2  clients, sessions, subscriptions, units of work, delivery
    MQB3  the embedded queue manager
    MQB4  IBM MQ
    MQB5  mappings
    MQB6  links
    MQB7  the archive
    MQB8  pipelines
    MQB9  administration
"""

from __future__ import annotations

import re

_BEGIN = re.compile(r"(MQB\d{4}[IWES]) ")


def divided(line: str) -> tuple[str, str]:
    """Return the identifier that a line of the log begins with, and the rest; "" where it has none (another package's)."""
    found = _BEGIN.match(line)
    return ("", line) if found is None else (found[1], line[found.end() :])
