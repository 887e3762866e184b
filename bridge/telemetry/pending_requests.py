"""Requests of a client that do not fit into an MQMD, by the queue names that represent them, until applications reply."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.telemetry.record import RequestRecord, StateKey, StateRecord
from bridge.telemetry.request import REQUEST_QUEUE_PREFIX, ClientRequest


def is_request_queue(remote_queue: str) -> bool:
    """Return whether a queue name represents a request."""
    return remote_queue.startswith(REQUEST_QUEUE_PREFIX)


class PendingRequests:
    """Requests by their generated queue names, the latest request last.

    A request may have several replies. It is kept until later requests need its space, or the session ends.
    """

    __slots__ = ("_changed", "_durable", "_of_queue", "_room", "client_id", "evicted", "most_bytes")

    def __init__(self, client_id: str, *, durable: bool, most_bytes: int) -> None:
        self.client_id = client_id
        self._durable = durable
        #: maximum number of bytes of all requests. The last request is kept regardless of its size
        self.most_bytes = most_bytes
        #: number of requests that later requests replaced. The reader resets it.
        self.evicted = 0
        self._room = most_bytes
        self._of_queue: dict[str, ClientRequest] = {}
        #: queue names whose records are outdated (durable sessions only)
        self._changed: dict[str, None] = {}

    def add(self, request: ClientRequest) -> bool:
        """Keep a request. Return whether records must be written."""
        queue, of_queue = request.queue, self._of_queue
        former = of_queue.pop(queue, None)
        of_queue[queue] = request
        if former is not None:
            return bool(self._changed)
        self._change(queue)
        self._room -= request.size
        while self._room < 0 and len(of_queue) > 1:
            oldest = next(iter(of_queue))
            self._room += of_queue.pop(oldest).size
            self._change(oldest)
            self.evicted += 1
        return self._durable

    def _change(self, queue: str) -> None:
        if self._durable:
            self._changed[queue] = None

    def find(self, remote_queue: str) -> ClientRequest | None:
        """Return the request with a queue name, or None if it is unknown or was evicted."""
        return self._of_queue.get(remote_queue)

    def changes(self) -> dict[StateKey, StateRecord | None]:
        """Return the changed records and mark them as written. None deletes a record."""
        changed, self._changed = self._changed, {}
        return {self._key(queue): self._record(queue) for queue in changed}

    def lose(self, failed: Iterable[StateKey]) -> None:
        """Write all records again, and repeat the deletions of a failed unit of work."""
        self._changed.update(dict.fromkeys(self._of_queue))
        # Only the failed unit contains the names of evicted requests.
        self._changed.update((key.queue, None) for key in failed if key.queue and key.client_id == self.client_id)

    def removal(self) -> dict[StateKey, StateRecord | None]:
        """Return the deletion of all records, for a session that has ended."""
        return {self._key(queue): None for queue in self._of_queue.keys() | self._changed.keys()}

    def restore(self, record: RequestRecord) -> None:
        """Restore a record after a restart."""
        request = ClientRequest(record.responseTopic, record.correlationData)
        self._of_queue[record.queue] = request
        self._room -= request.size

    def _key(self, queue: str) -> StateKey:
        return RequestRecord(self.client_id, queue).key

    def _record(self, queue: str) -> RequestRecord | None:
        request = self._of_queue.get(queue)
        if request is None:
            return None
        return RequestRecord(self.client_id, queue, request.response_topic, request.correlation_data)
