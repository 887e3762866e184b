"""The pages of the console: the displayed state of a running bridge, and changes with forms."""

from __future__ import annotations

import json
import re
from html import unescape
from urllib.parse import quote

import pytest
from markupsafe import escape as markup

from bridge.mqtt.packets import Publish
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.console import Console, Page
from tests.helpers.mqtt_5_client import subscribe
from tests.helpers.patience import until
from tests.helpers.raw_client import ConnectionClosed, RawClient

#: Client identifiers and topics that a page must not interpret as HTML or as a template.
HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'-alert(1)-'", "{{7*7}}", "a&amp;b", "☃/é")


def is_escaped(page: Page, hostile: str) -> bool:
    """Return whether a page shows a text as text, and not as elements or attributes."""
    assert page.status == 200, page.text
    html = page.html.replace(str(markup(hostile)), "")
    return hostile in unescape(page.html) and "<img" not in html and "alert(1)" not in re.sub(r'"[^"]*"', "", html)


def shows(console: Console, path: str, text: str) -> Page:
    """Return the page as soon as it contains a text."""
    until(lambda: text in console.get(path).text, lambda: console.get(path).text)
    return console.get(path)


# Overview ------------------------------------------------------------------------------------------------------------


def test_the_overview_shows_states_and_charts(console: Console) -> None:
    with RawClient.connected(console.bridge.port, "overview"):
        page = shows(console, "/", "1 connected")
    for text in ("running, for", "MQB1 (embedded) answers", "PLAIN.MQTT", f"127.0.0.1:{console.bridge.port}"):
        assert text in page.text
    assert page.html.count('role="img" aria-label=') == 4


def test_results_of_changes_are_shown_in_words(console: Console) -> None:
    try:
        stopped = console.change("/channels/stop", name="PLAIN.MQTT", confirm="1", back="/channels")
        assert "PLAIN.MQTT" in stopped.text
        assert "stopped" in stopped.text
    finally:
        started = console.change("/channels/start", name="PLAIN.MQTT", back="/channels")
    assert "running" in started.text
    # The channel uses any free port, which has changed.
    match = re.search(r"<code>127\.0\.0\.1:(\d+)</code>", started.html)
    assert match is not None
    console.bridge.port = int(match[1])
    refused = console.change("/channels/stop", name="NO.SUCH", confirm="1")
    assert 'class="notice bad"' in refused.html
    assert "NO.SUCH" in refused.text


def test_rates_are_drawn(console: Console) -> None:
    with RawClient.connected(console.bridge.port, "rates") as client:
        client.subscribe(("rates", 0))

        def drawn() -> bool:
            client.publish("rates", b"x")
            client.wait_for(Publish)
            match = re.search(r"delivered now ([\d.]+)", console.get("/").html)
            return match is not None and float(match[1]) > 0

        until(drawn)


# Clients -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client_id", HOSTILE)
def test_client_identifiers_are_escaped(console: Console, client_id: str) -> None:
    with RawClient.connected(console.bridge.port, client_id) as client:
        client.subscribe((f"hostile/{client_id}", 1))
        listed = console.get("/clients")
        assert is_escaped(listed, client_id)
        assert f"/clients/show?id={quote(client_id, safe='')}" in listed.html.replace("+", "%20")
        page = console.get("/clients/show", id=client_id)
        assert is_escaped(page, client_id)
        assert is_escaped(console.get("/topics/show", filter=f"hostile/{client_id}"), client_id)
        level = client_id.split("/")[0]
        assert is_escaped(console.get("/topics", below="hostile"), level)


def test_clients_are_searched(console: Console) -> None:
    port = console.bridge.port
    RawClient.connected(port, "search-away", clean=False).disconnect()
    with RawClient.connected(port, "search-here"):
        for path, here, away in (
            ("/clients?search=search", True, True),
            ("/clients?search=search-*", True, True),
            ("/clients?search=*-away", False, True),
            ("/clients?search=search&connected=yes", True, False),
            ("/clients?search=search&connected=no", False, True),
            ("/clients?search=search&channel=PLAIN.MQTT&connected=yes", True, False),
            ("/clients?search=search&channel=OTHER", False, False),
        ):
            text = console.get(path).text
            assert ("search-here" in text, "search-away" in text) == (here, away), path
    console.change("/clients/purge", ids="search-away", confirm="1")


def test_clients_are_shown_a_page_at_a_time(console: Console) -> None:
    clients = [RawClient.connected(console.bridge.port, f"many-{number:03}") for number in range(101)]
    try:
        first = console.get("/clients", search="many-")
        assert len(set(re.findall(r"many-\d{3}", first.text))) == 100
        assert "many-100" not in first.text
        following = re.search(r'id="page2" href="([^"]+)"', first.html)
        assert following is not None
        second = console.get(following[1].replace("&amp;", "&"))
        assert "101 clients, 101 connected" in second.text
        assert "many-100" in second.text
        assert "many-099" not in second.text
    finally:
        for client in clients:
            client.vanish()


def test_a_client_is_disconnected(console: Console) -> None:
    port = console.bridge.port
    with RawClient.connected(port, "cut", clean=False) as client:
        client.subscribe(("cut/#", 1))
        page = console.change("/clients/disconnect", ids="cut", confirm="1")
        assert "disconnected" in page.text
        with pytest.raises(ConnectionClosed):
            client.receive()
    console.change("/topics/publish", topic="cut/1", payload="waits")
    page = shows(console, "/clients/show?id=cut", "cut/1")
    for text in ("away", "durable", "cut/#", "1 messages"):
        assert text in page.text
    again = console.change("/clients/disconnect", ids="cut", confirm="1")
    assert "not connected" in again.text


def test_a_purge_must_be_confirmed(console: Console) -> None:
    RawClient.connected(console.bridge.port, "purged", clean=False).disconnect()
    question = console.change("/clients/purge", ids="purged")
    assert "waiting messages are deleted for good" in question.text
    assert "purged" in question.text
    assert console.get("/clients/show", id="purged").status == 200
    assert "ended" in console.change("/clients/purge", ids="purged", confirm="1").text
    assert console.get("/clients/show", id="purged").status == 404


# Topics --------------------------------------------------------------------------------------------------------------


def test_publications_of_the_console_reach_clients(console: Console) -> None:
    with RawClient.connected(console.bridge.port, "taker") as client:
        client.subscribe(("tree/+", 1))
        page = console.change("/topics/publish", topic="tree/leaf", payload="grün\r\nzwei", retain="1")
        assert "published 10 bytes to tree/leaf, retained" in page.text
        publish = client.take()
        assert (publish.topic, publish.payload) == ("tree/leaf", "grün\nzwei".encode())
        topic_page = console.get("/topics/show", filter="tree/leaf")
        assert "grün" in topic_page.text
        assert "taker" in topic_page.text
        assert "tree /" in console.get("/topics").text
        assert "tree/leaf" in console.get("/topics", below="tree").text
    assert "cleared" in console.change("/topics/publish", topic="tree/leaf", payload="", retain="1").text
    assert "grün" not in console.get("/topics/show", filter="tree/leaf").text


@pytest.mark.parametrize("topic", ["", "a/#", "+", "a" * 20_000, "/".join("a" * 200)])
def test_invalid_topics_are_rejected(console: Console, topic: str) -> None:
    assert "is not valid" in console.change("/topics/publish", topic=topic, payload="x").text


# Queues --------------------------------------------------------------------------------------------------------------


def test_queues_and_their_messages_are_shown(console: Console) -> None:
    bridge = console.bridge
    with RawClient.connected(bridge.port, "buyer") as client:
        client.publish("orders/7", b"<b>seven</b>", 1)
    page = shows(console, "/queues/show?name=ORDERS", "<b>seven</b>")
    assert "&lt;b&gt;seven" in page.html
    listed = console.get("/queues", search="orders")
    assert re.search(r"ORDERS 1 ", listed.text)
    leads_to = re.search(r'href="(/queues/message[^"]+)"', page.html)
    assert leads_to is not None
    message = console.get(leads_to[1].replace("&amp;", "&"))
    for text in ("MQMD", "MQRFH2", "MsgId", "folders.mqtt.clientId buyer", "folders.mqps.Top orders/7", "<b>seven</b>"):
        assert text in message.text, text
    assert len(bridge.messages("ORDERS")) == 1
    bridge.mq("get", "ORDERS")
    assert console.get(leads_to[1].replace("&amp;", "&")).status == 404


def test_messages_are_shown_a_page_at_a_time(console: Console) -> None:
    for number in range(52):
        console.bridge.mq("put", "ORDERS", f"body {number}")
    first = console.get("/queues/show", name="ORDERS")
    assert "body 49" in first.text
    assert "body 50" not in first.text
    following = re.search(r'id="page2" href="([^"]+)"', first.html)
    assert following is not None
    assert "body 51" in console.get(following[1].replace("&amp;", "&")).text
    console.bridge.mq("get", "ORDERS", "--limit", "0")


def test_system_queues_are_shown_on_request(console: Console) -> None:
    usual = console.get("/queues").text
    assert "SYSTEM.MQTT.TRANSMIT.QUEUE" in usual
    assert "SYSTEM.DEAD.LETTER.QUEUE" in usual
    assert "SYSTEM.RETAINED.PUB.QUEUE" not in usual
    assert "SYSTEM.RETAINED.PUB.QUEUE" in console.get("/queues", system="1").text
    assert "ORDERS" not in console.get("/queues", filled="1").text


# Mappings and links --------------------------------------------------------------------------------------------------


def test_a_mapping_is_paused_and_resumed(console: Console) -> None:
    bridge = console.bridge
    with RawClient.connected(bridge.port, "upwards") as client:
        client.subscribe(("up/#", 1))
        assert "paused" in console.change("/mappings/pause", name="upwards", confirm="1", back="/mappings").text
        bridge.mq("put", "UPWARDS", "waits")
        assert re.search(r"UPWARDS 1 ", console.get("/queues", search="UPWARDS").text)
        assert "upwards" in console.change("/mappings/resume", name="upwards", back="/mappings").text
        assert client.take().payload == b"waits"


def test_a_mapping_is_tried(console: Console) -> None:
    path = "/mappings/try?name=orders"
    publication = {"topic": "orders/1", "payload": "<i>x</i>", "qos": "2", "properties": "a=1\nb=2"}
    page = console.post(path, csrf_token=console.csrf_token, **publication)
    for text in ("It would be put to queue ORDERS", "md.Persistence 1", "<i>x</i>", "orders/1"):
        assert text in page.text, page.text
    page = console.post(path, csrf_token=console.csrf_token, topic="other", payload="x")
    assert "does not take it: topic other does not match orders/#" in page.text
    page = console.post(path, csrf_token=console.csrf_token, topic="orders/1", payload="x", properties="nothing")
    assert "is not valid" in page.text
    page = console.post("/mappings/try?name=upwards", csrf_token=console.csrf_token, payload="y", topic="")
    assert "It would be published to topic up/here" in page.text
    assert not console.bridge.messages("ORDERS")


def test_a_failed_test_of_a_link_is_explained(console: Console) -> None:
    assert "plant" in console.get("/links").text
    page = console.change("/links/test", name="plant")
    assert 'class="notice bad"' in page.html
    assert "127.0.0.1" in page.text


# Dead letters --------------------------------------------------------------------------------------------------------


def letter_to(console: Console, client_id: str, text: str) -> str:
    """Put a message for an unknown client, so that it becomes a dead letter. Return the path of its page."""
    console.bridge.mq("put", "news", text, "--to", client_id)
    page = shows(console, f"/dead-letters?client={client_id}", client_id)
    match = re.search(r'href="(/dead-letters/show[^"]+)"', page.html)
    assert match is not None, page.text
    return match[1].replace("&amp;", "&")


def test_a_dead_letter_is_retried(console: Console) -> None:
    path = letter_to(console, "late", "news for <you>")
    assert "1 message on dead-letter queue" in console.get("/").text
    page = console.get(path)
    for text in ("No client with that identifier", "MQRC_UNKNOWN_REMOTE_Q_MGR (2087)", "news for <you>", "MQDLH"):
        assert text in page.text, text
    (name,) = re.findall(r'name="ids" value="([^"]+)"', page.html)[:1]
    refused = console.change("/dead-letters/retry", ids=name, to="NO.SUCH.QUEUE")
    assert "Retried 1 message: 0 delivered, 1 still on the dead-letter queue" in refused.text
    assert "stayed: queue NO.SUCH.QUEUE: MQRC_UNKNOWN_OBJECT_NAME" in refused.text
    with RawClient.connected(console.bridge.port, "late") as client:
        answer = console.change("/dead-letters/retry", ids=name)
        assert "Retried 1 message: " in answer.text
        assert "0 still on the dead-letter queue" in answer.text
        assert client.take().payload == b"news for <you>"
    assert console.get(path).status == 404
    assert "No problems." in console.get("/").text


def test_dead_letters_are_exported_and_deleted(console: Console) -> None:
    letter_to(console, "gone-1", "one")
    letter_to(console, "gone-2", "two")
    export = console.get("/dead-letters/export", client="gone-1")
    assert "attachment" in export.headers["Content-Disposition"]
    (letter,) = map(json.loads, export.html.splitlines())
    assert letter["letter"]["destination_queue_manager"] == "gone-1"
    assert "Delete these messages for good?" in console.change("/dead-letters/delete", client="gone-1").text
    assert console.post("/dead-letters/delete", csrf_token=console.csrf_token, confirm="1").status == 400
    assert "Deleted 1 message" in console.change("/dead-letters/delete", client="gone-1", confirm="1").text
    page = console.get("/dead-letters").text
    assert "gone-2" in page
    console.change("/dead-letters/delete", all="1", confirm="1")
    assert "There are no dead letters" in console.get("/dead-letters").text


# Log, pipelines, archive ---------------------------------------------------------------------------------------------


def test_the_log_is_escaped_and_filtered(console: Console) -> None:
    with RawClient(console.bridge.port, "<b>logged</b>") as client:
        client.connect()
        client.send_bytes(b"\xff\xff\xff\xff")
        client.expect_closed()
    page = shows(console, "/log", "<b>logged</b>")
    assert "&lt;b&gt;logged" in page.html
    assert "<b>logged" not in page.html
    assert "logged" not in console.get("/log", level="error").text
    assert "logged" not in console.get("/log", search="no such words").text.replace("no such words", "")


def test_the_log_level_can_be_changed(console: Console) -> None:
    try:
        page = console.change("/log/level", level="debug", back="/log")
        assert 'class="notice good"' in page.html
        assert re.search(r'id="set-level".*<option selected>debug', page.html)
    finally:
        console.change("/log/level", level="info")
    assert console.post("/log/level", csrf_token=console.csrf_token, level="loud").status == 400


def test_pages_report_that_there_are_no_pipelines_and_no_archive(console: Console) -> None:
    assert "has no pipelines" in console.get("/pipelines").text
    assert "archive.directory" in console.get("/archive").text


def test_health_and_metrics_need_no_login(bridge: BridgeProcess) -> None:
    stranger = Console(bridge)
    assert stranger.get("/healthz").text == "ok "
    assert stranger.get("/readyz").status == 200
    assert stranger.get("/metrics").status == 200


# JSON ----------------------------------------------------------------------------------------------------------------


def test_each_page_is_available_as_json(console: Console) -> None:
    with RawClient.connected(console.bridge.port, "json-1") as client:
        client.subscribe(("json/#", 1))
        listing = console.json("/clients", search="json-", sort="subscriptions", descending="true")
        assert (listing["found"], listing["clients"][0]["client_id"]) == (1, "json-1")
        assert console.json("/clients/show", id="json-1")["subscriptions"][0]["topic_filter"] == "json/#"
        assert console.json("/subscriptions", search="json-1")["subscriptions"][0]["topic_filter"] == "json/#"
    assert console.json("/")["status"]["queue_manager"] == "MQB1"
    accept = {"Accept": "application/json"}
    missing = console.request("GET", "/clients/show?id=nosuch", headers=accept)
    assert (missing.status, json.loads(missing.bytes)["title"]) == (404, "there is no session of client 'nosuch'")
    form = {**accept, "Authorization": f"Bearer {console.token}"}
    answer = console.post("/topics/publish", headers=form, topic="json/1", payload="x")
    assert json.loads(answer.bytes)["lines"] == ["published 1 byte to json/1"]
    stranger = Console(console.bridge).request("GET", "/clients", headers=accept)
    assert stranger.status == 401


def test_the_api_is_documented(console: Console) -> None:
    document = console.json("/openapi.json")
    assert {"/clients", "/clients/purge", "/queues/move", "/dead-letters/retry", "/configuration"} <= document[
        "paths"
    ].keys()
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert references <= document["components"]["schemas"].keys()
    parameters = {parameter["name"] for parameter in document["paths"]["/clients"]["get"]["parameters"]}
    assert parameters == {"search", "channel", "connected", "sort", "descending", "columns", "page"}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (path, method)
            assert {"200", "400", "401", "403", "404", "409", "422", "429", "503"} <= operation["responses"].keys(), (
                path,
                method,
            )
    assert Console(console.bridge).get("/openapi.json").status == 303


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/clients/purge", {"ids": "nosuch", "confirm": "1"}, 404),
        ("/clients/purge", {"ids": "nosuch"}, 409),
        ("/clients/purge", {"confirm": "1"}, 409),
        ("/topics/publish", {"topic": "a/#"}, 422),
        ("/log/level", {"level": "loud"}, 400),
        ("/channels/start", {"name": "NO.SUCH"}, 404),
        ("/topics/clear", {"topic": "nothing/here", "confirm": "1"}, 200),
    ],
)
def test_programs_get_a_status(console: Console, path: str, fields: dict[str, str], status: int) -> None:
    bearer = {"Accept": "application/json", "Authorization": f"Bearer {console.token}"}
    answer = console.post(path, headers=bearer, **fields)
    assert answer.status == status, answer.text
    report = json.loads(answer.bytes)
    assert report["lines"] or report["title"]


@pytest.mark.parametrize(
    ("path", "methods"), [("/topics/route", {"GET", "HEAD", "POST"}), ("/clients", {"GET", "HEAD"})]
)
def test_an_unsupported_method_is_answered_with_the_supported_ones(
    console: Console, path: str, methods: set[str]
) -> None:
    answer = console.request("OPTIONS", path)
    assert (answer.status, set(answer.headers["Allow"].split(", "))) == (405, methods)


# Further pages -------------------------------------------------------------------------------------------------------


def test_clients_are_sorted(console: Console) -> None:
    port = console.bridge.port
    with RawClient.connected(port, "sort-a", clean=False) as busy, RawClient.connected(port, "sort-b") as idle:
        busy.subscribe(("sort/1", 1), ("sort/2", 1))
        idle.subscribe(("sort/1", 1))
        busy.disconnect()
        console.change("/topics/publish", topic="sort/2", payload="waits")
        until(lambda: console.json("/clients", search="sort-")["waiting"] == 1)
        for column in ("client_id", "subscriptions", "waiting", "connected", "oldest", "address", "sent_rate", "user"):
            rows = console.json("/clients", search="sort-", sort=column)["clients"]
            reverse = console.json("/clients", search="sort-", sort=column, descending="1")["clients"]
            assert {row["client_id"] for row in rows} == {row["client_id"] for row in reverse} == {"sort-a", "sort-b"}
        first = console.json("/clients", search="sort-", sort="waiting", descending="1")["clients"][0]
        assert (first["client_id"], first["waiting"], first["oldest"] > 0) == ("sort-a", 1, True)
        until(lambda: console.json("/clients", search="sort-")["clients"][0]["received_rate"] is not None)
    console.change("/clients/purge", ids="sort-a", confirm="1")


def test_recent_events_of_a_client_are_shown(console: Console) -> None:
    with RawClient.connected(console.bridge.port, "eventful", clean=False) as client:
        client.subscribe(("events/#", 1))
        client.disconnect()
    page = shows(console, "/clients/show?id=eventful", "disconnected by the client")
    for text in ("connected via channel PLAIN.MQTT", "subscribed to 'events/#' with QoS 1"):
        assert text in page.text
    assert re.findall(r"<h2>(Recent events|Subscriptions)", page.html) == ["Recent events", "Subscriptions"]
    console.change("/clients/purge", ids="eventful", confirm="1")
    # The history survives the end of the session.
    assert console.get("/clients/show", id="eventful").status == 404
    left = console.get("/clients", search="eventful")
    assert "History of a client that has left" in left.text
    page = shows(console, "/clients/history?id=eventful", "session ended")
    assert "subscribed to 'events/#' with QoS 1" in page.text
    events = console.json("/clients/history", id="eventful")["events"]
    assert [event["kind"] for event in events] == ["session_ended", "disconnected", "subscribed", "connected"]
    assert console.json("/clients/history", id="nobody") == console.json("/clients/history") == {"events": []}


def test_clients_are_changed_by_pattern(console: Console) -> None:
    port = console.bridge.port
    for name in ("all-1", "all-2", "other-1"):
        RawClient.connected(port, name, clean=False).disconnect()
    page = console.get("/clients", search="all-")
    assert "Purge all *all-*" in page.text
    question = console.change("/clients/purge", patterns="*all-*")
    assert "waiting messages are deleted for good" in question.text and "*all-*" in question.text
    assert (
        "2 sessions ended, with a backlog of 0 messages"
        in console.change("/clients/purge", patterns="*all-*", confirm="1").text
    )
    assert console.json("/clients", search="-1")["found"] == 1
    console.change("/clients/purge", ids="other-1", confirm="1")
    assert "no clients were selected" in console.change("/clients/purge", confirm="1").text


def test_payloads_of_a_trace_need_the_right_to_change(console: Console) -> None:
    tokens = console.bridge.data_directory / "admin.tokens"
    before = tokens.read_text()
    tokens.write_text(f"{before}\nviewer:read:0123456789012345678901234567890123456789\n")
    try:
        viewer = Console(console.bridge).log_in("0123456789012345678901234567890123456789")
        assert "Show payloads" not in viewer.get("/clients/trace", id="traced").text
        for path in ("/clients/trace", "/clients/events", "/clients/trace/file"):
            assert viewer.get(path, id="traced", payloads="1").status == 403
        for user in (console, viewer):
            assert user.get("/clients/trace/file", id="traced").status == 200
        with RawClient.connected(console.bridge.port, "traced") as client:
            client.publish("t", b"secret", 1)
        entries = [json.loads(line) for line in viewer.get("/clients/trace/file", id="traced").bytes.splitlines()]
        assert [(entry["kind"], entry["payload"]) for entry in entries][:2] == [("event", None), ("published", None)]
        file = console.get("/clients/trace/file", id="traced", payloads="1")
        assert json.loads(file.bytes.splitlines()[1])["payload"] == "secret"
        assert "attachment" in file.headers["Content-Disposition"]
        entry = next(entry for entry in console.json("/audit")["entries"] if entry.get("command") == "client trace")
        assert (entry["client_id"], entry["payloads"], entry["ok"]) == ("traced", True, True)
    finally:
        tokens.write_text(before)


def test_options_of_subscriptions_are_shown_in_words(console: Console) -> None:
    with RawClient.connected(console.bridge.port, "options", level=5) as client:
        client.subscribe(("plain/#", 1))
        subscribe(client, "with/options", no_local=True)
        for path in (
            "/clients/show?id=options",
            "/topics/show?filter=with/options",
            "/subscriptions?filter=with/options",
        ):
            assert "No Local" in console.get(path).text, path
        assert "QoS 1" in console.get("/subscriptions?filter=plain/a").text


def test_messages_are_put_moved_and_deleted(console: Console) -> None:
    """Selected or all messages are moved, in order and with their MsgIds, or deleted."""
    bridge = console.bridge
    for text in ("one", "two", "three"):
        page = console.change("/queues/put", name="SOURCE", payload=text, back="/queues")
        assert f"put a message of {len(text)} bytes to queue SOURCE" in page.text
    rows = console.json("/queues/show", name="SOURCE")["messages"]["messages"]
    assert [row["body"] for row in rows] == ["one", "two", "three"]
    moved = console.change("/queues/move", name="SOURCE", to="TARGET", ids=rows[1]["message_id"], confirm="1")
    assert "moved 1 message from queue SOURCE to queue TARGET" in moved.text
    assert "moved 2 messages" in console.change("/queues/move", name="SOURCE", to="TARGET", confirm="1").text
    target = console.json("/queues/show", name="TARGET")
    assert [row["body"] for row in target["messages"]["messages"]] == ["two", "one", "three"]
    assert target["messages"]["messages"][0]["message_id"] == rows[1]["message_id"]
    assert target["details"]["queue"]["depth"] == 3
    assert target["details"]["attributes"]["MAXDEPTH"] > 0
    assert "deleted 3 messages" in console.change("/queues/clear", name="TARGET", confirm="1").text
    nothing = console.change("/queues/clear", name="TARGET", confirm="1")
    assert 'class="notice bad"' in nothing.html
    assert not bridge.messages("TARGET")


def test_a_message_that_does_not_fit_stays(console: Console) -> None:
    for text in ("one", "two"):
        console.change("/queues/put", name="SOURCE", payload=text)
    page = console.change("/queues/move", name="SOURCE", to="SMALL", confirm="1")
    assert "MQRC_Q_FULL" in page.text
    assert len(console.bridge.messages("SOURCE")) + len(console.bridge.messages("SMALL")) == 2
    console.change("/queues/clear", name="SOURCE", confirm="1")
    console.change("/queues/clear", name="SMALL", confirm="1")


def test_messages_for_clients_show_their_client_and_stay(console: Console) -> None:
    queue = "SYSTEM.MQTT.TRANSMIT.QUEUE"
    with RawClient.connected(console.bridge.port, "recipient", clean=False) as client:
        client.subscribe(("transmitted", 1))
        client.disconnect()
    console.change("/topics/publish", topic="transmitted", payload="waits")
    until(lambda: "recipient" in console.get("/queues/show", name=queue).text)
    messages = console.json("/queues/show", name=queue)["messages"]["messages"]
    (row,) = [message for message in messages if message["client_id"] == "recipient"]
    assert row["topic"] == "transmitted"
    refused = console.change("/queues/clear", name=queue, ids=row["message_id"], confirm="1")
    assert "purge the client instead" in refused.text
    assert "purge the client instead" in console.change("/queues/move", name=queue, to="TARGET", confirm="1").text
    assert "belongs to" in console.change("/queues/clear", name="SYSTEM.MQTT.PERSISTENT.STATE", confirm="1").text
    console.change("/clients/purge", ids="recipient", confirm="1")


def test_dead_letters_are_grouped(console: Console) -> None:
    for client_id, count in (("group-1", 2), ("group-2", 1)):
        for _ in range(count):
            letter_to(console, client_id, "lost")
    page = console.json("/dead-letters", reason="MQRC_UNKNOWN_REMOTE_Q_MGR")
    counts = {group["destination_queue_manager"]: group["count"] for group in page["groups"]}
    assert (counts["group-1"], counts["group-2"]) == (2, 1)
    names = [letter["name"] for letter in page["letters"] if letter["destination_queue_manager"].startswith("group-")]
    assert "Deleted 1 message" in console.change("/dead-letters/delete", ids=names[0], confirm="1").text
    assert "no such messages" in console.change("/dead-letters/delete", ids=names[0], confirm="1").text
    console.change("/dead-letters/delete", all="1", confirm="1")


def test_the_audit_log_is_shown_without_payloads(console: Console) -> None:
    console.change("/topics/publish", topic="audited/page", payload="secret")
    page = console.get("/audit", search="audited/page")
    assert "token admin" in page.text
    assert "publish" in page.text
    assert "secret" not in page.text
    assert "no such entries" in console.get("/audit", search="nothing like that").text


def test_the_configuration_is_shown_without_secrets(console: Console) -> None:
    text = console.get("/configuration/effective").text
    assert "transmission_queue: SYSTEM.MQTT.TRANSMIT.QUEUE" in text
    assert "up/here" in text
    for page in (text, console.get("/mappings/try", name="orders").text):
        assert "secret: (hidden)" in page and "classified" not in page


# Objects -------------------------------------------------------------------------------------------------------------


def test_a_queue_is_created_altered_cleared_and_deleted(console: Console) -> None:
    assert "Maximum number of messages" in console.get("/objects/show", kind="QLOCAL").text
    page = console.change("/objects/preview", kind="QLOCAL", name="MADE.HERE", DESCR="it's <b>new</b>", MAXDEPTH="7")
    assert "DEFINE QLOCAL('MADE.HERE') + DESCR('it''s <b>new</b>') + MAXDEPTH(7)" in page.text
    assert "<b>new</b>" not in page.html.replace("→ <b>", "")
    command = unescape(re.search(r'<textarea name="commands" hidden>(.*?)</textarea>', page.html, re.S)[1])  # type: ignore[index]
    assert (
        "This needs confirm=1"
        in console.request("POST", "/objects/run", f"commands={quote(command)}", _bearer(console)).text
    )
    answer = console.change("/objects/run", commands=command, confirm="1", back="/objects")
    assert "1 MQSC command run, 0 failed" in answer.text and "MADE.HERE" in answer.text
    object_page = console.get("/objects/show", kind="QLOCAL", name="MADE.HERE")
    assert 'value="7"' in object_page.html and "default 5000" in object_page.text
    for text in ("2", "null", "[true]"):
        assert console.change("/objects/preview", kind="QLOCAL", name="MADE.HERE", exists=text).status == 400
    page = console.change("/objects/preview", kind="QLOCAL", name="MADE.HERE", exists="1", DESCR="", MAXDEPTH="8")
    assert "ALTER QLOCAL('MADE.HERE') + DESCR('') + MAXDEPTH(8)" in page.text and "MAXDEPTH: 7 → 8" in page.text
    assert (
        "Nothing changes"
        in console.change("/objects/preview", kind="QLOCAL", name="MADE.HERE", exists="1", MAXDEPTH="7").text
    )
    console.change("/queues/put", name="MADE.HERE", payload="x")
    refused = console.change("/objects/remove", kind="QLOCAL", name="MADE.HERE")
    assert "1 messages are on it; hint: PURGE deletes them" in refused.text and 'id="confirm"' not in refused.html
    assert "1 messages" in console.change("/objects/empty", kind="QLOCAL", name="MADE.HERE").text
    for command in ("CLEAR QLOCAL('MADE.HERE')", "DELETE QLOCAL('MADE.HERE')"):
        assert "0 failed" in console.change("/objects/run", commands=command, confirm="1").text
    assert console.get("/objects/show", kind="QLOCAL", name="MADE.HERE").status == 404
    entry = next(entry for entry in console.json("/audit")["entries"] if entry.get("command") == "mqsc run")
    assert (entry["user"], entry["commands"], entry["ok"]) == ("token admin", "DELETE QLOCAL('MADE.HERE')", True)


@pytest.mark.parametrize(
    ("commands", "answer"),
    [
        ("DELETE QLOCAL(SYSTEM.DEAD.LETTER.QUEUE)", "1 command left out"),
        ("ALTER QMGR DEADQ(X)", "1 command left out"),
        ("DEFINE QLOCAL(A1)\nDELETE QLOCAL(NONE)", "nothing was changed: line 2: AMQ8147E"),
        ("DELETE QLOCAL(UPWARDS)", "AMQ8148E"),
        ("x" * 600_000, "the maximum is 500,000"),
    ],
    ids=["system", "queue manager", "mistake", "in use", "long"],
)
def test_dangerous_and_invalid_commands_are_not_run(console: Console, commands: str, answer: str) -> None:
    assert answer in console.change("/objects/run", commands=commands, confirm="1").text
    assert console.get("/objects/show", kind="QLOCAL", name="A1").status == 404


def test_definitions_are_downloaded_and_uploaded(console: Console) -> None:
    dump = console.get("/objects/dump")
    assert "attachment" in dump.headers["Content-Disposition"]
    assert "DEFINE QLOCAL('ORDERS')" in dump.bytes.decode()
    page = console.change("/objects/commands", commands=dump.bytes.decode())
    # The dump describes the current state of the queue manager.
    assert "Nothing would change" in page.text and "left out" in page.text
    upload = dump.bytes.replace(
        b"DEFINE QLOCAL('SMALL') +\n   MAXDEPTH(1)", b"DEFINE QLOCAL('SMALL') +\n   MAXDEPTH(2)"
    )
    page = _upload(console, "/objects/commands", upload)
    assert "MAXDEPTH: 1 → 2" in page.text and "Run 1 commands" in page.text
    assert "The file is not text in UTF-8: line 2" in _upload(console, "/objects/commands", b"* x\n\xff").text


def _bearer(console: Console) -> dict[str, str]:
    return {"Authorization": f"Bearer {console.token}", "Content-Type": "application/x-www-form-urlencoded"}


def _upload(console: Console, path: str, content: bytes) -> Page:
    parts = [("csrf_token", "", console.csrf_token.encode()), ("file", '; filename="objects.mqsc"', content)]
    body = b"".join(
        b'--B\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (name.encode(), more.encode(), data)
        for name, more, data in parts
    )
    return console.request("POST", path, body + b"--B--\r\n", {"Content-Type": "multipart/form-data; boundary=B"})


# Publishers and routes -----------------------------------------------------------------------------------------------


def test_the_page_of_a_topic_shows_publishers_and_deletes_its_retained_value(console: Console) -> None:
    with RawClient.connected(console.bridge.port, "<b>pub</b>") as client:
        client.publish("published/1", b"x", 1, retain=True)
        page = console.get("/topics/show", filter="published/1")
        assert is_escaped(page, "<b>pub</b>")
        assert "Last publication" in page.text
        assert "published/1" in console.get("/topics/show", filter="published/#").text
        assert (
            console.json("/topics/show", filter="published/1")["publishers"]["publishers"][0]["client_id"]
            == "<b>pub</b>"
        )
        question = console.change("/topics/clear", topic="published/1")
        assert "Delete the retained publication of this topic?" in question.text and "published/1" in question.text
        cleared = console.change("/topics/clear", topic="published/1", confirm="1", back="/topics")
        assert "deleted the retained publication of published/1" in cleared.text
        assert console.json("/topics/show", filter="published/1")["details"]["retained"] == []


def test_the_route_of_a_publication_is_shown(console: Console) -> None:
    with RawClient.connected(console.bridge.port, "routed") as client:
        client.subscribe(("orders/+", 1))
        assert "Nothing is published" in console.get("/topics/route", topic="orders/7").text
        page = console.change("/topics/route", topic="orders/7", payload="{}", client_id="routed")
        for text in ("accepted", "routed orders/+", "orders running takes it queue ORDERS", "ORDERS 0 of 5,000"):
            assert text in page.text, text
        client.ping()
        assert not client.inbox
        refused = console.change("/topics/route", topic="orders/#")
        assert refused.status == 422 and "wildcards are for subscriptions" in refused.text
        assert console.change("/topics/route", topic="a", client_id="nobody").status == 404
