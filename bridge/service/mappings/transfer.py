"""Transfers of a mapping between queues and topics of the queue manager, past blocked destination queues."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator

import msgspec

from bridge.administration.mapping_status import BlockedQueue, State, Status
from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.rules.rule import ToMqRule, ToMqttRule, rule_of
from bridge.mq.message_consumer import ConsumerSource, MessageConsumer
from bridge.mq.message_producer import name_of
from bridge.mq.mqi import Connection, Got
from bridge.service.mappings.environment import MappingEnvironment
from bridge.service.mappings.runner import BLOCKING, FIRST_RETRY, LONGEST_RETRY, PASSING, MessageRefused, PuttingRunner
from bridge.service.mappings.status import LOOK_AHEAD, Tally
from bridge.telemetry.conversion import message_of, publication_of
from bridge.telemetry.message import Destination, MappedMessage, Message
from bridge.wire import cmqc

log = logging.getLogger(__name__)


class _Blocked(msgspec.Struct):
    """A blocked queue."""

    destination: Destination
    reason: int
    #: seconds since the epoch
    since: float
    #: MsgTokens of the messages waiting for it, in order
    tokens: deque[bytes]
    #: number of rejections of the first of them
    refusals: int = 0
    #: time.monotonic() of the next attempt
    retry_at: float = 0.0


class BlockedQueues:
    """The blocked queues of one mapping. Only MsgTokens are kept here. The messages stay on their source."""

    def __init__(self, mapping: str, first_retry: float, longest_retry: float) -> None:
        """Set the first and longest pause between attempts, in seconds."""
        self._mapping = mapping
        self._first_retry, self._longest_retry = first_retry, longest_retry
        self._queues: dict[Destination, _Blocked] = {}
        self._waiting = 0
        self._full_logged = False

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def waiting(self) -> int:
        """The number of waiting messages."""
        return self._waiting

    @property
    def full(self) -> bool:
        """Whether the look-ahead limit (LOOK_AHEAD waiting messages) is reached. Logged once."""
        if self._waiting < LOOK_AHEAD:
            return False
        if not self._full_logged:
            self._full_logged = True
            log.warning(
                "MQB5009W mapping %s: %d messages wait for blocked queues, the maximum; all later messages wait, too",
                self._mapping,
                self._waiting,
            )
        return True

    def block(self, destination: Destination, reason: int) -> None:
        """Record that a queue rejected a message, and schedule its next attempt with back-off."""
        queue = self._queues.get(destination)
        if queue is None:
            queue = self._queues[destination] = _Blocked(destination, reason, time.time(), deque())
            log.warning(
                "MQB5007W mapping %s: %s accepts no messages: %s; messages for other destinations continue",
                self._mapping, name_of(destination), _in_words(reason),
            )  # fmt: skip
        queue.reason = reason
        pause = min(self._first_retry * 4 ** min(queue.refusals, 10), self._longest_retry)
        queue.refusals += 1
        queue.retry_at = time.monotonic() + pause

    def wait_for(self, destination: Destination, token: bytes) -> bool:
        """Add a message to the waiting ones if its queue is blocked and return whether it is."""
        queue = self._queues.get(destination)
        if queue is None:
            return False
        queue.tokens.append(token)
        self._waiting += 1
        return True

    def due(self) -> Iterator[Destination]:
        """Yield the queues due for another attempt."""
        now = time.monotonic()
        for queue in [queue for queue in self._queues.values() if queue.retry_at <= now]:
            yield queue.destination

    @property
    def next_retry(self) -> float:
        """Seconds until the next attempt."""
        return max(0.0, min(queue.retry_at for queue in self._queues.values()) - time.monotonic())

    def first(self, destination: Destination) -> tuple[bytes, int] | None:
        """Return the MsgToken of a queue's first waiting message and the number of its rejections."""
        queue = self._queues[destination]
        return (queue.tokens[0], queue.refusals) if queue.tokens else None

    def moved(self, destination: Destination) -> None:
        """Remove the first waiting message of a queue."""
        queue = self._queues[destination]
        queue.tokens.popleft()
        queue.refusals = 0
        self._waiting -= 1

    def unblock(self, destination: Destination) -> None:
        """Remove a queue for which no messages wait."""
        del self._queues[destination]
        self._full_logged = self._full_logged and bool(self._queues)
        log.info("MQB5008I mapping %s: %s accepts messages again", self._mapping, name_of(destination))

    def forget_messages(self) -> None:
        """Forget the waiting messages: the source is browsed again from the front."""
        for queue in self._queues.values():
            queue.tokens.clear()
        self._waiting = 0

    def listed(self) -> list[BlockedQueue]:
        """Return the blocked queues for display."""
        return [
            BlockedQueue(
                queue=queue.destination.name,
                queue_manager=queue.destination.queue_manager,
                reason=_in_words(queue.reason),
                waiting=len(queue.tokens),
                since=queue.since,
            )
            for queue in self._queues.values()
        ]


def _in_words(reason: int) -> str:
    return f"{cmqc.reason_name(reason)} ({reason})"


#: Seconds to wait for a message, which is also the maximum delay of a stop.
WAIT = 0.25
#: Seconds between updates of the blocked queues in the status.
SHOWN_EVERY = 0.5


class TransferRunner(PuttingRunner[Got]):
    """Runs a mapping whose MQTT side consists of the bridge's own clients."""

    def __init__(
        self, name: str, config: ToMqMapping | ToMqttMapping, environment: MappingEnvironment, status: Status
    ) -> None:
        super().__init__(name, config, environment, status)
        self._rule: ToMqRule | ToMqttRule = rule_of(name, config, environment.origin)
        self._consumer_source = consumer_source(name, self._rule, environment.owner)
        self._queue = self._consumer_source.queue
        self._source = self._queue or self._consumer_source.topic_filter
        self._blocked = BlockedQueues(name, FIRST_RETRY, LONGEST_RETRY)
        #: time of the last status update, from time.monotonic()
        self._shown_at = -SHOWN_EVERY

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        self._open_source(connection)

    def _open_source(self, connection: Connection) -> None:
        self._consumer = MessageConsumer(connection, self._consumer_source, lambda: self._ending)
        # MsgTokens and marks belong to the previous handle.
        self._blocked.forget_messages()

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
        if self._blocked:
            self._unit_past_blocked(connection, messages)
            return
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
        if self._consumer.has_browsed:
            # Messages of the unit of work may be marked as browsed although they do not wait for a queue.
            assert self.connection is not None
            self._consumer.close()
            self._open_source(self.connection)

    # Past blocked queues ----------------------------------------------------------------------------------------------

    def goes_on_past(self, refusal: MessageRefused) -> bool:
        passes = isinstance(self._config, ToMqMapping) and self._config.passes_blocked_queues
        if not passes or refusal.reason not in BLOCKING or not self._consumer.may_browse:
            return False
        self._block(refusal)
        return True

    def _block(self, refusal: MessageRefused) -> None:
        self._blocked.block(refusal.destination, refusal.reason)
        self.status.wrong(str(refusal), State.RETRYING)

    def _unit_past_blocked(self, connection: Connection, messages: int) -> None:
        """Run a unit of work while queues are blocked: move the messages for other destinations.

        Each message is browsed, put, and then got, so a rejected put needs no backout. Every rejection here blocks its queue,
        which preserves the order of its messages. Raises MessageRefused for errors that concern all queues.
        """
        tally = Tally()
        for destination in self._blocked.due():
            self._retry(destination, tally, max(messages // 2, 1))
        if not self._blocked:
            self._commit(connection, tally)
            return
        blocked, batch, length = self._blocked, self._config.batch, 0
        until = time.monotonic() + batch.time
        for browsed in range(messages):
            if blocked.full:
                if not tally.taken:
                    self.pause(min(blocked.next_retry, WAIT))
                break
            got = self._consumer.browse(0.0 if browsed or tally.taken else min(blocked.next_retry, WAIT))
            if got is None:
                if self._consumer.depth > blocked.waiting:
                    self._consumer.browse_from_front()
                break
            if not browsed:
                until = time.monotonic() + batch.time
            length += len(got.data)
            self._pass_on(got, tally)
            if length >= batch.size or time.monotonic() >= until:
                break
        self._commit(connection, tally)

    def _pass_on(self, got: Got, tally: Tally) -> None:
        """Put the last browsed message and get it, or leave it waiting for its queue."""
        mapped = self.mapped(got, tally)
        if mapped is not None:
            waits = self._blocked.wait_for(mapped.destination, got.MsgToken)
            if not waits and not self._put_browsed(got, mapped, tally, 0):
                waits = self._blocked.wait_for(mapped.destination, got.MsgToken)
            if waits:
                self.leave(got)
                return
        self._take_browsed(tally)

    def _retry(self, destination: Destination, tally: Tally, messages: int) -> None:
        """Move messages waiting for a blocked queue, in order, until the queue rejects one again."""
        while (first := self._blocked.first(destination)) is not None:
            if tally.taken >= messages:
                return
            token, refusals = first
            got = self._consumer.browse_again(token)
            if got is not None:
                mapped = self.mapped(got, tally)
                if mapped is not None and not self._put_browsed(got, mapped, tally, refusals):
                    self.leave(got)
                    return
                self._take_browsed(tally)
            self._blocked.moved(destination)
        self._blocked.unblock(destination)

    def _put_browsed(self, got: Got, mapped: MappedMessage, tally: Tally, refusals: int) -> bool:
        """Put a message and return False if its queue rejected it and is now blocked."""
        try:
            self.put(got, mapped, tally, refusals)
        except MessageRefused as refusal:
            if refusal.reason in PASSING - BLOCKING:
                raise
            self._block(refusal)
            return False
        return True

    def _take_browsed(self, tally: Tally) -> None:
        self._consumer.take_browsed()
        tally.taken += 1

    def _commit(self, connection: Connection, tally: Tally) -> None:
        if tally.taken:
            connection.commit()
            self.settled(tally)
        if not self._blocked:
            self.status.blocked, self.status.backlog = [], 0
            self.status.state = State.RUNNING
            return
        self.status.state = State.RETRYING
        now = time.monotonic()
        if now >= self._shown_at + SHOWN_EVERY:
            self._shown_at = now
            self.status.blocked = self._blocked.listed()
            self.status.backlog = self._consumer.depth

    def leave_source(self) -> int:
        return self._environment.remove_subscription(self.mapping)


def consumer_source(name: str, rule: ToMqRule | ToMqttRule, owner: str) -> ConsumerSource:
    """Return the source on the queue manager from which a mapping takes messages."""
    if isinstance(rule, ToMqttRule) and rule.queue is not None:
        return ConsumerSource(mapping=name, queue=rule.queue, requests_queue=rule.requests_queue or "")
    return ConsumerSource(mapping=name, owner=owner, topic_filter=rule.source_filter or "")
