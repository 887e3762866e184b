"""A relay between a link and its broker that records the exchange of each numbered message of QoS 2.

A killed broker loses unsaved data, even if it acknowledged it. The record distinguishes its losses from those of the bridge.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter, defaultdict

from bridge.mqtt.properties import decode_remaining_length
from tests.helpers.exactly_once import number_of
from tests.helpers.relay import Pair, Relay

_CONNECT, _CONNACK, _PUBLISH, _PUBREC, _PUBCOMP = 1, 2, 3, 5, 7


class Tap(Relay):
    """The relay, and the packets in both directions."""

    def __init__(self, target: int, version: str) -> None:
        super().__init__(target)
        self._version_5 = version == "5"
        self._noting = threading.Lock()
        #: client identifier of each connection, by the socket of the link
        self._client_ids: dict[socket.socket, str] = {}
        #: number of sessions that the broker has started, by client identifier
        self.lives: Counter[str] = Counter()
        #: (from the broker, client identifier, packet identifier) -> number
        self._numbers: dict[tuple[bool, str, int], int] = {}
        #: number -> PUBLISH without DUP from the broker
        self.begun: Counter[int] = Counter()
        #: numbers that the link has answered with PUBREC, and with PUBCOMP
        self.received: set[int] = set()
        self.completed: set[int] = set()
        #: numbers that the broker sent again although the link had answered with PUBCOMP
        self.repeated: set[int] = set()
        #: number -> exchanges in which the broker has answered with PUBREC: session and packet identifier
        self.accepted: defaultdict[int, set[tuple[str, int, int]]] = defaultdict(set)

    def hand_on(self, pair: Pair, source: socket.socket, target: socket.socket) -> None:
        buffer = b""
        while data := source.recv(65536):
            buffer += data
            while len(buffer) > 1 and (measured := decode_remaining_length(buffer, 1)) is not None:
                length, start = measured
                if len(buffer) < start + length:
                    break
                self._note(pair, source is pair.server, buffer[0], buffer[start : start + length])
                buffer = buffer[start + length :]
            target.sendall(data)

    def _note(self, pair: Pair, from_broker: bool, first: int, body: bytes) -> None:
        kind = first >> 4
        with self._noting:
            if kind == _CONNECT:
                self._client_ids[pair.client] = _client_id(body, self._version_5)
                return
            client_id = self._client_ids[pair.client]
            if kind == _CONNACK:
                self.lives[client_id] += not body[0] & 1
            elif kind == _PUBLISH:
                self._note_publish(from_broker, client_id, first, body)
            elif kind in (_PUBREC, _PUBCOMP):
                packet_id = int.from_bytes(body[:2], "big")
                number = self._numbers.get((not from_broker, client_id, packet_id))
                if number is None:
                    return
                if not from_broker:
                    (self.received if kind == _PUBREC else self.completed).add(number)
                elif kind == _PUBREC:
                    self.accepted[number].add((client_id, self.lives[client_id], packet_id))

    def _note_publish(self, from_broker: bool, client_id: str, first: int, body: bytes) -> None:
        behind = 2 + int.from_bytes(body[:2], "big")
        packet_id, payload = int.from_bytes(body[behind : behind + 2], "big"), body[behind + 2 :]
        if self._version_5:
            measured = decode_remaining_length(payload, 0)
            assert measured is not None
            length, start = measured
            payload = payload[start + length :]
        number = number_of(payload)
        self._numbers[from_broker, client_id, packet_id] = number
        if not from_broker:
            return
        if not first & 0x08:
            self.begun[number] += 1
        elif number in self.completed:
            self.repeated.add(number)


def _client_id(body: bytes, version_5: bool) -> str:
    """Return the client identifier of a CONNECT without the fixed header."""
    at = 2 + int.from_bytes(body[:2], "big") + 4
    if version_5:
        measured = decode_remaining_length(body, at)
        assert measured is not None
        length, start = measured
        at = start + length
    return body[at + 2 : at + 2 + int.from_bytes(body[at : at + 2], "big")].decode()
