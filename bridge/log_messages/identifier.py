"""The identifier at the beginning of a log line, such as `MQB2301W`.

The letter is the severity: I for information, W for a warning, E for an error, S for a severe error that stops the
bridge or a part of it. The first digit is the area:

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
    """Return the identifier of a log line and the rest of the line. Lines of other packages have the identifier ""."""
    match = _BEGIN.match(line)
    return ("", line) if match is None else (match[1], line[match.end() :])
