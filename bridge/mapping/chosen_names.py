"""Names that a message chooses through a template: rejected if they reach beyond what the configuration names.

Templates put values of a message into names of queues, queue managers, topics and users. The bridge uses these names with its
own authority. So a device must not reach SYSTEM objects, queues of the bridge, other queue managers, other clients or
privileged users, unless the mapping lists the name in `allow`. The rule applies to the rendered name, whatever the template.
Templates without values of a message are not restricted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final

from bridge.config.link import LOCAL
from bridge.config.mapping import AnyMapping, Check, ToMqttMapping
from bridge.security.privileged import PrivilegedUsers, as_mq_has_it
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc

#: Prefixes of names in `allow`.
CLIENT: Final = "client:"
USER: Final = "user:"

#: Queues of queue managers, and their topics (IBM MQ, "Metrics published on the system topics"; MQTT 4.7.2).
_SYSTEM: Final = re.compile(r"SYSTEM\.|\$SYS(?:/|\Z)")


def is_system(name: str) -> bool:
    """Return whether a name belongs to the queue manager."""
    return _SYSTEM.match(name) is not None


class ChosenNames:
    """The names that the templates of a mapping may result in. `origin` is the name of the queue manager."""

    def __init__(self, config: AnyMapping, origin: str) -> None:
        self._names = config.names
        #: a broker has topics of its own, and its own rules for them
        self._at_broker = isinstance(config, ToMqttMapping) and config.destination.link != LOCAL
        self._queue_managers = config.names.queue_managers | {origin}
        self._objects = [one for one in config.allow if not one.startswith((CLIENT, USER))]
        self._clients = [one.removeprefix(CLIENT) for one in config.allow if one.startswith(CLIENT)]
        self._users = [one.removeprefix(USER) for one in config.allow if one.startswith(USER)]

    def check(self, kind: Check) -> Callable[[str], None] | None:
        """Return the function that raises Unmappable for a name. None: names of this kind reach nothing."""
        return {
            "queue": self._queue,
            "reply queue": self._queue,
            "queue manager": self._queue_manager,
            "reply queue manager": self._queue_manager,
            "topic string": self._topic,
            "topic name": self._topic,
            "UserIdentifier": self._user,
        }.get(kind)

    def _queue(self, name: str) -> None:
        if is_system(name):
            self._require(name, "a SYSTEM object", self._objects)
        elif name in self._names.queues:
            self._require(name, "a queue that the bridge uses itself", self._objects)

    def _topic(self, name: str) -> None:
        if is_system(name) and not self._at_broker:
            self._require(name, "a topic of the queue manager", self._objects)

    def _queue_manager(self, name: str) -> None:
        if name not in self._queue_managers and not _matches(name, self._clients):
            self._require(name, "a queue manager or client that the configuration does not name", self._objects, CLIENT)

    def _user(self, name: str) -> None:
        user = as_mq_has_it(name)
        if _privileged_users().include(name) or user in map(as_mq_has_it, self._names.users):
            self._require(name, "a privileged user", self._users, USER)

    def _require(self, name: str, what: str, allowed: list[str], prefix: str = "") -> None:
        if not _matches(name, allowed):
            shown = name[:100]
            hint = f'hint: allow: ["{prefix}{shown}"] in the mapping'
            raise Unmappable(cmqc.MQRC_NOT_AUTHORIZED, f"{shown!r} is {what}, and the message chose it ({hint})")


def _matches(name: str, patterns: list[str]) -> bool:
    return any(_compiled(pattern).fullmatch(name) for pattern in patterns)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


@cache
def _privileged_users() -> PrivilegedUsers:
    return PrivilegedUsers()
