"""IBM MQ, connected to through pymqi or ibmmq."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from pathlib import Path

import msgspec

from bridge.config import Configuration, IbmQueueManagerConfig, LimitsConfig
from bridge.mq.errors import MQError
from bridge.mq.host import Events, HostError
from bridge.mq.ibm.backend import IbmBackend
from bridge.mq.ibm.connection import IbmConnection, LibraryMissing, load_library, parameters
from bridge.mq.ibm.inquiry import IbmInquiry
from bridge.mq.ibm.publisher import BatchLimits
from bridge.mq.ibm.requirements import Missing, requirements_of
from bridge.mq.ibm.requirements_check import missing, refused_connection
from bridge.mq.memory import MemoryWatermark
from bridge.mq.mqi import Connection
from bridge.mq.queue_manager_status import QueueManagerInquiry
from bridge.mq.telemetry_channels import TelemetryChannelRegister
from bridge.mq.topic_inquiry import PcfTopicInquiry, TopicInquiry
from bridge.mq.worker import LOST
from bridge.security.channel_authentication import ChannelAuthenticationRegister
from bridge.security.privileged import PrivilegedUsers
from bridge.telemetry.identity import ClientNames


class IbmHost:
    """`bridge.mq.host.Host` for a queue manager that somebody else runs."""

    def __init__(self, configuration: Configuration, loop: asyncio.AbstractEventLoop) -> None:
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
        self.memory = MemoryWatermark(configuration.limits.memory_watermark)
        try:
            self._library = load_library(settings.library)
            self._parameters = parameters(settings, os.environ)
        except (LibraryMissing, MQError, OSError) as error:
            raise HostError(str(error)) from error
        names = ClientNames(settings.client_identifiers == "escaped")
        self.topic_inquiry: TopicInquiry = PcfTopicInquiry(self.connect, names)
        self.backend = IbmBackend(
            self.connect,
            loop,
            transmission_queue=configuration.transmission_queue,
            dead_letter_queue=settings.dead_letter_queue,
            publishers=settings.publishers,
            removers=settings.removers,
            limits=BatchLimits(
                messages=settings.batch.messages, bytes=settings.batch.size, seconds=settings.batch.time
            ),
            asynchronous=settings.asynchronous_puts,
            probe_interval=settings.probe_interval,
            stop_timeout=configuration.limits.shutdown_timeout,
            memory=self.memory,
            client_names=names,
            subscription_connections=settings.subscription_connections,
            outage_timeout=settings.outage_timeout or None,
            read_ahead=settings.read_ahead and settings.mode == "client",
        )

    def _examine(self) -> list[Missing]:
        """Return the requirements that the queue manager does not meet and that no waiting mends.

        A queue manager that is away is examined by whoever waits for it.
        """
        try:
            connection = self.connect("examination")
        except MQError as error:
            if error.reason in LOST:
                return []
            return [refused_connection(error, self.name, self._requirements.user)]
        try:
            return [one for one in missing(connection, self._requirements) if one.needed]
        except MQError as error:
            if error.reason in LOST:
                return []
            raise HostError(str(error)) from error
        finally:
            with contextlib.suppress(MQError):
                connection.disconnect()

    def connect(self, purpose: str) -> Connection:
        return IbmConnection(self._library, self._parameters)

    def inquiry(self) -> QueueManagerInquiry:
        return IbmInquiry(lambda: self.connect("metrics"), self.dead_letter_queue)

    def check_password(self, user: str, password: bytes) -> None:
        given = password.decode("utf-8", "replace")
        as_user = msgspec.structs.replace(self._parameters, user=user, password=given, token_file="")
        IbmConnection(self._library, as_user).disconnect()

    async def start(self, events: Events) -> list[str]:
        self.backend.on_crash = events.failed
        self.backend.on_fenced = events.fenced
        self.backend.on_standing_by = events.standing_by
        self.backend.on_outage = events.outage
        self.memory.start()
        loop = asyncio.get_running_loop()
        lacking = await loop.run_in_executor(None, self._examine)
        if lacking:
            raise HostError("\n".join(map(str, lacking)))
        name = getattr(self._library, "__name__", "?")
        return [f"{self._parameters.place}, through {name}"]

    async def listen(self) -> list[str]:
        return []

    def use_limits(self, limits: LimitsConfig) -> None:
        self.memory.use(limits.memory_watermark)

    async def stop(self) -> None:
        self.memory.stop()

    def hint(self, file: Path | None) -> str:
        return f"--config {shlex.quote(str(file))}" if file is not None else ""
