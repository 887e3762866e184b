"""The interface between the telemetry service and a queue manager: units of work as plain data.

A backend executes MQI calls on behalf of thousands of MQTT clients. The service calls its methods on the thread of the event
loop, where results also arrive. Implementations are the embedded queue manager and threads with connections to IBM MQ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from bridge.config.queue_manager import STATE_QUEUE
from bridge.histogram import Histogram
from bridge.mq.mqi import MQError
from bridge.telemetry.identity import ClientNames
from bridge.telemetry.message import Message
from bridge.telemetry.record import MessageKey, ReceivedRecord, StateKey, StateRecord
from bridge.telemetry.shard import Shard
from bridge.telemetry.subscription import SharedSubscription, SubscriptionData
from bridge.telemetry.transmission import AnyMessage, PublicationMessage, Transmission
from bridge.wire import cmqc
from bridge.wire.mq import MQXQH, MalformedHeader, byte_order_of, decode_rfh2, encode_mqxqh

if TYPE_CHECKING:
    import asyncio  # commands that need no event loop import this module

#: The empty mapping of publication indexes to reason codes.
NONE_REFUSED: Final[Mapping[int, int]] = MappingProxyType({})
#: The empty set of publication indexes.
NO_INDEXES: Final[frozenset[int]] = frozenset()


class UnitOfWork(msgspec.Struct, eq=False):
    """Publications of one client, acknowledged messages and state records. A `Completion` reports the outcome.

    All of it takes effect together, except publications that the queue manager rejects. A backend with threads uses two MQ
    units of work: one for publications and all other records, one for removals and sent records. A crash may separate them.
    """

    #: (message, RETAIN flag)
    publications: list[tuple[PublicationMessage, bool]] = []
    removals: list[Transmission] = []
    #: reason codes for which a publication is dead-lettered, in the same unit of work, instead of refused, if
    #: `Backend.reserve_dead_letter` allows it
    dead_letters: frozenset[int] = frozenset()
    #: reason codes, by index, of publications that the service refuses
    forbidden: Mapping[int, int] = NONE_REFUSED
    #: indexes of the publications in `forbidden` that are dead-lettered even if their reason code is not in `dead_letters`
    unreportable: frozenset[int] = NO_INDEXES
    #: records on SYSTEM.MQTT.PERSISTENT.STATE. None removes a record. A received record also contains the packet
    #: identifiers of this unit's publications. The backend leaves out those of refused publications.
    records: dict[StateKey, StateRecord | None] = {}
    #: matches `Completion.number`
    number: int = 0
    #: the client that gets PUBREL after the commit, or "". Such units of work of a client end in order.
    released_by: str = ""

    def dead_letters_publication(self, index: int, reason: int) -> bool:
        """Return whether a publication that is refused with this reason code is dead-lettered."""
        return reason in self.dead_letters or index in self.unreportable

    def records_without(self, refused: Mapping[int, int]) -> dict[StateKey, StateRecord | None]:
        """Return the records without the packet identifiers of refused publications (reason codes by index)."""
        if not refused:
            return self.records
        messages = [self.publications[index][0] for index in refused]
        client_id = messages[0].client_id
        packet_ids = {message.packet_id for message in messages if message.qos == 2}
        return {
            key: record.without(packet_ids)
            if isinstance(record, ReceivedRecord) and key.client_id == client_id
            else record
            for key, record in self.records.items()
        }


class Completion(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a unit of work."""

    number: int
    #: the reason code if nothing of the unit took effect, otherwise MQRC_NONE
    failure: int = 0
    #: reason codes of publications that the queue manager rejected, by index
    refusals: Mapping[int, int] = NONE_REFUSED
    #: reason codes of publications that were dead-lettered, by index
    diverted: Mapping[int, int] = NONE_REFUSED
    #: indexes of publications that the queue manager reported to match no subscription (MQRC_NO_SUBS_MATCHED)
    unmatched: Sequence[int] = ()


class Commits:
    """Counters and durations of group commits."""

    __slots__ = ("failures", "seconds", "size", "units")

    def __init__(self) -> None:
        self.units = 0
        #: bytes written
        self.size = 0
        #: groups that could not be committed
        self.failures = 0
        self.seconds = Histogram()

    def count(self, units: int, size: int, seconds: float) -> None:
        """Count a committed group of units of work. `size` is in bytes."""
        self.units += units
        self.size += size
        self.seconds.observe(seconds)

    def fail(self) -> None:
        """Count a group that could not be committed."""
        self.failures += 1

    def add(self, other: Commits) -> None:
        """Add the counters of another thread."""
        self.units += other.units
        self.size += other.size
        self.failures += other.failures
        self.seconds.add(other.seconds)


class ClientSubscription(msgspec.Struct):
    """An MQTT client's subscription on the queue manager."""

    client_id: str
    topic_filter: str
    user_data: str
    durable: bool


class SubscriptionRequest(msgspec.Struct, frozen=True):
    """A subscription that an MQTT client requests."""

    topic_filter: str
    data: SubscriptionData
    #: deliver retained publications
    retained: bool = True


class RecoveredState(msgspec.Struct):
    """State that the service recovers from the queue manager when it starts."""

    records: list[StateRecord]
    subscriptions: list[ClientSubscription]


def unreadable(msg_id: bytes, why: str, queue: str = STATE_QUEUE) -> MQError:
    """Return the error that prevents a start: an unreadable record or, on IBM MQ, a message of another program."""
    return MQError(
        cmqc.MQRC_FORMAT_ERROR,
        f"{queue} contains a message that the bridge cannot read (MsgId {msg_id.hex().upper()}): {why}; hint: MQXR also "
        "uses a queue of that name: stop MQXR and empty the queue, or run the bridge that wrote the message",
    )


Consumer = Callable[[Sequence[Transmission]], None]

T = TypeVar("T")


def resolve(future: asyncio.Future[T], result: T) -> None:
    """Resolve a future, unless it is done or cancelled."""
    if not future.done():
        future.set_result(result)


def reject(future: asyncio.Future[Any], error: BaseException) -> None:
    """Give a future an exception, unless it is done or cancelled."""
    if not future.done():
        future.set_exception(error)


class ShareLimit(msgspec.Struct, frozen=True):
    """The limit of the messages that wait for a shared subscription."""

    #: maximum number of messages
    messages: int
    #: the oldest messages beyond it are dead-lettered if there is room, otherwise discarded
    dead_letters: bool


class Silence(NamedTuple):
    """A queue manager does not answer."""

    #: beginning, in seconds since the epoch
    since: float
    #: the error of the last attempt to connect, or the statement that a reply is missing
    why: str


class DividedShares(Protocol):
    """Shared subscriptions whose members several bridges serve. Their messages arrive only if this bridge requests them."""

    #: the limit of messages that wait for a shared subscription outside of the bridges
    share_limit: ShareLimit
    #: called on the event loop, with the remote queue manager of a shared subscription, when the requested messages arrive
    on_share_received: Callable[[str], None]

    def request_share(self, share: SharedSubscription, messages: int) -> None:
        """Deliver at most this number of messages of a shared subscription, once. Replaces the previous request."""

    def return_to_share(
        self, share: SharedSubscription, waiting: Sequence[Transmission]
    ) -> asyncio.Future[Sequence[Transmission]]:
        """Return messages that no member here can take, for members at other bridges. The result contains the others."""

    def return_at_last(self, share: SharedSubscription, waiting: Sequence[Transmission]) -> None:
        """Return messages of a shared subscription that has no members here. Retry until the messages are returned."""

    def return_unclaimed(self, name: str, waiting: Sequence[Transmission]) -> None:
        """Return messages of a shared subscription without members here. `name` is its remote queue manager.

        They arrived after the last member had left, or the last member left without acknowledging them.
        """

    def leave_share(self, share: SharedSubscription, waiting: Sequence[Transmission]) -> asyncio.Future[list[int]]:
        """Remove a shared subscription with its messages. If members at other bridges remain, return the messages instead.

        Return a reason code after the first attempt. Messages that could not be returned follow later.
        """


class Backend(Protocol):
    """A queue manager as the telemetry service uses it."""

    #: `start` delivers the messages on the transmission queue before it returns
    hands_over_at_once: bool
    #: removals keep up with acknowledgements, so limits.removal_backlog does not apply
    removes_at_once: bool
    #: the queue manager names of clients
    client_names: ClientNames
    #: name of the queue of messages for clients
    transmission_queue: str
    shard: Shard
    """The clients that this bridge serves."""
    #: None if no other bridge serves members of the same shared subscriptions
    divided_shares: DividedShares | None
    #: called on the event loop with client identifier, filter and reason code when a clean session's subscription is lost
    on_dropped: Callable[[str, str, int], None]
    #: called with an option of `limits`, the mapping or user that reached it, and the number of publications rejected for it
    on_limit: Callable[[str, str, int], None]
    #: called on the event loop with the seconds from the submission of removals to their commit
    on_removed: Callable[[float], None]
    #: called, on any thread, with client identifier and length of a rejected publication. Returns whether to dead-letter it
    reserve_dead_letter: Callable[[str, int], bool]
    #: called on the event loop with finished units of work, once for each, in the order that `submit` promises
    on_completed: Callable[[Sequence[Completion]], None]

    @property
    def available(self) -> bool:
        """Whether the queue manager is reachable and accepts persistent messages."""

    @property
    def depth(self) -> int:
        """The number of messages on the transmission queue that the bridge knows."""

    @property
    def unread(self) -> int:
        """The approximate number of messages on the transmission queue that were not yet delivered to the consumer."""

    @property
    def outage(self) -> bool:
        """Whether the queue manager has been unreachable for so long that clients should fail over to a standby."""

    @property
    def failures(self) -> Sequence[str]:
        """Descriptions of failures in the last minute other than a lost queue manager."""

    def count_commits(self) -> Sequence[Commits]:
        """Count commits from now on. Return the counters, one for each thread that commits."""

    @property
    def subscriptions(self) -> Sized:
        """The subscriptions that this process serves. Their number limits the deliveries of one publication."""

    def weight(self, topic: str) -> int:
        """Return the approximate number of deliveries of a publication to a topic in this process, at least 1."""

    async def caught_up(self) -> None:
        """Wait until the messages that were on the transmission queue at `start` have been delivered."""

    async def open(self) -> RecoveredState:
        """Open the transmission queue for exclusive input and recover state. Wait while another bridge has the queue open.

        Raises MQError if an object is missing or has the wrong type, or if a record cannot be read.
        """

    def start(self, consumer: Consumer) -> None:
        """Deliver the messages of the transmission queue to `consumer`, in batches, oldest first."""

    def submit(self, unit: UnitOfWork) -> Mapping[int, int]:
        """Run a unit of work. Return the reason codes, by index, of publications that are refused immediately.

        The publications of one client take effect and complete in the order submitted. So do removals. A backend with threads
        may reorder units of different clients, and the publications and removals of one client.
        """

    def admit(self, client_id: str, user: str) -> asyncio.Future[int]:
        """Check whether a client may receive messages as `user`: MQRC_NONE, MQRC_NOT_AUTHORIZED or another reason code.

        Results for one client identifier arrive in the order of the calls. This future, and those that the methods below
        return, may already be done.
        """

    def subscribe(
        self, client_id: str, requests: Sequence[SubscriptionRequest], *, durable: bool, user: str, member: str = ""
    ) -> asyncio.Future[list[int]]:
        """Create or alter the subscriptions `ClientIdentifier:Topic name`. Return a reason code for each.

        For a shared subscription (`bridge.telemetry.subscription`), `client_id` is its remote queue manager, the filter
        includes the share name, and `member` is the client that joins. Publications that the client makes after this call
        take effect after its subscriptions.

        The queue manager checks the authorities of `user`, or of the bridge's own user if `user` is blank. Retained
        publications, if requested, are delivered like other messages. A backend with threads may deliver them before the
        result.
        """

    def authorize(
        self, client_id: str, requests: Sequence[SubscriptionRequest], *, user: str, changed: bool, member: str = ""
    ) -> asyncio.Future[list[int]]:
        """Check whether `user` may keep durable subscriptions unchanged. Return a reason code for each.

        `changed` means that the subscriptions were created or last checked for another user. For the other arguments, see
        `subscribe`.
        """

    def refuse(self, client_id: str, refused: bool) -> None:
        """Start or stop rejecting publications that match a client's subscriptions. Embedded queue manager only."""

    def unsubscribe(
        self, client_id: str, filters: Sequence[str], *, ended: bool = False, handed_over: bool = False
    ) -> asyncio.Future[list[int]]:
        """Remove subscriptions of a client. Return a reason code for each, MQRC_NONE if the subscription is gone.

        A filter that the client did not subscribe to is not an error. With `handed_over`, the result arrives after the last
        message for these subscriptions has been delivered. `ended` means that the session has ended: remaining messages for
        these subscriptions are not delivered (MQTT-3.1.2-6).
        """

    def dead_letter(
        self, transmission: Transmission, reason: int, on_moved: Callable[[bool], None] = lambda _moved: None
    ) -> None:
        """Move a message that no client can receive to the dead-letter queue, with an MQDLH that contains the reason.

        `on_moved` is called on the event loop: with True after the commit, or with False if the message stays on the
        transmission queue. The log explains why.
        """

    def flush(self) -> asyncio.Future[None]:
        """Wait until all units of work submitted so far have completed."""

    def stop(self) -> asyncio.Future[None]:
        """Close the transmission queue, and wait until all units of work have completed."""

    def abandon(self) -> asyncio.Future[None]:
        """Close the transmission queue immediately. Waiting work is discarded and not reported."""


SEGMENT: Final = cmqc.MQMF_SEGMENT | cmqc.MQMF_LAST_SEGMENT

#: Client identifier, RemoteQName, GroupId and MsgSeqNumber of a segmented message.
_Key: TypeAlias = tuple[str, str, bytes, int]


class JoinedMessage(msgspec.Struct, eq=False):
    """A complete message as a Transmission: the first segment, with the data of all segments."""

    client_id: str
    remote_queue: str
    message: AnyMessage
    topic: str | None
    user_data: str | None
    retained: bool
    persistent: bool
    msg_number: int
    put_time: float
    segments: Sequence[Transmission]

    @property
    def key(self) -> MessageKey:
        """The key of the first segment."""
        return self.segments[0].key

    @property
    def put_at(self) -> bytes:
        """MQMD.PutDate and PutTime of the first segment."""
        return self.segments[0].put_at

    @property
    def raw(self) -> bytes | None:
        """The data with MQXQH, as on IBM MQ's transmission queue without segmentation, or None if a segment has no data."""
        if self.segments[0].raw is None:
            return None
        md = msgspec.structs.replace(self.message.md, Version=cmqc.MQMD_VERSION_1)
        header = MQXQH(RemoteQName=self.remote_queue.encode(), RemoteQMgrName=self.client_id.encode(), MsgDesc=md)
        return encode_mqxqh(header) + self.message.data

    @property
    def expired(self) -> bool:
        """Whether a segment has expired, so that the queue manager may have removed it."""
        return any(segment.expired for segment in self.segments)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the first segment expires, or None if no segment expires."""
        return min(
            [seconds for segment in self.segments if (seconds := segment.seconds_left) is not None], default=None
        )


class SegmentJoiner:
    """Passes batches to a consumer, and delays segments until their message is complete. Call it on one thread only."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._incomplete: dict[_Key, list[Transmission]] = {}

    def __call__(self, batch: Sequence[Transmission]) -> None:
        """Pass complete messages to the consumer. A joined message takes the position of its last segment to arrive."""
        for message in batch:
            if message.message.md.MsgFlags & SEGMENT:
                batch = self._joined(batch)
                break
        if batch:
            self._consumer(batch)

    def _joined(self, batch: Sequence[Transmission]) -> list[Transmission]:
        for key, segments in list(self._incomplete.items()):
            if any(segment.expired for segment in segments):
                del self._incomplete[key]  # cannot become complete: the queue manager discards expired segments
        whole: list[Transmission] = []
        for message in batch:
            md = message.message.md
            if not md.MsgFlags & SEGMENT:
                whole.append(message)
                continue
            key = (message.client_id, message.remote_queue, md.GroupId, md.MsgSeqNumber)
            segments = self._incomplete.setdefault(key, [])
            segments.append(message)
            if md.MsgFlags & cmqc.MQMF_LAST_SEGMENT or any(_is_last(other) for other in segments):
                segments.sort(key=_offset)
                if _are_whole(segments):
                    whole.append(_join(segments))
                    del self._incomplete[key]
        return whole


def separate(removals: Sequence[Transmission]) -> Sequence[Any]:
    """Return the messages as they are on the transmission queue: joined messages are replaced by their segments."""
    for transmission in removals:
        if type(transmission) is JoinedMessage:
            break
    else:
        return removals
    return [
        part
        for transmission in removals
        for part in (transmission.segments if isinstance(transmission, JoinedMessage) else (transmission,))
    ]


def _offset(segment: Transmission) -> int:
    return segment.message.md.Offset


def _is_last(segment: Transmission) -> bool:
    return bool(segment.message.md.MsgFlags & cmqc.MQMF_LAST_SEGMENT)


def _are_whole(segments: Sequence[Transmission]) -> bool:
    """Return whether segments, in order of Offset, form a complete message."""
    places = {0}
    for segment in segments:
        if _offset(segment) not in places:
            return False
        end = _offset(segment) + segment.message.length
        # An application's RFH2 counts towards the Offset. An RFH2 that the queue manager created from properties does not.
        places = {end, end - _rfh2_length(segment.message)} if not _offset(segment) else {end}
    return _is_last(segments[-1])


def _rfh2_length(message: Any) -> int:
    if message.md.Format != cmqc.MQFMT_RF_HEADER_2:
        return 0
    try:
        return decode_rfh2(message.data, byte_order=byte_order_of(message.md.Encoding, "MQRFH2")).StrucLength
    except MalformedHeader:
        return 0


def _join(segments: Sequence[Transmission]) -> JoinedMessage:
    first = segments[0]
    md = msgspec.structs.replace(
        first.message.md, MsgFlags=first.message.md.MsgFlags & ~SEGMENT, GroupId=cmqc.MQGI_NONE, Offset=0
    )
    data = b"".join([segment.message.put_data for segment in segments])
    return JoinedMessage(
        first.client_id,
        first.remote_queue,
        Message(md, data),
        first.topic,
        first.user_data,
        first.retained,
        first.persistent,
        first.msg_number,
        first.put_time,
        tuple(segments),
    )
