"""The sessions of a telemetry service, as those who handle single packets see them: CONNECT, SUBSCRIBE, and wills."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from bridge.config import LimitsConfig
from bridge.mq.backend import Backend
from bridge.security.authenticators import ChannelAuthentication
from bridge.security.channel_authentication import ChannelAuthenticationRegister
from bridge.security.failed_connects import FailedConnects
from bridge.service.client import Client
from bridge.service.events import EventBus
from bridge.service.quotas import Quotas
from bridge.service.timers import Timers
from bridge.service.units import Units
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.request import ReplyAddresses
from bridge.telemetry.session import Session


class Wills(Protocol):
    """Wills that wait for their delay; `bridge.service.will.Wills` keeps them."""

    def withdraw(self, client_id: str) -> None:
        """Forget the will of a client that is back."""


class Sessions(Protocol):
    """What is done with sessions; `bridge.service.telemetry.TelemetryService` does it."""

    backend: Backend
    events: EventBus
    limits: LimitsConfig
    clock: Callable[[], float]
    queue_manager_name: str
    #: how clients show who they are, by channel; of one that is not there nobody is asked
    authentication: Mapping[str, ChannelAuthentication]
    failed_connects: FailedConnects
    channel_authentication: ChannelAuthenticationRegister
    units: Units
    quotas: Quotas
    #: the topics by which clients answer requests from MQ
    replies: ReplyAddresses
    #: when the sessions of clients that are away expire
    timers: Timers
    #: by client identifier
    sessions: dict[str, Session]
    #: by client identifier: the clients whose CONNECT is being committed, or was answered by CONNACK 0
    clients: dict[str, Client]

    @property
    def wills(self) -> Wills:
        """Return the wills that wait for their delay."""

    def new_session(self, identity: ClientIdentity, *, durable: bool) -> Session:
        """Begin the session of a client that has none."""

    def pump(self, client: Client) -> None:
        """Send what waits for a client as far as the window allows."""

    def lost(self, client: Client) -> None:
        """Publish the will of a client whose connection is gone, and end a clean session."""

    def leave(self, session: Session) -> None:
        """Put a durable session whose client is away on record, and end a clean one."""

    def after_purge(self, client_id: str, then: Callable[[], None]) -> bool:
        """Call `then` when the messages of an ended session are removed; return False if there is nothing to wait for."""

    def purge(self, session: Session) -> None:
        """End a session: its subscriptions, the messages that wait for it, its record."""
