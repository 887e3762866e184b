"""What the telemetry service asks of a queue manager: whole units of work as plain data, many publications to a commit.

IBM MQ's own agents execute MQI calls on behalf of applications; a backend executes them on behalf of thousands of MQTT
clients. It is asynchronous: everything is called on the event loop's thread, and answers come back there. What is below
(the embedded queue manager in this process, or threads that own connections to IBM MQ) is not the caller's concern.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Protocol

import msgspec

from bridge.config.queues import STATE_QUEUE
from bridge.mq.commits import Commits
from bridge.mq.errors import MQError
from bridge.mq.unit_of_work import Completion, UnitOfWork
from bridge.telemetry.identity import ClientNames
from bridge.telemetry.record import StateRecord
from bridge.telemetry.subscription import SubscriptionData
from bridge.telemetry.transmission import Transmission
from bridge.wire import cmqc


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

    def admit(self, client_id: str, user: str, done: Callable[[int], None]) -> None:
        """Ask whether a client may receive messages as `user`: `done` gets MQRC_NONE, MQRC_NOT_AUTHORIZED or another reason.

        It may be called before this returns. Answers for one client identifier come in the order asked.
        """

    def subscribe(
        self,
        client_id: str,
        requests: Sequence[SubscriptionRequest],
        done: Callable[[list[int]], None],
        *,
        durable: bool,
        user: str,
        member: str = "",
    ) -> None:
        """Make or alter the subscriptions `ClientIdentifier:Topic name`; `done` gets a reason code for each.

        The subscription of a share (`bridge.telemetry.subscription`) has its remote queue manager in the place
        of a client identifier, and the filter as clients write it; `member` is the client that joins it, whose publications
        come behind.

        `user` is the identity that the queue manager asks its authorities for; blank is the bridge's own.
        Retained publications are handed over as other messages are, where asked for; where threads do it, perhaps before
        `done` is called.
        """

    def authorize(
        self,
        client_id: str,
        requests: Sequence[SubscriptionRequest],
        done: Callable[[list[int]], None],
        *,
        user: str,
        changed: bool,
        member: str = "",
    ) -> None:
        """Check whether `user` may keep durable subscriptions as they are; `done` gets a reason code for each.

        `changed` tells whether the subscriptions were made or last checked for another user. Other arguments are those of
        `subscribe`. `done` may be called before this returns.
        """

    def refuse(self, client_id: str, refused: bool) -> None:
        """Refuse publications that would go to a client, or do so no more. The embedded queue manager's only."""

    def unsubscribe(
        self,
        client_id: str,
        filters: Sequence[str],
        done: Callable[[list[int]], None],
        *,
        ended: bool = False,
        handed_over: bool = False,
    ) -> None:
        """Remove subscriptions of a client; `done` gets a reason code for each, MQRC_NONE if the subscription is gone.

        A filter that the client did not subscribe to is not an error.

        With `handed_over`, `done` is called only after the last message for these subscriptions has been handed over.

        `ended` says that the session has ended: what still comes for these subscriptions is for nobody, and is not handed
        over (MQTT-3.1.2-6).
        """

    def dead_letter(self, transmission: Transmission, reason: int) -> bool:
        """Move a message that no client can take to the dead-letter queue, behind an MQDLH with the reason.

        Return False if the message stays where it is, which the log explains.
        """

    def flush(self, done: Callable[[], None]) -> None:
        """Call `done` when every unit given so far has ended."""

    def stop(self, done: Callable[[], None]) -> None:
        """Close the transmission queue; `done` is called when every unit given has ended."""
