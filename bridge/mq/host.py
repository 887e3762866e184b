"""The interface of a queue manager to the service: starting the embedded one or connecting to IBM MQ, and its status."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import msgspec

from bridge.config.models import LimitsConfig
from bridge.mq.administration import CommandFailed, PcfAdministration, PcfResponse
from bridge.mq.backend import Backend, Silence
from bridge.mq.daemon_threads import DaemonThreads
from bridge.mq.dead_letter_room import DeadLetterRoom
from bridge.mq.inquiries import (
    QueueManagerConnectionStatus,
    RetainedStatus,
    TopicDetails,
    TopicNode,
    TopicSubscription,
)
from bridge.mq.memory import MemoryWatermark
from bridge.mq.mqi import Connection, MQError
from bridge.mq.telemetry_channels import TelemetryChannelRegister
from bridge.mqtt.topics import matches, overlap
from bridge.security.authenticator import Authenticated, AuthenticationFailed, AuthenticatorUnavailable, Presented
from bridge.security.channel_authentication import ChannelAuthenticationRegister
from bridge.security.verification_queue import VerificationQueue
from bridge.telemetry.identity import AS_IS, ClientNames
from bridge.telemetry.subscription import subscription_name
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFST

P = ParamSpec("P")
T = TypeVar("T")

#: The maximum number of payload bytes to show.
PAYLOAD_SHOWN = 200
#: The maximum number of messages to read from a PCF reply, which has one for each topic or subscription.
MAX_RESPONSES = 10_000


class TooMany(Exception):
    """The reply has more than MAX_RESPONSES messages. The text is for display."""


#: The maximum number of concurrent calls that wait for the queue manager.
MAX_WAITING: Final = 16


TOO_MANY_WAITING: Final = "too many requests wait for the queue manager. Try again in a moment"


class TooManyWaiting(Exception):
    """MAX_WAITING calls are already waiting. The text is for display."""


class TopicInquiry(Protocol):
    """Inquires about the topics of a queue manager. Call its methods on the event loop. They do not block."""

    async def below(self, topic: str | None, after: str | None, rows: int) -> list[TopicNode]:
        """Return the levels directly below a topic string (None for the root), sorted by name.

        Return at most `rows` levels, starting after the name `after` if it is not None. Raises MQError, TooMany or
        TooManyWaiting.
        """

    async def details(self, topic_filter: str, rows: int, payloads: bool) -> TopicDetails:
        """Return matching retained publications and overlapping subscriptions, at most `rows` each.

        Raises MQError, TooMany or TooManyWaiting.
        """


class PcfTopicInquiry:
    """`TopicInquiry` with PCF commands, on a separate connection and thread for each inquiry.

    The queue manager does not report the sizes and payloads of retained publications, nor whether a topic has lower levels:
    `has_lower` is always true. The unnamed level of `/a` is omitted, because it cannot be distinguished from the root.
    """

    def __init__(self, connect: Callable[[str], Connection], client_names: ClientNames = AS_IS) -> None:
        self._connect = connect
        self._client_names = client_names
        self._threads = DaemonThreads(THREADS, "topics")
        #: the number of calls that have not ended
        self._waiting = 0

    async def below(self, topic: str | None, after: str | None, rows: int) -> list[TopicNode]:
        begin = "" if topic is None else f"{topic}/"
        nodes = [
            TopicNode(
                name=topic_string.removeprefix(begin),
                topic=topic_string,
                retained=status.number(cmqcfc.MQIACF_RETAINED_PUBLICATION) == cmqcfc.MQQSO_YES,
                has_lower=True,
                subscriptions=status.number(cmqc.MQIA_SUB_COUNT),
            )
            for topic_string, status in await self._run(self._statuses, f"{begin}+")
            if topic_string
            and topic_string.startswith(begin)
            and (after is None or topic_string.removeprefix(begin) > after)
        ]
        return sorted(nodes, key=lambda node: node.name)[:rows]

    async def details(self, topic_filter: str, rows: int, payloads: bool) -> TopicDetails:
        return await self._run(self._details, topic_filter, rows)

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._waiting >= MAX_WAITING:
            raise TooManyWaiting(TOO_MANY_WAITING)
        self._waiting += 1
        call = asyncio.wrap_future(self._threads.submit(function, *args, **kwargs))
        call.add_done_callback(self._ended)
        # The threads may be in calls that never return. So a call that is no longer awaited counts until it ends.
        return await asyncio.shield(call)

    def _ended(self, call: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not call.cancelled():
            call.exception()  # nothing else may retrieve it

    def _details(self, topic_filter: str, rows: int) -> TopicDetails:
        retained = [
            RetainedStatus(topic=topic, size=-1, persistent=False, publisher="", payload=b"")
            for topic, status in self._statuses(topic_filter)
            # In contrast to MQTT, the queue manager's wildcards also match topics that begin with `$`.
            if matches(topic_filter, topic) and status.number(cmqcfc.MQIACF_RETAINED_PUBLICATION) == cmqcfc.MQQSO_YES
        ]
        name = MQCFST(cmqcfc.MQCACF_SUB_NAME, b"*")
        responses = self._ask(
            cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION, name, (cmqc.MQRC_NO_SUBSCRIPTION, cmqcfc.MQRCCF_NONE_FOUND)
        )
        subscriptions = [
            subscription
            for response in responses
            if overlap((subscription := _subscription(response, self._client_names)).topic_filter, topic_filter)
        ]
        return TopicDetails(
            topic_filter=topic_filter,
            retained=sorted(retained, key=lambda publication: publication.topic)[:rows],
            subscriptions=sorted(subscriptions, key=lambda subscription: subscription.name)[:rows],
            more=max(len(retained), len(subscriptions)) > rows,
        )

    def _statuses(self, topic_filter: str) -> list[tuple[str, PcfResponse]]:
        topic = MQCFST(cmqc.MQCA_TOPIC_STRING, topic_filter.encode())
        nothing = (cmqcfc.MQRCCF_TOPIC_STRING_NOT_FOUND, cmqcfc.MQRCCF_NONE_FOUND, cmqc.MQRC_UNKNOWN_OBJECT_NAME)
        responses = self._ask(cmqcfc.MQCMD_INQUIRE_TOPIC_STATUS, topic, nothing)
        return [(response.text(cmqc.MQCA_TOPIC_STRING), response) for response in responses]

    def _ask(self, command: int, name: MQCFST, nothing: Iterable[int]) -> list[PcfResponse]:
        """Run a command. The reason codes in `nothing` mean an empty result. Raises MQError or TooMany."""
        connection = self._connect("topics")
        try:
            responses = PcfAdministration(connection).run(command, name, max_responses=MAX_RESPONSES + 1)
        except CommandFailed as error:
            if error.reason in nothing:
                return []
            raise
        finally:
            with contextlib.suppress(MQError):
                connection.disconnect()
        if len(responses) > MAX_RESPONSES:
            raise TooMany(f"the queue manager's reply has more than {MAX_RESPONSES} entries")
        return responses


def _subscription(response: PcfResponse, names: ClientNames) -> TopicSubscription:
    name, topic_filter = response.text(cmqcfc.MQCACF_SUB_NAME), response.text(cmqc.MQCA_TOPIC_STRING)
    manager = response.text(cmqcfc.MQCACF_DESTINATION_Q_MGR)
    return TopicSubscription(
        name=name,
        topic_filter=topic_filter,
        user_data=response.text(cmqcfc.MQCACF_SUB_USER_DATA),
        durable=response.number(cmqcfc.MQIACF_DURABLE_SUBSCRIPTION) == cmqc.MQSUB_DURABLE_YES,
        client_id=names.client_of(manager) if name == subscription_name(manager, topic_filter) else "",
        destination=response.text(cmqcfc.MQCACF_DESTINATION),
    )


#: The maximum number of concurrent password checks.
THREADS: Final = 2


class QueueManagerAuthenticator:
    """Authenticates clients with the queue manager's password check."""

    def __init__(self, check: Callable[[str, bytes], None], executor: Executor) -> None:
        """Initialize. `check` checks a user and a password on `executor`. It raises MQError if it rejects them."""
        self._check = check
        self._queue = VerificationQueue(executor, THREADS)

    def applies_to(self, presented: Presented) -> bool:
        return presented.user_name is not None or presented.password is not None

    async def authenticate(self, presented: Presented) -> Authenticated:
        user, password = presented.user_name, presented.password
        if not user or not password:
            raise AuthenticationFailed("it contains no user name or no password")
        try:
            await self._queue.run(presented, self._check, user, password)
        except MQError as error:
            if error.reason == cmqc.MQRC_NOT_AUTHORIZED:
                raise AuthenticationFailed(f"the queue manager rejected user {user[:40]!r}: {error.detail}") from None
            raise AuthenticatorUnavailable(f"the queue manager cannot check passwords: {error}") from error
        return Authenticated(user)


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A local queue."""

    name: str
    #: USAGE(XMITQ)
    transmission: bool
    depth: int
    max_depth: int
    #: seconds since the oldest message was put, or None if the queue is empty or the queue manager does not report it
    oldest_message_age: float | None
    input_handles: int
    output_handles: int
    #: PUT(DISABLED)
    put_inhibited: bool = False
    #: messages put and got since the start or RESET QSTATS, or None if the queue manager does not report them
    enqueued: int | None = None
    dequeued: int | None = None
    #: GET(DISABLED). Always False on the embedded queue manager, where it does not stop the bridge
    get_inhibited: bool = False


class QueueManagerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a queue manager and its local queues."""

    queues: Sequence[QueueStatus]
    #: the name of the dead-letter queue, or blank
    dead_letter_queue: str = ""
    #: the queue manager dead-letters messages without an entry in the bridge's log
    diverts_silently: bool = True
    #: number of local queues omitted from `queues`
    left_out: int = 0
    #: names of queues that are not defined
    missing: Collection[str] = ()
    #: embedded queue manager only: retained publications and their bytes, file sizes in bytes by kind, whether the disk is
    #: full, whether recording the last commit in the witness failed, and the free space and size of its file system in bytes
    retained: int | None = None
    retained_bytes: int | None = None
    file_sizes: Mapping[str, int] = {}
    disk_full: bool | None = None
    witness_failing: bool | None = None
    disk_free: int | None = None
    disk_size: int | None = None


class QueueManagerInquiry(Protocol):
    """Inquires the status of a queue manager. All methods are called on one thread."""

    #: minimum interval between calls of `look`, in seconds, to limit the load on the queue manager
    interval: float

    def status(self, queues: Sequence[str], *, ages: bool = True) -> QueueManagerStatus:
        """Return the status of these queues, without unusable ones, and of others if that is cheap. Raises MQError.

        `ages` includes the ages of the oldest messages, which needs a command.
        """

    def count_dead_letters(self, room: DeadLetterRoom, mappings: Collection[str]) -> None:
        """Count the messages of this bridge on the dead-letter queue. Raises MQError."""

    def close(self) -> None:
        """Release the resources of the inquiry."""


@dataclass(frozen=True)
class Events:
    """Callbacks from the queue manager to the bridge, called on the event loop. The argument is a description."""

    #: fatal error
    failed: Callable[[str], None]
    #: another bridge has taken over: this one must release everything
    fenced: Callable[[str], None]
    #: another bridge is active: this one is a standby
    standing_by: Callable[[str], None]
    #: the queue manager has been unreachable for too long
    outage: Callable[[], None]
    #: this bridge is the active one now
    active: Callable[[], None]


class HostError(Exception):
    """The queue manager cannot be used. The message contains the cause and a hint."""


class Host(Protocol):
    """An embedded queue manager, or the connections to IBM MQ."""

    name: str
    #: the queue for messages that cannot be delivered, or "" for the queue manager's dead-letter queue (DEADQ)
    dead_letter_queue: str
    #: changes if the store of the queue manager is restored from a backup. "" if it was never restored, and on IBM MQ, where
    #: the bridge cannot know. Packet identifiers that were recorded in another epoch are invalid
    epoch: str

    #: channel authentication records
    channel_authentication: ChannelAuthenticationRegister

    #: telemetry channels, from the configuration file and from commands
    telemetry_channels: TelemetryChannelRegister
    memory: MemoryWatermark
    dead_letter_room: DeadLetterRoom
    topic_inquiry: TopicInquiry

    @property
    def backend(self) -> Backend:
        """The backend, which runs units of work for the service."""

    async def start(self, events: Events) -> list[str]:
        """Start or connect. Return lines that describe the queue manager for the log. Raises HostError."""

    async def listen(self) -> list[str]:
        """Accept connections of MQ applications, if configured. Return lines with the addresses. Raises HostError."""

    def connect(self, purpose: str) -> Connection:
        """Return a new connection for a thread of the bridge with this purpose. Callable on any thread.

        The thread must disconnect before `stop`. Raises MQError.
        """

    def inquiry(self) -> QueueManagerInquiry:
        """Return a new inquiry, for metrics."""

    def check_password(self, user: str, password: bytes) -> None:
        """Check a user's password with the queue manager. Callable on any thread. May block.

        Raises MQError, with MQRC_NOT_AUTHORIZED and the reason if the queue manager rejects the user.
        """

    def explain_publishing(self, connection: Connection, user: str, topic: str) -> tuple[bool, str]:
        """Return whether the authorities of an MQ user permit a publication to a topic, and why.

        Called on the thread of a connection of the bridge. May block. Raises MQError.
        """

    @property
    def silence(self) -> Silence | None:
        """Since when and why the queue manager does not answer, or None if it answers. Also set during the start."""

    @property
    def rejected_logins(self) -> int | None:
        """The number of the bridge's logins that the queue manager has rejected, or None if the bridge does not log in."""

    @property
    def login_problem(self) -> str:
        """Why the queue manager rejected the last login of the bridge. Blank if it accepted it."""

    def connections(self) -> list[QueueManagerConnectionStatus]:
        """Return the connections to the queue manager. Callable on any thread."""

    def read_credentials(self) -> None:
        """Read the files with the credentials of the bridge again, for its next connections."""

    def use_limits(self, limits: LimitsConfig) -> None:
        """Apply the limits that concern the queue manager."""

    def name_publishers(self, is_wanted: bool) -> bool:
        """Write the users of MQTT clients into their publications if `is_wanted`. Return whether mappings need that.

        They do not need it if a copy of a publication has the publisher's user in its MQMD.
        """

    async def stop(self) -> None:
        """Stop in order, after all units of work submitted to the backend have completed."""

    def hint(self, file: Path | None) -> str:
        """Return the options with which `mqbridge mq` connects to this queue manager. `file` is the configuration file."""
