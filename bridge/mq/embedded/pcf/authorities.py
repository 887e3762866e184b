"""Authority records: Set, Delete and Inquire Authority Record, Refresh Security.

Source: IBM MQ documentation, "Set Authority Record", "Delete Authority Record", "Inquire Authority Records".
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.mq.embedded.authority.records import Identity, is_about
from bridge.mq.embedded.authority.words import ENTITY_TYPES, OBJECT_TYPES, spread
from bridge.mq.embedded.pcf.inquiry import Attributes, inquire
from bridge.mq.embedded.pcf.request import PCFRefused, Reply, Request
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFIL, MQCFIN, MQCFST

_FILTERS = (
    cmqcfc.MQCACF_AUTH_PROFILE_NAME,
    cmqcfc.MQCACF_ENTITY_NAME,
    cmqcfc.MQIACF_ENTITY_TYPE,
    cmqcfc.MQIACF_OBJECT_TYPE,
    cmqcfc.MQIACF_AUTHORIZATION_LIST,
)


class AuthorityCommands:
    """The authority commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self._records = queue_manager.authority_records
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_SET_AUTH_REC: self._set,
            cmqcfc.MQCMD_DELETE_AUTH_REC: self._delete,
            cmqcfc.MQCMD_INQUIRE_AUTH_RECS: self._inquire,
            cmqcfc.MQCMD_REFRESH_SECURITY: self._refresh,
        }

    def _profile(self, request: Request) -> tuple[int, str]:
        """Return object type and profile name.

        The profile of the queue manager itself is the queue manager's own name, whatever name is given.
        """
        if cmqcfc.MQIACF_OBJECT_TYPE not in request:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, cmqcfc.MQIACF_OBJECT_TYPE)
        object_type = request.choice(cmqcfc.MQIACF_OBJECT_TYPE, tuple(OBJECT_TYPES.values()))
        profile = request.text(cmqcfc.MQCACF_AUTH_PROFILE_NAME)
        if object_type == cmqc.MQOT_Q_MGR:
            return object_type, self._queue_manager.name
        if not profile:
            raise PCFRefused(cmqcfc.MQRCCF_PROFILE_NAME_MISSING, cmqcfc.MQCACF_AUTH_PROFILE_NAME)
        return object_type, profile

    def _entities(self, request: Request) -> list[tuple[int, str]]:
        principals = request.texts(cmqcfc.MQCACF_PRINCIPAL_ENTITY_NAMES)
        groups = request.texts(cmqcfc.MQCACF_GROUP_ENTITY_NAMES)
        request.ignore(cmqcfc.MQCACF_SERVICE_COMPONENT)
        found = [(ENTITY_TYPES["PRINCIPAL"], name) for name in principals]
        found += [(ENTITY_TYPES["GROUP"], name) for name in groups]
        if not all(name for _, name in found) or not found:
            raise PCFRefused(cmqcfc.MQRCCF_ENTITY_NAME_MISSING)
        return found

    def _set(self, request: Request) -> Reply:
        object_type, profile = self._profile(request)
        added = _authorities(request, cmqcfc.MQIACF_AUTH_ADD_AUTHS)
        removed = _authorities(request, cmqcfc.MQIACF_AUTH_REMOVE_AUTHS)
        if added is None and removed is None:
            raise PCFRefused(cmqcfc.MQRCCF_AUTH_VALUE_MISSING)
        entities = self._entities(request)
        request.finish()
        unit = Unit()
        for entity_type, entity in entities:
            identity = Identity(object_type, profile, entity_type, entity)
            self._records.altered(unit, identity, added or frozenset(), removed or frozenset())
        return Reply(unit=unit)

    def _delete(self, request: Request) -> Reply:
        object_type, profile = self._profile(request)
        entities = self._entities(request)
        request.finish()
        identities = [Identity(object_type, profile, *entity) for entity in entities]
        if not all(identity in self._records.granted for identity in identities):
            raise PCFRefused(cmqc.MQRC_UNKNOWN_ENTITY)
        unit = Unit()
        for identity in identities:
            self._records.remove(unit, identity)
        return Reply(unit=unit)

    def _inquire(self, request: Request) -> Reply:
        options = request.integer(cmqcfc.MQIACF_AUTH_OPTIONS, cmqcfc.MQAUTHOPT_NAME_ALL_MATCHING) or 0
        profile = request.text(cmqcfc.MQCACF_AUTH_PROFILE_NAME) or ""
        types = (cmqc.MQOT_ALL, *OBJECT_TYPES.values())
        object_type = request.choice(cmqcfc.MQIACF_OBJECT_TYPE, types)
        entity = request.text(cmqcfc.MQCACF_ENTITY_NAME) or ""
        entity_type = request.integer(cmqcfc.MQIACF_ENTITY_TYPE)
        if entity and entity_type is None:
            raise PCFRefused(cmqcfc.MQRCCF_ENTITY_TYPE_MISSING, cmqcfc.MQIACF_ENTITY_TYPE)
        request.ignore(cmqcfc.MQCACF_SERVICE_COMPONENT)
        if object_type == cmqc.MQOT_Q_MGR:
            profile = ""
        exact = bool(options & cmqcfc.MQAUTHOPT_NAME_EXPLICIT)

        def is_wanted(identity: Identity) -> bool:
            return (
                object_type in (cmqc.MQOT_ALL, identity.object_type)
                and (not profile or (identity.profile == profile if exact else is_about(identity.profile, profile)))
                and entity_type in (None, identity.entity_type)
                and entity in ("", identity.entity)
            )

        found = (
            _record_of(identity, granted, options)
            for identity, granted in sorted(self._records.granted.items())
            if is_wanted(identity)
        )
        return inquire(
            request,
            found,
            cmqcfc.MQIACF_AUTH_PROFILE_ATTRS,
            _FILTERS,
            known=_FILTERS.__contains__,
            missing=cmqcfc.MQRCCF_NONE_FOUND,
        )

    def _refresh(self, request: Request) -> Reply:
        request.ignore(cmqcfc.MQIACF_SECURITY_TYPE, cmqcfc.MQIACF_SECURITY_ITEM)
        request.finish()
        if self._queue_manager.authorization is not None:
            self._queue_manager.authorization.refresh()
        return Reply()


def _authorities(request: Request, number: int) -> frozenset[int] | None:
    """Return the authorities in a list one by one: `all` and the like stand for many."""
    listed = request.integers(number)
    if listed is None:
        return None
    found: frozenset[int] = frozenset()
    for one in listed:
        authorities = spread(one)
        if authorities is None:
            raise PCFRefused(cmqcfc.MQRCCF_AUTH_VALUE_ERROR)
        found |= authorities
    return found


def _record_of(identity: Identity, granted: frozenset[int], options: int) -> Attributes:
    """Return the attributes of an authority record."""
    authorities = tuple(sorted(granted)) or (cmqcfc.MQAUTH_NONE,)
    parameters = (
        MQCFST(cmqcfc.MQCACF_AUTH_PROFILE_NAME, identity.profile.encode().ljust(48)),
        MQCFST(cmqcfc.MQCACF_ENTITY_NAME, identity.entity.encode().ljust(64)),
        MQCFIN(cmqcfc.MQIACF_ENTITY_TYPE, identity.entity_type),
        MQCFIN(cmqcfc.MQIACF_OBJECT_TYPE, identity.object_type),
        MQCFIN(cmqcfc.MQIACF_AUTH_OPTIONS, options),
        MQCFIL(cmqcfc.MQIACF_AUTHORIZATION_LIST, authorities),
    )
    return {one.Parameter: one for one in parameters}
