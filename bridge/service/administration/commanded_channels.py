"""Access to the running channels for MQ commands."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec

from bridge.administration.answers import ChannelState, ChannelStatus
from bridge.mq.telemetry_channels import ClientChannelStatus, RunningChannels
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security.authenticators import Authenticators
from bridge.service.administration.clients import purge, status_of
from bridge.service.administration.handlers import statuses_of
from bridge.service.administration.parts import ROWS_AT_A_TURN, Parts
from bridge.service.channels import ChannelError
from bridge.telemetry.session import Session

log = logging.getLogger(__name__)


class CommandedChannels(RunningChannels):
    """Reads channel status on any thread, and performs commands one at a time on the event loop."""

    active = True

    def __init__(self, parts: Parts, authenticators: Authenticators) -> None:
        self._parts = parts
        self._authenticators = authenticators
        self._loop = asyncio.get_running_loop()
        self._working = asyncio.Lock()
        #: the event loop keeps no strong reference to tasks
        self._tasks: set[asyncio.Task[None]] = set()
        #: channel name -> the last unfinished command and the resulting state
        self._commands: dict[str, tuple[object, ChannelState]] = {}

    def statuses(self) -> Sequence[ChannelStatus]:
        states = dict(self._commands)
        return [
            msgspec.structs.replace(status, state=states[status.name][1]) if status.name in states else status
            for status in statuses_of(self._parts)
        ]

    def clients(self, is_wanted: Callable[[str], bool]) -> Iterator[ClientChannelStatus]:
        for session in list(self._parts.service.sessions.values()):
            if is_wanted(session.client_id):
                yield self._status(session)

    def client(self, client_id: str) -> ClientChannelStatus | None:
        session = self._parts.service.sessions.get(client_id)
        return None if session is None else self._status(session)

    def _status(self, session: Session) -> ClientChannelStatus:
        service = self._parts.service
        client = service.clients.get(session.client_id)
        sent_at = session.outbox.last_sent
        last_sent_at = time.time() - (service.clock() - sent_at) if sent_at else 0.0
        return ClientChannelStatus(
            status=status_of(self._parts, session),
            user_name="" if client is None else client.user_name,
            keep_alive=0 if client is None else client.protocol.keep_alive,
            unreleased=len(session.receiver.identifiers),
            messages_received=session.messages_received,
            messages_sent=session.outbox.messages_sent,
            last_message_at=max(last_sent_at, session.last_received_at / 1_000_000),
        )

    def start(self, name: str) -> None:
        async def work() -> None:
            log.info("MQB1006I %s", await self._parts.channels.start(name))

        self._ask(work, name, "starting")

    def stop(self, name: str, client_id: str | None = None) -> None:
        async def work() -> None:
            if client_id is None:
                log.info("MQB1007I %s", await self._parts.channels.stop(name))
                return
            client = self._parts.service.clients.get(client_id)
            if client is not None and client.channel.name == name:
                client.close("disconnected by STOP CHANNEL", ReasonCode.ADMINISTRATIVE_ACTION)

        self._ask(work, name, None if client_id is not None else "stopping")

    def purge(self, name: str, client_id: str | None = None) -> None:
        async def work() -> None:
            service, channels = self._parts.service, self._parts.channels
            if client_id is not None:
                session = service.sessions.get(client_id)
                if session is not None and session.channel == name:
                    purge(self._parts, session)
                return
            channel = channels.get(name)
            if channel is None:
                return
            # Prevent clients from reconnecting, and delete wills before closing connections.
            channel.stop_listening()
            connected = [own for own, client in service.clients.items() if client.channel.name == name]
            for number, own in enumerate(connected, 1):
                session = service.sessions.get(own)
                if session is not None and session.channel == name:
                    purge(self._parts, session)
                if not number % ROWS_AT_A_TURN:
                    await asyncio.sleep(0)
            log.info("MQB1008I %s; purged its connected clients", await channels.stop(name))

        self._ask(work, name, None if client_id is not None else "stopping")

    def changed(self) -> None:
        async def work() -> None:
            parts = self._parts
            register = parts.host.telemetry_channels
            of_file = {
                channel_name.name: parts.service.authentication[channel_name.name] for channel_name in register.of_file
            }
            parts.service.authentication = of_file | self._authenticators.of_channels(register.of_commands)
            for line in await parts.channels.apply():
                log.info("MQB1009I %s", line)

        self._ask(work)

    def _ask(self, work: Callable[[], Awaitable[None]], name: str = "", state: ChannelState | None = None) -> None:
        """Schedule a command on the event loop after the previous ones. Until it ends, the channel's state is `state`."""
        mark = object()
        if state is not None:
            self._commands[name] = mark, state

        async def do() -> None:
            async with self._working:
                try:
                    await work()
                except ChannelError as error:
                    log.error("MQB1010E a command for a telemetry channel failed: %s", error)
                except Exception:
                    log.exception("MQB1011E a command for a telemetry channel failed unexpectedly")
                finally:
                    if self._commands.get(name, (None,))[0] is mark:
                        del self._commands[name]

        def begin() -> None:
            task = self._loop.create_task(do())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._loop.call_soon_threadsafe(begin)
