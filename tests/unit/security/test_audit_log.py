"""The audit log: the number of entries is limited by their cause, whatever names it uses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.config.operations import AuditLogConfig
from bridge.config.queue_manager import ListenerConfig
from bridge.mq.embedded.admission import Admission
from bridge.security import audit_log
from bridge.security.audit_log import INTERVAL, MAX_ENTRIES
from bridge.transport.layers import Peer

Entries = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Entries]:
    """An audit log, as a function that returns its entries."""
    monkeypatch.setattr(audit_log, "_gathering", audit_log._Gathering())
    file = tmp_path / "audit.jsonl"
    audit_log.begin(AuditLogConfig(file=file))
    yield lambda: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    audit_log.end()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(audit_log.time, "monotonic", lambda: clock.now)  # type: ignore[attr-defined]
    return clock


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (("10.0.0.1",), MAX_ENTRIES),
        (("10.0.0.1", "::ffff:10.0.0.1"), MAX_ENTRIES),
        (("2001:db8::1", "2001:db8::2"), MAX_ENTRIES),
        (("10.0.0.1", "10.0.0.2"), 2 * MAX_ENTRIES),
    ],
)
def test_an_unauthenticated_address_with_many_names(
    entries: Entries, clock: SimpleNamespace, addresses: tuple[str, ...], expected: int
) -> None:
    """Rejections with different client identifiers have as many entries as with one. The omitted number is logged later."""
    for number in range(100):
        for address in addresses:
            audit_log.note("refused", Peer(f"{address}:{number}", f"c{number}"), stranger=address, why="x")
    assert len(entries()) == expected
    clock.now = INTERVAL
    audit_log.note("refused", Peer("10.0.0.1:1", "c"), stranger=addresses[0], why="x")
    left_out = len(addresses) * 100 - expected if expected == MAX_ENTRIES else 100 - MAX_ENTRIES
    assert entries()[-1]["left_out_before"] == left_out


def test_one_client_does_not_use_the_entries_of_another(entries: Entries, clock: SimpleNamespace) -> None:
    for _ in range(100):
        audit_log.note("publication refused", Peer("10.0.0.1:1", "loud"), topic="t")
    audit_log.note("publication refused", Peer("10.0.0.1:1", "other"), topic="t")
    audit_log.note("disconnected", Peer("10.0.0.1:1", "loud"))
    assert [entry["client"] for entry in entries()] == ["loud"] * MAX_ENTRIES + ["other", "loud"]


def test_addresses_of_the_listener(entries: Entries) -> None:
    admission = Admission(ListenerConfig(max_connections=2, max_connections_per_address=1))
    places = [admission.take(address) for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3")]
    admission.close()
    assert [place is not None for place in places] == [True, False, True, False]
    failures = [(entry["address"], entry["why"]) for entry in entries()]
    assert failures == [
        ("10.0.0.1", "max_connections_per_address 1 is reached"),
        ("10.0.0.3", "max_connections 2 is reached"),
    ]
