"""A queue manager that is lost while nothing happens, or that does not answer; connections that are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bridge.mqtt.packets import ConnackCode, Puback, Publish
from tests.helpers.bridge_process import MQBRIDGE
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.relay import Relay
from tests.helpers.remote_bridge import RemoteBridgeProcess

PROBED = "  probe_interval: 0.2 s\n"


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_queue_manager_that_is_restarted_while_all_is_idle(
    remote: Callable[..., RemoteBridgeProcess], end: str
) -> None:
    """A clean session's subscriber gets what is published afterwards, though nobody had anything to do meanwhile.

    It ends all at once, or in order: then it waits for applications, and those of the bridge let it go (MQRC 2161).
    """
    bridge = remote(settings=PROBED).start()
    with RawClient.connected(bridge.port, "clean") as clean, RawClient.connected(bridge.port, "sender") as sender:
        clean.subscribe(*((f"t/{number}", 1) for number in range(20)))
        for _ in range(2):
            getattr(bridge.queue_manager, end)()
            until(lambda: "subscriptions: lost the connection to the queue manager" in bridge.log)
            bridge.queue_manager.start()
            until(lambda: bridge.log.count("subscriptions: reconnected to the queue manager") >= 1)
            for number in range(20):
                sender.publish(f"t/{number}", b"after", 1)
            assert sorted(clean.take().topic for _ in range(20)) == sorted(f"t/{number}" for number in range(20))


def test_publications_while_the_queue_manager_is_restarted_come_to_clean_sessions(
    remote: Callable[..., RemoteBridgeProcess],
) -> None:
    """They are acknowledged once the subscriptions stand again, and so all of them arrive."""
    bridge = remote(settings=PROBED).start()
    with RawClient.connected(bridge.port, "clean") as clean, RawClient.connected(bridge.port, "sender") as sender:
        for first in range(0, 200, 50):
            clean.subscribe(*((f"t/{number}", 1) for number in range(first, first + 50)))
        bridge.queue_manager.kill()
        for number in range(40):
            sender.send(Publish(f"t/{number}", b"meanwhile", 1, False, False, number + 1))
        bridge.queue_manager.start()
        acknowledged = {sender.wait_for(Puback).message_id for _ in range(40)}
        assert acknowledged == set(range(1, 41))
        assert {clean.take().topic for _ in range(40)} == {f"t/{number}" for number in range(40)}


def test_a_queue_manager_that_does_not_answer(remote: Callable[..., RemoteBridgeProcess]) -> None:
    """A stopped queue manager closes no connections: clients stay, publications wait, and SIGTERM still ends the bridge."""
    bridge = remote(settings=PROBED, config="limits: {shutdown_timeout: 1 s}\n").start()
    with RawClient.connected(bridge.port, "sender") as sender, RawClient.connected(bridge.port, "clean") as clean:
        clean.subscribe(("t", 1))
        bridge.queue_manager.pause()
        sender.send(Publish("t", b"waits", 1, False, False, 1))
        clean.ping()
        bridge.queue_manager.resume()
        assert sender.wait_for(Puback).message_id == 1
        assert clean.take().payload == b"waits"
        bridge.queue_manager.pause()
        try:
            assert bridge.stop() == 0
        finally:
            bridge.queue_manager.resume()


def test_clients_are_disconnected_while_the_queue_manager_is_unreachable(
    remote: Callable[..., RemoteBridgeProcess],
) -> None:
    """A standby, or no bridge, serves the clients meanwhile. Their sessions continue afterwards."""
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


@pytest.fixture
def relayed(remote: Callable[..., RemoteBridgeProcess]) -> Iterator[tuple[RemoteBridgeProcess, Relay]]:
    """A bridge whose connections to the queue manager can be forgotten on their way."""
    bridge = remote(settings=PROBED, env={"MQI_STANDIN_HBINT": "1"})
    port = bridge.queue_manager.listen().start().port
    with Relay(port) as relay:
        bridge.env["MQI_STANDIN"] = f"127.0.0.1({relay.port})"
        yield bridge.start(), relay


def test_connections_that_a_firewall_has_forgotten(relayed: tuple[RemoteBridgeProcess, Relay]) -> None:
    """Half open: the bridge gives them up by the heartbeat interval, the queue manager by its own, and all goes on.

    Until the queue manager does, it has the subscriptions of the connection before, and no others may be made: what is
    published comes to them, or waits for the others.
    """
    bridge, relay = relayed
    with RawClient.connected(bridge.port, "clean") as clean, RawClient.connected(bridge.port, "sender") as sender:
        clean.subscribe(("t", 1))
        for round_ in range(2):
            forgotten = relay.forget()
            until(lambda: bridge.log.count("subscriptions were not restored yet") > round_)  # noqa: B023
            for pair in forgotten:
                pair.close()
            for number in range(5):
                sender.publish("t", b"%d.%d" % (round_, number), 1)
                assert clean.take().payload == b"%d.%d" % (round_, number)


def test_clients_leave_and_subscribe_while_subscriptions_are_being_restored(
    relayed: tuple[RemoteBridgeProcess, Relay],
) -> None:
    bridge, relay = relayed
    with RawClient.connected(bridge.port, "stays") as stays, RawClient.connected(bridge.port, "leaves") as leaves:
        stays.subscribe(("t", 1))
        leaves.subscribe(("t", 1))
        forgotten = relay.forget()
        until(lambda: "2 subscriptions were not restored yet" in bridge.log)
        leaves.disconnect()
        assert stays.subscribe(("t", 0)) == (0,)
        for pair in forgotten:
            pair.close()
        stays.publish("t", b"x", 1)
        assert stays.take().qos == 0
        names = [one["SUB"] for one in bridge.mq_json("display", "SUB(*)", "SUB")]
        assert "stays:t" in names and "leaves:t" not in names


def test_a_standby_does_not_take_over_from_one_that_is_well(remote: Callable[..., RemoteBridgeProcess]) -> None:
    """The queue manager is restarted while all is idle: whichever of the two gets the queue, the other stands by."""
    first = remote("first", settings=PROBED).start()
    second = remote("second", queue_manager=first.queue_manager, settings=PROBED)
    assert second.config is not None
    with LineProcess([MQBRIDGE, "run", second.config, "--port", "0"], env=second.env) as standby:
        standby.line_where(lambda line: "standing by" in line)
        first.queue_manager.kill()
        first.queue_manager.start()

        def decided() -> bool:
            stood_down = "disconnecting all clients and standing by" in first.log
            return stood_down or first.log.count("reconnected to the queue manager") >= 7

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
