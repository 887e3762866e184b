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

import msgspec

from bridge.mq.embedded.topics import TopicTree
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import MQError
from bridge.security.privileged import ADMINISTRATORS, NOBODY, as_mq_has_it, groups_of, user_of_this_process
from bridge.wire import cmqc, cmqcfc

#: AUTHADD and AUTHRMV of SET AUTHREC: what applications ask for by the MQI
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
#: by commands
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
#: words that stand for many, and their numbers
COLLECTIVE = {
    "ALL": (cmqcfc.MQAUTH_ALL, frozenset((*MQI.values(), *ADMIN.values()))),
    "ALLADM": (cmqcfc.MQAUTH_ALL_ADMIN, frozenset(ADMIN.values())),
    "ALLMQI": (cmqcfc.MQAUTH_ALL_MQI, frozenset(MQI.values())),
    "NONE": (cmqcfc.MQAUTH_NONE, frozenset[int]()),
}
ALL = COLLECTIVE["ALL"][1]

#: OBJTYPE, and the MQOT_ that it is
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
#: PRINCIPAL and GROUP, and the MQZAET_ that each is
ENTITY_TYPES = {"PRINCIPAL": cmqc.MQZAET_PRINCIPAL, "GROUP": cmqc.MQZAET_GROUP}


def spread(number: int) -> frozenset[int] | None:
    """Return the authorities that a PCF number stands for, one or many; None for a number that is no authority."""
    for collective, authorities in COLLECTIVE.values():
        if number == collective:
            return authorities
    return frozenset((number,)) if number in NUMBERS else None


#: Kind of the rows that keep the records.
KIND = "AUTHREC"
#: The signs of generic profiles, from the least generic to the most; NUL stands for `**`.
_GENERIC = {"?": 1, "*": 2, "\0": 3}


class Identity(NamedTuple):
    """Whose authority over what a record is. Numbers are those of MQOT_ and MQZAET_."""

    object_type: int
    profile: str
    entity_type: int
    entity: str


class AuthorityRecords:
    """The authority records of a queue manager: identity -> the MQAUTH_ numbers that are granted."""

    def __init__(self) -> None:
        self.granted: dict[Identity, frozenset[int]] = {}
        #: another number after each change
        self.version = 0

    def restore(self, attributes: dict[str, Any]) -> None:
        """Take a record over as it was kept on disk."""
        self.grant(Identity(*attributes["identity"]), attributes["authorities"])

    def grant(self, identity: Identity, authorities: Iterable[int]) -> None:
        """Let a record say so at once, and only until the queue manager ends."""
        self.granted[identity] = frozenset(authorities)
        self.version += 1

    def put(self, unit: Unit, identity: Identity, authorities: Iterable[int]) -> None:
        """Let a record say so when the unit of work ends."""
        granted = frozenset(authorities)
        row = msgspec.json.encode({"identity": list(identity), "authorities": sorted(granted)}).decode()
        unit.changes.definitions.append((KIND, _key(identity), row))
        unit.changes.effects.append(lambda: self.grant(identity, granted))

    def remove(self, unit: Unit, identity: Identity) -> None:
        """Let a record be gone when the unit of work ends."""
        unit.changes.definitions.append((KIND, _key(identity), None))
        unit.changes.effects.append(lambda: self.forget(identity))

    def forget(self, identity: Identity) -> None:
        """Let a record be gone at once, where it is there at all."""
        self.granted.pop(identity, None)
        self.version += 1

    def remove_profile(self, unit: Unit, object_type: int, profile: str) -> None:
        """Let all records of one profile be gone when the unit of work ends."""
        for identity in [one for one in self.granted if one[:2] == (object_type, profile)]:
            self.remove(unit, identity)

    def altered(
        self, unit: Unit, identity: Identity, added: frozenset[int], removed: frozenset[int] = frozenset()
    ) -> None:
        """Let a record, possibly a new one, have more authorities and fewer when the unit of work ends."""
        held = self.granted.get(identity)
        authorities = ((held or frozenset()) - removed) | added
        if authorities != held:
            self.put(unit, identity, authorities)


def _key(identity: Identity) -> str:
    return " ".join(map(str, identity))


def specificity(profile: str) -> tuple[int, ...]:
    """Return a key by which, of the profiles that cover a name, the most specific is the least.

    Character by character from the left, `?` is more generic than a letter, `*` than `?`, and `**` than `*`.
    """
    return (*(_GENERIC.get(sign, 0) for sign in profile.replace("**", "\0")), len(_GENERIC) + 1)


def covers(profile: str, name: str) -> bool:
    """Return whether a profile is about an object.

    `?` is one character, `*` any number of them in one qualifier (the text between two dots), `**` any number of
    qualifiers.
    """
    return _is_like(
        profile.split("."), name.split("."), "**", lambda one, qualifier: _is_like(one, qualifier, "*", _same)
    )


def is_about(profile: str, asked: str) -> bool:
    """Return whether a profile is about the name asked for; a name with `*` at its end asks for all that begin so."""
    return covers(profile, asked) or (asked.endswith("*") and profile.startswith(asked[:-1]))


def _same(one: str, character: str) -> bool:
    return one in ("?", character)


def _is_like(pattern: Sequence[str], items: Sequence[str], any_number: str, same: Callable[[str, str], bool]) -> bool:
    """Return whether items are like a pattern, in which one sign stands for any number of them.

    Only the last such sign is ever tried again, so that no profile takes longer than its length times the name's.
    """
    at = begin = 0
    resume: int | None = None
    while begin < len(items):
        if at < len(pattern) and pattern[at] == any_number:
            at += 1
            resume, kept = at, begin
        elif at < len(pattern) and same(pattern[at], items[begin]):
            at += 1
            begin += 1
        elif resume is not None:
            kept += 1
            at, begin = resume, kept
        else:
            return False
    return all(sign == any_number for sign in pattern[at:])


log = logging.getLogger(__name__)

#: Answers remembered before all are forgotten, and the longest topic string of one that is.
REMEMBERED = 65_536
_REMEMBERED_LENGTH = 256
_QUEUE, _TOPIC, _QUEUE_MANAGER = cmqc.MQOT_Q, cmqc.MQOT_TOPIC, cmqc.MQOT_Q_MGR
_KINDS = {number: word.lower() for word, number in OBJECT_TYPES.items()} | {_QUEUE_MANAGER: "queue manager"}
#: MQOO_ options, and the authority that one of them asks for: of the alternate user where there is one
_OPEN = (
    (cmqc.MQOO_INPUT_AS_Q_DEF | cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_INPUT_EXCLUSIVE, "GET"),
    (cmqc.MQOO_BROWSE, "BROWSE"),
    (cmqc.MQOO_OUTPUT, "PUT"),
    (cmqc.MQOO_INQUIRE, "INQ"),
    (cmqc.MQOO_SET, "SET"),
)
#: of the connection's own user, always
_CONTEXT = (
    (cmqc.MQOO_PASS_IDENTITY_CONTEXT, "PASSID"),
    (cmqc.MQOO_PASS_ALL_CONTEXT, "PASSALL"),
    (cmqc.MQOO_SET_IDENTITY_CONTEXT, "SETID"),
    (cmqc.MQOO_SET_ALL_CONTEXT, "SETALL"),
)
#: contexts that the queue manager is asked for as well
_SETS_CONTEXT = cmqc.MQOO_SET_IDENTITY_CONTEXT | cmqc.MQOO_SET_ALL_CONTEXT
#: MQPMO_ option of an MQPUT1 -> the MQOO_ option that an MQOPEN would have
_OPTIONS_OF_PUT1 = {
    cmqc.MQPMO_PASS_IDENTITY_CONTEXT: cmqc.MQOO_PASS_IDENTITY_CONTEXT,
    cmqc.MQPMO_PASS_ALL_CONTEXT: cmqc.MQOO_PASS_ALL_CONTEXT,
    cmqc.MQPMO_SET_IDENTITY_CONTEXT: cmqc.MQOO_SET_IDENTITY_CONTEXT,
    cmqc.MQPMO_SET_ALL_CONTEXT: cmqc.MQOO_SET_ALL_CONTEXT,
    cmqc.MQPMO_ALTERNATE_USER_AUTHORITY: cmqc.MQOO_ALTERNATE_USER_AUTHORITY,
}


def open_options(put_options: int) -> int:
    """Return the open options of an MQPUT1, by its MQPMO options."""
    return cmqc.MQOO_OUTPUT | sum(opens for puts, opens in _OPTIONS_OF_PUT1.items() if put_options & puts)


class AuthorizationService:
    """Asks the authority records. Call it with the queue manager's lock held; checks raise MQRC_NOT_AUTHORIZED.

    Whoever is refused stands in the log, with the object and the authority.
    """

    def __init__(self, queue_manager: str, records: AuthorityRecords, topics: TopicTree) -> None:
        self._name = queue_manager
        self._records = records
        self._topics = topics
        self._administrator = user_of_this_process()
        self.refresh()

    def refresh(self) -> None:
        """Do REFRESH SECURITY: learn anew which user is in which group."""
        self._groups: dict[str, frozenset[str]] = {}
        self._learn()

    def _learn(self) -> None:
        """Forget all answers, and index the records anew."""
        #: object type, entity type, entity -> (profile, authorities), the most specific profile first
        self._index: dict[tuple[int, int, str], list[tuple[str, frozenset[int]]]] = {}
        for identity, granted in sorted(self._records.granted.items(), key=lambda one: specificity(one[0].profile)):
            key = identity.object_type, identity.entity_type, identity.entity
            self._index.setdefault(key, []).append((identity.profile, granted))
        #: user, topic string -> whether it may publish there
        self._publishers: dict[tuple[bytes, str], bool] = {}
        self._learned = self._records.version, self._topics.version

    def _up_to_date(self) -> None:
        if self._learned != (self._records.version, self._topics.version):
            self._learn()

    # Users -----------------------------------------------------------------------------------------------------------

    def knows(self, user: str) -> bool:
        """Return whether the groups of a user are remembered; else to ask anything about the user may take long."""
        return user in self._groups

    def groups(self, user: str) -> frozenset[str]:
        """Return the groups of a user as `groups_of` does, and remember them; any thread may ask, without the lock."""
        found = self._groups.get(user)
        if found is None:
            if len(self._groups) >= REMEMBERED:
                self._groups.clear()
            found = self._groups[user] = groups_of(user)
        return found

    def is_administrator(self, user: str | None) -> bool:
        """Return whether a user may do everything, commands included."""
        return user is None or user in (self._administrator, ADMINISTRATORS) or ADMINISTRATORS in self.groups(user)

    def _granted(self, user: str, object_type: int, name: str) -> frozenset[int]:
        """Return a user's authorities for an object: of the user's own records and those of each group, the most specific."""
        entities = [(ENTITY_TYPES["PRINCIPAL"], user), *((ENTITY_TYPES["GROUP"], one) for one in self.groups(user))]
        granted: frozenset[int] = frozenset()
        for entity in entities:
            records = self._index.get((object_type, *entity), ())
            granted |= next((authorities for profile, authorities in records if covers(profile, name)), frozenset())
        return granted

    # Questions -------------------------------------------------------------------------------------------------------

    def check(self, user: str | None, object_type: int, name: str, *authorities: str) -> None:
        """Check that a user has authorities for an object."""
        if user is None or not authorities or self.is_administrator(user):
            return
        self._up_to_date()
        granted = self._granted(user, object_type, name)
        self._demand(user, f"{_KINDS[object_type]} {name}", [one for one in authorities if WORDS[one] not in granted])

    def check_topic(self, user: str | None, topic: str, *authorities: str) -> None:
        """Check that a user has authorities for a topic string: any topic object at or above it may grant them."""
        if user is None or not authorities or self.is_administrator(user):
            return
        self._up_to_date()
        names = [name for name, _ in self._topics.above(topic)]
        granted = frozenset[int]().union(*(self._granted(user, _TOPIC, name) for name in names))
        lacking = [one for one in authorities if WORDS[one] not in granted]
        self._demand(user, f"topic {topic!r}, topic object {' or '.join(names)}", lacking)

    @staticmethod
    def _demand(user: str, what: str, lacking: Iterable[str]) -> None:
        if words := ",".join(lacking):
            detail = f"user {user!r} lacks authority for {what} ({words})"
            log.warning("MQB3401W %s", detail)
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, detail)

    def may_publish(self, user: bytes, topic: str) -> bool:
        """Return whether the client of an MQMD.UserIdentifier may publish to a topic string, and remember the answer."""
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

    def check_putting(self, user: bytes, queue: str) -> None:
        """Check that the client of an MQMD.UserIdentifier may put to a queue."""
        self.check(user.decode("utf-8", "replace") or NOBODY, _QUEUE, queue, "PUT")

    def connecting(self, user: str | None, identifier: str) -> None:
        """Check that a user may connect to the queue manager (MQCONN), and have that MQMD.UserIdentifier.

        An administrator's identifier is for administrators, also where it is what is left of a longer name.
        """
        self.check(user, _QUEUE_MANAGER, self._name, "CONNECT")
        if not self.is_administrator(user) and self.is_administrator(as_mq_has_it(identifier)):
            detail = f"user {user!r} would be taken for {as_mq_has_it(identifier)!r}"
            log.warning("MQB3210W %s", detail)
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, detail)

    def _acting(self, user: str | None, alternate: str | None) -> str | None:
        """Return the user whose authority a call asks for; `alternate` is None where the call names no alternate user."""
        if alternate is None:
            return user
        self.check(user, _QUEUE_MANAGER, self._name, "ALTUSR")
        return alternate.strip() or NOBODY

    def _setting_context(self, user: str | None, options: int) -> list[str]:
        """Check the context authorities that options need for the queue manager; return those needed for an object."""
        set_context = [word for option, word in _CONTEXT if options & option & _SETS_CONTEXT]
        self.check(user, _QUEUE_MANAGER, self._name, *set_context)
        return [word for option, word in _CONTEXT if options & option]

    def opening_own(self, user: str | None, options: int) -> None:
        """Check the authorities for MQOPEN of a dynamic queue by its creator: those of contexts, for the queue manager."""
        self._setting_context(user, options)

    def opening(
        self, user: str | None, alternate: str | None, object_type: int, name: str, options: int, *more: str
    ) -> None:
        """Check the authorities for MQOPEN and MQPUT1 of a queue or the queue manager: those of MQOO options, and `more`."""
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

        `queue` is the queue that the caller opened as destination, blank for a managed one.
        """
        acting = self._acting(user, alternate)
        self.check_topic(acting, topic, authority)
        if queue:
            self.check(acting, _QUEUE, queue, "PUT")

    def setting_identity(self, user: str | None, topic: str) -> None:
        """Check the authorities for MQSUB with MQSO_SET_IDENTITY_CONTEXT: SETID for the queue manager and the topic."""
        self.check_topic(user, topic, *self._setting_context(user, cmqc.MQOO_SET_IDENTITY_CONTEXT))

    def administering(self, user: str | None, command: str) -> None:
        """Check that a user is an administrator: the rule for MQSC commands, and PCF commands without a rule of their own."""
        if not self.is_administrator(user):
            self._demand(str(user), f"command {command}", [f"member of group {ADMINISTRATORS}"])
