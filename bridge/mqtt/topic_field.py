"""The topic names of publications as PUBLISH carries them, encoded once and remembered."""

from __future__ import annotations

from typing import Final

from bridge.wire.mqtt import encode_topic

#: Encoded topic fields remembered, and the longest topic among them; forgotten all at once when there are more.
TOPIC_FIELDS: Final = 8_192
TOPIC_FIELD_LENGTH: Final = 256
_topic_fields: Final[dict[str, bytes]] = {}


def topic_field(topic: str) -> bytes:
    """Return a topic name as PUBLISH carries it. Raises MalformedPacket for one that MQTT cannot carry."""
    field = _topic_fields.get(topic)
    if field is None:
        field = encode_topic(topic)
        if len(topic) <= TOPIC_FIELD_LENGTH:
            if len(_topic_fields) >= TOPIC_FIELDS:
                _topic_fields.clear()
            _topic_fields[topic] = field
    return field
