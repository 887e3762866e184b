"""ALTER and DISPLAY AUTHINFO: the MQSC commands on connection authentication.

Source: IBM MQ documentation, "ALTER AUTHINFO", "DISPLAY AUTHINFO". There is the one object that IBM MQ ships with.
"""

from __future__ import annotations

import msgspec

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.connection_authentication import CHECKS, AUTHINFO, NAME
from bridge.mq.embedded.mqsc.amq import CommandRefused, message
from bridge.mq.embedded.mqsc.definitions import Answer
from bridge.mq.embedded.mqsc.filter import is_named
from bridge.mq.embedded.mqsc.language import Command, MQSCSyntaxError
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit

_TYPE = "IDPWOS"
_NO_EFFECT = " It has no effect: the listener asks nobody who it is (queue_manager.listener.password_file)."


class ConnectionAuthenticationCommands:
    """The AUTHINFO commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._object = queue_manager.connection_authentication

    def alter(self, command: Command) -> Answer:
        """Do ALTER AUTHINFO: CHCKCLNT and DESCR. Raises MQSCSyntaxError or CommandRefused."""
        if command.name != NAME:
            raise CommandRefused("AMQ8147E", kind="Authentication information object", name=command.name)
        values = {"CHCKCLNT": self._object.check_clients, "DESCR": self._object.description}
        for parameter in command.parameters:
            keyword, value = parameter.keyword, parameter.value or ""
            known = {"CHCKCLNT": CHECKS, "AUTHTYPE": (_TYPE,), "DESCR": (value,)}.get(keyword)
            if known is None:
                raise MQSCSyntaxError(f"ALTER AUTHINFO knows no {keyword} here", parameter.where, keyword)
            if value not in known:
                raise MQSCSyntaxError(f"{keyword} is one of {', '.join(known)}", parameter.where, keyword)
            if keyword in values:
                values[keyword] = value
        unit = Unit()
        unit.changes.definitions.append((AUTHINFO, NAME, msgspec.json.encode(values).decode()))
        unit.changes.effects.append(lambda: self._object.restore(values))
        return message("AMQ8567I", hint="" if self._object.asks else _NO_EFFECT), unit

    def show(self, command: Command) -> tuple[str, list[dict[str, Value]]]:
        """Do DISPLAY AUTHINFO: return the number of the AMQ message, and the object.

        Raises CommandRefused or MQSCSyntaxError.
        """
        shown: dict[str, Value] = {
            "AUTHINFO": NAME,
            "AUTHTYPE": _TYPE,
            "DESCR": self._object.description,
            "CHCKCLNT": self._object.in_force,
            "CHCKLOCL": "NONE",
            "ADOPTCTX": "YES",
        }
        for parameter in command.parameters:
            if parameter.keyword not in (*shown, "ALL"):
                raise MQSCSyntaxError(f"DISPLAY AUTHINFO knows no {parameter.keyword}", parameter.where, parameter.keyword)
        if not is_named(NAME, command.name or "*"):
            raise CommandRefused("AMQ8147E", kind="Authentication information object", name=command.name)
        return message("AMQ8566I"), [shown]
