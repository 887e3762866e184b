"""The interface between the telemetry service and a queue manager: units of work as plain data.

A backend executes MQI calls on behalf of thousands of MQTT clients. Everything is called on the thread of the event
loop, and answers arrive there. Implementations are the embedded queue manager and threads with connections to IBM MQ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from bridge.administration.histogram import Histogram
from bridge.config.queue_manager import STATE_QUEUE
from bridge.mq.mqi import MQError
from bridge.telemetry.identity import ClientNames
from bridge.telemetry.record import ReceivedRecord, StateKey, StateRecord
from bridge.telemetry.subscription import SubscriptionData
from bridge.telemetry.transmission import PublicationMessage, Transmission
from bridge.wire import cmqc

if TYPE_CHECKING:
    import asyncio  # commands that need no event loop import this module

NONE_FORBIDDEN: Final[frozenset[int]] = frozenset()


class UnitOfWork(msgspec.Struct, eq=False):
    """Publications of one client, transmissions that clients have acknowledged, and facts that must outlive a crash.

    All of it takes effect together, but for publications that the queue manager refuses. Where threads do it, publications
    and records of what was received are one unit of work of the queue manager, removals and records of what was sent another:
    a crash may leave the one without the other. It is plain data: what becomes of it is told by a `Completion`.
    """

    #: (message, RETAIN flag)
    publications: list[tuple[PublicationMessage, bool]] = []
    removals: list[Transmission] = []
    #: reasons for which a publication goes to the dead-letter queue, in the same unit, and is not refused
    dead_letters: frozenset[int] = frozenset()
    #: publications, by index, that the client may not make: they are refused with MQRC_NOT_AUTHORIZED
    forbidden: frozenset[int] = NONE_FORBIDDEN
    #: records on SYSTEM.MQTT.PERSISTENT.STATE; None removes one. A record of what was received names the message ids of
    #: the unit's own publications too; those of publications that are refused, the backend leaves out
    records: dict[StateKey, StateRecord | None] = {}
    #: by which its completion is known
    number: int = 0

    def records_without(self, refused: Mapping[int, int]) -> dict[StateKey, StateRecord | None]:
        """Return the records as they are to be written where publications are refused, by index and reason.

        They must not say that these were received.
        """
        if not refused:
            return self.records
        messages = [self.publications[index][0] for index in refused]
        client_id = messages[0].client_id
        message_ids = {message.message_id for message in messages if message.qos == 2}
        return {
            key: record.without(message_ids)
            if isinstance(record, ReceivedRecord) and key.client_id == client_id
            else record
            for key, record in self.records.items()
        }


#: No publication is refused: publications, by index, and their reason codes.
NONE_REFUSED: Final[Mapping[int, int]] = MappingProxyType({})


class Completion(msgspec.Struct, frozen=True, gc=False):
    """What has become of a unit of work."""

    number: int
    #: the reason for which nothing of the unit took effect, or MQRC_NONE
    failure: int = 0
    #: publications that the queue manager did not take, by index, with the reason
    refusals: Mapping[int, int] = NONE_REFUSED
    #: publications that went to the dead-letter queue, by index, with the reason
    diverted: Mapping[int, int] = NONE_REFUSED
    #: publications, by index, that no subscription is for (MQRC_NO_SUBS_MATCHED), where the queue manager says so
    unmatched: Sequence[int] = ()


class Commits:
    """Groups of units of work that were committed together, and how long each commit took."""

    __slots__ = ("failures", "groups", "seconds", "size", "units")

    def __init__(self) -> None:
        self.groups = 0
        self.units = 0
        #: bytes written
        self.size = 0
        #: groups that could not be committed
        self.failures = 0
        self.seconds = Histogram()

    def count(self, units: int, size: int, seconds: float) -> None:
        """Count a group that is committed."""
        self.groups += 1
        self.units += units
        self.size += size
        self.seconds.observe(seconds)

    def fail(self) -> None:
        """Count a group that could not be committed."""
        self.failures += 1

    def add(self, other: Commits) -> None:
        """Add what another thread has counted."""
        self.groups += other.groups
        self.units += other.units
        self.size += other.size
        self.failures += other.failures
        self.seconds.add(other.seconds)


class ClientSubscription(msgspec.Struct):
    """A subscription of an MQTT client as the queue manager holds it."""

    client_id: str
    topic_filter: str
    user_data: str
    durable: bool


class SubscriptionRequest(msgspec.Struct, frozen=True):
    """A subscription that an MQTT client asks for."""

    topic_filter: str
    data: SubscriptionData
    #: retained publications are handed over for it
    retained: bool = True


class Recovered(msgspec.Struct):
    """What the queue manager still knows when the service starts."""

    records: list[StateRecord]
    subscriptions: list[ClientSubscription]


def unreadable(msg_id: bytes, why: str) -> MQError:
    """Return the error that ends the start: a record cannot be read, or (on IBM MQ) its queue has somebody else's message."""
    return MQError(
        cmqc.MQRC_FORMAT_ERROR,
        f"{STATE_QUEUE} holds a message that the bridge cannot read (MsgId {msg_id.hex().upper()}): {why}; MQXR uses a queue "
        "of that name too: stop it and empty the queue, or run the bridge that has written the message",
    )


Consumer = Callable[[Sequence[Transmission]], None]

T = TypeVar("T")


def resolve(future: asyncio.Future[T], result: T) -> None:
    """Resolve a future, unless whoever waited for it has been cancelled."""
    if not future.done():
        future.set_result(result)


class Backend(Protocol):
    """What the telemetry service asks of a queue manager."""

    #: `start` hands over what lies on the transmission queue before it returns
    hands_over_at_once: bool
    #: `refuse` works: the queue manager can reject publications because of one of their subscribers
    refuses_for_clients: bool
    #: the queue manager names of clients
    client_names: ClientNames
    #: name of the queue where messages for clients wait
    transmission_queue: str
    #: called on the loop with client identifier, filter and reason when a subscription of a clean session is lost for good
    on_dropped: Callable[[str, str, int], None]
    #: called on the loop with units of work that have ended, each once, in the order that `submit` promises
    on_completed: Callable[[Sequence[Completion]], None]

    @property
    def available(self) -> bool:
        """Return whether the queue manager answers, and takes what is persistent."""

    @property
    def outage(self) -> bool:
        """Whether the queue manager has been unreachable for so long that clients are better off with a standby."""

    @property
    def failures(self) -> Sequence[str]:
        """Return what has failed in the last minute though the queue manager answers, in words."""

    def count_commits(self) -> Sequence[Commits]:
        """Count commits from now on; return where, for each thread that makes them."""

    @property
    def subscriptions(self) -> Sized:
        """The subscriptions that this process makes deliveries for. No publication has more deliveries."""

    def weight(self, topic: str) -> int:
        """Return about how many deliveries a publication to a topic causes in this process, at least 1."""

    async def caught_up(self) -> None:
        """Return when what lay on the transmission queue at `start` is handed over."""

    async def open(self) -> Recovered:
        """Open the transmission queue for exclusive input, waiting while another bridge has it, and recover.

        Raises MQError when an object is missing or of the wrong type, or a record cannot be read.
        """

    def start(self, consumer: Consumer) -> None:
        """Hand the messages of the transmission queue, in batches, to `consumer` from now on.

        Messages already on the queue come first.
        """

    def submit(self, unit: UnitOfWork) -> Mapping[int, int]:
        """Run a unit of work.

        What one client publishes takes effect, and is completed, in the order given, and so are removals. Units of different
        clients, or publications of a client and its removals, may end in another order where threads do them.
        Return the publications that are refused, as far as that is known at once: units given from now on know of it.
        """

    def admit(self, client_id: str, user: str) -> asyncio.Future[int]:
        """Ask whether a client may receive messages as `user`: MQRC_NONE, MQRC_NOT_AUTHORIZED or another reason.

        Answers for one client identifier come in the order asked. As with the methods below, the answer may be there at once.
        """

    def subscribe(
        self, client_id: str, requests: Sequence[SubscriptionRequest], *, durable: bool, user: str, member: str = ""
    ) -> asyncio.Future[list[int]]:
        """Make or alter the subscriptions `ClientIdentifier:Topic name`; return a reason code for each.

        The subscription of a share (`bridge.telemetry.subscription`) has its remote queue manager in the place
        of a client identifier, and the filter as clients write it. `member` is the client that joins it. Publications that
        it makes after this call take effect after its subscriptions.

        `user` is the identity that the queue manager asks its authorities for; blank is the bridge's own.
        Retained publications are handed over as other messages are, where asked for; where threads do it, perhaps before
        the answer.
        """

    def authorize(
        self, client_id: str, requests: Sequence[SubscriptionRequest], *, user: str, changed: bool, member: str = ""
    ) -> asyncio.Future[list[int]]:
        """Check whether `user` may keep durable subscriptions as they are; return a reason code for each.

        `changed` tells whether the subscriptions were made or last checked for another user. Other arguments are those of
        `subscribe`.
        """

    def refuse(self, client_id: str, refused: bool) -> None:
        """Refuse publications that would go to a client, or do so no more. The embedded queue manager's only."""

    def unsubscribe(
        self, client_id: str, filters: Sequence[str], *, ended: bool = False, handed_over: bool = False
    ) -> asyncio.Future[list[int]]:
        """Remove subscriptions of a client; return a reason code for each, MQRC_NONE if the subscription is gone.

        A filter that the client did not subscribe to is not an error.

        With `handed_over`, the answer comes only after the last message for these subscriptions has been handed over.

        `ended` says that the session has ended: what still comes for these subscriptions is for nobody, and is not handed
        over (MQTT-3.1.2-6).
        """

    def dead_letter(self, transmission: Transmission, reason: int) -> bool:
        """Move a message that no client can take to the dead-letter queue, behind an MQDLH with the reason.

        Return False if the message stays where it is, which the log explains.
        """

    def flush(self) -> asyncio.Future[None]:
        """Wait until every unit given so far has ended."""

    def stop(self) -> asyncio.Future[None]:
        """Close the transmission queue, and wait until every unit given has ended."""
