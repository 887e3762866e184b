"""Purges and lists of thousands of sessions are divided into slices: the event loop runs between them, and clients can
reconnect.
"""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from bridge.administration.protocol import Refused
from bridge.administration.requests import DisconnectClients, ListClients, PurgeClients, ShowClient
from bridge.mq.backend import ClientSubscription, RecoveredState
from bridge.mqtt.packets import Subscribe
from bridge.service.administration.clients import (
    NAMES_SHOWN,
    PURGES_AT_A_TURN,
    disconnect_clients,
    list_clients,
    purge_clients,
    show_client,
)
from bridge.service.administration.parts import ROWS_AT_A_TURN, Parts
from bridge.telemetry.identity import Principal
from bridge.telemetry.session import SessionState

COUNT = 3 * ROWS_AT_A_TURN
NAMES = [f"c{number:05}" for number in range(COUNT)]


def parts_of(bridge: Any, started_at: float = 0.0) -> Parts:
    """Return the parts that administer clients."""
    others: dict[str, Any] = dict.fromkeys(Parts.__struct_fields__)
    return Parts(**others | {"service": bridge.service, "started_at": started_at})


@pytest.fixture
def many(bridge: Any) -> Any:
    """A bridge that has found many durable sessions of disconnected clients."""
    started = bridge()
    started.backend.recovered = RecoveredState([], [ClientSubscription(name, "t/#", "1", True) for name in NAMES])
    return started


async def test_a_client_that_reconnects_during_a_purge_keeps_its_session(many: Any) -> None:
    """A client that reconnects before its turn is not purged. All others are, a few in each iteration of the event loop."""
    async with many as bridge:
        purge = asyncio.ensure_future(purge_clients(parts_of(bridge), PurgeClients(away_for=0.0)))
        session_counts = []
        while not purge.done() and len(bridge.service.sessions) > COUNT // 2:
            await asyncio.sleep(0)
            session_counts.append(len(bridge.service.sessions))
        assert {before - after for before, after in pairwise([COUNT, *session_counts])} <= {0, PURGES_AT_A_TURN}
        session = bridge.service.sessions[NAMES[-1]]
        session.state, before = SessionState.RESUMING, session.state  # as CONNECT does, during the purge
        answer = await purge
        session.state = before
        assert list(bridge.service.sessions) == [NAMES[-1]]
        assert answer.lines == [f"{COUNT - 1:,} sessions ended, with a backlog of 0 messages"]
        await bridge.backend.until(lambda: len(bridge.backend.unsubscribed) == COUNT - 1)
        assert (NAMES[-1], "t/#") not in bridge.backend.unsubscribed


async def test_a_dry_run_ends_nothing(many: Any) -> None:
    """The answer lists the sessions that would end."""
    async with many as bridge:
        answer = await purge_clients(parts_of(bridge), PurgeClients(away_for=0.0, dry_run=True))
        assert answer.lines[0] == f"{COUNT:,} sessions would end, with a backlog of 0 messages"
        names = ", ".join(map(repr, NAMES[:NAMES_SHOWN]))
        assert answer.lines[1:] == [f"clients: {names} and {COUNT - NAMES_SHOWN:,} more"]
        assert len(bridge.service.sessions) == COUNT
        assert bridge.backend.unsubscribed == []


@pytest.mark.parametrize("away_for", [0.0, 3_600.0])
async def test_a_client_without_a_record_of_its_absence_is_absent_since_the_start(many: Any, away_for: float) -> None:
    """Records of an older bridge contain no time, so the start of the bridge counts."""
    async with many as bridge:
        page = await list_clients(parts_of(bridge, time.time() - 60), ListClients(away_for=away_for, rows=10_000))
        assert len(page.clients) == page.found == (COUNT if away_for < 60 else 0)


async def test_pages_follow_each_other_without_gaps(many: Any) -> None:
    """Each page starts after the last name of the previous one. Together they contain all clients."""
    async with many as bridge:
        names: list[str] = []
        while True:
            request = ListClients(after=names[-1] if names else "", rows=700)
            page = (await list_clients(parts_of(bridge), request)).clients
            if not page:
                break
            assert len(page) <= 700
            names += [client.client_id for client in page]
        assert names == NAMES


async def test_a_purge_without_criteria_is_rejected(many: Any) -> None:
    """Without a client, a channel or a time, all sessions would end by mistake."""
    async with many as bridge:
        with pytest.raises(Refused, match="no clients were selected"):
            await purge_clients(parts_of(bridge), PurgeClients())
        assert len(bridge.service.sessions) == COUNT


async def test_the_owner_and_the_options_of_subscriptions_are_shown(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect("c", clean_session=False, user_name="alice")
        client.send(Subscribe(1, (("t/#", 1),)))
        await client.receive()
        details = await show_client(parts_of(running), ShowClient("c"))
        assert (details.owner, details.status.user) == ("an unauthenticated client", "alice")
        assert [(subscription.topic_filter, subscription.user_data) for subscription in details.subscriptions] == [
            ("t/#", "1")
        ]
        running.service.sessions["c"].principal = Principal(True, "alice")
        assert (await show_client(parts_of(running), ShowClient("c"))).owner == "user 'alice'"


async def test_clients_are_selected_by_names_and_patterns(many: Any) -> None:
    async with many as bridge:
        parts = parts_of(bridge)
        names = PurgeClients(ids=["c00001", "c00002", "nobody"], patterns=["c0001*"])
        answer = await purge_clients(parts, names)
        assert (answer.ok, answer.lines) == (
            False,
            ["12 sessions ended, with a backlog of 0 messages", "there is no session of client 'nobody'"],
        )
        assert [name for name in NAMES[:21] if name not in bridge.service.sessions] == [
            "c00001",
            "c00002",
            *(f"c{number:05}" for number in range(10, 20)),
        ]
        # None of them is connected.
        answer = await disconnect_clients(parts, DisconnectClients(patterns=["c*"], dry_run=True))
        assert (answer.ok, answer.lines) == (True, ["0 clients would be disconnected"])
