"""A queue manager that is lost while idle, or does not answer, and half-open connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bridge.mqtt.packets import ConnackCode, Puback, Publish
from tests.helpers.bridges import at_work
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.relay import Relay
from tests.helpers.remote_bridge import RemoteBridgeProcess

PROBED = "  probe_interval: 0.2 s\n"


@pytest.fixture(scope="module")
def probed(environments: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteBridgeProcess]:
    """A bridge whose queue manager the tests stop and start."""
    directory = tmp_path_factory.mktemp("probed") / "data"
    with at_work(RemoteBridgeProcess(directory, settings=PROBED, config="limits: {shutdown_timeout: 1 s}\n")) as bridge:
        yield bridge


@pytest.fixture
def logged(probed: RemoteBridgeProcess) -> Callable[[str], Callable[[], bool]]:
    """Return whether the bridge has logged a text since the test began."""
    begin = len(probed.log)
    return lambda text: lambda: text in probed.log[begin:]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_queue_manager_that_is_restarted_while_everything_is_idle(
    probed: RemoteBridgeProcess, logged: Callable[[str], Callable[[], bool]], end: str
) -> None:
    """A subscriber with a clean session receives later publications, although nothing happened meanwhile.

    The queue manager ends immediately, or in order: then it waits for applications, and the bridge disconnects (MQRC 2161).
    """
    with RawClient.connected(probed.port, "clean") as clean, RawClient.connected(probed.port, "sender") as sender:
        clean.subscribe(*((f"t/{number}", 1) for number in range(20)))
        getattr(probed.queue_manager, end)()
        until(logged("subscriptions: lost the connection to the queue manager"))
        probed.queue_manager.start()
        until(logged("subscriptions: reconnected to the queue manager"))
        for number in range(20):
            sender.publish(f"t/{number}", b"after", 1)
        assert sorted(clean.take().topic for _ in range(20)) == sorted(f"t/{number}" for number in range(20))


def test_publications_during_a_restart_of_the_queue_manager_reach_clean_sessions(probed: RemoteBridgeProcess) -> None:
    """They are acknowledged after the subscriptions are restored, so all of them arrive."""
    with RawClient.connected(probed.port, "clean") as clean, RawClient.connected(probed.port, "sender") as sender:
        for first in range(0, 200, 50):
            clean.subscribe(*((f"t/{number}", 1) for number in range(first, first + 50)))
        probed.queue_manager.kill()
        for number in range(40):
            sender.send(Publish(f"t/{number}", b"meanwhile", 1, False, False, number + 1))
        probed.queue_manager.start()
        acknowledged = {sender.wait_for(Puback).packet_id for _ in range(40)}
        assert acknowledged == set(range(1, 41))
        assert {clean.take().topic for _ in range(40)} == {f"t/{number}" for number in range(40)}


def test_a_queue_manager_that_does_not_answer(probed: RemoteBridgeProcess) -> None:
    """A stopped queue manager closes no connections: clients stay, publications wait, and SIGTERM still ends the bridge."""
    manager = probed.queue_manager
    with RawClient.connected(probed.port, "sender") as sender, RawClient.connected(probed.port, "clean") as clean:
        clean.subscribe(("t", 1))
        manager.pause()
        sender.send(Publish("t", b"waits", 1, False, False, 1))
        clean.ping()
        manager.resume()
        assert sender.wait_for(Puback).packet_id == 1
        assert clean.take().payload == b"waits"
        manager.pause()
        try:
            assert probed.stop() == 0
        finally:
            manager.resume()


def test_clients_are_disconnected_while_the_queue_manager_is_unreachable(
    remote: Callable[..., RemoteBridgeProcess],
) -> None:
    """Meanwhile, a standby, or no bridge, serves the clients. Their sessions continue afterwards."""
    bridge = remote(settings=PROBED + "  outage_timeout: 1 s\n").start()
    with RawClient.connected(bridge.port, "device", clean=False) as device:
        device.subscribe(("t", 1))
        bridge.queue_manager.pause()
        device.expect_closed()
    until(lambda: "MQB4012E" in bridge.log)
    with RawClient(bridge.port, "device", clean=False) as rejected:
        assert rejected.connect().return_code == ConnackCode.SERVER_UNAVAILABLE
    bridge.queue_manager.resume()
    until(lambda: "MQB4013I" in bridge.log)
    with RawClient.connected(bridge.port, "device", clean=False) as device:
        device.publish("t", b"after", 1)
        assert device.take().payload == b"after"


def test_half_open_connections(remote: Callable[..., RemoteBridgeProcess]) -> None:
    """A firewall has forgotten them: the bridge and the queue manager close them by their heartbeat intervals, and everything
    continues.

    Until then, the queue manager has the subscriptions of the previous connection, and no others can be made: publications
    reach the old ones, or wait for the new ones.
    """
    bridge = remote(settings=PROBED, env={"MQI_STANDIN_HBINT": "1"})
    with Relay(bridge.queue_manager.listen().start().port) as relay:
        bridge.env["MQI_STANDIN"] = f"127.0.0.1({relay.port})"
        bridge.start()
        with RawClient.connected(bridge.port, "stays") as stays, RawClient.connected(bridge.port, "sender") as sender:
            stays.subscribe(("t", 1))
            for round_, qos in enumerate((1, 0)):
                leaves = RawClient.connected(bridge.port, "leaves")
                leaves.subscribe(("t", 1))
                forgotten = relay.forget()
                until(lambda: bridge.log.count("2 subscriptions were not restored yet") > round_)  # noqa: B023
                # Clients subscribe and leave while subscriptions are being restored.
                leaves.disconnect()
                assert stays.subscribe(("t", qos)) == (qos,)
                for pair in forgotten:
                    pair.close()
                for number in range(5):
                    sender.publish("t", b"%d.%d" % (round_, number), 1)
                    publication = stays.take()
                    assert (publication.payload, publication.qos) == (b"%d.%d" % (round_, number), qos)
            until(lambda: bridge.run_mq("display", "SUB('stays:t')").returncode == 0)
            assert bridge.run_mq("display", "SUB('leaves:t')").returncode == 3


def test_a_standby_does_not_take_over_from_a_healthy_bridge(remote: Callable[..., RemoteBridgeProcess]) -> None:
    """The queue manager is restarted while everything is idle: one of the two gets the queue, the other one stands by."""
    first = remote("first", settings=PROBED).start()
    second = remote("second", queue_manager=first.queue_manager, settings=PROBED)
    assert second.config is not None
    with LineProcess([MQBRIDGE, "run", second.config, "--port", "0"], env=second.env) as standby:
        standby.line_where(lambda line: "standing by" in line)
        first.queue_manager.kill()
        first.queue_manager.start()

        def decided() -> bool:
            stood_down = "disconnecting all clients and standing by" in first.log
            # This worker has the lock queue open.
            return stood_down or "transmit-queue remover: reconnected to the queue manager" in first.log

        until(decided)
        if "disconnecting all clients and standing by" in first.log:
            line = standby.line_where(lambda line: "listens for MQTT clients" in line)
            until(lambda: "standing by: another bridge" in first.log)
            port = int(line.rpartition(":")[2])
        else:
            port = first.port
        with RawClient.connected(port, "c") as client:
            client.subscribe(("t", 1))
            client.publish("t", b"x", 1)
            assert client.take().payload == b"x"
        assert standby.terminate() == 0
