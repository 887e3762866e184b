"""Logins of the bridge's threads. Only one thread retries while the queue manager is unavailable or rejects credentials.

A bridge has dozens of connections. After a password change, each of them would log in with the old password, and a few failed
logins can lock an account. That depends on the operating system, PAM or LDAP (IBM MQ documentation, "Connection
authentication: User repositories"). IBM MQ also delays the reply to a failed login (FAILDLAY of AUTHINFO).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from bridge.mq.ibm.parameters import ConnectionParameters
from bridge.mq.mqi import Connection, MQError
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Seconds until unchanged rejected credentials are retried. The last number repeats.
REJECTED_PAUSES: Final = (60.0, 600.0, 3600.0)
#: Seconds between attempts of all threads after a failure other than rejected credentials.
PAUSE: Final = 0.1
#: Reason codes for credentials that the queue manager does not accept.
REJECTED: Final = frozenset((cmqc.MQRC_NOT_AUTHORIZED, cmqc.MQRC_SECURITY_ERROR))


class RejectedCredentials(msgspec.Struct):
    """Credentials that the queue manager rejected, or a token that cannot be read."""

    credentials: tuple[str, str]
    without_token: bool
    #: number of rejections
    times: int
    #: time.monotonic() of the next attempt
    retry_at: float


class QueueManagerLogins:
    """Connects with credentials that are read again after a loss and after a failure. Callable on any thread."""

    def __init__(
        self,
        read_parameters: Callable[[], ConnectionParameters],
        connect: Callable[[ConnectionParameters], Connection],
        *,
        clock: Callable[[], float] = time.monotonic,
        pauses: Sequence[float] = REJECTED_PAUSES,
    ) -> None:
        """`read_parameters` reads the files of the configuration. Raises its errors."""
        self._read = read_parameters
        self._connect = connect
        self._clock = clock
        self._pauses = pauses
        self.parameters = read_parameters()
        self._scout = threading.Lock()
        #: whether all threads may connect. Otherwise, only one thread tries
        self._reachable = False
        #: the last failure, and the time (`clock`) at which the next attempt may begin
        self._failure: MQError | None = None
        self._retry_at = 0.0
        self._rejected: RejectedCredentials | None = None
        #: logins that the queue manager has rejected since the start
        self.rejections = 0

    @property
    def problem(self) -> str:
        """Why the last login failed, if the queue manager rejected it or the token is missing. Blank otherwise."""
        failure, rejected, parameters = self._failure, self._rejected, self.parameters
        if rejected is None or failure is None or failure.reason not in REJECTED:
            return ""
        if rejected.without_token:
            return f"gets no token from the bridge: {failure.detail}"
        who = f"of user {parameters.user}" if parameters.user else "without credentials"
        who = f"with the token of {parameters.token_file}" if parameters.token_file else who
        return f"rejected the login {who}: {cmqc.reason_name(failure.reason)} ({failure.reason})"

    def lost(self) -> None:
        """Note that a connection was lost. Only one thread makes the next attempt."""
        self._reachable = False

    def read_again(self) -> None:
        """Read the credentials again for the next connection, which needs no pause. Log a failure to read them."""
        try:
            self.parameters = self._read()
        except (MQError, OSError) as error:
            log.warning("MQB4017W the credentials for the queue manager cannot be read again: %s", error)
        self._rejected = None
        self._retry_at = 0.0

    def connect(self) -> Connection:
        """Return a new connection. Raises MQError: the previous error if another thread is trying or it is too early."""
        if self._reachable:
            return self._attempt()
        if not self._scout.acquire(blocking=False):
            raise self._failure or MQError(cmqc.MQRC_RECONNECTING, "another thread of the bridge is connecting")
        try:
            if not self._reachable:
                self._wait_for_turn()
            return self._attempt()
        finally:
            self._scout.release()

    def _wait_for_turn(self) -> None:
        """Raise the last failure if it is too early for another attempt. Read the credentials again."""
        failure, rejected = self._failure, self._rejected
        if failure is not None and self._clock() < self._retry_at:
            raise failure
        with contextlib.suppress(MQError, OSError):  # the file is being replaced: the next attempt reads it
            self.parameters = self._read()
        if failure is None or rejected is None:
            return
        if _credentials(self.parameters) == rejected.credentials and self._clock() < rejected.retry_at:
            raise failure

    def _attempt(self) -> Connection:
        parameters = self.parameters
        # Read before the attempt, so that a token that replaces it meanwhile counts as new and is tried at once.
        credentials = _credentials(parameters)
        try:
            connection = self._connect(parameters)
        except MQError as error:
            self._failed(credentials, bool(parameters.token_file) and not credentials[1], error)
            raise
        self._reachable = True
        self._failure = self._rejected = None
        return connection

    def _failed(self, credentials: tuple[str, str], without_token: bool, error: MQError) -> None:
        now = self._clock()
        self._reachable = False
        self._failure, self._retry_at = error, now + PAUSE
        if error.reason not in REJECTED:
            return
        self.rejections += not without_token
        rejection = self._rejected
        times = rejection.times + 1 if rejection is not None and rejection.credentials == credentials else 1
        pause = self._pauses[min(times, len(self._pauses)) - 1]
        self._rejected = RejectedCredentials(credentials, without_token, times, now + pause)


def _credentials(parameters: ConnectionParameters) -> tuple[str, str]:
    """Return password and token. The token is blank if it cannot be read."""
    if not parameters.token_file:
        return parameters.password, ""
    try:
        return parameters.password, parameters.token()
    except (MQError, OSError):
        return parameters.password, ""
