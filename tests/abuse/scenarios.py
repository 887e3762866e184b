"""The attacks. Their bytes are built in advance and sent by raw sockets, since they share the machine with the bridge."""

from __future__ import annotations

import itertools
import random
import select
import socket
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from bridge.wire.mqtt import Connect, Packet, Pingreq, Publish, Subscribe, encode
from tests.abuse.campaign import Scenario, Target
from tests.fuzz.sequences import web_socket

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
    """Return a connection whose CONNECT was accepted; `answers` are the bytes of the answers to the further packets."""
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


def _crowd(
    port: int, count: int, packets: Iterable[bytes], answers: int, receive_buffer: int = 0
) -> list[socket.socket]:
    """Return the connections that the bridge accepted of so many, each of which sends one of `packets`, a CONNECT first.

    `answers` are the bytes that each gets, CONNACK included.
    """
    accepted = []
    for batch in _batches(list(itertools.islice(packets, count)), 100):
        connections = [_open(port, data, receive_buffer) for data in batch]
        for connection in connections:
            try:
                answer = _receive(connection, answers)
            except ConnectionError:
                connection.close()
                continue
            if answer[3]:
                connection.close()
            else:
                accepted.append(connection)
    return accepted


def _batches(items: list[bytes], size: int) -> Iterator[list[bytes]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def _subscribers(port: int, count: int, topic: str, qos: int, receive_buffer: int = 0) -> list[socket.socket]:
    """Return so many clients of MQTT 3.1.1, less those that were rejected, that have subscribed to a topic."""
    subscribe = Subscribe(1, ((topic, qos),))
    packets = (_bytes(Connect(f"subscriber-{number}", "MQTT", 4, keep_alive=0), subscribe) for number in range(count))
    return _crowd(port, count, packets, 4 + 5, receive_buffer)


def _exchange(connection: socket.socket, data: bytes) -> int:
    """Send, discarding what arrives meanwhile, and return how many bytes arrived.

    Raises ConnectionError if the bridge closes the connection.
    """
    left, arrived = memoryview(data), 0
    connection.setblocking(False)
    while left:
        readable, writable, _ = select.select([connection], [connection], [], _TIMEOUT)
        if readable:
            if not (size := len(connection.recv(_RECEIVE))):
                raise ConnectionError("the bridge closed a connection of the attack")
            arrived += size
        if writable:
            left = left[connection.send(left[:_RECEIVE]) :]
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
    """Read until the bridge has answered a PINGREQ and sends nothing more, and return how many bytes arrived."""
    arrived = 0
    while True:
        begun = time.monotonic()
        connection.sendall(_PING)
        connection.settimeout(_TIMEOUT)
        size = 0
        while size < 2:
            size += _read(connection)
        answered = time.monotonic() - begun
        size += _read_until_silent(connection)
        arrived += size
        if size == 2 and answered < _QUIET:
            return arrived


def _read(connection: socket.socket) -> int:
    if not (size := len(connection.recv(_RECEIVE))):
        raise ConnectionError("the bridge closed a connection of the attack")
    return size


def _read_all(connections: list[socket.socket], packet_size: int, qos: int, expected: int) -> int:
    """Read what arrives for ordinary subscribers until all of it has, or nothing more comes; return the number of packets.

    With QoS 1 they acknowledge. All PUBLISH packets have the same size, so that nothing needs to be decoded.
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
            chunk = by_file[number].recv(_RECEIVE)
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
    """One client of MQTT 5 with 5,000 filters that all match its publications of 49 KB in all."""
    levels = "abcdefghijklm"
    filters = [
        "devices/alice/" + "/".join("+" if mask >> place & 1 else level for place, level in enumerate(levels))
        for mask in range(5_000)
    ]
    topic = "devices/alice/" + "/".join(levels)
    target.phase("subscribe")
    connection = _client(target.port, "alice", level=5)
    for number in range(0, 5_000, 1_000):
        asked = tuple((name, qos) for name in filters[number : number + 1_000])
        connection.sendall(_bytes(Subscribe(number + 1, asked), level=5))
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
    """1,000 QoS 1 subscribers that never read, and a publisher as fast as the bridge acknowledges; then all leave at once."""
    target.phase("subscribe")
    subscribers = _subscribers(target.port, 1_000, "t", 1, receive_buffer=4_096)
    publisher = _client(target.port, "publisher")
    target.phase("publish")
    until = time.monotonic() + target.seconds
    sent = acknowledged = 0
    while time.monotonic() < until:
        first = sent % 60_000 + 1
        window = 100 - (sent - acknowledged)
        publisher.sendall(
            b"".join(_bytes(Publish("t", b"x" * 93, 1, False, False, first + offset)) for offset in range(window))
        )
        sent += window
        publisher.settimeout(max(0.1, until - time.monotonic()))
        try:
            acknowledged += _read(publisher) // 4
        except TimeoutError:
            break
    target.phase("leave")
    return f"{len(subscribers)} readers; {acknowledged} publications acknowledged in {target.seconds:.0f} s"


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
    Scenario("slow-readers", _slow_readers),
    # max_connect_size limits the bytes before CONNECT on one connection: 100,000 frames need several connections.
    Scenario("ws-pings", partial(_frames, _WS_PING, connections=50), _WEB_SOCKET),
    Scenario("ws-pings-connected", partial(_frames, _WS_PING, first=_frame(0x82, _CONNECT)), _WEB_SOCKET),
    Scenario("ws-empty", partial(_frames, _frame(0x00, b""), first=_frame(0x02, b""), connections=4), _WEB_SOCKET),
    Scenario("ws-bytes", partial(_frames, _frame(0x82, b"a"), first=_WS_LONG_CONNECT, connections=4), _WEB_SOCKET),
]
