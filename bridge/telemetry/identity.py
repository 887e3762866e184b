"""Identities of clients: queue manager name, user of their messages, and the topics that they may use.

In MQ, an MQTT client is a remote queue manager whose name is derived from its client identifier. IBM MQ allows A-Z, a-z, 0-9
and . / _ % in such a name, and 48 characters ("Rules for naming IBM MQ objects"). In escaped names, every byte of the
identifier (in UTF-8) other than letters, digits and . / _ is % and two hexadecimal digits: `dev-1` is `dev%2D1`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from bridge.mqtt.topics import covers, matches
from bridge.telemetry.request import REPLY_TOPIC_PREFIX, ReplyAddresses
from bridge.telemetry.subscription import PERSISTENCE_FROM_QOS
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: MQ_Q_MGR_NAME_LENGTH.
MAX_LENGTH: Final = 48

_ESCAPED: Final = re.compile(rb"[^A-Za-z0-9./_]")
_NAME: Final = re.compile(r"(?:[A-Za-z0-9./_]|%[0-9A-F]{2})+")
_ESCAPE: Final = re.compile(rb"%(..)")


class ClientNames:
    """The naming scheme of a bridge. Without `escaped`, names are the client identifiers."""

    def __init__(self, escaped: bool = False) -> None:
        self.escaped = escaped

    def name_of(self, client_id: str) -> str:
        """Return the queue manager name of a client. Different clients have different names."""
        if not self.escaped:
            return client_id
        return _ESCAPED.sub(lambda match: b"%%%02X" % match[0][0], client_id.encode()).decode()

    def client_of(self, name: str) -> str:
        """Return the client identifier for a queue manager name, or "" if it is not the name of a client."""
        if not self.escaped:
            return name
        if _NAME.fullmatch(name) is None:
            return ""
        try:
            client_id = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), name.encode()).decode()
        except UnicodeDecodeError:
            return ""
        return client_id if self.name_of(client_id) == name else ""

    def error(self, client_id: str) -> str | None:
        """Return why a client cannot have a name, or None."""
        name = self.name_of(client_id)
        if len(name.encode()) > MAX_LENGTH:
            escaped = f", as which it is {name[: 2 * MAX_LENGTH]!r}" if self.escaped else ""
            return f"a client identifier has at most {MAX_LENGTH} bytes (it is a queue manager name to MQ{escaped})"
        if name.endswith(" "):
            # MQ pads names with blanks, so client `a` would receive the messages of client `a `.
            return "a client identifier must not end with a blank (it is a queue manager name to MQ)"
        return None


#: The naming scheme without escaping.
AS_IS: Final = ClientNames()


#: MQMD.UserIdentifier is an MQCHAR12.
USER_IDENTIFIER_LENGTH = 12


def user_identifier(
    client_id: str, user_name: str | None = None, *, mcauser: str | None = None, use_client_id: bool = False
) -> bytes:
    """Return the identity of an MQTT client for MQMD.UserIdentifier, at most 12 bytes.

    It is the client identifier if `use_client_id` (USECLTID) is set, else the channel's MCAUSER, else the user name of the
    CONNECT, else blank. A longer name is truncated at a UTF-8 character boundary. (`bridge.service.connecting` rejects
    clients with longer names.)
    """
    name = client_id if use_client_id else (mcauser or user_name or "")
    encoded = name.encode("utf-8")[:USER_IDENTIFIER_LENGTH]
    return encoded.decode("utf-8", "ignore").encode("utf-8").rstrip(b" ")


def fits_user_identifier(name: str) -> bool:
    """Return whether a name without its trailing blanks fits MQMD.UserIdentifier."""
    return len(name.rstrip(" ").encode("utf-8")) <= USER_IDENTIFIER_LENGTH


def too_long_for_mq(client_id: str, user_name: str, *, mcauser: str | None, use_client_id: bool) -> str | None:
    """Return why a client cannot use its own user name, or None. Several long names could be truncated to one MQ user.

    IBM MQ limits users of AIX and Linux to 12 characters ("User IDs").
    """
    if use_client_id:
        kind, name = "client identifier", client_id
        hint = "map the client to a user with a channel authentication record, or set use_client_id: false"
    elif mcauser:
        return None
    else:
        kind, name = "user name", user_name
        hint = "map it to a user with a channel authentication record (SSLPEERMAP or USERMAP), or give the channel an mcauser"
    if fits_user_identifier(name):
        return None
    return f"its {kind} {name!r} is longer than {USER_IDENTIFIER_LENGTH} bytes, the length of an MQ user; hint: {hint}"


class Principal(msgspec.Struct, frozen=True):
    """The owner of a session: an authenticated user, or any client that was not authenticated.

    All authentication methods share one namespace of users, because MQ authorizes users only by name.
    """

    authenticated: bool
    #: blank if the client was not authenticated (a claimed user name proves nothing), or if its method provides no user
    user: str = ""

    def __str__(self) -> str:
        return f"user {self.user!r}" if self.authenticated else "an unauthenticated client"


UNAUTHENTICATED = Principal(False)


#: The maximum number of users whose MQMDs are cached.
MAX_SHARED_DESCRIPTORS: Final = 4096


class ClientIdentity:
    """The attributes that a connected client's messages share: its identifier and its MQMDs."""

    __slots__ = ("client_id", "descriptors", "replies", "user")

    def __init__(self, client_id: str, user: bytes, replies: ReplyAddresses | None = None) -> None:
        self.client_id = client_id
        #: resolves the topics of replies to requests from MQ, or None to treat them as ordinary topics
        self.replies = replies
        self.user = user
        #: by QoS
        self.descriptors = _descriptors(user)


@lru_cache(MAX_SHARED_DESCRIPTORS)
def _descriptors(user: bytes) -> tuple[MQMD, ...]:
    """Return the MQMDs of a user's messages, by QoS. The clients of one user share them."""
    of_persistence = {
        persistence: MQMD(
            Format=cmqc.MQFMT_RF_HEADER_2,
            UserIdentifier=user,
            Priority=cmqc.MQPRI_PRIORITY_AS_Q_DEF,
            Persistence=persistence,
        )
        for persistence in set(PERSISTENCE_FROM_QOS)
    }
    return tuple(of_persistence[persistence] for persistence in PERSISTENCE_FROM_QOS)


#: The maximum number of cached decisions for a client, and the maximum length of a cached topic.
_REMEMBERED: Final = 100
_REMEMBERED_LENGTH: Final = 256


class TopicAccess:
    """The topic rules for one client."""

    __slots__ = ("_known", "_publish", "_subscribe")

    def __init__(
        self, publish: Sequence[str] | None, subscribe: Sequence[str] | None, client_id: str, user: str
    ) -> None:
        """Initialize with the patterns of the channel. None allows any topic."""
        self._publish = None if publish is None else _filters(publish, client_id, user)
        self._subscribe = None if subscribe is None else _filters(subscribe, client_id, user)
        self._known: dict[str, bool] = {}

    def may_publish(self, topic: str) -> bool:
        """Return whether the client may publish to a topic. Reply topics are allowed, because their code is checked later."""
        if self._publish is None:
            return True
        is_allowed = self._known.get(topic)
        if is_allowed is None:
            is_allowed = topic.startswith(REPLY_TOPIC_PREFIX) or any(
                matches(pattern, topic) for pattern in self._publish
            )
            if len(topic) <= _REMEMBERED_LENGTH:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[topic] = is_allowed
        return is_allowed

    def subscribes_like(self, other: TopicAccess) -> bool:
        """Return whether both have the same rules for subscriptions."""
        return self._subscribe == other._subscribe

    def may_subscribe(self, topic_filter: str) -> bool:
        """Return whether the client may subscribe to all topics that a filter matches."""
        return self._subscribe is None or any(covers(pattern, topic_filter) for pattern in self._subscribe)


def _filters(patterns: Sequence[str], client_id: str, user: str) -> list[str]:
    """Return patterns with %c and %u replaced, except those in which a name would change the structure of the filter."""
    filters = []
    for pattern in patterns:
        used = [name for place, name in (("%c", client_id), ("%u", user)) if place in pattern]
        # A client that chooses its own name could choose a wildcard, another client's topic level, or $SYS.
        if all(name and not set("/+#") & set(name) and not name.startswith("$") for name in used):
            filters.append("/".join(_filled(level, client_id, user) for level in pattern.split("/")))
    return filters


def _filled(level: str, client_id: str, user: str) -> str:
    # Replace both at once: the client identifier may contain %u.
    parts = level.split("%c")
    return client_id.join(part.replace("%u", user) for part in parts)
