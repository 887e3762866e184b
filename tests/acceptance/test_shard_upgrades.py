"""Shards on a queue manager of an earlier version, and shards whose configuration changes, while processes fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bridge.mqtt.packets import Pubcomp, Publish, Pubrec, Pubrel
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeFailed
from tests.helpers.mosquitto import Mosquitto, publish
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import RemoteBridgeProcess
from tests.helpers.shards import (
    OF,
    Site,
    assert_nothing_is_left,
    client_of,
    members_of,
    received,
    reconnected,
    status,
)

MEMBERS = "SYSTEM.MQTT.SHARE.MEMBERS"
#: For tests of the contract of shards, which hold for both packages.
PACKAGES = pytest.mark.parametrize("site", ["ibmmq", "pymqi"], indirect=True)


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path, remote: Callable[..., RemoteBridgeProcess]) -> Site:
    return Site(tmp_path, remote, library=getattr(request, "param", "ibmmq"))


def problems_of(bridge: RemoteBridgeProcess, subject: str) -> list[Any]:
    """Return the problems of a bridge that concern a queue."""
    return [problem for problem in status(bridge).get("problems", ()) if problem["subject"] == subject]


@PACKAGES
def test_a_queue_manager_of_an_earlier_version_lacks_the_queue_of_members(site: Site) -> None:
    """The bridge starts, reports the missing queue, and serves everything but $share until the script is run."""
    bridges = [site.bridge(number) for number in range(OF)]
    bridges[0].mqsc(f"DELETE QLOCAL('{MEMBERS}')\n")
    for bridge in bridges:
        bridge.start()
        until(partial(problems_of, bridge, MEMBERS), partial(status, bridge))
        (problem,) = problems_of(bridge, MEMBERS)
        assert problem["severity"] == "warning" and "mqsc-script" in problem["remedy"], problem
        until(lambda: f"queue {MEMBERS} is not defined" in bridge.log, lambda: bridge.log)  # noqa: B023
    clients = [RawClient.connected(bridge.port, client_of(number)) for number, bridge in enumerate(bridges)]
    new = RawClient.connected(bridges[1].port, client_of(1, "new"), level=5)
    assert clients[0].subscribe(("t", 1), ("$share/g/t", 1)) == (1, 0x80)
    assert new.subscribe(("t", 2), ("$share/g/t", 1)) == (2, 0x83)
    clients[1].publish("t", b"1", 2)
    assert clients[0].take().payload == b"1"
    assert new.take().payload == b"1"
    # No restart is necessary.
    site.prepare(bridges[0])
    members = members_of(bridges)
    clients[1].publish("t", b"2", 1)
    assert sorted(received(members, 1)) == [[], [b"2"]]
    for bridge in bridges:
        until(lambda: not problems_of(bridge, MEMBERS), partial(status, bridge))  # noqa: B023


def test_a_bridge_without_shards_needs_no_queue_of_members(
    tmp_path: Path, remote: Callable[..., RemoteBridgeProcess]
) -> None:
    bridge = remote(config=f"control_socket: {tmp_path / 'control'}\n").start()
    client = RawClient.connected(bridge.port, "client")
    assert client.subscribe(("$share/g/t", 1)) == (1,)
    client.publish("t", b"1", 1)
    assert client.take().payload == b"1"
    assert MEMBERS not in {row["QUEUE"] for row in bridge.mq_json("display", "QLOCAL(*)", "CURDEPTH")}
    assert not problems_of(bridge, MEMBERS)
    assert status(bridge)["state"] == "running"


MAPPING = "mappings: {{collect: {{from: {{mqtt: 'in/#'}}, to: {{queue: COLLECTED}}, shard: {}}}}}\n"


@pytest.mark.parametrize("event", ["reload the old shard first", "reload the new shard first", "kill", "stop"])
def test_a_mapping_moves_to_another_shard_while_its_queue_rejects_messages(site: Site, event: str) -> None:
    """Its messages wait for it, whichever bridge is reloaded first, or killed or stopped, and each arrives once."""
    bridges = [site.bridge(number, config=MAPPING.format(1)) for number in range(OF)]
    bridges[0].mqsc("DEFINE QLOCAL(COLLECTED) PUT(DISABLED)\n")
    for bridge in bridges:
        bridge.start()
    publisher = RawClient.connected(bridges[0].port, client_of(0))
    until(partial(mapping_state, bridges[1]), partial(status, bridges[1]))
    for number in range(5):
        publisher.publish(f"in/{number}", b"%d" % number, 1 + number % 2)
    until(lambda: "COLLECTED" in bridges[1].log, lambda: bridges[1].log)
    for bridge in bridges:
        assert bridge.config is not None
        bridge.config.write_text(bridge.config.read_text().replace("shard: 1}}", "shard: 0}}"))
    if event == "kill":
        bridges[1].kill()
    elif event == "stop":
        bridges[1].stop()
    order = bridges if event == "reload the new shard first" else bridges[::-1]
    for bridge in order:
        if bridge.running:
            Administrator(bridge).does("reload")
    publisher.publish("in/5", b"5", 2)
    if event in ("kill", "stop"):
        # The start of a bridge removes subscriptions of former mappings. This one is not one of them.
        bridges[0].kill()
        bridges[1].start()
        bridges[0].start()
    else:
        assert "mapping collect moved to shard 0" in bridges[1].log
    bridges[0].mqsc("ALTER QLOCAL(COLLECTED) PUT(ENABLED)\n")
    bridges[0].wait_for_depth("COLLECTED", 6)
    bodies = bridges[0].run_mq("get", "COLLECTED", "--limit", "10").stdout.split()
    assert sorted(bodies) == [b"%d" % number for number in range(6)]
    # The new shard removes the subscription with the mapping, by a reload or at its next start.
    assert bridges[0].config is not None
    if event in ("kill", "stop"):
        bridges[0].stop()
    bridges[0].config.write_text(bridges[0].config.read_text().replace(MAPPING.format(0), ""))
    if event in ("kill", "stop"):
        bridges[0].start()
    else:
        Administrator(bridges[0]).does("reload")
    assert "AMQ8147E" in bridges[0].run_mq("display", "SUB(*)").stderr.decode()


def mapping_state(bridge: RemoteBridgeProcess) -> bool:
    """Return whether the only mapping of a bridge has subscribed."""
    (row,) = Administrator(bridge).json("mapping", "list")
    return row["state"] in ("running", "blocked")


def test_a_standby_of_another_number_of_shards_does_not_start(site: Site) -> None:
    """It would reject the sessions after taking over. The standby with the right number takes over meanwhile."""
    bridges = [site.bridge(number).start() for number in range(OF)]
    members = members_of(bridges, clean=False)
    with pytest.raises(BridgeFailed, match=r"shard.of is 3, and the sessions on .* belong to 2 shards"):
        site.bridge(1, "three", of=3).start()
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))
    publisher.publish("t", b"1", 1)
    assert sorted(received(members, 1)) == [[], [b"1"]]
    for number in range(OF):  # otherwise, a PUBACK could be lost, and the message would go to the other member
        bridges[0].wait_for_depth(f"SYSTEM.MQTT.TRANSMIT.QUEUE.{number}", 0)
    bridges[1].kill()
    with pytest.raises(BridgeFailed, match=r"shard.of is 3, and the sessions on .* belong to 2 shards"):
        site.bridge(1, "four", of=3).start()
    publisher.publish("t", b"2", 1)
    assert members[0].take().payload == b"2"
    bridges[1].start()
    members[1] = reconnected(bridges[1], members[1])
    for member in members:
        member.unsubscribe("$share/g/t")
    assert_nothing_is_left(bridges[0])


@PACKAGES
def test_a_new_shard_of_another_number_of_shards_does_not_start(site: Site) -> None:
    """Its state queue is empty. Shard 0 shows the number, and shard 1 does so to shard 0."""
    bridges = [site.bridge(number).start() for number in range(OF)]
    third = site.bridge(2, of=3)
    with pytest.raises(BridgeFailed, match=r"shard.of is 3, and the sessions on \S+STATE.0 belong to 2 shards"):
        third.start()
    bridges[0].stop()
    bridges[0].mqsc("CLEAR QLOCAL('SYSTEM.MQTT.PERSISTENT.STATE.0')\n")
    with pytest.raises(BridgeFailed, match=r"shard.of is 3, and the sessions on \S+STATE.1 belong to 2 shards"):
        site.bridge(0, "three", of=3).start()
    bridges[0].start()
    # A queue of another shard that cannot be browsed prevents no start.
    bridges[0].stop()
    bridges[0].mqsc("ALTER QLOCAL('SYSTEM.MQTT.PERSISTENT.STATE.0') GET(DISABLED)\n")
    third.start()
    assert "MQB4108I" in third.log and "MQRC_GET_INHIBITED" in third.log


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_a_reload_while_the_queue_manager_is_away(site: Site, killed: bool) -> None:
    """It takes effect, and nothing is lost, also if a bridge is killed before the queue manager is back."""
    bridges = [site.bridge(number, config=MAPPING.format(1)) for number in range(OF)]
    bridges[0].mqsc("DEFINE QLOCAL(COLLECTED)\n")
    for bridge in bridges:
        bridge.start()
    members = members_of(bridges, clean=False)
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))
    until(partial(mapping_state, bridges[1]), partial(status, bridges[1]))
    publisher.publish("in/0", b"0", 1)
    bridges[0].wait_for_depth("COLLECTED", 1)
    assert site.queue_manager is not None
    site.queue_manager.kill()
    for number in (1, 2):
        publisher.send(Publish(f"in/{number}", b"%d" % number, 2, False, False, number))
    publisher.send(Publish("t", b"t", 1, False, False, 3))
    for bridge in bridges:
        assert bridge.config is not None
        text = bridge.config.read_text().replace("shard: 1}}", "shard: 0}}")
        bridge.config.write_text(text + "limits: {waiting_bytes: 60000}\n")
        Administrator(bridge).run("reload")
    if killed:
        bridges[1].kill()
    site.queue_manager.start()
    if killed:
        bridges[1].start()
        members[1] = reconnected(bridges[1], members[1])
    for number in (1, 2):
        assert publisher.wait_for(Pubrec).packet_id == number
        publisher.send(Pubrel(number))
        assert publisher.wait_for(Pubcomp).packet_id == number
    bridges[0].wait_for_depth("COLLECTED", 3)
    assert sorted(received(members, 1)) == [[], [b"t"]]
    for bridge, expected in zip(bridges, (1, 0), strict=True):
        assert len(Administrator(bridge).json("mapping", "list")) == expected
    bodies = bridges[0].run_mq("get", "COLLECTED", "--limit", "10").stdout.split()
    assert sorted(bodies) == [b"0", b"1", b"2"]


def test_a_full_queue_of_a_shared_subscription_affects_no_others(site: Site) -> None:
    """Also while a bridge is killed. Publications that it rejects are on the dead-letter queue."""
    bridges = [site.bridge(number).start() for number in range(OF)]
    members = members_of(bridges, clean=False)
    others = [RawClient.connected(bridge.port, client_of(number, "other")) for number, bridge in enumerate(bridges)]
    for other in others:
        assert other.subscribe(("$share/h/t", 1)) == (1,)
    (queue,) = {row["DEST"] for row in bridges[0].mq_json("display", "SUB('$share/g:t')", "DEST")}
    for member in members:
        member.disconnect()
    bridges[0].mqsc(f"ALTER QLOCAL('{queue}') MAXDEPTH(5)\n")
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))
    for number in range(20):
        publisher.publish("t", b"%d" % number, 1)
    shares = received(others, 20)
    assert sorted(map(int, itertools.chain(*shares))) == list(range(20))
    bridges[1].kill()
    for number in range(20, 30):
        publisher.publish("t", b"%d" % number, 1)
    bridges[1].start()
    others[1] = RawClient.connected(bridges[1].port, client_of(1, "other"))
    assert others[1].subscribe(("$share/h/t", 1)) == (1,)
    numbers: set[int] = set()
    while not numbers.issuperset(range(20, 30)):
        # The bridge may have been killed before it has removed a message that its member acknowledged.
        numbers |= {*map(int, itertools.chain(*received(others, 1)))}
    # Each message is on the full queue or on the dead-letter queue.
    members[0] = reconnected(bridges[0], members[0])
    (payloads,) = received(members[:1], 4)
    members[0].ping()
    payloads += [member.payload for member in members[0].inbox if isinstance(member, Publish)]
    bridges[0].wait_for_depth("SYSTEM.DEAD.LETTER.QUEUE", 30 - len(payloads))
    # When the queue has room again, all members receive messages.
    bridges[0].mqsc(f"ALTER QLOCAL('{queue}') MAXDEPTH(5000)\n")
    members[1] = reconnected(bridges[1], members[1])
    publisher.publish("t", b"30", 1)
    assert sorted(received(members, 1)) == [[], [b"30"]]


LINKED = """links: {{plant: {{host: 127.0.0.1, port: {port}}}}}
mappings: {{collect: {{from: {{mqtt: 'in/#', link: plant}}, to: {{queue: COLLECTED}}, shard: {shard}}}}}
"""


@pytest.mark.parametrize("restart", [False, True], ids=["reload", "restart"])
def test_a_mapping_with_a_session_at_a_broker_moves_to_another_shard(site: Site, tmp_path: Path, restart: bool) -> None:
    """Messages that wait in the session at the broker while no shard runs the mapping arrive once."""
    mosquitto = Mosquitto(tmp_path).start()
    try:
        bridges = [site.bridge(number, config=LINKED.format(port=mosquitto.port, shard=1)) for number in range(OF)]
        bridges[0].mqsc("DEFINE QLOCAL(COLLECTED)\n")
        for bridge in bridges:
            bridge.start()
        until(partial(mapping_state, bridges[1]), partial(status, bridges[1]))
        publish(mosquitto.port, "in/0", "0", qos=1)
        bridges[0].wait_for_depth("COLLECTED", 1)
        if restart:
            bridges[1].stop()
        for bridge in bridges:
            assert bridge.config is not None
            bridge.config.write_text(bridge.config.read_text().replace("shard: 1}}", "shard: 0}}"))
        if not restart:
            Administrator(bridges[1]).does("reload")
        for number in (1, 2):
            publish(mosquitto.port, f"in/{number}", str(number), qos=number)
        if restart:
            bridges[1].start()
        Administrator(bridges[0]).does("reload")
        bridges[0].wait_for_depth("COLLECTED", 3)
        bodies = bridges[0].run_mq("get", "COLLECTED", "--limit", "10").stdout.split()
        assert sorted(bodies) == [b"0", b"1", b"2"]
    finally:
        mosquitto.stop()
