"""The column `properties`: what the publisher said in MQTT 5, as a JSON object."""

from __future__ import annotations

from typing import Any

import msgspec

from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.message import Publication


def json_of(properties: PublishProperties | None) -> str | None:
    """Return properties by their names in the specification, those that are there; bytes in base64. None for none."""
    if properties is None:
        return None
    there: dict[str, Any] = {
        name: value for name, value in msgspec.structs.asdict(properties).items() if value is not None and value != ()
    }
    return msgspec.json.encode(there).decode() if there else None


def properties_of(text: str | None) -> PublishProperties | None:
    """Return the properties in a row. Raises msgspec.DecodeError for what `json_of` has not written."""
    return None if text is None else msgspec.json.decode(text, type=PublishProperties)


def properties_from(publication: Publication) -> PublishProperties | None:
    """Return the properties of a publication of a link, but for its expiry; None for none."""
    properties = PublishProperties(
        payload_format_indicator=publication.payload_format,
        content_type=publication.content_type or None,
        response_topic=publication.response_topic or None,
        correlation_data=publication.correlation_data or None,
        user_property=(*publication.properties.items(),),
    )
    return None if properties == PublishProperties() else properties
