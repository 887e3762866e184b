"""The link's use of paho's protected names: if a release of paho removes or changes them, a test fails."""

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
def test_protected_names_have_the_expected_signatures(name: str) -> None:
    member = getattr(Client(CallbackAPIVersion.VERSION2), name)
    parameters = ("self", *inspect.signature(member).parameters) if callable(member) else None
    assert parameters == PROTECTED[name].parameters
    assert PROTECTED[name].reason


def test_one_module_of_the_bridge_imports_paho() -> None:
    """acceptance_kill.py tests a bridge as a client, with paho's public interface."""
    modules = Path(bridge.__file__).parent.rglob("*.py")
    imports = re.compile(r"^\s*(?:from|import) paho\b", re.MULTILINE)
    importing = {path.name for path in modules if imports.search(path.read_text())}
    assert importing == {"client.py", "acceptance_kill.py"}


def test_the_used_protected_names_are_listed() -> None:
    """The list contains each protected name that LinkClient shares with paho's client, even if by accident."""
    used = set(re.findall(r"\b(?:self|super\(\))\.(_[a-z]\w*)", inspect.getsource(LinkClient)))
    used |= {name for name in vars(LinkClient) if re.match("_[a-z]", name)}
    of_paho = set(dir(Client(CallbackAPIVersion.VERSION2)))
    assert used & of_paho == set(PROTECTED)


def test_no_other_class_uses_protected_names_of_the_client() -> None:
    package = Path(bridge.__file__).parent
    others = [*package.joinpath("link").glob("*.py"), package / "cli" / "acceptance_kill.py"]
    assert [path.name for path in others if re.search(r"\bclient\._[a-z]", path.read_text())] == []
