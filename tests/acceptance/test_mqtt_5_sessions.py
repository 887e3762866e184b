"""MQTT 5: sessions, on a raw socket. Each test names the statements that it checks."""

from __future__ import annotations

import msgspec
import pytest

from bridge.mqtt.packets import (
    Connack,
    ConnectProperties,
    Disconnect,
    DisconnectProperties,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Will,
    WillProperties,
)
from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mqtt_5_client import EVERYTHING, client_of, ended, subscribe
from tests.helpers.raw_client import RawClient


@pytest.mark.parametrize(
    ("expiry", "session_present"),
    [(None, False), (0, False), (600, True), (0xFFFFFFFF, True)],
    ids=["absent", "0", "600", "never"],
)
def test_session_expiry_interval(bridge: BridgeProcess, unique: str, expiry: int | None, session_present: bool) -> None:
    """MQTT-3.1.2-4, -5, -6, -23: messages that arrive meanwhile are sent when the client returns, with Session Present."""
    properties = ConnectProperties(session_expiry_interval=expiry)
    with client_of(bridge, unique, clean=True, properties=properties) as client:
        subscribe(client, unique, 1)
        client.send(Disconnect())
        client.expect_closed()
    with client_of(bridge, f"{unique}-2") as other:
        other.publish(unique, b"while away", 1)
    client = RawClient(bridge.port, unique, clean=False, level=5, properties=properties)
    with client:
        assert client.connect().session_present is session_present
        if session_present:
            assert client.take().payload == b"while away"
        client.send(Disconnect(properties=DisconnectProperties(session_expiry_interval=0)))
        client.expect_closed()
    with RawClient(bridge.port, unique, clean=False, level=5) as client:
        assert client.connect().session_present is False


def test_an_expired_session_is_removed_completely(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-4.1.0-2. A will with a longer delay is published when the session ends (MQTT-3.1.3-9)."""
    properties = ConnectProperties(session_expiry_interval=1)
    will = Will(f"{unique}/will", b"gone", 1, properties=WillProperties(will_delay_interval=600))
    with client_of(bridge, f"{unique}-2") as other, client_of(bridge, f"{unique}-3", properties=properties) as stays:
        subscribe(other, f"{unique}/will", 1)
        subscribe(stays, f"{unique}/live", 1)
        with client_of(bridge, unique, properties=properties, will=will) as client:
            subscribe(client, unique, 1)
        other.publish(unique, b"for nobody", 1)
        assert other.take().payload == b"gone"
        other.publish(f"{unique}/live", b"live", 1)
        assert stays.take().payload == b"live"
    with RawClient(bridge.port, unique, clean=False, level=5) as client:
        assert client.connect().session_present is False
        subscribe(client, f"{unique}/end", 0)
        client.publish(f"{unique}/end", b"end")
        assert client.take().payload == b"end"


def test_disconnect_cannot_extend_a_session_with_expiry_0(bridge: BridgeProcess, unique: str) -> None:
    """MQTT 5 section 3.14.2.2.2."""
    with client_of(bridge, unique) as client:
        client.send(Disconnect(properties=DisconnectProperties(session_expiry_interval=60)))
        assert ended(client).reason_code == ReasonCode.PROTOCOL_ERROR


def test_a_durable_session_is_the_same_in_either_version(bridge: BridgeProcess, unique: str) -> None:
    with RawClient.connected(bridge.port, unique, clean=False) as old:
        old.subscribe((unique, 2))
    with client_of(bridge, f"{unique}-2") as other:
        other.send(Publish(unique, b"1", 2, False, False, 1, EVERYTHING))
        other.wait_for(Pubrec)
        other.send(Pubrel(1))
        other.wait_for(Pubcomp)
    with RawClient(bridge.port, unique, clean=False, level=5) as client:
        assert client.connect().session_present
        publication = client.expect(Publish)
        assert (publication.payload, publication.properties) == (b"1", EVERYTHING)
    with RawClient(bridge.port, unique, clean=False) as old:
        assert old.connect().session_present
        again = old.expect(Publish)
        assert (again.payload, again.dup, again.packet_id) == (b"1", True, publication.packet_id)
        old.acknowledge(again)
    with RawClient.connected(bridge.port, unique):
        pass


@pytest.mark.parametrize("taken_over", [False, True], ids=["lost", "taken over"])
def test_unfinished_messages_are_sent_again(bridge: BridgeProcess, unique: str, taken_over: bool) -> None:
    """MQTT-4.4.0-1, MQTT-3.3.1-1, MQTT-4.3.3-5, -6: PUBLISH with DUP, or PUBREL, with the same message ids, in order."""
    session = ConnectProperties(session_expiry_interval=600)
    with client_of(bridge, f"{unique}-2") as other, client_of(bridge, unique, properties=session) as first:
        subscribe(first, f"{unique}/1", 1)
        subscribe(first, f"{unique}/2", 2)
        for number in range(6):
            other.publish(f"{unique}/{number % 2 + 1}", b"%d" % number, 2)
        sent = [first.wait_for(Publish) for _ in range(6)]
        assert not any(publication.dup for publication in sent)
        first.acknowledge(sent[0])
        first.acknowledge(sent[1])
        first.send(Pubrec(sent[3].packet_id))
        first.wait_for(Pubrel)
        first.ping()
        if not taken_over:
            first.vanish()
        with RawClient(bridge.port, unique, clean=False, level=5, properties=session) as second:
            assert second.connect().session_present
            again = [second.receive() for _ in range(4)]
            assert [packet for packet in again if isinstance(packet, Pubrel)] == [Pubrel(sent[3].packet_id)]
            assert [packet for packet in again if isinstance(packet, Publish)] == [
                msgspec.structs.replace(sent[number], dup=True) for number in (2, 4, 5)
            ]
            second.send(Pubcomp(sent[3].packet_id))
            for packet in again:
                if isinstance(packet, Publish):
                    second.acknowledge(packet)
            second.ping()
            assert not second.inbox
        with RawClient(bridge.port, unique, clean=False, level=5, properties=ConnectProperties()) as third:
            assert third.connect().session_present
            third.ping()
            assert not third.inbox, "all is finished"


def test_the_latest_interval_applies(bridge: BridgeProcess, unique: str) -> None:
    """Sections 3.1.2.11.2 and 3.14.2.2.2: the interval in CONNECT of a resumed session, or in DISCONNECT, replaces the
    previous one.
    """
    short, long = ConnectProperties(session_expiry_interval=1), ConnectProperties(session_expiry_interval=600)
    will = Will(unique, b"over", 1, properties=WillProperties(will_delay_interval=600))
    with client_of(bridge, f"{unique}-w") as witness:
        subscribe(witness, unique, 1)
        with client_of(bridge, f"{unique}-1", properties=short) as client:
            client.send(Disconnect(properties=DisconnectProperties(session_expiry_interval=600)))
            client.expect_closed()
        for properties in (short, long):
            with client_of(bridge, f"{unique}-2", clean=properties is short, properties=properties):
                pass
        with client_of(bridge, f"{unique}-3", properties=short, will=will):
            pass
        assert witness.take().payload == b"over", "a session of one second has ended since"
    for name, present in (("1", True), ("2", True), ("3", False)):
        with RawClient(bridge.port, f"{unique}-{name}", clean=False, level=5, properties=ConnectProperties()) as client:
            assert client.connect().session_present is present
    with RawClient(bridge.port, f"{unique}-1", clean=False, level=5) as client:
        assert client.connect().session_present is False, "the last CONNECT gave no interval"
        client.send(Disconnect(properties=DisconnectProperties(session_expiry_interval=0)))
        client.expect_closed()


def test_a_rejected_connect_does_not_change_a_session(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.2.2-6, MQTT-3.2.2-3, MQTT-3.1.2-24: such a CONNACK is longer than the client accepts."""
    session = ConnectProperties(session_expiry_interval=600)
    with client_of(bridge, unique, properties=session) as first:
        refused = ConnectProperties(session_expiry_interval=600, maximum_packet_size=10)
        with RawClient(bridge.port, unique, clean=True, level=5, properties=refused) as second:
            assert second.connect() == Connack(ReasonCode.PACKET_TOO_LARGE)
            second.expect_closed()
        first.ping()
    with RawClient(bridge.port, unique, clean=False, level=5, properties=ConnectProperties()) as client:
        assert client.connect().session_present


def test_assigned_identifiers_are_valid_identifiers(bridge: BridgeProcess) -> None:
    """MQTT-3.1.3-6, -7, MQTT-3.2.2-16: each is different, and a client finds its session with it."""
    session = ConnectProperties(session_expiry_interval=600)
    names = set()
    for _ in range(2):
        with RawClient(bridge.port, "", level=5, clean=True, properties=session) as client:
            connack = client.connect()
            assert connack.properties is not None and connack.properties.assigned_client_identifier
            names.add(connack.properties.assigned_client_identifier)
    assert len(names) == 2
    for name in names:
        with RawClient(bridge.port, name, level=5, clean=False, properties=ConnectProperties()) as client:
            connack = client.connect()
            assert connack.session_present
            assert connack.properties is not None and connack.properties.assigned_client_identifier is None
