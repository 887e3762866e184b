"""A queue manager that is lost and returns (`type: ibm`): no acknowledged message is missing, MQTT clients stay connected.

The stand-in for IBM's client library breaks connections at chosen verbs, and the queue manager's process is killed.
test_health.py runs two bridges on one queue manager.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import psutil
import pytest

from bridge.mqtt.packets import Publish
from bridge.mqtt.writer import encode
from tests.helpers.crash_checks import verify
from tests.helpers.exactly_once import DurableSubscriber, Publisher
from tests.helpers.forked_process import MQBRIDGE, run
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import PATIENCE, until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import RemoteBridgeProcess

#: Messages of each run, and of `make test-slow`.
COUNT, MANY = 400, 1_000
TOPICS = [f"crash/{number}" for number in range(4)]
TRANSMISSION_QUEUE = "SYSTEM.MQTT.TRANSMIT.QUEUE"


class Traffic:
    """A publisher and a durable subscriber, each in a separate thread and on one connection."""

    def __init__(self, bridge: RemoteBridgeProcess, qos: int, count: int = COUNT) -> None:
        self.qos = qos
        self.publisher = Publisher("sender", TOPICS, count, qos)
        self.subscriber = DurableSubscriber("keeper", "crash/#", qos)
        self._failures: list[BaseException] = []
        self.subscriber.connect(bridge.port)
        self.publisher.connect(bridge.port)
        clients_and_ends: list[tuple[Publisher | DurableSubscriber, Callable[[], bool]]] = [
            (self.publisher, lambda: self.publisher.finished),
            # The end of the last exchange: a connection that closes with unread packets may lose acknowledgements.
            (self.subscriber, lambda: len(self._finished()) == count),
        ]
        self._threads = [
            threading.Thread(target=self._work, args=client_and_end, daemon=True) for client_and_end in clients_and_ends
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, client: Publisher | DurableSubscriber, has_finished: Callable[[], bool]) -> None:
        try:
            while not has_finished():
                client.step()
        except BaseException as failure:
            self._failures.append(failure)

    def _finished(self) -> Collection[int]:
        """The numbers of the messages whose exchange has ended."""
        return self.subscriber.released if self.qos == 2 else self.subscriber.numbers

    def wait_for(self, acknowledged: int) -> None:
        """Wait for the progress of the publisher."""

        def reached() -> bool:
            self.check()
            return len(self.publisher.acknowledged) >= acknowledged

        until(reached, lambda: f"{len(self.publisher.acknowledged)} of {acknowledged} are acknowledged")

    def check(self) -> None:
        for failure in self._failures:
            raise failure

    def finish(self) -> None:
        """Check that everything is published and delivered, over one connection of each client, with the guarantees of the
        QoS.
        """
        for thread in self._threads:
            thread.join(PATIENCE * 2)
        self.check()
        assert not any(thread.is_alive() for thread in self._threads)
        verify(self.subscriber.received, self.publisher, self.qos)
        if self.qos == 2:  # PUBREL follows in the order of PUBREC (MQTT 3.1.1, section 4.6)
            assert self.subscriber.released == [number for _, number in self.subscriber.received]
        assert self.publisher.connections == self.subscriber.connections == 1
        self.publisher.close()
        self.subscriber.close()


# Cuts -----------------------------------------------------------------------------------------------------------------


CUTS = {
    "put": "MQPUT:150:before,MQPUT:300:after,MQPUT:550:before,MQPUT:750:after",
    "commit": "MQCMIT:4:before,MQCMIT:9:after,MQCMIT:15:before,MQCMIT:22:after,MQCMIT:30:after",
    "get": "MQGET:150:before,MQGET:450:after,MQGET:750:before,MQGET:1200:after,MQGET:1500:before",
    "status and open": "MQSTAT:3:before,MQSTAT:8:after,MQOPEN:25:before,MQOPEN:32:after",
}


def connections_cut(bridge: RemoteBridgeProcess, happened: Path, cuts: str, traffic: Traffic) -> None:
    """Finish with connections that are lost before a verb is executed, and after it, so that its reply is lost."""
    traffic.finish()
    bridge.wait_for_depth(TRANSMISSION_QUEUE, 0)
    # The number of units of work, and so which of the later cuts are reached, depends on the machine.
    struck, planned = set(happened.read_text().split()), cuts.split(",")
    assert set(planned[:2]) <= struck <= set(planned)
    assert "reconnecting" in bridge.log
    assert bridge.messages("SYSTEM.DEAD.LETTER.QUEUE") == []
    assert bridge.stop() == 0


def test_connections_cut_during_a_unit_of_work(remote: Callable[..., RemoteBridgeProcess], tmp_path: Path) -> None:
    """A cut of each kind, in one run with QoS 2."""
    cuts = "MQPUT:50:before,MQCMIT:4:before,MQGET:150:after,MQCMIT:9:after,MQPUT:250:after,MQSTAT:3:before,MQGET:300:before"
    bridge = remote(env={"MQI_STANDIN_CUT": cuts, "MQI_STANDIN_CUT_FILE": str(tmp_path / "cuts")}).start()
    connections_cut(bridge, tmp_path / "cuts", cuts, Traffic(bridge, 2))


@pytest.mark.slow
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_connections_cut_many_times_at_one_verb(
    remote: Callable[..., RemoteBridgeProcess], tmp_path: Path, cuts: str, qos: int
) -> None:
    bridge = remote(env={"MQI_STANDIN_CUT": cuts, "MQI_STANDIN_CUT_FILE": str(tmp_path / "cuts")}).start()
    connections_cut(bridge, tmp_path / "cuts", cuts, Traffic(bridge, qos, MANY))


def test_subscriptions_cut(remote: Callable[..., RemoteBridgeProcess], tmp_path: Path) -> None:
    """Each SUBACK arrives, and each subscription exists once. Those of clean sessions are created again."""
    cuts = [
        f"MQSUB:{number}:{moment}" for number, moment in ((4, "before"), (9, "after"), (15, "before"), (20, "after"))
    ]
    env = {"MQI_STANDIN_CUT": ",".join(cuts), "MQI_STANDIN_CUT_FILE": str(tmp_path / "cuts")}
    bridge = remote(env=env).start()
    for clean in (True, False):
        with RawClient.connected(bridge.port, f"client-{clean}", clean=clean) as client:
            for number in range(10):
                assert client.subscribe((f"{clean}/{number}", 1)) == (1,)
            for number in range(10):
                client.publish(f"{clean}/{number}", b"%d" % number, 1)
                assert client.take().payload == b"%d" % number
            assert len(bridge.mq_json("display", f"SUB('client-{clean}:*')")) == 10
            client.unsubscribe(*(f"{clean}/{number}" for number in range(10)))
            assert bridge.run_mq("display", f"SUB('client-{clean}:*')").returncode == 3
    assert set((tmp_path / "cuts").read_text().split()) == set(cuts)


def test_retained_publication_cleared_over_a_cut(remote: Callable[..., RemoteBridgeProcess], tmp_path: Path) -> None:
    """The empty retained publication is acknowledged and clears the topic, even if its commit or the command fails."""
    numbers = {"MQCMIT": (2, 5, 9, 14, 20, 27), "MQPUT1": (2, 6, 11), "MQGET": (4, 9, 15)}
    cuts = [
        f"{verb}:{number}:{'after' if verb == 'MQGET' or (verb == 'MQCMIT' and index % 2) else 'before'}"
        for verb, all_of_verb in numbers.items()
        for index, number in enumerate(all_of_verb)
    ]
    env = {"MQI_STANDIN_CUT": ",".join(cuts), "MQI_STANDIN_CUT_FILE": str(tmp_path / "cuts")}
    bridge = remote(env=env, settings="  publishers: 1\n").start()
    with RawClient.connected(bridge.port, "one") as client:
        for number in range(15):
            topic = f"state/{number}"
            client.publish(topic, b"kept", 1, retain=True)
            client.publish(topic, b"", 1, retain=True)
            client.subscribe((topic, 1))
            client.publish(topic, b"live", 1)
            assert client.take().payload == b"live"
    assert set((tmp_path / "cuts").read_text().split()) == set(cuts)


# The queue manager dies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("qos", "count", "marks"),
    [
        (2, COUNT, (100, 250)),
        pytest.param(1, MANY, (150, 450, 750), marks=pytest.mark.slow),
        pytest.param(2, MANY, (150, 450, 750), marks=pytest.mark.slow),
    ],
)
def test_queue_manager_is_killed_under_load(
    remote: Callable[..., RemoteBridgeProcess], qos: int, count: int, marks: tuple[int, ...]
) -> None:
    """Several times, and restarted on the same data."""
    bridge = remote().start()
    traffic = Traffic(bridge, qos, count)
    for mark in marks:
        traffic.wait_for(mark)
        bridge.queue_manager.kill()
        bridge.queue_manager.start()
    traffic.finish()
    bridge.wait_for_depth(TRANSMISSION_QUEUE, 0)
    assert bridge.stop() == 0


@pytest.mark.parametrize("delay_us", [0, pytest.param(2_000, marks=pytest.mark.slow)])
def test_the_queue_manager_hangs_under_load(remote: Callable[..., RemoteBridgeProcess], delay_us: int) -> None:
    """It continues, or is killed: finished units of work wait for earlier ones of their session.

    With the delay, all removers are in use.
    """
    bridge = remote(settings="  removers: 3\n", env={"MQI_STANDIN_DELAY_US": str(delay_us)}).start()
    manager, traffic = bridge.queue_manager, Traffic(bridge, 2)
    for number, killed in enumerate((False, True, False, True), 1):
        traffic.wait_for(number * COUNT // 5)
        manager.pause()
        until(lambda: traffic.publisher.full)
        if killed:
            manager.kill()
            manager.start()
        else:
            manager.resume()
    traffic.finish()
    bridge.wait_for_depth(TRANSMISSION_QUEUE, 0)
    assert bridge.stop() == 0


def test_the_bridge_stops_reading_from_publishers_while_the_queue_manager_is_unreachable(
    remote: Callable[..., RemoteBridgeProcess],
) -> None:
    """No acknowledgement, limited memory: the socket of a client is not read beyond pending_publication_bytes.

    SIGTERM during publications ends the bridge shortly after shutdown_timeout.
    """
    bridge = remote(config="limits: {pending_publication_bytes: 500 KiB, shutdown_timeout: 1 s}\n").start()
    assert bridge.process is not None
    payload = b"x" * 10_000
    with RawClient.connected(bridge.port, "sender") as sender, RawClient.connected(bridge.port, "other") as other:
        sender.publish("t", b"first", 1)
        bridge.queue_manager.kill()
        before = psutil.Process(bridge.process.pid).memory_info().rss
        sender.socket.settimeout(1.0)
        blocked = 0
        try:
            for number in range(20_000):
                sender.socket.sendall(_publish(number, payload))
        except TimeoutError:
            blocked = number
        assert blocked > 0, "200 MB were read while the queue manager was away"
        assert psutil.Process(bridge.process.pid).memory_info().rss - before < 60_000_000
        assert not sender.inbox
        other.ping()
        bridge.queue_manager.start()
        for number in range(blocked):
            assert sender.receive().packet_id == number + 100
        bridge.queue_manager.kill()
        other.send(Publish("t", b"x", 1, False, False, 1))
        assert bridge.stop() == 0
        other.expect_closed()


def _publish(number: int, payload: bytes) -> bytes:
    return encode(Publish("t", payload, 1, False, False, number + 100))


def test_sigterm_before_the_first_connection_to_the_queue_manager(remote: Callable[..., RemoteBridgeProcess]) -> None:
    bridge = remote()
    assert bridge.config is not None
    with LineProcess([MQBRIDGE, "run", bridge.config], env=bridge.env) as waiting:
        waiting.line_where(lambda line: "waiting for the queue manager" in line)
        assert waiting.terminate() == 0


# What it does not start with ------------------------------------------------------------------------------------------


def test_a_missing_object_of_the_queue_manager(remote: Callable[..., RemoteBridgeProcess]) -> None:
    """Exit status 1, an error that names the object, and the MQSC that creates it.

    tests/unit/mq/ibm/test_requirements_check.py checks the others.
    """
    bridge = remote()
    bridge.queue_manager.start()
    bridge.mqsc(f"DELETE QLOCAL({TRANSMISSION_QUEUE})\n")
    assert bridge.config is not None
    process = run("run", bridge.config, "--port", "0", env=bridge.env)
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert re.search(rf"DEFINE QLOCAL\('{TRANSMISSION_QUEUE}'\).*XMITQ", process.stderr), process.stderr
