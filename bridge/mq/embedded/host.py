"""The embedded queue manager, run in the bridge's own process."""

from __future__ import annotations

import asyncio
import logging
import shlex
from pathlib import Path

from bridge.config import Configuration, EmbeddedQueueManagerConfig, LimitsConfig
from bridge.config.values import is_loopback
from bridge.mq.embedded.backend import EmbeddedBackend
from bridge.mq.embedded.inquiry import EmbeddedInquiry
from bridge.mq.embedded.mqsc.script import ScriptFailed, prepare, run_script
from bridge.mq.embedded.pcf.command_server import CommandServer
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server.admission import Admission
from bridge.mq.embedded.server.connection import EmbeddedConnection
from bridge.mq.embedded.server.conversation import Language
from bridge.mq.embedded.server.server import ApplicationServer
from bridge.mq.embedded.storage.data_directory import DataDirectoryInUse
from bridge.mq.embedded.storage.store import StoreError
from bridge.mq.embedded.topic_inquiry import EmbeddedTopicInquiry
from bridge.mq.errors import MQError
from bridge.mq.host import Events, HostError
from bridge.mq.memory import MemoryWatermark
from bridge.mq.mqi import Connection
from bridge.mq.queue_manager_status import QueueManagerInquiry
from bridge.mq.topic_inquiry import TopicInquiry
from bridge.security.authenticators import UnknownAuthenticator
from bridge.security.tls import TlsError

log = logging.getLogger(__name__)


class EmbeddedHost:
    """`bridge.mq.host.Host` that owns its queue manager."""

    def __init__(
        self, configuration: Configuration, loop: asyncio.AbstractEventLoop, language: Language | None = None
    ) -> None:
        settings = configuration.queue_manager
        assert isinstance(settings, EmbeddedQueueManagerConfig)
        self._settings = settings
        self.name = settings.name
        self.dead_letter_queue = ""
        self.memory = MemoryWatermark(configuration.limits.memory_watermark)
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
                f"data directory {settings.data_directory}: {error}; hint: did another user start the bridge there before, "
                "for example with sudo? Change the owner of the directory, or choose another one with --data-dir"
            ) from error
        except OSError as error:
            raise HostError(f"data directory {settings.data_directory}: {error}") from error
        self.channel_authentication = self.queue_manager.channel_authentication
        self.telemetry_channels = self.queue_manager.telemetry_channels
        self.telemetry_channels.use_file(configuration.channels)
        self.channel_authentication.use_file(configuration.channel_authentication, configuration.channels)
        listener = settings.listener
        self.queue_manager.connection_authentication.asks = listener is not None and not listener.believes
        self.queue_manager.recovery_log.reserve.keep()
        if settings.authorities == "enforced":
            self.queue_manager.enforce_authorities()
        self.queue_manager.topics.overlapping_once = settings.overlapping_subscriptions == "once"
        try:
            prepare(self.queue_manager)
            for script in settings.scripts:
                self._run_script(Path(script))
        except (HostError, ScriptFailed, MQError) as error:
            self.queue_manager.close()
            raise HostError(str(error)) from error
        default = self.queue_manager.attributes["DEFXMITQ"]
        if default != configuration.transmission_queue and configuration.channels:
            log.warning(
                "MQB3101W DEFXMITQ(%s) of the queue manager is not the bridge's transmission_queue %s: messages put "
                "straight to a "
                "client do not reach it; ALTER QMGR DEFXMITQ('%s')",
                default,
                configuration.transmission_queue,
                configuration.transmission_queue,
            )
        self.backend = EmbeddedBackend(
            self.queue_manager,
            configuration.transmission_queue,
            loop,
            retained_bytes=configuration.limits.retained_bytes,
            retained_total=configuration.limits.retained_total,
        )
        self.topic_inquiry: TopicInquiry = EmbeddedTopicInquiry(self.queue_manager)
        self._loop = loop
        try:
            self._admission = Admission(listener, self.queue_manager.connection_authentication)
        except UnknownAuthenticator as error:
            self.queue_manager.close()
            raise HostError(f"queue_manager.listener: {error}") from error
        self._server = ApplicationServer(self.queue_manager, self._admission, language)
        CommandServer(self.queue_manager).start()

    def _run_script(self, path: Path) -> None:
        try:
            run_script(self.queue_manager, path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise HostError(f"MQSC script {path}: {error}") from error

    async def start(self, events: Events) -> list[str]:
        self.memory.start()
        return [f"queue manager {self.name} (embedded), data in {self.queue_manager.data_directory}"]

    async def listen(self) -> list[str]:
        listener = self._settings.listener
        if listener is not None and not is_loopback(listener.address) and listener.believes:
            log.warning(
                "MQB3301W queue_manager.listener is on %s: whoever reaches that address is an MQ application%s, "
                "without a password",
                listener.address,
                " and administrator"
                if self.queue_manager.authorization is None
                else " with the authorities of `nobody`",
            )
        try:
            return await self._server.listen(
                (listener.address, listener.port) if listener else None, with_socket=self._settings.c_programs
            )
        except (OSError, TlsError) as error:
            raise HostError(f"MQ applications cannot be let in: {error}") from error

    def connect(self, purpose: str) -> Connection:
        return EmbeddedConnection(self.queue_manager)

    def inquiry(self) -> QueueManagerInquiry:
        return EmbeddedInquiry(self.queue_manager)

    def check_password(self, user: str, password: bytes) -> None:
        asyncio.run_coroutine_threadsafe(self._admission.check_password(user, password), self._loop).result()

    def use_limits(self, limits: LimitsConfig) -> None:
        self.backend.retained_bytes, self.backend.retained_total = limits.retained_bytes, limits.retained_total
        self.memory.use(limits.memory_watermark)

    async def stop(self) -> None:
        self.memory.stop()
        await self._server.close()
        await asyncio.get_running_loop().run_in_executor(None, self.queue_manager.close)

    def hint(self, file: Path | None) -> str:
        return f"--data-dir {shlex.quote(str(self.queue_manager.data_directory))}"
