"""Requests of applications over HTTP: their tokens, mistakes, limits and statuses."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.applications import TOKEN, Answer, Application, tokens_of
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.console import Console
from tests.helpers.patience import PATIENCE, eventually, until
from tests.helpers.raw_client import RawClient
from tests.helpers.scrape import Scrape, admin_url

APPLICATIONS = ("app", "narrow", "slow", "removed", "unknown")
ADMIN_TOKENS = f"admin:change:{TOKEN}admin\nreader:read:{TOKEN}reader\n"
CONFIG = """
queue_manager: {{data_directory: {0}/data}}
channels:
  - {{name: PLAIN.MQTT, port: 0}}
limits: {{unreleased: 1}}
admin:
  port: 0
  open_metrics: {open_metrics}
  token_file: {0}/tokens
  applications:
    app: {{mq_user: app, publish_topics: ["shop/#"], reply_topics: ["shop/+/reply"], max_payload: 1 KiB, call_timeout: 60}}
    narrow: {{mq_user: narrow, requests: 1, reply_topics: ["shop/+/reply"]}}
    slow: {{mq_user: slow, publish_rate: 1}}
"""


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("applications")
    tokens = directory / "tokens"
    tokens.write_text(ADMIN_TOKENS + tokens_of(*APPLICATIONS))
    tokens.chmod(0o600)
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory, open_metrics="true"))) as process:
        yield process


@pytest.fixture
def device(bridge: BridgeProcess) -> Iterator[RawClient]:
    """A device of MQTT 3.1.1 that receives requests, and answers none."""
    with RawClient.connected(bridge.port, "device") as client:
        client.subscribe(("shop/device", 1))
        yield client


def in_progress(bridge: BridgeProcess, name: str) -> float | None:
    return Scrape(bridge).get("mqbridge_application_requests_in_progress", application=name)


@contextmanager
def calling(bridge: BridgeProcess, name: str, device: RawClient, **query: Any) -> Iterator[list[Answer]]:
    """Call a device, which has received the request when the block begins. Its end waits for the answer."""
    answers: list[Answer] = []
    call = threading.Thread(target=lambda: answers.append(Application(bridge, name).call("shop/device", **query)))
    call.start()
    device.take()
    yield answers
    call.join()


# Tokens --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/clients", "/log", "/openapi.json", "/configuration/effective"])
def test_the_token_of_an_application_cannot_read_pages(bridge: BridgeProcess, path: str) -> None:
    answer = Console(bridge).request("GET", path, headers={"Authorization": f"Bearer {TOKEN}app"})
    assert answer.status == 403
    assert "has the right `application`, and this needs `read`" in answer.text


def test_the_token_of_an_application_cannot_make_changes(bridge: BridgeProcess) -> None:
    console, bearer = Console(bridge), {"Authorization": f"Bearer {TOKEN}app"}
    assert console.post("/log/level", headers=bearer, level="debug").status == 403
    assert console.post("/topics/publish", headers=bearer, topic="shop/x").status == 403


def test_the_token_of_an_application_does_not_log_in(bridge: BridgeProcess) -> None:
    page = Console(bridge).post("/login", token=f"{TOKEN}app")
    assert page.status == 403
    assert "token of an application" in page.text


@pytest.mark.parametrize(("name", "status"), [("admin", 403), ("reader", 403), ("nosuch", 401), ("unknown", 403)])
def test_other_tokens_cannot_publish_or_call(bridge: BridgeProcess, name: str, status: int) -> None:
    application = Application(bridge, name)
    assert (application.publish("shop/x").status, application.call("shop/x").status) == (status, status)


def test_a_login_does_not_publish_as_an_application(bridge: BridgeProcess) -> None:
    console = Console(bridge).log_in(f"{TOKEN}admin")
    assert console.change("/application/publish?topic=shop/x").status == 403


# Requests ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "payload", "headers", "status", "why"),
    [
        ({"topic": "shop/#"}, b"", {}, 422, "wildcards"),
        ({"topic": ""}, b"", {}, 400, "topic"),
        ({"topic": "shop/x", "qos": "3"}, b"", {}, 400, "qos"),
        ({"topic": "shop/x", "expiry": "0"}, b"", {}, 400, "expiry"),
        ({"topic": "elsewhere"}, b"", {}, 403, "rejected"),
        ({"topic": "shop/x"}, b"x" * 1_025, {}, 413, "1,024 bytes"),
        ({"topic": "shop/x"}, b"\xff", {"Content-Type": "text/plain"}, 422, "not UTF-8"),
        ({"topic": "shop/x\0"}, b"", {}, 422, "U+0000"),
    ],
)
def test_invalid_publications_are_rejected(
    bridge: BridgeProcess, query: dict[str, str], payload: bytes, headers: dict[str, str], status: int, why: str
) -> None:
    answer = Application(bridge, "app").publish(query.pop("topic"), payload, headers, **query)
    assert (answer.status, why in answer.text) == (status, True), answer.text


def test_a_problem_is_json_if_the_program_asks_for_it(bridge: BridgeProcess) -> None:
    answer = Application(bridge, "app").publish("elsewhere", headers={"Accept": "application/json"})
    assert answer.json["title"].startswith("Publication to 'elsewhere' rejected")


def test_a_topic_is_required(bridge: BridgeProcess) -> None:
    application = Application(bridge, "app")
    with application.request("/application/publish", b"", {}, {}) as connection:
        assert connection.getresponse().status == 400


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publication_has_the_requested_qos(bridge: BridgeProcess, qos: int) -> None:
    with RawClient.connected(bridge.port, "reader", level=5) as reader:
        reader.subscribe(("shop/qos", 2))
        answer = Application(bridge, "app").publish("shop/qos", b"\0\xff", qos=qos)
        assert answer.json == {"acknowledged": qos > 0, "unmatched": False}
        publication = reader.take()
    assert (publication.payload, publication.qos, publication.retain) == (b"\0\xff", qos, False)
    assert publication.properties is None or publication.properties.content_type is None


def test_the_request_determines_the_properties_of_the_publication(bridge: BridgeProcess) -> None:
    Application(bridge, "app").publish(
        "shop/fields",
        "é".encode(),
        {"Content-Type": "text/plain; charset=utf-8"},
        retain="true",
        expiry=1_000,
        user_property=["a=1", "b", "a=2=3"],
    )
    with RawClient.connected(bridge.port, "reader", level=5) as reader:
        reader.subscribe(("shop/fields", 1))
        publication = reader.take()
    properties = publication.properties
    assert publication.retain and properties is not None
    assert (properties.content_type, properties.payload_format_indicator) == ("text/plain; charset=utf-8", 1)
    assert properties.user_property == (("a", "1"), ("b", ""), ("a", "2=3"))
    assert 990 < (properties.message_expiry_interval or 0) <= 1_000


# Bodies --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def reader(bridge: BridgeProcess) -> Iterator[RawClient]:
    with RawClient.connected(bridge.port, "bodies", level=5) as client:
        client.subscribe(("shop/bodies", 1))
        yield client


def arrived(bridge: BridgeProcess, reader: RawClient) -> list[bytes]:
    """Return the payloads that arrived before another publication."""
    assert Application(bridge, "app").publish("shop/bodies", b"last").status == 200
    payloads = []
    while (payload := reader.take().payload) != b"last":
        payloads.append(payload)
    return payloads


@contextmanager
def sending(bridge: BridgeProcess, head: str, body: bytes) -> Iterator[socket.socket]:
    """Send a request with these headers and this body, and close its connection at the end of the block."""
    place = urlsplit(admin_url(bridge.announced))
    with closing(socket.create_connection((place.hostname or "", place.port or 0), PATIENCE)) as connection:
        start = f"POST /application/publish?topic=shop/bodies HTTP/1.1\r\nHost: {place.netloc}\r\n"
        connection.sendall(f"{start}Authorization: Bearer {TOKEN}app\r\n{head}\r\n".encode() + body)
        yield connection


@pytest.mark.parametrize(
    ("head", "body", "status", "payloads"),
    [
        ("Content-Length: 2\r\n", b"ab", 200, [b"ab"]),
        ("Transfer-Encoding: chunked\r\n", b"1\r\na\r\n1;x=y\r\nb\r\n0\r\n\r\n", 200, [b"ab"]),
        ("Expect: 100-continue\r\nContent-Length: 2\r\n", b"ab", 200, [b"ab"]),
        ("", b"", 200, [b""]),
        ("Content-Length: 2\r\n", b"abc\r\n\r\n", 200, [b"ab"]),  # the rest is not a request
        ("Content-Length: 1025\r\n", b"a" * 1_025, 413, []),
        ("Transfer-Encoding: chunked\r\n", b"401\r\n" + b"a" * 1_025 + b"\r\n0\r\n\r\n", 413, []),
        ("Transfer-Encoding: chunked\r\n", b"xyz\r\nab\r\n0\r\n\r\n", 400, []),
        ("Content-Length: -1\r\n", b"ab", 400, []),
        ("Content-Length: 1\r\nContent-Length: 2\r\n", b"ab", 400, []),
        ("Transfer-Encoding: gzip\r\n", b"ab", 400, []),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bodies(
    bridge: BridgeProcess, reader: RawClient, head: str, body: bytes, status: int, payloads: list[bytes]
) -> None:
    with sending(bridge, head, body) as connection:
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == status
    assert arrived(bridge, reader) == payloads


@pytest.mark.parametrize(
    ("head", "body"), [("Content-Length: 3\r\n", b"ab"), ("Transfer-Encoding: chunked\r\n", b"2\r\nab\r\n")]
)
@pytest.mark.parametrize("half", [True, False], ids=["half closed", "closed"])
def test_half_a_body_is_not_published(
    bridge: BridgeProcess, reader: RawClient, head: str, body: bytes, half: bool
) -> None:
    for _ in range(3):
        with sending(bridge, head, body) as connection:
            if half:
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(100)[:13] in (b"", b"HTTP/1.1 400 ")
    assert arrived(bridge, reader) == []
    eventually(lambda: in_progress(bridge, "app"), 0)


# Calls ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "status"), [("shop/x/other", 403), ("elsewhere", 403), ("shop/+/reply", 422), ("$SYS/x", 403)]
)
def test_topics_that_are_not_for_replies(bridge: BridgeProcess, device: RawClient, topic: str, status: int) -> None:
    answer = Application(bridge, "app").call("shop/device", reply_topic=topic)
    assert answer.status == status, answer.text


def test_two_calls_do_not_wait_for_the_same_topic(bridge: BridgeProcess, device: RawClient) -> None:
    with calling(bridge, "app", device, reply_topic="shop/device/reply") as answers:
        for name in ("app", "narrow"):
            second = Application(bridge, name).call("shop/device", reply_topic="shop/device/reply")
            assert (second.status, second.headers["Retry-After"]) == (409, "1"), name
        device.publish("shop/device/reply", b"done", 1)
    assert answers[0].text == "done"


def test_a_late_reply_is_not_that_of_the_next_call(bridge: BridgeProcess) -> None:
    with RawClient.connected(bridge.port, "late", level=5) as device:
        device.subscribe(("shop/late", 1))
        application = Application(bridge, "app")
        assert application.call("shop/late", seconds=0.1).status == 504
        late = device.take()
        answers: list[Answer] = []
        call = threading.Thread(target=lambda: answers.append(application.call("shop/late")))
        call.start()
        for request, text in ((late, b"late"), (device.take(), b"in time")):
            assert request.properties is not None and request.properties.response_topic is not None
            reply = request.properties.__class__(correlation_data=request.properties.correlation_data)
            packet = type(request)(request.properties.response_topic, text, 0, properties=reply)
            device.send(packet)
        call.join()
    assert answers[0].text == "in time"


def test_a_disconnect_by_an_administrator_ends_calls(bridge: BridgeProcess, device: RawClient) -> None:
    with calling(bridge, "app", device) as answers:
        rows = Administrator(bridge).json("client", "list", "--channel", "HTTP.APPLICATIONS")
        (name,) = [row["client_id"] for row in rows if row["user"] == "app"]
        Administrator(bridge).does("client", "disconnect", name)
    assert answers[0].status == 503
    assert "disconnected" in answers[0].text or "closed" in answers[0].text
    assert Application(bridge, "app").publish("shop/x").status == 200


# Limits --------------------------------------------------------------------------------------------------------------


def test_too_many_requests_at_a_time(bridge: BridgeProcess, device: RawClient) -> None:
    before = Scrape(bridge).get("mqbridge_limit_reached_total", limit="application_requests")
    with calling(bridge, "narrow", device, reply_topic="") as answers:
        refused = Application(bridge, "narrow").publish("shop/x")
        assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        assert "1 requests of application narrow are in progress (requests)" in refused.text
        scrape = Scrape(bridge)
        assert scrape.get("mqbridge_limit_reached_total", limit="application_requests") == (before or 0) + 1
        assert scrape.get("mqbridge_application_requests_in_progress", application="narrow") == 1
        problems = json.loads(Administrator(bridge).run("status", "--json").stdout)["problems"]
        (problem,) = [problem for problem in problems if problem["subject"] == "application_requests"]
        assert "application 'narrow' has too many requests in progress" in problem["what"]
        Administrator(bridge).does("client", "disconnect", *_clients_of(bridge, "narrow"))
    assert answers[0].status == 503
    assert Application(bridge, "narrow").publish("shop/x").status == 200


def _clients_of(bridge: BridgeProcess, user: str) -> list[str]:
    rows = Administrator(bridge).json("client", "list", "--channel", "HTTP.APPLICATIONS")
    return [row["client_id"] for row in rows if row["user"] == user]


def test_a_program_that_disconnects_ends_its_call(bridge: BridgeProcess, device: RawClient) -> None:
    application = Application(bridge, "narrow")
    scrape = Scrape(bridge)
    earlier = {
        outcome: scrape.total("mqbridge_application_requests_total", application="narrow", outcome=outcome)
        for outcome in ("ok", "disconnected")
    }
    with application.request("/application/call", b"", {}, {"topic": "shop/device"}):
        device.take()
        assert in_progress(bridge, "narrow") == 1
    eventually(lambda: in_progress(bridge, "narrow"), 0)
    counts = Scrape(bridge)
    outcomes = {
        outcome: counts.total("mqbridge_application_requests_total", application="narrow", outcome=outcome) - before
        for outcome, before in earlier.items()
    }
    assert outcomes == {"ok": 0, "disconnected": 1}
    assert application.publish("shop/x").status == 200


def test_publications_with_qos_2_wait_for_those_before_them(bridge: BridgeProcess, device: RawClient) -> None:
    """limits.unreleased is the Receive Maximum of the bridge. To exceed it would end all requests in progress."""
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(Application(bridge, "app").publish("shop/x", qos=2).status))
        for _ in range(10)
    ]
    with calling(bridge, "app", device, reply_topic="shop/device/reply") as answers:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        device.publish("shop/device/reply", b"done", 1)
    assert (statuses, answers[0].status) == ([200] * len(threads), 200)


def test_too_many_requests_per_second(bridge: BridgeProcess) -> None:
    application = Application(bridge, "slow")
    answers: list[Answer] = []

    def refused() -> bool:
        answers.append(application.publish("shop/x"))
        return answers[-1].status == 429

    until(refused)
    assert {answer.status for answer in answers[:-1]} == {200}
    assert "slow sends more than 1 requests per second (publish_rate)" in answers[-1].text
    assert int(answers[-1].headers["Retry-After"]) >= 1
    assert Scrape(bridge).total("mqbridge_application_requests_total", application="slow", outcome="limit") >= 1


def test_waiting_calls_do_not_block_other_requests(bridge: BridgeProcess, device: RawClient) -> None:
    """Waiting calls do not count as connections that wait for a request."""
    with calling(bridge, "app", device) as answers:
        assert Console(bridge).get("/healthz").status == 200
        Administrator(bridge).does("client", "disconnect", *_clients_of(bridge, "app"))
    assert answers[0].status == 503


# Reload and stop -----------------------------------------------------------------------------------------------------


def test_a_reload_changes_and_removes_applications(tmp_path: Any) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(ADMIN_TOKENS + tokens_of(*APPLICATIONS))
    tokens.chmod(0o600)
    config = CONFIG.format(tmp_path, open_metrics="false")
    removed = "    removed: {mq_user: removed}\n"
    with at_work(BridgeProcess(tmp_path / "data", config=config + removed)) as bridge:
        assert bridge.config is not None
        assert Console(bridge).request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}app"}).status in (
            401,
            403,
        )
        assert Application(bridge, "removed").publish("x").status == 200
        with RawClient.connected(bridge.port, "device") as device:
            device.subscribe(("shop/device", 1))
            with calling(bridge, "removed", device) as answers:
                bridge.config.write_text(config.replace("max_payload: 1 KiB", "max_payload: 10"))
                assert "applications and displays changed" in Administrator(bridge).does("reload")
        assert (answers[0].status, "its configuration has changed" in answers[0].text) == (503, True)
        assert Application(bridge, "removed").publish("x").status == 403
        assert Application(bridge, "app").publish("shop/x", b"x" * 11).status == 413


def test_a_stop_ends_calls(tmp_path: Any) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(tokens_of("app"))
    tokens.chmod(0o600)
    with at_work(BridgeProcess(tmp_path / "data", config=CONFIG.format(tmp_path, open_metrics="true"))) as bridge:
        with RawClient.connected(bridge.port, "device") as device:
            device.subscribe(("shop/device", 1))
            with calling(bridge, "app", device) as answers:
                assert bridge.stop() == 0
        assert (answers[0].status, "the bridge stops" in answers[0].text) == (503, True)
