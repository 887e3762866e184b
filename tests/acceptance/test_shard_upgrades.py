"""Shards on a queue manager of an earlier version, and shards whose configuration changes, while processes fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import RemoteBridgeProcess
from tests.helpers.shards import OF, Site, client_of, members_of, received, status

MEMBERS = "SYSTEM.MQTT.SHARE.MEMBERS"
#: For tests of the contract of shards, which hold for both packages.
PACKAGES = pytest.mark.parametrize("site", ["ibmmq", "pymqi"], indirect=True)


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path, remote: Callable[..., RemoteBridgeProcess]) -> Site:
    return Site(tmp_path, remote, library=getattr(request, "param", "ibmmq"))


def problems_of(bridge: RemoteBridgeProcess, subject: str) -> list[Any]:
    """Return the problems of a bridge that concern a queue."""
    return [one for one in status(bridge).get("problems", ()) if one["subject"] == subject]


@PACKAGES
def test_a_queue_manager_of_an_earlier_version_lacks_the_queue_of_members(site: Site) -> None:
    """The bridge starts, reports what is missing, and serves everything but $share until the script is run."""
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
    # The new shard removes the subscription with the mapping.
    assert bridges[0].config is not None
    bridges[0].config.write_text(bridges[0].config.read_text().replace(MAPPING.format(0), ""))
    Administrator(bridges[0]).does("reload")
    assert "AMQ8147E" in bridges[0].run_mq("display", "SUB(*)").stderr.decode()


def mapping_state(bridge: RemoteBridgeProcess) -> bool:
    """Return whether the only mapping of a bridge has subscribed."""
    (row,) = Administrator(bridge).json("mapping", "list")
    return row["state"] in ("running", "blocked")
