"""The bridge as the admin port's thread reaches it: on the bridge's event loop, and there alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from bridge.administration.requests import Answer, AnyRequest
from bridge.mq.mqi import Connection
from bridge.security.authenticator import Authenticated, Presented
from bridge.security.authenticators import ChannelAuthentication
from bridge.service.lifecycle import Bridge

T = TypeVar("T")


class NotRunning(Exception):
    """The bridge is starting, stands by, or stops: it answers no requests."""


class BridgeAccess:
    """A bridge as the admin port's thread reaches it."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self._loop = asyncio.get_running_loop()

    async def run(self, on_loop: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the bridge's event loop; return what it returns."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(on_loop(), self._loop))

    async def answer(self, request: AnyRequest, user: str) -> Answer:
        """Have the bridge answer a request of a user. Raises NotRunning."""
        administration = self.bridge.administration
        if administration is None:
            raise NotRunning(f"the bridge is {self.bridge.state}")
        return await self.run(lambda: administration.answer(request, user))

    async def authenticate(self, presented: Presented) -> Authenticated:
        """Return who somebody is, as `admin.authentication` says.

        Raises NotRunning, AuthenticationFailed, AuthenticatorUnavailable.
        """
        authentication = self.authentication
        if authentication is None:
            raise NotRunning(f"the bridge is {self.bridge.state}")
        return await self.run(lambda: authentication.authenticate(presented))

    @property
    def authentication(self) -> ChannelAuthentication | None:
        """Return how users show who they are, another object after each reload; None where nobody can be judged yet."""
        authenticators = self.bridge.authenticators
        return None if authenticators is None else authenticators.admin

    def connect(self) -> Connection:
        """Make an MQ connection for a thread of the console; callable on any thread. Raises NotRunning, MQError."""
        if self.bridge.administration is None:
            raise NotRunning(f"the bridge is {self.bridge.state}")
        return self.bridge.administration.parts.host.connect("console")
