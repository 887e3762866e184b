"""A queue manager, a broker, and the mappings between them, with faults at any verb and any call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
from pydantic import TypeAdapter

from bridge.administration.mapping_status import MappingStatus
from bridge.config.link import LinkConfig
from bridge.config.mapping import AnyMapping
from bridge.config.models import LimitsConfig
from bridge.config.values import endpoint
from bridge.mapping.loops import LoopGuard
from bridge.mq.dead_letter_room import DeadLetterRoom
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.link_sessions import ExchangeRecord, Exchanges, LinkSession
from bridge.mq.mqi import MQOD, GetOptions, Got, MQError
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.registry import runner_of
from bridge.service.mappings.runner import Runner
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, MQMD, decode_mqdlh, decode_rfh2
from tests.helpers.breakable_connection import BreakableConnection
from tests.helpers.breakable_connection import Fault as OneFault
from tests.helpers.mapping_broker import Broker, FakeLink, Killed, LinkFault
from tests.helpers.patience import PATIENCE

DEAD_LETTERS = "SYSTEM.DEAD.LETTER.QUEUE"
#: The application name of the bridge at its queue manager.
OWNER = "SYSTEM.MQTT.TRANSMIT.QUEUE"
LINK = LinkConfig(host="broker.invalid")
_mapping: TypeAdapter[Any] = TypeAdapter(AnyMapping)


def mapping_config(source: dict[str, str], destination: dict[str, str], **keys: Any) -> Any:
    """A mapping of the configuration."""
    return _mapping.validate_python({"from": source, "to": destination, **keys})


class Fault(OneFault):
    """Break one connection of a mapping at its n-th verb, counted over all its connections, or kill the bridge there."""

    def __init__(self, number: int = 0, *, after: bool = False, kills: bool = False) -> None:
        super().__init__("", number, after=after)
        self.kills = kills

    def strikes(self, purpose: str, verb: str) -> bool:
        return super().strikes("", verb)


class MortalConnection:
    """A connection of a bridge that is killed at the fault, if the fault kills."""

    def __init__(self, inner: BreakableConnection, scene: Scene) -> None:
        self.inner, self._scene = inner, scene

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.inner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            scene = self._scene
            try:
                returned = verb(*arguments, **options)
            except MQError as error:
                if scene.fault.kills and scene.fault.struck and not scene.killed:
                    scene.kill()
                    raise Killed from None
                nothing = name == "get" and error.reason == cmqc.MQRC_NO_MSG_AVAILABLE
                scene.broker.idle = scene.broker.idle + 1 if nothing else 0
                raise
            scene.broker.idle = 0
            if name in ("commit", "backout"):
                scene.broker.trace.append(name)
            return returned

        return call


class Scene:
    """One queue manager and one broker, and the host of the mappings."""

    name = "QM1"
    dead_letter_queue = ""
    epoch = ""

    def __init__(self, queue_manager: QueueManager) -> None:
        self.queue_manager = queue_manager
        self.application = EmbeddedConnection(queue_manager)
        self.broker = Broker()
        self.broker.kill = self.kill
        self.fault = Fault()
        self.killed = False
        self.links: dict[str, FakeLink] = {}
        self._connections: list[MortalConnection] = []
        self.dead_letter_room = DeadLetterRoom(LimitsConfig())
        self.environment = MappingEnvironment(self, OWNER)

    def name_publishers(self, wanted: bool) -> bool:
        return False

    # The host --------------------------------------------------------------------------------------------------------

    def connect(self, purpose: str) -> Any:
        connection = MortalConnection(
            BreakableConnection(self.queue_manager, purpose, self.fault),
            self,
        )
        self._connections.append(connection)
        return connection

    def kill(self) -> None:
        """Kill the bridge: the queue manager backs out the work of its connections."""
        self.killed = True
        for connection in self._connections:
            if not connection.inner._dead and connection.inner._inner._connected is not None:
                connection.inner.die()
        self._connections.clear()

    def link_connection(
        self, mapping: str, name: str, config: LinkConfig, *, topic_filter: str | None = None, **options: Any
    ) -> FakeLink:
        """Replacement for `bridge.link.connection.link_connection`."""
        options.pop("client_id", None)
        link = self.links[mapping] = FakeLink(self.broker, **options)
        link.address = endpoint(config.host, config.broker_port)
        return link

    def record(self, connection: Any = None, mapping: str = "map") -> ExchangeRecord:
        """Return the record of the exchanges in a mapping's session."""
        client_id = f"mqbridge-{self.environment.bridge_id(self.application)}-{mapping}"
        session = LinkSession(mapping, OWNER, "L", LINK.host, LINK.broker_port, client_id, [])
        return ExchangeRecord(connection or self.application, session)

    def recorded(self, **exchanges: Any) -> None:
        """Record exchanges, as if the bridge had been killed."""
        record = self.record()
        record.load()
        record.save(Exchanges(**exchanges))
        self.application.commit()

    # Mappings --------------------------------------------------------------------------------------------------------

    def runner(self, config: Any, name: str = "map", status: MappingStatus | None = None) -> Runner:
        """Start the thread of a mapping. The mapping is the only one unless `environment.guard` specifies others."""
        on_link = (config.source if hasattr(config.source, "mqtt") else config.destination).link != "local"
        runner = runner_of(
            name, config, LINK if on_link else None, self.environment, status or MappingStatus(name=name)
        )
        self._runner = runner
        runner.start()
        return runner

    def run(
        self,
        config: Any,
        is_finished: Callable[[], bool],
        *,
        fault: Fault | None = None,
        link_fault: LinkFault | None = None,
    ) -> MappingStatus:
        """Run a mapping until everything is done, over one fault. A killed mapping is restarted. Return its status."""
        self.fault = fault or Fault()
        self.broker.fault = link_fault or LinkFault()
        self.killed = False
        self.broker.idle = 0
        self.environment.guard = LoopGuard({"map": config}, self.name)
        runner = self.runner(config)
        before = time.monotonic() + PATIENCE
        while not is_finished():
            if not runner._thread.is_alive():
                assert self.killed, f"the mapping has ended: {runner.status}"
                # The cause of the kill is over.
                self.fault, self.broker.fault = Fault(), LinkFault()
                runner = self.runner(config, status=runner.status)
            assert time.monotonic() < before, (runner.status, self.broker.failures)
            threading.Event().wait(0.001)
        self.stop(runner)
        assert self.broker.failures == []
        return runner.status

    def settled(self) -> bool:
        """Return whether the mapping has found nothing to do several times, or its thread has ended."""
        return self.broker.idle >= 3 or self._runner.parked

    def stop(self, runner: Runner) -> None:
        runner.stop()
        assert runner.join(PATIENCE), "the mapping does not stop"

    # MQ applications -------------------------------------------------------------------------------------------------

    def mqsc(self, script: str) -> None:
        for response in self.application.command(script):
            assert response.ok, response.message

    @staticmethod
    def od(queue: str) -> MQOD:
        return MQOD(ObjectName=queue)

    @staticmethod
    def topic(name: str) -> MQOD:
        return MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=name)

    @staticmethod
    def message(body: bytes, **md: Any) -> Message:
        return Message(MQMD(**md), body)

    def put(self, queue: str, *bodies: bytes, **md: Any) -> None:
        for body in bodies:
            self.application.put1(MQOD(ObjectName=queue), Message(MQMD(**md), body))

    def publish(self, topic: str, *bodies: bytes, **md: Any) -> None:
        for body in bodies:
            self.application.put1(self.topic(topic), Message(MQMD(**md), body))

    def depth(self, queue: str) -> int:
        (response,) = self.application.command(f"DISPLAY QLOCAL('{queue}') CURDEPTH")
        return int(response.objects[0]["CURDEPTH"])

    def take_messages(self, queue: str) -> list[Got]:
        """Get all messages of a queue, without properties."""
        handle = self.application.open(MQOD(ObjectName=queue), cmqc.MQOO_INPUT_SHARED)
        messages = []
        try:
            while True:
                messages.append(self.application.get(handle, GetOptions(Options=cmqc.MQGMO_NO_PROPERTIES)))
        except MQError as error:
            assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE, error
        self.application.close(handle)
        return messages

    def bodies(self, queue: str) -> list[bytes]:
        """Return payloads: the data after the RFH2."""
        return [payload(message.data) for message in self.take_messages(queue)]

    def letters(self, queue: str = DEAD_LETTERS) -> list[DeadLetterMessage]:
        """Get the messages of the dead-letter queue, or of another queue with dead letters."""
        letters = []
        for message in self.take_messages(queue):
            header = decode_mqdlh(message.data)
            letters.append(DeadLetterMessage(header, payload(message.data[cmqc.MQDLH_LENGTH_1 :])))
        return letters


class DeadLetterMessage(msgspec.Struct):
    """A message of the dead-letter queue."""

    header: MQDLH
    body: bytes


def payload(data: bytes) -> bytes:
    """Return the data after an RFH2, if any."""
    return data[decode_rfh2(data).StrucLength :] if data.startswith(b"RFH ") else data
