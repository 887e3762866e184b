"""IBM MQ for the service: connections via pymqi or ibmmq, and inquiries with PCF."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from bridge.background import in_background
from bridge.config.models import Configuration, LimitsConfig
from bridge.config.queue_manager import IbmQueueManagerConfig
from bridge.mq.administration import CommandFailed, PcfAdministration
from bridge.mq.backend import Silence
from bridge.mq.dead_letter_room import DeadLetterRoom
from bridge.mq.host import (
    Events,
    HostError,
    PcfTopicInquiry,
    QueueManagerInquiry,
    QueueManagerStatus,
    QueueStatus,
    TopicInquiry,
)
from bridge.mq.ibm.backend import IbmBackend
from bridge.mq.ibm.connection import connect_ibm
from bridge.mq.ibm.coordination import ANSWER_TIMEOUT, NO_REPLY
from bridge.mq.ibm.logins import QueueManagerLogins
from bridge.mq.ibm.parameters import LibraryMissing, load_library, parameters
from bridge.mq.ibm.refused_login import RefusedLogins
from bridge.mq.ibm.requirements import Missing, requirements_of
from bridge.mq.ibm.requirements_check import missing, refused_connection
from bridge.mq.inquiries import QueueManagerConnectionStatus
from bridge.mq.memory import MemoryWatermark
from bridge.mq.mqi import MQOD, Connection, MQError, inquire
from bridge.mq.telemetry_channels import TelemetryChannelRegister
from bridge.mq.worker import LOST, raise_if_lost
from bridge.security.channel_authentication import ChannelAuthenticationRegister
from bridge.security.privileged import PrivilegedUsers
from bridge.telemetry.identity import AS_IS, ClientNames
from bridge.telemetry.shard import UNDIVIDED, Shard
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFST

log = logging.getLogger(__name__)

_INQUIRE = cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING
_ATTRIBUTES = (
    cmqc.MQIA_Q_TYPE,
    cmqc.MQIA_USAGE,
    cmqc.MQIA_CURRENT_Q_DEPTH,
    cmqc.MQIA_MAX_Q_DEPTH,
    cmqc.MQIA_OPEN_INPUT_COUNT,
    cmqc.MQIA_OPEN_OUTPUT_COUNT,
    cmqc.MQIA_INHIBIT_PUT,
    cmqc.MQIA_INHIBIT_GET,
)


#: Number of queues that are inquired in each inspection, and the number of inspections in which each other queue is inquired
#: once if it was empty and enabled the last time. So 200 idle mappings need few calls.
_ALWAYS, _TURNS = 40, 4


class IbmInquiry:
    """`bridge.mq.host.QueueManagerInquiry` over a connection that stays open between calls."""

    interval = 15.0

    def __init__(
        self,
        connect: Callable[[], Connection],
        dead_letter_queue: str,
        application: str = "mqbridge",
        names: ClientNames = AS_IS,
    ) -> None:
        self._connect = connect
        self._application = application
        self._names = names
        self._dead_letter_queue = dead_letter_queue
        self._connection: Connection | None = None
        self._administration: PcfAdministration | None = None
        #: queues for which the command server does not report the age of messages. They are logged once
        self._ageless: set[str] = set()
        self._answered = True
        #: the statuses of the last inspection, by queue, and the number of inspections
        self._statuses: dict[str, QueueStatus | None] = {}
        self._looks = 0
        #: queues that were not defined at the last inspection
        self._missing: set[str] = set()

    def status(self, queues: Sequence[str], *, ages: bool = True) -> QueueManagerStatus:
        try:
            if self._connection is None:
                self._connection = self._connect()
            connection = self._connection
            # The queue manager's DEADQ, which may differ from the bridge's dead-letter queue.
            dead_letter_queue = _dead_letter_queue(connection) or self._dead_letter_queue
            names = dict.fromkeys(filter(None, [self._dead_letter_queue, dead_letter_queue, *queues]))
            self._statuses = {
                name: self._queue(connection, name, ages) if self._is_due(index, name) else self._statuses[name]
                for index, name in enumerate(names)
            }
            self._looks += 1
        except MQError:
            self.close()
            raise
        statuses = [status for status in self._statuses.values() if status is not None]
        return QueueManagerStatus(
            queues=statuses, dead_letter_queue=dead_letter_queue, missing=self._missing & self._statuses.keys()
        )

    def _is_due(self, index: int, name: str) -> bool:
        """Return whether a queue is inquired in this inspection."""
        if index < _ALWAYS or name not in self._statuses or index % _TURNS == self._looks % _TURNS:
            return True
        status = self._statuses[name]
        return status is not None and bool(status.depth or status.put_inhibited or status.get_inhibited)

    def count_dead_letters(self, room: DeadLetterRoom, mappings: Collection[str]) -> None:
        if self._connection is not None:
            queue = self._dead_letter_queue or _dead_letter_queue(self._connection)
            room.scan(self._connection, queue, self._application, mappings, self._names)

    def close(self) -> None:
        connection, self._connection, self._administration = self._connection, None, None
        self._ageless.clear()
        self._statuses.clear()
        self._answered = True
        if connection is not None:
            with contextlib.suppress(MQError):
                connection.disconnect()

    def _queue(self, connection: Connection, name: str, ages: bool) -> QueueStatus | None:
        """Return the status of a queue, or None if it is not local, does not exist, or may not be inquired."""
        self._missing.discard(name)
        try:
            values, _ = inquire(connection, MQOD(ObjectName=name), _ATTRIBUTES, _INQUIRE)
        except MQError as error:
            raise_if_lost(error)
            log.debug("queue %s is in no metric: %s", name, error)
            if error.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME:
                self._missing.add(name)
            return None
        kind, usage, depth, max_depth, inputs, outputs, inhibit_put, inhibit_get = values
        if kind != cmqc.MQQT_LOCAL:
            return None
        return QueueStatus(
            name=name,
            transmission=usage == cmqc.MQUS_TRANSMISSION,
            depth=depth,
            max_depth=max_depth,
            oldest_message_age=self._age(connection, name) if depth and ages else None,
            input_handles=inputs,
            output_handles=outputs,
            put_inhibited=inhibit_put == cmqc.MQQA_PUT_INHIBITED,
            get_inhibited=inhibit_get == cmqc.MQQA_GET_INHIBITED,
        )

    def _age(self, connection: Connection, name: str) -> float | None:
        if not self._answered or name in self._ageless:
            return None
        try:
            if self._administration is None:
                self._administration = PcfAdministration(connection)
            queue = MQCFST(cmqc.MQCA_Q_NAME, name.encode())
            responses = self._administration.run(cmqcfc.MQCMD_INQUIRE_Q_STATUS, queue)
        except MQError as error:
            raise_if_lost(error)
            self._ageless.add(name)
            self._answered = isinstance(error, CommandFailed)
            queues = f"queue {name}" if self._answered else "queues"
            log.warning(
                "MQB9103W no metric for the age of messages on %s: the command server replied: %s", queues, error
            )
            return None
        age = responses[0].parameters.get(cmqcfc.MQIACF_OLDEST_MSG_AGE)
        return float(age) if isinstance(age, int) and age != cmqc.MQMON_NOT_AVAILABLE else None


def _shard_of(configuration: Configuration) -> Shard:
    """Return the clients that the bridge of a configuration serves."""
    config = configuration.shard
    return UNDIVIDED if config is None else Shard(config.number, config.of, config.server_reference)


def _dead_letter_queue(connection: Connection) -> str:
    try:
        _, (name,) = inquire(connection, MQOD(ObjectType=cmqc.MQOT_Q_MGR), (cmqc.MQCA_DEAD_LETTER_Q_NAME,), _INQUIRE)
    except MQError as error:
        raise_if_lost(error)
        log.debug("the name of the dead-letter queue cannot be inquired: %s", error)
        return ""
    return name.strip()


class IbmHost:
    """`bridge.mq.host.Host` for IBM MQ."""

    def __init__(
        self, configuration: Configuration, loop: asyncio.AbstractEventLoop, standby_delay: float = 0.0
    ) -> None:
        settings = configuration.queue_manager
        assert isinstance(settings, IbmQueueManagerConfig)
        self._settings = settings
        self.telemetry_channels = TelemetryChannelRegister()
        self.telemetry_channels.use_file(configuration.channels)
        self.channel_authentication = ChannelAuthenticationRegister(PrivilegedUsers(settings.user or "").include)
        self.channel_authentication.use_file(configuration.channel_authentication, configuration.channels)
        self._requirements = requirements_of(configuration).to_start
        self.name = settings.name
        self.dead_letter_queue = settings.dead_letter_queue
        self.epoch = ""
        self.memory = MemoryWatermark(configuration.limits.memory_watermark)
        self.dead_letter_room = DeadLetterRoom(configuration.limits)
        try:
            self._library = load_library(settings.library)
            self._logins = QueueManagerLogins(
                lambda: parameters(settings, os.environ), lambda chosen: connect_ibm(self._library, chosen)
            )
        except (LibraryMissing, MQError, OSError) as error:
            raise HostError(str(error)) from error
        self.backend = IbmBackend(
            self.connect,
            loop,
            settings,
            queues=configuration.queues,
            shard=_shard_of(configuration),
            first_delay=standby_delay,
            stop_timeout=configuration.limits.shutdown_timeout,
            memory=self.memory,
        )
        self.backend.on_connection_lost = self._logins.lost
        self.topic_inquiry: TopicInquiry = PcfTopicInquiry(self.connect, self.backend.client_names)
        #: start of the examination of the queue manager in progress, in seconds since the epoch, or 0.0
        self._examined_since = 0.0
        self._refused_logins = RefusedLogins(lambda: self.connect("login"))

    def _examine(self) -> list[Missing]:
        """Return the requirements that the queue manager does not meet. Return none if it is unavailable."""
        try:
            connection = self.connect("examination")
        except MQError as error:
            if error.reason in LOST:
                return []
            return [refused_connection(error, self.name, self._requirements.user)]
        try:
            return [requirement for requirement in missing(connection, self._requirements) if requirement.needed]
        except MQError as error:
            if error.reason in LOST:
                return []
            raise HostError(str(error)) from error
        finally:
            with contextlib.suppress(MQError):
                connection.disconnect()

    def connect(self, purpose: str) -> Connection:
        return self._logins.connect()

    def inquiry(self) -> QueueManagerInquiry:
        return IbmInquiry(
            lambda: self.connect("metrics"),
            self.dead_letter_queue,
            self._settings.application_name,
            self.backend.client_names,
        )

    def check_password(self, user: str, password: bytes) -> None:
        password_text = password.decode("utf-8", "replace")
        as_user = msgspec.structs.replace(self._logins.parameters, user=user, password=password_text, token_file="")
        try:
            connect_ibm(self._library, as_user).disconnect()
        except MQError as error:
            if error.reason != cmqc.MQRC_NOT_AUTHORIZED:
                raise
            raise MQError(error.reason, self._refused_logins.explain(user)) from None

    def explain_publishing(self, connection: Connection, user: str, topic: str) -> tuple[bool, str]:
        od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic, AlternateUserId=user)
        options = cmqc.MQOO_OUTPUT | cmqc.MQOO_ALTERNATE_USER_AUTHORITY | cmqc.MQOO_FAIL_IF_QUIESCING
        try:
            connection.close(connection.open(od, options))
        except MQError as error:
            if error.reason != cmqc.MQRC_NOT_AUTHORIZED:
                raise
            return False, f"queue manager {self.name} rejects MQOPEN of the topic for output by user {user!r}: {error}"
        return True, f"queue manager {self.name} permits MQOPEN of the topic for output by user {user!r}"

    async def start(self, events: Events) -> list[str]:
        self.backend.events = events
        self.memory.start()
        self._examined_since = time.time()
        lacking = await asyncio.wrap_future(in_background(self._examine, "examination"))
        self._examined_since = 0.0
        if lacking:
            raise HostError("\n".join(map(str, lacking)))
        name = getattr(self._library, "__name__", "?")
        return [f"{self._logins.parameters.place}, through {name}"]

    async def listen(self) -> list[str]:
        return []

    @property
    def silence(self) -> Silence | None:
        if self._examined_since and time.time() - self._examined_since > ANSWER_TIMEOUT:
            return Silence(self._examined_since, NO_REPLY)
        return self.backend.silence

    @property
    def rejected_logins(self) -> int | None:
        return self._logins.rejections

    @property
    def login_problem(self) -> str:
        return self._logins.problem

    def connections(self) -> list[QueueManagerConnectionStatus]:
        """Return the connections of the threads that serve clients."""
        return self.backend.connections()

    def read_credentials(self) -> None:
        self._logins.read_again()

    def use_limits(self, limits: LimitsConfig) -> None:
        self.memory.use(limits.memory_watermark)
        self.dead_letter_room.use_limits(limits)

    def name_publishers(self, is_wanted: bool) -> bool:
        self.backend.name_publishers(is_wanted)
        return True

    async def stop(self) -> None:
        self.memory.stop()

    def hint(self, file: Path | None) -> str:
        return f"--config {shlex.quote(str(file))}" if file is not None else ""
