"""Mappings within the queue manager: from a queue or topic to a queue or topic, in one unit of work.

To a mapping the bridge's own MQTT clients are MQ topics, so this is what mappings with `local` clients are. The unit of
work holds get and put alike: exactly once, whatever breaks.
"""

from __future__ import annotations

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.envelope import publication_of
from bridge.mapping.rules.rule import ToMqRule, ToMqttRule, rule_of
from bridge.mq.message_consumer import ConsumerSource, MessageConsumer
from bridge.mq.mqi import Connection, Got
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.runner import PuttingRunner
from bridge.service.mappings.status import State, Status, Tally
from bridge.telemetry.conversion import message_of
from bridge.telemetry.message import MappedMessage, Message

#: Seconds that a round waits for a message, which is how long a stop may take.
WAIT = 0.25


class TransferRunner(PuttingRunner[Got]):
    """Runs a mapping whose MQTT side is the bridge's own clients."""

    def __init__(
        self, name: str, config: ToMqMapping | ToMqttMapping, environment: MappingEnvironment, status: Status
    ) -> None:
        super().__init__(name, config, environment, status)
        self._rule: ToMqRule | ToMqttRule = rule_of(name, config, environment.origin)
        self._consumer_source = consumer_source(name, self._rule, environment.owner)
        self._queue = self._consumer_source.queue
        self._source = self._queue or self._consumer_source.topic_filter

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        self._consumer = MessageConsumer(connection, self._consumer_source, lambda: self._ending)

    def key(self, item: Got) -> bytes:
        return item.md.MsgId

    def map(self, item: Got) -> MappedMessage | None:
        message = Message(item.md, item.data)
        if isinstance(self._rule, ToMqRule):
            return self._rule.map(self.traced(item, publication_of(message)))
        publication = self._rule.map(message, request=self._consumer.request_of(item.md))
        return None if publication is None else message_of(self.traced(item, publication))

    def original(self, item: Got) -> Message:
        return Message(item.md, item.data)

    def unit(self, connection: Connection, messages: int) -> None:
        batch = self._config.batch
        items = self._consumer.take(messages, batch.size, batch.time, WAIT)
        if not items:
            self.status.state = State.RUNNING
            return
        tally = Tally()
        for item in items:
            self.move(item, tally)
        connection.commit()
        self._consumer.ended()
        self.settled(tally)

    def back_out(self) -> None:
        super().back_out()
        self._consumer.ended()

    def leave_source(self) -> int:
        return self._environment.remove_subscription(self.mapping)


def consumer_source(name: str, rule: ToMqRule | ToMqttRule, owner: str) -> ConsumerSource:
    """Return the source on the queue manager that a mapping takes messages from."""
    if isinstance(rule, ToMqttRule) and rule.queue is not None:
        return ConsumerSource(mapping=name, queue=rule.queue, requests_queue=rule.requests_queue or "")
    return ConsumerSource(mapping=name, owner=owner, topic_filter=rule.source_filter or "")
