"""Access to the bridge from the thread of the admin port: everything runs on the bridge's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.administration.application import ApplicationCall, ApplicationMessage
from bridge.administration.protocol import Answer, Request
from bridge.mq.mqi import Connection
from bridge.mqtt.packets import Publish
from bridge.security.authenticator import Authenticated, Presented
from bridge.security.authenticators import ChannelAuthentication

if TYPE_CHECKING:
    from bridge.config.models import Configuration
    from bridge.service.applications import Applications
    from bridge.service.lifecycle import Bridge

T = TypeVar("T")


class NotRunning(Exception):
    """The bridge is starting, standing by or stopping, and cannot answer the request."""


class BridgeAccess:
    """A bridge, as the thread of the admin port can use it. Created on the bridge's event loop."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self._loop = asyncio.get_running_loop()

    @property
    def configuration(self) -> Configuration:
        """The configuration from the start or the last reload."""
        return self.bridge.configuration

    async def run(self, on_loop: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the bridge's event loop and return its result."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(on_loop(), self._loop))

    async def answer(self, request: Request[Any], user: str) -> Answer:
        """Return the bridge's answer to a request of a user. Raises NotRunning."""
        answer = await self.run(lambda: self.bridge.answer(request, user))
        if not answer.ok and self.bridge.administration is None:
            raise NotRunning(answer.lines[0])
        return answer

    async def authenticate(self, presented: Presented) -> Authenticated:
        """Authenticate a user according to `admin.authentication`.

        Raises NotRunning, AuthenticationFailed or AuthenticatorUnavailable.
        """
        authentication = self.authentication
        if authentication is None:
            raise NotRunning(f"the bridge is {self.bridge.state}")
        return await self.run(lambda: authentication.authenticate(presented))

    @property
    def authentication(self) -> ChannelAuthentication | None:
        """The authentication of users, a new object after each reload. None until the bridge can check passwords."""
        authenticators = self.bridge.authenticators
        return None if authenticators is None else authenticators.admin

    async def publish(self, application: str, message: ApplicationMessage) -> bool:
        """Publish a message of an application, and return False if it is known to have no subscriber.

        Raises NotRunning or ApplicationFailed.
        """
        return await self.run(lambda: self._applications().publish(application, message))

    async def call(self, application: str, call: ApplicationCall) -> Publish:
        """Publish a request of an application, and return its reply. Raises NotRunning or ApplicationFailed."""
        return await self.run(lambda: self._applications().call(application, call))

    def _applications(self) -> Applications:
        if (refusal := self.bridge.refusal) is not None:
            raise NotRunning(refusal)
        return self.bridge.parts.applications

    def connect(self) -> Connection:
        """Return a new MQ connection for a thread of the console. Callable on any thread. Raises NotRunning or MQError."""
        if self.bridge.administration is None:
            raise NotRunning(f"the bridge is {self.bridge.state}")
        return self.bridge.administration.parts.host.connect("console")
