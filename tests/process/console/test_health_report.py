"""The health of a bridge: as a page of the console, as JSON, and as `mqbridge health`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.certificate_authority import make
from tests.helpers.console import Console
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient

CONFIG = """
queue_manager: {{type: embedded, scripts: [{directory}/objects.mqsc], listener: {{port: 0}}}}
channels:
  - {{name: PLAIN, port: 0}}
  - {{name: SECURE, port: 0, tls: {{certificate_file: {directory}/server.pem, key_file: {directory}/server.key}}}}
admin: {{port: 0}}
links:
  away: {{host: 127.0.0.1, port: 1}}
mappings:
  to-orders: {{from: {{mqtt: "orders/#"}}, to: {{queue: ORDERS}}}}
  from-away: {{from: {{mqtt: "a/#", link: away}}, to: {{queue: ORDERS}}}}
"""


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    """A bridge with a link whose broker is unreachable, and a certificate that expires in two days."""
    directory = tmp_path_factory.mktemp("health")
    make(directory)
    (directory / "objects.mqsc").write_text("DEFINE QLOCAL(ORDERS)\n")
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory=directory))) as process:
        yield process


@pytest.fixture
def console(bridge: BridgeProcess) -> Console:
    return Console(bridge).log_in()


def problem(console: Console, cause: str, subject: str) -> dict[str, Any] | None:
    """Return the problem with this cause and subject, or None."""
    for group in console.json("/health")["problems"]:
        for problem_shown in group["problems"]:
            if (group["cause"], problem_shown["subject"]) == (cause, subject):
                return dict(problem_shown)
    return None


def test_resources_have_their_limits(console: Console) -> None:
    with RawClient.connected(console.bridge.port, "pump-1") as client:
        client.subscribe(("a/#", 1), ("b/#", 1))
        gauges = {gauge["name"]: gauge for gauge in console.json("/health")["gauges"]}
        page = console.get("/health")
    assert (gauges["sessions"]["used"], gauges["sessions"]["limit"]) == (1, 100_000)
    assert (gauges["subscriptions"]["used"], gauges["subscriptions"]["limit"]) == (2, 1_000_000)
    for name in ("open files", "memory", "disk"):
        assert 0 < gauges[name]["used"] < gauges[name]["limit"], name
    for name in ("waiting messages", "dead letters", "retained publications", "transmission queue"):
        assert 0 <= gauges[name]["used"] < gauges[name]["limit"], name
    assert "1 of 100,000 (0 %)" in page.text
    assert page.html.count("<meter") == len(gauges)


def test_certificates_have_their_dates(console: Console) -> None:
    (certificate,) = console.json("/health")["certificates"]
    assert certificate["owner"] == "channel SECURE"
    assert certificate["file"].endswith("server.pem")
    assert 'class="number warn"' in console.get("/health").html


def test_applications_are_connections(console: Console) -> None:
    assert "bridge itself needs no connection" in console.get("/health").text
    from bridge.mq.remote import RemoteConnection

    application = RemoteConnection(console.bridge.data_directory, application="order entry")
    try:
        (connection,) = console.json("/health")["connections"]
        assert (connection["name"], connection["connected"]) == ("order entry", True)
    finally:
        application.disconnect()


def test_queues_mappings_and_links_have_rates(console: Console) -> None:
    kinds = {("queue", "ORDERS"), ("mapping", "to-orders"), ("link", "away")}

    def measured() -> bool:
        return kinds <= {(series["kind"], series["name"]) for series in console.json("/health")["rates"]["series"]}

    until(measured)
    (orders,) = [
        series for series in console.json("/health", search="orders")["rates"]["series"] if series["kind"] == "queue"
    ]
    assert orders["depth"][-1] == 0
    assert console.get("/health", range="24h").status == 200
    assert console.get("/health", range="2h").status == 400


def test_a_paused_mapping_is_resumed(console: Console) -> None:
    console.change("/mappings/pause", name="to-orders", confirm="1")
    paused = problem(console, "mapping", "to-orders")
    assert paused is not None
    assert paused["remedies"] == [{"command": "mapping resume", "name": "to-orders"}]
    assert 'action="/mappings/resume"' in console.get("/health").html
    assert console.change("/mappings/resume", name="to-orders", back="/health").status == 200
    until(lambda: problem(console, "mapping", "to-orders") is None)


def test_a_stopped_channel_is_started(console: Console) -> None:
    console.change("/channels/stop", name="SECURE", confirm="1")
    stopped = problem(console, "channel", "SECURE")
    assert stopped is not None
    assert stopped["remedies"] == [{"command": "channel start", "name": "SECURE"}]
    assert console.change("/channels/start", name="SECURE", back="/health").status == 200
    assert problem(console, "channel", "SECURE") is None


def test_a_link_is_tested_and_connected(console: Console) -> None:
    until(lambda: problem(console, "link", "away") is not None)
    away = problem(console, "link", "away")
    assert away is not None
    assert [remedy["command"] for remedy in away["remedies"]] == ["link test", "link connect"]
    assert "FAILED" in console.change("/links/test", name="away", back="/health").text
    assert "1 of 1 mapping connect now" in console.change("/links/connect", name="away", back="/health").text


def test_a_failed_reload_is_repeated(console: Console) -> None:
    config = console.bridge.config
    assert config is not None
    text = config.read_text()
    try:
        config.write_text(text + "nonsense: 1\n")
        assert "nonsense" in console.change("/reload", confirm="1", back="/health").text
        failed = problem(console, "reload", "")
        assert failed is not None
        assert failed["remedies"] == [{"command": "reload", "name": ""}]
    finally:
        config.write_text(text)
    assert console.post("/reload", csrf_token=console.csrf_token).status == 200, "the page that asks for confirmation"
    console.change("/reload", confirm="1", back="/health")
    assert problem(console, "reload", "") is None


def test_a_reader_sees_no_buttons(console: Console) -> None:
    tokens = console.bridge.data_directory / "admin.tokens"
    with tokens.open("a") as file:
        file.write(f"reader:read:{'r' * 32}\n")
    reader = Console(console.bridge)
    assert reader.post("/login", token="r" * 32).status == 303
    page = reader.get("/health")
    assert page.status == 200
    assert "/links/test" not in page.html


def test_the_command_prints_the_same_report(console: Console) -> None:
    administrator = Administrator(console.bridge)
    until(lambda: problem(console, "link", "away") is not None)
    result = administrator.run("health", "-o", "json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    page = console.json("/health")
    assert [listed["cause"] for listed in report["problems"]] == [listed["cause"] for listed in page["problems"]]
    assert [gauge["name"] for gauge in report["gauges"]] == [gauge["name"] for gauge in page["gauges"]]
    assert report["certificates"] == page["certificates"]
    text = administrator.run("health", "--period", "1h", "--name", "orders").stdout
    for words in ("try `mqbridge link test away", "sessions", "limits.sessions", "channel SECURE", "Rates of queues"):
        assert words in text
    assert administrator.run("health", "--period", "1s").exit_code == 2
