"""The console in headless Chromium: navigation to each page, changes, and the accessibility checks of axe-core."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from bridge.console.navigation import GROUPS, Page, PageGroup
from bridge.mqtt.packets import Publish
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.browser import Browser
from tests.helpers.console import Console
from tests.helpers.raw_client import RawClient
from tests.helpers.scrape import admin_url
from tests.process.console.conftest import CONFIG, SCRIPT

pytestmark = pytest.mark.slow

#: The headings of pages that differ from their names in the navigation.
HEADINGS = {"Audit": "Audit log"}
WINDOWS = {
    f"{scheme}-{width}": {"colorScheme": scheme, "viewport": {"width": width, "height": height}, **more}
    for width, height, more in ((1440, 900, {}), (1024, 768, {}), (390, 844, {"hasTouch": True, "isMobile": True}))
    for scheme in ("light", "dark")
}
#: Pages for which no link is clicked in `test_each_page_is_opened_with_the_navigation`.
FURTHER_PAGES = (
    "/users", "/users/access?channel=PLAIN.MQTT&topic=plant/1&user=pump",
    "/topics/show?filter=plant/%23", "/topics/route?topic=orders/1",
    "/objects", "/objects?kind=TOPIC", "/objects/show?kind=QLOCAL&name=ORDERS", "/objects/commands",
    "/clients/history?id=pump-1", "/clients/trace?id=pump-1", "/clients?search=pump",
)  # fmt: skip


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    """A bridge with data on each page: clients, retained publications, messages, a dead letter, an archive."""
    directory = tmp_path_factory.mktemp("browser")
    script = directory / "objects.mqsc"
    script.write_text(SCRIPT)
    config = (
        CONFIG.format(script=script, audit=directory / "audit.jsonl") + f"archive: {{directory: {directory}/archive}}\n"
    )
    channel = "  - {name: PLAIN.MQTT, port: 0}\n"
    authentication = f"[{{method: password, file: {directory}/devices}}]"
    config = config.replace(channel, f"{channel}  - {{name: DEVICES, port: 0, authentication: {authentication}}}\n")
    process = BridgeProcess(directory / "data", config=config).start()
    with (
        RawClient.connected(process.port, "<script>alert('client')</script>", clean=False) as client,
        RawClient.connected(process.port, "pump-1", clean=False) as pump,
    ):
        pump.subscribe(("plant/#", 1))
        client.subscribe(("<img src=x onerror=alert(1)>/#", 1))
        client.publish("plant/<script>alert('topic')</script>", b"<script>alert('payload')</script>", 1, retain=True)
        pump.wait_for(Publish)
        client.publish("orders/1", b'{"order": 1}', 1)
        process.mq("put", "news", "for nobody", "--to", "nobody")
        yield process
    assert process.stop() == 0, process.log
    process.discard()


@pytest.fixture(scope="module")
def browser(bridge: BridgeProcess) -> Iterator[Browser]:
    with Browser(admin_url(bridge.announced)) as started:
        yield started


def log_in(browser: Browser, bridge: BridgeProcess, window: dict[str, object]) -> None:
    browser.do("open", window)
    log_in_here(browser, bridge)


def log_in_here(browser: Browser, bridge: BridgeProcess) -> None:
    browser.do("goto", "/")
    browser.do("sees", "h1", "Log in")
    browser.do("fill", "#token", Console(bridge).token)
    browser.do("click", "button.main")
    browser.do("sees", "h1", "Overview")


def look(browser: Browser) -> None:
    """Check that axe-core and the browser report no errors, and that the page and its tables fit into the window."""
    assert browser.do("axe") == []
    assert browser.do("complaints") == []
    whole, window = browser.do("width")
    assert whole <= window
    if window >= 1_440:
        assert browser.do("cut") == []


def go(browser: Browser, group: PageGroup, page: Page, *, menu: bool) -> None:
    """Go to a page with the navigation: the tabs of its group, or the menu of a phone, which moves the content down."""
    if menu:
        before = browser.do("top", "main")
        browser.do("click", ".menu summary")
        assert browser.do("top", "main") > before
        browser.do("click", f'nav[aria-label="Menu"] >> text="{page.title}" >> nth=-1')
    else:
        browser.do("click", f'nav[aria-label="Groups"] >> text="{group.title}"')
        browser.do("click", f'nav[aria-label="{group.title}"] >> text="{page.title}"')
    browser.do("sees", "h1", HEADINGS.get(page.title, page.title))
    assert browser.do("path") == page.path


@pytest.mark.parametrize("window", WINDOWS)
def test_each_page_is_opened_with_the_navigation(bridge: BridgeProcess, browser: Browser, window: str) -> None:
    log_in(browser, bridge, WINDOWS[window])
    look(browser)
    for group in GROUPS:
        for page in group.pages:
            go(browser, group, page, menu="390" in window)
            look(browser)
    # One page that each list links to.
    for path, link, text in (
        ("/clients", 'tbody a >> text="pump-1"', "plant/#"),
        ("/clients/show?id=pump-1", 'text="Purge"', "waiting messages are deleted for good"),
        ("/clients?sort=waiting&descending=1", 'main >> text="Search"', "clients,"),
        ("/", 'text="24 hours"', "Messages waiting for clients"),
        ("/health", 'main >> text="Show"', "Rates of the last 10 minutes"),
        ("/queues/show?name=SYSTEM.DEAD.LETTER.QUEUE", 'text="Attributes"', "MAXDEPTH"),
        ("/topics/show?filter=plant/%23", "a.button", "Watching"),
        ("/queues/show?name=ORDERS", "tbody th a", "MQMD"),
        ("/mappings", 'tbody a >> text="orders"', "Publication"),
        ("/dead-letters", "tbody th a", "No client with that identifier"),
        ("/archive", 'text="last hour"', "Archive"),
    ):
        browser.do("goto", path)
        browser.do("click", link)
        browser.do("sees", "main", text)
        look(browser)
    for path in FURTHER_PAGES:
        assert browser.do("goto", path) == 200, path
        look(browser)
    browser.do("goto", "/nosuch")
    look(browser)


def test_names_of_clients_are_never_executed(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {})
    for path in ("/clients", "/topics", "/topics/show?filter=%23", "/log"):
        browser.do("goto", path)
        browser.do("sees", "main", "alert(")
        assert browser.do("count", "main script, main img") == 0
    assert browser.do("complaints") == []


def test_the_page_shows_changes_without_a_reload(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {})
    browser.do("goto", "/clients")
    browser.do("click", "#search")
    with RawClient.connected(bridge.port, "visitor"):
        browser.do("sees", "tbody", "visitor")
        assert browser.do("focused") == "search"
    browser.do("misses", "tbody", "visitor")
    assert browser.do("complaints") == []


def test_everything_can_be_searched_with_the_keyboard(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, WINDOWS["light-1024"])
    browser.do("goto", "/queues")
    browser.do("press", "/")
    assert browser.do("focused") == "find"
    browser.do("fill", "#find", "orders")
    browser.do("press", "Enter")
    browser.do("sees", "h1", "Search: orders")
    look(browser)
    browser.do("click", 'tr:has-text("mapping show") >> a')
    browser.do("sees", "h1", "orders")
    browser.do("goto", "/search?text=alert(")
    browser.do("sees", "tbody", "<script>alert('client')</script>")
    assert browser.do("count", "main script, main img") == 0
    look(browser)


def test_an_edited_copy_is_checked(bridge: BridgeProcess, browser: Browser) -> None:
    """The page shows the mistakes with their lines, and the text to correct them. Nothing is saved."""
    assert bridge.config is not None
    text = bridge.config.read_text()
    log_in(browser, bridge, WINDOWS["dark-390"])
    browser.do("goto", "/configuration")
    browser.do("click", 'text="check an edited copy"')
    browser.do("fill", "#text", text.replace("admin:", "limits: {waiting_bites: 1}\nadmin:"))
    browser.do("click", "#check")
    browser.do("sees", "#result", "limits.waiting_bites")
    look(browser)
    browser.do("fill", "#text", text.replace("admin:", "limits: {waiting_bytes: 1 MiB}\nadmin:"))
    browser.do("click", "#check")
    browser.do("sees", "#result", "The copy is valid.")
    browser.do("sees", "#result tbody", "1048576")
    look(browser)
    assert bridge.config.read_text() == text


def test_selected_clients_are_purged(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {})
    for name in ("chosen-1", "chosen-2", "spared-1"):
        RawClient.connected(bridge.port, name, clean=False).disconnect()
    browser.do("goto", "/clients?connected=no")
    for name in ("chosen-1", "chosen-2"):
        browser.do("check", f'tr:has-text("{name}") input[name="ids"]')
    with RawClient.connected(bridge.port, "late-1", clean=False) as client:
        client.disconnect()
        browser.do("sees", "tbody", "late-1")
    browser.do("click", "#purge")
    browser.do("sees", "main", "chosen-2")
    assert browser.do("count", 'main li:has-text("spared-1")') == 0
    browser.do("click", "#confirm")
    browser.do("sees", ".notice.good", "2 sessions ended")
    browser.do("sees", "tbody", "spared-1")
    browser.do("misses", "tbody", "chosen-1")


def test_a_client_is_traced(bridge: BridgeProcess, browser: Browser) -> None:
    """Payloads are shown on request only."""
    log_in(browser, bridge, {})
    browser.do("goto", "/clients/trace?id=traced")
    browser.do("sees", "#view-state", "Tracing traced")
    with RawClient.connected(bridge.port, "traced") as client:
        browser.do("sees", "#view", "connected via channel PLAIN.MQTT from 127.0.0.1:")
        client.subscribe(("to/traced", 1))
        client.publish("from/traced", b"<i>out</i>", 1)
        browser.do("sees", "#view", "published: from/traced")
        assert "<i>out</i>" not in browser.do("text", "#view")
        browser.do("click", 'text="Show payloads"')
        browser.do("sees", "#view-state", "Tracing traced")
        client.publish("from/traced", b"<i>out</i>", 1)
        bridge.mq("pub", "to/traced", "in")
        client.acknowledge(client.wait_for(Publish))
        browser.do("sees", "#view", "published: from/traced")
        browser.do("sees", "#view", "<i>out</i>")
        browser.do("sees", "#view", "delivered: to/traced")
        look(browser)
        client.disconnect()
        browser.do("sees", "#view", "disconnected by the client")
    browser.do("goto", "/clients?search=traced")
    browser.do("click", 'text="History of a client that has left"')
    browser.do("sees", "tbody", "subscribed to 'to/traced' with QoS 1")
    look(browser)


def test_the_columns_of_clients_can_be_chosen(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, WINDOWS["light-1440"])
    browser.do("goto", "/clients")
    assert browser.do("cut") == []
    browser.do("click", "main summary")
    browser.do("check", 'input[value="durable"]')
    browser.do("click", 'text="Apply"')
    browser.do("sees", "thead", "Session")
    browser.do("sees", "tbody", "durable")
    browser.do("goto", "/channels")
    browser.do("goto", "/clients")
    browser.do("sees", "thead", "Session")


def test_a_queue_is_created_and_deleted(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {})
    browser.do("goto", "/objects")
    browser.do("click", 'text="New"')
    browser.do("fill", "#name", "CLICKED")
    browser.do("fill", "#MAXDEPTH", "12")
    browser.do("click", 'text="Preview"')
    browser.do("sees", "pre", "DEFINE QLOCAL('CLICKED')")
    browser.do("sees", "tbody", "MAXDEPTH: 5000 → 12")
    look(browser)
    browser.do("click", "#confirm")
    browser.do("sees", ".notice.good", "Queue CLICKED created")
    browser.do("click", 'tbody a >> text="CLICKED"')
    browser.do("sees", "h1", "CLICKED")
    browser.do("click", "#remove")
    browser.do("click", "#confirm")
    browser.do("sees", ".notice.good", "Queue CLICKED deleted")
    browser.do("goto", "/objects/commands")
    browser.do("fill", "#commands", "DEFINE QLOCAL(X)\nDEFINE CHEESE(Y)")
    browser.do("click", "button.main")
    browser.do("sees", ".notice.bad", "1 of 2 commands have mistakes")
    look(browser)


def test_the_route_of_a_message_is_shown_and_a_retained_value_is_deleted(
    bridge: BridgeProcess, browser: Browser
) -> None:
    log_in(browser, bridge, {})
    with RawClient.connected(bridge.port, "publisher") as client:
        client.publish("orders/kept", b"value", 1, retain=True)
        browser.do("goto", "/topics/show?filter=orders/kept")
        browser.do("sees", "tbody", "publisher")
        look(browser)
        browser.do("click", 'text="Where would a message go?"')
        browser.do("click", "button.main")
        browser.do("sees", "#route", "takes it queue ORDERS")
        look(browser)
        browser.do("goto", "/topics/show?filter=orders/kept")
        browser.do("click", "button.danger")
        browser.do("click", "#confirm")
        browser.do("sees", ".notice.good", "deleted the retained publication of orders/kept")


def test_a_user_is_added_and_deleted(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {})
    browser.do("goto", "/users")
    browser.do("fill", "#user1", "clicked")
    browser.do("fill", "#password1", "a password of a device")
    look(browser)
    browser.do("click", 'text="Set password"')
    browser.do("sees", ".notice.good", "added user clicked")
    browser.do("sees", "tbody", "clicked")
    look(browser)
    browser.do("click", "tbody button.danger")
    browser.do("click", "#confirm")
    browser.do("sees", ".notice.good", "deleted user clicked")
    browser.do("click", 'text="May a user publish?"')
    browser.do("fill", "#user", "pump")
    browser.do("fill", "#topic", "plant/1")
    browser.do("click", "button.main")
    browser.do("sees", "#decision", "permits")
    look(browser)


def test_times_are_shown_in_one_zone(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {"timezoneId": "Asia/Tokyo"})
    browser.do("goto", "/audit")
    browser.do("sees", "#zone-name", "Times in UTC")
    before = browser.do("text", "tbody tr:last-child time")
    browser.do("click", "#zone")
    browser.do("sees", "#zone-name", "Times in Asia/Tokyo")
    after = browser.do("text", "tbody tr:last-child time")
    assert datetime.fromisoformat(after) - datetime.fromisoformat(before) == timedelta(hours=9)
    browser.do("goto", "/")
    browser.do("sees", "#zone-name", "Times in Asia/Tokyo")


def test_publications_are_sent_and_shown_live(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {})
    browser.do("goto", "/topics")
    browser.do("fill", "#topic", "from/console")
    browser.do("fill", "#payload", "<b>hello</b>")
    with RawClient.connected(bridge.port, "listener") as client:
        client.subscribe(("from/#", 1))
        browser.do("click", "text=Publish >> nth=-1")
        browser.do("sees", ".notice.good", "to from/console")
        assert client.take().payload == b"<b>hello</b>"
        browser.do("goto", "/topics/live?filter=from/%23")
        browser.do("sees", "#view-state", "Subscribed to from/#")
        client.publish("from/<i>client</i>", b"<script>alert(1)</script>", 1)
        browser.do("sees", "#view", "<script>alert(1)</script>")
        browser.do("sees", "#view", "from/<i>client</i>")
    assert browser.do("complaints") == []


def test_pages_can_be_read_without_javascript(bridge: BridgeProcess, browser: Browser) -> None:
    log_in(browser, bridge, {"javaScriptEnabled": False})
    for group in GROUPS:
        for page in group.pages:
            go(browser, group, page, menu=False)
    browser.do("fill", "#find", "pump-1")
    browser.do("click", 'form[role="search"] >> text="Search" >> nth=0')
    browser.do("sees", "tbody", "mqbridge client show pump-1")
    browser.do("open", WINDOWS["light-390"] | {"javaScriptEnabled": False})
    log_in_here(browser, bridge)
    go(browser, GROUPS[2], GROUPS[2].pages[0], menu=True)
    browser.do(
        "goto", "/clients?search=pump", "/configuration?show=all", "/configuration/effective", "/configuration/check"
    )
    browser.do("sees", "tbody", "pump-1")
    browser.do("click", 'text="Log out"')
    browser.do("sees", "h1", "Log in")


def test_the_page_reports_that_the_bridge_has_stopped(tmp_path: Path) -> None:
    process = BridgeProcess(tmp_path / "data", config="admin: {port: 0}\n").start()
    with Browser(admin_url(process.announced)) as browser:
        log_in(browser, process, {})
        browser.do("sees", "dl", "running")
        assert process.stop() == 0, process.log
        browser.do("sees", "#stale", "does not answer")
