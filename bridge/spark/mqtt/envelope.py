"""Publications that came from a broker to record batches of envelopes (`bridge.spark.schema.MQTT_COLUMNS`)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from bridge.link.outbox import CLIENT_ID, HOPS
from bridge.spark.columns import MQTT_ARROW_SCHEMA, PROPERTY_COLUMNS
from bridge.telemetry.message import Publication, Received


def record_batch(received: Sequence[Received], client_id: str, link: str, now: int, schema: Any = MQTT_ARROW_SCHEMA) -> Any:
    """Return the envelopes of publications, in their order, as a record batch.

    `client_id` is that of the session that received them, `link` the name of its connection, which is the publisher of those
    that do not name one. `now` is in microseconds since the epoch. `schema` is MQTT_ARROW_SCHEMA or a subset of it. Only its
    columns are computed.
    """
    publications = [one.publication for one in received]
    count = len(publications)
    arrays = []
    for field in schema:
        values: list[Any]
        match field.name:
            case "dup":
                values = [one.dup for one in received]
            case "message_id":
                values = [one.message_id or None for one in publications]
            case "client_id":
                values = [client_id] * count
            case "received":
                values = [now] * count
            case "properties":
                values = [_properties(one, link) for one in publications]
            case "payload_format":
                values = [one.properties.payload_format_indicator for one in publications]
            case "expiry":
                values = [None if one.expiry is None else int(one.expiry) for one in publications]
            case name if name in PROPERTY_COLUMNS:
                values = [getattr(one.properties, name) or None for one in publications]
            case name:
                values = list(map(attrgetter(name), publications))
        arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _properties(publication: Publication, link: str) -> list[tuple[str, str]]:
    """Return all user properties, those that another bridge has written of itself too."""
    properties = list(publication.user_properties.items())
    if publication.client_id != link:
        properties.append((CLIENT_ID, publication.client_id))
    if publication.hops:
        properties.append((HOPS, ",".join(publication.hops)))
    return properties
