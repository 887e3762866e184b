"""Connecting: contents of CONNECT and SUBSCRIBE, rejections, states, the log, keep-alive, and the end."""

from __future__ import annotations

import itertools
import logging
import math
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bridge.link import attempts
from bridge.link import connection as link_connection
from bridge.link.state import LinkPhase
from bridge.parking import Pause
from bridge.telemetry.message import Publication
from tests.helpers.fake_broker import (
    DISCONNECT,
    PINGREQ,
    PUBACK,
    PUBLISH,
    SUBSCRIBE,
    FakeBroker,
    answer,
    packet,
    properties_of,
)
from tests.helpers.mosquitto import free_port
from tests.helpers.patience import PATIENCE, until
from tests.helpers.tested_link import LinkFactory, calling

CLEAN, PASSWORD, USER = 0x02, 0x40, 0x80


@pytest.mark.parametrize(
    ("session", "clean", "flags", "expiry"),
    [
        ("durable", None, 0, 0xFFFFFFFF),
        ("clean", None, CLEAN, None),
        # A link that only sends does not need a session.
        ("durable", True, CLEAN, None),
    ],
)
def test_connect(
    broker: FakeBroker, link: LinkFactory, session: str, clean: bool | None, flags: int, expiry: int | None
) -> None:
    link(broker.port, broker.version, "me", session=session, clean=clean, keep_alive=7.5, in_flight=9)
    _, body = broker.connecting()
    assert body[:10] == b"\0\x04MQTT" + bytes((5 if broker.version == "5" else 4, flags, 0, 8))
    if broker.version == "5":
        properties: Any = Properties(PacketTypes.CONNECT)
        _, length = properties.unpack(body[10:])
        assert properties.ReceiveMaximum == 9
        assert getattr(properties, "SessionExpiryInterval", None) == expiry
        assert not hasattr(properties, "TopicAliasMaximum")
        assert body[10 + length :] == b"\0\x02me"
    else:
        assert body[10:] == b"\0\x02me"


def test_connect_contains_user_and_password(broker: FakeBroker, link: LinkFactory) -> None:
    link(broker.port, broker.version, user="maria", password="s3cret")
    _, body = broker.connecting()
    assert body[7] == USER | PASSWORD
    assert body.endswith(b"\0\x05maria\0\x06s3cret")


@pytest.mark.parametrize(("options", "level"), [({}, 4), ({"bridge_bit": True}, 0x84)])
def test_the_bridge_bit_is_bit_7_of_the_protocol_level(
    link: LinkFactory, options: dict[str, bool], level: int, impatient: None
) -> None:
    broker = FakeBroker("3.1.1")
    refused = link(broker.port, broker.version, **options)
    peer, body = broker.connecting()
    assert body[:7] == b"\0\4MQTT" + bytes((level,))
    peer.send(peer.connack(reason=1))
    assert ("bridge_bit" in refused.state_where(LinkPhase.WAITING).error) is bool(options)
    broker.close()


@pytest.mark.parametrize(("topic_filter", "options"), [("t/#", 0x1E), ("$share/g/t", 0x1A)])
def test_subscribe(broker: FakeBroker, link: LinkFactory, topic_filter: str, options: int) -> None:
    """MQTT 5: QoS 2, No Local except for shared subscriptions, Retain As Published, retained messages for a new one only."""
    link(broker.port, broker.version, topic_filter=topic_filter, qos=2)
    peer, _ = broker.connecting()
    peer.send(peer.connack())
    (body,) = peer.expect(SUBSCRIBE)
    # An id that no publication has.
    assert body[:2] == b"\xff\xff"
    assert body.endswith(topic_filter.encode() + bytes((options if broker.version == "5" else 2,)))


@pytest.mark.parametrize("present", [True, False])
def test_a_lost_subscription_is_made_again(
    broker: FakeBroker, link: LinkFactory, present: bool, impatient: None
) -> None:
    """MQTT 3.1.1 sends all retained publications at each SUBSCRIBE, so SUBSCRIBE is sent only if necessary."""
    receiver = link(broker.port, broker.version, topic_filter="t", qos=1)
    # In a new process, the session may have the subscription of a mapping that was changed since then.
    peer = broker.connected(present=True, subscribes=1)
    receiver.state_where(LinkPhase.CONNECTED)
    peer.close()
    again = broker.version == "5" or not present
    broker.connected(present=present, subscribes=1 if again else None)
    receiver.state_where(LinkPhase.CONNECTED)


@pytest.mark.parametrize(
    ("version", "reason", "name", "slowly"),
    [
        ("5", 0x86, "Bad user name or password", True),
        ("5", 0x87, "Not authorized", True),
        ("5", 0x85, "Client identifier not valid", True),
        ("5", 0x84, "Unsupported protocol version", True),
        ("5", 0x01, "Unsupported protocol version", True),
        ("5", 0x89, "Server busy", False),
        ("3.1.1", 1, "Unsupported protocol version", False),
        ("3.1.1", 2, "Client identifier not valid", True),
        ("3.1.1", 3, "Server unavailable", False),
        ("3.1.1", 4, "Bad user name or password", True),
        ("3.1.1", 5, "Not authorized", True),
    ],
)
def test_a_rejected_connect_is_reported_by_name(
    link: LinkFactory,
    reason: int,
    name: str,
    slowly: bool,
    version: str,
    caplog: pytest.LogCaptureFixture,
    impatient: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempts, "REFUSED_PAUSE", 0.3)
    broker = FakeBroker(version)
    refused = link(broker.port, version, user="u", password="s3cret")
    peer, _ = broker.connecting()
    with caplog.at_level(logging.DEBUG):
        peer.send(peer.connack(reason=reason))
        state = refused.state_where(LinkPhase.WAITING)
    assert name in state.error
    assert (state.pause >= 0.3) is slowly
    assert f"127.0.0.1:{broker.port}" in caplog.text
    assert name in caplog.text
    assert "s3cret" not in caplog.text + repr(refused.state)
    broker.connected()
    assert refused.state_where(LinkPhase.CONNECTED).error == ""
    broker.close()


def test_the_reason_string_of_the_broker_is_reported(broker_5: FakeBroker, link: LinkFactory, impatient: None) -> None:
    refused = link(broker_5.port)
    peer, _ = broker_5.connecting()
    peer.send(peer.connack(reason=0x87, properties=properties_of(PacketTypes.CONNACK, ReasonString="not on Sundays")))
    assert "Not authorized (not on Sundays)" in refused.state_where(LinkPhase.WAITING).error
    peer = broker_5.connected()
    peer.send(packet(DISCONNECT, b"\x8e", properties_of(PacketTypes.DISCONNECT, ReasonString="by your brother")))
    assert "Session taken over (by your brother)" in refused.state_where(LinkPhase.WAITING).error


@pytest.mark.parametrize(("version", "reason", "name"), [("5", 0x87, "Not authorized"), ("3.1.1", 0x80, "Unspecified")])
def test_a_rejected_subscription_is_reported_and_retried(
    link: LinkFactory, version: str, reason: int, name: str, broker: FakeBroker, impatient: None
) -> None:
    refused = link(broker.port, version, topic_filter="secret/#", qos=1)
    broker.connected(subscribes=reason)
    error = refused.state_where(LinkPhase.WAITING).error
    assert name in error and "secret/#" in error
    assert not refused.wait_connected(0)
    broker.connected(subscribes=1)
    refused.state_where(LinkPhase.CONNECTED)


def test_an_invalid_filter_is_reported(broker: FakeBroker, link: LinkFactory, impatient: None) -> None:
    wrong = link(broker.port, broker.version, topic_filter="a#")
    peer, _ = broker.connecting()
    peer.send(peer.connack())
    assert "'a#' is not a valid topic filter" in wrong.state_where(LinkPhase.WAITING).error


def test_a_granted_qos_below_the_requested_one_is_reported(
    broker: FakeBroker, link: LinkFactory, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = link(broker.port, broker.version, topic_filter="t", qos=2)
    broker.connected(subscribes=1)
    receiver.state_where(LinkPhase.CONNECTED)
    assert receiver.granted_qos == 1
    assert "only QoS 1 instead of 2" in caplog.text


def test_waiting_can_be_limited_to_the_first_attempt(link: LinkFactory) -> None:
    unreachable = link(free_port())
    assert not unreachable.wait_connected(24 * 3600, once=True)
    assert "refused" in unreachable.state_where(LinkPhase.WAITING).error


def test_many_failures_cause_few_log_lines(
    link: LinkFactory, caplog: pytest.LogCaptureFixture, impatient: None
) -> None:
    port = free_port()
    with caplog.at_level(logging.DEBUG):
        unreachable = link(port)
        states = [unreachable.state_where(LinkPhase.WAITING) for _ in range(12)]
    assert all("refused" in state.error for state in states)
    lines = [record.getMessage() for record in caplog.records if "connecting to" in record.getMessage()]
    assert len(lines) == 2
    assert all(f"127.0.0.1:{port}" in line and "Connection refused" in line for line in lines)


def test_pauses_grow_up_to_a_limit(link: LinkFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(attempts, "LONGEST_PAUSE", 0.016)
    unreachable = link(free_port())
    pauses = [unreachable.state_where(LinkPhase.WAITING).pause for _ in range(8)]
    least = [0.001, 0.002, 0.004, 0.008, 0.016, 0.016, 0.016, 0.016]
    assert all(low <= pause <= 1.5 * low for low, pause in zip(least, pauses, strict=True)), pauses


def test_a_reset_back_off_starts_with_the_shortest_pause(
    broker: FakeBroker, link: LinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(link_connection, "SETTLED", 1e9)
    cut = link(broker.port, broker.version)
    for _ in range(3):
        broker.connected().close()
    pauses = [cut.state_where(LinkPhase.WAITING).pause for _ in range(3)]
    peer = broker.connected()
    assert cut.wait_connected(PATIENCE)
    cut.reset_back_off()
    peer.close()
    pauses.append(cut.state_where(LinkPhase.WAITING).pause)
    least = [0.001, 0.002, 0.004, 0.001]
    assert all(low <= pause <= 1.5 * low for low, pause in zip(least, pauses, strict=True)), pauses


def test_a_stable_connection_is_restored_at_once(
    broker: FakeBroker, link: LinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_connection, "SETTLED", 0.0)
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 1e6)
    settled = link(broker.port, broker.version)
    broker.connected().close()
    broker.connected()
    phases = [settled.states.get(timeout=PATIENCE).phase for _ in range(4)]
    assert phases == [LinkPhase.CONNECTING, LinkPhase.CONNECTED, LinkPhase.CONNECTING, LinkPhase.CONNECTING]
    assert settled.state_where(LinkPhase.CONNECTED)


@pytest.mark.parametrize("settled", [0.0, math.inf])
def test_an_idle_link_that_loses_its_connection_reconnects(
    broker: FakeBroker, link: LinkFactory, impatient: None, monkeypatch: pytest.MonkeyPatch, settled: float
) -> None:
    """Its thread has ended, and another one continues."""
    monkeypatch.setattr(link_connection, "TURN", 0.05)
    monkeypatch.setattr(link_connection, "SETTLED", settled)
    connected = link(broker.port, broker.version, topic_filter="t", qos=1)
    for _ in range(3):
        peer = broker.connected(subscribes=1)
        connected.state_where(LinkPhase.CONNECTED)
        until(lambda: connected.idle)
        peer.close()
    peer = broker.connected(subscribes=1)
    peer.send(peer.publish("t", 1, qos=1))
    assert len(connected.take_all(1)) == 1


@pytest.mark.parametrize(("turn", "pauses"), [(0.05, True), (1.0, False)])
def test_an_idle_link_wakes_up_for_its_keep_alive(
    broker: FakeBroker, link: LinkFactory, monkeypatch: pytest.MonkeyPatch, turn: float, pauses: bool
) -> None:
    """A strict broker closes the connection after one and a half times the keep-alive."""
    seconds: list[float] = []

    def pause(fd: int, due: float) -> Pause:
        seconds.append(due)
        connected.waits.append(due)
        return Pause(fd, due)

    monkeypatch.setattr(link_connection, "TURN", turn)
    monkeypatch.setattr(link_connection, "Pause", pause)
    connected = link(broker.port, broker.version, keep_alive=1)
    peer = broker.connected()
    for _ in range(2):
        peer.expect(PINGREQ)
        peer.send(b"\xd0\0")
    assert bool(seconds) is pauses
    assert all(turn < due <= 1 for due in seconds)
    # A pause is not followed by another wait.
    after = [wait for due, wait in itertools.pairwise(connected.waits) if due in seconds]
    assert after == [0.0] * len(after)


@pytest.mark.parametrize(
    ("keep_alive", "server_keep_alive", "first"), [(1000, 1, 0), (1, 1000, 900), (1, 0, math.inf), (1000, None, 900)]
)
def test_the_server_keep_alive_replaces_that_of_the_link(
    broker_5: FakeBroker,
    link: LinkFactory,
    monkeypatch: pytest.MonkeyPatch,
    keep_alive: int,
    server_keep_alive: int | None,
    first: float,
) -> None:
    """MQTT-3.1.2-21: also for an idle link, which has no thread until PINGREQ is due."""
    seconds: list[float] = []

    def pause(fd: int, due: float) -> Pause:
        seconds.append(due)
        return Pause(fd, due)

    monkeypatch.setattr(link_connection, "TURN", 0.05)
    monkeypatch.setattr(link_connection, "Pause", pause)
    link(broker_5.port, keep_alive=keep_alive)
    granted = {} if server_keep_alive is None else {"ServerKeepAlive": server_keep_alive}
    peer = broker_5.connected(properties=properties_of(PacketTypes.CONNACK, **granted))
    if server_keep_alive == 1:
        for _ in range(2):
            peer.expect(PINGREQ)
            peer.send(b"\xd0\0")
    else:
        until(lambda: seconds)
        assert seconds[0] >= first


def test_a_continued_session_that_a_clean_link_did_not_request_ends_the_connection(
    broker_5: FakeBroker, link: LinkFactory, impatient: None
) -> None:
    """MQTT-3.2.2-4. The link tries again, and nothing of the connection reaches its worker."""
    cut = link(broker_5.port, session="clean", topic_filter="t", qos=1)
    for _ in range(2):
        peer, _ = broker_5.connecting()
        peer.send(peer.connack(present=True))
        assert "MQTT-3.2.2-4" in cut.state_where(LinkPhase.WAITING).error
        with pytest.raises(EOFError):
            peer.packet()
    broker_5.connected(subscribes=1)
    cut.state_where(LinkPhase.CONNECTED)
    assert cut.sessions == [False]


def test_a_broker_that_is_silent_for_longer_than_keep_alive_is_disconnected(
    broker: FakeBroker, link: LinkFactory, impatient: None
) -> None:
    tested_link = link(broker.port, broker.version, keep_alive=1)
    peer = broker.connected()
    peer.expect(PINGREQ)
    assert "Keep alive timeout" in tested_link.state_where(LinkPhase.WAITING).error


@pytest.mark.parametrize("answering", ["nothing", "CONNACK"])
def test_a_broker_that_never_answers_is_disconnected(
    broker: FakeBroker, link: LinkFactory, answering: str, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    monkeypatch.setattr(link_connection, "ANSWER_TIME", 0.01)
    monkeypatch.setattr(link_connection, "TURN", 0.01)
    tested_link = link(broker.port, broker.version, topic_filter="t")
    peer, _ = broker.connecting()
    if answering == "CONNACK":
        peer.send(peer.connack())
        assert tested_link.state_where(LinkPhase.WAITING).error in (
            "no SUBACK within 0.01 s",
            "no CONNACK within 0.01 s",
        )
    else:
        assert tested_link.state_where(LinkPhase.WAITING).error == "no CONNACK within 0.01 s"


def test_stop_sends_queued_packets_and_disconnects(broker: FakeBroker, link: LinkFactory) -> None:
    stopping = link(broker.port, broker.version, topic_filter="t", qos=1)
    peer = broker.connected(subscribes=1)
    peer.send(*(peer.publish("t", packet_id, qos=1) for packet_id in range(1, 101)))
    stopping.acknowledge(stopping.take_all(100))
    assert stopping.stop(PATIENCE)
    assert peer.packet_ids(PUBACK, 100) == list(range(1, 101))
    assert peer.packet()[0] == DISCONNECT
    with pytest.raises(EOFError):
        peer.packet()
    assert stopping.state_where(LinkPhase.STOPPED).error == ""


def test_stop_while_it_waits(link: LinkFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 1e6)
    monkeypatch.setattr(attempts, "LONGEST_PAUSE", 1e6)
    waiting = link(free_port())
    waiting.state_where(LinkPhase.WAITING)
    assert waiting.stop(PATIENCE)
    assert waiting.state.phase == LinkPhase.STOPPED


def test_stop_before_the_broker_has_answered(broker: FakeBroker, link: LinkFactory) -> None:
    connected = link(broker.port, broker.version)
    broker.connecting()
    assert connected.stop(PATIENCE)
    assert connected.state_where(LinkPhase.STOPPED).error == ""


def test_a_batch_larger_than_the_socket_buffers(broker: FakeBroker, link: LinkFactory) -> None:
    sender = link(broker.port, broker.version)
    peer = broker.connected()
    sender.state_where(LinkPhase.CONNECTED)
    call = calling(sender.publish, [Publication(topic="t", payload=bytes([i]) * 1_000_000, qos=1) for i in range(20)])
    for index in range(20):
        first, body = peer.packet()
        assert (first, body[-1_000_000:]) == (PUBLISH | 2, bytes([index]) * 1_000_000)
        peer.send(answer(PUBACK, int.from_bytes(body[3:5], "big")))
    assert call.result(PATIENCE) == {}


def test_a_missing_password_is_read_again(broker_5: FakeBroker, link: LinkFactory, impatient: None) -> None:
    reads: list[int] = []

    def password() -> str:
        reads.append(1)
        if len(reads) < 3:
            raise OSError("password_file: no such file")
        return "s3cret"

    connected = link(broker_5.port, user="maria", password=password)
    _, connect = broker_5.connecting()
    assert connect.endswith(b"\0\6s3cret")
    assert len(reads) == 3
    assert connected.state.error == "" or "password_file" in connected.state.error
