"""What the link uses of paho's protected names: a paho without them, or with other signatures, has to be looked at."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

import bridge
from bridge.link.client import PROTECTED, LinkClient


@pytest.mark.parametrize("name", PROTECTED)
def test_protected_names_are_those_that_the_link_knows(name: str) -> None:
    member = getattr(Client(CallbackAPIVersion.VERSION2), name)
    assert (("self", *inspect.signature(member).parameters) if callable(member) else None) == PROTECTED[name]


def test_links_import_paho_in_one_module() -> None:
    """`ibm-acceptance` has an ordinary client of its own."""
    modules = Path(bridge.__file__).parent.rglob("*.py")
    imports = re.compile(r"^\s*(?:from|import) paho\b", re.MULTILINE)
    assert {path.name for path in modules if imports.search(path.read_text())} == {"client.py", "acceptance_kill.py"}


def test_nothing_else_that_is_protected_is_used() -> None:
    """Every name that LinkClient has in common with paho's client is listed, or is public."""
    shared = {name for name in vars(LinkClient) if name.startswith("_") and not name.startswith("__")} & set(
        vars(Client)
    )
    shared |= {name for name in inspect.getsource(LinkClient).replace("(", " ").split() if name.startswith("super().")}
    protected = {name.removeprefix("super().") for name in shared}
    assert {name for name in protected if name.startswith("_") and not name.startswith("__")} <= set(PROTECTED)
