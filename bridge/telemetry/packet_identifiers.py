"""The packet identifiers of the messages for one client, and the records of identifiers that do not follow from the MsgId.

MQTT 3.1.1 section 2.3.1. A message counts as unacknowledged until its removal after the acknowledgement is committed.

| last two bytes of MQMD.MsgId on the transmission queue | packet identifier | on record |
|---|---|---|
| not 0, and no unacknowledged message of the client has them | these two bytes | no |
| not 0, and an unacknowledged message of the client has them | the next free number | yes, and so is the other message's |
| 0 | the next free number | yes |

A queue manager only guarantees that MsgIds are unique. On IBM MQ, their last two bytes are often the same for thousands of
messages. So identifiers are decided for up to `CHUNK` waiting messages at a time, in one record. The record is committed
before the first of these messages is sent, because after a crash, a client must receive each unacknowledged message with the
same identifier.

After a restart, a message has the recorded identifier. Without a record, a message that was sent has the last two bytes of
its MsgId. If the bridge was killed, any message may have been sent. Of several messages that end in the same two bytes, only
the message that was put first, and that the bridge therefore saw first, can have been sent without a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from bridge.mqtt.flow import MAX_IDENTIFIER
from bridge.telemetry.record import IdentifiersRecord, MessageKey, Side, StateKey, StateRecord
from bridge.telemetry.transmission import Transmission

#: The maximum number of messages whose identifiers are decided at a time.
CHUNK: Final = 1_000


class Sent(Protocol):
    """A message in flight."""

    @property
    def transmission(self) -> Transmission | None:
        """The message, or None once the client has acknowledged it."""


class Chunk:
    """Messages whose packet identifiers are in one record, by number: (key of the message, packet identifier)."""

    __slots__ = ("identifiers", "key")

    def __init__(self, key: StateKey) -> None:
        self.key = key
        self.identifiers: dict[int, tuple[MessageKey, int]] = {}


class Restored(NamedTuple):
    """A recorded message that the transmission queue poller has not reported yet."""

    #: 0 means the last two bytes of the MsgId
    identifier: int
    chunk: Chunk | None
    #: PUBLISH was sent
    sent: bool


class PacketIdentifiers:
    """Packet identifiers that were decided before their messages are sent, and recorded packet identifiers."""

    __slots__ = (
        "_changed",
        "_chunk_of",
        "_chunks",
        "_client_id",
        "_last",
        "_names",
        "_needless",
        "decided",
        "restored",
        "taken",
    )

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        #: by msg_number
        self.decided: dict[int, int] = {}
        #: the messages with decided identifiers, by identifier
        self.taken: dict[int, Transmission] = {}
        #: messages in the records of an earlier run, until they are recognized
        self.restored: dict[MessageKey, Restored] = {}
        #: chunks by the name of their record, and by the numbers of their messages
        self._chunks: dict[str, Chunk] = {}
        self._chunk_of: dict[int, Chunk] = {}
        #: names of chunks whose records must be written
        self._changed: set[str] = set()
        #: names of chunks without messages. The next unit of work with records deletes their records, because on IBM MQ, a
        #: separate unit of work would be an additional commit
        self._needless: set[str] = set()
        self._names = 0
        #: the last assigned identifier
        self._last = 0

    @property
    def empty(self) -> bool:
        """Whether no identifiers are decided and no records must be written."""
        return not (self.decided or self.restored or self._chunks or self._changed or self._needless)

    # Decisions -------------------------------------------------------------------------------------------------------

    def plan(self, messages: Iterable[Transmission], in_flight: Mapping[int, Sent]) -> Chunk | None:
        """Decide the identifiers of waiting messages, in order. Return the messages to record, or None."""
        free = MAX_IDENTIFIER - len(in_flight) - len(self.taken)
        usual: dict[int, Transmission] = {}
        unusual: list[Transmission] = []
        for transmission in messages:
            if transmission.msg_number in self.decided:
                continue
            if len(usual) + len(unusual) >= free:
                break
            identifier = transmission.msg_number & 0xFFFF
            if identifier and identifier not in in_flight and identifier not in self.taken and identifier not in usual:
                usual[identifier] = transmission
            else:
                unusual.append(transmission)
        if not unusual:
            return None
        for transmission in usual.values():
            self._reserve(transmission, transmission.msg_number & 0xFFFF)
        chunk = self._new_chunk()
        for transmission in unusual:
            preferred = transmission.msg_number & 0xFFFF
            self._put_on_record(preferred, in_flight, chunk)
            identifier = self.next_free(preferred, in_flight)
            self._reserve(transmission, identifier)
            self._add(chunk, transmission, identifier)
        return chunk

    def _put_on_record(self, identifier: int, in_flight: Mapping[int, Sent], chunk: Chunk) -> None:
        """Record the message whose identifier is the last two bytes of another message's MsgId."""
        holder = self.taken.get(identifier)
        if holder is None and identifier in in_flight:
            holder = in_flight[identifier].transmission
        if holder is None or holder.msg_number in self._chunk_of:
            return
        self._reserve(holder, identifier)
        self._add(chunk, holder, identifier)

    def next_free(self, preferred: int, in_flight: Mapping[int, Sent]) -> int:
        """Return the next free identifier. Raises ValueError if all are in use, which the limits of the window prevent."""
        identifier = self._last or preferred
        for _ in range(MAX_IDENTIFIER):
            identifier = identifier + 1 if identifier < MAX_IDENTIFIER else 1
            if identifier not in in_flight and identifier not in self.taken:
                self._last = identifier
                return identifier
        raise ValueError(f"all {MAX_IDENTIFIER} packet identifiers are in flight")

    def sent(self, number: int) -> None:
        """Note that a message is in flight and its identifier in use. Keep the identifier if it is recorded."""
        if number in self.decided and number not in self._chunk_of:
            self.release(number)

    def release(self, number: int) -> None:
        """Forget the identifier of a removed or withdrawn message. A record without messages is deleted."""
        identifier = self.decided.pop(number, 0)
        if identifier:
            self.taken.pop(identifier, None)
        chunk = self._chunk_of.pop(number, None)
        if chunk is not None:
            del chunk.identifiers[number]
            if not chunk.identifiers:
                self._needless.add(chunk.key.queue)

    def keep(self, messages: Iterable[tuple[int, Transmission]], *, durable: bool) -> None:
        """Keep identifiers for messages that return to the backlog. 0 means undecided.

        A durable session records identifiers that do not follow from the MsgId.
        """
        chunk: Chunk | None = None
        for identifier, transmission in messages:
            number = transmission.msg_number
            if number in self.decided or not identifier:
                continue
            self._reserve(transmission, identifier)
            if durable and identifier != number & 0xFFFF:
                chunk = chunk or self._new_chunk()
                self._add(chunk, transmission, identifier)

    def _reserve(self, transmission: Transmission, identifier: int) -> None:
        self.decided[transmission.msg_number] = identifier
        self.taken[identifier] = transmission

    def _new_chunk(self) -> Chunk:
        self._names += 1
        chunk = self._chunk(str(self._names))
        self._changed.add(chunk.key.queue)
        return chunk

    def _chunk(self, name: str) -> Chunk:
        chunk = self._chunks.get(name)
        if chunk is None:
            chunk = self._chunks[name] = Chunk(IdentifiersRecord(self._client_id, name).key)
        return chunk

    def _add(self, chunk: Chunk, transmission: Transmission, identifier: int) -> None:
        chunk.identifiers[transmission.msg_number] = (transmission.key, identifier)
        self._chunk_of[transmission.msg_number] = chunk

    # Records ---------------------------------------------------------------------------------------------------------

    @property
    def unsaved(self) -> bool:
        """Whether records must be written. Records without messages can be deleted later."""
        return bool(self._changed)

    def changes(self) -> dict[StateKey, StateRecord | None]:
        """Return the changed records and mark them as written. None deletes a record."""
        changed = self._changed | self._needless
        self._changed, self._needless = set(), set()
        records: dict[StateKey, StateRecord | None] = {}
        for name in changed:
            chunk = self._chunk(name)
            if chunk.identifiers:
                records[chunk.key] = IdentifiersRecord(self._client_id, name, list(chunk.identifiers.values()))
            else:
                records[chunk.key] = None
                del self._chunks[name]
        return records

    def lose(self, failed: Iterable[StateKey]) -> None:
        """Write records of a failed unit of work again."""
        for key in failed:
            if key.side is Side.IDENTIFIERS and key.client_id == self._client_id:
                self._chunk(key.queue)
                self._changed.add(key.queue)

    def removal(self) -> dict[StateKey, StateRecord | None]:
        """Return the deletion of all records, for a session that has ended."""
        return {self._chunk(name).key: None for name in self._chunks.keys() | self._changed | self._needless}

    # Restart ---------------------------------------------------------------------------------------------------------

    def restore(self, record: IdentifiersRecord) -> None:
        """Restore a record after a restart."""
        if record.queue.isdecimal():
            self._names = max(self._names, int(record.queue))
        chunk = self._chunk(record.queue)
        for key, identifier in record.assigned:
            is_sent = key in self.restored and self.restored[key].sent
            self.restored[key] = Restored(identifier, chunk, is_sent)

    def restore_sent(self, assigned: Sequence[tuple[int, int]], sent_keys: Sequence[MessageKey]) -> None:
        """Restore the messages of a session's record: `assigned` messages of older bridges, and sent messages."""
        if assigned:
            chunk = self._new_chunk()
            for number, identifier in assigned:
                self.restored[number] = Restored(identifier, chunk, True)
        for key in sent_keys:
            former = self.restored.get(key)
            self.restored[key] = Restored(0, None, True) if former is None else former._replace(sent=True)

    def recognize(self, batch: Iterable[Transmission], in_flight: Mapping[int, Sent]) -> list[int]:
        """Assign messages of an earlier run their identifiers. Return the numbers of those that were sent."""
        numbers: list[int] = []
        for transmission in batch:
            key = self._restored_key(transmission)
            if key is None:
                continue
            former = self.restored.pop(key)
            number = transmission.msg_number
            if former.sent:
                numbers.append(number)
            identifier = former.identifier or number & 0xFFFF
            if not identifier or identifier in self.taken or identifier in in_flight:
                continue
            self._reserve(transmission, identifier)
            if former.chunk is not None:
                self._add(former.chunk, transmission, identifier)
        return numbers

    def _restored_key(self, transmission: Transmission) -> MessageKey | None:
        """Return the key of a message in the records of an earlier run, or None."""
        key = transmission.key
        if key in self.restored:
            return key
        if isinstance(key, bytes):
            # Bridges up to 0.2.0 identified messages by the last eight bytes of the MsgId.
            key = int.from_bytes(key[-8:], "big")
        return key if key in self.restored else None

    def was_sent(self, transmission: Transmission) -> bool:
        """Return whether an earlier run sent a message that is not recognized yet."""
        key = self._restored_key(transmission)
        return key is not None and self.restored[key].sent

    def settle(self, messages: Iterable[Transmission], in_flight: Mapping[int, Sent]) -> list[int]:
        """Decide the identifiers of messages that may have been sent, without a record, before the bridge was killed.

        Return the numbers of those that cannot have been sent.
        """
        unsent: list[int] = []
        # Enough identifiers must remain for the preceding messages.
        room = MAX_IDENTIFIER - CHUNK - len(in_flight) - len(self.taken)
        for transmission in sorted(messages, key=_put_order):
            number = transmission.msg_number
            if number in self.decided:
                continue
            identifier = number & 0xFFFF
            if room > 0 and identifier and identifier not in in_flight and identifier not in self.taken:
                self._reserve(transmission, identifier)
                room -= 1
            else:
                unsent.append(number)
        return unsent

    def caught_up(self, *, others_may_come: bool) -> None:
        """Forget recorded messages that are no longer on the queue, and delete records without messages.

        With `others_may_come`, messages of shared subscriptions that no member has received yet are kept.
        """
        if not others_may_come:
            self.restored.clear()
        chunks = {identifier.chunk for identifier in self.restored.values()}
        self._needless.update(
            name for name, chunk in self._chunks.items() if not chunk.identifiers and chunk not in chunks
        )


def _put_order(transmission: Transmission) -> tuple[bytes, int]:
    return transmission.put_at, transmission.msg_number
