"""Authentication of clients by the queue manager's password check (IBM MQ documentation, "Connection authentication")."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from bridge.mq.mqi import MQError
from bridge.security.authenticator import Authenticated, AuthenticationFailed, AuthenticatorUnavailable, Presented
from bridge.security.verification_queue import VerificationQueue
from bridge.wire import cmqc

#: The maximum number of concurrent password checks.
THREADS: Final = 2


class QueueManagerAuthenticator:
    """Authenticates clients with the queue manager's password check."""

    def __init__(self, check: Callable[[str, bytes], None], executor: Executor) -> None:
        """Initialize with a function that checks user and password on `executor`, and raises MQError if it rejects them."""
        self._check = check
        self._queue = VerificationQueue(executor, THREADS)

    def judges(self, presented: Presented) -> bool:
        return presented.user_name is not None or presented.password is not None

    async def authenticate(self, presented: Presented) -> Authenticated:
        user, password = presented.user_name, presented.password
        if not user or not password:
            raise AuthenticationFailed("it gives no user name, or no password")
        try:
            await self._queue.run(presented, self._check, user, password)
        except MQError as error:
            if error.reason == cmqc.MQRC_NOT_AUTHORIZED:
                raise AuthenticationFailed(f"the queue manager does not know user {user[:40]!r} with that password") from None
            raise AuthenticatorUnavailable(f"the queue manager cannot check passwords: {error}") from error
        return Authenticated(user)
