"""Tasks of docs/how-to/console.md in headless Chromium that test_browser.py does not perform."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.browser import Browser
from tests.helpers.console import Console
from tests.helpers.known_secrets import register
from tests.helpers.raw_client import RawClient
from tests.helpers.scrape import admin_url
from tests.process.console.test_browser import log_in, look

pytestmark = pytest.mark.slow  # a browser starts

CONFIG = """
queue_manager: {{data_directory: {0}/data, scripts: [{0}/objects.mqsc]}}
channels:
  - {{name: PLAIN.MQTT, port: 0}}
  - {{name: DEVICES, port: 0}}
admin:
  port: 0
  authentication: [{{method: password, file: {0}/people}}]
  operators: [helpdesk]
links:
  plant: {{host: 127.0.0.1, port: 1}}
mappings:
  orders: {{from: {{mqtt: "orders/#"}}, to: {{queue: ORDERS}}}}
"""
#: The password of the operator.
PASSWORD = "helpdesk's password"
register(PASSWORD)
SCRIPT = "DEFINE QLOCAL(ORDERS)\nDEFINE QLOCAL(SMALL) MAXDEPTH(1)\nDEFINE SUB(SMALL) TOPICSTR('full/#') DEST(SMALL)\n"
#: Buttons of changes that operators may not make, by page.
FORBIDDEN = {
    "/clients": "#purge",
    "/channels": 'text="Stop"',
    "/topics": '[action="/topics/publish"]',
    "/topics/show?filter=tight/1": '[action="/topics/publish"], [action="/topics/clear"]',
    "/queues/show?name=TIGHT": '[action^="/queues/"], [formaction^="/queues/"]',
    "/objects": 'text="New"',
    "/objects/show?kind=QLOCAL&name=TIGHT": "button.main, #empty, #remove",
    "/dead-letters": "#delete, #to",
    "/users": '[action="/users/password"], [action="/users/delete"]',
    "/log": '[action="/log/level"]',
    "/configuration/check": "#check",
}


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("tasks")
    (directory / "objects.mqsc").write_text(SCRIPT)
    words = ["passwd", str(directory / "people"), "helpdesk", "--stdin", "--scram-iterations", "4096"]
    invocation = CliRunner().invoke(program, words, input=f"{PASSWORD}\n")
    assert invocation.exit_code == 0, invocation.output
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory))) as process:
        yield process


@pytest.fixture(scope="module")
def browser(bridge: BridgeProcess) -> Iterator[Browser]:
    with Browser(admin_url(bridge.announced)) as started:
        yield started


def test_limits_and_certificates_are_shown(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {})
    browser.do("goto", "/health")
    browser.do("sees", 'section[aria-label="Resources"]', "Open files")
    browser.do("sees", 'section[aria-label="Certificates"]', "The bridge uses no certificates.")
    look(browser)


def test_the_rates_of_a_queue_are_shown(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {})
    browser.do("goto", "/health?range=6h")
    browser.do("sees", 'section[aria-label="Rates"]', "of the last 6 hours")
    browser.do("goto", "/health")
    browser.do("fill", "#search", "ORDERS")
    browser.do("click", 'main >> text="Show"')
    # The bridge takes a sample every 15 seconds, and the page follows.
    browser.do("sees", 'section[aria-label="Rates"]', "ORDERS")
    look(browser)


def test_problems_are_solved_with_their_buttons(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {})
    console = Console(bridge).log_in()
    console.change("/mappings/pause", name="orders", confirm="1")
    browser.do("goto", "/health")
    browser.do("sees", 'section[aria-label="Problems"]', "orders")
    browser.do("click", 'section[aria-label="Problems"] >> text="Resume"')
    browser.do("sees", ".notice.good", "orders")
    browser.do("goto", "/channels")
    browser.do("click", 'tr:has-text("DEVICES") >> button')
    browser.do("click", "#confirm")
    browser.do("sees", ".notice.good", "channel DEVICES stopped")
    browser.do("click", 'tr:has-text("DEVICES") >> button')
    browser.do("sees", ".notice.good", "channel DEVICES listens")
    look(browser)


def test_a_queue_is_altered_and_cleared(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {})
    bridge.mqsc("DEFINE QLOCAL(ALTERED)\n")
    bridge.mq("put", "ALTERED", "x")
    browser.do("goto", "/objects/show?kind=QLOCAL&name=ALTERED")
    browser.do("fill", "#MAXDEPTH", "7")
    browser.do("click", 'text="Preview"')
    browser.do("sees", "pre", "MAXDEPTH(7)")
    browser.do("click", "#confirm")
    browser.do("sees", ".notice.good", "Queue ALTERED changed")
    browser.do("goto", "/objects/show?kind=QLOCAL&name=ALTERED")
    browser.do("click", "#empty")
    browser.do("click", "#confirm")
    browser.do("sees", ".notice.good", "ALTERED")
    assert bridge.messages("ALTERED") == []


def test_definitions_are_copied(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {})
    browser.do("goto", "/objects")
    browser.do("sees", 'a[href="/objects/dump"]', "Download all definitions")
    definitions = Console(bridge).log_in().get("/objects/dump").html
    assert "DEFINE QLOCAL('ORDERS')" in definitions or "DEFINE QLOCAL(ORDERS)" in definitions
    browser.do("click", 'text="MQSC commands"')
    browser.do("fill", "#commands", "DEFINE QLOCAL(COPIED)")
    browser.do("click", "button.main")
    browser.do("click", "#confirm")
    browser.do("sees", ".notice.good", "Queue COPIED created")


def test_dead_letters_are_delivered(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {})
    with RawClient.connected(bridge.port, "filler") as client:
        for _ in range(2):
            client.publish("full/1", b"x", 1)
    bridge.mqsc("ALTER QLOCAL(SMALL) MAXDEPTH(10)\n")
    browser.do("goto", "/dead-letters")
    browser.do("check", "#all")
    browser.do("click", "#retry")
    browser.do("sees", ".notice.good", "retried 1 message: 1 delivered")
    look(browser)


def test_changed_settings_are_shown(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {})
    browser.do("goto", "/configuration")
    browser.do("sees", "tbody", "mappings.orders.to.queue")
    browser.do("sees", "tbody", "data.yaml:13")
    look(browser)


def test_an_operator_performs_the_permitted_tasks(bridge: BridgeProcess, browser: Browser) -> None:
    """A user with the right `operate` does what docs/how-to/console.md lists, and sees no other buttons."""
    admin = Console(bridge).log_in()
    admin.change("/channels/stop", name="DEVICES", confirm="1")
    bridge.mqsc("DEFINE QLOCAL(TIGHT) MAXDEPTH(1)\nDEFINE SUB(TIGHT) TOPICSTR('tight/#') DEST(TIGHT)\n")
    browser.do("open", {})
    browser.do("goto", "/")
    browser.do("fill", "#user", "helpdesk")
    browser.do("fill", "#password", PASSWORD)
    browser.do("click", "form:has(#user) button")
    browser.do("sees", "h1", "Overview")

    with RawClient.connected(bridge.port, "stuck") as client:
        for _ in range(2):
            client.publish("tight/1", b"x", 1)
        browser.do("goto", "/clients?search=stuck")
        browser.do("check", 'tr:has-text("stuck") input')
        browser.do("click", "#disconnect")
        browser.do("click", "#confirm")
        browser.do("sees", ".notice.good", "stuck")
        client.expect_closed()

    browser.do("goto", "/mappings")
    browser.do("click", 'tr:has-text("orders") >> button')
    browser.do("click", "#confirm")
    browser.do("sees", ".notice.good", "mapping orders paused")
    browser.do("click", 'tr:has-text("orders") >> button')
    browser.do("sees", ".notice.good", "mapping orders resumed")

    browser.do("goto", "/channels")
    browser.do("click", 'tr:has-text("DEVICES") >> button')
    browser.do("sees", ".notice.good", "channel DEVICES listens")
    look(browser)
    browser.do("goto", "/links")
    browser.do("click", 'text="Test the connection"')
    browser.do("sees", ".notice", "plant")

    bridge.mqsc("ALTER QLOCAL(TIGHT) MAXDEPTH(10)\n")
    browser.do("goto", "/dead-letters")
    browser.do("check", "#all")
    browser.do("click", "#retry")
    browser.do("sees", ".notice.good", "retried 1 message: 1 delivered")

    for path, forbidden in FORBIDDEN.items():
        assert browser.do("goto", path) == 200, path
        assert browser.do("count", forbidden) == 0, path
        look(browser)
    browser.do("goto", "/objects/commands")
    browser.do("fill", "textarea", "DEFINE QLOCAL(FORBIDDEN)")
    browser.do("click", "button.main")
    browser.do("sees", ".notice", "you need the right change")
    assert browser.do("count", "#confirm") == 0
