"""MQTT.js in headless Chromium, over WebSockets with TLS: pages of permitted and of other origins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.browser import Browser
from tests.helpers.certificate_authority import Authority
from tests.helpers.mqtt_js import mqtt_js
from tests.helpers.patience import eventually

pytestmark = pytest.mark.slow

CONFIG = """
channels:
  - name: PAGES
    port: 0
    websocket: {{origins: ["{origin}"]}}
    tls: {{certificate_file: {directory}/server.pem, key_file: {directory}/server.key}}
"""
PAGE = """<!doctype html><title>MQTT</title><p id="state">waiting</p><p id="said"></p>
<script src="mqtt.min.js"></script>
<script>
  const [state, said] = ['state', 'said'].map((id) => document.getElementById(id));
  const address = `wss://localhost:${location.search.slice(1)}/mqtt`;
  const client = mqtt.connect(address, { protocolVersion: +location.hash.slice(1), reconnectPeriod: 0, clientId: 'page' });
  client.on('connect', async () => {
    state.textContent = 'connected';
    await client.subscribeAsync('pages/#', { qos: 1 });
    await client.publishAsync('pages/one', 'from the page', { qos: 1 });
  });
  client.on('message', (topic, payload) => (said.textContent = `${topic}: ${payload}`));
  client.on('close', () => (state.textContent = 'closed'));
</script>
"""


class Pages(SimpleHTTPRequestHandler):
    """Serve files of a directory, without log lines."""

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def site(directory: Path) -> Iterator[str]:
    """Serve a directory. Yield the origin of its pages."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Pages, directory=str(directory))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


def test_origins(tmp_path: Path) -> None:
    """A page of a permitted origin publishes and subscribes, with 3.1.1 and 5. That of another origin is rejected."""
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.html").write_text(PAGE)
    (pages / "mqtt.min.js").symlink_to(mqtt_js() / "node_modules" / "mqtt" / "dist" / "mqtt.min.js")
    Authority(tmp_path).issue("server")
    with ExitStack() as stack:
        own, foreign = (stack.enter_context(site(pages)) for _ in range(2))
        config = CONFIG.format(origin=own, directory=tmp_path)
        bridge = BridgeProcess(tmp_path / "data", config=config).start()
        stack.callback(bridge.discard)
        for origin, version, accepted in ((own, 4, True), (own, 5, True), (foreign, 5, False)):
            browser = stack.enter_context(Browser(origin))
            browser.do("open", {"ignoreHTTPSErrors": True})
            assert browser.do("goto", f"/?{bridge.port}#{version}") == 200
            if accepted:
                browser.do("sees", "#said", "pages/one: from the page")
                assert browser.do("text", "#state") == "connected"
            else:
                browser.do("sees", "#state", "closed")
                assert browser.do("text", "#said") == ""
        eventually(lambda: f"WebSocket handshake rejected: invalid Origin header: {foreign}" in bridge.log, True)
        assert len(re.findall("client 'page' at [^ ]+ connected", bridge.log)) == 2
        assert bridge.stop() == 0
