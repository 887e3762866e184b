"""The requests of one client that wait for their answers, as far as the messages themselves cannot say where to."""

from __future__ import annotations

from bridge.mapping.telemetry.request import REQUEST_QUEUE_PREFIX, Request, request_to_keep
from bridge.mapping.telemetry.session_record import RequestRecord, StateKey, StateRecord
from bridge.wire.mqtt import PublishProperties


class Requests:
    """Requests by the queue names that stand for them, the one asked last at the end.

    There is more than one answer to a request, perhaps: it is kept until those behind it need its room, or the session ends.
    """

    __slots__ = ("_changed", "_durable", "_of_queue", "_room", "client_id", "most_bytes")

    def __init__(self, client_id: str, *, durable: bool, most_bytes: int) -> None:
        self.client_id = client_id
        self._durable = durable
        #: bytes that all of them may take; the last one is kept, however large
        self.most_bytes = most_bytes
        self._room = most_bytes
        self._of_queue: dict[str, Request] = {}
        #: queue names whose requests are not on record as they are
        self._changed: set[str] = set()

    def add(self, properties: PublishProperties) -> bool:
        """Keep what a PUBLISH asks, where that is needed; return whether it has to go on record."""
        request = request_to_keep(properties)
        if request is None:
            return False
        queue, of_queue = request.queue, self._of_queue
        known = of_queue.pop(queue, None)
        of_queue[queue] = request
        if known is not None:
            return bool(self._changed)
        self._changed.add(queue)
        self._room -= request.size
        while self._room < 0 and len(of_queue) > 1:
            oldest = next(iter(of_queue))
            self._room += of_queue.pop(oldest).size
            self._changed.add(oldest)
        return self._durable

    def find(self, remote_queue: str) -> Request | None:
        """Return the request that a queue name stands for; None where it is not known (any more)."""
        return self._of_queue.get(remote_queue)

    def changes(self) -> dict[StateKey, StateRecord | None]:
        """Return the records of what has changed, which count as written then; None removes one."""
        changed, self._changed = self._changed, set()
        return {self._key(queue): self._record(queue) for queue in changed}

    def lose(self) -> None:
        """Have all of them put on record again: a unit of work with changes has failed."""
        self._changed.update(self._of_queue)

    def removal(self) -> dict[StateKey, StateRecord | None]:
        """Return what takes all records away: the session has ended."""
        return {self._key(queue): None for queue in self._of_queue.keys() | self._changed}

    def restore(self, record: RequestRecord) -> None:
        """Take over a record after a restart."""
        request = Request(record.responseTopic, record.correlationData)
        self._of_queue[record.queue] = request
        self._room -= request.size

    def _key(self, queue: str) -> StateKey:
        return RequestRecord(self.client_id, queue).key

    def _record(self, queue: str) -> RequestRecord | None:
        request = self._of_queue.get(queue)
        if request is None:
            return None
        return RequestRecord(self.client_id, queue, request.response_topic, request.correlation_data)


def is_request_queue(remote_queue: str) -> bool:
    """Return whether a queue name stands for a request."""
    return remote_queue.startswith(REQUEST_QUEUE_PREFIX)
