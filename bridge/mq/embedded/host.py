"""The embedded queue manager in the bridge's process: start and stop, status for the service, and topics for the console."""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import time
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from bridge.config.models import Configuration, LimitsConfig
from bridge.config.queue_manager import EmbeddedQueueManagerConfig
from bridge.config.values import is_loopback
from bridge.mq.backend import Silence
from bridge.mq.data_directory import DataDirectoryInUse, StoreError
from bridge.mq.dead_letter_room import DeadLetterRoom
from bridge.mq.embedded.admission import Admission
from bridge.mq.embedded.backend import APPLICATION_NAME, EmbeddedBackend
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.mqsc.commands import ScriptFailed, prepare, run_script
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server import ApplicationServer
from bridge.mq.embedded.storage.layout import write_ahead_log
from bridge.mq.embedded.subscription import Subscription, literal_prefix
from bridge.mq.host import (
    PAYLOAD_SHOWN,
    Events,
    HostError,
    QueueManagerInquiry,
    QueueManagerStatus,
    QueueStatus,
    TopicInquiry,
)
from bridge.mq.inquiries import (
    QueueManagerConnectionStatus,
    RetainedStatus,
    TopicDetails,
    TopicNode,
    TopicSubscription,
)
from bridge.mq.memory import MemoryWatermark, in_bytes
from bridge.mq.mqi import Connection, MQError
from bridge.mqtt.topics import is_wildcard, overlap
from bridge.security.authenticator import UnknownPlugin
from bridge.security.privileged import NOBODY
from bridge.security.tls import TlsError
from bridge.telemetry.identity import AS_IS
from bridge.telemetry.subscription import subscription_name
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire.mq import decode_chain

#: The maximum number of queues in a status.
MAX_QUEUES: Final = 500


class EmbeddedInquiry:
    """`bridge.mq.host.QueueManagerInquiry`, callable on any thread."""

    interval = 0.0

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager

    def status(self, queues: Sequence[str], *, ages: bool = True) -> QueueManagerStatus:
        queue_manager = self._queue_manager
        # Omit dynamic queues: each generated name would create a new time series.
        defined = {
            name: queue
            for name, queue in list(queue_manager.objects.queues.items())
            if "DEFTYPE" not in queue.attributes
        }
        names = dict.fromkeys([*(name for name in queues if name in defined), *sorted(defined)])
        queue_names = list(names)[:MAX_QUEUES]
        now = time.time()
        database = queue_manager.data_directory / "queuemanager.db"
        sizes = {}
        for kind, path in (("database", database), ("write_ahead_log", write_ahead_log(database))):
            if path.exists():
                sizes[kind] = path.stat().st_size
        disk = shutil.disk_usage(queue_manager.data_directory)
        return QueueManagerStatus(
            queues=[_status(defined[name], now) for name in queue_names],
            left_out=len(defined) - len(queue_names),
            retained=len(queue_manager.retained),
            retained_bytes=queue_manager.retained.total_bytes,
            file_sizes=sizes,
            dead_letter_queue=str(queue_manager.objects.attributes["DEADQ"]),
            diverts_silently=False,
            disk_full=queue_manager.recovery_log.reserve.full,
            witness_failing=queue_manager.recovery_log.witness_failing,
            disk_free=disk.free,
            disk_size=disk.total,
        )

    def count_dead_letters(self, room: DeadLetterRoom, mappings: Collection[str]) -> None:
        connection = EmbeddedConnection(self._queue_manager, user="")
        try:
            queue = str(self._queue_manager.objects.attributes["DEADQ"])
            room.scan(connection, queue, APPLICATION_NAME, mappings, AS_IS)
        finally:
            connection.disconnect()

    def close(self) -> None:
        return


def _status(queue: Queue, now: float) -> QueueStatus:
    # The chains may change concurrently, so read the first message of each only once.
    firsts = [first.put_time for chain in list(queue.chains.values()) if (first := chain.first) is not None]
    return QueueStatus(
        name=queue.name,
        transmission=queue.is_transmission,
        depth=queue.depth,
        max_depth=queue.max_depth,
        oldest_message_age=max(now - min(firsts), 0.0) if firsts else None,
        input_handles=queue.inputs,
        output_handles=queue.outputs,
        put_inhibited=not queue.put_enabled,
        enqueued=queue.enqueued,
        dequeued=queue.dequeued,
    )


#: Names, topics or subscriptions to examine in one iteration of the event loop, which takes a few milliseconds.
VISITS_PER_TURN = 1_000

T = TypeVar("T")


class EmbeddedTopicInquiry:
    """`bridge.mq.host.TopicInquiry` of a queue manager in this process.

    Subscriptions with character-based wildcards are not part of the tree. Only `details` returns them.
    """

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager

    async def below(self, topic: str | None, after: str | None, rows: int) -> list[TopicNode]:
        manager = self._queue_manager
        words = [] if topic is None else topic.split("/")
        with manager.lock:
            retained, subscribed = manager.retained.level(words), manager.objects.topics.level(words)
            names = [*(() if retained is None else retained.below), *(() if subscribed is None else subscribed.below)]
        first: set[str] = set()
        async for some in _in_slices(names):
            first.update(some if after is None else [name for name in some if name > after])
            if len(first) > 2 * rows:
                first = set(nsmallest(rows, first))
        nodes = []
        async for some in _in_slices(nsmallest(rows, first)):
            with manager.lock:
                nodes += [self._node(name, [*words, name]) for name in some]
        return nodes

    def _node(self, name: str, words: list[str]) -> TopicNode:
        retained, subscribed = (
            self._queue_manager.retained.level(words),
            self._queue_manager.objects.topics.level(words),
        )
        return TopicNode(
            name=name,
            topic="/".join(words),
            retained=retained is not None and retained.topic is not None,
            has_lower=bool((retained is not None and retained.below) or (subscribed is not None and subscribed.below)),
            subscriptions=0 if subscribed is None else len(subscribed.subscriptions),
        )

    async def details(self, topic_filter: str, rows: int, payloads: bool) -> TopicDetails:
        manager = self._queue_manager
        publications: list[RetainedStatus] = []
        subscriptions: list[TopicSubscription] = []
        async for topics in _in_slices(manager.retained.matching(topic_filter)):
            stored = [manager.retained.get(topic) for topic in topics if topic is not None]
            publications += [_retained(publication, payloads) for publication in stored if publication is not None]
            if len(publications) > rows:
                break
        with manager.lock:
            every = list(manager.objects.topics.subscriptions.values())
        async for some in _in_slices(every):
            subscriptions += [
                _subscription(subscription) for subscription in some if _overlaps(subscription, topic_filter)
            ]
            if len(subscriptions) > rows:
                break
        return TopicDetails(
            topic_filter=topic_filter,
            retained=publications[:rows],
            subscriptions=subscriptions[:rows],
            more=max(len(publications), len(subscriptions)) > rows,
        )


async def _in_slices(all_: Iterable[T]) -> AsyncIterator[list[T]]:
    """Yield slices. Other tasks of the event loop run between them."""
    iterator = iter(all_)
    while some := list(islice(iterator, VISITS_PER_TURN)):
        yield some
        await asyncio.sleep(0)


def _retained(stored: StoredMessage, payloads: bool) -> RetainedStatus:
    message = stored.message
    if isinstance(message, PublicationMessage):
        publisher, payload = message.client_id, message.payload
    else:
        md = message.md
        publisher = (stored.put_application or md.PutApplName.decode("utf-8", "replace")).rstrip(" \0")
        payload = bytes(decode_chain(md.Format, md.Encoding, md.CodedCharSetId, message.data, strict=False).body)
    return RetainedStatus(
        topic=stored.topic or "",
        size=len(payload),
        persistent=stored.persistent,
        publisher=publisher,
        payload=payload[:PAYLOAD_SHOWN] if payloads else b"",
    )


def _overlaps(subscription: Subscription, topic_filter: str) -> bool:
    if not subscription.characters:
        return overlap(subscription.topic_filter, topic_filter)
    if not is_wildcard(topic_filter):
        return subscription.names(topic_filter)
    # An approximation for different wildcard schemes: compare only the text before the first wildcards.
    fixed = literal_prefix(subscription.topic_filter)
    mine = subscription.topic_filter if fixed is None else fixed
    theirs = topic_filter[: min(topic_filter.find(wildcard) for wildcard in "+#" if wildcard in topic_filter)]
    return mine.startswith(theirs) or theirs.startswith(mine)


def _subscription(subscription: Subscription) -> TopicSubscription:
    return TopicSubscription(
        name=subscription.name,
        topic_filter=subscription.topic_filter,
        user_data=subscription.user_data or "",
        durable=subscription.durable,
        client_id=subscription.client_id
        if subscription.name == subscription_name(subscription.client_id, subscription.topic_filter)
        else "",
        destination=subscription.destination,
    )


log = logging.getLogger(__name__)


class EmbeddedHost:
    """`bridge.mq.host.Host` with a queue manager in this process."""

    #: Server for other processes. The tests' stand-in for IBM MQ (tests/ibm_standin) replaces it.
    SERVER: ClassVar[type[ApplicationServer]] = ApplicationServer

    def __init__(self, configuration: Configuration, loop: asyncio.AbstractEventLoop) -> None:
        settings = configuration.queue_manager
        assert isinstance(settings, EmbeddedQueueManagerConfig)
        self._settings = settings
        self.name = settings.name
        self.dead_letter_queue = ""
        self.memory = MemoryWatermark(configuration.limits.memory_watermark)
        self.dead_letter_room = DeadLetterRoom(configuration.limits)
        try:
            self.queue_manager = QueueManager(
                settings.name,
                Path(settings.data_directory),
                max_message_length=settings.max_message_length,
                memory=self.memory,
            )
        except (DataDirectoryInUse, StoreError) as error:
            raise HostError(str(error)) from error
        except PermissionError as error:
            raise HostError(
                f"data directory {settings.data_directory}: {error}; hint: if another user started the bridge there before, "
                "for example with sudo, change the owner of the directory, or choose another one with --data-dir"
            ) from error
        except OSError as error:
            raise HostError(f"data directory {settings.data_directory}: {error}") from error
        self.epoch = self.queue_manager.epoch
        self.channel_authentication = self.queue_manager.objects.channel_authentication
        self.telemetry_channels = self.queue_manager.objects.telemetry_channels
        self.telemetry_channels.use_file(configuration.channels)
        self.channel_authentication.use_file(configuration.channel_authentication, configuration.channels)
        listener = settings.listener
        self.queue_manager.objects.connection_authentication.asks = listener is not None and not listener.believes
        self.queue_manager.recovery_log.reserve.keep()
        if settings.authorities == "enforced":
            self.queue_manager.enforce_authorities()
        self.queue_manager.objects.topics.overlapping_once = settings.overlapping_subscriptions == "once"
        try:
            prepare(self.queue_manager)
            for script in settings.scripts:
                self._run_script(Path(script))
        except (HostError, ScriptFailed, MQError) as error:
            self.queue_manager.close()
            raise HostError(str(error)) from error
        default = self.queue_manager.objects.attributes["DEFXMITQ"]
        if default != configuration.transmission_queue and configuration.channels:
            log.warning(
                "MQB3101W DEFXMITQ(%s) of the queue manager is not the bridge's transmission_queue %s: messages that "
                "applications put to a client do not reach it; ALTER QMGR DEFXMITQ('%s')",
                default,
                configuration.transmission_queue,
                configuration.transmission_queue,
            )
        self.backend = EmbeddedBackend(
            self.queue_manager,
            configuration.transmission_queue,
            loop,
            retained_bytes=configuration.limits.retained_bytes,
            retained_total=in_bytes(configuration.limits.retained_total),
        )
        self.queue_manager.objects.topics.mapping_limits.use(configuration.limits)
        self.topic_inquiry: TopicInquiry = EmbeddedTopicInquiry(self.queue_manager)
        self._loop = loop
        try:
            self._admission = Admission(listener, self.queue_manager.objects.connection_authentication)
        except UnknownPlugin as error:
            self.queue_manager.close()
            raise HostError(f"queue_manager.listener: {error}") from error
        self._server = self.SERVER(self.queue_manager, self._admission)

    def _run_script(self, path: Path) -> None:
        try:
            responses = run_script(self.queue_manager, path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise HostError(f"MQSC script {path}: {error}") from error
        for response in responses:
            if response.ignored:
                attributes = ", ".join(response.ignored)
                log.warning(
                    "MQB3110W %s, line %d: ignored, because it has no effect: %s", path, response.line, attributes
                )

    async def start(self, events: Events) -> list[str]:
        self.memory.start()
        return [f"queue manager {self.name} (embedded), data in {self.queue_manager.data_directory}"]

    async def listen(self) -> list[str]:
        listener = self._settings.listener
        if listener is not None and not is_loopback(listener.address) and listener.believes:
            log.warning(
                "MQB3301W queue_manager.listener is on %s: anyone who reaches this address is an MQ application%s, without "
                "a password",
                listener.address,
                " and administrator"
                if self.queue_manager.authorization is None
                else " with the authorities of `nobody`",
            )
        try:
            return await self._server.listen((listener.address, listener.port) if listener else None)
        except (OSError, TlsError) as error:
            raise HostError(f"MQ applications cannot connect: {error}") from error

    def connect(self, purpose: str) -> Connection:
        return EmbeddedConnection(self.queue_manager)

    def inquiry(self) -> QueueManagerInquiry:
        return EmbeddedInquiry(self.queue_manager)

    def check_password(self, user: str, password: bytes) -> None:
        asyncio.run_coroutine_threadsafe(self._admission.check_password(user, password), self._loop).result()

    def explain_publishing(self, connection: Connection, user: str, topic: str) -> tuple[bool, str]:
        authorization = self.queue_manager.authorization
        if authorization is None:
            return True, "the queue manager does not check authorities (queue_manager.authorities)"
        authorization.groups(user or NOBODY)  # without the lock, because it may block
        with self.queue_manager.lock:
            return authorization.explain_publishing(user or NOBODY, topic)

    @property
    def silence(self) -> Silence | None:
        return None

    @property
    def rejected_logins(self) -> int | None:
        return None

    @property
    def login_problem(self) -> str:
        return ""

    def connections(self) -> list[QueueManagerConnectionStatus]:
        """Return the connections of applications. The bridge itself needs no connection."""
        return sorted(
            (
                QueueManagerConnectionStatus(
                    name=application.name,
                    connected=True,
                    address=application.address,
                    user=application.user.decode("utf-8", "replace"),
                )
                for application in list(self.queue_manager.applications)
                if application.stop is not None
            ),
            key=lambda connection: (connection.name, connection.address),
        )

    def read_credentials(self) -> None:
        """Do nothing: an embedded queue manager has no credentials."""

    def use_limits(self, limits: LimitsConfig) -> None:
        self.backend.retained_bytes = limits.retained_bytes
        self.backend.retained_total = in_bytes(limits.retained_total)
        self.queue_manager.objects.topics.mapping_limits.use(limits)
        self.memory.use(limits.memory_watermark)
        self.dead_letter_room.use_limits(limits)

    def name_publishers(self, is_wanted: bool) -> bool:
        return False

    async def stop(self) -> None:
        self.memory.stop()
        await self._server.close()
        await asyncio.get_running_loop().run_in_executor(None, self.queue_manager.close)

    def hint(self, file: Path | None) -> str:
        return f"--data-dir {shlex.quote(str(self.queue_manager.data_directory))}"
