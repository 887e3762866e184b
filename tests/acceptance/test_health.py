"""Health and metrics of bridges on a queue manager elsewhere: one that stands by, and one whose queue manager is away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import MQBRIDGE
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import eventually, until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import NAME, RemoteBridgeProcess
from tests.helpers.scrape import Scrape, admin_url, ask

ADMIN = "admin: {port: 0}\n"
MANAGER = {"qmgr": NAME, "platform": "UNIX"}
QUEUE = {**MANAGER, "queue": "SYSTEM.MQTT.TRANSMIT.QUEUE", "usage": "XMITQ"}


def test_a_bridge_that_stands_by(remote: Callable[..., RemoteBridgeProcess], tmp_path: Path) -> None:
    """It lives and is not ready, and its metrics and `mqbridge status` say so; when it has taken over, it is ready."""
    first = remote("first", settings=ADMIN).start()
    settings = f"control_socket: {tmp_path}/control\n{ADMIN}"
    second = remote("second", queue_manager=first.queue_manager, settings=settings)
    assert second.config is not None
    administrator = Administrator(second)
    with LineProcess([MQBRIDGE, "run", second.config, "--port", "0"], env=second.env) as standby:
        standby.line_where(lambda line: "standing by" in line)
        first_url, url = admin_url(first.announced), admin_url(standby.seen)
        assert ask(f"{first_url}/readyz") == (200, "ok\n")
        assert ask(f"{url}/readyz") == (503, "standing by\n")
        assert ask(f"{url}/healthz") == (200, "ok\n")
        assert "is standing by" in administrator.does("status")  # a healthy standby has no problems
        status, text = ask(f"{url}/metrics")
        assert status == 200
        assert f'mqbridge_state{{qmgr="{NAME}",state="standing by"}} 1.0' in text
        assert "mqbridge_ready 0.0" in text
        first.kill()
        standby.line_where(lambda line: "listens for MQTT clients" in line)
        eventually(lambda: ask(f"{url}/readyz"), (200, "ok\n"))
        assert "is running" in administrator.does("status")
        assert standby.terminate() == 0


def test_a_queue_that_is_not_to_be_used(remote: Callable[..., RemoteBridgeProcess], tmp_path: Path) -> None:
    """The queue manager answers, but messages are not accepted: `mqbridge status` reports the reason."""
    bridge = remote(settings=f"control_socket: {tmp_path}/control\n").start()
    administrator = Administrator(bridge)
    assert administrator.does("status")
    bridge.mqsc("ALTER QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE) GET(DISABLED)\n")
    try:
        until(lambda: administrator.run("status").exit_code == 1)
        found = administrator.run("status").stdout
        assert "PROBLEM (warning): in the last minute, " in found
        assert "MQRC_GET_INHIBITED (2016)" in found
    finally:
        bridge.mqsc("ALTER QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE) GET(ENABLED)\n")


def test_a_queue_manager_that_is_away(remote: Callable[..., RemoteBridgeProcess]) -> None:
    """The bridge lives meanwhile, is not ready, and its metrics tell nothing of queues that it cannot see."""
    bridge = remote(settings=ADMIN).start()
    url = admin_url(bridge.announced)
    with RawClient.connected(bridge.port, "away", clean=False) as client:
        client.subscribe(("t", 1))
        client.disconnect()
    with RawClient.connected(bridge.port, "sender") as sender:
        sender.publish("t", b"x", 1)
        now = Scrape(bridge)
        assert now.get("ibmmq_qmgr_status", **MANAGER) == 2
        assert now.get("ibmmq_queue_depth", **QUEUE) == now.get("mqbridge_transmission_queue_depth") == 1
        assert now.get("ibmmq_queue_oldest_message_age", **QUEUE) is not None
        assert now.total("mqbridge_commit_seconds_count") > 0
        bridge.queue_manager.kill()
        until(lambda: ask(f"{url}/readyz")[0] == 503)
        assert "does not answer" in ask(f"{url}/readyz")[1]
        assert ask(f"{url}/healthz") == (200, "ok\n")
        eventually(lambda: Scrape(bridge).get("ibmmq_qmgr_status", **MANAGER), 0)
        assert Scrape(bridge).get("ibmmq_queue_depth", **QUEUE) is None
        bridge.queue_manager.start()
        eventually(lambda: ask(f"{url}/readyz"), (200, "ok\n"))
        eventually(lambda: Scrape(bridge).get("ibmmq_queue_depth", **QUEUE), 1)
