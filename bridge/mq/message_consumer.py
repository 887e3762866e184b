"""The consumer of a mapping: gets messages from a queue or a topic filter, and recognizes duplicate publications.

A mapping with a topic source has a managed durable subscription, whose queue the queue manager creates and deletes. The topic
string of a subscription cannot be altered. A mapping whose topic filter has changed therefore creates a second subscription
under another name before it removes the first.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from bridge.mq.mqi import MQOD, MQSD, Connection, GetOptions, Got, MQError, announcing, get_or_none
from bridge.mq.remote import GLANCE
from bridge.mq.worker import LOST
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

log = logging.getLogger(__name__)


PREFIX = "mqbridge mapping "
_SECOND = " (2)"
_OPTIONS = (
    cmqc.MQSO_DURABLE
    | cmqc.MQSO_MANAGED
    | cmqc.MQSO_WILDCARD_TOPIC
    | cmqc.MQSO_ANY_USERID
    | cmqc.MQSO_SET_CORREL_ID  # zeros: messages keep the CorrelId of the publication
    | cmqc.MQSO_FAIL_IF_QUIESCING
)


class MappingSubscription(msgspec.Struct, eq=False, frozen=True):
    """A mapping's subscription, open for exclusive use on one connection."""

    name: str
    topic_filter: str
    #: handles of the subscription and of its queue
    handle: int
    queue: int


def names(mapping: str) -> tuple[str, str]:
    """Return the two names of a mapping's subscription, used alternately when its topic filter changes."""
    return PREFIX + mapping, PREFIX + mapping + _SECOND


def mapping_of(subscription: str) -> str:
    """Return the mapping to which a subscription with this name belongs, or ""."""
    return subscription.removeprefix(PREFIX).removesuffix(_SECOND) if subscription.startswith(PREFIX) else ""


def resume(connection: Connection, name: str, owner: str = "") -> MappingSubscription | None:
    """Open an existing subscription. Return None if there is no subscription with this name.

    `owner` becomes its owner. Raises MQError, with MQRC_SUBSCRIPTION_IN_USE if it is open elsewhere.
    """
    sd = MQSD(Options=_OPTIONS | cmqc.MQSO_RESUME, SubName=name, SubUserData=owner)
    try:
        handle, queue = connection.subscribe(sd)
        if owner and sd.SubUserData != owner:
            # The mapping was moved from another shard. IBM MQ alters a subscription only if it is not open.
            connection.close(handle, cmqc.MQCO_KEEP_SUB)
            connection.close(queue)
            sd = MQSD(
                Options=_OPTIONS | cmqc.MQSO_ALTER,
                SubName=name,
                ObjectString=sd.ResObjectString,
                SubUserData=owner,
                SubLevel=1,
            )
            handle, queue = connection.subscribe(sd)
    except MQError as error:
        if error.reason == cmqc.MQRC_NO_SUBSCRIPTION:
            return None
        raise
    return MappingSubscription(name, sd.ResObjectString, handle, queue)


def create(connection: Connection, name: str, topic_filter: str, owner: str = "") -> MappingSubscription:
    """Create a subscription. It delivers matching retained publications first. Raises MQError.

    `owner` identifies the bridge among those on the same queue manager.
    """
    sd = MQSD(
        Options=_OPTIONS | cmqc.MQSO_CREATE,
        SubName=name,
        ObjectString=topic_filter,
        SubUserData=owner,
        SubLevel=1,
        RetainAsPublished=True,
    )
    handle, queue = connection.subscribe(sd)
    return MappingSubscription(name, topic_filter, handle, queue)


def depth(connection: Connection, queue: int) -> int:
    """Return the number of messages on a queue that is open for inquiry (CURDEPTH). Raises MQError."""
    (number,), _ = connection.inquire(queue, (cmqc.MQIA_CURRENT_Q_DEPTH,))
    return number


def remove(connection: Connection, subscription: MappingSubscription) -> int:
    """Remove an open subscription and its queue. Return the number of messages discarded. Raises MQError."""
    number = depth(connection, subscription.queue)
    connection.close(subscription.handle, cmqc.MQCO_REMOVE_SUB)
    connection.close(subscription.queue)
    return number


def remove_subscription(connection: Connection, mapping: str) -> int:
    """Remove the subscriptions of a deleted mapping. Return the number of messages discarded. Raises MQError."""
    number = 0
    for name in names(mapping):
        subscription = resume(connection, name)
        if subscription is None:
            continue
        count = remove(connection, subscription)
        if count:
            log.warning(
                "MQB5204W removed subscription %r for %s with its mapping, and %d waiting messages",
                name,
                subscription.topic_filter,
                count,
            )
        else:
            log.info("MQB5203I removed subscription %r for %s with its mapping", name, subscription.topic_filter)
        number += count
    return number


def mapping_subscriptions(connection: Connection, owner: str = "") -> set[str]:
    """Return the names of the bridge's mappings that have subscriptions on the queue manager. Raises MQError."""
    entries = connection.subscriptions(PREFIX + "*")
    return {mapping for entry in entries if (mapping := mapping_of(entry.name)) and entry.user_data == owner}


class DuplicatePublications:
    """Detects publications that both the former and the new subscription of a mapping deliver."""

    def __init__(self) -> None:
        #: MsgId -> digest of the content. A message delivered again after a backout counts once
        self._delivered: dict[bytes, bytes] = {}
        #: MsgIds of the new subscription's messages that were dropped and may be delivered again after a backout
        self._dropped: set[bytes] = set()
        self._counts: Counter[bytes] | None = None

    def add_delivered(self, messages: Iterable[Got]) -> None:
        """Record messages from the former subscription."""
        for message in messages:
            self._delivered[message.md.MsgId] = _content_of(message)

    def without_delivered(self, publications: Iterable[Got]) -> list[Got]:
        """Return the messages from the new subscription that the former subscription has not delivered, in order."""
        if self._counts is None:
            self._counts = Counter(self._delivered.values())
        messages = []
        for message in publications:
            if message.md.MsgId not in self._dropped:
                content = _content_of(message)
                if not self._counts[content]:
                    messages.append(message)
                    continue
                self._counts[content] -= 1
                self._dropped.add(message.md.MsgId)
        return messages


def _content_of(message: Got) -> bytes:
    """Return a digest of the data and MQMD fields that are the same in all deliveries of a publication."""
    md = message.md
    fields = (md.PutDate, md.PutTime, md.PutApplName, md.UserIdentifier, md.Format, md.ReplyToQ)
    return hashlib.blake2b(b"\0".join((*fields, message.data)), digest_size=16).digest()


#: Seconds between checks of the new subscription while the topic filter changes.
CHECK_INTERVAL = 0.25
#: Reason codes for a source that is open elsewhere. These errors are temporary.
OPENED_ELSEWHERE = frozenset((cmqc.MQRC_OBJECT_IN_USE, cmqc.MQRC_SUBSCRIPTION_IN_USE))
_QUEUE = cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
_SHARED = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_FAIL_IF_QUIESCING
_GET = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2 | cmqc.MQGMO_FAIL_IF_QUIESCING
_BROWSE = cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2 | cmqc.MQGMO_FAIL_IF_QUIESCING
_BROWSE_NEW = _BROWSE | cmqc.MQGMO_UNMARKED_BROWSE_MSG | cmqc.MQGMO_MARK_BROWSE_HANDLE
_GET_BROWSED = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_MSG_UNDER_CURSOR | cmqc.MQGMO_FAIL_IF_QUIESCING | GLANCE


class ConsumerSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a consumer: a queue or, if `queue` is blank, the publications to `topic_filter`."""

    #: name of the mapping
    mapping: str
    #: identifies the bridge among those on the same queue manager
    owner: str = ""
    queue: str = ""
    #: topic-based wildcards, as in MQTT
    topic_filter: str = ""
    #: queue of the stored requests to which the messages on `queue` are replies
    requests_queue: str = ""


class MessageConsumer:
    """Gets messages for one mapping on one connection. The source is open for exclusive use.

    Gets are under syncpoint. The caller commits or backs out, and then calls `ended`. Message data is not converted, and
    properties are returned in an RFH2.

    If the topic filter of the mapping has changed, the backlog of the former filter comes first. The former subscription is
    removed when its queue is empty. Until then, publications arrive via the former filter. If the mapping stops or loses its
    connection during the switch, a publication that matches both filters may be delivered twice.
    """

    def __init__(self, connection: Connection, source: ConsumerSource) -> None:
        """Open the source. Raises MQError. A reason code in OPENED_ELSEWHERE is temporary."""
        self._connection = connection
        self._source = source
        #: subscriptions for former topic filters of the mapping
        self._former: list[MappingSubscription] = []
        self._subscription: MappingSubscription | None = None
        self._queues: list[int] = []
        #: handle of `requests_queue`
        self._requests: int | None = None
        #: set during the switch from one subscription to another
        self._duplicates: DuplicatePublications | None = None
        #: messages were got during a switch and are not yet committed
        self._uncommitted = False
        #: the next `browse` begins at the front of the queue
        self._at_front = True
        #: `browse` was called: messages may be marked
        self.has_browsed = False
        if source.queue:
            self._queues = [connection.open(MQOD(ObjectName=source.queue), _QUEUE)]
        try:
            if source.requests_queue:
                self._requests = connection.open(MQOD(ObjectName=source.requests_queue), _SHARED)
            if not source.queue:
                self._subscribe()
        except MQError as error:
            if error.reason not in LOST:
                self.close()  # otherwise the next attempt would find these objects in use
            raise

    def _subscribe(self) -> None:
        source = self._source
        for name in names(source.mapping):
            subscription = resume(self._connection, name, source.owner)
            if subscription is not None and subscription.topic_filter == source.topic_filter:
                self._subscription = subscription
            elif subscription is not None:
                self._former.append(subscription)
                log.info(
                    "MQB5201I mapping %s: first moving messages that wait for topics %s, its previous source",
                    source.mapping,
                    subscription.topic_filter,
                )
        if not self._subscriptions:
            self._subscription = create(self._connection, names(source.mapping)[0], source.topic_filter, source.owner)
        self._update_queues()

    @property
    def _subscriptions(self) -> list[MappingSubscription]:
        """The open subscriptions, in the order in which they are drained."""
        return [*self._former] if self._subscription is None else [*self._former, self._subscription]

    def _update_queues(self) -> None:
        self._queues = [subscription.queue for subscription in self._subscriptions]

    # Messages --------------------------------------------------------------------------------------------------------

    def take(self, messages: int, size: int, seconds: float, wait: float) -> list[Got]:
        """Get available messages in order, until there are `messages` messages or `size` bytes, or `seconds` after the first.

        Wait up to `wait` seconds for the first message only. The last message may exceed `size`. If this raises MQError,
        messages got before are in the unit of work.
        """
        until, remaining = time.monotonic() + wait, wait
        pause = 0.0
        while True:
            changing = bool(self._former) and not self._uncommitted
            batch = self._take(messages, size, seconds, min(remaining, pause) if changing else remaining)
            if self._former or self._duplicates is not None:
                batch = self._without_duplicates(batch)
            if batch:
                return batch
            remaining = max(0.0, until - time.monotonic())
            if changing and self._continue_switch():
                continue
            if remaining <= 0 or not (self._former or self._duplicates is not None):
                return []
            pause = CHECK_INTERVAL

    def _take(self, messages: int, size: int, seconds: float, wait: float) -> list[Got]:
        queue = self._queues[0]
        options = GetOptions(Options=_GET)
        if wait:
            options = GetOptions(Options=_GET | cmqc.MQGMO_WAIT, WaitInterval=max(1, int(wait * 1000)))
        batch: list[Got] = []
        length, until = 0, 0.0
        get = self._connection.get
        while len(batch) < messages and length < size:
            try:
                message = get(queue, options)
            except MQError as error:
                if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE or (batch and error.reason not in LOST):
                    break  # the next call raises the error
                raise
            if not batch:
                until = time.monotonic() + seconds
                options = GetOptions(Options=_GET)
            batch.append(message)
            length += len(message.data)
            if time.monotonic() >= until:
                break
        return batch

    def announce(self, arrived: Callable[[], None]) -> bool:
        """Call `arrived` once, on any thread, when messages arrive. Raises MQError.

        Return False if the queue manager does not announce messages, or while the topic filter changes.
        """
        connection = announcing(self._connection)
        if self._former or self._duplicates is not None or connection is None:
            return False
        connection.announce(self._queues[0], arrived)
        return True

    def take_exactly(self, msg_ids: Iterable[bytes]) -> list[Got]:
        """Get messages by MsgId, in this order. Skip missing ones. Raises MQError."""
        batch = []
        for msg_id in msg_ids:
            options = GetOptions(Options=_GET, MatchOptions=cmqc.MQMO_MATCH_MSG_ID, MsgId=msg_id)
            for queue in self._queues:
                if (message := get_or_none(self._connection, queue, options)) is not None:
                    batch.append(message)
                    break
        self._uncommitted = self._uncommitted or bool(batch and self._former)
        return batch

    def request_of(self, answer: MQMD) -> Message | None:
        """Get the stored request for a reply, in the same unit of work, or return None. Raises MQError."""
        if self._requests is None or answer.CorrelId == cmqc.MQCI_NONE:
            return None
        options = GetOptions(Options=_GET, MatchOptions=cmqc.MQMO_MATCH_MSG_ID, MsgId=answer.CorrelId)
        message = get_or_none(self._connection, self._requests, options)
        return None if message is None else Message(message.md, message.data)

    def ended(self) -> None:
        """Record that the unit of work was committed or backed out."""
        self._uncommitted = False

    @property
    def depth(self) -> int:
        """The number of messages on the source queues (CURDEPTH). Raises MQError."""
        return sum(depth(self._connection, queue) for queue in self._queues)

    # Browsing --------------------------------------------------------------------------------------------------------

    @property
    def may_browse(self) -> bool:
        """Whether `browse` is possible: the source is one subscription, and no switch is in progress."""
        return self._subscription is not None and not self._former and self._duplicates is None

    def browse(self, wait: float = 0.0) -> Got | None:
        """Browse a message that this consumer has not browsed before. Return None if no message arrives in `wait` seconds.

        The queue manager keeps the marks (IBM MQ documentation, "MQGMO - Get-message options", MQGMO_MARK_BROWSE_HANDLE),
        so a call does not scan the backlog again. Raises MQError.
        """
        options = _BROWSE_NEW | (cmqc.MQGMO_BROWSE_FIRST if self._at_front else cmqc.MQGMO_BROWSE_NEXT)
        interval = 0
        if wait:
            options |= cmqc.MQGMO_WAIT
            interval = max(1, int(wait * 1000))
        self.has_browsed = True
        message = get_or_none(self._connection, self._queues[0], GetOptions(Options=options, WaitInterval=interval))
        self._at_front = False
        return message

    def browse_from_front(self) -> None:
        """Begin the next `browse` at the front, for messages committed before the cursor or with a higher priority."""
        self._at_front = True

    def browse_again(self, token: bytes) -> Got | None:
        """Browse a message by its MsgToken. Return None if it is no longer on the queue. Raises MQError."""
        self._at_front = True
        options = GetOptions(
            Options=_BROWSE | cmqc.MQGMO_BROWSE_FIRST, MatchOptions=cmqc.MQMO_MATCH_MSG_TOKEN, MsgToken=token
        )
        return get_or_none(self._connection, self._queues[0], options)

    def take_browsed(self) -> None:
        """Get the message that was browsed last, under syncpoint. Ignore an expired message. Raises MQError."""
        try:
            self._connection.get(self._queues[0], GetOptions(Options=_GET_BROWSED, MaxLength=0))
        except MQError as error:
            if error.reason != cmqc.MQRC_NO_MSG_UNDER_CURSOR:
                raise

    # A change of the topic filter ------------------------------------------------------------------------------------

    def _without_duplicates(self, messages: list[Got]) -> list[Got]:
        """Return messages got during a switch, without those that the former subscription has delivered."""
        if not messages:
            if not self._former and not self._uncommitted:
                self._duplicates = None  # all duplicates have been delivered
            return messages
        self._uncommitted = True
        if self._duplicates is None:
            return messages
        if self._former:
            self._duplicates.add_delivered(messages)
            return messages
        return self._duplicates.without_delivered(messages)

    def _continue_switch(self) -> bool:
        """Create the new subscription or, in the next call, remove the former one. Return False if the former is not empty.

        Call this when no message is available from the former subscription. Between the two steps, both deliver. Uncommitted
        publications that were put before the first step arrive only via the former. Its depth includes them.
        """
        former = self._former[0]
        if self._subscription is None and len(self._former) == 1:
            free = next(name for name in names(self._source.mapping) if name != former.name)
            self._subscription = create(self._connection, free, self._source.topic_filter, self._source.owner)
            self._duplicates = DuplicatePublications()
        elif depth(self._connection, former.queue):
            return False
        else:
            remove(self._connection, former)
            self._former.pop(0)
            log.info("MQB5202I mapping %s no longer reads from topics %s", self._source.mapping, former.topic_filter)
        self._update_queues()
        return True

    # The end ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the source and keep its messages. Raises MQError."""
        if self._source.queue:
            self._connection.close(self._queues[0])
            if self._requests is not None:
                self._connection.close(self._requests)
        for subscription in self._subscriptions:
            self._connection.close(subscription.handle, cmqc.MQCO_KEEP_SUB)
            self._connection.close(subscription.queue)
        self._queues, self._former, self._subscription = [], [], None

    def remove(self) -> int:
        """Close the source and remove its subscriptions. Return the number of messages discarded. Raises MQError."""
        self.close()
        return 0 if self._source.queue else remove_subscription(self._connection, self._source.mapping)
