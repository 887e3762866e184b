"""paho's client for the connection, the bridge's own codec for messages.

TCP and TLS, CONNECT, SUBSCRIBE and keep-alive are paho's. PUBLISH, PUBACK, PUBREC, PUBREL and PUBCOMP are read by
`bridge.wire.mqtt`, and go out as bytes.

What is different, and why:

- The steps of QoS 2 stand apart. paho answers PUBLISH with PUBREC and PUBREC with PUBREL by itself, under `manual_ack`
  too; a bridge has to commit in between. paho also drops a PUBREL that it knows no message for, which after a restart is
  every one, and chooses the message ids, which after a restart have to be those of before.
- Speed. paho asks the socket for one byte, one byte and the rest, makes a dictionary, a message and a property object
  for each packet, and takes six locks. So `loop_read` decodes all that has come at once, and hands messages over once for
  each call; every other packet is given to paho's own `loop_read` as bytes. Publications and answers are given to paho's
  output queue as encoded packets, many at once.

The protected names that this depends on are listed in PROTECTED; a test compares them with the installed paho.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, NamedTuple

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion

from bridge.mqtt.link.stream import Stream
from bridge.wire.mqtt import (
    LEVEL_MQTT_3_1_1,
    LEVEL_MQTT_5,
    Decoder,
    MalformedPacket,
    OtherPacket,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)

#: Signatures of what is overridden or called of paho's protected methods, parameters without their types.
PROTECTED = {
    "_create_socket": ("self",),
    "_loop_rc_handle": ("self", "rc"),
    "_mid_generate": ("self",),
    "_packet_queue": ("self", "command", "packet", "mid", "qos", "info"),
}
PROTECTED_ATTRIBUTES = ("_ping_t",)

_PUBLISH = 0x30
"""A first byte that paho makes nothing of when it has written the packet."""

#: The message ids of SUBSCRIBE and UNSUBSCRIBE. One of each is under way at most, and publications never have these ids.
SUBSCRIBE_MID, UNSUBSCRIBE_MID = 65535, 65534
#: The highest message id of a publication.
HIGHEST_MID = 65533

Answer = Puback | Pubrec | Pubcomp
"""What a broker answers to a publication of the link."""


class Sinks(NamedTuple):
    """Where packets go. Called on the network thread, each at most once for a read, with all that came."""

    #: raises MalformedPacket for what the link does not allow
    publications: Callable[[list[Publish]], None]
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
        self._sinks = sinks
        self._stream: Stream | None = None
        self._decoder = Decoder(
            server=False, protocol_level=LEVEL_MQTT_5 if version_5 else LEVEL_MQTT_3_1_1, messages_only=True
        )
        #: decoded packets that are not handed over yet, as there was no room for publications
        self._packets: list[Packet] = []
        #: why the connection broke, where it is known better than by paho; "" else
        self.fault = ""
        self._asked = False
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
        self._packet_queue(_PUBLISH, memoryview(packets), 0, 1)  # type: ignore[arg-type]

    def forgive_silence(self) -> None:
        """Go on sending PINGREQ without waiting for PINGRESP, which cannot come while nothing is read."""
        self._ping_t = 0.0

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read what has come, and hand it to the sinks; as paho's, with an error code where the connection is over."""
        stream = self._stream
        if stream is None or self.socket() is None:
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        if not self._packets:
            try:
                self._packets = self._decoder.feed(stream.fill(self._decoder.missing))
            except OSError as error:
                self.fault = f"the connection broke: {error}"
                return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        try:
            code = self._deal(stream)
            if self._decoder.error is not None and not self._packets:
                raise self._decoder.error
        except MalformedPacket as error:
            self.fault = f"the broker sent a malformed packet: {error}"
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_PROTOCOL)
        if stream.ended and not self._packets and self.socket() is not None:
            self.fault = "the broker closed the connection"
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        return code

    @property
    def backlog(self) -> bool:
        """Return whether packets have come that there was no room for."""
        return bool(self._packets)

    def _deal(self, stream: Stream) -> MQTTErrorCode:
        """Hand decoded packets over in their order, as far as there is room."""
        publications: list[Publish] = []
        answers: list[Answer] = []
        releases: list[int] = []
        room = self._sinks.room()
        packets, self._packets = self._packets, []
        for position, packet in enumerate(packets):
            if isinstance(packet, Publish):
                if len(publications) >= room:
                    self._packets = packets[position:]
                    break
                publications.append(packet)
            elif isinstance(packet, (Puback, Pubrec, Pubcomp)):
                answers.append(packet)
            elif isinstance(packet, Pubrel):
                releases.append(packet.message_id)
            elif isinstance(packet, OtherPacket):
                self._hand_over(publications, answers, releases)
                publications, answers, releases = [], [], []
                room = self._sinks.room()
                stream.offer(packet.data)
                code = super().loop_read()
                if code or self.socket() is None:
                    return code
        self._hand_over(publications, answers, releases)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _hand_over(self, publications: list[Publish], answers: list[Answer], releases: list[int]) -> None:
        if publications:
            self._sinks.publications(publications)
        if answers:
            self._sinks.answers(answers)
        if releases:
            self._sinks.releases(releases)

    def close(self) -> None:
        """Close the connection without DISCONNECT."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def write_error(self) -> str:
        """Return the error that the last write failed with, in words; "" where none did."""
        stream = self._stream
        return "" if stream is None or stream.error is None else f"the connection broke: {stream.error}"
