"""What of the bridge's requirements a queue manager lacks, each thing with the MQSC that would create it.

Objects and attributes are inquired; authorities are asked for by opening each object as the bridge does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from bridge.config.queues import COMMAND_QUEUE
from bridge.mq.administration import MODEL_QUEUE, Administration
from bridge.mq.errors import MQError
from bridge.mq.ibm.requirements import (
    HANDLES,
    PROBE_CLIENT,
    Missing,
    QueueRequirement,
    Requirements,
    client_destination,
    requirements_of,
)
from bridge.mq.mqi import MQOD, MQSD, Connection
from bridge.mq.worker import LOST
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFST

__all__ = ["Missing", "Requirements", "missing", "refused_connection", "requirements_of"]

#: A topic that no application has: what is published to, subscribed to and cleared to see whether that may be.
PROBE_TOPIC = "mqbridge/check"
BASE_TOPIC = "SYSTEM.BASE.TOPIC"

_INQUIRE = cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
_OUTPUT = cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING
_EXCLUSIVE = cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_FAIL_IF_QUIESCING
#: What is asked of a queue that a mapping takes from, or puts to, by authority.
_TAKING, _PUTTING = {"INQ": _INQUIRE, "GET": _EXCLUSIVE}, {"PUT": _OUTPUT}
_NONE_FOUND = (cmqc.MQRC_NO_SUBSCRIPTION, cmqcfc.MQRCCF_NONE_FOUND)
_TYPES = {
    cmqc.MQQT_ALIAS: ("an alias queue", "DELETE QALIAS"),
    cmqc.MQQT_REMOTE: ("a remote queue", "DELETE QREMOTE"),
    cmqc.MQQT_CLUSTER: ("a queue of the cluster", ""),
}


def missing(connection: Connection, requirements: Requirements) -> list[Missing]:
    """Return the requirements that the queue manager does not meet, none when the bridge can run.

    Raises MQError when the connection is lost.
    """
    return _Examination(connection, requirements).run()


def refused_connection(error: MQError, queue_manager: str, user: str) -> Missing:
    """Describe a connection that cannot be made, with what to do about it where that is known."""
    what = f"no connection to queue manager {queue_manager}: {error}"
    if error.reason == cmqc.MQRC_NOT_AUTHORIZED:
        return Missing(what, f"{_grant('', 'QMGR', user, 'CONNECT,INQ')} (and see CHLAUTH, CONNAUTH and the password)")
    return Missing(what)


def _grant(profile: str, kind: str, user: str, authorities: str) -> str:
    named = f"PROFILE('{profile}') " if profile else ""
    return f"SET AUTHREC {named}OBJTYPE({kind}) PRINCIPAL('{user}') AUTHADD({authorities})"


class _Examination:
    """One look at a queue manager."""

    def __init__(self, connection: Connection, requirements: Requirements) -> None:
        self._connection = connection
        self._requirements = requirements
        self._found: list[Missing] = []
        #: whether the users of clients may be put into messages; None: that was not tried
        self._identity_set: bool | None = None

    def run(self) -> list[Missing]:
        dead_letter_queue = self._queue_manager()
        for queue in self._requirements.queues(dead_letter_queue):
            self._queue(queue)
        self._mapping_queues()
        self._alternate_user()
        self._command_server()
        for identity in dict.fromkeys(self._requirements.identities):
            self._client(identity)
        return self._found

    def _lacks(self, what: str, remedy: str = "", *, needed: bool = True) -> None:
        self._found.append(Missing(what, remedy, needed))

    def _reason(self, od: MQOD, options: int) -> int:
        """Open and close an object; the reason for which that fails, or MQRC_NONE."""
        try:
            self._connection.close(self._connection.open(msgspec.structs.replace(od), options))
        except MQError as error:
            if error.reason in LOST:
                raise
            return error.reason
        return cmqc.MQRC_NONE

    def _inquire(self, od: MQOD, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
        """Inquire attributes of an object (MQINQ). Raises MQError."""
        handle = self._connection.open(msgspec.structs.replace(od), _INQUIRE)
        try:
            return self._connection.inquire(handle, selectors)
        finally:
            self._connection.close(handle)

    def _queue_manager(self) -> str:
        """Look at the queue manager itself; the name of its dead-letter queue."""
        needs = self._requirements
        selectors = (
            cmqc.MQCA_DEF_XMIT_Q_NAME,
            cmqc.MQCA_DEAD_LETTER_Q_NAME,
            cmqc.MQIA_MAX_HANDLES,
            cmqc.MQIA_MAX_UNCOMMITTED_MSGS,
        )
        try:
            (handles, uncommitted), texts = self._inquire(MQOD(ObjectType=cmqc.MQOT_Q_MGR), selectors)
        except MQError as error:
            if error.reason != cmqc.MQRC_NOT_AUTHORIZED:
                raise
            self._lacks(
                f"user {needs.user} may not inquire about the queue manager (INQ)",
                _grant("", "QMGR", needs.user, "INQ"),
            )
            return ""
        transmission_queue, dead_letter_queue = (text.rstrip(" \0") for text in texts)
        if transmission_queue != needs.transmission_queue:
            has = f"is {transmission_queue}" if transmission_queue else "is blank"
            self._lacks(
                f"the queue manager's default transmission queue (DEFXMITQ) {has},"
                f" and has to be {needs.transmission_queue}, by which messages reach MQTT clients",
                f"ALTER QMGR DEFXMITQ('{needs.transmission_queue}')",
            )
        if not dead_letter_queue:
            name = needs.dead_letter_queue or "SYSTEM.DEAD.LETTER.QUEUE"
            self._lacks("the queue manager has no dead-letter queue (DEADQ)", f"ALTER QMGR DEADQ('{name}')")
        for keyword, has_number, wanted in (
            ("MAXHANDS", handles, HANDLES),
            ("MAXUMSGS", uncommitted, needs.uncommitted),
        ):
            if has_number < wanted:
                what = f"the queue manager has {keyword}({has_number}), and the bridge needs {wanted}"
                self._lacks(what, f"ALTER QMGR {keyword}({wanted})")
        return dead_letter_queue

    def _queue(self, queue: QueueRequirement) -> None:
        needs, shown = self._requirements, f"{queue.purpose} {queue.name}"
        lacking: list[str] = []
        try:
            (type_,), _ = self._inquire(MQOD(ObjectName=queue.name), (cmqc.MQIA_Q_TYPE,))
            if type_ != cmqc.MQQT_LOCAL:
                is_, deletion = _TYPES.get(type_, (f"of type {type_}", ""))
                first = f"{deletion}('{queue.name}'), then " if deletion else ""
                self._lacks(f"{shown} is {is_}, and has to be a local one", first + queue.definition)
                return
            values, _ = self._inquire(MQOD(ObjectName=queue.name), [one.selector for one in queue.attributes])
        except MQError as error:
            if error.reason in LOST:
                raise
            if error.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME:
                self._lacks(f"{shown} is not defined", queue.definition)
                return
            if error.reason != cmqc.MQRC_NOT_AUTHORIZED:
                self._lacks(f"{shown} cannot be opened: {error}")
                return
            lacking.append("INQ")
        else:
            for attribute, value in zip(queue.attributes, values, strict=True):
                if value != attribute.value:
                    self._lacks(f"{shown} has not {attribute.mqsc}", f"ALTER QLOCAL('{queue.name}') {attribute.mqsc}")
        already = bool(self._found)
        for probe in queue.probes:
            reason = self._reason(probe.od, probe.options)
            if reason == cmqc.MQRC_NOT_AUTHORIZED:
                lacking.append(probe.authority)
            # In use: by the bridge that is at work. Where an attribute is wrong, that is told already.
            elif reason not in (cmqc.MQRC_NONE, cmqc.MQRC_OBJECT_IN_USE) and not already:
                self._lacks(f"{shown} cannot be opened ({probe.authority}): {cmqc.reason_name(reason)} ({reason})")
        if lacking:
            authorities = ",".join(lacking)
            self._lacks(
                f"user {needs.user} lacks authority for {shown} ({authorities})",
                _grant(queue.name, "QUEUE", needs.user, authorities),
            )

    def _mapping_queues(self) -> None:
        user = self._requirements.user
        for queue in self._requirements.mapping_queues:
            does, probes = ("takes from", _TAKING) if queue.taken_from else ("puts to", _PUTTING)
            shown = f"queue {queue.name}, which mapping {queue.mapping} {does}"
            reasons = {authority: self._reason(MQOD(ObjectName=queue.name), probes[authority]) for authority in probes}
            denied = ",".join(one for one, reason in reasons.items() if reason == cmqc.MQRC_NOT_AUTHORIZED)
            # In use: by the bridge that is at work.
            wrong = set(reasons.values()) - {cmqc.MQRC_NONE, cmqc.MQRC_OBJECT_IN_USE, cmqc.MQRC_NOT_AUTHORIZED}
            if cmqc.MQRC_UNKNOWN_OBJECT_NAME in wrong:
                self._lacks(f"{shown}, is not defined", f"DEFINE QLOCAL('{queue.name}')")
            elif wrong:
                reason = min(wrong)
                self._lacks(f"{shown}, cannot be opened: {cmqc.reason_name(reason)} ({reason})")
            elif denied:
                self._lacks(f"user {user} lacks authority for {shown} ({denied})", _grant(queue.name, "QUEUE", user, denied))

    def _alternate_user(self) -> None:
        """Check the authority to open objects as an alternate user, as whom clients' authorities are asked for."""
        needs = self._requirements
        if self._reason(client_destination(), _OUTPUT):
            return
        as_another = client_destination(needs.user[:12])
        if self._reason(as_another, _OUTPUT | cmqc.MQOO_ALTERNATE_USER_AUTHORITY) == cmqc.MQRC_NOT_AUTHORIZED:
            self._lacks(
                f"user {needs.user} may not open objects in the name of MQTT clients (ALTUSR)",
                _grant("", "QMGR", needs.user, "ALTUSR"),
            )

    def _command_server(self) -> None:
        """Check the command server, which clears retained publications and tells of the subscriptions that there are."""
        needs = self._requirements
        ready = True
        for name, options, authorities, definition in (
            (COMMAND_QUEUE, _OUTPUT, "PUT", f"DEFINE QLOCAL('{COMMAND_QUEUE}')"),
            (MODEL_QUEUE, _EXCLUSIVE, "GET,DSP", f"DEFINE QMODEL('{MODEL_QUEUE}')"),
        ):
            reason = self._reason(MQOD(ObjectName=name, DynamicQName="MQBRIDGE.*"), options)
            if reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME:
                self._lacks(f"queue {name}, by which commands are run, is not defined", definition)
            elif reason == cmqc.MQRC_NOT_AUTHORIZED:
                what = f"user {needs.user} lacks authority for queue {name} ({authorities})"
                self._lacks(what, _grant(name, "QUEUE", needs.user, authorities))
            elif reason:
                self._lacks(f"queue {name} cannot be opened: {cmqc.reason_name(reason)} ({reason})")
            ready = ready and not reason
        if ready:
            self._commands()

    def _commands(self) -> None:
        administration = Administration(self._connection)
        none = MQCFST(cmqcfc.MQCACF_SUB_NAME, f"{PROBE_CLIENT}:*".encode())
        try:
            for command, profile, kind, authority, run in (
                ("PING QMGR", "", "QMGR", "DSP", lambda: administration.run(cmqcfc.MQCMD_PING_Q_MGR)),
                (
                    "DISPLAY SUB",
                    BASE_TOPIC,
                    "TOPIC",
                    "DSP",
                    lambda: administration.run(cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION, none),
                ),
                ("CLEAR TOPICSTR", BASE_TOPIC, "TOPIC", "CLR", lambda: administration.clear_retained(PROBE_TOPIC)),
            ):
                try:
                    run()
                except MQError as error:
                    if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                        self._lacks(
                            f"the command server does not answer {command}",
                            "ALTER QMGR SCMDSERV(QMGR), and until the queue manager starts again, the shell's strmqcsv",
                        )
                        return
                    if error.reason == cmqc.MQRC_NOT_AUTHORIZED:
                        user = self._requirements.user
                        what = f"user {user} may not run {command} ({authority})"
                        self._lacks(what, _grant(profile, kind, user, authority))
                    elif error.reason in LOST:
                        raise
                    elif error.reason not in _NONE_FOUND:
                        self._lacks(f"the command server refuses {command}: {error}")
        finally:
            with contextlib.suppress(MQError):
                administration.close()

    def _client(self, identity: str) -> None:
        """Check whether an identity of clients may publish and subscribe below the root of the topic tree."""
        user = identity or self._requirements.user
        alternate = cmqc.MQOO_ALTERNATE_USER_AUTHORITY if identity else 0
        topic = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=PROBE_TOPIC, AlternateUserId=identity)
        destination = client_destination(identity)
        lacking = []
        if self._reason(topic, _OUTPUT | alternate) == cmqc.MQRC_NOT_AUTHORIZED:
            lacking.append("PUB")
        else:
            self._setting_identity(topic, _OUTPUT | alternate)
        reason = self._reason(destination, _OUTPUT | alternate)
        if reason == cmqc.MQRC_NOT_AUTHORIZED and identity:
            queue = self._requirements.transmission_queue
            self._lacks(
                f"user {user}, as whom clients act, may not put to {queue} (PUT), and so not subscribe",
                _grant(queue, "QUEUE", user, "PUT"),
                needed=False,
            )
        elif not reason and self._subscribing(destination, _OUTPUT | alternate) == cmqc.MQRC_NOT_AUTHORIZED:
            lacking.append("SUB")
        if lacking:
            self._lacks(
                f"user {user}, as whom clients act, lacks authority for {BASE_TOPIC} ({','.join(lacking)}),"
                " and needs it for the topics of its clients",
                _grant(BASE_TOPIC, "TOPIC", user, ",".join(lacking)),
                needed=False,
            )

    def _setting_identity(self, topic: MQOD, options: int) -> None:
        """Check whether the user of a client may be put into messages (MQMD.UserIdentifier), as each publication has it."""
        if self._identity_set is None:
            self._identity_set = self._reason(topic, options | cmqc.MQOO_SET_IDENTITY_CONTEXT) != cmqc.MQRC_NOT_AUTHORIZED
            if not self._identity_set:
                user = self._requirements.user
                self._lacks(
                    f"user {user} may not put the users of MQTT clients into messages (SETID), as publications have them",
                    f"{_grant('', 'QMGR', user, 'SETID')}, and {_grant(BASE_TOPIC, 'TOPIC', user, 'SETID')}",
                )

    def _subscribing(self, destination: MQOD, options: int) -> int:
        """Subscribe, and end that at once; the reason for which that fails, or MQRC_NONE."""
        kind = cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE | cmqc.MQSO_FAIL_IF_QUIESCING
        if destination.AlternateUserId:
            kind |= cmqc.MQSO_ALTERNATE_USER_AUTHORITY
        sd = MQSD(Options=kind, ObjectString=PROBE_TOPIC, AlternateUserId=destination.AlternateUserId)
        handle = self._connection.open(msgspec.structs.replace(destination), options)
        try:
            subscription, _ = self._connection.subscribe(sd, handle)
            self._connection.close(subscription)
        except MQError as error:
            if error.reason in LOST:
                raise
            return error.reason
        finally:
            with contextlib.suppress(MQError):
                self._connection.close(handle)
        return cmqc.MQRC_NONE
