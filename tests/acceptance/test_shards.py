"""Shards: bridges that divide the clients of one queue manager, with standbys, and behind HAProxy."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner
from websockets.sync.client import connect as websocket
from websockets.typing import Subprotocol

from bridge.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    PublishProperties,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.writer import encode
from tests.helpers.administrator import Administrator
from tests.helpers.administrator import program as program_
from tests.helpers.bridge_process import BridgeFailed
from tests.helpers.certificate_authority import make
from tests.helpers.exactly_once import DurableSubscriber
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.installed import program
from tests.helpers.line_process import LineProcess, suspend
from tests.helpers.patience import PATIENCE, until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import ROOT, RemoteBridgeProcess
from tests.helpers.scrape import ask
from tests.helpers.shards import (
    OF,
    SHARDS,
    ShardProcess,
    Site,
    assert_nothing_is_left,
    balanced,
    client_of,
    free_port,
    members_of,
    reachable,
    received,
    reconnected,
    status,
)

#: For tests of the contract of shards, which hold for both packages.
PACKAGES = pytest.mark.parametrize("site", ["ibmmq", "pymqi"], indirect=True)


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path, remote: Callable[..., RemoteBridgeProcess]) -> Site:
    return Site(tmp_path, remote, library=getattr(request, "param", "ibmmq"))


@PACKAGES
def test_the_clients_of_all_shards_exchange_messages(site: Site) -> None:
    bridges = [site.bridge(number).start() for number in range(OF)]
    names = [client_of(number) for number in range(OF)]
    subscribers = [
        RawClient.connected(bridge.port, name, clean=False) for bridge, name in zip(bridges, names, strict=True)
    ]
    for subscriber in subscribers:
        assert subscriber.subscribe(("t/#", 1)) == (1,)
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))
    publisher.publish("t/a", b"1", 1)
    for subscriber in subscribers:
        assert subscriber.take().payload == b"1"
    bridges[1].wait_for_depth("SYSTEM.MQTT.TRANSMIT.QUEUE.1", 0)
    # Messages wait for a client whose bridge is killed, and the start of the other shard does not touch its subscription.
    bridges[1].kill()
    publisher.publish("t/a", b"2", 1)
    assert subscribers[0].take().payload == b"2"
    publisher.disconnect()
    bridges[0].stop()
    bridges[0].start()
    bridges[1].start()
    subscribers[1] = RawClient(bridges[1].port, names[1], clean=False)
    assert subscribers[1].connect().session_present
    assert subscribers[1].take().payload == b"2"
    subscribers[1].unsubscribe("t/#")
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))
    publisher.publish("t/a", b"3", 1)
    subscribers[1].ping()
    assert not subscribers[1].inbox


def test_retained_publications_are_those_of_all_shards(site: Site) -> None:
    bridges = [site.bridge(number).start() for number in range(OF)]
    clients = [RawClient.connected(bridge.port, client_of(number)) for number, bridge in enumerate(bridges)]
    clients[0].send(Publish("t", b"1", 1, True, False, 100))
    assert clients[0].wait_for(Puback).packet_id == 100
    clients[1].subscribe(("t", 1))
    assert (publish := clients[1].take()).payload == b"1" and publish.retain
    # The other shard deletes it.
    clients[1].send(Publish("t", b"", 1, True, False, 100))
    assert clients[1].wait_for(Puback).packet_id == 100
    clients[0].subscribe(("t", 1))
    clients[0].ping()
    assert not clients[0].inbox


def test_each_of_many_clients_of_a_shard_gets_its_copy(site: Site) -> None:
    bridge = site.bridge(0).start()
    clients = [RawClient.connected(bridge.port, client_of(0, f"c{number}-")) for number in range(25)]
    for client in clients:
        client.subscribe(("t", 1))
    clients[0].publish("t", b"1", 1)
    assert all(client.wait_for(Publish).payload == b"1" for client in clients)


def test_a_message_of_an_application_reaches_a_client_by_its_alias(site: Site) -> None:
    bridge = site.bridge(1).start()
    name = client_of(1)
    client = RawClient.connected(bridge.port, name)
    bridge.mqsc(f"DEFINE QREMOTE('{name}') RQMNAME('{name}') XMITQ('SYSTEM.MQTT.TRANSMIT.QUEUE.1')\n")
    bridge.mq("put", "commands/reset", "now", "--to", name)
    assert (publish := client.take()).topic == "commands/reset" and publish.payload == b"now"


@PACKAGES
def test_shard_0_forwards_messages_of_applications(site: Site) -> None:
    bridges = [site.bridge(number).start() for number in range(OF)]
    bridges[0].mqsc("ALTER QMGR DEFXMITQ('SYSTEM.MQTT.TRANSMIT.QUEUE')\n")
    names = [client_of(number) for number in range(OF)]
    clients = [RawClient.connected(bridge.port, name) for bridge, name in zip(bridges, names, strict=True)]
    for name in names:
        for number in range(3):
            bridges[0].mq("put", "commands/reset", f"{number} {name}", "--to", name, "--persistent")
    for name, client in zip(names, clients, strict=True):
        received = [client.take() for _ in range(3)]
        assert [publish.payload.decode() for publish in received] == [f"{number} {name}" for number in range(3)]
        assert {publish.topic for publish in received} == {"commands/reset"}
    # A queue that rejects messages delays none for other shards. Messages wait for shard 0.
    bridges[0].mqsc("ALTER QLOCAL('SYSTEM.MQTT.TRANSMIT.QUEUE.1') PUT(DISABLED)\n")
    bridges[0].mq("put", "commands/reset", "rejected", "--to", names[1])
    bridges[0].mq("put", "commands/reset", "passes", "--to", names[0])
    assert clients[0].take().payload == b"passes"
    bridges[0].wait_for_depth("SYSTEM.DEAD.LETTER.QUEUE", 1)
    bridges[0].mqsc("ALTER QLOCAL('SYSTEM.MQTT.TRANSMIT.QUEUE.1') PUT(ENABLED)\n")
    bridges[0].kill()
    bridges[0].mq("put", "commands/reset", "waits", "--to", names[1], "--persistent")
    bridges[0].start()
    assert clients[1].take().payload == b"waits"


def forwarding_site(site: Site, *, admin: int = 0) -> tuple[list[RemoteBridgeProcess], list[str], list[RawClient]]:
    """Start the bridges of both shards, to which applications put messages, with a client of each.

    `admin` is the admin port of shard 0.
    """
    configs = [f"admin: {{port: {admin}}}\n", ""]
    bridges = [site.bridge(number, config=config).start() for number, config in enumerate(configs)]
    bridges[0].mqsc("ALTER QMGR DEFXMITQ('SYSTEM.MQTT.TRANSMIT.QUEUE')\n")
    names = [client_of(number) for number in range(OF)]
    clients = [RawClient.connected(bridge.port, name, clean=False) for bridge, name in zip(bridges, names, strict=True)]
    return bridges, names, clients


@pytest.mark.parametrize(
    ("broken", "repaired"),
    [("PUT(DISABLED)", "PUT(ENABLED)"), ("MAXDEPTH(0)", "MAXDEPTH(5000)")],
    ids=["inhibited", "full"],
)
def test_forwarding_continues_when_the_dead_letter_queue_accepts_messages_again(
    site: Site, broken: str, repaired: str
) -> None:
    admin = free_port()
    bridges, names, clients = forwarding_site(site, admin=admin)
    assert clients[1].subscribe(("t", 1)) == (1,)
    bridges[0].mqsc(f"ALTER QLOCAL('SYSTEM.DEAD.LETTER.QUEUE') {broken}\n")
    bridges[0].mqsc("ALTER QLOCAL('SYSTEM.MQTT.TRANSMIT.QUEUE.1') MAXMSGL(1000)\n")
    assert bridges[0].process is not None
    suspend(bridges[0].process.pid)
    # In one unit of work: a message in front of the one that cannot be forwarded, and one behind it.
    bridges[0].mq("put", "commands/reset", "in front", "--to", names[0], "--persistent")
    bridges[0].mq("put", "commands/reset", "x" * 2_000, "--to", names[1], "--persistent")
    bridges[0].mq("put", "commands/reset", "behind", "--to", names[1], "--persistent")
    bridges[0].process.send_signal(signal.SIGCONT)
    assert clients[0].take().payload == b"in front"
    until(lambda: bridges[0].log.count("MQB4216E") > 1, lambda: bridges[0].log)
    # A problem, and metrics for alerts, report it.
    until(
        lambda: any("forwarder:" in problem["what"] for problem in status(bridges[0])["problems"]),
        lambda: status(bridges[0]),
    )
    metrics = ask(f"http://127.0.0.1:{admin}/metrics")[1].splitlines()
    assert any(line.startswith('mqbridge_problem{kind="commits"') and not line.endswith(" 0.0") for line in metrics), (
        metrics
    )
    depth = re.compile(r'ibmmq_queue_depth{[^}]*queue="SYSTEM.MQTT.TRANSMIT.QUEUE",[^}]*} 2.0')
    until(lambda: depth.search(ask(f"http://127.0.0.1:{admin}/metrics")[1]) is not None)
    # The other shard exchanges messages meanwhile.
    clients[1].publish("t", b"1", 2)
    assert clients[1].take().payload == b"1"
    bridges[0].mqsc(f"ALTER QLOCAL('SYSTEM.DEAD.LETTER.QUEUE') {repaired}\n")
    publish = clients[1].take()
    assert (publish.payload, publish.qos) == (b"behind", 2)
    bridges[0].wait_for_depth("SYSTEM.DEAD.LETTER.QUEUE", 1)
    bridges[0].wait_for_depth("SYSTEM.MQTT.TRANSMIT.QUEUE", 0)
    bridges[0].mqsc("ALTER QLOCAL('SYSTEM.MQTT.TRANSMIT.QUEUE.1') MAXMSGL(4194304)\n")
    command = [MQBRIDGE, "dlq", "retry", "--all", "--config", str(bridges[0].config)]
    subprocess.run(command, env=bridges[0].env, check=True, timeout=PATIENCE)
    assert clients[1].take().payload == b"x" * 2_000
    for client in clients:
        client.ping()
        assert not client.inbox


def test_a_kill_while_messages_are_forwarded_to_a_hanging_shard(site: Site) -> None:
    """Each message arrives once, and in order."""
    bridges, names, clients = forwarding_site(site)
    for client in clients:
        client.disconnect()
    count = 150
    for bridge in bridges:
        assert bridge.process is not None
        suspend(bridge.process.pid)
    for number in range(count):
        for name in names:
            bridges[0].mq("put", "commands/reset", str(number), "--to", name, "--persistent")
    assert bridges[0].process is not None and bridges[1].process is not None
    bridges[0].process.send_signal(signal.SIGCONT)
    until(partial(bridges[0].messages, "SYSTEM.MQTT.TRANSMIT.QUEUE.1"))
    bridges[0].kill()
    bridges[0].start()
    # The hanging shard delays no message of shard 0.
    for number in (0, 1):
        subscriber = DurableSubscriber(names[number], "t", 2)
        subscriber.connect(bridges[number].port)
        while len(subscriber.received) < count:
            subscriber.step()
        assert [message for _, message in subscriber.received] == list(range(count))
        subscriber.close()
        bridges[1].process.send_signal(signal.SIGCONT)
    for queue in ("", ".0", ".1"):
        bridges[0].wait_for_depth(f"SYSTEM.MQTT.TRANSMIT.QUEUE{queue}", 0)
    bridges[0].wait_for_depth("SYSTEM.DEAD.LETTER.QUEUE", 0)


def test_shard_0_forwards_when_it_alone_reads_the_common_transmission_queue(site: Site) -> None:
    """The connection of a failed bridge may still have the first messages in its unit of work."""
    bridge, name, queue = site.bridge(0), client_of(0), "SYSTEM.MQTT.TRANSMIT.QUEUE"
    bridge.mqsc(f"ALTER QMGR DEFXMITQ('{queue}')\n")
    with LineProcess(bridge.mq_command("get", queue, "--wait", "1000s", "--limit", "2", "--json")) as former:
        until(lambda: bridge.mq_json("display", f"QSTATUS('{queue}')", "IPPROCS")[0]["IPPROCS"], lambda: former.seen)
        bridge.start()
        client = RawClient.connected(bridge.port, name)
        bridge.mq("put", "commands/reset", "first", "--to", name)
        former.line_where(lambda line: line.startswith("{"))
        assert not status(bridge)["problems"]
        former.kill()
        bridge.mq("put", "commands/reset", "second", "--to", name)
        assert client.take().payload == b"second"
    assert "MQRC_OBJECT_IN_USE" in bridge.run_mq("get", queue).stderr.decode()


def test_forwarding_to_a_queue_continues_after_many_rejected_messages(site: Site) -> None:
    bridges, names, clients = forwarding_site(site)
    bridges[0].mqsc("ALTER QLOCAL('SYSTEM.MQTT.TRANSMIT.QUEUE.1') PUT(DISABLED)\n")
    for number in range(300):  # more than MAXHANDS, 256
        bridges[0].mq("put", "commands/reset", str(number), "--to", names[1])
    bridges[0].wait_for_depth("SYSTEM.DEAD.LETTER.QUEUE", 300)
    bridges[0].mqsc("ALTER QLOCAL('SYSTEM.MQTT.TRANSMIT.QUEUE.1') PUT(ENABLED)\n")
    for name, client in zip(names, clients, strict=True):
        bridges[0].mq("put", "commands/reset", "after", "--to", name)
        assert client.take().payload == b"after"


@PACKAGES
def test_a_client_of_another_shard_gets_the_address_of_its_server(site: Site) -> None:
    bridge, name = site.bridge(0).start(), client_of(1)
    refused = RawClient(bridge.port, name, level=5).connect()
    assert refused.return_code == ReasonCode.USE_ANOTHER_SERVER and refused.properties is not None
    assert refused.properties.server_reference == "mqtt-1.example.com"
    for level in (3, 4):
        assert RawClient(bridge.port, name, level=level).connect().return_code == 3
    (problem,) = status(bridge)["problems"]
    assert (problem["kind"], problem["subject"]) == ("limit", "shard") and name in problem["what"]
    assert "is shard 0 of 2" in bridge.log
    # A client without an identifier gets one of this shard.
    connack = RawClient(bridge.port, "", level=5).connect()
    assert connack.return_code == 0 and connack.properties is not None
    assert connack.properties.shared_subscription_available is None
    assigned = connack.properties.assigned_client_identifier
    assert assigned is not None and SHARDS[0].owns(assigned)


def test_members_in_all_shards_compete_for_the_messages_of_a_shared_subscription(site: Site) -> None:
    bridges = [site.bridge(number).start() for number in range(OF)]
    members = members_of(bridges)
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))
    payloads = [str(number).encode() for number in range(200)]
    for payload in payloads:
        publisher.publish("t", payload, 1)
    shares = received(members, len(payloads))
    assert sorted(itertools.chain(*shares), key=int) == payloads
    assert all(share == sorted(share, key=int) for share in shares)
    # A member of one shard is enough.
    members[0].unsubscribe("$share/g/t")
    publisher.publish("t", b"last", 1)
    assert members[1].take().payload == b"last"
    # The last member ends the subscription, with its messages.
    members[1].unsubscribe("$share/g/t")
    publisher.publish("t", b"nobody", 1)
    assert "AMQ8147E" in bridges[0].run_mq("display", "SUB(*)").stderr.decode()
    bridges[0].wait_for_depth("SYSTEM.MQTT.SHARE.MEMBERS", 0)
    members[1].ping()
    assert not members[1].inbox


def test_unacknowledged_messages_of_a_shared_subscription_go_to_members_in_other_shards(site: Site) -> None:
    bridges = [site.bridge(number).start() for number in range(OF)]
    members = members_of(bridges, clean=False)
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))
    # One member is away, and the other acknowledges nothing.
    members[0].disconnect()
    payloads = [str(number).encode() for number in range(50)]
    for payload in payloads:
        publisher.publish("t", payload, 1)
    assert members[1].expect(Publish).qos == 1
    members[1].socket.close()
    members[0] = reconnected(bridges[0], members[0])
    (share,) = received(members[:1], len(payloads))
    assert sorted(share, key=int) == payloads


def test_messages_of_a_shared_subscription_wait_while_all_members_are_away(site: Site) -> None:
    """Also if the bridges are killed meanwhile. A member without a durable session is gone then."""
    bridges = [site.bridge(number).start() for number in range(OF)]
    members = members_of(bridges, clean=False)
    temporary = RawClient.connected(bridges[1].port, client_of(1, "temporary"))
    assert temporary.subscribe(("$share/g/u", 1)) == (1,)
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))
    for member in members:
        member.disconnect()
    payloads = [str(number).encode() for number in range(20)]
    for payload in payloads:
        publisher.publish("t", payload, 1)
    for bridge in bridges:
        bridge.kill()
    for bridge in bridges:
        bridge.start()
    # The first member to connect receives them, and the bridge of the other one restarts.
    bridges[0].kill()
    members[1] = reconnected(bridges[1], members[1])
    (share,) = received(members[1:], len(payloads))
    assert sorted(share, key=int) == payloads
    bridges[0].start()
    names = {row["SUB"] for row in bridges[0].mq_json("display", "SUB(*)", "SUB")}
    assert names == {"$share/g:t"}
    members[0] = reconnected(bridges[0], members[0])
    members[1].unsubscribe("$share/g/t")
    publisher = RawClient.connected(bridges[1].port, client_of(1, "publisher"))
    publisher.publish("t", b"last", 1)
    assert members[0].take().payload == b"last"


def test_a_hanging_shard_does_not_delay_shared_subscriptions_of_others(site: Site) -> None:
    bridges = [site.bridge(number).start() for number in range(OF)]
    members = members_of(bridges)
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))
    assert bridges[1].process is not None
    suspend(bridges[1].process.pid)
    # The hanging shard may have requested messages that its members could have taken.
    for number in range(60):
        publisher.publish("t", str(number).encode(), 1)
    other = RawClient.connected(bridges[0].port, client_of(0, "other"))
    assert other.subscribe(("$share/h/t", 1)) == (1,)
    publisher.publish("t", b"60", 1)
    assert other.take().payload == b"60"
    other.unsubscribe("$share/h/t")
    bridges[1].process.send_signal(signal.SIGCONT)
    shares = received(members, 61)
    assert sorted(map(int, itertools.chain(*shares))) == list(range(61))


def test_the_oldest_messages_beyond_the_limit_of_a_shared_subscription_are_dead_lettered(site: Site) -> None:
    bridges = [site.bridge(number, config="limits: {waiting_bytes: 6000}\n").start() for number in range(OF)]
    members = members_of(bridges, clean=False)
    for member in members:
        member.disconnect()
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))
    for number in range(25):
        publisher.publish("t", str(number).encode(), 1)
    until(lambda: len(bridges[0].messages("SYSTEM.DEAD.LETTER.QUEUE")) >= 15)
    until(lambda: "MQB4221W" in "".join(bridge.log for bridge in bridges))
    until(
        lambda: [
            problem
            for bridge in bridges
            for problem in status(bridge)["problems"]
            if "waiting_bytes" in problem["what"]
        ]
    )
    member = reconnected(bridges[0], members[0])
    numbers = [int(member.take().payload)]
    while numbers[-1] != 24:
        numbers.append(int(member.take().payload))
    # Shards that remove messages at the same time remove at most one too many here.
    assert numbers in ([*range(15, 25)], [*range(16, 25)])
    bridges[0].wait_for_depth("SYSTEM.DEAD.LETTER.QUEUE", numbers[0])


def test_a_message_that_a_former_member_has_not_acknowledged_goes_to_another_shard(site: Site) -> None:
    bridges = [site.bridge(number).start() for number in range(OF)]
    away = RawClient.connected(bridges[1].port, client_of(1, "away"), clean=False)
    assert away.subscribe(("$share/g/t", 1)) == (1,)
    away.disconnect()
    former = RawClient.connected(bridges[0].port, client_of(0, "former"))
    assert former.subscribe(("$share/g/t", 1)) == (1,)
    RawClient.connected(bridges[0].port, client_of(0, "publisher")).publish("t", b"1", 1)
    assert former.expect(Publish).payload == b"1"
    former.unsubscribe("$share/g/t")
    former.socket.close()
    assert reconnected(bridges[1], away).take().payload == b"1"


def test_messages_return_to_a_full_queue_when_the_only_shard_that_empties_it_starts_again(site: Site) -> None:
    """Meanwhile, clients of the shard that returns a message are served, and it reports a problem."""
    bridges = [site.bridge(number).start() for number in range(OF)]
    away = RawClient.connected(bridges[1].port, client_of(1, "away"), clean=False)
    assert away.subscribe(("$share/g/t", 1)) == (1,)
    former = RawClient.connected(bridges[0].port, client_of(0, "former"))
    assert former.subscribe(("$share/g/t", 1)) == (1,)
    away.disconnect()
    bridges[1].stop()
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))
    publisher.publish("t", b"1", 1)
    assert former.expect(Publish).payload == b"1"
    (queue,) = {row["DEST"] for row in bridges[0].mq_json("display", "SUB('$share/g:t')", "DEST")}
    bridges[0].mqsc(f"ALTER QLOCAL('{queue}') MAXDEPTH(1)\n")
    former.unsubscribe("$share/g/t")
    publisher.publish("t", b"2", 1)
    former.socket.close()
    until(lambda: "MQRC_Q_FULL" in bridges[0].log, lambda: bridges[0].log)
    publisher.publish("t", b"3", 1)
    assert publisher.subscribe(("u", 1)) == (1,)
    publisher.publish("u", b"u", 1)
    assert publisher.take().payload == b"u"
    assert "shared subscriptions: MQRC_Q_FULL" in str(status(bridges[0])["problems"])
    bridges[1].start()
    away = reconnected(bridges[1], away)
    assert {away.take().payload for _ in range(2)} == {b"1", b"2"}
    # The queue manager did not put the second message to the full queue.
    bridges[0].wait_for_depth("SYSTEM.DEAD.LETTER.QUEUE", 1)


def test_a_shared_subscription_whose_queue_is_inhibited_does_not_affect_others(site: Site) -> None:
    bridge = site.bridge(0).start()
    member = RawClient.connected(bridge.port, client_of(0))
    assert member.subscribe(("$share/g/t", 1), ("$share/g/u", 1)) == (1, 1)
    (queue,) = {row["DEST"] for row in bridge.mq_json("display", "SUB('$share/g:t')", "DEST")}
    bridge.mqsc(f"ALTER QLOCAL('{queue}') GET(DISABLED)\n")
    member.publish("t", b"t", 1)
    member.publish("u", b"u", 1)
    assert member.take().payload == b"u"
    until(lambda: "MQB4220W" in bridge.log, lambda: bridge.log)
    bridge.mqsc(f"ALTER QLOCAL('{queue}') GET(ENABLED)\n")
    assert member.take().payload == b"t"


def test_a_shared_subscription_loses_nothing_when_a_shard_and_the_queue_manager_are_killed(site: Site) -> None:
    bridges = [site.bridge(number).start() for number in range(OF)]
    members = members_of(bridges, clean=False)
    other = RawClient.connected(bridges[0].port, client_of(0, "other"))
    assert other.subscribe(("t", 1)) == (1,)
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))

    def publish(numbers: range) -> None:
        for number in numbers:
            publisher.send(Publish("t", str(number).encode(), 1, False, False, number + 1))

    members[0].disconnect()
    publish(range(20))
    # The shard is killed with messages that its member has not acknowledged, and with requested ones.
    members[1].expect(Publish)
    members[0] = reconnected(bridges[0], members[0])
    publish(range(20, 40))
    bridges[1].kill()
    assert site.queue_manager is not None
    site.queue_manager.kill()
    publish(range(40, 60))
    site.queue_manager.start()
    for _ in range(60):
        publisher.wait_for(Puback)
    bridges[1].start()
    members[1] = reconnected(bridges[1], members[1])
    everything = {str(number).encode() for number in range(60)}
    # The queue manager may have committed messages that the bridge publishes again.
    assert {*itertools.chain(*received(members, 60))} == everything
    assert {*itertools.chain(*received([other], 60))} == everything
    for member in members:
        member.unsubscribe("$share/g/t")
    other.unsubscribe("t")
    assert_nothing_is_left(bridges[0])


def test_a_bridge_that_starts_without_the_queue_manager_serves_its_members_later(site: Site) -> None:
    bridges = [site.bridge(number).start() for number in range(OF)]
    members = members_of(bridges, clean=False)
    for member in members:
        member.disconnect()
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))
    for number in range(20):
        publisher.publish("t", str(number).encode(), 1)
    bridges[1].kill()
    assert site.queue_manager is not None and bridges[1].config is not None
    site.queue_manager.kill()
    with LineProcess([MQBRIDGE, "run", bridges[1].config, "--port", "0"], env=bridges[1].env) as process:
        process.line_where(lambda line: "MQB4003W" in line)
        publisher.send(Publish("t", b"20", 1, False, False, 100))
        site.queue_manager.start()
        line = process.line_where(lambda line: "MQB0012I ready" in line)
        assert publisher.wait_for(Puback).packet_id == 100
        members[1] = RawClient(int(line.rpartition(":")[2]), members[1].packet.client_id, clean=False)
        assert members[1].connect().session_present
        (share,) = received(members[1:], 21)
        assert sorted(map(int, share)) == list(range(21))
        # Each member remains one until it leaves.
        members[1].unsubscribe("$share/g/t")
        members[0] = reconnected(bridges[0], members[0])
        publisher.publish("t", b"21", 1)
        assert members[0].take().payload == b"21"
        members[0].unsubscribe("$share/g/t")
        assert_nothing_is_left(bridges[0])


def test_the_last_members_leave_while_another_one_joins(site: Site) -> None:
    """The new member receives messages whatever the order, and nothing is left when it leaves, too."""
    bridges = [site.bridge(number).start() for number in range(OF)]
    leaving, joining = (
        [RawClient.connected(bridge.port, client_of(number, name)) for number, bridge in enumerate(bridges)]
        for name in ("leaving", "joining")
    )
    publisher = RawClient.connected(bridges[0].port, client_of(0, "publisher"))
    for order in itertools.permutations((*leaving, None)):
        for shard, newcomer in enumerate(joining):
            for member in leaving:
                assert member.subscribe(("$share/g/t", 1)) == (1,)
            for leaver in order:
                if leaver is None:
                    newcomer.send(Subscribe(100, (("$share/g/t", 1),)))
                else:
                    leaver.send(Unsubscribe(100, ("$share/g/t",)))
            assert newcomer.wait_for(Suback).return_codes == (1,)
            for member in leaving:
                member.wait_for(Unsuback)
            publisher.publish("t", b"%d" % shard, 1)
            assert newcomer.take().payload == b"%d" % shard
            newcomer.unsubscribe("$share/g/t")
            assert_nothing_is_left(bridges[0])


@pytest.mark.parametrize(
    ("broken", "repaired", "code"),
    [
        ("ALTER QLOCAL({}) PUT(DISABLED)", "ALTER QLOCAL({}) PUT(ENABLED)", 0x83),
        ("ALTER QLOCAL({}) GET(DISABLED)", "ALTER QLOCAL({}) GET(ENABLED)", 0x80),
        ("DELETE QLOCAL({}) PURGE", "DEFINE QLOCAL({})", 0x83),
    ],
    ids=["put", "get", "deleted"],
)
def test_members_receive_messages_while_no_client_can_join(
    tmp_path: Path, remote: Callable[..., RemoteBridgeProcess], broken: str, repaired: str, code: int
) -> None:
    site = Site(tmp_path, remote, settings="  probe_interval: 1 s\n")
    bridges = [site.bridge(number).start() for number in range(OF)]
    members = members_of(bridges)
    bridges[0].mqsc(broken.format("'SYSTEM.MQTT.SHARE.MEMBERS'") + "\n")
    new = RawClient.connected(bridges[0].port, client_of(0, "new"), level=5)
    assert new.subscribe(("$share/h/t", 1), ("u", 1)) == (code, 1)
    assert "rejected subscription $share/h:t" in bridges[0].log
    for number in range(20):
        new.publish("t", str(number).encode(), 1)
    shares = received(members, 20)
    assert sorted(map(int, itertools.chain(*shares))) == list(range(20))
    members[1].unsubscribe("$share/g/t")
    new.publish("t", b"20", 1)
    assert members[0].take().payload == b"20"
    new.publish("u", b"1", 1)
    assert new.take().payload == b"1"
    bridges[0].mqsc(repaired.format("'SYSTEM.MQTT.SHARE.MEMBERS'") + "\n")
    # If the queue was deleted, its messages are lost: members subscribe again.
    assert members[0].subscribe(("$share/g/t", 1)) == (1,)
    assert new.subscribe(("$share/g/t", 1)) == (1,)
    members[0].unsubscribe("$share/g/t")
    new.publish("t", b"21", 1)
    assert new.take().payload == b"21"
    new.unsubscribe("$share/g/t", "u")
    assert_nothing_is_left(bridges[0])


@PACKAGES
def test_a_bridge_refuses_the_sessions_of_another_number_of_shards(site: Site) -> None:
    site.bridge(0).start().stop()
    with pytest.raises(BridgeFailed) as failed:
        site.bridge(0, "three", of=3).start()
    assert "queue_manager.shard.of is 3, and the sessions on SYSTEM.MQTT.PERSISTENT.STATE.0 belong to 2 shards" in str(
        failed.value
    )


@PACKAGES
def test_a_shard_yields_to_its_standby_and_takes_over_again(site: Site) -> None:
    active, name = site.bridge(0).start(), client_of(0)
    standby = site.bridge(0, "standby")
    client = RawClient.connected(active.port, name, clean=False)
    client.subscribe(("t", 1))
    assert standby.config is not None
    with LineProcess([MQBRIDGE, "run", standby.config, "--port", "0"], env=standby.env) as process:
        process.line_where(lambda line: "MQB0017I" in line)
        assert Administrator(active).does("yield", "--yes") == "finishing work in progress, then standing by\n"
        client.expect_closed()
        line = process.line_where(lambda line: "MQB0012I ready" in line)
        port = int(line.rpartition(":")[2])
        client = RawClient(port, name, clean=False)
        assert client.connect().session_present
        until(lambda: status(active)["state"] == "standing by", lambda: status(active))
        client.publish("t", b"1", 1)
        assert client.take().payload == b"1"
        process.kill()
        until(lambda: status(active)["state"] == "running", lambda: status(active))
        assert "MQB0021I" in active.log


def test_a_bridge_that_yields_without_a_standby_serves_its_clients_again(site: Site) -> None:
    bridge = site.bridge(0).start()
    Administrator(bridge).does("yield", "--yes")
    until(lambda: bridge.log.count("MQB0012I ready") == 2, lambda: bridge.log)


def test_a_bridge_yields_without_a_standby_and_the_queue_manager_restarts_meanwhile(site: Site) -> None:
    """Messages of applications that are put meanwhile reach the session once."""
    process, name = ShardProcess(site, 0, "a", behind_proxy=False), client_of(0)
    manager = site.queue_manager
    assert manager is not None
    try:
        process.start()
        process.mqsc("ALTER QMGR DEFXMITQ('SYSTEM.MQTT.TRANSMIT.QUEUE')\n")
        client = RawClient.connected(process.port, name, clean=False)
        process.request_yield()
        client.expect_closed()
        until(lambda: "MQB0017I" in process.log, lambda: process.log)
        process.mq("put", "commands/reset", "1", "--to", name, "--persistent")
        assert "the bridge is standing by" in process.administrator.refused("yield", "--yes")
        manager.kill()
        manager.start()
        process.mq("put", "commands/reset", "2", "--to", name, "--persistent")
        until(lambda: process.ready, lambda: process.log)
        client = RawClient(process.port, name, clean=False)
        assert client.connect().session_present
        assert [client.take().payload for _ in range(2)] == [b"1", b"2"]
        client.ping()
        assert not client.inbox
        # A signal ends the bridge while it leaves the queue manager to a standby, too.
        process.request_yield()
        client.expect_closed()
        until(lambda: process.log.count("MQB0017I") == 2, lambda: process.log)
        process.restart(signal.SIGTERM)
    finally:
        process.discard()


@pytest.fixture
def pair(site: Site) -> Iterator[list[ShardProcess]]:
    """The active bridge of shard 0, and its standby."""
    limits = "limits: {shutdown_timeout: 1 s}\n"
    processes = [ShardProcess(site, 0, name, behind_proxy=False, config=limits) for name in "ab"]
    try:
        for process in processes:
            process.start()
        yield processes
    finally:
        for process in processes:
            process.discard()


@pytest.mark.parametrize("fault", ["hangs", "dies"])
def test_a_bridge_yields_while_the_queue_manager_does_not_answer(
    site: Site, pair: list[ShardProcess], fault: str
) -> None:
    """When it answers again, exactly one bridge is active. A publication in progress arrives once."""
    active, name = pair[0], client_of(0)
    client = RawClient.connected(active.port, name, clean=False)
    client.subscribe(("t", 2))
    manager = site.queue_manager
    assert manager is not None
    if fault == "hangs":
        manager.pause()
    else:
        manager.kill()
    publish = Publish("t", b"1", 2, False, False, 100)
    client.send(publish)
    active.request_yield()
    client.expect_closed()
    if fault == "hangs":
        manager.resume()
    else:
        manager.start()
    until(lambda: any(process.ready for process in pair), lambda: [process.log for process in pair])
    (served,) = [process for process in pair if process.ready]
    client = RawClient(served.port, name, clean=False)
    assert client.connect().session_present
    client.send(msgspec.structs.replace(publish, dup=True))
    assert client.wait_for(Pubrec).packet_id == 100
    client.send(Pubrel(100))
    assert client.wait_for(Pubcomp).packet_id == 100
    assert client.take().payload == b"1"
    client.ping()
    assert not client.inbox
    # The other one is a standby, and takes over.
    other = pair[1 - pair.index(served)]
    until(lambda: "MQB0017I" in other.log, lambda: other.log)
    assert not other.ready
    served.signal(signal.SIGKILL)
    until(lambda: other.ready, lambda: other.log)
    client = RawClient(other.port, name, clean=False)
    assert client.connect().session_present


def test_the_standby_on_the_preferred_host_becomes_active(site: Site) -> None:
    """It does so although the other one, with a delay, tried first. The delay also applies if no bridge is active."""
    delay = "  standby_delay: 10 min\n"
    other, active, preferred = [
        ShardProcess(site, 0, name, behind_proxy=False, settings=settings)
        for name, settings in (("other", delay), ("active", ""), ("preferred", ""))
    ]
    try:
        for process in (other, active, preferred):
            process.start()
        assert "other bridges may open it for 600 s" in other.log
        assert active.ready
        active.end(signal.SIGKILL)
        until(lambda: preferred.ready, lambda: preferred.log)
        assert other.stands_by and "MQB0012I ready" not in other.log
    finally:
        for process in (other, active, preferred):
            process.discard()


@pytest.mark.parametrize("level", [4, 5])
def test_a_second_connection_takes_over_at_the_shard_of_the_client(site: Site, level: int) -> None:
    """A connection to another shard does not end the first one."""
    bridges, name = [site.bridge(number).start() for number in range(OF)], client_of(1)
    first = RawClient.connected(bridges[1].port, name, level=level, clean=False)
    assert first.subscribe(("t", 1)) == (1,)
    assert RawClient(bridges[0].port, name, level=level, clean=False).connect().return_code != 0
    first.ping()
    second = RawClient(bridges[1].port, name, level=level, clean=False)
    assert second.connect().session_present
    if level == 5:
        assert first.expect(Disconnect).reason_code == ReasonCode.SESSION_TAKEN_OVER
    first.expect_closed()
    RawClient.connected(bridges[0].port, client_of(0)).publish("t", b"1", 1)
    assert second.take().payload == b"1"


def test_a_will_stays_with_its_session(site: Site) -> None:
    """The clients of all shards receive it. If its shard stops, only that one publishes it, and only once."""
    bridges = [site.bridge(number, config="limits: {will_grace: 1 s}\n").start() for number in range(OF)]
    watcher = RawClient.connected(bridges[1].port, client_of(1, "watcher"), clean=False)
    assert watcher.subscribe(("will/#", 1)) == (1,)
    for name, reason in (("lost", None), ("stopped", bridges[0].stop)):
        client = RawClient.connected(bridges[0].port, client_of(0, name), will=Will(f"will/{name}", b"gone", 1))
        if reason is None:
            client.vanish()
            assert watcher.take().topic == "will/lost"
        else:
            reason()
    # The other shard starts again and accepts clients meanwhile.
    watcher.disconnect()
    bridges[1].restart()
    watcher = reconnected(bridges[1], watcher)
    watcher.publish("will/marker", b"", 1)
    assert watcher.take().topic == "will/marker"
    bridges[0].start()
    assert watcher.take().topic == "will/stopped"
    bridges[0].restart()
    watcher.publish("will/marker", b"", 1)
    assert watcher.take().topic == "will/marker"


def test_requests_and_replies_stay_with_their_session(site: Site) -> None:
    """Also if the bridge of the shard is killed before the reply. Replies of applications pass through shard 0."""
    bridges, name = [site.bridge(number).start() for number in range(OF)], client_of(1)
    bridges[0].mqsc(
        "ALTER QMGR DEFXMITQ('SYSTEM.MQTT.TRANSMIT.QUEUE')\nDEFINE QLOCAL(REQUESTS)\nDEFINE QLOCAL(ANSWERS)\n"
        "DEFINE SUB(REQUESTS) TOPICSTR('ask') DEST(REQUESTS)\n"
    )
    device = RawClient.connected(bridges[1].port, name, level=5, clean=False)
    properties = PublishProperties(response_topic="answers/of-device", correlation_data=b"x" * 30)
    device.send(Publish("ask", b"?", 1, False, False, 100, properties))
    assert device.wait_for(Puback).reason_code == 0
    (sent_command,) = bridges[0].mq_json(
        "put", "commands/reset", "now", "--to", name, "--reply-to", "ANSWERS", "--persistent"
    )
    command = device.take()
    # The record of the request is written before the message is removed.
    bridges[1].wait_for_depth("SYSTEM.MQTT.TRANSMIT.QUEUE.1", 0)
    bridges[1].kill()
    (request,) = bridges[0].mq_json("get", "REQUESTS")
    md = request["md"]
    bridges[0].mq("put", md["ReplyToQ"], "42", "--to", md["ReplyToQMgr"], "--correl-id", md["CorrelId"], "--persistent")
    bridges[1].start()
    device = RawClient(bridges[1].port, name, level=5, clean=False)
    assert device.connect().session_present
    reply = device.receive()
    if isinstance(reply, Pubrel):  # the bridge was killed before it received PUBCOMP
        device.send(Pubcomp(reply.packet_id))
        reply = device.receive()
    assert isinstance(reply, Publish) and reply.properties is not None
    device.acknowledge(reply)
    assert (reply.topic, reply.payload, reply.properties.correlation_data) == ("answers/of-device", b"42", b"x" * 30)
    assert command.properties is not None and command.properties.response_topic is not None
    properties = PublishProperties(correlation_data=command.properties.correlation_data)
    device.send(Publish(command.properties.response_topic, b"done", 1, False, False, 101, properties))
    assert device.wait_for(Puback).reason_code == 0
    (answer,) = bridges[0].mq_json("get", "ANSWERS")
    assert (answer["body"], answer["md"]["CorrelId"]) == ("done", sent_command["MsgId"])


def mqtt_31(port: int, client_id: str) -> int:
    """Connect with MQTT 3.1, and return the code of CONNACK."""
    return int(RawClient(port, client_id, level=3).connect().return_code)


def bridge_bit(port: int, client_id: str) -> int:
    """Connect as Mosquitto's bridge does, with bit 7 of the protocol level, and return the code of CONNACK."""
    client = RawClient(port, client_id)
    client.send(msgspec.structs.replace(client.packet, protocol_level=0x84))
    return int(client.expect(Connack).return_code)


def little_endian(port: int, client_id: str) -> int:
    """Connect with the dialect before MQTT 3.1, and return the code of CONNACK."""
    return int(RawClient(port, client_id, level=3, byte_order="little").connect().return_code)


def over_websocket(port: int, client_id: str) -> int:
    """Connect like a browser, and return the code of CONNACK."""
    with websocket(f"ws://127.0.0.1:{port}/mqtt", subprotocols=[Subprotocol("mqtt")]) as connection:
        connection.send(encode(Connect(client_id)))
        frame = connection.recv(PATIENCE)
        assert isinstance(frame, bytes)
        (connack,) = Decoder(server=False, protocol_level=4).feed(frame)
    assert isinstance(connack, Connack)
    return int(connack.return_code)


#: A listener for clients of one shard that HAProxy cannot read, as in docs/how-to/high-availability.md.
LISTENER = """
listen shard-1-{name}
  bind 127.0.0.1:{own}
  option httpchk GET /readyz
  default-server inter 100ms fall 2 rise 1 on-marked-down shutdown-sessions send-proxy-v2
  server host1 127.0.0.1:{port} check port {admin}
"""
#: Clients with listeners of their own: name of the channel, and a function that connects.
OWN = [("SHARD", mqtt_31), ("SHARD", bridge_bit), ("LITTLE", little_endian), ("WEB", over_websocket)]


def test_haproxy_leads_clients_to_their_shards(site: Site, tmp_path: Path) -> None:
    ports = [free_port() for _ in range(OF)]
    options = {"SHARD": "", "LITTLE": ", byte_order: little", "WEB": ", websocket: {}"}
    channels = [f"{{name: {name}, port: 0, proxies: [127.0.0.1]{option}}}" for name, option in options.items()]
    bridges = [
        site.bridge(number, config=f"channels: [{', '.join(channels)}]\nadmin: {{port: {ports[number]}}}\n").start()
        for number in range(OF)
    ]
    listen, own, config = free_port(), {name: free_port() for name in options}, tmp_path / "haproxy.cfg"
    shipped = (ROOT / "deploy" / "haproxy-shards.cfg").read_text()
    config.write_text(
        balanced(
            shipped,
            listen,
            own["SHARD"],
            [[("127.0.0.1", bridge.port, ports[index])] for index, bridge in enumerate(bridges)],
        )
        + "".join(
            LISTENER.format(name=name, own=own[name], port=bridges[1].ports[name], admin=ports[1])
            for name in ("LITTLE", "WEB")
        )
    )
    with LineProcess([program("haproxy", installer="tests/system-packages.sh"), "-db", "-f", config]):
        until(lambda: reachable(listen), lambda: "HAProxy does not listen")
        clients = {}
        for level in (3, 4, 5):
            for number in range(10):
                name = f"v{level}-{number}"
                clients[name] = RawClient(listen, name, level=level)
                assert clients[name].connect().return_code == 0, name
        for shard, bridge in zip(SHARDS, bridges, strict=True):
            connected = Administrator(bridge).clients()
            assert {*connected} == {name for name in clients if shard.owns(name)}
            assert all(client["address"].startswith("127.0.0.1") for client in connected.values())
        # A client without an identifier, and one that HAProxy cannot read: a bridge with the bridge bit.
        assert RawClient(listen, "", level=4).connect().return_code == 0
        assert bridge_bit(listen, client_of(1, "bridge")) == 3
        for name, connect in OWN:
            assert connect(own[name], client_of(1, "own")) == 0, connect
            assert connect(own[name], client_of(0, "own")) == 3, connect


def test_one_command_shows_all_shards(site: Site) -> None:
    bridges = [site.bridge(number).start() for number in range(OF)]
    client = RawClient.connected(bridges[1].port, client_of(1))
    files = [str(bridge.config) for bridge in bridges]
    runner = CliRunner()
    outcome = runner.invoke(program_, ["group", "status", *files, "-o", "json"], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    assert [
        (answer["shard"], answer["status"]["state"], answer["status"]["clients"])
        for answer in json.loads(outcome.stdout)
    ] == [
        ("0 of 2", "running", 0),
        ("1 of 2", "running", 1),
    ]
    client.disconnect()
    bridges[0].stop()
    outcome = runner.invoke(program_, ["group", "status", *files], catch_exceptions=False)
    assert outcome.exit_code == 1 and "no answer" in outcome.stdout
    name = client_of(1)
    location = runner.invoke(program_, ["group", "shard", name, "--config", files[0]], catch_exceptions=False)
    assert location.stdout == "shard 1 of 2\n"


def test_commands_know_the_options_of_a_shard(site: Site, tmp_path: Path) -> None:
    """A reload changes none of them, and names those that need a restart."""
    bridge = site.bridge(1).start()
    assert bridge.config is not None
    administrator, text = Administrator(bridge), bridge.config.read_text()
    line = text[: text.index("  shard:")].count("\n") + 1
    settings = {
        setting["key"]: (setting["value"], setting["source"]) for setting in administrator.json("config", "list")
    }
    for key, value in (("number", "1"), ("of", "2"), ("server_reference", "mqtt-{shard}.example.com")):
        assert settings[f"queue_manager.shard.{key}"] == (value, f"{bridge.config}:{line}")
    edited = tmp_path / "edited.yaml"
    edited.write_text(text.replace("number: 1", "number: 2"))
    mistake = (
        f":{line}:19: queue_manager.shard.number: expected an integer from 0 to 1, because there are 2 shards, found 2"
    )
    assert mistake in administrator.refused("config", "check", str(edited), status=2)
    checked = CliRunner().invoke(program_, ["check", str(edited)], catch_exceptions=False)
    assert checked.exit_code == 2 and f"{edited}{mistake}" in checked.stderr
    bridge.config.write_text(text.replace("of: 2", "of: 3"))
    assert f"queue_manager in {bridge.config} has changed, too: this needs a restart" in administrator.does("reload")
    assert status(bridge)["shard"] == "1 of 2"


def test_one_command_shows_the_shards_of_other_hosts_by_their_admin_ports(site: Site, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("monitor:read:s3cret-of-the-monitor\n")
    tokens.chmod(0o600)
    ports = [free_port() for _ in range(OF)]
    for number, port in enumerate(ports):
        site.bridge(number, config=f"admin: {{port: {port}, token_file: {tokens}}}\n").start()
    token = tmp_path / "token"
    token.write_text("s3cret-of-the-monitor\n")
    words = ["group", "status", f"127.0.0.1:{ports[0]}", f"http://localhost:{ports[1]}", "-o", "json"]
    outcome = CliRunner().invoke(program_, [*words, "--token-file", str(token)], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    assert [
        (answer["bridge"], answer["shard"], answer["status"]["state"]) for answer in json.loads(outcome.stdout)
    ] == [
        (f"http://127.0.0.1:{ports[0]}/", "0 of 2", "running"),
        (f"http://localhost:{ports[1]}", "1 of 2", "running"),
    ]
    outcome = CliRunner().invoke(program_, words, catch_exceptions=False)
    assert outcome.exit_code == 1
    assert all("requires a token" in answer["failure"] for answer in json.loads(outcome.stdout))


def running(bridge: RemoteBridgeProcess, name: str) -> bool:
    """Return whether a mapping, and no other one, runs."""
    return [(mapping["name"], mapping["state"]) for mapping in Administrator(bridge).json("mapping", "list")] == [
        (name, "running")
    ]


def test_mappings_run_in_their_shards(site: Site) -> None:
    mappings = """mappings:
  here: {from: {mqtt: "here/#"}, to: {queue: HERE}}
  there: {from: {mqtt: "there/#"}, to: {queue: THERE}, shard: 1}
"""
    bridges = [site.bridge(number, config=mappings).start() for number in range(OF)]
    bridges[0].mqsc("DEFINE QLOCAL(HERE)\nDEFINE QLOCAL(THERE)\n")
    for bridge, name in zip(bridges, ("here", "there"), strict=True):
        until(partial(running, bridge, name), partial(Administrator(bridge).json, "mapping", "list"))
    assert "mapping there runs in the bridge of shard 1" in bridges[0].log
    # Whatever the shard of the publisher.
    with RawClient.connected(bridges[0].port, client_of(0)) as client:
        client.publish("here/a", b"1", 1)
        client.publish("there/a", b"2", 1)
    bridges[0].wait_for_depth("HERE", 1)
    bridges[0].wait_for_depth("THERE", 1)


def test_haproxy_ends_tls_and_passes_on_the_name_of_the_certificate(site: Site, tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "haproxy.pem").write_text((tmp_path / "server.pem").read_text() + (tmp_path / "server.key").read_text())
    command = ["openssl", "ec", "-in", "client.key", "-passin", "pass:p4ss", "-out", "plain.key"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    admin, listen, config = free_port(), free_port(), tmp_path / "haproxy.cfg"
    channel = "channels: [{name: SHARD, port: 0, proxies: [127.0.0.1], authentication: [{method: certificate}]}]\n"
    bridge = site.bridge(1, config=f"{channel}admin: {{port: {admin}}}\n").start()
    shipped = (ROOT / "deploy" / "haproxy-shards.cfg").read_text()
    config.write_text(balanced(shipped, listen, free_port(), [[], [("127.0.0.1", bridge.port, admin)]], tls=tmp_path))
    options = ["-h", "localhost", "-p", str(listen), "--cafile", tmp_path / "ca.pem", "-i", client_of(1), "-q", "1"]
    options += ["-t", "t", "-m", "1", "--tls-version", "tlsv1.3"]
    with LineProcess([program("haproxy", installer="tests/system-packages.sh"), "-db", "-f", config]):
        until(lambda: reachable(listen), lambda: "HAProxy does not listen")
        certificate = ["--cert", tmp_path / "client.pem", "--key", tmp_path / "plain.key"]
        until(lambda: mosquitto_pub(*options, *certificate) == 0, lambda: bridge.log)
        assert mosquitto_pub(*options) != 0
    assert "connected as user 'client'" in bridge.log


def mosquitto_pub(*options: str | Path) -> int:
    """Run mosquitto_pub, and return its exit status."""
    return subprocess.run(
        [program("mosquitto_pub"), *options], capture_output=True, timeout=PATIENCE, check=False
    ).returncode
