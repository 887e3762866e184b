"""What the link uses of paho's protected names: a paho without them, or with other signatures, has to be looked at."""

from __future__ import annotations

import inspect

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from bridge.link.client import PROTECTED, PROTECTED_ATTRIBUTES, LinkClient


@pytest.mark.parametrize("name", PROTECTED)
def test_protected_methods_have_the_signatures_that_the_link_knows(name: str) -> None:
    assert tuple(inspect.signature(getattr(Client, name)).parameters) == PROTECTED[name]


@pytest.mark.parametrize("name", PROTECTED_ATTRIBUTES)
def test_protected_attributes_are_there(name: str) -> None:
    assert hasattr(Client(CallbackAPIVersion.VERSION2), name)


def test_nothing_else_that_is_protected_is_used() -> None:
    """Every name that LinkClient has in common with paho's client is listed, or is public."""
    shared = {name for name in vars(LinkClient) if name.startswith("_") and not name.startswith("__")} & set(vars(Client))
    shared |= {name for name in inspect.getsource(LinkClient).replace("(", " ").split() if name.startswith("super().")}
    protected = {name.removeprefix("super().") for name in shared}
    assert {name for name in protected if name.startswith("_") and not name.startswith("__")} <= set(PROTECTED)
