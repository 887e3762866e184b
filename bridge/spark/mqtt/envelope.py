"""Publications that came from a broker to record batches of envelopes (`bridge.spark.schema.MQTT_COLUMNS`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bridge.link.publication import CLIENT_ID, HOPS
from bridge.spark.columns import MQTT_ARROW_SCHEMA, PROPERTY_COLUMNS
from bridge.telemetry.message import Publication, Received


def record_batch(received: Sequence[Received], client_id: str, link: str, now: int) -> Any:
    """Return the envelopes of publications, as a pyarrow.RecordBatch of MQTT_ARROW_SCHEMA, in their order.

    `client_id` is that of the session that received them, `link` the name of its connection, which is their publisher
    where they do not tell one; `now` is in microseconds since the epoch.
    """
    publications = [one.publication for one in received]
    count = len(publications)
    columns: dict[str, list[Any]] = {
        "topic": [one.topic for one in publications],
        "payload": [one.payload for one in publications],
        "qos": [one.qos for one in publications],
        "retain": [one.retain for one in publications],
        "dup": [one.dup for one in received],
        "message_id": [one.message_id or None for one in publications],
        "client_id": [client_id] * count,
        "properties": [_properties(one, link) for one in publications],
        **{name: [getattr(one.properties, name) or None for one in publications] for name in PROPERTY_COLUMNS},
        "payload_format": [one.properties.payload_format_indicator for one in publications],
        "expiry": [None if one.expiry is None else int(one.expiry) for one in publications],
        "received": [now] * count,
    }
    arrays = [pa.array(columns[field.name], field.type) for field in MQTT_ARROW_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=MQTT_ARROW_SCHEMA)


def _properties(publication: Publication, link: str) -> list[tuple[str, str]]:
    """Return all user properties, those that another bridge has written of itself too."""
    properties = list(publication.user_properties.items())
    if publication.client_id != link:
        properties.append((CLIENT_ID, publication.client_id))
    if publication.hops:
        properties.append((HOPS, ",".join(publication.hops)))
    return properties
