"""Hosts in network namespaces of this machine, and the loss of their connections."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack

import pytest

from tests.helpers.installed import program


class Network:
    """An Ethernet bridge of this machine, to which network namespaces are connected. Only root can create one."""

    def __init__(self, stack: ExitStack) -> None:
        number = os.getpid() % 65_536
        self._stack = stack
        self._prefix = f"10.{number // 256}.{number % 256}"
        self._device = f"mqb{number}"
        self._namespaces: list[str] = []
        #: The address of this machine.
        self.address = f"{self._prefix}.1"
        self._add("link", self._device, "type", "bridge")
        _ip("addr", "add", f"{self.address}/24", "dev", self._device)
        _ip("link", "set", self._device, "up")

    def namespace(self) -> tuple[str, str]:
        """Create a namespace. Return its name and its address."""
        number = len(self._namespaces) + 2
        name, address = f"{self._device}-{number}", f"{self._prefix}.{number}"
        self._namespaces.append(name)
        self._add("netns", name)
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", name, "master", self._device, "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", name, "link", "set", device, "up")
        return name, address

    def _add(self, kind: str, name: str, *words: str) -> None:
        _ip(kind, "add", name, *words)
        self._stack.callback(_ip, kind, "delete", name)

    def second_address(self) -> str:
        """Add an address to this machine, which a host can lose separately."""
        address = f"{self._prefix}.254"
        _ip("addr", "add", f"{address}/24", "dev", self._device)
        return address


def require_namespaces() -> None:
    """Skip the test without root or `ip`."""
    if os.geteuid():
        pytest.skip("only root can create network namespaces")
    program("ip", installer="tests/system-packages.sh")


def unplug(namespace: str) -> None:
    """Cut the connection of a namespace. Neither side is notified."""
    _ip("link", "set", namespace, "down")


def plug_in(namespace: str) -> None:
    """Restore the connection of a namespace."""
    _ip("link", "set", namespace, "up")


def block(namespace: str, address: str) -> None:
    """Drop everything that a namespace sends to an address."""
    _ip("-n", namespace, "route", "add", "blackhole", f"{address}/32")


def unblock(namespace: str, address: str) -> None:
    """Undo `block`."""
    _ip("-n", namespace, "route", "delete", "blackhole", f"{address}/32")


def _ip(*words: str) -> None:
    subprocess.run([program("ip", installer="tests/system-packages.sh"), *words], check=True)
