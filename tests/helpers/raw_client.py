"""A small MQTT client on a raw socket without own behaviour: a test decides about each packet."""

from __future__ import annotations

import socket
from collections import deque
from typing import Self, TypeVar

import pytest

from bridge.mqtt.packets import (
    ByteOrder,
    Connack,
    Connect,
    ConnectProperties,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from bridge.mqtt.reader import Decoder
from bridge.mqtt.writer import encode
from tests.helpers.patience import PATIENCE

P = TypeVar("P", bound=Packet)

#: For tests that run on each protocol level.
LEVELS = pytest.mark.parametrize("level", [3, 4, 5], ids=["mqtt31", "mqtt311", "mqtt5"])
_PROTOCOL_NAMES = {3: "MQIsdp", 4: "MQTT", 5: "MQTT"}


class ConnectionClosed(Exception):
    """The bridge has closed the connection, or has ended."""


class RawClient:
    """One network connection. Received packets wait in `inbox`, in order."""

    def __init__(
        self,
        port: int,
        client_id: str,
        *,
        clean: bool = True,
        level: int = 4,
        keep_alive: int = 0,
        will: Will | None = None,
        user_name: str | None = None,
        password: bytes | None = None,
        byte_order: ByteOrder = "big",
        receive_buffer: int | None = None,
        properties: ConnectProperties | None = None,
        source: str = "",
    ) -> None:
        """`source` is the local address of the connection. Blank: the default."""
        if level == 5 and properties is None and not clean:
            properties = ConnectProperties(session_expiry_interval=0xFFFFFFFF)
        self.level = level
        self.byte_order: ByteOrder = byte_order
        self.inbox: deque[Packet] = deque()
        self.packet = Connect(
            client_id,
            _PROTOCOL_NAMES[level],
            level,
            clean_session=clean,
            keep_alive=keep_alive,
            will=will,
            user_name=user_name,
            password=password,
            properties=properties,
        )
        self._decoder = Decoder(server=False, protocol_level=level, byte_order=byte_order)
        self._packet_id = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            # Before the connection is made, so that the window is small from the start.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        if source:
            self.socket.bind((source, 0))
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def connected(cls, *arguments: object, **options: object) -> Self:
        """Return a client with an accepted CONNECT. The arguments are those of the constructor."""
        client = cls(*arguments, **options)
        connack = client.connect()
        assert connack.return_code == 0, connack
        return client

    def connect(self) -> Connack:
        """Send CONNECT and wait for its answer."""
        self.send(self.packet)
        return self.expect(Connack)

    # Packets ---------------------------------------------------------------------------------------------------------

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join(encode(packet, self.byte_order, self.level) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionClosed from error

    def receive(self, timeout: float = PATIENCE) -> Packet:
        """Return the next packet. ConnectionClosed if the bridge closes the connection, TimeoutError if nothing arrives."""
        while not self.inbox:
            self.fill(timeout)
        return self.inbox.popleft()

    def fill(self, timeout: float = PATIENCE) -> None:
        """Wait for bytes, and move complete packets to the inbox."""
        if self.socket.gettimeout() != timeout:
            self.socket.settimeout(timeout)
        try:
            data = self.socket.recv(262_144)
        except ConnectionResetError as error:
            raise ConnectionClosed from error
        if not data:
            raise ConnectionClosed
        self.inbox.extend(self._decoder.feed(data))
        if self._decoder.error is not None:
            raise AssertionError(f"the bridge sent a malformed packet: {self._decoder.error}")

    def expect(self, kind: type[P], timeout: float = PATIENCE) -> P:
        """Return the next packet, which must be of this type."""
        packet = self.receive(timeout)
        assert type(packet) is kind, f"expected {kind.__name__}, got {packet}"
        return packet

    def wait_for(self, kind: type[P], timeout: float = PATIENCE) -> P:
        """Return the next packet of this type. Others stay in the inbox."""
        checked = 0
        while True:
            for index in range(checked, len(self.inbox)):
                packet = self.inbox[index]
                if type(packet) is kind:
                    del self.inbox[index]
                    return packet
            checked = len(self.inbox)
            self.fill(timeout)

    def expect_closed(self, timeout: float = PATIENCE) -> None:
        """Wait until the bridge closes the connection. It must send nothing before."""
        try:
            packet = self.receive(timeout)
        except ConnectionClosed:
            return
        raise AssertionError(f"expected the connection to be closed, got {packet}")

    # What clients do -------------------------------------------------------------------------------------------------

    def next_packet_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id

    def subscribe(self, *filters: tuple[str, int]) -> tuple[int, ...]:
        """Subscribe, and return the codes of the SUBACK."""
        packet_id = self.next_packet_id()
        self.send(Subscribe(packet_id, filters))
        suback = self.wait_for(Suback)
        assert suback.packet_id == packet_id
        return suback.return_codes

    def unsubscribe(self, *filters: str) -> None:
        packet_id = self.next_packet_id()
        self.send(Unsubscribe(packet_id, filters))
        assert self.wait_for(Unsuback).packet_id == packet_id

    def publish(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False) -> int:
        """Publish, with the whole exchange. Return the message id."""
        packet_id = self.next_packet_id() if qos else 0
        self.send(Publish(topic, payload, qos, retain, False, packet_id))
        if qos == 1:
            assert self.wait_for(Puback).packet_id == packet_id
        elif qos == 2:
            assert self.wait_for(Pubrec).packet_id == packet_id
            self.send(Pubrel(packet_id))
            assert self.wait_for(Pubcomp).packet_id == packet_id
        return packet_id

    def take(self, timeout: float = PATIENCE) -> Publish:
        """Return the next packet, which must be a PUBLISH, and complete the exchange."""
        publish = self.expect(Publish, timeout)
        self.acknowledge(publish)
        return publish

    def acknowledge(self, publish: Publish) -> None:
        """Complete the receiver's side of the exchange of one PUBLISH."""
        if publish.qos == 1:
            self.send(Puback(publish.packet_id))
        elif publish.qos == 2:
            self.send(Pubrec(publish.packet_id))
            assert self.wait_for(Pubrel).packet_id == publish.packet_id
            self.send(Pubcomp(publish.packet_id))

    def ping(self) -> None:
        self.send(Pingreq())
        self.wait_for(Pingresp)

    def disconnect(self) -> None:
        """Send DISCONNECT, and wait until the bridge has closed the connection."""
        self.send(Disconnect())
        try:
            while True:
                self.fill()
        except ConnectionClosed:
            self.socket.close()

    def vanish(self) -> None:
        """Close the connection without DISCONNECT."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
