"""The search for everything in the console and on the command line, and the navigation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.console import Console
from tests.helpers.raw_client import RawClient
from tests.process.console.test_pages import HOSTILE, is_escaped


def matches(console: Console, text: str, **query: str) -> dict[tuple[str, str], Any]:
    """Return the matches of a search by kind and name, in order."""
    answer = console.json("/search", text=text, **query)
    assert answer["incomplete"] == []
    return {(match["kind"], match["name"]): match for match in answer["matches"]}


@pytest.mark.parametrize(
    ("text", "kind", "name", "page"),
    [
        ("FIND-ME", "client", "find-me-1", "/clients/show?id=find-me-1"),
        ("find/me", "topic", "find/me/#", "/topics/show?filter=find%2Fme%2F%23"),
        ("order", "queue", "ORDERS", "/queues/show?name=ORDERS"),
        ("upwards", "mapping", "upwards", "/mappings/try?name=upwards"),
        ("127.0.0.1:1", "link", "plant", "/links#"),
        ("plain.mqtt", "channel", "PLAIN.MQTT", "/channels#"),
        ("waiting_bytes", "setting", "limits.waiting_bytes", "/configuration"),
        ("is paused", "problem", "mapping upwards", "/#"),
    ],
)
def test_each_kind_is_found(console: Console, text: str, kind: str, name: str, page: str) -> None:
    console.change("/mappings/pause", name="upwards", confirm="1")
    with RawClient.connected(console.bridge.port, "find-me-1") as client:
        client.subscribe(("find/me/#", 1))
        match = matches(console, text)[kind, name]
        assert match["text"]
        assert match["command"].startswith("mqbridge ")
        page_shown = console.get("/search", text=text)
        assert f'href="{page}' in page_shown.html
        target = console.get(page.partition("#")[0])
        assert target.status == 200
        if page.endswith("#"):
            anchor = page_shown.html.partition(f'href="{page}')[2].partition('"')[0]
            assert f'id="{anchor}"' in target.html
    console.change("/mappings/resume", name="upwards")


def test_exact_matches_come_first(console: Console) -> None:
    clients = [RawClient.connected(console.bridge.port, name) for name in ("an-exact", "exact", "exact-1", "Exact-0")]
    try:
        assert list(matches(console, "exact", kinds="client")) == [
            ("client", name) for name in ("exact", "Exact-0", "exact-1", "an-exact")
        ]
        answer = console.json("/search", text="exact", rows="2", kinds="client")
        assert (len(answer["matches"]), answer["found"]["client"]) == (2, 4)
    finally:
        for client in clients:
            client.vanish()


def test_secrets_are_not_searched(console: Console) -> None:
    assert matches(console, "classified") == {}
    assert ("setting", "mappings.orders.attributes.properties.secret") in matches(console, "properties.secret")


@pytest.mark.parametrize("client_id", HOSTILE)
def test_matches_are_escaped(console: Console, client_id: str) -> None:
    with RawClient.connected(console.bridge.port, client_id):
        assert is_escaped(console.get("/search", text=client_id), client_id)


def test_invalid_searches_are_rejected(console: Console) -> None:
    assert console.json("/search")["matches"] == []
    assert "Enter a part" in console.get("/search", text="  ").text
    assert "There are no matches" in console.get("/search", text="no such thing").text
    assert console.get("/search", text="x" * 201).status == 400
    assert console.get("/search", text="x", kinds="nonsense").status == 400


def test_the_command_finds_the_same_matches(console: Console) -> None:
    administrator = Administrator(console.bridge)
    results = administrator.json("search", "orders")
    assert results == console.json("/search", text="orders")["matches"]
    assert [match["name"] for match in administrator.json("search", "orders", "--kind", "queue")] == ["ORDERS"]
    assert "mapping  orders  running" in administrator.does("search", "orders", "--kind", "mapping")
    assert administrator.does("search", "no such thing") == "nothing found\n"
