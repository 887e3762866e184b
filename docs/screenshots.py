"""Take the screenshots of the console, docs/images/console-*.png, of a bridge with some traffic.

`python docs/screenshots.py`, after `sh tests/node-packages.sh .venv/bin/python browser`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.helpers.bridge_process import BridgeProcess  # noqa: E402
from tests.helpers.browser import Browser  # noqa: E402
from tests.helpers.console import Console  # noqa: E402
from tests.helpers.scrape import admin_url  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WINDOW = {"colorScheme": "light", "viewport": {"width": 1440, "height": 800}}
#: Seconds of traffic, so that charts show something.
TRAFFIC = 60
#: file name -> path of the page
PAGES = {
    "overview": "/",
    "clients": "/clients",
    "queues": "/queues",
    "dead-letters": "/dead-letters",
    "health": "/health",
}
SCRIPT = "DEFINE QLOCAL(PLANT.L1)\nDEFINE QLOCAL(PLANT.L2) MAXDEPTH(20)\nDEFINE QLOCAL(ALARMS)\n"
CONFIGURATION = """
queue_manager: {{scripts: [{script}]}}
admin: {{port: 0}}
mappings:
  telemetry: {{from: {{mqtt: "plant/{{line}}/temp"}}, to: {{queue: "PLANT.{{line|upper}}"}}}}
  alarms: {{from: {{mqtt: "alarms/#"}}, to: {{queue: ALARMS}}, filter: {{json: "$.level > 2"}}}}
"""


def device(port: int, name: str, durable: bool = False) -> paho.Client:
    """Return a connected client that is subscribed to its commands."""
    subscribed = threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, name, clean_session=not durable)
    client.on_connect = lambda *_: client.subscribe(f"commands/{name}/#", qos=1)
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("127.0.0.1", port)
    client.loop_start()
    subscribed.wait(10)
    return client


def connect_devices(bridge: BridgeProcess) -> list[paho.Client]:
    """Connect devices, of which one leaves, and send messages to it and to an unknown one. Returns the connected devices."""
    devices = [device(bridge.port, f"pump-{number}", durable=True) for number in range(1, 13)]
    away = devices.pop()
    away.disconnect()
    away.loop_stop()
    for number in range(5):
        bridge.mq("pub", f"commands/pump-12/{number}", "start", "--persistent")
    bridge.mq("put", "commands/reset", "now", "--to", "pump-99")
    devices[0].subscribe("alarms/#", qos=1)
    return devices


def produce(devices: list[paho.Client], stop: threading.Event) -> None:
    """Publish until `stop`."""
    number = 0
    while not stop.wait(0.2):
        for position, client in enumerate(devices):
            number += 1
            client.publish(f"plant/l{1 + position % 2}/temp", f'{{"temp": {20 + number % 15}}}', qos=1)
            client.publish("alarms/pump", f'{{"level": {number % 5}}}', qos=1)


def main() -> None:
    """Take all screenshots."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        script = directory / "objects.mqsc"
        script.write_text(SCRIPT, encoding="utf-8")
        bridge = BridgeProcess(directory / "data", config=CONFIGURATION.format(script=script)).start()
        try:
            devices = connect_devices(bridge)
            producer = threading.Thread(target=produce, args=(devices, stop), daemon=True)
            producer.start()
            time.sleep(TRAFFIC)
            with Browser(admin_url(bridge.announced)) as browser:
                browser.do("open", WINDOW)
                browser.do("goto", "/")
                browser.do("fill", "#token", Console(bridge).token)
                browser.do("click", "button.main")
                browser.do("sees", "h1", "Overview")
                for page, path in PAGES.items():
                    browser.do("goto", path)
                    time.sleep(12)  # the console shows rates after its second refresh
                    browser.do("screenshot", str(IMAGES / f"console-{page}.png"))
            stop.set()
            producer.join()
            for client in devices:
                client.disconnect()
                client.loop_stop()
        finally:
            bridge.discard()


if __name__ == "__main__":
    main()
