"""The backend: runs whole units of work for the telemetry service, many publications to a commit.

IBM MQ's own agents execute MQI calls on behalf of applications; this one executes them on behalf of thousands of MQTT
clients. It is asynchronous: everything is called on the event loop's thread, and answers come back there. What is below
(the embedded queue manager in this process, or threads that own connections to IBM MQ) is not the caller's concern.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec

from bridge.mapping.telemetry.message import AnyMessage, PublicationMessage


class Transmission(Protocol):
    """A message on the transmission queue, waiting for the client that its MQXQH names."""

    #: RemoteQMgrName: the client identifier
    client_id: str
    #: RemoteQName: the topic that an application put a direct message to
    remote_queue: str
    message: AnyMessage
    #: topic string published with; None for a message put straight to the client
    topic: str | None
    #: user data of the subscription that it came for; None without a subscription
    user_data: str | None
    #: it comes as a retained publication
    retained: bool
    persistent: bool
    #: last eight bytes of MQMD.MsgId on the transmission queue, as a number
    msg_number: int

    @property
    def expired(self) -> bool:
        """Return whether the MQMD.Expiry of the message has run down."""


class Side(StrEnum):
    """Whose record of a session it is: what was received belongs to publications, what was sent to removals."""

    RECEIVED = "received"
    SENT = "sent"


class StateKey(NamedTuple):
    """Which record on SYSTEM.MQTT.PERSISTENT.STATE."""

    side: Side
    client_id: str


class ClientSubscription(msgspec.Struct):
    """A subscription of an MQTT client as the queue manager holds it."""

    client_id: str
    topic_filter: str
    user_data: str
    durable: bool


class Recovered(msgspec.Struct):
    """What the queue manager still knows when the service starts."""

    states: dict[StateKey, bytes]
    subscriptions: list[ClientSubscription]


class UnitOfWork:
    """Publications of one client, transmissions that clients have acknowledged, and facts that must outlive a crash.

    All of it takes effect together. `done(unit)` is called once, after the commit: `refusals` then holds a reason code
    for each publication that the queue manager did not take (by index), and `failure` the reason for which nothing of
    the unit took effect.
    """

    __slots__ = (
        "amend",
        "dead_letters",
        "diverted",
        "done",
        "failure",
        "owner",
        "publications",
        "refusals",
        "refused",
        "removals",
        "states",
    )

    def __init__(self, done: Callable[[UnitOfWork], None] | None = None, owner: Any = None) -> None:
        #: (message, RETAIN flag)
        self.publications: list[tuple[PublicationMessage, bool]] = []
        self.removals: list[Transmission] = []
        #: records on SYSTEM.MQTT.PERSISTENT.STATE; None removes one
        self.states: dict[StateKey, bytes | None] = {}
        self.refusals: dict[int, int] = {}
        #: reasons for which a publication goes to the dead-letter queue, in the same unit, and is not refused
        self.dead_letters: frozenset[int] = frozenset()
        #: publications that went there, by index, with the reason
        self.diverted: dict[int, int] = {}
        self.failure = 0
        self.done = done
        #: returns what `states` are to be when publications are refused, by index and reason, so that they tell the truth.
        #: It alters nothing, and is called before the commit on whichever thread that is on
        self.amend: Callable[[UnitOfWork, Mapping[int, int]], dict[StateKey, bytes | None]] | None = None
        #: called on the loop as soon as `refusals` are known there, where that is before the commit: what is given next then
        #: knows of them
        self.refused: Callable[[UnitOfWork], None] | None = None
        self.owner = owner


Consumer = Callable[[Sequence[Transmission]], None]


class Backend(Protocol):
    """What the telemetry service asks of a queue manager."""

    #: `start` hands over what lies on the transmission queue before it returns
    hands_over_at_once: bool
    #: name of the queue where messages for clients wait
    transmission_queue: str
    #: called on the loop with client identifier, filter and reason when a subscription of a clean session is lost for good
    on_dropped: Callable[[str, str, int], None]

    async def caught_up(self) -> None:
        """Return when what lay on the transmission queue at `start` is handed over."""

    async def open(self) -> Recovered:
        """Open the transmission queue for exclusive input, waiting while another bridge has it, and recover.

        Raises MQError when an object is missing or of the wrong type.
        """

    def start(self, consumer: Consumer) -> None:
        """Hand the messages of the transmission queue, in batches, to `consumer` from now on.

        Messages already on the queue come first.
        """

    def execute(self, unit: UnitOfWork) -> None:
        """Run a unit of work. Units take effect, and `done` is called, in the order given."""

    def admit(self, client_id: str, user: str, done: Callable[[int], None]) -> None:
        """Ask whether a client may receive messages as `user`: `done` gets MQRC_NONE, MQRC_NOT_AUTHORIZED or another reason.

        It may be called before this returns. Answers for one client identifier come in the order asked.
        """

    def subscribe(
        self,
        client_id: str,
        filters: Sequence[tuple[str, int]],
        done: Callable[[list[int]], None],
        *,
        durable: bool,
        user: str,
    ) -> None:
        """Make or alter the subscriptions `ClientIdentifier:Topic name`; `done` gets a reason code for each filter.

        `user` is the identity that the queue manager asks its authorities for; blank is the bridge's own.
        Retained publications of the filters go to the transmission queue once `done` has been called.
        """

    def unsubscribe(
        self, client_id: str, filters: Sequence[str], done: Callable[[], None], *, ended: bool = False
    ) -> None:
        """Remove subscriptions of a client; filters that it did not subscribe to are no error.

        `ended` says that the session has ended: what still comes for these subscriptions is for nobody, and is not handed
        over (MQTT-3.1.2-6).
        """

    def dead_letter(self, transmission: Transmission, reason: int) -> None:
        """Move a message that no client can take to the dead-letter queue, behind an MQDLH with the reason."""

    def flush(self, done: Callable[[], None]) -> None:
        """Call `done` when every unit given so far has ended."""

    def stop(self, done: Callable[[], None]) -> None:
        """Close the transmission queue; `done` is called when every unit given has ended."""
