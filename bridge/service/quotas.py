"""Quotas for the number of sessions and subscriptions per user, per network, and of all clients together.

Clients choose their client identifiers freely, so a limit per client identifier would not limit the total. Only authenticated
user names are counted, because claimed names are chosen freely, too.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bridge.config import LimitsConfig
from bridge.telemetry.identity import Principal
from bridge.telemetry.session import Session

#: Average number of topic levels allowed for each subscription of limits.subscriptions.
LEVELS_PER_SUBSCRIPTION: Final = 10


class _Counted(NamedTuple):
    """The amounts that a session counts for."""

    user: str
    network: str
    subscriptions: int


class Quotas:
    """Counts existing sessions and subscriptions by user and by network.

    A session counts from `update` to `end`, which is called after its messages are removed.
    """

    def __init__(self, limits: LimitsConfig) -> None:
        self.limits = limits
        self._counted: dict[Session, _Counted] = {}
        self._sessions_of_user: dict[str, int] = {}
        self._sessions_of_network: dict[str, int] = {}
        self._subscriptions_of_user: dict[str, int] = {}
        self._subscriptions = 0

    def update(self, session: Session) -> None:
        """Count a new session, or one whose owner or subscriptions have changed."""
        self._count(session, _Counted(_user_of(session.principal), session.network, subscriptions_of(session)))

    def update_subscriptions(self, session: Session) -> None:
        """Count the subscriptions of a session again, unless the session has ended."""
        counted = self._counted.get(session)
        if counted is not None and counted.subscriptions != subscriptions_of(session):
            self.update(session)

    def end(self, session: Session) -> None:
        """Stop counting a session."""
        self._count(session, None)

    def _count(self, session: Session, counted: _Counted | None) -> None:
        before = self._counted.pop(session, None)
        if counted is not None:
            self._counted[session] = counted
        for one, sign in ((counted, 1), (before, -1)):
            if one is not None:
                _add(self._sessions_of_user, one.user, sign)
                _add(self._sessions_of_network, one.network, sign)
                _add(self._subscriptions_of_user, one.user, sign * one.subscriptions)
                self._subscriptions += sign * one.subscriptions

    def session_excess(self, principal: Principal, network: str) -> str:
        """Return a description of the limit that another session would exceed, or ""."""
        limits, user = self.limits, _user_of(principal)
        if len(self._counted) >= limits.sessions:
            return f"there are {len(self._counted)} sessions already (limits.sessions)"
        if (count := self._sessions_of_user.get(user, 0)) >= limits.sessions_per_user:
            return f"user {user!r} has {count} sessions already (limits.sessions_per_user)"
        if (count := self._sessions_of_network.get(network, 0)) >= limits.sessions_per_network:
            return f"network {network} has {count} sessions already (limits.sessions_per_network)"
        return ""

    def subscriptions_left(self, session: Session) -> tuple[int, str]:
        """Return how many subscriptions a session may add, and a description of the limit reached first."""
        limits, user = self.limits, _user_of(session.principal)
        own, most = subscriptions_of(session), limits.subscriptions
        choices = [(most - own, f"a client has at most {most} subscriptions (limits.subscriptions)")]
        if user:
            of_user = self._subscriptions_of_user.get(user, 0)
            why = f"user {user!r} has {of_user} subscriptions already (limits.subscriptions_per_user)"
            choices.append((limits.subscriptions_per_user - of_user, why))
        why = f"there are {self._subscriptions} subscriptions already (limits.subscriptions_total)"
        choices.append((limits.subscriptions_total - self._subscriptions, why))
        return min(choices)


def levels_left(session: Session, limits: LimitsConfig) -> int:
    """Return how many topic levels may be added to a session's topic filters.

    A publication may have to be compared with every level of every filter. So this limits many filters and deep filters
    together.
    """
    filters = (*session.filters, *(topic_filter for topic_filter, _ in session.shares.values()))
    return LEVELS_PER_SUBSCRIPTION * limits.subscriptions - sum(one.count("/") + 1 for one in filters)


def subscriptions_of(session: Session) -> int:
    """Return the number of a session's subscriptions. A shared subscription counts once per member."""
    return len(session.filters) + len(session.shares)


def _user_of(principal: Principal | None) -> str:
    """Return the user whose quota applies, or ""."""
    return principal.user if principal is not None and principal.authenticated else ""


def _add(counts: dict[str, int], key: str, number: int) -> None:
    """Add to a count. Blank keys are not counted, and counts of 0 are removed."""
    if not key:
        return
    count = counts.get(key, 0) + number
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
