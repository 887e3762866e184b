"""Why a queue manager rejected the password of an MQTT client's user.

MQCONNX returns MQRC_NOT_AUTHORIZED for a wrong password, for a missing CONNECT authority and for a channel authentication
record. The queue manager's error log contains the reason. The bridge can only inquire the authority.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from bridge.mq.ibm.requirements import set_authrec
from bridge.mq.mqi import CommandResponse, Connection, MQError
from bridge.telemetry.identity import fits_user_identifier

#: Seconds for which an explanation is cached, so that repeated failures of a user cost one inquiry.
ANSWER_KEPT = 60.0
_LOG = "AMQERR01.LOG of the queue manager has the reason (AMQ5534E password, AMQ8077W authority, AMQ9776E, AMQ9777E CHLAUTH)"


class RefusedLogins:
    """Explanations of rejected passwords. `connect` returns a connection of the bridge's own user."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._answers: dict[str, str] = {}
        self._asked = 0.0

    def explain(self, user: str) -> str:
        """Return the probable reason why the queue manager rejected a user. May block."""
        now = time.monotonic()
        if now - self._asked > ANSWER_KEPT:
            self._answers, self._asked = {}, now
        answer = self._answers.get(user)
        if answer is None:
            answer = self._answers[user] = self._inquire(user)
        return answer

    def _inquire(self, user: str) -> str:
        if not fits_user_identifier(user):
            return "the name is longer than an MQ user"
        unknown = f"the password is wrong, the user lacks CONNECT authority, or a CHLAUTH record rejects it; {_LOG}"
        if not user.isprintable():
            return unknown
        try:
            response = _display(self._connect(), user)
        except MQError:
            return unknown  # the password was rejected in any case
        if response.message.startswith("AMQ8871"):
            return "the queue manager does not know the user"
        if any("CONNECT" in str(record.get("AUTHLIST", "")).split(",") for record in response.objects):
            return f"the password is wrong, or a CHLAUTH record rejects the user; {_LOG}"
        if not response.ok and not response.message.startswith("AMQ8147"):  # "object not found": it has no record
            return unknown
        grant = set_authrec("QMGR", "", f"PRINCIPAL('{user}')", "CONNECT")
        return f"the user has no CONNECT authority for the queue manager; hint: {grant}"


def _display(connection: Connection, user: str) -> CommandResponse:
    """Display the authority records of a user and its groups for the queue manager. Raises MQError.

    Source: IBM MQ documentation, "DISPLAY AUTHREC", MATCH(MEMBERSHIP).
    """
    quoted = user.replace("'", "''")
    try:
        (response,) = connection.command(f"DISPLAY AUTHREC OBJTYPE(QMGR) PRINCIPAL('{quoted}') MATCH(MEMBERSHIP)")
    finally:
        with contextlib.suppress(MQError):
            connection.disconnect()
    return response
