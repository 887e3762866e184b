"""State that survives a stop and a kill of the bridge: one restart for all tests on a queue manager.

Each scene is a generator. The bridge runs each of them up to its `yield`, restarts once, and then runs the rest of each.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator

import msgspec
import paho.mqtt.client as paho
import pytest

from bridge.mqtt.packets import (
    ConnectProperties,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    PublishProperties,
    Pubrec,
    Pubrel,
)
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work, bridge_on
from tests.helpers.mosquitto import Subscriber, publish
from tests.helpers.mqtt_5_client import EVERYTHING, client_of, subscribe
from tests.helpers.paho_clients import PahoClient
from tests.helpers.patience import PATIENCE, eventually
from tests.helpers.raw_client import ConnectionClosed, RawClient
from tests.helpers.remote_bridge import RemoteBridgeProcess

STATE = "SYSTEM.MQTT.PERSISTENT.STATE"
DLQ = "SYSTEM.DEAD.LETTER.QUEUE"
LASTING = ConnectProperties(session_expiry_interval=600)
#: A scene takes a bridge, and a word for the names of its clients, topics and queues. The word begins with the way in which
#: the bridge ends.
Scene = Callable[[BridgeProcess, str], Iterator[None]]


def durable_session(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """Subscriptions and waiting messages of QoS 1 and 2 survive, a clean session does not, and Session Present shows it."""
    for level in (3, 4):
        with RawClient.connected(bridge.port, f"{word}-{level}", clean=False, level=level) as client:
            assert client.subscribe((f"{word}/news/+", 2), (f"{word}/old/#", 1), (f"{word}/gone", 2)) == (2, 1, 2)
            client.unsubscribe(f"{word}/gone")
            client.disconnect()
    with (
        RawClient.connected(bridge.port, f"{word}-clean") as clean,
        RawClient.connected(bridge.port, f"{word}-p") as sender,
    ):
        clean.subscribe((f"{word}/news/+", 2))
        sender.publish(f"{word}/news/1", b"one", 1)
        sender.publish(f"{word}/old/2", b"two", 2)
        sender.publish(f"{word}/gone", b"not wanted", 2)
        yield
    with RawClient.connected(bridge.port, f"{word}-p") as sender:
        sender.publish(f"{word}/news/3", b"three", 2)
        sender.publish(f"{word}/gone", b"not wanted", 2)
        sender.publish(f"{word}/old/end", b"", 1)
    for level in (3, 4):
        with RawClient(bridge.port, f"{word}-{level}", clean=False, level=level) as client:
            assert client.connect().session_present is (level == 4)
            received = [client.take() for _ in range(4)]
            assert [
                (publication.topic, publication.payload, publication.qos, publication.retain)
                for publication in received
            ] == [
                (f"{word}/news/1", b"one", 1, False),
                (f"{word}/old/2", b"two", 1, False),
                (f"{word}/news/3", b"three", 2, False),
                (f"{word}/old/end", b"", 1, False),
            ]
            client.disconnect()
    with RawClient(bridge.port, f"{word}-clean", clean=False) as client:
        assert client.connect().session_present is False


def unacknowledged_messages(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """MQTT-4.4.0-1, MQTT-3.3.1-1: same packet identifiers, same order, DUP. Acknowledged messages are not repeated."""
    first: dict[int, list[Publish]] = {}
    for qos in (1, 2):
        topic = f"{word}/{qos}"
        with RawClient.connected(bridge.port, f"{word}-{qos}", clean=False) as client:
            client.subscribe((topic, qos))
            with RawClient.connected(bridge.port, f"{word}-p") as sender:
                for number in range(5):
                    sender.publish(topic, b"%d" % number, qos)
            first[qos] = [client.expect(Publish) for _ in range(5)]
            assert not any(publish.dup for publish in first[qos])
            client.acknowledge(first[qos][0])
            client.ping()
            client.disconnect()
    yield
    for qos in (1, 2):
        with RawClient(bridge.port, f"{word}-{qos}", clean=False) as client:
            assert client.connect().session_present
            _take_again(client, qos, first[qos], killed=word.startswith("kill"))


def _take_again(client: RawClient, qos: int, first: list[Publish], *, killed: bool) -> None:
    """All except the first one, which was acknowledged, are repeated."""
    again: list[Publish] = []
    while len(again) < 4:
        packet = client.receive()
        if type(packet) is Pubrel and killed:
            # The end of the first exchange, which nothing acknowledges, may not have been recorded yet.
            assert packet.packet_id == first[0].packet_id
            client.send(Pubcomp(packet.packet_id))
        elif type(packet) is Publish and packet.packet_id == first[0].packet_id and killed:
            # The same applies to a PUBACK: a remote queue manager may not have been told yet.
            assert qos == 1 and packet.dup and not again
            client.acknowledge(packet)
        else:
            assert type(packet) is Publish, packet
            again.append(packet)
    assert again == [msgspec.structs.replace(publication, dup=True) for publication in first[1:]]
    for publication in again:
        client.acknowledge(publication)
    client.send(Pingreq())
    client.expect(Pingresp)


def pubrel(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """After PUBREC, the message is never repeated, but its PUBREL is."""
    with RawClient.connected(bridge.port, word, clean=False) as client:
        client.subscribe((word, 2))
        client.publish(word, b"once", 2)
        sent = client.expect(Publish)
        client.send(Pubrec(sent.packet_id))
        assert client.expect(Pubrel).packet_id == sent.packet_id
    yield
    for _ in range(2):
        with RawClient(bridge.port, word, clean=False) as client:
            assert client.connect().session_present
            assert client.expect(Pubrel).packet_id == sent.packet_id
    with RawClient.connected(bridge.port, word, clean=False) as client:
        assert client.expect(Pubrel).packet_id == sent.packet_id
        client.send(Pubcomp(sent.packet_id))
        client.send(Pingreq())
        client.expect(Pingresp)
        client.publish(word, b"next", 2)
        assert client.take().payload == b"next"


def direct_messages(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """Persistent ones wait on the queue for a durable session. The session keeps its DEFAULT.QoS."""
    with RawClient.connected(bridge.port, word, clean=False) as client:
        client.subscribe(("DEFAULT.QoS", 1))
        client.disconnect()
    bridge.mq("put", "cmd", "kept", "--to", word, "--persistent")
    yield
    bridge.mq("put", "cmd", "in memory", "--to", word)
    with RawClient.connected(bridge.port, word, clean=False) as client:
        assert [(publication.payload, publication.qos) for publication in (client.take(), client.take())] == [
            (b"kept", 1),
            (b"in memory", 1),
        ]


def mqtt_5_session(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """MQTT-3.1.2-5, -23: options and identifiers of subscriptions, properties of waiting and of retained messages."""
    own, topic, shared = f"{word}/own", f"{word}/t/1", f"{word}/s"
    sent_properties = msgspec.structs.replace(EVERYTHING, message_expiry_interval=600)
    with client_of(bridge, word, properties=LASTING) as client:
        subscribe(client, own, 1, identifier=1, no_local=True)
        subscribe(client, f"{word}/t/+", 2, identifier=2)
        subscribe(client, f"$share/{word}/{shared}", 1, identifier=3)
        client.publish(own, b"own before", 1)
    with client_of(bridge, f"{word}-p") as other:
        for qos in (1, 2):
            other.send(Publish(topic, b"%d" % qos, qos, True, False, qos, sent_properties))
        other.wait_for(Puback)
        other.wait_for(Pubrec)
        other.send(Pubrel(2))
        other.wait_for(Pubcomp)
        other.publish(own, b"other's", 1)
        other.publish(shared, b"shared", 1)
    yield
    with RawClient(bridge.port, word, level=5, clean=False, properties=LASTING) as client:
        assert client.connect().session_present
        client.publish(own, b"own behind", 1)
        subscribe(client, f"{word}/t/+", 2, identifier=4, retain_handling=1)
        received = {}
        for _ in range(4):
            publication = client.wait_for(Publish)
            client.acknowledge(publication)
            received[publication.payload] = publication.qos, publication.properties
        expiry = received[b"1"][1].message_expiry_interval if received[b"1"][1] is not None else None
        assert expiry is not None and 0 < expiry <= 600
        waited = msgspec.structs.replace(sent_properties, subscription_identifier=(2,))
        assert {payload: (qos, _same_expiry(properties)) for payload, (qos, properties) in received.items()} == {
            b"1": (1, waited),
            b"2": (2, waited),
            b"other's": (1, PublishProperties(subscription_identifier=(1,))),
            b"shared": (1, PublishProperties(subscription_identifier=(3,))),
        }
        subscribe(client, topic, 2)
        retained = client.take()
        assert (retained.payload, retained.retain, _same_expiry(retained.properties)) == (b"2", True, sent_properties)


def _same_expiry(properties: PublishProperties | None) -> PublishProperties | None:
    """Properties with the original Message Expiry Interval, if they have one."""
    if properties is None or properties.message_expiry_interval is None:
        return properties
    return msgspec.structs.replace(properties, message_expiry_interval=600)


def retained_publications(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """Persistent ones survive. A cleared one does not return."""
    with RawClient.connected(bridge.port, f"{word}-p") as sender:
        sender.publish(f"{word}/kept", b"first", 1, retain=True)
        sender.publish(f"{word}/kept", b"last", 1, retain=True)
        sender.publish(f"{word}/cleared", b"x", 2, retain=True)
        sender.publish(f"{word}/cleared", b"", 2, retain=True)
    yield
    with RawClient.connected(bridge.port, f"{word}-l") as late:
        late.subscribe((f"{word}/#", 2))
        publication = late.take()
        assert (publication.topic, publication.payload, publication.qos, publication.retain) == (
            f"{word}/kept",
            b"last",
            1,
            True,
        )
        late.publish(f"{word}/end", b"", 1)
        assert late.take().topic == f"{word}/end"


def subscription_of_an_application(bridge: BridgeProcess, word: str) -> Iterator[None]:
    options = (f"{word}/#", "--durable", word, "--wait", "0")
    assert bridge.run_mq("sub", *options).returncode == 0
    with RawClient.connected(bridge.port, f"{word}-p") as sender:
        sender.publish(f"{word}/1", b"one", 1)
    yield
    with RawClient.connected(bridge.port, f"{word}-p") as sender:
        sender.publish(f"{word}/2", b"two", 2)
    assert bridge.mq("sub", *options, "--limit", "0").splitlines() == ["one", "two"]
    bridge.mq("sub", *options, "--limit", "0", "--remove")
    assert bridge.run_mq("display", f"SUB({word})").returncode == 3


def requests_of_a_device(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """Their Response Topic and Correlation Data are still known. The end of a session removes its requests."""
    queue = f"{word}.REQUESTS"
    bridge.mqsc(f"DEFINE QLOCAL('{queue}')\nDEFINE SUB('{queue}') TOPICSTR('{word}/ask') DEST('{queue}')\n")

    def ask(client: RawClient, number: int) -> None:
        correlation_data = b"%d" % number * 25
        properties = PublishProperties(
            response_topic=f"{client.packet.client_id}/{number}", correlation_data=correlation_data
        )
        client.send(Publish(f"{word}/ask", b"?", 1, False, False, number + 1, properties))
        assert client.expect(Puback) == Puback(number + 1)

    with client_of(bridge, word, clean=False, properties=LASTING) as client:
        for number in range(3):
            ask(client, number)
    with client_of(bridge, f"{word}-ended", clean=False, properties=LASTING) as client:
        ask(client, 0)
        client.disconnect()
    client_of(bridge, f"{word}-ended").disconnect()
    yield
    assert f"{word}-ended/0" not in json.dumps(bridge.messages(STATE))
    for number in range(3):
        (request,) = bridge.mq_json("get", queue, "--wait", "5")
        md = request["md"]
        bridge.mq("put", md["ReplyToQ"], str(number), "--to", md["ReplyToQMgr"], "--correl-id", md["CorrelId"])
    with client_of(bridge, word, clean=False, properties=LASTING) as client:
        for number in range(3):
            answer = client.take()
            assert (answer.topic, answer.payload) == (f"{word}/{number}", b"%d" % number)
            assert answer.properties is not None and answer.properties.correlation_data == b"%d" % number * 25


def request_of_an_application(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """A device answers it after the restart."""
    queue = f"{word}.ANSWERS"
    bridge.mqsc(f"DEFINE QLOCAL('{queue}')\n")
    client = client_of(bridge, word, clean=False, properties=LASTING)
    (sent_request,) = bridge.mq_json("put", "cmd/restart", "now", "--to", word, "--reply-to", queue)
    request = client.take()
    # The record is put with the message, not before.
    eventually(lambda: any("replyKey" in str(message["body"]) for message in bridge.messages(STATE)), True)
    yield
    with client_of(bridge, word, clean=False, properties=LASTING) as client:
        assert request.properties is not None
        properties = PublishProperties(correlation_data=request.properties.correlation_data)
        client.send(Publish(request.properties.response_topic or "", b"done", 1, False, False, 1, properties))
        assert client.wait_for(Puback) == Puback(1), "PUBREL may come again: PUBCOMP was perhaps not on record"
    (answered,) = bridge.mq_json("get", queue)
    assert answered["md"]["CorrelId"] == sent_request["MsgId"]


def message_among_the_records_of_sessions(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """It goes to the dead-letter queue once. On IBM MQ the start fails, because MQXR has a queue of the same name."""
    if isinstance(bridge, RemoteBridgeProcess):
        yield
        return
    (put,) = bridge.mq_json("put", STATE, word)
    yield
    (letter,) = (message for message in bridge.messages(DLQ) if message["body"] == word)
    fields = [letter["md"]["MsgId"], letter["dlh"]["ReasonName"], letter["dlh"]["DestQName"]]
    assert fields == [put["MsgId"], "MQRC_FORMAT_ERROR", STATE]
    assert word not in [message["body"] for message in bridge.messages(STATE)]


def share_of_absent_members(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """The share stores messages, and the first member that returns gets them, whatever its protocol level."""
    share = f"$share/{word}/{word}/+"
    for level in (3, 4, 5):
        with RawClient.connected(bridge.port, f"{word}-{level}", level=level, clean=False) as member:
            assert member.subscribe((share, 1)) == (1,)
            member.disconnect()
    with RawClient.connected(bridge.port, f"{word}-p") as sender:
        for number in range(50):
            sender.publish(f"{word}/x", b"%d" % number, 1)
    yield
    level = 5 if word.startswith("kill") else 3
    with RawClient.connected(bridge.port, f"{word}-{level}", level=level, clean=False) as back:
        received = [back.take() for _ in range(50)]
        assert [int(publication.payload) for publication in received] == list(range(50)) and not any(
            publication.dup for publication in received
        )
        back.publish(f"{word}/y", b"50", 1)
        assert back.take().payload == b"50"
        back.disconnect()
    for level in (3, 4, 5):
        RawClient.connected(
            bridge.port, f"{word}-{level}", level=level
        ).disconnect()  # a clean session ends the durable one
    eventually(lambda: bridge.run_mq("display", f"SUB('$share/{word}*')").returncode, 3)


def share_of_connected_members(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """Nothing is lost, and each member gets its messages in order."""
    share, count, levels = f"$share/{word}/{word}", 400, (4, 5)
    members = [RawClient.connected(bridge.port, f"{word}-{level}", clean=False, level=level) for level in levels]
    for member in members:
        assert member.subscribe((share, 1)) == (1,)
    with RawClient.connected(bridge.port, f"{word}-p") as sender:
        for number in range(count):
            sender.publish(word, b"%d" % number, 1)
    numbers_received = {int(member.take().payload) for member in members for _ in range(50)}
    yield
    for member in members:
        with contextlib.suppress(ConnectionClosed):
            while True:
                member.fill()
        numbers_received |= {int(packet.payload) for packet in member.inbox if isinstance(packet, Publish)}
    back = [RawClient.connected(bridge.port, f"{word}-{level}", clean=False, level=level) for level in levels]
    with RawClient.connected(bridge.port, f"{word}-p") as sender:
        for number in range(count, count + 20):
            sender.publish(word, b"%d" % number, 1)
    numbers: list[list[int]] = [[], []]

    def complete() -> bool:
        for member, received in zip(back, numbers, strict=True):
            with contextlib.suppress(TimeoutError):
                member.fill(0.02)
            while member.inbox:
                publication = member.expect(Publish)
                member.acknowledge(publication)
                received.append(int(publication.payload))
        return numbers_received.union(*numbers) == set(range(count + 20))

    eventually(complete, True)
    assert all(received == sorted(received) for received in numbers)
    for member in back:
        member.vanish()


def share_that_was_left(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """Messages that a member had not acknowledged when it unsubscribed survive, whether it is connected or not."""
    members: list[RawClient] = []
    cases = [(level, connected) for level in (4, 5) for connected in (True, False)]
    with contextlib.ExitStack() as stack:
        for level, connected in cases:
            name = f"{word}-{level}-{connected}"
            member = stack.enter_context(RawClient.connected(bridge.port, name, clean=False, level=level))
            member.subscribe((f"$share/{name}/{name}", 1))
            with RawClient.connected(bridge.port, f"{word}-p") as sender:
                for number in range(4):
                    sender.publish(name, b"%d" % number, 1)
            sent = [member.expect(Publish) for _ in range(4)]
            member.send(Puback(sent[0].packet_id))
            member.unsubscribe(f"$share/{name}/{name}")
            if not connected:
                member.disconnect()
            members.append(member)
        yield
    for level, connected in cases:
        name = f"{word}-{level}-{connected}"
        with RawClient(bridge.port, name, clean=False, level=level) as member:
            assert member.connect().session_present
            again = [member.take() for _ in range(3)]
            assert [(publication.payload, publication.dup) for publication in again] == [
                (b"1", True),
                (b"2", True),
                (b"3", True),
            ]
            with RawClient.connected(bridge.port, f"{word}-p") as sender:
                sender.publish(name, b"not wanted", 1)
            member.ping()
            assert not member.inbox
    eventually(lambda: bridge.run_mq("display", f"SUB('$share/{word}*')").returncode, 3)


def mosquitto_sub(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """Its subscriptions and messages survive, whether it uses MQTT 3.1, 3.1.1 or 5."""
    versions = ("mqttv31", "mqttv311", "mqttv5")
    durable = {
        version: {"qos": 2, "version": version, "options": ("-c", "-i", f"{word}-{version}")} for version in versions
    }
    for version in versions:
        with Subscriber(bridge.port, f"{word}/{version}/#", **durable[version]) as subscriber:
            subscriber.stop()
        publish(bridge.port, f"{word}/{version}/1", "before", qos=2, version=version)
    yield
    for version in versions:
        root = f"{word}/{version}"
        publish(bridge.port, f"{root}/2", "after", qos=1, version=version)
        with Subscriber(bridge.port, f"{root}/#", **durable[version]) as subscriber:
            assert sorted((subscriber.message() for _ in range(2)), key=lambda message: message["topic"]) == [
                {"topic": f"{root}/1", "payload": "before", "qos": 2, "retain": 0},
                {"topic": f"{root}/2", "payload": "after", "qos": 1, "retain": 0},
            ]
            publish(bridge.port, f"{root}/3", "live", qos=0, version=version)
            assert subscriber.message() == {"topic": f"{root}/3", "payload": "live", "qos": 0, "retain": 0}


def paho_subscribers(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """They reconnect automatically, and find their subscriptions and all messages published meanwhile."""
    protocols = (paho.MQTTv31, paho.MQTTv311)
    with contextlib.ExitStack() as stack:
        clients = [PahoClient(bridge.port, f"{word}-{protocol}", protocol, clean=False) for protocol in protocols]
        keepers = [stack.enter_context(client) for client in clients]
        for keeper in keepers:
            assert not keeper.session_present
            keeper.subscribe((f"{word}/#", 2))
        for sender in keepers:
            sender.publish(f"{word}/0", b"before", 2)
            assert [keeper.take() for keeper in keepers] == [(f"{word}/0", b"before", 2, False)] * 2
        yield
        with RawClient.connected(bridge.port, f"{word}-p") as raw:
            for qos in (1, 2):
                raw.publish(f"{word}/1", b"%d" % qos, qos)
        # MQTT 3.1 has no session present flag.
        assert [keeper.wait_connected() for keeper in keepers] == [False, True]
        for keeper in keepers:
            assert [keeper.take() for _ in range(2)] == [(f"{word}/1", b"%d" % qos, qos, False) for qos in (1, 2)]


def paho_publishers(bridge: BridgeProcess, word: str) -> Iterator[None]:
    """paho sends unacknowledged messages again. All arrive in order, with QoS 2 once."""
    count, protocols = 500, (paho.MQTTv31, paho.MQTTv311, paho.MQTTv5)
    for protocol in protocols:
        with PahoClient(bridge.port, f"{word}-{protocol}", protocol, clean=False) as keeper:
            keeper.subscribe((f"{word}/{protocol}", 2))
    with contextlib.ExitStack() as stack:
        # paho forgets a PUBREL at the second failed attempt to connect (`_messages_reconnect_reset_out`), and publishes
        # released messages again. So there is one attempt, which succeeds.
        senders, infos = {}, []
        for protocol in protocols:
            sender = PahoClient(bridge.port, f"{word}-p{protocol}", protocol, clean=False, reconnects=False)
            senders[protocol] = stack.enter_context(sender)
        for protocol, sender in senders.items():
            infos += [sender.client.publish(f"{word}/{protocol}", b"%d" % number, 2) for number in range(count // 2)]
        yield
        for protocol, sender in senders.items():
            sender.reconnect()
            infos += [
                sender.client.publish(f"{word}/{protocol}", b"%d" % number, 2) for number in range(count // 2, count)
            ]
        for info in infos:
            info.wait_for_publish(PATIENCE)
            assert info.is_published()
    for protocol in protocols:
        with PahoClient(bridge.port, f"{word}-{protocol}", protocol, clean=False) as keeper:
            assert [int(keeper.take()[1]) for _ in range(count)] == list(range(count))


#: The last one has messages in flight when the bridge ends.
SCENES: tuple[Scene, ...] = (
    durable_session,
    unacknowledged_messages,
    pubrel,
    direct_messages,
    mqtt_5_session,
    retained_publications,
    subscription_of_an_application,
    requests_of_a_device,
    request_of_an_application,
    message_among_the_records_of_sessions,
    share_of_absent_members,
    share_of_connected_members,
    share_that_was_left,
    mosquitto_sub,
    paho_subscribers,
    paho_publishers,
)


@pytest.fixture(scope="module")
def bridge(queue_manager: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    with at_work(bridge_on(queue_manager, tmp_path_factory.mktemp("restart") / "data")) as process:
        yield process


@pytest.fixture(scope="module", params=["stop", "kill"])
def restarted(
    request: pytest.FixtureRequest, bridge: BridgeProcess
) -> Iterator[dict[Scene, Iterator[None] | Exception]]:
    """Run the second halves of all scenes, or return the error that ended the first half."""
    scenes: dict[Scene, Iterator[None] | Exception] = {}
    for number, scene in enumerate(SCENES):
        running = scene(bridge, f"{request.param}{number}")
        try:
            next(running)
            scenes[scene] = running
        except Exception as error:
            scenes[scene] = error
    if request.param == "kill":
        bridge.kill()
    else:
        assert bridge.stop() == 0, bridge.log
    bridge.start()
    yield scenes


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_restart(restarted: dict[Scene, Iterator[None] | Exception], scene: Scene) -> None:
    running = restarted[scene]
    if isinstance(running, Exception):
        raise running
    assert next(running, "ended") == "ended"
