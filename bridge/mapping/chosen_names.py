"""Checks of names that a message chooses through a template: names outside the configuration are rejected.

Templates put values of a message into names of queues, queue managers, topics and users. The bridge uses these names with its
own authority. So a device must not reach SYSTEM objects, queues of the bridge, other queue managers, other clients or
privileged users, unless the mapping or pipeline lists the name in `allow`. The rule applies to the rendered name, whatever
the template. Templates without values of a message are not restricted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Final, Literal

from bridge.config.mapping import Check, ConfiguredNames
from bridge.security.privileged import PrivilegedUsers, as_mq_has_it
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc

#: Prefixes of names in `allow`.
CLIENT: Final = "client:"
USER: Final = "user:"

#: SYSTEM objects and topics of queue managers (IBM MQ, "Metrics published on the system topics"; MQTT 4.7.2).
_SYSTEM: Final = r"SYSTEM\.|\$SYS(?:/|(?![\s\S]))"
#: The end of a name, and an expression that matches nothing, in Python and in Java.
_END: Final = r"(?![\s\S])"
_NOTHING: Final = r"(?!)"

#: Control characters and line ends, in Python and in Java. Reasons contain `?` instead, because the message chose the name,
#: and reasons are lines of the log.
CONTROL: Final = r"[\x00-\x1f\x7f-\x9f\u2028\u2029]"

ObjectKind = Literal["queue", "topic"]


def is_system(name: str) -> bool:
    """Return whether a name belongs to the queue manager."""
    return _compiled(_SYSTEM).match(name) is not None


class ChosenNames:
    """The names that the templates of a mapping or pipeline may result in."""

    def __init__(
        self,
        names: ConfiguredNames,
        allow: Sequence[str],
        queue_manager: str = "",
        *,
        where: Literal["mapping", "pipeline"] = "mapping",
        at_broker: bool = False,
    ) -> None:
        """Initialize with the name of the queue manager. A broker (`at_broker`) has its own rules for its topics."""
        self._names = names
        self._where = where
        self._queue_managers = names.queue_managers | {queue_manager}
        self._objects = [pattern for pattern in allow if not pattern.startswith((CLIENT, USER))]
        self._clients = [pattern.removeprefix(CLIENT) for pattern in allow if pattern.startswith(CLIENT)]
        self._users = [pattern.removeprefix(USER) for pattern in allow if pattern.startswith(USER)]
        # MQ ignores blanks at the end of a name.
        own = "|".join(f"{re.escape(name)} *{_END}" for name in sorted(names.queues)) or _NOTHING
        topics = [] if at_broker else [(_SYSTEM, "a topic of the queue manager")]
        #: kind -> regular expressions, and descriptions of the names whose beginning matches
        self._rules = {
            "queue": [(_SYSTEM, "a SYSTEM object"), (own, "a queue that the bridge uses itself")],
            "topic": topics,
        }

    def check(self, kind: Check) -> Callable[[str], None] | None:
        """Return the function that raises Unmappable for a name. None: names of this kind need no check."""
        checks: dict[Check, Callable[[str], None]] = {
            "queue": partial(self.object_name, "queue"),
            "reply queue": partial(self.object_name, "queue"),
            "queue manager": self._queue_manager,
            "reply queue manager": self._queue_manager,
            "topic string": partial(self.object_name, "topic"),
            "topic name": partial(self.object_name, "topic"),
            "UserIdentifier": self._user,
        }
        return checks.get(kind)

    def object_name(self, kind: ObjectKind, name: str) -> None:
        """Check the name of a queue, or a topic string. Raises Unmappable."""
        for rule, description in self._rules[kind]:
            if _compiled(rule).match(name) is not None:
                self._require(name, description, self._objects)
                return

    def rules(self, kind: ObjectKind) -> Iterator[tuple[str, str]]:
        """Yield the rules of `object_name` for a program in Java: regular expressions, and the reasons of the rejections.

        A name is rejected if the beginning matches, unless it matches `allowed`. {} in the reason stands for the first 100
        characters of the name, with `?` instead of CONTROL.
        """
        for rule, description in self._rules[kind]:
            yield f"^(?:{rule})", self._reason("{}", description)

    @property
    def allowed(self) -> str:
        """The regular expression of the queues and topics in `allow`."""
        return f"(?s)^(?:{'|'.join(map(_regular, self._objects)) or _NOTHING}){_END}"

    def _queue_manager(self, name: str) -> None:
        if name not in self._queue_managers and not _matches(name, self._clients):
            self._require(name, "a queue manager or client that the configuration does not name", self._objects, CLIENT)

    def _user(self, name: str) -> None:
        user = as_mq_has_it(name)
        if _privileged_users().include(name) or user in map(as_mq_has_it, self._names.users):
            self._require(name, "a privileged user", self._users, USER)

    def _require(self, name: str, description: str, allowed: list[str], prefix: str = "") -> None:
        if not _matches(name, allowed):
            printable = _compiled(CONTROL).sub("?", name[:100])
            raise Unmappable(cmqc.MQRC_NOT_AUTHORIZED, self._reason(printable, description, prefix))

    def _reason(self, name: str, description: str, prefix: str = "") -> str:
        hint = f'hint: allow: ["{prefix}{name}"] in the {self._where}'
        return f"'{name}' is {description}, and the message chose it ({hint})"


def _matches(name: str, patterns: list[str]) -> bool:
    return any(_compiled(_regular(pattern)).fullmatch(name) for pattern in patterns)


def _regular(pattern: str) -> str:
    """Return the regular expression of a name in `allow`."""
    return ".*".join(map(re.escape, pattern.split("*")))


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.DOTALL)


@cache
def _privileged_users() -> PrivilegedUsers:
    return PrivilegedUsers()
