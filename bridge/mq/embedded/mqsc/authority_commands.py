"""SET, DELETE and DISPLAY AUTHREC: the MQSC commands on authority records.

Source: IBM MQ documentation, "SET AUTHREC", "DELETE AUTHREC", "DISPLAY AUTHREC". The records are those that PCF commands
set; a profile of the queue manager is its own name.
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.authority.records import AuthorityRecords, Identity, is_about
from bridge.mq.embedded.authority.words import COLLECTIVE, ENTITY_TYPES, NUMBERS, OBJECT_TYPES, WORDS
from bridge.mq.embedded.mqsc.amq import CommandRefused, message
from bridge.mq.embedded.mqsc.definitions import Answer
from bridge.mq.embedded.mqsc.language import Command, MQSCSyntaxError, Parameter
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.security.privileged import groups_of
from bridge.wire import cmqc

_OBJECT_WORDS = {number: word for word, number in OBJECT_TYPES.items()}
_ENTITY_WORDS = {number: word for word, number in ENTITY_TYPES.items()}
_WHOSE = ("PROFILE", "OBJTYPE", "SERVCOMP", *ENTITY_TYPES)
_SHOWN = ("PROFILE", "ENTITY", "ENTTYPE", "OBJTYPE", "AUTHLIST")
_MATCHES = ("PROFILE", "EXACT", "MEMBERSHIP")


class AuthorityRecordCommands:
    """The AUTHREC commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self._records: AuthorityRecords = queue_manager.authority_records

    def identities(self, command: Command) -> list[Identity]:
        """Return the identities of the records that a SET or DELETE names. Raises MQSCSyntaxError."""
        kind = command.parameter("OBJTYPE")
        if kind is None:
            raise MQSCSyntaxError("OBJTYPE says what type of object the profile is of", command.where, "OBJTYPE")
        object_type = OBJECT_TYPES[_choice(kind, OBJECT_TYPES)]
        profile = command.parameter("PROFILE")
        name = profile.value if profile is not None else None
        if object_type == cmqc.MQOT_Q_MGR:
            name = self._queue_manager.name
        if not name:
            where = command.where if profile is None else profile.where
            raise MQSCSyntaxError("PROFILE takes one name, that of an object or a generic one", where, "PROFILE")
        found = [
            Identity(object_type, name, number, entity)
            for word, number in ENTITY_TYPES.items()
            if (parameter := command.parameter(word)) is not None
            for entity in _words(parameter)
        ]
        if not found:
            raise MQSCSyntaxError("PRINCIPAL or GROUP says whose authorities they are", command.where, "AUTHREC")
        return found

    def set(self, command: Command) -> Answer:
        """Do SET AUTHREC."""
        _check_keywords(command, (*_WHOSE, "AUTHADD", "AUTHRMV"))
        added, removed = (_authorities(command.parameter(keyword)) for keyword in ("AUTHADD", "AUTHRMV"))
        if added is None and removed is None:
            raise MQSCSyntaxError("AUTHADD or AUTHRMV lists authorities", command.where, "AUTHREC")
        unit = Unit()
        for identity in self.identities(command):
            self._records.altered(unit, identity, added or frozenset(), removed or frozenset())
        return message("AMQ8862I", hint=self._hint), unit

    @property
    def _hint(self) -> str:
        if self._queue_manager.authorization is not None:
            return ""
        return " Nobody is asked for it, with queue_manager.authorities: ignored."

    def delete(self, command: Command) -> Answer:
        """Do DELETE AUTHREC."""
        _check_keywords(command, _WHOSE)
        unit = Unit()
        for identity in self.identities(command):
            if identity not in self._records.granted:
                raise CommandRefused("AMQ8871E", name=identity.entity, profile=identity.profile)
            self._records.remove(unit, identity)
        return message("AMQ8863I"), unit

    def show(self, command: Command) -> tuple[str, list[dict[str, Value]]]:
        """Do DISPLAY AUTHREC: return the AMQ message, and the records.

        Raises CommandRefused or MQSCSyntaxError.
        """
        _check_keywords(command, (*_WHOSE, "MATCH", "ALL", *_SHOWN))
        wanted = self._wanted(command)
        asked = [one.keyword for one in command.parameters if one.values is None]
        whole = not asked or "ALL" in asked
        shown = [
            {keyword: value for keyword, value in _shown(identity, granted).items() if whole or keyword in asked}
            for identity, granted in sorted(self._records.granted.items())
            if wanted(identity)
        ]
        if not shown:
            raise CommandRefused("AMQ8147E", kind="Authority record", name=_value(command, "PROFILE") or "*")
        return message("AMQ8864I"), shown

    def _wanted(self, command: Command) -> Callable[[Identity], bool]:
        """Return a predicate for the records that a DISPLAY asks for.

        MATCH(MEMBERSHIP) adds those of the principal's groups.
        """
        profile, kind = _value(command, "PROFILE"), command.parameter("OBJTYPE")
        object_type = OBJECT_TYPES[_choice(kind, OBJECT_TYPES)] if kind is not None and kind.values else None
        if object_type == cmqc.MQOT_Q_MGR:
            profile = None
        how = command.parameter("MATCH")
        match = _MATCHES[0] if how is None else _choice(how, _MATCHES)
        given = [parameter for word in ENTITY_TYPES if (parameter := command.parameter(word)) is not None]
        if len(given) > 1:
            raise MQSCSyntaxError("PRINCIPAL or GROUP, not both", given[1].where, given[1].keyword)
        entities = {(ENTITY_TYPES[one.keyword], name) for one in given for name in _words(one)}
        if match == "MEMBERSHIP":
            if not given or given[0].keyword != "PRINCIPAL":
                raise MQSCSyntaxError("MATCH(MEMBERSHIP) is for a PRINCIPAL", command.where, "MATCH")
            entities |= {(ENTITY_TYPES["GROUP"], group) for _, name in entities.copy() for group in groups_of(name)}

        def wanted(identity: Identity) -> bool:
            return (
                object_type in (None, identity.object_type)
                and (
                    not profile
                    or (identity.profile == profile if match == "EXACT" else is_about(identity.profile, profile))
                )
                and (not entities or (identity.entity_type, identity.entity) in entities)
            )

        return wanted


def _shown(identity: Identity, granted: frozenset[int]) -> dict[str, Value]:
    return {
        "PROFILE": identity.profile,
        "ENTITY": identity.entity,
        "ENTTYPE": _ENTITY_WORDS[identity.entity_type],
        "OBJTYPE": _OBJECT_WORDS[identity.object_type],
        "AUTHLIST": ",".join(sorted(NUMBERS[one] for one in granted)) or "NONE",
    }


def _check_keywords(command: Command, known: tuple[str, ...]) -> None:
    for parameter in command.parameters:
        if parameter.keyword not in known:
            detail = f"{command.verb} AUTHREC knows no {parameter.keyword}"
            raise MQSCSyntaxError(detail, parameter.where, parameter.keyword)


def _words(parameter: Parameter) -> list[str]:
    """Return the values of a list. Raises MQSCSyntaxError where the parameter is no list, or an empty one."""
    words = [one for one in parameter.values or () if isinstance(one, str) and one]
    if not words or len(words) != len(parameter.values or ()):
        raise MQSCSyntaxError(
            f"{parameter.keyword} takes names, with commas between them", parameter.where, parameter.keyword
        )
    return words


def _value(command: Command, keyword: str) -> str | None:
    parameter = command.parameter(keyword)
    return parameter.value if parameter is not None else None


def _choice(parameter: Parameter, known: dict[str, int] | tuple[str, ...]) -> str:
    word = parameter.value
    if word is None or word not in known:
        raise MQSCSyntaxError(f"{parameter.keyword} is one of {', '.join(known)}", parameter.where, parameter.keyword)
    return word


def _authorities(parameter: Parameter | None) -> frozenset[int] | None:
    """Return the authorities that AUTHADD or AUTHRMV lists, with ALL and the like spread. Raises MQSCSyntaxError."""
    if parameter is None:
        return None
    found: frozenset[int] = frozenset()
    for word in _words(parameter):
        if word in COLLECTIVE:
            found |= COLLECTIVE[word][1]
        elif word in WORDS:
            found |= {WORDS[word]}
        else:
            known = ", ".join((*COLLECTIVE, *WORDS))
            raise MQSCSyntaxError(f"authorities are {known}, not {word}", parameter.where, parameter.keyword)
    return found
