"""The authorization service: authority records, and the checks of MQI calls and commands against them.

Source: IBM MQ documentation, "Authorizations for MQI calls", "Using OAM generic profiles", "Topic security", "Authority
to administer IBM MQ", and AlternateUserId of the MQOD. The user of a check is one of:

- None for the bridge itself. The bridge and administrators (the user that runs it, `mqm`, and members of group `mqm`)
  have all authorities.
- Any other principal, with its groups, which include `nobody`. A user without a name is `nobody`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from bridge.mq.embedded.topics import TopicTree
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import MQError
from bridge.security.privileged import ADMINISTRATORS, NOBODY, as_mq_has_it, groups_of, user_of_this_process
from bridge.wire import cmqc, cmqcfc

#: AUTHADD and AUTHRMV keywords of SET AUTHREC for MQI calls
MQI = {
    "ALTUSR": cmqcfc.MQAUTH_ALT_USER_AUTHORITY,
    "BROWSE": cmqcfc.MQAUTH_BROWSE,
    "CONNECT": cmqcfc.MQAUTH_CONNECT,
    "GET": cmqcfc.MQAUTH_INPUT,
    "INQ": cmqcfc.MQAUTH_INQUIRE,
    "PASSALL": cmqcfc.MQAUTH_PASS_ALL_CONTEXT,
    "PASSID": cmqcfc.MQAUTH_PASS_IDENTITY_CONTEXT,
    "PUB": cmqcfc.MQAUTH_PUBLISH,
    "PUT": cmqcfc.MQAUTH_OUTPUT,
    "RESUME": cmqcfc.MQAUTH_RESUME,
    "SET": cmqcfc.MQAUTH_SET,
    "SETALL": cmqcfc.MQAUTH_SET_ALL_CONTEXT,
    "SETID": cmqcfc.MQAUTH_SET_IDENTITY_CONTEXT,
    "SUB": cmqcfc.MQAUTH_SUBSCRIBE,
}
#: AUTHADD and AUTHRMV keywords of SET AUTHREC for commands
ADMIN = {
    "CHG": cmqcfc.MQAUTH_CHANGE,
    "CLR": cmqcfc.MQAUTH_CLEAR,
    "CTRL": cmqcfc.MQAUTH_CONTROL,
    "CTRLX": cmqcfc.MQAUTH_CONTROL_EXTENDED,
    "DLT": cmqcfc.MQAUTH_DELETE,
    "DSP": cmqcfc.MQAUTH_DISPLAY,
}
WORDS = MQI | ADMIN | {"CRT": cmqcfc.MQAUTH_CREATE, "SYSTEM": cmqcfc.MQAUTH_SYSTEM}
NUMBERS = {number: word for word, number in WORDS.items()}
ALL = frozenset((*MQI.values(), *ADMIN.values()))
#: collective keywords: the authorities that they include
COLLECTIVE = {
    "ALL": ALL,
    "ALLADM": frozenset(ADMIN.values()),
    "ALLMQI": frozenset(MQI.values()),
    "NONE": frozenset[int](),
}

#: MQOT_ numbers of OBJTYPE values
OBJECT_TYPES = {
    "AUTHINFO": cmqc.MQOT_AUTH_INFO,
    "CHANNEL": cmqc.MQOT_CHANNEL,
    "CLNTCONN": cmqc.MQOT_CLNTCONN_CHANNEL,
    "COMMINFO": cmqc.MQOT_COMM_INFO,
    "LISTENER": cmqc.MQOT_LISTENER,
    "NAMELIST": cmqc.MQOT_NAMELIST,
    "PROCESS": cmqc.MQOT_PROCESS,
    "QMGR": cmqc.MQOT_Q_MGR,
    "QUEUE": cmqc.MQOT_Q,
    "RQMNAME": cmqc.MQOT_REMOTE_Q_MGR_NAME,
    "SERVICE": cmqc.MQOT_SERVICE,
    "TOPIC": cmqc.MQOT_TOPIC,
}
#: MQZAET_ numbers of PRINCIPAL and GROUP
ENTITY_TYPES = {"PRINCIPAL": cmqc.MQZAET_PRINCIPAL, "GROUP": cmqc.MQZAET_GROUP}


#: The kind of the rows that store the records.
KIND = "AUTHREC"
#: Wildcards of generic profiles by genericity. NUL represents `**`.
_GENERIC = {"?": 1, "*": 2, "\0": 3}


class Identity(NamedTuple):
    """The object profile and entity of an authority record. Types are MQOT_ and MQZAET_ numbers."""

    object_type: int
    profile: str
    entity_type: int
    entity: str


class AuthorityRecords:
    """The authority records of a queue manager: granted MQAUTH_ numbers by identity."""

    def __init__(self) -> None:
        self.granted: dict[Identity, frozenset[int]] = {}
        #: incremented by each change
        self.version = 0

    def restore(self, attributes: dict[str, Any]) -> None:
        """Restore a record from disk."""
        self.grant(Identity(*attributes["identity"]), attributes["authorities"])

    def grant(self, identity: Identity, authorities: Iterable[int]) -> None:
        """Set a record immediately, and only in memory."""
        self.granted[identity] = frozenset(authorities)
        self.version += 1

    def put(self, unit: Unit, identity: Identity, authorities: Iterable[int]) -> None:
        """Set a record in a unit of work."""
        granted = frozenset(authorities)
        row = {"identity": list(identity), "authorities": sorted(granted)}
        unit.define(KIND, _key(identity), row, lambda: self.grant(identity, granted))

    def remove(self, unit: Unit, identity: Identity) -> None:
        """Remove a record in a unit of work."""
        unit.define(KIND, _key(identity), None, lambda: self.forget(identity))

    def forget(self, identity: Identity) -> None:
        """Remove a record immediately, if it exists, and only in memory."""
        self.granted.pop(identity, None)
        self.version += 1

    def remove_profile(self, unit: Unit, object_type: int, profile: str) -> None:
        """Remove all records of a profile in a unit of work."""
        for identity in [identity for identity in self.granted if identity[:2] == (object_type, profile)]:
            self.remove(unit, identity)

    def altered(
        self, unit: Unit, identity: Identity, granted: frozenset[int], revoked: frozenset[int] = frozenset()
    ) -> None:
        """Add and remove authorities of a record, which may be new, in a unit of work."""
        authorities_before = self.granted.get(identity)
        authorities = ((authorities_before or frozenset()) - revoked) | granted
        if authorities != authorities_before:
            self.put(unit, identity, authorities)


def _key(identity: Identity) -> str:
    return " ".join(map(str, identity))


def specificity(profile: str) -> tuple[int, ...]:
    """Return a sort key for the profiles that match a name, the most specific first.

    Profiles are compared from left to right: a letter is more specific than `?`, `?` than `*`, and `*` than `**`.
    """
    return (*(_GENERIC.get(sign, 0) for sign in profile.replace("**", "\0")), len(_GENERIC) + 1)


def covers(profile: str, name: str) -> bool:
    """Return whether a profile matches the name of an object.

    `?` matches one character, `*` any number of characters in one qualifier (the text between two dots), and `**` any number
    of qualifiers.
    """
    return _is_like(
        profile.split("."), name.split("."), "**", lambda level, qualifier: _is_like(level, qualifier, "*", _same)
    )


def is_about(profile: str, name: str) -> bool:
    """Return whether a profile matches the name in an inquiry. A name with a final `*` selects profiles by prefix."""
    return covers(profile, name) or (name.endswith("*") and profile.startswith(name[:-1]))


def _same(symbol: str, character: str) -> bool:
    return symbol in ("?", character)


def _is_like(pattern: Sequence[str], items: Sequence[str], any_number: str, same: Callable[[str, str], bool]) -> bool:
    """Return whether items match a pattern, in which `any_number` matches any number of items.

    The search backtracks only to the last wildcard, which limits the time to the product of both lengths.
    """
    at = begin = 0
    resume: int | None = None
    while begin < len(items):
        if at < len(pattern) and pattern[at] == any_number:
            at += 1
            resume, at_star = at, begin
        elif at < len(pattern) and same(pattern[at], items[begin]):
            at += 1
            begin += 1
        elif resume is not None:
            at_star += 1
            at, begin = resume, at_star
        else:
            return False
    return all(sign == any_number for sign in pattern[at:])


log = logging.getLogger(__name__)

#: The maximum number of cached decisions, at which the cache is cleared, and the maximum length of a cached topic string.
REMEMBERED = 65_536
_REMEMBERED_LENGTH = 256
_QUEUE, _TOPIC, _QUEUE_MANAGER = cmqc.MQOT_Q, cmqc.MQOT_TOPIC, cmqc.MQOT_Q_MGR
_KINDS = {number: word.lower() for word, number in OBJECT_TYPES.items()} | {_QUEUE_MANAGER: "queue manager"}
#: authorities required by MQOO_ options, of the alternate user or else the connection's user
_OPEN = (
    (cmqc.MQOO_INPUT_AS_Q_DEF | cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_INPUT_EXCLUSIVE, "GET"),
    (cmqc.MQOO_BROWSE, "BROWSE"),
    (cmqc.MQOO_OUTPUT, "PUT"),
    (cmqc.MQOO_INQUIRE, "INQ"),
    (cmqc.MQOO_SET, "SET"),
)
#: context authorities required by MQOO_ options, always of the connection's user
_CONTEXT = (
    (cmqc.MQOO_PASS_IDENTITY_CONTEXT, "PASSID"),
    (cmqc.MQOO_PASS_ALL_CONTEXT, "PASSALL"),
    (cmqc.MQOO_SET_IDENTITY_CONTEXT, "SETID"),
    (cmqc.MQOO_SET_ALL_CONTEXT, "SETALL"),
)
#: context options that also require an authority for the queue manager
_SETS_CONTEXT = cmqc.MQOO_SET_IDENTITY_CONTEXT | cmqc.MQOO_SET_ALL_CONTEXT
#: the MQOO_ equivalents of MQPMO_ options of MQPUT1
_OPTIONS_OF_PUT1 = {
    cmqc.MQPMO_PASS_IDENTITY_CONTEXT: cmqc.MQOO_PASS_IDENTITY_CONTEXT,
    cmqc.MQPMO_PASS_ALL_CONTEXT: cmqc.MQOO_PASS_ALL_CONTEXT,
    cmqc.MQPMO_SET_IDENTITY_CONTEXT: cmqc.MQOO_SET_IDENTITY_CONTEXT,
    cmqc.MQPMO_SET_ALL_CONTEXT: cmqc.MQOO_SET_ALL_CONTEXT,
    cmqc.MQPMO_ALTERNATE_USER_AUTHORITY: cmqc.MQOO_ALTERNATE_USER_AUTHORITY,
}


def open_options(put_options: int) -> int:
    """Return the open options that are equivalent to the MQPMO options of an MQPUT1."""
    return cmqc.MQOO_OUTPUT | sum(opens for puts, opens in _OPTIONS_OF_PUT1.items() if put_options & puts)


class AuthorizationService:
    """Checks authorities. Call it with the queue manager's lock held. Checks raise MQError (MQRC_NOT_AUTHORIZED).

    Failed checks are logged with the user, object and authority.
    """

    def __init__(self, queue_manager: str, records: AuthorityRecords, topics: TopicTree) -> None:
        self._name = queue_manager
        self._records = records
        self._topics = topics
        self._administrator = user_of_this_process()
        self.refresh()

    def refresh(self) -> None:
        """Discard the cached groups of users (REFRESH SECURITY)."""
        self._groups: dict[str, frozenset[str]] = {}
        self._learn()

    def _learn(self) -> None:
        """Clear cached decisions and rebuild the index of the records."""
        #: object type, entity type, entity -> (profile, authorities), the most specific profile first
        self._index: dict[tuple[int, int, str], list[tuple[str, frozenset[int]]]] = {}
        for identity, granted in sorted(self._records.granted.items(), key=lambda entry: specificity(entry[0].profile)):
            key = identity.object_type, identity.entity_type, identity.entity
            self._index.setdefault(key, []).append((identity.profile, granted))
        #: (user, topic string) -> whether the user may publish to it
        self._publishers: dict[tuple[bytes, str], bool] = {}
        self._learned = self._records.version, self._topics.version

    def _up_to_date(self) -> None:
        if self._learned != (self._records.version, self._topics.version):
            self._learn()

    # Users -----------------------------------------------------------------------------------------------------------

    def knows(self, user: str) -> bool:
        """Return whether the groups of a user are cached. If not, checks of the user may block."""
        return user in self._groups

    def groups(self, user: str) -> frozenset[str]:
        """Return the groups of a user and cache them. Callable on any thread without the lock. See `groups_of`."""
        groups = self._groups.get(user)
        if groups is None:
            if len(self._groups) >= REMEMBERED:
                self._groups.clear()
            groups = self._groups[user] = groups_of(user)
        return groups

    def is_administrator(self, user: str | None) -> bool:
        """Return whether a user has all authorities, including those for commands."""
        return user is None or user in (self._administrator, ADMINISTRATORS) or ADMINISTRATORS in self.groups(user)

    def _granted(self, user: str, object_type: int, name: str) -> frozenset[int]:
        """Return a user's authorities for an object: the union of the most specific records of the user and each group."""
        entities = [(ENTITY_TYPES["PRINCIPAL"], user), *((ENTITY_TYPES["GROUP"], group) for group in self.groups(user))]
        granted: frozenset[int] = frozenset()
        for entity in entities:
            records = self._index.get((object_type, *entity), ())
            granted |= next((authorities for profile, authorities in records if covers(profile, name)), frozenset())
        return granted

    # Checks ----------------------------------------------------------------------------------------------------------

    def check(self, user: str | None, object_type: int, name: str, *authorities: str) -> None:
        """Check that a user has authorities for an object."""
        if user is None or not authorities or self.is_administrator(user):
            return
        self._up_to_date()
        granted = self._granted(user, object_type, name)
        self._demand(
            user,
            f"{_KINDS[object_type]} {name}",
            [authority for authority in authorities if WORDS[authority] not in granted],
        )

    def check_topic(self, user: str | None, topic: str, *authorities: str) -> None:
        """Check that a user has authorities for a topic string, granted by any topic object at or above it."""
        if user is None or not authorities or self.is_administrator(user):
            return
        self._up_to_date()
        names = [name for name, _ in self._topics.above(topic)]
        granted = frozenset[int]().union(*(self._granted(user, _TOPIC, name) for name in names))
        lacking = [authority for authority in authorities if WORDS[authority] not in granted]
        self._demand(user, f"topic {topic!r}, topic object {' or '.join(names)}", lacking)

    @staticmethod
    def _demand(user: str, subject: str, lacking: Iterable[str]) -> None:
        if words := ",".join(lacking):
            detail = f"user {user!r} lacks authority for {subject} ({words})"
            log.warning("MQB3401W %s", detail)
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, detail)

    def may_publish(self, user: bytes, topic: str) -> bool:
        """Return whether a client with this MQMD.UserIdentifier may publish to a topic string. The result is cached."""
        self._up_to_date()
        answer = self._publishers.get((user, topic))
        if answer is None:
            try:
                self.check_topic(user.decode("utf-8", "replace") or NOBODY, topic, "PUB")
                answer = True
            except MQError:
                answer = False
            if len(topic) <= _REMEMBERED_LENGTH:
                if len(self._publishers) >= REMEMBERED:
                    self._publishers.clear()
                self._publishers[user, topic] = answer
        return answer

    def explain_publishing(self, user: str, topic: str) -> tuple[bool, str]:
        """Return whether an MQ user may publish to a topic string, and the reason in words."""
        if self.is_administrator(user):
            return True, f"user {user!r} is an administrator of the queue manager"
        self._up_to_date()
        names = [name for name, _ in self._topics.above(topic)]
        entities = [("PRINCIPAL", user), *(("GROUP", group) for group in sorted(self.groups(user)))]
        for name in names:
            for word, entity in entities:
                records = self._index.get((_TOPIC, ENTITY_TYPES[word], entity), ())
                profile, granted = next((record for record in records if covers(record[0], name)), ("", frozenset()))
                if WORDS["PUB"] in granted:
                    return True, f"the authority record of profile {profile} grants PUB to {word} {entity!r}"
        groups = ", ".join(entity for word, entity in entities if word == "GROUP") or "none"
        place = f"topic object {' or '.join(names)}"
        return False, f"no authority record grants PUB for {place} to user {user!r} or its groups ({groups})"

    def check_putting(self, user: bytes, queue: str) -> None:
        """Check that a client with this MQMD.UserIdentifier may put to a queue."""
        self.check(user.decode("utf-8", "replace") or NOBODY, _QUEUE, queue, "PUT")

    def connecting(self, user: str | None, identifier: str) -> None:
        """Check that a user may connect to the queue manager (MQCONN) and use an MQMD.UserIdentifier.

        Only administrators may use an administrator's identifier, including one that results from truncating a longer name.
        """
        self.check(user, _QUEUE_MANAGER, self._name, "CONNECT")
        if not self.is_administrator(user) and self.is_administrator(as_mq_has_it(identifier)):
            detail = f"user {user!r} would be taken for {as_mq_has_it(identifier)!r}"
            log.warning("MQB3210W %s", detail)
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, detail)

    def _acting(self, user: str | None, alternate: str | None) -> str | None:
        """Return the user whose authorities apply to a call. `alternate` is None if it does not use an alternate user."""
        if alternate is None:
            return user
        self.check(user, _QUEUE_MANAGER, self._name, "ALTUSR")
        return alternate.strip() or NOBODY

    def _setting_context(self, user: str | None, options: int) -> list[str]:
        """Check the context authorities that options require for the queue manager. Return those required for an object."""
        set_context = [word for option, word in _CONTEXT if options & option & _SETS_CONTEXT]
        self.check(user, _QUEUE_MANAGER, self._name, *set_context)
        return [word for option, word in _CONTEXT if options & option]

    def opening_own(self, user: str | None, options: int) -> None:
        """Check the authorities for MQOPEN of a dynamic queue by its creator: context authorities for the queue manager."""
        self._setting_context(user, options)

    def opening(
        self, user: str | None, alternate: str | None, object_type: int, name: str, options: int, *more: str
    ) -> None:
        """Check the authorities for MQOPEN and MQPUT1 of a queue or the queue manager: those for MQOO options, and `more`."""
        acting = self._acting(user, alternate)
        self.check(acting, object_type, name, *(word for mask, word in _OPEN if options & mask), *more)
        self.check(user, object_type, name, *self._setting_context(user, options))

    def opening_topic(self, user: str | None, alternate: str | None, topic: str, options: int) -> None:
        """Check the authorities for MQOPEN and MQPUT1 of a topic."""
        acting = self._acting(user, alternate)
        self.check_topic(acting, topic, *(["PUB"] if options & cmqc.MQOO_OUTPUT else []))
        self.check_topic(user, topic, *self._setting_context(user, options))

    def subscribing(self, user: str | None, alternate: str | None, topic: str, authority: str, queue: str) -> None:
        """Check the authorities for MQSUB: SUB or RESUME for the topic string, and PUT for the destination.

        `queue` is the destination queue that the caller has opened, or blank for a managed destination.
        """
        acting = self._acting(user, alternate)
        self.check_topic(acting, topic, authority)
        if queue:
            self.check(acting, _QUEUE, queue, "PUT")

    def setting_identity(self, user: str | None, topic: str) -> None:
        """Check the authorities for MQSUB with MQSO_SET_IDENTITY_CONTEXT: SETID for the queue manager and the topic."""
        self.check_topic(user, topic, *self._setting_context(user, cmqc.MQOO_SET_IDENTITY_CONTEXT))

    def administering(self, user: str | None, command: str) -> None:
        """Check that a user is an administrator, which commands require."""
        if not self.is_administrator(user):
            self._demand(str(user), f"command {command}", [f"member of group {ADMINISTRATORS}"])
