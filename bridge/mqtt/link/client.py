"""paho's client, changed where a bridge needs other than it offers. Everything else of the protocol is paho's.

What is different, and why:

- The steps of QoS 2 stand apart. paho answers PUBLISH with PUBREC and PUBREC with PUBREL by itself, under `manual_ack`
  too; a bridge has to commit in between. paho also drops a PUBREL that it knows no message for, which after a restart is
  every one, and chooses the message ids, which after a restart have to be those of before.
- Speed. paho asks the socket for one byte, one byte and the rest, makes a dictionary, a message and a property object
  for each packet, and takes six locks. So `loop_read` reads PUBLISH and its answers itself, out of a buffer, and hands
  them over once for each call; every other packet goes through paho's own `loop_read`, byte by byte. Publications and
  answers are given to paho's output queue as encoded packets, many at once.

The protected names that this depends on are listed in PROTECTED; a test compares them with the installed paho.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, NamedTuple

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from bridge.mqtt.link.stream import Stream
from bridge.wire.mqtt import MalformedPacket, decode_remaining_length

#: Signatures of what is overridden or called of paho's protected methods, parameters without their types.
PROTECTED = {
    "_create_socket": ("self",),
    "_loop_rc_handle": ("self", "rc"),
    "_mid_generate": ("self",),
    "_packet_queue": ("self", "command", "packet", "mid", "qos", "info"),
}
PROTECTED_ATTRIBUTES = ("_ping_t",)

PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 0x30, 0x40, 0x50, 0x60, 0x70

#: The message ids of SUBSCRIBE and UNSUBSCRIBE. One of each is under way at most, and publications never have these ids.
SUBSCRIBE_MID, UNSUBSCRIBE_MID = 65535, 65534
#: The highest message id of a publication.
HIGHEST_MID = 65533


class Answer(NamedTuple):
    """PUBACK, PUBREC or PUBCOMP from the broker."""

    packet: int
    mid: int
    #: 0x80 and above: the publication is refused
    reason: int = 0
    text: str = ""


class Sinks(NamedTuple):
    """Where packets go. Called on the network thread, each at most once for a read, with all that came."""

    #: PUBLISH: the first byte of the packet and what follows its fixed header; raises MalformedPacket
    publications: Callable[[list[tuple[int, bytes]]], None]
    answers: Callable[[list[Answer]], None]
    #: message ids of PUBREL
    releases: Callable[[list[int]], None]
    #: how many publications may be read
    room: Callable[[], int]


class LinkClient(Client):
    """One connection, to be driven by `loop_read`, `loop_write` and `loop_misc` on one thread; used once."""

    def __init__(self, client_id: str, version_5: bool, clean: bool, sinks: Sinks) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id,
            None if version_5 else clean,
            protocol=MQTTProtocolVersion.MQTTv5 if version_5 else MQTTProtocolVersion.MQTTv311,
            # Else it answers a refusal of MQTT 3.1.1 by connecting anew with MQTT 3.1, on its own.
            reconnect_on_failure=False,
        )
        self._version_5 = version_5
        self._sinks = sinks
        self._stream: Stream | None = None
        #: why the connection broke, where it is known better than by paho; "" else
        self.fault = ""
        self._asked = False
        #: whether the buffer has publications for which there was no room
        self.backlog = False
        # With this callback set paho leaves all writing to the thread that drives it; nothing is to be done in it,
        # as that thread looks before it waits.
        self.on_socket_register_write = lambda *_: None

    def _create_socket(self) -> Any:
        connected: Any = super()._create_socket()
        # Batches are written whole; a last small segment must not wait for the peer's delayed acknowledgement.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = Stream(connected)
        return self._stream

    def _mid_generate(self) -> int:
        # paho asks once for each of its own packets with a message id: SUBSCRIBE, and UNSUBSCRIBE behind it.
        self._asked = not self._asked
        return SUBSCRIBE_MID if self._asked else UNSUBSCRIBE_MID

    def queue(self, packets: bytes) -> None:
        """Add encoded packets to what is to be written; callable on any thread, which then wakes the network's."""
        # With QoS 1 paho calls nobody when it is written. As a view, what is left after a short write is not copied.
        self._packet_queue(PUBLISH, memoryview(packets), 0, 1)  # type: ignore[arg-type]

    def forgive_silence(self) -> None:
        """Go on sending PINGREQ without waiting for PINGRESP, which cannot come while nothing is read."""
        self._ping_t = 0.0

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read what has come, and hand it to the sinks; as paho's, with an error code where the connection is over."""
        stream = self._stream
        if stream is None or self.socket() is None:
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        try:
            stream.fill()
            code = self._read_packets(stream)
        except MalformedPacket as error:
            self.fault = f"the broker sent a malformed packet: {error}"
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_PROTOCOL)
        except OSError as error:
            self.fault = f"the connection broke: {error}"
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        if stream.ended and self.socket() is not None:
            self.fault = "the broker closed the connection"
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        return code

    def _read_packets(self, stream: Stream) -> MQTTErrorCode:
        """Take whole packets off the buffer."""
        publications: list[tuple[int, bytes]] = []
        answers: list[Answer] = []
        releases: list[int] = []
        room = self._sinks.room()
        code = MQTTErrorCode.MQTT_ERR_SUCCESS
        self.backlog = False
        buffer, offset, end = stream.buffer, stream.offset, len(stream.buffer)
        while offset + 2 <= end:
            first, length, start = buffer[offset], buffer[offset + 1], offset + 2
            if length > 0x7F:
                measured = decode_remaining_length(buffer, offset + 1)
                if measured is None:
                    break
                length, start = measured
            stop = start + length
            if stop > end:
                stream.needed = stop - offset
                break
            kind = first & 0xF0
            if kind == PUBLISH:
                if len(publications) >= room:
                    self.backlog = True
                    break
                publications.append((first, buffer[start:stop]))
            elif kind == PUBREL:
                releases.append(self._answer(kind, buffer[start:stop]).mid)
            elif PUBACK <= kind <= PUBCOMP:
                answers.append(self._answer(kind, buffer[start:stop]))
            else:
                stream.offset = offset
                self._hand_over(publications, answers, releases)
                publications, answers, releases = [], [], []
                code = super().loop_read()
                if code or self.socket() is None:
                    return code
            offset = stop
        stream.offset = offset
        self._hand_over(publications, answers, releases)
        return code

    def _hand_over(self, publications: list[tuple[int, bytes]], answers: list[Answer], releases: list[int]) -> None:
        if publications:
            self._sinks.publications(publications)
        if answers:
            self._sinks.answers(answers)
        if releases:
            self._sinks.releases(releases)

    def _answer(self, kind: int, packet: bytes) -> Answer:
        length = len(packet)
        if length < 2 or (length > 2 and not self._version_5):
            raise MalformedPacket(f"packet 0x{kind:02x}", 1, f"MQTT 3.1.1 section 3.4: Remaining Length is {length}")
        mid = packet[0] << 8 | packet[1]
        if length == 2 or packet[2] < 0x80:
            return Answer(kind, mid)
        return Answer(kind, mid, packet[2], _reason_text(kind >> 4, packet[2], packet[3:]))

    def close(self) -> None:
        """Close the connection without DISCONNECT."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def write_error(self) -> str:
        """Return the error that the last write failed with, in words; "" where none did."""
        stream = self._stream
        return "" if stream is None or stream.error is None else f"the connection broke: {stream.error}"


#: Names of the reason codes that paho knows for some packets only.
_OTHER_NAMES = {
    0x87: "Not authorized",
    0x90: "Topic name invalid",
    0x91: "Packet identifier in use",
    0x92: "Packet identifier not found",
    0x93: "Receive maximum exceeded",
    0x95: "Packet too large",
    0x96: "Message rate too high",
    0x97: "Quota exceeded",
    0x98: "Administrative action",
    0x99: "Payload format invalid",
    0x9A: "Retain not supported",
    0x9B: "QoS not supported",
}


def reason_name(packet_type: int, reason: int) -> str:
    """Return the name that MQTT 5 has for a reason code, as far as paho knows it for this packet."""
    try:
        return ReasonCode(packet_type, identifier=reason).getName()
    except (KeyError, ValueError, AssertionError):
        # A broker may send what MQTT 5 has for other packets only; it means the same there.
        return _OTHER_NAMES.get(reason) or f"reason code 0x{reason:02x}"


def _reason_text(packet_type: int, reason: int, encoded: bytes) -> str:
    text = reason_name(packet_type, reason)
    if encoded:
        properties: Any = Properties(packet_type)  # type: ignore[no-untyped-call]
        try:
            properties.unpack(encoded)
        except Exception as error:
            # paho raises what it stumbles over: IndexError, KeyError, its own classes.
            raise MalformedPacket(PacketTypes.Names[packet_type], 4, f"MQTT 5 section 2.2.2: {error!r}") from None
        if explanation := getattr(properties, "ReasonString", ""):
            return f"{text} ({explanation})"
    return text
