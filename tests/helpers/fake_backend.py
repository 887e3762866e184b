"""A queue manager in memory that a test controls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import Any, TypeVar

from bridge.mq.backend import Completion, RecoveredState, SubscriptionRequest, UnitOfWork, resolve
from bridge.mqtt.packets import Publish
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import AS_IS, ClientIdentity
from bridge.telemetry.message import Message
from bridge.telemetry.record import StateKey, StateRecord
from bridge.telemetry.shard import UNDIVIDED
from bridge.telemetry.transmission import AnyMessage
from bridge.wire.mq import MQMD

T = TypeVar("T")


@dataclass(eq=False)
class Queued:
    """A message on the transmission queue."""

    client_id: str
    msg_number: int
    message: AnyMessage
    topic: str | None = None
    user_data: str | None = None
    retained: bool = False
    persistent: bool = True
    remote_queue: str = "SYSTEM.MQTT.PUBLICATION.QUEUE"
    put_time: float = 0.0
    raw: bytes | None = None
    expired: bool = False
    seconds_left: float | None = None

    @property
    def key(self) -> int:
        return self.msg_number

    @property
    def put_at(self) -> bytes:
        return b""


class FakeBackend:
    """A queue manager that a test controls. Requests wait in `waiting` if `automatic` is False."""

    hands_over_at_once = True
    outage = False
    removes_at_once = True
    divided_shares = None
    client_names = AS_IS
    shard = UNDIVIDED
    subscriptions: Sized = ()
    weight_of_all = 1
    transmission_queue = "SYSTEM.MQTT.TRANSMIT.QUEUE"
    depth = 0
    unread = 0
    takes_dead_letters = True
    #: messages on the transmission queue at the start
    lying: Sequence[Queued] = ()

    def __init__(self) -> None:
        self.automatic = True
        self.waiting: deque[Callable[[], None]] = deque()
        #: all submitted units of work
        self.units: list[UnitOfWork] = []
        #: committed
        self.entered: list[tuple[Any, bool]] = []
        self.removed: list[Any] = []
        self.states: dict[StateKey, StateRecord] = {}
        self.subscribed: list[tuple[str, str, int, bool]] = []
        self.requests: list[SubscriptionRequest] = []
        self.unsubscribed: list[tuple[str, str]] = []
        self.dead: list[tuple[Any, int]] = []
        #: clients whose publications are rejected
        self.full: list[tuple[str, bool]] = []
        #: topic -> reason code of publications, topic filter -> reason code of subscriptions
        self.refused: dict[str, int] = {}
        #: (user, topic filter) -> reason code of subscriptions that are authorized again
        self.unauthorized: dict[tuple[str, str], int] = {}
        #: topic filter -> reason code for which its subscription is not removed
        self.not_removable: dict[str, int] = {}
        #: (client identifier, topic filter, user, whether the user changed) of each subscription that was authorized again
        self.authorized: list[tuple[str, str, str, bool]] = []
        #: reason codes of rejected publications
        self.refusals: list[int] = []
        #: user -> reason code for which it may not receive messages
        self.outsiders: dict[str, int] = {}
        #: each (client identifier, user) that was checked
        self.admitted: list[tuple[str, str]] = []
        #: whether authority checks are answered at once. Otherwise, the answer waits in `waiting`
        self.admits_at_once = True
        self.failure = 0
        self.consumer: Callable[[Sequence[Queued]], None] = lambda batch: None
        self.recovered = RecoveredState([], [])
        self.reserve_dead_letter: Callable[[str, int], bool] = lambda client_id, length: True
        self.on_limit: Callable[[str, str, int], None] = lambda limit, subject, number: None
        self.on_removed: Callable[[float], None] = lambda _seconds: None
        self.on_completed: Callable[[Sequence[Completion]], None] = lambda completions: None
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a request of the service."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _ask(self, request: Callable[[], None]) -> None:
        self.waiting.append(request)
        self._changed.set()
        if self.automatic:
            asyncio.get_running_loop().call_soon(self.complete_all)

    def _answer(self, request: Callable[[], T]) -> asyncio.Future[T]:
        """Submit a request whose answer follows when it takes effect."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._ask(lambda: resolve(answer, request()))
        return answer

    @staticmethod
    def _answered(answer: T) -> asyncio.Future[T]:
        """Return an immediate answer."""
        answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        answered.set_result(answer)
        return answered

    def complete(self) -> None:
        """Complete the first waiting request."""
        self.waiting.popleft()()
        self._changed.set()

    def complete_all(self) -> None:
        while self.waiting:
            self.complete()

    async def open(self) -> RecoveredState:
        return self.recovered

    def start(self, consumer: Callable[[Sequence[Queued]], None]) -> None:
        self.consumer = consumer
        if self.lying:
            consumer(self.lying)

    def submit(self, unit: UnitOfWork) -> dict[int, int]:
        self.units.append(unit)
        refusals = {
            index: self.refused[message.topic]
            for index, (message, _) in enumerate(unit.publications)
            if message.topic in self.refused
        }
        records = unit.records_without(refusals)
        self.refusals += refusals.values()

        def take_effect() -> None:
            if not self.failure:
                self.entered += [
                    publication for index, publication in enumerate(unit.publications) if index not in refusals
                ]
                self.removed += unit.removals
                for key, record in records.items():
                    if record is None:
                        self.states.pop(key, None)
                    else:
                        self.states[key] = record
            self.on_completed([Completion(unit.number, self.failure, refusals)])

        self._ask(take_effect)
        return refusals

    def admit(self, client_id: str, user: str) -> asyncio.Future[int]:
        self.admitted.append((client_id, user))
        reason = self.outsiders.get(user, 0)
        return self._answered(reason) if self.admits_at_once else self._answer(lambda: reason)

    def subscribe(
        self,
        client_id: str,
        requests: Sequence[SubscriptionRequest],
        *,
        durable: bool,
        user: str,
        member: str = "",
    ) -> asyncio.Future[list[int]]:
        def take_effect() -> list[int]:
            reasons = [self.failure or self.refused.get(request.topic_filter, 0) for request in requests]
            for request, reason in zip(requests, reasons, strict=True):
                if not reason:
                    self.subscribed.append((client_id, request.topic_filter, request.data.qos, durable))
                    self.requests.append(request)
            return reasons

        return self._answer(take_effect)

    def weight(self, topic: str) -> int:
        return self.weight_of_all

    def authorize(
        self,
        client_id: str,
        requests: Sequence[SubscriptionRequest],
        *,
        user: str,
        changed: bool,
        member: str = "",
    ) -> asyncio.Future[list[int]]:
        self.authorized += [(client_id, request.topic_filter, user, changed) for request in requests]
        reasons = [self.unauthorized.get((user, request.topic_filter), 0) for request in requests]
        return self._answer(lambda: reasons) if changed else self._answered(reasons)

    def refuse(self, client_id: str, refused: bool) -> None:
        self.full.append((client_id, refused))

    def unsubscribe(
        self,
        client_id: str,
        filters: Iterable[str],
        *,
        ended: bool = False,
        handed_over: bool = False,
    ) -> asyncio.Future[list[int]]:
        def take_effect() -> list[int]:
            self.unsubscribed += [(client_id, topic_filter) for topic_filter in filters]
            return [self.not_removable.get(topic_filter, 0) for topic_filter in filters]

        return self._answer(take_effect)

    def flush(self) -> asyncio.Future[None]:
        return self._answer(lambda: None)

    def dead_letter(self, transmission: Any, reason: int, on_done: Callable[[bool], None]) -> None:
        if self.takes_dead_letters:
            self.dead.append((transmission, reason))
        self._changed.set()
        on_done(self.takes_dead_letters)

    def payloads(self) -> list[bytes]:
        return [message.payload for message, _ in self.entered]

    # Messages for clients

    def publication(
        self, number: int, qos: int, *, client_id: str = "c", payload: bytes | None = None, **fields: Any
    ) -> Queued:
        """Return a publication of another client, for a subscription with QoS 2."""
        content = b"%d" % number if payload is None else payload
        message = to_mq(Publish("t", content, qos, False, False, 1 if qos else 0), ClientIdentity("p", b""))
        return Queued(client_id, number, message, **{"topic": "t", "user_data": "2"} | fields)

    def direct(self, number: int, *, client_id: str = "c", body: bytes = b"", format_: bytes = b"") -> Queued:
        """Return a message that an MQ application put directly to the client."""
        return Queued(client_id, number, Message(MQMD(Format=format_), body), remote_queue="command")

    def deliver(self, *batch: Queued) -> None:
        self.consumer(batch)
