"""The console of a bridge on IBM MQ (the stand-in for its client library)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.helpers.bridges import at_work
from tests.helpers.console import Console
from tests.helpers.installed import CLIENT_PACKAGES, built
from tests.helpers.patience import PATIENCE, until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import RemoteBridgeProcess
from tests.helpers.scrape import admin_url

TOKEN = "t" * 32


def bridge_of(directory: Path) -> RemoteBridgeProcess:
    """Return a bridge on a remote queue manager. Its token file is configured, because it has no data directory."""
    built("the stand-in for IBM MQ", CLIENT_PACKAGES / "versions")
    tokens = directory / "tokens"
    tokens.write_text(f"admin:change:{TOKEN}\n")
    tokens.chmod(0o600)
    config = f"admin: {{port: 0, token_file: {tokens}}}\n"
    return RemoteBridgeProcess(directory / "data", library="ibmmq", config=config)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteBridgeProcess]:
    process = bridge_of(tmp_path_factory.mktemp("ibm")).start()
    yield process
    process.discard()
    assert "Traceback" not in process.log, process.log


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/clients",
        "/queues?system=1",
        "/mappings",
        "/links",
        "/dead-letters",
        "/log",
        "/subscriptions",
        "/configuration",
        "/objects?system=1",
        "/objects?kind=TOPIC",
        "/objects?kind=QALIAS",
        "/search?text=mqtt",
        "/health?range=1h",
    ],
)
def test_each_page_is_shown(bridge: RemoteBridgeProcess, path: str) -> None:
    page = Console(bridge).log_in(TOKEN).get(path)
    assert page.status == 200, page.text


def test_topics_and_their_subscribers_are_shown(bridge: RemoteBridgeProcess) -> None:
    console = Console(bridge).log_in(TOKEN)
    with RawClient.connected(bridge.port, "topics") as client:
        client.subscribe(("tree/leaf", 1))
        assert "tree /" in console.get("/topics").text
        text = console.get("/topics/show", filter="tree/leaf").text
        assert "topics tree/leaf" in text


def test_publications_reach_clients_or_wait_on_the_transmission_queue(bridge: RemoteBridgeProcess) -> None:
    console = Console(bridge).log_in(TOKEN)
    with RawClient.connected(bridge.port, "taker", clean=False) as client:
        client.subscribe(("news/#", 1))
        assert "published" in console.change("/topics/publish", topic="news/1", payload="hello").text
        arrival = client.take()
        assert (arrival.topic, arrival.payload) == ("news/1", b"hello")
        client.acknowledge(arrival)
        client.disconnect()
    console.change("/topics/publish", topic="news/2", payload="waits", persistent="1")
    path = "/queues/show?name=SYSTEM.MQTT.TRANSMIT.QUEUE"
    until(lambda: "waits" in console.get(path).text, lambda: console.get(path).text)
    (message,) = console.links(path, "/queues/message")
    assert "RemoteQMgrName taker" in console.get(message).text
    assert console.change("/clients/purge", ids="taker", confirm="1").status == 200


def test_commands_for_objects_are_only_shown_for_copying(bridge: RemoteBridgeProcess) -> None:
    """The bridge does not need the authority to change objects of IBM MQ, and does not change them."""
    console = Console(bridge).log_in(TOKEN)
    form = console.get("/objects/show", kind="QLOCAL")
    assert "does not change objects of IBM MQ" in form.text
    page = console.change("/objects/preview", kind="QLOCAL", name="ORDERS", MAXDEPTH="7")
    assert "DEFINE QLOCAL('ORDERS') + MAXDEPTH(7)" in page.text
    assert "Copy these commands to runmqsc" in page.text
    assert 'id="confirm"' not in page.html
    refused = console.change("/objects/run", commands="DEFINE QLOCAL(ORDERS)", confirm="1")
    assert "does not change objects of IBM MQ; hint: run these commands in runmqsc" in refused.text
    assert "use dmpmqcfg" in console.get("/objects/dump").text
    object_page = console.get("/objects/show", kind="QLOCAL", name="SYSTEM.MQTT.TRANSMIT.QUEUE")
    assert "XMITQ" in object_page.text
    assert console.get("/objects/show", kind="QLOCAL", name="NONE").status == 404


def test_topics_and_queues_are_found(bridge: RemoteBridgeProcess) -> None:
    console = Console(bridge).log_in(TOKEN)
    with RawClient.connected(bridge.port, "searched") as client:
        client.subscribe(("searched/leaf", 1))
        answer = console.json("/search", text="searched")
        assert {(match["kind"], match["name"]) for match in answer["matches"]} == {
            ("client", "searched"),
            ("topic", "searched/leaf"),
        }
        assert console.json("/search", text="mqtt.transmit")["matches"][0]["kind"] == "queue"


def test_the_threads_of_the_bridge_are_connected(bridge: RemoteBridgeProcess) -> None:
    report = Console(bridge).log_in(TOKEN).json("/health")
    names = {connection["name"] for connection in report["connections"] if connection["connected"]}
    assert names >= {"transmit-queue browser", "subscriptions"}, report["connections"]
    assert all(not connection["problem"] for connection in report["connections"])


def test_a_lost_queue_manager_is_reported(bridge: RemoteBridgeProcess) -> None:
    """This test ends the queue manager, so it must be the last one of those that share the bridge."""
    console = Console(bridge).log_in(TOKEN)
    bridge.queue_manager.kill()

    def lost() -> bool:
        connections = console.json("/health")["connections"]
        return any(not connection["connected"] and "MQRC" in connection["problem"] for connection in connections)

    until(lost)
    assert "not connected" in console.get("/health").text
    answer = console.json("/search", text="mqtt.transmit", kinds="queue")
    assert (answer["matches"], len(answer["incomplete"])) == ([], 1)
    for path in ("/objects", "/topics", "/dead-letters"):
        page = console.request("GET", path, headers={"Accept": "application/json"})
        assert page.status == 503, page.html
        assert "MQRC" in json.loads(page.bytes)["title"]


@pytest.mark.slow  # the bridge waits for its threads
@pytest.mark.parametrize("path", ["/objects", "/topics"])
def test_a_stop_answers_requests_that_wait_for_the_queue_manager(tmp_path: Path, path: str) -> None:
    """The bridge ends although the queue manager never answers."""
    with at_work(bridge_of(tmp_path)) as bridge:
        place = urlsplit(admin_url(bridge.announced)).netloc
        bridge.queue_manager.pause()
        waiting = HTTPConnection(place, timeout=PATIENCE)
        with closing(waiting):
            waiting.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"})
            assert bridge.stop() == 0
            answer = waiting.getresponse()
            assert (answer.status, json.loads(answer.read())["title"]) == (503, "the bridge is stopping")
        bridge.queue_manager.resume()
