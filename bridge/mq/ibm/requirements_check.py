"""Comparison of a queue manager with the bridge's requirements, with the MQSC command for each missing requirement.

Objects and attributes are inquired. Authorities are tested with dry runs, which make the same calls as the bridge and undo
all changes. A running bridge on the same queue manager is not affected.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence

import msgspec

from bridge.config.queue_manager import DEFAULT_TRANSMISSION_QUEUE
from bridge.mq.administration import DEFAULT_MODEL_QUEUE, MODEL_QUEUE, PcfAdministration
from bridge.mq.ibm.requirements import (
    DEFAULT_DEAD_LETTER_QUEUE,
    HANDLES,
    MAX_MESSAGE_LENGTH,
    MIN_REPLY_DEPTH,
    PROBE_CLIENT,
    PROBE_TOPIC,
    REPLY_DEPTH,
    REPLY_MODEL,
    Authority,
    AuthorityKey,
    DryRun,
    MappingQueue,
    Missing,
    Open,
    QueueManagerAttributes,
    QueueRequirement,
    Requirements,
    alter_queue_manager,
    grants,
    probe_topic,
    queue_manager_alias,
    requirements_of,
    set_authrec,
    setmqaut,
)
from bridge.mq.mqi import MQOD, MQSD, Connection, MQError, inquire
from bridge.mq.worker import LOST, raise_if_lost
from bridge.telemetry.message import Message
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq import MQMD
from bridge.wire.mq.pcf import MQCFST

__all__ = ["Missing", "Requirements", "missing", "refused_connection", "requirements_of"]

#: Tenths of a second after which the queue manager removes the subscription of an interrupted dry run.
PROBE_EXPIRY = 600

_INQUIRE = cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
_OUTPUT = cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING
#: Reason codes that prove the authority. A running bridge may have the object open.
_GRANTED = frozenset((cmqc.MQRC_NONE, cmqc.MQRC_OBJECT_IN_USE))
_NONE_FOUND = frozenset((cmqc.MQRC_NO_SUBSCRIPTION, cmqcfc.MQRCCF_NONE_FOUND))
#: Reason codes for a message that is too long for the channel, the queue manager, or the queue.
_TOO_LONG = frozenset(
    (
        cmqc.MQRC_DATA_LENGTH_ERROR,
        cmqc.MQRC_MSG_TOO_BIG_FOR_CHANNEL,
        cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR,
        cmqc.MQRC_MSG_TOO_BIG_FOR_Q,
    )
)
_LABELS = {"QMGR": "the queue manager", "QUEUE": "queue", "TOPIC": "topic object"}
_TYPES = {
    cmqc.MQQT_ALIAS: ("an alias queue", "DELETE QALIAS"),
    cmqc.MQQT_REMOTE: ("a remote queue", "DELETE QREMOTE"),
    cmqc.MQQT_CLUSTER: ("a queue of the cluster", ""),
}


def missing(connection: Connection, requirements: Requirements, reply_wait: int | None = None) -> list[Missing]:
    """Return the requirements that the queue manager does not meet. Raises MQError if the connection is lost.

    `reply_wait` is the maximum time for a reply of the command server, as for `PcfAdministration`.
    """
    return _Examination(connection, requirements, reply_wait).run()


def has_aliases(administration: PcfAdministration, transmission_queue: str) -> bool:
    """Return whether the alias of `mqsc-script --aliases` resolves to the transmission queue. Raises MQError."""
    (alias,) = administration.run(cmqcfc.MQCMD_INQUIRE_Q, MQCFST(cmqc.MQCA_Q_NAME, PROBE_CLIENT.encode()))
    return alias.text(cmqc.MQCA_XMIT_Q_NAME) == transmission_queue


def refused_connection(error: MQError, queue_manager: str, user: str) -> Missing:
    """Describe a failed connection, with a remedy if one is known."""
    problem = f"no connection to queue manager {queue_manager}: {error}"
    if error.reason == cmqc.MQRC_NOT_AUTHORIZED:
        grant = set_authrec("QMGR", "", f"PRINCIPAL('{user}')", "CONNECT,INQ")
        return Missing(problem, f"{grant}")
    return Missing(problem)


class _Examination:
    """One comparison of a queue manager with requirements."""

    def __init__(self, connection: Connection, requirements: Requirements, reply_wait: int | None) -> None:
        self._connection = connection
        self._reply_wait = reply_wait
        self._requirements = requirements
        self._found: list[Missing] = []
        #: queues that are not defined, or cannot be opened, as `_found` reports
        self._unusable: set[str] = set()
        #: queues with wrong attributes, as `_found` reports
        self._misconfigured: set[str] = set()
        self._table: dict[AuthorityKey, Authority] = {}
        #: whether users have authorities. False if that could not be tested
        self._granted: dict[AuthorityKey, bool] = {}
        self._denied: set[AuthorityKey] = set()
        self._administration: PcfAdministration | None = None
        self._subscription = f"mqbridge check {uuid.uuid4()}"
        #: DEFXMITQ of the queue manager
        self._default_route = requirements.transmission_queue

    def run(self) -> list[Missing]:
        try:
            dead_letter_queue = self._queue_manager()
            for queue in self._requirements.queues(dead_letter_queue):
                self._queue(queue)
            self._resolve_mapping_queues()
            if self._requirements.commands:
                self._reply_queue()
            self._table = {authority.key: authority for authority in self._requirements.authorities(dead_letter_queue)}
            for key in self._table:
                self._is_granted(key)
            self._report_authorities()
            self._message_length(dead_letter_queue)
        finally:
            if self._administration is not None:
                with contextlib.suppress(MQError):
                    self._administration.close()
        return self._found

    def _add_missing(self, problem: str, remedy: str = "", *, needed: bool = True) -> None:
        self._found.append(Missing(problem, remedy, needed))

    # Objects and attributes ------------------------------------------------------------------------------------------

    def _inquire(self, od: MQOD, selectors: Sequence[int]) -> tuple[list[int], list[str]] | int:
        """Inquire attributes of an object (MQINQ), or return the reason code of a failure. Raises MQError if LOST."""
        try:
            return inquire(self._connection, msgspec.structs.replace(od), selectors, _INQUIRE)
        except MQError as error:
            raise_if_lost(error)
            return error.reason

    def _queue_manager(self) -> str:
        """Compare the attributes of the queue manager. Return the name of its dead-letter queue."""
        needs = self._requirements
        try:
            has = QueueManagerAttributes.of(self._connection)
        except MQError as error:
            raise_if_lost(error)
            if error.reason != cmqc.MQRC_NOT_AUTHORIZED:
                raise
            return ""
        self._default_route = has.default_route
        self._route_to_clients()
        if needs.password_channels and not has.authentication:
            self._add_missing(
                f"the queue manager checks no passwords (CONNAUTH is blank), so clients of channel"
                f" {', '.join(needs.password_channels)} could connect with any password (method queue-manager)",
                f"{alter_queue_manager('CONNAUTH', 'SYSTEM.DEFAULT.AUTHINFO.IDPWOS')}, then REFRESH SECURITY TYPE(CONNAUTH)",
            )
        if not has.dead_letter_queue:
            name = needs.dead_letter_queue or DEFAULT_DEAD_LETTER_QUEUE
            self._add_missing("the queue manager has no dead-letter queue (DEADQ)", alter_queue_manager("DEADQ", name))
        for keyword, has_number, needed in (
            ("MAXHANDS", has.handles, HANDLES),
            ("MAXUMSGS", has.uncommitted, needs.uncommitted),
        ):
            if has_number < needed:
                problem = f"the queue manager has {keyword}({has_number}), and the bridge needs {needed}"
                self._add_missing(problem, alter_queue_manager(keyword, needed))
        return has.dead_letter_queue

    def _route_to_clients(self) -> None:
        """Check that messages for clients reach the transmission queue, via DEFXMITQ or queue manager aliases."""
        default, queue = self._default_route, self._requirements.transmission_queue
        if default == queue or self._requirements.is_shard or self._has_aliases():
            return
        self._misconfigured.add(queue)
        if default in ("", DEFAULT_TRANSMISSION_QUEUE):
            has = f"is {default}" if default else "is blank"
            self._add_missing(
                f"the queue manager's default transmission queue (DEFXMITQ) {has},"
                f" and has to be {queue}, through which messages reach MQTT clients",
                alter_queue_manager("DEFXMITQ", queue),
            )
            return
        self._add_missing(
            f"the queue manager's default transmission queue (DEFXMITQ) is {default}, so messages for MQTT clients do not"
            f" reach {queue}; a changed DEFXMITQ would divert the messages that {default} routes, so define a queue manager"
            " alias for each client (mqbridge mqsc-script --aliases) and this one, which the bridge tests",
            queue_manager_alias(PROBE_CLIENT, queue)
            + ", and "
            + set_authrec("QUEUE", PROBE_CLIENT, f"PRINCIPAL('{self._requirements.user}')", "DSP"),
        )

    def _has_aliases(self) -> bool:
        try:
            return has_aliases(self._commands(), self._requirements.transmission_queue)
        except MQError as error:
            raise_if_lost(error)
            return False

    def _queue(self, queue: QueueRequirement) -> None:
        """Compare type and attributes of a queue."""
        label = f"{queue.purpose} {queue.name}"
        answer = self._inquire(MQOD(ObjectName=queue.name), (cmqc.MQIA_Q_TYPE,))
        if answer == cmqc.MQRC_UNKNOWN_OBJECT_NAME:
            self._add_missing(f"{label} is not defined", queue.definition, needed=queue.needed)
        elif isinstance(answer, int):
            if answer == cmqc.MQRC_NOT_AUTHORIZED:
                return
            self._add_missing(f"{label} cannot be opened: {_reason(answer)}", needed=queue.needed)
        elif (kind := answer[0][0]) != cmqc.MQQT_LOCAL:
            is_, deletion = _TYPES.get(kind, (f"of type {kind}", ""))
            first = f"{deletion}('{queue.name}'), then " if deletion else ""
            problem = f"{label} is {is_}, and has to be a local one"
            self._add_missing(problem, first + queue.definition, needed=queue.needed)
        else:
            values = self._inquire(MQOD(ObjectName=queue.name), [attribute.selector for attribute in queue.attributes])
            for attribute, value in zip(queue.attributes, () if isinstance(values, int) else values[0], strict=False):
                if value != attribute.value:
                    remedy = f"ALTER QLOCAL('{queue.name}') {attribute.mqsc}"
                    self._add_missing(f"{label} has not {attribute.mqsc}", remedy, needed=queue.needed)
                    self._misconfigured.add(queue.name)
            return
        self._unusable.add(queue.name)

    def _resolve_mapping_queues(self) -> None:
        """Find the transmission queues for remote queues of mappings, because their authorities are checked."""
        resolved = [self._resolved(queue) for queue in self._requirements.mapping_queues]
        self._requirements = msgspec.structs.replace(self._requirements, mapping_queues=tuple(resolved))

    def _resolved(self, queue: MappingQueue) -> MappingQueue:
        if queue.queue_manager:
            answer = self._inquire(MQOD(ObjectName=queue.queue_manager), (cmqc.MQIA_Q_TYPE,))
            # Without a transmission queue with its name, a queue manager is reached via the default transmission queue.
            if answer == cmqc.MQRC_UNKNOWN_OBJECT_NAME:
                return msgspec.structs.replace(queue, transmission_queue=self._default_route)
        return queue

    def _reply_queue(self) -> None:
        """Compare the model of reply queues, by creating a queue from it."""
        od = MQOD(ObjectName=MODEL_QUEUE, DynamicQName="MQBRIDGE.*")
        try:
            handle = self._connection.open(od, cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_FAIL_IF_QUIESCING)
        except MQError as error:
            raise_if_lost(error)
            if error.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME:
                self._add_missing(
                    f"model queue {MODEL_QUEUE} is not defined, and replies to commands come to a queue made of"
                    f" {DEFAULT_MODEL_QUEUE}, whose MAXDEPTH limits the number of subscriptions",
                    " ".join((f"DEFINE QMODEL('{MODEL_QUEUE}')", *REPLY_MODEL)),
                    needed=False,
                )
            return
        try:
            answer = self._inquire(MQOD(ObjectName=od.ObjectName), (cmqc.MQIA_MAX_Q_DEPTH,))
        finally:
            self._connection.close(handle)
        if not isinstance(answer, int) and answer[0][0] < MIN_REPLY_DEPTH:
            self._add_missing(
                f"model queue {MODEL_QUEUE} has MAXDEPTH({answer[0][0]}), which limits the number of subscriptions",
                f"ALTER QMODEL('{MODEL_QUEUE}') MAXDEPTH({REPLY_DEPTH})",
                needed=False,
            )

    # Authorities -----------------------------------------------------------------------------------------------------

    def _is_granted(self, key: AuthorityKey) -> bool:
        """Return whether a user has an authority. Test it once, after the authorities on which its dry run depends."""
        if key not in self._table:
            return True  # it is not required
        if key not in self._granted:
            self._granted[key] = self._test(self._table[key])
        return self._granted[key]

    def _test(self, authority: Authority) -> bool:
        if authority.kind == "QUEUE" and authority.name in self._unusable:
            return False
        if not all(map(self._is_granted, authority.after)):
            return False
        reason = cmqc.MQRC_NONE
        try:
            self._dry_run(authority)
        except MQError as error:
            raise_if_lost(error)
            reason = error.reason
        if reason in _GRANTED:
            return True
        if authority.name == MODEL_QUEUE and reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME:
            return True  # already reported, and commands use the default model queue
        label = _label(authority)
        if reason == cmqc.MQRC_NOT_AUTHORIZED:
            self._denied.add(authority.key)
        elif reason == cmqc.MQRC_NO_MSG_AVAILABLE:
            self._add_missing(
                f"the command server does not answer, which is needed to {authority.purpose}",
                "ALTER QMGR SCMDSERV(QMGR), and until the queue manager restarts, the control command strmqcsv",
            )
        elif authority.name in self._misconfigured:
            pass  # already reported
        elif reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME and authority.kind == "QUEUE":
            definition = f"DEFINE QLOCAL('{authority.name}')"
            self._add_missing(f"{label} is not defined, and is needed to {authority.purpose}", definition)
            self._unusable.add(authority.name)
        else:
            self._add_missing(
                f"{label} cannot be used to {authority.purpose}: {_reason(reason)}", needed=authority.needed
            )
        return False

    def _dry_run(self, authority: Authority) -> None:
        """Make the calls for which the bridge needs an authority. Raises MQError if they fail."""
        dry_run = authority.dry_run
        if isinstance(dry_run, Open):
            self._open(dry_run)
            return
        name = authority.name.encode()
        clients = f"{PROBE_CLIENT}:*".encode()
        runs: dict[DryRun, Callable[[], None]] = {
            DryRun.CONNECT: lambda: None,
            DryRun.PING: lambda: self._command(cmqcfc.MQCMD_PING_Q_MGR),
            DryRun.LIST_SUBSCRIPTIONS: lambda: self._command(
                cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION, MQCFST(cmqcfc.MQCACF_SUB_NAME, clients)
            ),
            DryRun.CLEAR_RETAINED: lambda: self._commands().clear_retained(PROBE_TOPIC),
            DryRun.QUEUE_STATUS: lambda: self._command(cmqcfc.MQCMD_INQUIRE_Q_STATUS, MQCFST(cmqc.MQCA_Q_NAME, name)),
            DryRun.SUBSCRIBE: lambda: self._subscribe(authority.user),
            DryRun.RESUME: self._resume,
            DryRun.SET_IDENTITY: self._set_identity,
        }
        runs[dry_run]()

    def _open(self, dry_run: Open) -> None:
        od = (
            MQOD(ObjectName=self._commands().reply_queue) if dry_run.od is None else msgspec.structs.replace(dry_run.od)
        )
        self._connection.close(self._connection.open(od, dry_run.options))

    def _commands(self) -> PcfAdministration:
        if self._administration is None:
            self._administration = PcfAdministration(self._connection, self._reply_wait)
        return self._administration

    def _command(self, command: int, *parameters: MQCFST) -> None:
        try:
            self._commands().run(command, *parameters)
        except MQError as error:
            if error.reason not in _NONE_FOUND:
                raise

    def _set_identity(self) -> None:
        """Open a topic to publish with the user in the message, as a user who may publish to the topic."""
        options = _OUTPUT | cmqc.MQOO_ALTERNATE_USER_AUTHORITY
        for user in dict.fromkeys((*self._requirements.identities, "")):
            publish = Open(options if user else _OUTPUT, probe_topic(user))
            try:
                self._open(publish)
            except MQError as error:
                raise_if_lost(error)
                continue
            self._open(Open(publish.options | cmqc.MQOO_SET_IDENTITY_CONTEXT, publish.od))
            return
        # All users lack PUB, which is reported, so SETID cannot be tested.

    @contextlib.contextmanager
    def _destination(self, user: str) -> Iterator[int]:
        options = _OUTPUT | (cmqc.MQOO_ALTERNATE_USER_AUTHORITY if user else 0)
        handle = self._connection.open(self._requirements.client_destination(user), options)
        try:
            yield handle
        finally:
            with contextlib.suppress(MQError):
                self._connection.close(handle)

    def _durable(self, verb: int, destination: int) -> int:
        """Create, alter or resume the durable subscription of the dry run. Return its handle."""
        sd = MQSD(
            Options=verb | cmqc.MQSO_DURABLE | cmqc.MQSO_ANY_USERID | cmqc.MQSO_FAIL_IF_QUIESCING,
            ObjectString=PROBE_TOPIC,
            SubName=self._subscription,
            SubExpiry=PROBE_EXPIRY,
        )
        return self._connection.subscribe(sd, destination)[0]

    def _subscribe(self, user: str) -> None:
        """Subscribe as a user with a non-durable subscription, because MQCLOSE ends it without further authority."""
        options = cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE | cmqc.MQSO_FAIL_IF_QUIESCING
        options |= cmqc.MQSO_ALTERNATE_USER_AUTHORITY if user else 0
        sd = MQSD(Options=options, ObjectString=PROBE_TOPIC, AlternateUserId=user)
        if not self._requirements.commands:
            # The embedded queue manager supports managed destinations only.
            sd.Options |= cmqc.MQSO_MANAGED
            for handle in self._connection.subscribe(sd):
                self._connection.close(handle)
            return
        with self._destination(user) as destination:
            self._connection.close(self._connection.subscribe(sd, destination)[0])

    def _resume(self) -> None:
        """Create a durable subscription, alter it, resume it, and remove it again."""
        with self._destination("") as destination:
            self._connection.close(self._durable(cmqc.MQSO_CREATE, destination))
            try:
                self._connection.close(self._durable(cmqc.MQSO_ALTER, destination))
                handle = self._durable(cmqc.MQSO_RESUME, destination)
            except MQError as error:
                if error.reason not in LOST:
                    # Altering it requires only SUB, which the user has. If that fails too, the subscription expires.
                    handle = self._durable(cmqc.MQSO_ALTER, destination)
                    self._connection.close(handle, cmqc.MQCO_REMOVE_SUB)
                raise
            self._connection.close(handle, cmqc.MQCO_REMOVE_SUB)

    def _report_authorities(self) -> None:
        """Report the missing authorities, with one sentence for each user and object."""
        denied = [authority for authority in self._table.values() if authority.key in self._denied]
        for grant in grants(denied, by_need=True):
            first, words = grant.first, grant.words
            who = first.user or self._requirements.user
            purposes = "; to ".join(dict.fromkeys(authority.purpose for authority in grant.authorities))
            problem = f"user {who} lacks authority {words} for {_label(first)}, needed to {purposes}"
            manager = self._requirements.queue_manager
            shell = setmqaut(manager, first.kind, first.name, who, words) if manager else ""
            self._found.append(Missing(problem, grant.command(f"PRINCIPAL('{who}')"), first.needed, shell))

    # Lengths of messages ---------------------------------------------------------------------------------------------

    def _message_length(self, dead_letter_queue: str) -> None:
        """Compare MAXMSGL of queue manager, queues and channel with the maximum length of clients' publications."""
        needed = self._requirements.message_length
        if not needed:
            return
        publishes = f"clients may publish messages of {needed} bytes (max_packet_size and headers)"
        objects = [(MQOD(ObjectType=cmqc.MQOT_Q_MGR), "the queue manager", "QMGR")]
        names = [
            queue.name
            for queue in self._requirements.queues(dead_letter_queue)
            if queue.name != self._requirements.bridge_queues.lock
        ]
        names += [
            queue.name
            for queue in self._requirements.mapping_queues
            if "PUT" in queue.words and not queue.queue_manager
        ]
        objects += [(MQOD(ObjectName=name), f"queue {name}", f"QLOCAL('{name}')") for name in dict.fromkeys(names)]
        too_short = False
        for od, label, command in objects:
            answer = self._inquire(od, (cmqc.MQIA_MAX_MSG_LENGTH,))
            if not isinstance(answer, int) and answer[0][0] < needed:
                problem = f"{label} has MAXMSGL({answer[0][0]}), and {publishes}"
                self._add_missing(problem, f"ALTER {command} MAXMSGL({MAX_MESSAGE_LENGTH})", needed=False)
                too_short = True
        if too_short or self._misconfigured or self._unusable or not all(self._granted.values()):
            return  # a message of that length might be rejected for a reason that is already reported
        reason = self._put_and_back_out(needed)
        if reason in _TOO_LONG:
            self._add_missing(
                f"the channel does not transfer messages of {needed} bytes ({_reason(reason)}), and {publishes}",
                f"ALTER CHANNEL(name) CHLTYPE(SVRCONN) MAXMSGL({MAX_MESSAGE_LENGTH})",
                needed=False,
            )
        elif reason:
            self._add_missing(f"a message of {needed} bytes cannot be put: {_reason(reason)}", needed=False)

    def _put_and_back_out(self, length: int) -> int:
        """Put a message of this length to a client that does not exist, and back it out. Return the reason code."""
        options = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING
        message = Message(MQMD(Persistence=cmqc.MQPER_NOT_PERSISTENT), bytes(length))
        try:
            self._connection.put1(self._requirements.client_destination(), message, options)
        except MQError as error:
            raise_if_lost(error)
            return error.reason
        finally:
            with contextlib.suppress(MQError):
                self._connection.backout()
        return cmqc.MQRC_NONE


def _label(authority: Authority) -> str:
    return f"{_LABELS[authority.kind]} {authority.name}".rstrip()


def _reason(reason: int) -> str:
    return f"{cmqc.reason_name(reason)} ({reason})"
