"""The environment of the delivery model: a queue manager that commits on command, and a network without sockets."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.config.channel import ChannelConfig
from bridge.mq.backend import Completion, RecoveredState, UnitOfWork
from bridge.mqtt.packets import Packet
from bridge.mqtt.reader import Decoder
from bridge.service.turns import Turns
from bridge.telemetry.identity import AS_IS
from bridge.telemetry.record import ReceivedRecord, Side, StateKey, StateRecord
from bridge.telemetry.shard import UNDIVIDED
from bridge.telemetry.transmission import PublicationMessage
from bridge.transport.stream import MakesOwner, StreamConnection

CLIENT = "c"
#: last two bytes of the MsgIds: few values, so that message ids collide
LOW_NUMBERS = (0, 1, 2, 3, 0xFFFF)
MQRC_PUT_INHIBITED = 2051
MQRC_RESOURCE_PROBLEM = 2102


def low_number(form: str, counted: int, drawn: int) -> int:
    """Return the last two bytes of a MsgId: random ones, or those of IBM MQ on Linux or AIX."""
    return {"drawn": drawn, "linux": 0x40, "aix": 0x0600 | counted % 4}[form]


@dataclass(eq=False)
class Queued:
    """A message on the transmission queue."""

    msg_number: int
    message: PublicationMessage
    qos: int
    topic: str
    user_data: str | None = "2"
    retained: bool = False
    persistent: bool = True
    remote_queue: str = "Q"
    put_time: float = 0.0
    raw: bytes | None = None
    client_id: str = CLIENT
    expired: bool = False
    seconds_left: float | None = None
    #: the position of its put
    put: int = 0
    priority: int = 0
    key: int | bytes = 0
    put_at: bytes = b""


class AtOnce(Turns):
    """Run each job at once."""

    def run(self, job: Callable[[], None]) -> None:
        job()


class QueueManager:
    """The backend: units of work wait until the machine commits or fails the first of them, or the power fails."""

    shard = UNDIVIDED

    removes_at_once = True
    divided_shares = None
    client_names = AS_IS
    outage = False
    depth = 0
    unread = 0
    reserve_dead_letter = staticmethod(lambda client_id, length: True)
    on_limit = staticmethod(lambda limit, subject, number: None)
    on_removed = staticmethod(lambda seconds: None)
    subscriptions = ()
    transmission_queue = "SYSTEM.MQTT.TRANSMIT.QUEUE"

    def __init__(self, *, renumbers: bool = False) -> None:
        self.hands_over_at_once = not renumbers
        #: the number of messages that the bridge has seen since it started
        self.seen = 0
        self.units: deque[tuple[UnitOfWork, dict[int, int]]] = deque()
        #: committed state: the transmission queue, the records, and the payloads of accepted publications
        self.queue: list[Queued] = []
        self.states: dict[StateKey, StateRecord] = {}
        self.on_completed: Callable[[Sequence[Completion]], None] = lambda completions: None
        self.entered: list[bytes] = []
        self.inhibited = False
        self.on_removal: Callable[[Queued], None] = lambda queued: None

    async def open(self) -> RecoveredState:
        return RecoveredState(list(self.states.values()), [])

    def start(self, consumer: Callable[[Sequence[Queued]], None]) -> None:
        if self.queue:
            consumer(list(self.queue))

    async def caught_up(self) -> None:
        return

    def put(self, put: int, low: int, message: PublicationMessage, qos: int, priority: int) -> Queued:
        """Put a message to the transmission queue."""
        topic = f"out/{qos}/{priority}"
        queued = Queued(put << 16 | low, message, qos, topic, put=put, priority=priority, key=put << 16 | low)
        if not self.hands_over_at_once:
            self.seen += 1
            msg_id = b"AMQ QM".ljust(18) + put.to_bytes(4, "big") + low.to_bytes(2, "big")
            queued = replace(queued, msg_number=self.seen << 16 | low, key=msg_id, put_at=b"%08d" % put)
        self.queue.append(queued)
        return queued

    def restart(self) -> None:
        """End the bridge: uncommitted work is lost, and a new one sees the messages in the order of the queue."""
        self.units.clear()
        self.queue = [message for message in self.queue if message.qos]  # QoS 0 messages are not persistent
        if self.hands_over_at_once:
            return
        self.queue.sort(key=lambda message: (-message.priority, message.put))
        self.seen = len(self.queue)
        self.queue = [
            replace(message, msg_number=position << 16 | message.msg_number & 0xFFFF)
            for position, message in enumerate(self.queue, start=1)
        ]

    def admit(self, client_id: str, user: str) -> asyncio.Future[int]:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer.set_result(0)
        return answer

    def submit(self, unit: UnitOfWork) -> dict[int, int]:
        refusals = dict.fromkeys(range(len(unit.publications)), MQRC_PUT_INHIBITED) if self.inhibited else {}
        self.units.append((unit, refusals))
        return refusals

    def subscribe(self, client_id: str, filters: object, durable: bool) -> None:
        raise AssertionError("nobody subscribes here")

    def unsubscribe(self, client_id: str, filters: object) -> None:
        raise AssertionError("nobody unsubscribes here")

    def dead_letter(self, transmission: Queued, reason: int, on_done: Callable[[bool], None]) -> None:
        raise AssertionError(f"message {transmission.msg_number} is dead-lettered, {reason}")

    def commit(self) -> None:
        unit, refusals = self.units.popleft()
        for index, (message, _) in enumerate(unit.publications):
            if index not in refusals:
                self.entered.append(message.payload)
        for removed in unit.removals:
            if removed in self.queue:
                self.on_removal(removed)
                self.queue.remove(removed)
        for key, record in unit.records_without(refusals).items():
            if record is None:
                self.states.pop(key, None)
            else:
                self.states[key] = record
        self.on_completed([Completion(unit.number, 0, refusals)])

    def fail(self) -> None:
        """Fail all waiting units, because later ones depend on the changes of earlier ones."""
        for _ in range(len(self.units)):
            unit, refusals = self.units.popleft()
            self.on_completed([Completion(unit.number, MQRC_RESOURCE_PROBLEM, refusals)])

    def received_ids(self) -> list[int]:
        record = self.states.get(StateKey(Side.RECEIVED, CLIENT))
        return record.received if isinstance(record, ReceivedRecord) else []


class Transport:
    """Replacement for asyncio's transport: the machine gets the writes, and decides when closing takes effect."""

    def __init__(self, written: Callable[[Transport, bytes], None]) -> None:
        self.written = written
        self.closed = False
        self.reading = True

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.written(self, data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Loop(asyncio.AbstractEventLoop):
    """The clock, and a minimal event loop, which runs on command."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ready: deque[tuple[Context | None, Callable[..., object], tuple[Any, ...]]] = deque()
        asyncio._set_running_loop(self)

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Cancel tasks of a crashed bridge, which are pending when they are destroyed."""

    def call_later(self, *_arguments: object) -> None:  # type: ignore[override]
        pass

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> None:
        self._ready.append((context, callback, arguments))

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coroutine: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        return asyncio.Task(coroutine, loop=self)

    def turn(self) -> None:
        """Run due jobs, and jobs that follow from them."""
        asyncio._set_running_loop(self)
        while self._ready:
            context, callback, arguments = self._ready.popleft()
            if context is None:
                callback(*arguments)
            else:
                context.run(callback, *arguments)

    def close(self) -> None:
        asyncio._set_running_loop(None)


class FakeChannel:
    """The interface that a StreamConnection needs of its channel, without an event loop."""

    def __init__(self, make_owner: MakesOwner, loop: Loop) -> None:
        self.config = ChannelConfig()
        self.make_owner = make_owner
        self.loop = loop
        self.pending_bytes = 1000
        self.connections: set[StreamConnection] = set()

    def admit(self, connection: StreamConnection) -> str:
        self.connections.add(connection)
        return ""

    def stack(self, connection: StreamConnection) -> None:
        return None

    def discard(self, connection: StreamConnection) -> None:
        self.connections.discard(connection)


@dataclass
class Link:
    """A network connection, with the bytes in transit."""

    connection: StreamConnection
    transport: Transport
    decoder: Decoder
    receive_maximum: int
    to_client: deque[Packet] = field(default_factory=deque)
    to_bridge: list[Packet] = field(default_factory=list)
    accepted: bool = False
    #: message ids that the bridge sent with QoS 1 or 2 over this link and that were not acknowledged
    unacknowledged: set[int] = field(default_factory=set)
    slow: bool = False


@dataclass
class Outward:
    """An unfinished publication of the client."""

    payload: bytes
    qos: int
    topic: str
    released: bool = False
