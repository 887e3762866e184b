"""The sessions of a telemetry service, as those who handle single packets see them: CONNECT, SUBSCRIBE, and wills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bridge.archive.recorder import Recorder
from bridge.config import LimitsConfig
from bridge.mapping.telemetry.identity import ClientIdentity
from bridge.mq.backend import Backend, UnitOfWork
from bridge.mqtt.channel import Connection
from bridge.mqtt.outbox import Outgoing
from bridge.mqtt.session import Session


class Sessions(Protocol):
    """What is done with sessions; `bridge.service.telemetry.TelemetryService` does it."""

    backend: Backend
    archive: Recorder | None
    limits: LimitsConfig
    clock: Callable[[], float]
    queue_manager_name: str
    #: by client identifier
    sessions: dict[str, Session]

    def new_session(self, identity: ClientIdentity, *, durable: bool) -> Session:
        """Begin the session of a client that has none."""

    def keep(self, session: Session, unit: UnitOfWork) -> Outgoing | None:
        """Put what has changed of a durable session into a unit of work.

        Returns the message whose unusual message id is on record when the unit is committed.
        """

    def recorded(self, session: Session, recording: Outgoing) -> None:
        """Send the message whose unusual message id is on record now, and those behind it."""

    def pump(self, session: Session) -> None:
        """Send what waits as far as the window allows."""

    def lost(self, connection: Connection) -> None:
        """Publish the will of a connection that is gone, and end a clean session."""

    def leave(self, session: Session) -> None:
        """Put a durable session whose client is away on record, and end a clean one."""

    def purge(self, session: Session) -> None:
        """End a session: its subscriptions, the messages that wait for it, its record."""
