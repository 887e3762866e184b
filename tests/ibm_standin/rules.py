"""Rules that a test sets for the stand-in: rejections, delays and costs that occur only at times on a queue manager.

A test in the same process sets `StandInServer.rules`. For a queue manager in another process, it writes them to
`FILE_NAME` in the data directory. The stand-in reads that file before each MQCONN, MQOPEN and MQGET.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from tests.ibm_standin import cmqc

FILE_NAME: Final = "standin.json"

#: Reason codes with which IBM MQ rejects a connection although others work, with their topics in IBM MQ's documentation.
REFUSALS: Final = {
    # "2009 (MQRC_CONNECTION_BROKEN)"
    cmqc.MQRC_CONNECTION_BROKEN: "the listener or the channel ended while the connection was made",
    # "2025 (MQRC_MAX_CONNS_LIMIT_REACHED)"
    cmqc.MQRC_MAX_CONNS_LIMIT_REACHED: "SHARECNV, or another limit on conversations",
    # "2059 (MQRC_Q_MGR_NOT_AVAILABLE)"
    cmqc.MQRC_Q_MGR_NOT_AVAILABLE: "the backlog of the listener is full, or the channel is not started",
    # "2063 (MQRC_SECURITY_ERROR)"
    cmqc.MQRC_SECURITY_ERROR: "the user repository, such as LDAP, does not answer",
    # "2195 (MQRC_UNEXPECTED_ERROR)"
    cmqc.MQRC_UNEXPECTED_ERROR: "the queue manager lacks a resource, and has written an FDC",
    # "2537 (MQRC_CHANNEL_NOT_AVAILABLE)"
    cmqc.MQRC_CHANNEL_NOT_AVAILABLE: "MAXINST, MAXINSTC or MaxChannels is reached, or the channel is stopped",
    # "2538 (MQRC_HOST_NOT_AVAILABLE)"
    cmqc.MQRC_HOST_NOT_AVAILABLE: "nothing listens at the address",
    # "2539 (MQRC_CHANNEL_CONFIG_ERROR)"
    cmqc.MQRC_CHANNEL_CONFIG_ERROR: "both sides of the channel do not agree",
}


class Rules(msgspec.Struct, forbid_unknown_fields=True):
    """The current rejections, delays and costs."""

    #: the reason code of every new connection, or 0 to accept connections
    refuse: int = 0
    #: connections that are accepted before `refuse` applies
    accept_first: int = 0
    #: seconds before a failed login is answered (IBM MQ, "ALTER AUTHINFO": FAILDLAY, 1 by default)
    failed_login_delay: float = 0.0
    #: seconds of the queue manager for each MQOPEN: name resolution and authority checks
    open_cost: float = 0.0
    #: seconds of the queue manager for each marked message that a browse skips (MQGMO_UNMARKED_BROWSE_MSG), or None if they
    #: are not counted, because counting also takes time
    step_cost: float | None = None


class Present:
    """The current rules, and counts of the events to which they apply."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / FILE_NAME
        self._read_at = 0
        self._rules = Rules()
        #: failed logins by user
        self.failed_logins: Counter[str] = Counter()
        #: connections rejected by a rule
        self.refused = 0
        #: MQOPENs and MQGETs, and marked messages that browses skipped
        self.opens = self.gets = self.steps = 0

    @property
    def rules(self) -> Rules:
        """The rules, read again if the file has changed."""
        try:
            changed = self._file.stat().st_mtime_ns
        except FileNotFoundError:
            return self._rules
        if changed != self._read_at:
            self._rules, self._read_at = msgspec.json.decode(self._file.read_bytes(), type=Rules), changed
        return self._rules

    @rules.setter
    def rules(self, rules: Rules) -> None:
        self._rules = rules

    def refusal(self) -> int:
        """Return the reason code of a new connection, or MQRC_NONE."""
        rules = self.rules
        if not rules.refuse:
            return cmqc.MQRC_NONE
        if rules.accept_first:
            rules.accept_first -= 1
            return cmqc.MQRC_NONE
        self.refused += 1
        return rules.refuse

    def opened(self) -> None:
        """Count an MQOPEN, and consume its time."""
        self.opens += 1
        _spend(self.rules.open_cost)

    def stepped(self, number: int) -> None:
        """Count messages that a browse has skipped, and consume their time."""
        self.steps += number
        _spend(number * (self.rules.step_cost or 0.0))


def _spend(seconds: float) -> None:
    """Keep the queue manager busy without doing other work, like a process without another processor."""
    if seconds > 0:
        time.sleep(seconds)


def write(directory: Path, rules: Rules) -> None:
    """Set the rules of a queue manager in another process."""
    new = directory / f"{FILE_NAME}.new"
    new.write_bytes(msgspec.json.encode(rules))
    new.replace(directory / FILE_NAME)
