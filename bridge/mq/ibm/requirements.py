"""Requirements of the bridge for its queue manager, as tables of objects, attributes and authorities.

`bridge.mq.ibm.requirements_check` compares a queue manager with the tables, and `bridge.mq.ibm.mqsc_script` prints the MQSC
that creates everything in them.
"""

from __future__ import annotations

import enum
import getpass
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from bridge.config.advice import may_be_nobody
from bridge.config.link import LOCAL
from bridge.config.mapping import MAX_PARTS, MqDestination, MqttDestination, ToMqMapping, ToMqttMapping
from bridge.config.models import Configuration
from bridge.config.queue_manager import (
    COMMAND_QUEUE,
    MAPPING_STATE_QUEUE,
    SET_ASIDE_QUEUE,
    SHARE_MEMBERS_QUEUE,
    BridgeQueues,
    IbmQueueManagerConfig,
)
from bridge.mapping.template import template_of
from bridge.mq.administration import MODEL_QUEUE
from bridge.mq.ibm.remover import REMOVALS
from bridge.mq.ibm.transmission import subscription_destination
from bridge.mq.mqi import MQOD, Connection, inquire
from bridge.security.privileged import NOBODY
from bridge.wire import cmqc

#: A client identifier that no client uses. Opening a queue at this client shows whether messages can be put to clients.
PROBE_CLIENT = "mqbridge.check"
BASE_TOPIC = "SYSTEM.BASE.TOPIC"
#: The profile of the queues of managed subscriptions.
MANAGED_QUEUES = "SYSTEM.MANAGED.DURABLE.**"
DEFAULT_DEAD_LETTER_QUEUE = "SYSTEM.DEAD.LETTER.QUEUE"
#: Handles of one connection: the open topics of a publisher, or the subscriptions of a subscriber, and a few others.
HANDLES = 256
#: The maximum message length of IBM MQ in bytes.
MAX_MESSAGE_LENGTH = 104_857_600
#: Maximum length of the headers before a payload in bytes: MQXQH, and RFH2 with topic and properties.
HEADERS = 65_536
#: Required and recommended MAXDEPTH of reply queues. A reply has one message for each subscription or topic.
MIN_REPLY_DEPTH, REPLY_DEPTH = 100_000, 999_999_999
#: The model of the queues for replies, as MQSC.
REPLY_MODEL = ("DEFTYPE(TEMPDYN)", f"MAXDEPTH({REPLY_DEPTH})", "MAXMSGL(4194304)")

_INQUIRE = cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
_OUTPUT = cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING
_EXCLUSIVE = cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_FAIL_IF_QUIESCING
_SHARED = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_FAIL_IF_QUIESCING
_BROWSE = cmqc.MQOO_BROWSE | cmqc.MQOO_FAIL_IF_QUIESCING
_ALTERNATE = cmqc.MQOO_ALTERNATE_USER_AUTHORITY


class RequiredAttribute(msgspec.Struct, frozen=True):
    """An attribute of a queue with the value that it must have, as number and as MQSC."""

    selector: int
    value: int
    mqsc: str


_XMITQ = RequiredAttribute(cmqc.MQIA_USAGE, cmqc.MQUS_TRANSMISSION, "USAGE(XMITQ)")
_NORMAL = RequiredAttribute(cmqc.MQIA_USAGE, cmqc.MQUS_NORMAL, "USAGE(NORMAL)")
_SHARE = RequiredAttribute(cmqc.MQIA_SHAREABILITY, cmqc.MQQA_SHAREABLE, "SHARE")
_PUT = RequiredAttribute(cmqc.MQIA_INHIBIT_PUT, cmqc.MQQA_PUT_ALLOWED, "PUT(ENABLED)")
_GET = RequiredAttribute(cmqc.MQIA_INHIBIT_GET, cmqc.MQQA_GET_ALLOWED, "GET(ENABLED)")


class QueueRequirement(msgspec.Struct, frozen=True):
    """A local queue that the bridge needs."""

    purpose: str
    name: str
    attributes: tuple[RequiredAttribute, ...]
    #: attributes of a new queue that may differ on an existing queue
    recommended: str
    #: DESCR of a new queue
    description: str
    #: False if the bridge runs without it, and only some clients need it
    needed: bool = True

    @property
    def words(self) -> list[str]:
        """The attributes of a new queue, as MQSC."""
        checked = [attribute.mqsc for attribute in self.attributes if not attribute.mqsc.endswith("(ENABLED)")]
        return [*checked, *self.recommended.split()]

    @property
    def definition(self) -> str:
        """The MQSC command that defines the queue."""
        return " ".join([f"DEFINE QLOCAL('{self.name}')", *self.words])


class QueueManagerAttributes(msgspec.Struct, kw_only=True, frozen=True):
    """Attributes of a queue manager that the bridge compares but does not overwrite."""

    #: DEFXMITQ, DEADQ, CONNAUTH
    default_route: str = ""
    dead_letter_queue: str = ""
    authentication: str = ""
    #: MAXHANDS, MAXUMSGS
    handles: int = 0
    uncommitted: int = 0

    @classmethod
    def of(cls, connection: Connection) -> QueueManagerAttributes:
        """Inquire the attributes. Raises MQError."""
        texts = (cmqc.MQCA_DEF_XMIT_Q_NAME, cmqc.MQCA_DEAD_LETTER_Q_NAME, cmqc.MQCA_CONN_AUTH)
        numbers = (cmqc.MQIA_MAX_HANDLES, cmqc.MQIA_MAX_UNCOMMITTED_MSGS)
        attributes = inquire(connection, MQOD(ObjectType=cmqc.MQOT_Q_MGR), (*texts, *numbers), _INQUIRE)
        (handles, uncommitted), (route, dead_letter_queue, authentication) = attributes
        return cls(
            default_route=route.rstrip(" \0"),
            dead_letter_queue=dead_letter_queue.rstrip(" \0"),
            authentication=authentication.rstrip(" \0"),
            handles=handles,
            uncommitted=uncommitted,
        )


class DryRun(enum.Enum):
    """Dry runs other than a single MQOPEN."""

    #: no call, because a connection exists
    CONNECT = enum.auto()
    PING = enum.auto()
    LIST_SUBSCRIPTIONS = enum.auto()
    CLEAR_RETAINED = enum.auto()
    QUEUE_STATUS = enum.auto()
    #: create a subscription
    SUBSCRIBE = enum.auto()
    #: create a durable subscription, alter it, resume it, and remove it
    RESUME = enum.auto()
    #: open a topic as a client's user, and set the user in the message
    SET_IDENTITY = enum.auto()


class Open(msgspec.Struct, frozen=True):
    """A dry run with MQOPEN. Without `od`, it opens the temporary dynamic queue of the check.

    The user who created a dynamic queue has all authorities for it (IBM MQ documentation, "Authorizations for MQI calls").
    So MQOPEN of that queue with a context option depends only on the authority for the queue manager.
    """

    options: int
    od: MQOD | None = None


class AuthorityKey(NamedTuple):
    """The key of an authority."""

    #: a user of clients, or blank for the bridge's own user
    user: str
    #: object type and profile
    kind: str
    name: str
    word: str


class Authority(msgspec.Struct, frozen=True):
    """An authority that a user needs, with the dry run that shows whether the user has it."""

    #: OBJTYPE of SET AUTHREC
    kind: str
    #: PROFILE of SET AUTHREC, or blank for the queue manager
    name: str
    #: AUTHADD of SET AUTHREC. Authorities that only work together are two words with a comma
    word: str
    #: the purpose of the authority, as the continuation of "to"
    purpose: str
    dry_run: Open | DryRun
    #: a user of clients, or blank for the bridge's own user
    user: str = ""
    #: False if the bridge runs without it, and only some clients or functions need it
    needed: bool = True
    #: authorities without which the dry run is inconclusive
    after: tuple[AuthorityKey, ...] = ()

    @property
    def key(self) -> AuthorityKey:
        """The key of the authority."""
        return AuthorityKey(self.user, self.kind, self.name, self.word)


class Grant(msgspec.Struct, frozen=True):
    """Authorities of one user for one object, which one SET AUTHREC grants."""

    authorities: list[Authority]

    @property
    def first(self) -> Authority:
        """The first authority. All authorities have the same user, object and need."""
        return self.authorities[0]

    @property
    def words(self) -> str:
        """AUTHADD of SET AUTHREC."""
        return ",".join(authority.word for authority in self.authorities)

    def command(self, grantee: str) -> str:
        """Return the MQSC command. `grantee` is PRINCIPAL('user') or GROUP('group') of the bridge."""
        first = self.first
        return set_authrec(first.kind, first.name, f"PRINCIPAL('{first.user}')" if first.user else grantee, self.words)


def grants(authorities: Iterable[Authority], *, by_need: bool = False) -> list[Grant]:
    """Group authorities by user and object. With `by_need`, optional authorities form separate groups."""
    together: dict[tuple[str, ...], list[Authority]] = {}
    for authority in authorities:
        need = ("needed" if authority.needed else "",) if by_need else ()
        together.setdefault((*authority.key[:3], *need), []).append(authority)
    return [Grant(members) for members in together.values()]


class MappingQueue(msgspec.Struct, frozen=True):
    """A queue of an enabled mapping."""

    mapping: str
    name: str
    #: INQ, GET, PUT, SETID
    words: tuple[str, ...]
    #: whether the mapping needs exclusive input
    exclusive: bool = False
    #: the remote queue manager of the queue, or blank
    queue_manager: str = ""
    #: the transmission queue to the remote queue manager. It usually has the same name
    transmission_queue: str = ""
    #: whether the mapping puts with the authority of publishers
    as_publisher: bool = False

    @property
    def profile(self) -> str:
        """The object whose authorities are checked. For a queue at another queue manager, it is the transmission queue.

        Source: IBM MQ documentation, "Authorizations for MQI calls".
        """
        return self.transmission_queue or self.name


class Requirements(msgspec.Struct, kw_only=True, frozen=True):
    """The requirements of the bridge with one configuration."""

    #: name for setmqaut, or blank for a queue manager group and for the embedded queue manager, which has no setmqaut
    queue_manager: str = ""
    bridge_queues: BridgeQueues = BridgeQueues()
    #: whether the queues belong to a shard, whose subscriptions contain the name of its transmission queue
    is_shard: bool = False
    #: the transmission queues of all shards, if this bridge forwards the messages of applications to them
    shard_queues: tuple[str, ...] = ()
    #: the bridge's own dead-letter queue, or blank if it uses the queue manager's
    dead_letter_queue: str = ""
    #: the bridge's user at the queue manager
    user: str = "mqbridge"
    #: the users as which clients act. Blank is the bridge itself
    identities: tuple[str, ...] = ()
    #: messages put and got in one unit of work
    uncommitted: int = 3 * REMOVALS
    #: whether a mapping moves messages exactly once
    mapping_state: bool = False
    #: whether a mapping takes messages from the dead-letter queue
    set_aside: bool = False
    #: queues of mappings. If one is missing, its mapping waits, and the bridge runs
    mapping_queues: tuple[MappingQueue, ...] = ()
    #: queues of mappings whose names depend on the message: mapping, template, and whether the publisher needs authority
    mapping_templates: tuple[tuple[str, str, bool], ...] = ()
    #: whether mappings put to topics as the bridge itself
    mapping_publishes: bool = False
    #: whether there are mappings, which dead-letter messages that they cannot process
    mappings: bool = False
    #: maximum length of a client's publication, with headers, or 0 if it is not compared
    message_length: int = 0
    #: channels whose clients the queue manager authenticates (method queue-manager)
    password_channels: tuple[str, ...] = ()
    #: whether to include optional requirements
    optional: bool = True
    #: whether the bridge sends PCF commands. On the embedded queue manager, it does not, and has all authorities
    commands: bool = True

    @property
    def transmission_queue(self) -> str:
        """The queue for messages that wait for clients."""
        return self.bridge_queues.transmission

    def client_destination(self, user: str = "") -> MQOD:
        """Return the destination of the publications of a client's subscription, opened as `user`."""
        queue = self.transmission_queue if self.is_shard else ""
        return subscription_destination(PROBE_CLIENT, queue, user)

    @property
    def to_start(self) -> Requirements:
        """The requirements without which the bridge does not start."""
        return msgspec.structs.replace(self, mapping_queues=(), message_length=0, optional=False)

    def dead_letter_queues(self, of_queue_manager: str) -> list[str]:
        """Return the names of the dead-letter queues. `of_queue_manager` is the queue manager's DEADQ."""
        return list(dict.fromkeys(filter(None, (of_queue_manager, self.dead_letter_queue))))

    def queues(self, dead_letter_queue: str) -> list[QueueRequirement]:
        """Return the local queues that the bridge needs. `dead_letter_queue` is the queue manager's DEADQ."""
        length = f"MAXMSGL({MAX_MESSAGE_LENGTH})"
        long, state = f"MAXDEPTH(10000000) {length}", (_NORMAL, _SHARE, _PUT, _GET)
        queues, sessions = self.bridge_queues, f"DEFSOPT(SHARED) {long} DEFPSIST(YES)"
        rows = [
            QueueRequirement(
                "transmission queue", queues.transmission, (_XMITQ, _SHARE, _PUT, _GET), f"{long} MONQ(LOW)",
                "Messages for MQTT clients",
            ),
            QueueRequirement("state queue", queues.state, state, sessions, "Session state of MQTT clients"),
            QueueRequirement("lock queue", queues.lock, (_NORMAL, _GET), "MAXDEPTH(0)", "Open while a bridge is active"),
        ]  # fmt: skip
        if self.shard_queues:
            rows.append(
                QueueRequirement(
                    "common transmission queue", queues.common_transmission, (_XMITQ, _SHARE, _PUT, _GET), long,
                    "Messages of applications for the clients of all shards",
                )
            )  # fmt: skip
        if self.is_shard and self.optional:
            recommended = "MAXDEPTH(100000) DEFPSIST(YES)"
            description = "Shards with members of shared subscriptions"
            rows.append(
                QueueRequirement(
                    "members queue", SHARE_MEMBERS_QUEUE, (_NORMAL, _PUT, _GET), recommended, description, needed=False
                )
            )
        if self.mapping_state:
            recommended = f"DEFSOPT(SHARED) MAXDEPTH(100000) {length} DEFPSIST(YES)"
            purpose = "state queue of exactly-once mappings"
            description = "State of exactly-once mappings"
            rows.append(QueueRequirement(purpose, MAPPING_STATE_QUEUE, state, recommended, description))
        for name in self.dead_letter_queues(dead_letter_queue):
            recommended = f"{long} DEFPSIST(YES) MONQ(LOW)"
            description = "Messages that could not be delivered"
            rows.append(QueueRequirement("dead-letter queue", name, (_NORMAL, _PUT), recommended, description))
        if self.set_aside:
            recommended = f"{long} DEFPSIST(YES) MONQ(LOW)"
            purpose = "queue of messages set aside"
            description = "Dead letters that a mapping rejected"
            rows.append(QueueRequirement(purpose, SET_ASIDE_QUEUE, (_NORMAL, _PUT), recommended, description))
        return rows

    def authorities(self, dead_letter_queue: str) -> list[Authority]:
        """Return the authorities that the bridge and its clients need. `dead_letter_queue` is the queue manager's DEADQ.

        Source: IBM MQ documentation, "Authorizations for MQI calls", "Authorizations for MQSC commands in escape PCFs".
        """
        authorities = [
            *self._queue_manager_authorities(),
            *self._own_queues(dead_letter_queue),
            *self._commands(),
            *self._topics(),
            *self._mappings(dead_letter_queue),
            *self._clients(),
        ]
        unique: dict[AuthorityKey, Authority] = {}
        for authority in authorities:
            if not self.commands and (
                authority.key in (_PUT_COMMANDS, _GET_REPLIES)
                or not {_PUT_COMMANDS, _GET_REPLIES}.isdisjoint(authority.after)
                or authority.dry_run is DryRun.RESUME
            ):
                continue
            if authority.needed or self.optional:
                unique.setdefault(authority.key, authority)
        return list(unique.values())

    def _queue_manager_authorities(self) -> Iterator[Authority]:
        inquire = Open(_INQUIRE, MQOD(ObjectType=cmqc.MQOT_Q_MGR))
        # Authorities of the alternate user are checked too, so the bridge's own user is the alternate user here.
        alternate = Open(_OUTPUT | _ALTERNATE, self.client_destination(self.user[:12]))
        open_as, to_clients = "open objects as the users of MQTT clients", self._put_to_clients()
        identity = Open(_OUTPUT | cmqc.MQOO_SET_IDENTITY_CONTEXT)
        yield Authority("QMGR", "", "CONNECT", "connect", DryRun.CONNECT)
        yield Authority("QMGR", "", "INQ", "inquire its attributes", inquire)
        yield Authority("QMGR", "", "DSP", "run commands", DryRun.PING, after=(_PUT_COMMANDS, _GET_REPLIES))
        yield Authority("QMGR", "", "ALTUSR", open_as, alternate, after=(to_clients,))
        yield Authority("QMGR", "", "SETID", f"{_PUT_USERS} into messages", identity, after=(_GET_REPLIES,))

    def _put_to_clients(self, user: str = "") -> AuthorityKey:
        return AuthorityKey(user, "QUEUE", self.transmission_queue, "PUT")

    def _own_queues(self, dead_letter_queue: str) -> Iterator[Authority]:
        transmission = self.transmission_queue
        yield _queue(transmission, "INQ", "inquire its attributes", _INQUIRE)
        yield _queue(transmission, "GET", "remove delivered messages", _EXCLUSIVE)
        yield _queue(transmission, "BROWSE", "read messages for MQTT clients", _BROWSE)
        to_client = Open(_OUTPUT, self.client_destination())
        yield Authority("QUEUE", transmission, "PUT", "subscribe for MQTT clients", to_client)
        yield _status(transmission)
        if self.shard_queues:
            common = self.bridge_queues.common_transmission
            yield _queue(common, "GET", "forward messages of applications to the shards", _SHARED)
            yield _queue(common, "INQ", "inquire its attributes", _INQUIRE)
            for name in self.shard_queues:
                output = Open(_OUTPUT, MQOD(ObjectName=name))
                yield Authority("QUEUE", name, "PUT", "forward messages of applications", output, needed=False)
        if self.is_shard:
            for word, purpose, options in (
                ("INQ", "inquire its attributes", _INQUIRE),
                ("GET", "change the members of shared subscriptions", _SHARED),
                ("BROWSE", "read the members of shared subscriptions", _BROWSE),
                ("PUT", "write the members of shared subscriptions", _OUTPUT),
            ):
                dry_run = Open(options, MQOD(ObjectName=SHARE_MEMBERS_QUEUE))
                yield Authority("QUEUE", SHARE_MEMBERS_QUEUE, word, purpose, dry_run, needed=False)
            for word in ("GET", "PUT", "INQ"):
                # A dry run is impossible, because the queue manager creates these queues with the subscriptions.
                purpose = "exchange the messages of shared subscriptions with other shards"
                yield Authority("QUEUE", MANAGED_QUEUES, word, purpose, DryRun.CONNECT, needed=False)
        lock = self.bridge_queues.lock
        yield _queue(lock, "INQ", "inquire its attributes", _INQUIRE)
        yield _queue(lock, "GET", "be the only active bridge", _EXCLUSIVE)
        for name in (self.bridge_queues.state, *([MAPPING_STATE_QUEUE] if self.mapping_state else [])):
            yield _queue(name, "INQ", "inquire its attributes", _INQUIRE)
            yield _queue(name, "GET", "replace records", _SHARED)
            yield _queue(name, "BROWSE", "read records", _BROWSE)
            yield _queue(name, "PUT", "write records", _OUTPUT)
            yield _status(name)
        for name in (*self.dead_letter_queues(dead_letter_queue), *([SET_ASIDE_QUEUE] if self.set_aside else [])):
            yield _queue(name, "INQ", "inquire its attributes", _INQUIRE)
            yield _queue(name, "PUT", "put undeliverable messages", _OUTPUT)
            yield _status(name)
        for name in self.dead_letter_queues(dead_letter_queue):
            count = "count the messages of each client and mapping there (limits.dead_letter_bytes)"
            browse = Open(_BROWSE, MQOD(ObjectName=name))
            yield Authority("QUEUE", name, "BROWSE", count, browse, needed=False)

    @staticmethod
    def _commands() -> Iterator[Authority]:
        yield _queue(COMMAND_QUEUE, "PUT", "run commands", _OUTPUT)
        # GET alone is not sufficient: "Authorizations for MQI calls", note on model queues.
        model = Open(_EXCLUSIVE, MQOD(ObjectName=MODEL_QUEUE, DynamicQName="MQBRIDGE.*"))
        yield Authority("QUEUE", MODEL_QUEUE, "GET,DSP", "create queues for the replies to commands", model)

    def _topics(self) -> Iterator[Authority]:
        def topic(
            word: str, purpose: str, dry_run: Open | DryRun, *after: AuthorityKey, needed: bool = True
        ) -> Authority:
            return Authority("TOPIC", BASE_TOPIC, word, purpose, dry_run, needed=needed, after=after)

        yield topic("DSP", "list subscriptions", DryRun.LIST_SUBSCRIPTIONS, *_COMMANDS)
        yield topic("CLR", "clear retained publications", DryRun.CLEAR_RETAINED, *_COMMANDS)
        # The user of a client must be authorized to publish, so that the outcome depends only on SETID.
        yield topic("SETID", f"{_PUT_USERS} into publications", DryRun.SET_IDENTITY, _SET_IDENTITY)
        if "" in self.identities or self.mapping_publishes:
            whose = "MQTT clients without a user" if "" in self.identities else "mappings"
            yield topic("PUB", f"publish for {whose}", Open(_OUTPUT, probe_topic()), needed=False)
        # A user that did not create the subscription needs SUB for MQCO_REMOVE_SUB: "Not Authorized (type 3)".
        subscribe = "subscribe, and remove subscriptions of MQTT clients"
        yield topic("SUB", subscribe, DryRun.SUBSCRIBE, self._put_to_clients(), needed=False)
        resume = "remove the subscriptions of MQTT clients that unsubscribe or end their session"
        yield topic("RESUME", resume, DryRun.RESUME, _SUBSCRIBE, needed=False)

    def _mappings(self, dead_letter_queue: str) -> Iterator[Authority]:
        for queue in self.mapping_queues:
            od = MQOD(ObjectName=queue.name, ObjectQMgrName=queue.queue_manager)
            put_authority = AuthorityKey("", "QUEUE", queue.profile, "PUT")
            rows = {
                "INQ": ("inquire its attributes", _INQUIRE),
                "GET": ("take messages", _EXCLUSIVE if queue.exclusive else _SHARED),
                "PUT": ("put messages", _OUTPUT),
                "SETID": (f"{_PUT_USERS} into messages", _OUTPUT | cmqc.MQOO_SET_IDENTITY_CONTEXT),
            }
            for word in queue.words:
                purpose, options = rows[word]
                purpose = f"{purpose} (mapping {queue.mapping})"
                after = (_SET_IDENTITY, put_authority) if word == "SETID" else ()
                # Without PUT, an MQOPEN cannot show whether the bridge has SETID.
                dry_run = DryRun.CONNECT if queue.as_publisher else Open(options, od)
                yield Authority("QUEUE", queue.profile, word, purpose, dry_run, after=after)
            for user in dict.fromkeys(filter(None, self.identities)) if queue.as_publisher else ():
                purpose = f"put messages through mapping {queue.mapping}, for the MQTT clients that act as this user"
                dry_run = Open(_OUTPUT | _ALTERNATE, msgspec.structs.replace(od, AlternateUserId=user))
                row = Authority("QUEUE", queue.profile, "PUT", purpose, dry_run, user=user, needed=False)
                yield msgspec.structs.replace(row, after=(_ALTERNATE_USER,))
            if not queue.queue_manager:
                yield _status(queue.name)
        if not self.mappings:
            return
        keep = "keep the put date and application of messages that mappings cannot process"
        options = _OUTPUT | cmqc.MQOO_SET_ALL_CONTEXT
        yield Authority("QMGR", "", "SETALL", keep, Open(options), needed=False, after=(_GET_REPLIES,))
        for name in self.dead_letter_queues(dead_letter_queue):
            after = (AuthorityKey("", "QMGR", "", "SETALL"), AuthorityKey("", "QUEUE", name, "PUT"))
            dry_run = Open(options, MQOD(ObjectName=name))
            yield Authority("QUEUE", name, "SETALL", keep, dry_run, needed=False, after=after)

    def _clients(self) -> Iterator[Authority]:
        whose = "for the MQTT clients that act as this user"
        for user in dict.fromkeys(filter(None, self.identities)):
            rows: tuple[tuple[str, str, str, str, Open | DryRun], ...] = (
                (
                    "QUEUE", self.transmission_queue, "PUT", f"connect and subscribe {whose}",
                    Open(_OUTPUT | _ALTERNATE, self.client_destination(user)),
                ),
                ("TOPIC", BASE_TOPIC, "PUB", f"publish {whose}", Open(_OUTPUT | _ALTERNATE, probe_topic(user))),
                ("TOPIC", BASE_TOPIC, "SUB", f"subscribe {whose}", DryRun.SUBSCRIBE),
            )  # fmt: skip
            for row in rows:
                after = (_ALTERNATE_USER, self._put_to_clients(user)) if row[2] == "SUB" else (_ALTERNATE_USER,)
                yield Authority(*row, user=user, needed=False, after=after)


_PUT_USERS = "put the users of MQTT clients"
_PUT_COMMANDS = AuthorityKey("", "QUEUE", COMMAND_QUEUE, "PUT")
_GET_REPLIES = AuthorityKey("", "QUEUE", MODEL_QUEUE, "GET,DSP")
#: Each PCF command requires DSP for the queue manager.
_COMMANDS = (_PUT_COMMANDS, _GET_REPLIES, AuthorityKey("", "QMGR", "", "DSP"))
_SET_IDENTITY = AuthorityKey("", "QMGR", "", "SETID")
_ALTERNATE_USER = AuthorityKey("", "QMGR", "", "ALTUSR")
_SUBSCRIBE = AuthorityKey("", "TOPIC", BASE_TOPIC, "SUB")


def _queue(name: str, word: str, purpose: str, options: int) -> Authority:
    return Authority("QUEUE", name, word, purpose, Open(options, MQOD(ObjectName=name)))


def _status(name: str) -> Authority:
    purpose = "report the age of its oldest message in metrics"
    return Authority("QUEUE", name, "DSP", purpose, DryRun.QUEUE_STATUS, needed=False, after=_COMMANDS)


#: A topic that no application uses.
PROBE_TOPIC = "mqbridge/check"


def probe_topic(user: str = "") -> MQOD:
    """Return PROBE_TOPIC, opened as `user`."""
    return MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=PROBE_TOPIC, AlternateUserId=user)


def queue_manager_alias(client: str, transmission_queue: str) -> str:
    """Return the MQSC command that routes messages for a client to the bridge without DEFXMITQ.

    Source: IBM MQ documentation, "Queue manager alias definitions".
    """
    return f"DEFINE QREMOTE('{client}') RQMNAME('{client}') XMITQ('{transmission_queue}')"


def alter_queue_manager(keyword: str, value: object) -> str:
    """Return the MQSC command that sets an attribute of the queue manager."""
    return f"ALTER QMGR {keyword}({value})" if isinstance(value, int) else f"ALTER QMGR {keyword}('{value}')"


def set_authrec(kind: str, name: str, grantee: str, words: str) -> str:
    """Return the MQSC command that grants authorities. `grantee` is PRINCIPAL('user') or GROUP('group')."""
    profile = f"PROFILE('{name}') " if name else ""
    return f"SET AUTHREC {profile}OBJTYPE({kind}) {grantee} AUTHADD({words})"


def setmqaut(queue_manager: str, kind: str, name: str, user: str, words: str) -> str:
    """Return the control command that grants authorities to a user."""
    profile = f" -n {name}" if name else ""
    granted = " ".join(f"+{word.lower()}" for word in words.split(","))
    return f"setmqaut -m {queue_manager}{profile} -t {kind.lower()} -p {user} {granted}"


def _shard_queues(configuration: Configuration) -> tuple[str, ...]:
    """Return the transmission queues to which the bridge of shard 0 forwards messages."""
    shard = configuration.shard
    if shard is None or shard.number:
        return ()
    return tuple(f"{configuration.common_transmission_queue}.{number}" for number in range(shard.of))


def requirements_of(configuration: Configuration) -> Requirements:
    """Return the requirements of the bridge with this configuration."""
    settings = configuration.queue_manager
    mappings = configuration.mappings.values()
    exactly_once = any(mapping.enabled and mapping.guarantee == "exactly-once" for mapping in mappings)
    dead_letter_queue = getattr(settings, "dead_letter_queue", None)
    common = Requirements(
        bridge_queues=configuration.queues,
        is_shard=configuration.shard is not None,
        shard_queues=_shard_queues(configuration),
        identities=tuple(_identities(configuration)),
        user=_user(),
        mapping_state=exactly_once,
        set_aside=any(
            mapping.enabled and isinstance(mapping, ToMqttMapping) and mapping.source.queue == dead_letter_queue
            for mapping in mappings
        ),
        mapping_queues=tuple(_mapping_queues(configuration)),
        mapping_templates=tuple(_mapping_templates(configuration)),
        mapping_publishes=any(
            mapping.enabled and _publishes(mapping.destination) and mapping.destination.authority == "bridge"
            for mapping in mappings
        ),
        mappings=any(mapping.enabled for mapping in mappings),
    )
    if not isinstance(settings, IbmQueueManagerConfig):
        if settings.authorities != "enforced":
            return common
        # On the embedded queue manager, clients without a user act as `nobody`. On IBM MQ, they act as the bridge.
        identities = tuple(filter(None, common.identities))
        unnamed = (NOBODY,) if any(map(may_be_nobody, configuration.channels)) else ()
        return msgspec.structs.replace(common, identities=unnamed + identities)
    lengths = [channel.max_packet_size + HEADERS for channel in configuration.channels]
    return msgspec.structs.replace(
        common,
        queue_manager="" if settings.name.startswith("*") else settings.name,
        dead_letter_queue=settings.dead_letter_queue,
        user=settings.user or _user(),
        # A publication may have a record that replaces another record. A mapping gets and puts each message, and saves one.
        # It also stores one for each request.
        uncommitted=max(
            3 * max(REMOVALS, settings.batch.messages),
            *(3 * mapping.batch.messages + 2 + (0 if mapping.split is None else MAX_PARTS) for mapping in mappings),
            0,
        ),
        message_length=min(MAX_MESSAGE_LENGTH, max(lengths, default=0)),
        password_channels=tuple(
            channel.name
            for channel in configuration.channels
            if any(method.method == "queue-manager" for method in channel.authentication)
        ),
    )


def _publishes(destination: MqDestination | MqttDestination) -> bool:
    """Return whether a destination is a topic of the queue manager."""
    return destination.topic is not None if isinstance(destination, MqDestination) else destination.link == LOCAL


def _identities(configuration: Configuration) -> Iterator[str]:
    """Yield the users in the configuration as which clients act. Blank is the bridge itself."""
    for channel in configuration.channels:
        if not channel.use_client_id:
            yield channel.mcauser or ""
    for record in configuration.channel_authentication:
        if record.mcauser is not None:
            yield record.mcauser


def _mapping_queues(configuration: Configuration) -> Iterator[MappingQueue]:
    """Yield the queues of mappings."""
    for name, mapping in configuration.mappings.items():
        if not mapping.enabled:
            continue
        if not isinstance(mapping, ToMqMapping):
            if mapping.source.queue is not None:
                yield MappingQueue(name, mapping.source.queue, ("INQ", "GET"), exclusive=True)
            if mapping.source.requests_queue is not None:
                yield MappingQueue(name, mapping.source.requests_queue, ("GET",))
            continue
        to = mapping.destination
        # A message from a client has the client's user. A message from a link has a user only if the mapping sets one.
        identity = mapping.source.link == LOCAL or mapping.attributes.user_identifier is not None
        if to.requests_queue is not None:
            yield MappingQueue(name, to.requests_queue, ("PUT",))
        if to.queue is None or not (queue := template_of(to.queue).literal):
            continue
        manager = "" if to.queue_manager is None else template_of(to.queue_manager).literal
        if manager == configuration.queue_manager.name:
            manager = ""
        if manager is not None:
            as_publisher = to.authority == "publisher"
            words = ("SETID",) if as_publisher else ("PUT", "SETID") if identity else ("PUT",)
            yield MappingQueue(
                name, queue, words, queue_manager=manager, transmission_queue=manager, as_publisher=as_publisher
            )


def _mapping_templates(configuration: Configuration) -> Iterator[tuple[str, str, bool]]:
    """Yield mappings to queues whose name or queue manager depends on the message, with the template.

    The third value is whether the mapping puts with the authority of publishers.
    """
    for name, mapping in configuration.mappings.items():
        if not mapping.enabled or not isinstance(mapping, ToMqMapping) or mapping.destination.queue is None:
            continue
        for template in (mapping.destination.queue, mapping.destination.queue_manager):
            if template is not None and not template_of(template).literal:
                yield name, template, mapping.destination.authority == "publisher"


def _user() -> str:
    """Return the user name of this process, or its user ID if it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


class Missing(msgspec.Struct, frozen=True):
    """A missing requirement, as a sentence, with the command that adds it."""

    what: str
    #: MQSC
    remedy: str = ""
    #: False if the bridge runs without it, and only some clients or functions need it
    needed: bool = True
    #: the control command that is equivalent to `remedy`
    shell: str = ""

    def __str__(self) -> str:
        text = f"{self.what}: {self.remedy}" if self.remedy else self.what
        return f"{text} (or {self.shell})" if self.shell else text
