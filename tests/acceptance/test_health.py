"""Health and metrics of bridges with a remote queue manager: a standby, and a bridge whose queue manager is unreachable."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from bridge.mqtt.packets import Publish
from tests.helpers.administrator import Administrator
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import eventually, until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import NAME, RemoteBridgeProcess
from tests.helpers.scrape import Scrape, admin_url, ask

ADMIN = "admin: {port: 0}\n"
MANAGER = {"qmgr": NAME, "platform": "UNIX"}
QUEUE = {**MANAGER, "queue": "SYSTEM.MQTT.TRANSMIT.QUEUE", "usage": "XMITQ"}


def test_a_standby_bridge(remote: Callable[..., RemoteBridgeProcess], tmp_path: Path) -> None:
    """It is alive and not ready, and its metrics and `mqbridge status` report that. Its channels do not listen.

    After the death of the first bridge, it is ready, and serves the durable sessions.
    """
    first = remote("first", settings=ADMIN).start()
    subscriber = RawClient.connected(first.port, "keeper", clean=False)
    subscriber.subscribe(("t", 1))
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
        # A change is rejected, with the name of the active bridge.
        active = f"on host {socket.gethostname()}, process {first.process.pid}"
        assert active in administrator.refused("client", "purge", "keeper")
        status, text = ask(f"{url}/metrics")
        assert status == 200
        assert f'mqbridge_state{{qmgr="{NAME}",state="standing by"}} 1.0' in text
        assert "mqbridge_ready 0.0" in text
        subscriber.publish("t", b"by the first", 1)
        assert subscriber.take().payload == b"by the first"
        assert not any("listens" in line for line in standby.seen)
        # A PUBACK is not acknowledged, so the message is removed a moment later.
        first.wait_for_depth(QUEUE["queue"], 0)
        first.kill()
        line = standby.line_where(lambda line: "listens for MQTT clients" in line)
        assert any("taking over" in line for line in standby.seen)
        eventually(lambda: ask(f"{url}/readyz"), (200, "ok\n"))
        assert "is running" in administrator.does("status")
        with RawClient(int(line.rpartition(":")[2]), "keeper", clean=False) as client:
            assert client.connect().session_present
            client.publish("t", b"by the second", 1)
            assert client.wait_for(Publish).payload == b"by the second"
        assert standby.terminate() == 0


def test_an_unreachable_queue_manager(remote: Callable[..., RemoteBridgeProcess], tmp_path: Path) -> None:
    """The bridge is alive and not ready, and has no metrics of queues that it cannot inspect.

    If the queue manager answers but its queues are inhibited, `mqbridge status` reports the reason.
    """
    bridge = remote(settings=f"control_socket: {tmp_path}/control\n{ADMIN}").start()
    administrator = Administrator(bridge)
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
    bridge.mqsc("ALTER QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE) GET(DISABLED)\n")
    problem = "the bridge can remove no messages from SYSTEM.MQTT.TRANSMIT.QUEUE: GET(DISABLED)"
    until(lambda: problem in administrator.run("status").stdout)
    status = administrator.run("status")
    assert status.exit_code == 1 and f"PROBLEM (error): {problem}" in status.stdout
    bridge.mqsc("ALTER QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE) GET(ENABLED)\n")
