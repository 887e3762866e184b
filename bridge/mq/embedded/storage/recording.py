"""Units of work as a row of the log."""

from __future__ import annotations

from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.storage.batch import Batch, Delivery, Lane, Put, encode
from bridge.mq.embedded.unit import Unit
from bridge.telemetry.transmission import PublicationMessage


def batch_of(messages: list[StoredMessage], removed: list[int]) -> Batch:
    """Make a row of the log. Deliveries of one publication, which stand next to each other, share its message."""
    records: list[Put] = []
    lanes: dict[Lane, int] = {}
    last: Put | None = None
    lane, place = None, 0
    for stored in messages:
        if (
            lane is None
            or lane.correl_id is not stored.correl_id
            or lane.client_id != stored.client_id
            or lane.queue != stored.queue.name
            or lane.user_data != stored.user_data
            or lane.remote_queue != stored.remote_queue
        ):
            lane = Lane(stored.queue.name, stored.client_id, stored.remote_queue, stored.user_data, stored.correl_id)
            place = lanes.setdefault(lane, len(lanes))
        delivery = Delivery(stored.msg_number, place, stored.retained)
        message = stored.message
        topic = None if type(message) is PublicationMessage else stored.topic
        if last is not None and last.message is message and last.topic == topic and last.msg_id == stored.msg_id:
            last.deliveries.append(delivery)
            continue
        last = Put(
            message,
            [delivery],
            stored.priority,
            stored.put_time,
            topic,
            stored.expires_at,
            stored.msg_id,
            stored.put_application,
        )
        records.append(last)
    return Batch(records, removed, list(lanes))


def is_writable(unit: Unit) -> bool:
    """Return whether a unit of work by itself has a form on disk: where a group has none, the fault is of one of it."""
    try:
        encode(batch_of([stored for stored in unit.puts if stored.durable], []))
        for kind, name, attributes in unit.changes.definitions:
            f"{kind}{name}{attributes}".encode()
    except Exception:
        return False
    return True
