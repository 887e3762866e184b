"""Publications, with their MQTT 5 properties as keywords."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.headers import PROPERTIES
from bridge.telemetry.message import Publication


def publication_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Publication: those of MQTT 5 become its `properties`, and a dictionary `users` its User
    Properties.
    """
    names = {header_property.field for header_property in PROPERTIES}
    properties = {name: value for name, value in fields.items() if name in names}
    if "users" in fields:
        properties["user_property"] = (*fields["users"].items(),)
    others = {name: value for name, value in fields.items() if name not in names and name != "users"}
    return others | {"properties": PublishProperties(**properties)} if properties else others


def publication_of_fields(**fields: Any) -> Publication:
    """Return a publication with these fields."""
    return Publication(**publication_fields(fields))
