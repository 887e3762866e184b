"""Access to the console: logins, tokens, rights and limits."""

from __future__ import annotations

import json
import re
import socket
import stat

import pytest

from bridge.console.app import ENDPOINTS, HEADERS
from bridge.security.tokens import Right
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.console import Console
from tests.helpers.patience import PATIENCE

PAGES = (
    "/", "/clients", "/topics", "/topics/show?filter=a", "/topics/live?filter=a", "/queues", "/queues/show?name=ORDERS",
    "/mappings", "/mappings/try?name=orders", "/links", "/dead-letters", "/log", "/pipelines", "/archive", "/channels",
    "/subscriptions", "/audit", "/configuration",
)  # fmt: skip
CHANGES = {
    "/channels/stop": {"name": "NONE", "confirm": "1"},
    "/channels/start": {"name": "NONE"},
    "/clients/disconnect": {"ids": "none", "confirm": "1"},
    "/clients/purge": {"ids": "none", "confirm": "1"},
    "/topics/publish": {"topic": "a", "payload": "x"},
    "/mappings/pause": {"name": "none", "confirm": "1"},
    "/queues/put": {"name": "NONE", "payload": "x"},
    "/queues/move": {"name": "NONE", "to": "NOWHERE", "confirm": "1"},
    "/queues/clear": {"name": "NONE", "confirm": "1"},
    "/mappings/resume": {"name": "none"},
    "/links/test": {"name": "none"},
    "/dead-letters/retry": {"all": "1"},
    "/dead-letters/delete": {"all": "1", "confirm": "1"},
    "/log/level": {"level": "info"},
}


def audited(bridge: BridgeProcess) -> list[dict[str, object]]:
    file = bridge.data_directory.parent / "audit.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


# Without a login -----------------------------------------------------------------------------------------------------


def test_every_page_redirects_to_the_login(bridge: BridgeProcess) -> None:
    console = Console(bridge)
    for path in PAGES:
        page = console.get(path)
        assert page.status == 303, path
        assert page.headers["Location"].startswith("/login")
        assert page.bytes == b""


def test_every_change_requires_a_login(bridge: BridgeProcess) -> None:
    console = Console(bridge)
    for path, form in CHANGES.items():
        page = console.post(path, **form)
        assert (page.status, page.headers["Location"]) == (303, "/login"), path


def test_live_events_require_a_login(bridge: BridgeProcess) -> None:
    assert Console(bridge).get("/topics/events", filter="a").status == 303


@pytest.mark.parametrize(
    "path", ["/nosuch", "/clients/show/../../etc/passwd", "/static/../console.py", "/static/nosuch"]
)
def test_unknown_paths_are_not_found(bridge: BridgeProcess, path: str) -> None:
    page = Console(bridge).get(path)
    assert page.status == 404
    assert "Traceback" not in page.text


@pytest.mark.parametrize("path", ["/login", "/healthz", "/static/console.js", "/nosuch", "/"])
def test_each_response_has_the_security_headers(bridge: BridgeProcess, path: str) -> None:
    page = Console(bridge).get(path)
    for name, value in HEADERS.items():
        assert page.headers[name] == value
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert page.headers["Cache-Control"] == ("no-cache" if "static" in path else "no-store")
    assert page.headers["Server"] is None


def test_no_page_has_inline_scripts(console: Console) -> None:
    """The Content-Security-Policy forbids scripts, styles and event handlers in the HTML of a page."""
    for path in PAGES:
        html = console.get(path).html
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=|javascript:", html), path


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421), ("evil.example:80", 421), ("127.0.0.1.evil.example", 421), ("localhost", 200),
        ("127.0.0.1:1", 200), ("[::1]:9", 200), ("10.0.0.1", 421),
    ],
)  # fmt: skip
def test_requests_for_other_host_names_are_rejected(bridge: BridgeProcess, host: str, status: int) -> None:
    """Otherwise a page of another site could read from a port on loopback, with DNS rebinding."""
    assert Console(bridge).request("GET", "/healthz", headers={"Host": host}).status == status


# Tokens --------------------------------------------------------------------------------------------------------------


def test_the_token_is_created_and_never_printed(bridge: BridgeProcess) -> None:
    file = bridge.data_directory / "admin.tokens"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert any(str(file) in line for line in bridge.announced)
    token = Console(bridge).token
    assert len(token) >= 40
    assert token not in "".join(bridge.announced) + bridge.log


def test_a_program_reads_and_changes_with_its_token(bridge: BridgeProcess) -> None:
    console = Console(bridge)
    bearer = {"Authorization": f"Bearer {console.token}"}
    assert console.request("GET", "/clients", headers=bearer).status == 200
    answer = console.post("/topics/publish", headers=bearer, topic="by/program", payload="x")
    assert (answer.status, answer.text) == (200, "published 1 byte to by/program ")
    question = console.post("/mappings/pause", headers=bearer, name="nosuch")
    assert (question.status, "confirm=1" in question.text) == (409, True)
    refused = console.post("/mappings/pause", headers=bearer, name="nosuch", confirm="1")
    assert refused.status == 404
    assert "nosuch" in refused.text
    assert not console.cookies


def test_a_wrong_token_is_rejected(bridge: BridgeProcess) -> None:
    console = Console(bridge)
    wrong = "x" * 43
    page = console.request("GET", "/", headers={"Authorization": f"Bearer {wrong}"})
    assert (page.status, page.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert console.post("/login", token=wrong).status == 403
    refused = [entry for entry in audited(bridge) if entry["event"] == "console login refused"]
    assert len(refused) >= 2
    assert wrong not in json.dumps(refused) + bridge.log


def test_a_wrong_token_is_rejected_despite_a_valid_cookie(console: Console) -> None:
    cookie = "; ".join(f"{name}={value}" for name, value in console.cookies.items())
    headers = {"Authorization": "Bearer no", "Cookie": cookie}
    assert console.request("GET", "/", headers=headers).status == 401


# Logged in -----------------------------------------------------------------------------------------------------------


def test_each_login_has_a_separate_protected_cookie(bridge: BridgeProcess) -> None:
    console = Console(bridge)
    first, second = (console.post("/login", token=console.token).headers["Set-Cookie"] for _ in range(2))
    assert {word.strip().lower() for word in first.split(";")[1:]} == {"httponly", "path=/", "samesite=strict"}
    assert first != second


def test_behind_tls_the_cookie_is_secure(bridge: BridgeProcess) -> None:
    console = Console(bridge)
    origin = {"Origin": f"https://{console.place}"}
    cookie = console.post("/login", headers=origin, token=console.token).headers["Set-Cookie"]
    assert cookie.startswith("__Host-mqbridge=")
    assert "Secure" in cookie


def test_logging_out_ends_the_login(console: Console) -> None:
    cookies = dict(console.cookies)
    assert console.post("/logout", csrf_token=console.csrf_token).status == 303
    assert not console.cookies
    console.cookies = cookies
    assert console.get("/").status == 303


def test_the_login_does_not_redirect_to_other_sites(bridge: BridgeProcess) -> None:
    for target in (
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "\t//evil.example",
    ):
        console = Console(bridge)
        assert console.post("/login", token=console.token, next=target).headers["Location"] == "/"
    assert Console(bridge).log_in().get("/login", next="/clients").headers["Location"] == "/clients"


def test_a_change_requires_the_token_of_the_login(console: Console) -> None:
    other = Console(console.bridge).log_in()
    for path, form in CHANGES.items():
        for token in ({}, {"csrf_token": ""}, {"csrf_token": "x"}, {"csrf_token": other.csrf_token}):
            assert console.post(path, **token, **form).status == 403, (path, token)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)  # fmt: skip
def test_a_form_of_another_site_is_rejected(console: Console, headers: dict[str, str]) -> None:
    page = console.post("/topics/publish", headers=headers, csrf_token=console.csrf_token, topic="a", payload="x")
    assert page.status == 403
    assert console.post("/login", headers=headers, token=console.token).status == 403


def test_a_get_request_changes_nothing(console: Console) -> None:
    for path, form in CHANGES.items():
        assert console.get(path, **form).status in (404, 405), path


def test_a_reader_cannot_make_changes(bridge: BridgeProcess) -> None:
    token = "r" * 32
    with (bridge.data_directory / "admin.tokens").open("a") as file:
        file.write(f"\nreader:read:{token}\n")
    console = Console(bridge).log_in(token)
    for path in PAGES:
        page = console.get(path)
        assert page.status == 200, path
        forms = set(re.findall(r'<form method="post" action="([^"?]+)', page.html)) - {"/logout", "/mappings/try"}
        assert not forms, path
    for path, fields in CHANGES.items():
        page = console.post(path, csrf_token=console.csrf_token, **fields)
        assert page.status == 403
        assert "and this needs" in page.text
        assert console.post(path, headers={"Authorization": f"Bearer {token}"}, **fields).status == 403


def test_the_removal_of_a_token_ends_its_login(bridge: BridgeProcess) -> None:
    file = bridge.data_directory / "admin.tokens"
    before = file.read_text()
    file.write_text(f"{before}\nguest:change:{'g' * 32}\n")
    console = Console(bridge).log_in("g" * 32)
    assert console.get("/clients").status == 200
    file.write_text(before)
    assert console.get("/clients").status == 303


def test_changes_are_audited(console: Console) -> None:
    console.change("/topics/publish", topic="audited", payload="secret")
    console.change("/mappings/pause", name="nosuch", confirm="1")
    entries = audited(console.bridge)
    published = [entry for entry in entries if entry.get("command") == "publish" and entry.get("topic") == "audited"]
    assert published[-1]["user"] == "token admin"
    assert published[-1]["ok"] is True
    assert "secret" not in json.dumps(published)
    paused = [entry for entry in entries if entry.get("command") == "mapping pause" and entry.get("name") == "nosuch"]
    assert (paused[-1]["user"], paused[-1]["ok"]) == ("token admin", False)
    assert any(entry["event"] == "console login" and entry["user"] == "token admin" for entry in entries)


# Limits --------------------------------------------------------------------------------------------------------------


def test_forms_are_limited(console: Console) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert console.request("POST", "/topics/publish", b"topic=" + b"a" * 5_000_000, form).status == 413
    assert console.request("POST", "/topics/publish", "&".join(f"f{i}=1" for i in range(700)), form).status == 400
    assert console.request("POST", "/topics/publish", b"topic=%ff%fe", form).status == 400
    assert console.request("POST", "/topics/publish", "{}", {"Content-Type": "application/json"}).status == 415


def test_forms_before_the_login_are_limited_to_few_bytes(bridge: BridgeProcess) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    stranger = Console(bridge)
    assert stranger.request("POST", "/login", b"token=" + b"a" * 16_000, form).status == 403
    assert stranger.request("POST", "/login", b"token=" + b"a" * 17_000, form).status == 413


def test_a_malformed_form_is_rejected_with_a_numbered_line(bridge: BridgeProcess) -> None:
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    assert Console(bridge).request("POST", "/login", b"--x no line end", form).status == 400
    assert "MQB9210I console: malformed form for /login" in bridge.log
    assert "multipart" not in re.sub("MQB9210I.*", "", bridge.log)


def test_a_connection_without_a_complete_request_is_closed(bridge: BridgeProcess) -> None:
    host, _, port = Console(bridge).place.rpartition(":")
    for sent in (b"", b"GET / HTTP/1.1\r\nHost:"):
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(sent)
            assert connection.recv(1_000) == b""


def test_invalid_queries_are_rejected(console: Console) -> None:
    for path in (
        "/clients/show", "/clients?connected=maybe", f"/clients?search={'a*' * 200}", "/topics/show?filter=a%23",
        "/topics/events?filter=", "/queues?page=-1", "/queues/show?name=ORDERS&page=x", "/clients?sort=nothing", "/?range=1y",
        "/queues/message?name=ORDERS&id=xyz",
        "/queues/message?name=ORDERS&id=00", "/dead-letters?reason=NONESUCH", "/dead-letters?topic=a%23", "/log?level=loud",
        "/archive?span=5y", "/archive?start=yesterday", "/subscriptions?filter=a%23",
    ):  # fmt: skip
        page = console.get(path)
        # 400: the query does not fit its schema. 422: the bridge does not accept a value.
        assert page.status in (400, 422), path
        assert "Traceback" not in page.text
    assert console.get("/clients/show", id="nosuch").status == 404
    assert console.get("/mappings/try", name="nosuch").status == 404
    assert "Queue NO.SUCH.QUEUE not found" in console.get("/queues/show", name="NO.SUCH.QUEUE").text


# Parts ---------------------------------------------------------------------------------------------------------------


# The right to operate ------------------------------------------------------------------------------------------------

OPERATOR_TOKEN = "the-token-of-an-operator"
#: The changes that operators may make, with fields that reach the bridge.
FOR_OPERATORS = {
    "/clients/disconnect": {"ids": "none", "confirm": "1"},
    "/mappings/pause": {"name": "none", "confirm": "1"},
    "/mappings/resume": {"name": "none"},
    "/channels/start": {"name": "NONE"},
    "/links/test": {"name": "none"},
    "/links/connect": {"name": "none"},
    "/dead-letters/retry": {"ids": "none"},
}


@pytest.fixture
def operator(bridge: BridgeProcess) -> Console:
    """A user who has logged in with a token with the right `operate`."""
    file = bridge.data_directory / "admin.tokens"
    line = f"helpdesk:operate:{OPERATOR_TOKEN}\n"
    if line not in file.read_text():
        file.write_text(file.read_text() + line)
    return Console(bridge).log_in(OPERATOR_TOKEN)


def test_the_table_contains_all_changes_for_operators() -> None:
    assert {endpoint.path for endpoint in ENDPOINTS if endpoint.right is Right.OPERATE} == FOR_OPERATORS.keys()


def test_an_operator_cannot_make_other_changes(operator: Console) -> None:
    for endpoint in ENDPOINTS:
        if not endpoint.changes:
            continue
        page = operator.change(endpoint.path, **FOR_OPERATORS.get(endpoint.path, {"confirm": "1"}))
        assert (page.status == 403) == (endpoint.path not in FOR_OPERATORS), (endpoint.path, page.text)
    page = operator.change("/dead-letters/retry", ids="none", to="ORDERS")
    assert (page.status, "needs `change`" in page.text) == (403, True)


def test_an_operator_sees_only_permitted_buttons(operator: Console) -> None:
    assert 'formaction="/clients/disconnect"' in operator.get("/clients").html
    assert 'formaction="/clients/purge"' not in operator.get("/clients").html
    assert 'action="/mappings/pause"' in operator.get("/mappings").html
    channels = operator.get("/channels").html
    assert 'action="/channels/stop"' not in channels
    assert "/topics/publish" not in operator.get("/topics").html
