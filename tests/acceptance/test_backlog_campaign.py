"""Two owners whose backlogs exceed the limits, with twenty clients that keep up and a publisher at full speed."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bridge.mq.mqi import MQOD, GetOptions, get_or_none
from bridge.mq.remote import RemoteConnection
from bridge.mqtt.packets import Disconnect, Puback, Publish
from bridge.wire import cmqc
from bridge.wire.mq import decode_mqdlh
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.installed import CLIENT_PACKAGES, built
from tests.helpers.memory_cgroup import memory_cgroup
from tests.helpers.patience import eventually
from tests.helpers.raw_client import ConnectionClosed, RawClient
from tests.helpers.remote_bridge import RemoteBridgeProcess

#: 90,000 publications for three recipients each take minutes.
pytestmark = pytest.mark.slow
HEALTHY, WINDOW = 20, 50
TRANSMISSION_QUEUE, DEAD_LETTERS = "SYSTEM.MQTT.TRANSMIT.QUEUE", "SYSTEM.DEAD.LETTER.QUEUE"
MIB = 1024 * 1024


class Healthy(threading.Thread):
    """A subscriber that acknowledges everything."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__(daemon=True)
        self.client = RawClient.connected(port, f"healthy-{number}", level=5)
        self.client.subscribe((f"load/{number}", 1))
        self.numbers: list[int] = []

    def run(self) -> None:
        try:
            while True:
                message = self.client.expect(Publish)
                self.client.send(Puback(message.packet_id))
                if message.payload == b"end":
                    return
                self.numbers.append(int(bytes(message.payload[:8])))
        except (ConnectionClosed, AssertionError) as error:
            self.numbers.append(-1)
            raise error


class Publisher:
    """Publish with QoS 1, many messages at a time, and record the reason codes."""

    def __init__(self, port: int, size: int) -> None:
        self._client = RawClient.connected(port, "publisher", level=5)
        self._size = size
        self.codes: list[int] = []
        self.sent = 0

    def publish(self, number: int) -> None:
        for _ in range(number):
            payload = (b"%08d" % self.sent).ljust(self._size)
            self._client.send(Publish(f"load/{self.sent % HEALTHY}", payload, 1, False, False, self.sent % 60_000 + 1))
            self.sent += 1
            while self.sent - len(self.codes) > WINDOW:
                self._take()

    def finish(self) -> None:
        while len(self.codes) < self.sent:
            self._take()
        for number in range(HEALTHY):
            self._client.publish(f"load/{number}", b"end", 1)
        self._client.disconnect()

    def _take(self) -> None:
        self.codes.append(self._client.expect(Puback).reason_code)


def received(client: RawClient) -> list[int]:
    """Acknowledge everything until the bridge ends the session."""
    numbers: list[int] = []
    while not isinstance(packet := client.receive(), Disconnect):
        assert isinstance(packet, Publish)
        if packet.payload != b"end":
            numbers.append(int(bytes(packet.payload[:8])))
        client.send(Puback(packet.packet_id))
    assert packet.reason_code == 0x97
    client.expect_closed()
    return numbers


def dead_letters(bridge: BridgeProcess) -> dict[str, list[int]]:
    """Return the numbers of the messages on the dead-letter queue, by owner."""
    connection = RemoteConnection(bridge.data_directory)
    handle = connection.open(MQOD(ObjectName=DEAD_LETTERS), cmqc.MQOO_BROWSE)
    numbers: dict[str, list[int]] = {}
    while (message := get_or_none(connection, handle, GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT))) is not None:
        owner = decode_mqdlh(message.data).DestQMgrName.decode().rstrip(" \0")
        if not (body := bytes(message.data).rstrip()).endswith(b"end"):
            numbers.setdefault(owner, []).append(int(body[-8:]))
    connection.disconnect()
    return numbers


def problems(bridge: BridgeProcess) -> dict[str, Any]:
    status = json.loads(Administrator(bridge).run("status", "--json").stdout)
    return {problem["subject"]: problem for problem in status["problems"]}


def campaign(bridge: BridgeProcess, *, size: int, most: int, limit: str) -> None:
    """Publish until both sessions have ended, and compare the accepted messages with their destinations."""
    away = RawClient.connected(bridge.port, "away", clean=False, level=5)
    away.subscribe(("#", 1))
    away.disconnect()
    silent = RawClient.connected(bridge.port, "silent", level=5)
    silent.subscribe(("#", 1))
    healthy = [Healthy(bridge.port, number) for number in range(HEALTHY)]
    for subscriber in healthy:
        subscriber.start()
    publisher = Publisher(bridge.port, size)
    exceeded_at, reported_at, named = 0.0, 0.0, ""
    #: the limits in problems so far: as the subject, or as the reason why a session ends
    limits = ""
    while bridge.log.count("MQB2410W") < 2 and publisher.sent < most:
        publisher.publish(1_000)
        if not exceeded_at and "MQB2402W" in bridge.log:
            exceeded_at = time.monotonic()
        if exceeded_at and not (reported_at and limit in limits):
            listed = problems(bridge)
            limits += " ".join(
                f"{problem['subject']} {problem['what']}" for problem in listed.values() if problem["kind"] == "limit"
            )
            named = " ".join(problem["what"] for problem in listed.values() if problem["kind"] == "limit")
            if not reported_at and ("'away'" in named or "'silent'" in named):
                reported_at = time.monotonic()
    assert limit in limits
    ended = publisher.sent
    publisher.publish(2_000)
    publisher.finish()
    for subscriber in healthy:
        subscriber.join(120)
        assert not subscriber.is_alive()
    assert bridge.log.count("MQB2410W") == 2, publisher.sent
    # No publication was rejected, and clients that keep up have received everything, in order.
    assert set(publisher.codes) <= {0, 0x10}
    for number, subscriber in enumerate(healthy):
        expected = [*range(number, publisher.sent, HEALTHY)]
        assert subscriber.numbers == expected, (
            number,
            len(subscriber.numbers),
            len(expected),
            subscriber.numbers[-5:],
            [*{*expected} - {*subscriber.numbers}][:10],
        )
    assert reported_at and reported_at - exceeded_at < 10
    assert "MQB0008E" not in bridge.log, "the memory watermark comes last"
    again = RawClient(bridge.port, "away", clean=False, level=5)
    assert again.connect().session_present is True
    received_by = {"silent": received(silent), "away": received(again)}
    fresh = RawClient(bridge.port, "away", clean=False, level=5)
    assert fresh.connect().session_present is False
    # On IBM MQ, messages become dead letters long after the bridge has decided so.
    eventually(lambda: bridge.mq_json("display", f"QLOCAL('{TRANSMISSION_QUEUE}')", "CURDEPTH")[0]["CURDEPTH"], 0)
    letters = dead_letters(bridge)
    print(
        f"{publisher.sent} published, ends after {ended}; dead letters:",
        {owner: len(numbers) for owner, numbers in letters.items()},
        f"problem after {reported_at - exceeded_at:.1f} s: {named[:150]}",
    )
    for owner, waited in received_by.items():
        assert waited == sorted(waited), "waiting messages arrive in order"
        accepted = sorted(waited + letters.get(owner, []))
        print(f"{owner}: {len(waited)} delivered after waiting, {len(accepted) - len(waited)} dead letters")
        # accepted = delivered + waiting + dead-lettered + counted, and nothing twice.
        assert accepted == [*range(len(accepted))]
        assert len(accepted) >= ended - 2_000 - WINDOW


def test_default_options_in_300_mb(tmp_path: Path) -> None:
    """The kernel does not kill the bridge, and the memory watermark is not reached."""
    with memory_cgroup(300 * MIB) as cgroup:
        bridge = BridgeProcess(tmp_path / "data", config=f"control_socket: {tmp_path}/control\n")
        bridge.wrapper = cgroup.wrapper
        try:
            bridge.start()
            campaign(bridge, size=1_000, most=150_000, limit="waiting_total")
            assert bridge.stop() == 0
        finally:
            bridge.discard()
        assert not cgroup.kills
        assert "Traceback" not in bridge.log


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("library", ["ibmmq", "pymqi"])
def test_a_transmission_queue_with_maxdepth_50000(tmp_path: Path, library: str) -> None:
    built("the stand-in for IBM MQ", CLIENT_PACKAGES / "versions")
    # The stand-in browses slowly if many messages wait, so the dead letters end soon.
    config = f"control_socket: {tmp_path}/control\nlimits: {{dead_letter_bytes: 1 MiB}}\n"
    bridge = RemoteBridgeProcess(tmp_path / "data", library=library, config=config)
    try:
        bridge.start()
        bridge.mqsc(f"ALTER QLOCAL({TRANSMISSION_QUEUE}) MAXDEPTH(50000)")
        bridge.restart()
        campaign(bridge, size=40, most=150_000, limit="MAXDEPTH")
        assert bridge.stop() == 0
    finally:
        bridge.discard()
    assert "Traceback" not in bridge.log
