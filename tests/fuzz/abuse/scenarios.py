"""The attacks. Their bytes are prepared in advance and sent by raw sockets, because they share the machine with the
bridge.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from bridge.mqtt.packets import Connect, Disconnect, Packet, Pingreq, Puback, Publish, Subscribe, Unsubscribe, Will
from bridge.mqtt.writer import encode
from tests.fuzz.abuse.campaign import Scenario, Target
from tests.fuzz.sequences import web_socket
from tests.helpers.raw_client import RawClient

_RECEIVE: Final = 1 << 18
_PING: Final = encode(Pingreq())
#: Seconds without any byte after which a connection counts as silent.
_QUIET: Final = 0.5
#: Seconds after which an attack stops waiting for the bridge.
_TIMEOUT: Final = 120.0


def _bytes(*packets: Packet, level: int = 4) -> bytes:
    return b"".join(encode(packet, "big", level) for packet in packets)


def _open(port: int, data: bytes = b"", receive_buffer: int = 0) -> socket.socket:
    """Return a connection that has sent some bytes."""
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(_TIMEOUT)
    connection.connect(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(data)
    return connection


def _client(
    port: int, name: str, *packets: Packet, level: int = 4, clean: bool = True, answers: int = 0
) -> socket.socket:
    """Return a connection whose CONNECT was accepted. `answers` is the number of bytes of the answers to the
    further packets.
    """
    connect = Connect(name, "MQTT", level, clean_session=clean, keep_alive=0)
    connection = _open(port, _bytes(connect, *packets, level=level))
    connack = _receive(connection, 2)
    connack += _receive(connection, connack[1])
    if connack[3]:
        raise ConnectionError(f"CONNECT of {name} was rejected with {connack[3]:#04x}")
    _receive(connection, answers)
    return connection


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (chunk := connection.recv(size - len(data))):
            raise ConnectionError("the bridge closed a connection of the attack")
        data += chunk
    return data


def _crowd(port: int, packets: list[bytes], answers: int, receive_buffer: int = 0) -> list[socket.socket]:
    """Return the accepted connections, one for each of `packets`, which begin with CONNECT.

    `answers` is the number of bytes that each gets, including CONNACK.
    """
    accepted = []
    for first in range(0, len(packets), 100):
        for connection in [_open(port, data, receive_buffer) for data in packets[first : first + 100]]:
            try:
                answer = _receive(connection, answers)
            except ConnectionError:
                answer = b"rejected"
            if answer[3]:
                connection.close()
            else:
                accepted.append(connection)
    return accepted


def _subscribers(port: int, count: int, topic: str, qos: int, receive_buffer: int = 0) -> list[socket.socket]:
    """Return this number of clients of MQTT 3.1.1, except rejected ones, that have subscribed to a topic."""
    subscribe = Subscribe(1, ((topic, qos),))
    packets = [_bytes(Connect(f"subscriber-{number}", "MQTT", 4, keep_alive=0), subscribe) for number in range(count)]
    return _crowd(port, packets, 4 + 5, receive_buffer)


def _exchange(connection: socket.socket, data: bytes) -> int:
    """Send, and discard received data. Return how many bytes arrived.

    Raises ConnectionError if the bridge closes the connection.
    """
    unsent, arrived = memoryview(data), 0
    connection.setblocking(False)
    while unsent:
        readable, writable, _ = select.select([connection], [connection], [], _TIMEOUT)
        if readable:
            if not (size := len(connection.recv(_RECEIVE))):
                raise ConnectionError("the bridge closed a connection of the attack")
            arrived += size
        if writable:
            unsent = unsent[connection.send(unsent[:_RECEIVE]) :]
        if not readable and not writable:
            raise TimeoutError(f"the bridge reads nothing for {_TIMEOUT:.0f} s")
    connection.settimeout(_TIMEOUT)
    return arrived


def _read_until_silent(connection: socket.socket) -> int:
    """Read until nothing arrives for a moment, and return how many bytes arrived."""
    connection.settimeout(_QUIET)
    size = 0
    try:
        while True:
            size += _read(connection)
    except TimeoutError:
        return size


def _settle(connection: socket.socket) -> int:
    """Read until the bridge has answered a PINGREQ and sends nothing more. Return how many other bytes arrived."""
    arrived = 0
    while True:
        start = time.monotonic()
        connection.sendall(_PING)
        connection.settimeout(_TIMEOUT)
        size = 0
        while size < 2:
            size += _read(connection)
        answered = time.monotonic() - start
        size += _read_until_silent(connection)
        arrived += size - 2
        if size == 2 and answered < _QUIET:
            return arrived


def _read(connection: socket.socket) -> int:
    if not (size := len(connection.recv(_RECEIVE))):
        raise ConnectionError("the bridge closed a connection of the attack")
    return size


def _publish(
    connection: socket.socket, topic: str, payload: bytes, window: int, seconds: float, count: int = 10**9
) -> int:
    """Publish with QoS 1, this number of messages at a time. Return how many were acknowledged."""
    start, _, end = _bytes(Publish(topic, payload, 1, False, False, 0xABCD)).partition(b"\xab\xcd")
    until = time.monotonic() + seconds
    sent = acknowledged = rest = 0
    while acknowledged < count and time.monotonic() < until:
        room = min(window - (sent - acknowledged), count - sent)
        numbers = range(sent, sent + room)
        connection.sendall(b"".join(start + (number % 65_535 + 1).to_bytes(2, "big") + end for number in numbers))
        sent += room
        connection.settimeout(max(0.1, until - time.monotonic()))
        try:
            rest += _read(connection)
        except TimeoutError:
            break
        acknowledged += rest // 4
        rest %= 4
    connection.settimeout(_TIMEOUT)
    return acknowledged


def _read_all(connections: list[socket.socket], packet_size: int, qos: int, expected: int) -> int:
    """Read the data for ordinary subscribers until everything has arrived, or nothing more arrives. Return the number of
    packets.

    With QoS 1 they acknowledge. All PUBLISH packets have the same size, so nothing needs to be decoded.
    """
    poll = select.epoll()
    partial_packets: dict[int, bytes] = {}
    by_file = {connection.fileno(): connection for connection in connections}
    for number, connection in by_file.items():
        connection.setblocking(False)
        poll.register(number, select.EPOLLIN)
    arrived, quiet_at = 0, time.monotonic() + 20
    while arrived < expected * packet_size and time.monotonic() < quiet_at:
        for number, _ in poll.poll(1.0):
            try:
                chunk = by_file[number].recv(_RECEIVE)
            except ConnectionError:
                chunk = b""
            if not chunk:
                poll.unregister(number)
                continue
            arrived += len(chunk)
            quiet_at = time.monotonic() + 20
            if qos:
                data = partial_packets.get(number, b"") + chunk
                end = len(data) - len(data) % packet_size
                partial_packets[number] = data[end:]
                # The packet identifier follows the fixed header and the topic, "t".
                by_file[number].send(b"".join(b"\x40\x02" + data[at + 5 : at + 7] for at in range(0, end, packet_size)))
    return arrived // packet_size


# Subscriptions -------------------------------------------------------------------------------------------------------


def _overlapping(target: Target, qos: int) -> str:
    """One client of MQTT 5 with 5,000 filters, all of which match its publications of 49 KB in total."""
    levels = "abcdefghijklm"
    filters = [
        "devices/alice/" + "/".join("+" if mask >> place & 1 else level for place, level in enumerate(levels))
        for mask in range(5_000)
    ]
    topic = "devices/alice/" + "/".join(levels)
    target.phase("subscribe")
    connection = _client(target.port, "alice", level=5)
    for number in range(0, 5_000, 1_000):
        filters_and_qos = tuple((name, qos) for name in filters[number : number + 1_000])
        connection.sendall(_bytes(Subscribe(number + 1, filters_and_qos), level=5))
    _settle(connection)
    target.phase("publish")
    packets: list[bytes] = []
    while sum(map(len, packets)) < 49_000:
        number = len(packets) + 1
        packets.append(_bytes(Publish(topic, b"1", qos, False, False, number if qos else 0), level=5))
    connection.sendall(b"".join(packets))
    arrived = _settle(connection)
    target.phase("leave")
    return f"{len(packets)} publications; {arrived / 1e6:.1f} MB arrived"


def _burst(target: Target, qos: int) -> str:
    """2,000 ordinary subscribers of one topic, and a burst of 31 KB of publications."""
    target.phase("subscribe")
    subscribers = _subscribers(target.port, 2_000, "t", qos)
    publisher = _client(target.port, "publisher")
    target.phase("publish")
    publications = [_bytes(Publish("t", b"x" * 93, qos, False, False, number * qos)) for number in range(1, 311)]
    publisher.sendall(b"".join(publications))
    expected = len(subscribers) * len(publications)
    size = len(_bytes(Publish("t", b"x" * 93, qos, False, False, qos)))
    arrived = _read_all(subscribers, size, qos, expected)
    target.phase("leave")
    return f"{len(subscribers)} subscribers; {arrived} of {expected} messages arrived"


def _slow_readers(target: Target) -> str:
    """1,000 QoS 1 subscribers that never read, and a publisher as fast as the bridge acknowledges. Then all disconnect at
    once.
    """
    target.phase("subscribe")
    subscribers = _subscribers(target.port, 1_000, "t", 1, receive_buffer=4_096)
    publisher = _client(target.port, "publisher")
    target.phase("publish")
    acknowledged = _publish(publisher, "t", b"x" * 93, window=100, seconds=target.seconds)
    target.phase("leave")
    return f"{len(subscribers)} readers; {acknowledged} publications acknowledged in {target.seconds:.0f} s"


def _many_filters(target: Target) -> str:
    """One client that subscribes to 65,000 filters, unsubscribes from them in one packet, subscribes again and
    disconnects.
    """
    names = [f"filters/{number}" for number in range(65_000)]
    subscribe = [
        _bytes(Subscribe(first + 1, tuple((name, 1) for name in names[first : first + 1_000])))
        for first in range(0, 65_000, 1_000)
    ]
    connection = _client(target.port, "greedy")
    granted = 0
    for phase in ("subscribe", "unsubscribe", "subscribe again"):
        target.phase(phase)
        if phase == "unsubscribe":
            connection.sendall(_bytes(Unsubscribe(1, tuple(names))))
            _receive(connection, 4)
            continue
        connection.sendall(b"".join(subscribe))
        for _ in subscribe:
            granted += _receive(connection, 5 + 1_000).count(1, 5)
    target.phase("leave")
    return f"{granted} of 2 x 65000 filters granted"


def _matching(target: Target, length: int) -> str:
    """5,000 filters that differ from topics of 128 levels only in the last level: one publication, then 10 at once."""
    levels = ["a"] * 13 + ["b" * ((length - 26) // 114 - 1)] * 114
    topics = ["/".join([*levels, f"z{number}"]) for number in range(11)]
    filters = [
        "/".join("+" if place > 12 or mask >> place & 1 else "a" for place in range(127)) + "/y"
        for mask in range(5_000)
    ]
    target.phase("subscribe")
    connection = _client(target.port, "subscriber", level=5)
    for first in range(0, 5_000, 1_000):
        filters_and_qos = tuple((name, 0) for name in filters[first : first + 1_000])
        connection.sendall(_bytes(Subscribe(first + 1, filters_and_qos), level=5))
    _settle(connection)
    for published in (topics[:1], topics[1:]):
        target.phase(f"publish {len(published)}")
        connection.sendall(_bytes(*(Publish(topic, b"1") for topic in published), level=5))
        _settle(connection)
    target.phase("leave")
    return f"topics of {len(topics[0])} bytes"


# Messages and sessions that stay -------------------------------------------------------------------------------------


def _large_messages(target: Target, stored: bool) -> str:
    """Four clients that publish messages of 4 MB with QoS 1 for 5 s, without waiting for acknowledgements.

    The messages wait for a durable session if `stored`.
    """
    if stored:
        asleep = _client(target.port, "asleep", Subscribe(1, (("large", 1),)), clean=False, answers=5)
        asleep.sendall(_bytes(Disconnect()))
    start, _, end = _bytes(Publish("large", b"x" * 4_000_000, 1, False, False, 0xABCD)).partition(b"\xab\xcd")
    connections = [_client(target.port, f"publisher-{number}") for number in range(4)]
    target.phase("publish")
    until = time.monotonic() + 5

    def publish(connection: socket.socket) -> int:
        count = 0
        while time.monotonic() < until:
            count += 1
            for part in (start, count.to_bytes(2, "big"), end):
                connection.sendall(part)
        return count

    with ThreadPoolExecutor() as threads:
        counts = list(threads.map(publish, connections))
    target.phase("settle")
    for connection, count in zip(connections, counts, strict=True):
        _receive(connection, 4 * count)
    return f"{sum(counts)} messages acknowledged"


def _purge(target: Target, count: int) -> str:
    """A durable session for which many messages wait is ended by a CONNECT with Clean Start."""
    asleep = _client(target.port, "asleep", Subscribe(1, (("t", 1),)), clean=False, answers=5)
    asleep.sendall(_bytes(Disconnect()))
    target.phase("fill")
    publisher = _client(target.port, "publisher")
    acknowledged = _publish(publisher, "t", b"x" * 20, window=1_000, seconds=_TIMEOUT, count=count)
    target.phase("purge")
    start = time.monotonic()
    _client(target.port, "asleep")
    return f"{acknowledged} messages; CONNACK after {time.monotonic() - start:.1f} s"


def _sessions(target: Target) -> str:
    """5,000 durable sessions of one address, each with a subscription. Then each is ended by a CONNECT with Clean Start."""
    names = [f"session-{number}" for number in range(5_000)]
    target.phase("open")
    subscribe = Subscribe(1, (("sessions/+", 1),))
    opening = [_bytes(Connect(name, "MQTT", 4, clean_session=False, keep_alive=0), subscribe) for name in names]
    accepted = _crowd(target.port, opening, 4 + 5)
    target.phase("leave")
    for connection in accepted:
        connection.close()
    target.phase("purge")
    purged = len(
        _crowd(target.port, [_bytes(Connect(name, "MQTT", 4, keep_alive=0), Disconnect()) for name in names], 4)
    )
    return f"{len(accepted)} sessions opened, {purged} ended"


def _retained(target: Target) -> str:
    """60 client identifiers of one user retain as much of 1 GB as the bridge accepts, in messages of 64 KB. A subscriber gets
    them.
    """
    target.phase("retain")
    until = time.monotonic() + 60
    stored = refused = 0
    for number in range(60):
        with RawClient.connected(target.port, f"hoarder-{number}", level=5, user_name="hoarder") as client:
            packets = [
                Publish(f"retained/{number}/{index}", b"x" * 64_000, 1, True, False, index) for index in range(1, 262)
            ]
            for first in range(0, len(packets), 20):
                client.send(*packets[first : first + 20])
                codes = [client.expect(Puback).reason_code for _ in packets[first : first + 20]]
                refused += sum(code >= 0x80 for code in codes)
                stored += sum(code < 0x80 for code in codes)
            if time.monotonic() > until:
                break
    target.phase("replay")
    subscriber = _client(target.port, "subscriber", Subscribe(1, (("retained/#", 0),)))
    arrived = _settle(subscriber)
    return f"{stored * 0.064:.0f} MB retained, {refused * 0.064:.0f} MB refused; {arrived / 1e6:.0f} MB replayed"


def _wills(target: Target) -> str:
    """1,000 clients whose wills go to one topic with 500 subscribers, all of which are reset at once."""
    target.phase("connect")
    subscribers = _subscribers(target.port, 500, "t", 0)
    will = Will("t", b"x" * 93)
    connects = [_bytes(Connect(f"mortal-{number}", "MQTT", 4, keep_alive=0, will=will)) for number in range(1_000)]
    mortals = _crowd(target.port, connects, 4)
    target.phase("reset")
    expected = len(mortals) * len(subscribers)
    for connection in mortals:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    arrived = _read_all(subscribers, len(_bytes(Publish("t", b"x" * 93))), 0, expected)
    target.phase("leave")
    return f"{len(mortals)} wills; {arrived} of {expected} messages arrived"


# Before CONNECT ------------------------------------------------------------------------------------------------------

_WEB_SOCKET: Final = "channels: [{name: PLAIN, port: 0}, {name: WS, port: 0, websocket: {}}]\n"
_MASK: Final = bytes(4)


def _frame(first_byte: int, payload: bytes) -> bytes:
    """Return a short frame of a client, with a mask of zeros."""
    return bytes([first_byte, 0x80 | len(payload)]) + _MASK + payload


def _web_socket(port: int) -> socket.socket:
    """Return a connection whose opening handshake was accepted."""
    connection = _open(port, web_socket(random.Random(0))[0])
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += _receive(connection, 1)
    return connection


def _frames(frame: bytes, target: Target, first: bytes = b"", connections: int = 1) -> str:
    """Send 100,000 equal frames over some connections, each of which begins with `first`."""
    opened = [_web_socket(target.ports["WS"]) for _ in range(connections)]
    target.phase("frames")
    data = first + frame * (100_000 // connections)
    closed = 0
    for connection in opened:
        try:
            _exchange(connection, data)
        except ConnectionError:
            closed += 1
    for connection in opened:
        try:
            _read_until_silent(connection)
        except ConnectionError:
            closed += 1
    return f"{connections * len(data) / 1e6:.1f} MB; the bridge closed {closed} of {connections} connections"


_CONNECT: Final = _bytes(Connect("web", "MQTT", 4, keep_alive=0))
_WS_PING: Final = _frame(0x89, b"x" * 100)
#: The beginning of a CONNECT packet of 200,000 bytes, which 100,000 frames of one byte do not complete.
_WS_LONG_CONNECT: Final = _frame(0x82, b"\x10\xc0\x9a\x0c\x00\x04MQTT\x04\x02\x00\x00\xff\xff")


SCENARIOS: Final = [
    Scenario("overlapping-qos0", partial(_overlapping, qos=0)),
    Scenario("overlapping-qos1", partial(_overlapping, qos=1)),
    Scenario("burst-qos0", partial(_burst, qos=0)),
    Scenario("burst-qos1", partial(_burst, qos=1)),
    # By default, a quarter of the machine's memory is for messages that wait.
    Scenario("slow-readers", _slow_readers, "limits: {waiting_total: 100 MiB, waiting_full: end-session}\n"),
    Scenario("large-messages", partial(_large_messages, stored=False)),
    Scenario("large-messages-stored", partial(_large_messages, stored=True)),
    Scenario("purge-200000", partial(_purge, count=200_000)),
    Scenario("purge-1000000", partial(_purge, count=1_000_000)),
    Scenario("many-filters", _many_filters),
    Scenario("sessions", _sessions),
    Scenario("retained", _retained),
    Scenario("matching", partial(_matching, length=60_000)),
    Scenario("matching-short", partial(_matching, length=9_000)),
    Scenario("wills", _wills),
    # max_connect_size limits the bytes before CONNECT on one connection: 100,000 frames need several connections.
    Scenario("ws-pings", partial(_frames, _WS_PING, connections=50), _WEB_SOCKET),
    Scenario("ws-pings-connected", partial(_frames, _WS_PING, first=_frame(0x82, _CONNECT)), _WEB_SOCKET),
    Scenario("ws-empty", partial(_frames, _frame(0x00, b""), first=_frame(0x02, b""), connections=4), _WEB_SOCKET),
    Scenario("ws-bytes", partial(_frames, _frame(0x82, b"a"), first=_WS_LONG_CONNECT, connections=4), _WEB_SOCKET),
]
